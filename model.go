package vibrant

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"time"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/language/engine"
	"github.com/vibrant-ml/vibrant/tensor"
)

// Info describes a loaded model.
type Info struct {
	Name               string        `json:"name"` // of the metadata, or else of the file
	Architecture       string        `json:"architecture"`
	Parameters         int64         `json:"parameters"`
	Vocab              int           `json:"vocab"`
	Layers             int           `json:"layers"`
	Context            int           `json:"context"` // of a session
	TrainedContext     int           `json:"trained_context"`
	KVType             KVType        `json:"kv_type"`
	HasTokenizer       bool          `json:"has_tokenizer"`
	DecodeBytes        int64         `json:"decode_bytes"`          // of weights that one generated token reads
	CacheBytesPerToken int64         `json:"cache_bytes_per_token"` // of keys and values
	Memory             Memory        `json:"memory"`                // of the weights, and of one session
	LoadTime           time.Duration `json:"load_ns"`               // of bringing the weights to the device
	Taken              int64         `json:"taken"`                 // of a GPU's memory since the model was opened, by whomever; 0 on a CPU
	Device             DeviceInfo    `json:"device"`
	DeviceNote         string        `json:"device_note,omitempty"` // why "auto" took no GPU
	StreamNote         string        `json:"stream_note,omitempty"` // why StreamWherePossible streams no prompts
}

// Memory counts bytes by kind.
type Memory struct {
	Weights   int64 `json:"weights"`            // on a CPU they are the mapped file
	Adapters  int64 `json:"adapters,omitempty"` // that were loaded
	Cache     int64 `json:"cache"`              // keys and values
	Workspace int64 `json:"workspace"`
}

// Total returns the sum.
func (m Memory) Total() int64 { return m.Weights + m.Adapters + m.Cache + m.Workspace }

// Info returns what the model is and where it runs.
func (m *Model) Info() Info {
	c := &m.model.Config
	free, _ := m.free()
	info := Info{
		Name: m.name, Architecture: c.Architecture, Vocab: c.Vocab, Layers: c.Layers,
		Context: m.config.context, TrainedContext: c.Context, KVType: kvName(m.kvType), HasTokenizer: m.tokenizer != nil,
		DecodeBytes: m.decodeBytes(), CacheBytesPerToken: m.cacheTokenBytes(),
		Memory: m.memory(), LoadTime: m.loadTime,
		Device: m.deviceInfo(free), DeviceNote: m.deviceNote, StreamNote: m.where.streamNote,
	}
	if !m.device.Info().HostMemory {
		info.Taken = m.freeBefore - free
	}
	for _, t := range m.file.Tensors() {
		info.Parameters += int64(t.Elements())
	}
	return info
}

// onHost reports whether a device's memory is the host's.
func onHost(d *gpu.Device) bool { return d.Info().HostMemory }

// free returns the memory that all devices have free, on GPUs alone where there are some.
func (m *Model) free() (sum int64, err error) {
	for _, d := range m.devices {
		if onHost(d) && !onHost(m.device) {
			continue
		}
		free, _, err := d.Memory()
		if err != nil {
			return 0, err
		}
		sum += free
	}
	return sum, nil
}

// deviceInfo describes the device; several as one, with their memory and processors together.
func (m *Model) deviceInfo(free int64) DeviceInfo {
	info := deviceInfo(m.device.Info(), free)
	if len(m.devices) > 1 {
		info.ID, info.TotalMemory, info.Multiprocessors = "", 0, 0
	}
	for n, d := range m.devices {
		if len(m.devices) == 1 {
			break
		}
		i := d.Info()
		if n > 0 {
			info.ID += ","
		}
		info.ID += i.ID
		info.TotalMemory += i.TotalMemory
		info.Multiprocessors += i.Multiprocessors
	}
	return info
}

func (m *Model) decodeBytes() (sum int64) {
	for _, rank := range m.model.Ranks() {
		sum += rank.DecodeBytes()
	}
	return sum
}

func (m *Model) cacheTokenBytes() (sum int64) {
	for _, rank := range m.model.Ranks() {
		sum += rank.CacheTokenBytes(m.kvType)
	}
	return sum
}

func kvName(t tensor.DType) KVType {
	switch t {
	case tensor.F32:
		return KVF32
	case tensor.BF16:
		return KVBF16
	case tensor.Q8_0:
		return KVQ8
	}
	return KVF16
}

// Metadata returns all keys and values of the file, in its order.
func (m *Model) Metadata() []KeyValue { return metadata(m.file) }

// Tokenizer returns the model's tokenizer, or ErrNoTokenizer where its file has none.
func (m *Model) Tokenizer() (*Tokenizer, error) {
	if m.tokenizer == nil {
		return nil, ErrNoTokenizer
	}
	return m.tokenizer, nil
}

// CheckIDs returns an error that names the first id outside the vocabulary.
func (m *Model) CheckIDs(ids []int32) error { return m.model.CheckIDs(ids) }

// Logits returns the logits [len(ids)][vocabulary] after each of ids.
func (m *Model) Logits(ctx context.Context, ids []int32) ([][]float32, error) {
	rows := make([][]float32, 0, len(ids))
	err := m.EachLogits(ctx, ids, func(_ int, row []float32) error {
		rows = append(rows, append([]float32(nil), row...))
		return nil
	})
	return rows, err
}

// EachLogits calls f with the logits after each of ids in order. The slice is valid during the call only. It stops at
// the first error that f returns.
func (m *Model) EachLogits(ctx context.Context, ids []int32, f func(i int, logits []float32) error) error {
	return m.withEngine(min(max(len(ids), 1), m.config.context), 32, func(s *engine.Session) error {
		return contextError(s.Logits(ctx, ids, 0, f))
	})
}

// withEngine runs f with a session of its own.
func (m *Model) withEngine(context, logitRows int, f func(*engine.Session) error) error {
	if err := m.life.enter(); err != nil {
		return err
	}
	defer m.life.leave()
	s, err := engine.New(m.model, engine.Options{Context: context, KVType: m.kvType, Chunk: m.config.chunk, LogitRows: logitRows})
	if err != nil {
		return err
	}
	defer s.Close()
	if err := m.startAdapters(s); err != nil {
		return err
	}
	return f(s)
}

// contextError puts the public error in place of the engine's.
func contextError(err error) error {
	if errors.Is(err, engine.ErrContextFull) {
		return wrapped{ErrContextFull, strings.Replace(err.Error(), engine.ErrContextFull.Error(), ErrContextFull.Error(), 1)}
	}
	return err
}

// wrapped is an error with a text of its own.
type wrapped struct {
	error
	text string
}

func (w wrapped) Error() string { return w.text }
func (w wrapped) Unwrap() error { return w.error }

// Profile returns what the operations on the model's device took so far: an error of gpu.ErrInvalid where it was opened without
// WithProfiling.
func (m *Model) Profile() (*gpu.Profile, error) { return m.device.Profile() }

// MeasureBandwidth measures in about half a second how fast the device's memory is, in bytes per second: a GPU's by
// copying (read and written), a CPU's by reading with all of its threads. It is the roofline of generation.
func (m *Model) MeasureBandwidth(ctx context.Context) (float64, error) {
	if err := m.life.enter(); err != nil {
		return 0, err
	}
	defer m.life.leave()
	if m.device.Info().HostMemory {
		return hostBandwidth(ctx, max(1, m.device.Info().Multiprocessors))
	}
	return copyBandwidth(ctx, m.device, 20*time.Millisecond)
}

// displayName returns what to call a model that may not say its name.
func displayName(name, path string) string {
	if name == "" {
		return strings.TrimSuffix(filepath.Base(path), ".gguf")
	}
	return name
}
