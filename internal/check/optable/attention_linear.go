package optable

import (
	"strings"

	"github.com/vibrant-ml/vibrant/internal/fused"
	"github.com/vibrant-ml/vibrant/tensor"
)

// attentionLinearAddOp has the dims of attention, {batch, seq, heads, kv heads, dim, capacity, kv length, offset, window}, then rows.
// Type is that of the weight. Flags: "positions", "bias", "f32" or "q8cache" for the cache, which is F16
// else, and those of adaptedFlags.
func attentionLinearAddOp() *Op {
	has := func(c Case, flag string) bool { return strings.Contains("-"+c.Flags+"-", "-"+flag+"-") }
	cases := each(fusedTypes,
		Case{Label: "no_rows", Dims: []int{1, 0, 4, 2, 64, 5, 0, 0, 0, 33}},
		Case{Label: "decode", Dims: []int{1, 1, 4, 2, 64, 40, 0, 39, 0, 48}},
		Case{Label: "step", Dims: []int{5, 1, 4, 2, 64, 40, 0, 0, 0, 48}, Flags: "positions-bias"},
		Case{Label: "prompt", Dims: []int{1, 67, 4, 2, 64, 67, 0, 0, 0, 144}, Flags: "bias"},
		Case{Label: "prompt", Dims: []int{1, 67, 4, 2, 64, 67, 0, 0, 0, 48}, Flags: "q8cache"},
		Case{Label: "sequences", Dims: []int{2, 35, 8, 2, 32, 140, 127, 92, 0, 33}},
		Case{Label: "adapted", Dims: []int{1, 1, 4, 2, 64, 40, 0, 39, 0, 47}, Flags: "r8"}, Case{Label: "adapted", Dims: []int{1, 67, 4, 2, 64, 67, 0, 0, 0, 144}, Flags: "bias-r16"})
	cases = append(cases, each([]tensor.DType{tensor.Q4_K, tensor.Q6_K},
		Case{Label: "steps", Dims: []int{20, 1, 4, 2, 64, 200, 190, 0, 0, 48}, Flags: "positions-bias"},
		Case{Label: "steps", Dims: []int{40, 1, 4, 2, 64, 40, 0, 0, 0, 48}, Flags: "positions"},
		Case{Label: "prompt", Dims: []int{1, 33, 4, 2, 64, 40, 0, 0, 0, 1}, Flags: "f32"},
		Case{Label: "long_prompt", Dims: []int{1, 257, 4, 2, 64, 700, 577, 320, 0, 48}},
		Case{Label: "window", Dims: []int{1, 130, 2, 1, 128, 400, 0, 200, 31, 80}},
		Case{Label: "tiles", Dims: []int{1, 70, 14, 2, 128, 400, 329, 0, 0, 80}, Flags: "positions-bias"},
		Case{Label: "wide_head", Dims: []int{1, 40, 2, 1, 256, 127, 0, 80, 0, 48}},
		Case{Label: "narrow_head", Dims: []int{1, 40, 16, 4, 48, 127, 0, 80, 0, 48}},
		Case{Label: "adapted", Dims: []int{1, 1, 32, 2, 64, 40, 0, 39, 0, 2064}, Flags: "r32"}, Case{Label: "adapted", Dims: []int{1, 1, 4, 2, 64, 40, 0, 39, 0, 48}, Flags: "bias-r40"},
		Case{Label: "adapted", Dims: []int{20, 1, 4, 2, 64, 200, 190, 0, 0, 48}, Flags: "positions-r8"}, Case{Label: "adapted", Dims: []int{5, 1, 4, 2, 64, 200, 190, 0, 0, 48}, Flags: "positions-bias-r8-shared"}, Case{Label: "adapted", Dims: []int{16, 1, 4, 2, 64, 200, 190, 0, 0, 48}, Flags: "positions-r24-some"}, Case{Label: "adapted", Dims: []int{1, 257, 4, 2, 64, 700, 577, 320, 0, 48}, Flags: "r24-shared"},
		Case{Label: "many_tiles", Dims: []int{2, 300, 16, 16, 32, 300, 0, 0, 0, 16}, Wide: true})...)
	for _, heads := range []int{5, 9, 10, 17} { // columns that end in a part of a tile
		cases = append(cases, Case{Label: "adapted_part_of_a_tile", Type: tensor.NVFP4, Dims: []int{1, 1, heads, 1, 64, 40, 0, 39, 0, 80}, Flags: "bias-r8"},
			Case{Label: "adapted_part_of_a_tile", Type: tensor.NVFP4, Dims: []int{3, 1, heads, 1, 64, 40, 30, 0, 0, 48}, Flags: "positions-r16"},
			Case{Label: "adapted_part_of_a_tile", Type: tensor.NVFP4, Dims: []int{1, 67, heads, 1, 64, 67, 0, 0, 0, 48}, Flags: "r24-shared"})
	}
	cases = append(cases, Case{Label: "qwen2.5-3b_prompt", Type: tensor.Q4_K, Dims: []int{1, 512, 16, 2, 128, 1024, 512, 0, 0, 2048}, Bench: true, Large: true})
	cacheType := func(c Case) tensor.DType {
		switch {
		case has(c, "f32"):
			return tensor.F32
		case has(c, "q8cache"):
			return tensor.Q8_0
		}
		return tensor.F16
	}
	return &Op{
		Name: "AttentionLinearAdd", Cases: cases, Packs: []int{5}, InPlace: true,
		Inputs: func(g *Generator, c Case) []*Array {
			batch, seq, heads, dim, rows := c.Dims[0], c.Dims[1], c.Dims[2], c.Dims[4], c.Dims[9]
			n, f, cache := batch*seq, tensor.F32, []int{batch, c.Dims[3], c.Dims[5], dim}
			in := []*Array{
				g.Normal(f, n, rows), g.Normal(f, batch, seq, heads, dim), g.Cache(cacheType(c), cache...), g.Cache(cacheType(c), cache...), nil,
				g.Weight(c.Type, rows, heads*dim), nil, g.Normal(f, batch, seq, heads, dim), g.Normal(f, n, rows),
			}
			if has(c, "positions") {
				var p []int
				for i := range n {
					p = append(p, max(0, (c.Dims[5]-1-17*i)%max(c.Dims[6], 1))) // uneven lengths
				}
				in[4] = List(p...)
			}
			if has(c, "bias") {
				in[6] = g.Normal(f, rows)
			}
			return append(in, g.changes(c, n, [2]int{rows, heads * dim})...)
		},
		Outputs: func(c Case) []Spec { return []Spec{{tensor.F32, []int{c.Dims[0] * c.Dims[1], c.Dims[9]}}} },
		Run: func(out, in []*tensor.Tensor, c Case) {
			fusedOperations.AttentionLinearAdd(out[0], in[0], in[1], in[2], in[3], tensor.AttentionOptions{
				Causal: true, Positions: in[4], KVLen: c.Dims[6], Offset: c.Dims[7], Window: c.Dims[8],
			}, in[5], in[6], fused.LowRank[*tensor.Tensor]{V: in[9], U: in[10]}, in[11], in[7], in[8], nil, nil, [2]*tensor.Tensor{})
		},
		Reference: func(in []*Array, c Case) []Want {
			attended := attention([]*Array{in[1], in[2], in[3], in[4]}, c, true, false)
			w := linearOf(attended.Values, c.Dims[0]*c.Dims[1], in[5], in[6])
			w.change(attended.Values, in[9], in[10], in[11])
			for i, a := range in[0].Values {
				w.Values[i] += a
			}
			return []Want{w}
		},
		Tolerance: func(Case) Tolerance {
			return Tolerance{RMS: 0.006, Why: "the contract of vb_linear, and a tenth of it for the rounding of queries, weights and attended rows to F16"}
		},
		Bytes: func(c Case) int64 {
			n, cols, rows := c.Dims[0]*c.Dims[1], c.Dims[2]*c.Dims[4], c.Dims[9]
			return c.Type.Bytes(cols*rows) + 2*cacheType(c).Bytes(c.Dims[0]*c.Dims[3]*c.Dims[5]*c.Dims[4]) + 4*int64(n*(cols+2*rows))
		},
		FLOPs: func(c Case) int64 {
			return attentionFLOPs(c, !has(c, "positions")) + 2*int64(c.Dims[0]*c.Dims[1]*c.Dims[2]*c.Dims[4]*c.Dims[9])
		},
	}
}
