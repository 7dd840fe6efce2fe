// Package gpu holds devices and what they own: memory, streams, events and graphs.
//
// The CPU is a device like any other, so that a program has one path. Work is asynchronous: it runs in the order of its
// Stream, and only Synchronize and copies to the host wait. Memory comes from a pool that follows that order: what a
// stream frees, the same stream may use again at once.
//
// Everything here may be used from any goroutine. Handles may be closed twice, in any order and after their device. Devices, streams,
// buffers, events and graphs that are dropped without Close or Free are given back by the garbage collector, a device once nothing
// of it is held any more. Communicators are not, nor the streams that they join.
//
// Package tensor computes with these; most programs need only Open, Device.Close and the errors.
package gpu

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/phase"
)

// Info describes a device.
type Info struct {
	ID                string // as Open takes it: "cpu", "cuda:0"
	Name              string // of the product
	Backend           string // "go", "c", "cuda" or "fake"
	Index             int    // among the devices of its backend
	TotalMemory       int64  // bytes
	ComputeMajor      int    // of the CUDA compute capability, 0 on a CPU
	ComputeMinor      int
	Multiprocessors   int // SMs, or CPU threads in use
	L2Bytes           int64
	SharedMemoryBytes int64  // that a block of threads may use; 0 on a CPU
	Features          string // what of the processor the kernels use, such as "avx512"
	HostMemory        bool   // the device's memory is host memory: it can be read in place
}

// Device is an opened device.
type Device struct {
	*device
	main *Stream
}

// device is what a dropped Device leaves to close. It knows no handle of a program: only they keep each other.
type device struct {
	kernel kernel.Device
	info   Info
	pool   *Pool

	profile *Profile // nil without WithProfiling

	streamBytes int64 // that the default stream took when it was made

	strict atomic.Bool
	closed atomic.Bool

	lost atomic.Pointer[error]

	// life is held for reading around calls on kernel that no stream's lock covers, and for writing by Close.
	life    sync.RWMutex
	mu      sync.Mutex
	streams map[*stream]struct{}
	handles map[io.Closer]struct{} // events and graphs of the backend
}

type options struct {
	kernel       kernel.Options
	poolFraction float64
	poolLimit    int64
	profiling    bool
}

// Option adjusts Open.
type Option func(*options)

// WithThreads sets the worker threads of a CPU, at most 1024; 0 is one for each core that the process may use.
func WithThreads(n int) Option { return func(o *options) { o.kernel.Threads = n } }

// WithPoolFraction caps the pool, in use and cached together, at a part of the device's memory; the default is 0.8.
func WithPoolFraction(f float64) Option { return func(o *options) { o.poolFraction = f } }

// WithPoolLimit caps the pool, in use and cached together, at a number of bytes.
func WithPoolLimit(bytes int64) Option { return func(o *options) { o.poolLimit = bytes } }

// OpenBackend opens a device of a given backend: for tests, and for backends that have no name in Open.
func OpenBackend(b kernel.Backend, index int, opts ...Option) (*Device, error) {
	o := options{poolFraction: 0.8}
	for _, f := range opts {
		f(&o)
	}
	if !(o.poolFraction > 0 && o.poolFraction <= 1) {
		return nil, fmt.Errorf("gpu: pool fraction %v: %w: want more than 0, at most 1", o.poolFraction, ErrInvalid)
	}
	if o.poolLimit < 0 {
		return nil, fmt.Errorf("gpu: pool limit %d: %w: negative", o.poolLimit, ErrInvalid)
	}
	if o.kernel.Threads < 0 || o.kernel.Threads > kernel.MaxThreads {
		return nil, fmt.Errorf("gpu: %d threads: %w: want 0 to %d", o.kernel.Threads, ErrInvalid, kernel.MaxThreads)
	}
	launching.RLock()
	k, err := b.Open(index, o.kernel)
	launching.RUnlock()
	if err != nil {
		threads := ""
		if n := o.kernel.Threads; n > 1 && errors.Is(err, ErrOutOfMemory) { // each has a stack
			threads = fmt.Sprintf(" with %d threads", n)
		}
		return nil, fmt.Errorf("gpu: open %s:%d%s: %w", b.Name(), index, threads, err)
	}
	inner := &device{kernel: k, info: Info(k.Info()), streams: map[*stream]struct{}{}, handles: map[io.Closer]struct{}{}}
	d := &Device{device: inner}
	limit := o.poolLimit
	if limit == 0 {
		limit = int64(o.poolFraction * float64(d.info.TotalMemory))
	}
	d.pool = newPool(inner, limit)
	if o.profiling {
		if err := d.startProfile(); err != nil {
			k.Close()
			return nil, err
		}
	}
	if d.main, err = d.NewStream(); err != nil {
		k.Close()
		return nil, err
	}
	d.streamBytes = d.pool.Stats().InUse
	phase.Done("device " + d.info.ID + " opened")
	runtime.AddCleanup(d, func(inner *device) { go inner.close() }, inner) // waits for the device's work: not the collector
	return d, nil
}

// Info returns the device's properties.
func (d *Device) Info() Info { return d.info }

// String returns the device's name as Open takes it.
func (d *device) String() string { return d.info.ID }

// Memory returns the free and total bytes of the device as its driver sees them now: what the pool caches is not free.
func (d *Device) Memory() (free, total int64, err error) {
	defer runtime.KeepAlive(d)
	d.life.RLock()
	defer d.life.RUnlock()
	if err := d.usable(); err != nil {
		return 0, 0, err
	}
	err = d.call(func() error { free, total, err = d.kernel.Memory(); return err })
	return free, total, d.check(err)
}

// StreamBytes returns the memory that each stream takes from the pool for itself when it is made. Its kernels' scratch memory comes
// on top, which is allocated on demand.
func (d *Device) StreamBytes() int64 { return d.streamBytes }

// ScratchBytes returns the most that the scratch memory of a stream grows to by passes of that shape through a language model.
func (d *Device) ScratchBytes(p kernel.Pass) int64 {
	defer runtime.KeepAlive(d)
	return d.kernel.ScratchBytes(p)
}

// Stream returns the default stream.
func (d *Device) Stream() *Stream { return d.main }

// SetStrict has operations of package tensor on this device fail where they would run elsewhere, or would move an operand that is
// no weight. It counts whatever tensor.SetStrict says for the process.
func (d *Device) SetStrict(on bool) { d.strict.Store(on) }

// Strict returns what SetStrict set.
func (d *Device) Strict() bool { return d.strict.Load() }

// Pool returns the pool that the device's memory comes from. It does not keep a dropped device open.
func (d *Device) Pool() *Pool { return d.pool }

// Alloc returns memory in the order of the default stream; its contents are undefined.
func (d *Device) Alloc(bytes int64) (*Buffer, error) { return d.main.Alloc(bytes) }

// Err says why the device cannot be used any more: nil, ErrClosed or ErrDeviceLost.
func (d *Device) Err() error { return d.usable() }

// PackedSize returns the bytes of a weight's packed form, 0 where this device gains nothing from packing.
func (d *Device) PackedSize(w kernel.Weight) (int64, error) {
	defer runtime.KeepAlive(d)
	d.life.RLock()
	defer d.life.RUnlock()
	if err := d.usable(); err != nil {
		return 0, err
	}
	n, err := d.kernel.PackedSize(w)
	return n, d.check(err)
}

// Close waits for the device's work and gives everything back, also what is still in use: buffers, streams, events and
// graphs of the device fail with ErrClosed from here on. Closing nil or twice is harmless.
func (d *Device) Close() error {
	if d == nil {
		return nil
	}
	defer runtime.KeepAlive(d)
	return d.close()
}

func (d *device) close() error {
	if d.closed.Swap(true) {
		return nil
	}
	d.life.Lock() // no allocation or query is under way, and none starts
	defer d.life.Unlock()

	d.mu.Lock()
	streams, handles := d.streams, d.handles
	d.streams, d.handles = nil, nil
	d.mu.Unlock()
	for s := range streams {
		s.shut()
	}
	for h := range handles {
		d.call(h.Close)
	}
	if d.profile != nil {
		d.profile.origin.Close()
	}
	d.pool.close()
	defer func() { phase.Done("device " + d.info.ID + " closed") }()
	if err := d.call(d.kernel.Close); err != nil && d.lost.Load() == nil {
		return fmt.Errorf("gpu: close %s: %w", d.info.ID, err)
	}
	return nil
}

// stay keeps the device open until life is unlocked for reading, and reports false where Close has begun. It does not wait for
// Close, which may be waiting for the caller.
func (d *device) stay() bool {
	if !d.life.TryRLock() {
		return false
	}
	if d.closed.Load() {
		d.life.RUnlock()
		return false
	}
	return true
}

// adopt notes an event or graph of the backend, to be closed before the device is. Where that has begun, the handle is
// closed at once.
func (d *device) adopt(h io.Closer) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.handles == nil {
		d.call(h.Close)
		return d.usable()
	}
	d.handles[h] = struct{}{}
	return nil
}

// release closes an adopted handle, unless the device has done so.
func (d *device) release(h io.Closer) error {
	d.life.RLock()
	defer d.life.RUnlock()
	d.mu.Lock()
	_, mine := d.handles[h]
	delete(d.handles, h)
	d.mu.Unlock()
	if !mine {
		return nil
	}
	return d.check(d.call(h.Close))
}

var shared struct {
	sync.Mutex
	devices map[string]*Device
}

// Shared returns the process-wide device of that name, opening it with default options at the first call, or again
// after somebody closed it.
func Shared(id string) (*Device, error) {
	shared.Lock()
	defer shared.Unlock()
	if id == "cuda" {
		id = "cuda:0"
	}
	if d := shared.devices[id]; d != nil && !d.closed.Load() {
		return d, nil
	}
	d, err := Open(id)
	if err != nil {
		return nil, err
	}
	if shared.devices == nil {
		shared.devices = map[string]*Device{}
	}
	shared.devices[id] = d
	return d, nil
}

// CPU returns the process-wide CPU device. It panics where the CPU cannot be opened, which takes a machine out of memory.
func CPU() *Device {
	d, err := Shared("cpu")
	if err != nil {
		panic(err)
	}
	return d
}
