package tensor

import (
	"slices"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// CausalConv returns SiLU of a convolution along each channel of x (batch, seq, channels), or (seq, channels), F32: weight (channels,
// taps) F32, at most 8 taps, the last for the token itself. state (sequences, taps - 1, channels) F32 holds the rows before x and is
// left with the newest; sequences, I32 of batch, names its leading index of each batch entry, nil for 0, 1, ..., none twice.
func CausalConv(x, state, weight, sequences *Tensor) *Tensor {
	out := like("causal conv", x)
	CausalConvInto(out, x, state, weight, sequences)
	return out
}

// CausalConvInto writes CausalConv(x, state, weight, sequences) to dst; not in place.
func CausalConvInto(dst, x, state, weight, sequences *Tensor) {
	const op = "causal conv"
	elementwise(op, dst, x)
	batch, seq := tokens(op, x)
	channels := x.cols()
	if x.dtype != F32 || len(weight.shape) != 2 || weight.dtype != F32 || weight.shape[0] != channels || weight.shape[1] < 1 || weight.shape[1] > 8 {
		misuse(op, "%v %s with weight %v %s: want F32, and (channels, taps)", x.dtype, shapeString(x.shape), weight.dtype, shapeString(weight.shape))
	}
	taps := weight.shape[1]
	checkState(op, state, sequences, batch, taps-1, channels)
	weight = weight.on(op, dst.Stream())
	args := kernel.CausalConvArgs{Batch: batch, Seq: seq, Channels: channels, Taps: taps}
	exec(op, dst.Stream(), 2, func(s kernel.Stream, p pointers) error {
		args.Out, args.State, args.X, args.Weight, args.Sequences = p[0], p[1], p[2], p[3], p[4]
		return s.CausalConv(&args)
	}, dst, state, x, weight, sequences)
}

// Delta is what GatedDelta computes with besides the tokens.
type Delta struct {
	A, Dt       *Tensor // F32 of the value heads
	KeyHeads    int
	Interleaved bool    // value head j reads key head j mod KeyHeads (Qwen3.5), else j div (value heads / KeyHeads) (Qwen3-Next)
	Eps         float32 // of the norm of queries and keys
	Sequences   *Tensor // I32 of batch: the state of each batch entry, none twice; nil for 0, 1, ...
}

// GatedDelta returns what value heads read from their states by the gated delta rule (Yang, Kautz & Hatamizadeh 2024): F32 (batch, seq,
// value heads, value dim). For each token, with q and k of length 1,
//
//	S = exp(A ln(1 + exp(alpha + Dt))) S;  S += k (sigmoid(beta) (v - S^T k))^T;  out = S^T q / sqrt(key dim)
//
// qkv is (batch, seq, channels) or (seq, channels): the q of all key heads, their k, then v. alpha and beta have a number for each token and
// value head. state is (sequences, value heads, key dim, value dim), and is carried on. All are F32; key dim is at most 256.
func GatedDelta(qkv, alpha, beta, state *Tensor, o Delta) *Tensor {
	const op = "gated delta"
	batch, seq := tokens(op, qkv)
	if len(state.shape) != 4 {
		misuse(op, "state %s: want (sequences, value heads, key dim, value dim)", shapeString(state.shape))
	}
	out := output(op, qkv.Stream(), F32, []int{batch, seq, state.shape[1], state.shape[3]})
	GatedDeltaInto(out, qkv, alpha, beta, state, o)
	return out
}

// GatedDeltaInto writes GatedDelta(qkv, alpha, beta, state, o) to dst; not in place.
func GatedDeltaInto(dst, qkv, alpha, beta, state *Tensor, o Delta) {
	const op = "gated delta"
	batch, seq := tokens(op, qkv)
	if len(state.shape) != 4 {
		misuse(op, "state %s: want (sequences, value heads, key dim, value dim)", shapeString(state.shape))
	}
	heads, keyDim, valueDim := state.shape[1], state.shape[2], state.shape[3]
	checkState(op, state, o.Sequences, batch, heads, keyDim, valueDim)
	if o.KeyHeads <= 0 || heads%o.KeyHeads != 0 || keyDim > 256 || qkv.dtype != F32 || qkv.cols() != 2*o.KeyHeads*keyDim+heads*valueDim {
		misuse(op, "%v %s of %d key heads with state %s", qkv.dtype, shapeString(qkv.shape), o.KeyHeads, shapeString(state.shape))
	}
	for _, t := range []struct {
		*Tensor
		n int
	}{{dst, batch * seq * heads * valueDim}, {alpha, batch * seq * heads}, {beta, batch * seq * heads}, {o.A, heads}, {o.Dt, heads}} {
		if t.dtype != F32 || t.n != t.Tensor.n {
			misuse(op, "%v %s: want F32 of %d", t.dtype, shapeString(t.shape), t.n)
		}
	}
	a, dt := o.A.on(op, dst.Stream()), o.Dt.on(op, dst.Stream())
	args := kernel.GatedDeltaArgs{Batch: batch, Seq: seq, KeyHeads: o.KeyHeads, ValueHeads: heads, KeyDim: keyDim, ValueDim: valueDim,
		Eps: o.Eps, Interleaved: o.Interleaved}
	exec(op, dst.Stream(), 2, func(s kernel.Stream, p pointers) error {
		args.Out, args.State, args.QKV, args.Alpha, args.Beta = p[0], p[1], p[2], p[3], p[4]
		args.A, args.Dt, args.Sequences = p[5], p[6], p[7]
		return s.GatedDelta(&args)
	}, dst, state, qkv, alpha, beta, a, dt, o.Sequences)
}

// tokens reads (batch, seq, channels), or (seq, channels) as a batch of one.
func tokens(op string, x *Tensor) (batch, seq int) {
	switch len(x.shape) {
	case 2:
		return 1, x.shape[0]
	case 3:
		return x.shape[0], x.shape[1]
	}
	misuse(op, "%s: want (batch, seq, channels)", shapeString(x.shape))
	return 0, 0
}

// checkState checks a recurrent state (sequences, shape...).
func checkState(op string, state, sequences *Tensor, batch int, shape ...int) {
	if state.dtype != F32 || len(state.shape) != len(shape)+1 || !slices.Equal(state.shape[1:], shape) {
		misuse(op, "state %v %s: want F32 (sequences) of %s", state.dtype, shapeString(state.shape), shapeString(shape))
	}
	switch {
	case sequences != nil && (sequences.dtype != I32 || sequences.n != batch):
		misuse(op, "sequences %v %s: want I32 of %d", sequences.dtype, shapeString(sequences.shape), batch)
	case sequences == nil && batch > state.shape[0]:
		misuse(op, "batch of %d with a state of %d sequences", batch, state.shape[0])
	}
}
