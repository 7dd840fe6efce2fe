package vibrant

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/vibrant-ml/vibrant/internal/engine"
)

// maxCandidates is how many of the likeliest tokens are sorted on the device: beyond, reading all logits is cheaper.
const maxCandidates = 128

// chooser samples as a Generation says, in llama.cpp's order: penalties, top-k, top-p, min-p, temperature.
type chooser struct {
	g      Generation
	rng    *rand.Rand
	recent []int32
	buffer []candidate
}

type candidate struct {
	id     int32
	logit  float64
	weight float64
}

func newChooser(g Generation, prompt []int32) *chooser {
	seed := rand.Uint64()
	if g.Seed != nil {
		seed = *g.Seed
	}
	return &chooser{g: g, rng: rand.New(rand.NewPCG(seed, 0)), recent: slices.Clone(prompt[max(0, len(prompt)-g.RepeatLastN):])}
}

func (c *chooser) penalizes() bool {
	return c.g.RepeatLastN > 0 && (c.g.RepeatPenalty != 1 || c.g.PresencePenalty != 0 || c.g.FrequencyPenalty != 0)
}

// engine returns what the engine asks, nil for the likeliest token.
func (c *chooser) engine() engine.Chooser {
	if c.g.Temperature == 0 && !c.penalizes() {
		return nil
	}
	return c
}

// accept takes note of a token that was chosen.
func (c *chooser) accept(id int32) {
	c.recent = append(c.recent, id)
	if len(c.recent) > c.g.RepeatLastN {
		c.recent = c.recent[len(c.recent)-c.g.RepeatLastN:]
	}
}

func (c *chooser) Candidates() int {
	if c.penalizes() || c.g.TopK < 2 || c.g.TopK > maxCandidates {
		return 0
	}
	return c.g.TopK
}

func (c *chooser) Choose(logits []float32, ids []int32) int32 {
	list := c.buffer[:0]
	for i, x := range logits {
		id := int32(i)
		if ids != nil {
			id = ids[i]
		}
		list = append(list, candidate{id: id, logit: float64(x)})
	}
	c.buffer = list
	if c.penalizes() {
		count := map[int32]float64{}
		for _, id := range c.recent {
			count[id]++
		}
		for i := range list {
			if n := count[list[i].id]; n > 0 {
				if list[i].logit > 0 {
					list[i].logit /= c.g.RepeatPenalty
				} else {
					list[i].logit *= c.g.RepeatPenalty
				}
				list[i].logit -= n*c.g.FrequencyPenalty + c.g.PresencePenalty
			}
		}
	}
	slices.SortStableFunc(list, func(a, b candidate) int {
		switch {
		case a.logit > b.logit:
			return -1
		case a.logit < b.logit:
			return 1
		}
		return 0
	})
	if c.g.Temperature == 0 {
		return list[0].id
	}
	if c.g.TopK > 0 {
		list = list[:min(len(list), c.g.TopK)]
	}
	sum := 0.0
	for i := range list {
		list[i].weight = math.Exp(list[i].logit - list[0].logit)
		sum += list[i].weight
	}
	mass := 0.0
	for i := range list {
		if mass += list[i].weight; mass >= c.g.TopP*sum {
			list = list[:i+1]
			break
		}
	}
	for i := range list {
		if list[i].weight < c.g.MinP*list[0].weight {
			list = list[:i]
			break
		}
	}
	sum = 0
	for i := range list {
		list[i].weight = math.Exp((list[i].logit - list[0].logit) / c.g.Temperature)
		sum += list[i].weight
	}
	r := c.rng.Float64() * sum
	for _, x := range list {
		if r -= x.weight; r < 0 {
			return x.id
		}
	}
	return list[len(list)-1].id
}
