//go:build cgo && linux

package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestNumpyAndTorchExchangeArrays builds the library and calls it from Python.
func TestNumpyAndTorchExchangeArrays(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	if out, err := exec.Command(python, "-c", "import numpy").CombinedOutput(); err != nil {
		t.Skipf("python3 has no numpy: %s", out)
	}
	library := filepath.Join(t.TempDir(), "libnormalize.so")
	if out, err := exec.Command("go", "build", "-buildmode=c-shared", "-o", library, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.Command(python, "../../python/dlpack.py", library).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "numpy (3, 4)") {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("%s", out)
}
