package tensor

import (
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"github.com/vibrant-ml/vibrant/gpu"
)

// Pointer returns the address of the first element in the memory of the tensor's device, nil after Free. Element (i0, i1, ...) lies
// i0 * Strides()[0] + ... elements behind it. The tensor must stay alive while the address is used (runtime.KeepAlive). Work on the
// memory belongs into the order of a stream: Enqueue.
func (t *Tensor) Pointer() unsafe.Pointer { return t.ptr() }

// Launch is what Enqueue gives to a kernel of the caller's.
type Launch struct {
	// Stream is the stream's CUstream (cudaStream_t) on a GPU, and nil on a CPU, where all work before has finished.
	Stream unsafe.Pointer
	// At has the address of the first element of each operand, in the memory of the device; nil for a nil operand.
	At []unsafe.Pointer
}

// Enqueue runs an operation of the caller's in the order of a stream: launch calls a kernel in C on a CPU, or enqueues one on the
// CUstream of a GPU, in the primary context of the device that Info.Index numbers (cudaSetDevice; goroutines change threads). It keeps
// nothing of its argument and calls nothing of this package or gpu. Operands that belong to other streams are ordered before it.
// Nothing is copied: operands lie on the stream's device, views as their strides say, and launch checks types and shapes.
//
// Errors: gpu.ErrInvalid for an operand on another device, gpu.ErrClosed for one that was freed, and what launch returns.
func Enqueue(op string, s *gpu.Stream, launch func(Launch) error, operands ...*Tensor) error {
	at := make([]unsafe.Pointer, len(operands))
	for i, t := range operands {
		if t == nil {
			continue
		}
		if t.Device() != s.Device() {
			return fmt.Errorf("%s: operand %d %s on %s, stream of %s: %w", op, i, shapeString(t.shape), t.Device(), s.Device(), gpu.ErrInvalid)
		}
		if t.packed {
			return fmt.Errorf("%s: operand %d %s is packed in a layout of its device: %w", op, i, shapeString(t.shape), gpu.ErrInvalid)
		}
		err := t.buffer.Err()
		if err == nil {
			err = t.buffer.Use(s)
		}
		if err != nil {
			return fmt.Errorf("%s: operand %d: %w", op, i, err)
		}
		at[i] = t.ptr()
	}
	err := s.Enqueue(func(native unsafe.Pointer) error { return launch(Launch{Stream: native, At: at}) })
	runtime.KeepAlive(operands)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

// Memory describes an array in memory that somebody else allocated for a device.
type Memory struct {
	Pointer unsafe.Pointer // the first element; a multiple of the size of an element
	Bytes   int64          // from Pointer on
	DType   DType
	Shape   []int
	Strides []int  // elements from one place to the next along each dimension, 0 or more; nil for row-major order without gaps
	Release func() // gives the memory back; may be nil
}

// FromPointer makes a tensor of memory on the stream's device as it stands, without a copy. Operations read and write it; what it holds
// must be there already, or the stream wait for it. For memory of Go there is FromMemory.
//
// Release is called once, on any goroutine: when the tensor was freed, or it and its views were collected, and the work enqueued on
// them has finished. Free waits for that. After an error it is not called: the memory stays the caller's.
//
// Errors: *ShapeError for a shape or strides that do not lie in Bytes; gpu.ErrInvalid for a misaligned or nil address, and on a GPU for
// memory that is not this device's. A CPU cannot check an address.
func FromPointer(s *gpu.Stream, m Memory) (*Tensor, error) {
	const op = "from pointer"
	n, err := elements(op, m.DType, m.Shape)
	if err != nil {
		return nil, err
	}
	t := &Tensor{dtype: m.DType, shape: slices.Clone(m.Shape), n: n}
	if m.Strides != nil && n > 0 {
		if err := checkStrides(op, m); err != nil {
			return nil, err
		}
		t.strides = t.strided(t.shape, slices.Clone(m.Strides), 0).strides
	}
	if reach := t.reach(); reach > m.Bytes {
		return nil, &ShapeError{op, fmt.Sprintf("%v %s of strides %v reaches over %d bytes, of which there are %d", m.DType, shapeString(m.Shape), t.Strides(), reach, m.Bytes)}
	}
	size := uintptr(1)
	if !m.DType.Quantized() {
		size = uintptr(m.DType.BlockBytes())
	}
	if uintptr(m.Pointer)%size != 0 {
		return nil, fmt.Errorf("%s: address %#x is no multiple of %d bytes, as %v needs: %w", op, uintptr(m.Pointer), size, m.DType, gpu.ErrInvalid)
	}
	// Kernels rely on the alignment of a buffer: an address within 16 bytes is an offset from the multiple below it.
	t.offset = int64(uintptr(m.Pointer) % alignment)
	if t.buffer, err = s.Foreign(unsafe.Add(m.Pointer, -t.offset), m.Bytes+t.offset, m.Release); err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	noteMade(t)
	return t, nil
}

// checkStrides checks that strides are those of an array: as many as dimensions, and none so large that an address overflows.
func checkStrides(op string, m Memory) error {
	if len(m.Strides) != len(m.Shape) || m.DType.BlockSize() != 1 {
		return &ShapeError{op, fmt.Sprintf("strides %v of %v %s", m.Strides, m.DType, shapeString(m.Shape))}
	}
	last := 0
	for d, s := range m.Strides {
		if s < 0 || m.Shape[d] > 1 && s > (mostElements-last)/(m.Shape[d]-1) {
			return &ShapeError{op, fmt.Sprintf("stride %d of dimension %d of %s", s, d, shapeString(m.Shape))}
		}
		last += (m.Shape[d] - 1) * s
	}
	return nil
}
