package model

import (
	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/gguf"
	"github.com/vibrant-ml/vibrant/internal/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// Cache holds keys and values: for each layer [Sequences][KVHeads][Capacity][HeadDim].
type Cache struct {
	K, V                []*tensor.Tensor
	Sequences, Capacity int
}

// NewCache allocates a cache in the order of a stream; its contents are undefined until they are written.
func (m *Model) NewCache(s *gpu.Stream, sequences, capacity int, t tensor.DType) (*Cache, error) {
	c := &Cache{Sequences: sequences, Capacity: capacity}
	for range m.Layers {
		for _, list := range []*[]*tensor.Tensor{&c.K, &c.V} {
			x, err := tensor.New(s, t, sequences, m.KVHeads, capacity, m.HeadDim)
			if err != nil {
				c.Free()
				return nil, err
			}
			*list = append(*list, x)
		}
	}
	return c, nil
}

// Free gives the memory back. Freeing nil or twice is harmless.
func (c *Cache) Free() {
	if c == nil {
		return
	}
	for i := range c.K {
		c.K[i].Free()
	}
	for i := range c.V {
		c.V[i].Free()
	}
}

// CacheBytes returns the size of a cache.
func (c *Config) CacheBytes(sequences, capacity int, t tensor.DType) int64 {
	return 2 * int64(c.Layers) * int64(sequences) * t.Bytes(c.KVHeads*capacity*c.HeadDim)
}

// Workspace holds the activations of one pass. Its memory is allocated once, so that captured graphs find it again.
type Workspace struct {
	full      activations
	logits    *tensor.Tensor // [LogitRows][Vocab]
	LogitRows int
	views     map[int]*activations
}

// activations are the tensors of a pass over n rows. What has several names is one piece of memory in several shapes.
type activations struct {
	x, norm, out          *tensor.Tensor // [n][Hidden]: residual stream, a block's input, its output
	q, k, v, attended     *tensor.Tensor // [n][heads * HeadDim]
	qHeads, kHeads        *tensor.Tensor // [n][heads][HeadDim]
	vHeads, attendedHeads *tensor.Tensor
	gate, up              *tensor.Tensor // [n][FeedForward]
}

// NewWorkspace allocates the activations of passes of up to that many rows.
func (m *Model) NewWorkspace(s *gpu.Stream, rows, logitRows int) (*Workspace, error) {
	w := &Workspace{LogitRows: logitRows, views: map[int]*activations{}}
	q, kv := m.Heads*m.HeadDim, m.KVHeads*m.HeadDim
	a := &w.full
	for _, t := range []struct {
		place      **tensor.Tensor
		rows, cols int
	}{
		{&a.x, rows, m.Hidden}, {&a.norm, rows, m.Hidden}, {&a.out, rows, m.Hidden},
		{&a.q, rows, q}, {&a.k, rows, kv}, {&a.v, rows, kv}, {&a.attended, rows, q},
		{&a.gate, rows, m.FeedForward}, {&a.up, rows, m.FeedForward},
		{&w.logits, logitRows, m.Vocab},
	} {
		x, err := tensor.New(s, tensor.F32, t.rows, t.cols)
		if err != nil {
			w.Free()
			return nil, err
		}
		*t.place = x
	}
	return w, nil
}

// Logits returns the logits [rows][Vocab] that the newest call of Model.Logits has put there.
func (w *Workspace) Logits(rows int) *tensor.Tensor { return w.logits.Slice(0, rows) }

// WorkspaceBytes returns the size of a workspace.
func (c *Config) WorkspaceBytes(rows, logitRows int) int64 {
	perRow := 3*c.Hidden + 2*c.Heads*c.HeadDim + 2*c.KVHeads*c.HeadDim + 2*c.FeedForward
	return 4 * (int64(rows)*int64(perRow) + int64(logitRows)*int64(c.Vocab))
}

// Free gives the memory back. Freeing nil or twice is harmless.
func (w *Workspace) Free() {
	if w == nil {
		return
	}
	a := &w.full
	for _, t := range []*tensor.Tensor{a.x, a.norm, a.out, a.q, a.k, a.v, a.attended, a.gate, a.up, w.logits} {
		t.Free()
	}
}

// rows returns the activations of the first n rows.
func (m *Model) rows(w *Workspace, n int) *activations {
	if a := w.views[n]; a != nil {
		return a
	}
	f := &w.full
	a := &activations{
		x: f.x.Slice(0, n), norm: f.norm.Slice(0, n), out: f.out.Slice(0, n),
		q: f.q.Slice(0, n), k: f.k.Slice(0, n), v: f.v.Slice(0, n), attended: f.attended.Slice(0, n),
		gate: f.gate.Slice(0, n), up: f.up.Slice(0, n),
	}
	a.qHeads, a.attendedHeads = a.q.Reshape(n, m.Heads, m.HeadDim), a.attended.Reshape(n, m.Heads, m.HeadDim)
	a.kHeads, a.vHeads = a.k.Reshape(n, m.KVHeads, m.HeadDim), a.v.Reshape(n, m.KVHeads, m.HeadDim)
	if n == 1 { // steps of generation come back for it; prompts' rests are of any length
		w.views[n] = a
	}
	return a
}

// WeightBytes predicts what the weights of f take on a device: in packed form where the device packs.
func (c *Config) WeightBytes(f *gguf.File, d *gpu.Device) (int64, error) {
	found, specs, err := c.find(f)
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, s := range specs {
		t := found[s.name]
		bytes := t.Bytes
		if s.rows == 0 {
			bytes = 4 * int64(s.cols) // vectors become F32
		} else if packed, err := d.PackedSize(kernel.Weight{Type: kernel.DType(t.Type), Rows: s.rows, Cols: s.cols}); err == nil && packed > 0 {
			bytes = packed
		}
		sum += bytes
	}
	return sum, nil
}

// TableBytes returns the size of the RoPE tables for a context.
func (c *Config) TableBytes(context int) int64 { return 2 * 4 * int64(context) * int64(c.RoPE.Dim/2) }
