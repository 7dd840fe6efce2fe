package vibrant

import (
	"errors"
	"slices"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/fake"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
)

// TestAutoTakesTheMostLayersThatFit asks for layers on fake GPUs of several sizes.
func TestAutoTakesTheMostLayersThatFit(t *testing.T) {
	shape := testmodel.Tiny
	shape.Layers = 8
	f, err := gguf.FromBytes(testmodel.Random(shape))
	if err != nil {
		t.Fatal(err)
	}
	place := func(memory int64, layers int) (placement, *Fit, error) {
		card, err := gpu.OpenBackend(fake.New(fake.Config{Memory: memory}), 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { card.Close() })
		c, err := newConfig([]Option{WithGPULayers(layers), WithContext(64), WithPrefillChunk(16)})
		if err != nil {
			t.Fatal(err)
		}
		p := placement{devices: []*gpu.Device{card}}
		if err := c.offload(f, &p); err != nil {
			return p, nil, err
		}
		fit, err := predict(f, p, c)
		if err != nil {
			t.Fatal(err)
		}
		return p, fit, nil
	}
	for layers, want := range map[int][]int{GPULayersAuto: nil, 8: nil, 99: nil, 3: {5, 3}} {
		if p, _, err := place(256<<20, layers); err != nil || !slices.Equal(p.layers, want) {
			t.Errorf("%d layers of a model that fits: %v, %v", layers, p.layers, err)
		}
	}
	_, whole, err := place(256<<20, GPULayersAuto)
	if err != nil {
		t.Fatal(err)
	}
	need := whole.Memory.Total()
	before := 8
	for _, part := range []int64{95, 80, 60} {
		memory := need * part / 80 // of which 0.8 may be used
		p, fit, err := place(memory, GPULayersAuto)
		if err != nil {
			t.Fatalf("%d %% of what the model needs: %v", part, err)
		}
		if len(p.layers) != 2 || p.layers[1] > before || !fit.Devices[1].Fits {
			t.Fatalf("%d %%: %v layers, %+v", part, p.layers, fit.Devices)
		}
		before = p.layers[1]
		more := placement{devices: p.devices, layers: []int{p.layers[0] - 1, p.layers[1] + 1}}
		if p.layers[0] > 1 {
			c, _ := newConfig([]Option{WithContext(64), WithPrefillChunk(16)})
			if fit, err := predict(f, more, c); err != nil || fit.Devices[1].Fits {
				t.Errorf("%d %%: %v layers fit too: %v", part, more.layers, err)
			}
		}
	}
	if _, _, err := place(64<<10, GPULayersAuto); !errors.Is(err, ErrDoesNotFit) {
		t.Errorf("a GPU without room: %v", err)
	}
	if _, _, err := place(256<<20, 0); err == nil {
		t.Error("no layer on a GPU that was named")
	}
}

func TestLayersAreDividedByMemory(t *testing.T) {
	open := func(memory int64) *gpu.Device {
		d, err := gpu.OpenBackend(fake.New(fake.Config{Memory: memory}), 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return d
	}
	small, large := open(64<<20), open(192<<20)
	for _, test := range []struct {
		layers  int
		devices []*gpu.Device
		want    []int
	}{{8, []*gpu.Device{small, large}, []int{2, 6}}, {8, []*gpu.Device{large, large}, []int{4, 4}}, {2, []*gpu.Device{small, large}, []int{1, 1}}, {3, []*gpu.Device{large, small, small}, []int{1, 1, 1}}} {
		if got, err := sharesOf(test.layers, test.devices); err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%d layers: %v, %v, want %v", test.layers, got, err, test.want)
		}
	}
	if _, err := sharesOf(1, []*gpu.Device{small, large}); err == nil {
		t.Error("one layer on two devices")
	}
}
