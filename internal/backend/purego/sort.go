package purego

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// Sort puts the first elements of each line in order.
func (s *stream) Sort(a *kernel.SortArgs) error {
	if a.Dim < 0 || a.Dim >= a.Rank || a.Rank > kernel.MaxDims {
		return fmt.Errorf("sort: dimension %d of %d: %w", a.Dim, a.Rank, kernel.ErrInvalid)
	}
	k, n := a.OutSizes[a.Dim], a.Sizes[a.Dim]
	rest := a.OutSizes
	rest[a.Dim] = n
	if rest != a.Sizes || k > n || n > math.MaxInt32 || a.Values.Data == nil && a.Indices.Data == nil {
		return fmt.Errorf("sort: %v of %v: %w", a.OutSizes[:a.Rank], a.Sizes[:a.Rank], kernel.ErrInvalid)
	}
	out := make([]kernel.View, 0, 2)
	for _, v := range []kernel.View{a.Values, a.Indices} {
		if v.Data != nil {
			out = append(out, v)
		}
	}
	for _, v := range out {
		if total, err := strided("sort", a.OutSizes, a.Rank, v, a.In); total == 0 || err != nil {
			return err
		}
	}
	if a.Values.Data != nil && a.Values.Type != a.In.Type || a.Indices.Data != nil && a.Indices.Type != kernel.I32 {
		return fmt.Errorf("sort: %v to %v and %v: %w", a.In.Type, a.Values.Type, a.Indices.Type, kernel.ErrInvalid)
	}
	lines := 1
	sizes := a.Sizes
	sizes[a.Dim] = 1
	for _, d := range sizes[:a.Rank] {
		lines *= d
	}
	bytes := a.In.Type.BlockBytes()
	s.device.parallel(lines, grain(8*n), func(lo, hi int) {
		x, at, order := values{make([]float32, n), make([]int32, n)}, make([]int, n), make([]int32, n)
		from, to := make([]int, 1), make([]int, 1)
		for ; lo < hi; lo++ {
			places(from, a.In, sizes[:a.Rank], lo)
			for i := range n {
				at[i], order[i] = from[0]+i*a.In.Strides[a.Dim], int32(i)
			}
			fetch(x, a.In, at)
			compare := func(i, j int32) int { return cmp.Compare(x.i[i], x.i[j]) }
			if !integer(a.In.Type) {
				compare = func(i, j int32) int { return compareFloats(x.f[i], x.f[j]) }
			}
			slices.SortStableFunc(order, func(i, j int32) int {
				if a.Descending {
					i, j = j, i
				}
				return compare(i, j)
			})
			if a.Indices.Data != nil {
				places(to, a.Indices, sizes[:a.Rank], lo)
				for i, id := range order[:k] {
					*(*int32)(unsafe.Add(a.Indices.Data, 4*(to[0]+i*a.Indices.Strides[a.Dim]))) = id
				}
			}
			if a.Values.Data != nil {
				places(to, a.Values, sizes[:a.Rank], lo)
				for i, id := range order[:k] {
					dst := unsafe.Add(a.Values.Data, (to[0]+i*a.Values.Strides[a.Dim])*bytes)
					copy(unsafe.Slice((*byte)(dst), bytes), unsafe.Slice((*byte)(unsafe.Add(a.In.Data, at[id]*bytes)), bytes))
				}
			}
		}
	})
	return nil
}

// compareFloats has NaN as the greatest.
func compareFloats(x, y float32) int {
	switch {
	case x != x || y != y:
		return int(one(x != x) - one(y != y))
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}
