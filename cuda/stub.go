//go:build !cgo

// Package cuda brings the CUDA kernels of this folder into a program. A build without cgo has none.
package cuda

import (
	"fmt"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// Backend returns a backend whose devices are not there: it says how to get them.
func Backend() kernel.Backend { return absent{} }

type absent struct{}

var errAbsent = fmt.Errorf("cuda: %w: built without cgo: build with a C compiler (CGO_ENABLED=1) beside libvibrant_cuda.so, or with make build-cuda",
	kernel.ErrNotCompiled)

func (absent) Name() string                                    { return "cuda" }
func (absent) Devices() ([]kernel.Info, error)                 { return nil, errAbsent }
func (absent) Open(int, kernel.Options) (kernel.Device, error) { return nil, errAbsent }
