// Code generated from csrc/vibrant.h by internal/backend/generate. DO NOT EDIT.

package fake

import (
	"cmp"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// placeMapArgs returns the arguments with the host addresses of their memory.
func (o *op) placeMapArgs(a kernel.MapArgs) kernel.MapArgs {
	a.Out = o.view(a.Out, a.Sizes[:a.Rank])
	for i := range a.In {
		a.In[i] = o.view(a.In[i], a.Sizes[:a.Rank])
	}
	return a
}

// placeReduceArgs returns the arguments with the host addresses of their memory.
func (o *op) placeReduceArgs(a kernel.ReduceArgs) kernel.ReduceArgs {
	a.Out = o.view(a.Out, a.Sizes[:a.Rank])
	a.In = o.view(a.In, a.Sizes[:a.Rank])
	return a
}

// placeSortArgs returns the arguments with the host addresses of their memory.
func (o *op) placeSortArgs(a kernel.SortArgs) kernel.SortArgs {
	a.Values = o.view(a.Values, a.OutSizes[:a.Rank])
	a.Indices = o.view(a.Indices, a.OutSizes[:a.Rank])
	a.In = o.view(a.In, a.Sizes[:a.Rank])
	return a
}

// placeIndexArgs returns the arguments with the host addresses of their memory.
func (o *op) placeIndexArgs(a kernel.IndexArgs) kernel.IndexArgs {
	a.Out = o.view(a.Out, a.OutSizes[:a.Rank])
	a.In = o.view(a.In, a.InSizes[:a.Rank])
	a.IDs = o.view(a.IDs, a.IDsSizes[:a.Rank])
	return a
}

// placeMatMulArgs returns the arguments with the host addresses of their memory.
func (o *op) placeMatMulArgs(a kernel.MatMulArgs) kernel.MatMulArgs {
	a.C = o.at(a.C, reach(a.Type, []int{a.CBatchStride, a.CStride}, a.Batch, a.M, a.N))
	if a.ATransposed {
		a.A = o.at(a.A, reach(a.Type, []int{a.ABatchStride, a.AStride}, a.Batch, a.K, a.M))
	} else {
		a.A = o.at(a.A, reach(a.Type, []int{a.ABatchStride, a.AStride}, a.Batch, a.M, a.K))
	}
	if a.BTransposed {
		a.B = o.at(a.B, reach(a.Type, []int{a.BBatchStride, a.BStride}, a.Batch, a.N, a.K))
	} else {
		a.B = o.at(a.B, reach(a.Type, []int{a.BBatchStride, a.BStride}, a.Batch, a.K, a.N))
	}
	return a
}

// placeFusedUpdateArgs returns the arguments with the host addresses of their memory.
func (o *op) placeFusedUpdateArgs(a kernel.FusedUpdateArgs) kernel.FusedUpdateArgs {
	a.Out = o.at(a.Out, size(a.Type, a.M, a.N))
	a.Add = o.optional(a.Add, size(a.Type, a.M, a.N))
	a.X = o.at(a.X, size(a.Type, a.M, a.K))
	a.V = o.at(a.V, size(a.WeightType, a.K, a.R))
	a.Codes = o.optional(a.Codes, reach(a.Type, []int{a.CodesStride}, a.M, a.R))
	a.U = o.at(a.U, size(a.WeightType, a.N, a.R))
	return a
}

// placeNormQuantizeArgs returns the arguments with the host addresses of their memory.
func (o *op) placeNormQuantizeArgs(a kernel.NormQuantizeArgs) kernel.NormQuantizeArgs {
	a.Codes = o.at(a.Codes, size(kernel.I8, a.Rows, a.Cols))
	a.Scales = o.at(a.Scales, size(kernel.F32, a.Rows))
	a.In = o.at(a.In, size(kernel.F32, a.Rows, a.Cols))
	a.Up = o.optional(a.Up, size(kernel.F32, a.Rows, a.Cols))
	a.Norm = o.optional(a.Norm, size(kernel.F32, a.Cols))
	return a
}

// placeW2A8GEMVArgs returns the arguments with the host addresses of their memory.
func (o *op) placeW2A8GEMVArgs(a kernel.W2A8GEMVArgs) kernel.W2A8GEMVArgs {
	a.Out = o.at(a.Out, size(a.OutType, a.M, a.N))
	a.Weights = o.at(a.Weights, size(kernel.I8, a.N, a.RowBytes))
	a.Activations = o.at(a.Activations, size(kernel.I8, a.M, a.K))
	a.ActivationScales = o.optional(a.ActivationScales, size(kernel.F32, a.M))
	a.WeightScales = o.optional(a.WeightScales, size(kernel.F32, a.Segments))
	a.SegmentEnds = o.optional(a.SegmentEnds, size(kernel.I32, a.Segments))
	a.Bias = o.optional(a.Bias, size(kernel.F32, a.N))
	a.Add = o.optional(a.Add, size(kernel.F32, a.M, a.N))
	return a
}

// placeBitLinearArgs returns the arguments with the host addresses of their memory.
func (o *op) placeBitLinearArgs(a kernel.BitLinearArgs) kernel.BitLinearArgs {
	a.Out = o.at(a.Out, size(kernel.F32, a.M, a.N))
	a.Out2 = o.optional(a.Out2, size(kernel.F32, a.M, a.N2))
	a.Out3 = o.optional(a.Out3, size(kernel.F32, a.M, a.N3))
	a.Codes = o.at(a.Codes, size(kernel.I8, a.M, a.K))
	a.Scales = o.at(a.Scales, size(kernel.F32, a.M))
	a.In = o.at(a.In, size(kernel.F32, a.M, a.K))
	a.Up = o.optional(a.Up, size(kernel.F32, a.M, a.K))
	a.Norm = o.optional(a.Norm, size(kernel.F32, a.K))
	a.Add = o.optional(a.Add, size(kernel.F32, a.M, a.N))
	a.Weights = o.at(a.Weights, size(kernel.I8, a.N, a.RowBytes))
	a.Weights2 = o.optional(a.Weights2, size(kernel.I8, a.N2, a.RowBytes))
	a.Weights3 = o.optional(a.Weights3, size(kernel.I8, a.N3, a.RowBytes))
	a.WeightScales = o.at(a.WeightScales, size(kernel.F32, a.Segments))
	a.WeightScales2 = o.optional(a.WeightScales2, size(kernel.F32, a.Segments2))
	a.WeightScales3 = o.optional(a.WeightScales3, size(kernel.F32, a.Segments3))
	return a
}

// placeTMACMatMulArgs returns the arguments with the host addresses of their memory.
func (o *op) placeTMACMatMulArgs(a kernel.TMACMatMulArgs) kernel.TMACMatMulArgs {
	a.Out = o.at(a.Out, size(kernel.F32, a.M, a.N))
	a.Weights = o.at(a.Weights, size(kernel.I8, a.M, (a.K+3)/4))
	a.Activations = o.optional(a.Activations, size(kernel.F32, a.K, a.N))
	a.LUT = o.optional(a.LUT, size(kernel.F32, a.N, (a.K+3)/4, 256))
	a.Scales = o.optional(a.Scales, size(kernel.F32, a.M, a.Groups))
	a.Norm = o.optional(a.Norm, size(kernel.F32, a.K))
	return a
}

// placeRouteArgs returns the arguments with the host addresses of their memory.
func (o *op) placeRouteArgs(a kernel.RouteArgs) kernel.RouteArgs {
	a.IDs = o.at(a.IDs, size(kernel.I32, a.N, a.K))
	a.Weights = o.at(a.Weights, size(kernel.F32, a.N, a.K))
	a.Logits = o.at(a.Logits, size(kernel.F32, a.N, a.Experts))
	a.Bias = o.optional(a.Bias, size(kernel.F32, a.Experts))
	return a
}

// placeExpertLinearArgs returns the arguments with the host addresses of their memory.
func (o *op) placeExpertLinearArgs(a kernel.ExpertLinearArgs) kernel.ExpertLinearArgs {
	a.Y = o.at(a.Y, size(kernel.F32, a.N, a.K, a.W.Rows))
	if a.XPerChoice {
		a.X = o.at(a.X, size(kernel.F32, a.N, a.K, a.W.Cols))
	} else {
		a.X = o.at(a.X, size(kernel.F32, a.N, a.W.Cols))
	}
	a.W = o.weight(a.W)
	a.Bias = o.optional(a.Bias, size(kernel.F32, a.Experts, a.W.Rows))
	a.IDs = o.at(a.IDs, size(kernel.I32, a.N, a.K))
	return a
}

// placeRoPEArgs returns the arguments with the host addresses of their memory.
func (o *op) placeRoPEArgs(a kernel.RoPEArgs) kernel.RoPEArgs {
	a.Out = o.at(a.Out, size(a.Type, a.Batch, a.Heads, a.Seq, a.Dim))
	a.In = o.at(a.In, size(a.Type, a.Batch, a.Heads, a.Seq, a.Dim))
	a.Cos = o.at(a.Cos, size(kernel.F32, a.TableRows, a.Half))
	a.Sin = o.at(a.Sin, size(kernel.F32, a.TableRows, a.Half))
	a.Positions = o.optional(a.Positions, reach(kernel.I32, []int{a.PositionStride}, a.Batch, a.Seq))
	return a
}

// placeKVWriteArgs returns the arguments with the host addresses of their memory.
func (o *op) placeKVWriteArgs(a kernel.KVWriteArgs) kernel.KVWriteArgs {
	if a.Sequences != nil {
		a.K = o.at(a.K, size(a.Type, a.KVHeads, a.Capacity, a.Dim))
	} else {
		a.K = o.at(a.K, size(a.Type, a.Batch, a.KVHeads, a.Capacity, a.Dim))
	}
	if a.Sequences != nil {
		a.V = o.optional(a.V, size(a.Type, a.KVHeads, a.Capacity, cmp.Or(a.ValueDim, a.Dim)))
	} else {
		a.V = o.optional(a.V, size(a.Type, a.Batch, a.KVHeads, a.Capacity, cmp.Or(a.ValueDim, a.Dim)))
	}
	a.KIn = o.at(a.KIn, size(kernel.F32, a.Batch, a.Seq, a.KVHeads, a.Dim))
	a.VIn = o.optional(a.VIn, size(kernel.F32, a.Batch, a.Seq, a.KVHeads, cmp.Or(a.ValueDim, a.Dim)))
	a.Positions = o.at(a.Positions, size(kernel.I32, a.Batch, a.Seq))
	a.Sequences = o.optional(a.Sequences, size(kernel.I32, a.Batch))
	return a
}

// placeRoPEKVWriteArgs returns the arguments with the host addresses of their memory.
func (o *op) placeRoPEKVWriteArgs(a kernel.RoPEKVWriteArgs) kernel.RoPEKVWriteArgs {
	a.Q = o.at(a.Q, size(kernel.F32, a.Batch, a.Seq, a.Heads, a.Dim))
	if a.Sequences != nil {
		a.K = o.at(a.K, size(a.KVType, a.KVHeads, a.Capacity, a.Dim))
	} else {
		a.K = o.at(a.K, size(a.KVType, a.Batch, a.KVHeads, a.Capacity, a.Dim))
	}
	if a.Sequences != nil {
		a.V = o.at(a.V, size(a.KVType, a.KVHeads, a.Capacity, a.Dim))
	} else {
		a.V = o.at(a.V, size(a.KVType, a.Batch, a.KVHeads, a.Capacity, a.Dim))
	}
	a.KNew = o.at(a.KNew, size(kernel.F32, a.Batch, a.Seq, a.KVHeads, a.Dim))
	a.QIn = o.at(a.QIn, size(kernel.F32, a.Batch, a.Seq, a.Heads, a.Dim))
	a.VNew = o.at(a.VNew, size(kernel.F32, a.Batch, a.Seq, a.KVHeads, a.Dim))
	a.QNorm = o.optional(a.QNorm, size(kernel.F32, a.Dim))
	a.KNorm = o.optional(a.KNorm, size(kernel.F32, a.Dim))
	a.Cos = o.at(a.Cos, size(kernel.F32, a.TableRows, a.Half))
	a.Sin = o.at(a.Sin, size(kernel.F32, a.TableRows, a.Half))
	a.Positions = o.at(a.Positions, size(kernel.I32, a.Batch, a.Seq))
	a.Sequences = o.optional(a.Sequences, size(kernel.I32, a.Batch))
	return a
}

// placeAttentionArgs returns the arguments with the host addresses of their memory.
func (o *op) placeAttentionArgs(a kernel.AttentionArgs) kernel.AttentionArgs {
	a.Out = o.at(a.Out, size(a.Type, a.Batch, a.Seq, a.Heads, cmp.Or(a.ValueDim, a.Dim)))
	a.Q = o.at(a.Q, reach(a.Type, []int{a.QBatchStride, a.QHeadStride, a.QRowStride}, a.Batch, a.Heads, a.Seq, a.Dim))
	if a.Sequences != nil {
		a.K = o.at(a.K, size(a.KVType, a.KVHeads, a.KVCapacity, a.Dim))
	} else {
		a.K = o.at(a.K, size(a.KVType, a.Batch, a.KVHeads, a.KVCapacity, a.Dim))
	}
	if a.Sequences != nil {
		a.V = o.optional(a.V, size(a.KVType, a.KVHeads, a.KVCapacity, a.ValueDim))
	} else {
		a.V = o.optional(a.V, size(a.KVType, a.Batch, a.KVHeads, a.KVCapacity, a.ValueDim))
	}
	a.Positions = o.optional(a.Positions, size(kernel.I32, a.Batch, a.Seq))
	a.Sequences = o.optional(a.Sequences, size(kernel.I32, a.Batch))
	a.Sinks = o.optional(a.Sinks, size(kernel.F32, a.Heads))
	return a
}

// placeCausalConvArgs returns the arguments with the host addresses of their memory.
func (o *op) placeCausalConvArgs(a kernel.CausalConvArgs) kernel.CausalConvArgs {
	a.Out = o.at(a.Out, size(kernel.F32, a.Batch, a.Seq, a.Channels))
	if a.Sequences != nil {
		a.State = o.at(a.State, size(kernel.F32, cmp.Or(a.Slots, 1), a.Taps-1, a.Channels))
	} else {
		a.State = o.at(a.State, size(kernel.F32, a.Batch, cmp.Or(a.Slots, 1), a.Taps-1, a.Channels))
	}
	a.X = o.at(a.X, size(kernel.F32, a.Batch, a.Seq, a.Channels))
	a.Weight = o.at(a.Weight, size(kernel.F32, a.Channels, a.Taps))
	a.Sequences = o.optional(a.Sequences, size(kernel.I32, a.Batch))
	a.Positions = o.optional(a.Positions, size(kernel.I32, a.Batch, a.Seq))
	return a
}

// placeGatedDeltaArgs returns the arguments with the host addresses of their memory.
func (o *op) placeGatedDeltaArgs(a kernel.GatedDeltaArgs) kernel.GatedDeltaArgs {
	a.Out = o.at(a.Out, size(kernel.F32, a.Batch, a.Seq, a.ValueHeads, a.ValueDim))
	if a.Sequences != nil {
		a.State = o.at(a.State, size(kernel.F32, cmp.Or(a.Slots, 1), a.ValueHeads, a.KeyDim, a.ValueDim))
	} else {
		a.State = o.at(a.State, size(kernel.F32, a.Batch, cmp.Or(a.Slots, 1), a.ValueHeads, a.KeyDim, a.ValueDim))
	}
	a.QKV = o.at(a.QKV, size(kernel.F32, a.Batch, a.Seq, 2*a.KeyHeads*a.KeyDim+a.ValueHeads*a.ValueDim))
	a.Alpha = o.at(a.Alpha, size(kernel.F32, a.Batch, a.Seq, a.ValueHeads))
	a.Beta = o.at(a.Beta, size(kernel.F32, a.Batch, a.Seq, a.ValueHeads))
	a.A = o.at(a.A, size(kernel.F32, a.ValueHeads))
	a.Dt = o.at(a.Dt, size(kernel.F32, a.ValueHeads))
	a.Sequences = o.optional(a.Sequences, size(kernel.I32, a.Batch))
	a.Positions = o.optional(a.Positions, size(kernel.I32, a.Batch, a.Seq))
	return a
}

// placeFeedForwardArgs returns the arguments with the host addresses of their memory.
func (o *op) placeFeedForwardArgs(a kernel.FeedForwardArgs) kernel.FeedForwardArgs {
	a.Sum = o.at(a.Sum, size(kernel.F32, a.N, a.Gate.Cols))
	a.X = o.optional(a.X, size(kernel.F32, a.N, a.Gate.Cols))
	a.Norm = o.optional(a.Norm, size(kernel.F32, a.Gate.Cols))
	a.Gate = o.weight(a.Gate)
	a.Up = o.weight(a.Up)
	a.Down = o.weight(a.Down)
	a.Normed = o.at(a.Normed, size(kernel.F32, a.N, a.Gate.Cols))
	a.Gated = o.at(a.Gated, size(kernel.F32, a.N, a.Gate.Rows))
	a.Product = o.at(a.Product, size(kernel.F32, a.N, a.Gate.Rows))
	a.NextNorm = o.optional(a.NextNorm, size(kernel.F32, a.Gate.Cols))
	a.GateV = o.optional(a.GateV, size(kernel.F16, a.Ranks, a.Gate.Cols))
	a.UpV = o.optional(a.UpV, size(kernel.F16, a.Ranks, a.Gate.Cols))
	a.GateU = o.optional(a.GateU, size(kernel.F16, a.Gate.Rows, a.Ranks))
	a.UpU = o.optional(a.UpU, size(kernel.F16, a.Gate.Rows, a.Ranks))
	a.DownV = o.optional(a.DownV, size(kernel.F16, a.Ranks, a.Gate.Rows))
	a.DownU = o.optional(a.DownU, size(kernel.F16, a.Gate.Cols, a.Ranks))
	a.Codes = o.optional(a.Codes, reach(kernel.F32, []int{a.CodesStride}, a.N, a.Ranks))
	a.NextQV = o.optional(a.NextQV, size(kernel.F16, a.Ranks, a.Gate.Cols))
	a.NextKV = o.optional(a.NextKV, size(kernel.F16, a.Ranks, a.Gate.Cols))
	a.NextVV = o.optional(a.NextVV, size(kernel.F16, a.Ranks, a.Gate.Cols))
	a.NextPrepared = false
	return a
}

// placeExpertFeedForwardArgs returns the arguments with the host addresses of their memory.
func (o *op) placeExpertFeedForwardArgs(a kernel.ExpertFeedForwardArgs) kernel.ExpertFeedForwardArgs {
	a.Sum = o.at(a.Sum, size(kernel.F32, a.N, a.Gate.Cols))
	a.Add = o.optional(a.Add, size(kernel.F32, a.N, a.Gate.Cols))
	a.X = o.at(a.X, size(kernel.F32, a.N, a.Gate.Cols))
	a.Gate = o.weight(a.Gate)
	a.Up = o.weight(a.Up)
	a.Down = o.weight(a.Down)
	a.GateBias = o.optional(a.GateBias, size(kernel.F32, a.Experts, a.Gate.Rows))
	a.UpBias = o.optional(a.UpBias, size(kernel.F32, a.Experts, a.Gate.Rows))
	a.DownBias = o.optional(a.DownBias, size(kernel.F32, a.Experts, a.Gate.Cols))
	a.IDs = o.at(a.IDs, size(kernel.I32, a.N, a.K))
	a.Weights = o.optional(a.Weights, size(kernel.F32, a.N, a.K))
	a.Gated = o.at(a.Gated, size(kernel.F32, a.N, a.K, a.Gate.Rows))
	a.Product = o.at(a.Product, size(kernel.F32, a.N, a.K, a.Gate.Rows))
	a.Chosen = o.at(a.Chosen, size(kernel.F32, a.N, a.K, a.Gate.Cols))
	return a
}

// placeNormRouteArgs returns the arguments with the host addresses of their memory.
func (o *op) placeNormRouteArgs(a kernel.NormRouteArgs) kernel.NormRouteArgs {
	a.IDs = o.at(a.IDs, size(kernel.I32, a.N, a.K))
	a.Weights = o.at(a.Weights, size(kernel.F32, a.N, a.K))
	a.Normed = o.at(a.Normed, size(kernel.F32, a.N, a.Router.Cols))
	a.Logits = o.at(a.Logits, size(kernel.F32, a.N, a.Router.Rows))
	a.X = o.at(a.X, size(kernel.F32, a.N, a.Router.Cols))
	a.Norm = o.optional(a.Norm, size(kernel.F32, a.Router.Cols))
	a.Router = o.weight(a.Router)
	a.RouterBias = o.optional(a.RouterBias, size(kernel.F32, a.Router.Rows))
	a.Bias = o.optional(a.Bias, size(kernel.F32, a.Router.Rows))
	return a
}

// placeNormQKVArgs returns the arguments with the host addresses of their memory.
func (o *op) placeNormQKVArgs(a kernel.NormQKVArgs) kernel.NormQKVArgs {
	a.Q = o.at(a.Q, size(kernel.F32, a.Batch, a.Seq, a.Heads, a.Dim))
	if a.Sequences != nil {
		a.K = o.at(a.K, size(a.KVType, a.KVHeads, a.Capacity, a.Dim))
	} else {
		a.K = o.at(a.K, size(a.KVType, a.Batch, a.KVHeads, a.Capacity, a.Dim))
	}
	if a.Sequences != nil {
		a.V = o.at(a.V, size(a.KVType, a.KVHeads, a.Capacity, a.Dim))
	} else {
		a.V = o.at(a.V, size(a.KVType, a.Batch, a.KVHeads, a.Capacity, a.Dim))
	}
	a.X = o.at(a.X, size(kernel.F32, a.Batch, a.Seq, a.WQ.Cols))
	a.Norm = o.optional(a.Norm, size(kernel.F32, a.WQ.Cols))
	a.WQ = o.weight(a.WQ)
	a.WK = o.weight(a.WK)
	a.WV = o.weight(a.WV)
	a.BQ = o.optional(a.BQ, size(kernel.F32, a.WQ.Rows))
	a.BK = o.optional(a.BK, size(kernel.F32, a.WK.Rows))
	a.BV = o.optional(a.BV, size(kernel.F32, a.WV.Rows))
	a.QNorm = o.optional(a.QNorm, size(kernel.F32, a.Dim))
	a.KNorm = o.optional(a.KNorm, size(kernel.F32, a.Dim))
	a.Cos = o.at(a.Cos, size(kernel.F32, a.TableRows, a.Half))
	a.Sin = o.at(a.Sin, size(kernel.F32, a.TableRows, a.Half))
	a.Positions = o.at(a.Positions, size(kernel.I32, a.Batch, a.Seq))
	a.Sequences = o.optional(a.Sequences, size(kernel.I32, a.Batch))
	a.Normed = o.at(a.Normed, size(kernel.F32, a.Batch, a.Seq, a.WQ.Cols))
	a.KNew = o.at(a.KNew, size(kernel.F32, a.Batch, a.Seq, a.KVHeads, a.Dim))
	a.VNew = o.at(a.VNew, size(kernel.F32, a.Batch, a.Seq, a.KVHeads, a.Dim))
	a.QV = o.optional(a.QV, size(kernel.F16, a.Ranks, a.WQ.Cols))
	a.KV = o.optional(a.KV, size(kernel.F16, a.Ranks, a.WQ.Cols))
	a.VV = o.optional(a.VV, size(kernel.F16, a.Ranks, a.WQ.Cols))
	a.QU = o.optional(a.QU, size(kernel.F16, a.WQ.Rows, a.Ranks))
	a.KU = o.optional(a.KU, size(kernel.F16, a.WK.Rows, a.Ranks))
	a.VU = o.optional(a.VU, size(kernel.F16, a.WK.Rows, a.Ranks))
	a.Codes = o.optional(a.Codes, reach(kernel.F32, []int{a.CodesStride}, a.Batch*a.Seq, a.Ranks))
	return a
}

// placeUpdateArgs returns the arguments with the host addresses of their memory.
func (o *op) placeUpdateArgs(a kernel.UpdateArgs) kernel.UpdateArgs {
	a.V = o.optional(a.V, size(kernel.F16, a.Ranks, a.Cols))
	a.U = o.optional(a.U, size(kernel.F16, a.Rows, a.Ranks))
	a.Codes = o.optional(a.Codes, reach(kernel.F32, []int{a.CodesStride}, a.N, a.Ranks))
	a.NextGateV = o.optional(a.NextGateV, size(kernel.F16, a.Ranks, a.Rows))
	a.NextUpV = o.optional(a.NextUpV, size(kernel.F16, a.Ranks, a.Rows))
	return a
}

func (s *stream) Add(out, a, b kernel.Ptr, t kernel.DType, n int) error {
	o := s.op("Add")
	out = o.at(out, size(t, n))
	a = o.at(a, size(t, n))
	b = o.at(b, size(t, n))
	return o.launch(func() error { return s.kernels.Add(out, a, b, t, n) })
}

func (s *stream) Mul(out, a, b kernel.Ptr, t kernel.DType, n int) error {
	o := s.op("Mul")
	out = o.at(out, size(t, n))
	a = o.at(a, size(t, n))
	b = o.at(b, size(t, n))
	return o.launch(func() error { return s.kernels.Mul(out, a, b, t, n) })
}

func (s *stream) MulScalar(out, a kernel.Ptr, scalar float32, t kernel.DType, n int) error {
	o := s.op("MulScalar")
	out = o.at(out, size(t, n))
	a = o.at(a, size(t, n))
	return o.launch(func() error { return s.kernels.MulScalar(out, a, scalar, t, n) })
}

func (s *stream) SiLU(out, a kernel.Ptr, t kernel.DType, n int) error {
	o := s.op("SiLU")
	out = o.at(out, size(t, n))
	a = o.at(a, size(t, n))
	return o.launch(func() error { return s.kernels.SiLU(out, a, t, n) })
}

func (s *stream) GELU(out, a kernel.Ptr, t kernel.DType, n int) error {
	o := s.op("GELU")
	out = o.at(out, size(t, n))
	a = o.at(a, size(t, n))
	return o.launch(func() error { return s.kernels.GELU(out, a, t, n) })
}

func (s *stream) GELUTanh(out, a kernel.Ptr, t kernel.DType, n int) error {
	o := s.op("GELUTanh")
	out = o.at(out, size(t, n))
	a = o.at(a, size(t, n))
	return o.launch(func() error { return s.kernels.GELUTanh(out, a, t, n) })
}

func (s *stream) SwiGLU(out, gate, up kernel.Ptr, t kernel.DType, n int) error {
	o := s.op("SwiGLU")
	out = o.at(out, size(t, n))
	gate = o.at(gate, size(t, n))
	up = o.at(up, size(t, n))
	return o.launch(func() error { return s.kernels.SwiGLU(out, gate, up, t, n) })
}

func (s *stream) GLU(out, gate, up kernel.Ptr, activation kernel.Activation, alpha, limit float32, t kernel.DType, n int) error {
	o := s.op("GLU")
	out = o.at(out, size(t, n))
	gate = o.at(gate, size(t, n))
	up = o.at(up, size(t, n))
	return o.launch(func() error { return s.kernels.GLU(out, gate, up, activation, alpha, limit, t, n) })
}

func (s *stream) Sigmoid(out, a kernel.Ptr, t kernel.DType, n int) error {
	o := s.op("Sigmoid")
	out = o.at(out, size(t, n))
	a = o.at(a, size(t, n))
	return o.launch(func() error { return s.kernels.Sigmoid(out, a, t, n) })
}

func (s *stream) SoftCap(out, a kernel.Ptr, cap float32, t kernel.DType, n int) error {
	o := s.op("SoftCap")
	out = o.at(out, size(t, n))
	a = o.at(a, size(t, n))
	return o.launch(func() error { return s.kernels.SoftCap(out, a, cap, t, n) })
}

func (s *stream) Copy(out, in kernel.Ptr, t kernel.DType, n int) error {
	o := s.op("Copy")
	out = o.at(out, size(t, n))
	in = o.at(in, size(t, n))
	return o.launch(func() error { return s.kernels.Copy(out, in, t, n) })
}

func (s *stream) Convert(out kernel.Ptr, outType kernel.DType, in kernel.Ptr, inType kernel.DType, n int) error {
	o := s.op("Convert")
	out = o.at(out, size(outType, n))
	in = o.at(in, size(inType, n))
	return o.launch(func() error { return s.kernels.Convert(out, outType, in, inType, n) })
}

func (s *stream) IncrementI32(x kernel.Ptr, n int) error {
	o := s.op("IncrementI32")
	x = o.at(x, size(kernel.I32, n))
	return o.launch(func() error { return s.kernels.IncrementI32(x, n) })
}

func (s *stream) Softmax(out, in kernel.Ptr, t kernel.DType, rows, cols int) error {
	o := s.op("Softmax")
	out = o.at(out, size(t, rows, cols))
	in = o.at(in, size(t, rows, cols))
	return o.launch(func() error { return s.kernels.Softmax(out, in, t, rows, cols) })
}

func (s *stream) RMSNorm(out, in, weight kernel.Ptr, t kernel.DType, rows, cols int, eps float32) error {
	o := s.op("RMSNorm")
	out = o.at(out, size(t, rows, cols))
	in = o.at(in, size(t, rows, cols))
	weight = o.optional(weight, size(kernel.F32, cols))
	return o.launch(func() error { return s.kernels.RMSNorm(out, in, weight, t, rows, cols, eps) })
}

func (s *stream) LayerNorm(out, in, weight, bias kernel.Ptr, t kernel.DType, rows, cols int, eps float32) error {
	o := s.op("LayerNorm")
	out = o.at(out, size(t, rows, cols))
	in = o.at(in, size(t, rows, cols))
	weight = o.optional(weight, size(kernel.F32, cols))
	bias = o.optional(bias, size(kernel.F32, cols))
	return o.launch(func() error { return s.kernels.LayerNorm(out, in, weight, bias, t, rows, cols, eps) })
}

func (s *stream) AddRMSNorm(sum, out, a, b, weight kernel.Ptr, t kernel.DType, rows, cols int, eps float32) error {
	o := s.op("AddRMSNorm")
	sum = o.at(sum, size(t, rows, cols))
	out = o.at(out, size(t, rows, cols))
	a = o.at(a, size(t, rows, cols))
	b = o.at(b, size(t, rows, cols))
	weight = o.optional(weight, size(kernel.F32, cols))
	return o.launch(func() error { return s.kernels.AddRMSNorm(sum, out, a, b, weight, t, rows, cols, eps) })
}

func (s *stream) MulRows(out, a, factors kernel.Ptr, t kernel.DType, rows, cols int) error {
	o := s.op("MulRows")
	out = o.at(out, size(t, rows, cols))
	a = o.at(a, size(t, rows, cols))
	factors = o.at(factors, size(kernel.F32, rows))
	return o.launch(func() error { return s.kernels.MulRows(out, a, factors, t, rows, cols) })
}

func (s *stream) CopyColumns(out kernel.Ptr, outCols, outFirst int, in kernel.Ptr, inCols, inFirst int, t kernel.DType, rows, cols int) error {
	o := s.op("CopyColumns")
	out = o.at(out, size(t, rows, outCols))
	in = o.at(in, size(t, rows, inCols))
	return o.launch(func() error { return s.kernels.CopyColumns(out, outCols, outFirst, in, inCols, inFirst, t, rows, cols) })
}

func (s *stream) Argmax(out, in kernel.Ptr, rows, cols int) error {
	o := s.op("Argmax")
	out = o.at(out, size(kernel.I32, rows))
	in = o.at(in, size(kernel.F32, rows, cols))
	return o.launch(func() error { return s.kernels.Argmax(out, in, rows, cols) })
}

func (s *stream) TopK(values, ids, in kernel.Ptr, rows, cols, k int) error {
	o := s.op("TopK")
	values = o.at(values, size(kernel.F32, rows, k))
	ids = o.at(ids, size(kernel.I32, rows, k))
	in = o.at(in, size(kernel.F32, rows, cols))
	return o.launch(func() error { return s.kernels.TopK(values, ids, in, rows, cols, k) })
}

func (s *stream) Map(args *kernel.MapArgs) error {
	o := s.op("Map")
	placedArgs := o.placeMapArgs(*args)
	return o.launch(func() error { return s.kernels.Map(&placedArgs) })
}

func (s *stream) Reduce(args *kernel.ReduceArgs) error {
	o := s.op("Reduce")
	placedArgs := o.placeReduceArgs(*args)
	return o.launch(func() error { return s.kernels.Reduce(&placedArgs) })
}

func (s *stream) CumSum(out, in kernel.Ptr, t kernel.DType, rows, n, cols int) error {
	o := s.op("CumSum")
	out = o.at(out, size(t, rows, n, cols))
	in = o.at(in, size(t, rows, n, cols))
	return o.launch(func() error { return s.kernels.CumSum(out, in, t, rows, n, cols) })
}

func (s *stream) Sort(args *kernel.SortArgs) error {
	o := s.op("Sort")
	placedArgs := o.placeSortArgs(*args)
	return o.launch(func() error { return s.kernels.Sort(&placedArgs) })
}

func (s *stream) Index(args *kernel.IndexArgs) error {
	o := s.op("Index")
	placedArgs := o.placeIndexArgs(*args)
	return o.launch(func() error { return s.kernels.Index(&placedArgs) })
}

func (s *stream) MatMul(args *kernel.MatMulArgs) error {
	o := s.op("MatMul")
	placedArgs := o.placeMatMulArgs(*args)
	return o.launch(func() error { return s.kernels.MatMul(&placedArgs) })
}

func (s *stream) MatMulSingleRow(c, a, b kernel.Ptr, t kernel.DType, k, n int) error {
	o := s.op("MatMulSingleRow")
	c = o.at(c, size(t, n))
	a = o.at(a, size(t, k))
	b = o.at(b, size(t, k, n))
	return o.launch(func() error { return s.kernels.MatMulSingleRow(c, a, b, t, k, n) })
}

func (s *stream) Linear(y, x kernel.Ptr, w kernel.Weight, bias kernel.Ptr, n int) error {
	o := s.op("Linear")
	y = o.at(y, size(kernel.F32, n, w.Rows))
	x = o.at(x, size(kernel.F32, n, w.Cols))
	w = o.weight(w)
	bias = o.optional(bias, size(kernel.F32, w.Rows))
	return o.launch(func() error { return s.kernels.Linear(y, x, w, bias, n) })
}

func (s *stream) Embedding(out kernel.Ptr, table kernel.Weight, ids kernel.Ptr, n int) error {
	o := s.op("Embedding")
	out = o.at(out, size(kernel.F32, n, table.Cols))
	table = o.weight(table)
	ids = o.at(ids, size(kernel.I32, n))
	return o.launch(func() error { return s.kernels.Embedding(out, table, ids, n) })
}

func (s *stream) FusedUpdate(args *kernel.FusedUpdateArgs) error {
	o := s.op("FusedUpdate")
	placedArgs := o.placeFusedUpdateArgs(*args)
	return o.launch(func() error { return s.kernels.FusedUpdate(&placedArgs) })
}

func (s *stream) NormQuantize(args *kernel.NormQuantizeArgs) error {
	o := s.op("NormQuantize")
	placedArgs := o.placeNormQuantizeArgs(*args)
	return o.launch(func() error { return s.kernels.NormQuantize(&placedArgs) })
}

func (s *stream) DequantizeRows(out, codes, scales kernel.Ptr, rows, cols int) error {
	o := s.op("DequantizeRows")
	out = o.at(out, size(kernel.F32, rows, cols))
	codes = o.at(codes, size(kernel.I8, rows, cols))
	scales = o.at(scales, size(kernel.F32, rows))
	return o.launch(func() error { return s.kernels.DequantizeRows(out, codes, scales, rows, cols) })
}

func (s *stream) W2A8GEMV(args *kernel.W2A8GEMVArgs) error {
	o := s.op("W2A8GEMV")
	placedArgs := o.placeW2A8GEMVArgs(*args)
	return o.launch(func() error { return s.kernels.W2A8GEMV(&placedArgs) })
}

func (s *stream) BitLinear(args *kernel.BitLinearArgs) error {
	o := s.op("BitLinear")
	placedArgs := o.placeBitLinearArgs(*args)
	return o.launch(func() error { return s.kernels.BitLinear(&placedArgs) })
}

func (s *stream) TMACLUT(lut, activations kernel.Ptr, k, n int) error {
	o := s.op("TMACLUT")
	lut = o.at(lut, size(kernel.F32, n, (k+3)/4, 256))
	activations = o.at(activations, size(kernel.F32, k, n))
	return o.launch(func() error { return s.kernels.TMACLUT(lut, activations, k, n) })
}

func (s *stream) TMACMatMul(args *kernel.TMACMatMulArgs) error {
	o := s.op("TMACMatMul")
	placedArgs := o.placeTMACMatMulArgs(*args)
	return o.launch(func() error { return s.kernels.TMACMatMul(&placedArgs) })
}

func (s *stream) Route(args *kernel.RouteArgs) error {
	o := s.op("Route")
	placedArgs := o.placeRouteArgs(*args)
	return o.launch(func() error { return s.kernels.Route(&placedArgs) })
}

func (s *stream) ExpertLinear(args *kernel.ExpertLinearArgs) error {
	o := s.op("ExpertLinear")
	placedArgs := o.placeExpertLinearArgs(*args)
	return o.launch(func() error { return s.kernels.ExpertLinear(&placedArgs) })
}

func (s *stream) ExpertSum(out, add, y, weights kernel.Ptr, n, k, cols int) error {
	o := s.op("ExpertSum")
	out = o.at(out, size(kernel.F32, n, cols))
	add = o.optional(add, size(kernel.F32, n, cols))
	y = o.at(y, size(kernel.F32, n, k, cols))
	weights = o.optional(weights, size(kernel.F32, n, k))
	return o.launch(func() error { return s.kernels.ExpertSum(out, add, y, weights, n, k, cols) })
}

func (s *stream) RoPE(args *kernel.RoPEArgs) error {
	o := s.op("RoPE")
	placedArgs := o.placeRoPEArgs(*args)
	return o.launch(func() error { return s.kernels.RoPE(&placedArgs) })
}

func (s *stream) KVWrite(args *kernel.KVWriteArgs) error {
	o := s.op("KVWrite")
	placedArgs := o.placeKVWriteArgs(*args)
	return o.launch(func() error { return s.kernels.KVWrite(&placedArgs) })
}

func (s *stream) RoPEKVWrite(args *kernel.RoPEKVWriteArgs) error {
	o := s.op("RoPEKVWrite")
	placedArgs := o.placeRoPEKVWriteArgs(*args)
	return o.launch(func() error { return s.kernels.RoPEKVWrite(&placedArgs) })
}

func (s *stream) Attention(args *kernel.AttentionArgs) error {
	o := s.op("Attention")
	placedArgs := o.placeAttentionArgs(*args)
	return o.launch(func() error { return s.kernels.Attention(&placedArgs) })
}

func (s *stream) CausalConv(args *kernel.CausalConvArgs) error {
	o := s.op("CausalConv")
	placedArgs := o.placeCausalConvArgs(*args)
	return o.launch(func() error { return s.kernels.CausalConv(&placedArgs) })
}

func (s *stream) GatedDelta(args *kernel.GatedDeltaArgs) error {
	o := s.op("GatedDelta")
	placedArgs := o.placeGatedDeltaArgs(*args)
	return o.launch(func() error { return s.kernels.GatedDelta(&placedArgs) })
}

func (s *stream) NormLinear(y, x, norm kernel.Ptr, eps float32, w kernel.Weight, bias, normed kernel.Ptr, n int) error {
	o := s.op("NormLinear")
	y = o.at(y, size(kernel.F32, n, w.Rows))
	x = o.at(x, size(kernel.F32, n, w.Cols))
	norm = o.optional(norm, size(kernel.F32, w.Cols))
	w = o.weight(w)
	bias = o.optional(bias, size(kernel.F32, w.Rows))
	normed = o.at(normed, size(kernel.F32, n, w.Cols))
	return o.launch(func() error { return s.kernels.NormLinear(y, x, norm, eps, w, bias, normed, n) })
}

func (s *stream) NormSwiGLU(out, x, norm kernel.Ptr, eps float32, gate, up kernel.Weight, normed, product kernel.Ptr, n int) error {
	o := s.op("NormSwiGLU")
	out = o.at(out, size(kernel.F32, n, gate.Rows))
	x = o.at(x, size(kernel.F32, n, gate.Cols))
	norm = o.optional(norm, size(kernel.F32, gate.Cols))
	gate = o.weight(gate)
	up = o.weight(up)
	normed = o.at(normed, size(kernel.F32, n, gate.Cols))
	product = o.at(product, size(kernel.F32, n, gate.Rows))
	return o.launch(func() error { return s.kernels.NormSwiGLU(out, x, norm, eps, gate, up, normed, product, n) })
}

func (s *stream) LinearAdd(sum, a, x kernel.Ptr, w kernel.Weight, bias, product kernel.Ptr, n int) error {
	o := s.op("LinearAdd")
	sum = o.at(sum, size(kernel.F32, n, w.Rows))
	a = o.at(a, size(kernel.F32, n, w.Rows))
	x = o.at(x, size(kernel.F32, n, w.Cols))
	w = o.weight(w)
	bias = o.optional(bias, size(kernel.F32, w.Rows))
	product = o.at(product, size(kernel.F32, n, w.Rows))
	return o.launch(func() error { return s.kernels.LinearAdd(sum, a, x, w, bias, product, n) })
}

func (s *stream) FeedForward(args *kernel.FeedForwardArgs) error {
	o := s.op("FeedForward")
	placedArgs := o.placeFeedForwardArgs(*args)
	args.NextPrepared = false
	return o.launch(func() error { return s.kernels.FeedForward(&placedArgs) })
}

func (s *stream) ExpertFeedForward(args *kernel.ExpertFeedForwardArgs) error {
	o := s.op("ExpertFeedForward")
	placedArgs := o.placeExpertFeedForwardArgs(*args)
	return o.launch(func() error { return s.kernels.ExpertFeedForward(&placedArgs) })
}

func (s *stream) NormRoute(args *kernel.NormRouteArgs) error {
	o := s.op("NormRoute")
	placedArgs := o.placeNormRouteArgs(*args)
	return o.launch(func() error { return s.kernels.NormRoute(&placedArgs) })
}

func (s *stream) NormQKV(args *kernel.NormQKVArgs) error {
	o := s.op("NormQKV")
	placedArgs := o.placeNormQKVArgs(*args)
	return o.launch(func() error { return s.kernels.NormQKV(&placedArgs) })
}

func (s *stream) AttentionLinearAdd(sum, a kernel.Ptr, attention *kernel.AttentionArgs, w kernel.Weight, bias kernel.Ptr, update *kernel.UpdateArgs, product, nextNorm, normed kernel.Ptr) (nextPrepared bool, err error) {
	o := s.op("AttentionLinearAdd")
	sum = o.at(sum, size(kernel.F32, attention.Batch, attention.Seq, w.Rows))
	a = o.optional(a, size(kernel.F32, attention.Batch, attention.Seq, w.Rows))
	placedAttention := o.placeAttentionArgs(*attention)
	w = o.weight(w)
	bias = o.optional(bias, size(kernel.F32, w.Rows))
	placedUpdate := o.placeUpdateArgs(*update)
	product = o.at(product, size(kernel.F32, attention.Batch, attention.Seq, w.Rows))
	nextNorm = o.optional(nextNorm, size(kernel.F32, w.Rows))
	normed = o.optional(normed, size(kernel.F32, attention.Batch, attention.Seq, w.Rows))
	err = o.launch(func() error {
		_, err := s.kernels.AttentionLinearAdd(sum, a, &placedAttention, w, bias, &placedUpdate, product, nextNorm, normed)
		return err
	})
	return false, err
}
