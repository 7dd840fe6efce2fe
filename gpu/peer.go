package gpu

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// CopyFromBuffer copies bytes of a buffer of another GPU of the same backend, in the order of both streams: the copy
// waits for what was enqueued on src's stream, whose later work waits for the copy. It does not pass through the host
// where the GPUs reach each other.
func (b *Buffer) CopyFromBuffer(offset int64, src *Buffer, srcOffset, bytes int64) error {
	defer runtime.KeepAlive(b)
	defer runtime.KeepAlive(src)
	if err := b.span("copy", bytes, offset); err != nil {
		return err
	}
	if err := src.span("copy", bytes, srcOffset); err != nil || bytes == 0 {
		return err
	}
	to, from := b.stream, src.stream
	if to.dev.info.Backend != from.dev.info.Backend {
		return fmt.Errorf("gpu: copy from %s to %s: %w: devices of several kinds", from.dev, to.dev, ErrInvalid)
	}
	if err := to.follow(from); err != nil {
		return err
	}
	err := to.Do(func(k kernel.Stream) error {
		return k.CopyOnDevice(unsafe.Add(b.ptr, offset), unsafe.Add(src.ptr, srcOffset), bytes)
	})
	if err != nil {
		return fmt.Errorf("gpu: copy of %d bytes from %s to %s: %w", bytes, from.dev, to.dev, err)
	}
	return from.follow(to)
}

// follow makes work enqueued on s from here on wait for all work enqueued on other so far, be it another device's.
func (s *Stream) follow(other *Stream) error {
	if s == other {
		return nil
	}
	e := other.device.NewEvent()
	defer e.Close()
	if err := other.Record(e); err != nil {
		return err
	}
	return s.Wait(e)
}
