package tensor

import (
	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// The fused operations: a transformer's layer is NormQKV, AttentionLinearAddInto, FeedForward. For a single token with packed
// weights, where starting kernels and passing rows between them is what costs, a GPU runs the first as one kernel and the others
// as two; else they are the operations of their formulas. Their scratch tensors hold nothing of use afterwards, but for what one
// may prepare for the next one.

// Handoff is what one fused operation has left in scratch memory for the next one: normed rows in a form of the device's own, which
// spares the next one its first step. It counts for the operation that is enqueued right after on the same stream, and reads the same
// rows with the same norm and scratch. Anywhere else it counts for nothing, as the zero Handoff does.
type Handoff struct {
	stream       *gpu.Stream
	work         uint64 // given to the stream when the rows were prepared
	rows, normed place
	norm         place
	elements     int
}

// place is where a tensor lies.
type place struct {
	buffer *gpu.Buffer
	offset int64
}

func (t *Tensor) place() place {
	if t == nil {
		return place{}
	}
	return place{t.buffer, t.offset}
}

// handOver returns the Handoff of rows whose form for norm the operation just enqueued has left in normed, none where it has not.
func handOver(handed bool, s *gpu.Stream, rows, normed, norm *Tensor) Handoff {
	if !handed {
		return Handoff{}
	}
	return Handoff{s, s.Enqueued(), rows.place(), normed.place(), norm.place(), rows.n}
}

// fits reports whether normed holds the form of x for norm, and nothing was enqueued since.
func (h Handoff) fits(s *gpu.Stream, x, normed, norm *Tensor) bool {
	return h.stream != nil && h == Handoff{s, s.Enqueued(), x.place(), normed.place(), norm.place(), x.n}
}

// Prepared reports whether the operation has left something.
func (h Handoff) Prepared() bool { return h.stream != nil }

// scratch checks memory that an operation may use for n rows.
func scratch(op, name string, t *Tensor, rows, cols int) {
	if t.dtype != F32 || t.n != rows*cols {
		misuse(op, "%s %v %s: want F32 (%d,%d)", name, t.dtype, shapeString(t.shape), rows, cols)
	}
}

// checkSum checks the rows of a sum with a product, and scratch for the product.
func checkSum(op string, dst, a, product *Tensor, rows, cols int) {
	scratch(op, "result", dst, rows, cols)
	scratch(op, "addend", a, rows, cols)
	scratch(op, "product", product, rows, cols)
}

// NormLinearInto writes Linear(RMSNorm(x, norm, eps), w, bias) to dst; normed is scratch of x's shape.
func NormLinearInto(dst, x, norm *Tensor, eps float32, w, bias, normed *Tensor) {
	const op = "norm linear"
	checkLinear(x, w, bias)
	checkNorm(op, x, norm)
	n := x.rows()
	scratch(op, "result", dst, n, w.shape[0])
	scratch(op, "normed", normed, n, w.shape[1])
	s := dst.Stream()
	norm, w, bias = norm.on(op, s), w.on(op, s), bias.on(op, s)
	exec(op, s, 1, func(k kernel.Stream, p pointers) error {
		return k.NormLinear(p[0], p[2], p[3], eps, w.weight(p[4]), p[5], p[1], n)
	}, dst, normed, x, norm, w, bias)
}

// NormSwiGLUInto writes SwiGLU(Linear(h, gate, nil), Linear(h, up, nil)) with h = RMSNorm(x, norm, eps) to dst; normed is
// scratch of x's shape, product of dst's.
func NormSwiGLUInto(dst, x, norm *Tensor, eps float32, gate, up, normed, product *Tensor) {
	const op = "norm swiglu"
	checkLinear(x, gate, nil)
	checkLinear(x, up, nil)
	checkNorm(op, x, norm)
	if gate.shape[0] != up.shape[0] {
		misuse(op, "gate %s and up %s differ", shapeString(gate.shape), shapeString(up.shape))
	}
	n := x.rows()
	scratch(op, "result", dst, n, gate.shape[0])
	scratch(op, "normed", normed, n, gate.shape[1])
	scratch(op, "product", product, n, gate.shape[0])
	s := dst.Stream()
	norm, gate, up = norm.on(op, s), gate.on(op, s), up.on(op, s)
	exec(op, s, 1, func(k kernel.Stream, p pointers) error {
		return k.NormSwiGLU(p[0], p[3], p[4], eps, gate.weight(p[5]), up.weight(p[6]), p[1], p[2], n)
	}, dst, normed, product, x, norm, gate, up)
}

// LinearAddInto writes a + Linear(x, w, bias) to dst, which may be a; product is scratch of dst's shape.
func LinearAddInto(dst, a, x, w, bias, product *Tensor) {
	const op = "linear add"
	checkLinear(x, w, bias)
	n := x.rows()
	checkSum(op, dst, a, product, n, w.shape[0])
	s := dst.Stream()
	w, bias = w.on(op, s), bias.on(op, s)
	exec(op, s, 1, func(k kernel.Stream, p pointers) error {
		return k.LinearAdd(p[0], p[2], p[3], w.weight(p[4]), p[5], p[1], n)
	}, dst, product, a, x, w, bias)
}

// FFN is what FeedForward computes with.
type FFN struct {
	Norm           *Tensor // (hidden), nil for ones
	Gate, Up, Down *Tensor // weights (inner, hidden) twice, (hidden, inner)
	Eps            float32

	// NextNorm is the norm of the NormQKV that reads the result next, with the same scratch Normed; nil for none.
	NextNorm *Tensor

	Handoff        Handoff // of the AttentionLinearAddInto right before, or none
	Normed         *Tensor // scratch of x's shape
	Gated, Product *Tensor // scratch (rows of x, inner)
}

// FeedForward writes x + Linear(SwiGLU(Linear(h, a.Gate, nil), Linear(h, a.Up, nil)), a.Down, nil) with
// h = RMSNorm(x, a.Norm, a.Eps) to dst, which may be x. It hands over to the NormQKV that follows.
func FeedForward(dst, x *Tensor, a FFN) Handoff {
	const op = "feed forward"
	checkLinear(x, a.Gate, nil)
	checkLinear(x, a.Up, nil)
	checkNorm(op, x, a.Norm)
	checkNorm(op, x, a.NextNorm)
	n, inner, cols := x.rows(), a.Gate.shape[0], x.cols()
	scratch(op, "result", dst, n, cols)
	scratch(op, "normed", a.Normed, n, cols)
	scratch(op, "gated", a.Gated, n, inner)
	scratch(op, "product", a.Product, n, inner)
	checkLinear(a.Gated.Reshape(n, inner), a.Down, nil)
	if a.Up.shape[0] != inner || a.Down.shape[0] != cols {
		misuse(op, "gate %s, up %s and down %s do not fit", shapeString(a.Gate.shape), shapeString(a.Up.shape), shapeString(a.Down.shape))
	}
	s := dst.Stream()
	for _, w := range []**Tensor{&a.Norm, &a.Gate, &a.Up, &a.Down, &a.NextNorm} {
		*w = (*w).on(op, s)
	}
	args := kernel.FeedForwardArgs{N: n, Eps: a.Eps}
	given, handed := a.Handoff.fits(s, x, a.Normed, a.Norm), false
	exec(op, s, 1, func(s kernel.Stream, p pointers) error {
		inPlace := p[1] == a.Normed.ptr()
		args.Prepared, args.NextPrepared = given && inPlace, false
		defer func() { handed = args.NextPrepared && inPlace }()
		args.Sum, args.Normed, args.Gated, args.Product, args.X, args.Norm = p[0], p[1], p[2], p[3], p[4], p[5]
		args.Gate, args.Up, args.Down = a.Gate.weight(p[6]), a.Up.weight(p[7]), a.Down.weight(p[8])
		args.NextNorm = p[9]
		return s.FeedForward(&args)
	}, dst, a.Normed, a.Gated, a.Product, x, a.Norm, a.Gate, a.Up, a.Down, a.NextNorm)
	return handOver(handed, s, dst, a.Normed, a.NextNorm)
}

// AttentionLinearAddInto writes a + Linear(Attention(q, k, v, o), w, bias) to dst, which may be a: the end of a layer's first half.
// q is F32 (batch, seq, heads, dim), w (hidden, heads * v's dim). attended is scratch of Attention's shape, product of dst's: between them a GPU
// passes a prompt's rows on in 16 bits where the cache is F16 and w is packed. nextNorm is the norm of the FeedForward that reads the
// result next, with the same scratch normed; both nil for none. It hands over to that FeedForward.
func AttentionLinearAddInto(dst, a, q, k, v *Tensor, o AttentionOptions, w, bias, attended, product, nextNorm, normed *Tensor) Handoff {
	const op = "attention linear add"
	args := attentionArgs(attended, q, k, v, &o)
	n, cols := args.Batch*args.Seq, args.Heads*args.ValueDim
	if o.HeadMajor || q.dtype != F32 {
		misuse(op, "queries %v %s: want F32 (batch,seq,heads,dim)", q.dtype, shapeString(q.shape))
	}
	checkLinear(attended.Reshape(n, cols), w, bias)
	checkSum(op, dst, a, product, n, w.shape[0])
	if nextNorm != nil {
		checkNorm(op, dst, nextNorm)
		scratch(op, "normed", normed, n, w.shape[0])
	}
	s := dst.Stream()
	w, bias, nextNorm, o.Sinks = w.on(op, s), bias.on(op, s), nextNorm.on(op, s), o.Sinks.on(op, s)
	handed := false
	exec(op, s, 1, func(s kernel.Stream, p pointers) error {
		args.Out, args.Q, args.K, args.V, args.Positions, args.Sequences = p[1], p[4], p[5], p[6], p[7], p[8]
		args.Sinks = p[13]
		prepared, err := s.AttentionLinearAdd(p[0], p[3], &args, w.weight(p[9]), p[10], p[2], p[11], p[12])
		handed = prepared && p[12] == normed.ptr()
		return err
	}, dst, attended, product, a, q, k, v, o.Positions, o.Sequences, w, bias, nextNorm, normed, o.Sinks)
	return handOver(handed, s, dst, normed, nextNorm)
}

// QKV is what NormQKV computes with; what may be nil says so.
type QKV struct {
	Norm         *Tensor // (hidden), nil for ones
	Q, K, V      *Tensor // weights (heads * dim, hidden), (kv heads * dim, hidden) twice
	QBias, KBias *Tensor // nil for none
	VBias        *Tensor // nil for none
	QNorm, KNorm *Tensor // (dim): RMSNorm of each head before RoPE; nil for none, both or neither
	Cos, Sin     *Tensor // tables of RoPE
	Mode         RoPEMode
	Eps          float32

	Positions *Tensor // I32 of batch * seq
	Sequences *Tensor // I32 of batch, nil for 0, 1, ...
	Ring      bool    // the caches are KVWriteRing's

	Handoff    Handoff // of the FeedForward right before, or none
	Normed     *Tensor // scratch of x's shape
	KNew, VNew *Tensor // scratch (batch, seq, kv heads, dim)
}

// NormQKV computes what attention reads: with h = RMSNorm(x, a.Norm, a.Eps), the queries RoPE(Linear(h, a.Q, a.QBias)) go
// to q (batch, seq, heads, dim), and the keys, likewise, and values Linear(h, a.V, a.VBias) to the caches as KVWrite does.
func NormQKV(q, k, v, x *Tensor, a QKV) Written {
	const op = "norm qkv"
	checkCache(op, k, v)
	batch, seq, heads, dim, ok := tokenMajor(q)
	kvHeads, n := k.shape[1], x.rows()
	if !ok || q.dtype != F32 || dim != k.shape[3] || batch*seq != n || !isCache(k.dtype, dim) {
		misuse(op, "%s into %v %s and cache %v %s", shapeString(x.shape), q.dtype, shapeString(q.shape), k.dtype, shapeString(k.shape))
	}
	checkNorm(op, x, a.Norm)
	for _, w := range []struct {
		weight, bias *Tensor
		heads        int
	}{{a.Q, a.QBias, heads}, {a.K, a.KBias, kvHeads}, {a.V, a.VBias, kvHeads}} {
		checkLinear(x, w.weight, w.bias)
		if w.weight.shape[0] != w.heads*dim {
			misuse(op, "weight %s: want (%d,%d)", shapeString(w.weight.shape), w.heads*dim, x.cols())
		}
	}
	for _, norm := range []*Tensor{a.QNorm, a.KNorm} {
		checkNorm(op, q, norm)
		if (norm == nil) != (a.QNorm == nil) {
			misuse(op, "a norm of q or k alone")
		}
	}
	if a.Positions == nil {
		misuse(op, "%s: positions are missing", shapeString(x.shape))
	}
	heads3 := q.Reshape(n, heads, dim)
	rope := ropeArgs(heads3, heads3, a.Cos, a.Sin, a.Positions, a.Mode)
	checkPlaces(op, k, a.Positions, a.Sequences, batch, seq)
	scratch(op, "normed", a.Normed, n, x.cols())
	scratch(op, "new keys", a.KNew, n, kvHeads*dim)
	scratch(op, "new values", a.VNew, n, kvHeads*dim)
	s := q.Stream()
	for _, w := range []**Tensor{&a.Norm, &a.Q, &a.K, &a.V, &a.QBias, &a.KBias, &a.VBias, &a.QNorm, &a.KNorm, &a.Cos, &a.Sin} {
		*w = (*w).on(op, s)
	}
	args := kernel.NormQKVArgs{
		Batch: batch, Seq: seq, Heads: heads, KVHeads: kvHeads, Dim: dim, Half: rope.Half, TableRows: rope.TableRows, Capacity: k.shape[2],
		Eps: a.Eps, KVType: k.dtype, Mode: a.Mode, Ring: a.Ring,
	}
	given := a.Handoff.fits(s, x, a.Normed, a.Norm)
	exec(op, s, 3, func(s kernel.Stream, p pointers) error {
		args.Prepared = given && p[3] == a.Normed.ptr()
		args.Q, args.K, args.V, args.Normed, args.KNew, args.VNew, args.X, args.Norm = p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]
		args.WQ, args.WK, args.WV, args.BQ, args.BK, args.BV = a.Q.weight(p[8]), a.K.weight(p[9]), a.V.weight(p[10]), p[11], p[12], p[13]
		args.QNorm, args.KNorm, args.Cos, args.Sin, args.Positions, args.Sequences = p[14], p[15], p[16], p[17], p[18], p[19]
		return s.NormQKV(&args)
	}, q, k, v, a.Normed, a.KNew, a.VNew, x, a.Norm, a.Q, a.K, a.V, a.QBias, a.KBias, a.VBias, a.QNorm, a.KNorm, a.Cos, a.Sin, a.Positions, a.Sequences)
	return written(s, k, v, a.Positions, a.Sequences)
}
