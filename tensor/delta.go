package tensor

import (
	"slices"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// Places says where the states of recurrences lie that a batch carries on.
type Places struct {
	// Sequences, I32 of batch, is the state's leading index of each batch entry, none twice; nil for 0, 1, ...
	Sequences *Tensor
	// Positions, I32 of batch * seq, goes with a state of (sequences, slots, ...): the state before position p lies in slot
	// p modulo slots, and is zero before position 0, whatever lies there. With two slots, a token that was computed for
	// nothing is undone by computing another at its position. nil: a state of (sequences, ...) is carried on in place.
	// Sequences with a negative first position are skipped on a GPU and an OpError on the CPU.
	Positions *Tensor
}

// CausalConv returns SiLU of a convolution along each channel of x (batch, seq, channels), or (seq, channels), F32: weight (channels,
// taps) F32, at most 8 taps, the last for the token itself. state (sequences, taps - 1, channels), or (sequences, slots, taps - 1,
// channels), F32 holds the rows before x and is left with the newest. Panics: *ShapeError, *OpError.
func CausalConv(x, state, weight *Tensor, at Places) *Tensor {
	out := like("causal conv", x)
	CausalConvInto(out, x, state, weight, at)
	return out
}

// CausalConvInto writes CausalConv(x, state, weight, at) to dst; not in place. Panics: *ShapeError, *OpError.
func CausalConvInto(dst, x, state, weight *Tensor, at Places) {
	const op = "causal conv"
	elementwise(op, dst, x)
	batch, seq := tokens(op, x)
	channels := x.cols()
	if x.dtype != F32 || len(weight.shape) != 2 || weight.dtype != F32 || weight.shape[0] != channels || weight.shape[1] < 1 || weight.shape[1] > 8 {
		misuse(op, "%v %s with weight %v %s: want F32, and (channels, taps)", x.dtype, shapeString(x.shape), weight.dtype, shapeString(weight.shape))
	}
	taps := weight.shape[1]
	slots := at.check(op, state, batch, seq, taps-1, channels)
	weight = weight.on(op, dst.Stream())
	args := kernel.CausalConvArgs{Batch: batch, Seq: seq, Channels: channels, Taps: taps, Slots: slots}
	exec(op, dst.Stream(), 2, func(s kernel.Stream, p pointers) error {
		args.Out, args.State, args.X, args.Weight, args.Sequences, args.Positions = p[0], p[1], p[2], p[3], p[4], p[5]
		return s.CausalConv(&args)
	}, dst, state, x, weight, at.Sequences, at.Positions)
}

// Delta is what GatedDelta computes with besides the tokens.
type Delta struct {
	A, Dt       *Tensor // F32 of the value heads
	KeyHeads    int
	Interleaved bool    // value head j reads key head j mod KeyHeads (Qwen3.5), else j div (value heads / KeyHeads) (Qwen3-Next)
	Eps         float32 // of the norm of queries and keys
	Places
}

// GatedDelta returns what value heads read from their states by the gated delta rule (Yang, Kautz & Hatamizadeh 2024): F32 (batch, seq,
// value heads, value dim). For each token, with q and k of length 1,
//
//	S = exp(A ln(1 + exp(alpha + Dt))) S;  S += k (sigmoid(beta) (v - S^T k))^T;  out = S^T q / sqrt(key dim)
//
// qkv is (batch, seq, channels) or (seq, channels): the q of all key heads, their k, then v. alpha and beta have a number for each token and
// value head. state is (sequences, value heads, key dim, value dim), or (sequences, slots, value heads, key dim, value dim), and is
// carried on. All are F32; key dim is at most 256. Panics: *ShapeError, *OpError.
func GatedDelta(qkv, alpha, beta, state *Tensor, o Delta) *Tensor {
	const op = "gated delta"
	batch, seq := tokens(op, qkv)
	heads, _, valueDim := stateHeads(op, state)
	out := output(op, qkv.Stream(), F32, []int{batch, seq, heads, valueDim})
	GatedDeltaInto(out, qkv, alpha, beta, state, o)
	return out
}

// GatedDeltaInto writes GatedDelta(qkv, alpha, beta, state, o) to dst; not in place. Panics: *ShapeError, *OpError.
func GatedDeltaInto(dst, qkv, alpha, beta, state *Tensor, o Delta) {
	const op = "gated delta"
	batch, seq := tokens(op, qkv)
	heads, keyDim, valueDim := stateHeads(op, state)
	slots := o.check(op, state, batch, seq, heads, keyDim, valueDim)
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
		Eps: o.Eps, Interleaved: o.Interleaved, Slots: slots}
	exec(op, dst.Stream(), 2, func(s kernel.Stream, p pointers) error {
		args.Out, args.State, args.QKV, args.Alpha, args.Beta = p[0], p[1], p[2], p[3], p[4]
		args.A, args.Dt, args.Sequences, args.Positions = p[5], p[6], p[7], p[8]
		return s.GatedDelta(&args)
	}, dst, state, qkv, alpha, beta, a, dt, o.Sequences, o.Positions)
}

// stateHeads reads (sequences, value heads, key dim, value dim), perhaps with slots after the sequences.
func stateHeads(op string, state *Tensor) (heads, keyDim, valueDim int) {
	s := state.shape
	if len(s) != 4 && len(s) != 5 {
		misuse(op, "state %s: want (sequences, value heads, key dim, value dim), or slots after the sequences", shapeString(s))
	}
	return s[len(s)-3], s[len(s)-2], s[len(s)-1]
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

// check checks a recurrent state (sequences, shape...), or (sequences, slots, shape...) with positions, and returns the slots.
func (at Places) check(op string, state *Tensor, batch, seq int, shape ...int) (slots int) {
	leading := 1
	if at.Positions != nil {
		leading = 2
		if at.Positions.dtype != I32 || at.Positions.n != batch*seq {
			misuse(op, "positions %v %s: want I32 of %d", at.Positions.dtype, shapeString(at.Positions.shape), batch*seq)
		}
	}
	if state.dtype != F32 || len(state.shape) != len(shape)+leading || !slices.Equal(state.shape[leading:], shape) {
		misuse(op, "state %v %s: want F32 (sequences) of %s, and slots with positions", state.dtype, shapeString(state.shape), shapeString(shape))
	}
	if leading == 2 {
		if slots = state.shape[1]; slots == 0 && batch > 0 {
			misuse(op, "state %s: no slots", shapeString(state.shape))
		}
	}
	switch {
	case at.Sequences != nil && (at.Sequences.dtype != I32 || at.Sequences.n != batch):
		misuse(op, "sequences %v %s: want I32 of %d", at.Sequences.dtype, shapeString(at.Sequences.shape), batch)
	case at.Sequences == nil && batch > state.shape[0]:
		misuse(op, "batch of %d with a state of %d sequences", batch, state.shape[0])
	}
	return slots
}
