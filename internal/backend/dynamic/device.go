//go:build linux && (amd64 || arm64) && !nodlopen

package dynamic

import (
	"bytes"
	"fmt"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// Kinds of devices, as vibrant.h has them.
const (
	kindCPU  = 0
	kindCUDA = 1
	kindPTX  = 2
)

// CPU returns the CPU with C kernels, or nil where no library was found: see Library.
func CPU() kernel.Backend {
	if found().path == "" {
		return nil
	}
	return backend{kindCPU, "c", "cpu"}
}

// CUDA returns the GPUs. Where there is no library of CUDA kernels, its devices are kernel.ErrNotCompiled, which says where it was
// looked for.
func CUDA() kernel.Backend { return backend{kindCUDA, "cuda", "cuda"} }

// PTX returns the GPUs with kernels that the driver compiles when they are first used.
func PTX() kernel.Backend { return backend{kindPTX, "ptx", "ptx"} }

type backend struct {
	kind     uintptr
	name, id string
}

func (b backend) Name() string { return b.name }

func (b backend) Devices() ([]kernel.Info, error) {
	if found().path == "" {
		return nil, check(b.name+" devices", uintptr(kernel.StatusNotCompiled), nil)
	}
	var count int32
	if err := check(b.name+" devices", invoke(fnDeviceCount, uintptr(unsafe.Pointer(&count)), b.kind), nil); err != nil {
		return nil, err
	}
	return kernel.Infos(b, int(count))
}

// deviceInfo is vb_device_info.
type deviceInfo struct {
	kind, index         int32
	name                [128]byte
	totalMemory         int64
	major, minor, units int32
	l2Bytes             int64
	sharedMemoryBytes   int64
	features            [64]byte
}

// deviceOptions is vb_device_options.
type deviceOptions struct {
	size    uintptr
	threads int32
}

func (b backend) Open(index int, o kernel.Options) (kernel.Device, error) {
	if found().path == "" {
		return nil, check("vb_device_open", uintptr(kernel.StatusNotCompiled), nil)
	}
	d := &device{backend: b}
	options := deviceOptions{unsafe.Sizeof(deviceOptions{}), int32(o.Threads)}
	opened := invoke(fnDeviceOpen, uintptr(unsafe.Pointer(&d.p)), b.kind, uintptr(index), uintptr(unsafe.Pointer(&options)))
	if err := check("vb_device_open", opened, nil); err != nil {
		return nil, err
	}
	info := &deviceInfo{}
	if err := check("device info", invoke(fnDeviceGetInfo, uintptr(unsafe.Pointer(info)), uintptr(d.p)), d.p); err != nil {
		d.Close()
		return nil, err
	}
	until0 := func(b []byte) string { b, _, _ = bytes.Cut(b, []byte{0}); return string(b) }
	d.info = kernel.Info{
		ID: b.id, Name: until0(info.name[:]), Backend: b.name, Index: index, TotalMemory: info.totalMemory,
		ComputeMajor: int(info.major), ComputeMinor: int(info.minor), Multiprocessors: int(info.units),
		L2Bytes: info.l2Bytes, SharedMemoryBytes: info.sharedMemoryBytes, Features: until0(info.features[:]), HostMemory: b.kind == kindCPU,
	}
	if b.kind != kindCPU {
		d.info.ID = fmt.Sprintf("%s:%d", b.id, index)
	}
	return d, nil
}

// check turns a status into an error.
func check(op string, result uintptr, d kernel.Ptr) error {
	return kernel.StatusError(op, kernel.Status(int32(result)), explainer{d})
}

// explainer explains the statuses of a device's calls.
type explainer struct{ d kernel.Ptr }

func (explainer) CUDALibrary() string   { return CUDALibrary() }
func (explainer) DriverReport() string  { return text(invoke(fnDriverReport)) }
func (explainer) Architectures() string { return text(invoke(fnCUDAArchitectures)) }
func (explainer) StatusString(s kernel.Status) string {
	return text(invoke(fnStatusString, uintptr(s)))
}
func (e explainer) DriverError() int { return int(int32(invoke(fnDeviceDriverError, uintptr(e.d)))) }

type device struct {
	backend
	p    kernel.Ptr // of C, as are those of streams, events and graphs
	info kernel.Info
}

func (d *device) Info() kernel.Info { return d.info }

func (d *device) Memory() (free, total int64, err error) {
	err = check("memory", invoke(fnDeviceMemory, uintptr(unsafe.Pointer(&free)), uintptr(unsafe.Pointer(&total)), uintptr(d.p)), d.p)
	return free, total, err
}

func (d *device) Alloc(bytes int64) (p kernel.Ptr, err error) {
	err = check(fmt.Sprintf("alloc of %d bytes", bytes), invoke(fnAlloc, uintptr(unsafe.Pointer(&p)), uintptr(bytes), uintptr(d.p)), d.p)
	return p, err
}

func (d *device) Free(p kernel.Ptr) error {
	return check("free", invoke(fnFree, uintptr(p), uintptr(d.p)), d.p)
}

func (d *device) CheckMemory(p kernel.Ptr, bytes int64) error {
	return check(fmt.Sprintf("%d bytes of memory", bytes), invoke(fnMemoryCheck, uintptr(p), uintptr(bytes), uintptr(d.p)), d.p)
}

func (d *device) AllocHost(bytes int64) (p kernel.Ptr, err error) {
	status := invoke(fnAllocHost, uintptr(unsafe.Pointer(&p)), uintptr(bytes), uintptr(d.p))
	return p, check(fmt.Sprintf("host alloc of %d bytes", bytes), status, d.p)
}

func (d *device) FreeHost(p kernel.Ptr) error {
	return check("host free", invoke(fnFreeHost, uintptr(p), uintptr(d.p)), d.p)
}

func (d *device) NewStream(memory kernel.Allocator) (kernel.Stream, error) {
	s := &stream{device: d.p}
	if memory != nil && !d.info.HostMemory {
		s.owner = newOwner(memory)
	}
	status := invoke(fnStreamCreate, uintptr(unsafe.Pointer(&s.p)), uintptr(d.p), uintptr(unsafe.Pointer(allocatorOf(s.owner))))
	if err := s.owner.Explain(check("new stream", status, d.p)); err != nil {
		forget(s.owner)
		return nil, err
	}
	return s, nil
}

func (d *device) NewEvent() (kernel.Event, error) {
	e := &event{device: d.p}
	if err := check("new event", invoke(fnEventCreate, uintptr(unsafe.Pointer(&e.p)), uintptr(d.p)), d.p); err != nil {
		return nil, err
	}
	return e, nil
}

func (d *device) PackedSize(w kernel.Weight) (bytes int64, err error) {
	raw := asWeight(w)
	status := invoke(fnWeightPackedSize, uintptr(unsafe.Pointer(&bytes)), uintptr(unsafe.Pointer(&raw)), uintptr(d.p))
	return bytes, check("packed size", status, d.p)
}

// ScratchBytes bounds what the kernels of a pass ask of the pool.
func (d *device) ScratchBytes(p kernel.Pass) int64 { return d.info.ScratchBytes(p) }

// Close gives the handle back; the library keeps the device until its last stream, event and graph is closed.
func (d *device) Close() error {
	invoke(fnDeviceClose, uintptr(d.p))
	d.p = nil
	return nil
}

type event struct{ p, device kernel.Ptr }

func (e *event) Done() (bool, error) {
	var done int32
	err := check("event done", invoke(fnEventDone, uintptr(unsafe.Pointer(&done)), uintptr(e.p)), e.device)
	return done != 0, err
}

func (e *event) Synchronize() error {
	return check("event synchronize", invoke(fnEventSynchronize, uintptr(e.p)), e.device)
}

func (e *event) ElapsedMS(start kernel.Event) (ms float32, err error) {
	from, ok := start.(*event)
	if !ok {
		return 0, errForeign("event")
	}
	err = check("elapsed time", invoke(fnEventElapsed, uintptr(unsafe.Pointer(&ms)), uintptr(from.p), uintptr(e.p)), e.device)
	return ms, err
}

func (e *event) Close() error {
	invoke(fnEventDestroy, uintptr(e.p))
	e.p = nil
	return nil
}

type graph struct{ p, device kernel.Ptr }

func (g *graph) Update(newer kernel.Graph) error {
	n, ok := newer.(*graph)
	if !ok {
		return errForeign("graph")
	}
	return check("graph update", invoke(fnGraphUpdate, uintptr(g.p), uintptr(n.p)), g.device)
}

func (g *graph) Prepare() error {
	return check("graph prepare", invoke(fnGraphPrepare, uintptr(g.p)), g.device)
}

func (g *graph) Close() error {
	invoke(fnGraphDestroy, uintptr(g.p))
	g.p = nil
	return nil
}

func errForeign(what string) error {
	return fmt.Errorf("%s of another backend: %w", what, kernel.ErrInvalid)
}

// cWeight is vb_weight.
type cWeight struct {
	data       kernel.Ptr
	t, layout  int32
	rows, cols int64
}

func asWeight(w kernel.Weight) cWeight {
	return cWeight{data: w.Data, t: int32(w.Type), layout: truth(w.Packed), rows: int64(w.Rows), cols: int64(w.Cols)}
}

// cView is vb_view, cStep vb_step.
type (
	cView struct {
		data    kernel.Ptr
		t       int32
		strides [kernel.MaxDims]int64
	}
	cStep struct{ op, a, b, c int32 }
)

func asView(v kernel.View) cView {
	return cView{data: v.Data, t: int32(v.Type), strides: asNumbers(v.Strides)}
}

func asViews(all [kernel.MaxInputs]kernel.View) (c [kernel.MaxInputs]cView) {
	for i, v := range all {
		c[i] = asView(v)
	}
	return c
}

func asSteps(all [kernel.MaxSteps]kernel.Step) (c [kernel.MaxSteps]cStep) {
	for i, s := range all {
		c[i] = cStep{int32(s.Op), s.A, s.B, s.C}
	}
	return c
}

func asNumbers(all [kernel.MaxDims]int) (c [kernel.MaxDims]int64) {
	for i, n := range all {
		c[i] = int64(n)
	}
	return c
}

func truth(b bool) int32 {
	if b {
		return 1
	}
	return 0
}
