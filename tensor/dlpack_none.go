//go:build !cgo && (!linux || !(amd64 || arm64) || nodlopen)

package tensor

import (
	"fmt"

	"github.com/vibrant-ml/vibrant/gpu"
)

func noCalls() error {
	return fmt.Errorf("dlpack: functions of others are not called on this system or in this build: %w", gpu.ErrUnsupported)
}

func dlDeleter() (uintptr, error) { return 0, noCalls() }

func dlCaller() (func(deleter, managed uintptr), error) { return nil, noCalls() }
