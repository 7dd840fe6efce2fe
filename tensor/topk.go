package tensor

import "github.com/vibrant-ml/vibrant/internal/backend/kernel"

// Argmax returns the index of the greatest value of each row (the last dimension) of an F32 tensor, as I32 of the
// leading dimensions. The lowest index wins among equals; NaN counts as the greatest. Panics: *ShapeError, *OpError.
func Argmax(x *Tensor) *Tensor {
	checkRows("argmax", x, 1)
	out := output("argmax", x.Stream(), I32, x.shape[:len(x.shape)-1])
	ArgmaxInto(out, x)
	return out
}

// ArgmaxInto writes Argmax(x) to dst, I32 of one element for each row. Panics: *ShapeError, *OpError.
func ArgmaxInto(dst, x *Tensor) {
	checkRows("argmax", x, 1)
	if dst.dtype != I32 || dst.n != x.rows() {
		misuse("argmax", "%s into %v %s: want I32 (%d)", shapeString(x.shape), dst.dtype, shapeString(dst.shape), x.rows())
	}
	exec("argmax", dst.Stream(), 1, func(k kernel.Stream, p pointers) error {
		return k.Argmax(p[0], p[1], x.rows(), x.cols())
	}, dst, x)
}

// TopK returns the k greatest values of each row (the last dimension) of an F32 tensor in descending order, and their
// indices (I32), the lowest first among equals. Panics: *ShapeError, *OpError.
func TopK(x *Tensor, k int) (values, ids *Tensor) {
	checkRows("topk", x, k)
	shape := append(x.Shape()[:len(x.shape)-1], k)
	values = output("topk", x.Stream(), F32, shape)
	ids = output("topk", x.Stream(), I32, shape)
	TopKInto(values, ids, x)
	return values, ids
}

// TopKInto writes TopK(x, k) to values (F32) and ids (I32), whose last dimension is k. Panics: *ShapeError, *OpError.
func TopKInto(values, ids, x *Tensor) {
	n := values.cols()
	checkRows("topk", x, n)
	if values.dtype != F32 || ids.dtype != I32 || values.n != x.rows()*n || ids.n != values.n {
		misuse("topk", "%s into %v %s and %v %s: want F32 and I32 of %d rows", shapeString(x.shape),
			values.dtype, shapeString(values.shape), ids.dtype, shapeString(ids.shape), x.rows())
	}
	exec("topk", values.Stream(), 2, func(k kernel.Stream, p pointers) error {
		return k.TopK(p[0], p[1], p[2], x.rows(), x.cols(), n)
	}, values, ids, x)
}

// checkRows checks for F32 rows of at least `least` values.
func checkRows(op string, x *Tensor, least int) {
	if x.dtype != F32 || len(x.shape) == 0 || least < 0 || x.cols() < least {
		misuse(op, "%v %s: want F32 rows of at least %d", x.dtype, shapeString(x.shape), least)
	}
}
