package purego

import (
	"cmp"
	"fmt"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// The fused operations are, on this device, the operations of their formulas (see vibrant.h).

// sequence runs steps until one fails.
func sequence(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// product checks the sizes of n rows of x times a weight, and returns how many results there are.
func product(op string, w kernel.Weight, n int) (int, error) {
	if _, err := weightBytes(op, w); err != nil {
		return 0, err
	}
	if _, err := volume(op, n, w.Cols); err != nil {
		return 0, err
	}
	return volume(op, n, w.Rows)
}

func (s *stream) NormLinear(y, x, norm kernel.Ptr, eps float32, w kernel.Weight, bias, normed kernel.Ptr, n int) error {
	if size, err := product("norm_linear", w, n); size == 0 || err != nil {
		return err
	}
	return sequence(
		func() error { return s.RMSNorm(normed, x, norm, kernel.F32, n, w.Cols, eps) },
		func() error { return s.Linear(y, normed, w, bias, n) })
}

func (s *stream) NormSwiGLU(out, x, norm kernel.Ptr, eps float32, gate, up kernel.Weight, normed, prod kernel.Ptr, n int) error {
	const op = "norm_swiglu"
	if gate.Rows != up.Rows || gate.Cols != up.Cols {
		return fmt.Errorf("%s: gate (%d,%d) and up (%d,%d) differ: %w", op, gate.Rows, gate.Cols, up.Rows, up.Cols, kernel.ErrInvalid)
	}
	size, err := product(op, gate, n)
	if size == 0 || err != nil {
		return err
	}
	return sequence(
		func() error { return s.RMSNorm(normed, x, norm, kernel.F32, n, gate.Cols, eps) },
		func() error { return s.Linear(out, normed, gate, nil, n) },
		func() error { return s.Linear(prod, normed, up, nil, n) },
		func() error { return s.SwiGLU(out, out, prod, kernel.F32, size) })
}

func (s *stream) LinearAdd(sum, a, x kernel.Ptr, w kernel.Weight, bias, prod kernel.Ptr, n int) error {
	size, err := product("linear_add", w, n)
	if size == 0 || err != nil {
		return err
	}
	if err := notNil("linear_add", sum, a); err != nil {
		return err
	}
	return sequence(
		func() error { return s.Linear(prod, x, w, bias, n) },
		func() error { return s.Add(sum, a, prod, kernel.F32, size) })
}

// update adds what an adapter makes of n rows of x to their product with w.
func (s *stream) update(y, x, v, u, codes kernel.Ptr, stride, ranks, n int, w kernel.Weight) func() error {
	return func() error {
		if v == nil {
			return nil
		}
		return s.FusedUpdate(&kernel.FusedUpdateArgs{Out: y, Add: y, X: x, V: v, Codes: codes, U: u, M: n, K: w.Cols, N: w.Rows, R: ranks,
			CodesStride: stride, Scale: 1, Type: kernel.F32, WeightType: kernel.F16, VTransposed: true})
	}
}

func (s *stream) FeedForward(a *kernel.FeedForwardArgs) error {
	const op = "feed_forward"
	if a.Down.Rows != a.Gate.Cols || a.Down.Cols != a.Gate.Rows {
		return fmt.Errorf("%s: gate (%d,%d) and down (%d,%d) do not fit: %w", op, a.Gate.Rows, a.Gate.Cols, a.Down.Rows, a.Down.Cols, kernel.ErrInvalid)
	}
	if a.Gate.Rows != a.Up.Rows || a.Gate.Cols != a.Up.Cols {
		return fmt.Errorf("%s: gate (%d,%d) and up (%d,%d) differ: %w", op, a.Gate.Rows, a.Gate.Cols, a.Up.Rows, a.Up.Cols, kernel.ErrInvalid)
	}
	inner, err := volume(op, a.N, a.Gate.Rows)
	if err != nil {
		return err
	}
	if size, err := product(op, a.Down, a.N); size == 0 || err != nil {
		return err
	}
	if err := notNil(op, a.Sum, a.X, a.Normed); err != nil {
		return err
	}
	return sequence(
		func() error { return s.RMSNorm(a.Normed, a.X, a.Norm, kernel.F32, a.N, a.Gate.Cols, a.Eps) },
		func() error { return s.Linear(a.Gated, a.Normed, a.Gate, nil, a.N) },
		func() error { return s.Linear(a.Product, a.Normed, a.Up, nil, a.N) },
		s.update(a.Gated, a.Normed, a.GateV, a.GateU, a.Codes, a.CodesStride, a.Ranks, a.N, a.Gate),
		s.update(a.Product, a.Normed, a.UpV, a.UpU, a.Codes, a.CodesStride, a.Ranks, a.N, a.Up),
		func() error { return s.SwiGLU(a.Gated, a.Gated, a.Product, kernel.F32, inner) },
		func() error { return s.LinearAdd(a.Sum, a.X, a.Gated, a.Down, nil, a.Normed, a.N) },
		s.update(a.Sum, a.Gated, a.DownV, a.DownU, a.Codes, a.CodesStride, a.Ranks, a.N, a.Down))
}

func (s *stream) ExpertFeedForward(a *kernel.ExpertFeedForwardArgs) error {
	const op = "expert_feed_forward"
	switch {
	case a.Gate.Rows != a.Up.Rows || a.Gate.Cols != a.Up.Cols || a.Down.Rows != a.Gate.Cols || a.Down.Cols != a.Gate.Rows:
		return fmt.Errorf("%s: gate (%d,%d), up (%d,%d) and down (%d,%d) do not fit: %w", op, a.Gate.Rows, a.Gate.Cols, a.Up.Rows,
			a.Up.Cols, a.Down.Rows, a.Down.Cols, kernel.ErrInvalid)
	case a.Activation < kernel.ActivationSiLU || a.Activation > kernel.ActivationClampedSiLU:
		return fmt.Errorf("%s: activation %d: %w", op, a.Activation, kernel.ErrInvalid)
	}
	inner, err := volume(op, a.N, a.K, a.Gate.Rows)
	if err != nil {
		return err
	}
	if size, err := volume(op, a.N, a.Gate.Cols); size == 0 || err != nil {
		return err
	}
	if err := notNil(op, a.Sum, a.X); err != nil {
		return err
	}
	by := kernel.ExpertLinearArgs{Y: a.Gated, X: a.X, W: a.Gate, Bias: a.GateBias, IDs: a.IDs, N: a.N, K: a.K, Experts: a.Experts}
	return sequence(
		func() error { return s.ExpertLinear(&by) },
		func() error {
			by.Y, by.W, by.Bias = a.Product, a.Up, a.UpBias
			return s.ExpertLinear(&by)
		},
		func() error {
			return s.GLU(a.Gated, a.Gated, a.Product, a.Activation, a.Alpha, a.Limit, kernel.F32, inner)
		},
		func() error {
			by.Y, by.X, by.W, by.Bias, by.XPerChoice = a.Chosen, a.Gated, a.Down, a.DownBias, true
			return s.ExpertLinear(&by)
		},
		func() error { return s.ExpertSum(a.Sum, a.Add, a.Chosen, a.Weights, a.N, a.K, a.Gate.Cols) })
}

func (s *stream) NormRoute(a *kernel.NormRouteArgs) error {
	const op = "norm_route"
	if _, err := product(op, a.Router, a.N); err != nil {
		return err
	}
	if err := notNil(op, a.Normed, a.Logits); a.N > 0 && a.K > 0 && err != nil {
		return err
	}
	route := kernel.RouteArgs{IDs: a.IDs, Weights: a.Weights, Logits: a.Logits, Bias: a.Bias, N: a.N, Experts: a.Router.Rows, K: a.K,
		Groups: a.Groups, GroupsUsed: a.GroupsUsed, Scale: a.Scale, Gating: a.Gating, Normalized: a.Normalized, GroupByBest: a.GroupByBest}
	return sequence(
		func() error { return s.RMSNorm(a.Normed, a.X, a.Norm, kernel.F32, a.N, a.Router.Cols, a.Eps) },
		func() error { return s.Linear(a.Logits, a.Normed, a.Router, a.RouterBias, a.N) },
		func() error { return s.Route(&route) })
}

func (s *stream) AttentionLinearAdd(sum, a kernel.Ptr, attention *kernel.AttentionArgs, w kernel.Weight, bias kernel.Ptr, update *kernel.UpdateArgs, prod, nextNorm, normed kernel.Ptr) (nextPrepared bool, err error) {
	const op = "attention_linear_add"
	q := attention
	n, err := volume(op, q.Batch, q.Seq)
	if err != nil {
		return false, err
	}
	row, err := volume(op, q.Heads, q.Dim)
	if err != nil {
		return false, err
	}
	attended, err := volume(op, q.Heads, cmp.Or(q.ValueDim, q.Dim))
	if err != nil {
		return false, err
	}
	if w.Cols != attended {
		return false, fmt.Errorf("%s: weight (%d,%d), want %d columns: %w", op, w.Rows, w.Cols, attended, kernel.ErrInvalid)
	}
	if size, err := product(op, w, n); size == 0 || err != nil {
		return false, err
	}
	if row > 0 && (q.Type != kernel.F32 || q.QHeadStride != q.Dim || q.QRowStride != row || q.QBatchStride != q.Seq*row) {
		return false, fmt.Errorf("%s: queries have gaps, or are not F32: %w", op, kernel.ErrInvalid)
	}
	return false, sequence(
		func() error { return s.Attention(q) },
		func() error {
			if a == nil {
				return s.Linear(sum, q.Out, w, bias, n)
			}
			return s.LinearAdd(sum, a, q.Out, w, bias, prod, n)
		},
		s.update(sum, q.Out, update.V, update.U, update.Codes, update.CodesStride, update.Ranks, n, w))
}

func (s *stream) NormQKV(a *kernel.NormQKVArgs) error {
	const op = "norm_qkv"
	n, err := volume(op, a.Batch, a.Seq)
	if err != nil {
		return err
	}
	empty := true
	for _, w := range []struct {
		kernel.Weight
		heads int
	}{{a.WQ, a.Heads}, {a.WK, a.KVHeads}, {a.WV, a.KVHeads}} {
		rows, err := volume(op, w.heads, a.Dim)
		if err != nil {
			return err
		}
		if w.Rows != rows || w.Cols != a.WQ.Cols {
			return fmt.Errorf("%s: weight (%d,%d), want (%d,%d): %w", op, w.Rows, w.Cols, rows, a.WQ.Cols, kernel.ErrInvalid)
		}
		size, err := product(op, w.Weight, n)
		if err != nil {
			return err
		}
		empty = empty && size == 0
	}
	if (a.QNorm == nil) != (a.KNorm == nil) {
		return fmt.Errorf("%s: a norm of q or k alone: %w", op, kernel.ErrInvalid)
	}
	if empty {
		return nil
	}
	if err := notNil(op, a.Q, a.K, a.V, a.Positions, a.KNew, a.VNew); err != nil {
		return err
	}
	return sequence(
		func() error { return s.RMSNorm(a.Normed, a.X, a.Norm, kernel.F32, n, a.WQ.Cols, a.Eps) },
		func() error { return s.Linear(a.Q, a.Normed, a.WQ, a.BQ, n) },
		func() error { return s.Linear(a.KNew, a.Normed, a.WK, a.BK, n) },
		func() error { return s.Linear(a.VNew, a.Normed, a.WV, a.BV, n) },
		s.update(a.Q, a.Normed, a.QV, a.QU, a.Codes, a.CodesStride, a.Ranks, n, a.WQ),
		s.update(a.KNew, a.Normed, a.KV, a.KU, a.Codes, a.CodesStride, a.Ranks, n, a.WK),
		s.update(a.VNew, a.Normed, a.VV, a.VU, a.Codes, a.CodesStride, a.Ranks, n, a.WV),
		func() error {
			return s.RoPEKVWrite(&kernel.RoPEKVWriteArgs{Q: a.Q, QIn: a.Q, K: a.K, V: a.V, KNew: a.KNew, VNew: a.VNew, QNorm: a.QNorm, KNorm: a.KNorm,
				Cos: a.Cos, Sin: a.Sin, Positions: a.Positions, Sequences: a.Sequences, Batch: a.Batch, Seq: a.Seq, Heads: a.Heads, KVHeads: a.KVHeads,
				Dim: a.Dim, Half: a.Half, TableRows: a.TableRows, Capacity: a.Capacity, Eps: a.Eps, KVType: a.KVType, Mode: a.Mode, Ring: a.Ring})
		})
}

func (s *stream) RoPEKVWrite(a *kernel.RoPEKVWriteArgs) error {
	const op = "rope_kv_write"
	n, err := volume(op, a.Batch, a.Seq)
	if err != nil {
		return err
	}
	size, err := volume(op, n, a.Heads, a.Dim)
	if err != nil {
		return err
	}
	keys, err := volume(op, n, a.KVHeads, a.Dim)
	if err != nil {
		return err
	}
	if (a.QNorm == nil) != (a.KNorm == nil) {
		return fmt.Errorf("%s: a norm of q or k alone: %w", op, kernel.ErrInvalid)
	}
	if size == 0 && keys == 0 {
		return nil
	}
	if size == 0 || keys == 0 {
		return fmt.Errorf("%s: %d heads, %d key heads: %w", op, a.Heads, a.KVHeads, kernel.ErrInvalid)
	}
	if err := notNil(op, a.Q, a.QIn, a.K, a.V, a.Positions, a.KNew, a.VNew); err != nil {
		return err
	}
	rotate := func(x, in, norm kernel.Ptr, heads int) error {
		if norm != nil {
			if err := s.RMSNorm(x, in, norm, kernel.F32, n*heads, a.Dim, a.Eps); err != nil {
				return err
			}
			in = x
		}
		return s.RoPE(&kernel.RoPEArgs{Out: x, In: in, Cos: a.Cos, Sin: a.Sin, Positions: a.Positions, PositionStride: 1,
			Batch: n, Heads: heads, Seq: 1, Dim: a.Dim, Half: a.Half, TableRows: a.TableRows, Type: kernel.F32, Mode: a.Mode})
	}
	return sequence(
		func() error { return rotate(a.Q, a.QIn, a.QNorm, a.Heads) },
		func() error { return rotate(a.KNew, a.KNew, a.KNorm, a.KVHeads) },
		func() error {
			return s.KVWrite(&kernel.KVWriteArgs{K: a.K, V: a.V, KIn: a.KNew, VIn: a.VNew, Positions: a.Positions, Sequences: a.Sequences,
				Batch: a.Batch, Seq: a.Seq, KVHeads: a.KVHeads, Dim: a.Dim, Capacity: a.Capacity, Type: a.KVType, Ring: a.Ring})
		})
}
