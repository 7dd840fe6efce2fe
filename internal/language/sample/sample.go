// Package sample picks the next token from the logits of a model.
//
//	s := sample.New(sample.Defaults(), prompt)
//	...
//	id, err := s.Sample(logits) // one float32 a token of the vocabulary
//	...
//	s.Accept(id)
//
// The chain is the one of llama.cpp, in its order: penalties for repetition, top-k, top-p, min-p, temperature, a draw.
// Each step that cuts works on what the one before has left, so the probabilities of top-p are those of the top-k alone,
// and they are taken before the temperature.
//
// A seed gives the same tokens on every platform and in every build, for the same logits: the generator is the PCG of
// math/rand/v2, whose sequence is part of its documentation, and the arithmetic after it rounds alike everywhere. Equal
// logits are ranked by id, the lowest first.
package sample

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
)

// Options are the settings of a Sampler; Defaults gives llama.cpp's.
type Options struct {
	// Temperature divides the logits; 0 takes the likeliest token.
	Temperature float64
	// TopK keeps the likeliest tokens, this many; 0 keeps all.
	TopK int
	// TopP keeps the likeliest tokens up to this probability in all; 1 keeps all, and one always stays (Holtzman et al.
	// 2020, "The Curious Case of Neural Text Degeneration").
	TopP float64
	// MinP keeps the tokens that have at least this part of the likeliest token's probability; 0 keeps all (Nguyen et al.
	// 2024, "Turning Up the Heat").
	MinP float64
	// RepeatPenalty divides the logits above 0 of tokens seen among the last RepeatLastN, and multiplies those below; 1
	// leaves them (Keskar et al. 2019, "CTRL").
	RepeatPenalty float64
	// PresencePenalty is taken from the logits of those tokens, FrequencyPenalty from them as often as they were seen.
	PresencePenalty  float64
	FrequencyPenalty float64
	// RepeatLastN is how many tokens the penalties look back on; 0 turns them off, -1 means all.
	RepeatLastN int
	// Seed starts the random numbers.
	Seed uint64
}

// Defaults returns llama.cpp's defaults, with seed 0.
func Defaults() Options {
	return Options{Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05, RepeatPenalty: 1, RepeatLastN: 64}
}

// Validate names the first option that is out of its range.
func (o Options) Validate() error {
	for _, f := range []struct {
		name         string
		v, low, high float64
	}{
		{"temperature", o.Temperature, 0, 1e6},
		{"top-k", float64(o.TopK), 0, math.MaxInt32},
		{"top-p", o.TopP, 0, 1},
		{"min-p", o.MinP, 0, 1},
		{"repeat penalty", o.RepeatPenalty, 1e-6, 1e6},
		{"presence penalty", o.PresencePenalty, -1e6, 1e6},
		{"frequency penalty", o.FrequencyPenalty, -1e6, 1e6},
		{"repeat-last-n", float64(o.RepeatLastN), -1, math.MaxInt32},
	} {
		if !(f.v >= f.low && f.v <= f.high) { // NaN too
			plain := func(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
			return fmt.Errorf("%s is %s, want %s to %s", f.name, plain(f.v), plain(f.low), plain(f.high))
		}
	}
	return nil
}

// ErrLogits is what Sample returns, wrapped, for logits that no token can be picked from.
var ErrLogits = errors.New("unusable logits")

// Sampler picks tokens by one set of options. It is for one sequence and one goroutine at a time.
type Sampler struct {
	opts   Options
	pcg    rand.PCG
	last   []int32       // the tokens that penalties look back on; a ring once it is full
	oldest int           // where the ring starts
	counts map[int32]int // how often each token is in last

	kept      []candidate // buffers, used again
	penalized []int32
	invalid   error // what is wrong with the options
	failed    error // the first error of Choose
}

// candidate is a token with its logit, and its weight once that is known.
type candidate struct {
	id     int32
	logit  float32
	weight float64
}

// better ranks candidates: by logit, equals by id.
func better(a, b candidate) bool { return a.logit > b.logit || a.logit == b.logit && a.id < b.id }

// maxCandidates is the largest number of tokens for which SampleTop is preferred: beyond, finding them in all logits on
// the host is no slower.
const maxCandidates = 128

// New returns a sampler for what follows a prompt, whose last tokens count for the penalties. Options that are out of
// their range (Options.Validate) are the error of each Sample.
func New(opts Options, prompt []int32) *Sampler {
	s := &Sampler{opts: opts}
	s.Reset()
	if n := opts.RepeatLastN; n >= 0 {
		prompt = prompt[max(0, len(prompt)-n):]
	}
	for _, id := range prompt {
		s.Accept(id)
	}
	return s
}

// Reset forgets the tokens accepted, those of the prompt too, and the error of Choose, and starts the random numbers over
// from the seed.
func (s *Sampler) Reset() {
	s.pcg.Seed(s.opts.Seed, 0)
	s.last, s.oldest = s.last[:0], 0
	s.counts = map[int32]int{}
	s.invalid, s.failed = s.opts.Validate(), nil
}

// Clone returns a sampler that goes on from the same state on its own.
func (s *Sampler) Clone() *Sampler {
	c := *s
	c.last, c.counts = slices.Clone(s.last), maps.Clone(s.counts)
	c.kept, c.penalized = nil, nil
	return &c
}

// Accept notes that a token is now part of the sequence, for the penalties. Sample does not do it by itself, so that
// tokens of the prompt can be noted too, and tokens that were picked but not used can be left out.
func (s *Sampler) Accept(id int32) {
	n := s.opts.RepeatLastN
	if !s.penalizes() {
		return
	}
	s.counts[id]++
	if n < 0 || len(s.last) < n {
		s.last = append(s.last, id)
		return
	}
	old := s.last[s.oldest]
	if s.counts[old]--; s.counts[old] == 0 {
		delete(s.counts, old)
	}
	s.last[s.oldest] = id
	s.oldest = (s.oldest + 1) % n
}

func (s *Sampler) penalizes() bool {
	return s.opts.RepeatLastN != 0 && (s.opts.RepeatPenalty != 1 || s.opts.PresencePenalty != 0 || s.opts.FrequencyPenalty != 0)
}

// penalize returns the logit of a token that has been seen n times.
func (s *Sampler) penalize(logit float32, n int) float32 {
	x := float64(logit)
	if x > 0 {
		x /= s.opts.RepeatPenalty
	} else {
		x = float64(x * s.opts.RepeatPenalty)
	}
	return float32(x - float64(float64(float64(n)*s.opts.FrequencyPenalty)+s.opts.PresencePenalty))
}

// Sample picks a token from the logits of a whole vocabulary, which it leaves as they are. A logit of -Inf forbids its
// token. A NaN, a +Inf, or no token that is allowed is an ErrLogits.
func (s *Sampler) Sample(logits []float32) (int32, error) {
	if s.invalid != nil {
		return 0, s.invalid
	}
	k, err := s.collect(logits)
	if err != nil {
		return 0, err
	}
	if k > 0 {
		sortCandidates(s.kept)
		return s.cutAndDraw()
	}
	if err := s.cutAll(); err != nil {
		return 0, err
	}
	return s.draw(), nil
}

// Candidates returns how many of the highest logits SampleTop needs to pick what Sample would pick from all of them; 0
// where only all logits will do: without a top-k, with a large one, or with penalties that may raise logits. It stays the
// same from token to token, as a captured graph must.
func (s *Sampler) Candidates() int {
	n := s.limit()
	if n > 0 && s.penalizes() {
		// Each penalized token may leave its place to one from below, if none can come up from there.
		if s.opts.RepeatLastN < 0 || s.opts.RepeatPenalty < 1 || s.opts.PresencePenalty < 0 || s.opts.FrequencyPenalty < 0 {
			return 0
		}
		n += s.opts.RepeatLastN
	}
	if n > maxCandidates {
		return 0
	}
	return n
}

// SampleTop picks a token from a list of candidates, as a device returns it that has selected the highest logits: each
// token once, in any order. With at least as many as Candidates says it picks what Sample picks from all logits.
func (s *Sampler) SampleTop(ids []int32, logits []float32) (int32, error) {
	if s.invalid != nil {
		return 0, s.invalid
	}
	if len(ids) != len(logits) {
		return 0, fmt.Errorf("sample: %d ids with %d logits", len(ids), len(logits))
	}
	s.kept = s.kept[:0]
	for i, id := range ids {
		c := candidate{id: id, logit: logits[i]}
		if n := s.counts[id]; n > 0 {
			c.logit = s.penalize(c.logit, n)
		}
		if c.logit != c.logit {
			return 0, notANumber(id)
		}
		if !math.IsInf(float64(c.logit), -1) {
			s.kept = append(s.kept, c)
		}
	}
	sortCandidates(s.kept)
	for i := 1; i < len(s.kept); i++ {
		if s.kept[i].id == s.kept[i-1].id {
			return 0, fmt.Errorf("sample: token %d is listed twice", s.kept[i].id)
		}
	}
	if k := s.limit(); k > 0 {
		s.kept = s.kept[:min(k, len(s.kept))]
	}
	return s.cutAndDraw()
}

// Choose is SampleTop, or Sample where ids is nil, for callers that cannot take an error at each token. Where one occurs
// Err returns the first of them, and the choice falls on the highest logit there is, or on the first token.
func (s *Sampler) Choose(logits []float32, ids []int32) int32 {
	var id int32
	var err error
	if ids == nil {
		id, err = s.Sample(logits)
	} else {
		id, err = s.SampleTop(ids, logits)
	}
	if err == nil {
		return id
	}
	if s.failed == nil {
		s.failed = err
	}
	best, top := 0, float32(math.Inf(-1))
	for i, x := range logits {
		if x > top {
			best, top = i, x
		}
	}
	if best < len(ids) {
		return ids[best]
	}
	return int32(best)
}

// Err returns what is wrong with the options, or the first error that Choose has met.
func (s *Sampler) Err() error {
	if s.invalid != nil {
		return s.invalid
	}
	return s.failed
}

// limit is how many candidates the selection keeps; 0 for all.
func (s *Sampler) limit() int {
	if s.opts.Temperature == 0 {
		return 1
	}
	return s.opts.TopK
}

func notANumber(id int32) error {
	return fmt.Errorf("sample: %w: the one of token %d is not a number", ErrLogits, id)
}

// usable reports why no token can be picked of those kept, the best of which is first.
func (s *Sampler) usable() error {
	if len(s.kept) == 0 {
		return fmt.Errorf("sample: %w: no token has one above -Inf", ErrLogits)
	}
	if math.IsInf(float64(s.kept[0].logit), 1) {
		return fmt.Errorf("sample: %w: the one of token %d is +Inf", ErrLogits, s.kept[0].id)
	}
	return nil
}

// cutAndDraw applies top-p and min-p to ranked candidates and picks one.
func (s *Sampler) cutAndDraw() (int32, error) {
	if err := s.usable(); err != nil {
		return 0, err
	}
	s.cut(s.weigh())
	return s.draw(), nil
}

// draw picks one of the candidates that are left, which carry their logits' weights.
func (s *Sampler) draw() int32 {
	if len(s.kept) == 1 {
		return s.kept[0].id
	}
	total := 0.0
	top := s.top()
	for i := range s.kept {
		c := &s.kept[i]
		c.weight = exp((float64(c.logit) - top) / s.opts.Temperature)
		total += c.weight
	}
	at := float64(s.uniform() * total)
	for _, c := range s.kept {
		if at -= c.weight; at < 0 {
			return c.id
		}
	}
	// Rounding may leave a rest: it belongs to the last one that can be drawn at all.
	for i := len(s.kept) - 1; i > 0; i-- {
		if s.kept[i].weight > 0 {
			return s.kept[i].id
		}
	}
	return s.kept[0].id
}

// top returns the highest logit of those kept.
func (s *Sampler) top() float64 {
	top := s.kept[0].logit
	for _, c := range s.kept[1:] {
		top = max(top, c.logit)
	}
	return float64(top)
}

// uniform returns a number in [0, 1) from the upper 53 bits of the next random number.
func (s *Sampler) uniform() float64 { return float64(s.pcg.Uint64()>>11) / (1 << 53) }
