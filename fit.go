package vibrant

import (
	"fmt"
	"slices"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/language/engine"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/internal/language/model"
	"github.com/vibrant-ml/vibrant/tensor"
)

// Fit predicts the memory that a model with one session takes; of a model on several devices, their sum, and beside it each one's.
type Fit struct {
	Device         string `json:"device"`
	Context        int    `json:"context"`
	KVType         KVType `json:"kv_type"`
	Memory         Memory `json:"memory"`
	Limit          int64  `json:"limit"` // what may be used: the memory fraction, and on a GPU no more than is free
	Fits           bool   `json:"fits"`
	LargestContext int    `json:"largest_context"` // that would fit, at most the model's own; 0 if none
	TrainedContext int    `json:"trained_context"` // that the model was trained on: beyond it the model may answer nonsense

	Devices    []DeviceFit `json:"devices,omitempty"`     // of a model on several
	StreamNote string      `json:"stream_note,omitempty"` // as of Info

	each   []DeviceFit // Devices, or the only one
	name   string
	chunk  int
	kvType tensor.DType
}

// DeviceFit is what one of several devices needs and has.
type DeviceFit struct {
	Device  string `json:"device"`
	Memory  Memory `json:"memory"`
	Limit   int64  `json:"limit"` // what may be used, as of Fit
	Free    int64  `json:"free"`  // bytes, now
	Fits    bool   `json:"fits"`
	Layers  int    `json:"layers,omitempty"`  // that it has, where each device has some
	Experts int    `json:"experts,omitempty"` // layers of other devices whose routed experts it has

	card bool // no CPU
}

// ofCards returns the plan of each GPU.
func (p *Fit) ofCards() []DeviceFit {
	return slices.DeleteFunc(slices.Clone(p.each), func(d DeviceFit) bool { return !d.card })
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
	where, err := c.place(f, c.open)
	if err != nil {
		return nil, err
	}
	defer closeDevices(where.devices)
	return predict(f, where, c)
}

// readShape reads the shape of a model, or says why a file is none.
func readShape(f *gguf.File) (*model.Config, error) {
	if err := isModel(f); err != nil {
		return nil, err
	}
	return model.ReadConfig(f)
}

func predict(f *gguf.File, where placement, c config) (*Fit, error) {
	shape, err := readShape(f)
	if err != nil {
		return nil, err
	}
	return predictShape(f, shape, where, c)
}

func predictShape(f *gguf.File, shape *model.Config, where placement, c config) (*Fit, error) {
	devices := where.devices
	if c.chunk == 0 && where.pipelined() {
		c.chunk = engine.StageChunk
	}
	p := &Fit{
		Context: c.context, TrainedContext: shape.Context, StreamNote: where.streamNote, chunk: c.chunk, name: shape.Name, kvType: tensor.F16,
	}
	if p.Context == 0 {
		p.Context = min(shape.Context, DefaultContext)
		if c.enough > 0 {
			p.Context = min(p.Context, c.enough)
		}
	}
	switch {
	case c.kvType == KVF32 || c.kvType == KVAuto && (allF32(f) || shape.Rounds()):
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
	if len(devices) > 1 && len(c.adapters) > 0 {
		return nil, fmt.Errorf("adapters of a model on %d devices are not supported", len(devices))
	}
	parts, err := shape.PartsOf(f, len(devices), where.Placement, where.ranks)
	if err != nil {
		return nil, err
	}
	var ranks []*rankFit
	p.Fits, p.LargestContext = true, shape.Context
	for i, part := range parts {
		r, err := fitRank(f, part, devices[i], where.exchanging(), p, c)
		if err != nil {
			return nil, err
		}
		ranks = append(ranks, r)
	}
	for i, r := range ranks {
		d := DeviceFit{
			Device: devices[i].Info().ID, Memory: r.need(p.Context), Limit: r.limit, Free: r.free, Fits: r.most(p.Context) <= r.limit,
			card: !onHost(devices[i]),
		}
		if i > 0 {
			p.Device += ","
		}
		p.Device += d.Device
		p.Memory.Weights += d.Memory.Weights
		p.Memory.Adapters += d.Memory.Adapters
		p.Memory.Cache += d.Memory.Cache
		p.Memory.Workspace += d.Memory.Workspace
		p.Limit += d.Limit
		p.Fits = p.Fits && d.Fits
		p.LargestContext = min(p.LargestContext, r.largest(shape.Context))
		if where.Layers != nil {
			d.Layers = where.Layers[i]
		}
		if i == 0 && where.Experts > 0 {
			d.Experts = max(0, where.Experts-where.Layers[0])
		}
		p.each = append(p.each, d)
	}
	if len(ranks) > 1 {
		p.Devices = p.each
	}
	return p, nil
}

// rankFit is what one device needs for its part of a model, by the context.
type rankFit struct {
	need  func(context int) Memory
	most  func(context int) int64 // while it is loaded, or with a session
	limit int64
	free  int64
}

func fitRank(f *gguf.File, shape *model.Config, d *gpu.Device, ranks int, p *Fit, c config) (*rankFit, error) {
	free, total, err := d.Memory()
	if err != nil {
		return nil, err
	}
	r := &rankFit{limit: int64(c.memoryFraction * float64(total)), free: free}
	if !d.Info().HostMemory {
		r.limit = min(r.limit, free)
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
	r.need = func(context int) Memory {
		return sessionMemory(shape, d, ranks, weights+shape.TableBytes(context), adapters, context, c.chunk, p.kvType)
	}
	// While it is loaded, the largest weight is there twice, but no session yet.
	r.most = func(context int) int64 {
		m := r.need(context)
		return m.Weights + m.Adapters + max(m.Cache+m.Workspace, loading)
	}
	return r, nil
}

// largest returns the largest context that fits, at most that of the model: more than it was trained on is never suggested. The
// need grows with the context, but falls once where layers begin to keep a window alone: what is found fits, and may be less than
// the largest.
func (r *rankFit) largest(context int) int {
	low, high := 0, context
	for low < high {
		middle := (low + high + 1) / 2
		if r.most(middle) <= r.limit {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return low
}

// sessionMemory returns what a model and one session take, where there are adapters with these active.
func sessionMemory(shape *model.Config, d *gpu.Device, ranks int, weights, adapters int64, context, chunk int, kv tensor.DType) Memory {
	cache, workspace := engine.SessionBytes(shape, d, engine.Options{Context: context, Chunk: chunk, KVType: kv, Adapters: adapters > 0})
	if !d.Info().HostMemory {
		workspace += gpu.CommunicatorBytes(ranks)
	}
	return Memory{Weights: weights, Adapters: adapters, Cache: cache, Workspace: workspace}
}

// memory returns what the model and one session take, as PredictFit foretells it.
func (m *Model) memory() (sum Memory) {
	ranks := m.model.Ranks()
	for _, r := range ranks {
		one := sessionMemory(&r.Config, r.Device(), m.where.exchanging(), r.Bytes(), r.AdapterMemory(), m.config.context, m.config.chunk, m.kvType)
		sum.Weights += one.Weights
		sum.Adapters += one.Adapters
		sum.Cache += one.Cache
		sum.Workspace += one.Workspace
	}
	return sum
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
	device, m, limit := p.Device, p.Memory, p.Limit
	if i := slices.IndexFunc(p.each, func(d DeviceFit) bool { return !d.Fits }); i >= 0 {
		device, m, limit = p.each[i].Device, p.each[i].Memory, p.each[i].Limit
	}
	text := fmt.Sprintf("%v on %s: weights %.2f GB, cache %.2f GB (context %d), workspace %.2f GB make %.2f GB of %.2f GB",
		ErrDoesNotFit, device, gb(m.Weights+m.Adapters), gb(m.Cache), p.Context, gb(m.Workspace), gb(m.Total()), gb(limit))
	if p.LargestContext > 0 {
		text += fmt.Sprintf("; a context of %d (--ctx %d) would fit", p.LargestContext, p.LargestContext)
	}
	return wrapped{ErrDoesNotFit, text}
}

func gb(n int64) float64 { return float64(n) / 1e9 }
