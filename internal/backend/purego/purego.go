// Package purego computes every kernel in plain Go: the CPU device of builds without cgo, and the oracle that the tests
// of the other backends compare with.
//
// Arithmetic is float32 with float64 sums, and activations are never rounded to integers, so results are closer to exact
// arithmetic than the faster backends need to be. Work finishes before a call returns. There are no graphs.
package purego

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/mapped"
)

// Backend returns the pure Go CPU.
func Backend() kernel.Backend { return backend{} }

type backend struct{}

func (backend) Name() string { return "go" }

func (backend) Devices() ([]kernel.Info, error) {
	return []kernel.Info{info(runtime.GOMAXPROCS(0))}, nil
}

func info(threads int) kernel.Info {
	_, total := hostMemory()
	return kernel.Info{
		ID: "cpu", Name: runtime.GOARCH + " (pure Go)", Backend: "go", TotalMemory: total,
		Multiprocessors: threads, Features: "go", HostMemory: true,
	}
}

func (backend) Open(index int, o kernel.Options) (kernel.Device, error) {
	if index != 0 {
		return nil, fmt.Errorf("cpu:%d: %w", index, kernel.ErrNoDevice)
	}
	if o.Threads < 0 {
		return nil, fmt.Errorf("%d threads: %w", o.Threads, kernel.ErrInvalid)
	}
	threads := o.Threads
	if threads == 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	return &device{threads: threads, blocks: map[unsafe.Pointer][]byte{}}, nil
}

// alignment of allocations, as package kernel promises.
const alignment = 256

type device struct {
	threads int

	mu     sync.Mutex
	closed bool
	blocks map[unsafe.Pointer][]byte // keeps memory alive that callers know by address only
}

func (d *device) Info() kernel.Info { return info(d.threads) }

func (d *device) Memory() (free, total int64, err error) {
	free, total = hostMemory()
	return free, total, nil
}

func (d *device) Alloc(bytes int64) (kernel.Ptr, error) {
	if bytes < 0 {
		return nil, fmt.Errorf("alloc of %d bytes: %w", bytes, kernel.ErrInvalid)
	}
	// The Go runtime ends the process when memory runs out, so what cannot fit is refused before it is asked for.
	if free, _ := hostMemory(); bytes > free-alignment {
		return nil, fmt.Errorf("alloc of %d bytes, %d are free: %w", bytes, free, kernel.ErrOutOfMemory)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("alloc: device %w", kernel.ErrClosed)
	}
	block := make([]byte, bytes+alignment)
	skip := -uintptr(unsafe.Pointer(&block[0])) % alignment
	p := unsafe.Pointer(&block[skip])
	d.blocks[p] = block
	return p, nil
}

func (d *device) Free(p kernel.Ptr) error {
	if p == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.blocks[p]; !ok {
		return fmt.Errorf("free of an address that was not allocated: %w", kernel.ErrInvalid)
	}
	delete(d.blocks, p)
	return nil
}

func (d *device) AllocHost(bytes int64) (kernel.Ptr, error) { return d.Alloc(bytes) }

func (d *device) FreeHost(p kernel.Ptr) error { return d.Free(p) }

func (d *device) NewStream(kernel.Allocator) (kernel.Stream, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("new stream: device %w", kernel.ErrClosed)
	}
	return &stream{device: d}, nil
}

func (d *device) NewEvent() (kernel.Event, error) { return &event{}, nil }

func (d *device) PackedSize(w kernel.Weight) (int64, error) {
	_, err := weightBytes("packed size", w)
	return 0, err
}

// ScratchBytes is 0: scratch memory is Go's.
func (d *device) ScratchBytes(kernel.Pass) int64 { return 0 }

// Close forgets the memory that is still allocated; blocks in use by a running kernel stay alive through its slices.
func (d *device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	clear(d.blocks)
	return nil
}

// parallel calls f with ranges that cover 0..n-1 once, each of at most grain items, on the threads of the device.
func (d *device) parallel(n, grain int, f func(lo, hi int)) {
	grain = max(grain, 1)
	workers := min(d.threads, (n+grain-1)/grain)
	if workers <= 1 {
		for lo := 0; lo < n; lo += grain {
			guarded(f, lo, min(lo+grain, n))
		}
		return
	}
	var next atomic.Int64
	work := func() {
		for {
			hi := int(next.Add(int64(grain)))
			lo := hi - grain
			if lo >= n {
				return
			}
			guarded(f, lo, min(hi, n))
		}
	}
	var wg sync.WaitGroup
	for range workers - 1 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			work()
		}()
	}
	work()
	wg.Wait()
}

// guarded calls f, which may read weights in a mapped file that somebody has cut short: mapped.File.Intact says so afterwards.
func guarded(f func(lo, hi int), lo, hi int) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer mapped.Recover()
	f(lo, hi)
}

// grain returns how many items of `work` operations each make a range that is worth a thread's while.
func grain(work int) int { return max(1<<14/max(work, 1), 1) }

type stream struct {
	device *device
	closed bool
}

func (s *stream) copy(dst, src kernel.Ptr, bytes int64) error {
	if bytes == 0 {
		return nil
	}
	if bytes < 0 || dst == nil || src == nil {
		return fmt.Errorf("copy of %d bytes: %w", bytes, kernel.ErrInvalid)
	}
	copy(unsafe.Slice((*byte)(dst), bytes), unsafe.Slice((*byte)(src), bytes))
	return nil
}

func (s *stream) CopyToDevice(dst, src kernel.Ptr, bytes int64) error { return s.copy(dst, src, bytes) }
func (s *stream) CopyToHost(dst, src kernel.Ptr, bytes int64) error   { return s.copy(dst, src, bytes) }
func (s *stream) CopyOnDevice(dst, src kernel.Ptr, bytes int64) error { return s.copy(dst, src, bytes) }

func (s *stream) Memset(dst kernel.Ptr, value byte, bytes int64) error {
	if bytes == 0 {
		return nil
	}
	if bytes < 0 || dst == nil {
		return fmt.Errorf("memset of %d bytes: %w", bytes, kernel.ErrInvalid)
	}
	b := unsafe.Slice((*byte)(dst), bytes)
	if value == 0 {
		clear(b)
		return nil
	}
	for i := range b {
		b[i] = value
	}
	return nil
}

func (s *stream) Synchronize() error {
	if s.closed {
		return fmt.Errorf("stream %w", kernel.ErrClosed)
	}
	return nil
}

func (s *stream) Record(e kernel.Event) error {
	ev, ok := e.(*event)
	if !ok {
		return fmt.Errorf("event of another device: %w", kernel.ErrInvalid)
	}
	now := time.Now()
	ev.at.Store(&now)
	return nil
}

func (s *stream) Wait(e kernel.Event) error {
	if _, ok := e.(*event); !ok {
		return fmt.Errorf("event of another device: %w", kernel.ErrInvalid)
	}
	return nil
}

func (s *stream) BeginCapture() error {
	return fmt.Errorf("graphs on the CPU: %w", kernel.ErrUnsupported)
}

func (s *stream) EndCapture() (kernel.Graph, error) {
	return nil, fmt.Errorf("graphs on the CPU: %w", kernel.ErrUnsupported)
}

func (s *stream) Launch(kernel.Graph) error {
	return fmt.Errorf("graphs on the CPU: %w", kernel.ErrUnsupported)
}

func (s *stream) Close() error {
	s.closed = true
	return nil
}

// An event holds the time of its record: the work before it is finished by then.
type event struct{ at atomic.Pointer[time.Time] }

func (e *event) Done() (bool, error) { return true, nil }

func (e *event) Synchronize() error { return nil }

func (e *event) ElapsedMS(start kernel.Event) (float32, error) {
	from, ok := start.(*event)
	if !ok {
		return 0, fmt.Errorf("event of another device: %w", kernel.ErrInvalid)
	}
	a, b := from.at.Load(), e.at.Load()
	if a == nil || b == nil {
		return 0, fmt.Errorf("elapsed time of an event that was not recorded: %w", kernel.ErrInvalid)
	}
	return float32(b.Sub(*a).Seconds() * 1e3), nil
}

func (e *event) Close() error { return nil }
