package model

import (
	"fmt"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// Cache holds keys and values: for each layer [Sequences][KV heads][room for Capacity][head size]. V is nil where
// values are a part of the keys.
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

// cacheRoom returns for how many tokens a cache has room: kernels copy quantized keys by 16 bytes, of which eight of
// them, whatever their size, are a multiple.
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
	for _, shape := range m.graph.caches {
		for i, list := range []*[]*tensor.Tensor{&c.K, &c.V} {
			if i == 1 && shape.latent {
				*list = append(*list, nil)
				continue
			}
			x, err := memory.New(t, sequences, shape.heads, cacheRoom(capacity, t), shape.dim)
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
	var sum int64
	for _, shape := range c.graph.caches {
		bytes := tensor.Aligned(int64(sequences) * t.Bytes(shape.heads*cacheRoom(capacity, t)*shape.dim))
		if !shape.latent {
			bytes *= 2
		}
		sum += bytes
	}
	return sum
}

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
		Rows: rows, Widest: max(c.Hidden, c.Heads*c.HeadDim, c.FeedForward), Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim,
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

// view is a slot in a shape: [tokens][cols], with dim [tokens][heads][dim], with sequences [count][seq][heads][dim].
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
	case key.sequences:
		t = t.Reshape(v.count, v.seq, t.Dim(1)/key.dim, key.dim)
	case key.dim > 0:
		t = t.Reshape(n, t.Dim(1)/key.dim, key.dim)
	}
	v.tensors[key] = t
	return t
}
