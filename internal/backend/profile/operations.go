// Code generated from csrc/vibrant.h by internal/backend/generate. DO NOT EDIT.

package profile

import (
	"cmp"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

func bytesOfMapArgs(a *kernel.MapArgs) (n int64) {
	n += view(a.Out, a.Sizes[:a.Rank])
	for _, v := range a.In {
		n += view(v, a.Sizes[:a.Rank])
	}
	return n
}

func bytesOfReduceArgs(a *kernel.ReduceArgs) (n int64) {
	n += view(a.Out, a.Sizes[:a.Rank])
	n += view(a.In, a.Sizes[:a.Rank])
	return n
}

func bytesOfSortArgs(a *kernel.SortArgs) (n int64) {
	n += view(a.Values, a.OutSizes[:a.Rank])
	n += view(a.Indices, a.OutSizes[:a.Rank])
	n += view(a.In, a.Sizes[:a.Rank])
	return n
}

func bytesOfIndexArgs(a *kernel.IndexArgs) (n int64) {
	a = touchedIndexArgs(*a)
	n += view(a.Out, a.OutSizes[:a.Rank])
	n += view(a.In, a.InSizes[:a.Rank])
	n += view(a.IDs, a.IDsSizes[:a.Rank])
	return n
}

func bytesOfMatMulArgs(a *kernel.MatMulArgs) (n int64) {
	n += operand(a.C, reach(a.Type, []int{a.CBatchStride, a.CStride}, a.Batch, a.M, a.N))
	if a.ATransposed {
		n += operand(a.A, reach(a.Type, []int{a.ABatchStride, a.AStride}, a.Batch, a.K, a.M))
	} else {
		n += operand(a.A, reach(a.Type, []int{a.ABatchStride, a.AStride}, a.Batch, a.M, a.K))
	}
	if a.BTransposed {
		n += operand(a.B, reach(a.Type, []int{a.BBatchStride, a.BStride}, a.Batch, a.N, a.K))
	} else {
		n += operand(a.B, reach(a.Type, []int{a.BBatchStride, a.BStride}, a.Batch, a.K, a.N))
	}
	return n
}

func bytesOfFusedUpdateArgs(a *kernel.FusedUpdateArgs) (n int64) {
	n += operand(a.Out, size(a.Type, a.M, a.N))
	n += operand(a.Add, size(a.Type, a.M, a.N))
	n += operand(a.X, size(a.Type, a.M, a.K))
	n += operand(a.V, size(a.WeightType, a.K, a.R))
	n += operand(a.Codes, reach(a.Type, []int{a.CodesStride}, a.M, a.R))
	n += operand(a.U, size(a.WeightType, a.N, a.R))
	return n
}

func bytesOfNormQuantizeArgs(a *kernel.NormQuantizeArgs) (n int64) {
	n += operand(a.Codes, size(kernel.I8, a.Rows, a.Cols))
	n += operand(a.Scales, size(kernel.F32, a.Rows))
	n += operand(a.In, size(kernel.F32, a.Rows, a.Cols))
	n += operand(a.Up, size(kernel.F32, a.Rows, a.Cols))
	n += operand(a.Norm, size(kernel.F32, a.Cols))
	return n
}

func bytesOfW2A8GEMVArgs(a *kernel.W2A8GEMVArgs) (n int64) {
	n += operand(a.Out, size(a.OutType, a.M, a.N))
	n += operand(a.Weights, size(kernel.I8, a.N, a.RowBytes))
	n += operand(a.Activations, size(kernel.I8, a.M, a.K))
	n += operand(a.ActivationScales, size(kernel.F32, a.M))
	n += operand(a.WeightScales, size(kernel.F32, a.Segments))
	n += operand(a.SegmentEnds, size(kernel.I32, a.Segments))
	n += operand(a.Bias, size(kernel.F32, a.N))
	n += operand(a.Add, size(kernel.F32, a.M, a.N))
	return n
}

func bytesOfBitLinearArgs(a *kernel.BitLinearArgs) (n int64) {
	n += operand(a.Out, size(kernel.F32, a.M, a.N))
	n += operand(a.Out2, size(kernel.F32, a.M, a.N2))
	n += operand(a.Out3, size(kernel.F32, a.M, a.N3))
	n += operand(a.Codes, size(kernel.I8, a.M, a.K))
	n += operand(a.Scales, size(kernel.F32, a.M))
	n += operand(a.In, size(kernel.F32, a.M, a.K))
	n += operand(a.Up, size(kernel.F32, a.M, a.K))
	n += operand(a.Norm, size(kernel.F32, a.K))
	n += operand(a.Add, size(kernel.F32, a.M, a.N))
	n += operand(a.Weights, size(kernel.I8, a.N, a.RowBytes))
	n += operand(a.Weights2, size(kernel.I8, a.N2, a.RowBytes))
	n += operand(a.Weights3, size(kernel.I8, a.N3, a.RowBytes))
	n += operand(a.WeightScales, size(kernel.F32, a.Segments))
	n += operand(a.WeightScales2, size(kernel.F32, a.Segments2))
	n += operand(a.WeightScales3, size(kernel.F32, a.Segments3))
	return n
}

func bytesOfTMACMatMulArgs(a *kernel.TMACMatMulArgs) (n int64) {
	n += operand(a.Out, size(kernel.F32, a.M, a.N))
	n += operand(a.Weights, size(kernel.I8, a.M, (a.K+3)/4))
	n += operand(a.Activations, size(kernel.F32, a.K, a.N))
	n += operand(a.LUT, size(kernel.F32, a.N, (a.K+3)/4, 256))
	n += operand(a.Scales, size(kernel.F32, a.M, a.Groups))
	n += operand(a.Norm, size(kernel.F32, a.K))
	return n
}

func bytesOfRouteArgs(a *kernel.RouteArgs) (n int64) {
	n += operand(a.IDs, size(kernel.I32, a.N, a.K))
	n += operand(a.Weights, size(kernel.F32, a.N, a.K))
	n += operand(a.Logits, size(kernel.F32, a.N, a.Experts))
	n += operand(a.Bias, size(kernel.F32, a.Experts))
	return n
}

func bytesOfExpertLinearArgs(a *kernel.ExpertLinearArgs) (n int64) {
	a = touchedExpertLinearArgs(*a)
	n += operand(a.Y, size(kernel.F32, a.N, a.K, a.W.Rows))
	if a.XPerChoice {
		n += operand(a.X, size(kernel.F32, a.N, a.K, a.W.Cols))
	} else {
		n += operand(a.X, size(kernel.F32, a.N, a.W.Cols))
	}
	n += weight(a.W)
	n += operand(a.Bias, size(kernel.F32, a.Experts, a.W.Rows))
	n += operand(a.IDs, size(kernel.I32, a.N, a.K))
	return n
}

func bytesOfRoPEArgs(a *kernel.RoPEArgs) (n int64) {
	a = touchedRoPEArgs(*a)
	n += operand(a.Out, size(a.Type, a.Batch, a.Heads, a.Seq, a.Dim))
	n += operand(a.In, size(a.Type, a.Batch, a.Heads, a.Seq, a.Dim))
	n += operand(a.Cos, size(kernel.F32, a.TableRows, a.Half))
	n += operand(a.Sin, size(kernel.F32, a.TableRows, a.Half))
	n += operand(a.Positions, reach(kernel.I32, []int{a.PositionStride}, a.Batch, a.Seq))
	return n
}

func bytesOfKVWriteArgs(a *kernel.KVWriteArgs) (n int64) {
	a = touchedKVWriteArgs(*a)
	if a.Sequences != nil {
		n += operand(a.K, size(a.Type, a.KVHeads, a.Capacity, a.Dim))
	} else {
		n += operand(a.K, size(a.Type, a.Batch, a.KVHeads, a.Capacity, a.Dim))
	}
	if a.Sequences != nil {
		n += operand(a.V, size(a.Type, a.KVHeads, a.Capacity, cmp.Or(a.ValueDim, a.Dim)))
	} else {
		n += operand(a.V, size(a.Type, a.Batch, a.KVHeads, a.Capacity, cmp.Or(a.ValueDim, a.Dim)))
	}
	n += operand(a.KIn, size(kernel.F32, a.Batch, a.Seq, a.KVHeads, a.Dim))
	n += operand(a.VIn, size(kernel.F32, a.Batch, a.Seq, a.KVHeads, cmp.Or(a.ValueDim, a.Dim)))
	n += operand(a.Positions, size(kernel.I32, a.Batch, a.Seq))
	n += operand(a.Sequences, size(kernel.I32, a.Batch))
	return n
}

func bytesOfRoPEKVWriteArgs(a *kernel.RoPEKVWriteArgs) (n int64) {
	n += operand(a.Q, size(kernel.F32, a.Batch, a.Seq, a.Heads, a.Dim))
	if a.Sequences != nil {
		n += operand(a.K, size(a.KVType, a.KVHeads, a.Capacity, a.Dim))
	} else {
		n += operand(a.K, size(a.KVType, a.Batch, a.KVHeads, a.Capacity, a.Dim))
	}
	if a.Sequences != nil {
		n += operand(a.V, size(a.KVType, a.KVHeads, a.Capacity, a.Dim))
	} else {
		n += operand(a.V, size(a.KVType, a.Batch, a.KVHeads, a.Capacity, a.Dim))
	}
	n += operand(a.KNew, size(kernel.F32, a.Batch, a.Seq, a.KVHeads, a.Dim))
	n += operand(a.QIn, size(kernel.F32, a.Batch, a.Seq, a.Heads, a.Dim))
	n += operand(a.VNew, size(kernel.F32, a.Batch, a.Seq, a.KVHeads, a.Dim))
	n += operand(a.QNorm, size(kernel.F32, a.Dim))
	n += operand(a.KNorm, size(kernel.F32, a.Dim))
	n += operand(a.Cos, size(kernel.F32, a.TableRows, a.Half))
	n += operand(a.Sin, size(kernel.F32, a.TableRows, a.Half))
	n += operand(a.Positions, size(kernel.I32, a.Batch, a.Seq))
	n += operand(a.Sequences, size(kernel.I32, a.Batch))
	return n
}

func bytesOfAttentionArgs(a *kernel.AttentionArgs) (n int64) {
	a = touchedAttentionArgs(*a)
	n += operand(a.Out, size(a.Type, a.Batch, a.Seq, a.Heads, cmp.Or(a.ValueDim, a.Dim)))
	n += operand(a.Q, reach(a.Type, []int{a.QBatchStride, a.QHeadStride, a.QRowStride}, a.Batch, a.Heads, a.Seq, a.Dim))
	if a.Sequences != nil {
		n += operand(a.K, size(a.KVType, a.KVHeads, a.KVCapacity, a.Dim))
	} else {
		n += operand(a.K, size(a.KVType, a.Batch, a.KVHeads, a.KVCapacity, a.Dim))
	}
	if a.Sequences != nil {
		n += operand(a.V, size(a.KVType, a.KVHeads, a.KVCapacity, a.ValueDim))
	} else {
		n += operand(a.V, size(a.KVType, a.Batch, a.KVHeads, a.KVCapacity, a.ValueDim))
	}
	n += operand(a.Positions, size(kernel.I32, a.Batch, a.Seq))
	n += operand(a.Sequences, size(kernel.I32, a.Batch))
	n += operand(a.Sinks, size(kernel.F32, a.Heads))
	return n
}

func bytesOfCausalConvArgs(a *kernel.CausalConvArgs) (n int64) {
	n += operand(a.Out, size(kernel.F32, a.Batch, a.Seq, a.Channels))
	if a.Sequences != nil {
		n += operand(a.State, size(kernel.F32, cmp.Or(a.Slots, 1), a.Taps-1, a.Channels))
	} else {
		n += operand(a.State, size(kernel.F32, a.Batch, cmp.Or(a.Slots, 1), a.Taps-1, a.Channels))
	}
	n += operand(a.X, size(kernel.F32, a.Batch, a.Seq, a.Channels))
	n += operand(a.Weight, size(kernel.F32, a.Channels, a.Taps))
	n += operand(a.Sequences, size(kernel.I32, a.Batch))
	n += operand(a.Positions, size(kernel.I32, a.Batch, a.Seq))
	return n
}

func bytesOfGatedDeltaArgs(a *kernel.GatedDeltaArgs) (n int64) {
	n += operand(a.Out, size(kernel.F32, a.Batch, a.Seq, a.ValueHeads, a.ValueDim))
	if a.Sequences != nil {
		n += operand(a.State, size(kernel.F32, cmp.Or(a.Slots, 1), a.ValueHeads, a.KeyDim, a.ValueDim))
	} else {
		n += operand(a.State, size(kernel.F32, a.Batch, cmp.Or(a.Slots, 1), a.ValueHeads, a.KeyDim, a.ValueDim))
	}
	n += operand(a.QKV, size(kernel.F32, a.Batch, a.Seq, 2*a.KeyHeads*a.KeyDim+a.ValueHeads*a.ValueDim))
	n += operand(a.Alpha, size(kernel.F32, a.Batch, a.Seq, a.ValueHeads))
	n += operand(a.Beta, size(kernel.F32, a.Batch, a.Seq, a.ValueHeads))
	n += operand(a.A, size(kernel.F32, a.ValueHeads))
	n += operand(a.Dt, size(kernel.F32, a.ValueHeads))
	n += operand(a.Sequences, size(kernel.I32, a.Batch))
	n += operand(a.Positions, size(kernel.I32, a.Batch, a.Seq))
	return n
}

func bytesOfFeedForwardArgs(a *kernel.FeedForwardArgs) (n int64) {
	n += operand(a.Sum, size(kernel.F32, a.N, a.Gate.Cols))
	n += operand(a.X, size(kernel.F32, a.N, a.Gate.Cols))
	n += operand(a.Norm, size(kernel.F32, a.Gate.Cols))
	n += weight(a.Gate)
	n += weight(a.Up)
	n += weight(a.Down)
	n += operand(a.Normed, size(kernel.F32, a.N, a.Gate.Cols))
	n += operand(a.Gated, size(kernel.F32, a.N, a.Gate.Rows))
	n += operand(a.Product, size(kernel.F32, a.N, a.Gate.Rows))
	n += operand(a.NextNorm, size(kernel.F32, a.Gate.Cols))
	n += operand(a.GateV, size(kernel.F16, a.Ranks, a.Gate.Cols))
	n += operand(a.UpV, size(kernel.F16, a.Ranks, a.Gate.Cols))
	n += operand(a.GateU, size(kernel.F16, a.Gate.Rows, a.Ranks))
	n += operand(a.UpU, size(kernel.F16, a.Gate.Rows, a.Ranks))
	n += operand(a.DownV, size(kernel.F16, a.Ranks, a.Gate.Rows))
	n += operand(a.DownU, size(kernel.F16, a.Gate.Cols, a.Ranks))
	n += operand(a.Codes, reach(kernel.F32, []int{a.CodesStride}, a.N, a.Ranks))
	n += operand(a.NextQV, size(kernel.F16, a.Ranks, a.Gate.Cols))
	n += operand(a.NextKV, size(kernel.F16, a.Ranks, a.Gate.Cols))
	n += operand(a.NextVV, size(kernel.F16, a.Ranks, a.Gate.Cols))
	return n
}

func bytesOfExpertFeedForwardArgs(a *kernel.ExpertFeedForwardArgs) (n int64) {
	a = touchedExpertFeedForwardArgs(*a)
	n += operand(a.Sum, size(kernel.F32, a.N, a.Gate.Cols))
	n += operand(a.Add, size(kernel.F32, a.N, a.Gate.Cols))
	n += operand(a.X, size(kernel.F32, a.N, a.Gate.Cols))
	n += weight(a.Gate)
	n += weight(a.Up)
	n += weight(a.Down)
	n += operand(a.GateBias, size(kernel.F32, a.Experts, a.Gate.Rows))
	n += operand(a.UpBias, size(kernel.F32, a.Experts, a.Gate.Rows))
	n += operand(a.DownBias, size(kernel.F32, a.Experts, a.Gate.Cols))
	n += operand(a.IDs, size(kernel.I32, a.N, a.K))
	n += operand(a.Weights, size(kernel.F32, a.N, a.K))
	n += operand(a.Gated, size(kernel.F32, a.N, a.K, a.Gate.Rows))
	n += operand(a.Product, size(kernel.F32, a.N, a.K, a.Gate.Rows))
	n += operand(a.Chosen, size(kernel.F32, a.N, a.K, a.Gate.Cols))
	return n
}

func bytesOfNormRouteArgs(a *kernel.NormRouteArgs) (n int64) {
	n += operand(a.IDs, size(kernel.I32, a.N, a.K))
	n += operand(a.Weights, size(kernel.F32, a.N, a.K))
	n += operand(a.Normed, size(kernel.F32, a.N, a.Router.Cols))
	n += operand(a.Logits, size(kernel.F32, a.N, a.Router.Rows))
	n += operand(a.X, size(kernel.F32, a.N, a.Router.Cols))
	n += operand(a.Norm, size(kernel.F32, a.Router.Cols))
	n += weight(a.Router)
	n += operand(a.RouterBias, size(kernel.F32, a.Router.Rows))
	n += operand(a.Bias, size(kernel.F32, a.Router.Rows))
	return n
}

func bytesOfNormQKVArgs(a *kernel.NormQKVArgs) (n int64) {
	a = touchedNormQKVArgs(*a)
	n += operand(a.Q, size(kernel.F32, a.Batch, a.Seq, a.Heads, a.Dim))
	if a.Sequences != nil {
		n += operand(a.K, size(a.KVType, a.KVHeads, a.Capacity, a.Dim))
	} else {
		n += operand(a.K, size(a.KVType, a.Batch, a.KVHeads, a.Capacity, a.Dim))
	}
	if a.Sequences != nil {
		n += operand(a.V, size(a.KVType, a.KVHeads, a.Capacity, a.Dim))
	} else {
		n += operand(a.V, size(a.KVType, a.Batch, a.KVHeads, a.Capacity, a.Dim))
	}
	n += operand(a.X, size(kernel.F32, a.Batch, a.Seq, a.WQ.Cols))
	n += operand(a.Norm, size(kernel.F32, a.WQ.Cols))
	n += weight(a.WQ)
	n += weight(a.WK)
	n += weight(a.WV)
	n += operand(a.BQ, size(kernel.F32, a.WQ.Rows))
	n += operand(a.BK, size(kernel.F32, a.WK.Rows))
	n += operand(a.BV, size(kernel.F32, a.WV.Rows))
	n += operand(a.QNorm, size(kernel.F32, a.Dim))
	n += operand(a.KNorm, size(kernel.F32, a.Dim))
	n += operand(a.Cos, size(kernel.F32, a.TableRows, a.Half))
	n += operand(a.Sin, size(kernel.F32, a.TableRows, a.Half))
	n += operand(a.Positions, size(kernel.I32, a.Batch, a.Seq))
	n += operand(a.Sequences, size(kernel.I32, a.Batch))
	n += operand(a.Normed, size(kernel.F32, a.Batch, a.Seq, a.WQ.Cols))
	n += operand(a.KNew, size(kernel.F32, a.Batch, a.Seq, a.KVHeads, a.Dim))
	n += operand(a.VNew, size(kernel.F32, a.Batch, a.Seq, a.KVHeads, a.Dim))
	n += operand(a.QV, size(kernel.F16, a.Ranks, a.WQ.Cols))
	n += operand(a.KV, size(kernel.F16, a.Ranks, a.WQ.Cols))
	n += operand(a.VV, size(kernel.F16, a.Ranks, a.WQ.Cols))
	n += operand(a.QU, size(kernel.F16, a.WQ.Rows, a.Ranks))
	n += operand(a.KU, size(kernel.F16, a.WK.Rows, a.Ranks))
	n += operand(a.VU, size(kernel.F16, a.WK.Rows, a.Ranks))
	n += operand(a.Codes, reach(kernel.F32, []int{a.CodesStride}, a.Batch*a.Seq, a.Ranks))
	return n
}

func bytesOfUpdateArgs(a *kernel.UpdateArgs) (n int64) {
	n += operand(a.V, size(kernel.F16, a.Ranks, a.Cols))
	n += operand(a.U, size(kernel.F16, a.Rows, a.Ranks))
	n += operand(a.Codes, reach(kernel.F32, []int{a.CodesStride}, a.N, a.Ranks))
	n += operand(a.NextGateV, size(kernel.F16, a.Ranks, a.Rows))
	n += operand(a.NextUpV, size(kernel.F16, a.Ranks, a.Rows))
	return n
}

func (s *Stream) Add(out, a, b kernel.Ptr, t kernel.DType, n int) error {
	moved := int64(0)
	moved += operand(out, size(t, n))
	moved += operand(a, size(t, n))
	moved += operand(b, size(t, n))
	return s.timed("Add", moved, func() error { return s.Stream.Add(out, a, b, t, n) })
}

func (s *Stream) Mul(out, a, b kernel.Ptr, t kernel.DType, n int) error {
	moved := int64(0)
	moved += operand(out, size(t, n))
	moved += operand(a, size(t, n))
	moved += operand(b, size(t, n))
	return s.timed("Mul", moved, func() error { return s.Stream.Mul(out, a, b, t, n) })
}

func (s *Stream) MulScalar(out, a kernel.Ptr, scalar float32, t kernel.DType, n int) error {
	moved := int64(0)
	moved += operand(out, size(t, n))
	moved += operand(a, size(t, n))
	return s.timed("MulScalar", moved, func() error { return s.Stream.MulScalar(out, a, scalar, t, n) })
}

func (s *Stream) SiLU(out, a kernel.Ptr, t kernel.DType, n int) error {
	moved := int64(0)
	moved += operand(out, size(t, n))
	moved += operand(a, size(t, n))
	return s.timed("SiLU", moved, func() error { return s.Stream.SiLU(out, a, t, n) })
}

func (s *Stream) GELU(out, a kernel.Ptr, t kernel.DType, n int) error {
	moved := int64(0)
	moved += operand(out, size(t, n))
	moved += operand(a, size(t, n))
	return s.timed("GELU", moved, func() error { return s.Stream.GELU(out, a, t, n) })
}

func (s *Stream) GELUTanh(out, a kernel.Ptr, t kernel.DType, n int) error {
	moved := int64(0)
	moved += operand(out, size(t, n))
	moved += operand(a, size(t, n))
	return s.timed("GELUTanh", moved, func() error { return s.Stream.GELUTanh(out, a, t, n) })
}

func (s *Stream) SwiGLU(out, gate, up kernel.Ptr, t kernel.DType, n int) error {
	moved := int64(0)
	moved += operand(out, size(t, n))
	moved += operand(gate, size(t, n))
	moved += operand(up, size(t, n))
	return s.timed("SwiGLU", moved, func() error { return s.Stream.SwiGLU(out, gate, up, t, n) })
}

func (s *Stream) GLU(out, gate, up kernel.Ptr, activation kernel.Activation, alpha, limit float32, t kernel.DType, n int) error {
	moved := int64(0)
	moved += operand(out, size(t, n))
	moved += operand(gate, size(t, n))
	moved += operand(up, size(t, n))
	return s.timed("GLU", moved, func() error { return s.Stream.GLU(out, gate, up, activation, alpha, limit, t, n) })
}

func (s *Stream) Sigmoid(out, a kernel.Ptr, t kernel.DType, n int) error {
	moved := int64(0)
	moved += operand(out, size(t, n))
	moved += operand(a, size(t, n))
	return s.timed("Sigmoid", moved, func() error { return s.Stream.Sigmoid(out, a, t, n) })
}

func (s *Stream) SoftCap(out, a kernel.Ptr, cap float32, t kernel.DType, n int) error {
	moved := int64(0)
	moved += operand(out, size(t, n))
	moved += operand(a, size(t, n))
	return s.timed("SoftCap", moved, func() error { return s.Stream.SoftCap(out, a, cap, t, n) })
}

func (s *Stream) Copy(out, in kernel.Ptr, t kernel.DType, n int) error {
	moved := int64(0)
	moved += operand(out, size(t, n))
	moved += operand(in, size(t, n))
	return s.timed("Copy", moved, func() error { return s.Stream.Copy(out, in, t, n) })
}

func (s *Stream) Convert(out kernel.Ptr, outType kernel.DType, in kernel.Ptr, inType kernel.DType, n int) error {
	moved := int64(0)
	moved += operand(out, size(outType, n))
	moved += operand(in, size(inType, n))
	return s.timed("Convert", moved, func() error { return s.Stream.Convert(out, outType, in, inType, n) })
}

func (s *Stream) IncrementI32(x kernel.Ptr, n int) error {
	moved := int64(0)
	moved += operand(x, size(kernel.I32, n))
	return s.timed("IncrementI32", moved, func() error { return s.Stream.IncrementI32(x, n) })
}

func (s *Stream) Softmax(out, in kernel.Ptr, t kernel.DType, rows, cols int) error {
	moved := int64(0)
	moved += operand(out, size(t, rows, cols))
	moved += operand(in, size(t, rows, cols))
	return s.timed("Softmax", moved, func() error { return s.Stream.Softmax(out, in, t, rows, cols) })
}

func (s *Stream) RMSNorm(out, in, weight kernel.Ptr, t kernel.DType, rows, cols int, eps float32) error {
	moved := int64(0)
	moved += operand(out, size(t, rows, cols))
	moved += operand(in, size(t, rows, cols))
	moved += operand(weight, size(kernel.F32, cols))
	return s.timed("RMSNorm", moved, func() error { return s.Stream.RMSNorm(out, in, weight, t, rows, cols, eps) })
}

func (s *Stream) LayerNorm(out, in, weight, bias kernel.Ptr, t kernel.DType, rows, cols int, eps float32) error {
	moved := int64(0)
	moved += operand(out, size(t, rows, cols))
	moved += operand(in, size(t, rows, cols))
	moved += operand(weight, size(kernel.F32, cols))
	moved += operand(bias, size(kernel.F32, cols))
	return s.timed("LayerNorm", moved, func() error { return s.Stream.LayerNorm(out, in, weight, bias, t, rows, cols, eps) })
}

func (s *Stream) AddRMSNorm(sum, out, a, b, weight kernel.Ptr, t kernel.DType, rows, cols int, eps float32) error {
	moved := int64(0)
	moved += operand(sum, size(t, rows, cols))
	moved += operand(out, size(t, rows, cols))
	moved += operand(a, size(t, rows, cols))
	moved += operand(b, size(t, rows, cols))
	moved += operand(weight, size(kernel.F32, cols))
	return s.timed("AddRMSNorm", moved, func() error { return s.Stream.AddRMSNorm(sum, out, a, b, weight, t, rows, cols, eps) })
}

func (s *Stream) MulRows(out, a, factors kernel.Ptr, t kernel.DType, rows, cols int) error {
	moved := int64(0)
	moved += operand(out, size(t, rows, cols))
	moved += operand(a, size(t, rows, cols))
	moved += operand(factors, size(kernel.F32, rows))
	return s.timed("MulRows", moved, func() error { return s.Stream.MulRows(out, a, factors, t, rows, cols) })
}

func (s *Stream) Argmax(out, in kernel.Ptr, rows, cols int) error {
	moved := int64(0)
	moved += operand(out, size(kernel.I32, rows))
	moved += operand(in, size(kernel.F32, rows, cols))
	return s.timed("Argmax", moved, func() error { return s.Stream.Argmax(out, in, rows, cols) })
}

func (s *Stream) TopK(values, ids, in kernel.Ptr, rows, cols, k int) error {
	moved := int64(0)
	moved += operand(values, size(kernel.F32, rows, k))
	moved += operand(ids, size(kernel.I32, rows, k))
	moved += operand(in, size(kernel.F32, rows, cols))
	return s.timed("TopK", moved, func() error { return s.Stream.TopK(values, ids, in, rows, cols, k) })
}

func (s *Stream) Map(args *kernel.MapArgs) error {
	moved := int64(0)
	moved += bytesOfMapArgs(args)
	return s.timed("Map", moved, func() error { return s.Stream.Map(args) })
}

func (s *Stream) Reduce(args *kernel.ReduceArgs) error {
	moved := int64(0)
	moved += bytesOfReduceArgs(args)
	return s.timed("Reduce", moved, func() error { return s.Stream.Reduce(args) })
}

func (s *Stream) CumSum(out, in kernel.Ptr, t kernel.DType, rows, n, cols int) error {
	moved := int64(0)
	moved += operand(out, size(t, rows, n, cols))
	moved += operand(in, size(t, rows, n, cols))
	return s.timed("CumSum", moved, func() error { return s.Stream.CumSum(out, in, t, rows, n, cols) })
}

func (s *Stream) Sort(args *kernel.SortArgs) error {
	moved := int64(0)
	moved += bytesOfSortArgs(args)
	return s.timed("Sort", moved, func() error { return s.Stream.Sort(args) })
}

func (s *Stream) Index(args *kernel.IndexArgs) error {
	moved := int64(0)
	moved += bytesOfIndexArgs(args)
	return s.timed("Index", moved, func() error { return s.Stream.Index(args) })
}

func (s *Stream) MatMul(args *kernel.MatMulArgs) error {
	moved := int64(0)
	moved += bytesOfMatMulArgs(args)
	return s.timed("MatMul", moved, func() error { return s.Stream.MatMul(args) })
}

func (s *Stream) MatMulSingleRow(c, a, b kernel.Ptr, t kernel.DType, k, n int) error {
	moved := int64(0)
	moved += operand(c, size(t, n))
	moved += operand(a, size(t, k))
	moved += operand(b, size(t, k, n))
	return s.timed("MatMulSingleRow", moved, func() error { return s.Stream.MatMulSingleRow(c, a, b, t, k, n) })
}

func (s *Stream) Linear(y, x kernel.Ptr, w kernel.Weight, bias kernel.Ptr, n int) error {
	moved := int64(0)
	moved += operand(y, size(kernel.F32, n, w.Rows))
	moved += operand(x, size(kernel.F32, n, w.Cols))
	moved += weight(w)
	moved += operand(bias, size(kernel.F32, w.Rows))
	return s.timed("Linear", moved, func() error { return s.Stream.Linear(y, x, w, bias, n) })
}

func (s *Stream) FusedUpdate(args *kernel.FusedUpdateArgs) error {
	moved := int64(0)
	moved += bytesOfFusedUpdateArgs(args)
	return s.timed("FusedUpdate", moved, func() error { return s.Stream.FusedUpdate(args) })
}

func (s *Stream) NormQuantize(args *kernel.NormQuantizeArgs) error {
	moved := int64(0)
	moved += bytesOfNormQuantizeArgs(args)
	return s.timed("NormQuantize", moved, func() error { return s.Stream.NormQuantize(args) })
}

func (s *Stream) DequantizeRows(out, codes, scales kernel.Ptr, rows, cols int) error {
	moved := int64(0)
	moved += operand(out, size(kernel.F32, rows, cols))
	moved += operand(codes, size(kernel.I8, rows, cols))
	moved += operand(scales, size(kernel.F32, rows))
	return s.timed("DequantizeRows", moved, func() error { return s.Stream.DequantizeRows(out, codes, scales, rows, cols) })
}

func (s *Stream) W2A8GEMV(args *kernel.W2A8GEMVArgs) error {
	moved := int64(0)
	moved += bytesOfW2A8GEMVArgs(args)
	return s.timed("W2A8GEMV", moved, func() error { return s.Stream.W2A8GEMV(args) })
}

func (s *Stream) BitLinear(args *kernel.BitLinearArgs) error {
	moved := int64(0)
	moved += bytesOfBitLinearArgs(args)
	return s.timed("BitLinear", moved, func() error { return s.Stream.BitLinear(args) })
}

func (s *Stream) TMACLUT(lut, activations kernel.Ptr, k, n int) error {
	moved := int64(0)
	moved += operand(lut, size(kernel.F32, n, (k+3)/4, 256))
	moved += operand(activations, size(kernel.F32, k, n))
	return s.timed("TMACLUT", moved, func() error { return s.Stream.TMACLUT(lut, activations, k, n) })
}

func (s *Stream) TMACMatMul(args *kernel.TMACMatMulArgs) error {
	moved := int64(0)
	moved += bytesOfTMACMatMulArgs(args)
	return s.timed("TMACMatMul", moved, func() error { return s.Stream.TMACMatMul(args) })
}

func (s *Stream) Route(args *kernel.RouteArgs) error {
	moved := int64(0)
	moved += bytesOfRouteArgs(args)
	return s.timed("Route", moved, func() error { return s.Stream.Route(args) })
}

func (s *Stream) ExpertLinear(args *kernel.ExpertLinearArgs) error {
	moved := int64(0)
	moved += bytesOfExpertLinearArgs(args)
	return s.timed("ExpertLinear", moved, func() error { return s.Stream.ExpertLinear(args) })
}

func (s *Stream) ExpertSum(out, add, y, weights kernel.Ptr, n, k, cols int) error {
	moved := int64(0)
	moved += operand(out, size(kernel.F32, n, cols))
	moved += operand(add, size(kernel.F32, n, cols))
	moved += operand(y, size(kernel.F32, n, k, cols))
	moved += operand(weights, size(kernel.F32, n, k))
	return s.timed("ExpertSum", moved, func() error { return s.Stream.ExpertSum(out, add, y, weights, n, k, cols) })
}

func (s *Stream) RoPE(args *kernel.RoPEArgs) error {
	moved := int64(0)
	moved += bytesOfRoPEArgs(args)
	return s.timed("RoPE", moved, func() error { return s.Stream.RoPE(args) })
}

func (s *Stream) KVWrite(args *kernel.KVWriteArgs) error {
	moved := int64(0)
	moved += bytesOfKVWriteArgs(args)
	return s.timed("KVWrite", moved, func() error { return s.Stream.KVWrite(args) })
}

func (s *Stream) RoPEKVWrite(args *kernel.RoPEKVWriteArgs) error {
	moved := int64(0)
	moved += bytesOfRoPEKVWriteArgs(args)
	return s.timed("RoPEKVWrite", moved, func() error { return s.Stream.RoPEKVWrite(args) })
}

func (s *Stream) Attention(args *kernel.AttentionArgs) error {
	moved := int64(0)
	moved += bytesOfAttentionArgs(args)
	return s.timed("Attention", moved, func() error { return s.Stream.Attention(args) })
}

func (s *Stream) CausalConv(args *kernel.CausalConvArgs) error {
	moved := int64(0)
	moved += bytesOfCausalConvArgs(args)
	return s.timed("CausalConv", moved, func() error { return s.Stream.CausalConv(args) })
}

func (s *Stream) GatedDelta(args *kernel.GatedDeltaArgs) error {
	moved := int64(0)
	moved += bytesOfGatedDeltaArgs(args)
	return s.timed("GatedDelta", moved, func() error { return s.Stream.GatedDelta(args) })
}

func (s *Stream) NormLinear(y, x, norm kernel.Ptr, eps float32, w kernel.Weight, bias, normed kernel.Ptr, n int) error {
	moved := int64(0)
	moved += operand(y, size(kernel.F32, n, w.Rows))
	moved += operand(x, size(kernel.F32, n, w.Cols))
	moved += operand(norm, size(kernel.F32, w.Cols))
	moved += weight(w)
	moved += operand(bias, size(kernel.F32, w.Rows))
	moved += operand(normed, size(kernel.F32, n, w.Cols))
	return s.timed("NormLinear", moved, func() error { return s.Stream.NormLinear(y, x, norm, eps, w, bias, normed, n) })
}

func (s *Stream) NormSwiGLU(out, x, norm kernel.Ptr, eps float32, gate, up kernel.Weight, normed, product kernel.Ptr, n int) error {
	moved := int64(0)
	moved += operand(out, size(kernel.F32, n, gate.Rows))
	moved += operand(x, size(kernel.F32, n, gate.Cols))
	moved += operand(norm, size(kernel.F32, gate.Cols))
	moved += weight(gate)
	moved += weight(up)
	moved += operand(normed, size(kernel.F32, n, gate.Cols))
	moved += operand(product, size(kernel.F32, n, gate.Rows))
	return s.timed("NormSwiGLU", moved, func() error { return s.Stream.NormSwiGLU(out, x, norm, eps, gate, up, normed, product, n) })
}

func (s *Stream) LinearAdd(sum, a, x kernel.Ptr, w kernel.Weight, bias, product kernel.Ptr, n int) error {
	moved := int64(0)
	moved += operand(sum, size(kernel.F32, n, w.Rows))
	moved += operand(a, size(kernel.F32, n, w.Rows))
	moved += operand(x, size(kernel.F32, n, w.Cols))
	moved += weight(w)
	moved += operand(bias, size(kernel.F32, w.Rows))
	moved += operand(product, size(kernel.F32, n, w.Rows))
	return s.timed("LinearAdd", moved, func() error { return s.Stream.LinearAdd(sum, a, x, w, bias, product, n) })
}

func (s *Stream) FeedForward(args *kernel.FeedForwardArgs) error {
	moved := int64(0)
	moved += bytesOfFeedForwardArgs(args)
	return s.timed("FeedForward", moved, func() error { return s.Stream.FeedForward(args) })
}

func (s *Stream) ExpertFeedForward(args *kernel.ExpertFeedForwardArgs) error {
	moved := int64(0)
	moved += bytesOfExpertFeedForwardArgs(args)
	return s.timed("ExpertFeedForward", moved, func() error { return s.Stream.ExpertFeedForward(args) })
}

func (s *Stream) NormRoute(args *kernel.NormRouteArgs) error {
	moved := int64(0)
	moved += bytesOfNormRouteArgs(args)
	return s.timed("NormRoute", moved, func() error { return s.Stream.NormRoute(args) })
}

func (s *Stream) NormQKV(args *kernel.NormQKVArgs) error {
	moved := int64(0)
	moved += bytesOfNormQKVArgs(args)
	return s.timed("NormQKV", moved, func() error { return s.Stream.NormQKV(args) })
}

func (s *Stream) AttentionLinearAdd(sum, a kernel.Ptr, attention *kernel.AttentionArgs, w kernel.Weight, bias kernel.Ptr, update *kernel.UpdateArgs, product, nextNorm, normed kernel.Ptr) (nextPrepared bool, err error) {
	moved := int64(0)
	moved += operand(sum, size(kernel.F32, attention.Batch, attention.Seq, w.Rows))
	moved += operand(a, size(kernel.F32, attention.Batch, attention.Seq, w.Rows))
	moved += bytesOfAttentionArgs(attention)
	moved += weight(w)
	moved += operand(bias, size(kernel.F32, w.Rows))
	moved += bytesOfUpdateArgs(update)
	moved += operand(product, size(kernel.F32, attention.Batch, attention.Seq, w.Rows))
	moved += operand(nextNorm, size(kernel.F32, w.Rows))
	moved += operand(normed, size(kernel.F32, attention.Batch, attention.Seq, w.Rows))
	err = s.timed("AttentionLinearAdd", moved, func() (err error) {
		nextPrepared, err = s.Stream.AttentionLinearAdd(sum, a, attention, w, bias, update, product, nextNorm, normed)
		return err
	})
	return nextPrepared, err
}
