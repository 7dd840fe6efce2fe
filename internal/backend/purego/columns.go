package purego

import (
	"fmt"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

func (s *stream) MulRows(out, a, factors kernel.Ptr, t kernel.DType, rows, cols int) error {
	if n, err := rowsOf("mul_rows", t, rows, cols, out, a, factors); n == 0 || err != nil {
		return err
	}
	dst, src, f := array{out, t}, array{a, t}, slice[float32](factors, rows)
	s.device.parallel(rows, grain(cols), func(lo, hi int) {
		buf := src.buffer(cols)
		for r := lo; r < hi; r++ {
			x := src.load(r*cols, cols, buf)
			y := dst.view(r*cols, cols, buf)
			for i, v := range x {
				y[i] = v * f[r]
			}
			dst.commit(r*cols, y)
		}
	})
	return nil
}

func (s *stream) CopyColumns(out kernel.Ptr, outCols, outFirst int, in kernel.Ptr, inCols, inFirst int, t kernel.DType, rows, cols int) error {
	const op = "copy_columns"
	if t != kernel.I32 {
		if err := floatType(op, t); err != nil {
			return err
		}
	}
	if cols < 0 || outFirst < 0 || inFirst < 0 || cols > outCols-outFirst || cols > inCols-inFirst {
		return fmt.Errorf("%s: %d columns, from %d of %d to %d of %d: %w", op, cols, inFirst, inCols, outFirst, outCols, kernel.ErrInvalid)
	}
	for _, of := range [2]int{outCols, inCols} {
		if _, err := volume(op, rows, of); err != nil {
			return err
		}
	}
	if rows == 0 || cols == 0 {
		return nil
	}
	if err := notNil(op, out, in); err != nil {
		return err
	}
	bytes := int(t.Bytes(cols))
	s.device.parallel(rows, grain(cols), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			to, from := unsafe.Add(out, t.Bytes(r*outCols+outFirst)), unsafe.Add(in, t.Bytes(r*inCols+inFirst))
			copy(slice[byte](to, bytes), slice[byte](from, bytes))
		}
	})
	return nil
}
