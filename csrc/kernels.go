//go:build cgo

package csrc

/*
#include "vibrant.h"

// Structs go by value, as csrc.go says.
static vb_status weight_pack(void *out, vb_weight w, vb_stream *s) { return vb_weight_pack(out, &w, s); }
static vb_status linear(void *y, void *x, vb_weight w, void *bias, int64_t n, vb_stream *s) { return vb_linear(y, x, &w, bias, n, s); }
static vb_status embedding(void *out, vb_weight w, void *ids, int64_t n, vb_stream *s) { return vb_embedding(out, &w, ids, n, s); }
static vb_status matmul(vb_matmul_args a, vb_stream *s) { return vb_matmul_batched(&a, s); }
static vb_status rope(vb_rope_args a, vb_stream *s) { return vb_rope(&a, s); }
static vb_status kv_write(vb_kv_write_args a, vb_stream *s) { return vb_kv_write(&a, s); }
static vb_status attention(vb_attention_args a, vb_stream *s) { return vb_attention(&a, s); }
static vb_status norm_linear(void *y, void *x, void *norm, float eps, vb_weight w, void *bias, void *normed, int64_t n, vb_stream *s) { return vb_norm_linear(y, x, norm, eps, &w, bias, normed, n, s); }
static vb_status norm_swiglu(void *out, void *x, void *norm, float eps, vb_weight gate, vb_weight up, void *normed, void *product, int64_t n, vb_stream *s) { return vb_norm_swiglu(out, x, norm, eps, &gate, &up, normed, product, n, s); }
static vb_status linear_add(void *sum, void *a, void *x, vb_weight w, void *bias, void *product, int64_t n, vb_stream *s) { return vb_linear_add(sum, a, x, &w, bias, product, n, s); }
static vb_status feed_forward(vb_feed_forward_args a, int *prepared, vb_stream *s) { a.next_prepared = prepared; return vb_feed_forward(&a, s); }
static vb_status attention_linear_add(void *sum, void *a, vb_attention_args attention, vb_weight w, void *bias, void *product, void *next_norm, void *normed, int *prepared, vb_stream *s) { return vb_attention_linear_add(sum, a, &attention, &w, bias, product, next_norm, normed, prepared, s); }
static vb_status norm_qkv(vb_norm_qkv_args a, vb_stream *s) { return vb_norm_qkv(&a, s); }
*/
import "C"

import "github.com/vibrant-ml/vibrant/internal/backend/kernel"

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

func (s *stream) GLU(out, gate, up kernel.Ptr, act kernel.Activation, alpha, limit float32, t kernel.DType, n int) error {
	return s.check("glu", C.vb_glu(out, gate, up, C.vb_activation(act), C.float(alpha), C.float(limit), C.vb_dtype(t), C.int64_t(n), s.p))
}

func (s *stream) Sigmoid(out, a kernel.Ptr, t kernel.DType, n int) error {
	return s.check("sigmoid", C.vb_sigmoid(out, a, C.vb_dtype(t), C.int64_t(n), s.p))
}

func (s *stream) SoftCap(out, a kernel.Ptr, limit float32, t kernel.DType, n int) error {
	return s.check("soft_cap", C.vb_soft_cap(out, a, C.float(limit), C.vb_dtype(t), C.int64_t(n), s.p))
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
	return s.check("copy_columns", C.vb_copy_columns(out, C.int64_t(outCols), C.int64_t(outFirst), in, C.int64_t(inCols), C.int64_t(inFirst),
		C.vb_dtype(t), C.int64_t(rows), C.int64_t(cols), s.p))
}

func (s *stream) Argmax(out, in kernel.Ptr, rows, cols int) error {
	return s.check("argmax", C.vb_argmax(i32(out), f32(in), C.int64_t(rows), C.int64_t(cols), s.p))
}

func (s *stream) TopK(values, ids, in kernel.Ptr, rows, cols, k int) error {
	return s.check("top_k", C.vb_top_k(f32(values), i32(ids), f32(in), C.int64_t(rows), C.int64_t(cols), C.int64_t(k), s.p))
}

func (s *stream) MatMul(a *kernel.MatMulArgs) error {
	return s.check("matmul", C.matmul(C.vb_matmul_args{
		c: a.C, a: a.A, b: a.B, m: C.int64_t(a.M), k: C.int64_t(a.K), n: C.int64_t(a.N), batch: C.int64_t(a.Batch),
		a_stride: C.int64_t(a.AStride), b_stride: C.int64_t(a.BStride), c_stride: C.int64_t(a.CStride),
		a_batch_stride: C.int64_t(a.ABatchStride), b_batch_stride: C.int64_t(a.BBatchStride), c_batch_stride: C.int64_t(a.CBatchStride),
		a_transposed: truth(a.ATransposed), b_transposed: truth(a.BTransposed), _type: C.vb_dtype(a.Type), precision: C.vb_precision(a.Precision),
	}, s.p))
}

func (s *stream) MatMulSingleRow(c, a, b kernel.Ptr, t kernel.DType, k, n int) error {
	return s.check("matmul_single_row", C.vb_matmul_single_row(c, a, b, C.vb_dtype(t), C.int64_t(k), C.int64_t(n), s.p))
}

func (s *stream) WeightPack(out kernel.Ptr, w kernel.Weight) error {
	return s.check("weight_pack", C.weight_pack(out, weight(w), s.p))
}

func (s *stream) Linear(y, x kernel.Ptr, w kernel.Weight, bias kernel.Ptr, n int) error {
	return s.check("linear", C.linear(y, x, weight(w), bias, C.int64_t(n), s.p))
}

func (s *stream) Embedding(out kernel.Ptr, table kernel.Weight, ids kernel.Ptr, n int) error {
	return s.check("embedding", C.embedding(out, weight(table), ids, C.int64_t(n), s.p))
}

func (s *stream) RoPE(a *kernel.RoPEArgs) error {
	return s.check("rope", C.rope(C.vb_rope_args{
		out: a.Out, in: a.In, cos: f32(a.Cos), sin: f32(a.Sin), positions: i32(a.Positions), position_stride: C.int64_t(a.PositionStride),
		batch: C.int64_t(a.Batch), heads: C.int64_t(a.Heads), seq: C.int64_t(a.Seq), dim: C.int64_t(a.Dim), half: C.int64_t(a.Half),
		table_rows: C.int64_t(a.TableRows), _type: C.vb_dtype(a.Type), mode: C.vb_rope_mode(a.Mode),
	}, s.p))
}

func (s *stream) KVWrite(a *kernel.KVWriteArgs) error {
	return s.check("kv_write", C.kv_write(C.vb_kv_write_args{
		k: a.K, v: a.V, k_in: f32(a.KIn), v_in: f32(a.VIn), positions: i32(a.Positions), sequences: i32(a.Sequences),
		batch: C.int64_t(a.Batch), seq: C.int64_t(a.Seq), kv_heads: C.int64_t(a.KVHeads), dim: C.int64_t(a.Dim),
		capacity: C.int64_t(a.Capacity), _type: C.vb_dtype(a.Type),
	}, s.p))
}

func (s *stream) Attention(a *kernel.AttentionArgs) error {
	return s.check("attention", C.attention(attentionArgs(a), s.p))
}

func attentionArgs(a *kernel.AttentionArgs) C.vb_attention_args {
	return C.vb_attention_args{
		out: a.Out, q: a.Q, k: a.K, v: a.V, positions: i32(a.Positions), sequences: i32(a.Sequences),
		batch: C.int64_t(a.Batch), seq: C.int64_t(a.Seq), heads: C.int64_t(a.Heads), kv_heads: C.int64_t(a.KVHeads), dim: C.int64_t(a.Dim),
		q_batch_stride: C.int64_t(a.QBatchStride), q_head_stride: C.int64_t(a.QHeadStride), q_row_stride: C.int64_t(a.QRowStride),
		kv_capacity: C.int64_t(a.KVCapacity), kv_len: C.int64_t(a.KVLen), offset: C.int64_t(a.Offset), window: C.int64_t(a.Window),
		scale: C.float(a.Scale), causal: truth(a.Causal), _type: C.vb_dtype(a.Type), kv_type: C.vb_dtype(a.KVType),
		settled: truth(a.Settled),
	}
}

func (s *stream) NormLinear(y, x, norm kernel.Ptr, eps float32, w kernel.Weight, bias, normed kernel.Ptr, n int) error {
	return s.check("norm_linear", C.norm_linear(y, x, norm, C.float(eps), weight(w), bias, normed, C.int64_t(n), s.p))
}

func (s *stream) NormSwiGLU(out, x, norm kernel.Ptr, eps float32, gate, up kernel.Weight, normed, product kernel.Ptr, n int) error {
	return s.check("norm_swiglu", C.norm_swiglu(out, x, norm, C.float(eps), weight(gate), weight(up), normed, product, C.int64_t(n), s.p))
}

func (s *stream) LinearAdd(sum, a, x kernel.Ptr, w kernel.Weight, bias, product kernel.Ptr, n int) error {
	return s.check("linear_add", C.linear_add(sum, a, x, weight(w), bias, product, C.int64_t(n), s.p))
}

func (s *stream) FeedForward(a *kernel.FeedForwardArgs) error {
	var prepared C.int
	err := s.check("feed_forward", C.feed_forward(C.vb_feed_forward_args{
		sum: f32(a.Sum), x: f32(a.X), norm: f32(a.Norm), gate: weight(a.Gate), up: weight(a.Up), down: weight(a.Down),
		normed: f32(a.Normed), gated: f32(a.Gated), product: f32(a.Product), n: C.int64_t(a.N), eps: C.float(a.Eps),
		next_norm: f32(a.NextNorm), prepared: truth(a.Prepared),
	}, &prepared, s.p))
	a.NextPrepared = prepared != 0
	return err
}

func (s *stream) NormQKV(a *kernel.NormQKVArgs) error {
	return s.check("norm_qkv", C.norm_qkv(C.vb_norm_qkv_args{
		q: f32(a.Q), k: a.K, v: a.V, x: f32(a.X), norm: f32(a.Norm), wq: weight(a.WQ), wk: weight(a.WK), wv: weight(a.WV),
		bq: f32(a.BQ), bk: f32(a.BK), bv: f32(a.BV), q_norm: f32(a.QNorm), k_norm: f32(a.KNorm), cos: f32(a.Cos), sin: f32(a.Sin),
		positions: i32(a.Positions), sequences: i32(a.Sequences), normed: f32(a.Normed), k_new: f32(a.KNew), v_new: f32(a.VNew),
		batch: C.int64_t(a.Batch), seq: C.int64_t(a.Seq), heads: C.int64_t(a.Heads), kv_heads: C.int64_t(a.KVHeads), dim: C.int64_t(a.Dim),
		half: C.int64_t(a.Half), table_rows: C.int64_t(a.TableRows), capacity: C.int64_t(a.Capacity), eps: C.float(a.Eps),
		kv_type: C.vb_dtype(a.KVType), mode: C.vb_rope_mode(a.Mode), prepared: truth(a.Prepared),
	}, s.p))
}

func (s *stream) AttentionLinearAdd(sum, a kernel.Ptr, attention *kernel.AttentionArgs, w kernel.Weight, bias, product, nextNorm, normed kernel.Ptr) (nextPrepared bool, err error) {
	var prepared C.int
	err = s.check("attention_linear_add", C.attention_linear_add(sum, a, attentionArgs(attention), weight(w), bias, product, nextNorm, normed, &prepared, s.p))
	return prepared != 0, err
}

func truth(b bool) C.int {
	if b {
		return 1
	}
	return 0
}
