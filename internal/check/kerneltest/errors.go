package kerneltest

import (
	"math"
	"math/bits"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// testErrors holds every operation to the documented statuses.
func testErrors(h *harness) {
	s := h.stream
	p := h.output(kernel.F32, 4096)
	const f32, big = kernel.F32, math.MaxInt / 2
	weight := func(t kernel.DType, rows, cols int) kernel.Weight {
		return kernel.Weight{Data: p, Type: t, Rows: rows, Cols: cols}
	}
	at := func(element int) kernel.Ptr { return unsafe.Add(p, 4*element) }
	product := func(edit func(a *kernel.MatMulArgs)) *kernel.MatMulArgs {
		a := kernel.MatMulArgs{C: p, A: at(1024), B: at(2048), M: 2, K: 4, N: 4, Batch: 3, AStride: 4, BStride: 4, CStride: 4, ABatchStride: 8, CBatchStride: 8, Type: f32}
		edit(&a)
		return &a
	}
	rope := func(edit func(a *kernel.RoPEArgs)) error {
		a := kernel.RoPEArgs{Out: p, In: p, Cos: p, Sin: p, Batch: 1, Heads: 1, Seq: 1, Dim: 4, Half: 2, TableRows: 4}
		edit(&a)
		return s.RoPE(&a)
	}
	position := upload(h, []int32{0})
	kv := func(edit func(a *kernel.KVWriteArgs)) error {
		a := kernel.KVWriteArgs{K: p, V: p, KIn: p, VIn: p, Positions: position, Batch: 1, Seq: 1, KVHeads: 1, Dim: 4, ValueDim: 4, Capacity: 4}
		edit(&a)
		return s.KVWrite(&a)
	}
	attention := func(edit func(a *kernel.AttentionArgs)) error {
		a := kernel.AttentionArgs{Out: p, Q: p, K: p, V: p, Batch: 1, Seq: 1, Heads: 2, KVHeads: 1, Dim: 4, ValueDim: 4, QBatchStride: 8, QHeadStride: 4, QRowStride: 4, KVCapacity: 4, KVLen: 4, Scale: 1}
		edit(&a)
		return s.Attention(&a)
	}
	attentionAdd := func(cols int, edit func(a *kernel.AttentionArgs)) error {
		a := kernel.AttentionArgs{Out: p, Q: p, K: p, V: p, Batch: 1, Seq: 1, Heads: 2, KVHeads: 1, Dim: 4, ValueDim: 4, QBatchStride: 8, QHeadStride: 4, QRowStride: 8, KVCapacity: 4, KVLen: 4, Scale: 1}
		edit(&a)
		_, err := s.AttentionLinearAdd(p, p, &a, weight(f32, 2, cols), nil, &kernel.UpdateArgs{}, p, nil, nil)
		return err
	}
	qkv := func(edit func(*kernel.NormQKVArgs)) error {
		a := kernel.NormQKVArgs{Q: p, K: p, V: p, X: p, WQ: weight(f32, 8, 2), WK: weight(f32, 4, 2), WV: weight(f32, 4, 2), Cos: p, Sin: p, Positions: position,
			Normed: p, KNew: p, VNew: p, Batch: 1, Seq: 1, Heads: 2, KVHeads: 1, Dim: 4, Half: 2, TableRows: 4, Capacity: 4}
		edit(&a)
		return s.NormQKV(&a)
	}
	ropeWrite := func(edit func(*kernel.RoPEKVWriteArgs)) error {
		a := kernel.RoPEKVWriteArgs{Q: p, QIn: p, K: p, V: p, KNew: p, VNew: p, Cos: p, Sin: p, Positions: position, Batch: 1, Seq: 1, Heads: 2, KVHeads: 1,
			Dim: 4, Half: 2, TableRows: 4, Capacity: 4}
		edit(&a)
		return s.RoPEKVWrite(&a)
	}
	feedForward := func(edit func(*kernel.FeedForwardArgs)) error {
		a := kernel.FeedForwardArgs{Sum: p, X: p, Gate: weight(f32, 2, 2), Up: weight(f32, 2, 2), Down: weight(f32, 2, 2), Normed: p, Gated: p, Product: p, N: 1}
		edit(&a)
		return s.FeedForward(&a)
	}
	bitLinear := func(edit func(*kernel.BitLinearArgs)) error {
		a := kernel.BitLinearArgs{Out: p, Codes: p, Scales: p, In: p, Weights: p, WeightScales: p, M: 1, N: 2, K: 4, Segments: 1, RowBytes: 1}
		edit(&a)
		return s.BitLinear(&a)
	}
	experts := func(edit func(*kernel.ExpertFeedForwardArgs)) error {
		a := kernel.ExpertFeedForwardArgs{Sum: p, X: p, Gate: weight(f32, 2, 2), Up: weight(f32, 2, 2), Down: weight(f32, 2, 2), IDs: position,
			Gated: p, Product: p, Chosen: p, N: 1, K: 1, Experts: 1}
		edit(&a)
		return s.ExpertFeedForward(&a)
	}
	normRoute := func(edit func(*kernel.NormRouteArgs)) error {
		a := kernel.NormRouteArgs{IDs: position, Weights: p, Normed: p, Logits: p, X: p, Router: weight(f32, 2, 2), N: 1, K: 1}
		edit(&a)
		return s.NormRoute(&a)
	}
	for _, c := range []struct {
		what string
		err  error
	}{
		{"add null", s.Add(nil, p, p, f32, 4)}, {"add null a", s.Add(p, nil, p, f32, 4)}, {"add null b", s.Add(p, p, nil, f32, 4)},
		{"add negative", s.Add(p, p, p, f32, -1)}, {"add blocks", s.Add(p, p, p, kernel.Q4_0, 32)}, {"add integers", s.Add(p, p, p, kernel.I32, 4)},
		{"add unknown type", s.Add(p, p, p, 99, 4)}, {"add overflow", s.Add(p, p, p, f32, big)},
		{"mul null", s.Mul(p, nil, p, f32, 4)}, {"mul_scalar null", s.MulScalar(p, nil, 1, f32, 4)}, {"silu null", s.SiLU(nil, p, f32, 4)},
		{"silu type", s.SiLU(p, p, kernel.Q8_0, 32)}, {"gelu null", s.GELU(nil, p, f32, 4)}, {"gelu_tanh type", s.GELUTanh(p, p, kernel.I32, 4)}, {"swiglu null", s.SwiGLU(p, p, nil, f32, 4)},
		{"copy part of a block", s.Copy(p, p, kernel.Q4_0, 31)}, {"copy unknown type", s.Copy(p, p, 99, 4)}, {"copy null", s.Copy(p, nil, f32, 4)},
		{"convert to blocks", s.Convert(p, kernel.Q4_1, p, f32, 32)}, {"convert halves to blocks", s.Convert(p, kernel.Q4_0, p, kernel.F16, 32)},
		{"convert to part of a block", s.Convert(p, kernel.Q4_0, p, f32, 16)}, {"convert blocks to half", s.Convert(p, kernel.F16, p, kernel.Q4_0, 32)},
		{"convert part of a block", s.Convert(p, f32, p, kernel.Q6_K, 128)}, {"convert null", s.Convert(p, f32, nil, f32, 4)},
		{"increment null", s.IncrementI32(nil, 1)}, {"increment negative", s.IncrementI32(p, -1)},
		{"softmax null", s.Softmax(p, nil, f32, 1, 4)}, {"softmax negative", s.Softmax(p, p, f32, -1, 4)}, {"softmax negative and empty", s.Softmax(p, p, f32, 0, -4)},
		{"softmax overflow", s.Softmax(p, p, f32, big, 3)}, {"softmax type", s.Softmax(p, p, kernel.I32, 1, 4)},
		{"rms_norm null", s.RMSNorm(nil, p, nil, f32, 1, 4, 1e-5)}, {"rms_norm overflow", s.RMSNorm(p, p, p, f32, big, big, 1e-5)},
		{"layer_norm null", s.LayerNorm(nil, p, nil, nil, f32, 1, 4, 1e-5)}, {"layer_norm type", s.LayerNorm(p, p, nil, nil, kernel.I32, 1, 4, 1e-5)},
		{"add_rms_norm null", s.AddRMSNorm(nil, p, p, p, nil, f32, 1, 4, 1e-5)}, {"add_rms_norm null b", s.AddRMSNorm(p, p, p, nil, nil, f32, 1, 4, 1e-5)},
		{"argmax of nothing", s.Argmax(p, p, 1, 0)}, {"argmax null", s.Argmax(p, nil, 1, 4)}, {"argmax negative", s.Argmax(p, p, -1, 4)},
		{"top_k of too many", s.TopK(p, p, p, 1, 4, 5)}, {"top_k negative", s.TopK(p, p, p, 1, 4, -1)}, {"top_k null", s.TopK(p, nil, p, 1, 4, 2)},
		{"matmul null", s.MatMul(matmul(p, p, nil, f32, 2, 2, 2))}, {"matmul negative", s.MatMul(matmul(p, p, p, f32, 2, -2, 2))},
		{"matmul overflow", s.MatMul(matmul(p, p, p, f32, big, big, big))}, {"matmul type", s.MatMul(matmul(p, p, p, kernel.Q4_0, 2, 2, 2))},
		{"matmul short rows", s.MatMul(product(func(a *kernel.MatMulArgs) { a.BStride = 3 }))}, {"matmul short rows of a transposed", s.MatMul(product(func(a *kernel.MatMulArgs) { a.ATransposed, a.AStride = true, 1 }))},
		{"matmul overlap", s.MatMul(product(func(a *kernel.MatMulArgs) { a.CBatchStride = 7 }))}, {"matmul batch overflow", s.MatMul(product(func(a *kernel.MatMulArgs) { a.ABatchStride = big }))},
		{"matmul negative batch", s.MatMul(product(func(a *kernel.MatMulArgs) { a.Batch = -1 }))}, {"matmul precision", s.MatMul(product(func(a *kernel.MatMulArgs) { a.Precision = 3 }))},
		{"matmul all of c at one place", s.MatMul(product(func(a *kernel.MatMulArgs) { a.CBatchStride = 0 }))},
		{"matmul interleaved c overlaps", s.MatMul(product(func(a *kernel.MatMulArgs) { a.CBatchStride, a.CStride = 3, 12 }))},
		{"matmul in place of a", s.MatMul(product(func(a *kernel.MatMulArgs) { a.C = a.A }))},
		{"matmul c ends in b", s.MatMul(product(func(a *kernel.MatMulArgs) { a.C = at(2048 - 23) }))},
		{"matmul columns of c in those of a", s.MatMul(product(func(a *kernel.MatMulArgs) {
			a.AStride, a.CStride, a.ABatchStride, a.CBatchStride, a.C = 8, 8, 16, 16, at(1024+3)
		}))},
		{"matmul negative stride of nothing", s.MatMul(product(func(a *kernel.MatMulArgs) { a.K, a.A, a.AStride = 0, nil, -4 }))},
		{"matmul_single_row null", s.MatMulSingleRow(nil, p, p, f32, 2, 2)}, {"matmul_single_row in place", s.MatMulSingleRow(p, p, at(64), f32, 2, 2)},
		{"linear in place", s.Linear(p, p, weight(f32, 2, 2), nil, 1)}, {"linear y ends in x", s.Linear(p, at(3), kernel.Weight{Data: at(64), Type: f32, Rows: 2, Cols: 2}, nil, 2)},
		{"linear null y", s.Linear(nil, p, weight(f32, 2, 2), nil, 1)}, {"linear null x", s.Linear(p, nil, weight(f32, 2, 2), nil, 1)},
		{"linear null weight", s.Linear(p, p, kernel.Weight{Type: f32, Rows: 2, Cols: 2}, nil, 1)}, {"linear part of a block", s.Linear(p, p, weight(kernel.Q4_K, 2, 128), nil, 1)},
		{"linear integers", s.Linear(p, p, weight(kernel.I32, 2, 2), nil, 1)}, {"linear unknown type", s.Linear(p, p, weight(4, 2, 32), nil, 1)},
		{"linear negative", s.Linear(p, p, weight(f32, 2, 2), nil, -1)}, {"linear overflow", s.Linear(p, p, weight(kernel.Q8_0, big/32*32, 64), nil, 1)},
		{"embedding null", s.Embedding(p, weight(f32, 2, 2), nil, 1)}, {"embedding integers", s.Embedding(p, weight(kernel.I32, 2, 2), position, 1)},
		{"embedding negative", s.Embedding(p, weight(f32, 2, 2), position, -1)}, {"embedding part of a block", s.Embedding(p, weight(kernel.Q4_0, 2, 33), position, 1)},
		{"rope null", rope(func(a *kernel.RoPEArgs) { a.In = nil })}, {"rope null table", rope(func(a *kernel.RoPEArgs) { a.Cos = nil })},
		{"rope wide", rope(func(a *kernel.RoPEArgs) { a.Half = 3 })}, {"rope negative half", rope(func(a *kernel.RoPEArgs) { a.Half = -1 })},
		{"rope negative", rope(func(a *kernel.RoPEArgs) { a.Seq = -1 })}, {"rope type", rope(func(a *kernel.RoPEArgs) { a.Type = kernel.I32 })},
		{"rope mode", rope(func(a *kernel.RoPEArgs) { a.Mode = 7 })}, {"rope negative stride", rope(func(a *kernel.RoPEArgs) { a.PositionStride = -1 })},
		{"kv_write null", kv(func(a *kernel.KVWriteArgs) { a.V = nil })}, {"kv_write null positions", kv(func(a *kernel.KVWriteArgs) { a.Positions = nil })},
		{"kv_write type", kv(func(a *kernel.KVWriteArgs) { a.Type = kernel.I32 })}, {"kv_write negative", kv(func(a *kernel.KVWriteArgs) { a.Dim = -1 })},
		{"kv_write overflow", kv(func(a *kernel.KVWriteArgs) { a.Capacity = big })},
		{"attention null", attention(func(a *kernel.AttentionArgs) { a.Q = nil })}, {"attention null cache", attention(func(a *kernel.AttentionArgs) { a.K = nil })},
		{"attention values wider than keys", attention(func(a *kernel.AttentionArgs) { a.V, a.ValueDim = nil, 8 })},
		{"attention ring without a window", attention(func(a *kernel.AttentionArgs) { a.Causal, a.Ring = true, true })},
		{"attention chunk", attention(func(a *kernel.AttentionArgs) { a.Chunk = 2 })}, {"attention soft cap", attention(func(a *kernel.AttentionArgs) { a.SoftCap = -1 })},
		{"kv_write values without a cache", kv(func(a *kernel.KVWriteArgs) { a.V = nil })},
		{"attention heads", attention(func(a *kernel.AttentionArgs) { a.KVHeads = 3 })}, {"attention no key heads", attention(func(a *kernel.AttentionArgs) { a.KVHeads = 0 })},
		{"attention kv_len", attention(func(a *kernel.AttentionArgs) { a.KVLen = 5 })}, {"attention negative window", attention(func(a *kernel.AttentionArgs) { a.Window = -1 })},
		{"attention negative stride", attention(func(a *kernel.AttentionArgs) { a.QHeadStride = -4 })}, {"attention type", attention(func(a *kernel.AttentionArgs) { a.Type = kernel.Q4_0 })},
		{"attention cache type", attention(func(a *kernel.AttentionArgs) { a.KVType = kernel.I32 })},
		{"attention rows beyond kv_len", attention(func(a *kernel.AttentionArgs) { a.Causal, a.Offset = true, 4 })},
		{"norm_linear null", s.NormLinear(p, nil, nil, 1, weight(f32, 2, 2), nil, p, 1)}, {"norm_linear null scratch", s.NormLinear(p, p, nil, 1, weight(f32, 2, 2), nil, nil, 1)},
		{"norm_linear negative", s.NormLinear(p, p, nil, 1, weight(f32, 2, 2), nil, p, -1)}, {"norm_swiglu null", s.NormSwiGLU(nil, p, nil, 1, weight(f32, 2, 2), weight(f32, 2, 2), p, p, 1)},
		{"norm_swiglu shapes", s.NormSwiGLU(p, p, nil, 1, weight(f32, 2, 2), weight(f32, 3, 2), p, p, 1)}, {"linear_add null", s.LinearAdd(p, nil, p, weight(f32, 2, 2), nil, p, 1)},
		{"attention_linear_add columns", attentionAdd(7, func(*kernel.AttentionArgs) {})}, {"attention_linear_add gaps", attentionAdd(8, func(a *kernel.AttentionArgs) { a.QRowStride = 16 })},
		{"attention_linear_add type", attentionAdd(8, func(a *kernel.AttentionArgs) { a.Type, a.KVType = kernel.F16, kernel.F16 })}, {"attention_linear_add heads", attentionAdd(8, func(a *kernel.AttentionArgs) { a.KVHeads = 3 })},
		{"attention_linear_add null", attentionAdd(8, func(a *kernel.AttentionArgs) { a.Q = nil })},
		{"linear_add integers", s.LinearAdd(p, p, p, weight(kernel.I32, 2, 2), nil, p, 1)},
		{"feed_forward null", feedForward(func(a *kernel.FeedForwardArgs) { a.X = nil })}, {"feed_forward null scratch", feedForward(func(a *kernel.FeedForwardArgs) { a.Gated = nil })},
		{"feed_forward gate and up", feedForward(func(a *kernel.FeedForwardArgs) { a.Up.Rows = 3 })}, {"feed_forward down", feedForward(func(a *kernel.FeedForwardArgs) { a.Down.Cols = 3 })},
		{"feed_forward negative", feedForward(func(a *kernel.FeedForwardArgs) { a.N = -1 })},
		{"bit_linear null", bitLinear(func(a *kernel.BitLinearArgs) { a.In = nil })}, {"bit_linear null scratch", bitLinear(func(a *kernel.BitLinearArgs) { a.Codes = nil })},
		{"bit_linear scales", bitLinear(func(a *kernel.BitLinearArgs) { a.WeightScales = nil })}, {"bit_linear second matrix", bitLinear(func(a *kernel.BitLinearArgs) { a.N2, a.Segments2 = 2, 1 })},
		{"bit_linear negative", bitLinear(func(a *kernel.BitLinearArgs) { a.N3 = -1 })}, {"bit_linear columns", bitLinear(func(a *kernel.BitLinearArgs) { a.K = 6 })},
		{"bit_linear row_bytes", bitLinear(func(a *kernel.BitLinearArgs) { a.RowBytes = 2 })}, {"bit_linear segments", bitLinear(func(a *kernel.BitLinearArgs) { a.Segments = 3 })},
		{"bit_linear activation", bitLinear(func(a *kernel.BitLinearArgs) { a.Up, a.Activation = p, kernel.ActivationGELU })},
		{"expert_feed_forward null", experts(func(a *kernel.ExpertFeedForwardArgs) { a.X = nil })}, {"expert_feed_forward null scratch", experts(func(a *kernel.ExpertFeedForwardArgs) { a.Chosen = nil })},
		{"expert_feed_forward gate and up", experts(func(a *kernel.ExpertFeedForwardArgs) { a.Up.Rows = 3 })}, {"expert_feed_forward down", experts(func(a *kernel.ExpertFeedForwardArgs) { a.Down.Cols = 3 })},
		{"expert_feed_forward negative", experts(func(a *kernel.ExpertFeedForwardArgs) { a.K = -1 })}, {"expert_feed_forward activation", experts(func(a *kernel.ExpertFeedForwardArgs) { a.Activation = 9 })},
		{"norm_route null", normRoute(func(a *kernel.NormRouteArgs) { a.X = nil })}, {"norm_route null scratch", normRoute(func(a *kernel.NormRouteArgs) { a.Logits = nil })},
		{"norm_route null normed", normRoute(func(a *kernel.NormRouteArgs) { a.Normed = nil })}, {"norm_route more than there are", normRoute(func(a *kernel.NormRouteArgs) { a.K = 3 })},
		{"norm_route negative", normRoute(func(a *kernel.NormRouteArgs) { a.N = -1 })}, {"norm_route gating", normRoute(func(a *kernel.NormRouteArgs) { a.Gating = 9 })},
		{"norm_qkv null", qkv(func(a *kernel.NormQKVArgs) { a.V = nil })}, {"norm_qkv null positions", qkv(func(a *kernel.NormQKVArgs) { a.Positions = nil })},
		{"norm_qkv shapes", qkv(func(a *kernel.NormQKVArgs) { a.WK.Rows = 3 })}, {"norm_qkv inner", qkv(func(a *kernel.NormQKVArgs) { a.WV.Cols = 3 })},
		{"norm_qkv one norm", qkv(func(a *kernel.NormQKVArgs) { a.KNorm = p })}, {"norm_qkv wide", qkv(func(a *kernel.NormQKVArgs) { a.Half = 3 })},
		{"rope_kv_write null", ropeWrite(func(a *kernel.RoPEKVWriteArgs) { a.KNew = nil })}, {"rope_kv_write null positions", ropeWrite(func(a *kernel.RoPEKVWriteArgs) { a.Positions = nil })},
		{"rope_kv_write one norm", ropeWrite(func(a *kernel.RoPEKVWriteArgs) { a.QNorm = p })}, {"rope_kv_write no keys", ropeWrite(func(a *kernel.RoPEKVWriteArgs) { a.KVHeads = 0 })},
		{"rope_kv_write mode", ropeWrite(func(a *kernel.RoPEKVWriteArgs) { a.Mode = 7 })}, {"rope_kv_write type", ropeWrite(func(a *kernel.RoPEKVWriteArgs) { a.KVType = kernel.I32 })},
		{"norm_qkv mode", qkv(func(a *kernel.NormQKVArgs) { a.Mode = 7 })}, {"norm_qkv type", qkv(func(a *kernel.NormQKVArgs) { a.KVType = kernel.I32 })},
	} {
		h.is(c.what, c.err, kernel.ErrInvalid)
	}
	h.is("attention of wide heads", attention(func(a *kernel.AttentionArgs) { a.Dim = 577 }), kernel.ErrUnsupported)
	if bits.UintSize != 64 {
		return
	}
	for i, err := range []error{ // a size of 0 is a no-op, whatever the pointers
		s.Add(nil, nil, nil, f32, 0), s.Mul(nil, nil, nil, f32, 0), s.MulScalar(nil, nil, 2, f32, 0), s.SiLU(nil, nil, f32, 0), s.SwiGLU(nil, nil, nil, f32, 0),
		s.Copy(nil, nil, kernel.Q4_K, 0), s.Convert(nil, f32, nil, kernel.Q4_K, 0), s.IncrementI32(nil, 0),
		s.Softmax(nil, nil, f32, 0, 4), s.Softmax(nil, nil, f32, 4, 0), s.RMSNorm(nil, nil, nil, f32, 4, 0, 1), s.AddRMSNorm(nil, nil, nil, nil, nil, f32, 0, 4, 1),
		s.Argmax(nil, nil, 0, 4), s.TopK(nil, nil, nil, 4, 4, 0), s.TopK(nil, nil, nil, 0, 4, 2), s.MatMul(matmul(nil, nil, nil, f32, 0, 4, 4)), s.MatMulSingleRow(nil, nil, nil, f32, 4, 0),
		s.Linear(nil, nil, kernel.Weight{Type: f32, Rows: 0, Cols: 4}, nil, 2), s.Linear(nil, nil, kernel.Weight{Type: kernel.Q4_K, Rows: 3, Cols: 256}, nil, 0),
		s.Embedding(nil, kernel.Weight{Type: f32, Rows: 2, Cols: 2}, nil, 0),
		rope(func(a *kernel.RoPEArgs) { a.Seq, a.In = 0, nil }), kv(func(a *kernel.KVWriteArgs) { a.Batch, a.K = 0, nil }), attention(func(a *kernel.AttentionArgs) { a.Seq, a.Q = 0, nil }),
		s.NormLinear(nil, nil, nil, 1, kernel.Weight{Type: f32, Rows: 2, Cols: 2}, nil, nil, 0), s.LinearAdd(nil, nil, nil, kernel.Weight{Type: f32, Rows: 0, Cols: 2}, nil, nil, 2),
		s.NormSwiGLU(nil, nil, nil, 1, kernel.Weight{Type: f32, Rows: 2, Cols: 2}, kernel.Weight{Type: f32, Rows: 2, Cols: 2}, nil, nil, 0),
		feedForward(func(a *kernel.FeedForwardArgs) { a.N, a.X = 0, nil }), experts(func(a *kernel.ExpertFeedForwardArgs) { a.N, a.X = 0, nil }),
		bitLinear(func(a *kernel.BitLinearArgs) { a.M, a.In = 0, nil }),
		normRoute(func(a *kernel.NormRouteArgs) { a.N, a.X = 0, nil }), qkv(func(a *kernel.NormQKVArgs) { a.Seq, a.Q = 0, nil }),
		ropeWrite(func(a *kernel.RoPEKVWriteArgs) { a.Seq, a.Q = 0, nil }),
		s.Memset(nil, 1, 0), s.CopyOnDevice(nil, nil, 0),
	} {
		if err != nil {
			h.t.Errorf("empty operation %d: %v", i, err)
		}
	}
	for _, b := range download[byte](h, p, 4096*4+guard)[4096*4:] {
		if b != 0xaa {
			h.t.Fatal("a refused operation wrote past its output")
		}
	}
}

// testMemory exercises allocation, copies and events.
func testMemory(h *harness) {
	for _, n := range []int64{0, 1, 255, 256, 1 << 20} {
		p, err := h.dev.Alloc(n)
		h.ok(err)
		if p == nil || uintptr(p)%256 != 0 {
			h.t.Errorf("alloc of %d bytes at %p", n, p)
		}
		if n > 0 {
			h.ok(h.stream.Memset(p, 7, n))
		}
		h.ok(h.dev.Free(p))
		q, err := h.dev.AllocHost(n)
		h.ok(err)
		h.ok(h.dev.FreeHost(q))
	}
	h.ok(h.dev.Free(nil))
	h.ok(h.dev.FreeHost(nil))
	_, err := h.dev.Alloc(-1)
	h.is("alloc of -1", err, kernel.ErrInvalid)
	_, err = h.dev.Alloc(1 << 60)
	h.is("alloc of 2^60", err, kernel.ErrOutOfMemory)
	free, total, err := h.dev.Memory()
	h.ok(err)
	if free <= 0 || free > total {
		h.t.Errorf("memory: %d of %d free", free, total)
	}
	h.is("copy of -1", h.stream.CopyOnDevice(h.alloc(1), h.alloc(1), -1), kernel.ErrInvalid)
	h.is("copy from null", h.stream.CopyOnDevice(h.alloc(1), nil, 1), kernel.ErrInvalid)

	start, err := h.dev.NewEvent()
	h.ok(err)
	end, err := h.dev.NewEvent()
	h.ok(err)
	h.ok(h.stream.Record(start))
	h.ok(h.stream.Record(end))
	h.ok(h.stream.Wait(end))
	h.ok(end.Synchronize())
	if done, err := end.Done(); err != nil || !done {
		h.t.Errorf("event after synchronize: done %v, %v", done, err)
	}
	if ms, err := end.ElapsedMS(start); err != nil || !(ms >= 0 && ms < 1e4) {
		h.t.Errorf("elapsed %v ms, %v", ms, err)
	}
	h.ok(start.Close())
	h.ok(end.Close())
	if h.dev.Info().HostMemory {
		h.is("capture", h.stream.BeginCapture(), kernel.ErrUnsupported)
	}
}

// matmul is a product of contiguous matrices.
func matmul(c, a, b kernel.Ptr, t kernel.DType, m, k, n int) *kernel.MatMulArgs {
	return &kernel.MatMulArgs{C: c, A: a, B: b, M: m, K: k, N: n, Batch: 1, AStride: k, BStride: n, CStride: n, Type: t}
}
