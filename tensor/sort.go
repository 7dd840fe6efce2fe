package tensor

import (
	"math"
	"slices"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// Sorting puts the elements along one dimension in order, each line by itself; a negative dimension is counted from the end. It is
// stable: equal elements stay in the order in which they lie. NaN is the greatest element, as in PyTorch, and -0 equals 0. Operands
// and results are of any strides and of the types F32, F16, BF16, I32, I8, U8 and BOOL. A line has fewer than 2^31 elements.

// SortInto writes the first elements of each line of a in order to values, of a's type, and their places in the line to indices, I32.
// Either may be nil. Both have a's shape, but may have fewer places along dim, as many as are wanted. Panics: *ShapeError, *OpError.
func SortInto(values, indices, a *Tensor, dim int, descending bool) {
	const op = "sort"
	a.viewable(op)
	dim = a.dim(op, dim)
	if values == nil && indices == nil {
		misuse(op, "%s: neither values nor indices are asked for", shapeString(a.shape))
	}
	if a.shape[dim] > math.MaxInt32 {
		misuse(op, "%s: a line of 2^31 elements or more", shapeString(a.shape))
	}
	var shape []int
	var operands []*Tensor
	for i, out := range []*Tensor{values, indices} {
		if out == nil {
			continue
		}
		want := a.dtype
		if i == 1 {
			want = I32
		}
		fits := out.dtype == want && !out.packed && len(out.shape) == len(a.shape) && (shape == nil || slices.Equal(out.shape, shape))
		for d, n := range a.shape {
			fits = fits && (out.shape[d] == n || d == dim && out.shape[d] < n)
		}
		if !fits {
			misuse(op, "%v %s along dimension %d into %v %s: want %v of such a shape", a.dtype, shapeString(a.shape), dim, out.dtype,
				shapeString(out.shape), want)
		}
		if out.n > 0 && (out.overlaps(a) || i == 1 && values != nil && out.overlaps(values)) {
			misuse(op, "%s: a result may not lie in the memory of the operand or of the other result", shapeString(a.shape))
		}
		shape = out.shape
		operands = append(operands, out)
	}
	if extent(shape) == 0 {
		return
	}
	args := kernel.SortArgs{Sizes: kernelShape(op, a.shape), OutSizes: kernelShape(op, shape), Rank: len(a.shape), Dim: dim, Descending: descending}
	outputs := len(operands)
	execViews(op, operands[0].Stream(), outputs, func(k kernel.Stream, t []*Tensor, at pointers) error {
		args := args
		args.In = t[outputs].kernelView(at[outputs], t[outputs].shape)
		if values != nil {
			args.Values = t[0].kernelView(at[0], shape)
		}
		if indices != nil {
			args.Indices = t[outputs-1].kernelView(at[outputs-1], shape)
		}
		return k.Sort(&args)
	}, append(operands, a)...)
}

// Sort returns the elements along a dimension in ascending or descending order. Panics: *ShapeError, *OpError.
func Sort(a *Tensor, dim int, descending bool) *Tensor {
	a.viewable("sort")
	values := like("sort", a)
	SortInto(values, nil, a, dim, descending)
	return values
}

// Argsort returns the places along a dimension in the order of their elements, I32: Gather(a, Argsort(a, dim, d), dim) is Sort(a, dim, d).
// Panics: *ShapeError, *OpError.
func Argsort(a *Tensor, dim int, descending bool) *Tensor {
	const op = "argsort"
	a.viewable(op)
	indices := output(op, a.Stream(), I32, a.Shape())
	SortInto(nil, indices, a, dim, descending)
	return indices
}

// SortWithIndices returns Sort and Argsort of one pass. Panics: *ShapeError, *OpError.
func SortWithIndices(a *Tensor, dim int, descending bool) (values, indices *Tensor) {
	return firstSorted("sort", a, a.shape[a.dim("sort", dim)], dim, descending)
}

// fewTop is the most elements that the kernels of TopK are for.
const fewTop = 1024

// TopKOver returns the k greatest elements along a dimension in descending order, or the k smallest in ascending order, and their places
// (I32), the lowest first among equals. TopK is that of the greatest over the last dimension of F32. Panics: *ShapeError, *OpError.
func TopKOver(a *Tensor, k, dim int, greatest bool) (values, indices *Tensor) {
	const op = "topk"
	d := a.dim(op, dim)
	if k < 0 || k > a.shape[d] {
		misuse(op, "%d of dimension %d of %s", k, dim, shapeString(a.shape))
	}
	if greatest && k <= fewTop && d == len(a.shape)-1 && a.dtype == F32 && a.direct() {
		return TopK(a, k)
	}
	return firstSorted(op, a, k, d, greatest)
}

func firstSorted(op string, a *Tensor, k, dim int, descending bool) (values, indices *Tensor) {
	a.viewable(op)
	shape := a.Shape()
	shape[a.dim(op, dim)] = k
	values, indices = output(op, a.Stream(), a.dtype, shape), output(op, a.Stream(), I32, shape)
	SortInto(values, indices, a, dim, descending)
	return values, indices
}
