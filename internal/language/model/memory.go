package model

import (
	"fmt"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/tensor"
)

// Cache holds keys and values: for each layer [Sequences][KVHeads][room for Capacity][HeadDim].
type Cache struct {
	K, V                []*tensor.Tensor
	Sequences, Capacity int
	memory              *tensor.Arena
}

// CheckCacheType says why keys and values cannot be kept in t: blocks of a quantized type lie along a head.
func (c *Config) CheckCacheType(t tensor.DType) error {
	if t.Quantized() && c.HeadDim%t.BlockSize() != 0 {
		return fmt.Errorf("a cache of %v needs heads of a multiple of %d, this model's have %d", t, t.BlockSize(), c.HeadDim)
	}
	return nil
}

// cacheRoom returns for how many tokens a cache has room: kernels copy quantized keys by 16 bytes, of which eight of them,
// whatever their size, are a multiple.
func cacheRoom(capacity int, t tensor.DType) int {
	if t.Quantized() {
		return (capacity + 7) / 8 * 8
	}
	return capacity
}

// NewCache allocates a cache in the order of a stream; its contents are undefined until they are written.
func (m *Model) NewCache(s *gpu.Stream, sequences, capacity int, t tensor.DType) (*Cache, error) {
	if err := m.CheckCacheType(t); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	memory, err := tensor.NewArena(s, m.CacheBytes(sequences, capacity, t))
	if err != nil {
		return nil, err
	}
	c := &Cache{Sequences: sequences, Capacity: capacity, memory: memory}
	for range m.Layers {
		for _, list := range []*[]*tensor.Tensor{&c.K, &c.V} {
			x, err := memory.New(t, sequences, m.KVHeads, cacheRoom(capacity, t), m.HeadDim)
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
	if c != nil {
		c.memory.Free()
	}
}

// CacheBytes returns the size of a cache.
func (c *Config) CacheBytes(sequences, capacity int, t tensor.DType) int64 {
	return 2 * int64(c.Layers) * tensor.Aligned(int64(sequences)*t.Bytes(c.KVHeads*cacheRoom(capacity, t)*c.HeadDim))
}

// Workspace holds the activations of one pass. Its memory is allocated once, so that captured graphs find it again.
type Workspace struct {
	full      activations
	logits    *tensor.Tensor // [LogitRows][Vocab]
	LogitRows int
	views     map[int]*activations
	memory    *tensor.Arena
}

// activations are the tensors of a pass over n rows. What has several names is one piece of memory in several shapes.
type activations struct {
	x, norm, out          *tensor.Tensor // [n][Hidden]: residual stream, a block's input, its output
	q, k, v, attended     *tensor.Tensor // [n][heads * HeadDim]
	qHeads, attendedHeads *tensor.Tensor // [n][heads][HeadDim]
	gate, up              *tensor.Tensor // [n][FeedForward]
}

// pieces lists what the workspace of passes of up to that many rows consists of.
func (c *Config) pieces(w *Workspace, rows, logitRows int) []piece {
	a, q, kv := &w.full, c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	return []piece{
		{&a.x, rows, c.Hidden}, {&a.norm, rows, c.Hidden}, {&a.out, rows, c.Hidden},
		{&a.q, rows, q}, {&a.k, rows, kv}, {&a.v, rows, kv}, {&a.attended, rows, q},
		{&a.gate, rows, c.FeedForward}, {&a.up, rows, c.FeedForward},
		{&w.logits, logitRows, c.Vocab},
	}
}

// piece is one F32 tensor [rows][cols] of a workspace.
type piece struct {
	place      **tensor.Tensor
	rows, cols int
}

// NewWorkspace allocates the activations of passes of up to that many rows.
func (m *Model) NewWorkspace(s *gpu.Stream, rows, logitRows int) (*Workspace, error) {
	memory, err := tensor.NewArena(s, m.WorkspaceBytes(rows, logitRows))
	if err != nil {
		return nil, err
	}
	w := &Workspace{LogitRows: logitRows, views: map[int]*activations{}, memory: memory}
	for _, p := range m.pieces(w, rows, logitRows) {
		if *p.place, err = memory.New(tensor.F32, p.rows, p.cols); err != nil {
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
	for _, p := range c.pieces(&Workspace{}, rows, logitRows) {
		sum += tensor.Aligned(4 * int64(p.rows) * int64(p.cols))
	}
	return sum
}

// Free gives the memory back. Freeing nil or twice is harmless.
func (w *Workspace) Free() {
	if w != nil {
		w.memory.Free()
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
	if n == 1 { // steps of generation come back for it; prompts' rests are of any length
		w.views[n] = a
	}
	return a
}
