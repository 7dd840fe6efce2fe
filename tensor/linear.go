package tensor

import (
	"errors"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// Linear returns x W^T + bias: x (..., cols) F32, w (rows, cols) of any type but integers, as a GGUF file stores it or packed,
// bias (rows) F32 or nil; the result is (..., rows) F32. Weights that are not F32 may be multiplied with rounded
// activations: within 0.5 % (RMS) of exact arithmetic. Panics: *ShapeError, *OpError.
func Linear(x, w, bias *Tensor) *Tensor {
	checkLinear(x, w, bias)
	shape := x.Shape()
	shape[len(shape)-1] = w.shape[0]
	out := output("linear", x.Stream(), F32, shape)
	LinearInto(out, x, w, bias)
	return out
}

// LinearInto writes Linear(x, w, bias) to dst; not in place. Panics: *ShapeError, *OpError.
func LinearInto(dst, x, w, bias *Tensor) {
	checkLinear(x, w, bias)
	n := x.rows()
	if dst.dtype != F32 || dst.n != n*w.shape[0] || dst.cols() != w.shape[0] {
		misuse("linear", "%s x %s^T into %v %s: want F32 (%d,%d)", shapeString(x.shape), shapeString(w.shape),
			dst.dtype, shapeString(dst.shape), n, w.shape[0])
	}
	if dst.overlaps(x) {
		misuse("linear", "%s x %s^T: the result may not lie in the memory of x", shapeString(x.shape), shapeString(w.shape))
	}
	w, bias = w.on("linear", dst.Stream()), bias.on("linear", dst.Stream())
	exec("linear", dst.Stream(), 1, func(k kernel.Stream, p pointers) error {
		return k.Linear(p[0], p[1], w.weight(p[2]), p[3], n)
	}, dst, x, w, bias)
}

func checkLinear(x, w, bias *Tensor) {
	switch {
	case len(x.shape) == 0 || len(w.shape) != 2 || w.shape[1] == 0:
		misuse("linear", "%s x %s^T: want (..., cols) x (rows, cols)^T", shapeString(x.shape), shapeString(w.shape))
	case x.cols() != w.shape[1]:
		misuse("linear", "%s x %s^T: inner dimensions %d and %d differ", shapeString(x.shape), shapeString(w.shape), x.cols(), w.shape[1])
	case x.dtype != F32 || integers(w.dtype):
		misuse("linear", "%s x %s^T: types %v and %v: want F32 and a type of weights", shapeString(x.shape), shapeString(w.shape), x.dtype, w.dtype)
	case bias != nil && (bias.dtype != F32 || bias.n != w.shape[0]):
		misuse("linear", "%s x %s^T + %v %s: want bias F32 (%d)", shapeString(x.shape), shapeString(w.shape), bias.dtype, shapeString(bias.shape), w.shape[0])
	}
}

// weight describes a matrix of weights at an address to the kernels.
// Those of experts (experts, rows, cols) are one matrix of all rows.
func (t *Tensor) weight(p kernel.Ptr) kernel.Weight {
	last := len(t.shape) - 1
	return kernel.Weight{Data: p, Type: t.dtype, Packed: t.packed, Rows: extent(t.shape[:last]), Cols: t.shape[last]}
}

// Embedding returns the rows of a table (rows, cols) of any type but integers that ids (I32, any shape) name: F32 of shape
// (ids..., cols). An id outside the table gives a row of NaN on a GPU and an OpError on the CPU.
// Panics: *ShapeError, *OpError.
func Embedding(table, ids *Tensor) *Tensor {
	checkEmbedding(table, ids)
	out := output("embedding", ids.Stream(), F32, append(ids.Shape(), table.shape[1]))
	EmbeddingInto(out, table, ids)
	return out
}

// EmbeddingInto writes Embedding(table, ids) to dst. Panics: *ShapeError, *OpError.
func EmbeddingInto(dst, table, ids *Tensor) {
	checkEmbedding(table, ids)
	if dst.dtype != F32 || dst.n != ids.n*table.shape[1] {
		misuse("embedding", "%s of %s into %v %s: want F32 (%d,%d)", shapeString(ids.shape), shapeString(table.shape),
			dst.dtype, shapeString(dst.shape), ids.n, table.shape[1])
	}
	table = table.on("embedding", dst.Stream())
	exec("embedding", dst.Stream(), 1, func(k kernel.Stream, p pointers) error {
		return k.Embedding(p[0], table.weight(p[1]), p[2], ids.n)
	}, dst, table, ids)
}

func checkEmbedding(table, ids *Tensor) {
	if len(table.shape) != 2 || integers(table.dtype) || ids.dtype != I32 {
		misuse("embedding", "%v %s of %v %s: want I32 ids of a (rows, cols) table", ids.dtype, shapeString(ids.shape), table.dtype, shapeString(table.shape))
	}
}

// Pack rearranges a matrix of weights (rows, cols), or those of experts (experts, rows, cols), into the form that its device reads fastest, in place of the stored
// form; where the device gains nothing it does nothing. A packed tensor is for Linear, Embedding and ExpertLinear on its
// device only: it has no views, conversions or copies. Views made before keep the stored form.
//
// It must not run while other goroutines use the tensor.
// Errors: *ShapeError for another shape or a view with strides, gpu.ErrOutOfMemory and other trouble of the device.
func (t *Tensor) Pack() error {
	if err := checkPacked("pack", t.dtype, t.shape); err != nil {
		return err
	}
	if t.strides != nil {
		return &ShapeError{"pack", shapeString(t.shape) + ": a view with strides"}
	}
	if t.packed || t.n == 0 || !packable(t.shape) {
		return nil
	}
	if err := t.buffer.Err(); err != nil {
		return err
	}
	bytes, err := packedSize(t.Device(), t.weight(t.ptr()))
	if err != nil || bytes == 0 {
		return err
	}
	b, err := t.Stream().Alloc(bytes)
	if err != nil {
		return err
	}
	out := &Tensor{dtype: t.dtype, shape: t.shape, n: t.n, packed: true, packedBytes: bytes, buffer: b}
	if err := PackInto(out, t); err != nil {
		b.Free()
		return err
	}
	t.freeCopies()
	t.buffer.Free()
	t.buffer, t.offset, t.packed, t.packedBytes = b, 0, true, bytes
	return nil
}

// expertRows is what the rows of packed experts are a multiple of: vb_expert_linear.
const expertRows = 16

// checkPacked names a shape or type that no weights have.
func checkPacked(op string, dtype DType, shape []int) error {
	if len(shape) != 2 && len(shape) != 3 || integers(dtype) {
		return &ShapeError{op, dtype.String() + " " + shapeString(shape) + ": want (rows, cols) or (experts, rows, cols) of weights"}
	}
	return nil
}

// packable reports whether weights of a shape may have a packed form: (rows, cols), or (experts, rows, cols) whose experts begin
// where the packed form can.
func packable(shape []int) bool { return len(shape) == 2 || shape[1]%expertRows == 0 }

// extent returns the elements of a shape.
func extent(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// packedSize returns the bytes of a weight's packed form, 0 where the device has none or gains nothing from it.
func packedSize(d *gpu.Device, w kernel.Weight) (int64, error) {
	bytes, err := d.PackedSize(w)
	if errors.Is(err, gpu.ErrUnsupported) {
		return 0, nil
	}
	return bytes, err
}

// Packed reports whether Pack has rearranged the tensor.
func (t *Tensor) Packed() bool { return t.packed }

// integers reports whether t is a type of whole numbers, which are no weights.
func integers(t DType) bool { return t == I8 || t == I32 || t == U8 || t == BOOL }
