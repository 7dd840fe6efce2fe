//go:build cgo && linux

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/tensor"
)

func Example() {
	if err := run(gpu.CPU(), ""); err != nil {
		panic(err)
	}
	// Output:
	// [   0.  144.  576. 1296. 2304. 3600.]
	// [ 36. 144.]
}

func TestOperandsThatDoNotFitAreRefused(t *testing.T) {
	f, err := kernel("")
	if err != nil {
		t.Fatal(err)
	}
	if err := scaleAddInto(f, tensor.Zeros(2, 3).T(), tensor.Zeros(3, 2), 1); err == nil {
		t.Error("a view with gaps is taken")
	}
}

// TestKernelOfCUDA compiles kernel.cu where nvcc is, and runs it where a GPU is.
func TestKernelOfCUDA(t *testing.T) {
	nvcc, err := exec.LookPath("nvcc")
	if err != nil {
		if nvcc = filepath.Join(os.Getenv("CUDA_HOME"), "bin/nvcc"); os.Getenv("CUDA_HOME") == "" {
			t.Skip("no nvcc")
		}
	}
	library := filepath.Join(t.TempDir(), "libkernel.so")
	if out, err := exec.Command(nvcc, "-O2", "-shared", "-Xcompiler", "-fPIC", "-o", library, "kernel.cu").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	d, err := gpu.Open("cuda")
	if errors.Is(err, gpu.ErrNotCompiled) || errors.Is(err, gpu.ErrNoDevice) {
		t.Skip("compiled; no GPU to run it: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := run(d, library); err != nil {
		t.Error(err)
	}
}
