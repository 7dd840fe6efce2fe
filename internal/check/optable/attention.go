package optable

import (
	"math"
	"strings"

	"github.com/vibrant-ml/vibrant/tensor"
)

// hasFlag reports whether one of a case's flags, joined by underscores, is the given one.
func hasFlag(c Case, flag string) bool {
	for f := range strings.SplitSeq(c.Flags, "_") {
		if f == flag {
			return true
		}
	}
	return false
}

// roundedQuery is 6 sigma of a normal number's rounding to BF16, in epsilons: it is 0.41 of them in RMS. A score is off by as much of
// the root of sum (q k)^2 / d, as its d products are rounded on their own; an output by at most sum w |v - o| times what the scores are.
// Of 12 million outputs of PyTorch, whose queries are rounded too, the worst was off by 4.45 epsilon of sum w |v|, by 0.90 of both sums.
const roundedQuery = 6 * 0.41

// attentionVariantsOp has {batch, seq, heads, kv heads, dim, value dim, capacity, offset, window, chunk}, causal. Type is the cache's.
// Flags: "softcap", "sinks", "greatest" (sinks that leave keys little weight, or none that F32 has), "ring", "latent" (values are the
// first elements of the keys), "positions" (uneven ones).
func attentionVariantsOp() *Op {
	cases := each([]tensor.DType{tensor.F32, tensor.F16, tensor.BF16, tensor.Q8_0},
		Case{Label: "one", Dims: []int{1, 1, 1, 1, 32, 32, 1, 0, 0, 0}, Flags: "sinks"},
		Case{Label: "gemma2", Dims: []int{1, 33, 4, 2, 64, 64, 127, 5, 0, 0}, Flags: "softcap"},
		Case{Label: "gemma2_decode", Dims: []int{3, 1, 8, 4, 256, 256, 301, 290, 0, 0}, Flags: "softcap_positions"},
		Case{Label: "gemma2_window", Dims: []int{1, 17, 4, 2, 96, 96, 127, 100, 31, 0}, Flags: "softcap"},
		Case{Label: "gpt-oss", Dims: []int{1, 33, 16, 2, 64, 64, 255, 40, 0, 0}, Flags: "sinks"},
		Case{Label: "gpt-oss_decode", Dims: []int{5, 1, 16, 2, 64, 64, 512, 500, 128, 0}, Flags: "sinks_positions"},
		Case{Label: "gpt-oss_long_decode", Dims: []int{1, 1, 16, 2, 64, 64, 4096, 4000, 0, 0}, Flags: "sinks"},
		Case{Label: "ring", Dims: []int{1, 9, 4, 2, 64, 64, 48, 155, 31, 0}, Flags: "ring"},
		Case{Label: "ring_full", Dims: []int{2, 17, 4, 1, 128, 128, 47, 155, 31, 0}, Flags: "ring_sinks"},
		Case{Label: "ring_filling", Dims: []int{1, 7, 2, 1, 64, 64, 64, 3, 31, 0}, Flags: "ring"},
		Case{Label: "ring_decode", Dims: []int{3, 1, 16, 2, 64, 64, 128, 1000, 128, 0}, Flags: "ring_sinks_positions"},
		Case{Label: "ring_units", Dims: []int{1, 9, 4, 2, 64, 64, 48, 155, 31, 0}, Flags: "ring_positions"},
		Case{Label: "ring_decode", Dims: []int{1, 1, 8, 4, 256, 256, 80, 1000, 64, 0}, Flags: "ring_softcap"},
		Case{Label: "ring_decode", Dims: []int{2, 3, 8, 1, 128, 128, 144, 1000, 142, 0}, Flags: "ring_sinks"},
		Case{Label: "ring_blocks", Dims: []int{1, 70, 4, 2, 128, 128, 256, 500, 180, 0}, Flags: "ring"},
		Case{Label: "ring_blocks", Dims: []int{1, 130, 16, 2, 64, 64, 256, 1000, 127, 0}, Flags: "ring_sinks"},
		Case{Label: "ring_blocks", Dims: []int{2, 100, 4, 1, 256, 256, 256, 700, 65, 0}, Flags: "ring_softcap"},
		Case{Label: "ring_few", Dims: []int{2, 3, 4, 1, 128, 128, 144, 1000, 142, 0}, Flags: "ring_sinks"},
		Case{Label: "gemma2_few", Dims: []int{1, 3, 4, 1, 256, 256, 301, 290, 0, 0}, Flags: "softcap"},
		Case{Label: "gemma2_prompt", Dims: []int{1, 130, 4, 2, 128, 128, 255, 40, 0, 0}, Flags: "softcap"},
		Case{Label: "gemma2_prompt", Dims: []int{1, 70, 4, 2, 256, 256, 127, 40, 64, 0}, Flags: "softcap"},
		Case{Label: "gpt-oss_few", Dims: []int{2, 3, 16, 2, 64, 64, 255, 40, 0, 0}, Flags: "sinks"},
		Case{Label: "sink_decode", Dims: []int{3, 1, 16, 1, 64, 64, 128, 1000, 128, 0}, Flags: "ring_sinks_greatest_positions"},
		Case{Label: "sink_long_decode", Dims: []int{1, 1, 16, 2, 64, 64, 4096, 4000, 0, 0}, Flags: "sinks_greatest"},
		Case{Label: "sink_few", Dims: []int{2, 3, 4, 1, 128, 128, 255, 200, 0, 0}, Flags: "sinks_greatest"},
		Case{Label: "sink_prompt", Dims: []int{1, 70, 4, 2, 128, 128, 255, 40, 0, 0}, Flags: "sinks_greatest"},
		Case{Label: "llama4", Dims: []int{1, 20, 4, 2, 128, 128, 127, 70, 0, 16}},
		Case{Label: "llama4_decode", Dims: []int{2, 1, 10, 2, 128, 128, 255, 200, 0, 64}, Flags: "positions"},
		Case{Label: "values_narrower", Dims: []int{2, 9, 4, 2, 192, 128, 63, 20, 0, 0}},
		Case{Label: "values_wider", Dims: []int{1, 5, 4, 2, 64, 96, 63, 20, 0, 0}, Flags: "sinks"},
		Case{Label: "latent", Dims: []int{1, 19, 16, 1, 576, 512, 63, 30, 0, 0}, Flags: "latent"},
		Case{Label: "latent_decode", Dims: []int{2, 1, 16, 1, 576, 512, 300, 280, 0, 0}, Flags: "latent_positions"},
		Case{Label: "latent_small", Dims: []int{1, 3, 3, 1, 96, 64, 31, 10, 0, 0}, Flags: "latent"},
		Case{Label: "deepseek-v2-lite_decode", Dims: []int{1, 1, 16, 1, 576, 512, 4096, 4095, 0, 0}, Flags: "latent", Bench: true, Large: true},
		Case{Label: "gpt-oss-20b_decode", Dims: []int{1, 1, 64, 8, 64, 64, 4096, 4095, 0, 0}, Flags: "sinks", Bench: true, Large: true},
		Case{Label: "gpt-oss-20b_window_decode", Dims: []int{1, 1, 64, 8, 64, 64, 640, 4095, 128, 0}, Flags: "sinks_ring", Bench: true, Large: true},
		Case{Label: "gpt-oss-20b_window_prompt", Dims: []int{1, 512, 64, 8, 64, 64, 640, 4096, 128, 0}, Flags: "sinks_ring", Bench: true, Large: true},
		Case{Label: "gemma3-4b_window_decode", Dims: []int{1, 1, 8, 4, 256, 256, 1536, 8191, 1024, 0}, Flags: "ring", Bench: true, Large: true},
		Case{Label: "gemma3-4b_window_prompt", Dims: []int{1, 512, 8, 4, 256, 256, 1536, 8192, 1024, 0}, Flags: "ring", Bench: true, Large: true},
		Case{Label: "gemma2-9b_decode", Dims: []int{1, 1, 16, 8, 256, 256, 4096, 4095, 0, 0}, Flags: "softcap", Bench: true, Large: true},
		Case{Label: "gemma2-9b_prompt", Dims: []int{1, 512, 16, 8, 256, 256, 512, 0, 0, 0}, Flags: "softcap", Bench: true, Large: true})
	const softCap = 5
	position := func(in []*Array, c Case, b, s int) int {
		if in[3] != nil {
			return int(in[3].Values[b*c.Dims[1]+s])
		}
		return c.Dims[7] + s
	}
	return &Op{
		Name: "AttentionVariants", Cases: cases,
		Inputs: func(g *Generator, c Case) []*Array {
			batch, seq, heads := c.Dims[0], c.Dims[1], c.Dims[2]
			in := []*Array{g.Scaled(2, tensor.F32, batch, seq, heads, c.Dims[4]), g.Cache(c.Type, batch, c.Dims[3], c.Dims[6], c.Dims[4]), nil, nil, nil}
			if !hasFlag(c, "latent") {
				in[2] = g.Cache(c.Type, batch, c.Dims[3], c.Dims[6], c.Dims[5])
			}
			if hasFlag(c, "positions") {
				var p []int
				for i := range batch * seq {
					p = append(p, max(0, c.Dims[7]-19*i))
				}
				in[3] = List(p...)
			}
			if hasFlag(c, "sinks") {
				in[4] = g.Offset(2, tensor.F32, heads)
			}
			if hasFlag(c, "greatest") {
				in[4] = g.greatestSinks(heads)
			}
			return in
		},
		Outputs: func(c Case) []Spec { return []Spec{{tensor.F32, []int{c.Dims[0], c.Dims[1], c.Dims[2], c.Dims[5]}}} },
		Run: func(out, in []*tensor.Tensor, c Case) {
			o := tensor.AttentionOptions{Causal: true, Positions: in[3], Offset: c.Dims[7], KVLen: c.Dims[7] + c.Dims[1], Window: c.Dims[8],
				Chunk: c.Dims[9], Sinks: in[4], Ring: hasFlag(c, "ring")}
			if hasFlag(c, "softcap") {
				o.SoftCap = softCap
			}
			if hasFlag(c, "latent") {
				o.ValueDim = c.Dims[5]
			}
			tensor.AttentionInto(out[0], in[0], in[1], in[2], o)
		},
		Reference: func(in []*Array, c Case) []Want {
			batch, seq, heads, kvHeads, dim, values, capacity := c.Dims[0], c.Dims[1], c.Dims[2], c.Dims[3], c.Dims[4], c.Dims[5], c.Dims[6]
			n := batch * seq * heads * values
			w := Want{Values: make([]float64, n), Scale: make([]float64, n)}
			v, stride := in[1], dim
			if in[2] != nil {
				v, stride = in[2], values
			}
			for row := range batch * seq * heads {
				h, s, b := row%heads, row/heads%seq, row/heads/seq
				last := position(in, c, b, s)
				first := 0
				if c.Dims[8] > 0 {
					first = max(first, last-c.Dims[8]+1)
				}
				if c.Dims[9] > 0 {
					first = max(first, last-last%c.Dims[9])
				}
				at := func(j int) int { // with or without a ring: others hold every position
					return (b*kvHeads+h/(heads/kvHeads))*capacity + j%capacity
				}
				var scores, roundings []float64
				for j := first; j <= last; j++ {
					score, squares := 0.0, 0.0
					key := in[1].Values[at(j)*dim:][:dim]
					for i, q := range in[0].Values[row*dim:][:dim] {
						x := q * key[i]
						score += x
						squares += x * x
					}
					score /= math.Sqrt(float64(dim))
					slope := 1.0
					if hasFlag(c, "softcap") {
						capped := math.Tanh(score / softCap)
						score, slope = softCap*capped, 1-capped*capped
					}
					scores = append(scores, score)
					roundings = append(roundings, slope*math.Sqrt(squares/float64(dim)))
				}
				if in[4] != nil {
					scores = append(scores, in[4].Values[h])
				}
				weights := softmax(scores)
				sums, sizes := w.Values[row*values:][:values], w.Scale[row*values:][:values]
				for j := first; j <= last; j++ {
					weight := weights[j-first]
					for i, value := range v.Values[at(j)*stride:][:values] {
						x := weight * value
						sums[i] += x
						sizes[i] += math.Abs(x)
					}
				}
				if c.Type == tensor.BF16 {
					for i := range values {
						for j := first; j <= last; j++ {
							off := math.Abs(v.Values[at(j)*stride+i] - w.Values[row*values+i])
							w.Scale[row*values+i] += roundedQuery * weights[j-first] * off * roundings[j-first]
						}
					}
				}
			}
			return []Want{w}
		},
		Tolerance: func(c Case) Tolerance {
			switch c.Type {
			case tensor.BF16:
				return Tolerance{Rel: 6e-5 + epsilon(tensor.BF16), Abs: 0x1p-126,
					Why: "a weight is rounded once, relative to the weighted sizes of v, which Scale has beside what the rounding of a query makes; " +
						"smaller weights than F32 has are 0"}
			case tensor.Q8_0:
				return Tolerance{Rel: 6e-5 + 4*epsilon(tensor.F16), Abs: 0x1p-126, Why: "as F16, which codes become"}
			}
			return Tolerance{Rel: 6e-5 + 4*epsilon(c.Type), Abs: 0x1p-126,
				Why: "as Attention, with scores twice as large, whose error the exponential passes on; smaller weights than F32 has are 0"}
		},
		Bytes: func(c Case) int64 {
			row := c.Dims[4]
			if !hasFlag(c, "latent") {
				row += c.Dims[5]
			}
			return c.Type.Bytes(c.Dims[0]*c.Dims[3]*min(c.Dims[6], c.Dims[7]+1)*row) + 4*int64(c.Dims[0]*c.Dims[1]*c.Dims[2]*(c.Dims[4]+c.Dims[5]))
		},
		FLOPs: func(c Case) int64 {
			return 2 * int64(c.Dims[0]*c.Dims[1]*c.Dims[2]) * int64(min(c.Dims[6], c.Dims[7]+1)) * int64(c.Dims[4]+c.Dims[5])
		},
	}
}

// greatestSinks returns a sink a head, in turn: far greater than scores, and by more than F32's exponentials.
func (g *Generator) greatestSinks(heads int) *Array {
	return g.build(tensor.F32, []int{heads}, func(n int) []byte {
		var raw []byte
		for i := range n {
			raw = appendFloat(raw, tensor.F32, []float64{14, 200}[i%2]+g.rng.NormFloat64())
		}
		return raw
	})
}

// kvWriteVariantsOp has {batch, seq, kv heads, dim, value dim, capacity, first position}. Type is the cache's. Flags: "ring", "latent"
// (keys alone).
func kvWriteVariantsOp() *Op {
	cache := func(c Case, dim int) []int { return []int{c.Dims[0], c.Dims[2], c.Dims[5], dim} }
	return &Op{
		Name: "KVWriteVariants", InOut: 2,
		Cases: each([]tensor.DType{tensor.F32, tensor.F16, tensor.BF16, tensor.Q8_0},
			Case{Label: "one", Dims: []int{1, 1, 1, 32, 32, 1, 7}, Flags: "ring"},
			Case{Label: "wraps", Dims: []int{2, 9, 3, 64, 64, 31, 120}, Flags: "ring"},
			Case{Label: "whole_ring", Dims: []int{1, 31, 2, 32, 96, 31, 7}, Flags: "ring"},
			Case{Label: "values_narrower", Dims: []int{2, 5, 2, 192, 128, 31, 3}},
			Case{Label: "latent", Dims: []int{2, 5, 1, 576, 32, 31, 3}, Flags: "latent"}),
		Inputs: func(g *Generator, c Case) []*Array {
			batch, seq, heads := c.Dims[0], c.Dims[1], c.Dims[2]
			eachItsPlace(seq, c.Dims[5])
			if last := c.Dims[6] + batch - 1 + seq; !hasFlag(c, "ring") && last > c.Dims[5] {
				panic("a position behind the cache, which a GPU skips and a CPU refuses")
			}
			var positions []int
			for b := range batch {
				for s := range seq {
					positions = append(positions, c.Dims[6]+b+s)
				}
			}
			return []*Array{g.Cache(c.Type, cache(c, c.Dims[3])...), g.Cache(c.Type, cache(c, c.Dims[4])...),
				g.Normal(tensor.F32, batch, seq, heads, c.Dims[3]), g.Normal(tensor.F32, batch, seq, heads, c.Dims[4]), List(positions...)}
		},
		Outputs: func(c Case) []Spec { return []Spec{{c.Type, cache(c, c.Dims[3])}, {c.Type, cache(c, c.Dims[4])}} },
		Run: func(out, in []*tensor.Tensor, c Case) {
			switch {
			case hasFlag(c, "latent"):
				tensor.KVWrite(out[0], nil, in[2], nil, in[4], nil)
			case hasFlag(c, "ring"):
				tensor.KVWriteRing(out[0], out[1], in[2], in[3], in[4], nil)
			default:
				tensor.KVWrite(out[0], out[1], in[2], in[3], in[4], nil)
			}
		},
		Reference: func(in []*Array, c Case) []Want {
			seq, heads, capacity := c.Dims[1], c.Dims[2], c.Dims[5]
			var wants []Want
			for side, dim := range c.Dims[3:5] {
				values := in[side].Values
				for row := range c.Dims[0] * seq * heads {
					if side == 1 && hasFlag(c, "latent") {
						break
					}
					h, token := row%heads, row/heads
					slot := int(in[4].Values[token]) % capacity
					copy(values[((token/seq*heads+h)*capacity+slot)*dim:][:dim], in[2+side].Values[row*dim:])
				}
				w := Want{Values: values}
				if c.Type == tensor.Q8_0 {
					for i := 0; i < len(values); i += 32 {
						m := 0.0
						for _, v := range values[i : i+32] {
							m = max(m, math.Abs(v))
						}
						for range 32 {
							w.Scale = append(w.Scale, m)
						}
					}
				}
				wants = append(wants, w)
			}
			return wants
		},
		Tolerance: func(c Case) Tolerance {
			switch c.Type {
			case tensor.F32:
				return Tolerance{Why: "a copy"}
			case tensor.Q8_0:
				return Tolerance{Rel: 0.5/127 + 0x1p-11, Why: "as KVWrite"}
			}
			return Tolerance{Rel: epsilon(c.Type), Abs: 0x1p-25, Why: "rounded to the cache's 16 bits once"}
		},
	}
}
