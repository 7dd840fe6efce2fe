//go:build !linux || !(amd64 || arm64) || nodlopen

// Package dynamic calls the C library found at run time. It does so on Linux, on amd64 and arm64; elsewhere there is none.
package dynamic

import (
	"fmt"
	"runtime"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// Library says why there is none.
func Library() string { return "no library is looked for on " + runtime.GOOS + "/" + runtime.GOARCH }

// CUDALibrary says why there is none.
func CUDALibrary() string { return Library() }

// CPU returns nil.
func CPU() kernel.Backend { return nil }

// CUDA returns a backend whose devices are kernel.ErrNotCompiled.
func CUDA() kernel.Backend { return none{"cuda"} }

// PTX returns a backend whose devices are kernel.ErrNotCompiled.
func PTX() kernel.Backend { return none{"ptx"} }

type none struct{ name string }

var errNone = fmt.Errorf("%w: %s", kernel.ErrNotCompiled, Library())

func (none) Name() string                                    { return "cuda" }
func (none) Devices() ([]kernel.Info, error)                 { return nil, errNone }
func (none) Open(int, kernel.Options) (kernel.Device, error) { return nil, errNone }

// EmitPTX says that there is no emitter.
func EmitPTX(kernel.PTX) (source, entry string, launch kernel.PTXLaunch, err error) {
	return "", "", launch, fmt.Errorf("the emitter of PTX is written in C: %w: build with cgo", kernel.ErrNotCompiled)
}
