package gpu

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// Event is a mark in a stream, to order streams and to measure time between two marks.
type Event struct {
	dev    *device
	device *Device      // kept; nil for an event of this package's own
	mu     sync.RWMutex // held for reading while kernel is used
	kernel kernel.Event // made at the first use
	closed bool
}

// NewEvent returns an event that counts as done until it is recorded. The caller closes it.
func (d *Device) NewEvent() *Event { return &Event{dev: d.device, device: d} }

func (d *device) newEvent() *Event { return &Event{dev: d} }

// use calls f with the backend's event, which the first call makes, while it cannot be closed. Either a stream's lock or
// the device's life lock keeps the device from being closed meanwhile.
func (e *Event) use(d *device, f func(kernel.Event) error) error {
	if e.dev != d {
		return fmt.Errorf("gpu: event of %s on a stream of %s: %w", e.dev, d, ErrInvalid)
	}
	if err := e.make(); err != nil {
		return err
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.closed {
		return fmt.Errorf("gpu: event: %w", ErrClosed)
	}
	return d.check(f(e.kernel))
}

func (e *Event) make() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.kernel != nil || e.closed {
		return nil
	}
	var k kernel.Event
	err := e.dev.call(func() (err error) { k, err = e.dev.kernel.NewEvent(); return err })
	if err != nil {
		return e.dev.check(err)
	}
	if err := e.dev.adopt(k); err != nil {
		return err
	}
	e.kernel = k
	d := e.dev
	runtime.AddCleanup(e, func(k kernel.Event) { d.release(k) }, k)
	return nil
}

// with is use while the device cannot be closed.
func (e *Event) with(f func(kernel.Event) error) error {
	e.dev.life.RLock()
	defer e.dev.life.RUnlock()
	if err := e.dev.usable(); err != nil {
		return err
	}
	return e.use(e.dev, f)
}

// Done reports whether all work before the newest record has finished.
func (e *Event) Done() (done bool, err error) {
	err = e.with(func(k kernel.Event) error { done, err = k.Done(); return err })
	return done, err
}

// Synchronize waits until all work before the newest record has finished.
func (e *Event) Synchronize() error {
	return e.with(func(k kernel.Event) error { return k.Synchronize() })
}

// Since returns the device's time between two recorded events, both of which have finished.
func (e *Event) Since(start *Event) (time.Duration, error) {
	if e == start {
		return 0, nil
	}
	var ms float32
	err := start.with(func(from kernel.Event) error {
		return e.use(start.dev, func(to kernel.Event) (err error) {
			ms, err = to.ElapsedMS(from)
			return err
		})
	})
	return time.Duration(float64(ms) * float64(time.Millisecond)), err
}

// Close gives the event back. Work that waits for it still does. Closing nil or twice is harmless.
func (e *Event) Close() error {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	k := e.kernel
	e.kernel, e.closed = nil, true
	e.mu.Unlock()
	if k == nil {
		return nil
	}
	return e.dev.release(k)
}
