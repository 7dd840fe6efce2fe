package model

import (
	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// Workspace holds the values of one pass. Its memory is allocated once, so that captured graphs find it again.
type Workspace struct {
	LogitRows int
	streams   *gpu.Communicator // of each rank
	followers []*follower
	plain     *slots
	adapted   *slots // nil where the workspace is for passes without adapters
	within    *slots // of passes whose fused operations add what adapters change, nil with adapted
	guest     *slots // of passes over streamed weights, nil for none
	newest    *slots // of the newest pass
	adapters  []ActiveStack
	memory    *tensor.Arena
	readbacks []*tensor.Readback // of stages, by device; nil of those whose memory is the host's
}

// slots is the workspace as one graph sees it.
type slots struct {
	graph   *graph
	tensors []*tensor.Tensor // [rows of a pass][cols], or [LogitRows][cols]
	one     *views           // of one token, which steps of generation come back for
	newest  *views           // of the newest pass of another shape
}

// NewWorkspace allocates for passes of up to that many rows, without adapters, which are enqueued on a stream of each rank
// (NewStreams). The workspace ends before the streams.
func (m *Model) NewWorkspace(streams *gpu.Communicator, rows, logitRows int) (*Workspace, error) {
	if m.world != nil {
		var w *Workspace
		err := m.world.make(streams, order{Do: orderWorkspace, Rows: rows, LogitRows: logitRows}, func() (err error) {
			if w, err = m.newWorkspace(streams.Stream(0), rows, logitRows); err == nil {
				w.streams = streams
			}
			return err
		})
		if err != nil {
			w.Free()
			return nil, err
		}
		return w, nil
	}
	w, err := m.newWorkspace(streams.Stream(0), rows, logitRows)
	if err != nil {
		return nil, err
	}
	w.streams = streams
	for i, f := range m.followers {
		if err := w.join(f, streams.Stream(i+1), rows, logitRows); err != nil {
			w.Free()
			return nil, err
		}
	}
	for device := range m.Ranks() {
		var r *tensor.Readback
		if s := w.stageStream(device); m.staged && !s.Device().Info().HostMemory {
			r = tensor.NewReadback(s)
		}
		w.readbacks = append(w.readbacks, r)
	}
	return w, nil
}

func (m *Model) newWorkspace(s *gpu.Stream, rows, logitRows int) (*Workspace, error) {
	memory, err := tensor.NewArena(s, m.WorkspaceBytes(rows, logitRows))
	if err != nil {
		return nil, err
	}
	w := &Workspace{LogitRows: logitRows, memory: memory}
	w.plain, err = m.graph.slotsIn(memory, rows, logitRows)
	if err == nil && m.guest != nil {
		memory.Reset()
		w.guest, err = m.guest.slotsIn(memory, rows, logitRows)
	}
	if err != nil {
		w.Free()
		return nil, err
	}
	w.newest = w.plain
	return w, nil
}

// NewAdaptedWorkspace allocates for passes with and without adapters, which take the same memory in turns, of a model on one
// device.
func (m *Model) NewAdaptedWorkspace(streams *gpu.Communicator, rows, logitRows int) (*Workspace, error) {
	memory, err := tensor.NewArena(streams.Stream(0), m.AdaptedWorkspaceBytes(rows, logitRows))
	if err != nil {
		return nil, err
	}
	w := &Workspace{LogitRows: logitRows, streams: streams, memory: memory}
	if w.plain, err = m.graph.slotsIn(memory, rows, logitRows); err == nil {
		memory.Reset()
		w.adapted, err = m.adapted.slotsIn(memory, rows, logitRows)
	}
	if err == nil {
		memory.Reset()
		w.within, err = m.within.slotsIn(memory, rows, logitRows)
	}
	if err != nil {
		w.Free()
		return nil, err
	}
	w.newest = w.plain
	return w, nil
}

// slotsIn cuts the slots of a graph from memory. What counts comes first, so that graphs in the same memory share it.
func (g *graph) slotsIn(memory *tensor.Arena, rows, logitRows int) (*slots, error) {
	all := &slots{graph: g}
	for _, s := range g.slots {
		t, err := memory.New(s.dtype, s.rows(rows, logitRows), s.cols)
		if err != nil {
			return nil, err
		}
		all.tensors = append(all.tensors, t)
	}
	if v := g.counting; v != nil {
		numbers := make([]int32, rows*v.cols)
		for i := range numbers {
			numbers[i] = int32(i % v.cols)
		}
		if err := all.tensors[v.slot].WriteInt32s(numbers); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Adapted reports whether the workspace is for passes with adapters too.
func (w *Workspace) Adapted() bool { return w.adapted != nil }

// slotsFor returns the workspace as passes with these adapters see it.
func (w *Workspace) slotsFor(active []ActiveStack) *slots {
	switch {
	case len(active) == 0:
		return w.plain
	case within(active):
		return w.within
	}
	return w.adapted
}

// Logits returns the logits [rows][Vocab] that the newest pass, with these adapters, has put there.
func (w *Workspace) Logits(rows int, active []ActiveStack) *tensor.Tensor {
	s := w.slotsFor(active)
	return s.tensors[s.graph.logits.slot].Slice(0, rows)
}

// WorkspaceBytes returns the size of a workspace for passes without adapters.
func (c *Config) WorkspaceBytes(rows, logitRows int) int64 {
	if c.guest != nil {
		return max(c.graph.bytes(rows, logitRows), c.guest.bytes(rows, logitRows))
	}
	return c.graph.bytes(rows, logitRows)
}

// AdaptedWorkspaceBytes returns the size of a workspace for passes with adapters and without.
func (c *Config) AdaptedWorkspaceBytes(rows, logitRows int) int64 {
	return max(c.graph.bytes(rows, logitRows), c.adapted.bytes(rows, logitRows), c.within.bytes(rows, logitRows))
}

func (g *graph) bytes(rows, logitRows int) int64 {
	var sum int64
	for _, s := range g.slots {
		sum += tensor.Aligned(s.dtype.Bytes(s.rows(rows, logitRows) * s.cols))
	}
	return sum
}

// Pass describes passes of up to that many rows over a cache, for gpu.Device.ScratchBytes.
func (c *Config) Pass(rows, context int, kv tensor.DType) kernel.Pass {
	experts := 0
	if m := c.mixture; m != nil {
		const tile = 256 // columns, of which rows have whole ones
		experts = m.used * ((c.Hidden+tile-1)/tile + (m.width+tile-1)/tile) * tile
	}
	return kernel.Pass{
		Rows: rows, Widest: max(c.Hidden, c.Heads*c.HeadDim, c.FeedForward, c.delta.inner()), Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim,
		Context: context, KVType: kv, Experts: experts,
	}
}

// Free gives the memory back. Freeing nil or twice is harmless.
func (w *Workspace) Free() {
	if w != nil {
		for _, r := range w.readbacks {
			r.Close()
		}
		for _, f := range w.followers {
			f.free()
		}
		w.memory.Free()
	}
}

// views holds the tensors that passes of one shape see the slots as.
type views struct {
	slots      []*tensor.Tensor
	count, seq int
	tensors    map[view]*tensor.Tensor
}

// view is a slot in a shape: [tokens][cols], with dim [tokens][heads][dim], with sequences [count][seq][cols], with both
// [count][seq][heads][dim].
type view struct {
	slot, dim int
	sequences bool
}

// viewsOf returns the views of passes of a shape.
func (s *slots) viewsOf(count, seq int) *views {
	place := &s.newest
	if count*seq == 1 {
		place = &s.one
	}
	if v := *place; v == nil || v.count != count || v.seq != seq {
		*place = &views{slots: s.tensors, count: count, seq: seq, tensors: map[view]*tensor.Tensor{}}
	}
	return *place
}

func (v *views) get(key view) *tensor.Tensor {
	t := v.tensors[key]
	if t != nil {
		return t
	}
	n := v.count * v.seq
	t = v.slots[key.slot].Slice(0, n)
	switch {
	case key.sequences && key.dim == 0:
		t = t.Reshape(v.count, v.seq, t.Dim(1))
	case key.sequences:
		t = t.Reshape(v.count, v.seq, t.Dim(1)/key.dim, key.dim)
	case key.dim > 0:
		t = t.Reshape(n, t.Dim(1)/key.dim, key.dim)
	}
	v.tensors[key] = t
	return t
}
