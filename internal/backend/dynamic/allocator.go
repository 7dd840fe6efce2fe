//go:build linux && (amd64 || arm64) && !nodlopen

package dynamic

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"

	dl "github.com/ebitengine/purego"
)

var (
	owners      sync.Map // by number
	owned       atomic.Uintptr
	allocations = sync.OnceValues(func() (alloc, free uintptr) { // functions for C are never given back: two for all streams
		return dl.NewCallback(ownerAlloc), dl.NewCallback(ownerFree)
	})
)

// allocator is vb_allocator.
type allocator struct{ size, alloc, free, context uintptr }

func newOwner(memory kernel.Allocator) *kernel.Owner {
	o := &kernel.Owner{Memory: memory, Handle: owned.Add(1)}
	owners.Store(o.Handle, o)
	return o
}

func allocatorOf(o *kernel.Owner) *allocator {
	if o == nil {
		return nil
	}
	alloc, free := allocations()
	return &allocator{unsafe.Sizeof(allocator{}), alloc, free, o.Handle}
}

func forget(o *kernel.Owner) {
	if o != nil {
		owners.Delete(o.Handle)
	}
}

func ownerOf(number uintptr) *kernel.Owner {
	o, _ := owners.Load(number)
	return o.(*kernel.Owner)
}

// ownerAlloc stores the address as a number, as C's variable may hold one of memory of Go's that was freed.
func ownerAlloc(memory *uintptr, bytes int64, number uintptr) uintptr {
	p, status := ownerOf(number).Alloc(bytes)
	if status == kernel.StatusOK {
		*memory = uintptr(p)
	}
	return uintptr(status)
}

func ownerFree(memory kernel.Ptr, number uintptr) { ownerOf(number).Memory.Free(memory) }
