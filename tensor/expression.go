package tensor

import (
	"math"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// Expr is a value of an expression of elements, for each element of its operands: see Fuse. Its methods are the element-wise
// operations of the package. F32, F16 and BF16 are computed in float32, and rounded to their type where the expression ends; I32, I8,
// U8 in whole numbers that wrap. Both operands of a method have one type, but for conversions no value changes its type.
type Expr struct {
	p     *program
	id    int32 // of its value; an input's is its number
	dtype DType
	wide  bool // an I8 or U8 that may have more bits than its type
}

// program is an expression while it is made.
type program struct {
	op     string
	inputs []DType
	steps  []kernel.Step
}

// trace calls f with values for inputs of the types, and returns its expression.
func trace(op string, f func(p *program, in []Expr) Expr, types ...DType) (*program, Expr) {
	p := &program{op: op, inputs: types}
	if len(types) > kernel.MaxInputs {
		misuse(op, "%d operands: at most %d", len(types), kernel.MaxInputs)
	}
	in := make([]Expr, len(types))
	for i, t := range types {
		if t.BlockSize() != 1 {
			misuse(op, "%v: its elements lie in blocks", t)
		}
		in[i] = Expr{p: p, id: int32(i), dtype: t}
	}
	result := f(p, in)
	if result.p != p {
		misuse(op, "the result is no value of the expression")
	}
	// The result is what the last step computes.
	if last := int32(len(types)+len(p.steps)) - 1; result.id != last || len(p.steps) == 0 && len(types) != 1 {
		zero := result.Const(0)
		if integers(result.dtype) {
			result = Expr{p: p, id: p.step(kernel.ElementOr, result.id, zero.id, 0), dtype: result.dtype}
		} else {
			one := result.Const(1) // x * 1 is x also where x is -0
			result = Expr{p: p, id: p.step(kernel.ElementMul, result.id, one.id, 0), dtype: result.dtype}
		}
	}
	return p, result
}

func (p *program) step(op kernel.ElementOp, a, b, c int32) int32 {
	if len(p.steps) == kernel.MaxSteps {
		misuse(p.op, "more than %d steps", kernel.MaxSteps)
	}
	p.steps = append(p.steps, kernel.Step{Op: op, A: a, B: b, C: c})
	return int32(len(p.inputs)+len(p.steps)) - 1
}

// DType returns the type of the value.
func (x Expr) DType() DType { return x.dtype }

// exact returns the value within the range of its type.
func (x Expr) exact() Expr {
	if !x.wide {
		return x
	}
	p := x.p
	id := p.step(kernel.ElementAnd, x.id, p.step(kernel.ElementInteger, 255, 0, 0), 0)
	if x.dtype == I8 { // (x & 255 ^ 128) - 128
		half := p.step(kernel.ElementInteger, 128, 0, 0)
		id = p.step(kernel.ElementSub, p.step(kernel.ElementXor, id, half, 0), half, 0)
	}
	return Expr{p: p, id: id, dtype: x.dtype}
}

// constant returns a number as a value.
func (p *program) constant(t DType, v float64) Expr {
	c := Expr{p: p, dtype: t}
	if integers(t) {
		if v != math.Trunc(v) || v < math.MinInt32 || v > math.MaxInt32 {
			misuse(p.op, "%v is no %v", v, t)
		}
		c.id = p.step(kernel.ElementInteger, int32(v), 0, 0)
		return c
	}
	c.id = p.step(kernel.ElementConstant, int32(math.Float32bits(float32(v))), 0, 0)
	return c
}

// ranges are the numbers that types of less than 32 bits hold.
var ranges = map[DType][2]float64{I8: {-128, 127}, U8: {0, 255}, BOOL: {0, 1}}

// element returns a number that an element of a type holds.
func (p *program) element(t DType, v float64) Expr {
	if r, narrow := ranges[t]; narrow && (v < r[0] || v > r[1]) {
		misuse(p.op, "%v is no %v", v, t)
	}
	return p.constant(t, v)
}

// Const returns a number as a value of x's type. Panics: *ShapeError.
func (x Expr) Const(v float64) Expr { return x.p.constant(x.dtype, v) }

// index returns the number of each element in row-major order, I32.
func (p *program) index() Expr {
	return Expr{p: p, id: p.step(kernel.ElementIndex, 0, 0, 0), dtype: I32}
}

// numeric panics for BOOL, and float for integers.
func (x Expr) numeric(what string) {
	if x.dtype == BOOL {
		misuse(x.p.op, "%s of BOOL: convert it first", what)
	}
}

func (x Expr) unary(what string, op kernel.ElementOp) Expr {
	if integers(x.dtype) {
		misuse(x.p.op, "%s of %v: want F32, F16 or BF16", what, x.dtype)
	}
	return Expr{p: x.p, id: x.p.step(op, x.id, 0, 0), dtype: x.dtype}
}

func (x Expr) pair(what string, y Expr) (a, b Expr) {
	if x.p != y.p {
		misuse(x.p.op, "%s of values of two expressions", what)
	}
	if x.dtype != y.dtype {
		misuse(x.p.op, "%s of %v and %v: types differ", what, x.dtype, y.dtype)
	}
	return x.exact(), y.exact()
}

func (x Expr) arithmetic(what string, op kernel.ElementOp, y Expr) Expr {
	x.numeric(what)
	a, b := x.pair(what, y)
	return Expr{p: x.p, id: x.p.step(op, a.id, b.id, 0), dtype: x.dtype, wide: x.dtype == I8 || x.dtype == U8}
}

func (x Expr) comparison(what string, op kernel.ElementOp, y Expr) Expr {
	a, b := x.pair(what, y)
	return Expr{p: x.p, id: x.p.step(op, a.id, b.id, 0), dtype: BOOL}
}

func (x Expr) logical(what string, op kernel.ElementOp, y Expr) Expr {
	if !integers(x.dtype) {
		misuse(x.p.op, "%s of %v: want BOOL or whole numbers", what, x.dtype)
	}
	a, b := x.pair(what, y)
	return Expr{p: x.p, id: x.p.step(op, a.id, b.id, 0), dtype: x.dtype}
}

// Add returns x + y. Panics: *ShapeError.
func (x Expr) Add(y Expr) Expr { return x.arithmetic("add", kernel.ElementAdd, y) }

// Sub returns x - y. Panics: *ShapeError.
func (x Expr) Sub(y Expr) Expr { return x.arithmetic("sub", kernel.ElementSub, y) }

// Mul returns x * y. Panics: *ShapeError.
func (x Expr) Mul(y Expr) Expr { return x.arithmetic("mul", kernel.ElementMul, y) }

// Div returns x / y; of whole numbers towards 0, and 0 where y is 0. Panics: *ShapeError.
func (x Expr) Div(y Expr) Expr { return x.arithmetic("div", kernel.ElementDiv, y) }

// Rem returns what Div leaves of whole numbers, with the sign of x; 0 where y is 0. Panics: *ShapeError.
func (x Expr) Rem(y Expr) Expr {
	if !integers(x.dtype) {
		misuse(x.p.op, "rem of %v: want whole numbers", x.dtype)
	}
	return x.arithmetic("rem", kernel.ElementRem, y)
}

// Minimum returns the smaller value, NaN where either is NaN. Panics: *ShapeError.
func (x Expr) Minimum(y Expr) Expr { return x.arithmetic("minimum", kernel.ElementMin, y) }

// Maximum returns the greater value, NaN where either is NaN. Panics: *ShapeError.
func (x Expr) Maximum(y Expr) Expr { return x.arithmetic("maximum", kernel.ElementMax, y) }

// Pow returns x to the power of y. Powers of whole numbers wrap. As in PyTorch, a negative power of them is 1 or -1 where x is, else 0,
// and one that is a constant of the expression is an error. Panics: *ShapeError.
func (x Expr) Pow(y Expr) Expr {
	if inputs := int32(len(x.p.inputs)); x.p == y.p && integers(y.dtype) && y.id >= inputs {
		if s := x.p.steps[y.id-inputs]; s.Op == kernel.ElementInteger && s.A < 0 {
			misuse(x.p.op, "pow of %v to %d: whole numbers have no negative powers; convert them to floats first", x.dtype, s.A)
		}
	}
	return x.arithmetic("pow", kernel.ElementPow, y)
}

// AddScalar returns x + v, MulScalar x * v. Panics: *ShapeError.
func (x Expr) AddScalar(v float64) Expr { return x.Add(x.Const(v)) }

// MulScalar returns x * v. Panics: *ShapeError.
func (x Expr) MulScalar(v float64) Expr { return x.Mul(x.Const(v)) }

// Eq returns x == y as BOOL; and so Ne, Lt (<), Le (<=), Gt (>) and Ge (>=). Panics: *ShapeError.
func (x Expr) Eq(y Expr) Expr { return x.comparison("eq", kernel.ElementEq, y) }

// Ne returns x != y. Panics: *ShapeError.
func (x Expr) Ne(y Expr) Expr { return x.comparison("ne", kernel.ElementNe, y) }

// Lt returns x < y. Panics: *ShapeError.
func (x Expr) Lt(y Expr) Expr { return x.comparison("lt", kernel.ElementLt, y) }

// Le returns x <= y. Panics: *ShapeError.
func (x Expr) Le(y Expr) Expr { return x.comparison("le", kernel.ElementLe, y) }

// Gt returns x > y. Panics: *ShapeError.
func (x Expr) Gt(y Expr) Expr { return y.comparison("gt", kernel.ElementLt, x) }

// Ge returns x >= y. Panics: *ShapeError.
func (x Expr) Ge(y Expr) Expr { return y.comparison("ge", kernel.ElementLe, x) }

// And returns the bits, or truths, that both have. Panics: *ShapeError.
func (x Expr) And(y Expr) Expr { return x.logical("and", kernel.ElementAnd, y) }

// Or returns the bits, or truths, that either has. Panics: *ShapeError.
func (x Expr) Or(y Expr) Expr { return x.logical("or", kernel.ElementOr, y) }

// Xor returns the bits, or truths, that one of both has. Panics: *ShapeError.
func (x Expr) Xor(y Expr) Expr { return x.logical("xor", kernel.ElementXor, y) }

// Not returns the opposite of a BOOL. Panics: *ShapeError.
func (x Expr) Not() Expr {
	if x.dtype != BOOL {
		misuse(x.p.op, "not of %v: want BOOL", x.dtype)
	}
	return x.Xor(x.Const(1))
}

// Where returns a where x, a BOOL, is true, else b. Panics: *ShapeError.
func (x Expr) Where(a, b Expr) Expr {
	if x.dtype != BOOL || x.p != a.p {
		misuse(x.p.op, "where of a condition %v: want BOOL", x.dtype)
	}
	a, b = a.pair("where", b)
	return Expr{p: x.p, id: x.p.step(kernel.ElementWhere, x.id, a.id, b.id), dtype: a.dtype}
}

// Neg returns -x. Panics: *ShapeError.
func (x Expr) Neg() Expr { return x.sign("neg", kernel.ElementNeg) }

// Abs returns |x|. Panics: *ShapeError.
func (x Expr) Abs() Expr { return x.sign("abs", kernel.ElementAbs) }

func (x Expr) sign(what string, op kernel.ElementOp) Expr {
	x.numeric(what)
	return Expr{p: x.p, id: x.p.step(op, x.exact().id, 0, 0), dtype: x.dtype, wide: x.dtype == I8 || x.dtype == U8}
}

// Exp returns e to the power of x; Log the natural logarithm. Panics: *ShapeError.
func (x Expr) Exp() Expr { return x.unary("exp", kernel.ElementExp) }

// Log returns the natural logarithm. Panics: *ShapeError.
func (x Expr) Log() Expr { return x.unary("log", kernel.ElementLog) }

// Sqrt returns the square root, Rsqrt its inverse. Panics: *ShapeError.
func (x Expr) Sqrt() Expr { return x.unary("sqrt", kernel.ElementSqrt) }

// Rsqrt returns 1 / sqrt(x). Panics: *ShapeError.
func (x Expr) Rsqrt() Expr { return x.unary("rsqrt", kernel.ElementRsqrt) }

// Sin returns the sine of x in radians, and Cos the cosine. Panics: *ShapeError.
func (x Expr) Sin() Expr { return x.unary("sin", kernel.ElementSin) }

// Cos returns the cosine. Panics: *ShapeError.
func (x Expr) Cos() Expr { return x.unary("cos", kernel.ElementCos) }

// Tanh returns the hyperbolic tangent. Panics: *ShapeError.
func (x Expr) Tanh() Expr { return x.unary("tanh", kernel.ElementTanh) }

// Sigmoid returns 1 / (1 + exp(-x)). Panics: *ShapeError.
func (x Expr) Sigmoid() Expr { return x.unary("sigmoid", kernel.ElementSigmoid) }

// SiLU, GELU and GELUTanh are the functions of that name of the package. Panics: *ShapeError.
func (x Expr) SiLU() Expr { return x.unary("silu", kernel.ElementSiLU) }

// GELU is the function of that name of the package. Panics: *ShapeError.
func (x Expr) GELU() Expr { return x.unary("gelu", kernel.ElementGELU) }

// GELUTanh is the function of that name of the package. Panics: *ShapeError.
func (x Expr) GELUTanh() Expr { return x.unary("gelu tanh", kernel.ElementGELUTanh) }

// Floor, Ceil and Round are the whole numbers below, above and nearest to x; ties are rounded to even.
// Panics: *ShapeError.
func (x Expr) Floor() Expr { return x.unary("floor", kernel.ElementFloor) }

// Ceil returns the whole number above x. Panics: *ShapeError.
func (x Expr) Ceil() Expr { return x.unary("ceil", kernel.ElementCeil) }

// Round returns the whole number nearest to x, the even one of two. Panics: *ShapeError.
func (x Expr) Round() Expr { return x.unary("round", kernel.ElementRound) }

// ReLU returns the greater of x and 0, NaN for NaN. Panics: *ShapeError.
func (x Expr) ReLU() Expr { return x.Maximum(x.Const(0)) }

// Clamp returns x held between lo and hi, NaN for NaN. Panics: *ShapeError.
func (x Expr) Clamp(lo, hi float64) Expr { return x.Maximum(x.Const(lo)).Minimum(x.Const(hi)) }

// To returns x in another type. Floats become whole numbers towards 0, held within the range of the type, and 0 for NaN; whole numbers
// lose the bits that a narrower type has not; what is not 0 is true. Panics: *ShapeError.
func (x Expr) To(t DType) Expr {
	if t.BlockSize() != 1 {
		misuse(x.p.op, "to %v: its elements lie in blocks", t)
	}
	from, to := integers(x.dtype), integers(t)
	switch {
	case x.dtype == t:
		return x
	case t == BOOL:
		return x.Ne(x.Const(0))
	case from && to:
		return Expr{p: x.p, id: x.id, dtype: t, wide: x.wide || t == U8 && x.dtype != BOOL || t == I8 && x.dtype != BOOL}
	case from:
		return Expr{p: x.p, id: x.p.step(kernel.ElementToFloat, x.exact().id, 0, 0), dtype: t}
	case !to:
		return Expr{p: x.p, id: x.id, dtype: t}
	}
	y := Expr{p: x.p, id: x.p.step(kernel.ElementToInteger, x.id, 0, 0), dtype: I32}
	switch t {
	case I8:
		y = y.Clamp(-128, 127)
	case U8:
		y = y.Clamp(0, 255)
	}
	y.dtype = t
	return y
}
