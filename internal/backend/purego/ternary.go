package purego

import (
	"fmt"
	"math"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

func (s *stream) NormQuantize(a *kernel.NormQuantizeArgs) error {
	const op = "norm_quantize"
	n, err := volume(op, a.Rows, a.Cols)
	if err != nil || a.Rows == 0 { // a row without elements has a scale all the same
		return err
	}
	if err := notNil(op, a.Scales); err != nil {
		return err
	}
	if n > 0 {
		if err := notNil(op, a.Codes, a.In); err != nil {
			return err
		}
	}
	act := func(g, _ float32) float64 { return float64(g) }
	up := a.In
	if a.Up != nil {
		if a.Activation != kernel.ActivationSiLU && a.Activation != kernel.ActivationReLUSquared {
			return fmt.Errorf("%s: activation %d: neither SiLU nor squared ReLU: %w", op, a.Activation, kernel.ErrInvalid)
		}
		up = a.Up
		if act, err = gate(op, a.Activation, 0, 0); err != nil {
			return err
		}
	}
	in, ups, codes, scales := slice[float32](a.In, n), slice[float32](up, n), slice[int8](a.Codes, n), slice[float32](a.Scales, a.Rows)
	var norm []float32
	if a.Norm != nil {
		norm = slice[float32](a.Norm, a.Cols)
	}
	s.device.parallel(a.Rows, grain(a.Cols), func(lo, hi int) {
		h := make([]float32, a.Cols)
		for r := lo; r < hi; r++ {
			sum := 0.0
			for c := range h {
				h[c] = float32(act(in[r*a.Cols+c], ups[r*a.Cols+c]))
				sum += float64(h[c]) * float64(h[c])
			}
			if a.Normed {
				factor := float32(1 / math.Sqrt(sum/float64(a.Cols)+float64(a.Eps)))
				for c := range h {
					h[c] *= factor
					if norm != nil {
						h[c] *= norm[c]
					}
				}
			}
			scales[r] = quantizeRow(codes[r*a.Cols:(r+1)*a.Cols], h)
		}
	})
	return nil
}

// quantizeRow rounds a row to int8 and returns what its elements were multiplied by.
func quantizeRow(codes []int8, h []float32) float32 {
	most := float32(1e-5)
	for _, x := range h {
		if x != x {
			most = x
			break
		}
		most = max(most, x, -x)
	}
	scale := 127 / most
	for c, x := range h {
		codes[c] = int8(max(-128, min(127, math.RoundToEven(float64(x*scale)))))
	}
	return scale
}

func (s *stream) DequantizeRows(out, codes, scales kernel.Ptr, rows, cols int) error {
	const op = "dequantize_rows"
	n, err := volume(op, rows, cols)
	if n == 0 {
		return err
	}
	if err := notNil(op, out, codes, scales); err != nil {
		return err
	}
	y, q, f := slice[float32](out, n), slice[int8](codes, n), slice[float32](scales, rows)
	s.device.parallel(rows, grain(cols), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			for c := r * cols; c < (r+1)*cols; c++ {
				y[c] = float32(q[c]) / f[r]
			}
		}
	})
	return nil
}

// int2RowBytes returns the bytes of a row of k two-bit weights.
func int2RowBytes(layout kernel.Int2Layout, k int) int {
	if layout == kernel.Int2Interleaved {
		return (k + 63) / 64 * 16
	}
	return (k + 3) / 4
}

// int2Place returns the byte of a row of n elements, and the bit in it, where element k lies (see vb_int2_layout).
func int2Place(layout kernel.Int2Layout, k, n int) (at, shift int) {
	if layout != kernel.Int2Interleaved {
		return k / 4, k % 4 * 2
	}
	pieces, word := min(8, (n+63)/64-k/512*8), k%512/16
	return k/512*128 + word%pieces*16 + word/pieces*4 + k%4, k % 16 / 4 * 2
}

func (s *stream) W2A8GEMV(a *kernel.W2A8GEMVArgs) error {
	const op = "w2a8_gemv"
	size, err := volume(op, a.M, a.N)
	if err != nil {
		return err
	}
	if _, err := volume(op, a.M, a.K); err != nil {
		return err
	}
	if _, err := volume(op, a.N, a.K); err != nil {
		return err
	}
	scaled := a.ActivationScales != nil || a.WeightScales != nil || a.SegmentEnds != nil || a.Bias != nil || a.Add != nil
	switch {
	case a.K%4 != 0 || a.K > 1<<22:
		return fmt.Errorf("%s: %d products a sum: no multiple of 4, or more than 2^22: %w", op, a.K, kernel.ErrInvalid)
	case a.Layout != kernel.Int2Rows && a.Layout != kernel.Int2Interleaved:
		return fmt.Errorf("%s: layout %d: %w", op, a.Layout, kernel.ErrInvalid)
	case a.RowBytes != int2RowBytes(a.Layout, a.K):
		return fmt.Errorf("%s: rows of %d bytes, want %d: %w", op, a.RowBytes, int2RowBytes(a.Layout, a.K), kernel.ErrInvalid)
	case size == 0:
		return nil
	case a.OutType != kernel.I32 && floatType(op, a.OutType) != nil:
		return floatType(op, a.OutType)
	case a.OutType == kernel.I32 && scaled:
		return fmt.Errorf("%s: scales, bias or add with sums of I32: %w", op, kernel.ErrInvalid)
	case a.Segments < 0 || a.Segments > a.N || a.WeightScales != nil && a.Segments == 0 || a.SegmentEnds != nil && a.WeightScales == nil:
		return fmt.Errorf("%s: %d segments of %d rows: %w", op, a.Segments, a.N, kernel.ErrInvalid)
	case a.Threads != 0 && a.Threads != 64 && a.Threads != 128 && a.Threads != 256 && a.Threads != 512 || a.Lanes != 0 && a.Lanes != 4 && a.Lanes != 8 && a.Lanes != 16 && a.Lanes != 32 || a.Tile < 0 || a.Tile > 2:
		return fmt.Errorf("%s: %d threads, %d lanes, tiles of %d: %w", op, a.Threads, a.Lanes, a.Tile, kernel.ErrInvalid)
	}
	if err := notNil(op, a.Out); err != nil {
		return err
	}
	if a.K > 0 {
		if err := notNil(op, a.Weights, a.Activations); err != nil {
			return err
		}
	}
	weights, x := slice[byte](a.Weights, a.N*a.RowBytes), slice[int8](a.Activations, a.M*a.K)
	scale := segmentScales(a)
	s.device.parallel(a.N, grain(a.M*a.K), func(lo, hi int) {
		row := make([]int32, a.K)
		for r := lo; r < hi; r++ {
			for k := range row {
				at, shift := int2Place(a.Layout, k, a.K)
				row[k] = int32(weights[r*a.RowBytes+at]>>shift&3) - 1
			}
			for i := range a.M {
				sum := int32(0)
				for k, w := range row {
					sum += w * int32(x[i*a.K+k])
				}
				at := i*a.N + r
				if a.OutType == kernel.I32 {
					slice[int32](a.Out, size)[at] = sum
					continue
				}
				v := float32(sum)
				if a.ActivationScales != nil {
					v /= slice[float32](a.ActivationScales, a.M)[i]
				}
				v *= scale(r)
				if a.Bias != nil {
					v += slice[float32](a.Bias, a.N)[r]
				}
				if a.Add != nil {
					v += slice[float32](a.Add, size)[at]
				}
				var one [1]float32
				y := array{a.Out, a.OutType}
				view := y.view(at, 1, one[:])
				view[0] = v
				y.commit(at, view)
			}
		}
	})
	return nil
}

func (s *stream) BitLinear(a *kernel.BitLinearArgs) error {
	const op = "bit_linear"
	matrices := []kernel.W2A8GEMVArgs{
		{Out: a.Out, Weights: a.Weights, WeightScales: a.WeightScales, Add: a.Add, N: a.N, Segments: a.Segments},
		{Out: a.Out2, Weights: a.Weights2, WeightScales: a.WeightScales2, N: a.N2, Segments: a.Segments2},
		{Out: a.Out3, Weights: a.Weights3, WeightScales: a.WeightScales3, N: a.N3, Segments: a.Segments3},
	}
	results := 0
	for i := range matrices {
		m := &matrices[i]
		m.M, m.K, m.RowBytes, m.Layout, m.OutType, m.Settled = a.M, a.K, a.RowBytes, a.Layout, kernel.F32, a.Settled
		m.Activations, m.ActivationScales = a.Codes, a.Scales
		size, err := volume(op, m.M, m.N)
		if err != nil {
			return err
		}
		results += size
		if size > 0 && m.WeightScales == nil {
			return fmt.Errorf("%s: matrix %d without scales: %w", op, i, kernel.ErrInvalid)
		}
	}
	if results == 0 {
		return nil
	}
	if err := s.NormQuantize(&kernel.NormQuantizeArgs{Codes: a.Codes, Scales: a.Scales, In: a.In, Up: a.Up, Norm: a.Norm, Rows: a.M, Cols: a.K,
		Activation: a.Activation, Eps: a.Eps, Normed: a.Normed}); err != nil {
		return err
	}
	for i := range matrices {
		if err := s.W2A8GEMV(&matrices[i]); err != nil {
			return err
		}
	}
	return nil
}

// segmentScales returns the scale of each row of weights.
func segmentScales(a *kernel.W2A8GEMVArgs) func(r int) float32 {
	if a.WeightScales == nil {
		return func(int) float32 { return 1 }
	}
	scales := slice[float32](a.WeightScales, a.Segments)
	if a.SegmentEnds == nil {
		return func(r int) float32 { return scales[r*a.Segments/a.N] }
	}
	ends := slice[int32](a.SegmentEnds, a.Segments)
	return func(r int) float32 {
		j := 0
		for j+1 < len(ends) && r >= int(ends[j]) {
			j++
		}
		return scales[j]
	}
}
