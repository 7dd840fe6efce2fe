package sample

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// reference computes the probabilities of all tokens step by step, sorting everything.
func reference(o Options, logits []float32, recent []int32) []float64 {
	type token struct {
		id       int
		logit, p float64
	}
	if o.RepeatLastN >= 0 {
		recent = recent[max(0, len(recent)-o.RepeatLastN):]
	}
	var list []token
	for id, x := range logits {
		l, n := float64(x), 0.0
		for _, r := range recent {
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
		if l = float64(float32(l)); !math.IsInf(l, -1) {
			list = append(list, token{id: id, logit: l})
		}
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
	if o.Temperature == 0 {
		list = list[:1]
		list[0].p = 1
	} else {
		normalize(o.Temperature)
	}
	all := make([]float64, len(logits))
	for _, t := range list {
		all[t.id] = t.p
	}
	return all
}

func mustSample(t *testing.T, s *Sampler, logits []float32) int32 {
	t.Helper()
	id, err := s.Sample(logits)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func noise(seed uint64, n int, spread float64) []float32 {
	r := rand.New(rand.NewPCG(seed, 2))
	logits := make([]float32, n)
	for i := range logits {
		logits[i] = float32(r.NormFloat64() * spread)
	}
	return logits
}

func TestFrequenciesAreTheProbabilities(t *testing.T) {
	logits := noise(1, 60, 2)
	logits[17] = float32(math.Inf(-1))
	recent := []int32{3, 5, 5, 59, 7, 3}
	plain := Options{Temperature: 1, TopP: 1, RepeatPenalty: 1, RepeatLastN: 64}
	for name, change := range map[string]func(*Options){
		"plain":           func(*Options) {},
		"hot":             func(o *Options) { o.Temperature = 1.7 },
		"cold":            func(o *Options) { o.Temperature = 0.3 },
		"greedy":          func(o *Options) { o.Temperature = 0 },
		"top-k":           func(o *Options) { o.TopK = 7 },
		"top-k of 1":      func(o *Options) { o.TopK = 1 },
		"top-k wide":      func(o *Options) { o.TopK = 200 },
		"top-p":           func(o *Options) { o.TopP = 0.6 },
		"top-p of 0":      func(o *Options) { o.TopP = 0 },
		"min-p":           func(o *Options) { o.MinP = 0.1 },
		"min-p of 1":      func(o *Options) { o.MinP = 1 },
		"penalties":       func(o *Options) { o.RepeatPenalty, o.PresencePenalty, o.FrequencyPenalty = 1.3, 0.2, 0.4 },
		"rewards":         func(o *Options) { o.RepeatPenalty, o.PresencePenalty, o.FrequencyPenalty = 0.7, -0.2, -0.4 },
		"short look":      func(o *Options) { o.RepeatPenalty, o.RepeatLastN = 2, 2 },
		"look at nothing": func(o *Options) { o.RepeatPenalty, o.RepeatLastN = 2, 0 },
		"look at all":     func(o *Options) { o.RepeatPenalty, o.RepeatLastN = 2, -1 },
		"defaults":        func(o *Options) { *o = Defaults() },
		"all at once":     func(o *Options) { *o = Options{0.8, 40, 0.9, 0.05, 1.1, 0.1, 0.1, 4, 0} },
	} {
		t.Run(name, func(t *testing.T) {
			o := plain
			change(&o)
			o.Seed = 1
			s := New(o, recent)
			want := reference(o, logits, recent)
			const n = 20000
			got := make([]float64, len(logits))
			before := slices.Clone(logits)
			for range n {
				got[mustSample(t, s, logits)]++
			}
			if !slices.Equal(before, logits) {
				t.Error("the logits were changed")
			}
			// Pearson's statistic over the tokens expected at least five times; the others together are one class.
			chi, classes, rareGot, rareWant := 0.0, 0, 0.0, 0.0
			for id := range got {
				e := want[id] * n
				switch {
				case e == 0 && got[id] > 0:
					t.Errorf("token %d was picked %v times, though it is cut", id, got[id])
				case e < 5:
					rareGot, rareWant = rareGot+got[id], rareWant+e
				default:
					chi += (got[id] - e) * (got[id] - e) / e
					classes++
				}
			}
			if rareWant > 0.5 {
				chi += (rareGot - rareWant) * (rareGot - rareWant) / rareWant
				classes++
			}
			// The statistic has the mean classes-1 and twice that as variance; four standard deviations and a bit for its
			// skewness at few classes. The seed is fixed, so this holds always or never.
			free := float64(classes - 1)
			if limit := free + 4*math.Sqrt(2*free) + 8; !(chi <= limit) || free == 0 && chi != 0 {
				t.Errorf("chi-square %.1f with %v degrees of freedom, want at most %.1f", chi, free, limit)
			}
		})
	}
}

// options draws settings of all kinds, off ones included.
func options() *rapid.Generator[Options] {
	return rapid.Custom(func(t *rapid.T) Options {
		return Options{
			Temperature:      rapid.SampledFrom([]float64{0, 0.1, 0.8, 1, 3}).Draw(t, "temperature"),
			TopK:             rapid.SampledFrom([]int{0, 1, 2, 5, 40, 127, 128, 1000}).Draw(t, "top-k"),
			TopP:             rapid.SampledFrom([]float64{0, 0.3, 0.95, 0.999999, 1}).Draw(t, "top-p"),
			MinP:             rapid.SampledFrom([]float64{0, 0.001, 0.05, 0.5, 1}).Draw(t, "min-p"),
			RepeatPenalty:    rapid.SampledFrom([]float64{1, 1.1, 2, 0.5}).Draw(t, "repeat"),
			PresencePenalty:  rapid.SampledFrom([]float64{0, 0.5, -0.5}).Draw(t, "presence"),
			FrequencyPenalty: rapid.SampledFrom([]float64{0, 0.25, -0.25}).Draw(t, "frequency"),
			RepeatLastN:      rapid.SampledFrom([]int{0, 1, 4, 64, -1}).Draw(t, "last-n"),
			Seed:             rapid.Uint64().Draw(t, "seed"),
		}
	})
}

// vocabulary draws logits with many equal ones and some forbidden, but never all.
func vocabulary() *rapid.Generator[[]float32] {
	return rapid.Custom(func(t *rapid.T) []float32 {
		n := rapid.SampledFrom([]int{1, 2, 3, 41, 127, 128, 255, 1000}).Draw(t, "tokens")
		logits := noise(rapid.Uint64().Draw(t, "noise"), n, rapid.SampledFrom([]float64{0, 1, 8}).Draw(t, "spread"))
		grid := rapid.SampledFrom([]float64{0, 0.5, 4}).Draw(t, "grid")
		forbid := rapid.SampledFrom([]int{0, 2, 3}).Draw(t, "forbid")
		for i := range logits {
			if grid > 0 {
				logits[i] = float32(math.Round(float64(logits[i])/grid) * grid)
			}
			if forbid > 0 && i%forbid == 1 {
				logits[i] = float32(math.Inf(-1))
			}
		}
		return logits
	})
}

func TestOnlyTokensThatAreLeftArePicked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o, logits := options().Draw(t, "options"), vocabulary().Draw(t, "logits")
		recent := rapid.SliceOfN(rapid.Int32Range(0, int32(len(logits))+2), 0, 70).Draw(t, "recent")
		s := New(o, recent)
		want := reference(o, logits, recent)
		// Weights at the very edge of top-p or min-p may fall on either side by rounding.
		loose := o
		loose.TopP, loose.MinP = math.Min(1, o.TopP+1e-9), o.MinP*(1-1e-9)
		allowed := reference(loose, logits, recent)
		for range 8 {
			id, err := s.Sample(logits)
			if err != nil {
				t.Fatal(err)
			}
			if !(want[id] > 0 || allowed[id] > 0) {
				t.Fatalf("picked %d, which is cut", id)
			}
		}
	})
}

func TestCandidatesOfADeviceGiveTheSameTokens(t *testing.T) {
	asked := 0
	rapid.Check(t, func(t *rapid.T) {
		o, logits := options().Draw(t, "options"), vocabulary().Draw(t, "logits")
		whole := New(o, nil)
		k := min(whole.Candidates(), len(logits))
		if k == 0 {
			return
		}
		asked++
		few, chosen := whole.Clone(), whole.Clone()
		ids := make([]int32, len(logits))
		for i := range ids {
			ids[i] = int32(i)
		}
		sort.SliceStable(ids, func(i, j int) bool { return logits[ids[i]] > logits[ids[j]] })
		ids = ids[:k]
		best := make([]float32, k)
		for i, id := range ids {
			best[i] = logits[id]
		}
		for step := range 80 {
			a, err := whole.Sample(logits)
			if err != nil {
				t.Fatal(err)
			}
			shuffled, values := slices.Clone(ids), slices.Clone(best)
			rand.New(rand.NewPCG(uint64(step), 0)).Shuffle(k, func(i, j int) {
				shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
				values[i], values[j] = values[j], values[i]
			})
			b, err := few.SampleTop(shuffled, values)
			if err != nil {
				t.Fatal(err)
			}
			if c := chosen.Choose(best, ids); a != b || a != c {
				t.Fatalf("step %d: %d of all, %d and %d of %d candidates", step, a, b, c, k)
			}
			whole.Accept(a)
			few.Accept(a)
			chosen.Accept(a)
		}
	})
	if asked == 0 {
		t.Error("no options can do with candidates")
	}
}

func TestWhatTheChoiceDependsOn(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want int
	}{
		{Options{TopP: 1, RepeatPenalty: 1, TopK: 40}, 1},
		{Options{TopP: 1, RepeatPenalty: 1.1, RepeatLastN: 64}, 65},
		{Options{TopP: 1, RepeatPenalty: 1.1}, 1}, // looks back on nothing
		{Options{Temperature: 1, TopP: 1, RepeatPenalty: 1, TopK: 40, RepeatLastN: 64}, 40},
		{Options{Temperature: 1, TopP: 1, RepeatPenalty: 1, TopK: 128}, 128},
		{Options{Temperature: 1, TopP: 1, RepeatPenalty: 1, TopK: 129}, 0},
		{Options{Temperature: 1, TopP: 1, RepeatPenalty: 1}, 0},
		{Options{Temperature: 1, TopP: 1, RepeatPenalty: 1, TopK: 40, PresencePenalty: 1, RepeatLastN: 64}, 104},
		{Options{Temperature: 1, TopP: 1, RepeatPenalty: 1, TopK: 40, PresencePenalty: -1, RepeatLastN: 64}, 0}, // may raise any
		{Options{Temperature: 1, TopP: 1, RepeatPenalty: 0.9, TopK: 40, RepeatLastN: 64}, 0},
		{Options{Temperature: 1, TopP: 1, RepeatPenalty: 1.1, TopK: 40, RepeatLastN: -1}, 0}, // may lower any number
		{Options{Temperature: 1, TopP: 1, RepeatPenalty: 1.1, TopK: 40, RepeatLastN: 256}, 0},
	} {
		if n := New(c.o, nil).Candidates(); n != c.want {
			t.Errorf("%+v: %d candidates, want %d", c.o, n, c.want)
		}
	}
}

func TestEqualLogitsAreRankedById(t *testing.T) {
	logits := make([]float32, 1000)
	for _, k := range []int{1, 3} {
		s := New(Options{Temperature: 1, TopK: k, TopP: 1, RepeatPenalty: 1}, nil)
		for range 50 {
			if id := mustSample(t, s, logits); int(id) >= k {
				t.Fatalf("top-k %d picked %d", k, id)
			}
		}
	}
	if id := mustSample(t, New(Options{RepeatPenalty: 1}, nil), []float32{-1, 4, 4, 4}); id != 1 {
		t.Errorf("greedy picked %d, want 1", id)
	}
	// A penalized token joins the others late, and is ranked by its id all the same.
	s := New(Options{RepeatPenalty: 2, RepeatLastN: 4}, []int32{1})
	if id := mustSample(t, s, []float32{-1, 8, 4, 4}); id != 1 {
		t.Errorf("greedy with penalties picked %d, want 1", id)
	}
}

func TestGreedyWithPenaltiesMovesOn(t *testing.T) {
	s := New(Options{TopP: 1, RepeatPenalty: 1, FrequencyPenalty: 1, RepeatLastN: 2}, nil)
	var got []int32
	for range 6 {
		id := mustSample(t, s, []float32{1, 1.5, -9, 0.8})
		s.Accept(id)
		got = append(got, id)
	}
	if want := []int32{1, 0, 3, 1, 0, 3}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// The tokens of a seed are written down: they may not change with the platform, the build, or the version.
func TestASeedGivesTheSameTokensEverywhere(t *testing.T) {
	logits := make([]float32, 500)
	for i := range logits {
		logits[i] = float32((i*7919)%1009) / 64 // without math functions, which may differ
	}
	for _, c := range []struct {
		o    Options
		want []int32
	}{
		{Options{Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05, RepeatPenalty: 1, RepeatLastN: 64, Seed: 42}, seed42Defaults},
		{Options{Temperature: 1.5, TopP: 1, RepeatPenalty: 1.1, RepeatLastN: 64, Seed: 7}, seed7All},
	} {
		s := New(c.o, nil)
		run := func() (got []int32) {
			for range 20 {
				id := mustSample(t, s, logits)
				s.Accept(id)
				got = append(got, id)
			}
			return got
		}
		if got := run(); !slices.Equal(got, c.want) {
			t.Errorf("seed %d: %v, want %v", c.o.Seed, got, c.want)
		}
		s.Reset()
		if got := run(); !slices.Equal(got, c.want) {
			t.Errorf("seed %d after Reset: %v, want %v", c.o.Seed, got, c.want)
		}
	}
}

var (
	seed42Defaults = []int32{218, 317, 310, 33, 66, 73, 284, 409, 53, 317, 231, 20, 343, 99, 86, 20, 475, 343, 198, 20}
	seed7All       = []int32{132, 152, 53, 86, 442, 403, 442, 278, 317, 240, 490, 106, 42, 343, 363, 198, 165, 383, 7, 436}
)

func TestACloneGoesOnByItself(t *testing.T) {
	logits := noise(3, 200, 1)
	o := Defaults()
	o.RepeatPenalty, o.RepeatLastN = 1.3, 3
	s := New(o, []int32{1, 2, 3, 4})
	next := func(s *Sampler) (ids []int32) {
		for range 30 {
			id := mustSample(t, s, logits)
			s.Accept(id)
			ids = append(ids, id)
		}
		return ids
	}
	next(s)
	c := s.Clone()
	want := next(s)
	if got := next(c); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if other := next(s); slices.Equal(other, want) {
		t.Error("the same tokens again")
	}
}

func TestBadOptionsAreNamed(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		want   string
		change func(*Options)
	}{
		{"temperature is -1", func(o *Options) { o.Temperature = -1 }},
		{"temperature is NaN", func(o *Options) { o.Temperature = nan }},
		{"temperature is +Inf", func(o *Options) { o.Temperature = inf }},
		{"top-k is -1", func(o *Options) { o.TopK = -1 }},
		{"top-p is 1.1", func(o *Options) { o.TopP = 1.1 }},
		{"top-p is -0.1", func(o *Options) { o.TopP = -0.1 }},
		{"top-p is NaN", func(o *Options) { o.TopP = nan }},
		{"min-p is 2", func(o *Options) { o.MinP = 2 }},
		{"min-p is NaN", func(o *Options) { o.MinP = nan }},
		{"repeat penalty is 0", func(o *Options) { o.RepeatPenalty = 0 }},
		{"repeat penalty is NaN", func(o *Options) { o.RepeatPenalty = nan }},
		{"presence penalty is +Inf", func(o *Options) { o.PresencePenalty = inf }},
		{"frequency penalty is NaN", func(o *Options) { o.FrequencyPenalty = nan }},
		{"repeat-last-n is -2", func(o *Options) { o.RepeatLastN = -2 }},
	} {
		o := Defaults()
		c.change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
		s := New(o, nil)
		if _, err := s.Sample([]float32{1}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Sample: %v, want %q", err, c.want)
		}
		if _, err := s.SampleTop([]int32{1}, []float32{1}); err == nil || s.Err() == nil {
			t.Errorf("SampleTop: %v, want %q", err, c.want)
		}
	}
	if err := Defaults().Validate(); err != nil {
		t.Error(err)
	}
}

func TestUnusableLogitsAreErrors(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for name, logits := range map[string][]float32{
		"none": {}, "all forbidden": {-inf, -inf, -inf}, "not a number": {1, nan, 2}, "not a number, first": {nan, 1}, "not a number, last": {1, -inf, nan},
		"infinite": {1, inf, 2},
	} {
		for _, k := range []int{0, 1, 2, 40} {
			for _, temperature := range []float64{0, 1} {
				for _, recent := range [][]int32{nil, {1}} {
					o := Options{Temperature: temperature, TopK: k, TopP: 0.9, MinP: 0.01, RepeatPenalty: 1.1, RepeatLastN: 4}
					what := fmt.Sprintf("%s, top-k %d, temperature %v, recent %v", name, k, temperature, recent)
					s := New(o, recent)
					if id, err := s.Sample(logits); !errors.Is(err, ErrLogits) {
						t.Errorf("%s: %d, %v", what, id, err)
					}
					ids := []int32{7, 8, 9}[:len(logits)]
					if id, err := s.SampleTop(ids, logits); !errors.Is(err, ErrLogits) {
						t.Errorf("%s: %d of candidates, %v", what, id, err)
					}
					if s.Err() != nil {
						t.Errorf("%s: Err before Choose: %v", what, s.Err())
					}
					s.Choose(logits, nil)
					if !errors.Is(s.Err(), ErrLogits) {
						t.Errorf("%s: Err after Choose: %v", what, s.Err())
					}
					if s.Reset(); s.Err() != nil {
						t.Errorf("%s: Err after Reset: %v", what, s.Err())
					}
				}
			}
		}
	}
	s := New(Defaults(), nil)
	if _, err := s.SampleTop([]int32{1, 2}, []float32{1}); err == nil {
		t.Error("two ids with one logit passed")
	}
	if _, err := s.SampleTop([]int32{4, 5, 4}, []float32{1, 2, 1}); err == nil || !strings.Contains(err.Error(), "token 4") {
		t.Errorf("a token twice: %v", err)
	}
	// Forbidden tokens are fine as long as one is left.
	if id, err := s.Sample([]float32{-inf, -inf, -1000, -inf}); err != nil || id != 2 {
		t.Errorf("%d, %v, want 2", id, err)
	}
	// Huge and tiny logits do not overflow.
	if id, err := s.Sample([]float32{-math.MaxFloat32, math.MaxFloat32, 0}); err != nil || id != 1 {
		t.Errorf("%d, %v, want 1", id, err)
	}
}

func TestChooseGoesOnAfterAnError(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	s := New(Defaults(), nil)
	if id := s.Choose([]float32{nan, -inf, 3, nan, -5}, nil); id != 2 || s.Err() == nil {
		t.Errorf("%d, %v, want the highest there is", id, s.Err())
	}
	if id := s.Choose([]float32{nan, -inf}, []int32{8, 9}); id != 8 {
		t.Errorf("%d, want the first", id)
	}
	if id := s.Choose(nil, nil); id != 0 {
		t.Errorf("%d of nothing", id)
	}
	picked := map[int32]bool{}
	for range 100 {
		picked[s.Choose([]float32{1, 1, 1}, nil)] = true
	}
	if len(picked) != 3 || s.Err() == nil {
		t.Errorf("picked %v, %v, want all three tokens and the first error", picked, s.Err())
	}
}

func TestExpIsExact(t *testing.T) {
	for x := 0.0; x > -700; x -= 0.0173 {
		if got, want := exp(x), math.Exp(x); !(math.Abs(got/want-1) <= 1e-12) { // the series stops at the tenth power: 3e-13
			t.Fatalf("exp(%v) = %v, want %v", x, got, want)
		}
	}
	if exp(math.Inf(-1)) != 0 || exp(-1e300) != 0 || exp(0) != 1 {
		t.Error("the ends are off")
	}
}

func Example() {
	o := Defaults()
	o.Temperature = 0 // greedy
	s := New(o, nil)
	id, err := s.Sample([]float32{0.5, 2.5, -1})
	fmt.Println(id, err)
	// Output: 1 <nil>
}

func BenchmarkSample(b *testing.B) {
	logits := noise(1, 151936, 3)
	recent := make([]int32, 64)
	for i := range recent {
		recent[i] = int32(i * 1000)
	}
	for _, c := range []struct {
		name string
		o    Options
	}{
		{"defaults", Defaults()},
		{"greedy", Options{TopP: 1, RepeatPenalty: 1}},
		{"penalties", Options{Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05, RepeatPenalty: 1.1, RepeatLastN: 64}},
		{"top_k=1000", Options{Temperature: 0.8, TopK: 1000, TopP: 0.95, MinP: 0.05, RepeatPenalty: 1}},
		{"min_p", Options{Temperature: 0.8, TopP: 1, MinP: 0.05, RepeatPenalty: 1}},
		{"top_p", Options{Temperature: 0.8, TopP: 0.95, RepeatPenalty: 1}},
		{"all", Options{Temperature: 0.8, TopP: 1, RepeatPenalty: 1}},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := New(c.o, recent)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Sample(logits); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
