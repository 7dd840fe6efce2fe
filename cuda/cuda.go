// Package cuda brings the CUDA kernels of this folder into a program.
//
// A program finds them at run time, in a libvibrant_cuda.so (csrc/library.c says where it is looked for; package dynamic where there
// is no cgo). One built with cgo and -tags cuda has them linked in: scripts/compile-cuda-kernels.sh makes the static library first (make build-cuda
// does both), and linked.go links it. The driver is looked for when the first device is asked for: either program also
// runs on machines without a GPU.
package cuda

import (
	"github.com/vibrant-ml/vibrant/csrc"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// Backend returns the CUDA devices of this build.
func Backend() kernel.Backend { return csrc.CUDA() }

// library is the checksum of the static library that a program is linked with (see the Makefile): Go does not look into the
// library, and links or tests again only where a flag has changed.
//
//lint:ignore U1000 the linker sets it
var library string
