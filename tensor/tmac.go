package tensor

import "github.com/vibrant-ml/vibrant/internal/backend/kernel"

// TMAC is what TMACMatMul computes with besides weights and activations.
type TMAC struct {
	Scales *Tensor // F32 (m, groups): of equal groups of a row's elements, of a multiple of 4 each unless there is one; nil for ones
	// LUT is TMACLUT of the activations, which are then not read. Activations may be nil with it.
	LUT     *Tensor
	RMSNorm bool    // of each column of the activations, before the product
	Norm    *Tensor // its weight, F32 (k); nil for ones
	Eps     float32
	// Settled promises that the operation before writes neither codes nor Norm: a GPU may read them while it still runs.
	Settled bool
}

// TMACLUT returns the sums of each four elements of a column of activations (k, n) F32, by the byte of codes (Int2Rows) that they are
// multiplied by: F32 (n, (k+3)/4, 256). Panics: *ShapeError, *OpError.
func TMACLUT(activations *Tensor) *Tensor {
	const op = "tmac lut"
	if len(activations.shape) != 2 {
		misuse(op, "%s: want (k, n)", shapeString(activations.shape))
	}
	out := output(op, activations.Stream(), F32, []int{activations.shape[1], (activations.shape[0] + 3) / 4, 256})
	TMACLUTInto(out, activations)
	return out
}

// TMACLUTInto writes TMACLUT(activations) to dst. Panics: *ShapeError, *OpError.
func TMACLUTInto(dst, activations *Tensor) {
	const op = "tmac lut"
	if len(activations.shape) != 2 || activations.dtype != F32 || dst.dtype != F32 || dst.n != activations.shape[1]*((activations.shape[0]+3)/4)*256 {
		misuse(op, "%v %s into %v %s: want F32 (k, n) into F32 (n, (k+3)/4, 256)", activations.dtype, shapeString(activations.shape),
			dst.dtype, shapeString(dst.shape))
	}
	k, n := activations.shape[0], activations.shape[1]
	exec(op, dst.Stream(), 1, func(s kernel.Stream, p pointers) error { return s.TMACLUT(p[0], p[1], k, n) }, dst, activations)
}

// TMACMatMul returns W h by looking up sums of four products (Wei et al. 2024, "T-MAC"): F32 (m, n). codes is I8 (m, (k+3)/4), rows of
// ternary weights in Int2Rows; activations F32 (k, n), h, or what h is RMSNorm of. It is within 0.5 % (RMS) of exact arithmetic; with
// o.LUT it is float32's. Panics: *ShapeError, *OpError.
func TMACMatMul(codes, activations *Tensor, o TMAC) *Tensor {
	const op = "tmac matmul"
	operand := activations
	n := 0
	switch {
	case len(codes.shape) != 2:
		misuse(op, "codes %s: want (m, (k+3)/4)", shapeString(codes.shape))
	case activations != nil && len(activations.shape) == 2:
		n = activations.shape[1]
	case o.LUT != nil && len(o.LUT.shape) == 3:
		n, operand = o.LUT.shape[0], o.LUT
	default:
		misuse(op, "neither activations (k, n) nor a table (n, (k+3)/4, 256)")
	}
	out := output(op, operand.Stream(), F32, []int{codes.shape[0], n})
	TMACMatMulInto(out, codes, activations, o)
	return out
}

// TMACMatMulInto writes TMACMatMul(codes, activations, o) to dst. Panics: *ShapeError, *OpError.
func TMACMatMulInto(dst, codes, activations *Tensor, o TMAC) {
	const op = "tmac matmul"
	if len(codes.shape) != 2 || codes.dtype != I8 || len(dst.shape) != 2 || dst.dtype != F32 || dst.shape[0] != codes.shape[0] {
		misuse(op, "%v %s into %v %s: want I8 (m, (k+3)/4) into F32 (m, n)", codes.dtype, shapeString(codes.shape), dst.dtype, shapeString(dst.shape))
	}
	args := kernel.TMACMatMulArgs{M: dst.shape[0], N: dst.shape[1], K: 4 * codes.shape[1], Groups: 1, Eps: o.Eps, Normed: o.RMSNorm}
	if activations != nil {
		if args.K = activations.n / max(1, args.N); activations.dtype != F32 || args.K*args.N != activations.n || (args.K+3)/4 != codes.shape[1] {
			misuse(op, "codes %s with %v %s: want F32 (k, n)", shapeString(codes.shape), activations.dtype, shapeString(activations.shape))
		}
	}
	switch {
	case activations == nil && o.LUT == nil:
		misuse(op, "neither activations nor a table")
	case o.LUT != nil && (o.LUT.dtype != F32 || o.LUT.n != args.N*codes.shape[1]*256 || o.RMSNorm):
		misuse(op, "codes %s with table %v %s: want F32 (n, (k+3)/4, 256), and no norm", shapeString(codes.shape), o.LUT.dtype, shapeString(o.LUT.shape))
	case o.Norm != nil && (o.Norm.dtype != F32 || o.Norm.n != args.K):
		misuse(op, "norm %v %s: want F32 (%d)", o.Norm.dtype, shapeString(o.Norm.shape), args.K)
	}
	if o.Scales != nil {
		args.Groups = o.Scales.n / max(1, args.M)
		if o.Scales.dtype != F32 || o.Scales.n != args.M*args.Groups || args.Groups < 1 || args.Groups > 1 && args.K%(4*args.Groups) != 0 {
			misuse(op, "scales %v %s of (%d,%d): want F32 (m, groups), groups of a multiple of 4", o.Scales.dtype, shapeString(o.Scales.shape), args.M, args.K)
		}
	}
	s := dst.Stream()
	// What is copied to an aligned place is written by the operation before.
	args.Settled = o.Settled && codes.aligned() && (o.Norm == nil || o.Norm.aligned())
	exec(op, s, 1, func(k kernel.Stream, p pointers) error {
		args.Out, args.Weights, args.Activations, args.LUT, args.Scales, args.Norm = p[0], p[1], p[2], p[3], p[4], p[5]
		return k.TMACMatMul(&args)
	}, dst, codes.on(op, s), activations, o.LUT, o.Scales.on(op, s), o.Norm.on(op, s))
}
