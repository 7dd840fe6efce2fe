package optable

import (
	"math"

	"github.com/vibrant-ml/vibrant/tensor"
)

func adapterOps() []*Op { return []*Op{fusedUpdateOp()} }

// fusedUpdateOp has {m, k, n, r}. Flags: "add", "codes" (a row each), "shared" (one row of codes), "sparse" (codes of which most are 0),
// "vt" and "ut" (V and U stored the other way round), "half" (F16 weights beside F32).
func fusedUpdateOp() *Op {
	weights := func(c Case) tensor.DType {
		if hasFlag(c, "half") {
			return tensor.F16
		}
		return c.Type
	}
	cases := each(floats,
		Case{Label: "no_rows", Dims: []int{0, 8, 8, 4}}, Case{Label: "no_columns", Dims: []int{3, 0, 8, 4}, Flags: "add_codes"},
		Case{Label: "no_ranks", Dims: []int{3, 8, 8, 0}, Flags: "add"}, Case{Label: "one", Dims: []int{1, 1, 1, 1}},
		Case{Label: "odd", Dims: []int{3, 127, 255, 5}, Flags: "add_codes"}, Case{Label: "odd", Dims: []int{33, 129, 65, 3}, Flags: "vt_ut_shared"},
		Case{Label: "decode", Dims: []int{1, 512, 768, 8}, Flags: "add_shared_vt"}, Case{Label: "decode", Dims: []int{16, 896, 4864, 16}, Flags: "add_codes_vt"},
		Case{Label: "decode", Dims: []int{1, 4864, 896, 64}, Flags: "add_vt_ut"},
		Case{Label: "rows_and_a_part", Dims: []int{77, 320, 200, 12}, Flags: "codes"}, Case{Label: "rows_and_a_part", Dims: []int{130, 136, 264, 24}, Flags: "add_codes_ut"},
		Case{Label: "two_adapters", Dims: []int{9, 256, 128, 32}, Flags: "add_sparse_vt"}, Case{Label: "two_adapters", Dims: []int{80, 256, 128, 24}, Flags: "add_sparse"},
		Case{Label: "ranks_64", Dims: []int{130, 256, 512, 64}, Flags: "codes_vt"}, Case{Label: "ranks_128", Dims: []int{70, 264, 136, 128}, Flags: "codes"},
		Case{Label: "ranks_256", Dims: []int{33, 128, 96, 256}, Flags: "add_codes_vt"}, Case{Label: "ranks_256", Dims: []int{5, 512, 96, 256}, Flags: "ut"},
		Case{Label: "few_ranks", Dims: []int{37, 768, 264, 8}, Flags: "add_codes"}, Case{Label: "few_ranks", Dims: []int{150, 200, 776, 8}, Flags: "shared"},
		Case{Label: "few_ranks", Dims: []int{7501, 72, 40, 8}, Flags: "add_codes"}, Case{Label: "few_ranks", Dims: []int{3801, 136, 72, 16}, Flags: "add_shared"},
		Case{Label: "few_ranks", Dims: []int{7502, 40, 24, 16}}, Case{Label: "few_ranks", Dims: []int{3803, 264, 24, 8}},
		Case{Label: "few_ranks", Dims: []int{1900, 136, 3968, 16}, Flags: "codes", Wide: true}, // 128 rows a block on 16 multiprocessors
		Case{Label: "many_rows", Dims: []int{520, 136, 264, 64}, Flags: "add_codes"}, Case{Label: "many_rows", Dims: []int{579, 72, 136, 128}, Flags: "codes_vt"},
		Case{Label: "many_rows", Dims: []int{513, 200, 136, 256}, Flags: "shared"}, Case{Label: "many_rows", Dims: []int{530, 64, 384, 200}, Flags: "add_vt"},
		Case{Label: "many_rows", Dims: []int{520, 1032, 40, 64}, Flags: "add_codes"}, Case{Label: "many_rows", Dims: []int{515, 520, 136, 128}, Flags: "codes_vt"},
		Case{Label: "many_rows", Dims: []int{513, 264, 264, 256}, Flags: "add_shared_vt"}, Case{Label: "many_rows", Dims: []int{512, 72, 40, 72}, Flags: "codes"},
		Case{Label: "many_rows", Dims: []int{8450, 72, 40, 64}, Flags: "codes"}, // 128 rows a block, also of 64 ranks
		Case{Label: "many_rows", Dims: []int{600, 136, 264, 200}, Flags: "codes"},
		// clusters whose blocks share k
		Case{Label: "many_rows", Dims: []int{2100, 264, 77, 40}, Flags: "add_codes"}, Case{Label: "many_rows", Dims: []int{650, 2050, 136, 70}, Flags: "add"},
		Case{Label: "many_rows", Dims: []int{641, 2048, 75, 130}, Flags: "codes_vt"},
		// and others beside them, which share the columns
		Case{Label: "many_columns", Dims: []int{21, 1100, 2100, 133}, Flags: "add_codes"}, Case{Label: "many_columns", Dims: []int{70, 600, 1928, 67}, Flags: "codes_vt"},
		Case{Label: "any_rows", Dims: []int{21, 333, 197, 133}, Flags: "add_codes"}, Case{Label: "any_rows", Dims: []int{100, 331, 65, 67}, Flags: "codes_vt_ut"},
		Case{Label: "any_rows", Dims: []int{2, 3001, 771, 255}, Flags: "add_vt"}, Case{Label: "any_rows", Dims: []int{70, 1030, 130, 193}, Flags: "shared_ut"},
		Case{Label: "any_rows", Dims: []int{4300, 67, 41, 70}, Flags: "add_codes_ut"}, // more blocks than multiprocessors, without clusters
		Case{Label: "any_rows", Dims: []int{520, 131, 75, 67}, Flags: "add_codes"}, Case{Label: "any_rows", Dims: []int{700, 333, 136, 135}, Flags: "codes_vt"},
		Case{Label: "any_rows", Dims: []int{515, 200, 77, 49}, Flags: "shared"},
		Case{Label: "bem", Dims: []int{128, 768, 768, 8}, Flags: "codes", Bench: true},
		Case{Label: "bem", Dims: []int{4096, 768, 768, 8}, Flags: "codes", Bench: true, Large: true},
		Case{Label: "bem", Dims: []int{16384, 768, 768, 8}, Flags: "codes", Bench: true, Large: true},
		Case{Label: "bem", Dims: []int{16384, 4096, 4096, 16}, Flags: "codes", Bench: true, Large: true},
		Case{Label: "bem", Dims: []int{16384, 4096, 4096, 256}, Flags: "codes", Bench: true, Large: true})
	cases = append(cases, each([]tensor.DType{tensor.F32},
		Case{Label: "half", Dims: []int{1, 512, 768, 8}, Flags: "add_shared_vt_half"}, Case{Label: "half", Dims: []int{21, 136, 264, 40}, Flags: "add_sparse_vt_half"},
		Case{Label: "half", Dims: []int{130, 137, 61, 7}, Flags: "codes_half"}, Case{Label: "half", Dims: []int{70, 320, 200, 16}, Flags: "codes_half_ut"},
		Case{Label: "qwen2.5-3b_down", Dims: []int{1, 11008, 2048, 8}, Flags: "add_shared_vt_half", Bench: true},
		Case{Label: "qwen2.5-3b_up", Dims: []int{1, 2048, 11008, 8}, Flags: "add_shared_vt_half", Bench: true},
		Case{Label: "qwen2.5-3b_batch", Dims: []int{16, 2048, 2048, 64}, Flags: "add_sparse_vt_half", Bench: true},
		Case{Label: "qwen2.5-3b_prompt", Dims: []int{512, 2048, 11008, 8}, Flags: "add_shared_vt_half", Bench: true, Large: true})...)
	return &Op{
		Name: "FusedUpdate", NoPTX: true, Cases: cases, InPlace: true,
		Inputs: func(g *Generator, c Case) []*Array {
			m, k, n, r := c.Dims[0], c.Dims[1], c.Dims[2], c.Dims[3]
			if r > 256 {
				panic("it has at most 256 ranks")
			}
			v, u := []int{k, r}, []int{n, r}
			if hasFlag(c, "vt") {
				v = []int{r, k}
			}
			if hasFlag(c, "ut") {
				u = []int{r, n}
			}
			in := []*Array{nil, g.Normal(c.Type, m, k), g.Scaled(1/math.Sqrt(float64(k)+1), weights(c), v...), nil, g.Scaled(0.1, weights(c), u...)}
			if hasFlag(c, "add") {
				in[0] = g.Normal(c.Type, m, n)
			}
			switch {
			case hasFlag(c, "shared"):
				in[3] = g.Normal(c.Type, 1, r)
			case hasFlag(c, "codes"):
				in[3] = g.Normal(c.Type, m, r)
			case hasFlag(c, "sparse"):
				in[3] = g.codesOfSome(c.Type, m, r)
			}
			return in
		},
		Outputs: func(c Case) []Spec { return []Spec{{c.Type, []int{c.Dims[0], c.Dims[2]}}} },
		Run: func(out, in []*tensor.Tensor, c Case) {
			tensor.FusedUpdateInto(out[0], in[0], in[1], tensor.Update{V: in[2], Codes: in[3], U: in[4], Scale: updateScale,
				VTransposed: hasFlag(c, "vt"), UTransposed: hasFlag(c, "ut")})
		},
		Reference: func(in []*Array, c Case) []Want { return []Want{fusedUpdate(in, c)} },
		Tolerance: func(c Case) Tolerance {
			switch c.Type {
			case tensor.F16:
				return Tolerance{RMS: 1e-3, Why: "the product with V and the result are rounded to 11 bits once each"}
			case tensor.BF16:
				return Tolerance{RMS: 1e-2, Why: "the product with V and the result are rounded to 8 bits once each"}
			}
			return Tolerance{RMS: 1e-5, Why: "float32 sums in any order, of a chain of two products"}
		},
		FLOPs: func(c Case) int64 { return 2 * int64(c.Dims[0]) * int64(c.Dims[3]) * int64(c.Dims[1]+c.Dims[2]) },
	}
}

// codesOfSome makes rows of codes that leave out two of three adapters of eight ranks, and some rows with none.
func (g *Generator) codesOfSome(t tensor.DType, rows, ranks int) *Array {
	return g.build(t, []int{rows, ranks}, func(n int) []byte {
		var raw []byte
		for i := range n {
			row, rank := i/ranks, i%ranks
			code := 0.0
			if row%5 != 4 && (row+rank/8)%3 == 0 {
				code = g.rng.NormFloat64()
			}
			raw = appendFloat(raw, t, code)
		}
		return raw
	})
}

const updateScale = 0.75

// fusedUpdate is the reference. The scale of an element is what independent errors of its terms add up to.
func fusedUpdate(in []*Array, c Case) Want {
	m, k, n, r := c.Dims[0], c.Dims[1], c.Dims[2], c.Dims[3]
	vt, ut := hasFlag(c, "vt"), hasFlag(c, "ut")
	v, u := in[2].Values, in[4].Values
	if !vt {
		v = transposed(v, k, r)
	}
	if ut {
		u = transposed(u, r, n)
	}
	w := Want{Values: make([]float64, m*n), Scale: make([]float64, m*n)}
	for row := range m {
		h, squares := make([]float64, r), make([]float64, r)
		for j := range r {
			code := updateScale
			if a := in[3]; a != nil {
				code *= a.Values[row%(max(len(a.Values), 1)/max(r, 1))*r+j]
			}
			sum, square := dot(in[1].Values[row*k:][:k], v[j*k:])
			h[j], squares[j] = sum*code, square*code*code
		}
		for col := range n {
			sum, scale := 0.0, 0.0
			if in[0] != nil {
				sum = in[0].Values[row*n+col]
				scale = sum * sum
			}
			for j, u := range u[col*r:][:r] {
				sum += h[j] * u
				scale += squares[j] * u * u
			}
			w.Values[row*n+col], w.Scale[row*n+col] = sum, math.Sqrt(scale)
		}
	}
	return w
}
