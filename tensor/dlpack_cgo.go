//go:build cgo

package tensor

/*
#include <stdint.h>

void vibrantDeleteDLPack(uintptr_t managed); // Go's

static inline uintptr_t deleterAddress(void) { return (uintptr_t)vibrantDeleteDLPack; }
static inline void callDeleter(uintptr_t deleter, uintptr_t managed) { ((void (*)(uintptr_t))deleter)(managed); }
*/
import "C"

//export vibrantDeleteDLPack
func vibrantDeleteDLPack(managed C.uintptr_t) { dlDelete(uintptr(managed)) }

// dlDeleter returns the address of dlDelete for C. It is cgo's: a thread that took a callback made by purego in a program with cgo
// crashes when it ends.
func dlDeleter() (uintptr, error) { return uintptr(C.deleterAddress()), nil }

// dlCaller returns what calls a deleter at an address.
func dlCaller() (func(deleter, managed uintptr), error) {
	return func(deleter, managed uintptr) { C.callDeleter(C.uintptr_t(deleter), C.uintptr_t(managed)) }, nil
}
