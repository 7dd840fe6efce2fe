package tensor_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// TestIllegalAddressLosesTheDeviceAtOnce has a kernel read from an address that the GPU does not have, in a process of its own:
// everything is ErrDeviceLost within a second, closing included. The next process computes on the same GPU.
func TestIllegalAddressLosesTheDeviceAtOnce(t *testing.T) {
	if os.Getenv("VIBRANT_ILLEGAL_ADDRESS") != "" {
		readIllegalAddress(t)
		return
	}
	d, err := gpu.Open("cuda")
	if err != nil {
		t.Skip(err)
	}
	d.Close()
	for _, run := range []struct{ test, address string }{
		{"^TestIllegalAddressLosesTheDeviceAtOnce$", "1"},
		{"^TestGoroutinesComputeWhatOneDoes$/^cuda$", ""},
	} {
		cmd := exec.Command(os.Args[0], "-test.run", run.test, "-test.short", "-test.v")
		cmd.Env = append(os.Environ(), "VIBRANT_ILLEGAL_ADDRESS="+run.address)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Fatalf("%s: %v\n%s", run.test, err, out)
		}
		t.Logf("%s", out)
	}
}

func readIllegalAddress(t *testing.T) {
	d, err := gpu.Open("cuda")
	if err != nil {
		t.Fatal(err)
	}
	x, err := tensor.New(d.Stream(), tensor.F32, 1000)
	if err == nil {
		err = x.WriteFloat32s(make([]float32, 1000))
	}
	if err == nil {
		err = d.Stream().Synchronize()
	}
	if err != nil {
		t.Fatal(err)
	}
	nowhere := kernel.Ptr(unsafe.Add(unsafe.Pointer(nil), 1<<20))
	start := time.Now()
	err = d.Stream().Do(func(k kernel.Stream) error { return k.Add(nowhere, nowhere, nowhere, kernel.F32, 1000) })
	if err == nil {
		err = d.Stream().Synchronize()
	}
	took := time.Since(start)
	if !errors.Is(err, gpu.ErrDeviceLost) || took > time.Second {
		t.Errorf("%v after %v", err, took)
	}
	t.Logf("%v: %v", took, err)
	if _, err := tensor.New(d.Stream(), tensor.F32, 1000); !errors.Is(err, gpu.ErrDeviceLost) {
		t.Errorf("a new tensor: %v", err)
	}
	if err := x.ReadFloat32s(make([]float32, 1000)); !errors.Is(err, gpu.ErrDeviceLost) {
		t.Errorf("reading a tensor: %v", err)
	}
	start = time.Now()
	x.Free()
	if err := d.Close(); err != nil || time.Since(start) > time.Second {
		t.Errorf("closing took %v: %v", time.Since(start), err)
	}
	if _, err := gpu.Open("cuda"); !errors.Is(err, gpu.ErrDeviceLost) {
		t.Logf("opening it again in the same process: %v", err)
	}
}
