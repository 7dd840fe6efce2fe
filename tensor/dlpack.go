package tensor

import (
	"fmt"
	"math/bits"
	"runtime"
	"sync"
	"unsafe"

	"github.com/vibrant-ml/vibrant/gpu"
)

// DLPack is how libraries hand arrays to each other without a copy (https://dmlc.github.io/dlpack, version 1): numpy, PyTorch, JAX and
// CuPy take and give it. An array travels as the address of a DLManagedTensor or a DLManagedTensorVersioned, which Python wraps in a
// capsule named "dltensor" or "dltensor_versioned". Who takes one calls its deleter once, when it has done.

// dlTensor is DLTensor. Addresses are numbers: the memory is C's, or pinned.
type dlTensor struct {
	data                 uintptr
	deviceType, deviceID int32
	dims                 int32
	code, bits           uint8
	lanes                uint16
	shape, strides       uintptr
	byteOffset           uint64
}

// dlManaged is DLManagedTensor.
type dlManaged struct {
	tensor           dlTensor
	context, deleter uintptr
}

// dlVersioned is DLManagedTensorVersioned.
type dlVersioned struct {
	major, minor     uint32
	context, deleter uintptr
	flags            uint64
	tensor           dlTensor
}

// Values of DLDeviceType and of the flags.
const (
	dlCPU, dlCUDA, dlCUDAHost, dlCUDAManaged = 1, 2, 3, 13

	dlReadOnly = 1
)

// dlTypes are the codes (0 signed, 1 unsigned, 2 float, 4 bfloat, 6 bool) and bits of types.
var dlTypes = map[DType][2]uint8{F32: {2, 32}, F16: {2, 16}, BF16: {4, 16}, I32: {0, 32}, I8: {0, 8}, U8: {1, 8}, BOOL: {6, 8}}

// dlDevice returns the device as DLPack names it.
func dlDevice(d *gpu.Device) (kind, id int32) {
	if info := d.Info(); !info.HostMemory {
		return dlCUDA, int32(info.Index)
	}
	return dlCPU, 0
}

// dlExports are what ToDLPack gave away, by address: they are alive until their deleters are called.
var dlExports struct {
	sync.Mutex
	at map[uintptr]dlExport
}

type dlExport struct {
	drop func() // the hold on the memory
	pins *runtime.Pinner
}

// ToDLPack returns the address of a DLManagedTensor, or of a DLManagedTensorVersioned, that shares the tensor's memory. Whoever takes
// it calls its deleter once, on any thread, when the work on it has finished; one that nobody takes is given back by FreeDLPack. The
// memory stays until then, also where the tensor is freed meanwhile. Work enqueued on the tensor before has finished when ToDLPack
// returns.
//
// Errors: gpu.ErrUnsupported for types of blocks, packed weights and, without cgo, systems other than Linux on x86-64
// and ARM64; gpu.ErrClosed.
func (t *Tensor) ToDLPack(versioned bool) (unsafe.Pointer, error) {
	kind, known := dlTypes[t.dtype]
	if !known || t.packed {
		return nil, fmt.Errorf("dlpack: %v %s: %w: only plain numbers have a form there", t.dtype, shapeString(t.shape), gpu.ErrUnsupported)
	}
	deleter, err := dlDeleter()
	if err != nil {
		return nil, err
	}
	drop, err := t.buffer.Hold()
	if err != nil {
		return nil, fmt.Errorf("dlpack: %w", err)
	}
	if t.IsOnGPU() {
		if err := t.SyncGPU(); err != nil {
			drop()
			return nil, fmt.Errorf("dlpack: %w", err)
		}
	}
	extents := make([]int64, 2*len(t.shape)+1)
	for d, s := range t.Strides() {
		extents[d], extents[len(t.shape)+d] = int64(t.shape[d]), int64(s)
	}
	tensor := dlTensor{data: uintptr(t.buffer.Ptr()), byteOffset: uint64(t.offset), dims: int32(len(t.shape)), code: kind[0], bits: kind[1], lanes: 1,
		shape: uintptr(unsafe.Pointer(&extents[0])), strides: uintptr(unsafe.Pointer(&extents[len(t.shape)]))}
	tensor.deviceType, tensor.deviceID = dlDevice(t.Device())
	if tensor.deviceType == dlCPU { // numpy and others look at data alone where a tensor is empty or they align
		tensor.data, tensor.byteOffset = tensor.data+uintptr(t.offset), 0
	}
	pins := new(runtime.Pinner)
	pins.Pin(&extents[0])
	var managed unsafe.Pointer
	if versioned {
		m := &dlVersioned{major: 1, deleter: deleter, tensor: tensor}
		pins.Pin(m)
		managed = unsafe.Pointer(m)
	} else {
		m := &dlManaged{tensor: tensor, deleter: deleter}
		pins.Pin(m)
		managed = unsafe.Pointer(m)
	}
	dlExports.Lock()
	defer dlExports.Unlock()
	if dlExports.at == nil {
		dlExports.at = map[uintptr]dlExport{}
	}
	dlExports.at[uintptr(managed)] = dlExport{drop, pins}
	return managed, nil
}

// FreeDLPack gives back what ToDLPack returned, if no deleter has: what the deleter itself does. Doing so twice is harmless as long as
// the address has not been handed out anew.
func FreeDLPack(managed unsafe.Pointer) { dlDelete(uintptr(managed)) }

// dlDelete is the deleter of what ToDLPack returns.
func dlDelete(managed uintptr) {
	dlExports.Lock()
	e, there := dlExports.at[managed]
	delete(dlExports.at, managed)
	dlExports.Unlock()
	if there {
		e.drop()
		e.pins.Unpin()
	}
}

// FromDLPack makes a tensor on a stream of the array that the DLManagedTensor, or DLManagedTensorVersioned, at an address describes,
// without a copy. The tensor owns it: its deleter is called once, on any goroutine, when the tensor was freed, or it and its views were
// collected, and the work on them has finished. After an error the array stays its owner's. What it holds must be there already.
//
// Errors: gpu.ErrUnsupported for element types that a Tensor has not, for versions other than 1, for arrays that may not be written, and
// without cgo, for systems other than Linux on x86-64 and ARM64; gpu.ErrInvalid for memory of another device than the stream's, and for a
// description that is none; *ShapeError for negative strides.
func FromDLPack(s *gpu.Stream, managed unsafe.Pointer, versioned bool) (*Tensor, error) {
	if managed == nil {
		return nil, fmt.Errorf("dlpack: nil address: %w", gpu.ErrInvalid)
	}
	var array *dlTensor
	var deleter uintptr
	if versioned {
		m := (*dlVersioned)(managed)
		if m.major != 1 {
			return nil, fmt.Errorf("dlpack: version %d.%d, not 1: %w", m.major, m.minor, gpu.ErrUnsupported)
		}
		if m.flags&dlReadOnly != 0 {
			return nil, fmt.Errorf("dlpack: the array is read-only, and a Tensor may be written: copy it first: %w", gpu.ErrUnsupported)
		}
		array, deleter = &m.tensor, m.deleter
	} else {
		m := (*dlManaged)(managed)
		array, deleter = &m.tensor, m.deleter
	}
	m, err := array.memory(s.Device())
	if err != nil {
		return nil, fmt.Errorf("dlpack: %w", err)
	}
	if deleter != 0 {
		call, err := dlCaller()
		if err != nil {
			return nil, err
		}
		m.Release = func() { call(deleter, uintptr(managed)) }
	}
	t, err := FromPointer(s, m)
	if err != nil {
		return nil, fmt.Errorf("dlpack: %w", err)
	}
	return t, nil
}

// memory checks the description of an array of a device.
func (a *dlTensor) memory(d *gpu.Device) (m Memory, err error) {
	kind, id := dlDevice(d)
	own := a.deviceType == kind && (kind == dlCPU || a.deviceID == id)
	own = own || kind == dlCPU && a.deviceType == dlCUDAHost || kind == dlCUDA && a.deviceType == dlCUDAManaged
	if !own {
		return m, fmt.Errorf("memory of device (%d, %d), stream of %s, which is (%d, %d): %w", a.deviceType, a.deviceID, d, kind, id, gpu.ErrInvalid)
	}
	found := false
	for t, form := range dlTypes {
		if form == [2]uint8{a.code, a.bits} && a.lanes == 1 {
			m.DType, found = t, true
		}
	}
	if !found {
		return m, fmt.Errorf("elements of type code %d, %d bits and %d lanes: %w: convert them first", a.code, a.bits, a.lanes, gpu.ErrUnsupported)
	}
	if a.dims < 0 || a.dims > 64 || a.dims > 0 && a.shape == 0 {
		return m, fmt.Errorf("%d dimensions: %w", a.dims, gpu.ErrInvalid)
	}
	read := func(address *uintptr) []int {
		if *address == 0 || a.dims == 0 {
			return nil
		}
		out := make([]int, a.dims)
		for i, n := range unsafe.Slice(*(**int64)(unsafe.Pointer(address)), a.dims) {
			out[i] = int(n)
		}
		return out
	}
	m.Shape, m.Strides = read(&a.shape), read(&a.strides)
	n, err := elements("dlpack", m.DType, m.Shape)
	if err != nil {
		return m, err
	}
	m.Bytes = m.DType.Bytes(n)
	if m.Strides != nil && n > 0 {
		if err := checkStrides("dlpack", m); err != nil {
			return m, err
		}
		t := &Tensor{dtype: m.DType, shape: m.Shape, n: n, strides: m.Strides}
		m.Bytes = t.reach()
	}
	first, beyond := bits.Add64(uint64(a.data), a.byteOffset, 0)
	_, farther := bits.Add64(first, uint64(m.Bytes), 0)
	switch {
	case n > 0 && a.data == 0:
		return m, fmt.Errorf("%s at a nil address: %w", shapeString(m.Shape), gpu.ErrInvalid)
	case n > 0 && beyond+farther > 0:
		return m, fmt.Errorf("%d bytes %d behind address %#x: %w", m.Bytes, a.byteOffset, a.data, gpu.ErrInvalid)
	case n > 0:
		m.Pointer = unsafe.Add(*(*unsafe.Pointer)(unsafe.Pointer(&a.data)), a.byteOffset)
	}
	return m, nil
}
