package model

import "github.com/vibrant-ml/vibrant/tensor"

// Batch is what one pass computes: Seq tokens of each of Count sequences. A prompt is one sequence of many tokens, a
// step of generation one token of each. All tensors are I32 in device memory, so that a captured graph may be replayed.
type Batch struct {
	Count, Seq int
	IDs        *tensor.Tensor // [Count*Seq], sequence by sequence
	Positions  *tensor.Tensor // [Count*Seq], of each token in its sequence
	Sequences  *tensor.Tensor // [Count], where in the cache each sequence lies; nil for 0..Count-1
	KVLen      int            // a bound of all positions + 1
	// Check, where it is set, is asked between layers whether to go on: on a CPU one pass may take seconds.
	Check func() error
}

// Forward computes the layers for a batch, writes its keys and values to the cache, and returns the residual stream
// [Count*Seq][Hidden] after the last layer, for Logits. It lies in the workspace until its next use. Everything is enqueued
// on the workspace's stream. Its errors are those of Batch.Check; failures of operations panic as package tensor's do.
func (m *Model) Forward(w *Workspace, c *Cache, b Batch) (*tensor.Tensor, error) {
	a := m.rows(w, b.Count*b.Seq)
	tensor.EmbeddingInto(a.x, m.embedding, b.IDs)
	prepared := false
	for i := range m.layers {
		if b.Check != nil {
			if err := b.Check(); err != nil {
				return nil, err
			}
		}
		var next *layer
		if i+1 < len(m.layers) {
			next = &m.layers[i+1]
		}
		prepared = m.layer(a, &m.layers[i], next, prepared, c.K[i], c.V[i], b)
	}
	return a.x, nil
}

// layer computes x += output(attention(x)), x += feedForward(x), in fused operations: in a step of generation the time between
// kernels counts, in a prompt what they read and write. It says whether the next layer finds its input prepared.
func (m *Model) layer(a *activations, l, next *layer, prepared bool, k, v *tensor.Tensor, b Batch) bool {
	var nextNorm *tensor.Tensor
	if next != nil {
		nextNorm = next.attnNorm
	}
	tensor.NormQKV(b.heads(a.qHeads), k, v, a.x, tensor.QKV{
		Norm: l.attnNorm, Q: l.q, K: l.k, V: l.v, QBias: l.qBias, KBias: l.kBias, VBias: l.vBias, QNorm: l.qNorm, KNorm: l.kNorm,
		Cos: m.cos, Sin: m.sin, Mode: m.RoPE.Mode, Eps: m.Epsilon, Positions: b.Positions, Sequences: b.Sequences,
		Prepared: prepared, Normed: a.norm, KNew: a.k, VNew: a.v,
	})
	attended := tensor.AttentionLinearAddInto(a.x, a.x, b.heads(a.qHeads), k, v, tensor.AttentionOptions{
		Causal: true, Positions: b.Positions, Sequences: b.Sequences, KVLen: b.KVLen, Window: m.Window, Settled: true,
	}, l.output, l.outputBias, b.heads(a.attendedHeads), a.out, l.ffnNorm, a.norm)
	return tensor.FeedForward(a.x, a.x, tensor.FFN{
		Norm: l.ffnNorm, Gate: l.gate, Up: l.up, Down: l.down, Eps: m.Epsilon,
		NextNorm: nextNorm, Prepared: attended, Normed: a.norm, Gated: a.gate, Product: a.up,
	})
}

// heads returns [tokens][heads][dim] as [Count][Seq][heads][dim].
func (b Batch) heads(t *tensor.Tensor) *tensor.Tensor {
	return t.Reshape(b.Count, b.Seq, t.Dim(-2), t.Dim(-1))
}

// Logits computes the logits [rows][Vocab] of rows lo..hi-1 of what Forward returned, at most w.LogitRows at once. They lie
// in the workspace until its next use.
func (m *Model) Logits(w *Workspace, x *tensor.Tensor, lo, hi int) *tensor.Tensor {
	out := w.Logits(hi - lo)
	tensor.NormLinearInto(out, x.Slice(lo, hi), m.outputNorm, m.Epsilon, m.output, nil, w.full.norm.Slice(lo, hi))
	return out
}
