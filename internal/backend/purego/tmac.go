package purego

import (
	"fmt"
	"math"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

func (s *stream) TMACLUT(lut, activations kernel.Ptr, k, n int) error {
	const op = "tmac_lut"
	if k < 0 || k > math.MaxInt-3 {
		return fmt.Errorf("%s: size %d: %w", op, k, kernel.ErrInvalid)
	}
	size, err := volume(op, n, (k+3)/4, 256)
	if size == 0 {
		return err
	}
	if err := notNil(op, lut, activations); err != nil {
		return err
	}
	x, table := slice[float32](activations, k*n), slice[float32](lut, size)
	s.device.parallel(n*((k+3)/4), grain(1024), func(lo, hi int) {
		for at := lo; at < hi; at++ {
			j, g := at/((k+3)/4), at%((k+3)/4)
			lookUpTable(table[at*256:(at+1)*256], func(i int) float32 {
				if 4*g+i >= k {
					return 0
				}
				return x[(4*g+i)*n+j]
			})
		}
	})
	return nil
}

// lookUpTable fills the table of four elements: each entry is that with one code 0 less, whose weight is -1, and an element more.
func lookUpTable(table []float32, x func(i int) float32) {
	table[0] = -(x(0) + x(1) + x(2) + x(3))
	for i := range 4 {
		step := 1 << (2 * i)
		for c := 1; c < 4; c++ {
			for e := range step {
				table[c*step+e] = table[e] + float32(c)*x(i)
			}
		}
	}
}

func (s *stream) TMACMatMul(a *kernel.TMACMatMulArgs) error {
	const op = "tmac_matmul"
	size, err := volume(op, a.M, a.N)
	if err != nil {
		return err
	}
	if _, err := volume(op, a.K, a.N); err != nil {
		return err
	}
	if _, err := volume(op, a.M, a.K); err != nil {
		return err
	}
	if a.Groups < 1 || a.Groups > 1 && a.K%(4*a.Groups) != 0 {
		return fmt.Errorf("%s: %d groups of %d elements: want equal ones of a multiple of 4: %w", op, a.Groups, a.K, kernel.ErrInvalid)
	}
	if _, err := volume(op, a.M, a.Groups); err != nil {
		return err
	}
	if size == 0 {
		return nil
	}
	bytes := (a.K + 3) / 4
	if a.LUT != nil && a.Normed {
		return fmt.Errorf("%s: a norm of activations behind a table: %w", op, kernel.ErrInvalid)
	}
	if err := notNil(op, a.Out); err != nil {
		return err
	}
	if a.K > 0 && (a.Weights == nil || a.Activations == nil && a.LUT == nil) {
		return notNil(op, nil)
	}
	out, w := slice[float32](a.Out, size), slice[byte](a.Weights, a.M*bytes)
	perGroup := max(1, (bytes+a.Groups-1)/a.Groups)
	column := make([]float32, bytes*4)
	tables := make([]float32, bytes*256)
	for j := range a.N {
		if a.LUT != nil {
			tables = slice[float32](a.LUT, a.N*bytes*256)[j*bytes*256:][:bytes*256]
		} else {
			normedColumn(a, column, j)
			for g := range bytes {
				lookUpTable(tables[g*256:][:256], func(i int) float32 { return column[4*g+i] })
			}
		}
		s.device.parallel(a.M, grain(bytes), func(lo, hi int) {
			for r := lo; r < hi; r++ {
				sum := 0.0
				for g := range a.Groups {
					part := 0.0
					for b := g * perGroup; b < min((g+1)*perGroup, bytes); b++ {
						part += float64(tables[b*256+int(w[r*bytes+b])])
					}
					if a.Scales != nil {
						part *= float64(slice[float32](a.Scales, a.M*a.Groups)[r*a.Groups+g])
					}
					sum += part
				}
				out[r*a.N+j] = float32(sum)
			}
		})
	}
	return nil
}

// normedColumn gathers column j of the activations, normed where that is asked for; what follows element k stays 0.
func normedColumn(a *kernel.TMACMatMulArgs, column []float32, j int) {
	x, squares := slice[float32](a.Activations, a.K*a.N), 0.0
	for k := range a.K {
		column[k] = x[k*a.N+j]
		squares += float64(column[k]) * float64(column[k])
	}
	if !a.Normed {
		return
	}
	factor := float32(1 / math.Sqrt(squares/float64(a.K)+float64(a.Eps)))
	for k := range a.K {
		column[k] *= factor
		if a.Norm != nil {
			column[k] *= slice[float32](a.Norm, a.K)[k]
		}
	}
}
