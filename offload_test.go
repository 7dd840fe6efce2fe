package vibrant

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/fake"
	"github.com/vibrant-ml/vibrant/internal/check/testdata"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
	"github.com/vibrant-ml/vibrant/internal/language/engine"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/internal/language/model"
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
		c.opened = []*gpu.Device{card}
		p, err := c.place(f, c.open)
		if err != nil {
			return p, nil, err
		}
		fit, err := predict(f, p, c)
		if err != nil {
			t.Fatal(err)
		}
		return p, fit, nil
	}
	for layers, want := range map[int][]int{GPULayersAuto: nil, 8: nil, 99: nil, 3: {5, 3}} {
		if p, _, err := place(256<<20, layers); err != nil || !slices.Equal(p.Layers, want) {
			t.Errorf("%d layers of a model that fits: %v, %v", layers, p.Layers, err)
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
		if len(p.Layers) != 2 || p.Layers[1] > before || !fit.Devices[1].Fits {
			t.Fatalf("%d %%: %v layers, %+v", part, p.Layers, fit.Devices)
		}
		before = p.Layers[1]
		more := placement{devices: p.devices, Placement: model.Placement{Layers: []int{p.Layers[0] - 1, p.Layers[1] + 1}}}
		if p.Layers[0] > 1 {
			c, _ := newConfig([]Option{WithContext(64), WithPrefillChunk(16)})
			if fit, err := predict(f, more, c); err != nil || fit.Devices[1].Fits {
				t.Errorf("%d %%: %v layers fit too: %v", part, more.Layers, err)
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

// openOn opens the model of a file on devices that are open already.
func openOn(t *testing.T, f *gguf.File, devices []*gpu.Device, options ...Option) (*Model, error) {
	t.Helper()
	c, err := newConfig(options)
	if err != nil {
		return nil, err
	}
	c.opened = devices
	return open(context.Background(), func() (*gguf.File, error) { return f, nil }, "", c)
}

// cards opens so many fake GPUs of a size.
func cards(t *testing.T, n int, memory int64) (*fake.Backend, []*gpu.Device) {
	t.Helper()
	b := fake.New(fake.Config{Devices: n, Memory: memory, Scratch: true})
	var all []*gpu.Device
	for i := range n {
		d, err := gpu.OpenBackend(b, i)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	return b, all
}

// TestGPUsHaveTheirLayersInTwoRuns but where a GPU has a single layer, or something is in RAM.
func TestGPUsHaveTheirLayersInTwoRuns(t *testing.T) {
	for _, c := range []struct {
		layers, runs int
		options      []Option
	}{
		{4, runsOfLayers, []Option{WithLayerSplit()}},
		{3, 0, []Option{WithLayerSplit()}},
		{6, 0, []Option{WithLayerSplit(), WithGPULayers(5)}},
		{4, 0, nil},
	} {
		shape := testmodel.Tiny
		shape.Layers = c.layers
		f, err := gguf.FromBytes(testmodel.Random(shape))
		if err != nil {
			t.Fatal(err)
		}
		_, devices := cards(t, 2, 0)
		m, err := openOn(t, f, devices, c.options...)
		if err != nil {
			t.Fatal(err)
		}
		if m.where.Turns != c.runs {
			t.Errorf("%+v in %d runs, want %d", m.where.Layers, m.where.Turns, c.runs)
		}
		m.Close()
	}
}

// TestDevicesTakeWhatIsPlanned compares the plan of each device with what its pool has given out after an answer, for each way of
// dividing a model. 3 % are left to the sizes of the pool's blocks, 8 KiB to a stream's own memory, and 16 KiB to scratch memory: the plan
// has the most that kernels may ask for.
func TestDevicesTakeWhatIsPlanned(t *testing.T) {
	dense := testmodel.Random(testmodel.Shape{Hidden: 128, Layers: 4, Heads: 4, KVHeads: 2, HeadDim: 32, FeedForward: 256, Vocab: 2000, Context: 8192})
	experts, err := os.ReadFile(testdata.Path(t, "models/tiny-qwen3moe.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		data    []byte
		cards   int
		options []Option
	}{
		{"whole", dense, 1, nil},
		{"layers in RAM", dense, 1, []Option{WithGPULayers(3)}},
		{"split by layers", dense, 2, []Option{WithLayerSplit()}},
		{"split by layers beside RAM", dense, 2, []Option{WithLayerSplit(), WithGPULayers(3)}},
		{"split by heads", dense, 2, nil},
		{"layers in RAM, streamed", dense, 1, []Option{WithGPULayers(2), WithStreamedPrompts(32)}},
		{"experts in RAM, streamed", experts, 1, []Option{WithCPUExperts(AllLayers), WithStreamedPrompts(32)}},
		{"experts in RAM", experts, 1, []Option{WithCPUExperts(AllLayers)}},
		{"experts of a layer in RAM", experts, 1, []Option{WithCPUExperts(1)}},
		{"experts and layers in RAM", experts, 1, []Option{WithCPUExperts(AllLayers), WithGPULayers(1)}},
		{"split by layers, experts in RAM", experts, 2, []Option{WithCPUExperts(AllLayers), WithLayerSplit()}},
	} {
		t.Run(c.name, func(t *testing.T) {
			hw, devices := cards(t, c.cards, 0)
			f, err := gguf.FromBytes(c.data)
			if err != nil {
				t.Fatal(err)
			}
			m, err := openOn(t, f, devices, append(c.options, WithContext(512), WithPrefillChunk(64), WithKVType(KVF16))...)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			loaded := make([]int64, len(m.devices))
			for i, d := range m.devices {
				d.Pool().Trim()
				loaded[i] = d.Pool().Stats().InUse - d.StreamBytes()
			}
			fit, err := predict(f, m.where, m.config)
			if err != nil {
				t.Fatal(err)
			}
			near := func(what string, taken, planned int64) {
				t.Helper()
				if off := taken - planned; off > planned*3/100+8<<10 || -off > planned*3/100+16<<10 {
					t.Errorf("%s: planned %d bytes, taken %d", what, planned, taken)
				}
			}
			err = m.withEngine(512, 1, func(s *engine.Session) error {
				if err := s.Prefill(context.Background(), make([]int32, 300)); err != nil {
					return err
				}
				for range 3 {
					id, err := s.Next(nil)
					if err == nil {
						err = s.Step(id, nil)
					}
					if err != nil {
						return err
					}
				}
				for i, d := range m.devices {
					plan, used := fit.each[i].Memory, d.Pool().Stats().InUse-d.StreamBytes()-loaded[i]
					exchange := gpu.CommunicatorBytes(m.where.exchanging()) // not of the pool, nor of fakes
					near(d.String()+", session", used, plan.Cache+plan.Workspace-exchange)
					if !onHost(d) {
						near(d.String()+", weights", loaded[i], plan.Weights)
					} else if loaded[i] > plan.Weights { // which are used in the file
						t.Errorf("weights in RAM: planned %d bytes, taken %d beside the file", plan.Weights, loaded[i])
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			for i := range c.cards {
				for _, err := range hw.GPU(i).Misuse() {
					t.Error(err)
				}
			}
		})
	}
}

// TestWhatCannotBeOffloadedSaysWhy holds each refusal to one line that names what is wrong.
func TestWhatCannotBeOffloadedSaysWhy(t *testing.T) {
	read := func(name string) []byte {
		data, err := os.ReadFile(testdata.Path(t, "models/"+name+".gguf"))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	dense, experts, later := read("tiny-llama"), read("tiny-qwen3moe"), read("tiny-deepseek2-v3")
	odd := testmodel.Tiny
	odd.Heads, odd.KVHeads = 6, 6
	for _, c := range []struct {
		name    string
		data    []byte
		cards   int // 0 for a CPU
		options []Option
		want    string
	}{
		{"no experts", dense, 1, []Option{WithCPUExperts(AllLayers)}, "llama has no experts"},
		{"beyond the layers", experts, 1, []Option{WithCPUExperts(99)}, "the experts of 99 layers in RAM: the model has"},
		{"before the experts", later, 1, []Option{WithCPUExperts(1)}, "the first layer with experts is layer 3"},
		{"experts and a CPU", experts, 0, []Option{WithCPUExperts(AllLayers)}, "choose one"},
		{"layers and a CPU", dense, 0, []Option{WithGPULayers(1)}, "choose one"},
		{"as many layers as fit and a CPU", dense, 0, []Option{WithGPULayers(GPULayersAuto)}, "choose one"},
		{"experts beside parts of layers", experts, 2, []Option{WithCPUExperts(1)}, "--split layer"},
		{"layers beside parts of layers", dense, 2, []Option{WithGPULayers(1)}, "--split layer"},
		{"more GPUs than layers", dense, 2, []Option{WithGPULayers(1), WithLayerSplit()}, "1 layers on 2 devices"},
		{"no layer", dense, 1, []Option{WithGPULayers(0)}, "--device cpu"},
		{"streamed prompts of nothing in RAM", dense, 1, []Option{WithStreamedPrompts(8)}, "no part of the model in RAM"},
		{"streamed prompts of recurrent layers", read("tiny-qwen35moe"), 1, []Option{WithGPULayers(1), WithStreamedPrompts(StreamAuto)}, "has recurrent layers"},
		{"streamed prompts and two GPUs", dense, 2, []Option{WithLayerSplit(), WithGPULayers(2), WithStreamedPrompts(8)}, "several GPUs"},
		{"heads that do not divide", testmodel.Random(odd), 4, nil, "among 2 or 3 or 6 it can"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var devices []*gpu.Device
			if c.cards > 0 {
				_, devices = cards(t, c.cards, 0)
			} else {
				d, err := gpu.Open("cpu")
				if err != nil {
					t.Fatal(err)
				}
				devices = []*gpu.Device{d}
			}
			f, err := gguf.FromBytes(c.data)
			if err != nil {
				t.Fatal(err)
			}
			m, err := openOn(t, f, devices, append(c.options, WithContext(32))...)
			if err == nil {
				m.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestPromptsAreStreamedWherePossible asks for streamed prompts that a model, its devices or their memory may not have: they are
// computed where the weights are, and a note says why. Streaming alone may not be what makes a model too large.
func TestPromptsAreStreamedWherePossible(t *testing.T) {
	read := func(name string) []byte {
		data, err := os.ReadFile(testdata.Path(t, "models/"+name+".gguf"))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	shape := testmodel.Tiny
	shape.Layers = 8
	dense, recurrent := testmodel.Random(shape), read("tiny-qwen35moe")
	place := func(data []byte, cards int, memory int64, options ...Option) (placement, *Fit) {
		t.Helper()
		f, err := gguf.FromBytes(data)
		if err != nil {
			t.Fatal(err)
		}
		c, err := newConfig(append(options, WithContext(64), WithPrefillChunk(16)))
		if err != nil {
			t.Fatal(err)
		}
		hw := fake.New(fake.Config{Devices: cards, Memory: memory})
		for i := range cards {
			d, err := gpu.OpenBackend(hw, i)
			if err != nil {
				t.Fatal(err)
			}
			c.opened = append(c.opened, d)
		}
		p, err := c.place(f, c.open)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closeDevices(p.devices) })
		fit, err := predict(f, p, c)
		if err != nil {
			t.Fatal(err)
		}
		return p, fit
	}
	half := []Option{WithGPULayers(4)}
	_, without := place(dense, 1, 0, half...)
	tight := without.Devices[1].Memory.Total() * 10 / 8 // of which 0.8 may be used
	_, all := place(dense, 1, 0)
	for _, c := range []struct {
		name    string
		data    []byte
		cards   int
		memory  int64
		options []Option
		from    int // tokens
		note    string
	}{
		{"nothing in RAM", dense, 1, 0, nil, 0, ""},
		{"all layers fit", dense, 1, 0, []Option{WithGPULayers(GPULayersAuto)}, 0, ""},
		{"layers in RAM", dense, 1, 0, half, model.StreamTokens, ""},
		{"as many layers as fit", dense, 1, all.Memory.Total(), []Option{WithGPULayers(GPULayersAuto)}, model.StreamTokens, ""},
		{"experts of recurrent layers", recurrent, 1, 0, []Option{WithCPUExperts(AllLayers)}, 128, ""},
		{"recurrent layers", recurrent, 1, 0, []Option{WithGPULayers(1)}, 0, "qwen35moe has recurrent layers"},
		{"two-bit codes", read("tiny-bitnet-tq2_0"), 1, 0, []Option{WithGPULayers(1)}, 0, "two-bit codes"},
		{"two GPUs", dense, 2, 0, append(half, WithLayerSplit()), 0, "several GPUs"},
		{"no room for slots", dense, 1, tight, half, 0, "fake:0 has no room for the weights that would come"},
	} {
		p, fit := place(c.data, c.cards, c.memory, append(c.options, WithStreamedPrompts(StreamWherePossible))...)
		if p.Stream != c.from || !strings.Contains(fit.StreamNote, c.note) || (fit.StreamNote == "") != (c.note == "") || !fit.Fits {
			t.Errorf("%s: from %d tokens, note %q, fits: %v; want %d, %q", c.name, p.Stream, fit.StreamNote, fit.Fits, c.from, c.note)
		}
	}
}
