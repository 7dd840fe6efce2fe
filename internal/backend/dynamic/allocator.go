//go:build linux && (amd64 || arm64) && !nodlopen

package dynamic

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"

	dl "github.com/ebitengine/purego"
)

// owner hands a stream's requests for memory on to Go. A nil owner is that of a stream that asks its device.
type owner struct {
	memory kernel.Allocator
	number uintptr // by which the library knows it
	err    error   // why the newest request failed, which the library only knows as a status
}

var (
	owners      sync.Map // by number
	owned       atomic.Uintptr
	allocations = sync.OnceValues(func() (alloc, free uintptr) { // functions for C are never given back: two for all streams
		return dl.NewCallback(ownerAlloc), dl.NewCallback(ownerFree)
	})
)

// allocator is vb_allocator.
type allocator struct{ alloc, free, context uintptr }

func newOwner(memory kernel.Allocator) *owner {
	o := &owner{memory: memory, number: owned.Add(1)}
	owners.Store(o.number, o)
	return o
}

func (o *owner) allocator() *allocator {
	if o == nil {
		return nil
	}
	alloc, free := allocations()
	return &allocator{alloc, free, o.number}
}

func (o *owner) close() {
	if o != nil {
		owners.Delete(o.number)
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

func ownerOf(number uintptr) *owner {
	o, _ := owners.Load(number)
	return o.(*owner)
}

// ownerAlloc stores the address as a number, as C's variable may hold one of memory of Go's that was freed.
func ownerAlloc(memory *uintptr, bytes int64, number uintptr) uintptr {
	o := ownerOf(number)
	p, err := o.memory.Alloc(bytes)
	o.err = err
	switch {
	case err == nil:
		*memory = uintptr(p)
		return statusOK
	case errors.Is(err, kernel.ErrDeviceLost):
		return statusDeviceLost
	}
	return statusOutOfMemory
}

func ownerFree(memory kernel.Ptr, number uintptr) { ownerOf(number).memory.Free(memory) }
