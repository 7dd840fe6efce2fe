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

// Forward computes the layers for a batch, writes its keys and values to the cache, and returns the hidden states
// [Count*Seq][Hidden], which lie in the workspace until its next use. Everything is enqueued on the workspace's stream.
// Its errors are those of Batch.Check; failures of operations panic as package tensor's do.
func (m *Model) Forward(w *Workspace, c *Cache, b Batch) (*tensor.Tensor, error) {
	a := m.rows(w, b.Count*b.Seq)
	tensor.EmbeddingInto(a.x, m.embedding, b.IDs)
	// The residual is added and the next norm taken in one operation, so each block hands its output on unadded.
	tensor.RMSNormInto(a.norm, a.x, m.layers[0].attnNorm, m.Epsilon)
	for i := range m.layers {
		if b.Check != nil {
			if err := b.Check(); err != nil {
				return nil, err
			}
		}
		l := &m.layers[i]
		m.attention(a, l, c.K[i], c.V[i], b)
		tensor.AddRMSNormInto(a.x, a.norm, a.x, a.out, l.ffnNorm, m.Epsilon)
		feedForward(a, l)
		next := m.outputNorm
		if i+1 < len(m.layers) {
			next = m.layers[i+1].attnNorm
		}
		tensor.AddRMSNormInto(a.x, a.norm, a.x, a.out, next, m.Epsilon)
	}
	return a.norm, nil
}

// attention computes out = attention(norm) and appends to the layer's cache.
func (m *Model) attention(a *activations, l *layer, k, v *tensor.Tensor, b Batch) {
	tensor.LinearInto(a.q, a.norm, l.q, l.qBias)
	tensor.LinearInto(a.k, a.norm, l.k, l.kBias)
	tensor.LinearInto(a.v, a.norm, l.v, l.vBias)
	if l.qNorm != nil { // over each head, before RoPE
		tensor.RMSNormInto(a.qHeads, a.qHeads, l.qNorm, m.Epsilon)
		tensor.RMSNormInto(a.kHeads, a.kHeads, l.kNorm, m.Epsilon)
	}
	tensor.RoPEInto(a.qHeads, a.qHeads, m.cos, m.sin, b.Positions, m.RoPE.Mode)
	tensor.RoPEInto(a.kHeads, a.kHeads, m.cos, m.sin, b.Positions, m.RoPE.Mode)
	batched := func(t *tensor.Tensor) *tensor.Tensor { return t.Reshape(b.Count, b.Seq, t.Dim(-2), m.HeadDim) }
	tensor.KVWrite(k, v, batched(a.kHeads), batched(a.vHeads), b.Positions, b.Sequences)
	tensor.AttentionInto(batched(a.attendedHeads), batched(a.qHeads), k, v, tensor.AttentionOptions{
		Causal: true, Positions: b.Positions, Sequences: b.Sequences, KVLen: b.KVLen, Window: m.Window,
	})
	tensor.LinearInto(a.out, a.attended, l.output, l.outputBias)
}

// feedForward computes out = down(silu(gate(norm)) * up(norm)).
func feedForward(a *activations, l *layer) {
	tensor.LinearInto(a.gate, a.norm, l.gate, nil)
	tensor.LinearInto(a.up, a.norm, l.up, nil)
	tensor.SwiGLUInto(a.gate, a.gate, a.up)
	tensor.LinearInto(a.out, a.gate, l.down, nil)
}

// Logits computes the logits [rows][Vocab] of rows lo..hi-1 of what Forward returned, at most w.LogitRows at once. They lie
// in the workspace until its next use.
func (m *Model) Logits(w *Workspace, hidden *tensor.Tensor, lo, hi int) *tensor.Tensor {
	out := w.Logits(hi - lo)
	tensor.LinearInto(out, hidden.Slice(lo, hi), m.output, nil)
	return out
}
