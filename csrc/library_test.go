//go:build cgo && linux && !cuda

package csrc_test

import (
	"errors"
	"os"
	"testing"

	"github.com/vibrant-ml/vibrant/csrc"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/check/libraries"
)

// kernels is a library without kernels whose description can be spoilt.
func kernels(version, abi, table string) string {
	return `#include "library.h"
static const vb_backend none;
static const char *architectures(void) { return "90a"; }
const vb_library vb_library_of_cuda = {sizeof(vb_library), ` + abi + `, ` + table + `, ` + version + `, architectures, &none};`
}

// TestLibrariesThatAreNotTaken looks for GPUs in a process of its own for each library, since a process looks once.
func TestLibrariesThatAreNotTaken(t *testing.T) {
	if os.Getenv("VIBRANT_TEST_LIBRARY") != "" {
		_, err := csrc.CUDA().Devices()
		if !errors.Is(err, kernel.ErrNotCompiled) {
			t.Fatalf("devices: %v", err)
		}
		os.Stdout.WriteString(err.Error() + "\n")
		return
	}
	kernels := func(version, abi, table string) string {
		return libraries.Compile(t, ".", kernels(version, abi, table))
	}
	libraries.Refuse(t, append(libraries.Refusals(t, kernels("VB_VERSION", "VB_ABI", "sizeof(vb_backend)")), []libraries.Refusal{
		{"a name without a folder", "library_test.go", "is no shared library of 64 bits: install that of this version"},
		{"another library", libraries.Compile(t, ".", "int answer(void) { return 42; }"), "holds no CUDA kernels of Vibrant: name libvibrant_cuda.so"},
		{"another version", kernels(`"9.8.7"`, "VB_ABI", "sizeof(vb_backend)"), "is of version 9.8.7, this program of"},
		{"another ABI", kernels("VB_VERSION", "VB_ABI + 1", "sizeof(vb_backend)"), "another ABI"},
		{"another table", kernels("VB_VERSION", "VB_ABI", "sizeof(vb_backend) - 8"), "another ABI"},
	}...))
}
