// Package fused is where models find the fused operations: a transformer's layer is NormQKV, AttentionLinearAdd,
// FeedForward. They are no part of package tensor's public face, for their operands must fit each other in ways that
// only a layer's order gives. Package tensor, which has them, lends them here; since it imports this package, its types
// are type parameters.
//
// For a single token with packed weights, where starting kernels and passing rows between them is what costs, a GPU
// runs NormQKV as one kernel and the other two as two; else they are the operations of their formulas. Scratch tensors
// hold nothing of use afterwards, but for what a Handoff names.
package fused

import (
	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// Operations are the fused operations on tensors T, with options O of attention, activations A, routers R and ternary
// matrices N; W says what was written to a cache.
type Operations[T, O, A, W, R, N any] struct {
	// NormLinear writes Linear(RMSNorm(x, norm, eps), w, bias) to dst; normed is scratch of x's shape.
	NormLinear func(dst, x, norm T, eps float32, w, bias, normed T)
	// NormSwiGLU writes SwiGLU(Linear(h, gate, nil), Linear(h, up, nil)) with h = RMSNorm(x, norm, eps) to dst; normed
	// is scratch of x's shape, product of dst's.
	NormSwiGLU func(dst, x, norm T, eps float32, gate, up, normed, product T)
	// LinearAdd writes a + Linear(x, w, bias) to dst, which may be a; product is scratch of dst's shape.
	LinearAdd func(dst, a, x, w, bias, product T)
	// BitLinear writes products with up to three ternary matrices to dst. Their left factor is x or a gated unit, normed and
	// rounded to int8 by rows. add is added to the first product; it is nil for none, and may be the first of dst.
	BitLinear func(dst []T, add, x T, matrices []*N, a Rounding[T, A])
	// FeedForward writes x + Linear(SwiGLU(Linear(h, a.Gate, nil), Linear(h, a.Up, nil)), a.Down, nil) with
	// h = RMSNorm(x, a.Norm, a.Eps) to dst, which may be x. It hands over to the NormQKV that follows.
	FeedForward func(dst, x T, a FFN[T]) Handoff
	// ExpertFeedForward writes add + ExpertSum(ExpertLinear(GLU(ExpertLinear(x, a.Gate, ...), ExpertLinear(x, a.Up, ...)),
	// a.Down, ...)) of the experts a.IDs by a.Weights to dst; add may be nil, or dst.
	ExpertFeedForward func(dst, add, x T, a Experts[T, A])
	// NormRoute writes h = RMSNorm(x, a.Norm, a.Eps) to normed, and the experts that its logits Linear(h, a.Router,
	// a.RouterBias) choose, as RouteInto does, to ids and weights.
	NormRoute func(ids, weights, normed, x T, a Router[T, R])
	// AttentionLinearAdd writes a + Linear(Attention(q, k, v, o), w, bias) to dst, with what update adds to the product: the end of a
	// layer's first half. dst may be a; a may be nil. q is F32 (batch, seq, heads, dim), w (hidden, heads * v's dim). attended is
	// scratch of Attention's shape, product of dst's: between them a GPU passes a prompt's rows on in 16 bits where the cache is F16
	// and w is packed. nextNorm is the norm of the FeedForward that follows, with the same scratch normed; both nil for none.
	// next is the V of its GateUpdate and UpUpdate. It hands over to that FeedForward. Without a, dst is a rank's part of a sum, and
	// nextNorm promises that the communicator's next sum is AllReduceNorm of it, and that nothing else reads it.
	AttentionLinearAdd func(dst, a, q, k, v T, o O, w, bias T, update LowRank[T], codes, attended, product, nextNorm, normed T, next [2]T) Handoff
	// NormQKV computes the operands of attention from h = RMSNorm(x, a.Norm, a.Eps). The queries RoPE(Linear(h, a.Q, a.QBias))
	// go to q (batch, seq, heads, dim). Keys, likewise, and values Linear(h, a.V, a.VBias) go to the caches as by KVWrite.
	NormQKV func(q, k, v, x T, a QKV[T]) W
	// RoPEKVWrite writes RoPE(qIn) to q (batch, seq, heads, dim), which may be qIn, and the keys RoPE(kNew) and values vNew
	// to the caches k and v as KVWrite does; kNew is scratch afterwards.
	RoPEKVWrite func(q, k, v, kNew, qIn, vNew T, a Rotation[T]) W
	// AllReduceNorm is tensor.AllReduceRoundedInto of what AttentionLinearAdd without a, or FeedForward alone, has left on each rank,
	// with their handoffs. It hands over to the FeedForward, or the NormQKV, that follows on each rank. Where a.Parted is set a
	// handoff may be Parted: of out, each rank then has columns of its own, which the next AllReduceNorm takes as add.
	AllReduceNorm func(c *gpu.Communicator, out, in, add []T, a Reduction[T]) []Handoff
	// LinearAllReduce is Linear(parts[r].X, parts[r].W, parts[r].Bias) of each rank, which tensor.AllReduceRoundedInto adds to add.
	// GPUs of one host compute a row of it in one kernel a rank.
	LinearAllReduce func(c *gpu.Communicator, out, add []T, parts []Part[T])
}

// Part is a rank's part of a sum that is not computed yet: Linear(X, W, Bias), for which Product is memory.
type Part[T any] struct{ Product, X, W, Bias T }

// Reduction is what AllReduceNorm prepares rows with, of each rank.
type Reduction[T any] struct {
	From         kernel.HalfLayer
	Norm, Normed []T // of the operation that follows, and of the one before; none where nothing is prepared
	Handoffs     []Handoff
	AddParted    bool // of add each rank has its own columns alone
	Parted       bool // out is read by the operation that follows, as handed over, and as the next add alone
}

// LowRank is what an adapter adds to a product Linear(x, w, nil): FusedUpdate's (x V) * codes U^T. Both nil for nothing.
type LowRank[T any] struct {
	V T // F16 (ranks, columns of w)
	U T // F16 (rows of w, ranks)
}

// FFN is what FeedForward computes with.
type FFN[T any] struct {
	Norm           T // (hidden), nil for ones
	Gate, Up, Down T // weights (inner, hidden) twice, (hidden, inner)
	Eps            float32

	GateUpdate, UpUpdate, DownUpdate LowRank[T] // what an adapter adds to the products
	Codes                            T          // F32 (rows of x, ranks) or (1, ranks), nil for ones
	Alone                            bool       // the result is without x, and not in its place: with NextNorm, of AllReduceNorm alone
	NextNorm                         T          // the norm of the NormQKV that reads the result next, with the same scratch Normed; nil for none
	Next                             [3]T       // the V of its QUpdate, KUpdate and VUpdate
	Handoff                          Handoff    // of the AttentionLinearAdd right before, or none
	Normed                           T          // scratch of x's shape
	Gated, Product                   T          // scratch (rows of x, inner)
}

// Experts is what ExpertFeedForward computes with; what may be nil says so.
type Experts[T, A any] struct {
	Gate, Up, Down             T // weights (experts, inner, hidden) twice, (experts, hidden, inner)
	GateBias, UpBias, DownBias T // (experts, inner) twice, (experts, hidden); nil for none
	IDs, Weights               T // I32 and F32 (rows of x, k); nil weights for ones
	Activation                 A

	Gated, Product T // scratch (rows of x, k, inner)
	Chosen         T // scratch (rows of x, k, hidden)
}

// Rounding is how BitLinear makes what it multiplies; what may be nil says so.
type Rounding[T, A any] struct {
	Up         T // Activation(x, Up) in the place of x; nil for x
	Activation A
	RMSNorm    bool // RMSNorm of that
	Norm       T    // its weight (cols), nil for ones
	Eps        float32

	Codes, Scales T // scratch: I8 of x's shape, F32 of one a row
}

// Router is what NormRoute computes with; what may be nil says so.
type Router[T, R any] struct {
	Norm       T // (hidden), nil for ones
	Router     T // weights (experts, hidden)
	RouterBias T // (experts), nil for none
	Eps        float32
	Choice     R // how experts are chosen by the logits

	Logits T // scratch (rows of x, experts)
}

// QKV is what NormQKV computes with; what may be nil says so.
type QKV[T any] struct {
	Norm         T // (hidden), nil for ones
	Q, K, V      T // weights (heads * dim, hidden), (kv heads * dim, hidden) twice
	QBias, KBias T // nil for none
	VBias        T // nil for none
	QNorm, KNorm T // (dim): RMSNorm of each head before RoPE; nil for none, both or neither
	Cos, Sin     T // tables of RoPE
	Mode         kernel.RoPEMode
	Eps          float32

	QUpdate, KUpdate, VUpdate LowRank[T] // what an adapter adds to the products
	Codes                     T          // F32 (batch * seq, ranks) or (1, ranks), nil for ones

	Positions T    // I32 of batch * seq
	Sequences T    // I32 of batch, nil for 0, 1, ...
	Ring      bool // the caches are KVWriteRing's

	Handoff    Handoff // of the FeedForward right before, or none
	Normed     T       // scratch of x's shape
	KNew, VNew T       // scratch (batch, seq, kv heads, dim)
}

// Rotation is what RoPEKVWrite computes with; what may be nil says so.
type Rotation[T any] struct {
	QNorm, KNorm T // (dim): RMSNorm of each head before RoPE; nil for none, both or neither
	Cos, Sin     T // tables of RoPE
	Mode         kernel.RoPEMode
	Eps          float32

	Positions T    // I32 of batch * seq
	Sequences T    // I32 of batch, nil for 0, 1, ...
	Ring      bool // the caches are KVWriteRing's
	Settled   bool // the operation before writes neither positions, sequences nor tables
}

// Handoff is what one fused operation has left in scratch memory for the next one: normed rows in a form of the
// device's own, which spares the next one its first step. It counts for the operation that is enqueued right after on
// the same stream, and reads the same rows with the same norm and scratch, and the V of the same adapter. Anywhere else
// it counts for nothing, as the zero Handoff does.
type Handoff struct {
	left   Left
	parted bool
}

// Left says what a Handoff is of.
type Left struct {
	Stream             *gpu.Stream
	Work               uint64 // given to the stream when the rows were prepared
	Rows, Normed, Norm Place
	V                  [3]Place // of the updates of the products that follow
	Elements           int
}

// Place is where a tensor lies.
type Place struct {
	Buffer *gpu.Buffer
	Offset int64
}

// HandOver returns the Handoff of what an operation has left.
func HandOver(l Left) Handoff { return Handoff{left: l} }

// HandOverParts is HandOver of a sum of which each rank has its own columns alone: the rows themselves cannot be read.
func HandOverParts(l Left) Handoff { return Handoff{l, true} }

// Parted reports whether the rows that were prepared are nowhere as they are.
func (h Handoff) Parted() bool { return h.parted }

// Fits reports whether a handoff is of this, to the last: nothing was enqueued since.
func (h Handoff) Fits(l Left) bool { return h.Prepared() && h.left == l }

// Prepared reports whether the operation has left something.
func (h Handoff) Prepared() bool { return h.left.Stream != nil }

var lent any

// Lend is how package tensor gives its operations, once.
func Lend[T, O, A, W, R, N any](o Operations[T, O, A, W, R, N]) { lent = &o }

// On returns the operations on the tensors of package tensor, its AttentionOptions, Activation, Written, Router and Ternary.
func On[T, O, A, W, R, N any]() *Operations[T, O, A, W, R, N] {
	return lent.(*Operations[T, O, A, W, R, N])
}
