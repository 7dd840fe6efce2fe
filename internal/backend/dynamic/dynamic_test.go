//go:build linux && (amd64 || arm64) && !nodlopen

package dynamic_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/vibrant-ml/vibrant/csrc"
	"github.com/vibrant-ml/vibrant/dtype"
	"github.com/vibrant-ml/vibrant/internal/backend/dynamic"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/check/kerneltest"
	"github.com/vibrant-ml/vibrant/internal/check/libraries"
)

// open opens the CPU of the library that VIBRANT_LIBRARY names; a library that is named and not taken is a failure.
func open(t testing.TB, threads int) kernel.Device {
	t.Helper()
	if os.Getenv("VIBRANT_LIBRARY") == "" {
		t.Skip("VIBRANT_LIBRARY names no library: make test-library builds and tests one")
	}
	b := dynamic.CPU()
	if b == nil {
		t.Fatal(dynamic.Library())
	}
	d, err := b.Open(0, kernel.Options{Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// TestKernels holds the library to the suite of kernels; half a percent is what vibrant.h promises of products.
func TestKernels(t *testing.T) {
	d := open(t, 2)
	if i := d.Info(); i.ID != "cpu" || i.Backend != "c" || !i.HostMemory || i.TotalMemory <= 0 || i.Multiprocessors != 2 || i.Features == "" {
		t.Errorf("device: %+v", i)
	}
	kerneltest.Run(t, d, kerneltest.Tolerance{Linear: 5e-3})
}

// TestManyGoroutinesCall computes on 64 streams at once, with operands on Go's heap and while the collector runs.
func TestManyGoroutinesCall(t *testing.T) {
	d := open(t, 2)
	var wg sync.WaitGroup
	for g := range 64 {
		s, err := d.NewStream(nil)
		if err != nil {
			t.Fatal(err)
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer s.Close()
			for round := range 100 {
				n := 1 + (g*37+round*101)%1000
				a, b := make([]float32, n), make([]float32, n)
				for i := range a {
					a[i] = float32(i % 100)
				}
				if err := s.MulScalar(unsafe.Pointer(&b[0]), unsafe.Pointer(&a[0]), float32(round), kernel.F32, n); err != nil {
					t.Error(err)
					return
				}
				for i := range b {
					if b[i] != float32(i%100*round) {
						t.Errorf("stream %d, round %d: element %d is %v", g, round, i, b[i])
						return
					}
				}
			}
		}()
	}
	wg.Wait()
}

// TestRefusedCallsNameTheRule holds errors to what those of cgo say.
func TestRefusedCallsNameTheRule(t *testing.T) {
	d := open(t, 1)
	s, err := d.NewStream(nil)
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float32, 4)
	p := unsafe.Pointer(&x[0])
	if err := s.TopK(p, p, p, 1, 2, 3); !errors.Is(err, kernel.ErrInvalid) || !strings.Contains(err.Error(), "k: negative, or more than cols") {
		t.Errorf("top_k of 3 of 2: %v", err)
	}
	if err := s.BeginCapture(); !errors.Is(err, kernel.ErrUnsupported) {
		t.Errorf("capture on a CPU: %v", err)
	}
	s.Close()
	if err := s.Add(p, p, p, kernel.F32, 4); !errors.Is(err, kernel.ErrInvalid) {
		t.Errorf("add on a closed stream: %v", err)
	}
	for index, want := range map[int]error{1: kernel.ErrNoDevice, -1: kernel.ErrInvalid} {
		if _, err := dynamic.CPU().Open(index, kernel.Options{}); !errors.Is(err, want) {
			t.Errorf("open of %d: %v, want %v", index, err, want)
		}
	}
}

func TestPTXIsThatOfCgo(t *testing.T) {
	open(t, 1)
	for kind := range 22 {
		p := kernel.PTX{Kind: kind, M: 64, N: 64, K: 256, Rows: 4, Dim: 64, Seq: 32, Heads: 2, Target: 80, Epsilon: 1e-5, Causal: true, Weight: dtype.Q5_K,
			KVHeads: 1, Capacity: 99, Theta: 5e5, NeoX: true, Activation: 2}
		if kind%2 == 1 {
			p.Entry = "named"
		}
		text, entry, launch, err := dynamic.EmitPTX(p)
		if err != nil || !strings.Contains(text, entry) || launch.GridX < 1 {
			t.Errorf("kind %d: %q, %+v, %v", kind, entry, launch, err)
		}
		if linked, _, _, err := csrc.EmitPTX(p); err != nil || linked != text {
			t.Errorf("kind %d: not the text of cgo (%v)", kind, err)
		}
	}
	if _, _, _, err := dynamic.EmitPTX(kernel.PTX{Kind: 6, M: 1, N: 1, K: 100}); !errors.Is(err, kernel.ErrInvalid) {
		t.Errorf("Q4_K rows of 100: %v", err)
	}
}

// TestLibrariesThatAreNotTaken looks for a library in a process of its own for each, since a process looks once.
func TestLibrariesThatAreNotTaken(t *testing.T) {
	if os.Getenv("VIBRANT_TEST_LIBRARY") != "" {
		_, err := dynamic.CUDA().Devices()
		if !errors.Is(err, kernel.ErrNotCompiled) || dynamic.CPU() != nil {
			t.Fatalf("devices: %v", err)
		}
		os.Stdout.WriteString(err.Error() + "\n")
		return
	}
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler (cc) makes libraries to refuse")
	}
	compile := func(text string) string { return libraries.Compile(t, "../../../csrc", text) }
	whole := compile("int answer(void) { return 42; }")
	libraries.Refuse(t, append(libraries.Refusals(t, whole), []libraries.Refusal{
		{"a name without a folder", "dynamic_test.go", "is no shared library of 64 bits: install that of this version"},
		{"another library", whole, "is no library of Vibrant: name libvibrant.so or libvibrant_cuda.so"},
		{"another version", compile(`const char *vb_version(void) { return "9.8.7"; }`), "is of version 9.8.7, this program of"},
		{"another ABI", compile(`#include "vibrant.h"
			const char *vb_version(void) { return VB_VERSION; } int64_t vb_call_abi(void) { return 1; }`), "has another ABI"},
		{"no calls", compile(`#include "vibrant.h"
			const char *vb_version(void) { return VB_VERSION; }`), "has another ABI"},
	}...))
}

// TestKernelsForANewerDriverAreNotTaken has a library of both kinds of kernels whose CUDA kernels want a newer driver than there is: the CPU
// computes by it, and what is said of the GPU names the library, what it needs and the remedy.
func TestKernelsForANewerDriverAreNotTaken(t *testing.T) {
	if os.Getenv("VIBRANT_TEST_LIBRARY") != "" {
		if _, err := dynamic.CUDA().Devices(); err == nil || dynamic.CPU() == nil {
			t.Fatalf("devices: %v", err)
		}
		os.Stdout.WriteString(dynamic.Library() + "\n" + dynamic.CUDALibrary() + "\n")
		return
	}
	const objects = "../../../build/lib/libvibrant.a"
	if _, err := os.Stat(objects); err != nil {
		t.Skipf("%v: make build/lib/libvibrant.a", err)
	}
	library := libraries.Compile(t, "../../../csrc", libraries.WithoutKernels("13000")+`
const vb_library *vb_linked_library(void) { return &vb_library_of_cuda; }`,
		"-Wl,--whole-archive", objects, "-Wl,--no-whole-archive", "-lm", "-ldl", "-pthread")
	driver := t.TempDir()
	err := os.Rename(libraries.Compile(t, ".", "int cuDriverGetVersion(int *v) { *v = 12040; return 0; }"), filepath.Join(driver, "libcuda.so.1"))
	if err != nil {
		t.Fatal(err)
	}
	run := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	run.Env = append(os.Environ(), "VIBRANT_TEST_LIBRARY=1", "VIBRANT_LIBRARY="+library, "LD_LIBRARY_PATH="+driver)
	out, err := run.CombinedOutput()
	want := library + "\n" + library + ": needs a driver of CUDA 13, and the driver is of CUDA 12.4: install driver 580 or newer, or the library of CUDA 12\n"
	if err != nil || !strings.HasPrefix(string(out), want) {
		t.Errorf("%v, %s; want %s", err, out, want)
	}
}

// TestCallsAllocateNothing: a call costs no more than one by cgo where Go's collector has nothing to do for it.
func TestCallsAllocateNothing(t *testing.T) {
	s, err := open(t, 1).NewStream(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	x := make([]float32, 3)
	out, a, b := unsafe.Pointer(&x[0]), unsafe.Pointer(&x[1]), unsafe.Pointer(&x[2])
	args := &kernel.MatMulArgs{C: out, A: a, B: b, M: 1, K: 1, N: 1, Batch: 1, AStride: 1, BStride: 1, CStride: 1, Type: kernel.F32}
	if n := testing.AllocsPerRun(100, func() {
		if s.Add(out, a, b, kernel.F32, 1) != nil || s.MatMul(args) != nil {
			t.Error("a call failed")
		}
	}); n != 0 {
		t.Errorf("an addition and a product allocate %v times", n)
	}
}

// BenchmarkCall is the cost of a call that computes one element, beside that of cgo in builds with cgo.
//
//	VIBRANT_LIBRARY=$PWD/build/lib/libvibrant.so go test -run '^$' -bench Call ./internal/backend/dynamic
func BenchmarkCall(b *testing.B) {
	open(b, 1)
	backends := map[string]kernel.Backend{"dynamic": dynamic.CPU()}
	if csrc.Library() == "linked into this program" {
		backends["cgo"] = csrc.Backend()
	}
	for name, backend := range backends {
		d, err := backend.Open(0, kernel.Options{Threads: 1})
		if err != nil {
			b.Fatal(err)
		}
		defer d.Close()
		s, err := d.NewStream(nil)
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		x := make([]float32, 1)
		p := unsafe.Pointer(&x[0])
		b.Run(name+"/add", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Add(p, p, p, kernel.F32, 1); err != nil {
					b.Fatal(err)
				}
			}
		})
		args := &kernel.MatMulArgs{C: p, A: p, B: p, M: 1, K: 1, N: 1, Batch: 1, AStride: 1, BStride: 1, CStride: 1, Type: kernel.F32}
		y, z := make([]float32, 1), make([]float32, 1)
		args.A, args.B = unsafe.Pointer(&y[0]), unsafe.Pointer(&z[0])
		b.Run(name+"/matmul", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := s.MatMul(args); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
