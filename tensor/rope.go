package tensor

import "github.com/vibrant-ml/vibrant/internal/backend/kernel"

// RoPEMode says which elements of a head form a rotated pair.
type RoPEMode int

// The modes of RoPE.
const (
	RoPEInterleaved = RoPEMode(kernel.RoPEInterleaved) // (2i, 2i+1), as GGUF files of architecture llama are permuted for
	RoPENeoX        = RoPEMode(kernel.RoPENeoX)        // (i, i + half): GPT-NeoX, Qwen
)

// RoPE returns x with rotary position embedding (Su et al. 2021). x is (batch, heads, seq, dim), or (tokens, heads, dim)
// as Linear gives it, of type F32, F16 or BF16. cos and sin are F32 tables (positions, half), half at most dim / 2;
// elements from 2 half on are copied. positions is I32: (tokens) for three dimensions; (seq), shared by the batch, or
// (batch, seq) for four; nil counts from 0.
//
// A position outside the tables gives NaN on a GPU and an OpError on the CPU. Panics: *ShapeError, *OpError.
func RoPE(x, cos, sin, positions *Tensor, mode RoPEMode) *Tensor {
	ropeArgs(x, x, cos, sin, positions, mode)
	out := like("rope", x)
	RoPEInto(out, x, cos, sin, positions, mode)
	return out
}

// RoPEInto writes RoPE(x, ...) to dst, which may be x. Panics: *ShapeError, *OpError.
func RoPEInto(dst, x, cos, sin, positions *Tensor, mode RoPEMode) {
	args := ropeArgs(dst, x, cos, sin, positions, mode)
	cos, sin = cos.on("rope", dst.Stream()), sin.on("rope", dst.Stream())
	exec("rope", dst.Stream(), 1, func(k kernel.Stream, p pointers) error {
		args.Out, args.In, args.Cos, args.Sin, args.Positions = p[0], p[1], p[2], p[3], p[4]
		return k.RoPE(&args)
	}, dst, x, cos, sin, positions)
}

func ropeArgs(dst, x, cos, sin, positions *Tensor, mode RoPEMode) kernel.RoPEArgs {
	elementwise("rope", dst, x)
	a := kernel.RoPEArgs{Type: x.dtype, Mode: kernel.RoPEMode(mode)}
	switch len(x.shape) {
	case 4:
		a.Batch, a.Heads, a.Seq, a.Dim = x.shape[0], x.shape[1], x.shape[2], x.shape[3]
	case 3:
		if positions == nil {
			misuse("rope", "%s: (tokens, heads, dim) needs positions", shapeString(x.shape))
		}
		a.Batch, a.Heads, a.Seq, a.Dim = x.shape[0], x.shape[1], 1, x.shape[2]
	default:
		misuse("rope", "%s: want (batch, heads, seq, dim) or (tokens, heads, dim)", shapeString(x.shape))
	}
	if len(cos.shape) != 2 || cos.dtype != F32 || sin.dtype != F32 || sin.n != cos.n || sin.cols() != cos.cols() || 2*cos.shape[1] > a.Dim {
		misuse("rope", "%s with tables %v %s and %v %s: want two of F32 (positions, at most %d)", shapeString(x.shape),
			cos.dtype, shapeString(cos.shape), sin.dtype, shapeString(sin.shape), a.Dim/2)
	}
	a.TableRows, a.Half = cos.shape[0], cos.shape[1]
	if positions != nil {
		switch {
		case positions.dtype != I32:
			misuse("rope", "%s with positions %v %s: want I32", shapeString(x.shape), positions.dtype, shapeString(positions.shape))
		case positions.n == a.Batch*a.Seq:
			a.PositionStride = a.Seq
		case positions.n == a.Seq && len(x.shape) == 4:
		default:
			misuse("rope", "%s with positions %s", shapeString(x.shape), shapeString(positions.shape))
		}
	}
	if mode != RoPEInterleaved && mode != RoPENeoX {
		misuse("rope", "%s: unknown mode %d", shapeString(x.shape), mode)
	}
	return a
}
