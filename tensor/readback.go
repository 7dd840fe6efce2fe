package tensor

import (
	"fmt"
	"unsafe"

	"github.com/vibrant-ml/vibrant/gpu"
)

// Readback brings small tensors to the host without stopping their stream: see gpu.Readback.
type Readback struct{ r *gpu.Readback }

// NewReadback returns a readback of the results of a stream. The caller closes it.
func NewReadback(s *gpu.Stream) *Readback { return &Readback{s.NewReadback()} }

// Start enqueues copies of tensors (F32 or I32) of the stream and returns at once. Two may be under way.
// Errors: *ShapeError for another type or a view with strides, gpu.ErrInvalid for a third, trouble of the device.
func (r *Readback) Start(tensors ...*Tensor) error {
	parts := make([]gpu.Part, len(tensors))
	for i, t := range tensors {
		if t.dtype != F32 && t.dtype != I32 || t.strides != nil {
			return &ShapeError{"readback", fmt.Sprintf("%v %s: want F32 or I32, contiguous", t.dtype, shapeString(t.shape))}
		}
		parts[i] = gpu.Part{Buffer: t.buffer, Offset: t.offset, Bytes: t.Bytes()}
	}
	return r.r.Start(parts...)
}

// Wait returns the elements of the oldest Start, one tensor after the other, as the bits of float32 or int32. They are
// valid until the second Start from here. Errors: gpu.ErrInvalid where nothing was started, trouble of the device.
func (r *Readback) Wait() ([]uint32, error) {
	b, err := r.r.Wait()
	if err != nil || len(b) == 0 {
		return nil, err
	}
	return unsafe.Slice((*uint32)(unsafe.Pointer(&b[0])), len(b)/4), nil
}

// WaitInto is Wait that copies the elements to tensors of the types and lengths of the oldest Start's, on any device.
// Errors: *ShapeError for more bytes than were read, and those of Wait and WriteBytes.
func (r *Readback) WaitInto(tensors ...*Tensor) error {
	b, err := r.r.Wait()
	if err != nil {
		return err
	}
	for _, t := range tensors {
		n := t.Bytes()
		if n > int64(len(b)) {
			return &ShapeError{"readback", fmt.Sprintf("%d bytes for %v %s", len(b), t.dtype, shapeString(t.shape))}
		}
		if err := t.WriteBytes(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// Drop gives up what was started and not waited for, without waiting. Dropping nil is harmless.
func (r *Readback) Drop() {
	if r != nil {
		r.r.Drop()
	}
}

// Close gives the memory back, after the stream's work. Closing nil or twice is harmless.
func (r *Readback) Close() {
	if r != nil {
		r.r.Close()
	}
}
