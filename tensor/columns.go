package tensor

import "github.com/vibrant-ml/vibrant/internal/backend/kernel"

// MulRows returns each row (the last dimension) of a times its own factor: factors is F32 of one element a row.
// Panics: *ShapeError, *OpError.
func MulRows(a, factors *Tensor) *Tensor {
	elementwise("mul rows", a)
	out := like("mul rows", a)
	MulRowsInto(out, a, factors)
	return out
}

// MulRowsInto writes MulRows(a, factors) to dst, which may be a. Panics: *ShapeError, *OpError.
func MulRowsInto(dst, a, factors *Tensor) {
	const op = "mul rows"
	elementwise(op, dst, a)
	if len(a.shape) == 0 || factors.dtype != F32 || factors.n != a.rows() {
		misuse(op, "%s and factors %v %s: want F32, one a row", shapeString(a.shape), factors.dtype, shapeString(factors.shape))
	}
	exec(op, dst.Stream(), 1, func(s kernel.Stream, p pointers) error {
		return s.MulRows(p[0], p[1], p[2], a.dtype, a.rows(), a.cols())
	}, dst, a, factors)
}

// Columns returns the elements first..first+cols-1 of each row (the last dimension) of a, which is F32, F16, BF16 or I32.
// Panics: *ShapeError, *OpError.
func Columns(a *Tensor, first, cols int) *Tensor {
	const op = "columns"
	if len(a.shape) == 0 || first < 0 || cols < 0 || cols > a.cols()-first {
		misuse(op, "%s: columns %d to %d", shapeString(a.shape), first, first+cols)
	}
	shape := a.Shape()
	shape[len(shape)-1] = cols
	out := output(op, a.Stream(), a.dtype, shape)
	CopyColumnsInto(out, 0, a, first, cols)
	return out
}

// CopyColumnsInto writes the elements first..first+cols-1 of each row of a to the elements dstFirst.. of the same row of dst: it
// joins and splits rows. Types F32, F16, BF16, I32; dst and a have as many rows. Panics: *ShapeError, *OpError.
func CopyColumnsInto(dst *Tensor, dstFirst int, a *Tensor, first, cols int) {
	const op = "copy columns"
	if dst.dtype != a.dtype || a.dtype.Quantized() || len(dst.shape) == 0 || len(a.shape) == 0 || dst.rows() != a.rows() {
		misuse(op, "%v %s into %v %s: want plain rows, as many of one type", a.dtype, shapeString(a.shape), dst.dtype, shapeString(dst.shape))
	}
	if cols < 0 || first < 0 || dstFirst < 0 || cols > a.cols()-first || cols > dst.cols()-dstFirst {
		misuse(op, "%d columns from %d of %s to %d of %s", cols, first, shapeString(a.shape), dstFirst, shapeString(dst.shape))
	}
	exec(op, dst.Stream(), 1, func(s kernel.Stream, p pointers) error {
		return s.CopyColumns(p[0], dst.cols(), dstFirst, p[1], a.cols(), first, a.dtype, a.rows(), cols)
	}, dst, a)
}
