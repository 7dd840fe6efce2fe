// Package tensor computes on tensors that live on the CPU or on a GPU.
//
// A tensor has a shape, an element type and memory of one device. An op runs where its operands are and returns before
// a GPU has finished; only reading data back waits:
//
//	a := tensor.FromSlice([]float32{1, 2, 3, 4}, 2, 2)
//	a, err := a.ToDevice(tensor.GPU)
//	...
//	fmt.Println(tensor.MatMul(a, a).Float32s())
//
// Each op has a twin that writes to a tensor that is there already (MatMulInto), so that a captured graph finds the same
// addresses at each launch. The work is put on the stream of the output, or else of the first operand that is no weight.
//
// Operands that do not fit are a mistake of the program and panic with a *ShapeError; a device that cannot run an op
// panics with an *OpError, after what may fall back to the CPU has done so. Comments say which may come. Try turns both into
// errors.
//
// Memory is given back when the garbage collector finds a tensor dropped; Free does it at once.
package tensor

import (
	"fmt"
	"math"
	"sync"
	"unsafe"

	"github.com/vibrant-ml/vibrant/dtype"
	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// DType is an element type, by ggml's type id. Quantized types come in blocks of elements along the last dimension.
type DType = dtype.Type

// Tensor is an array on a device: row-major and without gaps, or a view of one with strides (Transpose, SliceAlong, ...). Its
// shape and type never change. Several goroutines may read a tensor; writing one, as Into does, is for one at a time.
type Tensor struct {
	dtype  DType
	packed bool
	shape  []int // never written to: tensors share it
	// strides are the elements from one place to the next along each dimension; nil where the elements lie in row-major order
	// without gaps. Never written to.
	strides []int
	n       int
	offset  int64
	buffer  *gpu.Buffer

	packedBytes int64 // of a packed weight

	mu     sync.Mutex
	copies map[*gpu.Device]*Tensor // of a weight, on the devices where ops wanted it
}

// owner is a tensor that came with its memory: one object on the Go heap, not two.
type owner struct {
	Tensor
	memory gpu.Buffer
}

// New returns a tensor with undefined contents, in the order of a stream. Errors: *ShapeError for a shape that is none,
// gpu.ErrOutOfMemory and other trouble of the device.
func New(s *gpu.Stream, dtype DType, shape ...int) (*Tensor, error) {
	n, err := elements("new", dtype, shape)
	if err != nil {
		return nil, err
	}
	return allocate(s, dtype, append([]int(nil), shape...), n)
}

func allocate(s *gpu.Stream, dtype DType, shape []int, n int) (*Tensor, error) {
	o := &owner{Tensor: Tensor{dtype: dtype, shape: shape, n: n}}
	if err := s.AllocInto(&o.memory, dtype.Bytes(n)); err != nil {
		return nil, err
	}
	o.buffer = &o.memory
	noteMade(&o.Tensor)
	return &o.Tensor, nil
}

// output allocates what an op returns, or panics. The shape is kept.
func output(op string, s *gpu.Stream, dtype DType, shape []int) *Tensor {
	n, err := elements(op, dtype, shape)
	if err != nil {
		panic(err)
	}
	t, err := allocate(s, dtype, shape, n)
	if err != nil {
		panic(&OpError{Op: op, Shapes: [][]int{shape}, Err: err})
	}
	return t
}

// like allocates an output of a's shape.
func like(op string, a *Tensor) *Tensor {
	t, err := allocate(a.Stream(), a.dtype, a.shape, a.n)
	if err != nil {
		fail(op, err, a)
	}
	return t
}

// mostElements bounds a tensor, far above any memory; where int has 32 bits it keeps four bytes an element addressable.
const mostElements = min(1<<46, math.MaxInt/4)

// elements returns the product of a shape, after checking that it fits the type and the address space.
func elements(op string, dtype DType, shape []int) (int, error) {
	block := dtype.BlockSize()
	if block == 0 {
		return 0, &ShapeError{op, fmt.Sprintf("unknown type %v", dtype)}
	}
	n, empty := 1, false // strides of empty tensors are products of the other dimensions
	for _, d := range shape {
		if d < 0 {
			return 0, &ShapeError{op, fmt.Sprintf("%s: negative dimension", shapeString(shape))}
		}
		if empty = empty || d == 0; n > mostElements/max(1, d) {
			return 0, &ShapeError{op, fmt.Sprintf("%s: too many elements", shapeString(shape))}
		}
		n *= max(1, d)
	}
	if empty {
		n = 0
	}
	if block > 1 && (len(shape) == 0 || shape[len(shape)-1]%block != 0) {
		return 0, &ShapeError{op, fmt.Sprintf("%s: rows of %v are whole blocks of %d", shapeString(shape), dtype, block)}
	}
	return n, nil
}

// NewTensorOnDevice is New on the device's default stream. Errors: those of New.
func NewTensorOnDevice(d *gpu.Device, dtype DType, shape ...int) (*Tensor, error) {
	return New(d.Stream(), dtype, shape...)
}

// Zeros returns a float32 tensor of zeros on the CPU. Panics: *ShapeError, *OpError.
func Zeros(shape ...int) *Tensor {
	t := output("zeros", gpu.CPU().Stream(), F32, append([]int(nil), shape...))
	t.Zero()
	return t
}

// FromSlice returns a tensor on the CPU with a copy of values; no shape means one dimension.
// Panics: *ShapeError, *OpError.
func FromSlice(values []float32, shape ...int) *Tensor {
	return fromHost("from slice", F32, bytesOf(values), len(values), shape)
}

// FromFloat64s returns an F32 tensor on the CPU of values, which are rounded to float32; no shape means one dimension.
// Panics: *ShapeError, *OpError.
func FromFloat64s(values []float64, shape ...int) *Tensor {
	rounded := make([]float32, len(values))
	for i, v := range values {
		rounded[i] = float32(v)
	}
	return fromHost("from float64s", F32, bytesOf(rounded), len(rounded), shape)
}

// FromInt32s returns an I32 tensor on the CPU with a copy of values; no shape means one dimension.
// Panics: *ShapeError, *OpError.
func FromInt32s(values []int32, shape ...int) *Tensor {
	return fromHost("from int32s", I32, bytesOf(values), len(values), shape)
}

// FromUint8s returns a U8 tensor on the CPU with a copy of values; no shape means one dimension.
// Panics: *ShapeError, *OpError.
func FromUint8s(values []uint8, shape ...int) *Tensor {
	return fromHost("from uint8s", U8, values, len(values), shape)
}

// FromBools returns a BOOL tensor on the CPU with a copy of values; no shape means one dimension.
// Panics: *ShapeError, *OpError.
func FromBools(values []bool, shape ...int) *Tensor {
	return fromHost("from bools", BOOL, bytesOf(values), len(values), shape)
}

func fromHost(op string, dtype DType, data []byte, n int, shape []int) *Tensor {
	if len(shape) == 0 {
		shape = []int{n}
	}
	t := output(op, gpu.CPU().Stream(), dtype, append([]int(nil), shape...))
	if t.n != n {
		misuse(op, "%d values do not fill %s", n, shapeString(shape))
	}
	if err := t.buffer.CopyFromHost(data); err != nil {
		fail(op, err, t)
	}
	return t
}

// FromMemory makes a tensor of data as it stands, for example a part of a mapped file: quantized types are ggml's
// blocks, rows first. On a device that computes on host memory the data is used in place, and keepAlive (what owns it)
// is held as long as the tensor; elsewhere it is copied to the device.
//
// Data that is not aligned to 16 bytes is copied everywhere.
// Errors: *ShapeError for a shape that is none or that takes another size, gpu.ErrOutOfMemory and other trouble of the device.
func FromMemory(d *gpu.Device, dtype DType, data []byte, keepAlive any, shape ...int) (*Tensor, error) {
	n, err := elements("from memory", dtype, shape)
	if err != nil {
		return nil, err
	}
	if want := dtype.Bytes(n); int64(len(data)) != want {
		return nil, &ShapeError{"from memory", fmt.Sprintf("%d bytes for %v %s, which takes %d", len(data), dtype, shapeString(shape), want)}
	}
	shape = append([]int(nil), shape...)
	aligned := uintptr(unsafe.Pointer(unsafe.SliceData(data)))%16 == 0
	if d.Info().HostMemory && aligned && len(data) > 0 {
		b, err := d.FromHost(data, keepAlive)
		if err != nil {
			return nil, err
		}
		return &Tensor{dtype: dtype, shape: shape, n: n, buffer: b}, nil
	}
	t, err := allocate(d.Stream(), dtype, shape, n)
	if err != nil {
		return nil, err
	}
	if err := t.buffer.CopyFromHost(data); err != nil {
		t.Free()
		return nil, err
	}
	return t, nil
}

// Shape returns a copy of the dimensions.
func (t *Tensor) Shape() []int { return append([]int{}, t.shape...) }

// Dim returns dimension i, counted from the end where i is negative. Panics: *ShapeError.
func (t *Tensor) Dim(i int) int { return t.shape[t.dim("dim", i)] }

// Rank returns the number of dimensions.
func (t *Tensor) Rank() int { return len(t.shape) }

// Len returns the number of elements.
func (t *Tensor) Len() int { return t.n }

// Bytes returns the size of the data, as stored or packed; of a view with strides, that of its elements.
func (t *Tensor) Bytes() int64 {
	if t.packed {
		return t.packedBytes
	}
	return t.dtype.Bytes(t.n)
}

// DType returns the element type.
func (t *Tensor) DType() DType { return t.dtype }

// Device returns the device that holds the data.
func (t *Tensor) Device() *gpu.Device { return t.buffer.Stream().Device() }

// Stream returns the stream whose order the tensor follows.
func (t *Tensor) Stream() *gpu.Stream { return t.buffer.Stream() }

// IsOnGPU reports whether the data is in memory that only a GPU computes on.
func (t *Tensor) IsOnGPU() bool { return !t.Device().Info().HostMemory }

// ptr returns the address of the first element, and of an empty view the address of the memory that it is a view of: the view may begin
// where that memory ends, and memory of Go may end where a freed span begins, into which no pointer may point.
func (t *Tensor) ptr() kernel.Ptr {
	p := t.buffer.Ptr()
	if p == nil || t.n == 0 {
		return p
	}
	return unsafe.Add(p, t.offset)
}

// cols returns the last dimension and rows the product of the others; a tensor without dimensions is one row of one.
func (t *Tensor) cols() int {
	if len(t.shape) == 0 {
		return 1
	}
	return t.shape[len(t.shape)-1]
}

func (t *Tensor) rows() int {
	rows := 1
	for _, d := range t.shape[:max(0, len(t.shape)-1)] {
		rows *= d
	}
	return rows
}

// Free gives the memory back, which views of the tensor share. Freeing twice is harmless; using it afterwards is an
// OpError with gpu.ErrClosed.
func (t *Tensor) Free() {
	if t == nil {
		return
	}
	t.freeCopies()
	t.buffer.Free()
}

// FreeGPU gives back what the tensor holds on GPUs: itself, or the copies that ops made of a weight.
func (t *Tensor) FreeGPU() {
	t.freeCopies()
	if t.IsOnGPU() {
		t.Free()
	}
}

func (t *Tensor) freeCopies() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.copies {
		c.Free()
	}
	t.copies = nil
}

// SyncGPU waits until the work enqueued on the tensor's stream has finished.
// Errors: what became of the work (gpu.ErrDeviceLost, gpu.ErrClosed).
func (t *Tensor) SyncGPU() error { return t.Stream().Synchronize() }
