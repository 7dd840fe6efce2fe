package purego

import (
	"fmt"
	"slices"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// checkAttention returns the queries' rows to compute, 0 where there is nothing to do.
func checkAttention(a *kernel.AttentionArgs) (int, error) {
	const op = "attention"
	invalid := func(format string, v ...any) (int, error) {
		return 0, fmt.Errorf("%s: %s: %w", op, fmt.Sprintf(format, v...), kernel.ErrInvalid)
	}
	if err := floatType(op, a.Type); err != nil {
		return 0, err
	}
	if err := cacheType(op, a.KVType, a.Dim); err != nil {
		return 0, err
	}
	if a.Type != kernel.F32 && a.KVType != a.Type {
		return 0, fmt.Errorf("%s: queries of %v with a cache of %v: %w", op, a.Type, a.KVType, kernel.ErrUnsupported)
	}
	n, err := volume(op, a.Batch, a.Seq, a.Heads, a.Dim)
	if n == 0 {
		return 0, err
	}
	if _, err := volume(op, a.KVHeads, a.KVCapacity, a.Dim); err != nil {
		return 0, err
	}
	switch {
	case a.KVHeads <= 0 || a.Heads%a.KVHeads != 0:
		return invalid("%d heads share %d key heads", a.Heads, a.KVHeads)
	case a.QBatchStride < 0 || a.QHeadStride < 0 || a.QRowStride < 0:
		return invalid("strides %d, %d, %d", a.QBatchStride, a.QHeadStride, a.QRowStride)
	case a.KVLen < 0 || a.KVLen > a.KVCapacity:
		return invalid("%d keys of a capacity of %d", a.KVLen, a.KVCapacity)
	case a.Window < 0 || a.Offset < 0:
		return invalid("window %d, offset %d", a.Window, a.Offset)
	case a.Causal && a.Positions == nil && (a.Offset > a.KVLen || a.Seq > a.KVLen-a.Offset):
		return invalid("%d rows from position %d with %d keys", a.Seq, a.Offset, a.KVLen)
	case a.Dim > 256:
		return 0, fmt.Errorf("%s: heads of %d: %w", op, a.Dim, kernel.ErrUnsupported)
	}
	for _, d := range [][2]int{{a.Batch, a.QBatchStride}, {a.Heads, a.QHeadStride}, {a.Seq, a.QRowStride}} {
		if _, err := volume(op, d[0], d[1]); err != nil {
			return 0, err
		}
	}
	if err := notNil(op, a.Out, a.Q); err != nil {
		return 0, err
	}
	if a.KVLen > 0 {
		if err := notNil(op, a.K, a.V); err != nil {
			return 0, err
		}
	}
	return a.Batch * a.Seq * a.KVHeads, nil
}

// Attention computes the query heads that share a key head together, so that a cache row is converted once for all.
func (s *stream) Attention(a *kernel.AttentionArgs) error {
	items, err := checkAttention(a)
	if items == 0 || err != nil {
		return err
	}
	var positions []int32
	if a.Positions != nil && a.Causal {
		if positions, _, err = placement("attention", a.Positions, nil, a.Batch, a.Seq, a.KVLen); err != nil {
			return err
		}
	}
	longest := a.KVLen // keys of any row; with positions KVLen is a bound that may lie far off
	if positions != nil {
		longest = int(slices.Max(positions)) + 1
	}
	sequence, err := sequenceOf("attention", a.Sequences, a.Batch)
	if err != nil {
		return err
	}
	group := a.Heads / a.KVHeads
	k, v, q, out := array{a.K, a.KVType}, array{a.V, a.KVType}, array{a.Q, a.Type}, array{a.Out, a.Type}
	s.device.parallel(items, grain(a.Heads*a.Dim*max(longest, 1)), func(lo, hi int) {
		kvBuf, rows := k.buffer(a.Dim), make([]float32, group*a.Dim)
		scores := make([]float32, group*longest)
		sums := make([]float64, group*a.Dim)
		for item := lo; item < hi; item++ {
			kvHead, row := item%a.KVHeads, item/a.KVHeads
			b, i := row/a.Seq, row%a.Seq
			first, end := 0, a.KVLen
			if a.Causal {
				end = a.Offset + i + 1
				if positions != nil {
					end = int(positions[row]) + 1
				}
				if a.Window > 0 {
					first = max(end-a.Window, 0)
				}
			}
			keys := end - first
			base := ((sequence(b)*a.KVHeads+kvHead)*a.KVCapacity + first) * a.Dim
			at := func(g int) int {
				return b*a.QBatchStride + (kvHead*group+g)*a.QHeadStride + i*a.QRowStride
			}
			for g := range group {
				copy(rows[g*a.Dim:], q.load(at(g), a.Dim, rows[g*a.Dim:]))
			}
			for j := range keys {
				x := k.load(base+j*a.Dim, a.Dim, kvBuf)
				for g := range group {
					scores[g*keys+j] = float32(dot64(rows[g*a.Dim:(g+1)*a.Dim], x) * float64(a.Scale))
				}
			}
			for g := range group {
				softmax(scores[g*keys:(g+1)*keys], scores[g*keys:(g+1)*keys])
			}
			clear(sums) // no keys give zeros
			for j := range keys {
				x := v.load(base+j*a.Dim, a.Dim, kvBuf)
				for g := range group {
					p, sum := float64(scores[g*keys+j]), sums[g*a.Dim:(g+1)*a.Dim]
					for d, value := range x {
						sum[d] += p * float64(value)
					}
				}
			}
			for g := range group {
				o := out.view(at(g), a.Dim, rows)
				for d := range o {
					o[d] = float32(sums[g*a.Dim+d])
				}
				out.commit(at(g), o)
			}
		}
	})
	return nil
}

func dot64(a, b []float32) (sum float64) {
	b = b[:len(a)]
	for i, v := range a {
		sum += float64(v) * float64(b[i])
	}
	return sum
}
