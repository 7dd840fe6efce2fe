package purego

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// mostHeadDim is the widest row of keys and values, as csrc/ops.c has it.
const mostHeadDim = 576

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
	if err := cacheType(op, a.KVType, a.ValueDim); err != nil {
		return 0, err
	}
	for _, heads := range [2]int{a.Batch * a.Seq * a.Heads, a.KVHeads * a.KVCapacity} {
		if _, err := volume(op, heads, a.ValueDim); err != nil {
			return 0, err
		}
	}
	switch {
	case a.KVHeads <= 0 || a.Heads%a.KVHeads != 0:
		return invalid("%d heads share %d key heads", a.Heads, a.KVHeads)
	case a.QBatchStride < 0 || a.QHeadStride < 0 || a.QRowStride < 0:
		return invalid("strides %d, %d, %d", a.QBatchStride, a.QHeadStride, a.QRowStride)
	case a.KVLen < 0 || !a.Ring && a.KVLen > a.KVCapacity:
		return invalid("%d keys of a capacity of %d", a.KVLen, a.KVCapacity)
	case a.Window < 0 || a.Offset < 0 || a.Chunk < 0 || a.Chunk > 0 && !a.Causal:
		return invalid("window %d, offset %d, chunk %d", a.Window, a.Offset, a.Chunk)
	case a.Ring && (!a.Causal || a.Window == 0 || a.Window > a.KVCapacity || a.Seq-1 > a.KVCapacity-a.Window):
		return invalid("a ring of %d keys with a window of %d and %d rows", a.KVCapacity, a.Window, a.Seq)
	case a.V == nil && (a.ValueDim <= 0 || a.ValueDim > a.Dim) && a.KVLen > 0:
		return invalid("values of %d in keys of %d", a.ValueDim, a.Dim)
	case !(a.SoftCap >= 0):
		return invalid("soft cap %v", a.SoftCap)
	case a.Causal && a.Positions == nil && (a.Offset > a.KVLen || a.Seq > a.KVLen-a.Offset):
		return invalid("%d rows from position %d with %d keys", a.Seq, a.Offset, a.KVLen)
	case max(a.Dim, a.ValueDim) > mostHeadDim:
		return 0, fmt.Errorf("%s: heads of %d: %w", op, max(a.Dim, a.ValueDim), kernel.ErrUnsupported)
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
		if err := notNil(op, a.K); err != nil {
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
	if a.Causal && a.Window > 0 {
		longest = min(longest, a.Window)
	}
	sequence, err := sequenceOf("attention", a.Sequences, a.Batch)
	if err != nil {
		return err
	}
	group, values := a.Heads/a.KVHeads, cmp.Or(a.ValueDim, a.Dim)
	k, v, q, out := array{a.K, a.KVType}, array{a.V, a.KVType}, array{a.Q, a.Type}, array{a.Out, a.Type}
	valueStride := values
	if a.V == nil {
		v, valueStride = k, a.Dim
	}
	sinks := optional(a.Sinks, a.Heads)
	s.device.parallel(items, grain(a.Heads*a.Dim*max(longest, 1)), func(lo, hi int) {
		kvBuf, rows := k.buffer(max(a.Dim, values)), make([]float32, group*max(a.Dim, values))
		scores := make([]float32, group*(longest+1)) // and a sink's
		sums := make([]float64, group*values)
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
				if a.Chunk > 0 {
					first = max(first, (end-1)/a.Chunk*a.Chunk)
				}
			}
			keys := end - first
			base := (sequence(b)*a.KVHeads + kvHead) * a.KVCapacity
			slot := func(j int) int {
				if a.Ring {
					return base + (first+j)%a.KVCapacity
				}
				return base + first + j
			}
			at := func(g int) int {
				return b*a.QBatchStride + (kvHead*group+g)*a.QHeadStride + i*a.QRowStride
			}
			to := at
			if values != a.Dim {
				to = func(g int) int { return (row*a.Heads + kvHead*group + g) * values }
			}
			for g := range group {
				copy(rows[g*a.Dim:], q.load(at(g), a.Dim, rows[g*a.Dim:]))
			}
			width := keys
			if sinks != nil && keys > 0 {
				width++
			}
			for j := range keys {
				x := k.load(slot(j)*a.Dim, a.Dim, kvBuf)
				for g := range group {
					score := dot64(rows[g*a.Dim:(g+1)*a.Dim], x) * float64(a.Scale)
					if a.SoftCap > 0 {
						score = float64(a.SoftCap) * math.Tanh(score/float64(a.SoftCap))
					}
					scores[g*width+j] = float32(score)
				}
			}
			for g := range group {
				if width > keys {
					scores[g*width+keys] = sinks[kvHead*group+g]
				}
				softmax(scores[g*width:(g+1)*width], scores[g*width:(g+1)*width])
			}
			clear(sums) // no keys give zeros
			for j := range keys {
				x := v.load(slot(j)*valueStride, values, kvBuf)
				for g := range group {
					p, sum := float64(scores[g*width+j]), sums[g*values:(g+1)*values]
					for d, value := range x {
						sum[d] += p * float64(value)
					}
				}
			}
			for g := range group {
				o := out.view(to(g), values, rows)
				for d := range o {
					o[d] = float32(sums[g*values+d])
				}
				out.commit(to(g), o)
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
