//go:build cgo

package csrc

// #include "vibrant.h"
import "C"

import (
	"runtime/cgo"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

func newOwner(memory kernel.Allocator) *kernel.Owner {
	o := &kernel.Owner{Memory: memory}
	o.Handle = uintptr(cgo.NewHandle(o))
	return o
}

func handleOf(o *kernel.Owner) C.uintptr_t {
	if o == nil {
		return 0
	}
	return C.uintptr_t(o.Handle)
}

func forget(o *kernel.Owner) {
	if o != nil {
		cgo.Handle(o.Handle).Delete()
	}
}

// vbGoAlloc stores the address as a number. Where Go replaces a pointer, its collector looks at the old one too, and a variable of C holds
// what lay on C's stack: at times an address of Go's memory that was freed, which ends the process.
//
//export vbGoAlloc
func vbGoAlloc(memory *C.uintptr_t, bytes C.int64_t, self C.uintptr_t) C.vb_status {
	p, status := cgo.Handle(self).Value().(*kernel.Owner).Alloc(int64(bytes))
	if status == kernel.StatusOK {
		*memory = C.uintptr_t(uintptr(p))
	}
	return C.vb_status(status)
}

//export vbGoFree
func vbGoFree(memory unsafe.Pointer, self C.uintptr_t) {
	cgo.Handle(self).Value().(*kernel.Owner).Memory.Free(memory)
}
