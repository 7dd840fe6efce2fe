package tensor

import "github.com/vibrant-ml/vibrant/internal/kernel"

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

// Add returns a + b, of one type and length (F32, F16, BF16; so all element-wise ops).
func Add(a, b *Tensor) *Tensor {
	elementwise("add", a, b)
	out := like("add", a)
	AddInto(out, a, b)
	return out
}

// AddInto writes a + b to dst, which may be a or b.
func AddInto(dst, a, b *Tensor) {
	elementwise("add", dst, a, b)
	exec("add", dst.Stream(), 1, func(k kernel.Stream, p pointers) error {
		return k.Add(p[0], p[1], p[2], dst.dtype, dst.n)
	}, dst, a, b)
}

// Mul returns a * b, element by element.
func Mul(a, b *Tensor) *Tensor {
	elementwise("mul", a, b)
	out := like("mul", a)
	MulInto(out, a, b)
	return out
}

// MulInto writes a * b to dst, which may be a or b.
func MulInto(dst, a, b *Tensor) {
	elementwise("mul", dst, a, b)
	exec("mul", dst.Stream(), 1, func(k kernel.Stream, p pointers) error {
		return k.Mul(p[0], p[1], p[2], dst.dtype, dst.n)
	}, dst, a, b)
}

// MulScalar returns a * scalar.
func MulScalar(a *Tensor, scalar float32) *Tensor {
	elementwise("mul scalar", a)
	out := like("mul scalar", a)
	MulScalarInto(out, a, scalar)
	return out
}

// MulScalarInto writes a * scalar to dst, which may be a.
func MulScalarInto(dst, a *Tensor, scalar float32) {
	elementwise("mul scalar", dst, a)
	exec("mul scalar", dst.Stream(), 1, func(k kernel.Stream, p pointers) error {
		return k.MulScalar(p[0], p[1], scalar, dst.dtype, dst.n)
	}, dst, a)
}

// SiLU returns a / (1 + exp(-a)).
func SiLU(a *Tensor) *Tensor {
	elementwise("silu", a)
	out := like("silu", a)
	SiLUInto(out, a)
	return out
}

// SiLUInto writes SiLU(a) to dst, which may be a.
func SiLUInto(dst, a *Tensor) {
	elementwise("silu", dst, a)
	exec("silu", dst.Stream(), 1, func(k kernel.Stream, p pointers) error {
		return k.SiLU(p[0], p[1], dst.dtype, dst.n)
	}, dst, a)
}

// SwiGLU returns SiLU(gate) * up (Shazeer 2020, "GLU Variants Improve Transformer").
func SwiGLU(gate, up *Tensor) *Tensor {
	elementwise("swiglu", gate, up)
	out := like("swiglu", gate)
	SwiGLUInto(out, gate, up)
	return out
}

// SwiGLUInto writes SwiGLU(gate, up) to dst, which may be either.
func SwiGLUInto(dst, gate, up *Tensor) {
	elementwise("swiglu", dst, gate, up)
	exec("swiglu", dst.Stream(), 1, func(k kernel.Stream, p pointers) error {
		return k.SwiGLU(p[0], p[1], p[2], dst.dtype, dst.n)
	}, dst, gate, up)
}

// Convert returns a in another type: any type to F32; F32, F16 and BF16 among each other, rounded to nearest even.
func Convert(a *Tensor, dtype DType) *Tensor {
	checkConvert(dtype, a)
	out := output("convert", a.Stream(), dtype, a.shape)
	ConvertInto(out, a)
	return out
}

// ConvertInto writes a to dst in dst's type; not in place.
func ConvertInto(dst, a *Tensor) {
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
	if a.dtype == I32 || a.packed || !float(to) || (to != F32 && !float(a.dtype)) {
		state := ""
		if a.packed {
			state = "packed "
		}
		misuse("convert", "%s%v %s to %v", state, a.dtype, shapeString(a.shape), to)
	}
}

// IncrementI32 adds 1 to each element of an I32 tensor in place: it advances positions between tokens.
func IncrementI32(x *Tensor) {
	if x.dtype != I32 {
		misuse("increment", "%v %s: want I32", x.dtype, shapeString(x.shape))
	}
	exec("increment", x.Stream(), 1, func(k kernel.Stream, p pointers) error {
		return k.IncrementI32(p[0], x.n)
	}, x)
}
