//go:build cgo && (linux || darwin)

package mapped

// #include "guard.h"
import "C"

import (
	"errors"
	"unsafe"
)

// guard puts a mapping in the care of the signal handler.
func guard(data []byte) (slot int, err error) {
	slot = int(C.vb_guard(unsafe.Pointer(unsafe.SliceData(data)), C.size_t(len(data))))
	if slot < 0 {
		return 0, errors.New("too many files are mapped")
	}
	return slot, nil
}

// struck reports whether the handler had to put zeros into a mapping.
func struck(slot int) bool { return C.vb_guard_struck(C.int(slot)) != 0 }

func release(slot int) { C.vb_guard_release(C.int(slot)) }
