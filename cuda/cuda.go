//go:build cuda && cgo

// Package cuda binds the CUDA kernels of this folder into a program built with -tags cuda.
//
// Build the static library first: scripts/compile-cuda-kernels.sh (make build-cuda does both). It holds the kernels,
// NVIDIA's runtime lies beside it, and package csrc links both, since it dispatches to them. The driver is looked for when
// the first device is asked for: the program also runs on machines without a GPU.
package cuda

import (
	"github.com/vibrant-ml/vibrant/csrc"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// Backend returns the CUDA devices of this build.
func Backend() kernel.Backend { return csrc.CUDA() }

// library is the checksum of libvibrant_cuda.a, set when a program is linked (see the Makefile): Go does not look into the
// library, and links or tests again only where a flag has changed.
var library string
