package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/fake"
	"github.com/vibrant-ml/vibrant/internal/backend/purego"
	"github.com/vibrant-ml/vibrant/internal/check/absent"
	"github.com/vibrant-ml/vibrant/internal/check/busy"
	"github.com/vibrant-ml/vibrant/internal/check/testdata"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
	"github.com/vibrant-ml/vibrant/internal/language/demomodel"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/internal/language/model"
	"github.com/vibrant-ml/vibrant/tensor"
)

// eachDevices runs f with so many devices of every kind: GPUs, fake ones, and CPUs, which share one processor.
func eachDevices(t *testing.T, n int, f func(t *testing.T, devices []*gpu.Device)) {
	fakes := fake.New(fake.Config{Devices: n, Crowded: true})
	open := map[string]func(i int) (*gpu.Device, error){
		"go":   func(int) (*gpu.Device, error) { return gpu.OpenBackend(purego.Backend(), 0) },
		"fake": func(i int) (*gpu.Device, error) { return gpu.OpenBackend(fakes, i) },
		"cpu":  func(int) (*gpu.Device, error) { return gpu.Open("cpu") },
		"cuda": func(i int) (*gpu.Device, error) {
			infos, err := gpu.Devices()
			if gpus := len(infos) - 1; err == nil && gpus > 0 {
				i %= gpus // one GPU serves several ranks where there are no more
			}
			return gpu.Open(fmt.Sprintf("cuda:%d", i))
		},
	}
	if gpu.CPU().Info().Backend == "go" {
		delete(open, "cpu") // it is the device go
	}
	for name, open := range open {
		t.Run(name, func(t *testing.T) {
			var devices []*gpu.Device
			for i := range n {
				d, err := open(i)
				if absent.Device(t, name, err) {
					t.Skip(err)
				}
				if err != nil {
					t.Fatal(err)
				}
				defer d.Close()
				devices = append(devices, d)
			}
			tensor.SetStrict(true)
			defer tensor.SetStrict(false)
			f(t, devices)
			if name == "fake" {
				for i := range n {
					for _, err := range fakes.GPU(i).Misuse() {
						t.Error(err)
					}
				}
			}
		})
	}
}

func loadSplit(t testing.TB, devices []*gpu.Device, path string, tokens int) (*model.Model, error) {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	m, err := model.LoadSplit(context.Background(), f, devices, model.Options{Context: tokens})
	if err == nil {
		t.Cleanup(m.Close)
	}
	return m, err
}

// undivided are the models that two devices cannot share, with a part of the reason.
var undivided = map[string]string{
	"tiny-deepseek2-v2": "one compressed key",
	"tiny-deepseek2-v3": "one compressed key",
	"tiny-qwen35":       "recurrent layers",
	"tiny-qwen35moe":    "recurrent layers",
	"tiny-qwen3next":    "recurrent layers",
	"tiny-olmo2":        "a norm goes over all heads",
	"tiny-olmo2-swa":    "a norm goes over all heads",
}

// TestSplitModelsMatchTransformers holds models that two devices compute to other engines' logits and greedy ids, as
// TestRandomModelsMatchTransformers does with one.
func TestSplitModelsMatchTransformers(t *testing.T) {
	dir := testdata.Path(t, "models")
	eachDevices(t, 2, func(t *testing.T, devices []*gpu.Device) {
		for _, c := range fewer(randomModels) {
			t.Run(c.file, func(t *testing.T) {
				golden := readGolden(t, dir, c.file)
				tokens := 128
				if c.context > 0 {
					tokens = c.context
				}
				for _, fuse := range []string{"off", "on"} {
					t.Setenv("VIBRANT_FUSE", fuse)
					m, err := loadSplit(t, devices, filepath.Join(dir, c.file+".gguf"), tokens)
					if reason := undivided[c.file]; reason != "" {
						if err == nil || !strings.Contains(err.Error(), reason) {
							t.Fatalf("loaded: %v, want %q", err, reason)
						}
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					checkGolden(t, m, golden, tokens, c.f32, fuse)
					checkRounded(t, m, c, golden, tokens)
				}
			})
		}
	})
}

// TestASplitQuantizedModelAnswersAsGolden divides blocks of quantized columns, with caches of both types: the demo
// model's answers to what no rounding decides.
func TestASplitQuantizedModelAnswersAsGolden(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes under the race detector, for which the shorter models are enough")
	}
	answers, err := demomodel.GoldenAnswers()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "demo.gguf")
	if err := os.WriteFile(path, demomodel.GGUF(), 0o600); err != nil {
		t.Fatal(err)
	}
	eachDevices(t, 2, func(t *testing.T, devices []*gpu.Device) {
		m, err := loadSplit(t, devices, path, 512)
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range []tensor.DType{tensor.F16, tensor.Q8_0} {
			s := newSession(t, m, Options{Context: 512, KVType: kv})
			asked := 0
			for i, c := range answers {
				if i%40 != 0 || len(c.IDs) > 60 || c.LeastLead < 1 {
					continue
				}
				asked++
				if ids := greedy(t, s, c.PromptIDs, len(c.IDs)); !slices.Equal(ids, c.IDs) {
					t.Errorf("cache in %v, %q: %v, want %v", kv, c.Text, ids, c.IDs)
				}
			}
			if asked < 3 {
				t.Errorf("%d questions", asked)
			}
			s.Close()
		}
	})
}

// TestFourDevicesShareTwoKeyHeads has more devices than key-value heads, and shares of a feed-forward that differ.
func TestFourDevicesShareTwoKeyHeads(t *testing.T) {
	shape := testmodel.Tiny
	shape.FeedForward, shape.Vocab = 43, 61
	for _, arch := range []string{"llama", "qwen2", "qwen3"} {
		shape.Architecture = arch
		data := testmodel.Random(shape)
		one, err := gguf.FromBytes(data)
		if err != nil {
			t.Fatal(err)
		}
		m, err := model.Load(context.Background(), one, gpu.CPU(), model.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		ids := randomIDs(3, 20, m.Vocab)
		want := allLogits(t, newSession(t, m, Options{Context: 64, KVType: tensor.F32}), ids)
		eachDevices(t, 4, func(t *testing.T, devices []*gpu.Device) {
			m := splitInMemory(t, devices, data, model.Placement{})
			defer m.Close()
			s := newSession(t, m, Options{Context: 64, KVType: tensor.F32})
			defer s.Close()
			if w := worst(allLogits(t, s, ids), want); !(w <= f32Tolerance) {
				t.Errorf("%s: logits differ by %g", arch, w)
			}
		})
	}
}

// togetherPrompts are the lengths of the prompts of together: sequence i has the random ids of seed i.
var togetherPrompts = []int{3, 20, 40}

// together generates so many tokens of each of three sequences of a batch, and returns them.
func together(t *testing.T, b *Batch, tokens int, banned bool, vocab int) [][]int32 {
	t.Helper()
	var members []*Sequence
	for i, n := range togetherPrompts {
		member, err := b.Join(context.Background(), randomIDs(uint64(i), n, vocab), nil, banned)
		if err != nil {
			t.Fatal(err)
		}
		members = append(members, member)
	}
	got := make([][]int32, len(members))
	for range tokens {
		if err := b.Step(); err != nil {
			t.Fatal(err)
		}
		for i, member := range members {
			got[i] = append(got[i], member.Newest())
		}
	}
	return got
}

// TestSplitBatchesEqualSingle generates several sequences together on two devices, with ids that are banned.
func TestSplitBatchesEqualSingle(t *testing.T) {
	eachDevices(t, 2, func(t *testing.T, devices []*gpu.Device) {
		m := splitInMemory(t, devices, testmodel.Random(testmodel.Tiny), model.Placement{})
		defer m.Close()
		b, err := NewBatch(m, 3, Options{Context: 64, KVType: tensor.F32, Chunk: 16})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		ban := []int32{1, 5, 9, 33}
		if err := b.Ban(ban); err != nil {
			t.Fatal(err)
		}
		got := together(t, b, 16, true, m.Vocab)
		for i, n := range togetherPrompts {
			s := newSession(t, m, Options{Context: 64, KVType: tensor.F32})
			if err := s.Ban(ban); err != nil {
				t.Fatal(err)
			}
			if want := greedy(t, s, randomIDs(uint64(i), n, m.Vocab), 16); !slices.Equal(got[i], want) {
				t.Errorf("sequence %d: %v, alone %v", i, got[i], want)
			}
			s.Close()
		}
	})
}

// TestRanksFindTheLikeliestTokens holds what four devices with unequal parts of a vocabulary find to the greatest of all logits.
func TestRanksFindTheLikeliestTokens(t *testing.T) {
	shape := testmodel.Tiny
	shape.Vocab = 61
	data := testmodel.Random(shape)
	const rows = 48
	eachDevices(t, 4, func(t *testing.T, devices []*gpu.Device) {
		m := splitInMemory(t, devices, data, model.Placement{})
		defer m.Close()
		s := newSession(t, m, Options{Context: 64, Chunk: rows})
		defer s.Close()
		work, err := m.NewWorkspace(s.streams, rows, rows)
		if err != nil {
			t.Fatal(err)
		}
		defer work.Free()
		ints := func(v []int32) *tensor.Tensor {
			x, err := tensor.New(s.stream, tensor.I32, len(v))
			if err == nil {
				err = x.WriteInt32s(v)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(x.Free)
			return x
		}
		positions := make([]int32, rows)
		for i := range positions {
			positions[i] = int32(i)
		}
		batch := model.Batch{Count: 1, Seq: rows, IDs: ints(randomIDs(5, rows, m.Vocab)), Positions: ints(positions), KVLen: rows}
		hidden, err := m.Forward(work, s.cache, batch)
		if err != nil {
			t.Fatal(err)
		}
		logits := m.Logits(work, hidden, 0, rows)
		all := make([]float32, rows*m.Vocab)
		if err := logits.ReadFloat32s(all); err != nil {
			t.Fatal(err)
		}
		want, ids := make([]int32, rows), ints(positions)
		if err := tensor.Argmax(logits).ReadInt32s(want); err != nil {
			t.Fatal(err)
		}
		greatest, err := tensor.New(s.stream, tensor.F32, rows, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer greatest.Free()
		m.Likeliest(work, hidden, ids, greatest)
		got, values := make([]int32, rows), make([]float32, rows)
		if err := errors.Join(ids.ReadInt32s(got), greatest.ReadFloat32s(values)); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		of := map[int32]bool{} // the parts that the tokens are of: 16, 15, 15 and 15 tokens or so
		for row, id := range want {
			of[id/16] = true
			if v := all[row*m.Vocab+int(id)]; values[row] != v {
				t.Errorf("row %d has the logit %v, want %v", row, values[row], v)
			}
		}
		if len(of) < 3 {
			t.Errorf("all tokens are of %d ranks", len(of))
		}
	})
}

// TestSplitSessionsSideBySide has sessions of one split model enqueue on the same devices at once.
func TestSplitSessionsSideBySide(t *testing.T) {
	eachDevices(t, 2, func(t *testing.T, devices []*gpu.Device) {
		m := splitInMemory(t, devices, testmodel.Random(testmodel.Tiny), model.Placement{})
		defer m.Close()
		const sessions = 4
		got := make(chan []int32, sessions)
		want := greedy(t, newSession(t, m, Options{Context: 64, KVType: tensor.F16}), randomIDs(7, 9, m.Vocab), 24)
		for range sessions {
			s := newSession(t, m, Options{Context: 64, KVType: tensor.F16})
			go func() { got <- greedy(t, s, randomIDs(7, 9, m.Vocab), 24) }()
		}
		for range sessions {
			select {
			case ids := <-got:
				if !slices.Equal(ids, want) {
					t.Errorf("%v, alone %v", ids, want)
				}
			case <-time.After(busy.Limit):
				t.Fatal("the devices wait for each other")
			}
		}
	})
}

func TestWhatDoesNotDivideSaysWhatWould(t *testing.T) {
	for _, c := range []struct {
		change func(*testmodel.Shape)
		ranks  int
		want   string
	}{
		{func(s *testmodel.Shape) { s.Heads, s.KVHeads = 6, 6 }, 4, "6 heads; among 2 or 3 or 6 it can"},
		{func(s *testmodel.Shape) { s.Heads, s.KVHeads = 5, 5 }, 2, "among 5 it can"},
		{func(s *testmodel.Shape) { s.Heads, s.KVHeads = 1, 1 }, 2, "nor among any other number: 1 heads"},
		{func(s *testmodel.Shape) {}, 257, "257 devices: want 1 to 256"},
	} {
		shape := testmodel.Tiny
		c.change(&shape)
		f, err := gguf.FromBytes(testmodel.Random(shape))
		if err != nil {
			t.Fatal(err)
		}
		config, err := model.ReadConfig(f)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := config.Split(f, c.ranks); err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "among 4 devices: ", ""), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// TestADeviceThatFailsEndsASplitSession loses a device in the midst of generating.
func TestADeviceThatFailsEndsASplitSession(t *testing.T) {
	b := fake.New(fake.Config{Devices: 2})
	var devices []*gpu.Device
	for i := range 2 {
		d, err := gpu.OpenBackend(b, i)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		devices = append(devices, d)
	}
	m := splitInMemory(t, devices, testmodel.Random(testmodel.Tiny), model.Placement{})
	s := newSession(t, m, Options{Context: 64, KVType: tensor.F16})
	greedy(t, s, randomIDs(1, 5, m.Vocab), 6)
	b.GPU(1).Poison()
	var err error
	for range 3 {
		var id int32
		if id, err = s.Next(nil); err != nil {
			break
		}
		if err = s.Step(id, nil); err != nil {
			break
		}
	}
	if !errors.Is(err, gpu.ErrDeviceLost) {
		t.Errorf("after a device was lost: %v", err)
	}
}

// splitInMemory divides the model of a file's bytes among devices; the caller closes it.
func splitInMemory(t *testing.T, devices []*gpu.Device, data []byte, p model.Placement) *model.Model {
	t.Helper()
	f, err := gguf.FromBytes(data)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.LoadSplit(context.Background(), f, devices, model.Options{Placement: p})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// checkRounded holds a model with caches that round to another engine's logits.
func checkRounded(t *testing.T, m *model.Model, c goldenCase, golden goldenModel, tokens int) {
	t.Helper()
	for _, kv := range []struct {
		t         tensor.DType
		tolerance float64
	}{{tensor.F16, cmp.Or(c.f16, 2e-2)}, {tensor.Q8_0, cmp.Or(c.q8, 0.4)}} {
		if m.CheckCacheType(kv.t) != nil {
			continue
		}
		s := newSession(t, m, Options{Context: tokens, KVType: kv.t})
		worst := worst
		if c.routes {
			worst = worstOfHalf
		}
		if w := worst(allLogits(t, s, golden.IDs), golden.rows); !(w <= kv.tolerance) {
			t.Errorf("cache in %v: logits differ by %g", kv.t, w)
		}
		s.Close()
	}
}

// checkGolden holds a model with a cache in F32, prompts in chunks of 7, to another engine's logits and greedy ids; a tolerance of 0 is
// f32Tolerance.
func checkGolden(t *testing.T, m *model.Model, golden goldenModel, tokens int, tolerance float64, fuse string) {
	t.Helper()
	if tolerance == 0 {
		tolerance = f32Tolerance
	}
	s := newSession(t, m, Options{Context: tokens, KVType: tensor.F32, Chunk: 7, LogitRows: 16})
	defer s.Close()
	if w := worst(allLogits(t, s, golden.IDs), golden.rows); !(w <= tolerance) {
		t.Errorf("fused %s: logits differ by %g", fuse, w)
	}
	if ids := greedy(t, s, golden.IDs, len(golden.Greedy)); !slices.Equal(ids, golden.Greedy) {
		t.Errorf("fused %s: greedy ids %v, want %v", fuse, ids, golden.Greedy)
	}
}
