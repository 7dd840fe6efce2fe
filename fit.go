package vibrant

import (
	"fmt"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/language/engine"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/internal/language/model"
	"github.com/vibrant-ml/vibrant/tensor"
)

// Fit predicts the memory that a model with one session takes.
type Fit struct {
	Device         string `json:"device"`
	Context        int    `json:"context"`
	KVType         KVType `json:"kv_type"`
	Memory         Memory `json:"memory"`
	Limit          int64  `json:"limit"` // what may be used: the memory fraction, and on a GPU no more than is free
	Fits           bool   `json:"fits"`
	LargestContext int    `json:"largest_context"` // that would fit, at most the model's own; 0 if none

	name   string
	kvType tensor.DType
}

// PredictFit computes what Open with these options and NewSession would take, without loading.
func PredictFit(path string, options ...Option) (*Fit, error) {
	c, err := newConfig(options)
	if err != nil {
		return nil, err
	}
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	d, _, err := c.open()
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return predict(f, d, c)
}

func predict(f *gguf.File, d *gpu.Device, c config) (*Fit, error) {
	if err := isModel(f); err != nil {
		return nil, err
	}
	shape, err := model.ReadConfig(f)
	if err != nil {
		return nil, err
	}
	p := &Fit{Device: d.Info().ID, Context: c.context, name: shape.Name, kvType: tensor.F16}
	if p.Context == 0 {
		p.Context = min(shape.Context, DefaultContext)
		if c.enough > 0 {
			p.Context = min(p.Context, c.enough)
		}
	}
	switch {
	case c.kvType == KVF32 || c.kvType == KVAuto && allF32(f):
		p.kvType = tensor.F32
	case c.kvType == KVBF16:
		p.kvType = tensor.BF16
	case c.kvType == KVQ8:
		p.kvType = tensor.Q8_0
	}
	if err := shape.CheckCacheType(p.kvType); err != nil {
		return nil, err
	}
	p.KVType = kvName(p.kvType)
	free, total, err := d.Memory()
	if err != nil {
		return nil, err
	}
	p.Limit = int64(c.memoryFraction * float64(total))
	if !d.Info().HostMemory {
		p.Limit = min(p.Limit, free)
	}
	weights, loading, err := shape.ModelBytes(f, d, p.Context)
	if err != nil {
		return nil, err
	}
	weights -= shape.TableBytes(p.Context)
	adapters, err := shape.AdapterBytes(adapterPaths(c.adapters))
	if err != nil {
		return nil, err
	}
	need := func(context int) Memory {
		return sessionMemory(shape, d, weights+shape.TableBytes(context), adapters, context, c.chunk, p.kvType)
	}
	// While it is loaded, the largest weight is there twice, but no session yet.
	most := func(context int) int64 {
		m := need(context)
		return m.Weights + m.Adapters + max(m.Cache+m.Workspace, loading)
	}
	p.Memory = need(p.Context)
	p.Fits = most(p.Context) <= p.Limit
	// The need grows with the context: bisect for the largest that fits. Where layers begin to keep a window alone it falls once,
	// so that what is found fits, and may be less than the largest.
	// More than the model was trained on is never suggested.
	low, high := 0, shape.Context
	for low < high {
		middle := (low + high + 1) / 2
		if most(middle) <= p.Limit {
			low = middle
		} else {
			high = middle - 1
		}
	}
	p.LargestContext = low
	return p, nil
}

// sessionMemory returns what a model and one session take, where there are adapters with these active.
func sessionMemory(shape *model.Config, d *gpu.Device, weights, adapters int64, context, chunk int, kv tensor.DType) Memory {
	cache, workspace := engine.SessionBytes(shape, d, engine.Options{Context: context, Chunk: chunk, KVType: kv, Adapters: adapters > 0})
	return Memory{Weights: weights, Adapters: adapters, Cache: cache, Workspace: workspace}
}

// memory returns what the model and one session take, as PredictFit foretells it.
func (m *Model) memory() Memory {
	return sessionMemory(&m.model.Config, m.device, m.model.Bytes(), m.model.AdapterMemory(), m.config.context, m.config.chunk, m.kvType)
}

// allF32 reports whether all matrices are F32: then a cache in F16 would be the least exact part.
func allF32(f *gguf.File) bool {
	for _, t := range f.Tensors() {
		if len(t.Dims) > 1 && t.Type != gguf.F32 {
			return false
		}
	}
	return true
}

// err returns ErrDoesNotFit with the numbers where the model does not fit.
func (p *Fit) err() error {
	if p.Fits {
		return nil
	}
	m := p.Memory
	text := fmt.Sprintf("%v on %s: weights %.2f GB, cache %.2f GB (context %d), workspace %.2f GB make %.2f GB of %.2f GB",
		ErrDoesNotFit, p.Device, gb(m.Weights+m.Adapters), gb(m.Cache), p.Context, gb(m.Workspace), gb(m.Total()), gb(p.Limit))
	if p.LargestContext > 0 {
		text += fmt.Sprintf("; a context of %d (--ctx %d) would fit", p.LargestContext, p.LargestContext)
	}
	return wrapped{ErrDoesNotFit, text}
}

func gb(n int64) float64 { return float64(n) / 1e9 }
