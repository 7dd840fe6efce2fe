package tensor

import (
	"slices"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// Precision says what a product of F32 matrices may do to be fast; the 16-bit types are multiplied exactly and summed in
// float32 anyway.
type Precision int

const (
	// PrecisionFloat32, the default, has float32 accuracy by whatever is fastest: also tensor cores on split operands, where
	// the errors are no larger than those of multiplying and adding in float32.
	PrecisionFloat32 = Precision(kernel.PrecisionFloat32)
	// PrecisionIEEE multiplies and adds in float32 (IEEE 754) and nothing else.
	PrecisionIEEE = Precision(kernel.PrecisionIEEE)
	// PrecisionTF32 permits rounding operands to the 11 significant bits of TF32. A device that gains nothing from it computes
	// in float32.
	PrecisionTF32 = Precision(kernel.PrecisionTF32)
)

// MatMulOptions are what MatMulWith does besides A B.
type MatMulOptions struct {
	TransA    bool // a is (..., K, M)
	TransB    bool // b is (..., N, K)
	Precision Precision
}

// MatMul returns the matrix product of a (..., K) and b (K, N), of shape (..., N), or b (K), of shape (...): leading dimensions of a are
// rows. Both are of one type F32, F16 or BF16; sums are float32. For weights as models store them, see Linear; for batches of
// matrices, transposed ones and other precisions, MatMulWith. Panics: *ShapeError, *OpError.
func MatMul(a, b *Tensor) *Tensor { return MatMulWith(a, b, MatMulOptions{}) }

// MatMulInto writes MatMul(a, b) to dst; not in place. Panics: *ShapeError, *OpError.
func MatMulInto(dst, a, b *Tensor) { MatMulWithInto(dst, a, b, MatMulOptions{}) }

// MatMulWith returns the products of the matrices in the last two dimensions of a (..., M, K) and b (..., K, N), of shape
// (..., M, N). The dimensions before them are broadcast: an operand without any is used for all, one that is repeated otherwise is
// copied. Where b is a single matrix and a is not transposed, a may have any number of dimensions from 1 up, as for MatMul. Where b has
// one dimension (K), it is a column, and the result lacks the last dimension. Panics: *ShapeError, *OpError.
func MatMulWith(a, b *Tensor, o MatMulOptions) *Tensor {
	if len(b.shape) == 1 && !o.TransB {
		if linear(a, b, o) {
			return Linear(b, a, nil)
		}
		return MatMulWith(a, b.Unsqueeze(1), o).Squeeze(-1)
	}
	a, b = broadcastBatches(a, b)
	_, shape := matMulArgs(a, b, o)
	out := output("matmul", a.Stream(), a.dtype, shape)
	MatMulWithInto(out, a, b, o)
	return out
}

// linear reports whether a matrix times a vector is a Linear layer of one row, which reads the matrix once in its order.
func linear(a, b *Tensor, o MatMulOptions) bool {
	return a.dtype == F32 && b.dtype == F32 && len(a.shape) == 2 && !o.TransA && a.shape[1] > 0 && a.shape[1] == b.n && a.Device() == b.Device()
}

// broadcastBatches returns operands whose dimensions before the last two are equal, where both have such dimensions.
func broadcastBatches(a, b *Tensor) (*Tensor, *Tensor) {
	na, nb := len(a.shape)-2, len(b.shape)-2
	if na < 1 || nb < 1 || slices.Equal(a.shape[:na], b.shape[:nb]) || a.dtype != b.dtype {
		return a, b
	}
	batch := broadcast("matmul of batches", &Tensor{shape: a.shape[:na]}, &Tensor{shape: b.shape[:nb]})
	to := func(t *Tensor, n int) *Tensor {
		return t.broadcastTo("matmul", append(slices.Clone(batch), t.shape[n:]...))
	}
	return to(a, na), to(b, nb)
}

// MatMulWithInto writes MatMulWith(a, b, o) to dst, whose shape it is or has the same rows; not in place.
// Panics: *ShapeError, *OpError.
func MatMulWithInto(dst, a, b *Tensor, o MatMulOptions) {
	if len(b.shape) == 1 && !o.TransB {
		if linear(a, b, o) && dst.dtype == F32 && slices.Equal(dst.shape, a.shape[:1]) {
			LinearInto(dst, b, a, nil)
			return
		}
		MatMulWithInto(dst.Unsqueeze(-1), a, b.Unsqueeze(1), o)
		return
	}
	a, b = broadcastBatches(a, b)
	args, shape := matMulArgs(a, b, o)
	if dst.dtype != a.dtype || dst.n != args.Batch*args.M*args.N || dst.cols() != args.N {
		misuse("matmul", "%s x %s into %v %s: want %v %s", shapeString(a.shape), shapeString(b.shape),
			dst.dtype, shapeString(dst.shape), a.dtype, shapeString(shape))
	}
	if dst.overlaps(a) || dst.overlaps(b) {
		misuse("matmul", "%s x %s: the result may not lie in the memory of an operand", shapeString(a.shape), shapeString(b.shape))
	}
	if args.K == 0 {
		dst.Zero() // the empty sum
		return
	}
	if m, ok := a.matrix(); ok && args.M*args.K*args.Batch == a.n {
		a, args.AStride, args.ATransposed = m.memory, m.stride, args.ATransposed != m.transposed
		if args.ABatchStride > 0 {
			args.ABatchStride = m.batchStride
		}
	}
	if m, ok := b.matrix(); ok {
		b, args.BStride, args.BTransposed = m.memory, m.stride, args.BTransposed != m.transposed
		if args.BBatchStride > 0 {
			args.BBatchStride = m.batchStride
		}
	}
	exec("matmul", dst.Stream(), 1, func(s kernel.Stream, p pointers) error {
		args := args
		args.C, args.A, args.B = p[0], p[1], p[2]
		if args.M == 1 && args.Batch == 1 && !args.ATransposed && !args.BTransposed && args.BStride == args.N {
			return s.MatMulSingleRow(args.C, args.A, args.B, args.Type, args.K, args.N)
		}
		return s.MatMul(&args)
	}, dst, a, b)
}

// matrix is how the last two dimensions of a view lie in memory, where one of them is without gaps.
type matrix struct {
	memory              *Tensor // all that the view reaches, as one dimension
	stride, batchStride int
	transposed          bool
}

// matrix describes a view of two or three dimensions with strides that products read as it is.
func (t *Tensor) matrix() (m matrix, ok bool) {
	last := len(t.shape) - 1
	if t.strides == nil || t.n == 0 || last < 1 || last > 2 {
		return m, false
	}
	m = matrix{stride: t.strides[last-1]}
	least := t.shape[last]
	if t.strides[last] != 1 && t.shape[last] > 1 { // or one place, whose stride means nothing
		m.stride, m.transposed, least = t.strides[last], true, t.shape[last-1]
		if t.strides[last-1] != 1 && t.shape[last-1] > 1 {
			return m, false
		}
	}
	if m.stride = max(m.stride, least); !m.transposed && t.shape[last-1] > 1 && t.strides[last-1] < least || m.transposed && t.strides[last] < least {
		return m, false // rows that overlap
	}
	if last == 2 {
		m.batchStride = t.strides[0]
	}
	n := int(t.reach()) / t.dtype.BlockBytes()
	m.memory = t.view([]int{n}, n, t.offset)
	return m, true
}

// overlaps reports whether two tensors share memory: views of one do, and tensors of foreign memory may.
func (t *Tensor) overlaps(x *Tensor) bool {
	at, other := uintptr(t.ptr()), uintptr(x.ptr())
	return t.Device() == x.Device() && at < other+uintptr(x.reach()) && other < at+uintptr(t.reach())
}

// matMulArgs checks the operands of a product and returns its sizes and the shape of the output.
func matMulArgs(a, b *Tensor, o MatMulOptions) (args kernel.MatMulArgs, shape []int) {
	rows := len(b.shape) == 2 && !o.TransA // all dimensions of a but the last are rows
	switch {
	case len(a.shape) == 0 || len(b.shape) < 2 || len(a.shape) == 1 && !rows:
		want := "(..., K) x (K, N)"
		if o.TransA || o.TransB {
			want = "matrices"
		}
		misuse("matmul", "%s x %s: want %s", shapeString(a.shape), shapeString(b.shape), want)
	case a.dtype != b.dtype || (a.dtype != F32 && a.dtype != F16 && a.dtype != BF16):
		misuse("matmul", "%s x %s: types %v and %v: want both F32, F16 or BF16", shapeString(a.shape), shapeString(b.shape), a.dtype, b.dtype)
	case o.Precision < PrecisionFloat32 || o.Precision > PrecisionTF32:
		misuse("matmul", "%s x %s: unknown precision %d", shapeString(a.shape), shapeString(b.shape), o.Precision)
	}
	args = kernel.MatMulArgs{Batch: 1, ATransposed: o.TransA, BTransposed: o.TransB, Type: a.dtype, Precision: kernel.Precision(o.Precision),
		AStride: a.cols(), BStride: b.cols()}
	var inner int
	if rows {
		args.M, args.K = a.rows(), a.cols()
	} else if args.M, args.K = a.shape[len(a.shape)-2], a.cols(); o.TransA {
		args.M, args.K = args.K, args.M
	}
	if inner, args.N = b.shape[len(b.shape)-2], b.cols(); o.TransB {
		inner, args.N = args.N, inner
	}
	if inner != args.K {
		misuse("matmul", "%s x %s: inner dimensions %d and %d differ", shapeString(a.shape), shapeString(b.shape), args.K, inner)
	}
	args.CStride = args.N
	if rows {
		shape = append(slices.Clone(a.shape[:len(a.shape)-1]), args.N)
		return args, shape
	}
	aBatch, bBatch := a.shape[:len(a.shape)-2], b.shape[:len(b.shape)-2]
	batch := aBatch
	if len(aBatch) == 0 {
		batch = bBatch
	}
	if len(aBatch) > 0 && len(bBatch) > 0 && !slices.Equal(aBatch, bBatch) {
		misuse("matmul", "%s x %s: batches differ", shapeString(a.shape), shapeString(b.shape))
	}
	for _, d := range batch {
		args.Batch *= d
	}
	if len(aBatch) > 0 {
		args.ABatchStride = args.M * args.K
	}
	if len(bBatch) > 0 {
		args.BBatchStride = args.K * args.N
	}
	args.CBatchStride = args.M * args.N
	return args, append(slices.Clone(batch), args.M, args.N)
}
