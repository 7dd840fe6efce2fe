package optable

import (
	"slices"
	"strings"

	"github.com/vibrant-ml/vibrant/tensor"
)

// Cases of sorts have dimensions {outer, n, inner} and, for TopKOver, k: lines lie along the second. Flags: `d` for descending order,
// `t` where the operand is a view with its last two dimensions exchanged.
var sorts = []Case{
	{Label: "one", Dims: []int{1, 1, 1}}, {Label: "none", Dims: []int{3, 0, 4}}, {Label: "no_lines", Dims: []int{0, 3, 4}},
	{Label: "pairs", Dims: []int{1, 2, 129}, Flags: "d"}, {Label: "short", Dims: []int{7, 31, 5}}, {Label: "short", Dims: []int{100, 33, 1}, Flags: "d"},
	{Label: "columns", Dims: []int{2, 127, 33}}, {Label: "columns", Dims: []int{2, 127, 33}, Flags: "dt"}, {Label: "rows", Dims: []int{3, 1000, 1}},
	{Label: "block", Dims: []int{2, 513, 1}}, {Label: "block", Dims: []int{1, 2048, 2}, Flags: "d"}, {Label: "tile", Dims: []int{2, 4096, 1}, Flags: "d"}, {Label: "two_tiles", Dims: []int{1, 4097, 2}},
}

func sortOps() []*Op {
	all := append(append([]tensor.DType(nil), floats...), tensor.I32, tensor.I8, tensor.U8, tensor.BOOL)
	cases := append(each(all, sorts...), each([]tensor.DType{tensor.F32, tensor.BF16, tensor.I8}, Case{Label: "long", Dims: []int{3, 20481, 1}, Flags: "d"})...)
	cases = append(cases, each([]tensor.DType{tensor.F32}, Case{Label: "longest", Dims: []int{1, 200001, 1}},
		Case{Label: "rows", Dims: []int{4096, 4096, 1}, Bench: true, Large: true}, Case{Label: "short_rows", Dims: []int{1 << 17, 64, 1}, Bench: true, Large: true},
		Case{Label: "all", Dims: []int{1, 1 << 24, 1}, Bench: true, Large: true})...)
	tops := each(all, Case{Label: "short", Dims: []int{7, 31, 5, 4}, Flags: "d"}, Case{Label: "columns", Dims: []int{2, 127, 33, 127}, Flags: "t"},
		Case{Label: "none", Dims: []int{2, 5, 3, 0}}, Case{Label: "long", Dims: []int{2, 20481, 1, 3}, Flags: "d"}, Case{Label: "many_of_long", Dims: []int{1, 9001, 1, 4500}},
		Case{Label: "long_columns", Dims: []int{1, 5000, 3, 2}})
	tops = append(tops, each([]tensor.DType{tensor.F32}, Case{Label: "rows", Dims: []int{2, 40000, 1, 40}, Flags: "d"}, Case{Label: "smallest", Dims: []int{32, 151936, 1, 40}, Bench: true, Large: true},
		Case{Label: "columns", Dims: []int{1, 65536, 256, 40}, Flags: "d", Bench: true, Large: true})...)
	return []*Op{sortOp("Sort", cases), sortOp("TopKOver", tops)}
}

func sortOp(name string, cases []Case) *Op {
	shape := func(c Case) []int { // of the results
		s := slices.Clone(c.Dims[:3])
		if len(c.Dims) > 3 {
			s[1] = c.Dims[3]
		}
		return s
	}
	return &Op{
		Name: name, Cases: cases,
		Inputs: func(g *Generator, c Case) []*Array {
			if strings.Contains(c.Flags, "t") {
				return []*Array{drawnFor(g, c.Type, false, c.Dims[0], c.Dims[2], c.Dims[1])}
			}
			return []*Array{drawnFor(g, c.Type, false, c.Dims[:3]...)}
		},
		Outputs: func(c Case) []Spec { return []Spec{{c.Type, shape(c)}, {tensor.I32, shape(c)}} },
		Run: func(out, in []*tensor.Tensor, c Case) {
			a := in[0]
			if strings.Contains(c.Flags, "t") {
				a = a.T()
			}
			tensor.SortInto(out[0], out[1], a, 1, strings.Contains(c.Flags, "d"))
		},
		Reference: func(in []*Array, c Case) []Want {
			n, inner, k := c.Dims[1], c.Dims[2], shape(c)[1]
			if k > n {
				panic("more than all")
			}
			descending, transposed := strings.Contains(c.Flags, "d"), strings.Contains(c.Flags, "t")
			values, ids := make([]float64, product(shape(c))), make([]float64, product(shape(c)))
			line := make([]int, n)
			for o := range c.Dims[0] {
				for i := range inner {
					at := func(p int) float64 {
						if transposed {
							return in[0].Values[(o*inner+i)*n+p]
						}
						return in[0].Values[(o*n+p)*inner+i]
					}
					for p := range line {
						line[p] = p
					}
					slices.SortStableFunc(line, func(a, b int) int {
						x, y := at(a), at(b)
						switch {
						case x == y:
							return 0
						case (x < y) != descending:
							return -1
						}
						return 1
					})
					for p, from := range line[:k] {
						values[(o*k+p)*inner+i], ids[(o*k+p)*inner+i] = at(from), float64(from)
					}
				}
			}
			return []Want{{Values: values}, {Values: ids}}
		},
		Tolerance: func(Case) Tolerance { return Tolerance{Why: "elements are copied, and places are whole numbers"} },
	}
}
