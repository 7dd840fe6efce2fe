package tensor

import (
	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// Quantize returns x (F32, F16 or BF16, any shape whose rows are whole blocks) as blocks of Q8_0 or Q4_0 (32 elements), Q4_K or
// Q6_K (256): the codes and scales of ggml's reference quantizers (ggml-quants.c, without an importance matrix), bit for bit.
// Convert to F32 decodes them; Linear takes them as weights.
//
// CPUs quantize. The values of a tensor on a GPU are copied to the host, quantized there and copied back, on the tensor's stream.
//
// A value that is infinite or NaN, or too large for the half-precision scale of its block, is an *OpError that wraps gpu.ErrInvalid.
// Panics: *ShapeError, *OpError.
func Quantize(x *Tensor, dtype DType) *Tensor {
	const op = "quantize"
	switch dtype {
	case Q8_0, Q4_0, Q4_K, Q6_K:
	default:
		misuse(op, "to %v: want Q8_0, Q4_0, Q4_K or Q6_K", dtype)
	}
	if x.dtype != F32 && x.dtype != F16 && x.dtype != BF16 {
		misuse(op, "%v %s: want F32, F16 or BF16", x.dtype, shapeString(x.shape))
	}
	if _, err := elements(op, dtype, x.shape); err != nil {
		panic(err)
	}
	home := x.Stream()
	if x.IsOnGPU() {
		host, err := x.ToStream(gpu.CPU().Stream())
		if err != nil {
			fail(op, err, x)
		}
		defer host.Free()
		x = host
	}
	if x.dtype != F32 {
		x = Convert(x, F32)
		defer x.Free()
	}
	out := output(op, x.Stream(), dtype, x.shape)
	exec(op, x.Stream(), 1, func(k kernel.Stream, p pointers) error { return k.Convert(p[0], dtype, p[1], F32, x.n) }, out, x)
	if home == x.Stream() {
		return out
	}
	defer out.Free()
	back, err := out.ToStream(home)
	if err != nil {
		fail(op, err, out)
	}
	return back
}
