// Package sample chooses the next token from logits: greedily, or at random among the likeliest, in llama.cpp's order:
// penalties, top-k, top-p, min-p, temperature.
package sample

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// Options say how to choose. The caller has checked their ranges.
type Options struct {
	Temperature float64 // 0: the likeliest
	TopK        int     // 0: all
	TopP        float64 // 1: all (Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration")
	MinP        float64 // 0: all (Nguyen et al. 2024, "Turning Up the Heat")

	RepeatPenalty    float64 // 1: none (Keskar et al. 2019, "CTRL")
	PresencePenalty  float64 // 0: none
	FrequencyPenalty float64 // 0: none
	RepeatLastN      int     // tokens that the penalties look back on

	Seed uint64
}

// maxCandidates is the largest top-k for which the likeliest tokens are asked for: beyond, finding them in all logits on
// the host is no slower.
const maxCandidates = 128

// Sampler chooses tokens of one sequence. The same options, seed and logits give the same tokens.
type Sampler struct {
	o      Options
	rng    *rand.Rand
	recent []int32 // that the penalties look back on
	list   []candidate
}

type candidate struct {
	id     int32
	logit  float32
	weight float64 // relative to the likeliest
}

// order is that of the logits, the greatest first, and of the ids among equals.
func order(a, b candidate) int {
	return cmp.Or(cmp.Compare(b.logit, a.logit), cmp.Compare(a.id, b.id))
}

// New returns a sampler for what follows a prompt.
func New(o Options, prompt []int32) *Sampler {
	recent := prompt[max(0, len(prompt)-o.RepeatLastN):]
	return &Sampler{o: o, rng: rand.New(rand.NewPCG(o.Seed, 0)), recent: slices.Clone(recent)}
}

// Greedy reports whether the choice is the likeliest token, always.
func (s *Sampler) Greedy() bool { return s.o.Temperature == 0 && !s.penalizes() }

func (s *Sampler) penalizes() bool {
	o := &s.o
	return o.RepeatLastN > 0 && (o.RepeatPenalty != 1 || o.PresencePenalty != 0 || o.FrequencyPenalty != 0)
}

// Candidates returns how many of the likeliest tokens the choice depends on; 0 for all of them.
func (s *Sampler) Candidates() int {
	switch {
	case s.Greedy():
		return 1
	case s.penalizes() || s.o.TopK > maxCandidates:
		return 0
	}
	return s.o.TopK
}

// Accept takes note of a token that was chosen.
func (s *Sampler) Accept(id int32) {
	if s.recent = append(s.recent, id); len(s.recent) > s.o.RepeatLastN {
		s.recent = s.recent[len(s.recent)-s.o.RepeatLastN:]
	}
}

// Choose returns one of ids, which have these logits; ids nil means 0, 1, 2, ... Logits that are no numbers are passed over;
// without any other it returns the first id. It changes logits where there are penalties.
func (s *Sampler) Choose(logits []float32, ids []int32) int32 {
	if s.penalizes() {
		s.penalize(logits, ids)
	}
	list := s.likeliest(logits, ids)
	if len(list) == 0 {
		if ids != nil {
			return ids[0]
		}
		return 0
	}
	if s.o.Temperature == 0 {
		return list[0].id
	}
	sum := 0.0
	for i := range list {
		list[i].weight = math.Exp(float64(list[i].logit-list[0].logit) / s.o.Temperature)
		sum += list[i].weight
	}
	r := s.rng.Float64() * sum
	for _, c := range list {
		if r -= c.weight; r < 0 {
			return c.id
		}
	}
	return list[len(list)-1].id
}

// penalize lowers the logits of tokens that were used lately.
func (s *Sampler) penalize(logits []float32, ids []int32) {
	count := map[int32]float64{}
	for _, id := range s.recent {
		count[id]++
	}
	lower := func(i int, n float64) {
		x := float64(logits[i])
		if x > 0 {
			x /= s.o.RepeatPenalty
		} else {
			x *= s.o.RepeatPenalty
		}
		logits[i] = float32(x - n*s.o.FrequencyPenalty - s.o.PresencePenalty)
	}
	if ids == nil {
		for id, n := range count {
			if int(id) < len(logits) {
				lower(int(id), n)
			}
		}
		return
	}
	for i, id := range ids {
		if n := count[id]; n > 0 {
			lower(i, n)
		}
	}
}

// likeliest returns the tokens that top-k, top-p and min-p leave, the likeliest first.
func (s *Sampler) likeliest(logits []float32, ids []int32) []candidate {
	k := s.o.TopK
	if s.o.Temperature == 0 {
		k = 1
	}
	top := float32(math.Inf(-1))
	for _, x := range logits {
		if x > top {
			top = x
		}
	}
	list := s.list[:0]
	add := func(i int) candidate {
		c := candidate{id: int32(i), logit: logits[i]}
		if ids != nil {
			c.id = ids[i]
		}
		return c
	}
	mass := 0.0
	if k > 0 && k < len(logits) {
		for i, x := range logits {
			if x > float32(math.Inf(-1)) && (len(list) < k || order(add(i), list[0]) < 0) {
				list = push(list, add(i), k)
			}
		}
		for _, c := range list {
			mass += math.Exp(float64(c.logit - top))
		}
	} else {
		// Top-p and min-p each keep a beginning of the sorted list. What is surely behind its end need not be sorted: what
		// min-p drops, and tokens so unlikely that together they are less than what top-p drops.
		for _, x := range logits {
			if x > float32(math.Inf(-1)) {
				mass += math.Exp(float64(x - top))
			}
		}
		spare := math.Max(0, 1-s.o.TopP) * mass / float64(len(logits))
		lowest := top + float32(math.Log(math.Max(s.o.MinP, spare)*(1-1e-6))) // -Inf where both are 0
		for i, x := range logits {
			if x > float32(math.Inf(-1)) && x >= lowest {
				list = append(list, add(i))
			}
		}
	}
	s.list = list
	slices.SortFunc(list, order)

	sum := 0.0
	for i := range list {
		w := math.Exp(float64(list[i].logit - top))
		if w < s.o.MinP { // the likeliest has weight 1, so at least one stays
			return list[:i]
		}
		if sum += w; sum >= s.o.TopP*mass {
			return list[:i+1]
		}
	}
	return list
}

// push adds to a heap of the k first by order, whose root is the last of them, and drops the last where there are more.
func push(heap []candidate, c candidate, k int) []candidate {
	if len(heap) < k {
		heap = append(heap, c)
		for i := len(heap) - 1; i > 0; {
			parent := (i - 1) / 2
			if order(heap[i], heap[parent]) <= 0 {
				break
			}
			heap[i], heap[parent] = heap[parent], heap[i]
			i = parent
		}
		return heap
	}
	heap[0] = c
	for i := 0; ; {
		child := 2*i + 1
		if child >= k {
			return heap
		}
		if child+1 < k && order(heap[child+1], heap[child]) > 0 {
			child++
		}
		if order(heap[child], heap[i]) <= 0 {
			return heap
		}
		heap[i], heap[child] = heap[child], heap[i]
		i = child
	}
}
