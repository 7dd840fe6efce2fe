package engine

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/fake"
	"github.com/vibrant-ml/vibrant/internal/backend/purego"
	"github.com/vibrant-ml/vibrant/internal/check/testdata"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/internal/language/model"
	"github.com/vibrant-ml/vibrant/tensor"
)

// mixedDevices are a CPU and a device that is none: a GPU where there is one, and a fake one; and two CPUs.
func mixedDevices(t *testing.T, f func(t *testing.T, devices []*gpu.Device)) {
	fakes := fake.New(fake.Config{Devices: 2})
	open := map[string]func() (*gpu.Device, error){
		"fake": func() (*gpu.Device, error) { return gpu.OpenBackend(fakes, 1) },
		"cuda": func() (*gpu.Device, error) { return gpu.Open("cuda") },
		"cpu":  func() (*gpu.Device, error) { return gpu.Open("cpu") },
	}
	for name, open := range open {
		t.Run(name, func(t *testing.T) {
			other, err := open()
			if err != nil {
				t.Skip(err)
			}
			defer other.Close()
			cpu, err := gpu.OpenBackend(purego.Backend(), 0)
			if err != nil {
				t.Fatal(err)
			}
			defer cpu.Close()
			tensor.SetStrict(true)
			defer tensor.SetStrict(false)
			f(t, []*gpu.Device{cpu, other})
			for _, err := range fakes.GPU(1).Misuse() {
				t.Error(err)
			}
		})
	}
}

// openShape opens a model's file until the test ends.
func openShape(t *testing.T, path string) (*gguf.File, *model.Config) {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	shape, err := model.ReadConfig(f)
	if err != nil {
		t.Fatal(err)
	}
	return f, shape
}

// placements are the ways in which two devices, of which the first is a CPU, can have a model of so many layers.
func placements(shape *model.Config) []model.Placement {
	var all []model.Placement
	n := shape.Layers
	for onCPU := 1; onCPU < n; onCPU++ {
		all = append(all, model.Placement{Layers: []int{onCPU, n - onCPU}})
	}
	for experts := 1; experts <= n; experts++ {
		if shape.CheckExperts(experts) == nil {
			all = append(all, model.Placement{Layers: []int{0, n}, Experts: experts})
		}
	}
	if n > 1 && shape.CheckExperts(n) == nil {
		all = append(all, model.Placement{Layers: []int{1, n - 1}, Experts: n})
	}
	return all
}

// TestStagedModelsMatchTransformers holds models whose layers are on a CPU and on another device, in both orders, or whose experts are
// on the CPU, to other engines' logits and greedy ids.
func TestStagedModelsMatchTransformers(t *testing.T) {
	dir := testdata.Path(t, "models")
	mixedDevices(t, func(t *testing.T, devices []*gpu.Device) {
		for _, c := range fewer(randomModels) {
			t.Run(c.file, func(t *testing.T) {
				golden := readGolden(t, dir, c.file)
				tokens := 128
				if c.context > 0 {
					tokens = c.context
				}
				f, shape := openShape(t, filepath.Join(dir, c.file+".gguf"))
				load := func(devices []*gpu.Device, p model.Placement) *model.Model {
					m, err := model.LoadSplit(context.Background(), f, devices, model.Options{Context: tokens, Placement: p})
					if err != nil {
						t.Fatalf("%+v: %v", p, err)
					}
					return m
				}
				for i, p := range fewer(placements(shape)) {
					t.Setenv("VIBRANT_FUSE", []string{"on", "off"}[i%2])
					m := load(devices, p)
					checkGolden(t, m, golden, tokens, c.f32, fmt.Sprintf("%+v", p))
					if i%2 == 0 {
						checkRounded(t, m, c, golden, tokens)
					}
					m.Close()
				}
				t.Setenv("VIBRANT_FUSE", "on")
				m := load([]*gpu.Device{devices[1], devices[0]}, model.Placement{Layers: []int{1, shape.Layers - 1}})
				checkGolden(t, m, golden, tokens, c.f32, "on, the CPU last")
				m.Close()
			})
		}
	})
}

// TestStagesNeedNoPeerAccess has GPUs that do not reach each other's memory share a model by layers, and by heads be told of it.
func TestStagesNeedNoPeerAccess(t *testing.T) {
	fakes := fake.New(fake.Config{Devices: 2, NoPeers: true})
	var devices []*gpu.Device
	for i := range 2 {
		d, err := gpu.OpenBackend(fakes, i)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		devices = append(devices, d)
	}
	f, err := gguf.FromBytes(testmodel.Random(testmodel.Tiny))
	if err != nil {
		t.Fatal(err)
	}
	one := randomModel(t, gpu.CPU(), testmodel.Tiny)
	if _, err := model.LoadSplit(context.Background(), f, devices, model.Options{}); err == nil || !strings.Contains(err.Error(), "--split layer") {
		t.Errorf("divided by heads: %v", err)
	}
	m, err := model.LoadSplit(context.Background(), f, devices, model.Options{Placement: model.Placement{Layers: []int{1, 1}}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ids := randomIDs(3, 20, m.Vocab)
	options := Options{Context: 64, KVType: tensor.F32, Chunk: 6}
	if w := worst(allLogits(t, newSession(t, m, options), ids), allLogits(t, newSession(t, one, options), ids)); !(w <= f32Tolerance) {
		t.Errorf("logits differ by %g", w)
	}
	for _, layers := range [][]int{{1, 2}, {2, 0}, {2}, {1, 1, 1}} {
		if _, err := model.LoadSplit(context.Background(), f, devices, model.Options{Placement: model.Placement{Layers: layers}}); err == nil {
			t.Errorf("%v layers of 2", layers)
		}
	}
}

// TestDevicesWithSeveralRunsOfLayers holds prompts whose chunks devices compute together, in every number of chunks and with devices that
// have unequal shares, to what one device computes. What does not wait comes too early on fake devices.
func TestDevicesWithSeveralRunsOfLayers(t *testing.T) {
	shape := testmodel.Tiny
	shape.Layers, shape.Context = 9, 700
	data := testmodel.Random(shape)
	one := randomModel(t, gpu.CPU(), shape)
	options := Options{Context: 700, KVType: tensor.F32, Chunk: 64}
	last := func(s *Session, ids []int32) ([]float32, []int32) {
		s.Reset()
		if err := s.Prefill(context.Background(), ids); err != nil {
			t.Fatal(err)
		}
		row, err := s.read(s.logits)
		if err != nil {
			t.Fatal(err)
		}
		return slices.Clone(row), greedy(t, s, ids, 6)
	}
	alone := newSession(t, one, options)
	placements := []model.Placement{{Layers: []int{3, 2, 4}, Turns: 2}, {Layers: []int{4, 5}, Turns: 2}, {Layers: []int{6, 3}, Turns: 3}}
	lengths := []int{256, 531}
	if raceDetector {
		placements, lengths = placements[:1], lengths[:1] // more would take minutes, and the same goroutines run
	}
	for _, p := range placements {
		eachDevices(t, len(p.Layers), func(t *testing.T, devices []*gpu.Device) {
			switch devices[0].Info().Backend {
			case "go":
				t.Skip("whose kernels are those of the fake one")
			case "fake":
				slow := fake.New(fake.Config{Devices: len(devices), Delay: 20 * time.Microsecond})
				for i := range devices {
					d, err := gpu.OpenBackend(slow, i)
					if err != nil {
						t.Fatal(err)
					}
					defer d.Close()
					devices[i] = d
				}
			}
			m := splitInMemory(t, devices, data, p)
			defer m.Close()
			s := newSession(t, m, options)
			defer s.Close()
			for _, n := range lengths {
				ids := randomIDs(uint64(n), n, m.Vocab)
				got, answer := last(s, ids)
				want, expected := last(alone, ids)
				if w := worst([][]float32{got}, [][]float32{want}); !(w <= f32Tolerance) || !slices.Equal(answer, expected) {
					t.Errorf("%+v, %d tokens: logits differ by %g; %v, want %v", p, n, w, answer, expected)
				}
			}
		})
	}
}
