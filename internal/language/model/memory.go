package model

import (
	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// Workspace holds the values of one pass. Its memory is allocated once, so that captured graphs find it again.
type Workspace struct {
	LogitRows int
	slots     []*tensor.Tensor // of the graph: [rows of a pass][cols], or [LogitRows][cols]
	logits    *tensor.Tensor   // one of them
	one       *views           // of one token, which steps of generation come back for
	newest    *views           // of the newest pass of another shape
	memory    *tensor.Arena
}

// NewWorkspace allocates for passes of up to that many rows.
func (m *Model) NewWorkspace(s *gpu.Stream, rows, logitRows int) (*Workspace, error) {
	memory, err := tensor.NewArena(s, m.WorkspaceBytes(rows, logitRows))
	if err != nil {
		return nil, err
	}
	w := &Workspace{LogitRows: logitRows, memory: memory}
	for _, s := range m.graph.slots {
		dtype := tensor.F32
		if s.ints {
			dtype = tensor.I32
		}
		t, err := memory.New(dtype, s.rows(rows, logitRows), s.cols)
		if err != nil {
			w.Free()
			return nil, err
		}
		w.slots = append(w.slots, t)
	}
	w.logits = w.slots[m.graph.logits.slot]
	if v := m.graph.counting; v != nil {
		numbers := make([]int32, rows*v.cols)
		for i := range numbers {
			numbers[i] = int32(i % v.cols)
		}
		if err := w.slots[v.slot].WriteInt32s(numbers); err != nil {
			w.Free()
			return nil, err
		}
	}
	return w, nil
}

// Logits returns the logits [rows][Vocab] that the newest call of Model.Logits has put there.
func (w *Workspace) Logits(rows int) *tensor.Tensor { return w.logits.Slice(0, rows) }

// WorkspaceBytes returns the size of a workspace.
func (c *Config) WorkspaceBytes(rows, logitRows int) int64 {
	var sum int64
	for _, s := range c.graph.slots {
		sum += tensor.Aligned(4 * int64(s.rows(rows, logitRows)) * int64(s.cols))
	}
	return sum
}

// Pass describes passes of up to that many rows over a cache, for gpu.Device.ScratchBytes.
func (c *Config) Pass(rows, context int, kv tensor.DType) kernel.Pass {
	return kernel.Pass{
		Rows: rows, Widest: max(c.Hidden, c.Heads*c.HeadDim, c.FeedForward, c.delta.inner()), Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim,
		Context: context, KVType: kv,
	}
}

// Free gives the memory back. Freeing nil or twice is harmless.
func (w *Workspace) Free() {
	if w != nil {
		w.memory.Free()
	}
}

// views holds the tensors that passes of one shape see the slots as.
type views struct {
	work       *Workspace
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
func (w *Workspace) viewsOf(count, seq int) *views {
	place := &w.newest
	if count*seq == 1 {
		place = &w.one
	}
	if v := *place; v == nil || v.count != count || v.seq != seq {
		*place = &views{work: w, count: count, seq: seq, tensors: map[view]*tensor.Tensor{}}
	}
	return *place
}

func (v *views) get(key view) *tensor.Tensor {
	t := v.tensors[key]
	if t != nil {
		return t
	}
	n := v.count * v.seq
	t = v.work.slots[key.slot].Slice(0, n)
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
