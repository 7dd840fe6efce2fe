package purego

import (
	"cmp"
	"fmt"
	"math"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

func (s *stream) RoPE(a *kernel.RoPEArgs) error {
	const op = "rope"
	if err := floatType(op, a.Type); err != nil {
		return err
	}
	n, err := volume(op, a.Batch, a.Heads, a.Seq, a.Dim)
	if n == 0 {
		return err
	}
	if a.Half < 0 || 2*a.Half > a.Dim {
		return fmt.Errorf("%s: half = %d of rows of %d: %w", op, a.Half, a.Dim, kernel.ErrInvalid)
	}
	if _, err := volume(op, a.TableRows, a.Half); err != nil {
		return err
	}
	if a.Mode != kernel.RoPEInterleaved && a.Mode != kernel.RoPENeoX {
		return fmt.Errorf("%s: mode %d: %w", op, a.Mode, kernel.ErrInvalid)
	}
	if err := notNil(op, a.Out, a.In); err != nil {
		return err
	}
	if _, err := volume(op, a.Batch, a.PositionStride); err != nil {
		return err
	}
	if a.Half > 0 {
		if err := notNil(op, a.Cos, a.Sin); err != nil {
			return err
		}
	}
	position := func(b, i int) int { return i }
	if a.Positions != nil {
		list := slice[int32](a.Positions, (a.Batch-1)*a.PositionStride+a.Seq)
		position = func(b, i int) int { return int(list[b*a.PositionStride+i]) }
	}
	for b := range a.Batch {
		for i := range a.Seq {
			if p := position(b, i); p < 0 || p >= a.TableRows {
				return fmt.Errorf("%s: position %d, the tables have %d rows: %w", op, p, a.TableRows, kernel.ErrInvalid)
			}
		}
	}
	cos, sin := slice[float32](a.Cos, a.TableRows*a.Half), slice[float32](a.Sin, a.TableRows*a.Half)
	dst, src := array{a.Out, a.Type}, array{a.In, a.Type}
	step, apart := 2, 1 // element i of a pair is i*step, its partner lies apart elements on
	if a.Mode == kernel.RoPENeoX {
		step, apart = 1, a.Half
	}
	rows := a.Batch * a.Heads * a.Seq
	s.device.parallel(rows, grain(a.Dim), func(lo, hi int) {
		buf := src.buffer(a.Dim)
		for r := lo; r < hi; r++ {
			p := position(r/(a.Heads*a.Seq), r%a.Seq)
			c, sn := cos[p*a.Half:(p+1)*a.Half], sin[p*a.Half:(p+1)*a.Half]
			x := src.load(r*a.Dim, a.Dim, buf)
			y := dst.view(r*a.Dim, a.Dim, buf)
			for i := range a.Half {
				u, v := x[i*step], x[i*step+apart]
				y[i*step] = u*c[i] - v*sn[i]
				y[i*step+apart] = u*sn[i] + v*c[i]
			}
			copy(y[2*a.Half:], x[2*a.Half:])
			dst.commit(r*a.Dim, y)
		}
	})
	return nil
}

func (s *stream) KVWrite(a *kernel.KVWriteArgs) error {
	const op = "kv_write"
	if err := cacheType(op, a.Type, a.Dim); err != nil {
		return err
	}
	n, err := volume(op, a.Batch, a.Seq, a.KVHeads, a.Dim)
	if n == 0 {
		return err
	}
	if _, err := volume(op, a.KVHeads, a.Capacity, a.Dim); err != nil {
		return err
	}
	values := cmp.Or(a.ValueDim, a.Dim)
	for _, heads := range [2]int{a.Batch * a.Seq * a.KVHeads, a.KVHeads * a.Capacity} {
		if _, err := volume(op, heads, values); err != nil {
			return err
		}
	}
	if err := cacheType(op, a.Type, values); err != nil {
		return err
	}
	if err := notNil(op, a.K, a.KIn, a.Positions); err != nil {
		return err
	}
	if (a.V == nil) != (a.VIn == nil) {
		return fmt.Errorf("%s: values without a cache, or a cache without values: %w", op, kernel.ErrInvalid)
	}
	limit := a.Capacity
	if a.Ring {
		if a.Seq > a.Capacity {
			return fmt.Errorf("%s: %d rows in a ring of %d: %w", op, a.Seq, a.Capacity, kernel.ErrInvalid)
		}
		limit = math.MaxInt
	}
	positions, sequence, err := placement(op, a.Positions, a.Sequences, a.Batch, a.Seq, limit)
	if err != nil {
		return err
	}
	for _, side := range [2]struct {
		cache, in kernel.Ptr
		dim       int
	}{{a.K, a.KIn, a.Dim}, {a.V, a.VIn, values}} {
		if side.cache == nil {
			continue
		}
		dim := side.dim
		dst, in := array{side.cache, a.Type}, slice[float32](side.in, a.Batch*a.Seq*a.KVHeads*dim)
		s.device.parallel(a.Batch*a.Seq, grain(a.KVHeads*dim), func(lo, hi int) {
			for r := lo; r < hi; r++ {
				slot := int(positions[r])
				if a.Ring {
					slot %= a.Capacity
				}
				for h := range a.KVHeads {
					at := ((sequence(r/a.Seq)*a.KVHeads+h)*a.Capacity + slot) * dim
					row := in[(r*a.KVHeads+h)*dim:][:dim]
					copy(dst.view(at, dim, row), row)
					dst.commit(at, row)
				}
			}
		})
	}
	return nil
}

// placement checks the positions [batch][seq] (below limit) and the sequences [batch] of rows in a key-value cache.
func placement(op string, positions, sequences kernel.Ptr, batch, seq, limit int) ([]int32, func(b int) int, error) {
	ps := slice[int32](positions, batch*seq)
	for i, p := range ps {
		if p < 0 || int(p) >= limit {
			return nil, nil, fmt.Errorf("%s: position %d at %d, limit %d: %w", op, p, i, limit, kernel.ErrInvalid)
		}
	}
	sequence, err := sequenceOf(op, sequences, batch)
	return ps, sequence, err
}

// sequenceOf returns the sequence of a batch entry: sequences[b], or b.
func sequenceOf(op string, sequences kernel.Ptr, batch int) (func(b int) int, error) {
	if sequences == nil {
		return func(b int) int { return b }, nil
	}
	list := slice[int32](sequences, batch)
	for b, v := range list {
		if v < 0 {
			return nil, fmt.Errorf("%s: sequence %d at %d: %w", op, v, b, kernel.ErrInvalid)
		}
	}
	return func(b int) int { return int(list[b]) }, nil
}
