// Package model computes decoder-only transformers from GGUF files: llama, qwen2 and qwen3, one file an architecture
// over shared blocks. It enqueues operations of package tensor and knows nothing of text, sampling or sessions.
package model

import (
	"context"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/gguf"
	"github.com/vibrant-ml/vibrant/internal/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// Model holds the weights of a model on a device. Any number of goroutines may use it, each with its own Workspace and
// Cache.
type Model struct {
	Config
	device     *gpu.Device
	context    int // rows of the RoPE tables
	cos, sin   *tensor.Tensor
	embedding  *tensor.Tensor
	layers     []layer
	outputNorm *tensor.Tensor
	output     *tensor.Tensor // the embedding where it is tied
	owned      []*tensor.Tensor
	bytes      int64
}

// layer holds one layer's weights; what the architecture lacks is nil.
type layer struct {
	attnNorm, q, k, v, qBias, kBias, vBias, qNorm, kNorm, output, outputBias *tensor.Tensor
	ffnNorm, gate, up, down                                                  *tensor.Tensor
}

// Progress says how far loading has come.
type Progress struct {
	Bytes, TotalBytes   int64 // of weights
	Layers, TotalLayers int
}

// Options of Load.
type Options struct {
	Context  int            // the longest context of any session, 0 for the model's own
	Progress func(Progress) // may be nil
}

// Load brings the weights of f to a device: a CPU reads them in the file, which must stay open as long as the model; to a
// GPU they are copied and rearranged for its kernels. The caller closes the model.
func Load(ctx context.Context, f *gguf.File, d *gpu.Device, o Options) (_ *Model, err error) {
	c, err := ReadConfig(f)
	if err != nil {
		return nil, err
	}
	found, specs, err := c.find(f)
	if err != nil {
		return nil, err
	}
	if o.Context == 0 {
		o.Context = c.Context
	}
	if o.Context < 1 || o.Context > maxContext {
		return nil, fmt.Errorf("context of %d tokens: want 1 to %d", o.Context, maxContext)
	}
	m := &Model{Config: *c, device: d, context: o.Context, layers: make([]layer, c.Layers)}
	defer func() {
		if err != nil {
			m.Close()
		}
	}()

	p := Progress{TotalLayers: c.Layers}
	for _, t := range found {
		p.TotalBytes += t.Bytes
	}
	places := m.places()
	for _, s := range specs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		t := found[s.name]
		w, err := m.load(f, t, s)
		if err != nil {
			return nil, fmt.Errorf("tensor %s: %w", s.name, err)
		}
		*places[s.name] = w
		m.owned = append(m.owned, w)
		m.bytes += w.Bytes()
		p.Bytes += t.Bytes
		if layer := 0; o.Progress != nil {
			if n, _ := fmt.Sscanf(s.name, "blk.%d.", &layer); n == 1 {
				p.Layers = layer + 1
			}
			o.Progress(p)
		}
	}
	if m.output == nil {
		m.output = m.embedding
	}
	cos, sin := c.RoPE.Tables(o.Context)
	if m.cos, err = m.table(cos); err != nil {
		return nil, err
	}
	if m.sin, err = m.table(sin); err != nil {
		return nil, err
	}
	return m, d.Stream().Synchronize()
}

// places maps the names of tensors to the fields that hold them.
func (m *Model) places() map[string]**tensor.Tensor {
	p := map[string]**tensor.Tensor{
		"token_embd.weight": &m.embedding, "output_norm.weight": &m.outputNorm, "output.weight": &m.output,
	}
	for i := range m.layers {
		l := &m.layers[i]
		for name, field := range map[string]**tensor.Tensor{
			"attn_norm.weight": &l.attnNorm, "attn_q.weight": &l.q, "attn_k.weight": &l.k, "attn_v.weight": &l.v,
			"attn_q.bias": &l.qBias, "attn_k.bias": &l.kBias, "attn_v.bias": &l.vBias,
			"attn_q_norm.weight": &l.qNorm, "attn_k_norm.weight": &l.kNorm,
			"attn_output.weight": &l.output, "attn_output.bias": &l.outputBias,
			"ffn_norm.weight": &l.ffnNorm, "ffn_gate.weight": &l.gate, "ffn_up.weight": &l.up, "ffn_down.weight": &l.down,
		} {
			p[fmt.Sprintf("blk.%d.%s", i, name)] = field
		}
	}
	return p
}

// load brings one tensor to the device: matrices as stored and then packed, vectors as F32.
func (m *Model) load(f *gguf.File, t *gguf.Tensor, s spec) (w *tensor.Tensor, err error) {
	data, err := f.Data(t)
	if err != nil {
		return nil, err
	}
	if s.rows > 0 {
		if w, err = tensor.FromMemory(m.device, kernel.DType(t.Type), data, f, s.rows, s.cols); err != nil {
			return nil, err
		}
		if err = w.Pack(); err != nil {
			w.Free()
			return nil, err
		}
		return w, nil
	}
	if w, err = tensor.FromMemory(m.device, kernel.DType(t.Type), data, f, s.cols); err != nil || w.DType() == tensor.F32 {
		return w, err
	}
	half := w
	defer half.Free()
	err = tensor.Try(func() { w = tensor.Convert(half, tensor.F32) })
	return w, err
}

// table puts a RoPE table [context][Dim/2] on the device.
func (m *Model) table(values []float32) (*tensor.Tensor, error) {
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), 4*len(values))
	t, err := tensor.FromMemory(m.device, tensor.F32, b, values, m.context, m.RoPE.Dim/2)
	runtime.KeepAlive(values)
	if err == nil {
		m.owned = append(m.owned, t)
	}
	return t, err
}

// Close gives the weights back. No session may be using them. Closing twice is harmless.
func (m *Model) Close() {
	for _, t := range m.owned {
		t.Free()
	}
	m.owned = nil
}

// Device returns where the model computes.
func (m *Model) Device() *gpu.Device { return m.device }

// MaxContext returns the longest context of a session.
func (m *Model) MaxContext() int { return m.context }

// WeightBytes returns the size of the weights as they lie on the device, or in the mapped file on a CPU.
func (m *Model) WeightBytes() int64 { return m.bytes }

// DecodeBytes returns how many bytes of weights one token reads: all matrices, but of an embedding that is not the
// output matrix too just one row.
func (m *Model) DecodeBytes() int64 {
	n := m.bytes
	if !m.Tied {
		n -= m.embedding.Bytes() - m.embedding.Bytes()/int64(m.Vocab)
	}
	return n
}

// CheckIDs returns an error that names the first id outside the vocabulary.
func (c *Config) CheckIDs(ids []int32) error {
	for i, id := range ids {
		if id < 0 || int(id) >= c.Vocab {
			return fmt.Errorf("token id %d at index %d is outside the vocabulary of %d", id, i, c.Vocab)
		}
	}
	return nil
}
