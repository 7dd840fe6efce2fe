package model

import (
	"context"
	"fmt"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/tensor"
)

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
// GPU they are copied and rearranged for its kernels, into one piece of memory of exactly their size. The caller closes
// the model.
func Load(ctx context.Context, f *gguf.File, d *gpu.Device, o Options) (_ *Model, err error) {
	c, err := ReadConfig(f)
	if err != nil {
		return nil, err
	}
	if o.Context == 0 {
		o.Context = c.Context
	}
	if o.Context < 1 || o.Context > maxContext {
		return nil, fmt.Errorf("context of %d tokens: want 1 to %d", o.Context, maxContext)
	}
	p, err := c.plan(f, d, o.Context)
	if err != nil {
		return nil, err
	}
	m := &Model{Config: *c, device: d, context: o.Context, layers: make([]layer, c.Layers)}
	defer func() {
		if err != nil {
			m.Close()
		}
	}()
	if m.memory, err = tensor.NewArena(d.Stream(), p.memory); err != nil {
		return nil, err
	}
	l := &loader{model: m, file: f, progress: o.Progress, state: Progress{TotalLayers: c.Layers}}
	for _, w := range p.weights {
		l.state.TotalBytes += w.stored.Bytes
	}
	if err := l.load(ctx, p); err != nil {
		return nil, err
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

// plan says what a model takes on a device.
type plan struct {
	weights []weight
	memory  int64 // bytes of the arena of the weights and tables
	model   int64 // the same with the weights that are used in the file
	staging int64 // of the largest weight that a GPU rearranges: taken while loading only
}

// weight is one tensor of a model on its way to a device.
type weight struct {
	spec
	stored *gguf.Tensor
	inFile bool  // used where it lies
	packed bool  // rearranged by the device
	bytes  int64 // on the device
}

// plan decides where each weight of f goes.
func (c *Config) plan(f *gguf.File, d *gpu.Device, context int) (*plan, error) {
	found, specs, err := c.find(f)
	if err != nil {
		return nil, err
	}
	p := &plan{memory: c.TableBytes(context), model: c.TableBytes(context)}
	for _, s := range specs {
		w := weight{spec: s, stored: found[s.name]}
		t := kernel.DType(w.stored.Type)
		w.bytes = w.stored.Bytes
		switch {
		case s.rows == 0: // vectors become F32
			w.bytes = 4 * int64(s.cols)
			w.inFile = d.Info().HostMemory && t == kernel.F32
			if t != kernel.F32 {
				p.staging = max(p.staging, w.stored.Bytes)
			}
		default:
			packed, err := tensor.PackedSize(d, t, s.rows, s.cols)
			if err != nil {
				return nil, err
			}
			if w.packed = packed > 0; w.packed {
				w.bytes = packed
				p.staging = max(p.staging, w.stored.Bytes)
			} else {
				w.inFile = d.Info().HostMemory
			}
		}
		if w.inFile {
			p.model += w.bytes
		} else {
			p.memory += tensor.Aligned(w.bytes)
			p.model += tensor.Aligned(w.bytes)
		}
		p.weights = append(p.weights, w)
	}
	if d.Info().HostMemory {
		p.staging = 0 // what is rearranged is read in the file
	}
	return p, nil
}

// ModelBytes predicts the memory of the weights and RoPE tables of f on a device, where a CPU uses most of them in the
// mapped file, and how much more is taken while they are loaded.
func (c *Config) ModelBytes(f *gguf.File, d *gpu.Device, context int) (bytes, loading int64, err error) {
	p, err := c.plan(f, d, context)
	if err != nil {
		return 0, 0, err
	}
	return p.model, p.staging, nil
}

// TableBytes returns the size of the RoPE tables for a context.
func (c *Config) TableBytes(context int) int64 {
	return 2 * tensor.Aligned(4*int64(context)*int64(c.RoPE.Dim/2))
}

// loader fills a model by a plan.
type loader struct {
	model    *Model
	file     *gguf.File
	staging  *tensor.Arena // where a weight lies as stored until the device has rearranged it
	progress func(Progress)
	state    Progress
}

// load brings all weights to their places. Those that go to a GPU are read ahead of the copies; each is rearranged in the
// order of the stream, so that the next one may take its place in the staging memory.
func (l *loader) load(ctx context.Context, p *plan) (err error) {
	m := l.model
	if p.staging > 0 {
		if l.staging, err = tensor.NewArena(m.device.Stream(), tensor.Aligned(p.staging)); err != nil {
			return err
		}
		defer l.staging.Free()
	}
	places := m.places()
	var sources []tensor.Source
	for i := range p.weights {
		w := &p.weights[i]
		t, source, err := l.place(w)
		if err != nil {
			return fmt.Errorf("tensor %s: %w", w.name, err)
		}
		*places[w.name] = t
		m.bytes += w.bytes
		if source == nil {
			if err := ctx.Err(); err != nil {
				return err
			}
			l.report(w)
			continue
		}
		finish := source.Then
		source.Then = func() error {
			if finish != nil {
				if err := finish(); err != nil {
					return fmt.Errorf("tensor %s: %w", w.name, err)
				}
			}
			l.report(w)
			return nil
		}
		sources = append(sources, *source)
	}
	m.memoryBytes = p.model
	return tensor.Upload(ctx, m.device.Stream(), sources)
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

// place makes the tensor of a weight. source is what is left to do to fill it, nil where that is done.
func (l *loader) place(w *weight) (t *tensor.Tensor, source *tensor.Source, err error) {
	m, stored := l.model, kernel.DType(w.stored.Type)
	shape := []int{w.rows, w.cols}
	if w.rows == 0 {
		shape = shape[1:]
	}
	if w.inFile {
		if t, err = l.inFile(w, shape); err == nil {
			m.mapped = append(m.mapped, t)
		}
		return t, nil, err
	}
	read := func(dst []byte, offset int64) error { return l.file.ReadTensor(w.stored, dst, offset) }
	var rearrange func(dst, src *tensor.Tensor) error
	switch {
	case w.packed:
		t, err = m.memory.NewPacked(stored, w.rows, w.cols)
		rearrange = tensor.PackInto
	case w.rows == 0 && stored != tensor.F32:
		t, err = m.memory.New(tensor.F32, shape...)
		rearrange = func(dst, src *tensor.Tensor) error {
			return tensor.Try(func() { tensor.ConvertInto(dst, src) })
		}
	default:
		t, err = m.memory.New(stored, shape...)
		return t, &tensor.Source{To: t, Read: read}, err
	}
	if err != nil {
		return nil, nil, err
	}
	if m.device.Info().HostMemory {
		src, err := l.inFile(w, shape)
		if err != nil {
			return nil, nil, err
		}
		defer src.Free()
		return t, nil, rearrange(t, src)
	}
	l.staging.Reset()
	src, err := l.staging.New(stored, shape...)
	return t, &tensor.Source{To: src, Read: read, Then: func() error { return rearrange(t, src) }}, err
}

// inFile returns a weight as it lies in the file, on a device that computes on host memory.
func (l *loader) inFile(w *weight, shape []int) (*tensor.Tensor, error) {
	data, err := l.file.Data(w.stored)
	if err != nil {
		return nil, err
	}
	return tensor.FromMemory(l.model.device, kernel.DType(w.stored.Type), data, l.file, shape...)
}

// report tells the caller that a weight is there, or on its way.
func (l *loader) report(w *weight) {
	l.state.Bytes += w.stored.Bytes
	if layer := 0; l.progress != nil {
		if n, _ := fmt.Sscanf(w.name, "blk.%d.", &layer); n == 1 {
			l.state.Layers = layer + 1
		}
		l.progress(l.state)
	}
}

// table puts a RoPE table [context][Dim/2] on the device.
func (m *Model) table(values []float32) (*tensor.Tensor, error) {
	t, err := m.memory.New(tensor.F32, m.context, m.RoPE.Dim/2)
	if err != nil {
		return nil, err
	}
	return t, t.WriteFloat32s(values)
}
