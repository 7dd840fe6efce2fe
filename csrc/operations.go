// Code generated from csrc/vibrant.h by internal/backend/generate. DO NOT EDIT.

//go:build cgo

package csrc

/*
#include "vibrant.h"

// Structs go by value: what they point to may be Go memory, and C must not be handed Go memory that holds such pointers.
static vb_status call_map(vb_map_args args, vb_stream *stream) { return vb_map(&args, stream); }
static vb_status call_reduce(vb_reduce_args args, vb_stream *stream) { return vb_reduce(&args, stream); }
static vb_status call_sort(vb_sort_args args, vb_stream *stream) { return vb_sort(&args, stream); }
static vb_status call_index(vb_index_args args, vb_stream *stream) { return vb_index(&args, stream); }
static vb_status call_matmul_batched(vb_matmul_args args, vb_stream *stream) { return vb_matmul_batched(&args, stream); }
static vb_status call_weight_pack(void *out, vb_weight w, vb_stream *stream) { return vb_weight_pack(out, &w, stream); }
static vb_status call_linear(float *y, const float *x, vb_weight w, const float *bias, int64_t n, vb_stream *stream) { return vb_linear(y, x, &w, bias, n, stream); }
static vb_status call_embedding(float *out, vb_weight table, const int32_t *ids, int64_t n, vb_stream *stream) { return vb_embedding(out, &table, ids, n, stream); }
static vb_status call_fused_update(vb_fused_update_args args, vb_stream *stream) { return vb_fused_update(&args, stream); }
static vb_status call_norm_quantize(vb_norm_quantize_args args, vb_stream *stream) { return vb_norm_quantize(&args, stream); }
static vb_status call_w2a8_gemv(vb_w2a8_gemv_args args, vb_stream *stream) { return vb_w2a8_gemv(&args, stream); }
static vb_status call_bit_linear(vb_bit_linear_args args, vb_stream *stream) { return vb_bit_linear(&args, stream); }
static vb_status call_tmac_matmul(vb_tmac_matmul_args args, vb_stream *stream) { return vb_tmac_matmul(&args, stream); }
static vb_status call_route(vb_route_args args, vb_stream *stream) { return vb_route(&args, stream); }
static vb_status call_expert_linear(vb_expert_linear_args args, vb_stream *stream) { return vb_expert_linear(&args, stream); }
static vb_status call_rope(vb_rope_args args, vb_stream *stream) { return vb_rope(&args, stream); }
static vb_status call_kv_write(vb_kv_write_args args, vb_stream *stream) { return vb_kv_write(&args, stream); }
static vb_status call_rope_kv_write(vb_rope_kv_write_args args, vb_stream *stream) { return vb_rope_kv_write(&args, stream); }
static vb_status call_attention(vb_attention_args args, vb_stream *stream) { return vb_attention(&args, stream); }
static vb_status call_causal_conv(vb_causal_conv_args args, vb_stream *stream) { return vb_causal_conv(&args, stream); }
static vb_status call_gated_delta(vb_gated_delta_args args, vb_stream *stream) { return vb_gated_delta(&args, stream); }
static vb_status call_norm_linear(float *y, const float *x, const float *norm, float eps, vb_weight w, const float *bias, float *normed, int64_t n, vb_stream *stream) { return vb_norm_linear(y, x, norm, eps, &w, bias, normed, n, stream); }
static vb_status call_norm_swiglu(float *out, const float *x, const float *norm, float eps, vb_weight gate, vb_weight up, float *normed, float *product, int64_t n, vb_stream *stream) { return vb_norm_swiglu(out, x, norm, eps, &gate, &up, normed, product, n, stream); }
static vb_status call_linear_add(float *sum, const float *a, const float *x, vb_weight w, const float *bias, float *product, int64_t n, vb_stream *stream) { return vb_linear_add(sum, a, x, &w, bias, product, n, stream); }
static vb_status call_feed_forward(vb_feed_forward_args args, int *next_prepared, vb_stream *stream) { args.next_prepared = next_prepared; return vb_feed_forward(&args, stream); }
static vb_status call_expert_feed_forward(vb_expert_feed_forward_args args, vb_stream *stream) { return vb_expert_feed_forward(&args, stream); }
static vb_status call_norm_route(vb_norm_route_args args, vb_stream *stream) { return vb_norm_route(&args, stream); }
static vb_status call_norm_qkv(vb_norm_qkv_args args, vb_stream *stream) { return vb_norm_qkv(&args, stream); }
static vb_status call_attention_linear_add(float *sum, const float *a, vb_attention_args attention, vb_weight w, const float *bias, vb_update_args update, float *product, const float *next_norm, float *normed, int *next_prepared, vb_stream *stream) { return vb_attention_linear_add(sum, a, &attention, &w, bias, &update, product, next_norm, normed, next_prepared, stream); }
*/
import "C"

import "github.com/vibrant-ml/vibrant/internal/backend/kernel"

func cMapArgs(a *kernel.MapArgs) C.vb_map_args {
	return C.vb_map_args{
		size:    C.sizeof_vb_map_args,
		out:     view(a.Out),
		in:      views(a.In),
		sizes:   numbers(a.Sizes),
		program: steps(a.Program),
		rank:    C.int64_t(a.Rank),
		inputs:  C.int64_t(a.Inputs),
		steps:   C.int64_t(a.Steps),
	}
}

func cReduceArgs(a *kernel.ReduceArgs) C.vb_reduce_args {
	return C.vb_reduce_args{
		size:      C.sizeof_vb_reduce_args,
		out:       view(a.Out),
		in:        view(a.In),
		sizes:     numbers(a.Sizes),
		rank:      C.int64_t(a.Rank),
		reduced:   C.int64_t(a.Reduced),
		reduction: C.vb_reduction(a.Reduction),
		parameter: C.float(a.Parameter),
	}
}

func cSortArgs(a *kernel.SortArgs) C.vb_sort_args {
	return C.vb_sort_args{
		size:       C.sizeof_vb_sort_args,
		values:     view(a.Values),
		indices:    view(a.Indices),
		in:         view(a.In),
		sizes:      numbers(a.Sizes),
		out_sizes:  numbers(a.OutSizes),
		rank:       C.int64_t(a.Rank),
		dim:        C.int64_t(a.Dim),
		descending: truth(a.Descending),
	}
}

func cIndexArgs(a *kernel.IndexArgs) C.vb_index_args {
	return C.vb_index_args{
		size:      C.sizeof_vb_index_args,
		out:       view(a.Out),
		in:        view(a.In),
		ids:       view(a.IDs),
		out_sizes: numbers(a.OutSizes),
		in_sizes:  numbers(a.InSizes),
		ids_sizes: numbers(a.IDsSizes),
		rank:      C.int64_t(a.Rank),
		dim:       C.int64_t(a.Dim),
		indexing:  C.vb_indexing(a.Indexing),
	}
}

func cMatMulArgs(a *kernel.MatMulArgs) C.vb_matmul_args {
	return C.vb_matmul_args{
		size:           C.sizeof_vb_matmul_args,
		c:              a.C,
		a:              a.A,
		b:              a.B,
		m:              C.int64_t(a.M),
		k:              C.int64_t(a.K),
		n:              C.int64_t(a.N),
		batch:          C.int64_t(a.Batch),
		a_stride:       C.int64_t(a.AStride),
		b_stride:       C.int64_t(a.BStride),
		c_stride:       C.int64_t(a.CStride),
		a_batch_stride: C.int64_t(a.ABatchStride),
		b_batch_stride: C.int64_t(a.BBatchStride),
		c_batch_stride: C.int64_t(a.CBatchStride),
		a_transposed:   truth(a.ATransposed),
		b_transposed:   truth(a.BTransposed),
		_type:          C.vb_dtype(a.Type),
		precision:      C.vb_precision(a.Precision),
	}
}

func cFusedUpdateArgs(a *kernel.FusedUpdateArgs) C.vb_fused_update_args {
	return C.vb_fused_update_args{
		size:         C.sizeof_vb_fused_update_args,
		out:          a.Out,
		add:          a.Add,
		x:            a.X,
		v:            a.V,
		codes:        a.Codes,
		u:            a.U,
		m:            C.int64_t(a.M),
		k:            C.int64_t(a.K),
		n:            C.int64_t(a.N),
		r:            C.int64_t(a.R),
		codes_stride: C.int64_t(a.CodesStride),
		scale:        C.float(a.Scale),
		_type:        C.vb_dtype(a.Type),
		weight_type:  C.vb_dtype(a.WeightType),
		v_transposed: truth(a.VTransposed),
		u_transposed: truth(a.UTransposed),
	}
}

func cNormQuantizeArgs(a *kernel.NormQuantizeArgs) C.vb_norm_quantize_args {
	return C.vb_norm_quantize_args{
		size:       C.sizeof_vb_norm_quantize_args,
		codes:      a.Codes,
		scales:     f32(a.Scales),
		in:         f32(a.In),
		up:         f32(a.Up),
		norm:       f32(a.Norm),
		rows:       C.int64_t(a.Rows),
		cols:       C.int64_t(a.Cols),
		activation: C.vb_activation(a.Activation),
		eps:        C.float(a.Eps),
		normed:     truth(a.Normed),
	}
}

func cW2A8GEMVArgs(a *kernel.W2A8GEMVArgs) C.vb_w2a8_gemv_args {
	return C.vb_w2a8_gemv_args{
		size:              C.sizeof_vb_w2a8_gemv_args,
		out:               a.Out,
		weights:           a.Weights,
		activations:       a.Activations,
		activation_scales: f32(a.ActivationScales),
		weight_scales:     f32(a.WeightScales),
		segment_ends:      i32(a.SegmentEnds),
		bias:              f32(a.Bias),
		add:               f32(a.Add),
		m:                 C.int64_t(a.M),
		n:                 C.int64_t(a.N),
		k:                 C.int64_t(a.K),
		segments:          C.int64_t(a.Segments),
		row_bytes:         C.int64_t(a.RowBytes),
		layout:            C.vb_int2_layout(a.Layout),
		out_type:          C.vb_dtype(a.OutType),
		settled:           truth(a.Settled),
		threads:           C.int64_t(a.Threads),
		lanes:             C.int64_t(a.Lanes),
		tile:              C.int64_t(a.Tile),
		persistent:        truth(a.Persistent),
		without_dp4a:      truth(a.WithoutDP4A),
		narrow:            truth(a.Narrow),
	}
}

func cBitLinearArgs(a *kernel.BitLinearArgs) C.vb_bit_linear_args {
	return C.vb_bit_linear_args{
		size:           C.sizeof_vb_bit_linear_args,
		out:            f32(a.Out),
		out2:           f32(a.Out2),
		out3:           f32(a.Out3),
		codes:          a.Codes,
		scales:         f32(a.Scales),
		in:             f32(a.In),
		up:             f32(a.Up),
		norm:           f32(a.Norm),
		add:            f32(a.Add),
		weights:        a.Weights,
		weights2:       a.Weights2,
		weights3:       a.Weights3,
		weight_scales:  f32(a.WeightScales),
		weight_scales2: f32(a.WeightScales2),
		weight_scales3: f32(a.WeightScales3),
		m:              C.int64_t(a.M),
		n:              C.int64_t(a.N),
		n2:             C.int64_t(a.N2),
		n3:             C.int64_t(a.N3),
		k:              C.int64_t(a.K),
		segments:       C.int64_t(a.Segments),
		segments2:      C.int64_t(a.Segments2),
		segments3:      C.int64_t(a.Segments3),
		row_bytes:      C.int64_t(a.RowBytes),
		layout:         C.vb_int2_layout(a.Layout),
		activation:     C.vb_activation(a.Activation),
		eps:            C.float(a.Eps),
		normed:         truth(a.Normed),
		settled:        truth(a.Settled),
	}
}

func cTMACMatMulArgs(a *kernel.TMACMatMulArgs) C.vb_tmac_matmul_args {
	return C.vb_tmac_matmul_args{
		size:        C.sizeof_vb_tmac_matmul_args,
		out:         f32(a.Out),
		weights:     a.Weights,
		activations: f32(a.Activations),
		lut:         f32(a.LUT),
		scales:      f32(a.Scales),
		norm:        f32(a.Norm),
		m:           C.int64_t(a.M),
		n:           C.int64_t(a.N),
		k:           C.int64_t(a.K),
		groups:      C.int64_t(a.Groups),
		eps:         C.float(a.Eps),
		normed:      truth(a.Normed),
		settled:     truth(a.Settled),
	}
}

func cRouteArgs(a *kernel.RouteArgs) C.vb_route_args {
	return C.vb_route_args{
		size:          C.sizeof_vb_route_args,
		ids:           i32(a.IDs),
		weights:       f32(a.Weights),
		logits:        f32(a.Logits),
		bias:          f32(a.Bias),
		n:             C.int64_t(a.N),
		experts:       C.int64_t(a.Experts),
		k:             C.int64_t(a.K),
		groups:        C.int64_t(a.Groups),
		groups_used:   C.int64_t(a.GroupsUsed),
		scale:         C.float(a.Scale),
		gating:        C.vb_gating(a.Gating),
		normalized:    truth(a.Normalized),
		group_by_best: truth(a.GroupByBest),
	}
}

func cExpertLinearArgs(a *kernel.ExpertLinearArgs) C.vb_expert_linear_args {
	return C.vb_expert_linear_args{
		size:         C.sizeof_vb_expert_linear_args,
		y:            f32(a.Y),
		x:            f32(a.X),
		w:            weight(a.W),
		bias:         f32(a.Bias),
		ids:          i32(a.IDs),
		n:            C.int64_t(a.N),
		k:            C.int64_t(a.K),
		experts:      C.int64_t(a.Experts),
		x_per_choice: truth(a.XPerChoice),
	}
}

func cRoPEArgs(a *kernel.RoPEArgs) C.vb_rope_args {
	return C.vb_rope_args{
		size:            C.sizeof_vb_rope_args,
		out:             a.Out,
		in:              a.In,
		cos:             f32(a.Cos),
		sin:             f32(a.Sin),
		positions:       i32(a.Positions),
		position_stride: C.int64_t(a.PositionStride),
		batch:           C.int64_t(a.Batch),
		heads:           C.int64_t(a.Heads),
		seq:             C.int64_t(a.Seq),
		dim:             C.int64_t(a.Dim),
		half:            C.int64_t(a.Half),
		table_rows:      C.int64_t(a.TableRows),
		_type:           C.vb_dtype(a.Type),
		mode:            C.vb_rope_mode(a.Mode),
	}
}

func cKVWriteArgs(a *kernel.KVWriteArgs) C.vb_kv_write_args {
	return C.vb_kv_write_args{
		size:      C.sizeof_vb_kv_write_args,
		k:         a.K,
		v:         a.V,
		k_in:      f32(a.KIn),
		v_in:      f32(a.VIn),
		positions: i32(a.Positions),
		sequences: i32(a.Sequences),
		batch:     C.int64_t(a.Batch),
		seq:       C.int64_t(a.Seq),
		kv_heads:  C.int64_t(a.KVHeads),
		dim:       C.int64_t(a.Dim),
		capacity:  C.int64_t(a.Capacity),
		_type:     C.vb_dtype(a.Type),
		value_dim: C.int64_t(a.ValueDim),
		ring:      truth(a.Ring),
	}
}

func cRoPEKVWriteArgs(a *kernel.RoPEKVWriteArgs) C.vb_rope_kv_write_args {
	return C.vb_rope_kv_write_args{
		size:       C.sizeof_vb_rope_kv_write_args,
		q:          f32(a.Q),
		k:          a.K,
		v:          a.V,
		k_new:      f32(a.KNew),
		q_in:       f32(a.QIn),
		v_new:      f32(a.VNew),
		q_norm:     f32(a.QNorm),
		k_norm:     f32(a.KNorm),
		cos:        f32(a.Cos),
		sin:        f32(a.Sin),
		positions:  i32(a.Positions),
		sequences:  i32(a.Sequences),
		batch:      C.int64_t(a.Batch),
		seq:        C.int64_t(a.Seq),
		heads:      C.int64_t(a.Heads),
		kv_heads:   C.int64_t(a.KVHeads),
		dim:        C.int64_t(a.Dim),
		half:       C.int64_t(a.Half),
		table_rows: C.int64_t(a.TableRows),
		capacity:   C.int64_t(a.Capacity),
		eps:        C.float(a.Eps),
		kv_type:    C.vb_dtype(a.KVType),
		mode:       C.vb_rope_mode(a.Mode),
		ring:       truth(a.Ring),
		settled:    truth(a.Settled),
	}
}

func cAttentionArgs(a *kernel.AttentionArgs) C.vb_attention_args {
	return C.vb_attention_args{
		size:           C.sizeof_vb_attention_args,
		out:            a.Out,
		q:              a.Q,
		k:              a.K,
		v:              a.V,
		positions:      i32(a.Positions),
		sequences:      i32(a.Sequences),
		batch:          C.int64_t(a.Batch),
		seq:            C.int64_t(a.Seq),
		heads:          C.int64_t(a.Heads),
		kv_heads:       C.int64_t(a.KVHeads),
		dim:            C.int64_t(a.Dim),
		q_batch_stride: C.int64_t(a.QBatchStride),
		q_head_stride:  C.int64_t(a.QHeadStride),
		q_row_stride:   C.int64_t(a.QRowStride),
		kv_capacity:    C.int64_t(a.KVCapacity),
		kv_len:         C.int64_t(a.KVLen),
		offset:         C.int64_t(a.Offset),
		window:         C.int64_t(a.Window),
		scale:          C.float(a.Scale),
		causal:         truth(a.Causal),
		_type:          C.vb_dtype(a.Type),
		kv_type:        C.vb_dtype(a.KVType),
		settled:        truth(a.Settled),
		value_dim:      C.int64_t(a.ValueDim),
		chunk:          C.int64_t(a.Chunk),
		sinks:          f32(a.Sinks),
		soft_cap:       C.float(a.SoftCap),
		ring:           truth(a.Ring),
	}
}

func cCausalConvArgs(a *kernel.CausalConvArgs) C.vb_causal_conv_args {
	return C.vb_causal_conv_args{
		size:      C.sizeof_vb_causal_conv_args,
		out:       f32(a.Out),
		state:     f32(a.State),
		x:         f32(a.X),
		weight:    f32(a.Weight),
		sequences: i32(a.Sequences),
		batch:     C.int64_t(a.Batch),
		seq:       C.int64_t(a.Seq),
		channels:  C.int64_t(a.Channels),
		taps:      C.int64_t(a.Taps),
		positions: i32(a.Positions),
		slots:     C.int64_t(a.Slots),
	}
}

func cGatedDeltaArgs(a *kernel.GatedDeltaArgs) C.vb_gated_delta_args {
	return C.vb_gated_delta_args{
		size:        C.sizeof_vb_gated_delta_args,
		out:         f32(a.Out),
		state:       f32(a.State),
		qkv:         f32(a.QKV),
		alpha:       f32(a.Alpha),
		beta:        f32(a.Beta),
		a:           f32(a.A),
		dt:          f32(a.Dt),
		sequences:   i32(a.Sequences),
		batch:       C.int64_t(a.Batch),
		seq:         C.int64_t(a.Seq),
		key_heads:   C.int64_t(a.KeyHeads),
		value_heads: C.int64_t(a.ValueHeads),
		key_dim:     C.int64_t(a.KeyDim),
		value_dim:   C.int64_t(a.ValueDim),
		eps:         C.float(a.Eps),
		interleaved: truth(a.Interleaved),
		positions:   i32(a.Positions),
		slots:       C.int64_t(a.Slots),
	}
}

func cFeedForwardArgs(a *kernel.FeedForwardArgs) C.vb_feed_forward_args {
	return C.vb_feed_forward_args{
		size:         C.sizeof_vb_feed_forward_args,
		sum:          f32(a.Sum),
		x:            f32(a.X),
		norm:         f32(a.Norm),
		gate:         weight(a.Gate),
		up:           weight(a.Up),
		down:         weight(a.Down),
		normed:       f32(a.Normed),
		gated:        f32(a.Gated),
		product:      f32(a.Product),
		n:            C.int64_t(a.N),
		eps:          C.float(a.Eps),
		next_norm:    f32(a.NextNorm),
		prepared:     truth(a.Prepared),
		gate_v:       a.GateV,
		up_v:         a.UpV,
		gate_u:       a.GateU,
		up_u:         a.UpU,
		down_v:       a.DownV,
		down_u:       a.DownU,
		codes:        f32(a.Codes),
		codes_stride: C.int64_t(a.CodesStride),
		ranks:        C.int64_t(a.Ranks),
		next_q_v:     a.NextQV,
		next_k_v:     a.NextKV,
		next_v_v:     a.NextVV,
	}
}

func cExpertFeedForwardArgs(a *kernel.ExpertFeedForwardArgs) C.vb_expert_feed_forward_args {
	return C.vb_expert_feed_forward_args{
		size:       C.sizeof_vb_expert_feed_forward_args,
		sum:        f32(a.Sum),
		add:        f32(a.Add),
		x:          f32(a.X),
		gate:       weight(a.Gate),
		up:         weight(a.Up),
		down:       weight(a.Down),
		gate_bias:  f32(a.GateBias),
		up_bias:    f32(a.UpBias),
		down_bias:  f32(a.DownBias),
		ids:        i32(a.IDs),
		weights:    f32(a.Weights),
		gated:      f32(a.Gated),
		product:    f32(a.Product),
		chosen:     f32(a.Chosen),
		n:          C.int64_t(a.N),
		k:          C.int64_t(a.K),
		experts:    C.int64_t(a.Experts),
		activation: C.vb_activation(a.Activation),
		alpha:      C.float(a.Alpha),
		limit:      C.float(a.Limit),
	}
}

func cNormRouteArgs(a *kernel.NormRouteArgs) C.vb_norm_route_args {
	return C.vb_norm_route_args{
		size:          C.sizeof_vb_norm_route_args,
		ids:           i32(a.IDs),
		weights:       f32(a.Weights),
		normed:        f32(a.Normed),
		logits:        f32(a.Logits),
		x:             f32(a.X),
		norm:          f32(a.Norm),
		router:        weight(a.Router),
		router_bias:   f32(a.RouterBias),
		bias:          f32(a.Bias),
		n:             C.int64_t(a.N),
		k:             C.int64_t(a.K),
		groups:        C.int64_t(a.Groups),
		groups_used:   C.int64_t(a.GroupsUsed),
		eps:           C.float(a.Eps),
		scale:         C.float(a.Scale),
		gating:        C.vb_gating(a.Gating),
		normalized:    truth(a.Normalized),
		group_by_best: truth(a.GroupByBest),
	}
}

func cNormQKVArgs(a *kernel.NormQKVArgs) C.vb_norm_qkv_args {
	return C.vb_norm_qkv_args{
		size:         C.sizeof_vb_norm_qkv_args,
		q:            f32(a.Q),
		k:            a.K,
		v:            a.V,
		x:            f32(a.X),
		norm:         f32(a.Norm),
		wq:           weight(a.WQ),
		wk:           weight(a.WK),
		wv:           weight(a.WV),
		bq:           f32(a.BQ),
		bk:           f32(a.BK),
		bv:           f32(a.BV),
		q_norm:       f32(a.QNorm),
		k_norm:       f32(a.KNorm),
		cos:          f32(a.Cos),
		sin:          f32(a.Sin),
		positions:    i32(a.Positions),
		sequences:    i32(a.Sequences),
		normed:       f32(a.Normed),
		k_new:        f32(a.KNew),
		v_new:        f32(a.VNew),
		batch:        C.int64_t(a.Batch),
		seq:          C.int64_t(a.Seq),
		heads:        C.int64_t(a.Heads),
		kv_heads:     C.int64_t(a.KVHeads),
		dim:          C.int64_t(a.Dim),
		half:         C.int64_t(a.Half),
		table_rows:   C.int64_t(a.TableRows),
		capacity:     C.int64_t(a.Capacity),
		eps:          C.float(a.Eps),
		kv_type:      C.vb_dtype(a.KVType),
		mode:         C.vb_rope_mode(a.Mode),
		prepared:     truth(a.Prepared),
		ring:         truth(a.Ring),
		q_v:          a.QV,
		k_v:          a.KV,
		v_v:          a.VV,
		q_u:          a.QU,
		k_u:          a.KU,
		v_u:          a.VU,
		codes:        f32(a.Codes),
		codes_stride: C.int64_t(a.CodesStride),
		ranks:        C.int64_t(a.Ranks),
	}
}

func cUpdateArgs(a *kernel.UpdateArgs) C.vb_update_args {
	return C.vb_update_args{
		size:         C.sizeof_vb_update_args,
		v:            a.V,
		u:            a.U,
		codes:        f32(a.Codes),
		n:            C.int64_t(a.N),
		rows:         C.int64_t(a.Rows),
		cols:         C.int64_t(a.Cols),
		ranks:        C.int64_t(a.Ranks),
		codes_stride: C.int64_t(a.CodesStride),
		next_gate_v:  a.NextGateV,
		next_up_v:    a.NextUpV,
	}
}

func (s *stream) Add(out, a, b kernel.Ptr, t kernel.DType, n int) error {
	return s.check("add", C.vb_add(out, a, b, C.vb_dtype(t), C.int64_t(n), s.p))
}

func (s *stream) Mul(out, a, b kernel.Ptr, t kernel.DType, n int) error {
	return s.check("mul", C.vb_mul(out, a, b, C.vb_dtype(t), C.int64_t(n), s.p))
}

func (s *stream) MulScalar(out, a kernel.Ptr, scalar float32, t kernel.DType, n int) error {
	return s.check("mul_scalar", C.vb_mul_scalar(out, a, C.float(scalar), C.vb_dtype(t), C.int64_t(n), s.p))
}

func (s *stream) SiLU(out, a kernel.Ptr, t kernel.DType, n int) error {
	return s.check("silu", C.vb_silu(out, a, C.vb_dtype(t), C.int64_t(n), s.p))
}

func (s *stream) GELU(out, a kernel.Ptr, t kernel.DType, n int) error {
	return s.check("gelu", C.vb_gelu(out, a, C.vb_dtype(t), C.int64_t(n), s.p))
}

func (s *stream) GELUTanh(out, a kernel.Ptr, t kernel.DType, n int) error {
	return s.check("gelu_tanh", C.vb_gelu_tanh(out, a, C.vb_dtype(t), C.int64_t(n), s.p))
}

func (s *stream) SwiGLU(out, gate, up kernel.Ptr, t kernel.DType, n int) error {
	return s.check("swiglu", C.vb_swiglu(out, gate, up, C.vb_dtype(t), C.int64_t(n), s.p))
}

func (s *stream) GLU(out, gate, up kernel.Ptr, activation kernel.Activation, alpha, limit float32, t kernel.DType, n int) error {
	return s.check("glu", C.vb_glu(out, gate, up, C.vb_activation(activation), C.float(alpha), C.float(limit), C.vb_dtype(t), C.int64_t(n), s.p))
}

func (s *stream) Sigmoid(out, a kernel.Ptr, t kernel.DType, n int) error {
	return s.check("sigmoid", C.vb_sigmoid(out, a, C.vb_dtype(t), C.int64_t(n), s.p))
}

func (s *stream) SoftCap(out, a kernel.Ptr, cap float32, t kernel.DType, n int) error {
	return s.check("soft_cap", C.vb_soft_cap(out, a, C.float(cap), C.vb_dtype(t), C.int64_t(n), s.p))
}

func (s *stream) Copy(out, in kernel.Ptr, t kernel.DType, n int) error {
	return s.check("copy", C.vb_copy(out, in, C.vb_dtype(t), C.int64_t(n), s.p))
}

func (s *stream) Convert(out kernel.Ptr, outType kernel.DType, in kernel.Ptr, inType kernel.DType, n int) error {
	return s.check("convert", C.vb_convert(out, C.vb_dtype(outType), in, C.vb_dtype(inType), C.int64_t(n), s.p))
}

func (s *stream) IncrementI32(x kernel.Ptr, n int) error {
	return s.check("increment_i32", C.vb_increment_i32(i32(x), C.int64_t(n), s.p))
}

func (s *stream) Softmax(out, in kernel.Ptr, t kernel.DType, rows, cols int) error {
	return s.check("softmax", C.vb_softmax_batched(out, in, C.vb_dtype(t), C.int64_t(rows), C.int64_t(cols), s.p))
}

func (s *stream) RMSNorm(out, in, weight kernel.Ptr, t kernel.DType, rows, cols int, eps float32) error {
	return s.check("rms_norm", C.vb_rms_norm_batched(out, in, f32(weight), C.vb_dtype(t), C.int64_t(rows), C.int64_t(cols), C.float(eps), s.p))
}

func (s *stream) LayerNorm(out, in, weight, bias kernel.Ptr, t kernel.DType, rows, cols int, eps float32) error {
	return s.check("layer_norm", C.vb_layer_norm_batched(out, in, f32(weight), f32(bias), C.vb_dtype(t), C.int64_t(rows), C.int64_t(cols), C.float(eps), s.p))
}

func (s *stream) AddRMSNorm(sum, out, a, b, weight kernel.Ptr, t kernel.DType, rows, cols int, eps float32) error {
	return s.check("add_rms_norm", C.vb_add_rms_norm(sum, out, a, b, f32(weight), C.vb_dtype(t), C.int64_t(rows), C.int64_t(cols), C.float(eps), s.p))
}

func (s *stream) MulRows(out, a, factors kernel.Ptr, t kernel.DType, rows, cols int) error {
	return s.check("mul_rows", C.vb_mul_rows(out, a, f32(factors), C.vb_dtype(t), C.int64_t(rows), C.int64_t(cols), s.p))
}

func (s *stream) CopyColumns(out kernel.Ptr, outCols, outFirst int, in kernel.Ptr, inCols, inFirst int, t kernel.DType, rows, cols int) error {
	return s.check("copy_columns", C.vb_copy_columns(out, C.int64_t(outCols), C.int64_t(outFirst), in, C.int64_t(inCols), C.int64_t(inFirst), C.vb_dtype(t), C.int64_t(rows), C.int64_t(cols), s.p))
}

func (s *stream) Argmax(out, in kernel.Ptr, rows, cols int) error {
	return s.check("argmax", C.vb_argmax(i32(out), f32(in), C.int64_t(rows), C.int64_t(cols), s.p))
}

func (s *stream) TopK(values, ids, in kernel.Ptr, rows, cols, k int) error {
	return s.check("top_k", C.vb_top_k(f32(values), i32(ids), f32(in), C.int64_t(rows), C.int64_t(cols), C.int64_t(k), s.p))
}

func (s *stream) Map(args *kernel.MapArgs) error {
	return s.check("map", C.call_map(cMapArgs(args), s.p))
}

func (s *stream) Reduce(args *kernel.ReduceArgs) error {
	return s.check("reduce", C.call_reduce(cReduceArgs(args), s.p))
}

func (s *stream) CumSum(out, in kernel.Ptr, t kernel.DType, rows, n, cols int) error {
	return s.check("cumsum", C.vb_cumsum(out, in, C.vb_dtype(t), C.int64_t(rows), C.int64_t(n), C.int64_t(cols), s.p))
}

func (s *stream) Sort(args *kernel.SortArgs) error {
	return s.check("sort", C.call_sort(cSortArgs(args), s.p))
}

func (s *stream) Index(args *kernel.IndexArgs) error {
	return s.check("index", C.call_index(cIndexArgs(args), s.p))
}

func (s *stream) MatMul(args *kernel.MatMulArgs) error {
	return s.check("matmul", C.call_matmul_batched(cMatMulArgs(args), s.p))
}

func (s *stream) MatMulSingleRow(c, a, b kernel.Ptr, t kernel.DType, k, n int) error {
	return s.check("matmul_single_row", C.vb_matmul_single_row(c, a, b, C.vb_dtype(t), C.int64_t(k), C.int64_t(n), s.p))
}

func (s *stream) WeightPack(out kernel.Ptr, w kernel.Weight) error {
	return s.check("weight_pack", C.call_weight_pack(out, weight(w), s.p))
}

func (s *stream) Linear(y, x kernel.Ptr, w kernel.Weight, bias kernel.Ptr, n int) error {
	return s.check("linear", C.call_linear(f32(y), f32(x), weight(w), f32(bias), C.int64_t(n), s.p))
}

func (s *stream) Embedding(out kernel.Ptr, table kernel.Weight, ids kernel.Ptr, n int) error {
	return s.check("embedding", C.call_embedding(f32(out), weight(table), i32(ids), C.int64_t(n), s.p))
}

func (s *stream) FusedUpdate(args *kernel.FusedUpdateArgs) error {
	return s.check("fused_update", C.call_fused_update(cFusedUpdateArgs(args), s.p))
}

func (s *stream) NormQuantize(args *kernel.NormQuantizeArgs) error {
	return s.check("norm_quantize", C.call_norm_quantize(cNormQuantizeArgs(args), s.p))
}

func (s *stream) DequantizeRows(out, codes, scales kernel.Ptr, rows, cols int) error {
	return s.check("dequantize_rows", C.vb_dequantize_rows(f32(out), codes, f32(scales), C.int64_t(rows), C.int64_t(cols), s.p))
}

func (s *stream) W2A8GEMV(args *kernel.W2A8GEMVArgs) error {
	return s.check("w2a8_gemv", C.call_w2a8_gemv(cW2A8GEMVArgs(args), s.p))
}

func (s *stream) BitLinear(args *kernel.BitLinearArgs) error {
	return s.check("bit_linear", C.call_bit_linear(cBitLinearArgs(args), s.p))
}

func (s *stream) TMACLUT(lut, activations kernel.Ptr, k, n int) error {
	return s.check("tmac_lut", C.vb_tmac_lut(f32(lut), f32(activations), C.int64_t(k), C.int64_t(n), s.p))
}

func (s *stream) TMACMatMul(args *kernel.TMACMatMulArgs) error {
	return s.check("tmac_matmul", C.call_tmac_matmul(cTMACMatMulArgs(args), s.p))
}

func (s *stream) Route(args *kernel.RouteArgs) error {
	return s.check("route", C.call_route(cRouteArgs(args), s.p))
}

func (s *stream) ExpertLinear(args *kernel.ExpertLinearArgs) error {
	return s.check("expert_linear", C.call_expert_linear(cExpertLinearArgs(args), s.p))
}

func (s *stream) ExpertSum(out, add, y, weights kernel.Ptr, n, k, cols int) error {
	return s.check("expert_sum", C.vb_expert_sum(f32(out), f32(add), f32(y), f32(weights), C.int64_t(n), C.int64_t(k), C.int64_t(cols), s.p))
}

func (s *stream) RoPE(args *kernel.RoPEArgs) error {
	return s.check("rope", C.call_rope(cRoPEArgs(args), s.p))
}

func (s *stream) KVWrite(args *kernel.KVWriteArgs) error {
	return s.check("kv_write", C.call_kv_write(cKVWriteArgs(args), s.p))
}

func (s *stream) RoPEKVWrite(args *kernel.RoPEKVWriteArgs) error {
	return s.check("rope_kv_write", C.call_rope_kv_write(cRoPEKVWriteArgs(args), s.p))
}

func (s *stream) Attention(args *kernel.AttentionArgs) error {
	return s.check("attention", C.call_attention(cAttentionArgs(args), s.p))
}

func (s *stream) CausalConv(args *kernel.CausalConvArgs) error {
	return s.check("causal_conv", C.call_causal_conv(cCausalConvArgs(args), s.p))
}

func (s *stream) GatedDelta(args *kernel.GatedDeltaArgs) error {
	return s.check("gated_delta", C.call_gated_delta(cGatedDeltaArgs(args), s.p))
}

func (s *stream) NormLinear(y, x, norm kernel.Ptr, eps float32, w kernel.Weight, bias, normed kernel.Ptr, n int) error {
	return s.check("norm_linear", C.call_norm_linear(f32(y), f32(x), f32(norm), C.float(eps), weight(w), f32(bias), f32(normed), C.int64_t(n), s.p))
}

func (s *stream) NormSwiGLU(out, x, norm kernel.Ptr, eps float32, gate, up kernel.Weight, normed, product kernel.Ptr, n int) error {
	return s.check("norm_swiglu", C.call_norm_swiglu(f32(out), f32(x), f32(norm), C.float(eps), weight(gate), weight(up), f32(normed), f32(product), C.int64_t(n), s.p))
}

func (s *stream) LinearAdd(sum, a, x kernel.Ptr, w kernel.Weight, bias, product kernel.Ptr, n int) error {
	return s.check("linear_add", C.call_linear_add(f32(sum), f32(a), f32(x), weight(w), f32(bias), f32(product), C.int64_t(n), s.p))
}

func (s *stream) FeedForward(args *kernel.FeedForwardArgs) error {
	var cNextPrepared C.int
	err := s.check("feed_forward", C.call_feed_forward(cFeedForwardArgs(args), &cNextPrepared, s.p))
	args.NextPrepared = cNextPrepared != 0
	return err
}

func (s *stream) ExpertFeedForward(args *kernel.ExpertFeedForwardArgs) error {
	return s.check("expert_feed_forward", C.call_expert_feed_forward(cExpertFeedForwardArgs(args), s.p))
}

func (s *stream) NormRoute(args *kernel.NormRouteArgs) error {
	return s.check("norm_route", C.call_norm_route(cNormRouteArgs(args), s.p))
}

func (s *stream) NormQKV(args *kernel.NormQKVArgs) error {
	return s.check("norm_qkv", C.call_norm_qkv(cNormQKVArgs(args), s.p))
}

func (s *stream) AttentionLinearAdd(sum, a kernel.Ptr, attention *kernel.AttentionArgs, w kernel.Weight, bias kernel.Ptr, update *kernel.UpdateArgs, product, nextNorm, normed kernel.Ptr) (nextPrepared bool, err error) {
	var cNextPrepared C.int
	err = s.check("attention_linear_add", C.call_attention_linear_add(f32(sum), f32(a), cAttentionArgs(attention), weight(w), f32(bias), cUpdateArgs(update), f32(product), f32(nextNorm), f32(normed), &cNextPrepared, s.p))
	return cNextPrepared != 0, err
}
