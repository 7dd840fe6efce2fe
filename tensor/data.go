package tensor

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// bytesOf views a slice of numbers as bytes.
func bytesOf[T float32 | int32 | int8 | uint8 | bool](v []T) []byte {
	var one T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(one)))
}

// Float32s returns a copy of the values as float32, converted on the device if they are not; it waits for the device.
// Panics: *ShapeError, *OpError.
func (t *Tensor) Float32s() []float32 {
	values := make([]float32, t.n)
	if err := t.ReadFloat32s(values); err != nil {
		fail("float32s", err, t)
	}
	return values
}

// Int32s returns a copy of whole numbers as int32, converted on the device if they are not I32; it waits for the device.
// Panics: *ShapeError, *OpError.
func (t *Tensor) Int32s() []int32 {
	values := make([]int32, t.n)
	if err := t.ReadInt32s(values); err != nil {
		fail("int32s", err, t)
	}
	return values
}

// Float64s returns a copy of the values of any type as float64, none of which is rounded; it waits for the device.
// Panics: *ShapeError, *OpError.
func (t *Tensor) Float64s() []float64 {
	values := make([]float64, t.n)
	if integers(t.dtype) {
		for i, v := range t.Int32s() {
			values[i] = float64(v)
		}
		return values
	}
	for i, v := range t.Float32s() {
		values[i] = float64(v)
	}
	return values
}

// ReadFloat32s is Float32s into a slice of the tensor's length.
// Errors: *ShapeError for whole numbers or another length, *OpError, trouble of the device.
func (t *Tensor) ReadFloat32s(dst []float32) error {
	if integers(t.dtype) {
		return &ShapeError{"read float32s", fmt.Sprintf("%v %s: whole numbers: read them by Int32s or Float64s", t.dtype, shapeString(t.shape))}
	}
	if len(dst) != t.n {
		return &ShapeError{"read float32s", fmt.Sprintf("%v %s into %d float32", t.dtype, shapeString(t.shape), len(dst))}
	}
	return t.readAs(F32, bytesOf(dst))
}

// ReadInt32s is Int32s into a slice of the tensor's length.
// Errors: *ShapeError for other numbers or another length, *OpError, trouble of the device.
func (t *Tensor) ReadInt32s(dst []int32) error {
	if !integers(t.dtype) {
		return &ShapeError{"read int32s", fmt.Sprintf("%v %s: no whole numbers: convert them to I32", t.dtype, shapeString(t.shape))}
	}
	if len(dst) != t.n {
		return &ShapeError{"read int32s", fmt.Sprintf("%v %s into %d int32", t.dtype, shapeString(t.shape), len(dst))}
	}
	return t.readAs(I32, bytesOf(dst))
}

// readAs reads the elements in another type, into memory of the host.
func (t *Tensor) readAs(dtype DType, dst []byte) error {
	if t.dtype != dtype {
		var c *Tensor
		if err := Try(func() { c = Convert(t, dtype) }); err != nil {
			return err
		}
		defer c.Free()
		t = c
	}
	return t.read(dst)
}

// Bools returns a copy of the values of a BOOL tensor; it waits for the device. Panics: *ShapeError, *OpError.
func (t *Tensor) Bools() []bool {
	if t.dtype != BOOL {
		misuse("bools", "%v %s: want BOOL", t.dtype, shapeString(t.shape))
	}
	values := make([]bool, t.n)
	// Bytes that others wrote may be more than 1, which no bool of Go is.
	normal := mapped("bools", one(func(x Expr) Expr { return x.Ne(x.Const(0)) }), t)
	defer normal.Free()
	if err := normal.read(bytesOf(values)); err != nil {
		fail("bools", err, t)
	}
	return values
}

// ReadBytes copies the data as stored, row by row, into dst, which has the size of Bytes; it waits for the device.
// Errors: *ShapeError for another size, trouble of the device.
func (t *Tensor) ReadBytes(dst []byte) error {
	if int64(len(dst)) != t.Bytes() {
		return &ShapeError{"read bytes", fmt.Sprintf("%v %s of %d bytes into %d", t.dtype, shapeString(t.shape), t.Bytes(), len(dst))}
	}
	return t.read(dst)
}

// read copies the elements in row-major order to the host.
func (t *Tensor) read(dst []byte) error {
	if t.strides == nil {
		return t.buffer.CopyToHostAt(dst, t.offset)
	}
	c, err := t.duplicate(t.Stream())
	if err != nil {
		return err
	}
	defer c.Free()
	return c.buffer.CopyToHostAt(dst, c.offset)
}

// write replaces the elements by those of the host, in row-major order.
func (t *Tensor) write(src []byte) error {
	if t.strides == nil {
		return t.buffer.CopyFromHostAt(src, t.offset)
	}
	c, err := allocate(t.Stream(), t.dtype, t.shape, t.n)
	if err != nil {
		return err
	}
	defer c.Free()
	if err := c.buffer.CopyFromHostAt(src, c.offset); err != nil {
		return err
	}
	return transfer(t, c)
}

// WriteFloat32s replaces the values of an F32 tensor, in stream order.
// Errors: *ShapeError for another type or length, trouble of the device.
func (t *Tensor) WriteFloat32s(src []float32) error {
	if len(src) != t.n || t.dtype != F32 {
		return &ShapeError{"write float32s", fmt.Sprintf("%d float32 into %v %s", len(src), t.dtype, shapeString(t.shape))}
	}
	return t.write(bytesOf(src))
}

// WriteInt32s replaces the values of an I32 tensor, in stream order.
// Errors: *ShapeError for another type or length, trouble of the device.
func (t *Tensor) WriteInt32s(src []int32) error {
	if len(src) != t.n || t.dtype != I32 {
		return &ShapeError{"write int32s", fmt.Sprintf("%d int32 into %v %s", len(src), t.dtype, shapeString(t.shape))}
	}
	return t.write(bytesOf(src))
}

// WriteBytes replaces the data as stored, in stream order.
// Errors: *ShapeError for another size, trouble of the device.
func (t *Tensor) WriteBytes(src []byte) error {
	if int64(len(src)) != t.Bytes() {
		return &ShapeError{"write bytes", fmt.Sprintf("%d bytes into %v %s of %d", len(src), t.dtype, shapeString(t.shape), t.Bytes())}
	}
	return t.write(src)
}

// Zero sets all bytes to 0, in stream order. Panics: *ShapeError, *OpError.
func (t *Tensor) Zero() {
	if t.strides != nil {
		mapInto("zero", t, func(p *program, _ []Expr) Expr { return p.constant(t.dtype, 0) })
		return
	}
	err := enqueue(t.Stream(), func(k kernel.Stream, p pointers) error { return k.Memset(p[0], 0, t.Bytes()) }, t)
	if err != nil {
		fail("zero", err, t)
	}
}

// Place says where ToDevice puts a tensor: CPU, GPU, or On a given device.
type Place interface {
	device() (*gpu.Device, error)
}

type sharedPlace string

func (p sharedPlace) device() (*gpu.Device, error) { return gpu.Shared(string(p)) }

// The process-wide devices.
const (
	CPU = sharedPlace("cpu")
	GPU = sharedPlace("cuda")
)

type onDevice struct{ d *gpu.Device }

func (p onDevice) device() (*gpu.Device, error) { return p.d, p.d.Err() }

// On is the place of a device that the program opened.
func On(d *gpu.Device) Place { return onDevice{d} }

// ToDevice returns the tensor on another device, or t itself where it is there already.
// Errors: those of the place and of ToStream.
func (t *Tensor) ToDevice(p Place) (*Tensor, error) {
	d, err := p.device()
	if err != nil {
		return nil, err
	}
	if t.Device() == d {
		return t, nil
	}
	return t.ToStream(d.Stream())
}

// ToStream returns a copy of the tensor on a stream of any device, or t itself where it is on that stream already.
// Errors: gpu.ErrUnsupported for a packed tensor, gpu.ErrOutOfMemory and other trouble of the devices.
func (t *Tensor) ToStream(s *gpu.Stream) (*Tensor, error) {
	if t.Stream() == s {
		return t, nil
	}
	return t.duplicate(s)
}

// duplicate returns a copy on a stream.
func (t *Tensor) duplicate(s *gpu.Stream) (*Tensor, error) {
	if t.packed {
		return nil, fmt.Errorf("tensor: move %v %s: %w: packed for %s", t.dtype, shapeString(t.shape), gpu.ErrUnsupported, t.Device())
	}
	c, err := allocate(s, t.dtype, t.shape, t.n)
	if err == nil {
		err = transfer(c, t)
	}
	if err != nil {
		c.Free()
		return nil, fmt.Errorf("tensor: move %v %s to %s: %w", t.dtype, shapeString(t.shape), s.Device(), err)
	}
	return c, nil
}

// transferChunk bounds the host memory that a copy between GPUs of two backends passes through.
const transferChunk = 16 << 20

// transfer copies src to dst, which has as many bytes, on whatever devices they are.
func transfer(dst, src *Tensor) error {
	bytes := src.Bytes()
	if bytes == 0 {
		return nil
	}
	if dst.strides != nil || src.strides != nil {
		return transferViews(dst, src)
	}
	if dst.Device() == src.Device() {
		return enqueue(dst.Stream(), func(k kernel.Stream, p pointers) error { return k.CopyOnDevice(p[0], p[1], bytes) }, dst, src)
	}
	if src.Device().Info().HostMemory {
		if err := src.buffer.Err(); err != nil {
			return err
		}
		return dst.buffer.CopyFromHostAt(unsafe.Slice((*byte)(src.ptr()), bytes), dst.offset)
	}
	if dst.Device().Info().HostMemory {
		if err := dst.buffer.Err(); err != nil {
			return err
		}
		return src.buffer.CopyToHostAt(unsafe.Slice((*byte)(dst.ptr()), bytes), src.offset)
	}
	if dst.Device().Info().Backend == src.Device().Info().Backend {
		return dst.buffer.CopyFromBuffer(dst.offset, src.buffer, src.offset, bytes)
	}
	chunk := make([]byte, min(bytes, transferChunk))
	for at := int64(0); at < bytes; at += int64(len(chunk)) {
		chunk = chunk[:min(int64(len(chunk)), bytes-at)]
		if err := src.buffer.CopyToHostAt(chunk, src.offset+at); err != nil {
			return err
		}
		if err := dst.buffer.CopyFromHostAt(chunk, dst.offset+at); err != nil {
			return err
		}
	}
	return nil
}

// transferViews is transfer where either has strides. Between devices a copy without gaps goes.
func transferViews(dst, src *Tensor) error {
	if dst.Device() == src.Device() {
		return Try(func() { mapInto("copy", dst, same, src) })
	}
	if src.strides != nil {
		c, err := src.duplicate(src.Stream())
		if err != nil {
			return err
		}
		defer c.Free()
		src = c
	}
	if dst.strides == nil {
		return transfer(dst, src)
	}
	c, err := src.duplicate(dst.Stream())
	if err != nil {
		return err
	}
	defer c.Free()
	return transferViews(dst, c)
}

// Clone returns a copy on the same stream, without gaps. A packed weight cannot be cloned.
// Panics: *ShapeError, *OpError.
func (t *Tensor) Clone() *Tensor { return Copy(t) }

// Copy returns a copy of a on its stream. Panics: *ShapeError, *OpError.
func Copy(a *Tensor) *Tensor {
	if a.packed {
		misuse("copy", "%v %s is packed", a.dtype, shapeString(a.shape))
	}
	dst := like("copy", a)
	CopyInto(dst, a)
	return dst
}

// CopyInto copies a to dst, of the same type, between any two devices; between two GPUs, and from a GPU to the CPU, it waits for the
// source. Shapes of one length are copied in row-major order where dst has no gaps; otherwise a is broadcast to dst's shape.
// Panics: *ShapeError, *OpError.
func CopyInto(dst, a *Tensor) {
	if dst.dtype == a.dtype && a.dtype.BlockSize() == 1 && !slices.Equal(dst.shape, a.shape) && (dst.n != a.n || dst.strides != nil) {
		a = a.broadcastTo("copy", dst.shape)
	}
	if dst.dtype != a.dtype || dst.n != a.n || dst.packed || a.packed {
		misuse("copy", "%v %s to %v %s", a.dtype, shapeString(a.shape), dst.dtype, shapeString(dst.shape))
	}
	if dst.Device() != a.Device() || dst.strides != nil || a.strides != nil {
		if err := transfer(dst, a); err != nil {
			fail("copy", err, dst, a)
		}
		return
	}
	exec("copy", dst.Stream(), 1, func(k kernel.Stream, p pointers) error {
		return k.Copy(p[0], p[1], a.dtype, a.n)
	}, dst, a)
}
