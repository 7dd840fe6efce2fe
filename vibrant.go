// Package vibrant runs GGUF language models in-process, on NVIDIA GPUs and CPUs.
//
//	model, err := vibrant.Open(ctx, "model.gguf")
//	...
//	defer model.Close()
//	session, err := model.NewSession()
//	...
//	for token, err := range session.Send(ctx, "What is Vibrant?") {
//		...
//		fmt.Print(token.Text)
//	}
//
// A Model may be used from any number of goroutines, each with Sessions of its own, which share the weights. A Batch
// generates up to 64 answers together, a token of each in one pass over the weights. Weights stay
// as the file has them: quantized ones are decoded inside the kernels. Architectures lists which models are computed.
package vibrant

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/cgroup"
	"github.com/vibrant-ml/vibrant/internal/language/chat"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/internal/language/model"
	"github.com/vibrant-ml/vibrant/internal/language/tokenizer"
	"github.com/vibrant-ml/vibrant/internal/mapped"
	"github.com/vibrant-ml/vibrant/internal/phase"
	"github.com/vibrant-ml/vibrant/tensor"
)

// Version is the version of this module and of libvibrant.
const Version = "0.1.0"

// Backends lists the kinds of devices that this build has kernels for: "go" or "c", and "cuda".
func Backends() []string {
	var names []string
	if d, err := gpu.Open("cpu"); err == nil {
		names = append(names, d.Info().Backend)
		d.Close()
	}
	d, err := gpu.Open("cuda")
	if err == nil {
		d.Close()
	}
	if !errors.Is(err, gpu.ErrNotCompiled) {
		names = append(names, "cuda")
	}
	return names
}

// DefaultContext is the context where none is asked for and the model was trained on more: a cache for all of it could
// take more memory than the weights.
const DefaultContext = 4096

// KVType is the type that keys and values are kept in.
type KVType string

const (
	KVAuto KVType = "auto" // F32 for models whose matrices all are F32 or multiply rounded inputs (BitNet), else F16
	KVF16  KVType = "f16"  // two bytes an element
	KVF32  KVType = "f32"  // four bytes an element
	// KVBF16 takes the memory of F16, and has the range of F32 with 8 bits of precision.
	KVBF16 KVType = "bf16"
	// KVQ8 takes a little more than half the memory of F16, so that longer texts fit: blocks of Q8_0, 32 values of a head share a
	// scale. Heads must have a multiple of 32 elements.
	KVQ8 KVType = "q8_0"
)

// ParseKVType reads "auto", "f16", "f32", "bf16" or "q8_0".
func ParseKVType(s string) (KVType, error) {
	switch t := KVType(s); t {
	case KVAuto, KVF16, KVF32, KVBF16, KVQ8:
		return t, nil
	}
	return "", fmt.Errorf("unknown cache type %q: want auto, f16, f32, bf16 or q8_0", s)
}

type config struct {
	device         string
	context        int
	enough         int // tokens that no session will exceed, 0 where nobody knows
	threads        int
	chunk          int
	memoryFraction float64
	kvType         KVType
	progress       func(Progress)
	preTokenizer   string
	adapters       []adapterChoice
	profiling      bool
	gpuLayers      *int // nil: all layers are on the devices
	cpuExperts     int  // layers whose experts are in RAM
	streamFrom     int  // of WithStreamedPrompts
	layerSplit     bool
	opened         []*gpu.Device // in place of device: for tests
	ranks          *gpu.RanksConfig
}

// Option adjusts Open.
type Option func(*config)

// WithDevice chooses the device: "cpu"; "cuda" (also "gpu" or "metal") for the first GPU, "cuda:1" for another; or
// "auto", the default, for the first GPU where there is one and else the CPU. What a model computes on a GPU never runs
// elsewhere: its device is strict (gpu.Device.SetStrict). Several GPUs of a host, "cuda:0,cuda:1", compute each token together: see
// WithDevices.
func WithDevice(name string) Option { return func(c *config) { c.device = name } }

// WithDevices divides the model among several GPUs of this host, which must reach each other's memory (NVLink, or PCIe with peer
// access): "cuda:0", "cuda:1". Each has a part of the heads, of the inner columns of feed-forwards and experts, and of the output
// matrix. Numbers that do not divide are an error that says by how many devices they would. Without adapters, and caches of
// conversations are not saved.
func WithDevices(names ...string) Option { return WithDevice(strings.Join(names, ",")) }

// WithContext sets how many tokens a session can hold. The default 0 means what the model was trained on, at most
// DefaultContext.
func WithContext(tokens int) Option { return func(c *config) { c.context = tokens } }

// WithEnoughContext says that no session will hold more tokens: where WithContext asks for none, the context is not longer. The
// cache then takes no more than it needs, and models with other rotations for long contexts (LongRoPE) keep those of short ones.
func WithEnoughContext(tokens int) Option { return func(c *config) { c.enough = tokens } }

// WithMemoryFraction caps what is used of the device's memory; the default 0 means 0.8.
func WithMemoryFraction(f float64) Option { return func(c *config) { c.memoryFraction = f } }

// WithThreads sets the threads of a CPU; the default 0 means one a core.
func WithThreads(n int) Option { return func(c *config) { c.threads = n } }

// WithKVType sets the type that keys and values are kept in; the default is KVAuto.
func WithKVType(t KVType) Option { return func(c *config) { c.kvType = t } }

// WithPrefillChunk sets how many tokens of a prompt are computed at once; the default 0 means 2048 on Hopper GPUs, else
// 512.
func WithPrefillChunk(tokens int) Option { return func(c *config) { c.chunk = tokens } }

// WithPreTokenizer has text cut by this rule (a value of tokenizer.ggml.pre, such as "qwen2") whatever the file names: for
// a file whose own rule is unknown, which else is an error. A wrong rule makes other tokens than the model was trained on.
func WithPreTokenizer(name string) Option { return func(c *config) { c.preTokenizer = name } }

// WithProgress has f called as loading goes on, from the goroutine of Open.
func WithProgress(f func(Progress)) Option { return func(c *config) { c.progress = f } }

// Progress says how far loading has come.
type Progress struct {
	Bytes, TotalBytes   int64 // of weights that are on the device, and of all
	Layers, TotalLayers int   // that are complete, and of all
}

// WithProfiling times every operation on the model's device: see Model.Profile. The model runs slower then, and on one device only.
func WithProfiling() Option { return func(c *config) { c.profiling = true } }

func newConfig(options []Option) (config, error) {
	c := config{device: "auto", kvType: KVAuto}
	for _, o := range options {
		o(&c)
	}
	if c.kvType == "" {
		c.kvType = KVAuto
	}
	if _, err := ParseKVType(string(c.kvType)); err != nil {
		return c, err
	}
	if c.context < 0 || c.threads < 0 || c.chunk < 0 {
		return c, fmt.Errorf("context %d, threads %d, prefill chunk %d: none may be negative", c.context, c.threads, c.chunk)
	}
	if !(c.memoryFraction >= 0 && c.memoryFraction <= 1) {
		return c, fmt.Errorf("memory fraction %v: want 0 to 1", c.memoryFraction)
	}
	if c.memoryFraction == 0 {
		c.memoryFraction = 0.8
	}
	if c.gpuLayers != nil && *c.gpuLayers < GPULayersAuto {
		return c, fmt.Errorf("%d layers on the GPU: want 0 or more", *c.gpuLayers)
	}
	if c.streamFrom < StreamWherePossible {
		return c, fmt.Errorf("streamed prompts of %d tokens: want 1 or more", c.streamFrom)
	}
	if c.streamFrom != 0 && c.streamFrom != StreamWherePossible && c.gpuLayers == nil && c.cpuExperts == 0 {
		return c, errors.New("streamed prompts, and no part of the model in RAM (--gpu-layers, --cpu-moe)")
	}
	if c.cpuExperts < 0 {
		return c, fmt.Errorf("the experts of %d layers in RAM: want 1 or more", c.cpuExperts)
	}
	if err := checkAdapters(c.adapters); err != nil {
		return c, err
	}
	return c, nil
}

func (c *config) open() ([]*gpu.Device, string, error) {
	if c.opened != nil {
		return c.opened, "", nil
	}
	return openDevices(c.device, c.deviceOptions()...)
}

func (c *config) deviceOptions() []gpu.Option {
	o := []gpu.Option{gpu.WithThreads(c.threads), gpu.WithPoolFraction(c.memoryFraction)}
	if c.profiling {
		o = append(o, gpu.WithProfiling())
	}
	return o
}

// Model is a language model on a device.
type Model struct {
	config     config
	name       string
	file       *gguf.File
	where      placement
	devices    []*gpu.Device // of it
	ranks      *gpu.Ranks    // the processes that the model is divided among; nil for this one alone
	device     *gpu.Device   // that a session's tokens are on
	deviceNote string
	model      *model.Model
	kvType     tensor.DType
	loadTime   time.Duration
	freeBefore int64      // bytes that the device had free when it was opened
	tokenizer  *Tokenizer // nil: the file has none
	template   *chat.Template
	adapters   []ActiveAdapter // of WithAdapter
	life       lifetime

	fingerprintOnce sync.Once
	fingerprint     string // of the file, "" before it is asked for
	fingerprintErr  error

	mu    sync.Mutex
	owned map[io.Closer]struct{} // open sessions and batches of the engine
}

// own has the model close something when it is closed itself, and returns what closes it before.
func (m *Model) own(c io.Closer) (release func() error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.owned[c] = struct{}{}
	return func() error {
		m.mu.Lock()
		_, open := m.owned[c] // not if the model has closed it
		delete(m.owned, c)
		m.mu.Unlock()
		if !open {
			return nil
		}
		return c.Close()
	}
}

// Open loads a model from a GGUF file; the path "" means the one of RegisterDefault. The caller closes it.
//
// Likely errors: a file that is missing, damaged or of an architecture or tensor type that is not supported;
// ErrUnknownDevice; gpu.ErrNotCompiled and gpu.ErrNoDevice where a GPU was asked for; ErrDoesNotFit; ErrNoModel; the
// error of ctx.
func Open(ctx context.Context, path string, options ...Option) (*Model, error) {
	c, err := newConfig(options)
	if err != nil {
		return nil, err
	}
	if _, err := deviceKinds(c.device); err != nil {
		return nil, err
	}
	return open(ctx, func() (*gguf.File, error) { return openFile(path) }, path, c)
}

// OpenBytes is Open for a GGUF file in memory, which must not change while the model is open.
func OpenBytes(ctx context.Context, data []byte, options ...Option) (*Model, error) {
	c, err := newConfig(options)
	if err != nil {
		return nil, err
	}
	return open(ctx, func() (*gguf.File, error) { return gguf.FromBytes(data) }, "", c)
}

// openFile opens a GGUF file, or the registered one.
func openFile(path string) (*gguf.File, error) {
	if path == "" {
		data := embedded()
		if len(data) == 0 {
			return nil, ErrNoModel
		}
		return gguf.FromBytes(data)
	}
	return gguf.Open(path)
}

func open(ctx context.Context, openFile func() (*gguf.File, error), path string, c config) (_ *Model, err error) {
	m := &Model{config: c, owned: map[io.Closer]struct{}{}}
	m.life.release = m.release
	if m.ranks, err = m.config.join(ctx); err != nil {
		return nil, err
	}
	open := m.config.open
	// Ranks have their devices by their numbers. Where the address space is limited, what the file and the devices ask for ahead would
	// not fit at once.
	if m.ranks == nil && !mapped.Limited() {
		ahead := m.config.openAhead()
		defer ahead.drop()
		open = ahead.take
	}
	f, err := openFile()
	if err != nil {
		m.failRanks(err)
		m.ranks.Close()
		return nil, err
	}
	m.file = f
	phase.Done("model file opened")
	defer func() {
		if err != nil {
			m.failRanks(err)
			m.Close()
			if path != "" {
				err = fmt.Errorf("%s: %w", path, err)
			}
		}
	}()
	shape, err := m.read(f)
	if err != nil {
		return nil, err
	}
	fit, err := m.plan(f, shape, open)
	if err != nil {
		return nil, err
	}
	m.name = displayName(fit.name, path)
	if err := m.load(ctx, f, shape, fit); err != nil {
		return nil, err
	}
	return m, nil
}

// read takes the tokenizer, the chat template and the model's shape from its file.
func (m *Model) read(f *gguf.File) (*model.Config, error) {
	t, err := tokenizer.FromGGUF(f, m.config.preTokenizer)
	if err == nil {
		m.tokenizer = &Tokenizer{t}
	} else if !errors.Is(err, tokenizer.ErrNoVocab) {
		return nil, err
	}
	phase.Done("tokenizer read")
	if m.template, err = chatTemplate(f, m.tokenizer); err != nil {
		return nil, err
	}
	phase.Done("chat template read")
	shape, err := readShape(f)
	if err != nil {
		return nil, err
	}
	phase.Done("shape read")
	return shape, nil
}

// plan opens the devices, agrees with other ranks, and holds that the model fits.
func (m *Model) plan(f *gguf.File, shape *model.Config, open func() ([]*gpu.Device, string, error)) (*Fit, error) {
	c := &m.config
	var err error
	if m.ranks != nil {
		if c.device, err = c.rankDevice(); err != nil {
			return nil, err
		}
	}
	where, err := c.place(f, open)
	if err != nil {
		return nil, err
	}
	where.ranks = m.ranks
	m.where, m.devices, m.device, m.deviceNote = where, where.devices, where.leader(), where.note
	if m.ranks != nil {
		if err := m.agree(f, c); err != nil {
			return nil, err
		}
	}
	if m.freeBefore, err = m.free(); err != nil {
		return nil, err
	}
	fit, err := predictShape(f, shape, where, *c)
	if err != nil {
		return nil, err
	}
	if err := fit.err(); err != nil {
		return nil, err
	}
	for _, d := range m.devices {
		if !d.Info().HostMemory {
			d.SetStrict(true)
		}
	}
	phase.Done("memory predicted")
	m.kvType = fit.kvType
	c.context, c.chunk = fit.Context, fit.chunk
	return fit, nil
}

// load brings the weights to the devices, and the adapters of WithAdapter.
func (m *Model) load(ctx context.Context, f *gguf.File, shape *model.Config, fit *Fit) (err error) {
	if onHost(m.device) {
		f.Fetch(min(m.freeBefore, cgroup.MemoryLimit()) / 4 * 3) // a larger file would drive out its own pages
	}
	start := time.Now()
	load := model.Options{Config: shape, Context: fit.Context, Placement: m.where.Placement, Ranks: m.ranks}
	if progress := m.config.progress; progress != nil {
		load.Progress = func(p model.Progress) { progress(Progress(p)) }
	}
	onGPUs, summed := !slices.ContainsFunc(m.devices, onHost), make(chan struct{})
	go func() { // while weights are copied
		defer close(summed)
		if onGPUs {
			m.fingerprint, m.fingerprintErr = fingerprint(f)
		}
	}()
	m.model, err = model.LoadSplit(ctx, f, m.devices, load)
	<-summed
	if err != nil {
		return err
	}
	if adapters := m.config.adapters; len(adapters) > 0 {
		loaded, err := m.LoadAdapters(ctx, adapterPaths(adapters)...)
		if err != nil {
			return err
		}
		for i, a := range loaded {
			m.adapters = append(m.adapters, a.At(adapters[i].scale))
		}
	}
	if m.ranks != nil { // until all have loaded
		if err := m.ranks.Group().Agree(nil, nil); err != nil {
			return err
		}
	}
	m.loadTime = time.Since(start)
	phase.Done("model loaded")
	if onGPUs {
		f.Close() // the weights are there; what is kept of the file was copied
	}
	return nil
}

// Close gives the model's memory back, and that of its sessions. Answers under way end with ErrClosed. Closing nil
// or twice is harmless.
func (m *Model) Close() error {
	if m == nil {
		return nil
	}
	return m.life.close()
}

func (m *Model) release() error {
	m.mu.Lock()
	for c := range m.owned {
		c.Close()
	}
	m.owned = nil
	m.mu.Unlock()
	if m.model != nil {
		m.model.Close()
	}
	m.ranks.Close()
	err := closeDevices(m.devices)
	if e := m.file.Close(); err == nil {
		err = e
	}
	return err
}
