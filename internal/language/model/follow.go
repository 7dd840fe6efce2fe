package model

import (
	"fmt"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/tensor"
)

// NewStreams joins a new stream of each rank's device. CloseStreams ends them.
func (m *Model) NewStreams() (_ *gpu.Communicator, err error) {
	if m.leader != nil {
		return nil, fmt.Errorf("model: this is rank %d of %d, which computes what rank 0 asks for: %w", m.leader.Rank(), m.leader.Size(), gpu.ErrUnsupported)
	}
	if m.world != nil {
		return m.world.open(m)
	}
	var streams []*gpu.Stream
	defer func() {
		if err != nil {
			for _, s := range streams {
				s.Close()
			}
		}
	}()
	for _, rank := range m.Ranks() {
		s, err := rank.device.NewStream()
		if err != nil {
			return nil, err
		}
		streams = append(streams, s)
	}
	if m.staged {
		return gpu.NewStreamGroup(streams...)
	}
	return gpu.NewCommunicator(streams...)
}

// CloseStreams ends what NewStreams made. nil is harmless.
func (m *Model) CloseStreams(c *gpu.Communicator) error {
	if c == nil {
		return nil
	}
	if m.world != nil {
		return m.world.close(c)
	}
	return closeStreams(c)
}

func closeStreams(c *gpu.Communicator) error {
	if c == nil {
		return nil
	}
	err := c.Close()
	for i := range c.Local() {
		if e := c.Stream(i).Close(); err == nil {
			err = e
		}
	}
	return err
}

// follower is what a workspace has on the device of a rank after the first: a workspace, and the batch, which the first rank
// sends.
type follower struct {
	model                     *Model
	work                      *Workspace
	ids, positions, sequences *tensor.Tensor // [rows] of a pass, of chunks that are computed together one after another
	together                  *tensor.Tensor // Batch.Together
	hidden                    *tensor.Tensor // of the newest pass
}

// join adds what the workspace has on a rank's device.
func (w *Workspace) join(m *Model, s *gpu.Stream, rows, logitRows int) error {
	f, err := m.newFollower(s, rows, logitRows)
	if err == nil {
		w.followers = append(w.followers, f)
	}
	return err
}

func (m *Model) newFollower(s *gpu.Stream, rows, logitRows int) (_ *follower, err error) {
	f := &follower{model: m}
	defer func() {
		if err != nil {
			f.free()
		}
	}()
	if f.work, err = m.newWorkspace(s, rows, logitRows); err != nil {
		return nil, err
	}
	for _, place := range []**tensor.Tensor{&f.ids, &f.positions, &f.sequences} {
		if *place, err = tensor.New(s, tensor.I32, rows*m.Together()); err != nil {
			return nil, err
		}
	}
	if f.together, err = tensor.New(s, tensor.I32, 4*(logitRows+3)); err != nil { // of steps, which have so many rows
		return nil, err
	}
	return f, nil
}

func (f *follower) free() {
	f.work.Free()
	for _, t := range []*tensor.Tensor{f.ids, f.positions, f.sequences, f.together} {
		t.Free()
	}
}

// pass returns a run of a graph of the rank, in its workspace, for the batch that it is sent: so many chunks after the first of those
// that are computed together.
func (f *follower) pass(work *slots, c *Cache, b Batch, chunk int) *pass {
	lo := chunk * (f.ids.Len() / f.model.Together())
	hi := lo + b.Count*b.Seq
	own := Batch{Count: b.Count, Seq: b.Seq, IDs: f.ids.Slice(lo, hi), Positions: f.positions.Slice(lo, hi), KVLen: b.KVLen}
	if b.Sequences != nil {
		own.Sequences = f.sequences.Slice(0, b.Count)
	}
	if b.Together != nil {
		own.Together = f.together.Slice(0, b.Together.Len())
		part, n := own.Together.Len()/4, b.Count*b.Seq
		own.IDs, own.Positions = own.Together.Slice(0, n), own.Together.Slice(2*part, 2*part+n)
		if b.Sequences != nil {
			own.Sequences = own.Together.Slice(3*part, 3*part+b.Count)
		}
	}
	return &pass{model: f.model, graph: work.graph, cache: c, batch: own, views: work.viewsOf(b.Count, b.Seq)}
}

// logits returns a run of what follows the layers, for rows of the newest pass.
func (f *follower) logits(lo, hi int) *pass {
	plain := f.work.plain
	return &pass{model: f.model, graph: plain.graph, views: plain.viewsOf(1, hi-lo), hidden: f.hidden.Slice(lo, hi)}
}

// lead sends the first rank's batch to the others.
func (w *Workspace) lead(passes []*pass) {
	if w.streams.Ranks() == 1 {
		return
	}
	parts := []func(Batch) *tensor.Tensor{
		func(b Batch) *tensor.Tensor { return b.IDs },
		func(b Batch) *tensor.Tensor { return b.Positions },
		func(b Batch) *tensor.Tensor { return b.Sequences },
	}
	if passes[0].batch.Together != nil {
		parts = []func(Batch) *tensor.Tensor{func(b Batch) *tensor.Tensor { return b.Together }}
	}
	for _, of := range parts {
		if of(passes[0].batch) == nil {
			continue
		}
		var all []*tensor.Tensor
		for _, p := range passes {
			all = append(all, of(p.batch))
		}
		tensor.BroadcastInto(w.streams, all)
	}
}

// run runs a block of operations, each on all ranks before the next: the ranks of a collective are enqueued one right after the
// other, and what is enqueued before waits for nothing that is not. check, unless it is nil, is asked before each operation
// whether to go on.
func (w *Workspace) run(block int, passes []*pass, check func() error) error {
	for i, o := range passes[0].graph.blocks[block] {
		if check != nil {
			if err := check(); err != nil {
				return err
			}
		}
		together, ok := o.(collectiveOp)
		if !ok {
			for _, p := range passes {
				p.graph.blocks[block][i].run(p)
			}
			continue
		}
		ops := make([]op, len(passes))
		for rank, p := range passes {
			ops[rank] = p.graph.blocks[block][i]
		}
		together.together(w.streams, ops, passes)
	}
	return nil
}
