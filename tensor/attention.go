package tensor

import (
	"math"
	"slices"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/fused"
)

// maxHeadDim is the widest row of keys or values that attention kernels take: see vb_attention_args.
const maxHeadDim = 576

// isCache reports whether t can hold the keys and values of heads of dim.
func isCache(t DType, dim int) bool {
	return t == F32 || t == F16 || t == BF16 || t == Q8_0 && dim%t.BlockSize() == 0
}

// KVWrite stores keys and values in a cache. The caches k and v are (sequences, kv heads, capacity, dim), F32, F16, BF16 or,
// where dim is a multiple of 32, Q8_0; kIn and vIn are F32 (batch, seq, kv heads, dim), or (seq, kv heads, dim) for one
// sequence. positions is I32 of batch * seq; sequences, I32 of batch, names the caches' leading index of each batch
// entry, nil for 0, 1, ...
//
// Values may have a head size of their own. With v and vIn nil, keys are all that is stored (latent attention).
//
// Rows with a position outside the capacity are skipped on a GPU and an OpError on the CPU. Panics: *ShapeError, *OpError.
func KVWrite(k, v, kIn, vIn, positions, sequences *Tensor) Written {
	return kvWrite(k, v, kIn, vIn, positions, sequences, false)
}

// KVWriteRing is KVWrite to a cache of the newest tokens: position p goes to slot p modulo the capacity, which is at
// least seq. Panics: *ShapeError, *OpError.
func KVWriteRing(k, v, kIn, vIn, positions, sequences *Tensor) Written {
	return kvWrite(k, v, kIn, vIn, positions, sequences, true)
}

// Written says where an operation has put keys and values: at some positions of a cache, and nowhere else. Attention
// that is enqueued right after, on the same stream, for queries at these positions, may read other keys while the
// operation still runs on a GPU. Anywhere else it counts for nothing, as the zero Written does.
type Written struct {
	stream                     *gpu.Stream
	work                       uint64 // given to the stream when the keys were written
	k, v, positions, sequences fused.Place
}

func written(s *gpu.Stream, k, v, positions, sequences *Tensor) Written {
	return Written{s, s.Enqueued(), k.place(), v.place(), positions.place(), sequences.place()}
}

// settles reports whether the operation enqueued last wrote no keys and values but those at these positions.
func (w Written) settles(s *gpu.Stream, k, v, positions, sequences *Tensor) bool {
	return w.stream != nil && positions != nil && w == written(s, k, v, positions, sequences)
}

func kvWrite(k, v, kIn, vIn, positions, sequences *Tensor, ring bool) Written {
	const op = "kv write"
	checkCaches(op, k, v)
	batch, seq, heads, dim, ok := tokenMajor(kIn)
	if !ok || kIn.dtype != F32 || heads != k.shape[1] || dim != k.shape[3] || !isCache(k.dtype, dim) {
		misuse(op, "%v %s into %v %s: want F32 (batch,seq,%d,%d), and a cache of F32, F16, BF16 or Q8_0 with whole blocks", kIn.dtype,
			shapeString(kIn.shape), k.dtype, shapeString(k.shape), k.shape[1], k.shape[3])
	}
	valueDim := dim
	switch {
	case (v == nil) != (vIn == nil):
		misuse(op, "values without a cache, or a cache without values")
	case v != nil:
		valueDim = v.shape[3]
		if vIn.dtype != F32 || vIn.n != batch*seq*heads*valueDim || !isCache(v.dtype, valueDim) {
			misuse(op, "%v %s into %v %s: want F32 (batch,seq,%d,%d), and whole blocks", vIn.dtype, shapeString(vIn.shape), v.dtype,
				shapeString(v.shape), heads, valueDim)
		}
		if (dim == 0) != (valueDim == 0) {
			misuse(op, "keys %s and values %s: only one has elements", shapeString(kIn.shape), shapeString(vIn.shape))
		}
	}
	if ring && seq > k.shape[2] {
		misuse(op, "%s into a ring %s", shapeString(kIn.shape), shapeString(k.shape))
	}
	if positions == nil {
		misuse(op, "%s: positions are missing", shapeString(kIn.shape))
	}
	checkPlaces(op, k, positions, sequences, batch, seq)
	args := kernel.KVWriteArgs{Batch: batch, Seq: seq, KVHeads: heads, Dim: dim, Capacity: k.shape[2], Type: k.dtype,
		ValueDim: valueDim, Ring: ring}
	exec(op, k.Stream(), 2, func(s kernel.Stream, p pointers) error {
		args.K, args.V, args.KIn, args.VIn, args.Positions, args.Sequences = p[0], p[1], p[2], p[3], p[4], p[5]
		return s.KVWrite(&args)
	}, k, v, kIn, vIn, positions, sequences)
	return written(k.Stream(), k, v, positions, sequences)
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
	Written   Written // by the operation right before, or none: a GPU reads other keys while it still runs

	SoftCap  float32 // scores s become SoftCap * tanh(s / SoftCap) before the mask (Gemma 2); 0 means none
	Sinks    *Tensor // F32 of heads: scores of no key that take part in the softmax (gpt-oss); nil for none
	Chunk    int     // causal: a query at position p sees no key before p - p % Chunk (Llama 4); 0 means all
	ValueDim int     // where v is nil: values are the first so many elements of the keys' rows (latent attention)
	// The cache is KVWriteRing's. Window + seq - 1 is at most its capacity, and KVLen may be larger.
	Ring bool
}

// Attention returns softmax(scale q k^T + mask) v with float32 sums. q is (batch, seq, heads, dim), or (seq, heads,
// dim) for one sequence; the result has its shape and type, with v's head size for dim. k and v are caches (sequences,
// kv heads, capacity, dim), of which groups of heads / kv heads query heads share one. q is F32 with caches of F32, F16,
// BF16 or Q8_0, or F16 or BF16 with caches alike. Heads have at most 576 elements. Panics: *ShapeError, *OpError.
func Attention(q, k, v *Tensor, o AttentionOptions) *Tensor {
	shape := q.Shape()
	if len(shape) > 0 {
		shape[len(shape)-1] = valueDim(k, v, &o)
	}
	out := output("attention", q.Stream(), q.dtype, shape)
	AttentionInto(out, q, k, v, o)
	return out
}

// AttentionInto writes Attention(q, k, v, o) to dst; not in place. Panics: *ShapeError, *OpError.
func AttentionInto(dst, q, k, v *Tensor, o AttentionOptions) {
	args := attentionArgs(dst, q, k, v, &o)
	o.Sinks = o.Sinks.on("attention", dst.Stream())
	exec("attention", dst.Stream(), 1, func(s kernel.Stream, p pointers) error {
		args.Out, args.Q, args.K, args.V, args.Positions, args.Sequences, args.Sinks = p[0], p[1], p[2], p[3], p[4], p[5], p[6]
		return s.Attention(&args)
	}, dst, q, k, v, o.Positions, o.Sequences, o.Sinks)
}

// valueDim is the size of the values' rows.
func valueDim(k, v *Tensor, o *AttentionOptions) int {
	checkCaches("attention", k, v)
	if v != nil {
		if (v.shape[3] == 0) != (k.shape[3] == 0) { // to kernels, 0 means the keys' size
			misuse("attention", "cache %s and %s: only one has elements", shapeString(k.shape), shapeString(v.shape))
		}
		return v.shape[3]
	}
	if o.ValueDim <= 0 || o.ValueDim > k.shape[3] {
		misuse("attention", "values of %d elements in keys %s", o.ValueDim, shapeString(k.shape))
	}
	return o.ValueDim
}

func attentionArgs(dst, q, k, v *Tensor, o *AttentionOptions) kernel.AttentionArgs {
	const op = "attention"
	values := valueDim(k, v, o)
	batch, seq, heads, dim, ok := tokenMajor(q)
	if ok && o.HeadMajor {
		seq, heads = heads, seq
	}
	if values == dim {
		elementwise(op, dst, q)
	} else if ok && (dst.dtype != q.dtype || dst.n != batch*seq*heads*values || o.HeadMajor) {
		misuse(op, "%v %s with values of %d into %v %s", q.dtype, shapeString(q.shape), values, dst.dtype, shapeString(dst.shape))
	}
	kvHeads := k.shape[1]
	if !ok || dim != k.shape[3] || max(dim, values) > maxHeadDim || kvHeads == 0 || heads%kvHeads != 0 {
		misuse(op, "%s with cache %s: want one head size up to %d, and heads a multiple of the cache's", shapeString(q.shape), shapeString(k.shape), maxHeadDim)
	}
	if !(q.dtype == k.dtype && !q.dtype.Quantized() || q.dtype == F32 && isCache(k.dtype, dim) && isCache(k.dtype, values)) {
		misuse(op, "%s of %v with cache %s of %v", shapeString(q.shape), q.dtype, shapeString(k.shape), k.dtype)
	}
	checkPlaces(op, k, o.Positions, o.Sequences, batch, seq)
	a := kernel.AttentionArgs{
		Batch: batch, Seq: seq, Heads: heads, KVHeads: kvHeads, Dim: dim,
		KVCapacity: k.shape[2], KVLen: o.KVLen, Offset: o.Offset, Window: o.Window,
		Scale: o.Scale, Causal: o.Causal, Settled: o.Written.settles(dst.Stream(), k, v, o.Positions, o.Sequences), Type: q.dtype, KVType: k.dtype,
		QBatchStride: seq * heads * dim, QHeadStride: dim, QRowStride: heads * dim,
		ValueDim: values, SoftCap: o.SoftCap, Chunk: o.Chunk, Ring: o.Ring,
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
	if a.KVLen < 0 || a.KVLen > a.KVCapacity && !a.Ring || a.Offset < 0 || a.Window < 0 || a.Chunk < 0 || a.Chunk > 0 && !a.Causal ||
		(a.Causal && o.Positions == nil && a.Offset+seq > a.KVLen) {
		misuse(op, "%s with cache %s: kv length %d, offset %d, window %d, chunk %d", shapeString(q.shape), shapeString(k.shape),
			a.KVLen, a.Offset, a.Window, a.Chunk)
	}
	if a.Ring && (!a.Causal || a.Window == 0 || a.Window+seq-1 > a.KVCapacity) {
		misuse(op, "%s with a ring %s: window %d", shapeString(q.shape), shapeString(k.shape), a.Window)
	}
	if !(a.SoftCap >= 0) || o.Sinks != nil && (o.Sinks.dtype != F32 || o.Sinks.n != heads) {
		misuse(op, "%s: soft cap %v, and sinks: want F32 of %d", shapeString(q.shape), a.SoftCap, heads)
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

// checkCaches checks keys, and values, which may have another head size or be nil.
func checkCaches(op string, k, v *Tensor) {
	if v == nil {
		v = k
	}
	if len(k.shape) != 4 || len(v.shape) != 4 || k.dtype != v.dtype || !slices.Equal(k.shape[:3], v.shape[:3]) {
		misuse(op, "cache %v %s and %v %s: want two of (sequences, kv heads, capacity, dim)",
			k.dtype, shapeString(k.shape), v.dtype, shapeString(v.shape))
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
