package gpu

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// Buffer is memory of a device that belongs to a stream: work on that stream may use it from its allocation to Free
// without waiting for anything. It must not be copied.
type Buffer struct {
	stream  *Stream
	block   *block // nil for memory that somebody else owns
	ptr     kernel.Ptr
	size    int64
	freed   atomic.Bool
	keep    any          // what owns host memory (FromHost)
	foreign *foreign     // what gives it back (Foreign)
	holds   atomic.Int32 // of Hold; -1 when the memory has been given back
	cleanup runtime.Cleanup
}

// Alloc returns memory in the order of the stream; its contents are undefined. Sizes from 0 up are allowed.
//
// Errors: ErrOutOfMemory, after the pool was trimmed and dropped buffers were collected; ErrInvalid for a negative size.
func (s *Stream) Alloc(bytes int64) (*Buffer, error) {
	b := new(Buffer)
	if err := s.AllocInto(b, bytes); err != nil {
		return nil, err
	}
	return b, nil
}

// AllocInto is Alloc into a Buffer that is part of a larger object, which saves an allocation on the Go heap. The buffer
// must be new, and lives as long as the object that it is a part of.
func (s *Stream) AllocInto(b *Buffer, bytes int64) error {
	blk, err := s.dev.pool.get(s.stream, bytes)
	return b.hold(s, blk, bytes, err)
}

// Reserve is Alloc for the few large pieces that live long, such as a model's weights. They have the size asked for (up to 256
// bytes), not that of the next class. Free waits for the device's work and gives them back to the device, not to the pool.
func (s *Stream) Reserve(bytes int64) (*Buffer, error) {
	b := new(Buffer)
	blk, err := s.dev.pool.reserve(s.stream, bytes, s.dev.call)
	if err := b.hold(s, blk, bytes, err); err != nil {
		return nil, err
	}
	return b, nil
}

func (b *Buffer) hold(s *Stream, blk *block, bytes int64, err error) error {
	if err != nil {
		return err
	}
	b.stream, b.block, b.ptr, b.size = s, blk, blk.ptr, bytes
	b.cleanup = runtime.AddCleanup(b, (*block).release, blk)
	return nil
}

// FromHost makes a buffer of host memory as it stands, without a copy, on a device that computes on host memory (see
// Info.HostMemory). keep is held until the buffer is freed: what owns the memory.
func (d *Device) FromHost(memory []byte, keep any) (*Buffer, error) {
	if err := d.usable(); err != nil {
		return nil, err
	}
	if !d.info.HostMemory {
		return nil, fmt.Errorf("gpu: %s cannot use host memory in place: %w", d, ErrUnsupported)
	}
	if keep == nil {
		keep = memory
	}
	return &Buffer{stream: d.main, ptr: unsafe.Pointer(unsafe.SliceData(memory)), size: int64(len(memory)), keep: keep}, nil
}

// Stream returns the stream whose order the buffer follows.
func (b *Buffer) Stream() *Stream { return b.stream }

// Size returns the bytes asked for.
func (b *Buffer) Size() int64 { return b.size }

// Ptr returns the address in the device's memory, nil after Free. The buffer must be kept alive while it is used
// (runtime.KeepAlive).
func (b *Buffer) Ptr() unsafe.Pointer {
	if b.freed.Load() {
		return nil
	}
	return b.ptr
}

// Err says why the buffer cannot be used: nil, ErrClosed after Free or Device.Close, ErrDeviceLost.
func (b *Buffer) Err() error {
	if b.freed.Load() {
		return fmt.Errorf("gpu: buffer of %s was freed: %w", b.stream.dev, ErrClosed)
	}
	return b.stream.dev.usable()
}

// Use orders another stream of the same device after what was enqueued on the buffer's own, and keeps the memory from
// being reused before that stream's work has passed. It must be called before the work is enqueued. For the buffer's own
// stream it does nothing.
func (b *Buffer) Use(s *Stream) error {
	if s == b.stream {
		return nil
	}
	if s.dev != b.stream.dev {
		return fmt.Errorf("gpu: buffer of %s used on %s: %w", b.stream.dev, s.dev, ErrInvalid)
	}
	if b.block != nil {
		s.dev.pool.use(b.block, s.stream)
	}
	if b.foreign != nil {
		b.foreign.use(s.stream)
	}
	return s.after(b.stream.stream)
}

// Free gives the memory back in the order of its stream: work enqueued before may still use it. Freeing twice, or after
// the device was closed, is harmless.
func (b *Buffer) Free() {
	if b == nil || b.freed.Swap(true) {
		return
	}
	b.unhold()
}

// CopyFromHost writes src to the start of the buffer, in stream order. src may be reused when the call returns.
func (b *Buffer) CopyFromHost(src []byte) error { return b.CopyFromHostAt(src, 0) }

// CopyFromHostAt writes src from a byte offset of the buffer on, in stream order.
func (b *Buffer) CopyFromHostAt(src []byte, offset int64) error {
	defer runtime.KeepAlive(b)
	if err := b.span("copy from host", int64(len(src)), offset); err != nil || len(src) == 0 {
		return err
	}
	return b.stream.upload(unsafe.Add(b.ptr, offset), src)
}

// CopyToHost reads the start of the buffer into dst. It waits for the stream's work.
func (b *Buffer) CopyToHost(dst []byte) error { return b.CopyToHostAt(dst, 0) }

// CopyToHostAt reads from a byte offset of the buffer on into dst. It waits for the stream's work.
func (b *Buffer) CopyToHostAt(dst []byte, offset int64) error {
	defer runtime.KeepAlive(b)
	if err := b.span("copy to host", int64(len(dst)), offset); err != nil || len(dst) == 0 {
		return err
	}
	return b.stream.download(dst, unsafe.Add(b.ptr, offset))
}

// span checks that n bytes from offset on lie in a usable buffer.
func (b *Buffer) span(op string, n, offset int64) error {
	if err := b.Err(); err != nil {
		return err
	}
	if offset < 0 || offset > b.size || n > b.size-offset {
		return fmt.Errorf("gpu: %s: %d bytes at offset %d of a buffer of %d: %w", op, n, offset, b.size, ErrInvalid)
	}
	return nil
}
