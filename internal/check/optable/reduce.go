package optable

import (
	"math"
	"strings"

	"github.com/vibrant-ml/vibrant/tensor"
)

// reductions are cases of three dimensions; Flags name the reduced ones, and `t` that the last two are exchanged by a view.
var reductions = []Case{
	{Label: "one", Dims: []int{1, 1, 1}, Flags: "012"}, {Label: "none", Dims: []int{0, 3, 4}, Flags: "12"},
	{Label: "rows", Dims: []int{1, 33, 255}, Flags: "2"}, {Label: "narrow", Dims: []int{1, 1000, 3}, Flags: "2"},
	{Label: "vectors", Dims: []int{3, 16, 128}, Flags: "2"}, {Label: "columns", Dims: []int{1, 255, 129}, Flags: "1"},
	{Label: "few_columns", Dims: []int{1, 700, 5}, Flags: "1"}, {Label: "middle", Dims: []int{3, 17, 31}, Flags: "1"},
	{Label: "outer", Dims: []int{5, 7, 31}, Flags: "01"}, {Label: "both_ends", Dims: []int{5, 7, 31}, Flags: "02"},
	{Label: "all", Dims: []int{1, 1, 20481}, Flags: "012"}, {Label: "all", Dims: []int{4, 64, 128}, Flags: "012"},
	{Label: "view", Dims: []int{2, 33, 65}, Flags: "2t"}, {Label: "view", Dims: []int{2, 33, 65}, Flags: "1t"},
}

// crowds are so many results that a thread, or four, has one.
var crowds = []Case{
	{Label: "many_columns", Dims: []int{1, 3, 137001}, Flags: "1"}, {Label: "many_rows", Dims: []int{1, 40000, 14}, Flags: "2"},
}

// bigReductions are measured: 64 Mi elements.
var bigReductions = []Case{
	{Label: "rows", Dims: []int{1, 8192, 8192}, Flags: "2", Bench: true, Large: true},
	{Label: "columns", Dims: []int{1, 8192, 8192}, Flags: "1", Bench: true, Large: true},
	{Label: "all", Dims: []int{1, 1, 64 << 20}, Flags: "012", Bench: true, Large: true},
}

// reducing describes a row for a reduction.
type reducing struct {
	name     string
	types    []tensor.DType
	to       func(tensor.DType) tensor.DType
	positive bool
	run      func(a *tensor.Tensor, dims ...int) *tensor.Tensor
	want     func(x []float64) (value, scale float64) // scale: what its error is judged by
	rel      float64
	why      string
	cases    []Case
}

func dimsOf(c Case) (dims []int) {
	for _, f := range strings.TrimSuffix(c.Flags, "t") {
		dims = append(dims, int(f-'0'))
	}
	return dims
}

// shapeOf returns the shape of what is reduced, the operand or its view.
func shapeOf(c Case) []int {
	if strings.HasSuffix(c.Flags, "t") {
		return []int{c.Dims[0], c.Dims[2], c.Dims[1]}
	}
	return c.Dims
}

func (r reducing) op() *Op {
	reduced := func(c Case, d int) bool { return strings.Contains(c.Flags, string(rune('0'+d))) }
	return &Op{
		Name: "Reduce_" + r.name, Cases: each(r.types, r.cases...),
		Inputs: func(g *Generator, c Case) []*Array { return []*Array{drawnFor(g, c.Type, r.positive, c.Dims...)} },
		Outputs: func(c Case) []Spec {
			var shape []int
			for d, n := range shapeOf(c) {
				if !reduced(c, d) {
					shape = append(shape, n)
				}
			}
			return []Spec{{r.to(c.Type), shape}}
		},
		Run: func(out, in []*tensor.Tensor, c Case) {
			a := in[0]
			if strings.HasSuffix(c.Flags, "t") {
				a = a.T()
			}
			tensor.CopyInto(out[0], r.run(a, dimsOf(c)...))
		},
		Reference: func(in []*Array, c Case) []Want {
			shape := shapeOf(c)
			var groups [][]float64
			at := map[[3]int]int{}
			for i := range shape[0] {
				for j := range shape[1] {
					for k := range shape[2] {
						p := (i*shape[1]+j)*shape[2] + k
						if strings.HasSuffix(c.Flags, "t") {
							p = (i*shape[2]+k)*shape[1] + j
						}
						key := [3]int{i, j, k}
						for d := range key {
							if reduced(c, d) {
								key[d] = 0
							}
						}
						if _, ok := at[key]; !ok {
							at[key] = len(groups)
							groups = append(groups, nil)
						}
						groups[at[key]] = append(groups[at[key]], in[0].Values[p])
					}
				}
			}
			want := Want{Values: make([]float64, len(groups)), Scale: make([]float64, len(groups))}
			for i, x := range groups {
				want.Values[i], want.Scale[i] = r.want(x)
				if integerType(r.to(c.Type)) {
					want.Values[i] = wrapped(want.Values[i], r.to(c.Type))
				}
			}
			return []Want{want}
		},
		Tolerance: func(c Case) Tolerance {
			if integerType(r.to(c.Type)) {
				return Tolerance{Why: "whole numbers are exact"}
			}
			// A product that became subnormal on its way has lost digits, which later factors of up to 8 multiply.
			return Tolerance{Rel: r.rel + 2*epsilon(r.to(c.Type)), Abs: max(underflow(c.Type), 0x1p-146), Why: r.why}
		},
		FLOPs: func(c Case) int64 { return int64(product(c.Dims)) },
	}
}

func reduceOps() []*Op {
	own := func(t tensor.DType) tensor.DType {
		if integerType(t) {
			return tensor.I32
		}
		return t
	}
	exact := func(t tensor.DType) tensor.DType { return t }
	to := func(t tensor.DType) func(tensor.DType) tensor.DType {
		return func(tensor.DType) tensor.DType { return t }
	}
	all := append(append([]tensor.DType(nil), floats...), tensor.I32, tensor.I8, tensor.U8)
	few := []Case{reductions[0], reductions[2], reductions[3], reductions[5], reductions[10], reductions[11], reductions[12]}
	most := append(append([]Case(nil), reductions...), bigReductions...)
	sum := func(x []float64) (value, scale float64) {
		for _, v := range x {
			value += v
			scale += math.Abs(v)
		}
		return value, scale
	}
	best := func(x []float64, greater bool) (at int) {
		for i, v := range x {
			if greater && v > x[at] || !greater && v < x[at] {
				at = i
			}
		}
		return at
	}
	norm := func(p float64) func(a *tensor.Tensor, dims ...int) *tensor.Tensor {
		return func(a *tensor.Tensor, dims ...int) *tensor.Tensor { return tensor.Norm(a, p, dims...) }
	}
	const terms = "sums of float32, judged by the size of their terms"
	rows := []reducing{
		{name: "Sum", types: all, to: own, run: tensor.Sum, want: sum, rel: 1e-6, why: terms, cases: most},
		{name: "Mean", types: floats, to: own, run: tensor.Mean, want: func(x []float64) (float64, float64) {
			s, t := sum(x)
			return s / float64(len(x)), t / float64(len(x))
		}, rel: 1e-6, why: terms, cases: few},
		{name: "Max", types: all, to: exact, run: tensor.Max, want: func(x []float64) (float64, float64) { return x[best(x, true)], 0 }, why: "an element", cases: most},
		{name: "Min", types: all, to: exact, run: tensor.Min, want: func(x []float64) (float64, float64) { return x[best(x, false)], 0 }, why: "an element", cases: few},
		{name: "Argmax", types: all, to: to(tensor.I32), run: tensor.ArgmaxOver, want: func(x []float64) (float64, float64) { return float64(best(x, true)), 0 }, why: "a number", cases: reductions},
		{name: "Argmin", types: all, to: to(tensor.I32), run: tensor.ArgminOver, want: func(x []float64) (float64, float64) { return float64(best(x, false)), 0 }, why: "a number", cases: few},
		{name: "Prod", types: append([]tensor.DType{tensor.I32}, tensor.F32), to: own, run: tensor.Prod, want: func(x []float64) (float64, float64) {
			w, v := int32(1), 1.0
			for _, e := range x {
				w, v = w*int32(int64(e)), v*e
			}
			if v == math.Trunc(v) && math.Abs(v) > 1<<40 || float64(w) == v {
				return float64(w), math.Abs(v)
			}
			return v, math.Abs(v)
		}, rel: 1e-5, why: "a rounding for each factor", cases: []Case{{Label: "narrow", Dims: []int{1, 100, 3}, Flags: "2"}, {Label: "columns", Dims: []int{1, 5, 129}, Flags: "1"}}},
		{name: "Any", types: append(all[:len(all):len(all)], tensor.BOOL), to: to(tensor.BOOL), run: tensor.Any, want: func(x []float64) (float64, float64) {
			for _, v := range x {
				if v != 0 {
					return 1, 0
				}
			}
			return 0, 0
		}, why: "a truth", cases: few},
		{name: "All", types: append(all[:len(all):len(all)], tensor.BOOL), to: to(tensor.BOOL), run: tensor.All, want: func(x []float64) (float64, float64) {
			for _, v := range x {
				if v == 0 {
					return 0, 0
				}
			}
			return 1, 0
		}, why: "a truth", cases: few},
		{name: "Var", types: floats, to: own, run: func(a *tensor.Tensor, dims ...int) *tensor.Tensor { return tensor.Var(a, 1, dims...) },
			want: func(x []float64) (v, scale float64) {
				mean, _ := sum(x)
				mean /= float64(len(x))
				for _, e := range x {
					v += (e - mean) * (e - mean)
				}
				v /= float64(len(x)) - 1
				return v, v + math.Abs(mean)*math.Sqrt(v) // a difference from the mean has the mean's rounding
			}, rel: 4e-6, why: "running means and squares in float32", cases: append(few[1:len(few):len(few)], bigReductions[0])},
		{name: "Norm", types: floats, to: own, run: norm(2), want: func(x []float64) (float64, float64) {
			v := 0.0
			for _, e := range x {
				v += e * e
			}
			return math.Sqrt(v), math.Sqrt(v)
		}, rel: 2e-6, why: terms, cases: few},
		{name: "Norm1", types: floats, to: own, run: norm(1), want: func(x []float64) (float64, float64) { _, t := sum(x); return t, t }, rel: 2e-6, why: terms,
			cases: append(few[:3:3], crowds...)},
		{name: "NormMax", types: floats, to: own, run: norm(math.Inf(1)), want: func(x []float64) (v, _ float64) {
			for _, e := range x {
				v = max(v, math.Abs(e))
			}
			return v, 0
		}, why: "an element", cases: few[:3]},
		{name: "LogSumExp", types: floats, to: own, run: tensor.LogSumExp, want: func(x []float64) (float64, float64) {
			v := 0.0
			for _, e := range x {
				v += math.Exp(e)
			}
			return math.Log(v), 1 + math.Abs(math.Log(v))
		}, rel: 2e-6, why: "exponentials and a logarithm in float32", cases: few},
	}
	var ops []*Op
	for _, r := range rows {
		ops = append(ops, r.op())
	}
	return append(ops, cumSumOp(), gatherOp(), scatterOp())
}

// cumSumOp has {rows, n, cols} and sums along the middle.
func cumSumOp() *Op {
	return &Op{
		Name: "CumSum",
		Cases: each([]tensor.DType{tensor.F32, tensor.F16, tensor.BF16, tensor.I32}, Case{Label: "empty", Dims: []int{0, 3, 1}}, Case{Label: "row", Dims: []int{3, 1000, 1}},
			Case{Label: "columns", Dims: []int{2, 33, 129}}, Case{Label: "one", Dims: []int{1, 1, 1}}, Case{Label: "rows", Dims: []int{8192, 8192, 1}, Bench: true, Large: true}),
		Inputs:  func(g *Generator, c Case) []*Array { return []*Array{drawnFor(g, c.Type, false, c.Dims...)} },
		Outputs: func(c Case) []Spec { return []Spec{{c.Type, c.Dims}} },
		Run:     func(out, in []*tensor.Tensor, _ Case) { tensor.CopyInto(out[0], tensor.CumSum(in[0], 1)) },
		Reference: func(in []*Array, c Case) []Want {
			x, n, cols := in[0].Values, c.Dims[1], c.Dims[2]
			want := Want{Values: make([]float64, len(x)), Scale: make([]float64, len(x))}
			for i, v := range x {
				want.Values[i], want.Scale[i] = v, math.Abs(v)
				if i/cols%n > 0 {
					want.Values[i] += want.Values[i-cols]
					want.Scale[i] += want.Scale[i-cols]
				}
				want.Values[i] = wrapped(want.Values[i], c.Type)
			}
			return []Want{want}
		},
		Tolerance: func(c Case) Tolerance {
			if c.Type == tensor.I32 {
				return Tolerance{Why: "whole numbers are exact"}
			}
			return Tolerance{Rel: 1e-6 + 2*epsilon(c.Type), Abs: underflow(c.Type), Why: "sums of float32, judged by the size of their terms"}
		},
	}
}

// gatherOp has {rows, cols, ids}: Flags name the dimension, or `select` for IndexSelect along 0.
func gatherOp() *Op {
	shape := func(c Case) []int {
		if c.Flags == "1" {
			return []int{c.Dims[0], c.Dims[2]}
		}
		return []int{c.Dims[2], c.Dims[1]}
	}
	return &Op{
		Name: "Gather",
		Cases: each([]tensor.DType{tensor.F32, tensor.F16, tensor.I8}, Case{Label: "odd", Dims: []int{7, 129, 33}, Flags: "0"}, Case{Label: "odd", Dims: []int{7, 129, 33}, Flags: "1"},
			Case{Label: "odd", Dims: []int{7, 129, 33}, Flags: "select"}, Case{Label: "empty", Dims: []int{7, 129, 0}, Flags: "select"},
			Case{Label: "rows", Dims: []int{65536, 1024, 65536}, Flags: "select", Bench: true, Large: true}),
		Inputs: func(g *Generator, c Case) []*Array {
			ids := g.Ints(c.Dims[0], c.Dims[2])
			if c.Flags != "select" {
				ids = g.Ints(c.Dims[int(c.Flags[0]-'0')], shape(c)...)
			}
			return []*Array{drawnFor(g, c.Type, false, c.Dims[:2]...), ids}
		},
		Outputs: func(c Case) []Spec { return []Spec{{c.Type, shape(c)}} },
		Run: func(out, in []*tensor.Tensor, c Case) {
			if c.Flags == "select" {
				tensor.CopyInto(out[0], tensor.IndexSelect(in[0], in[1], 0))
				return
			}
			tensor.CopyInto(out[0], tensor.Gather(in[0], in[1], int(c.Flags[0]-'0')))
		},
		Reference: func(in []*Array, c Case) []Want {
			s := shape(c)
			out := make([]float64, product(s))
			for i := range out {
				r, col := i/s[1], i%s[1]
				switch c.Flags {
				case "select":
					r = int(in[1].Values[r])
				case "0":
					r = int(in[1].Values[i])
				default:
					col = int(in[1].Values[i])
				}
				out[i] = in[0].Values[r*c.Dims[1]+col]
			}
			return []Want{{Values: out}}
		},
		Tolerance: func(Case) Tolerance { return Tolerance{Why: "bits are copied"} },
		Bytes:     func(c Case) int64 { return 2*c.Type.Bytes(c.Dims[1]*c.Dims[2]) + int64(4*c.Dims[2]) },
	}
}

// scatterOp adds {ids, cols} rows to {rows, cols} along dimension 0.
func scatterOp() *Op {
	return &Op{
		Name: "ScatterAdd", InOut: 1,
		Cases: each([]tensor.DType{tensor.F32, tensor.I32}, Case{Label: "odd", Dims: []int{7, 129, 33}}, Case{Label: "empty", Dims: []int{7, 129, 0}},
			Case{Label: "rows", Dims: []int{65536, 1024, 65536}, Bench: true, Large: true}),
		Inputs: func(g *Generator, c Case) []*Array {
			return []*Array{drawnFor(g, c.Type, false, c.Dims[:2]...), drawnFor(g, c.Type, false, c.Dims[2], c.Dims[1]), g.Ints(c.Dims[0], c.Dims[2], c.Dims[1])}
		},
		Outputs: func(c Case) []Spec { return []Spec{{c.Type, c.Dims[:2]}} },
		Run:     func(out, in []*tensor.Tensor, _ Case) { tensor.ScatterAddInto(out[0], in[1], in[2], 0) },
		Reference: func(in []*Array, c Case) []Want {
			want := Want{Values: in[0].Values, Scale: make([]float64, len(in[0].Values))}
			for i, v := range want.Values {
				want.Scale[i] = math.Abs(v)
			}
			for i, v := range in[1].Values {
				at := int(in[2].Values[i])*c.Dims[1] + i%c.Dims[1]
				want.Values[at] = wrapped(want.Values[at]+v, c.Type)
				want.Scale[at] += math.Abs(v)
			}
			return []Want{want}
		},
		Tolerance: func(c Case) Tolerance {
			if c.Type == tensor.I32 {
				return Tolerance{Why: "whole numbers are exact"}
			}
			return Tolerance{Rel: 1e-6, Why: "sums of float32, judged by the size of their terms"}
		},
	}
}
