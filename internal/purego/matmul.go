package purego

import (
	"github.com/vibrant-ml/vibrant/internal/kernel"
)

func (s *stream) MatMulSingleRow(c, a, b kernel.Ptr, t kernel.DType, k, n int) error {
	return s.MatMul(c, a, b, t, 1, k, n)
}

// MatMul walks panels of columns, so that the sums of one row of a panel stay in the cache; each sum is float32 over
// runs of 64 products and float64 over the runs.
func (s *stream) MatMul(c, a, b kernel.Ptr, t kernel.DType, m, k, n int) error {
	const op, run, panel = "matmul", 64, 256
	if size, err := volume(op, m, n); size == 0 {
		if err == nil {
			_, err = volume(op, m, k, n)
		}
		return err
	}
	if err := floatType(op, t); err != nil {
		return err
	}
	for _, shape := range [][2]int{{m, k}, {k, n}} {
		if _, err := volume(op, shape[0], shape[1]); err != nil {
			return err
		}
	}
	if err := notNil(op, c); err != nil {
		return err
	}
	if k > 0 {
		if err := notNil(op, a, b); err != nil {
			return err
		}
	}
	dst, x, y := array{c, t}, array{a, t}, array{b, t}
	panels := (n + panel - 1) / panel
	rows := min(max(m*panels/(4*s.device.threads), 1), m, 64) // rows that share a panel of b while it is in the cache
	tiles := (m + rows - 1) / rows
	s.device.parallel(panels*tiles, 1, func(lo, hi int) {
		abuf, bbuf, cbuf := x.buffer(run), y.buffer(panel), dst.buffer(panel)
		sums := make([]float64, rows*panel)
		var part [panel]float32
		for item := lo; item < hi; item++ {
			j, i0 := item/tiles*panel, item%tiles*rows
			w, i1 := min(panel, n-j), min(i0+rows, m)
			clear(sums)
			for l0 := 0; l0 < k; l0 += run {
				l1 := min(l0+run, k)
				for i := i0; i < i1; i++ {
					p := part[:w]
					clear(p)
					for l, av := range x.load(i*k+l0, l1-l0, abuf) {
						for q, bv := range y.load((l0+l)*n+j, w, bbuf)[:len(p)] {
							p[q] += av * bv
						}
					}
					sum := sums[(i-i0)*panel:][:w]
					for q, v := range p {
						sum[q] += float64(v)
					}
				}
			}
			for i := i0; i < i1; i++ {
				out := dst.view(i*n+j, w, cbuf)
				for q := range out {
					out[q] = float32(sums[(i-i0)*panel+q])
				}
				dst.commit(i*n+j, out)
			}
		}
	})
	return nil
}
