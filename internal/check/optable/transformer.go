package optable

import (
	"math"
	"strings"

	"github.com/vibrant-ml/vibrant/tensor"
)

func transformerOps() []*Op {
	return []*Op{ropeOp(), kvWriteOp(), kvWriteVariantsOp(), attentionOp(), attentionVariantsOp()}
}

// ropeOp has {batch, heads, seq, dim, half}. Flags: the mode, and "shared" positions over the batch, "none", or "tokens"
// for three dimensions.
func ropeOp() *Op {
	const table = 300
	var cases []Case
	for _, mode := range []string{"interleaved", "neox"} {
		for _, c := range each(floats,
			Case{Label: "empty", Dims: []int{0, 2, 3, 8, 4}}, Case{Label: "pair", Dims: []int{1, 1, 1, 2, 1}},
			Case{Label: "odd", Dims: []int{2, 3, 5, 7, 3}}, Case{Label: "partial", Dims: []int{2, 3, 4, 64, 16}, Flags: "shared"},
			Case{Label: "no_positions", Dims: []int{2, 3, 127, 16, 8}, Flags: "none"},
			Case{Label: "qwen2.5-3b", Dims: []int{5, 16, 1, 128, 64}, Flags: "tokens"},
			Case{Label: "long", Dims: []int{4, 32, 2048, 128, 64}, Flags: "none", Bench: true, Large: true}) {
			c.Flags = strings.Trim(mode+"_"+c.Flags, "_")
			cases = append(cases, c)
		}
	}
	rows := func(c Case) int { return max(table, c.Dims[2]) }
	shape := func(c Case) []int {
		if strings.HasSuffix(c.Flags, "tokens") {
			return []int{c.Dims[0], c.Dims[1], c.Dims[3]}
		}
		return c.Dims[:4]
	}
	return &Op{
		Name: "RoPE", Cases: cases, InPlace: true,
		Inputs: func(g *Generator, c Case) []*Array {
			half := c.Dims[4]
			angle := func(i int) float64 { return float64(i/half) * math.Pow(10000, -float64(i%half)/float64(half)) }
			in := []*Array{g.Normal(c.Type, shape(c)...), g.Of(func(i int) float64 { return math.Cos(angle(i)) }, rows(c), half),
				g.Of(func(i int) float64 { return math.Sin(angle(i)) }, rows(c), half), nil}
			switch {
			case strings.HasSuffix(c.Flags, "none"):
			case strings.HasSuffix(c.Flags, "shared"):
				in[3] = g.Ints(table, c.Dims[2])
			default:
				in[3] = g.Ints(table, c.Dims[0]*c.Dims[2])
			}
			return in
		},
		Outputs: func(c Case) []Spec { return []Spec{{c.Type, shape(c)}} },
		Run: func(out, in []*tensor.Tensor, c Case) {
			mode := tensor.RoPEInterleaved
			if strings.HasPrefix(c.Flags, "neox") {
				mode = tensor.RoPENeoX
			}
			tensor.RoPEInto(out[0], in[0], in[1], in[2], in[3], mode)
		},
		Reference: func(in []*Array, c Case) []Want {
			batch, heads, seq, dim, half := c.Dims[0], c.Dims[1], c.Dims[2], c.Dims[3], c.Dims[4]
			x := in[0].Values
			out, scale := append([]float64(nil), x...), make([]float64, len(x))
			for i, v := range x {
				scale[i] = math.Abs(v)
			}
			for b := range batch {
				for h := range heads {
					for s := range seq {
						position := s
						if in[3] != nil && strings.HasSuffix(c.Flags, "shared") {
							position = int(in[3].Values[s])
						} else if in[3] != nil {
							position = int(in[3].Values[b*seq+s])
						}
						row := ((b*heads+h)*seq + s) * dim
						for i := range half {
							first, second := row+2*i, row+2*i+1
							if strings.HasPrefix(c.Flags, "neox") {
								first, second = row+i, row+i+half
							}
							cos, sin := in[1].Values[position*half+i], in[2].Values[position*half+i]
							out[first] = x[first]*cos - x[second]*sin
							out[second] = x[first]*sin + x[second]*cos
							scale[first] = math.Abs(x[first]) + math.Abs(x[second])
							scale[second] = scale[first]
						}
					}
				}
			}
			return []Want{{Values: out, Scale: scale}}
		},
		Tolerance: func(c Case) Tolerance {
			return Tolerance{Rel: 0x1p-22 + epsilon(c.Type), Abs: underflow(c.Type), Why: "two products and a sum in float32"}
		},
		FLOPs: func(c Case) int64 { return 3 * int64(product(c.Dims[:4])) },
	}
}

// kvWriteOp has {batch, seq, kv heads, dim, capacity, sequences}. Type is the cache's.
func kvWriteOp() *Op {
	cache := func(c Case) []int { return []int{c.Dims[5], c.Dims[2], c.Dims[4], c.Dims[3]} }
	return &Op{
		Name: "KVWrite", InOut: 2,
		Cases: append(each([]tensor.DType{tensor.F32, tensor.F16, tensor.BF16},
			Case{Label: "empty", Dims: []int{1, 0, 2, 8, 5, 1}}, Case{Label: "one", Dims: []int{1, 1, 1, 1, 1, 1}},
			Case{Label: "odd", Dims: []int{2, 3, 3, 7, 127, 3}, Flags: "sequences"}, Case{Label: "prefill", Dims: []int{1, 33, 2, 64, 255, 2}},
			Case{Label: "qwen2.5-3b_decode", Dims: []int{1, 1, 2, 128, 4096, 1}, Bench: true},
			Case{Label: "qwen2.5-3b_prefill", Dims: []int{1, 512, 2, 128, 4096, 1}, Bench: true}),
			each([]tensor.DType{tensor.Q8_0},
				Case{Label: "empty", Dims: []int{1, 0, 2, 32, 5, 1}}, Case{Label: "one", Dims: []int{1, 1, 1, 32, 1, 1}},
				Case{Label: "odd", Dims: []int{2, 3, 3, 96, 127, 3}, Flags: "sequences"}, Case{Label: "prefill", Dims: []int{1, 33, 2, 64, 255, 2}},
				Case{Label: "qwen2.5-3b_decode", Dims: []int{1, 1, 2, 128, 4096, 1}, Bench: true},
				Case{Label: "qwen2.5-3b_prefill", Dims: []int{1, 512, 2, 128, 4096, 1}, Bench: true})...),
		Inputs: func(g *Generator, c Case) []*Array {
			batch, seq, heads, dim := c.Dims[0], c.Dims[1], c.Dims[2], c.Dims[3]
			eachItsPlace(seq, c.Dims[4])
			positions := make([]int, 0, batch*seq)
			for b := range batch {
				for s := range seq {
					positions = append(positions, (b+s)%c.Dims[4])
				}
			}
			in := []*Array{
				g.Cache(c.Type, cache(c)...), g.Cache(c.Type, cache(c)...),
				g.Normal(tensor.F32, batch, seq, heads, dim), g.Normal(tensor.F32, batch, seq, heads, dim), List(positions...), nil,
			}
			if c.Flags == "sequences" { // in descending order
				var sequences []int
				for b := range batch {
					sequences = append(sequences, c.Dims[5]-1-b)
				}
				in[5] = List(sequences...)
			}
			return in
		},
		Outputs: func(c Case) []Spec { return []Spec{{c.Type, cache(c)}, {c.Type, cache(c)}} },
		Run: func(out, in []*tensor.Tensor, _ Case) {
			tensor.KVWrite(out[0], out[1], in[2], in[3], in[4], in[5])
		},
		Reference: func(in []*Array, c Case) []Want {
			batch, seq, heads, dim, capacity := c.Dims[0], c.Dims[1], c.Dims[2], c.Dims[3], c.Dims[4]
			for b := range batch {
				sequence := b
				if in[5] != nil {
					sequence = int(in[5].Values[b])
				}
				for s := range seq {
					position := int(in[4].Values[b*seq+s])
					for h := range heads {
						for i := range dim {
							to := ((sequence*heads+h)*capacity+position)*dim + i
							from := ((b*seq+s)*heads+h)*dim + i
							in[0].Values[to] = in[2].Values[from]
							in[1].Values[to] = in[3].Values[from]
						}
					}
				}
			}
			if c.Type == tensor.Q8_0 { // a step of d = max / 127, rounded to nearest, where d has 11 bits
				scale := func(x []float64) []float64 {
					s := make([]float64, len(x))
					for i := 0; i < len(x); i += 32 {
						m := 0.0
						for _, v := range x[i : i+32] {
							m = max(m, math.Abs(v))
						}
						for j := range 32 {
							s[i+j] = m
						}
					}
					return s
				}
				return []Want{{Values: in[0].Values, Scale: scale(in[0].Values)}, {Values: in[1].Values, Scale: scale(in[1].Values)}}
			}
			return []Want{{Values: in[0].Values}, {Values: in[1].Values}}
		},
		Tolerance: func(c Case) Tolerance {
			if c.Type == tensor.F32 {
				return Tolerance{Why: "a copy"}
			}
			if c.Type == tensor.Q8_0 {
				return Tolerance{Rel: 0.5/127 + 0x1p-11, Why: "rounded to a 127th of the block's greatest value, itself rounded to F16"}
			}
			return Tolerance{Rel: epsilon(c.Type), Abs: 0x1p-25, Why: "rounded to the cache's 16 bits once"}
		},
		Bytes: func(c Case) int64 {
			n := product(c.Dims[:4])
			return 2 * (tensor.F32.Bytes(n) + c.Type.Bytes(n))
		},
	}
}

// attentionOp has {batch, seq, heads, kv heads, dim, capacity, kv length, offset, window}; kv length 0 is the capacity.
// Type is the cache's. Flags: "causal" or "full", "positions" (of the queries, which a graph reads at each launch),
// "headmajor", "half" for queries of the cache's type instead of F32.
func attentionOp() *Op {
	f16 := []tensor.DType{tensor.F16}
	plain := []tensor.DType{tensor.F32, tensor.F16, tensor.BF16}
	cases := each(plain,
		Case{Label: "no_queries", Dims: []int{1, 0, 2, 1, 8, 5, 0, 0, 0}, Flags: "full"},
		Case{Label: "one", Dims: []int{1, 1, 1, 1, 1, 1, 0, 0, 0}, Flags: "causal"},
		Case{Label: "prefill", Dims: []int{1, 33, 4, 2, 64, 128, 0, 0, 0}, Flags: "causal"},
		Case{Label: "chunk", Dims: []int{1, 17, 4, 2, 64, 255, 144, 127, 0}, Flags: "causal"},
		Case{Label: "batch", Dims: []int{3, 5, 6, 3, 32, 127, 0, 0, 0}, Flags: "full"},
		Case{Label: "odd_dim", Dims: []int{2, 7, 3, 1, 7, 31, 0, 3, 0}, Flags: "causal_headmajor"},
		Case{Label: "window", Dims: []int{1, 65, 2, 2, 64, 128, 0, 20, 31}, Flags: "causal"},
		Case{Label: "decode", Dims: []int{1, 1, 16, 2, 128, 512, 301, 300, 0}, Flags: "causal"},
		Case{Label: "decode", Dims: []int{2, 1, 14, 2, 64, 512, 400, 0, 0}, Flags: "causal_positions"},
		Case{Label: "decode_long", Dims: []int{1, 1, 4, 1, 128, 4096, 4001, 4000, 0}, Flags: "causal_positions"},
		Case{Label: "decode_uneven", Dims: []int{5, 1, 8, 2, 128, 1024, 1000, 0, 0}, Flags: "causal_positions"},
		Case{Label: "decode_window", Dims: []int{1, 3, 8, 2, 64, 1024, 900, 890, 301}, Flags: "causal"},
		Case{Label: "prefill_tiles", Dims: []int{1, 70, 14, 2, 128, 400, 329, 259, 0}, Flags: "causal"},
		Case{Label: "wide_head", Dims: []int{1, 3, 2, 1, 256, 127, 0, 100, 0}, Flags: "causal"},
		Case{Label: "qwen2.5-3b_decode", Dims: []int{1, 1, 16, 2, 128, 4096, 4096, 4095, 0}, Flags: "causal_positions", Bench: true, Large: true},
		Case{Label: "bitnet-2b_decode", Dims: []int{1, 1, 20, 5, 128, 4096, 257, 256, 0}, Flags: "causal_positions", Bench: true, Large: true},
	)
	cases = append(cases, each(f16,
		Case{Label: "half", Dims: []int{1, 17, 4, 2, 64, 128, 0, 30, 0}, Flags: "causal_half"},
		Case{Label: "8b_decode", Dims: []int{1, 1, 32, 8, 128, 1024, 0, 1023, 0}, Flags: "causal_half", Bench: true, Large: true},
		Case{Label: "8b_decode", Dims: []int{1, 1, 32, 8, 128, 32768, 0, 32767, 0}, Flags: "causal_half", Bench: true, Large: true},
		Case{Label: "8b_prefill", Dims: []int{1, 512, 32, 8, 128, 512, 0, 0, 0}, Flags: "causal_half", Bench: true, Large: true},
		Case{Label: "8b_prefill", Dims: []int{1, 2048, 32, 8, 128, 2048, 0, 0, 0}, Flags: "causal_half", Bench: true, Large: true},
		Case{Label: "8b_prefill", Dims: []int{1, 8192, 32, 8, 128, 8192, 0, 0, 0}, Flags: "causal_half", Bench: true, Large: true})...)
	cases = append(cases, each([]tensor.DType{tensor.Q8_0},
		Case{Label: "one", Dims: []int{1, 1, 1, 1, 32, 1, 0, 0, 0}, Flags: "causal"},
		Case{Label: "prefill", Dims: []int{1, 33, 4, 2, 64, 128, 0, 0, 0}, Flags: "causal"},
		Case{Label: "chunk", Dims: []int{1, 17, 4, 2, 64, 255, 144, 127, 0}, Flags: "causal"},
		Case{Label: "batch", Dims: []int{3, 5, 6, 3, 32, 127, 0, 0, 0}, Flags: "full"},
		Case{Label: "odd_dim", Dims: []int{2, 7, 3, 1, 96, 31, 0, 3, 0}, Flags: "causal_headmajor"},
		Case{Label: "window", Dims: []int{1, 65, 2, 2, 64, 128, 0, 20, 31}, Flags: "causal"},
		Case{Label: "decode", Dims: []int{1, 1, 16, 2, 128, 512, 301, 300, 0}, Flags: "causal"},
		Case{Label: "decode", Dims: []int{2, 1, 14, 2, 64, 512, 400, 0, 0}, Flags: "causal_positions"},
		Case{Label: "decode_long", Dims: []int{1, 1, 4, 1, 128, 4096, 4001, 4000, 0}, Flags: "causal_positions"},
		Case{Label: "decode_uneven", Dims: []int{5, 1, 8, 2, 128, 1024, 1000, 0, 0}, Flags: "causal_positions"},
		Case{Label: "decode_unaligned", Dims: []int{1, 1, 8, 2, 64, 301, 0, 300, 0}, Flags: "causal"},
		Case{Label: "decode_odd_dim", Dims: []int{2, 1, 6, 2, 96, 304, 300, 0, 0}, Flags: "causal_positions"},
		Case{Label: "prefill_tiles", Dims: []int{1, 70, 14, 2, 128, 400, 329, 259, 0}, Flags: "causal"},
		Case{Label: "wide_head", Dims: []int{1, 3, 2, 1, 256, 127, 0, 100, 0}, Flags: "causal"},
		Case{Label: "8b_decode", Dims: []int{1, 1, 32, 8, 128, 32768, 0, 32767, 0}, Flags: "causal", Bench: true, Large: true})...)
	cases = append(cases, each([]tensor.DType{tensor.F32}, // of which shared memory of 99 KiB holds one stage
		Case{Label: "wide_tiles", Dims: []int{1, 140, 2, 2, 250, 500, 0, 360, 0}, Flags: "causal"},
		Case{Label: "wide_tiles", Dims: []int{1, 135, 2, 2, 256, 700, 0, 0, 0}, Flags: "full"})...)
	cases = append(cases, each([]tensor.DType{tensor.BF16}, Case{Label: "half", Dims: []int{1, 17, 4, 2, 64, 128, 0, 30, 0}, Flags: "causal_half"})...)
	cases = append(cases, each([]tensor.DType{tensor.F16, tensor.BF16}, // heads that are copied to whole vectors
		Case{Label: "half_odd", Dims: []int{1, 130, 4, 2, 67, 301, 0, 170, 0}, Flags: "causal_half"},
		Case{Label: "half_odd_keys", Dims: []int{1, 70, 9, 9, 131, 1601, 0, 1531, 0}, Flags: "causal_half"}, // blocks share them
		Case{Label: "half_odd_few", Dims: []int{2, 7, 6, 2, 67, 701, 0, 300, 0}, Flags: "causal_half"},
		Case{Label: "half_odd_decode", Dims: []int{1, 1, 16, 2, 131, 2001, 0, 2000, 0}, Flags: "causal_half_headmajor"})...)
	queryType := func(c Case) tensor.DType {
		if hasFlag(c, "half") {
			return c.Type
		}
		return tensor.F32
	}
	shape := func(c Case) []int {
		if hasFlag(c, "headmajor") {
			return []int{c.Dims[0], c.Dims[2], c.Dims[1], c.Dims[4]}
		}
		return []int{c.Dims[0], c.Dims[1], c.Dims[2], c.Dims[4]}
	}
	return &Op{
		Name: "Attention", Cases: cases,
		Inputs: func(g *Generator, c Case) []*Array {
			batch, seq := c.Dims[0], c.Dims[1]
			cache := []int{batch, c.Dims[3], c.Dims[5], c.Dims[4]}
			in := []*Array{g.Normal(queryType(c), shape(c)...), g.Cache(c.Type, cache...), g.Cache(c.Type, cache...), nil}
			if hasFlag(c, "positions") {
				var p []int
				for i := range batch * seq {
					p = append(p, max(0, c.Dims[6]-1-17*i)) // uneven lengths
				}
				in[3] = List(p...)
			}
			return in
		},
		Outputs: func(c Case) []Spec { return []Spec{{queryType(c), shape(c)}} },
		Run: func(out, in []*tensor.Tensor, c Case) {
			tensor.AttentionInto(out[0], in[0], in[1], in[2], tensor.AttentionOptions{
				Causal: hasFlag(c, "causal"), HeadMajor: hasFlag(c, "headmajor"), Positions: in[3],
				KVLen: c.Dims[6], Offset: c.Dims[7], Window: c.Dims[8],
			})
		},
		Reference: func(in []*Array, c Case) []Want {
			return []Want{attention(in, c, hasFlag(c, "causal"), hasFlag(c, "headmajor"))}
		},
		Tolerance: func(c Case) Tolerance {
			products := c.Type
			if products == tensor.Q8_0 {
				products = tensor.F16
			}
			return Tolerance{Rel: 2e-5 + 2*epsilon(products) + 4*epsilon(queryType(c)),
				Why: "sums in float32, relative to the weighted sizes of v; tensor cores round queries and weights to the type of a 16-bit cache, to F16 for Q8_0, once each"}
		},
		Bytes: func(c Case) int64 {
			kv := c.Dims[6]
			if kv == 0 {
				kv = c.Dims[5]
			}
			return 2*c.Type.Bytes(c.Dims[0]*c.Dims[3]*kv*c.Dims[4]) + 2*queryType(c).Bytes(product(shape(c)))
		},
		FLOPs: func(c Case) int64 { return attentionFLOPs(c, hasFlag(c, "causal") && !hasFlag(c, "positions")) },
	}
}

// attentionFLOPs counts the products of queries that see the keys before them where they are causal, else all.
func attentionFLOPs(c Case, causal bool) int64 {
	pairs := int64(0) // of queries and keys
	for s := range c.Dims[1] {
		kv := c.Dims[6]
		if kv == 0 {
			kv = c.Dims[5]
		}
		if causal {
			kv = min(kv, c.Dims[7]+s+1)
		}
		if c.Dims[8] > 0 {
			kv = min(kv, c.Dims[8])
		}
		pairs += int64(kv)
	}
	return 4 * pairs * int64(c.Dims[0]*c.Dims[2]*c.Dims[4])
}

func attention(in []*Array, c Case, causal, headMajor bool) Want {
	batch, seq, heads, kvHeads, dim, capacity := c.Dims[0], c.Dims[1], c.Dims[2], c.Dims[3], c.Dims[4], c.Dims[5]
	kvLen, offset, window := c.Dims[6], c.Dims[7], c.Dims[8]
	if kvLen == 0 {
		kvLen = capacity
	}
	q, k, v := in[0].Values, in[1].Values, in[2].Values
	out, scale := make([]float64, len(q)), make([]float64, len(q))
	for b := range batch {
		for h := range heads {
			for s := range seq {
				row := ((b*seq+s)*heads + h) * dim
				if headMajor {
					row = ((b*heads+h)*seq + s) * dim
				}
				cache := (b*kvHeads + h/(heads/kvHeads)) * capacity * dim
				first, last := 0, kvLen-1
				if causal {
					last = offset + s
					if in[3] != nil {
						last = int(in[3].Values[b*seq+s])
					}
					if window > 0 {
						first = max(0, last-window+1)
					}
				}
				var scores []float64
				for j := first; j <= last; j++ {
					dot := 0.0
					for i := range dim {
						dot += q[row+i] * k[cache+j*dim+i]
					}
					scores = append(scores, dot/math.Sqrt(float64(dim)))
				}
				for j, p := range softmax(scores) {
					for i := range dim {
						x := p * v[cache+(first+j)*dim+i]
						out[row+i] += x
						scale[row+i] += math.Abs(x)
					}
				}
			}
		}
	}
	return Want{Values: out, Scale: scale}
}
