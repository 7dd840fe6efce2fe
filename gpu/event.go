package gpu

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/vibrant-ml/vibrant/internal/kernel"
)

// Event is a mark in a stream, to order streams and to measure time between two marks.
type Event struct {
	dev    *Device
	mu     sync.Mutex
	kernel kernel.Event // made at the first use
	closed bool
}

// NewEvent returns an event that counts as done until it is recorded. The caller closes it.
func (d *Device) NewEvent() *Event { return &Event{dev: d} }

// open returns the backend's event, which the first call makes.
func (e *Event) open(d *Device) (kernel.Event, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, fmt.Errorf("gpu: event: %w", ErrClosed)
	}
	if e.dev != d {
		return nil, fmt.Errorf("gpu: event of %s on a stream of %s: %w", e.dev, d, ErrInvalid)
	}
	if e.kernel == nil {
		k, err := d.kernel.NewEvent()
		if err != nil {
			return nil, d.check(err)
		}
		e.kernel = k
		d.adopt(k)
		runtime.AddCleanup(e, func(k kernel.Event) { d.release(k) }, k)
	}
	return e.kernel, nil
}

// with calls f with the backend's event while the device cannot be closed.
func (e *Event) with(f func(kernel.Event) error) error {
	e.dev.life.RLock()
	defer e.dev.life.RUnlock()
	if err := e.dev.usable(); err != nil {
		return err
	}
	k, err := e.open(e.dev)
	if err != nil {
		return err
	}
	return e.dev.check(f(k))
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
	var ms float32
	err := start.with(func(from kernel.Event) error {
		to, err := e.open(start.dev)
		if err == nil {
			ms, err = to.ElapsedMS(from)
		}
		return err
	})
	return time.Duration(float64(ms) * float64(time.Millisecond)), err
}

// Close gives the event back. Work that waits for it still does.
func (e *Event) Close() error {
	e.mu.Lock()
	k := e.kernel
	e.kernel, e.closed = nil, true
	e.mu.Unlock()
	if k == nil {
		return nil
	}
	return e.dev.release(k)
}
