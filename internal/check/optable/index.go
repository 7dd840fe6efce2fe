package optable

import (
	"math"
	"slices"
	"strings"

	"github.com/vibrant-ml/vibrant/tensor"
)

// Cases of operations by places have dimensions {outer, n, inner, k}: ids name k of the n places along the second. Flags: `t` where the
// named operand is a view with its last two dimensions exchanged.
var indexings = []Case{
	{Label: "one", Dims: []int{1, 1, 1, 1}}, {Label: "no_ids", Dims: []int{3, 5, 4, 0}}, {Label: "line", Dims: []int{1, 127, 1, 100}},
	{Label: "rows", Dims: []int{1, 33, 128, 7}}, {Label: "odd_rows", Dims: []int{2, 31, 129, 30}}, {Label: "columns", Dims: []int{65, 127, 1, 127}},
	{Label: "odd", Dims: []int{3, 17, 5, 9}, Flags: "t"},
}

// indexing is one way to move elements by ids.
type indexing struct {
	name   string
	types  []tensor.DType
	gather bool // from the named operand; else to it
	line   bool // ids have one dimension
	once   bool // ids of a line differ
	run    func(named, other, ids *tensor.Tensor)
}

func indexOps() []*Op {
	all := append(append([]tensor.DType(nil), floats...), tensor.I32, tensor.I8, tensor.U8, tensor.BOOL)
	var ops []*Op
	for _, x := range []indexing{
		{"Gather", all, true, false, false, func(a, out, ids *tensor.Tensor) { tensor.GatherInto(out, a, ids, 1) }},
		{"IndexSelect", all, true, true, false, func(a, out, ids *tensor.Tensor) { tensor.IndexSelectInto(out, a, ids, 1) }},
		{"Scatter", all, false, false, true, func(dst, src, ids *tensor.Tensor) { tensor.ScatterInto(dst, src, ids, 1) }},
		{"ScatterAdd", []tensor.DType{tensor.F32, tensor.I32}, false, false, false, func(dst, src, ids *tensor.Tensor) { tensor.ScatterAddInto(dst, src, ids, 1) }},
	} {
		ops = append(ops, x.op())
	}
	return ops
}

func (x indexing) op() *Op {
	named := func(c Case) []int { // as it lies in memory
		if strings.Contains(c.Flags, "t") {
			return []int{c.Dims[0], c.Dims[2], c.Dims[1]}
		}
		return c.Dims[:3]
	}
	other := func(c Case) []int { return []int{c.Dims[0], c.Dims[3], c.Dims[2]} }
	ids := func(g *Generator, c Case) *Array {
		switch {
		case x.line:
			return g.Ints(c.Dims[1], c.Dims[3])
		case !x.once:
			return g.Ints(c.Dims[1], other(c)...)
		}
		eachItsPlace(c.Dims[3], c.Dims[1])
		if product(other(c)) > 1<<22 {
			panic("more places than a test draws")
		}
		values := make([]int, product(other(c)))
		for i := range values {
			values[i] = (i/c.Dims[2]%c.Dims[3] + i%c.Dims[2]) % c.Dims[1]
		}
		a := List(values...)
		a.Shape = other(c)
		return a
	}
	// places calls f for each element: where it lies in the named operand, and where in the other.
	places := func(c Case, ids *Array, f func(named, other int)) {
		n, inner, k := c.Dims[1], c.Dims[2], c.Dims[3]
		for i := range product(other(c)) {
			outer, column, id := i/inner/k, i%inner, ids.Values[i%len(ids.Values)]
			if x.line {
				id = ids.Values[i/inner%k]
			}
			at := (outer*n+int(id))*inner + column
			if strings.Contains(c.Flags, "t") {
				at = (outer*inner+column)*n + int(id)
			}
			f(at, i)
		}
	}
	op := &Op{
		Name: x.name, Cases: each(x.types, indexings...),
		Inputs: func(g *Generator, c Case) []*Array {
			if x.gather {
				return []*Array{drawnFor(g, c.Type, false, named(c)...), ids(g, c)}
			}
			return []*Array{drawnFor(g, c.Type, false, named(c)...), drawnFor(g, c.Type, false, other(c)...), ids(g, c)}
		},
		Outputs: func(c Case) []Spec {
			if x.gather {
				return []Spec{{c.Type, other(c)}}
			}
			return []Spec{{c.Type, named(c)}}
		},
		Run: func(out, in []*tensor.Tensor, c Case) {
			a, b := in[0], out[0]
			if !x.gather {
				a, b = out[0], in[1]
			}
			if strings.Contains(c.Flags, "t") {
				a = a.T()
			}
			x.run(a, b, in[len(in)-1])
		},
		Reference: func(in []*Array, c Case) []Want {
			if x.gather {
				out := make([]float64, product(other(c)))
				places(c, in[1], func(from, to int) { out[to] = in[0].Values[from] })
				return []Want{{Values: out}}
			}
			out, scale := slices.Clone(in[0].Values), make([]float64, len(in[0].Values))
			for i, v := range out {
				scale[i] = math.Abs(v)
			}
			places(c, in[2], func(to, from int) {
				v := in[1].Values[from]
				if x.once {
					out[to] = v
				} else {
					out[to] = wrapped(out[to]+v, c.Type)
				}
				scale[to] += math.Abs(v)
			})
			return []Want{{Values: out, Scale: scale}}
		},
		Tolerance: func(c Case) Tolerance {
			if x.once || x.gather || c.Type == tensor.I32 {
				return Tolerance{Why: "elements are copied, whole numbers added"}
			}
			return Tolerance{Rel: float64(c.Dims[3]) * epsilon(c.Type), Why: "a rounding each sum, in any order"}
		},
	}
	if !x.gather {
		op.InOut = 1
	}
	return op
}
