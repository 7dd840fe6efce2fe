//go:build !cuda || !cgo

// Package cuda binds the CUDA kernels of this folder into a program built with -tags cuda. This build has none.
package cuda

import (
	"fmt"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// Backend returns a backend whose devices are not there: it says how to build them in.
func Backend() kernel.Backend { return absent{} }

type absent struct{}

var errAbsent = fmt.Errorf("cuda: %w: build with make build-cuda (scripts/compile-cuda-kernels.sh, then go build -tags cuda)",
	kernel.ErrNotCompiled)

func (absent) Name() string                                    { return "cuda" }
func (absent) Devices() ([]kernel.Info, error)                 { return nil, errAbsent }
func (absent) Open(int, kernel.Options) (kernel.Device, error) { return nil, errAbsent }
