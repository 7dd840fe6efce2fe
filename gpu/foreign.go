package gpu

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// Enqueue runs f in the order of the stream, with the stream's lock held: where a program enqueues kernels of its own. On a GPU native
// is the stream's CUstream (cudaStream_t), of the primary context of the device that Info.Index numbers; f makes this context current
// on its thread (cudaSetDevice), enqueues work there, and does not wait. On a CPU native is nil: all work before has finished, and f
// does its work itself. f must not keep native, nor call anything of this package. Its error is returned.
//
// Memory comes from Buffer.Ptr; Buffer.Use orders that of other streams before.
func (s *Stream) Enqueue(f func(native unsafe.Pointer) error) error {
	return s.Do(func(k kernel.Stream) error {
		var native unsafe.Pointer
		if n, ok := k.(kernel.NativeStream); ok {
			var err error
			if native, err = n.Native(); err != nil {
				return err
			}
		}
		return f(native)
	})
}

// Foreign makes a buffer of bytes of memory that somebody else allocated for the stream's device, as it stands. What the memory holds
// must be there: work of others that writes it has finished, or the stream waits for it.
//
// release, which may be nil, gives the memory back: it is called once, when the buffer was freed or collected and the work enqueued on
// it before has finished, which Free waits for. After an error it is not called.
//
// Errors: ErrInvalid for a negative size, nil, and on a GPU for memory that is not this device's. A CPU cannot check an address.
func (s *Stream) Foreign(p unsafe.Pointer, bytes int64, release func()) (*Buffer, error) {
	if err := s.dev.usable(); err != nil {
		return nil, err
	}
	if bytes < 0 || p == nil && bytes > 0 {
		return nil, fmt.Errorf("gpu: foreign memory of %d bytes at %#x: %w", bytes, uintptr(p), ErrInvalid)
	}
	if c, ok := s.dev.kernel.(kernel.MemoryChecker); ok && bytes > 0 {
		if err := c.CheckMemory(p, bytes); err != nil {
			return nil, fmt.Errorf("gpu: foreign memory at %#x: not of %s: %w", uintptr(p), s.dev.info.ID, s.dev.check(err))
		}
	}
	f := &foreign{release: release, used: map[*stream]struct{}{s.stream: {}}}
	b := &Buffer{stream: s, foreign: f, ptr: p, size: bytes}
	b.cleanup = runtime.AddCleanup(b, func(f *foreign) { go f.giveBack() }, f) // waits: not the collector
	return b, nil
}

// foreign is memory of somebody else's behind a buffer.
type foreign struct {
	release func()
	mu      sync.Mutex
	used    map[*stream]struct{} // the streams with work on it
}

func (f *foreign) use(s *stream) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.used[s] = struct{}{}
}

// giveBack waits for the work on the memory and releases it. The buffer calls it once.
func (f *foreign) giveBack() {
	if f.release == nil {
		return
	}
	for s := range f.used {
		if s.dev.info.HostMemory {
			continue // work has finished when its call returns
		}
		if err := s.synchronize(); errors.Is(err, ErrUnsupported) { // while it captures
			go func() {
				for errors.Is(s.synchronize(), ErrUnsupported) {
					time.Sleep(time.Millisecond)
				}
				f.giveBack()
			}()
			return
		}
	}
	f.release()
}

// Hold keeps the memory of the buffer until the function that it returns is called, which may be called once more without harm: a
// Free meanwhile ends the buffer's use in this program, and the memory is given back behind both. It is for memory that others use,
// who say when they have done.
func (b *Buffer) Hold() (drop func(), err error) {
	for {
		n := b.holds.Load()
		if n < 0 || b.freed.Load() {
			return nil, b.Err()
		}
		if b.holds.CompareAndSwap(n, n+1) {
			break
		}
	}
	var once sync.Once
	return func() { once.Do(b.unhold) }, nil
}

// unhold takes back a hold, or the one that every buffer begins with; behind the last the memory goes.
func (b *Buffer) unhold() {
	if b.holds.Add(-1) >= 0 {
		return
	}
	b.keep = nil
	b.cleanup.Stop()
	switch {
	case b.block != nil:
		b.block.pool.put(b.block)
	case b.foreign != nil:
		b.foreign.giveBack()
	}
	runtime.KeepAlive(b)
}
