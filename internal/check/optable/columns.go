package optable

import "github.com/vibrant-ml/vibrant/tensor"

func columnOps() []*Op { return []*Op{mulRowsOp(), copyColumnsOp()} }

func mulRowsOp() *Op {
	return &Op{
		Name: "MulRows", Cases: each(floats, rowCases...), InPlace: true, Outputs: sameShape,
		Inputs: func(g *Generator, c Case) []*Array {
			return []*Array{g.Normal(c.Type, c.Dims...), g.Normal(tensor.F32, c.Dims[0])}
		},
		Run: func(out, in []*tensor.Tensor, _ Case) { tensor.MulRowsInto(out[0], in[0], in[1]) },
		Reference: func(in []*Array, c Case) []Want {
			out := make([]float64, len(in[0].Values))
			for i, v := range in[0].Values {
				out[i] = v * in[1].Values[i/c.Dims[1]]
			}
			return []Want{{Values: out}}
		},
		Tolerance: func(c Case) Tolerance {
			return Tolerance{Rel: 1.01 * epsilon(c.Type), Abs: 0x1p-25, Why: "one rounding, or half the smallest subnormal"}
		},
		FLOPs: elements,
	}
}

// copyColumnsOp has {rows, columns of the output, its first, columns of the input, its first, columns}.
func copyColumnsOp() *Op {
	to := func(c Case) []int { return []int{c.Dims[0], c.Dims[1]} }
	return &Op{
		Name: "CopyColumns", InOut: 1,
		Cases: each(append([]tensor.DType{tensor.I32}, floats...),
			Case{Label: "no_rows", Dims: []int{0, 5, 1, 7, 2, 3}}, Case{Label: "no_columns", Dims: []int{3, 5, 1, 7, 2, 0}},
			Case{Label: "one", Dims: []int{1, 1, 0, 1, 0, 1}}, Case{Label: "odd", Dims: []int{127, 255, 3, 129, 1, 127}},
			Case{Label: "split", Dims: []int{9, 128, 0, 384, 128, 128}}, Case{Label: "join", Dims: []int{33, 576, 512, 64, 0, 64}},
			Case{Label: "phi3_queries", Dims: []int{512, 3072, 0, 9216, 0, 3072}, Bench: true, Large: true}),
		Inputs: func(g *Generator, c Case) []*Array {
			if c.Type == tensor.I32 {
				return []*Array{g.Ints(1<<30, to(c)...), g.Ints(1<<30, c.Dims[0], c.Dims[3])}
			}
			return []*Array{g.Normal(c.Type, to(c)...), g.Normal(c.Type, c.Dims[0], c.Dims[3])}
		},
		Outputs: func(c Case) []Spec { return []Spec{{c.Type, to(c)}} },
		Run: func(out, in []*tensor.Tensor, c Case) {
			tensor.CopyColumnsInto(out[0], c.Dims[2], in[1], c.Dims[4], c.Dims[5])
		},
		Reference: func(in []*Array, c Case) []Want {
			for r := range c.Dims[0] {
				for i := range c.Dims[5] {
					in[0].Values[r*c.Dims[1]+c.Dims[2]+i] = in[1].Values[r*c.Dims[3]+c.Dims[4]+i]
				}
			}
			return []Want{{Values: in[0].Values}}
		},
		Tolerance: func(Case) Tolerance { return Tolerance{Why: "a copy"} },
		Bytes:     func(c Case) int64 { return 2 * c.Type.Bytes(c.Dims[0]*c.Dims[5]) },
	}
}
