//go:build !cgo && linux && (amd64 || arm64) && !nodlopen

package tensor

import (
	"sync"

	dl "github.com/ebitengine/purego"
)

var deleterAddress = sync.OnceValue(func() uintptr { return dl.NewCallback(func(managed uintptr) { dlDelete(managed) }) })

// dlDeleter returns the address of dlDelete for C.
func dlDeleter() (uintptr, error) { return deleterAddress(), nil }

// dlCaller returns what calls a deleter at an address.
func dlCaller() (func(deleter, managed uintptr), error) {
	return func(deleter, managed uintptr) { dl.SyscallN(deleter, managed) }, nil
}
