package optable

import (
	"math"

	"github.com/vibrant-ml/vibrant/tensor"
)

func recurrenceOps() []*Op { return []*Op{causalConvOp(), gatedDeltaOp()} }

// reversed names the states of a batch in descending order, or nil for 0, 1, ...
func reversed(c Case, batch, sequences int) *Array {
	if !hasFlag(c, "sequences") {
		return nil
	}
	var order []int
	for b := range batch {
		order = append(order, sequences-1-b)
	}
	return List(order...)
}

const slotsOfTest = 3

// slotted gives the positions of a batch's tokens with the flag "slots": 0 for the first sequence, others further on.
func slotted(c Case, batch, seq int) *Array {
	if !hasFlag(c, "slots") {
		return nil
	}
	var positions []int
	for b := range batch {
		for s := range seq {
			positions = append(positions, 4*b+s)
		}
	}
	return List(positions...)
}

// withSlots puts the slots of a state after its sequences.
func withSlots(c Case, sequences int, shape ...int) []int {
	if hasFlag(c, "slots") {
		shape = append([]int{slotsOfTest}, shape...)
	}
	return append([]int{sequences}, shape...)
}

// statesOf returns which states batch entry b reads, -1 for zeros, and writes.
func statesOf(c Case, sequences, positions *Array, b, seq int) (from, to int) {
	from = b
	if sequences != nil {
		from = int(sequences.Values[b])
	}
	if positions == nil {
		return from, from
	}
	p := int(positions.Values[b*seq])
	from, to = from*slotsOfTest+p%slotsOfTest, from*slotsOfTest+(p+seq)%slotsOfTest
	if p == 0 {
		from = -1
	}
	return from, to
}

// causalConvOp has {batch, seq, channels, taps, sequences}. Flags: "sequences", "slots".
func causalConvOp() *Op {
	return &Op{
		Name: "CausalConv", NoPTX: true, InOut: 1,
		Cases: each([]tensor.DType{tensor.F32},
			Case{Label: "no_sequences", Dims: []int{0, 3, 5, 4, 0}}, Case{Label: "one", Dims: []int{1, 1, 1, 2, 1}},
			Case{Label: "one_tap", Dims: []int{1, 3, 7, 1, 1}}, Case{Label: "decode", Dims: []int{3, 1, 129, 4, 5}, Flags: "sequences"},
			Case{Label: "fewer_than_taps", Dims: []int{2, 2, 127, 4, 2}}, Case{Label: "prompt", Dims: []int{2, 67, 65, 4, 3}, Flags: "sequences"},
			Case{Label: "most_taps", Dims: []int{1, 33, 9, 8, 1}}, Case{Label: "slots_prompt", Dims: []int{2, 35, 65, 4, 2}, Flags: "slots"},
			Case{Label: "slots_in_place", Dims: []int{2, 3, 65, 8, 2}, Flags: "slots"},
			Case{Label: "slots_decode", Dims: []int{3, 1, 129, 4, 5}, Flags: "slots_sequences"},
			Case{Label: "qwen3-next_decode", Dims: []int{1, 1, 8192, 4, 1}, Bench: true},
			Case{Label: "qwen3-next_prompt", Dims: []int{1, 512, 8192, 4, 1}, Bench: true, Large: true}),
		Inputs: func(g *Generator, c Case) []*Array {
			batch, seq, channels, taps := c.Dims[0], c.Dims[1], c.Dims[2], c.Dims[3]
			return []*Array{g.Normal(tensor.F32, withSlots(c, c.Dims[4], taps-1, channels)...), g.Normal(tensor.F32, batch, seq, channels),
				g.Normal(tensor.F32, channels, taps), reversed(c, batch, c.Dims[4]), slotted(c, batch, seq)}
		},
		Outputs: func(c Case) []Spec {
			return []Spec{{tensor.F32, withSlots(c, c.Dims[4], c.Dims[3]-1, c.Dims[2])}, {tensor.F32, c.Dims[:3]}}
		},
		Run: func(out, in []*tensor.Tensor, _ Case) {
			tensor.CausalConvInto(out[1], in[1], out[0], in[2], tensor.Places{Sequences: in[3], Positions: in[4]})
		},
		Reference: func(in []*Array, c Case) []Want {
			batch, seq, channels, taps := c.Dims[0], c.Dims[1], c.Dims[2], c.Dims[3]
			state, x, n := in[0].Values, in[1].Values, batch*seq*channels
			w := Want{Values: make([]float64, n), Scale: make([]float64, n)}
			for b := range batch {
				from, to := statesOf(c, in[3], in[4], b, seq)
				for ch := range channels {
					u := make([]float64, taps-1)
					at := func(place, j int) *float64 { return &state[(place*(taps-1)+j)*channels+ch] }
					for j := range u {
						if from >= 0 {
							u[j] = *at(from, j)
						}
					}
					for s := range seq {
						u = append(u, x[(b*seq+s)*channels+ch])
						sum, sizes := 0.0, 0.0
						for j := range taps {
							p := in[2].Values[ch*taps+j] * u[s+j]
							sum, sizes = sum+p, sizes+math.Abs(p)
						}
						w.Values[(b*seq+s)*channels+ch], w.Scale[(b*seq+s)*channels+ch] = silu(sum), sizes
					}
					for j := range taps - 1 {
						*at(to, j) = u[seq+j]
					}
				}
			}
			return []Want{{Values: state}, w}
		},
		Tolerance: func(Case) Tolerance {
			return Tolerance{Rel: 1e-6, Why: "a float32 sum of the taps, relative to their sizes, and SiLU's exponential; the state is a copy"}
		},
		FLOPs: func(c Case) int64 { return 2 * int64(product(c.Dims[:4])) },
	}
}

// gatedDeltaOp has {batch, seq, key heads, value heads, key dim, value dim, sequences}. Flags: "interleaved",
// "sequences", "slots".
func gatedDeltaOp() *Op {
	width := func(c Case) int { return 2*c.Dims[2]*c.Dims[4] + c.Dims[3]*c.Dims[5] }
	state := func(c Case) []int { return withSlots(c, c.Dims[6], c.Dims[3], c.Dims[4], c.Dims[5]) }
	const eps = float32(1e-6)
	return &Op{
		Name: "GatedDelta", NoPTX: true, InOut: 1,
		Cases: each([]tensor.DType{tensor.F32},
			Case{Label: "no_sequences", Dims: []int{0, 3, 1, 2, 8, 8, 0}}, Case{Label: "one", Dims: []int{1, 1, 1, 1, 1, 1, 1}},
			Case{Label: "odd", Dims: []int{2, 5, 3, 6, 7, 9, 3}, Flags: "sequences"}, Case{Label: "small", Dims: []int{1, 9, 2, 4, 16, 16, 1}, Flags: "interleaved"},
			Case{Label: "decode", Dims: []int{3, 1, 2, 4, 128, 128, 4}, Flags: "interleaved_sequences"},
			Case{Label: "prompt", Dims: []int{1, 130, 2, 4, 128, 128, 1}}, Case{Label: "wide_keys", Dims: []int{1, 17, 1, 2, 256, 65, 1}},
			Case{Label: "narrow_keys", Dims: []int{2, 33, 2, 2, 64, 33, 2}},
			Case{Label: "slots_prompt", Dims: []int{2, 8, 2, 4, 64, 33, 2}, Flags: "slots"},
			Case{Label: "slots_in_place", Dims: []int{2, 3, 2, 4, 128, 65, 2}, Flags: "slots"},
			Case{Label: "slots_decode", Dims: []int{3, 1, 2, 4, 128, 128, 4}, Flags: "interleaved_slots_sequences"},
			Case{Label: "qwen3-next_decode", Dims: []int{1, 1, 16, 32, 128, 128, 1}, Bench: true, Large: true},
			Case{Label: "qwen3-next_prompt", Dims: []int{1, 512, 16, 32, 128, 128, 1}, Bench: true, Large: true}),
		Inputs: func(g *Generator, c Case) []*Array {
			batch, seq, heads := c.Dims[0], c.Dims[1], c.Dims[3]
			if c.Dims[4] == 0 {
				panic("keys of no elements: the operation does nothing, and out stays")
			}
			rates := g.Normal(tensor.F32, heads)
			for i, v := range rates.Values {
				rates.Values[i] = -math.Exp(v)
			}
			return []*Array{g.Scaled(0.3, tensor.F32, state(c)...), g.Normal(tensor.F32, batch, seq, width(c)), g.Normal(tensor.F32, batch, seq, heads),
				g.Normal(tensor.F32, batch, seq, heads), Floats(rates.Values, heads), g.Offset(-2, tensor.F32, heads), reversed(c, batch, c.Dims[6]), slotted(c, batch, seq)}
		},
		Outputs: func(c Case) []Spec {
			return []Spec{{tensor.F32, state(c)}, {tensor.F32, []int{c.Dims[0], c.Dims[1], c.Dims[3], c.Dims[5]}}}
		},
		Run: func(out, in []*tensor.Tensor, c Case) {
			tensor.GatedDeltaInto(out[1], in[1], in[2], in[3], out[0], tensor.Delta{A: in[4], Dt: in[5], KeyHeads: c.Dims[2],
				Interleaved: hasFlag(c, "interleaved"), Eps: eps, Places: tensor.Places{Sequences: in[6], Positions: in[7]}})
		},
		Reference: func(in []*Array, c Case) []Want {
			batch, seq, keyHeads, heads, dk, dv := c.Dims[0], c.Dims[1], c.Dims[2], c.Dims[3], c.Dims[4], c.Dims[5]
			states := Want{Values: in[0].Values, Scale: make([]float64, len(in[0].Values))}
			for i, v := range states.Values {
				states.Scale[i] = math.Abs(v)
			}
			n := batch * seq * heads * dv
			out := Want{Values: make([]float64, n), Scale: make([]float64, n)}
			unit := func(x []float64) []float64 {
				sum := float64(eps)
				for _, v := range x {
					sum += v * v
				}
				y := make([]float64, len(x))
				for i, v := range x {
					y[i] = v / math.Sqrt(sum)
				}
				return y
			}
			for b := range batch {
				from, to := statesOf(c, in[6], in[7], b, seq)
				for head := range heads {
					key := head / (heads / keyHeads)
					if hasFlag(c, "interleaved") {
						key = head % keyHeads
					}
					at := (to*heads + head) * dk * dv
					s, sizes := states.Values[at:][:dk*dv], states.Scale[at:][:dk*dv]
					if from < 0 {
						clear(s)
						clear(sizes)
					} else {
						copy(s, states.Values[(from*heads+head)*dk*dv:])
						copy(sizes, states.Scale[(from*heads+head)*dk*dv:])
					}
					for token := b * seq; token < (b+1)*seq; token++ {
						row := in[1].Values[token*width(c):][:width(c)]
						q, k, v := unit(row[key*dk:][:dk]), unit(row[(keyHeads+key)*dk:][:dk]), row[2*keyHeads*dk+head*dv:][:dv]
						decay := math.Exp(in[4].Values[head] * math.Log1p(math.Exp(in[2].Values[token*heads+head]+in[5].Values[head])))
						beta := 1 / (1 + math.Exp(-in[3].Values[token*heads+head]))
						for d := range dv {
							known, size := 0.0, 0.0
							for i := range dk {
								s[i*dv+d] *= decay
								sizes[i*dv+d] *= decay
								known += s[i*dv+d] * k[i]
								size += sizes[i*dv+d] * math.Abs(k[i])
							}
							to := (token*heads+head)*dv + d
							for i := range dk {
								s[i*dv+d] += k[i] * beta * (v[d] - known)
								sizes[i*dv+d] += math.Abs(k[i]) * beta * (math.Abs(v[d]) + math.Min(size, 2*math.Abs(known)))
								out.Values[to] += s[i*dv+d] * q[i] / math.Sqrt(float64(dk))
								out.Scale[to] += sizes[i*dv+d] * math.Abs(q[i]) / math.Sqrt(float64(dk))
							}
						}
					}
				}
			}
			return []Want{states, out}
		},
		Tolerance: func(Case) Tolerance {
			return Tolerance{Rel: 2e-5, Why: "float32 sums over the keys and the carried state, relative to the sizes of what was added to it"}
		},
		Bytes: func(c Case) int64 {
			return 8*int64(c.Dims[0]*c.Dims[3]*c.Dims[4]*c.Dims[5]) + 4*int64(c.Dims[0]*c.Dims[1]*(width(c)+c.Dims[3]*(c.Dims[5]+2)))
		},
		FLOPs: func(c Case) int64 { return 7 * int64(c.Dims[0]*c.Dims[1]*c.Dims[3]*c.Dims[4]*c.Dims[5]) },
	}
}
