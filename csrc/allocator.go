//go:build cgo

package csrc

// #include "vibrant.h"
import "C"

import (
	"errors"
	"fmt"
	"runtime/cgo"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// owner hands a stream's requests for memory on to Go. A nil owner is that of a stream that asks its device.
type owner struct {
	memory kernel.Allocator
	self   cgo.Handle
	err    error // why the newest request failed, which the library only knows as a status
}

func newOwner(memory kernel.Allocator) *owner {
	o := &owner{memory: memory}
	o.self = cgo.NewHandle(o)
	return o
}

func (o *owner) handle() C.uintptr_t {
	if o == nil {
		return 0
	}
	return C.uintptr_t(o.self)
}

func (o *owner) close() {
	if o != nil {
		o.self.Delete()
	}
}

// explain adds to the error of a call why memory was refused to it.
func (o *owner) explain(err error) error {
	if err == nil || o == nil || o.err == nil {
		return err
	}
	why := o.err
	o.err = nil
	return fmt.Errorf("%w: %w", err, why)
}

// vbGoAlloc stores the address as a number. Where Go replaces a pointer, its collector looks at the old one too, and a variable of C holds
// what lay on C's stack: at times an address of Go's memory that was freed, which ends the process.
//
//export vbGoAlloc
func vbGoAlloc(memory *C.uintptr_t, bytes C.int64_t, self C.uintptr_t) C.vb_status {
	o := cgo.Handle(self).Value().(*owner)
	p, err := o.memory.Alloc(int64(bytes))
	o.err = err
	switch {
	case err == nil:
		*memory = C.uintptr_t(uintptr(p))
		return C.VB_OK
	case errors.Is(err, kernel.ErrDeviceLost):
		return C.VB_DEVICE_LOST
	}
	return C.VB_OUT_OF_MEMORY
}

//export vbGoFree
func vbGoFree(memory unsafe.Pointer, self C.uintptr_t) {
	cgo.Handle(self).Value().(*owner).memory.Free(memory)
}
