package tensor

import (
	"slices"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// The element-wise operations take operands of one type, F32, F16, BF16, I32, I8 or U8 (BOOL where truths make sense), of any
// strides, and broadcast them as numpy does: dimensions are matched from the last one on, and one place of an operand stands for all.
// Expr says more of each. They are one kernel, that of Fuse.

// mapping makes an expression of values.
type mapping func(p *program, in []Expr) Expr

func one(f func(Expr) Expr) mapping { return func(_ *program, in []Expr) Expr { return f(in[0]) } }
func two(f func(Expr, Expr) Expr) mapping {
	return func(_ *program, in []Expr) Expr { return f(in[0], in[1]) }
}
func same(_ *program, in []Expr) Expr { return in[0] }

// mapped returns an expression of operands that are broadcast.
func mapped(op string, f mapping, in ...*Tensor) *Tensor {
	p, result := trace(op, f, typesOf(op, in)...)
	out := output(op, in[0].Stream(), result.dtype, broadcast(op, in...))
	p.run(op, out, in)
	return out
}

// mapInto writes an expression of operands to dst, in dst's shape, to which they are broadcast.
func mapInto(op string, dst *Tensor, f mapping, in ...*Tensor) {
	p, result := trace(op, f, typesOf(op, in)...)
	if result.dtype != dst.dtype {
		misuse(op, "a result of %v into %v %s", result.dtype, dst.dtype, shapeString(dst.shape))
	}
	if shape := broadcast(op, in...); len(in) > 0 && !slices.Equal(shape, dst.shape) {
		if !slices.Equal(broadcast(op, append(slices.Clone(in), dst)...), dst.shape) {
			misuse(op, "%s into %s", shapeString(shape), shapeString(dst.shape))
		}
	}
	p.run(op, dst, in)
}

func typesOf(op string, in []*Tensor) []DType {
	types := make([]DType, len(in))
	for i, t := range in {
		t.viewable(op)
		types[i] = t.dtype
	}
	return types
}

// run computes the expression of operands into dst, to whose shape they broadcast.
func (p *program) run(op string, dst *Tensor, in []*Tensor) {
	args := kernel.MapArgs{Sizes: kernelShape(op, dst.shape), Rank: len(dst.shape), Inputs: len(in), Steps: len(p.steps)}
	copy(args.Program[:], p.steps)
	operands := append([]*Tensor{dst}, in...)
	for i, t := range in {
		if !dst.overlaps(t) || dst.ptr() == t.ptr() && dst.dtype.BlockBytes() == t.dtype.BlockBytes() &&
			dst.kernelView(nil, dst.shape).Strides == t.kernelView(nil, dst.shape).Strides {
			continue
		}
		c, err := t.duplicate(t.Stream()) // an element may be written before it is read
		if err != nil {
			fail(op, err, operands...)
		}
		defer c.Free()
		operands[1+i] = c
	}
	shape := dst.shape
	execViews(op, dst.Stream(), 1, func(k kernel.Stream, t []*Tensor, at pointers) error {
		args := args
		args.Out = t[0].kernelView(at[0], shape)
		for i := range in {
			args.In[i] = t[1+i].kernelView(at[1+i], shape)
		}
		return k.Map(&args)
	}, operands...)
}

// Fused is an expression of up to six operands, computed by one kernel.
type Fused struct {
	f     mapping
	count int // of operands; -1 for any
}

// Fuse makes one kernel of an expression: its function gets a value for each operand, and is called anew for operands of other
// types.
//
//	f := tensor.Fuse(func(x, y tensor.Expr) tensor.Expr { return x.Mul(y).Add(x).Tanh() })
//	z := f.Call(a, b)
func Fuse[F func(Expr) Expr | func(Expr, Expr) Expr | func(Expr, Expr, Expr) Expr | func(...Expr) Expr](f F) *Fused {
	switch f := any(f).(type) {
	case func(Expr) Expr:
		return &Fused{one(f), 1}
	case func(Expr, Expr) Expr:
		return &Fused{two(f), 2}
	case func(Expr, Expr, Expr) Expr:
		return &Fused{func(_ *program, in []Expr) Expr { return f(in[0], in[1], in[2]) }, 3}
	}
	variadic := any(f).(func(...Expr) Expr)
	return &Fused{func(_ *program, in []Expr) Expr { return variadic(in...) }, -1}
}

func (f *Fused) check(in []*Tensor) {
	if len(in) == 0 || f.count >= 0 && len(in) != f.count {
		misuse("fused", "%d operands of an expression of %d", len(in), f.count)
	}
}

// Call returns the expression of operands, which are broadcast. Panics: *ShapeError, *OpError.
func (f *Fused) Call(in ...*Tensor) *Tensor {
	f.check(in)
	return mapped("fused", f.f, in...)
}

// CallInto writes the expression of operands to dst, which may be one of them. Panics: *ShapeError, *OpError.
func (f *Fused) CallInto(dst *Tensor, in ...*Tensor) {
	f.check(in)
	mapInto("fused", dst, f.f, in...)
}

// Where returns a where cond, a BOOL, is true, else b. Panics: *ShapeError, *OpError.
func Where(cond, a, b *Tensor) *Tensor {
	return mapped("where", func(_ *program, in []Expr) Expr { return in[0].Where(in[1], in[2]) }, cond, a, b)
}

// WhereInto writes Where(cond, a, b) to dst, which may be a or b. Panics: *ShapeError, *OpError.
func WhereInto(dst, cond, a, b *Tensor) {
	mapInto("where", dst, func(_ *program, in []Expr) Expr { return in[0].Where(in[1], in[2]) }, cond, a, b)
}

// Not returns the opposite of a BOOL. Panics: *ShapeError, *OpError.
func Not(a *Tensor) *Tensor { return mapped("not", one(Expr.Not), a) }

// NotInto writes Not(a) to dst, which may be a. Panics: *ShapeError, *OpError.
func NotInto(dst, a *Tensor) { mapInto("not", dst, one(Expr.Not), a) }

// Clamp returns a held between lo and hi, NaN for NaN. Panics: *ShapeError, *OpError.
func Clamp(a *Tensor, lo, hi float64) *Tensor {
	return mapped("clamp", one(func(x Expr) Expr { return x.Clamp(lo, hi) }), a)
}

// ClampInto writes Clamp(a, lo, hi) to dst, which may be a. Panics: *ShapeError, *OpError.
func ClampInto(dst, a *Tensor, lo, hi float64) {
	mapInto("clamp", dst, one(func(x Expr) Expr { return x.Clamp(lo, hi) }), a)
}

// AddScalar returns a + v. Panics: *ShapeError, *OpError.
func AddScalar(a *Tensor, v float64) *Tensor {
	return mapped("add scalar", one(func(x Expr) Expr { return x.AddScalar(v) }), a)
}

// AddScalarInto writes a + v to dst, which may be a. Panics: *ShapeError, *OpError.
func AddScalarInto(dst, a *Tensor, v float64) {
	mapInto("add scalar", dst, one(func(x Expr) Expr { return x.AddScalar(v) }), a)
}

// Sub returns a - b. Panics: *ShapeError, *OpError.
func Sub(a, b *Tensor) *Tensor { return mapped("sub", two(Expr.Sub), a, b) }

// SubInto writes Sub(a, b) to dst, which may be a or b. Panics: *ShapeError, *OpError.
func SubInto(dst, a, b *Tensor) { mapInto("sub", dst, two(Expr.Sub), a, b) }

// Div returns a / b; of whole numbers towards 0, and 0 where b is 0. Panics: *ShapeError, *OpError.
func Div(a, b *Tensor) *Tensor { return mapped("div", two(Expr.Div), a, b) }

// DivInto writes Div(a, b) to dst, which may be a or b. Panics: *ShapeError, *OpError.
func DivInto(dst, a, b *Tensor) { mapInto("div", dst, two(Expr.Div), a, b) }

// Minimum returns the smaller of a and b, NaN where either is NaN. Panics: *ShapeError, *OpError.
func Minimum(a, b *Tensor) *Tensor { return mapped("minimum", two(Expr.Minimum), a, b) }

// MinimumInto writes Minimum(a, b) to dst, which may be a or b. Panics: *ShapeError, *OpError.
func MinimumInto(dst, a, b *Tensor) { mapInto("minimum", dst, two(Expr.Minimum), a, b) }

// Maximum returns the greater of a and b, NaN where either is NaN. Panics: *ShapeError, *OpError.
func Maximum(a, b *Tensor) *Tensor { return mapped("maximum", two(Expr.Maximum), a, b) }

// MaximumInto writes Maximum(a, b) to dst, which may be a or b. Panics: *ShapeError, *OpError.
func MaximumInto(dst, a, b *Tensor) { mapInto("maximum", dst, two(Expr.Maximum), a, b) }

// Pow returns a to the power of b, also of whole numbers: Expr.Pow says of negative powers. Panics: *ShapeError, *OpError.
func Pow(a, b *Tensor) *Tensor { return mapped("pow", two(Expr.Pow), a, b) }

// PowInto writes Pow(a, b) to dst, which may be a or b. Panics: *ShapeError, *OpError.
func PowInto(dst, a, b *Tensor) { mapInto("pow", dst, two(Expr.Pow), a, b) }

// Rem returns what Div leaves of whole numbers, with the sign of a. Panics: *ShapeError, *OpError.
func Rem(a, b *Tensor) *Tensor { return mapped("rem", two(Expr.Rem), a, b) }

// RemInto writes Rem(a, b) to dst, which may be a or b. Panics: *ShapeError, *OpError.
func RemInto(dst, a, b *Tensor) { mapInto("rem", dst, two(Expr.Rem), a, b) }

// Eq returns whether a == b, as BOOL. Panics: *ShapeError, *OpError.
func Eq(a, b *Tensor) *Tensor { return mapped("eq", two(Expr.Eq), a, b) }

// EqInto writes Eq(a, b) to dst, a BOOL. Panics: *ShapeError, *OpError.
func EqInto(dst, a, b *Tensor) { mapInto("eq", dst, two(Expr.Eq), a, b) }

// Ne returns whether a != b, as BOOL. Panics: *ShapeError, *OpError.
func Ne(a, b *Tensor) *Tensor { return mapped("ne", two(Expr.Ne), a, b) }

// NeInto writes Ne(a, b) to dst, a BOOL. Panics: *ShapeError, *OpError.
func NeInto(dst, a, b *Tensor) { mapInto("ne", dst, two(Expr.Ne), a, b) }

// Lt returns whether a < b, as BOOL. Panics: *ShapeError, *OpError.
func Lt(a, b *Tensor) *Tensor { return mapped("lt", two(Expr.Lt), a, b) }

// LtInto writes Lt(a, b) to dst, a BOOL. Panics: *ShapeError, *OpError.
func LtInto(dst, a, b *Tensor) { mapInto("lt", dst, two(Expr.Lt), a, b) }

// Le returns whether a <= b, as BOOL. Panics: *ShapeError, *OpError.
func Le(a, b *Tensor) *Tensor { return mapped("le", two(Expr.Le), a, b) }

// LeInto writes Le(a, b) to dst, a BOOL. Panics: *ShapeError, *OpError.
func LeInto(dst, a, b *Tensor) { mapInto("le", dst, two(Expr.Le), a, b) }

// Gt returns whether a > b, as BOOL. Panics: *ShapeError, *OpError.
func Gt(a, b *Tensor) *Tensor { return mapped("gt", two(Expr.Gt), a, b) }

// GtInto writes Gt(a, b) to dst, a BOOL. Panics: *ShapeError, *OpError.
func GtInto(dst, a, b *Tensor) { mapInto("gt", dst, two(Expr.Gt), a, b) }

// Ge returns whether a >= b, as BOOL. Panics: *ShapeError, *OpError.
func Ge(a, b *Tensor) *Tensor { return mapped("ge", two(Expr.Ge), a, b) }

// GeInto writes Ge(a, b) to dst, a BOOL. Panics: *ShapeError, *OpError.
func GeInto(dst, a, b *Tensor) { mapInto("ge", dst, two(Expr.Ge), a, b) }

// And returns the bits, or truths, that both have. Panics: *ShapeError, *OpError.
func And(a, b *Tensor) *Tensor { return mapped("and", two(Expr.And), a, b) }

// AndInto writes And(a, b) to dst, which may be a or b. Panics: *ShapeError, *OpError.
func AndInto(dst, a, b *Tensor) { mapInto("and", dst, two(Expr.And), a, b) }

// Or returns the bits, or truths, that either has. Panics: *ShapeError, *OpError.
func Or(a, b *Tensor) *Tensor { return mapped("or", two(Expr.Or), a, b) }

// OrInto writes Or(a, b) to dst, which may be a or b. Panics: *ShapeError, *OpError.
func OrInto(dst, a, b *Tensor) { mapInto("or", dst, two(Expr.Or), a, b) }

// Xor returns the bits, or truths, that one of both has. Panics: *ShapeError, *OpError.
func Xor(a, b *Tensor) *Tensor { return mapped("xor", two(Expr.Xor), a, b) }

// XorInto writes Xor(a, b) to dst, which may be a or b. Panics: *ShapeError, *OpError.
func XorInto(dst, a, b *Tensor) { mapInto("xor", dst, two(Expr.Xor), a, b) }

// Neg returns -a. Panics: *ShapeError, *OpError.
func Neg(a *Tensor) *Tensor { return mapped("neg", one(Expr.Neg), a) }

// NegInto writes Neg(a) to dst, which may be a. Panics: *ShapeError, *OpError.
func NegInto(dst, a *Tensor) { mapInto("neg", dst, one(Expr.Neg), a) }

// Abs returns |a|. Panics: *ShapeError, *OpError.
func Abs(a *Tensor) *Tensor { return mapped("abs", one(Expr.Abs), a) }

// AbsInto writes Abs(a) to dst, which may be a. Panics: *ShapeError, *OpError.
func AbsInto(dst, a *Tensor) { mapInto("abs", dst, one(Expr.Abs), a) }

// Exp returns e to the power of a. Panics: *ShapeError, *OpError.
func Exp(a *Tensor) *Tensor { return mapped("exp", one(Expr.Exp), a) }

// ExpInto writes Exp(a) to dst, which may be a. Panics: *ShapeError, *OpError.
func ExpInto(dst, a *Tensor) { mapInto("exp", dst, one(Expr.Exp), a) }

// Log returns the natural logarithm of a. Panics: *ShapeError, *OpError.
func Log(a *Tensor) *Tensor { return mapped("log", one(Expr.Log), a) }

// LogInto writes Log(a) to dst, which may be a. Panics: *ShapeError, *OpError.
func LogInto(dst, a *Tensor) { mapInto("log", dst, one(Expr.Log), a) }

// Sqrt returns the square root of a. Panics: *ShapeError, *OpError.
func Sqrt(a *Tensor) *Tensor { return mapped("sqrt", one(Expr.Sqrt), a) }

// SqrtInto writes Sqrt(a) to dst, which may be a. Panics: *ShapeError, *OpError.
func SqrtInto(dst, a *Tensor) { mapInto("sqrt", dst, one(Expr.Sqrt), a) }

// Rsqrt returns 1 / sqrt(a). Panics: *ShapeError, *OpError.
func Rsqrt(a *Tensor) *Tensor { return mapped("rsqrt", one(Expr.Rsqrt), a) }

// RsqrtInto writes Rsqrt(a) to dst, which may be a. Panics: *ShapeError, *OpError.
func RsqrtInto(dst, a *Tensor) { mapInto("rsqrt", dst, one(Expr.Rsqrt), a) }

// Sin returns the sine of a in radians. Panics: *ShapeError, *OpError.
func Sin(a *Tensor) *Tensor { return mapped("sin", one(Expr.Sin), a) }

// SinInto writes Sin(a) to dst, which may be a. Panics: *ShapeError, *OpError.
func SinInto(dst, a *Tensor) { mapInto("sin", dst, one(Expr.Sin), a) }

// Cos returns the cosine of a in radians. Panics: *ShapeError, *OpError.
func Cos(a *Tensor) *Tensor { return mapped("cos", one(Expr.Cos), a) }

// CosInto writes Cos(a) to dst, which may be a. Panics: *ShapeError, *OpError.
func CosInto(dst, a *Tensor) { mapInto("cos", dst, one(Expr.Cos), a) }

// Tanh returns the hyperbolic tangent of a. Panics: *ShapeError, *OpError.
func Tanh(a *Tensor) *Tensor { return mapped("tanh", one(Expr.Tanh), a) }

// TanhInto writes Tanh(a) to dst, which may be a. Panics: *ShapeError, *OpError.
func TanhInto(dst, a *Tensor) { mapInto("tanh", dst, one(Expr.Tanh), a) }

// ReLU returns the greater of a and 0. Panics: *ShapeError, *OpError.
func ReLU(a *Tensor) *Tensor { return mapped("relu", one(Expr.ReLU), a) }

// ReLUInto writes ReLU(a) to dst, which may be a. Panics: *ShapeError, *OpError.
func ReLUInto(dst, a *Tensor) { mapInto("relu", dst, one(Expr.ReLU), a) }

// Floor returns the greatest whole number up to a. Panics: *ShapeError, *OpError.
func Floor(a *Tensor) *Tensor { return mapped("floor", one(Expr.Floor), a) }

// FloorInto writes Floor(a) to dst, which may be a. Panics: *ShapeError, *OpError.
func FloorInto(dst, a *Tensor) { mapInto("floor", dst, one(Expr.Floor), a) }

// Ceil returns the smallest whole number from a on. Panics: *ShapeError, *OpError.
func Ceil(a *Tensor) *Tensor { return mapped("ceil", one(Expr.Ceil), a) }

// CeilInto writes Ceil(a) to dst, which may be a. Panics: *ShapeError, *OpError.
func CeilInto(dst, a *Tensor) { mapInto("ceil", dst, one(Expr.Ceil), a) }

// Round returns the whole number nearest to a, the even one of two. Panics: *ShapeError, *OpError.
func Round(a *Tensor) *Tensor { return mapped("round", one(Expr.Round), a) }

// RoundInto writes Round(a) to dst, which may be a. Panics: *ShapeError, *OpError.
func RoundInto(dst, a *Tensor) { mapInto("round", dst, one(Expr.Round), a) }
