package model

import (
	"github.com/vibrant-ml/vibrant/internal/fused"
	"github.com/vibrant-ml/vibrant/tensor"
)

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

// Forward computes the layers for a batch, writes its keys, values and states to the cache, and returns the residual stream
// [Count*Seq][Hidden] after the last layer, for Logits. It lies in the workspace until its next use. Everything is
// enqueued on the workspace's stream. Its errors are those of Batch.Check; failures of operations panic as package
// tensor's do.
func (m *Model) Forward(w *Workspace, c *Cache, b Batch) (*tensor.Tensor, error) {
	p := &pass{model: m, cache: c, batch: b, views: w.viewsOf(b.Count, b.Seq)}
	blocks := m.graph.blocks
	for i, block := range blocks[:len(blocks)-1] {
		if b.Check != nil && i > 0 {
			if err := b.Check(); err != nil {
				return nil, err
			}
		}
		for _, o := range block {
			o.run(p)
		}
	}
	return p.rows(m.graph.hidden), nil
}

// Logits computes the logits [rows][Vocab] of rows lo..hi-1 of what Forward returned, at most w.LogitRows at once. They
// lie in the workspace until its next use.
func (m *Model) Logits(w *Workspace, x *tensor.Tensor, lo, hi int) *tensor.Tensor {
	p := &pass{model: m, views: w.viewsOf(1, hi-lo), hidden: x.Slice(lo, hi)}
	for _, o := range m.graph.blocks[len(m.graph.blocks)-1] {
		o.run(p)
	}
	return p.rows(m.graph.logits)
}

// pass is one run of a graph.
type pass struct {
	model   *Model
	cache   *Cache
	batch   Batch
	views   *views
	hidden  *tensor.Tensor // of the rows whose logits are asked for, nil before the last layer's end
	handoff fused.Handoff  // of the newest operation that gives one
	written tensor.Written // by the newest operation that writes keys and values
}

// rows returns a value as [tokens][cols].
func (p *pass) rows(v *value) *tensor.Tensor {
	if p.hidden != nil && v == p.model.graph.hidden {
		return p.hidden
	}
	return p.views.get(view{slot: v.slot})
}

// heads returns a value as [tokens][heads][dim].
func (p *pass) heads(v *value, dim int) *tensor.Tensor {
	return p.views.get(view{slot: v.slot, dim: dim})
}

// sequences returns a value as [Count][Seq][heads][dim], with dim 0 as [Count][Seq][cols].
func (p *pass) sequences(v *value, dim int) *tensor.Tensor {
	return p.views.get(view{slot: v.slot, dim: dim, sequences: true})
}
