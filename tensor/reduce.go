package tensor

import (
	"math"
	"slices"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// A reduction takes the elements along some dimensions together: those named, negative ones counted from the end, or all of
// them where none is named. The result has none of these dimensions; Keep gives them back with one place each. Operands are of any
// strides. Sums of floats are float32 or better; those of whole numbers are I32, which wraps. NaN goes through, as in PyTorch.

// reduction describes one: what it gives where there are no elements, and the type of its results.
type reduction struct {
	op        string
	kind      kernel.Reduction
	parameter float32
	floats    bool    // it is for floats alone
	empty     float64 // of no elements
	never     bool    // no elements are an error
	to        func(DType) DType
}

func ownType(t DType) DType {
	if integers(t) {
		return I32
	}
	return t
}
func always(t DType) func(DType) DType { return func(DType) DType { return t } }

func (r reduction) of(a *Tensor, dims []int) *Tensor {
	return r.into(nil, a, dims)
}

func (r reduction) into(dst, a *Tensor, dims []int) *Tensor {
	a.viewable(r.op)
	if r.floats && integers(a.dtype) {
		misuse(r.op, "%v %s: want F32, F16 or BF16", a.dtype, shapeString(a.shape))
	}
	args := kernel.ReduceArgs{Sizes: kernelShape(r.op, a.shape), Rank: len(a.shape), Reduction: r.kind, Parameter: r.parameter}
	if len(dims) == 0 {
		args.Reduced = 1<<len(a.shape) - 1
	}
	for _, d := range dims {
		args.Reduced |= 1 << a.dim(r.op, d)
	}
	kept, shape := a.Shape(), []int(nil)
	places := 1
	for d, n := range a.shape {
		if args.Reduced>>d&1 == 1 {
			kept[d] = 1
			places *= n
		} else {
			shape = append(shape, n)
		}
	}
	if r.never && places == 0 && extent(shape) > 0 {
		misuse(r.op, "%s: no elements", shapeString(a.shape))
	}
	to := r.to(a.dtype)
	if dst == nil {
		dst = output(r.op, a.Stream(), to, shape)
	} else if dst.dtype != to || !slices.Equal(dst.shape, shape) {
		misuse(r.op, "%v %s into %v %s: want %v %s", a.dtype, shapeString(a.shape), dst.dtype, shapeString(dst.shape), to, shapeString(shape))
	}
	if dst.n == 0 {
		return dst
	}
	if places == 0 {
		mapInto(r.op, dst, func(p *program, _ []Expr) Expr { return p.constant(to, r.empty) })
		return dst
	}
	if dst.overlaps(a) {
		misuse(r.op, "%s: the result may not lie in the memory of the operand", shapeString(a.shape))
	}
	wide := dst.Reshape(shape...)
	for d := range a.shape { // dst with the reduced dimensions, along which its strides are 0
		if args.Reduced>>d&1 == 1 {
			wide = wide.Unsqueeze(d)
		}
	}
	execViews(r.op, dst.Stream(), 1, func(k kernel.Stream, t []*Tensor, at pointers) error {
		args := args
		args.In = t[1].kernelView(at[1], a.shape)
		args.Out = kernel.View{Data: at[0], Type: to}
		for d, s := range t[0].Strides() {
			if args.Reduced>>d&1 == 0 {
				args.Out.Strides[d] = s
			}
		}
		return k.Reduce(&args)
	}, wide, a)
	return dst
}

// Keep returns a result of a reduction of a over dims as it broadcasts with a: the dimensions are back, with one place each.
// Panics: *ShapeError, *OpError.
func Keep(result, a *Tensor, dims ...int) *Tensor {
	reduced := make([]bool, len(a.shape))
	for _, d := range dims {
		reduced[a.dim("keep", d)] = true
	}
	shape := a.Shape()
	for d := range shape {
		if reduced[d] || len(dims) == 0 {
			shape[d] = 1
		}
	}
	return result.Reshape(shape...)
}

var (
	sum    = reduction{op: "sum", kind: kernel.ReductionSum, to: ownType}
	prod   = reduction{op: "prod", kind: kernel.ReductionProd, empty: 1, to: ownType}
	maxOf  = reduction{op: "max", kind: kernel.ReductionMax, never: true, to: func(t DType) DType { return t }}
	minOf  = reduction{op: "min", kind: kernel.ReductionMin, never: true, to: func(t DType) DType { return t }}
	argmax = reduction{op: "argmax", kind: kernel.ReductionArgmax, never: true, to: always(I32)}
	argmin = reduction{op: "argmin", kind: kernel.ReductionArgmin, never: true, to: always(I32)}
	anyOf  = reduction{op: "any", kind: kernel.ReductionAny, to: always(BOOL)}
	allOf  = reduction{op: "all", kind: kernel.ReductionAll, empty: 1, to: always(BOOL)}
	mean   = reduction{op: "mean", kind: kernel.ReductionMean, floats: true, empty: math.NaN(), to: ownType}
	logsum = reduction{op: "logsumexp", kind: kernel.ReductionLogSumExp, floats: true, empty: math.Inf(-1), to: ownType}
)

// Sum returns the sum over dims. Panics: *ShapeError, *OpError.
func Sum(a *Tensor, dims ...int) *Tensor { return sum.of(a, dims) }

// SumInto writes Sum(a, dims...) to dst. Panics: *ShapeError, *OpError.
func SumInto(dst, a *Tensor, dims ...int) { sum.into(dst, a, dims) }

// Mean returns the mean over dims, of floats. Panics: *ShapeError, *OpError.
func Mean(a *Tensor, dims ...int) *Tensor { return mean.of(a, dims) }

// MeanInto writes Mean(a, dims...) to dst. Panics: *ShapeError, *OpError.
func MeanInto(dst, a *Tensor, dims ...int) { mean.into(dst, a, dims) }

// Prod returns the product over dims. Panics: *ShapeError, *OpError.
func Prod(a *Tensor, dims ...int) *Tensor { return prod.of(a, dims) }

// ProdInto writes Prod(a, dims...) to dst. Panics: *ShapeError, *OpError.
func ProdInto(dst, a *Tensor, dims ...int) { prod.into(dst, a, dims) }

// Max returns the greatest element over dims, of which there is one at least. Panics: *ShapeError, *OpError.
func Max(a *Tensor, dims ...int) *Tensor { return maxOf.of(a, dims) }

// MaxInto writes Max(a, dims...) to dst. Panics: *ShapeError, *OpError.
func MaxInto(dst, a *Tensor, dims ...int) { maxOf.into(dst, a, dims) }

// Min returns the smallest element over dims, of which there is one at least. Panics: *ShapeError, *OpError.
func Min(a *Tensor, dims ...int) *Tensor { return minOf.of(a, dims) }

// MinInto writes Min(a, dims...) to dst. Panics: *ShapeError, *OpError.
func MinInto(dst, a *Tensor, dims ...int) { minOf.into(dst, a, dims) }

// ArgmaxOver returns the number of the greatest element over dims, I32, in their row-major order; the lowest among equals, and NaN
// is the greatest. Argmax is that over the last dimension of F32. Panics: *ShapeError, *OpError.
func ArgmaxOver(a *Tensor, dims ...int) *Tensor { return argmax.of(a, dims) }

// ArgmaxOverInto writes ArgmaxOver(a, dims...) to dst. Panics: *ShapeError, *OpError.
func ArgmaxOverInto(dst, a *Tensor, dims ...int) { argmax.into(dst, a, dims) }

// ArgminOver returns the number of the smallest element over dims, as ArgmaxOver does; NaN is the smallest.
// Panics: *ShapeError, *OpError.
func ArgminOver(a *Tensor, dims ...int) *Tensor { return argmin.of(a, dims) }

// ArgminOverInto writes ArgminOver(a, dims...) to dst. Panics: *ShapeError, *OpError.
func ArgminOverInto(dst, a *Tensor, dims ...int) { argmin.into(dst, a, dims) }

// Any returns whether an element over dims is not 0, as BOOL. Panics: *ShapeError, *OpError.
func Any(a *Tensor, dims ...int) *Tensor { return anyOf.of(a, dims) }

// AnyInto writes Any(a, dims...) to dst. Panics: *ShapeError, *OpError.
func AnyInto(dst, a *Tensor, dims ...int) { anyOf.into(dst, a, dims) }

// All returns whether no element over dims is 0, as BOOL. Panics: *ShapeError, *OpError.
func All(a *Tensor, dims ...int) *Tensor { return allOf.of(a, dims) }

// AllInto writes All(a, dims...) to dst. Panics: *ShapeError, *OpError.
func AllInto(dst, a *Tensor, dims ...int) { allOf.into(dst, a, dims) }

// LogSumExp returns log(sum(exp(a))) over dims, without overflow, of floats. Panics: *ShapeError, *OpError.
func LogSumExp(a *Tensor, dims ...int) *Tensor { return logsum.of(a, dims) }

// LogSumExpInto writes LogSumExp(a, dims...) to dst. Panics: *ShapeError, *OpError.
func LogSumExpInto(dst, a *Tensor, dims ...int) { logsum.into(dst, a, dims) }

func variance(correction float32) reduction {
	return reduction{op: "var", kind: kernel.ReductionVar, parameter: correction, floats: true, empty: math.NaN(), to: ownType}
}

// Var returns the sum of (a - mean)^2 over dims, divided by the number of elements less correction (1 for the unbiased estimate), of
// floats. Panics: *ShapeError, *OpError.
func Var(a *Tensor, correction float32, dims ...int) *Tensor { return variance(correction).of(a, dims) }

// VarInto writes Var(a, correction, dims...) to dst. Panics: *ShapeError, *OpError.
func VarInto(dst, a *Tensor, correction float32, dims ...int) {
	variance(correction).into(dst, a, dims)
}

// Std returns the square root of Var. Panics: *ShapeError, *OpError.
func Std(a *Tensor, correction float32, dims ...int) *Tensor {
	v := Var(a, correction, dims...)
	SqrtInto(v, v)
	return v
}

func norm(p float64) reduction {
	if p != 1 && p != 2 && !math.IsInf(p, 1) {
		misuse("norm", "order %v: want 1, 2 or infinity", p)
	}
	return reduction{op: "norm", kind: kernel.ReductionNorm, parameter: float32(p), floats: true, to: ownType}
}

// Norm returns the norm of order p over dims, of floats: 1 for the sum of |a|, 2 for the Euclidean norm, math.Inf(1) for the
// greatest |a|. Panics: *ShapeError, *OpError.
func Norm(a *Tensor, p float64, dims ...int) *Tensor { return norm(p).of(a, dims) }

// NormInto writes Norm(a, p, dims...) to dst. Panics: *ShapeError, *OpError.
func NormInto(dst, a *Tensor, p float64, dims ...int) { norm(p).into(dst, a, dims) }

// CumSum returns the sums of all elements up to each along a dimension. Types F32, F16, BF16, I32.
// Panics: *ShapeError, *OpError.
func CumSum(a *Tensor, dim int) *Tensor {
	out := like("cumsum", a)
	CumSumInto(out, a, dim)
	return out
}

// CumSumInto writes CumSum(a, dim) to dst, which may be a. Panics: *ShapeError, *OpError.
func CumSumInto(dst, a *Tensor, dim int) {
	const op = "cumsum"
	dim = a.dim(op, dim)
	if a.dtype != I32 && (integers(a.dtype) || a.dtype.BlockSize() != 1) {
		misuse(op, "%v %s: want F32, F16, BF16 or I32", a.dtype, shapeString(a.shape))
	}
	if dst.dtype != a.dtype || !slices.Equal(dst.shape, a.shape) {
		misuse(op, "%v %s into %v %s", a.dtype, shapeString(a.shape), dst.dtype, shapeString(dst.shape))
	}
	exec(op, dst.Stream(), 1, func(k kernel.Stream, p pointers) error {
		return k.CumSum(p[0], p[1], a.dtype, extent(a.shape[:dim]), a.shape[dim], extent(a.shape[dim+1:]))
	}, dst, a)
}
