package tensor

import (
	"slices"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// index checks the operands of a gather or scatter along a dimension and enqueues it: named is what ids name, other lies beside ids.
func index(op string, kind kernel.Indexing, out, in, ids *Tensor, dim int) {
	named, other := in, out
	if kind != kernel.IndexingGather {
		named, other = out, in
	}
	if ids.dtype != I32 || !slices.Equal(ids.shape, other.shape) || len(named.shape) != len(ids.shape) {
		misuse(op, "%v %s by %v %s along dimension %d of %s: want I32 ids of one shape", other.dtype, shapeString(other.shape),
			ids.dtype, shapeString(ids.shape), dim, shapeString(named.shape))
	}
	for d, n := range ids.shape {
		if d != dim && n > named.shape[d] {
			misuse(op, "ids %s of %s: dimension %d", shapeString(ids.shape), shapeString(named.shape), d)
		}
	}
	if out.n == 0 || in.n == 0 {
		if ids.n > 0 {
			misuse(op, "ids %s of %s, which has no elements", shapeString(ids.shape), shapeString(named.shape))
		}
		return
	}
	if out.overlaps(in) || out.overlaps(ids) {
		misuse(op, "%s: the result may not lie in the memory of an operand", shapeString(out.shape))
	}
	args := kernel.IndexArgs{Rank: len(ids.shape), Dim: dim, Indexing: kind, IDsSizes: kernelShape(op, ids.shape)}
	args.InSizes, args.OutSizes = args.IDsSizes, args.IDsSizes // beside dim they may be wider than ids reach
	if kind == kernel.IndexingGather {
		args.InSizes[dim] = in.shape[dim]
	} else {
		args.OutSizes[dim] = out.shape[dim]
	}
	execViews(op, out.Stream(), 1, func(k kernel.Stream, t []*Tensor, at pointers) error {
		args := args
		args.Out, args.In, args.IDs = t[0].kernelView(at[0], t[0].shape), t[1].kernelView(at[1], t[1].shape), t[2].kernelView(at[2], t[2].shape)
		return k.Index(&args)
	}, out, in, ids)
}

// Gather returns a's elements whose place along a dimension is in ids (I32, of a's rank), of ids' shape: out[i][j] = a[ids[i][j]][j] for
// dimension 0. An id outside gives 0 on a GPU and an OpError on the CPU. Panics: *ShapeError, *OpError.
func Gather(a, ids *Tensor, dim int) *Tensor {
	const op = "gather"
	a.viewable(op)
	out := output(op, a.Stream(), a.dtype, ids.Shape())
	GatherInto(out, a, ids, dim)
	return out
}

// GatherInto writes Gather(a, ids, dim) to dst. Panics: *ShapeError, *OpError.
func GatherInto(dst, a, ids *Tensor, dim int) {
	const op = "gather"
	a.viewable(op)
	sameType(op, dst, a)
	index(op, kernel.IndexingGather, dst, a, ids, a.dim(op, dim))
}

// IndexSelect returns the places of a dimension that ids (I32, one dimension) name, in their order.
// Panics: *ShapeError, *OpError.
func IndexSelect(a, ids *Tensor, dim int) *Tensor {
	const op = "index select"
	a.viewable(op)
	shape := a.Shape()
	shape[a.dim(op, dim)] = ids.n
	out := output(op, a.Stream(), a.dtype, shape)
	IndexSelectInto(out, a, ids, dim)
	return out
}

// IndexSelectInto writes IndexSelect(a, ids, dim) to dst. Panics: *ShapeError, *OpError.
func IndexSelectInto(dst, a, ids *Tensor, dim int) {
	const op = "index select"
	a.viewable(op)
	dim = a.dim(op, dim)
	if len(ids.shape) != 1 {
		misuse(op, "ids %s: want one dimension", shapeString(ids.shape))
	}
	shape, along := a.Shape(), make([]int, len(a.shape))
	shape[dim] = ids.n
	for d := range along {
		along[d] = 1
	}
	along[dim] = ids.n
	sameType(op, dst, a)
	if !slices.Equal(dst.shape, shape) {
		misuse(op, "%d places along dimension %d of %s into %s", ids.n, dim, shapeString(a.shape), shapeString(dst.shape))
	}
	index(op, kernel.IndexingGather, dst, a, ids.Reshape(along...).BroadcastTo(shape...), dim)
}

func sameType(op string, dst, src *Tensor) {
	if dst.dtype != src.dtype {
		misuse(op, "%v into %v: types differ", src.dtype, dst.dtype)
	}
}

// ScatterInto writes src to dst's elements whose place along a dimension is in ids (I32, of src's shape):
// dst[ids[i][j]][j] = src[i][j] for dimension 0. Of several for one place any stays. Panics: *ShapeError, *OpError.
func ScatterInto(dst, src, ids *Tensor, dim int) {
	const op = "scatter"
	scatter(op, kernel.IndexingScatter, dst, src, ids, dim)
}

// ScatterAddInto adds src, F32 or I32, to dst's elements whose place along a dimension is in ids, as ScatterInto writes them, in any
// order. Panics: *ShapeError, *OpError.
func ScatterAddInto(dst, src, ids *Tensor, dim int) {
	const op = "scatter add"
	if src.dtype != F32 && src.dtype != I32 {
		misuse(op, "%v: want F32 or I32", src.dtype)
	}
	scatter(op, kernel.IndexingScatterAdd, dst, src, ids, dim)
}

func scatter(op string, kind kernel.Indexing, dst, src, ids *Tensor, dim int) {
	dst.viewable(op)
	sameType(op, dst, src)
	index(op, kind, dst, src, ids, dst.dim(op, dim))
}
