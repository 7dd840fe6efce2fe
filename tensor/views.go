package tensor

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// A view shares the memory of its tensor. Element-wise operations, reductions, Copy and reading take any view as it is; MatMul takes
// transposed matrices. Other operations first copy one that is not contiguous.

// Contiguous reports whether the elements lie in row-major order without gaps.
func (t *Tensor) Contiguous() bool { return t.strides == nil }

// ToContiguous returns t where it is contiguous, else a copy that is. Panics: *ShapeError, *OpError.
func (t *Tensor) ToContiguous() *Tensor {
	if t.strides == nil {
		return t
	}
	return Copy(t)
}

// Strides returns the elements from one place to the next along each dimension.
func (t *Tensor) Strides() []int {
	if t.strides != nil {
		return slices.Clone(t.strides)
	}
	return rowMajor(t.shape)
}

func rowMajor(shape []int) []int {
	strides := make([]int, len(shape))
	n := 1
	for d := len(shape) - 1; d >= 0; d-- {
		strides[d] = n
		n *= max(1, shape[d])
	}
	return strides
}

// reach returns the bytes from the first element to the end of the last.
func (t *Tensor) reach() int64 {
	if t.strides == nil || t.n == 0 {
		return t.Bytes()
	}
	last := 1
	for d, s := range t.strides {
		last += (t.shape[d] - 1) * s
	}
	return t.dtype.Bytes(last)
}

// repeats reports whether elements may share a place, as those of a broadcast view do: a stride leads no further than smaller ones do.
func (t *Tensor) repeats() bool {
	if t.strides == nil || t.n == 0 {
		return false
	}
	order := make([]int, 0, 8)
	for d, n := range t.shape {
		if n > 1 {
			order = append(order, d)
		}
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(t.strides[a], t.strides[b]) })
	last := 0 // place of the last element along the dimensions so far
	for _, d := range order {
		if t.strides[d] <= last {
			return true
		}
		last += (t.shape[d] - 1) * t.strides[d]
	}
	return false
}

// view returns a contiguous view from a byte of the memory on.
func (t *Tensor) view(shape []int, n int, offset int64) *Tensor {
	return &Tensor{dtype: t.dtype, packed: t.packed, shape: shape, n: n, offset: offset, buffer: t.buffer}
}

// strided returns a view with strides from an element on.
func (t *Tensor) strided(shape, strides []int, first int) *Tensor {
	v := t.view(shape, extent(shape), t.offset+t.dtype.Bytes(first))
	contiguous := v.n == 0
	if !contiguous {
		want := rowMajor(shape)
		contiguous = true
		for d := range shape {
			contiguous = contiguous && (shape[d] == 1 || strides[d] == want[d])
		}
	}
	if !contiguous {
		v.strides = strides
	}
	return v
}

// viewable panics for packed weights and blocks, whose elements have no addresses.
func (t *Tensor) viewable(op string) {
	if t.packed || t.dtype.Quantized() {
		misuse(op, "%v %s: its elements lie in blocks", t.dtype, shapeString(t.shape))
	}
}

// dim returns a dimension counted from the start; a negative one counts from the end.
func (t *Tensor) dim(op string, d int) int {
	if d < -len(t.shape) || d >= len(t.shape) {
		misuse(op, "dimension %d of %s", d, shapeString(t.shape))
	}
	return (d + len(t.shape)) % len(t.shape)
}

// Reshape returns the elements in row-major order with another shape of the same length; one dimension may be -1. It is a view
// where the strides allow one, else a copy. Panics: *ShapeError, *OpError.
func (t *Tensor) Reshape(shape ...int) *Tensor {
	s := append([]int(nil), shape...)
	known, open := 1, -1
	for i, d := range s {
		switch {
		case d == -1 && open < 0:
			open = i
		case d < 0:
			misuse("reshape", "%s to %s: negative dimension", shapeString(t.shape), shapeString(shape))
		default:
			known *= d
		}
	}
	if open >= 0 && known > 0 && t.n%known == 0 {
		s[open] = t.n / known
	}
	n, err := elements("reshape", t.dtype, s)
	if err != nil || n != t.n || t.packed {
		misuse("reshape", "%v %s to %s does not fit", t.dtype, shapeString(t.shape), shapeString(shape))
	}
	if t.strides == nil {
		return t.view(s, n, t.offset)
	}
	if strides := t.reshaped(s); strides != nil {
		return t.strided(s, strides, 0)
	}
	return Copy(t).view(s, n, 0)
}

// reshaped returns the strides of the elements in another shape, nil where no strides describe them.
func (t *Tensor) reshaped(shape []int) []int {
	var from, along []int // without dimensions of one place
	for d, n := range t.shape {
		if n != 1 {
			from, along = append(from, n), append(along, t.strides[d])
		}
	}
	strides := make([]int, len(shape))
	at := 0
	for d := 0; d < len(shape); {
		if shape[d] == 1 {
			strides[d] = 1
			d++
			continue
		}
		// Dimensions from..end of the old shape are those from d..last of the new one.
		end, last, old, made := at+1, d+1, from[at], shape[d]
		for old != made {
			if old < made {
				old *= from[end]
				end++
			} else {
				made *= shape[last]
				last++
			}
		}
		for i := at; i < end-1; i++ {
			if along[i] != along[i+1]*from[i+1] {
				return nil
			}
		}
		step := along[end-1]
		for i := last - 1; i >= d; i-- {
			strides[i] = step
			step *= shape[i]
		}
		at, d = end, last
	}
	return strides
}

// Slice returns the view [lo:hi] of the leading dimension. Panics: *ShapeError.
func (t *Tensor) Slice(lo, hi int) *Tensor {
	if len(t.shape) == 0 || lo < 0 || hi < lo || hi > t.shape[0] {
		misuse("slice", "[%d:%d] of %s", lo, hi, shapeString(t.shape))
	}
	if t.packed || len(t.shape) == 1 && (lo%t.dtype.BlockSize() != 0 || hi%t.dtype.BlockSize() != 0) {
		misuse("slice", "[%d:%d] of %v %s cuts through packed blocks", lo, hi, t.dtype, shapeString(t.shape))
	}
	s := t.Shape()
	s[0] = hi - lo
	if t.strides != nil {
		return t.strided(s, t.strides, lo*t.strides[0])
	}
	row := 0
	if t.shape[0] > 0 {
		row = t.n / t.shape[0]
	}
	return t.view(s, (hi-lo)*row, t.offset+t.dtype.Bytes(lo*row))
}

// SliceAlong returns the view of every step-th place of a dimension, from lo on and before hi; step is 1 or more.
// Panics: *ShapeError.
func (t *Tensor) SliceAlong(dim, lo, hi, step int) *Tensor {
	const op = "slice along"
	dim = t.dim(op, dim)
	if lo < 0 || hi < lo || hi > t.shape[dim] || step < 1 {
		misuse(op, "[%d:%d:%d] of dimension %d of %s", lo, hi, step, dim, shapeString(t.shape))
	}
	if dim == 0 && step == 1 {
		return t.Slice(lo, hi)
	}
	t.viewable(op)
	shape, strides := t.Shape(), t.Strides()
	first := lo * strides[dim]
	step = min(step, max(hi-lo, 1)) // a longer one takes the same element, and would overflow
	shape[dim] = (hi - lo + step - 1) / step
	strides[dim] *= step
	return t.strided(shape, strides, first)
}

// Select returns the view at a place of a dimension, which it has no more. Panics: *ShapeError.
func (t *Tensor) Select(dim, at int) *Tensor {
	dim = t.dim("select", dim)
	if at < 0 || at >= t.shape[dim] {
		misuse("select", "place %d of dimension %d of %s", at, dim, shapeString(t.shape))
	}
	return t.SliceAlong(dim, at, at+1, 1).Squeeze(dim)
}

// Permute returns the view whose dimension i is dimension dims[i] of t. Panics: *ShapeError.
func (t *Tensor) Permute(dims ...int) *Tensor {
	const op = "permute"
	t.viewable(op)
	shape, strides, seen := make([]int, len(dims)), make([]int, len(dims)), make([]bool, len(t.shape))
	old := t.Strides()
	for i, d := range dims {
		if d = t.dim(op, d); seen[d] || len(dims) != len(t.shape) {
			misuse(op, "%v of %s: want each dimension once", dims, shapeString(t.shape))
		}
		seen[d], shape[i], strides[i] = true, t.shape[d], old[d]
	}
	if len(dims) != len(t.shape) {
		misuse(op, "%v of %s: want each dimension once", dims, shapeString(t.shape))
	}
	return t.strided(shape, strides, 0)
}

// Transpose returns the view with two dimensions exchanged. Panics: *ShapeError.
func (t *Tensor) Transpose(a, b int) *Tensor {
	dims := make([]int, len(t.shape))
	for i := range dims {
		dims[i] = i
	}
	a, b = t.dim("transpose", a), t.dim("transpose", b)
	dims[a], dims[b] = b, a
	return t.Permute(dims...)
}

// T returns the view with the last two dimensions exchanged: the transposed matrix. Panics: *ShapeError.
func (t *Tensor) T() *Tensor { return t.Transpose(-2, -1) }

// Squeeze returns the view without the dimensions named, which have one place; without all such dimensions where none is named.
// Panics: *ShapeError.
func (t *Tensor) Squeeze(dims ...int) *Tensor {
	drop := make([]bool, len(t.shape))
	for _, d := range dims {
		d = t.dim("squeeze", d)
		if t.shape[d] != 1 {
			misuse("squeeze", "dimension %d of %s has more than one place", d, shapeString(t.shape))
		}
		drop[d] = true
	}
	old := t.Strides()
	var shape, strides []int
	for d, n := range t.shape {
		if drop[d] || len(dims) == 0 && n == 1 {
			continue
		}
		shape, strides = append(shape, n), append(strides, old[d])
	}
	if t.strides == nil {
		return t.view(shape, t.n, t.offset)
	}
	return t.strided(shape, strides, 0)
}

// Unsqueeze returns the view with a new dimension of one place before dimension dim; -1 is behind the last.
// Panics: *ShapeError.
func (t *Tensor) Unsqueeze(dim int) *Tensor {
	if dim < 0 {
		dim += len(t.shape) + 1
	}
	if dim < 0 || dim > len(t.shape) {
		misuse("unsqueeze", "dimension %d of %s", dim, shapeString(t.shape))
	}
	shape := slices.Insert(t.Shape(), dim, 1)
	if t.strides == nil {
		return t.view(shape, t.n, t.offset)
	}
	return t.strided(shape, slices.Insert(t.Strides(), dim, 0), 0)
}

// BroadcastTo returns the view with dimensions of one place repeated, and new ones before the first, as numpy's rules have it. -1
// keeps a dimension. Such a view is for reading. Panics: *ShapeError.
func (t *Tensor) BroadcastTo(shape ...int) *Tensor { return t.broadcastTo("broadcast to", shape) }

func (t *Tensor) broadcastTo(op string, shape []int) *Tensor {
	t.viewable(op)
	s := append([]int(nil), shape...)
	more := len(s) - len(t.shape)
	old := t.Strides()
	strides := make([]int, len(s))
	for d := range s {
		if k := d - more; k >= 0 {
			if s[d] == -1 {
				s[d] = t.shape[k]
			}
			if strides[d] = old[k]; t.shape[k] == 1 && s[d] != 1 {
				strides[d] = 0
			} else if t.shape[k] != s[d] {
				misuse(op, "%s to %s: dimension %d", shapeString(t.shape), shapeString(shape), d)
			}
		}
	}
	if more < 0 {
		misuse(op, "%s to %s: fewer dimensions", shapeString(t.shape), shapeString(shape))
	}
	if _, err := elements(op, t.dtype, s); err != nil {
		panic(err)
	}
	return t.strided(s, strides, 0)
}

// broadcast returns the shape that operands have together, by numpy's rules.
func broadcast(op string, in ...*Tensor) []int {
	var shape []int
	for _, t := range in {
		for len(shape) < len(t.shape) {
			shape = slices.Insert(shape, 0, 1)
		}
		for d, n := range t.shape {
			at := &shape[len(shape)-len(t.shape)+d]
			if *at == 1 {
				*at = n
			} else if n != 1 && n != *at {
				shapes := ""
				for i, t := range in {
					if i > 0 {
						shapes += " and "
					}
					shapes += shapeString(t.shape)
				}
				misuse(op, "%s: shapes differ, and neither %d nor %d is 1", shapes, *at, n)
			}
		}
	}
	return shape
}

// kernelView describes a tensor of at most kernel.MaxDims dimensions at an address, broadcast to a shape.
func (t *Tensor) kernelView(p kernel.Ptr, shape []int) kernel.View {
	v := kernel.View{Data: p, Type: t.dtype}
	strides := t.Strides()
	for d, n := range t.shape {
		if n != 1 || shape[len(shape)-len(t.shape)+d] == 1 {
			v.Strides[len(shape)-len(t.shape)+d] = strides[d]
		}
	}
	return v
}

// kernelShape returns a shape as kernels take it.
func kernelShape(op string, shape []int) (sizes [kernel.MaxDims]int) {
	if len(shape) > kernel.MaxDims {
		panic(&ShapeError{op, fmt.Sprintf("%s: more than %d dimensions", shapeString(shape), kernel.MaxDims)})
	}
	copy(sizes[:], shape)
	return sizes
}
