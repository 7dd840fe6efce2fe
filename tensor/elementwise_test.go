package tensor_test

import (
	"math"
	"slices"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// TestElementwiseFunctionsAreWhatTheirNamesSay holds each function, and its form that writes over an operand, to the formula of its
// name. The kernels' accuracy and types are TestOps's business.
func TestElementwiseFunctionsAreWhatTheirNamesSay(t *testing.T) {
	x := []float32{-2.5, -0.5, 0.5, 1.5, 2.5, 3}
	y := []float32{2, 4, 0.5, 1.5, -3, 0.25}
	sigmoid := func(v float64) float64 { return 1 / (1 + math.Exp(-v)) }
	truth := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	type T = *tensor.Tensor
	one := map[string]struct {
		f    func(a T) T
		into func(dst, a T)
		want func(v float64) float64
	}{
		"neg":        {tensor.Neg, tensor.NegInto, func(v float64) float64 { return -v }},
		"abs":        {tensor.Abs, tensor.AbsInto, math.Abs},
		"floor":      {tensor.Floor, tensor.FloorInto, math.Floor},
		"ceil":       {tensor.Ceil, tensor.CeilInto, math.Ceil},
		"round":      {tensor.Round, tensor.RoundInto, math.RoundToEven},
		"exp":        {tensor.Exp, tensor.ExpInto, math.Exp},
		"log":        {tensor.Log, tensor.LogInto, math.Log},
		"sqrt":       {tensor.Sqrt, tensor.SqrtInto, math.Sqrt},
		"rsqrt":      {tensor.Rsqrt, tensor.RsqrtInto, func(v float64) float64 { return 1 / math.Sqrt(v) }},
		"sin":        {tensor.Sin, tensor.SinInto, math.Sin},
		"cos":        {tensor.Cos, tensor.CosInto, math.Cos},
		"tanh":       {tensor.Tanh, tensor.TanhInto, math.Tanh},
		"sigmoid":    {tensor.Sigmoid, tensor.SigmoidInto, sigmoid},
		"relu":       {tensor.ReLU, tensor.ReLUInto, func(v float64) float64 { return max(v, 0) }},
		"silu":       {tensor.SiLU, tensor.SiLUInto, func(v float64) float64 { return v * sigmoid(v) }},
		"gelu":       {tensor.GELU, tensor.GELUInto, func(v float64) float64 { return v / 2 * math.Erfc(-v/math.Sqrt2) }},
		"gelu, tanh": {tensor.GELUTanh, tensor.GELUTanhInto, func(v float64) float64 { return v * sigmoid(2*math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v)) }},
		"add scalar": {func(a T) T { return tensor.AddScalar(a, 1.5) }, func(dst, a T) { tensor.AddScalarInto(dst, a, 1.5) }, func(v float64) float64 { return v + 1.5 }},
		"mul scalar": {func(a T) T { return tensor.MulScalar(a, 1.5) }, func(dst, a T) { tensor.MulScalarInto(dst, a, 1.5) }, func(v float64) float64 { return v * 1.5 }},
		"clamp":      {func(a T) T { return tensor.Clamp(a, -1, 2) }, func(dst, a T) { tensor.ClampInto(dst, a, -1, 2) }, func(v float64) float64 { return min(max(v, -1), 2) }},
		"soft cap":   {func(a T) T { return tensor.SoftCap(a, 2) }, func(dst, a T) { tensor.SoftCapInto(dst, a, 2) }, func(v float64) float64 { return 2 * math.Tanh(v/2) }},
	}
	two := map[string]struct {
		f    func(a, b T) T
		into func(dst, a, b T)
		want func(v, w float64) float64
	}{
		"add":     {tensor.Add, tensor.AddInto, func(v, w float64) float64 { return v + w }},
		"sub":     {tensor.Sub, tensor.SubInto, func(v, w float64) float64 { return v - w }},
		"mul":     {tensor.Mul, tensor.MulInto, func(v, w float64) float64 { return v * w }},
		"div":     {tensor.Div, tensor.DivInto, func(v, w float64) float64 { return v / w }},
		"pow":     {tensor.Pow, tensor.PowInto, math.Pow},
		"minimum": {tensor.Minimum, tensor.MinimumInto, math.Min},
		"maximum": {tensor.Maximum, tensor.MaximumInto, math.Max},
	}
	compare := map[string]struct {
		f    func(a, b T) T
		into func(dst, a, b T)
		want func(v, w float64) bool
	}{
		"eq": {tensor.Eq, tensor.EqInto, func(v, w float64) bool { return v == w }},
		"ne": {tensor.Ne, tensor.NeInto, func(v, w float64) bool { return v != w }},
		"lt": {tensor.Lt, tensor.LtInto, func(v, w float64) bool { return v < w }},
		"le": {tensor.Le, tensor.LeInto, func(v, w float64) bool { return v <= w }},
		"gt": {tensor.Gt, tensor.GtInto, func(v, w float64) bool { return v > w }},
		"ge": {tensor.Ge, tensor.GeInto, func(v, w float64) bool { return v >= w }},
	}
	bits := map[string]struct {
		f    func(a, b T) T
		into func(dst, a, b T)
		want func(v, w int32) int32
	}{
		"and": {tensor.And, tensor.AndInto, func(v, w int32) int32 { return v & w }},
		"or":  {tensor.Or, tensor.OrInto, func(v, w int32) int32 { return v | w }},
		"xor": {tensor.Xor, tensor.XorInto, func(v, w int32) int32 { return v ^ w }},
		"rem": {tensor.Rem, tensor.RemInto, func(v, w int32) int32 { return v % w }},
	}
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		check := func(name string, got T, want []float64) {
			t.Helper()
			for i, g := range got.Float64s() {
				if !(math.Abs(g-want[i]) <= 1e-5*math.Abs(want[i])+1e-6) && !(g != g && want[i] != want[i]) { // of GELU, the least exact
					t.Errorf("%s: %v, want %v", name, got.Float64s(), want)
					return
				}
			}
		}
		in := func(v []float32) T { return on(t, d, tensor.FromSlice(v)) }
		made := func(n int, f func(i int) float64) []float64 {
			want := make([]float64, n)
			for i := range want {
				want[i] = f(i)
			}
			return want
		}
		for name, c := range one {
			want := made(len(x), func(i int) float64 { return c.want(float64(x[i])) })
			check(name, c.f(in(x)), want)
			a := in(x)
			c.into(a, a)
			check(name+" in place", a, want)
		}
		for name, c := range two {
			want := made(len(x), func(i int) float64 { return c.want(float64(x[i]), float64(y[i])) })
			check(name, c.f(in(x), in(y)), want)
			a := in(y)
			c.into(a, in(x), a)
			check(name+" in place", a, want)
		}
		for name, c := range compare {
			want := made(len(x), func(i int) float64 { return truth(c.want(float64(x[i]), float64(y[i]))) })
			check(name, c.f(in(x), in(y)), want)
			dst := on(t, d, tensor.FromBools(make([]bool, len(x))))
			c.into(dst, in(x), in(y))
			check(name+" into", dst, want)
		}
		v, w := []int32{-7, 5, 0, 123456, 12}, []int32{3, 4, 9, -77, 12}
		for name, c := range bits {
			want := made(len(v), func(i int) float64 { return float64(c.want(v[i], w[i])) })
			ints := func(v []int32) T { return on(t, d, tensor.FromInt32s(v)) }
			check(name, c.f(ints(v), ints(w)), want)
			a := ints(v)
			c.into(a, a, ints(w))
			check(name+" in place", a, want)
		}
		m := on(t, d, tensor.FromFloat64s([]float64{1, 2, 3, 4, 5, 6}, 2, 3))
		check("mul rows", tensor.MulRows(m, on(t, d, tensor.FromSlice([]float32{10, -1}))), []float64{10, 20, 30, -4, -5, -6})
		check("transpose", m.Transpose(0, 1), []float64{1, 4, 2, 5, 3, 6})
		if got := on(t, d, tensor.FromInt8s([]int8{-128, 127})).Int8s(); !slices.Equal(got, []int8{-128, 127}) {
			t.Errorf("int8s: %v", got)
		}
	})
}
