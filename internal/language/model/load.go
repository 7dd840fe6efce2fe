package model

import (
	"context"
	"errors"
	"fmt"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/internal/phase"
	"github.com/vibrant-ml/vibrant/tensor"
)

// Progress says how far loading has come.
type Progress struct {
	Bytes, TotalBytes   int64 // of weights
	Layers, TotalLayers int
}

// Options of Load.
type Options struct {
	Config   *Config        // of the file; nil: it is read
	Context  int            // the longest context of any session, 0 for the model's own
	Progress func(Progress) // may be nil
	Ranks    *gpu.Ranks     // processes that compute every layer together, each on one device; nil for this one alone

	Placement // on several devices
}

// Load brings the weights of f to a device: a CPU reads them in the file, which must stay open as long as the model; to
// a GPU they are copied and rearranged for its kernels, into one piece of memory of exactly their size. The caller
// closes the model.
func Load(ctx context.Context, f *gguf.File, d *gpu.Device, o Options) (*Model, error) {
	return LoadSplit(ctx, f, []*gpu.Device{d}, o)
}

// Parts returns what each of so many devices computes: Stages, or a part of every layer (Split).
func (c *Config) Parts(f *gguf.File, devices int, p Placement) ([]*Config, error) {
	if p.Layers == nil {
		return c.Split(f, devices)
	}
	if len(p.Layers) != devices {
		return nil, fmt.Errorf("layers of %d devices, %d devices", len(p.Layers), devices)
	}
	return c.Stages(f, p)
}

// PartsOf is Parts where ranks in other processes may have the others: then the part of this one.
func (c *Config) PartsOf(f *gguf.File, devices int, p Placement, ranks *gpu.Ranks) ([]*Config, error) {
	if ranks == nil || ranks.Size() == 1 {
		return c.Parts(f, devices, p)
	}
	if devices > 1 || p.Layers != nil {
		return nil, fmt.Errorf("%d devices of a rank: want one", devices)
	}
	parts, err := c.Split(f, ranks.Size())
	if err != nil {
		return nil, err
	}
	return parts[ranks.Rank():][:1], nil
}

// LoadSplit is Load for several devices, which compute each pass together: Config.Parts says how. Each reads its part of
// the file. The model is used as one on the first device is, or of stages as one on the last.
func LoadSplit(ctx context.Context, f *gguf.File, devices []*gpu.Device, o Options) (_ *Model, err error) {
	c := o.Config
	if c == nil {
		if c, err = ReadConfig(f); err != nil {
			return nil, err
		}
	}
	if o.Context == 0 {
		o.Context = c.Context
	}
	if o.Context < 1 || o.Context > maxContext {
		return nil, fmt.Errorf("context of %d tokens: want 1 to %d", o.Context, maxContext)
	}
	if positions := c.weights.positions; positions != nil && o.Context > positions.rows {
		return nil, fmt.Errorf("context of %d tokens: the model has embeddings of %d positions",
			o.Context, positions.rows)
	}
	parts, err := c.PartsOf(f, len(devices), o.Placement, o.Ranks)
	if err != nil {
		return nil, err
	}
	if o.Ranks != nil && o.Ranks.Size() > 1 {
		if _, err := o.Ranks.ExchangeOf(devices[0]); err != nil {
			return nil, err
		}
	}
	if o.Layers == nil && len(devices) > 1 {
		if err := reachEachOther(devices); err != nil {
			return nil, err
		}
	}
	progress := &loading{report: o.Progress, state: Progress{TotalLayers: c.Layers}}
	var ranks []*Model
	defer func() {
		if err != nil {
			for _, m := range ranks {
				m.Close()
			}
		}
	}()
	plans := make([]*plan, len(parts))
	for rank, part := range parts {
		if plans[rank], err = part.plan(f, devices[rank], o.Context); err != nil {
			return nil, err
		}
		for _, w := range plans[rank].weights {
			progress.state.TotalBytes += w.size
		}
	}
	phase.Done("weights planned")
	for rank, part := range parts {
		m := &Model{Config: *part, device: devices[rank], context: o.Context}
		if devices[rank].Info().HostMemory {
			m.file = f
		}
		ranks = append(ranks, m)
		if err := m.fill(ctx, f, plans[rank], progress); err != nil {
			return nil, err
		}
	}
	leader := ranks[0]
	if o.Layers != nil { // the last stage has the logits
		leader = ranks[len(ranks)-1]
		leader.followers, leader.staged = ranks[:len(ranks)-1], len(ranks) > 1
	} else {
		leader.followers = ranks[1:]
	}
	if o.Ranks != nil && o.Ranks.Size() > 1 {
		if o.Ranks.Rank() > 0 {
			leader.leader = o.Ranks
		} else {
			leader.world = &world{ranks: o.Ranks, sessions: map[*gpu.Communicator]*session{}}
		}
	}
	return leader, f.Intact()
}

// reachEachOther says why devices cannot compute together, before they load anything.
func reachEachOther(devices []*gpu.Device) error {
	var streams []*gpu.Stream
	for _, d := range devices {
		streams = append(streams, d.Stream())
	}
	c, err := gpu.NewCommunicator(streams...)
	if errors.Is(err, gpu.ErrUnsupported) {
		return fmt.Errorf("%w; devices with whole layers each need no such access (--split layer)", err)
	}
	if err != nil {
		return err
	}
	return c.Close()
}

// fill brings weights and tables to the device.
func (m *Model) fill(ctx context.Context, f *gguf.File, p *plan, progress *loading) (err error) {
	if m.memory, err = tensor.NewArena(m.device.Stream(), p.memory); err != nil {
		return err
	}
	phase.Done("memory of the weights allocated")
	angles := m.anglesAhead()
	l := &loader{model: m, file: f, progress: progress}
	if err := l.load(ctx, p); err != nil {
		return err
	}
	phase.Done("weights copied")
	for _, r := range m.graph.ropes {
		values := <-angles
		var t ropeTables
		if t.cos, err = m.table(values.cos, r.Dim/2); err != nil {
			return err
		}
		if t.sin, err = m.table(values.sin, r.Dim/2); err != nil {
			return err
		}
		m.tables = append(m.tables, t)
	}
	if p.streams != nil {
		if m.streamer, err = m.newStreamer(f, p.streams); err != nil {
			return err
		}
	}
	return m.device.Stream().Synchronize()
}

// Intact returns gguf.ErrFileChanged where the file that weights are used in was cut short or grew: what was computed may be wrong.
func (m *Model) Intact() error {
	for _, rank := range m.Ranks() {
		if rank.file != nil {
			return rank.file.Intact()
		}
	}
	return nil
}

// plan says what a model takes on a device.
type plan struct {
	weights []placement
	memory  int64       // bytes of the arena of the weights and tables
	model   int64       // the same with the weights that are used in the file
	staging int64       // of the largest weight that a GPU rearranges: taken while loading only
	streams *streamPlan // of weights that are lent, nil for none
}

// placement is a weight on its way to a device.
type placement struct {
	*weight
	stored *gguf.Tensor
	from   pieces // of the file's tensor
	size   int64  // bytes of them
	inFile bool   // used where it lies
	packed bool   // rearranged by the device
	halves bool   // in F16 on the device
	bytes  int64  // on the device
}

// inFileAlignment is how tensors used in the file must be aligned: those of a file are, their parts need not be.
const inFileAlignment = 16

// plan decides where each weight of f goes. The packed form of some types takes up to twice the memory: they stay as stored
// where all together would take most of the device's, which is then to hold a model that just fits.
func (c *Config) plan(f *gguf.File, d *gpu.Device, context int) (*plan, error) {
	found, err := c.find(f)
	if err != nil {
		return nil, err
	}
	p, err := c.place(found, d, context, true)
	if total := d.Info().TotalMemory; err == nil && total > 0 && p.memory > total/10*6 {
		return c.place(found, d, context, false)
	}
	return p, err
}

// exactColumns are those up to which BitNet's matrices of other types than two bits stay as stored: packed, a GPU rounds what they
// multiply to int8 once more, which is no faster for so few.
const exactColumns = 256

// place is plan; without `roomy` no packed form is larger than stored by more than a quarter.
func (c *Config) place(found map[string]*gguf.Tensor, d *gpu.Device, context int, roomy bool) (*plan, error) {
	p := &plan{memory: c.TableBytes(context), model: c.TableBytes(context)}
	for _, bound := range c.weights.all {
		if bound.elsewhere {
			continue
		}
		w, err := c.placeWeight(found[bound.name], bound, d, roomy)
		if err != nil {
			return nil, err
		}
		switch {
		case w.rows == 0 && kernel.DType(w.stored.Type) != kernel.F32, w.packed, w.halves:
			p.staging = max(p.staging, w.size)
		case w.turned: // and as F32 before it is turned
			p.staging = max(p.staging, tensor.Aligned(w.size)+tensor.Aligned(w.bytes))
		}
		if w.inFile {
			p.model += w.bytes
		} else {
			p.memory += tensor.Aligned(w.bytes)
			p.model += tensor.Aligned(w.bytes)
		}
		p.weights = append(p.weights, w)
	}
	if c.guest != nil && c.guest.brings {
		var err error
		if p.streams, err = c.planStreams(found, d); err != nil {
			return nil, err
		}
		p.model += p.streams.bytes(d)
	}
	if d.Info().HostMemory {
		p.staging = 0 // what is rearranged is read in the file
	}
	return p, nil
}

// spreads reports whether a device multiplies a weight of a type as F16, which has its values, several times as fast: one
// that packs others of that shape, but not this type. That is NVFP4 where the driver compiles the kernels.
func spreads(d *gpu.Device, t kernel.DType, shape []int) (bool, error) {
	if t != kernel.NVFP4 {
		return false, nil
	}
	other, err := tensor.PackedSize(d, kernel.Q4_0, shape...)
	return other > 0, err
}

// placeWeight decides how a weight lies on a device.
func (c *Config) placeWeight(stored *gguf.Tensor, bound *weight, d *gpu.Device, roomy bool) (placement, error) {
	w := placement{weight: bound, stored: stored}
	t := kernel.DType(w.stored.Type)
	w.from = w.pieces(t)
	w.size = w.from.bytes()
	w.bytes = w.size
	if w.twoBits {
		w.size = w.stored.Bytes
	}
	usable := d.Info().HostMemory && w.from.count == 1 && w.from.first%inFileAlignment == 0
	switch {
	case w.rows == 0: // vectors become F32
		w.bytes = 4 * int64(w.shape()[0])
		w.inFile = usable && t == kernel.F32
	case w.twoBits:
		w.bytes = w.twoBitBytes()
	case w.turned: // becomes F32, as blocks lie along the rows of the file
		w.bytes = kernel.F32.Bytes(w.experts * w.rows * w.cols)
	case w.experts > 0 && !w.chosen: // small
		w.inFile = usable
	case c.Rounds() && w.cols <= exactColumns:
		w.inFile = usable
	default:
		packed, err := tensor.PackedSize(d, t, w.shape()...)
		if err != nil {
			return w, err
		}
		if w.packed = packed > 0 && (roomy || packed <= w.size+w.size/4); w.packed {
			w.bytes = packed
			break
		}
		if w.halves, err = spreads(d, t, w.shape()); err != nil {
			return w, err
		}
		if w.halves = w.halves && roomy && packed == 0; w.halves {
			w.bytes = kernel.F16.Bytes(int(w.size) / t.BlockBytes() * t.BlockSize())
			break
		}
		w.inFile = usable
	}
	return w, nil
}

// ModelBytes predicts the memory of the weights and RoPE tables of f on a device, and how much more is taken while they are
// loaded. A CPU uses most weights in the mapped file.
func (c *Config) ModelBytes(f *gguf.File, d *gpu.Device, context int) (bytes, loading int64, err error) {
	p, err := c.plan(f, d, context)
	if err != nil {
		return 0, 0, err
	}
	return p.model, p.staging, nil
}

// TableBytes returns the size of the RoPE tables for a context.
func (c *Config) TableBytes(context int) int64 {
	var sum int64
	for _, r := range c.graph.ropes {
		sum += 2 * tensor.Aligned(4*int64(context)*int64(r.Dim/2))
	}
	return sum
}

// loader fills a model by a plan.
type loader struct {
	model    *Model
	file     *gguf.File
	staging  *tensor.Arena // where a weight lies as stored until the device has rearranged it
	progress *loading
}

// loading is how far it has come, on all devices.
type loading struct {
	report func(Progress) // may be nil
	state  Progress
}

// load brings all weights to their places. Those that go to a GPU are read ahead of the copies; each is rearranged in
// the order of the stream, so that the next one may take its place in the staging memory.
func (l *loader) load(ctx context.Context, p *plan) (err error) {
	m := l.model
	if p.staging > 0 {
		if l.staging, err = tensor.NewArena(m.device.Stream(), tensor.Aligned(p.staging)); err != nil {
			return err
		}
		defer l.staging.Free()
	}
	var uploads []gpu.Upload
	for i := range p.weights {
		w := &p.weights[i]
		t, source, err := l.place(w)
		if err != nil {
			return fmt.Errorf("tensor %s: %w", w.name, err)
		}
		w.tensor = t
		m.bytes += w.bytes
		if source == nil {
			if err := ctx.Err(); err != nil {
				return err
			}
			l.progress.loaded(w)
			continue
		}
		if finish := source.Then; finish != nil {
			source.Then = func() error {
				if err := finish(); err != nil {
					return fmt.Errorf("tensor %s: %w", w.name, err)
				}
				return nil
			}
		}
		source.Passed = func() { l.progress.loaded(w) }
		uploads = append(uploads, *source)
	}
	m.memoryBytes = p.model
	return m.device.Stream().Upload(ctx, uploads)
}

// place makes the tensor of a weight. source is what is left to do to fill it, nil where that is done.
func (l *loader) place(w *placement) (t *tensor.Tensor, source *gpu.Upload, err error) {
	m, stored := l.model, kernel.DType(w.stored.Type)
	shape := w.shape()
	inFile := shape           // of these rows as the file has them
	var floats *tensor.Tensor // the same in F32, of what is turned
	if w.inFile {
		if t, err = l.inFile(w, shape); err == nil {
			m.mapped = append(m.mapped, t)
		}
		return t, nil, err
	}
	if w.twoBits {
		t, err := l.placeTwoBits(w)
		return t, nil, err
	}
	read := func(dst []byte, offset int64) error {
		return w.from.read(dst, offset, func(dst []byte, at int64) error { return l.file.ReadTensor(w.stored, dst, at) })
	}
	var rearrange func(dst, src *tensor.Tensor) error
	switch {
	case w.packed:
		t, err = m.memory.NewPacked(stored, shape...)
		rearrange = tensor.PackInto
	case w.halves, w.rows == 0 && stored != tensor.F32:
		floats := tensor.F32
		if w.halves {
			floats = tensor.F16
		}
		t, err = m.memory.New(floats, shape...)
		rearrange = func(dst, src *tensor.Tensor) error {
			return tensor.Try(func() { tensor.ConvertInto(dst, src) })
		}
	case w.turned:
		inFile = []int{w.experts, w.cols, w.rows}
		t, err = m.memory.New(tensor.F32, shape...)
		rearrange = func(dst, src *tensor.Tensor) error {
			return tensor.Try(func() {
				tensor.ConvertInto(floats, src)
				tensor.CopyInto(dst, floats.Transpose(1, 2))
			})
		}
	default:
		t, err = m.memory.New(stored, shape...)
		if err != nil {
			return nil, nil, err
		}
		u := t.Upload(read, nil)
		return t, &u, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if m.device.Info().HostMemory {
		src, err := l.inFile(w, inFile)
		if err != nil {
			return nil, nil, err
		}
		defer src.Free()
		if w.turned {
			if floats, err = tensor.New(m.device.Stream(), tensor.F32, inFile...); err != nil {
				return nil, nil, err
			}
			defer floats.Free()
		}
		return t, nil, rearrange(t, src)
	}
	l.staging.Reset()
	src, err := l.staging.New(stored, inFile...)
	if err == nil && w.turned {
		floats, err = l.staging.New(tensor.F32, inFile...)
	}
	if err != nil {
		return nil, nil, err
	}
	u := src.Upload(read, func() error { return rearrange(t, src) })
	return t, &u, nil
}

// inFile returns a weight as it lies in the file, on a device that computes on host memory. One that lies there in pieces
// is copied.
func (l *loader) inFile(w *placement, shape []int) (*tensor.Tensor, error) {
	data, err := l.file.Data(w.stored)
	if err != nil {
		return nil, err
	}
	if w.from.count > 1 {
		joined := make([]byte, w.size)
		w.from.read(joined, 0, func(dst []byte, at int64) error { copy(dst, data[at:]); return nil })
		return tensor.FromMemory(l.model.device, kernel.DType(w.stored.Type), joined, joined, shape...)
	}
	data = data[w.from.first : w.from.first+w.size]
	return tensor.FromMemory(l.model.device, kernel.DType(w.stored.Type), data, l.file, shape...)
}

// loaded tells the caller that a weight is there, or on its way.
func (l *loading) loaded(w *placement) {
	l.state.Bytes += w.size
	if layer := 0; l.report != nil {
		if n, _ := fmt.Sscanf(w.name, "blk.%d.", &layer); n == 1 {
			l.state.Layers = layer + 1
		}
		l.report(l.state)
	}
}

// angles are what a RoPE's tables hold.
type angles struct{ cos, sin []float32 }

// anglesAhead computes those of each RoPE, in order, while weights are copied.
func (m *Model) anglesAhead() <-chan angles {
	all := make(chan angles, len(m.graph.ropes)) // nobody may want them after an error
	go func() {
		for _, r := range m.graph.ropes {
			cos, sin := r.Tables(m.context)
			all <- angles{cos, sin}
		}
	}()
	return all
}

// table puts a RoPE table [context][cols] on the device.
func (m *Model) table(values []float32, cols int) (*tensor.Tensor, error) {
	t, err := m.memory.New(tensor.F32, m.context, cols)
	if err != nil {
		return nil, err
	}
	return t, t.WriteFloat32s(values)
}
