package purego

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

func (s *stream) WeightPack(out kernel.Ptr, w kernel.Weight) error {
	return fmt.Errorf("weight_pack: %w", kernel.ErrUnsupported)
}

// panels keeps the float32 rows of Linear between calls.
var panels sync.Pool

func ptr[T any](v T) *T { return &v }

// Linear takes weight rows in groups: each is turned into float32 once, then multiplied with every row of x, so that a
// group stays in the first-level caches while x streams past.
func (s *stream) Linear(y, x kernel.Ptr, w kernel.Weight, bias kernel.Ptr, n int) error {
	const op, group = "linear", 8
	bytes, err := weightBytes(op, w)
	if err != nil {
		return err
	}
	if size, err := volume(op, n, w.Rows); size == 0 {
		return err
	}
	if _, err := volume(op, n, w.Cols); err != nil {
		return err
	}
	if err := notNil(op, y); err != nil {
		return err
	}
	if bytes > 0 {
		if err := notNil(op, x, w.Data); err != nil {
			return err
		}
		if (matrices{y, 1, 0, n, w.Rows, w.Rows, 4}).overlap(matrices{x, 1, 0, n, w.Cols, w.Cols, 4}) {
			return fmt.Errorf("%s: y overlaps x: %w", op, kernel.ErrInvalid)
		}
	}
	out, in, b := slice[float32](y, n*w.Rows), slice[float32](x, n*w.Cols), optional(bias, w.Rows)
	rowBytes := w.Type.Bytes(w.Cols)
	groups := (w.Rows + group - 1) / group
	s.device.parallel(groups, grain(group*w.Cols*n), func(lo, hi int) {
		scratch, _ := panels.Get().(*[]float32)
		if scratch == nil || len(*scratch) < group*w.Cols {
			scratch = ptr(make([]float32, group*w.Cols))
		}
		defer panels.Put(scratch)
		buf := *scratch
		for r0 := lo * group; r0 < min(hi*group, w.Rows); r0 += group {
			rows := min(group, w.Rows-r0)
			for r := range rows {
				if w.Cols > 0 {
					dequantize(buf[r*w.Cols:(r+1)*w.Cols], unsafe.Add(w.Data, int64(r0+r)*rowBytes), w.Type)
				}
			}
			for i := range n {
				xs := in[i*w.Cols : (i+1)*w.Cols]
				for r := range rows {
					v := dot(buf[r*w.Cols:(r+1)*w.Cols], xs)
					if b != nil {
						v += float64(b[r0+r])
					}
					out[i*w.Rows+r0+r] = float32(v)
				}
			}
		}
	})
	return nil
}

// dot sums in float32 over runs of 64 products a lane, in float64 over the runs.
func dot(a, b []float32) (sum float64) {
	const run = 256
	b = b[:len(a)]
	for len(a) >= 4 {
		n := min(run, len(a)&^3)
		p, q := a[:n], b[:n]
		var s0, s1, s2, s3 float32
		for len(p) >= 4 && len(q) >= 4 {
			s0 += p[0] * q[0]
			s1 += p[1] * q[1]
			s2 += p[2] * q[2]
			s3 += p[3] * q[3]
			p, q = p[4:], q[4:]
		}
		sum += float64(s0) + float64(s1) + (float64(s2) + float64(s3))
		a, b = a[n:], b[n:]
	}
	for i, v := range a {
		sum += float64(v) * float64(b[i])
	}
	return sum
}

func (s *stream) Embedding(out kernel.Ptr, table kernel.Weight, ids kernel.Ptr, n int) error {
	const op = "embedding"
	if _, err := weightBytes(op, table); err != nil {
		return err
	}
	if size, err := volume(op, n, table.Cols); size == 0 {
		return err
	}
	if err := notNil(op, out, ids, table.Data); err != nil {
		return err
	}
	list := slice[int32](ids, n)
	for i, id := range list {
		if id < 0 || int(id) >= table.Rows {
			return fmt.Errorf("%s: id %d at %d, the table has %d rows: %w", op, id, i, table.Rows, kernel.ErrInvalid)
		}
	}
	dst := slice[float32](out, n*table.Cols)
	rowBytes := table.Type.Bytes(table.Cols)
	s.device.parallel(n, grain(table.Cols), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			dequantize(dst[i*table.Cols:(i+1)*table.Cols], unsafe.Add(table.Data, int64(list[i])*rowBytes), table.Type)
		}
	})
	return nil
}
