//go:build !cgo

// Package csrc binds the C library of this folder in builds with cgo. This build has none.
package csrc

import (
	"fmt"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// CUDALibrary says why this build has no CUDA kernels.
func CUDALibrary() string { return "built without cgo, which finds and calls the library" }

// Backend returns nil: the CPU of this build is internal/backend/purego.
func Backend() kernel.Backend { return nil }

// Emit says that the emitter is not in this build.
func (PTX) Emit() (text, entry string, launch PTXLaunch, err error) {
	return "", "", launch, fmt.Errorf("the emitter of PTX is written in C: %w: build with cgo", kernel.ErrNotCompiled)
}
