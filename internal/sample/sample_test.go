package sample

import (
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
)

// reference computes the probabilities of all tokens step by step, sorting everything.
func reference(o Options, logits []float32, recent []int32) []float64 {
	type token struct {
		id       int
		logit, p float64
	}
	var list []token
	for id, x := range logits {
		l, n := float64(x), 0.0
		for _, r := range recent[max(0, len(recent)-o.RepeatLastN):] {
			if int(r) == id {
				n++
			}
		}
		if n > 0 {
			if l > 0 {
				l /= o.RepeatPenalty
			} else {
				l *= o.RepeatPenalty
			}
			l -= n*o.FrequencyPenalty + o.PresencePenalty
		}
		list = append(list, token{id: id, logit: float64(float32(l))})
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].logit > list[j].logit })
	normalize := func(temperature float64) {
		sum := 0.0
		for i := range list {
			list[i].p = math.Exp((list[i].logit - list[0].logit) / temperature)
			sum += list[i].p
		}
		for i := range list {
			list[i].p /= sum
		}
	}
	if o.TopK > 0 {
		list = list[:min(o.TopK, len(list))]
	}
	normalize(1)
	sum := 0.0
	for i := range list {
		if sum += list[i].p; sum >= o.TopP {
			list = list[:i+1]
			break
		}
	}
	for i := range list {
		if list[i].p < o.MinP*list[0].p {
			list = list[:i]
			break
		}
	}
	normalize(o.Temperature)
	all := make([]float64, len(logits))
	for _, t := range list {
		all[t.id] = t.p
	}
	return all
}

func TestFrequenciesAreTheProbabilities(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	logits := make([]float32, 60)
	for i := range logits {
		logits[i] = float32(r.NormFloat64() * 2)
	}
	recent := []int32{3, 5, 5, 59, 7, 3}
	plain := Options{Temperature: 1, TopP: 1, RepeatPenalty: 1, RepeatLastN: 64}
	for name, change := range map[string]func(*Options){
		"plain":       func(*Options) {},
		"hot":         func(o *Options) { o.Temperature = 1.7 },
		"cold":        func(o *Options) { o.Temperature = 0.3 },
		"top-k":       func(o *Options) { o.TopK = 7 },
		"top-k of 1":  func(o *Options) { o.TopK = 1 },
		"top-k wide":  func(o *Options) { o.TopK = 200 },
		"top-p":       func(o *Options) { o.TopP = 0.6 },
		"top-p of 0":  func(o *Options) { o.TopP = 0 },
		"min-p":       func(o *Options) { o.MinP = 0.1 },
		"min-p of 1":  func(o *Options) { o.MinP = 1 },
		"penalties":   func(o *Options) { o.RepeatPenalty, o.PresencePenalty, o.FrequencyPenalty = 1.3, 0.2, 0.4 },
		"short look":  func(o *Options) { o.RepeatPenalty, o.RepeatLastN = 2, 2 },
		"all at once": func(o *Options) { *o = Options{0.8, 40, 0.9, 0.05, 1.1, 0.1, 0.1, 4, 0} },
	} {
		o := plain
		change(&o)
		s := New(o, recent)
		want := reference(o, logits, recent)
		const n = 10000
		got := make([]float64, len(logits))
		for range n {
			id := s.Choose(slices.Clone(logits), nil)
			got[id] += 1. / n
		}
		for id := range got {
			// Five standard deviations of a count; what cannot be chosen never is.
			if d := math.Abs(got[id] - want[id]); !(d <= 5*math.Sqrt(want[id]*(1-want[id])/n)+1e-9) {
				t.Errorf("%s: token %d came with frequency %.4f, want %.4f", name, id, got[id], want[id])
			}
		}
	}
}

func TestCandidatesSufficeForTheChoice(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		logits := make([]float32, 500)
		for i := range logits {
			logits[i] = float32(math.Round(r.NormFloat64()*8) / 4) // with many equals
		}
		o := Options{Temperature: 0.9, TopK: 1 + r.IntN(maxCandidates), TopP: 0.95, MinP: 0.05, RepeatPenalty: 1, Seed: r.Uint64()}
		k := New(o, nil).Candidates()
		if k != o.TopK {
			t.Fatalf("top-k %d asks for %d", o.TopK, k)
		}
		ids := make([]int32, len(logits))
		for i := range ids {
			ids[i] = int32(i)
		}
		sort.SliceStable(ids, func(i, j int) bool { return logits[ids[i]] > logits[ids[j]] })
		best := make([]float32, k)
		for i := range best {
			best[i] = logits[ids[i]]
		}
		if a, b := New(o, nil).Choose(best, ids[:k]), New(o, nil).Choose(logits, nil); a != b {
			t.Fatalf("%+v: %d of the candidates, %d of all", o, a, b)
		}
	}
}

func TestWhatTheChoiceDependsOn(t *testing.T) {
	for _, c := range []struct {
		o      Options
		greedy bool
		want   int
	}{
		{Options{TopP: 1, RepeatPenalty: 1, TopK: 40}, true, 1},
		{Options{TopP: 1, RepeatPenalty: 1.1, RepeatLastN: 64}, false, 0},
		{Options{TopP: 1, RepeatPenalty: 1.1}, true, 1}, // looks back on nothing
		{Options{Temperature: 1, TopP: 1, RepeatPenalty: 1, TopK: 40, RepeatLastN: 64}, false, 40},
		{Options{Temperature: 1, TopP: 1, RepeatPenalty: 1, TopK: 1000}, false, 0},
		{Options{Temperature: 1, TopP: 1, RepeatPenalty: 1}, false, 0},
		{Options{Temperature: 1, TopP: 1, RepeatPenalty: 1, TopK: 40, PresencePenalty: 1, RepeatLastN: 64}, false, 0},
	} {
		s := New(c.o, nil)
		if s.Greedy() != c.greedy || s.Candidates() != c.want {
			t.Errorf("%+v: greedy %v, %d candidates, want %v, %d", c.o, s.Greedy(), s.Candidates(), c.greedy, c.want)
		}
	}
}

func TestGreedyWithPenaltiesMovesOn(t *testing.T) {
	s := New(Options{TopP: 1, RepeatPenalty: 1, FrequencyPenalty: 1, RepeatLastN: 2}, nil)
	var got []int32
	for range 6 {
		id := s.Choose([]float32{1, 1.5, -9, 0.8}, nil)
		s.Accept(id)
		got = append(got, id)
	}
	if want := []int32{1, 0, 3, 1, 0, 3}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestSeedsRepeat(t *testing.T) {
	run := func(seed uint64) (ids []int32) {
		s := New(Options{Temperature: 1, TopP: 1, RepeatPenalty: 1, Seed: seed}, nil)
		for range 50 {
			ids = append(ids, s.Choose(make([]float32, 100), nil))
		}
		return ids
	}
	if !slices.Equal(run(7), run(7)) || slices.Equal(run(7), run(8)) {
		t.Error("a seed repeats, another differs")
	}
}

func TestWhatIsNoNumberIsPassedOver(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, temperature := range []float64{0, 1} {
		for _, k := range []int{0, 2, 40} {
			s := New(Options{Temperature: temperature, TopK: k, TopP: 0.9, MinP: 0.1, RepeatPenalty: 1.1, RepeatLastN: 4}, []int32{1, 99})
			if id := s.Choose([]float32{nan, -inf, 3, nan, -5}, nil); id != 2 {
				t.Errorf("temperature %v, top-k %d: %d", temperature, k, id)
			}
			if id := s.Choose([]float32{nan, -inf}, []int32{8, 9}); id != 8 {
				t.Errorf("temperature %v, top-k %d: nothing to choose: %d", temperature, k, id)
			}
		}
	}
}

func BenchmarkChoose(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	logits := make([]float32, 151936)
	for i := range logits {
		logits[i] = float32(r.NormFloat64() * 3)
	}
	for name, o := range map[string]Options{
		"min_p":     {Temperature: 0.8, TopP: 0.95, MinP: 0.05, RepeatPenalty: 1},
		"top_p":     {Temperature: 0.8, TopP: 0.95, RepeatPenalty: 1},
		"penalties": {Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05, RepeatPenalty: 1.1, RepeatLastN: 64},
	} {
		b.Run(name, func(b *testing.B) {
			s := New(o, nil)
			for b.Loop() {
				s.Choose(logits, nil)
			}
		})
	}
}
