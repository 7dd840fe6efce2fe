// Package absent says which devices a test may leave out.
package absent

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// Device reports whether err says that the device, by its backend's name, is none of this build or this machine. A library of CUDA kernels
// that VIBRANT_LIBRARY names was asked for: where it is not taken, because it is stale or cut short, the test ends as failed. Left out,
// its kernels would count as tested.
func Device(t testing.TB, backend string, err error) bool {
	t.Helper()
	named := filepath.Base(os.Getenv("VIBRANT_LIBRARY"))
	if backend == "cuda" && strings.HasPrefix(named, "libvibrant_") && errors.Is(err, kernel.ErrNotCompiled) {
		t.Fatalf("VIBRANT_LIBRARY names %s, which was not taken: %v", named, err)
	}
	return errors.Is(err, kernel.ErrNotCompiled) || errors.Is(err, kernel.ErrNoDevice)
}
