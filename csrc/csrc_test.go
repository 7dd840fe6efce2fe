//go:build cgo

package csrc_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/vibrant-ml/vibrant/csrc"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/check/kerneltest"
)

// tolerance: half a percent is what the contract promises.
var tolerance = kerneltest.Tolerance{Linear: 5e-3}

func open(t testing.TB, threads int) kernel.Device {
	t.Helper()
	dev, err := csrc.Backend().Open(0, kernel.Options{Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

// TestKernels runs the suite at every level of instructions that this processor has.
func TestKernels(t *testing.T) {
	features := map[string]bool{}
	for _, level := range []string{"plain", "avx2", "avx512", "amx"} {
		for _, threads := range []int{1, 2, 5} {
			t.Run(fmt.Sprintf("%s/threads=%d", level, threads), func(t *testing.T) {
				t.Setenv("VIBRANT_SIMD", level)
				dev := open(t, threads)
				info := dev.Info()
				if threads == 1 && features[info.Features] || threads > 1 && level != "plain" && !strings.Contains(info.Features, level) {
					t.Skipf("this processor has no %s", level)
				}
				features[info.Features] = true
				if info.Multiprocessors != threads {
					t.Errorf("%d threads, want %d", info.Multiprocessors, threads)
				}
				kerneltest.Run(t, dev, tolerance)
			})
		}
	}
}

func TestUnknownInstructionsAreRefused(t *testing.T) {
	t.Setenv("VIBRANT_SIMD", "mmx")
	if _, err := csrc.Backend().Open(0, kernel.Options{}); !errors.Is(err, kernel.ErrInvalid) || !strings.Contains(err.Error(), "VIBRANT_SIMD is none of plain") {
		t.Errorf("VIBRANT_SIMD=mmx: %v", err)
	}
}

func TestDevices(t *testing.T) {
	infos, err := csrc.Backend().Devices()
	if err != nil || len(infos) != 1 || infos[0].ID != "cpu" || !infos[0].HostMemory || infos[0].TotalMemory <= 0 {
		t.Errorf("devices: %+v, %v", infos, err)
	}
	for index, want := range map[int]error{1: kernel.ErrNoDevice, -1: kernel.ErrInvalid} {
		if _, err := csrc.Backend().Open(index, kernel.Options{}); !errors.Is(err, want) {
			t.Errorf("open of %d: %v, want %v", index, err, want)
		}
	}
	if _, err := csrc.Backend().Open(0, kernel.Options{Threads: -1}); !errors.Is(err, kernel.ErrInvalid) {
		t.Errorf("open with -1 threads: %v", err)
	}
}

// TestHandlesCloseInAnyOrder closes the device before what was made from it.
func TestHandlesCloseInAnyOrder(t *testing.T) {
	dev, err := csrc.Backend().Open(0, kernel.Options{Threads: 3})
	if err != nil {
		t.Fatal(err)
	}
	stream, _ := dev.NewStream(nil)
	event, _ := dev.NewEvent()
	dev.Close()
	x := []float32{1, 2, 3}
	p := unsafe.Pointer(&x[0])
	if err := stream.Add(p, p, p, kernel.F32, 3); err != nil || x[2] != 6 {
		t.Errorf("after the device was closed: %v, %v", x, err)
	}
	if err := stream.Record(event); err != nil {
		t.Error(err)
	}
	stream.Close()
	event.Close()
	stream.Close() // twice is harmless
	if err := stream.Add(p, p, p, kernel.F32, 3); !errors.Is(err, kernel.ErrInvalid) {
		t.Errorf("add on a closed stream: %v", err)
	}
}

// TestStreamsShareWorkers computes on several streams at once, some small, some large.
func TestStreamsShareWorkers(t *testing.T) {
	dev := open(t, 4)
	var wg sync.WaitGroup
	for g := range 8 {
		stream, err := dev.NewStream(nil)
		if err != nil {
			t.Fatal(err)
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer stream.Close()
			n := 1000 * (1 + g*g*10)
			a, b := make([]float32, n), make([]float32, n)
			for i := range a {
				a[i] = float32(i % 100)
			}
			for round := range 200 {
				pa, pb := unsafe.Pointer(&a[0]), unsafe.Pointer(&b[0])
				if err := stream.MulScalar(pb, pa, float32(round), kernel.F32, n); err != nil {
					t.Error(err)
					return
				}
				for i := 0; i < n; i += 77 {
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
