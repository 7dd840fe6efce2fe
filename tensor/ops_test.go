package tensor_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/csrc"
	"github.com/vibrant-ml/vibrant/cuda"
	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/fake"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/backend/purego"
	"github.com/vibrant-ml/vibrant/internal/check/absent"
	"github.com/vibrant-ml/vibrant/internal/check/optable"
)

// backends are those that this build can hold devices of.
func backends() []kernel.Backend {
	all := []kernel.Backend{purego.Backend(), fake.New(fake.Config{Memory: 1 << 30})}
	if c := csrc.Backend(); c != nil {
		all = append(all, c)
	}
	return append(all, cuda.Backend(), csrc.PTX())
}

// eachBackend runs f as a subtest for each backend with its first device; a backend without one is skipped with its reason.
func eachBackend(t *testing.T, f func(t *testing.T, b kernel.Backend, d *gpu.Device)) {
	for _, b := range backends() {
		t.Run(b.Name(), func(t *testing.T) {
			d, err := gpu.OpenBackend(b, 0)
			if absent.Device(t, b.Name(), err) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			f(t, b, d)
		})
	}
}

// TestOps holds every operation to its row in the table on every backend, as TestOps/cuda/RMSNorm/odd_columns_3x127_F32.
// No op may leave its device. Under the race detector the kernels of the CPUs are left out, which are slow there and share
// nothing with what it looks for, and so are long cases. The fake GPU, which computes by the kernels of the backend go, has none either:
// what it adds, who may touch which memory and when, does not depend on how much there is. Short tests leave out long cases, and the
// instructions below those of this processor. Pure Go is checked beside C where C is there: references take most of the time.
// VIBRANT_TEST_OPS=emulated has both checked beside an emulated GPU, and of C alone the short cases.
func TestOps(t *testing.T) {
	strictly(t)
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		devices := []*gpu.Device{d}
		beside := os.Getenv("VIBRANT_TEST_OPS") == "emulated"
		switch {
		case b.Name() == "c" && !beside && !testing.Short():
			devices = append(append(devices, withFewerInstructions(t, b, d)...), pureGo(t))
		case d.Info().Name == "emulated" && beside:
			c := open(t, csrc.Backend())
			devices = append(append(devices, c, pureGo(t)), withFewerInstructions(t, csrc.Backend(), c)...)
		}
		t.Parallel() // with the other backends: references are made by one thread
		if raceDetector && (b.Name() == "go" || b.Name() == "c") {
			t.Skip("left out under the race detector")
		}
		if b.Name() == "go" && csrc.Backend() != nil && !testing.Short() {
			t.Skip("checked beside C")
		}
		short := testing.Short() || raceDetector || b.Name() == "fake" || b.Name() == "c" && beside ||
			d.Info().Name == "interpreter of PTX" // csrc/testdata/libcuda.c
		cpu := b.Name() == "go" || b.Name() == "c"
		for _, op := range optable.Table() {
			t.Run(op.Name, func(t *testing.T) {
				cases := 0
				for i, c := range op.Cases {
					if c.Large || c.Wide && cpu || short && long(b, op, c) {
						continue
					}
					cases++
					t.Run(c.Name(), func(t *testing.T) {
						on := devices
						if c.Wide {
							on = devices[:1]
						}
						_, err := op.CheckEach(on, c, uint64(i))
						switch {
						case b.Name() == "ptx" && (op.NoPTX || c.Adapted()):
							if err != nil && !errors.Is(err, gpu.ErrUnsupported) {
								t.Error(err)
							}
						case err != nil:
							t.Error(err)
						}
					})
					if d.Err() != nil {
						t.Fatal(d.Err()) // nothing after this can tell anything
					}
				}
				if cases == 0 {
					t.Error("no case is short enough")
				}
			})
		}
	})
}

func pureGo(t *testing.T) *gpu.Device { return open(t, purego.Backend()) }

func open(t *testing.T, b kernel.Backend) *gpu.Device {
	d, err := gpu.OpenBackend(b, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// withFewerInstructions opens the CPU at each level of instructions below that of d.
func withFewerInstructions(t *testing.T, b kernel.Backend, d *gpu.Device) []*gpu.Device {
	asked := os.Getenv("VIBRANT_SIMD") // t.Setenv does not go with t.Parallel
	defer os.Setenv("VIBRANT_SIMD", asked)
	var devices []*gpu.Device
	tiles := strings.HasSuffix(d.Info().Features, " amx")
	for _, level := range []string{"avx512", "avx2", "plain"} {
		if strings.HasPrefix(d.Info().Features, level) && !(level == "avx512" && tiles) {
			devices = nil // those above are the same as d
			continue
		}
		os.Setenv("VIBRANT_SIMD", level)
		lower, err := gpu.OpenBackend(b, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { lower.Close() })
		devices = append(devices, lower)
	}
	return devices
}

// long tells cases that take more than a second under the race detector, of the fake GPU a twentieth of one. Dimensions of attention
// may be 0, so that their product tells nothing. Kernels that stay for several rows are taken where there are more.
func long(b kernel.Backend, op *optable.Op, c optable.Case) bool {
	most := 1 << 16
	if b.Name() == "fake" {
		most = 1 << 13
	}
	if strings.HasSuffix(c.Label, "several") {
		most *= 8
	}
	n := 1
	for _, d := range c.Dims {
		n *= d
	}
	return n > most || op.FLOPs != nil && op.FLOPs(c) > int64(32*most)
}
