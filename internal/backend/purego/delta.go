package purego

import (
	"fmt"
	"math"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

func (s *stream) CausalConv(a *kernel.CausalConvArgs) error {
	const op = "causal_conv"
	if a.Taps < 1 {
		return fmt.Errorf("%s: %d taps: %w", op, a.Taps, kernel.ErrInvalid)
	}
	if _, err := volume(op, a.Batch, a.Taps, a.Channels); err != nil {
		return err
	}
	size, err := volume(op, a.Batch, a.Seq, a.Channels)
	if size == 0 {
		return err
	}
	if a.Taps > 8 {
		return fmt.Errorf("%s: %d taps: %w", op, a.Taps, kernel.ErrUnsupported)
	}
	if err := notNil(op, a.Out, a.X, a.Weight); err != nil {
		return err
	}
	kept := a.Taps - 1
	if kept > 0 {
		if err := notNil(op, a.State); err != nil {
			return err
		}
	}
	place, err := statesOf(op, a.Sequences, a.Positions, a.Batch, a.Seq, a.Slots)
	if err != nil {
		return err
	}
	out, x, weight := slice[float32](a.Out, size), slice[float32](a.X, size), slice[float32](a.Weight, a.Channels*a.Taps)
	s.device.parallel(a.Batch*a.Channels, grain(a.Seq*a.Taps), func(lo, hi int) {
		u := make([]float32, kept+a.Seq)
		for i := lo; i < hi; i++ {
			b, c := i/a.Channels, i%a.Channels
			w := weight[c*a.Taps:][:a.Taps]
			from, to, zero := place(b)
			at := func(state, j int) *float32 {
				return &slice[float32](a.State, (state+1)*kept*a.Channels)[(state*kept+j)*a.Channels+c]
			}
			for j := range kept {
				u[j] = 0
				if !zero {
					u[j] = *at(from, j)
				}
			}
			for t := range a.Seq {
				u[kept+t] = x[(b*a.Seq+t)*a.Channels+c]
				sum := 0.0
				for j, f := range w {
					sum += float64(f) * float64(u[t+j])
				}
				out[(b*a.Seq+t)*a.Channels+c] = float32(sum / (1 + math.Exp(-sum)))
			}
			for j := range kept {
				*at(to, j) = u[a.Seq+j]
			}
		}
	})
	return nil
}

func (s *stream) GatedDelta(a *kernel.GatedDeltaArgs) error {
	const op = "gated_delta"
	keys, err := volume(op, a.Batch, a.Seq, a.KeyHeads, a.KeyDim)
	if err != nil {
		return err
	}
	if _, err := volume(op, a.Batch, a.ValueHeads, a.KeyDim, a.ValueDim); err != nil {
		return err
	}
	size, err := volume(op, a.Batch, a.Seq, a.ValueHeads, a.ValueDim)
	if size == 0 {
		return err
	}
	if keys == 0 || a.ValueHeads%a.KeyHeads != 0 {
		return fmt.Errorf("%s: %d value heads of %d key heads of %d: %w", op, a.ValueHeads, a.KeyHeads, a.KeyDim, kernel.ErrInvalid)
	}
	if a.KeyDim > 256 {
		return fmt.Errorf("%s: keys of %d: %w", op, a.KeyDim, kernel.ErrUnsupported)
	}
	if err := notNil(op, a.Out, a.State, a.QKV, a.Alpha, a.Beta, a.A, a.Dt); err != nil {
		return err
	}
	place, err := statesOf(op, a.Sequences, a.Positions, a.Batch, a.Seq, a.Slots)
	if err != nil {
		return err
	}
	dk, dv, heads := a.KeyDim, a.ValueDim, a.ValueHeads
	width, tokens := 2*a.KeyHeads*dk+heads*dv, a.Batch*a.Seq
	qkv, out := slice[float32](a.QKV, tokens*width), slice[float32](a.Out, size)
	alpha, beta := slice[float32](a.Alpha, tokens*heads), slice[float32](a.Beta, tokens*heads)
	rate, dt := slice[float32](a.A, heads), slice[float32](a.Dt, heads)
	s.device.parallel(a.Batch*heads, grain(a.Seq*dk*dv), func(lo, hi int) {
		q, k, state, delta := make([]float64, dk), make([]float64, dk), make([]float64, dk*dv), make([]float64, dv)
		for item := lo; item < hi; item++ {
			b, head := item/heads, item%heads
			keyHead := head / (heads / a.KeyHeads)
			if a.Interleaved {
				keyHead = head % a.KeyHeads
			}
			from, to, zero := place(b)
			at := func(place int) []float32 {
				i := (place*heads + head) * dk * dv
				return slice[float32](a.State, i+dk*dv)[i:]
			}
			clear(state)
			if !zero {
				for i, v := range at(from) {
					state[i] = float64(v)
				}
			}
			for token := b * a.Seq; token < (b+1)*a.Seq; token++ {
				row := qkv[token*width:][:width]
				normalize(q, row[keyHead*dk:], a.Eps)
				normalize(k, row[(a.KeyHeads+keyHead)*dk:], a.Eps)
				v := row[2*a.KeyHeads*dk+head*dv:][:dv]
				x := float64(alpha[token*heads+head]) + float64(dt[head])
				decay := math.Exp(float64(rate[head]) * softplus(x))
				update := 1 / (1 + math.Exp(-float64(beta[token*heads+head])))
				for d := range dv {
					sum := 0.0
					for i := range dk {
						state[i*dv+d] *= decay
						sum += k[i] * state[i*dv+d]
					}
					delta[d] = update * (float64(v[d]) - sum)
				}
				for d := range dv {
					sum := 0.0
					for i := range dk {
						state[i*dv+d] += k[i] * delta[d]
						sum += q[i] * state[i*dv+d]
					}
					out[(token*heads+head)*dv+d] = float32(sum / math.Sqrt(float64(dk)))
				}
			}
			carried := at(to)
			for i, v := range state {
				carried[i] = float32(v)
			}
		}
	})
	return nil
}

// statesOf returns where the state of a batch entry is read and written, as indices of states, and whether it is zero.
func statesOf(op string, sequences, positions kernel.Ptr, batch, seq, slots int) (func(b int) (from, to int, zero bool), error) {
	if slots < 0 || slots > 1 && positions == nil {
		return nil, fmt.Errorf("%s: %d slots: %w", op, slots, kernel.ErrInvalid)
	}
	slots = max(slots, 1)
	sequence, err := sequenceOf(op, sequences, batch)
	if err != nil || positions == nil {
		return func(b int) (int, int, bool) { return sequence(b) * slots, sequence(b) * slots, false }, err
	}
	first := slice[int32](positions, batch*seq)
	for b := range batch {
		if first[b*seq] < 0 {
			return nil, fmt.Errorf("%s: position %d: %w", op, first[b*seq], kernel.ErrInvalid)
		}
	}
	return func(b int) (int, int, bool) {
		p := int(first[b*seq])
		return sequence(b)*slots + p%slots, sequence(b)*slots + (p+seq)%slots, p == 0
	}, nil
}

// softplus is ln(1 + exp(x)).
func softplus(x float64) float64 {
	if x > 30 {
		return x
	}
	return math.Log1p(math.Exp(x))
}

// normalize writes x / sqrt(sum of squares + eps).
func normalize(y []float64, x []float32, eps float32) {
	sum := float64(eps)
	for _, v := range x[:len(y)] {
		sum += float64(v) * float64(v)
	}
	for i := range y {
		y[i] = float64(x[i]) / math.Sqrt(sum)
	}
}
