package model

import (
	"errors"
	"fmt"
	"math"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
)

// RoPE says how queries and keys are rotated by position.
type RoPE struct {
	Mode    kernel.RoPEMode
	Dim     int     // leading elements of a head that are rotated, even
	Base    float64 // of the geometric series of frequencies
	Scaling string  // "none", "linear" or "yarn"
	Factor  float64 // the context is stretched by this, 1 for none

	// YaRN (Peng et al. 2023): fast frequencies are kept, slow ones interpolated, between them a ramp.
	OriginalContext    int
	BetaFast, BetaSlow float64
	AttentionFactor    float64 // on top of Magnitude
	Magnitude          float64 // of cosines and sines, 0 for YaRN's own 0.1 ln(Factor) + 1
	LogMultiplier      float64 // m: the own magnitude is divided by 0.1 m ln(Factor) + 1

	tensors []string // of the file that it was read from

	// Factors divides the frequency of each pair (rope_freqs.weight: Llama 3.1's scaling, computed by the converter);
	// nil for none.
	Factors []float32
	// LongFactors takes the place of Factors where the context is longer than OriginalContext; then cosines and sines
	// are multiplied by AttentionFactor. Nil for none.
	LongFactors []float32

	// Still turns nothing: it is for Growth alone.
	Still bool
	// Growth multiplies cosines and sines, and so what they rotate, by 1 + Growth ln(1 + floor((position + GrowthAhead)
	// / GrowthEvery)); 0 for no growth.
	Growth                   float64
	GrowthEvery, GrowthAhead int
}

func readRoPE(r *reader, c *Config) (RoPE, error) {
	p := RoPE{
		Mode:            c.arch.rope,
		Dim:             r.sizeOr("rope.dimension_count", c.HeadDim, maxHeadDim),
		Base:            r.floatOr("rope.freq_base", 10000),
		Scaling:         r.stringOr("rope.scaling.type", ""),
		OriginalContext: r.sizeOr("rope.scaling.original_context_length", c.Context, maxContext),
		BetaFast:        r.floatOr("rope.scaling.yarn_beta_fast", 32),
		BetaSlow:        r.floatOr("rope.scaling.yarn_beta_slow", 1),
		AttentionFactor: r.floatOr("rope.scaling.attn_factor", 1),
		Magnitude:       r.floatOr("rope.scaling.yarn_attn_factor", 0),
	}
	// rope.scale_linear is the older name of a linear factor.
	p.Factor = r.floatOr("rope.scaling.factor", r.floatOr("rope.scale_linear", 1))
	if p.Scaling == "" {
		p.Scaling = "none"
		if p.Factor != 1 && p.Factor != 0 {
			p.Scaling = "linear"
		}
	}
	if p.Factor == 0 || p.Scaling == "none" { // 0 is how some converters write "none"
		p.Factor = 1
	}
	if r.err != nil {
		return p, r.err
	}
	switch {
	case p.Dim == 0 || p.Dim%2 != 0 || p.Dim > c.HeadDim:
		return p, fmt.Errorf("key %q is %d, want an even number up to the head size %d", r.prefix+"rope.dimension_count", p.Dim, c.HeadDim)
	case !(p.Base > 1) || math.IsInf(p.Base, 0):
		return p, fmt.Errorf("key %q is %v, want more than 1", r.prefix+"rope.freq_base", p.Base)
	case p.Scaling != "none" && p.Scaling != "linear" && p.Scaling != "yarn" &&
		!(p.Scaling == "longrope" && c.arch.longRoPE):
		return p, fmt.Errorf("key %q is %s: not supported (none, linear, yarn are)",
			r.prefix+"rope.scaling.type", gguf.Quote(p.Scaling))
	case !(p.Factor > 0) || math.IsInf(p.Factor, 0):
		return p, fmt.Errorf("key %q is %v, want more than 0", r.prefix+"rope.scaling.factor", p.Factor)
	case !(p.AttentionFactor > 0) || math.IsInf(p.AttentionFactor, 0):
		return p, fmt.Errorf("key %q is %v, want more than 0", r.prefix+"rope.scaling.attn_factor", p.AttentionFactor)
	case p.Scaling == "yarn" && (p.OriginalContext < 1 || !(p.BetaFast > 0) || !(p.BetaSlow > 0) || !(p.Magnitude >= 0)):
		return p, fmt.Errorf("keys %q are out of range", r.prefix+"rope.scaling.*")
	}

	var err error
	p.Factors, err = p.factors(r.f, "rope_freqs.weight")
	return p, err
}

// factors reads a divisor for each pair, nil where the file has no such tensor.
func (p *RoPE) factors(f *gguf.File, name string) ([]float32, error) {
	t, err := f.Tensor(name)
	if errors.Is(err, gguf.ErrNoTensor) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if t.Type != gguf.F32 || len(t.Dims) != 1 || t.Dims[0] != p.Dim/2 {
		return nil, fmt.Errorf("tensor %s is %s %v, want F32 [%d]", name, t.Type, t.Dims, p.Dim/2)
	}
	data, err := f.Data(t)
	if err != nil {
		return nil, err
	}
	p.tensors = append(p.tensors, name)
	values := float32s(data)
	for i, x := range values {
		if !(x > 0) || math.IsInf(float64(x), 0) {
			return nil, fmt.Errorf("tensor %s: element %d is %v", name, i, x)
		}
	}
	return values, nil
}

// Tables returns the cosines and sines of positions 0..n-1, each [n][Dim/2], computed in float64.
func (p *RoPE) Tables(n int) (cos, sin []float32) {
	half := p.Dim / 2
	cos, sin = make([]float32, n*half), make([]float32, n*half)
	within := *p
	if p.LongFactors != nil && n > p.OriginalContext {
		within.Factors = p.LongFactors
	}
	freq, scale := within.frequencies()
	for pos := range n {
		size := scale
		if p.Growth != 0 {
			size *= 1 + p.Growth*math.Log1p(math.Floor(float64(pos+p.GrowthAhead)/float64(p.GrowthEvery)))
		}
		for i, f := range freq {
			s, c := math.Sincos(float64(pos) * f)
			cos[pos*half+i], sin[pos*half+i] = float32(c*size), float32(s*size)
		}
	}
	return cos, sin
}

// frequencies returns the angle that each pair turns by a position, and the factor on cosines and sines.
func (p *RoPE) frequencies() (freq []float64, scale float64) {
	freq, scale = make([]float64, p.Dim/2), 1
	for i := range freq {
		freq[i] = math.Pow(p.Base, -float64(2*i)/float64(p.Dim))
		if p.Factors != nil {
			freq[i] /= float64(p.Factors[i])
		}
		if p.Still {
			freq[i] = 0
		}
	}
	switch p.Scaling {
	case "linear":
		for i := range freq {
			freq[i] /= p.Factor
		}
	case "yarn":
		// The pair that turns `turns` times within the original context (YaRN, equation 17).
		pair := func(turns float64) float64 {
			return float64(p.Dim) * math.Log(float64(p.OriginalContext)/(turns*2*math.Pi)) / (2 * math.Log(p.Base))
		}
		low := math.Max(0, math.Floor(pair(p.BetaFast)))
		high := math.Min(float64(p.Dim-1), math.Ceil(pair(p.BetaSlow)))
		for i := range freq {
			keep := 1 - math.Min(1, math.Max(0, (float64(i)-low)/math.Max(0.001, high-low)))
			freq[i] *= keep + (1-keep)/p.Factor
		}
		scale = p.Magnitude
		if scale == 0 {
			scale = (1 + 0.1*math.Log(p.Factor)) / (1 + 0.1*p.LogMultiplier*math.Log(p.Factor))
		}
		scale *= p.AttentionFactor
	}
	if p.LongFactors != nil {
		scale = p.AttentionFactor
	}
	return freq, scale
}
