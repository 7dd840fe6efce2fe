package optable

import (
	"math"
	bigint "math/big"

	"github.com/vibrant-ml/vibrant/tensor"
)

// layouts are the cases of operations on arrays with strides, {rows, cols}. Flags name how operands lie: the first one `transposed`,
// every second column of a wider array (`sliced`), or without gaps; the second one broadcast from a `row` or a `column`.
var layouts = []Case{
	{Label: "empty", Dims: []int{0, 3}}, {Label: "one", Dims: []int{1, 1}}, {Label: "odd", Dims: []int{3, 127}},
	{Label: "odd_long", Dims: []int{1, 20481}}, {Label: "vectors", Dims: []int{64, 132}},
	{Label: "odd", Dims: []int{33, 129}, Flags: "transposed"}, {Label: "vectors", Dims: []int{32, 128}, Flags: "transposed"},
	{Label: "odd", Dims: []int{7, 129}, Flags: "sliced"}, {Label: "vectors", Dims: []int{33, 256}, Flags: "row"},
	{Label: "odd", Dims: []int{33, 255}, Flags: "row"}, {Label: "vectors", Dims: []int{33, 256}, Flags: "column"},
	{Label: "odd", Dims: []int{33, 255}, Flags: "column"},
}

// big are measured: an array of 64 Mi elements.
var big = []Case{
	{Label: "64Mi", Dims: []int{1, 64 << 20}, Bench: true, Large: true},
	{Label: "64Mi", Dims: []int{8192, 8192}, Flags: "row", Bench: true, Large: true},
	{Label: "64Mi", Dims: []int{8192, 8192}, Flags: "transposed", Bench: true, Large: true},
}

// drawnFor makes an operand of a type: values of its whole range for I8, U8 and BOOL, and numbers whose products overflow for I32.
func drawnFor(g *Generator, t tensor.DType, positive bool, shape ...int) *Array {
	if !integerType(t) {
		a := g.Normal(t, shape...)
		if positive {
			for i := range a.Values {
				a.Values[i] = math.Abs(a.Values[i])
			}
			for i := int(t.Bytes(1)) - 1; i < len(a.Raw); i += int(t.Bytes(1)) {
				a.Raw[i] &= 0x7f
			}
		}
		return a
	}
	return g.Whole(t, shape...)
}

func integerType(t tensor.DType) bool {
	return t == tensor.I32 || t == tensor.I8 || t == tensor.U8 || t == tensor.BOOL
}

// operandShape returns the shape in which operand i of a case lies.
func operandShape(c Case, i int) []int {
	rows, cols := c.Dims[0], c.Dims[1]
	switch {
	case i == 0 && c.Flags == "transposed":
		return []int{cols, rows}
	case i == 0 && c.Flags == "sliced":
		return []int{rows, 2 * cols}
	case i == 1 && c.Flags == "row":
		return []int{cols}
	case i == 1 && c.Flags == "column":
		return []int{rows, 1}
	}
	return []int{rows, cols}
}

// viewed returns operand i as the operation gets it.
func viewed(c Case, i int, t *tensor.Tensor) *tensor.Tensor {
	switch {
	case i == 0 && c.Flags == "transposed":
		return t.T()
	case i == 0 && c.Flags == "sliced":
		return t.SliceAlong(1, 0, 2*c.Dims[1], 2)
	}
	return t
}

// placeOf returns where element (r, column) of operand i lies.
func placeOf(c Case, i, r, column int) int {
	rows, cols := c.Dims[0], c.Dims[1]
	switch {
	case i == 0 && c.Flags == "transposed":
		return column*rows + r
	case i == 0 && c.Flags == "sliced":
		return r*2*cols + 2*column
	case i == 1 && c.Flags == "row":
		return column
	case i == 1 && c.Flags == "column":
		return r
	}
	return r*cols + column
}

// expression is a row for an expression of elements: one kernel whatever the expression, so each has few cases of its own.
type expression struct {
	name     string
	inputs   int
	types    []tensor.DType
	to       tensor.DType // of the result, where it is not the operands'
	fixed    bool         // to is it
	positive bool
	f        *tensor.Fused
	want     func(x []float64) float64
	rel, abs float64
	why      string
	cases    []Case
}

func (e expression) op() *Op {
	result := func(c Case) tensor.DType {
		if e.fixed {
			return e.to
		}
		return c.Type
	}
	return &Op{
		Name: "Map_" + e.name, Cases: each(e.types, e.cases...),
		Inputs: func(g *Generator, c Case) []*Array {
			in := make([]*Array, e.inputs)
			for i := range in {
				in[i] = drawnFor(g, c.Type, e.positive, operandShape(c, i)...)
			}
			return in
		},
		Outputs: func(c Case) []Spec { return []Spec{{result(c), c.Dims}} },
		Run: func(out, in []*tensor.Tensor, c Case) {
			views := make([]*tensor.Tensor, len(in))
			for i, t := range in {
				views[i] = viewed(c, i, t)
			}
			e.f.CallInto(out[0], views...)
		},
		Reference: func(in []*Array, c Case) []Want {
			out := make([]float64, product(c.Dims))
			x := make([]float64, len(in))
			for at := range out {
				for i := range in {
					x[i] = in[i].Values[placeOf(c, i, at/c.Dims[1], at%c.Dims[1])]
				}
				out[at] = wrapped(e.want(x), result(c))
			}
			return []Want{{Values: out}}
		},
		Tolerance: func(c Case) Tolerance {
			if integerType(result(c)) {
				return Tolerance{Why: "whole numbers are exact"}
			}
			return Tolerance{Rel: e.rel + 2*epsilon(result(c)), Abs: e.abs + underflow(result(c)), Why: e.why}
		},
		FLOPs: func(c Case) int64 { return int64(product(c.Dims)) },
	}
}

// wrapped returns a whole number as a type keeps it.
func wrapped(x float64, t tensor.DType) float64 {
	switch t {
	case tensor.I32:
		return float64(int32(int64(x)))
	case tensor.I8:
		return float64(int8(int64(x)))
	case tensor.U8:
		return float64(uint8(int64(x)))
	}
	return x
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func mapOps() []*Op {
	type (
		e = tensor.Expr
		x = []float64
	)
	whole := []tensor.DType{tensor.I32, tensor.I8, tensor.U8}
	all := append(append([]tensor.DType(nil), floats...), whole...)
	few := []Case{{Label: "odd", Dims: []int{3, 127}}, {Label: "vectors", Dims: []int{9, 132}, Flags: "row"}, {Label: "empty", Dims: []int{0, 1}}}
	benched := append(append([]Case(nil), few...), big[0])
	ordinary := append(append([]Case(nil), layouts...), big...)
	one := func(f func(e) e) *tensor.Fused { return tensor.Fuse(f) }
	two := func(f func(e, e) e) *tensor.Fused { return tensor.Fuse(f) }
	const rounding = "one rounding"
	const exp = 4e-7
	rows := []expression{
		{name: "Add", inputs: 2, types: all, f: two(e.Add), want: func(v x) float64 { return v[0] + v[1] }, why: rounding, cases: ordinary},
		{name: "Sub", inputs: 2, types: all, f: two(e.Sub), want: func(v x) float64 { return v[0] - v[1] }, why: rounding, cases: layouts},
		{name: "Mul", inputs: 2, types: all, f: two(e.Mul), want: func(v x) float64 { return v[0] * v[1] }, why: rounding, cases: layouts},
		{name: "Div", inputs: 2, types: all, f: two(e.Div), want: func(v x) float64 { return v[0] / v[1] }, rel: 1e-7, why: rounding, cases: few},
		{name: "Minimum", inputs: 2, types: all, f: two(e.Minimum), want: func(v x) float64 { return min(v[0], v[1]) }, why: rounding, cases: few},
		{name: "Maximum", inputs: 2, types: all, f: two(e.Maximum), want: func(v x) float64 { return max(v[0], v[1]) }, why: rounding, cases: few},
		{name: "Neg", inputs: 1, types: all, f: one(e.Neg), want: func(v x) float64 { return -v[0] }, why: rounding, cases: few},
		{name: "Abs", inputs: 1, types: all, f: one(e.Abs), want: func(v x) float64 { return math.Abs(v[0]) }, why: rounding, cases: few},
		{name: "Pow", inputs: 2, types: floats, positive: true, f: two(e.Pow), want: func(v x) float64 { return math.Pow(v[0], v[1]) },
			rel: 2e-6, abs: 1e-7, why: "a logarithm and an exponential in float32", cases: few},
		{name: "PowWhole", inputs: 2, types: whole, f: two(e.Pow), want: wholePower, why: rounding, cases: layouts},
		{name: "Exp", inputs: 1, types: floats, f: one(e.Exp), want: func(v x) float64 { return math.Exp(v[0]) }, rel: exp, why: "exp in float32", cases: benched},
		{name: "Log", inputs: 1, types: floats, positive: true, f: one(e.Log), want: func(v x) float64 { return math.Log(v[0]) }, rel: exp, abs: 1e-7, why: "log in float32", cases: few},
		{name: "Sqrt", inputs: 1, types: floats, positive: true, f: one(e.Sqrt), want: func(v x) float64 { return math.Sqrt(v[0]) }, rel: 2e-7, why: rounding, cases: few},
		{name: "Rsqrt", inputs: 1, types: floats, positive: true, f: one(e.Rsqrt), want: func(v x) float64 { return 1 / math.Sqrt(v[0]) }, rel: 4e-7, why: "two roundings", cases: few},
		{name: "Sin", inputs: 1, types: floats, f: one(e.Sin), want: func(v x) float64 { return math.Sin(v[0]) }, rel: 4e-7, abs: 1e-7, why: "sine in float32", cases: benched},
		{name: "Cos", inputs: 1, types: floats, f: one(e.Cos), want: func(v x) float64 { return math.Cos(v[0]) }, rel: 4e-7, abs: 1e-7, why: "cosine in float32", cases: few},
		{name: "Tanh", inputs: 1, types: floats, f: one(e.Tanh), want: func(v x) float64 { return math.Tanh(v[0]) }, rel: 6e-7, why: "an exponential, or a polynomial near 0, in float32", cases: few},
		{name: "Sigmoid", inputs: 1, types: floats, f: one(e.Sigmoid), want: func(v x) float64 { return 1 / (1 + math.Exp(-v[0])) }, rel: exp, why: "exp in float32", cases: few},
		{name: "SiLU", inputs: 1, types: floats, f: one(e.SiLU), want: func(v x) float64 { return silu(v[0]) }, rel: exp, abs: 1e-7, why: "exp in float32", cases: few},
		{name: "GELU", inputs: 1, types: floats, f: one(e.GELU), want: func(v x) float64 { return v[0] / 2 * math.Erfc(-v[0]/math.Sqrt2) }, rel: 8e-6, abs: 1e-7, why: "as GELU", cases: benched},
		{name: "GELUTanh", inputs: 1, types: floats, f: one(e.GELUTanh), want: func(v x) float64 {
			return v[0] / (1 + math.Exp(-2*math.Sqrt(2/math.Pi)*(v[0]+0.044715*v[0]*v[0]*v[0])))
		}, rel: 8e-6, abs: 1e-7, why: "as GELU", cases: few},
		{name: "ReLU", inputs: 1, types: all, f: one(e.ReLU), want: func(v x) float64 { return max(v[0], 0) }, why: rounding, cases: few},
		{name: "Floor", inputs: 1, types: floats, f: one(e.Floor), want: func(v x) float64 { return math.Floor(v[0]) }, why: rounding, cases: few},
		{name: "Ceil", inputs: 1, types: floats, f: one(e.Ceil), want: func(v x) float64 { return math.Ceil(v[0]) }, why: rounding, cases: few},
		{name: "Round", inputs: 1, types: floats, f: one(e.Round), want: func(v x) float64 { return math.RoundToEven(v[0]) }, why: rounding, cases: few},
		{name: "Rem", inputs: 2, types: whole, f: two(e.Rem), want: func(v x) float64 {
			if v[1] == 0 {
				return 0
			}
			return math.Mod(v[0], v[1])
		}, why: rounding, cases: few},
		{name: "And", inputs: 2, types: append(whole[:3:3], tensor.BOOL), f: two(e.And), want: func(v x) float64 { return float64(int64(v[0]) & int64(v[1])) }, why: rounding, cases: few},
		{name: "Or", inputs: 2, types: append(whole[:3:3], tensor.BOOL), f: two(e.Or), want: func(v x) float64 { return float64(int64(v[0]) | int64(v[1])) }, why: rounding, cases: few},
		{name: "Xor", inputs: 2, types: append(whole[:3:3], tensor.BOOL), f: two(e.Xor), want: func(v x) float64 { return float64(int64(v[0]) ^ int64(v[1])) }, why: rounding, cases: few},
		{name: "Chain", inputs: 3, types: floats, f: tensor.Fuse(func(a, b, c e) e {
			p := a.Mul(b)
			return a.Sub(c).Maximum(p).Add(a.Sub(c).Tanh()).Mul(p).AddScalar(0.5)
		}), want: func(v x) float64 {
			p := v[0] * v[1]
			return (max(v[0]-v[2], p)+math.Tanh(v[0]-v[2]))*p + 0.5
		}, rel: 2e-5, abs: 2e-6, why: "sums that cancel, of values of the order of 1", cases: append(layouts[:len(layouts):len(layouts)], big[0])},
		{name: "Narrow", inputs: 2, types: []tensor.DType{tensor.I8, tensor.U8}, f: two(func(a, b e) e { return a.Add(b).Mul(b).Maximum(a.Neg()) }),
			want: nil, why: "values between steps wrap too", cases: few},
	}
	for _, t := range []tensor.DType{tensor.F32, tensor.F16, tensor.BF16, tensor.I32, tensor.I8, tensor.U8, tensor.BOOL} {
		t := t
		rows = append(rows, expression{name: "To_" + t.String(), inputs: 1, types: append(all[:len(all):len(all)], tensor.BOOL), to: t, fixed: true,
			f: one(func(v e) e { return v.To(t) }), want: nil, rel: 1e-7, why: "one rounding", cases: few})
	}
	for _, compared := range []struct {
		name string
		f    func(a, b e) e
		want func(a, b float64) bool
	}{
		{"Eq", e.Eq, func(a, b float64) bool { return a == b }}, {"Ne", e.Ne, func(a, b float64) bool { return a != b }},
		{"Lt", e.Lt, func(a, b float64) bool { return a < b }}, {"Le", e.Le, func(a, b float64) bool { return a <= b }},
		{"Gt", e.Gt, func(a, b float64) bool { return a > b }}, {"Ge", e.Ge, func(a, b float64) bool { return a >= b }},
	} {
		rows = append(rows, expression{name: compared.name, inputs: 2, types: all, to: tensor.BOOL, fixed: true, f: two(compared.f),
			want: func(v x) float64 { return truth(compared.want(v[0], v[1])) }, why: rounding, cases: few})
	}
	var ops []*Op
	for _, r := range rows {
		op := r.op()
		switch {
		case r.name == "Narrow":
			op.Reference = narrowReference
		case r.want == nil:
			op.Reference = convertedReference(r.to)
		case r.name == "Mul":
			floatReference := op.Reference
			op.Reference = func(in []*Array, c Case) []Want {
				want := floatReference(in, c)
				if integerType(c.Type) { // exact where a float64 is not
					for at := range want[0].Values {
						r, column := at/c.Dims[1], at%c.Dims[1]
						a, b := in[0].Values[placeOf(c, 0, r, column)], in[1].Values[placeOf(c, 1, r, column)]
						want[0].Values[at] = wrapped(float64(int32(int64(a)*int64(b))), c.Type)
					}
				}
				return want
			}
		case r.name == "Div":
			floatReference := op.Reference
			op.Reference = func(in []*Array, c Case) []Want {
				want := floatReference(in, c)
				if integerType(c.Type) {
					for at := range want[0].Values {
						a, b := in[0].Values[at], in[1].Values[placeOf(c, 1, at/c.Dims[1], at%c.Dims[1])]
						if want[0].Values[at] = 0; b != 0 {
							want[0].Values[at] = wrapped(math.Trunc(a/b), c.Type)
						}
					}
				}
				return want
			}
		}
		ops = append(ops, op)
	}
	return append(ops, whereOp())
}

// wholePower is a to the power of b modulo 2^32, of which wrapped keeps the bits of a type; of b below 0 the power as a fraction, towards 0,
// which of 0 is 0 here.
func wholePower(v []float64) float64 {
	a, b := bigint.NewInt(int64(v[0])), bigint.NewInt(int64(v[1]))
	if b.Sign() < 0 {
		if v[0] == 0 {
			return 0
		}
		return math.Trunc(math.Pow(v[0], v[1]))
	}
	return float64(a.Exp(a, b, bigint.NewInt(1<<32)).Int64())
}

// narrowReference is that of (a + b) * b, or -a where it is greater, each rounded to its type.
func narrowReference(in []*Array, c Case) []Want {
	out := make([]float64, product(c.Dims))
	for at := range out {
		a, b := in[0].Values[at], in[1].Values[placeOf(c, 1, at/c.Dims[1], at%c.Dims[1])]
		sum := wrapped(a+b, c.Type)
		out[at] = max(wrapped(sum*b, c.Type), wrapped(-a, c.Type))
	}
	return []Want{{Values: out}}
}

// convertedReference is that of conversions to a type.
func convertedReference(to tensor.DType) func(in []*Array, c Case) []Want {
	return func(in []*Array, c Case) []Want {
		for i, v := range in[0].Values {
			switch {
			case to == tensor.BOOL:
				v = truth(v != 0)
			case integerType(to) && !integerType(c.Type):
				low, high := map[tensor.DType]float64{tensor.I8: -128, tensor.I32: math.MinInt32}[to],
					map[tensor.DType]float64{tensor.I8: 127, tensor.U8: 255, tensor.I32: math.MaxInt32}[to]
				v = min(max(math.Trunc(v), low), high)
			case integerType(to):
				v = wrapped(v, to)
			case to == tensor.F16 && math.Abs(v) >= 65520:
				v = math.Inf(int(v))
			}
			in[0].Values[i] = v
		}
		return []Want{{Values: in[0].Values}}
	}
}

// whereOp chooses among two operands by a BOOL.
func whereOp() *Op {
	return &Op{
		Name: "Map_Where", Cases: each([]tensor.DType{tensor.F32, tensor.F16, tensor.BF16, tensor.I32, tensor.I8, tensor.U8, tensor.BOOL}, layouts...),
		Inputs: func(g *Generator, c Case) []*Array {
			return []*Array{drawnFor(g, tensor.BOOL, false, operandShape(c, 0)...), drawnFor(g, c.Type, false, operandShape(c, 1)...),
				drawnFor(g, c.Type, false, c.Dims...)}
		},
		Outputs: func(c Case) []Spec { return []Spec{{c.Type, c.Dims}} },
		Run: func(out, in []*tensor.Tensor, c Case) {
			tensor.CopyInto(out[0], tensor.Where(viewed(c, 0, in[0]), in[1], in[2]))
		},
		Reference: func(in []*Array, c Case) []Want {
			out := make([]float64, product(c.Dims))
			for at := range out {
				r, column := at/c.Dims[1], at%c.Dims[1]
				if out[at] = in[2].Values[at]; in[0].Values[placeOf(c, 0, r, column)] != 0 {
					out[at] = in[1].Values[placeOf(c, 1, r, column)]
				}
			}
			return []Want{{Values: out}}
		},
		Tolerance: func(Case) Tolerance { return Tolerance{Why: "bits are copied"} },
	}
}
