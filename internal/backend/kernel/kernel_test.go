package kernel_test

import (
	"errors"
	"testing"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// TestAGPUWithoutKernelsIsToldWhatToDo holds the error of a GPU that is older or newer than a library's kernels to a line with a remedy;
// that of kernels in PTX has its own.
func TestAGPUWithoutKernelsIsToldWhatToDo(t *testing.T) {
	for architectures, want := range map[string]string{
		"80_90a": "open: no kernels for this GPU in this build: it holds those of compute capability 80, 90a (with VIBRANT_CUDA=ptx the driver " +
			"compiles kernels for this GPU, and make lib-cuda CUDA_ARCH=... makes a library for it)",
		"7.0 and newer (a newer driver may help)": "open: no kernels for this GPU in this build: it holds those of compute capability " +
			"7.0 and newer (a newer driver may help)",
	} {
		if err := kernel.NoKernelImage("open", architectures); !errors.Is(err, kernel.ErrNoKernelImage) || err.Error() != want {
			t.Errorf("%s: %v, want %s", architectures, err, want)
		}
	}
}
