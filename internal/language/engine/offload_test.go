package engine

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/fake"
	"github.com/vibrant-ml/vibrant/internal/backend/purego"
	"github.com/vibrant-ml/vibrant/internal/check/testdata"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/internal/language/model"
	"github.com/vibrant-ml/vibrant/tensor"
)

// offloaded are models whose parts may be on a CPU: dense, with experts, recurrent. The others differ in values alone, so that the race
// detector needs none of them.
var offloaded = []string{
	"tiny-llama", "tiny-qwen3moe", "tiny-qwen35moe",
	"tiny-gemma3", "tiny-qwen2moe", "tiny-gpt-oss", "tiny-deepseek2-v3", "tiny-glm4moe", "tiny-granitemoe-shared", "tiny-llama4",
}

func offloadedModels() []string {
	if raceDetector {
		return offloaded[1:3]
	}
	return offloaded
}

// eachOffloaded runs f with each of these models, on a CPU and another device in the first and the last of their placements. one is the
// same model on the other device alone. exact says that both devices compute the same bits.
func eachOffloaded(t *testing.T, f func(t *testing.T, m, one *model.Model, exact bool)) {
	dir := testdata.Path(t, "models")
	mixedDevices(t, func(t *testing.T, devices []*gpu.Device) {
		for _, name := range offloadedModels() {
			t.Run(name, func(t *testing.T) {
				file, shape := openShape(t, filepath.Join(dir, name+".gguf"))
				one := loadModel(t, devices[1], filepath.Join(dir, name+".gguf"), 512)
				all := placements(shape)
				for i, p := range all {
					if i > 0 && i < len(all)-1 {
						continue
					}
					m, err := model.LoadSplit(context.Background(), file, devices, model.Options{Context: 512, Placement: p})
					if err != nil {
						t.Fatal(err)
					}
					t.Logf("%+v", p)
					f(t, m, one, devices[1].Info().Backend == "fake")
					m.Close()
				}
			})
		}
	})
}

// TestOffloadedSessionsEqualWholeOnes generates with caches of both types, in batches and alone, and goes back to a prefix.
func TestOffloadedSessionsEqualWholeOnes(t *testing.T) {
	eachOffloaded(t, func(t *testing.T, m, one *model.Model, exact bool) {
		if !exact {
			one = m // of other kernels another expert may be the best
		}
		for _, kv := range fewer([]tensor.DType{tensor.F16, tensor.Q8_0}) {
			if m.CheckCacheType(kv) != nil {
				continue
			}
			o := Options{Context: 128, KVType: kv, Chunk: 24}
			s, fresh := newSession(t, m, o), newSession(t, one, o)
			prompt := randomIDs(1, 50, m.Vocab)
			for turn, ids := range [][]int32{prompt, slices.Concat(prompt[:40], randomIDs(2, 20, m.Vocab)), prompt[:30], prompt} {
				fresh.Reset()
				want := greedy(t, fresh, ids, 6)
				if got := greedy(t, s, ids, 6); !slices.Equal(got, want) {
					t.Errorf("cache in %v, turn %d: %v, want %v", kv, turn, got, want)
				}
			}
			b, err := NewBatch(m, 3, o)
			if err != nil {
				t.Fatal(err)
			}
			answers := together(t, b, 6, false, m.Vocab)
			for i, n := range togetherPrompts {
				fresh.Reset()
				if want := greedy(t, fresh, randomIDs(uint64(i), n, m.Vocab), 6); !slices.Equal(answers[i], want) {
					t.Errorf("cache in %v, sequence %d of a batch: %v, alone %v", kv, i, answers[i], want)
				}
			}
			b.Close()
			s.Close()
			fresh.Close()
		}
	})
}

// TestOffloadedCachesAreSaved hands what one session computed to another.
func TestOffloadedCachesAreSaved(t *testing.T) {
	eachOffloaded(t, func(t *testing.T, m, _ *model.Model, _ bool) {
		o := Options{Context: 128, KVType: tensor.F16, Chunk: 24}
		from, to := newSession(t, m, o), newSession(t, m, o)
		defer from.Close()
		defer to.Close()
		prompt := randomIDs(4, 60, m.Vocab)
		greedy(t, from, prompt, 4)
		var file bytes.Buffer
		if err := from.WriteCache(&file); err != nil {
			t.Fatal(err)
		}
		ids := slices.Clone(from.Tokens())
		if err := to.ReadCache(&file, ids, from.Past(), func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		more := slices.Concat(ids, randomIDs(5, 8, m.Vocab))
		want, got := greedy(t, from, more, 8), greedy(t, to, more, 8)
		if n := to.Stats().PrefillTokens; n != len(more)-len(ids) || !slices.Equal(got, want) {
			t.Errorf("%v after %d tokens were computed, want %v", got, n, want)
		}
	})
}

// TestOffloadedStepsAreCaptured counts what a step gives a GPU: a graph for each segment instead of each operation.
func TestOffloadedStepsAreCaptured(t *testing.T) {
	dir := testdata.Path(t, "models")
	fakes := fake.New(fake.Config{})
	card, err := gpu.OpenBackend(fakes, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer card.Close()
	f, shape := openShape(t, filepath.Join(dir, "tiny-qwen3moe.gguf"))
	m, err := model.LoadSplit(context.Background(), f, []*gpu.Device{gpu.CPU(), card},
		model.Options{Context: 64, Placement: model.Placement{Layers: []int{0, shape.Layers}, Experts: shape.Layers}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s := newSession(t, m, Options{Context: 64, KVType: tensor.F16})
	defer s.Close()
	greedy(t, s, randomIDs(1, 5, m.Vocab), 4)
	id, err := s.Next(nil)
	if err != nil {
		t.Fatal(err)
	}
	launches, copies := fakes.GPU(0).Calls(fake.Launch), fakes.GPU(0).Calls(fake.Copy)
	if err := s.Step(id, nil); err != nil {
		t.Fatal(err)
	}
	launches, copies = fakes.GPU(0).Calls(fake.Launch)-launches, fakes.GPU(0).Calls(fake.Copy)-copies
	// The graph before the experts of each layer, the one after the last, and what chooses. Each layer's input, ids and weights
	// come to the host, its sum goes back, and the choice comes to the host.
	if most := shape.Layers + 2; launches > most {
		t.Errorf("%d launches, want at most %d", launches, most)
	}
	if most := 4*shape.Layers + 1; copies > most {
		t.Errorf("%d copies, want at most %d", copies, most)
	}
}

// lenders runs f with each of the offloaded models on a CPU and a device that prompts are lent weights of, in the first and the last of
// their placements: a fake GPU, one that takes its time, and a CPU. one is the model on that device alone. copies counts what a fake
// was given by copies.
func lenders(t *testing.T, f func(t *testing.T, m, one *model.Model, hw *fake.GPU)) {
	dir := testdata.Path(t, "models")
	for _, kind := range []string{"fake", "slow", "cpu"} {
		for _, name := range offloadedModels() {
			if raceDetector && kind == "fake" || kind == "slow" && name != "tiny-llama" && name != "tiny-qwen3moe" {
				continue
			}
			t.Run(kind+"/"+name, func(t *testing.T) {
				config := fake.Config{}
				if kind == "slow" {
					config.Delay = time.Microsecond
				}
				fakes := fake.New(config)
				card, err := gpu.OpenBackend(fakes, 0)
				if kind == "cpu" {
					card, err = gpu.Open("cpu")
				}
				if err != nil {
					t.Fatal(err)
				}
				defer card.Close()
				cpu, err := gpu.OpenBackend(purego.Backend(), 0)
				if err != nil {
					t.Fatal(err)
				}
				defer cpu.Close()
				file, shape := openShape(t, filepath.Join(dir, name+".gguf"))
				one := loadModel(t, card, filepath.Join(dir, name+".gguf"), 512)
				all := placements(shape)
				for i, p := range all {
					if i > 0 && i < len(all)-1 {
						continue
					}
					p.Stream = 16
					m, err := model.LoadSplit(context.Background(), file, []*gpu.Device{cpu, card}, model.Options{Context: 512, Placement: p})
					if shape.Recurrent() && p.Layers[0] > 0 {
						if err == nil || !strings.Contains(err.Error(), "recurrent") {
							t.Errorf("%+v: %v", p, err)
						}
						continue
					}
					if err != nil {
						t.Fatal(err)
					}
					t.Logf("%+v", p)
					f(t, m, one, fakes.GPU(0))
					m.Close()
				}
				for _, err := range fakes.GPU(0).Misuse() {
					t.Error(err)
				}
			})
		}
	}
}

// TestStreamedPromptsEqualThoseOfAWholeModel computes prompts with weights that are lent, and answers them where the layers are: what
// another sequence or an earlier prompt left must be there.
func TestStreamedPromptsEqualThoseOfAWholeModel(t *testing.T) {
	lenders(t, func(t *testing.T, m, one *model.Model, hw *fake.GPU) {
		exact := m.Device().Info().Backend == "fake"
		for _, kv := range fewer([]tensor.DType{tensor.F32, tensor.Q8_0}) {
			if m.CheckCacheType(kv) != nil {
				continue
			}
			o := Options{Context: 256, KVType: kv, Chunk: 24}
			s, whole := newSession(t, m, o), newSession(t, one, o)
			prompt := randomIDs(1, 96, m.Vocab)
			tolerance := 0.0
			if m.Recurrent() { // the ends of prompts are passes of their own, too short to be streamed, whose sums are of another order
				tolerance = 2e-2
			}
			staged := hw.Calls(fake.AllocHost)
			got := allLogits(t, s, prompt)
			if n := hw.Calls(fake.AllocHost) - staged; exact && n < 2 {
				t.Errorf("%d passes had their weights staged", n)
			}
			if w := worst(got, allLogits(t, whole, prompt)); !(w <= tolerance) {
				t.Errorf("cache in %v: logits differ by %g", kv, w)
			}
			for turn, ids := range [][]int32{prompt, slices.Concat(prompt[:40], randomIDs(2, 60, m.Vocab)), prompt[:30]} {
				if got, want := greedy(t, s, ids, 5), greedy(t, whole, ids, 5); exact && !slices.Equal(got, want) {
					t.Errorf("cache in %v, turn %d: %v, want %v", kv, turn, got, want)
				}
			}
			s.Close()
			whole.Close()
		}
		if !exact {
			return
		}
		b, err := NewBatch(m, 2, Options{Context: 128, KVType: tensor.F32, Chunk: 24})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		for i := range 2 {
			if _, err := b.Join(context.Background(), randomIDs(uint64(i), 40, m.Vocab), nil, false); err != nil {
				t.Fatal(err)
			}
		}
		for range 4 {
			if err := b.Step(); err != nil {
				t.Fatal(err)
			}
		}
		for i, member := range b.active {
			whole := newSession(t, one, Options{Context: 128, KVType: tensor.F32, Chunk: 24})
			want := greedy(t, whole, randomIDs(uint64(i), 40, m.Vocab), 4)
			if got := slices.Concat(member.Tokens()[40:], []int32{member.Newest()}); !slices.Equal(got, want) {
				t.Errorf("sequence %d of a batch: %v, want %v", i, got, want)
			}
			whole.Close()
		}
	})
}

// TestAStreamedPromptThatFailsIsOver has copies of weights fail at any point: nothing hangs, and the next prompt is right.
func TestAStreamedPromptThatFailsIsOver(t *testing.T) {
	lenders(t, func(t *testing.T, m, one *model.Model, hw *fake.GPU) {
		if m.Device().Info().Backend != "fake" || hw.Calls(fake.Copy) == 0 || m.Recurrent() {
			return
		}
		o := Options{Context: 128, KVType: tensor.F32, Chunk: 24}
		s, whole := newSession(t, m, o), newSession(t, one, o)
		defer s.Close()
		defer whole.Close()
		prompt, broken := randomIDs(1, 48, m.Vocab), errors.New("the bus is broken")
		want := greedy(t, whole, prompt, 4)
		for n := 0; ; n += 7 {
			s.Reset()
			hw.FailAfter(fake.Copy, n, broken)
			err := s.Prefill(context.Background(), prompt)
			if err == nil {
				break
			}
			if !errors.Is(err, broken) {
				t.Fatalf("copy %d: %v", n, err)
			}
		}
		hw.FailAfter(fake.Copy, -1, nil)
		s.Reset()
		if got := greedy(t, s, prompt, 4); !slices.Equal(got, want) {
			t.Errorf("after failures: %v, want %v", got, want)
		}
	})
}

// BenchmarkStepsOnTwoDevices times a step of a small model on one CPU, with a layer on another, and with its experts there: what the
// others take longer is what crossing costs.
func BenchmarkStepsOnTwoDevices(b *testing.B) {
	dir := testdata.Path(b, "models")
	f, err := gguf.Open(filepath.Join(dir, "tiny-qwen3moe.gguf"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	shape, err := model.ReadConfig(f)
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name string
		model.Placement
	}{
		{"whole", model.Placement{Layers: []int{shape.Layers}}},
		{"layers", model.Placement{Layers: []int{1, shape.Layers - 1}}},
		{"experts", model.Placement{Layers: []int{0, shape.Layers}, Experts: shape.Layers}},
	} {
		b.Run(c.name, func(b *testing.B) {
			var devices []*gpu.Device
			for range c.Layers {
				d, err := gpu.Open("cpu", gpu.WithThreads(1))
				if err != nil {
					b.Fatal(err)
				}
				defer d.Close()
				devices = append(devices, d)
			}
			m, err := model.LoadSplit(context.Background(), f, devices, model.Options{Context: 128, Placement: c.Placement})
			if err != nil {
				b.Fatal(err)
			}
			defer m.Close()
			s := newSession(b, m, Options{Context: 128, KVType: tensor.F16})
			defer s.Close()
			for b.Loop() {
				if s.Room() < 2 || len(s.Tokens()) == 0 {
					s.Reset()
					if err := s.Prefill(context.Background(), []int32{1, 2, 3}); err != nil {
						b.Fatal(err)
					}
				}
				id, err := s.Next(nil)
				if err == nil {
					err = s.Step(id, nil)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
