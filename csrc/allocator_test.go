//go:build cgo && linux && !cuda

package csrc_test

import (
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"testing"
	"unsafe"

	"github.com/vibrant-ml/vibrant/csrc"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/check/libraries"
)

// unclearedStream is a library whose streams ask their allocator to fill a variable that holds what the caller of memory_check named:
// C's variables hold what its stack held before, addresses of Go's freed memory too.
const unclearedStream = `#include "library.h"
#include <stdlib.h>
static void *held;
static const vb_backend table;
static vb_status count(int *n) { *n = 1; return VB_OK; }
static vb_status open_device(vb_device **d, int index, const vb_device_options *o) {
    (void)index, (void)o;
    *d = malloc(sizeof **d);
    (*d)->backend = &table;
    return VB_OK;
}
static void close_device(vb_device *d) { free(d); }
static vb_status info(vb_device_info *i, const vb_device *d) { (void)d; *i = (vb_device_info){0}; return VB_OK; }
static int error(const vb_device *d) { (void)d; return 0; }
static vb_status check(const void *p, int64_t bytes, vb_device *d) { (void)p, (void)d; held = (void *)bytes; return VB_OK; }
static vb_status create(vb_stream **s, vb_device *d, const vb_allocator *a) {
    void *memory = held;
    const vb_status status = a->alloc(&memory, 256, a->context);
    if (status != VB_OK) return status;
    a->free(memory, a->context);
    *s = calloc(1, sizeof **s);
    (*s)->device = d;
    return VB_OK;
}
static void destroy(vb_stream *s) { free(s); }
static const vb_backend table = {.device_count = count, .device_open = open_device, .device_close = close_device,
    .device_get_info = info, .device_driver_error = error, .memory_check = check, .stream_create_with = create, .stream_destroy = destroy};
static const char *architectures(void) { return "90a"; }
const vb_library vb_library_of_cuda = {sizeof(vb_library), VB_ABI, sizeof(vb_backend), VB_VERSION, architectures, &table};`

// elsewhere allocates one address, which is not Go's.
type elsewhere struct{ t *testing.T }

func (e elsewhere) Alloc(int64) (kernel.Ptr, error) { return unsafe.Add(nil, 1<<46), nil }

func (e elsewhere) Free(p kernel.Ptr) {
	if p != unsafe.Add(nil, 1<<46) {
		e.t.Errorf("free of %p", p)
	}
}

// TestAllocatorsDoNotLookAtWhatTheyFill has streams allocate while Go collects: its write barrier takes what a pointer replaces for an
// address of Go's, and ends the process where nothing lives there.
func TestAllocatorsDoNotLookAtWhatTheyFill(t *testing.T) {
	if os.Getenv("VIBRANT_LIBRARY") == "" || os.Getenv("VIBRANT_TEST_ALLOCATOR") == "" {
		run := exec.Command(os.Args[0], "-test.run=^TestAllocatorsDoNotLookAtWhatTheyFill$")
		run.Env = append(os.Environ(), "VIBRANT_TEST_ALLOCATOR=1", "VIBRANT_LIBRARY="+libraries.Compile(t, ".", unclearedStream))
		if out, err := run.CombinedOutput(); err != nil {
			t.Errorf("%v\n%.3000s", err, out)
		}
		return
	}
	dev, err := csrc.CUDA().Open(0, kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if err := dev.(kernel.MemoryChecker).CheckMemory(unsafe.Pointer(&err), freed()); err != nil {
		t.Fatal(err)
	}
	collected := make(chan struct{})
	go func() {
		defer close(collected)
		for range 50 {
			runtime.GC()
		}
	}()
	for {
		select {
		case <-collected:
			return
		default:
		}
		s, err := dev.NewStream(elsewhere{t})
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
	}
}

// freed returns an address of Go's heap where nothing lives any more.
//
//go:noinline
func freed() int64 {
	address := int64(uintptr(unsafe.Pointer(unsafe.SliceData(make([]byte, 1<<20)))))
	debug.FreeOSMemory()
	return address
}
