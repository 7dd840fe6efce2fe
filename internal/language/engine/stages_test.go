package engine

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/fake"
	"github.com/vibrant-ml/vibrant/internal/backend/purego"
	"github.com/vibrant-ml/vibrant/internal/check/testdata"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/internal/language/model"
	"github.com/vibrant-ml/vibrant/tensor"
)

// mixedDevices are a CPU and a device that is none: a GPU where there is one, and a fake one.
func mixedDevices(t *testing.T, f func(t *testing.T, devices []*gpu.Device)) {
	fakes := fake.New(fake.Config{Devices: 2})
	open := map[string]func() (*gpu.Device, error){
		"fake": func() (*gpu.Device, error) { return gpu.OpenBackend(fakes, 1) },
		"cuda": func() (*gpu.Device, error) { return gpu.Open("cuda") },
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
		})
	}
}

// TestStagedModelsMatchTransformers holds models whose layers are on a CPU and on another device, in both orders, to other engines'
// logits and greedy ids.
func TestStagedModelsMatchTransformers(t *testing.T) {
	dir := testdata.Path(t, "models")
	mixedDevices(t, func(t *testing.T, devices []*gpu.Device) {
		for _, c := range randomModels {
			t.Run(c.file, func(t *testing.T) {
				golden := readGolden(t, dir, c.file)
				tokens := 128
				if c.context > 0 {
					tokens = c.context
				}
				f, err := gguf.Open(filepath.Join(dir, c.file+".gguf"))
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				shape, err := model.ReadConfig(f)
				if err != nil {
					t.Fatal(err)
				}
				for i, fuse := range []string{"off", "on"} {
					t.Setenv("VIBRANT_FUSE", fuse)
					order := slices.Clone(devices)
					if i == 1 {
						slices.Reverse(order)
					}
					m, err := model.LoadSplit(context.Background(), f, order, model.Options{Context: tokens, Layers: []int{1, shape.Layers - 1}})
					if reason := undivided[c.file]; strings.Contains(reason, "recurrent") {
						if err == nil || !strings.Contains(err.Error(), reason) {
							t.Fatalf("loaded: %v, want %q", err, reason)
						}
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					checkGolden(t, m, golden, tokens, c.f32, fuse)
					m.Close()
				}
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
	one, err := model.Load(context.Background(), f, gpu.CPU(), model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	if _, err := model.LoadSplit(context.Background(), f, devices, model.Options{}); err == nil || !strings.Contains(err.Error(), "--split layer") {
		t.Errorf("divided by heads: %v", err)
	}
	m, err := model.LoadSplit(context.Background(), f, devices, model.Options{Layers: []int{1, 1}})
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
		if _, err := model.LoadSplit(context.Background(), f, devices, model.Options{Layers: layers}); err == nil {
			t.Errorf("%v layers of 2", layers)
		}
	}
}
