//go:build !cgo

// Package csrc binds the C library of this folder. This build calls it where it is found at run time: see package dynamic.
package csrc

import (
	"github.com/vibrant-ml/vibrant/internal/backend/dynamic"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// Library says where the C kernels of this process are, or why there are none.
func Library() string { return dynamic.Library() }

// CUDALibrary says where the CUDA kernels of this process are, or why there are none.
func CUDALibrary() string { return dynamic.CUDALibrary() }

// Backend returns the CPU with C kernels; nil where no library was found, and the CPU is that of internal/backend/purego.
func Backend() kernel.Backend { return dynamic.CPU() }

// CUDA returns the GPUs; where no CUDA kernels were found, its devices are kernel.ErrNotCompiled.
func CUDA() kernel.Backend { return dynamic.CUDA() }

// PTX returns the GPUs with kernels that the driver compiles when they are first used; it takes the library of C.
func PTX() kernel.Backend { return dynamic.PTX() }

// EmitPTX returns a kernel's PTX, the name of its entry, and how it is launched; kernel.ErrNotCompiled where no library was found.
func EmitPTX(p kernel.PTX) (text, entry string, launch kernel.PTXLaunch, err error) {
	return dynamic.EmitPTX(p)
}
