package tensor

import (
	"slices"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// elementwise checks operands of one type and length; out may be any of them. Types F32, F16, BF16.
func elementwise(op string, out *Tensor, in ...*Tensor) {
	if out.dtype != F32 && out.dtype != F16 && out.dtype != BF16 {
		misuse(op, "%v %s: want F32, F16 or BF16", out.dtype, shapeString(out.shape))
	}
	for _, a := range in {
		if a.dtype != out.dtype {
			misuse(op, "%s of %v and %s of %v: types differ", shapeString(a.shape), a.dtype, shapeString(out.shape), out.dtype)
		}
		if a.n != out.n {
			misuse(op, "%s and %s: shapes differ", shapeString(a.shape), shapeString(out.shape))
		}
	}
}

// sameShape checks operands that are not broadcast.
func sameShape(op string, a, b *Tensor) {
	if !slices.Equal(a.shape, b.shape) {
		misuse(op, "%s and %s: shapes differ", shapeString(a.shape), shapeString(b.shape))
	}
}

// unaryKernel and binaryKernel are kernels of the catalogue, as method expressions: kernel.Stream.Add.
type (
	unaryKernel  func(s kernel.Stream, out, a kernel.Ptr, t DType, n int) error
	binaryKernel func(s kernel.Stream, out, a, b kernel.Ptr, t DType, n int) error
)

// dedicated reports whether the kernels of float types without strides compute an operation of these operands; the others are those
// of Fuse.
func dedicated(a *Tensor, more ...*Tensor) bool {
	if integers(a.dtype) || a.strides != nil {
		return false
	}
	for _, t := range more {
		if t.strides != nil || !slices.Equal(t.shape, a.shape) {
			return false
		}
	}
	return true
}

func unary(op string, f unaryKernel, g func(Expr) Expr, a *Tensor) *Tensor {
	if !dedicated(a) {
		return mapped(op, one(g), a)
	}
	elementwise(op, a)
	out := like(op, a)
	unaryInto(op, f, g, out, a)
	return out
}

func unaryInto(op string, f unaryKernel, g func(Expr) Expr, dst, a *Tensor) {
	if dst.strides != nil || a.strides != nil || dst.n != a.n {
		mapInto(op, dst, one(g), a)
		return
	}
	elementwise(op, dst, a)
	exec(op, dst.Stream(), 1, func(s kernel.Stream, p pointers) error { return f(s, p[0], p[1], dst.dtype, dst.n) }, dst, a)
}

func binary(op string, f binaryKernel, g func(Expr, Expr) Expr, a, b *Tensor) *Tensor {
	if !dedicated(a, b) {
		return mapped(op, two(g), a, b)
	}
	elementwise(op, a, b)
	out := like(op, a)
	binaryInto(op, f, g, out, a, b)
	return out
}

func binaryInto(op string, f binaryKernel, g func(Expr, Expr) Expr, dst, a, b *Tensor) {
	if !dedicated(a, b) || dst.strides != nil || dst.n != a.n {
		mapInto(op, dst, two(g), a, b)
		return
	}
	elementwise(op, dst, a, b)
	exec(op, dst.Stream(), 1, func(s kernel.Stream, p pointers) error { return f(s, p[0], p[1], p[2], dst.dtype, dst.n) }, dst, a, b)
}

// Add returns a + b, of one type, broadcast. Panics: *ShapeError, *OpError.
func Add(a, b *Tensor) *Tensor { return binary("add", kernel.Stream.Add, Expr.Add, a, b) }

// AddInto writes a + b to dst, which may be a or b. Panics: *ShapeError, *OpError.
func AddInto(dst, a, b *Tensor) { binaryInto("add", kernel.Stream.Add, Expr.Add, dst, a, b) }

// Mul returns a * b, element by element. Panics: *ShapeError, *OpError.
func Mul(a, b *Tensor) *Tensor { return binary("mul", kernel.Stream.Mul, Expr.Mul, a, b) }

// MulInto writes a * b to dst, which may be a or b. Panics: *ShapeError, *OpError.
func MulInto(dst, a, b *Tensor) { binaryInto("mul", kernel.Stream.Mul, Expr.Mul, dst, a, b) }

// MulScalar returns a * scalar. Panics: *ShapeError, *OpError.
func MulScalar(a *Tensor, scalar float32) *Tensor {
	if !dedicated(a) {
		return mapped("mul scalar", one(func(x Expr) Expr { return x.MulScalar(float64(scalar)) }), a)
	}
	elementwise("mul scalar", a)
	out := like("mul scalar", a)
	MulScalarInto(out, a, scalar)
	return out
}

// MulScalarInto writes a * scalar to dst, which may be a. Panics: *ShapeError, *OpError.
func MulScalarInto(dst, a *Tensor, scalar float32) {
	if !dedicated(a) || dst.strides != nil || dst.n != a.n {
		mapInto("mul scalar", dst, one(func(x Expr) Expr { return x.MulScalar(float64(scalar)) }), a)
		return
	}
	elementwise("mul scalar", dst, a)
	exec("mul scalar", dst.Stream(), 1, func(s kernel.Stream, p pointers) error {
		return s.MulScalar(p[0], p[1], scalar, dst.dtype, dst.n)
	}, dst, a)
}

// SiLU returns a / (1 + exp(-a)). Panics: *ShapeError, *OpError.
func SiLU(a *Tensor) *Tensor { return unary("silu", kernel.Stream.SiLU, Expr.SiLU, a) }

// SiLUInto writes SiLU(a) to dst, which may be a. Panics: *ShapeError, *OpError.
func SiLUInto(dst, a *Tensor) { unaryInto("silu", kernel.Stream.SiLU, Expr.SiLU, dst, a) }

// GELU returns a / 2 * (1 + erf(a / sqrt(2))) (Hendrycks & Gimpel 2016), what PyTorch calls approximate='none'. Its accuracy
// is relative to the result, also where that is tiny. Panics: *ShapeError, *OpError.
func GELU(a *Tensor) *Tensor { return unary("gelu", kernel.Stream.GELU, Expr.GELU, a) }

// GELUInto writes GELU(a) to dst, which may be a. Panics: *ShapeError, *OpError.
func GELUInto(dst, a *Tensor) { unaryInto("gelu", kernel.Stream.GELU, Expr.GELU, dst, a) }

// GELUTanh returns a / 2 * (1 + tanh(sqrt(2 / pi) * (a + 0.044715 a^3))), the approximation of GELU that GPT-2 and Gemma were
// trained with; PyTorch's approximate='tanh'. Panics: *ShapeError, *OpError.
func GELUTanh(a *Tensor) *Tensor { return unary("gelu tanh", kernel.Stream.GELUTanh, Expr.GELUTanh, a) }

// GELUTanhInto writes GELUTanh(a) to dst, which may be a. Panics: *ShapeError, *OpError.
func GELUTanhInto(dst, a *Tensor) {
	unaryInto("gelu tanh", kernel.Stream.GELUTanh, Expr.GELUTanh, dst, a)
}

func swiglu(gate, up Expr) Expr { return gate.SiLU().Mul(up) }

// SwiGLU returns SiLU(gate) * up (Shazeer 2020, "GLU Variants Improve Transformer"). Panics: *ShapeError, *OpError.
func SwiGLU(gate, up *Tensor) *Tensor {
	return binary("swiglu", kernel.Stream.SwiGLU, swiglu, gate, up)
}

// SwiGLUInto writes SwiGLU(gate, up) to dst, which may be either. Panics: *ShapeError, *OpError.
func SwiGLUInto(dst, gate, up *Tensor) {
	binaryInto("swiglu", kernel.Stream.SwiGLU, swiglu, dst, gate, up)
}

// Activation is the gate of a GLU.
type Activation struct {
	kind         kernel.Activation
	alpha, limit float32
}

// The activations g of a GLU: SiLU, GELU (erf), GELU's tanh form (Gemma), and max(g, 0)^2 (So et al. 2021, "Primer").
var (
	ActivationSiLU        = Activation{kind: kernel.ActivationSiLU}
	ActivationGELU        = Activation{kind: kernel.ActivationGELU}
	ActivationGELUTanh    = Activation{kind: kernel.ActivationGELUTanh}
	ActivationReLUSquared = Activation{kind: kernel.ActivationReLUSquared}
)

// ActivationClampedSiLU is that of gpt-oss (alpha 1.702, limit 7): with g at most limit, and up clamped to -limit..limit,
// g / (1 + exp(-alpha g)) * (up + 1).
func ActivationClampedSiLU(alpha, limit float32) Activation {
	return Activation{kernel.ActivationClampedSiLU, alpha, limit}
}

// GLU returns act(gate) * up, the gated linear units of Shazeer 2020; GLU with ActivationSiLU is SwiGLU.
// Panics: *ShapeError, *OpError.
func GLU(gate, up *Tensor, act Activation) *Tensor {
	elementwise("glu", gate, up)
	sameShape("glu", gate, up)
	out := like("glu", gate)
	GLUInto(out, gate, up, act)
	return out
}

// GLUInto writes GLU(gate, up, act) to dst, which may be either. Panics: *ShapeError, *OpError.
func GLUInto(dst, gate, up *Tensor, act Activation) {
	elementwise("glu", dst, gate, up)
	exec("glu", dst.Stream(), 1, func(s kernel.Stream, p pointers) error {
		return s.GLU(p[0], p[1], p[2], act.kind, act.alpha, act.limit, dst.dtype, dst.n)
	}, dst, gate, up)
}

// Sigmoid returns 1 / (1 + exp(-a)). Panics: *ShapeError, *OpError.
func Sigmoid(a *Tensor) *Tensor { return unary("sigmoid", kernel.Stream.Sigmoid, Expr.Sigmoid, a) }

// SigmoidInto writes Sigmoid(a) to dst, which may be a. Panics: *ShapeError, *OpError.
func SigmoidInto(dst, a *Tensor) { unaryInto("sigmoid", kernel.Stream.Sigmoid, Expr.Sigmoid, dst, a) }

// SoftCap returns limit * tanh(a / limit), limit > 0: logits held below a bound, as in Gemma 2.
// Panics: *ShapeError, *OpError.
func SoftCap(a *Tensor, limit float32) *Tensor {
	elementwise("soft cap", a)
	out := like("soft cap", a)
	SoftCapInto(out, a, limit)
	return out
}

// SoftCapInto writes SoftCap(a, limit) to dst, which may be a. Panics: *ShapeError, *OpError.
func SoftCapInto(dst, a *Tensor, limit float32) {
	elementwise("soft cap", dst, a)
	if !(limit > 0) {
		misuse("soft cap", "limit %v: want a positive one", limit)
	}
	exec("soft cap", dst.Stream(), 1, func(s kernel.Stream, p pointers) error {
		return s.SoftCap(p[0], p[1], limit, dst.dtype, dst.n)
	}, dst, a)
}

// Convert returns a in another type: any type to F32, and plain types among each other, as Expr.To does; to F16 and BF16 values are
// rounded to nearest even. Quantize makes blocks. Panics: *ShapeError, *OpError.
func Convert(a *Tensor, dtype DType) *Tensor {
	if a.dtype.BlockSize() == 1 && (integers(a.dtype) || integers(dtype) || a.strides != nil) {
		return mapped("convert", one(func(x Expr) Expr { return x.To(dtype) }), a)
	}
	checkConvert(dtype, a)
	out := output("convert", a.Stream(), dtype, a.shape)
	ConvertInto(out, a)
	return out
}

// ConvertInto writes a to dst in dst's type; not in place. Panics: *ShapeError, *OpError.
func ConvertInto(dst, a *Tensor) {
	if a.dtype.BlockSize() == 1 && (integers(a.dtype) || integers(dst.dtype) || a.strides != nil || dst.strides != nil) {
		mapInto("convert", dst, one(func(x Expr) Expr { return x.To(dst.dtype) }), a)
		return
	}
	checkConvert(dst.dtype, a)
	if dst.n != a.n {
		misuse("convert", "%s to %s: lengths differ", shapeString(a.shape), shapeString(dst.shape))
	}
	exec("convert", dst.Stream(), 1, func(k kernel.Stream, p pointers) error {
		return k.Convert(p[0], dst.dtype, p[1], a.dtype, a.n)
	}, dst, a)
}

func checkConvert(to DType, a *Tensor) {
	float := func(t DType) bool { return t == F32 || t == F16 || t == BF16 }
	if integers(a.dtype) || a.packed || !float(to) || (to != F32 && !float(a.dtype)) {
		state := ""
		if a.packed {
			state = "packed "
		}
		misuse("convert", "%s%v %s to %v", state, a.dtype, shapeString(a.shape), to)
	}
}

// IncrementI32 adds 1 to each element of an I32 tensor in place: it advances positions between tokens.
// Panics: *ShapeError, *OpError.
func IncrementI32(x *Tensor) {
	if x.dtype != I32 {
		misuse("increment", "%v %s: want I32", x.dtype, shapeString(x.shape))
	}
	exec("increment", x.Stream(), 1, func(k kernel.Stream, p pointers) error {
		return k.IncrementI32(p[0], x.n)
	}, x)
}
