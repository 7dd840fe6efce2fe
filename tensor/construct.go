package tensor

import (
	"slices"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// made returns a tensor on a stream, whose elements an expression makes of their numbers.
func made(op string, s *gpu.Stream, t DType, shape []int, f func(p *program) Expr) *Tensor {
	out := output(op, s, t, slices.Clone(shape))
	mapInto(op, out, func(p *program, _ []Expr) Expr { return f(p) })
	return out
}

// Full returns a tensor of one value, which its type holds: a fraction or a number out of the range of whole numbers panics.
// Panics: *ShapeError, *OpError.
func Full(s *gpu.Stream, v float64, t DType, shape ...int) *Tensor {
	return made("full", s, t, shape, func(p *program) Expr { return p.element(t, v) })
}

// Fill writes one value to all elements of dst. Panics: *ShapeError, *OpError.
func Fill(dst *Tensor, v float64) {
	mapInto("fill", dst, func(p *program, _ []Expr) Expr { return p.element(dst.dtype, v) })
}

// Ones returns a tensor of ones. Panics: *ShapeError, *OpError.
func Ones(s *gpu.Stream, t DType, shape ...int) *Tensor { return Full(s, 1, t, shape...) }

// Arange returns start, start + step, ... of n elements: F32, F16, BF16, or I32 of whole numbers.
// Panics: *ShapeError, *OpError.
func Arange(s *gpu.Stream, start, step float64, n int, t DType) *Tensor {
	return made("arange", s, t, []int{n}, func(p *program) Expr {
		i := p.index()
		if !integers(t) {
			i = i.To(F32)
		}
		i = i.MulScalar(step).AddScalar(start)
		return i.To(t)
	})
}

// Eye returns the matrix (rows, cols) of ones on the diagonal. Panics: *ShapeError, *OpError.
func Eye(s *gpu.Stream, t DType, rows, cols int) *Tensor {
	out := output("eye", s, t, []int{rows, cols})
	out.Zero()
	if n := min(rows, cols); n > 0 {
		Fill(out.strided([]int{n}, []int{cols + 1}, 0), 1)
	}
	return out
}

// Tril returns the matrices in the last two dimensions of a with zeros above diagonal k, where column - row > k.
// Panics: *ShapeError, *OpError.
func Tril(a *Tensor, k int) *Tensor { return triangle("tril", a, k, false) }

// Triu returns the matrices in the last two dimensions of a with zeros below diagonal k, where column - row < k.
// Panics: *ShapeError, *OpError.
func Triu(a *Tensor, k int) *Tensor { return triangle("triu", a, k, true) }

func triangle(op string, a *Tensor, k int, upper bool) *Tensor {
	if len(a.shape) < 2 {
		misuse(op, "%s: want matrices", shapeString(a.shape))
	}
	rows, cols := Arange(a.Stream(), 0, 1, a.Dim(-2), I32), Arange(a.Stream(), 0, 1, a.Dim(-1), I32)
	defer rows.Free()
	defer cols.Free()
	return mapped(op, func(_ *program, in []Expr) Expr {
		across := in[2].Sub(in[1])
		keeps := across.Le(across.Const(float64(k)))
		if upper {
			keeps = across.Ge(across.Const(float64(k)))
		}
		return keeps.Where(in[0], in[0].Const(0))
	}, a, rows.Unsqueeze(1), cols)
}

// OneHot returns ids (I32, any shape) as rows of n elements (ids..., n) that are 1 at the id and else 0.
// Panics: *ShapeError, *OpError.
func OneHot(ids *Tensor, n int, t DType) *Tensor {
	const op = "one-hot"
	if ids.dtype != I32 {
		misuse(op, "%v %s: want I32", ids.dtype, shapeString(ids.shape))
	}
	places := Arange(ids.Stream(), 0, 1, n, I32)
	defer places.Free()
	return mapped(op, two(func(id, place Expr) Expr { return id.Eq(place).To(t) }), ids.Unsqueeze(-1), places)
}

// random returns a random number for each element: from 0 up to 1 of so many bits, or for 0 bits a normal one.
func (p *program) random(seed uint64, bits int32) Expr {
	return Expr{p: p, id: p.step(kernel.ElementRandom, int32(uint32(seed)), int32(uint32(seed>>32)), bits), dtype: F32}
}

// significant are the bits of a fraction that each type of floats holds, so that none is rounded to 1.
var significant = map[DType]int32{F32: 24, F16: 11, BF16: 8}

// Rand returns numbers evenly distributed over 0 up to 1, F32, F16 or BF16, which the seed determines: the same on every device. They are
// the upper bits, 24, 11 or 8, of the words of Philox 4x32-10 whose counters are the elements' numbers divided by 4.
// Panics: *ShapeError, *OpError.
func Rand(s *gpu.Stream, seed uint64, t DType, shape ...int) *Tensor {
	bits, ok := significant[t]
	if !ok {
		misuse("rand", "%v: want F32, F16 or BF16", t)
	}
	return made("rand", s, t, shape, func(p *program) Expr { return p.random(seed, bits).To(t) })
}

// RandN returns normally distributed numbers, F32, F16 or BF16, which the seed determines, by Box & Muller (1958): of two words of Philox
// 4x32-10 for two elements, the same on every device to the accuracy of its logarithm and cosine. Panics: *ShapeError, *OpError.
func RandN(s *gpu.Stream, seed uint64, t DType, shape ...int) *Tensor {
	if _, ok := significant[t]; !ok {
		misuse("randn", "%v: want F32, F16 or BF16", t)
	}
	return made("randn", s, t, shape, func(p *program) Expr { return p.random(seed, 0).To(t) })
}

// Concat joins tensors of one type along a dimension; they are of one shape but for that.
// Panics: *ShapeError, *OpError.
func Concat(dim int, parts ...*Tensor) *Tensor {
	const op = "concat"
	if len(parts) == 0 {
		misuse(op, "no tensors")
	}
	dim = parts[0].dim(op, dim)
	shape := parts[0].Shape()
	for _, t := range parts[1:] {
		if t.dtype != parts[0].dtype || len(t.shape) != len(shape) {
			misuse(op, "%v %s and %v %s", parts[0].dtype, shapeString(parts[0].shape), t.dtype, shapeString(t.shape))
		}
		for d, n := range t.shape {
			if d != dim && n != shape[d] {
				misuse(op, "%s and %s: dimension %d differs", shapeString(parts[0].shape), shapeString(t.shape), d)
			}
		}
		shape[dim] += t.shape[dim]
	}
	out := output(op, parts[0].Stream(), parts[0].dtype, shape)
	at := 0
	for _, t := range parts {
		CopyInto(out.SliceAlong(dim, at, at+t.shape[dim], 1), t)
		at += t.shape[dim]
	}
	return out
}

// Stack joins tensors of one shape along a new dimension before dimension dim. Panics: *ShapeError, *OpError.
func Stack(dim int, parts ...*Tensor) *Tensor {
	wide := make([]*Tensor, len(parts))
	for i, t := range parts {
		wide[i] = t.Unsqueeze(dim)
	}
	if dim < 0 && len(parts) > 0 {
		dim += len(wide[0].shape)
	}
	return Concat(dim, wide...)
}

// Split returns views of size places each along a dimension; the last may have fewer. Panics: *ShapeError.
func (t *Tensor) Split(dim, size int) []*Tensor {
	dim = t.dim("split", dim)
	if size < 1 {
		misuse("split", "%s into %d places each", shapeString(t.shape), size)
	}
	var parts []*Tensor
	for at := 0; at < t.shape[dim]; at += size {
		parts = append(parts, t.SliceAlong(dim, at, min(at+size, t.shape[dim]), 1))
	}
	return parts
}

// Pad returns a with before places of a value ahead of its own along a dimension, and after behind them.
// Panics: *ShapeError, *OpError.
func Pad(a *Tensor, dim, before, after int, v float64) *Tensor {
	const op = "pad"
	dim = a.dim(op, dim)
	if before < 0 || after < 0 {
		misuse(op, "%d and %d places", before, after)
	}
	shape := a.Shape()
	shape[dim] += before + after
	out := Full(a.Stream(), v, a.dtype, shape...)
	CopyInto(out.SliceAlong(dim, before, before+a.shape[dim], 1), a)
	return out
}

// Repeat returns a as many times along each dimension as counts says: numpy's tile. Panics: *ShapeError, *OpError.
func Repeat(a *Tensor, counts ...int) *Tensor {
	const op = "repeat"
	if len(counts) != len(a.shape) {
		misuse(op, "%v of %s: want a number for each dimension", counts, shapeString(a.shape))
	}
	var repeated, shape []int
	view := a
	for d, n := range counts {
		if n < 0 {
			misuse(op, "%v of %s", counts, shapeString(a.shape))
		}
		view = view.Unsqueeze(2 * d)
		repeated, shape = append(repeated, n, a.shape[d]), append(shape, n*a.shape[d])
	}
	return view.BroadcastTo(repeated...).Reshape(shape...)
}

// At returns the element at a place, for which it waits. Panics: *ShapeError, *OpError.
func (t *Tensor) At(place ...int) float64 {
	x := t.at("at", place)
	if integers(t.dtype) {
		return float64(x.Int32s()[0])
	}
	return float64(x.Float32s()[0])
}

// Set writes the element at a place, in stream order. Panics: *ShapeError, *OpError.
func (t *Tensor) Set(v float64, place ...int) {
	mapInto("set", t.at("set", place), func(p *program, _ []Expr) Expr { return p.element(t.dtype, v) })
}

func (t *Tensor) at(op string, place []int) *Tensor {
	if len(place) != len(t.shape) {
		misuse(op, "place %v of %s", place, shapeString(t.shape))
	}
	for range place {
		t = t.Select(0, place[0])
		place = place[1:]
	}
	return t
}
