package tensor

import "github.com/vibrant-ml/vibrant/internal/backend/kernel"

// Update is the update of a low-rank adapter, out = add + Scale * ((x V) * codes) U^T (Hu et al. 2021, "LoRA"), whose codes may be made
// for each row of x. Several adapters lie side by side along the ranks, and a row's codes say which of them it has: a code of 0 leaves
// its rank out.
type Update struct {
	V     *Tensor // (k, r), or (r, k) where VTransposed, as LoRA files have their A
	U     *Tensor // (n, r), as LoRA files have their B, or (r, n) where UTransposed
	Codes *Tensor // one row of r for each row of x, or one for all (1, r); nil for ones
	Scale float32 // 0 stands for 1

	VTransposed, UTransposed bool
}

// FusedUpdate returns Scale * ((x V) * codes) U^T for x of (..., k): a tensor (..., n), in one operation that keeps x V in no memory.
// x and codes are of one type of F32, F16 and BF16; V and U are of that type, or F16 beside F32; r is at most 256. Sums are float32;
// with 16-bit types the product with V is rounded to them once. Panics: *ShapeError, *OpError.
func FusedUpdate(x *Tensor, u Update) *Tensor {
	const op = "fused update"
	_, _, n, _ := u.check(op, x)
	shape := x.Shape()
	shape[len(shape)-1] = n
	out := output(op, x.Stream(), x.dtype, shape)
	FusedUpdateInto(out, nil, x, u)
	return out
}

// FusedUpdateInto writes add + FusedUpdate(x, u) to dst, which may be add; a nil add is zeros.
// Panics: *ShapeError, *OpError.
func FusedUpdateInto(dst, add, x *Tensor, u Update) {
	const op = "fused update"
	m, k, n, r := u.check(op, x)
	if dst.dtype != x.dtype || dst.n != m*n {
		misuse(op, "of x %v %s and u %s into %v %s: want %v (%d,%d)", x.dtype, shapeString(x.shape), shapeString(u.U.shape), dst.dtype,
			shapeString(dst.shape), x.dtype, m, n)
	}
	if add != nil && (add.dtype != x.dtype || add.n != m*n) {
		misuse(op, "of x %v %s and u %s added to %v %s: want %v (%d,%d)", x.dtype, shapeString(x.shape), shapeString(u.U.shape), add.dtype,
			shapeString(add.shape), x.dtype, m, n)
	}
	if updatesComposed.Load() {
		count(op, "switched off: composed of other operations")
		u.compose(dst, add, x, m, n, r)
		return
	}
	args := kernel.FusedUpdateArgs{M: m, K: k, N: n, R: r, Scale: u.Scale, Type: x.dtype, WeightType: u.V.dtype,
		VTransposed: u.VTransposed, UTransposed: u.UTransposed}
	if args.Scale == 0 {
		args.Scale = 1
	}
	if u.Codes != nil && u.Codes.n == m*r && m != 1 {
		args.CodesStride = r
	}
	v, up := u.V.on(op, dst.Stream()), u.U.on(op, dst.Stream())
	exec(op, dst.Stream(), 1, func(s kernel.Stream, p pointers) error {
		args.Out, args.Add, args.X, args.V, args.Codes, args.U = p[0], p[1], p[2], p[3], p[4], p[5]
		return s.FusedUpdate(&args)
	}, dst, add, x, v, u.Codes, up)
}

// check returns the sizes that x and the update agree on.
func (u Update) check(op string, x *Tensor) (m, k, n, r int) {
	if len(x.shape) == 0 || u.V == nil || u.U == nil || len(u.V.shape) != 2 || len(u.U.shape) != 2 {
		misuse(op, "x %s, v %s, u %s: want x (...,k), v and u of two dimensions", shapeString(x.shape), u.V.shapeOrNone(), u.U.shapeOrNone())
	}
	m, k = x.rows(), x.cols()
	inner, ranks := u.V.shape[0], u.V.shape[1]
	if u.VTransposed {
		inner, ranks = ranks, inner
	}
	n, r = u.U.shape[0], u.U.shape[1]
	if u.UTransposed {
		n, r = r, n
	}
	if inner != k {
		misuse(op, "x %s and v %s: x has %d columns, v takes %d", shapeString(x.shape), shapeString(u.V.shape), k, inner)
	}
	if ranks != r {
		misuse(op, "v %s and u %s: v has %d ranks, u %d", shapeString(u.V.shape), shapeString(u.U.shape), ranks, r)
	}
	if u.V.dtype != u.U.dtype || u.V.dtype != x.dtype && (x.dtype != F32 || u.V.dtype != F16) {
		misuse(op, "x %v, v %v, u %v: want v and u of x's type, or F16 beside F32", x.dtype, u.V.dtype, u.U.dtype)
	}
	elementwise(op, x)
	if c := u.Codes; c != nil && (c.dtype != x.dtype || c.n != r && c.n != m*r || c.n > 0 && (len(c.shape) == 0 || c.cols() != r)) {
		misuse(op, "codes %v %s for x %v %s and %d ranks: want %v (%d,%d) or (1,%d)", c.dtype, shapeString(c.shape), x.dtype,
			shapeString(x.shape), r, x.dtype, m, r, r)
	}
	return m, k, n, r
}

// shapeOrNone is the shape for a message about an operand that may be missing.
func (t *Tensor) shapeOrNone() string {
	if t == nil {
		return "none"
	}
	return shapeString(t.shape)
}
