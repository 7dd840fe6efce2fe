//go:build cgo

// Package csrc binds the C library of this folder: one line an operation, for CPU and CUDA devices alike.
//
// It does no policy. Handles are raw: package gpu sees to it that a stream is used by one goroutine at a time and that
// nothing is used after its Close. The checks of arguments are those of the library (ops.c).
package csrc

/*
#cgo CFLAGS: -std=c11 -D_GNU_SOURCE -Wall -Wextra -pthread
#cgo !debug CFLAGS: -O3 -g1
#cgo LDFLAGS: -lm -pthread
#cgo linux LDFLAGS: -ldl
#include "vibrant.h"

// Structs go by value: what they point to may be Go memory, and C must not be handed Go memory that holds such pointers.
static vb_status weight_packed_size(int64_t *bytes, vb_weight w, vb_device *d) { return vb_weight_packed_size(bytes, &w, d); }

// A stream's own memory comes from Go: see allocator.go. A context is a handle, not an address.
vb_status vbGoAlloc(uintptr_t *memory, int64_t bytes, uintptr_t owner);
void vbGoFree(void *memory, uintptr_t owner);
static vb_status go_alloc(void **memory, int64_t bytes, void *context) {
    uintptr_t address = 0;
    const vb_status status = vbGoAlloc(&address, bytes, (uintptr_t)context);
    *memory = (void *)address;
    return status;
}
static void go_free(void *memory, void *context) { vbGoFree(memory, (uintptr_t)context); }
static vb_status stream_create(vb_stream **stream, vb_device *device, uintptr_t owner) {
    const vb_allocator allocator = {sizeof allocator, go_alloc, go_free, (void *)owner};
    return vb_stream_create_with(stream, device, owner ? &allocator : NULL);
}
*/
import "C"

import (
	"fmt"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// Backend returns the CPU with C kernels.
func Backend() kernel.Backend { return backend{C.VB_CPU, "c", "cpu"} }

// CUDA returns the GPUs. Its kernels are linked in by the tag cuda, else found at run time in libvibrant_cuda.so; where there
// are none, its devices are kernel.ErrNotCompiled, which says where they were looked for.
func CUDA() kernel.Backend { return backend{C.VB_CUDA, "cuda", "cuda"} }

// PTX returns the GPUs with kernels that the driver compiles when they are first used, which takes no library: see VB_PTX.
func PTX() kernel.Backend { return backend{C.VB_PTX, "ptx", "ptx"} }

// Library says where the C kernels of this process are.
func Library() string { return "linked into this program" }

// CUDALibrary says where the CUDA kernels of this process are, or why there are none.
func CUDALibrary() string { return C.GoString(C.vb_cuda_library()) }

type backend struct {
	kind     C.vb_device_kind
	name, id string
}

func (b backend) Name() string { return b.name }

func (b backend) Devices() ([]kernel.Info, error) {
	var count C.int
	if err := check(b.name+" devices", C.vb_device_count(&count, b.kind), nil); err != nil {
		return nil, err
	}
	return kernel.Infos(b, int(count))
}

func (b backend) Open(index int, o kernel.Options) (kernel.Device, error) {
	d := &device{backend: b}
	options := C.vb_device_options{size: C.sizeof_vb_device_options, threads: C.int(o.Threads)}
	if err := check("vb_device_open", C.vb_device_open(&d.p, b.kind, C.int(index), &options), nil); err != nil {
		return nil, err
	}
	var info C.vb_device_info
	if err := check("device info", C.vb_device_get_info(&info, d.p), d.p); err != nil {
		d.Close()
		return nil, err
	}
	d.info = kernel.Info{
		ID: b.id, Name: C.GoString(&info.name[0]), Backend: b.name, Index: index, TotalMemory: int64(info.total_memory),
		ComputeMajor: int(info.compute_major), ComputeMinor: int(info.compute_minor), Multiprocessors: int(info.multiprocessors),
		L2Bytes: int64(info.l2_bytes), SharedMemoryBytes: int64(info.shared_memory_bytes),
		Features: C.GoString(&info.features[0]), HostMemory: b.kind == C.VB_CPU,
	}
	if b.kind != C.VB_CPU {
		d.info.ID = fmt.Sprintf("%s:%d", b.id, index)
	}
	return d, nil
}

// check turns a status into an error.
func check(op string, s C.vb_status, d *C.vb_device) error {
	return kernel.StatusError(op, kernel.Status(s), explainer{d})
}

// explainer explains the statuses of a device's calls.
type explainer struct{ d *C.vb_device }

func (explainer) CUDALibrary() string   { return CUDALibrary() }
func (explainer) DriverReport() string  { return C.GoString(C.vb_driver_report()) }
func (explainer) Architectures() string { return C.GoString(C.vb_cuda_architectures_in_use()) }
func (explainer) StatusString(s kernel.Status) string {
	return C.GoString(C.vb_status_string(C.vb_status(s)))
}
func (e explainer) DriverError() int { return int(C.vb_device_driver_error(e.d)) }

type device struct {
	backend
	p    *C.vb_device
	info kernel.Info
}

func (d *device) Info() kernel.Info { return d.info }

func (d *device) Memory() (free, total int64, err error) {
	var f, t C.int64_t
	err = check("memory", C.vb_device_memory(&f, &t, d.p), d.p)
	return int64(f), int64(t), err
}

func (d *device) Alloc(bytes int64) (p kernel.Ptr, err error) {
	err = check(fmt.Sprintf("alloc of %d bytes", bytes), C.vb_alloc(&p, C.int64_t(bytes), d.p), d.p)
	return p, err
}

func (d *device) Free(p kernel.Ptr) error { return check("free", C.vb_free(p, d.p), d.p) }

func (d *device) CheckMemory(p kernel.Ptr, bytes int64) error {
	return check(fmt.Sprintf("%d bytes of memory", bytes), C.vb_memory_check(p, C.int64_t(bytes), d.p), d.p)
}

func (d *device) AllocHost(bytes int64) (p kernel.Ptr, err error) {
	err = check(fmt.Sprintf("host alloc of %d bytes", bytes), C.vb_alloc_host(&p, C.int64_t(bytes), d.p), d.p)
	return p, err
}

func (d *device) FreeHost(p kernel.Ptr) error { return check("host free", C.vb_free_host(p, d.p), d.p) }

func (d *device) NewStream(memory kernel.Allocator) (kernel.Stream, error) {
	s := &stream{device: d.p}
	if memory != nil && !d.info.HostMemory {
		s.owner = newOwner(memory)
	}
	if err := s.owner.Explain(check("new stream", C.stream_create(&s.p, d.p, handleOf(s.owner)), d.p)); err != nil {
		forget(s.owner)
		return nil, err
	}
	return s, nil
}

func (d *device) NewEvent() (kernel.Event, error) {
	e := &event{device: d.p}
	if err := check("new event", C.vb_event_create(&e.p, d.p), d.p); err != nil {
		return nil, err
	}
	return e, nil
}

func (d *device) PackedSize(w kernel.Weight) (int64, error) {
	var bytes C.int64_t
	err := check("packed size", C.weight_packed_size(&bytes, weight(w), d.p), d.p)
	return int64(bytes), err
}

// ScratchBytes bounds what the kernels of a pass ask of the pool.
func (d *device) ScratchBytes(p kernel.Pass) int64 { return d.info.ScratchBytes(p) }

// Close gives the handle back; the library keeps the device until its last stream, event and graph is closed.
func (d *device) Close() error {
	C.vb_device_close(d.p)
	d.p = nil
	return nil
}

type event struct {
	p      *C.vb_event
	device *C.vb_device
}

func (e *event) Done() (bool, error) {
	var done C.int
	err := check("event done", C.vb_event_done(&done, e.p), e.device)
	return done != 0, err
}

func (e *event) Synchronize() error {
	return check("event synchronize", C.vb_event_synchronize(e.p), e.device)
}

func (e *event) ElapsedMS(start kernel.Event) (float32, error) {
	from, ok := start.(*event)
	if !ok {
		return 0, errForeign("event")
	}
	var ms C.float
	err := check("elapsed time", C.vb_event_elapsed(&ms, from.p, e.p), e.device)
	return float32(ms), err
}

func (e *event) Close() error {
	C.vb_event_destroy(e.p)
	e.p = nil
	return nil
}

type graph struct {
	p      *C.vb_graph
	device *C.vb_device
}

func (g *graph) Update(newer kernel.Graph) error {
	n, ok := newer.(*graph)
	if !ok {
		return errForeign("graph")
	}
	return check("graph update", C.vb_graph_update(g.p, n.p), g.device)
}

func (g *graph) Prepare() error { return check("graph prepare", C.vb_graph_prepare(g.p), g.device) }

func (g *graph) Close() error {
	C.vb_graph_destroy(g.p)
	g.p = nil
	return nil
}

func errForeign(what string) error {
	return fmt.Errorf("%s of another backend: %w", what, kernel.ErrInvalid)
}

func weight(w kernel.Weight) C.vb_weight {
	layout := C.vb_layout(C.VB_STORED)
	if w.Packed {
		layout = C.VB_PACKED
	}
	return C.vb_weight{data: w.Data, _type: C.vb_dtype(w.Type), layout: layout, rows: C.int64_t(w.Rows), cols: C.int64_t(w.Cols)}
}

func view(v kernel.View) C.vb_view {
	return C.vb_view{data: v.Data, _type: C.vb_dtype(v.Type), strides: numbers(v.Strides)}
}

func views(all [kernel.MaxInputs]kernel.View) (c [kernel.MaxInputs]C.vb_view) {
	for i, v := range all {
		c[i] = view(v)
	}
	return c
}

func steps(all [kernel.MaxSteps]kernel.Step) (c [kernel.MaxSteps]C.vb_step) {
	for i, s := range all {
		c[i] = C.vb_step{op: C.vb_element_op(s.Op), a: C.int32_t(s.A), b: C.int32_t(s.B), c: C.int32_t(s.C)}
	}
	return c
}

func numbers(all [kernel.MaxDims]int) (c [kernel.MaxDims]C.int64_t) {
	for i, n := range all {
		c[i] = C.int64_t(n)
	}
	return c
}

func f32(p kernel.Ptr) *C.float   { return (*C.float)(p) }
func i32(p kernel.Ptr) *C.int32_t { return (*C.int32_t)(p) }

func truth(b bool) C.int {
	if b {
		return 1
	}
	return 0
}
