package gpu

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// Readback brings small results to the host without stopping their stream: Start enqueues copies and returns at once, and
// Wait returns the bytes of the oldest Start as soon as the device has passed it. In between the stream may be given more
// work, so that the device does not idle while the host looks at a result. One goroutine uses it at a time.
type Readback struct {
	stream *Stream
	slots  [readbackSlots]readbackSlot
	oldest int // slot of the oldest Start
	count  int // Starts that were not waited for
}

// readbackSlots is how many Starts may be under way: one that is waited for, and one of the work ahead of it.
const readbackSlots = 2

// readbackSlot is page-locked memory that one Start copies to.
type readbackSlot struct {
	memory *hostMemory
	done   *Event
	used   int64
}

// Part is a part of a buffer.
type Part struct {
	Buffer        *Buffer
	Offset, Bytes int64
}

// NewReadback returns a readback of the stream's results. The caller closes it.
func (s *Stream) NewReadback() *Readback { return &Readback{stream: s} }

// Start enqueues copies of parts of buffers of the stream, one after the other into the bytes that a later Wait returns.
// ErrInvalid: more than two Starts are under way.
func (r *Readback) Start(parts ...Part) error {
	defer runtime.KeepAlive(parts)
	if r.count == readbackSlots {
		return fmt.Errorf("gpu: readback: %d are under way: %w", r.count, ErrInvalid)
	}
	slot := &r.slots[(r.oldest+r.count)%readbackSlots]
	var bytes int64
	for _, p := range parts {
		if p.Buffer.stream != r.stream {
			return fmt.Errorf("gpu: readback of a buffer of another stream: %w", ErrInvalid)
		}
		if err := p.Buffer.span("readback", p.Bytes, p.Offset); err != nil {
			return err
		}
		bytes += p.Bytes
	}
	if err := slot.reserve(r.stream, bytes); err != nil {
		return err
	}
	if err := r.copy(slot, parts); err != nil {
		return fmt.Errorf("gpu: readback of %d bytes from %s: %w", bytes, r.stream.dev, err)
	}
	if err := r.stream.Record(slot.done); err != nil {
		return err
	}
	slot.used = bytes
	r.count++
	return nil
}

func (r *Readback) copy(slot *readbackSlot, parts []Part) error {
	s := r.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	if s.capture.Load() != nil {
		return fmt.Errorf("while capturing: %w", ErrUnsupported)
	}
	s.enqueued.Add(1)
	at := int64(0)
	for _, p := range parts {
		if p.Bytes == 0 {
			continue
		}
		if err := s.toHost(unsafe.Add(slot.memory.ptr, at), unsafe.Add(p.Buffer.ptr, p.Offset), p.Bytes); err != nil {
			return s.dev.check(err)
		}
		at += p.Bytes
	}
	return nil
}

// reserve makes the slot large enough. What an earlier Start copies there was waited for or given up, and a copy that was
// given up still writes to its memory: so memory that is outgrown is freed behind the stream's work.
func (slot *readbackSlot) reserve(s *Stream, bytes int64) (err error) {
	if slot.done == nil {
		slot.done = s.device.NewEvent()
	}
	if slot.memory != nil && slot.memory.bytes >= bytes {
		return nil
	}
	if slot.memory != nil {
		if err := s.Synchronize(); err != nil {
			return err
		}
		slot.memory.free()
		slot.memory = nil
	}
	slot.memory, err = s.dev.allocHost(max(bytes, grain))
	return err
}

// Wait returns the bytes of the oldest Start, which stay valid until the second Start from here. It waits until the
// device has copied them, not for work that was enqueued later. ErrInvalid: nothing was started.
func (r *Readback) Wait() ([]byte, error) {
	if r.count == 0 {
		return nil, fmt.Errorf("gpu: readback: nothing was started: %w", ErrInvalid)
	}
	slot := &r.slots[r.oldest]
	r.oldest = (r.oldest + 1) % readbackSlots
	r.count--
	if err := slot.done.Synchronize(); err != nil {
		return nil, fmt.Errorf("gpu: readback from %s: %w", r.stream.dev, err)
	}
	return unsafe.Slice((*byte)(slot.memory.ptr), slot.used), nil
}

// Drop gives up what was started and not waited for, without waiting.
func (r *Readback) Drop() {
	r.oldest, r.count = (r.oldest+r.count)%readbackSlots, 0
}

// Close waits for the stream and gives the memory back. Closing nil or twice is harmless.
func (r *Readback) Close() {
	if r == nil {
		return
	}
	r.Drop()
	r.stream.Synchronize() // an error of the stream's work is its next user's
	for i := range r.slots {
		slot := &r.slots[i]
		if slot.done != nil {
			slot.done.Close()
		}
		slot.memory.free()
		*slot = readbackSlot{}
	}
}

// hostMemory is page-locked memory of the host, which the device's Close frees at the latest.
type hostMemory struct {
	dev   *device
	ptr   kernel.Ptr
	bytes int64
}

func (d *device) allocHost(bytes int64) (*hostMemory, error) {
	d.life.RLock()
	defer d.life.RUnlock()
	if err := d.usable(); err != nil {
		return nil, err
	}
	var p kernel.Ptr
	err := d.call(func() (err error) { p, err = d.kernel.AllocHost(bytes); return err })
	if err != nil {
		return nil, fmt.Errorf("gpu: %d bytes of page-locked host memory for %s: %w", bytes, d, d.check(err))
	}
	m := &hostMemory{dev: d, ptr: p, bytes: bytes}
	if err := d.adopt(m); err != nil {
		return nil, err
	}
	return m, nil
}

// Close frees the memory: it is what the device calls.
func (m *hostMemory) Close() error { return m.dev.kernel.FreeHost(m.ptr) }

// free gives the memory back. Nothing may be copying to or from it.
func (m *hostMemory) free() {
	if m != nil {
		m.dev.release(m)
	}
}
