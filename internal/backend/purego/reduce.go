package purego

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// state is what a reduction knows of the elements so far: floats in float64, integers as they are.
type state struct {
	a, b float64
	i    int64
	n    int // elements
	at   int // of the one that is kept
}

// Reduce takes the elements of each result one after the other.
func (s *stream) Reduce(a *kernel.ReduceArgs) error {
	if a.Reduced < 0 || a.Rank < 0 || a.Rank > kernel.MaxDims || a.Reduced >= 1<<a.Rank {
		return fmt.Errorf("reduce: dimensions %b of %d: %w", a.Reduced, a.Rank, kernel.ErrInvalid)
	}
	kept, inner := a.Sizes, a.Sizes
	out, within := a.Out, a.In
	results, count := 1, 1
	for d := range a.Rank {
		if a.Reduced>>d&1 == 1 {
			if a.Out.Strides[d] != 0 {
				return fmt.Errorf("reduce: stride %d of a reduced dimension: %w", a.Out.Strides[d], kernel.ErrInvalid)
			}
			kept[d] = 1
			count *= a.Sizes[d]
		} else {
			inner[d], within.Strides[d] = 1, 0
			results *= a.Sizes[d]
		}
	}
	if n, err := strided("reduce", a.Sizes, a.Rank, kernel.View{Data: a.In.Data, Type: a.In.Type, Strides: rowMajor(a.Sizes, a.Rank)}, a.In); n == 0 || err != nil {
		return err
	}
	if _, err := strided("reduce", kept, a.Rank, out, a.In); err != nil {
		return err
	}
	ints := integer(a.In.Type)
	names := a.Reduction >= kernel.ReductionArgmax && a.Reduction <= kernel.ReductionAll
	switch {
	case a.Reduction < 0 || a.Reduction > kernel.ReductionLogSumExp,
		a.Reduction >= kernel.ReductionMean && ints, integer(out.Type) != (ints || names),
		a.Reduction == kernel.ReductionNorm && a.Parameter != 1 && a.Parameter != 2 && !math.IsInf(float64(a.Parameter), 1):
		return fmt.Errorf("reduce: reduction %d (%v) of %v to %v: %w", a.Reduction, a.Parameter, a.In.Type, out.Type, kernel.ErrInvalid)
	}
	s.device.parallel(results, grain(count), func(lo, hi int) {
		x, at := values{make([]float32, piece), make([]int32, piece)}, make([]int, piece)
		result := values{make([]float32, 1), make([]int32, 1)}
		from, to := make([]int, 1), make([]int, 1)
		for ; lo < hi; lo++ {
			places(from, a.In, kept[:a.Rank], lo)
			elements := within
			elements.Data = unsafe.Add(within.Data, from[0]*within.Type.BlockBytes())
			st := begin(a.Reduction)
			for first := 0; first < count; first += piece {
				at := at[:min(piece, count-first)]
				places(at, elements, inner[:a.Rank], first)
				fetch(x, elements, at)
				for k := range at {
					st.take(a, ints, x.f[k], x.i[k])
				}
			}
			result.f[0], result.i[0] = st.result(a, ints)
			places(to, out, kept[:a.Rank], lo)
			put(out, to, result)
		}
	})
	return nil
}

func rowMajor(sizes [kernel.MaxDims]int, rank int) (strides [kernel.MaxDims]int) {
	n := 1
	for d := rank - 1; d >= 0; d-- {
		strides[d] = n
		n *= sizes[d]
	}
	return strides
}

func begin(r kernel.Reduction) state {
	switch r {
	case kernel.ReductionProd:
		return state{a: 1, i: 1}
	case kernel.ReductionLogSumExp:
		return state{a: math.Inf(-1)}
	case kernel.ReductionAll:
		return state{i: 1}
	}
	return state{}
}

func (s *state) take(a *kernel.ReduceArgs, ints bool, f float32, i int32) {
	x, w := float64(f), int64(i)
	if ints {
		x = float64(i)
	}
	s.n++
	switch a.Reduction {
	case kernel.ReductionSum, kernel.ReductionMean:
		s.a, s.i = s.a+x, s.i+w
	case kernel.ReductionProd:
		s.a, s.i = s.a*x, int64(int32(s.i*w))
	case kernel.ReductionMax, kernel.ReductionArgmax:
		if s.n == 1 || x > s.a || x != x && s.a == s.a {
			s.a, s.i, s.at = x, w, s.n-1
		}
	case kernel.ReductionMin, kernel.ReductionArgmin:
		if s.n == 1 || x < s.a || x != x && s.a == s.a {
			s.a, s.i, s.at = x, w, s.n-1
		}
	case kernel.ReductionAny:
		s.i |= int64(one(x != 0))
	case kernel.ReductionAll:
		s.i &= int64(one(x != 0))
	case kernel.ReductionVar: // Welford's
		d := x - s.a
		s.a += d / float64(s.n)
		s.b += d * (x - s.a)
	case kernel.ReductionNorm:
		switch {
		case a.Parameter == 1:
			s.a += math.Abs(x)
		case a.Parameter == 2:
			s.a += x * x
		default:
			s.a = max(s.a, math.Abs(x))
		}
	case kernel.ReductionLogSumExp:
		switch {
		case x == s.a && x != math.Inf(-1):
			s.b++
		case x > s.a:
			s.a, s.b = x, s.b*math.Exp(s.a-x)+1
		case x != math.Inf(-1):
			s.b += math.Exp(x - s.a)
		}
	}
}

func (s *state) result(a *kernel.ReduceArgs, ints bool) (float32, int32) {
	switch a.Reduction {
	case kernel.ReductionMean:
		return float32(s.a / float64(s.n)), 0
	case kernel.ReductionArgmax, kernel.ReductionArgmin:
		return 0, int32(s.at)
	case kernel.ReductionVar:
		return float32(s.b / max(0, float64(s.n)-float64(a.Parameter))), 0
	case kernel.ReductionNorm:
		if a.Parameter == 2 {
			return float32(math.Sqrt(s.a)), 0
		}
	case kernel.ReductionLogSumExp:
		return float32(s.a + math.Log(s.b)), 0
	}
	return float32(s.a), int32(s.i)
}

// CumSum sums along the middle dimension.
func (s *stream) CumSum(out, in kernel.Ptr, t kernel.DType, rows, n, cols int) error {
	if total, err := volume("cumsum", rows, n, cols); total == 0 {
		return err
	}
	if err := notNil("cumsum", out, in); err != nil {
		return err
	}
	if t == kernel.I32 {
		x, y := slice[int32](in, rows*n*cols), slice[int32](out, rows*n*cols)
		for r := range rows {
			for c := range cols {
				sum := int32(0)
				for i := range n {
					at := (r*n+i)*cols + c
					sum += x[at]
					y[at] = sum
				}
			}
		}
		return nil
	}
	if err := floatType("cumsum", t); err != nil {
		return err
	}
	src, dst := array{in, t}, array{out, t}
	s.device.parallel(rows, grain(n*cols), func(lo, hi int) {
		sums, buf := make([]float64, cols), src.buffer(cols)
		for r := lo; r < hi; r++ {
			clear(sums)
			for i := range n {
				at := (r*n + i) * cols
				x := src.load(at, cols, buf)
				v := dst.view(at, cols, x)
				for c := range v {
					sums[c] += float64(x[c])
					v[c] = float32(sums[c])
				}
				dst.commit(at, v)
			}
		}
	})
	return nil
}

// Index copies or adds elements whose places are in memory.
func (s *stream) Index(a *kernel.IndexArgs) error {
	if a.Dim < 0 || a.Dim >= a.Rank {
		return fmt.Errorf("index: dimension %d of %d: %w", a.Dim, a.Rank, kernel.ErrInvalid)
	}
	ids := kernel.View{Data: a.IDs.Data, Type: a.IDs.Type, Strides: rowMajor(a.IDsSizes, a.Rank)}
	n, err := strided("index", a.IDsSizes, a.Rank, ids, a.IDs)
	if n == 0 || err != nil {
		return err
	}
	gathers := a.Indexing == kernel.IndexingGather
	named, sizes := a.In, a.InSizes // of what ids name
	if !gathers {
		named, sizes = a.Out, a.OutSizes
	}
	if err := notNil("index", a.Out.Data, a.In.Data); err != nil {
		return err
	}
	if a.IDs.Type != kernel.I32 || a.In.Type != a.Out.Type || a.Indexing == kernel.IndexingScatterAdd && a.In.Type != kernel.F32 && a.In.Type != kernel.I32 {
		return fmt.Errorf("index: %v by %v to %v: %w", a.In.Type, a.IDs.Type, a.Out.Type, kernel.ErrInvalid)
	}
	at, id := make([]int, 1), make([]int, 1)
	step := named.Strides[a.Dim]
	named.Strides[a.Dim] = 0
	bytes := a.In.Type.BlockBytes()
	for k := range n {
		places(id, a.IDs, a.IDsSizes[:a.Rank], k)
		i := int(*(*int32)(unsafe.Add(a.IDs.Data, 4*id[0])))
		if i < 0 || i >= sizes[a.Dim] {
			return fmt.Errorf("index: id %d of a dimension of %d: %w", i, sizes[a.Dim], kernel.ErrInvalid)
		}
		places(at, named, a.IDsSizes[:a.Rank], k)
		p := unsafe.Add(named.Data, (at[0]+i*step)*bytes)
		if gathers {
			places(at, a.Out, a.IDsSizes[:a.Rank], k)
			copy(unsafe.Slice((*byte)(unsafe.Add(a.Out.Data, at[0]*bytes)), bytes), unsafe.Slice((*byte)(p), bytes))
			continue
		}
		places(at, a.In, a.IDsSizes[:a.Rank], k)
		q := unsafe.Add(a.In.Data, at[0]*bytes)
		switch {
		case a.Indexing == kernel.IndexingScatter:
			copy(unsafe.Slice((*byte)(p), bytes), unsafe.Slice((*byte)(q), bytes))
		case a.In.Type == kernel.F32:
			*(*float32)(p) += *(*float32)(q)
		default:
			*(*int32)(p) += *(*int32)(q)
		}
	}
	return nil
}
