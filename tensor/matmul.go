package tensor

import "github.com/vibrant-ml/vibrant/internal/kernel"

// MatMul returns the matrix product of a (..., K) and b (K, N), of shape (..., N): leading dimensions of a are rows. Both
// are of one type F32, F16 or BF16; sums are float32. For weights as models store them, see Linear.
func MatMul(a, b *Tensor) *Tensor {
	checkMatMul(a, b)
	shape := a.Shape()
	shape[len(shape)-1] = b.cols()
	out := output("matmul", a.Stream(), a.dtype, shape)
	MatMulInto(out, a, b)
	return out
}

// MatMulInto writes MatMul(a, b) to dst; not in place.
func MatMulInto(dst, a, b *Tensor) {
	checkMatMul(a, b)
	m, k, n := a.rows(), a.cols(), b.cols()
	if dst.dtype != a.dtype || dst.n != m*n || dst.cols() != n {
		misuse("matmul", "%s x %s into %v %s: want %v (%d,%d)", shapeString(a.shape), shapeString(b.shape),
			dst.dtype, shapeString(dst.shape), a.dtype, m, n)
	}
	if k == 0 {
		dst.Zero() // the empty sum
		return
	}
	exec("matmul", dst.Stream(), 1, func(s kernel.Stream, p pointers) error {
		if m == 1 {
			return s.MatMulSingleRow(p[0], p[1], p[2], a.dtype, k, n)
		}
		return s.MatMul(p[0], p[1], p[2], a.dtype, m, k, n)
	}, dst, a, b)
}

func checkMatMul(a, b *Tensor) {
	switch {
	case len(a.shape) == 0 || len(b.shape) != 2:
		misuse("matmul", "%s x %s: want (..., K) x (K, N)", shapeString(a.shape), shapeString(b.shape))
	case a.cols() != b.shape[0]:
		misuse("matmul", "%s x %s: inner dimensions %d and %d differ", shapeString(a.shape), shapeString(b.shape), a.cols(), b.shape[0])
	case a.dtype != b.dtype || (a.dtype != F32 && a.dtype != F16 && a.dtype != BF16):
		misuse("matmul", "%s x %s: types %v and %v: want both F32, F16 or BF16", shapeString(a.shape), shapeString(b.shape), a.dtype, b.dtype)
	}
}
