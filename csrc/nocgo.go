//go:build !cgo

// Package csrc binds the C library of this folder in builds with cgo. This build has none.
package csrc

import "github.com/vibrant-ml/vibrant/internal/backend/kernel"

// CUDALibrary says why this build has no CUDA kernels.
func CUDALibrary() string { return "built without cgo, which finds and calls the library" }

// Backend returns nil: the CPU of this build is internal/backend/purego.
func Backend() kernel.Backend { return nil }
