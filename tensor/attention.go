package tensor

import (
	"math"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// maxHeadDim is the widest head that attention kernels take: see vb_attention_args.
const maxHeadDim = 256

// isCache reports whether t can hold the keys and values of heads of dim.
func isCache(t DType, dim int) bool {
	return t == F32 || t == F16 || t == Q8_0 && dim%t.BlockSize() == 0
}

// KVWrite stores keys and values in a cache. The caches k and v are (sequences, kv heads, capacity, dim), F32, F16 or, where
// dim is a multiple of 32, Q8_0; kIn and vIn are F32 (batch, seq, kv heads, dim), or (seq, kv heads, dim) for one sequence.
// positions is I32 of batch * seq; sequences, I32 of batch, names the caches' leading index of each batch entry, nil for
// 0, 1, ...
//
// Rows with a position outside the capacity are skipped on a GPU and an OpError on the CPU.
func KVWrite(k, v, kIn, vIn, positions, sequences *Tensor) {
	const op = "kv write"
	checkCache(op, k, v)
	if !isCache(k.dtype, k.shape[3]) {
		misuse(op, "cache %v %s: want F32, F16 or Q8_0 with whole blocks", k.dtype, shapeString(k.shape))
	}
	batch, seq, heads, dim, ok := tokenMajor(kIn)
	if !ok || kIn.dtype != F32 || vIn.dtype != F32 || vIn.n != kIn.n || heads != k.shape[1] || dim != k.shape[3] {
		misuse(op, "%v %s and %v %s into %s: want F32 (batch,seq,%d,%d)", kIn.dtype, shapeString(kIn.shape),
			vIn.dtype, shapeString(vIn.shape), shapeString(k.shape), k.shape[1], k.shape[3])
	}
	if positions == nil {
		misuse(op, "%s: positions are missing", shapeString(kIn.shape))
	}
	checkPlaces(op, k, positions, sequences, batch, seq)
	args := kernel.KVWriteArgs{Batch: batch, Seq: seq, KVHeads: heads, Dim: dim, Capacity: k.shape[2], Type: k.dtype}
	exec(op, k.Stream(), 2, func(s kernel.Stream, p pointers) error {
		args.K, args.V, args.KIn, args.VIn, args.Positions, args.Sequences = p[0], p[1], p[2], p[3], p[4], p[5]
		return s.KVWrite(&args)
	}, k, v, kIn, vIn, positions, sequences)
}

// AttentionOptions are the arguments of Attention besides the data.
type AttentionOptions struct {
	Causal    bool    // a query at position p sees keys 0..p, else all of KVLen
	HeadMajor bool    // queries and output are (batch, heads, seq, dim) instead of (batch, seq, heads, dim)
	Positions *Tensor // I32 of batch * seq: each query's position; nil means Offset + its index
	Sequences *Tensor // I32 of batch: the index into the cache of each batch entry; nil means 0, 1, ...
	KVLen     int     // valid keys; with Positions an upper bound of position + 1, known to the host; 0 means the capacity
	Offset    int     // position of the first query where Positions is nil
	Window    int     // causal: only the newest keys are seen; 0 means all
	Scale     float32 // of q k^T; 0 means 1 / sqrt(dim)
	// The operation before writes no keys and values but those at the positions of these queries, as KVWrite does in a decoding
	// step: a GPU may read the others while it still runs.
	Settled bool
}

// Attention returns softmax(scale q k^T + mask) v with float32 sums. q is (batch, seq, heads, dim), or (seq, heads, dim)
// for one sequence; the result has its shape and type. k and v are caches (sequences, kv heads, capacity, dim), of which
// groups of heads / kv heads query heads share one. q is F32 with caches of F32, F16 or Q8_0, or F16 or BF16 with caches alike.
// dim is at most 256.
func Attention(q, k, v *Tensor, o AttentionOptions) *Tensor {
	attentionArgs(q, q, k, v, &o)
	out := like("attention", q)
	AttentionInto(out, q, k, v, o)
	return out
}

// AttentionInto writes Attention(q, k, v, o) to dst; not in place.
func AttentionInto(dst, q, k, v *Tensor, o AttentionOptions) {
	args := attentionArgs(dst, q, k, v, &o)
	exec("attention", dst.Stream(), 1, func(s kernel.Stream, p pointers) error {
		args.Out, args.Q, args.K, args.V, args.Positions, args.Sequences = p[0], p[1], p[2], p[3], p[4], p[5]
		return s.Attention(&args)
	}, dst, q, k, v, o.Positions, o.Sequences)
}

func attentionArgs(dst, q, k, v *Tensor, o *AttentionOptions) kernel.AttentionArgs {
	const op = "attention"
	elementwise(op, dst, q)
	checkCache(op, k, v)
	batch, seq, heads, dim, ok := tokenMajor(q)
	if ok && o.HeadMajor {
		seq, heads = heads, seq
	}
	kvHeads := k.shape[1]
	if !ok || dim != k.shape[3] || dim > maxHeadDim || kvHeads == 0 || heads%kvHeads != 0 {
		misuse(op, "%s with cache %s: want one head size up to %d, and heads a multiple of the cache's", shapeString(q.shape), shapeString(k.shape), maxHeadDim)
	}
	if !(q.dtype == k.dtype && !q.dtype.Quantized() || q.dtype == F32 && isCache(k.dtype, dim)) {
		misuse(op, "%s of %v with cache %s of %v", shapeString(q.shape), q.dtype, shapeString(k.shape), k.dtype)
	}
	checkPlaces(op, k, o.Positions, o.Sequences, batch, seq)
	a := kernel.AttentionArgs{
		Batch: batch, Seq: seq, Heads: heads, KVHeads: kvHeads, Dim: dim,
		KVCapacity: k.shape[2], KVLen: o.KVLen, Offset: o.Offset, Window: o.Window,
		Scale: o.Scale, Causal: o.Causal, Settled: o.Settled, Type: q.dtype, KVType: k.dtype,
		QBatchStride: seq * heads * dim, QHeadStride: dim, QRowStride: heads * dim,
	}
	if o.HeadMajor {
		a.QHeadStride, a.QRowStride = seq*dim, dim
	}
	if a.KVLen == 0 {
		a.KVLen = a.KVCapacity
	}
	if a.Scale == 0 {
		a.Scale = float32(1 / math.Sqrt(float64(dim)))
	}
	if a.KVLen < 0 || a.KVLen > a.KVCapacity || a.Offset < 0 || a.Window < 0 ||
		(a.Causal && o.Positions == nil && a.Offset+seq > a.KVLen) {
		misuse(op, "%s with cache %s: kv length %d, offset %d, window %d", shapeString(q.shape), shapeString(k.shape), a.KVLen, a.Offset, a.Window)
	}
	return a
}

// tokenMajor reads (batch, seq, heads, dim), or (seq, heads, dim) as a batch of one.
func tokenMajor(t *Tensor) (batch, seq, heads, dim int, ok bool) {
	s := t.shape
	switch len(s) {
	case 3:
		return 1, s[0], s[1], s[2], true
	case 4:
		return s[0], s[1], s[2], s[3], true
	}
	return 0, 0, 0, 0, false
}

func checkCache(op string, k, v *Tensor) {
	if len(k.shape) != 4 || len(v.shape) != 4 || k.dtype != v.dtype || k.n != v.n {
		misuse(op, "cache %v %s and %v %s: want two of (sequences, kv heads, capacity, dim)",
			k.dtype, shapeString(k.shape), v.dtype, shapeString(v.shape))
	}
	for i := range k.shape {
		if k.shape[i] != v.shape[i] {
			misuse(op, "cache %s and %s differ", shapeString(k.shape), shapeString(v.shape))
		}
	}
}

// checkPlaces checks where a batch reads or writes the cache.
func checkPlaces(op string, k, positions, sequences *Tensor, batch, seq int) {
	if positions != nil && (positions.dtype != I32 || positions.n != batch*seq) {
		misuse(op, "positions %v %s: want I32 of %d", positions.dtype, shapeString(positions.shape), batch*seq)
	}
	switch {
	case sequences != nil && (sequences.dtype != I32 || sequences.n != batch):
		misuse(op, "sequences %v %s: want I32 of %d", sequences.dtype, shapeString(sequences.shape), batch)
	case sequences == nil && batch > k.shape[0]:
		misuse(op, "batch of %d with a cache of %d sequences", batch, k.shape[0])
	}
}
