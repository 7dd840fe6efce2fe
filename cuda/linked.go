//go:build cuda && cgo

package cuda

/*
#cgo LDFLAGS: ${SRCDIR}/../build/cuda/libvibrant_cuda.a ${SRCDIR}/../build/cuda/libcudart_static.a -lstdc++ -lrt

// A link takes from an archive only what is asked for. csrc asks weakly, so that its objects serve programs without the archive too.
extern const void *vb_linked_library(void);
static const void *(*const library)(void) __attribute__((used)) = vb_linked_library;
*/
import "C"
