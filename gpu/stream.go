package gpu

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/backend/profile"
)

// Stream is an order of work on a device: what is enqueued first is finished first. Different streams run side by side.
// Any goroutine may use one; calls are enqueued one after the other.
type Stream struct {
	*stream
	device *Device
}

// stream is what a dropped Stream leaves to close.
type stream struct {
	dev *device

	mu      sync.Mutex // held while enqueuing
	kernel  kernel.Stream
	staging staging
	seen    map[*stream]uint64 // how much of another stream's work later work here waits for
	closed  atomic.Bool
	capture atomic.Pointer[capture]
	before  *Event // marks the work before the newest capture; nil before the first

	joined []*Communicator // whose streams this one is among; they end before it

	timed *profile.Stream // kernel, where the device is profiled

	own map[kernel.Ptr]*block // memory of the backend's stream itself: counters and scratch

	// enqueued counts the work given to the stream, finished is its value at the newest synchronization.
	enqueued, finished atomic.Uint64

	free [classes]*block // the pool's blocks that this stream gave back, guarded by the pool's lock
}

// NewStream returns another order of work. The caller closes it.
func (d *Device) NewStream() (*Stream, error) {
	d.life.RLock()
	defer d.life.RUnlock()
	if err := d.usable(); err != nil {
		return nil, err
	}
	s := &stream{dev: d.device}
	err := d.call(func() (err error) { s.kernel, err = d.kernel.NewStream(&streamMemory{s}); return err })
	if err != nil {
		return nil, fmt.Errorf("gpu: new stream on %s: %w", d.info.ID, d.check(err))
	}
	if d.profile != nil {
		if err := d.profile.join(s); err != nil {
			s.kernel.Close()
			return nil, err
		}
	}
	d.mu.Lock()
	d.streams[s] = struct{}{}
	d.mu.Unlock()
	d.pool.addStream(s)
	handle := &Stream{stream: s, device: d}
	runtime.AddCleanup(handle, func(s *stream) { go s.close() }, s) // waits for the stream's work: not the collector
	return handle, nil
}

// Device returns the stream's device.
func (s *Stream) Device() *Device { return s.device }

// usable says why the stream cannot be used, if it cannot. The caller holds mu.
func (s *stream) usable() error {
	if s.closed.Load() {
		if err := s.dev.usable(); err != nil {
			return err
		}
		return fmt.Errorf("gpu: stream of %s: %w", s.dev.info.ID, ErrClosed)
	}
	return s.dev.usable()
}

// Do enqueues work: f runs with the stream's lock held and must not keep its argument, nor call anything of this
// package. It is the one door to the kernels, for package tensor.
func (s *Stream) Do(f func(kernel.Stream) error) error {
	defer runtime.KeepAlive(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	s.enqueued.Add(1)
	return s.dev.check(s.dev.call(func() error { return f(s.kernel) }))
}

// Enqueued counts the work that was given to the stream so far: who remembers the count knows whether other work came since.
func (s *Stream) Enqueued() uint64 { return s.enqueued.Load() }

// LastKernel names the kernel that the newest operation of the stream chose, on a CPU the instructions of its form, "" where the device
// does not say.
func (s *Stream) LastKernel() string {
	defer runtime.KeepAlive(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, ok := s.kernel.(kernel.KernelNamer); ok && !s.closed.Load() {
		return k.LastKernel()
	}
	return ""
}

// Synchronize waits until all work enqueued so far has finished. Errors of that work appear here.
func (s *Stream) Synchronize() error {
	defer runtime.KeepAlive(s)
	return s.synchronize()
}

func (s *stream) synchronize() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	if s.capture.Load() != nil {
		return fmt.Errorf("gpu: synchronize while capturing: %w", ErrUnsupported)
	}
	n := s.enqueued.Load()
	if err := s.dev.check(s.kernel.Synchronize()); err != nil {
		return fmt.Errorf("gpu: synchronize %s: %w", s.dev.info.ID, err)
	}
	s.finished.Store(n)
	return nil
}

// Record puts a mark into the stream: the event is done once all work enqueued so far has finished.
func (s *Stream) Record(e *Event) error {
	defer runtime.KeepAlive(s)
	return s.record(e)
}

func (s *stream) record(e *Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mark(e, s.kernel.Record)
}

// Wait makes work enqueued from here on wait for the event, without waiting itself. The event may be of another device of the
// same backend. An event that was never recorded is done.
func (s *Stream) Wait(e *Event) error {
	defer runtime.KeepAlive(s)
	return s.wait(e)
}

func (s *stream) wait(e *Event) error {
	if e.dev != s.dev && e.dev.info.Backend == s.dev.info.Backend {
		if !e.dev.stay() {
			return e.dev.usable()
		}
		defer e.dev.life.RUnlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		if err := s.usable(); err != nil {
			return err
		}
		return s.dev.check(e.use(e.dev, s.kernel.Wait))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mark(e, s.kernel.Wait)
}

// mark records or awaits an event. The caller holds mu.
func (s *stream) mark(e *Event, f func(kernel.Event) error) error {
	if err := s.usable(); err != nil {
		return err
	}
	return e.use(s.dev, f)
}

// after makes work enqueued on s from here on wait for all work enqueued on other so far.
func (s *stream) after(other *stream) error {
	work := other.enqueued.Load()
	if s == other || s.dev.info.HostMemory || other.finished.Load() >= work {
		return nil // on a CPU, work has finished when its call returns
	}
	s.mu.Lock()
	known := s.seen[other] >= work
	s.mu.Unlock()
	if known {
		return nil
	}
	if err := s.awaits(other); err != nil || s.capture.Load() != nil {
		return err // what is recorded waits at each replay for nothing that was enqueued elsewhere
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = map[*stream]uint64{}
	}
	for o := range s.seen {
		if o.closed.Load() {
			delete(s.seen, o)
		}
	}
	s.seen[other] = max(s.seen[other], work)
	return nil
}

// awaits makes work enqueued on s from here on wait for all work enqueued on other so far.
func (s *stream) awaits(other *stream) error {
	e, release, err := other.passed()
	if err != nil {
		return err
	}
	defer release()
	if s.capture.Load() != nil {
		// A captured stream may not wait for another's event: the replay would have nothing to wait for.
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.mark(e, kernel.Event.Synchronize)
	}
	return s.wait(e)
}

// passed returns an event that is done once all work enqueued so far has finished, and a function that gives it back. What
// a capture records is no such work: an event among it would draw streams that wait for it into the capture.
func (s *stream) passed() (e *Event, release func() error, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.capture.Load() != nil {
		return s.before, func() error { return nil }, nil
	}
	e = s.dev.newEvent()
	if err := s.mark(e, s.kernel.Record); err != nil {
		e.Close()
		return nil, nil, err
	}
	return e, e.Close, nil
}

// toDevice and toHost enqueue a copy. The caller holds mu.
func (s *stream) toDevice(dst, src kernel.Ptr, bytes int64) error {
	return s.dev.call(func() error { return s.kernel.CopyToDevice(dst, src, bytes) })
}

func (s *stream) toHost(dst, src kernel.Ptr, bytes int64) error {
	return s.dev.call(func() error { return s.kernel.CopyToHost(dst, src, bytes) })
}

// afterIfIdle is after, unless another goroutine is using the other stream.
func (s *stream) afterIfIdle(other *stream) bool {
	if !other.mu.TryLock() {
		return false
	}
	other.mu.Unlock()
	return s.after(other) == nil
}

// Close waits for the stream's work and gives it back. Buffers allocated from it stay valid and may be freed, but work
// on it fails with ErrClosed. Closing nil or twice is harmless; the default stream closes with its device.
func (s *Stream) Close() error {
	if s == nil {
		return nil
	}
	defer runtime.KeepAlive(s)
	if s == s.device.main {
		return nil
	}
	return s.close()
}

func (s *stream) close() error {
	defer func() {
		s.mu.Lock()
		before := s.before
		s.mu.Unlock()
		before.Close()
	}()
	s.dev.life.RLock()
	defer s.dev.life.RUnlock()
	s.dev.mu.Lock()
	delete(s.dev.streams, s)
	s.dev.mu.Unlock()
	return s.shut()
}

// shut ends the stream, whatever state the device is in.
func (s *stream) shut() error {
	s.mu.Lock()
	joined := s.joined
	s.joined = nil
	s.mu.Unlock()
	for _, c := range joined {
		c.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return nil
	}
	err := s.kernel.Synchronize()
	s.finished.Store(s.enqueued.Load())
	s.closed.Store(true) // not before: the pool takes the work of a closed stream for finished
	s.staging.release(s.dev)
	s.dev.pool.dropStream(s)
	if cerr := s.dev.call(s.kernel.Close); err == nil {
		err = cerr
	}
	if err != nil && !errors.Is(err, ErrDeviceLost) {
		return fmt.Errorf("gpu: close stream of %s: %w", s.dev.info.ID, err)
	}
	return nil
}
