package model

import (
	"fmt"

	"github.com/vibrant-ml/vibrant/gpu"
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
	Adapters   []ActiveStack  // nil for none; else the workspace is of NewAdaptedWorkspace
	// Together, where it is set, is I32 memory of which IDs are the first quarter, Positions the third and Sequences the last: one
	// broadcast brings them to other ranks.
	Together *tensor.Tensor
	// Check, where it is set, is asked before each operation whether to go on: on a CPU one pass may take seconds.
	Check func() error
	// The same on the host, where the caller has it: other stages then need not wait for the device.
	Known struct{ IDs, Positions, Sequences []int32 }
	// Replay, where it is set, keeps the work of a staged model's step for the next one of this shape.
	Replay *Replay
}

// Forward computes the layers for a batch, writes its keys, values and states to the cache, and returns the residual stream
// [Count*Seq][Hidden] after the last layer, for Logits. It lies in the workspace until its next use. Everything is
// enqueued on the workspace's streams. Its errors are those of Batch.Check; failures of operations panic as package
// tensor's do.
func (m *Model) Forward(w *Workspace, c *Cache, b Batch) (*tensor.Tensor, error) {
	if m.world != nil || m.staged { // whose ranks have other memory, or are sent nothing
		b.Together = nil
	}
	if m.streams(b) {
		return m.forwardStreamed(w, c, b)
	}
	w.newest, w.adapters = w.plain, b.Adapters
	if len(b.Adapters) > 0 {
		if w.adapted == nil {
			return nil, fmt.Errorf("model: a pass with adapters in a workspace for none: %w", gpu.ErrInvalid)
		}
		w.newest = w.slotsFor(b.Adapters)
	}
	g := w.newest.graph
	passes := m.passes(w, c, b, 0)
	p := passes[0]
	if m.world != nil {
		// A pass that ended in the middle would leave the others waiting.
		o := order{Do: orderForward, Count: b.Count, Seq: b.Seq, KVLen: b.KVLen, Sequences: b.Sequences != nil}
		if b.Check != nil {
			if err := b.Check(); err != nil {
				return nil, err
			}
		}
		if err := m.world.give(w.streams, o, func() error { return w.layers(passes, nil, nil) }); err != nil {
			return nil, err
		}
		return p.rows(g.hidden), nil
	}
	if m.staged {
		if err := w.forwardStages([][]*pass{passes}, b.Replay, nil, b.Check); err != nil {
			return nil, err
		}
		return p.rows(g.hidden), nil
	}
	if err := w.layers(passes, w.followers, b.Check); err != nil {
		return nil, err
	}
	return p.rows(g.hidden), nil
}

// ForwardTogether is Forward of chunks of one prompt that follow each other, as many as Together says at most, on devices that have
// several runs of layers each. It returns the residual stream of the last one.
func (m *Model) ForwardTogether(w *Workspace, c *Cache, chunks []Batch) (*tensor.Tensor, error) {
	w.newest, w.adapters = w.plain, nil
	var all [][]*pass
	for i, b := range chunks {
		all = append(all, m.passes(w, c, b, i))
	}
	if err := w.forwardStages(all, nil, nil, chunks[0].Check); err != nil {
		return nil, err
	}
	return all[len(all)-1][0].rows(w.plain.graph.hidden), nil
}

// Together returns how many chunks of a prompt are computed at a time.
func (c *Config) Together() int { return max(1, c.together) }

// passes returns a run of the newest graph for a batch, which is so many chunks after the first of those that are computed together,
// and one of each follower.
func (m *Model) passes(w *Workspace, c *Cache, b Batch, chunk int) []*pass {
	passes := []*pass{{model: m, graph: w.newest.graph, cache: c, batch: b, views: w.newest.viewsOf(b.Count, b.Seq), adapters: b.Adapters}}
	for i, f := range w.followers {
		passes = append(passes, f.pass(f.work.plain, c.followers[i], b, chunk))
	}
	return passes
}

// layers sends the first rank's batch to the others and computes all layers. followers are the last of the passes.
func (w *Workspace) layers(passes []*pass, followers []*follower, check func() error) error {
	w.lead(passes)
	for i := range len(passes[0].graph.blocks) - 1 {
		if err := w.run(i, passes, check); err != nil {
			return err
		}
	}
	first := len(passes) - len(followers)
	for i, f := range followers {
		f.hidden = passes[first+i].rows(passes[first+i].graph.hidden)
	}
	return nil
}

// Logits computes the logits [rows][Vocab] of rows lo..hi-1 of what Forward returned, at most w.LogitRows at once. They
// lie in the workspace until its next use.
func (m *Model) Logits(w *Workspace, x *tensor.Tensor, lo, hi int) *tensor.Tensor {
	g := w.newest.graph
	p := &pass{model: m, graph: g, views: w.newest.viewsOf(1, hi-lo), hidden: x.Slice(lo, hi)}
	for _, a := range w.adapters {
		if a.Codes.Dim(0) > 1 {
			a.Codes = a.Codes.Slice(lo, hi)
		}
		p.adapters = append(p.adapters, a)
	}
	passes := []*pass{p}
	for _, f := range w.followers {
		if m.staged {
			break
		}
		passes = append(passes, f.logits(lo, hi))
	}
	compute := func() error { return w.run(len(g.blocks)-1, passes, nil) }
	err := error(nil)
	if m.world != nil {
		err = m.world.give(w.streams, order{Do: orderLogits, From: lo, To: hi}, compute)
	} else {
		err = compute()
	}
	if err != nil { // of other processes alone, as there is no check
		panic(&tensor.OpError{Op: "logits", Err: err})
	}
	return p.rows(g.logits)
}

// pass is one run of a graph.
type pass struct {
	model   *Model
	graph   *graph
	cache   *Cache
	batch   Batch
	views   *views
	hidden  *tensor.Tensor              // of the rows whose logits are asked for, nil before the last layer's end
	handoff fused.Handoff               // of the newest operation that gives one
	parted  *value                      // a sum of which each rank has its own columns alone, nil for none: of the first rank's pass
	written tensor.Written              // by the newest operation that writes keys and values
	part    *fused.Part[*tensor.Tensor] // of the sum over ranks that follows, where the sum multiplies too; else nil

	likeliest *tensor.Tensor // I32 [rows], of Likeliest: where the token of each row goes

	adapters []ActiveStack // with a row of codes for each row, or one for all
}

// single reports whether the pass is of one token.
func (p *pass) single() bool { return p.views.count*p.views.seq == 1 }

// rows returns a value as [tokens][cols].
func (p *pass) rows(v *value) *tensor.Tensor {
	if p.hidden != nil && v == p.graph.hidden {
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
