package purego

import (
	"fmt"
	"sync"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// mostRanks is the most that an adapter has, as csrc/ops.c has it.
const mostRanks = 256

// FusedUpdate computes row after row, with sums in float64.
func (s *stream) FusedUpdate(a *kernel.FusedUpdateArgs) error {
	size, err := checkFusedUpdate(a)
	if size == 0 || err != nil {
		return err
	}
	dst, x, codes := array{a.Out, a.Type}, array{a.X, a.Type}, array{a.Codes, a.Type}
	factors := sync.OnceValues(func() (v, u factor) { // by one of the threads, which are guarded
		return newFactor(a.V, a.WeightType, a.K, a.R, a.VTransposed), newFactor(a.U, a.WeightType, a.N, a.R, a.UTransposed)
	})
	s.device.parallel(a.M, grain(a.R*(a.K+a.N)), func(lo, hi int) {
		v, u := factors()
		h, xs, cs, ys := make([]float64, a.R), x.buffer(a.K), codes.buffer(a.R), dst.buffer(a.N)
		sums := make([]float64, a.N)
		for row := lo; row < hi; row++ {
			clear(h)
			if a.K > 0 && a.R > 0 {
				for i, value := range x.load(row*a.K, a.K, xs) {
					for r, w := range v.row(i) {
						h[r] += float64(value) * float64(w)
					}
				}
			}
			if a.Codes != nil && a.R > 0 {
				for r, code := range codes.load(row*a.CodesStride, a.R, cs) {
					if h[r] *= float64(code); code == 0 {
						h[r] = 0 // whatever x V is
					}
				}
			}
			clear(sums)
			if a.Add != nil {
				for i, value := range (array{a.Add, a.Type}).load(row*a.N, a.N, ys) {
					sums[i] = float64(value)
				}
			}
			out := dst.view(row*a.N, a.N, ys)
			for i := range out {
				sum := 0.0
				if a.R > 0 {
					for r, w := range u.row(i) {
						sum += h[r] * float64(w)
					}
				}
				out[i] = float32(sums[i] + float64(a.Scale)*sum)
			}
			dst.commit(row*a.N, out)
		}
	})
	return nil
}

// factor is V or U as rows of one element a rank, however it is stored.
type factor struct {
	values []float32
	ranks  int
}

func newFactor(data kernel.Ptr, t kernel.DType, rows, ranks int, transposed bool) factor {
	f := factor{make([]float32, rows*ranks), ranks}
	if len(f.values) == 0 {
		return f
	}
	stored := array{data, t}
	all := stored.load(0, rows*ranks, stored.buffer(rows*ranks))
	if !transposed {
		copy(f.values, all)
		return f
	}
	for r := range ranks {
		for i := range rows {
			f.values[i*ranks+r] = all[r*rows+i]
		}
	}
	return f
}

func (f factor) row(i int) []float32 { return f.values[i*f.ranks:][:f.ranks] }

// checkFusedUpdate returns how many elements the output has.
func checkFusedUpdate(a *kernel.FusedUpdateArgs) (size int, err error) {
	const op = "fused_update"
	size, err = volume(op, a.M, a.N)
	for _, product := range [][2]int{{a.M, a.K}, {a.K, a.R}, {a.N, a.R}, {a.M, a.CodesStride}} {
		if err == nil {
			_, err = volume(op, product[0], product[1])
		}
	}
	if err != nil {
		return 0, err
	}
	if a.CodesStride != 0 && a.CodesStride < a.R {
		return 0, fmt.Errorf("%s: rows of %d codes begin %d apart: %w", op, a.R, a.CodesStride, kernel.ErrInvalid)
	}
	if size == 0 {
		return 0, nil
	}
	if err := floatType(op, a.Type); err != nil {
		return 0, err
	}
	if a.WeightType != a.Type && (a.Type != kernel.F32 || a.WeightType != kernel.F16) {
		return 0, fmt.Errorf("%s: v and u of %v beside x of %v: %w", op, a.WeightType, a.Type, kernel.ErrInvalid)
	}
	for _, operand := range []struct {
		data  kernel.Ptr
		count int
	}{{a.Out, size}, {a.X, a.M * a.K}, {a.V, a.K * a.R}, {a.U, a.N * a.R}} {
		if operand.count > 0 {
			if err := notNil(op, operand.data); err != nil {
				return 0, err
			}
		}
	}
	element := a.Type.BlockBytes()
	out := matrices{a.Out, 1, 0, a.M, a.N, a.N, element}
	if a.K > 0 && out.overlap(matrices{a.X, 1, 0, a.M, a.K, a.K, element}) {
		return 0, fmt.Errorf("%s: out overlaps x: %w", op, kernel.ErrInvalid)
	}
	if a.R > mostRanks {
		return 0, fmt.Errorf("%s: %d ranks: %w", op, a.R, kernel.ErrUnsupported)
	}
	return size, nil
}
