package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/internal/language/model"
	"github.com/vibrant-ml/vibrant/tensor"
)

// lora is an adapter of random matrices: a [ranks][cols] and b [rows][ranks] of each tensor, whose values F16 holds. In F32 files
// fused operations leave it to updates behind them.
type lora struct {
	wide  bool   // its files are F32
	kind  string // "lora" where empty
	ranks int
	alpha float32
	a, b  map[string][]float32
}

// matrices are the shapes of a layer's.
func matrices(s testmodel.Shape) map[string][2]int {
	q, kv := s.Heads*s.HeadDim, s.KVHeads*s.HeadDim
	return map[string][2]int{
		"attn_q": {q, s.Hidden}, "attn_k": {kv, s.Hidden}, "attn_v": {kv, s.Hidden}, "attn_output": {s.Hidden, q},
		"ffn_gate": {s.FeedForward, s.Hidden}, "ffn_up": {s.FeedForward, s.Hidden}, "ffn_down": {s.Hidden, s.FeedForward},
	}
}

func newLoRA(seed uint64, s testmodel.Shape, ranks int, names ...string) *lora {
	r := rand.New(rand.NewPCG(seed, 7))
	random := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			if v[i] = math.Float32frombits(math.Float32bits(float32(r.NormFloat64()/4)) &^ 0x1fff); math.Abs(float64(v[i])) < 0x1p-14 {
				v[i] = 0
			}
		}
		return v
	}
	l := &lora{ranks: ranks, alpha: 1.5 * float32(ranks), a: map[string][]float32{}, b: map[string][]float32{}}
	add := func(name string, rows, cols int) { l.a[name], l.b[name] = random(ranks*cols), random(rows*ranks) }
	for layer := range s.Layers {
		for _, name := range names {
			shape := matrices(s)[name]
			add(fmt.Sprintf("blk.%d.%s.weight", layer, name), shape[0], shape[1])
		}
	}
	add("output.weight", s.Vocab, s.Hidden)
	return l
}

var allMatrices = []string{"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"}

// write writes the adapter as llama.cpp's converter does, after edit has changed it.
func (l *lora) write(t testing.TB, architecture string, edit func(w *gguf.Writer)) string {
	t.Helper()
	w := &gguf.Writer{}
	w.Set("general.type", "adapter")
	w.Set("general.architecture", architecture)
	w.Set("adapter.type", cmp.Or(l.kind, "lora"))
	w.Set("adapter.lora.alpha", l.alpha)
	add := func(name string, v []float32, dims ...int) {
		var b bytes.Buffer
		if l.wide {
			binary.Write(&b, binary.LittleEndian, v)
			w.AddTensor(name, gguf.F32, dims, b.Bytes())
			return
		}
		for _, x := range v {
			bits := math.Float32bits(x)
			half := uint16(bits >> 16 & 0x8000)
			if x != 0 {
				half |= uint16((bits&0x7fffffff - 112<<23) >> 13)
			}
			binary.Write(&b, binary.LittleEndian, half)
		}
		w.AddTensor(name, gguf.F16, dims, b.Bytes())
	}
	for name, a := range l.a {
		add(name+".lora_a", a, len(a)/l.ranks, l.ranks)
		add(name+".lora_b", l.b[name], l.ranks, len(l.b[name])/l.ranks)
	}
	if edit != nil {
		edit(w)
	}
	path := filepath.Join(t.TempDir(), "adapter.gguf")
	if err := w.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// merged returns a model of random F32 weights with adapters merged into them.
func merged(t testing.TB, d *gpu.Device, s testmodel.Shape, scales []float32, adapters ...*lora) *model.Model {
	t.Helper()
	m, err := loaded(d, mergedFile(s, scales, adapters...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func loaded(d *gpu.Device, file []byte) (*model.Model, error) {
	f, err := gguf.FromBytes(file)
	if err != nil {
		return nil, err
	}
	return model.Load(context.Background(), f, d, model.Options{})
}

func mergedFile(s testmodel.Shape, scales []float32, adapters ...*lora) []byte {
	values := map[string][]float32{}
	r := rand.New(rand.NewPCG(3, 4))
	w := testmodel.Writer(s, func(name string, row, col int) float32 {
		x := float32(r.NormFloat64() / 4)
		for i, l := range adapters {
			if a, ok := l.a[name]; ok {
				cols, sum := len(a)/l.ranks, 0.0
				for k := range l.ranks {
					sum += float64(l.b[name][row*l.ranks+k]) * float64(a[k*cols+col])
				}
				x += float32(float64(scales[i]) * float64(l.alpha) / float64(l.ranks) * sum)
			}
		}
		values[name] = append(values[name], x)
		return x
	})
	w.Set("tokenizer.ggml.model", "no_vocab")
	return testmodel.Bytes(w)
}

func load(t testing.TB, m *model.Model, paths ...string) []*model.Adapter {
	t.Helper()
	s, err := m.LoadAdapters(context.Background(), paths)
	if err != nil {
		t.Fatal(err)
	}
	return s.Adapters
}

// closeTo fails where logits differ by more than a thousandth of the largest.
func closeTo(t *testing.T, what string, got, want [][]float32) {
	t.Helper()
	largest := 0.0
	for _, row := range want {
		for _, x := range row {
			largest = max(largest, float64(max(x, -x)))
		}
	}
	if w := worst(got, want); !(w <= 1e-3*largest) {
		t.Errorf("%s: logits of up to %g differ by %g", what, largest, w)
	}
}

func TestAdaptersEqualMergedWeights(t *testing.T) {
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		for _, architecture := range fewer([]string{"llama", "qwen2", "qwen3"}) {
			shape := testmodel.Tiny
			shape.Architecture = architecture
			one, two := newLoRA(1, shape, 4, allMatrices...), newLoRA(2, shape, 11, "attn_q", "ffn_down")
			one.wide = architecture == "llama"
			m := merged(t, d, shape, nil)
			loaded := load(t, m, one.write(t, architecture, nil), two.write(t, architecture, nil))
			ids := randomIDs(5, 70, m.Vocab)
			s := newSession(t, m, Options{Context: 128, KVType: tensor.F32, Chunk: 33, LogitRows: 16})
			for _, c := range []struct {
				name   string
				active []model.ActiveAdapter
				scales []float32
				of     []*lora
			}{
				{"all matrices", []model.ActiveAdapter{{Adapter: loaded[0], Scale: 1}}, []float32{1}, []*lora{one}},
				{"some matrices", []model.ActiveAdapter{{Adapter: loaded[1], Scale: 0.5}}, []float32{0.5}, []*lora{two}},
				{"both", []model.ActiveAdapter{{Adapter: loaded[0], Scale: -0.5}, {Adapter: loaded[1], Scale: 2}}, []float32{-0.5, 2}, []*lora{one, two}},
				{"none", nil, nil, nil},
			} {
				if err := s.SetAdapters(c.active); err != nil {
					t.Fatal(err)
				}
				reference := merged(t, d, shape, c.scales, c.of...)
				want := allLogits(t, newSession(t, reference, Options{Context: 128, KVType: tensor.F32, LogitRows: 128}), ids)
				closeTo(t, architecture+", "+c.name, allLogits(t, s, ids), want)
				steps := greedy(t, newSession(t, reference, Options{Context: 128, KVType: tensor.F32}), ids[:9], 20)
				if got := greedy(t, s, ids[:9], 20); !slices.Equal(got, steps) {
					t.Errorf("%s, %s: %v, with merged weights %v", architecture, c.name, got, steps)
				}
			}
		}
	})
}

func TestSwitchingAdaptersCapturesNothingAnew(t *testing.T) {
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		m := merged(t, d, testmodel.Tiny, nil)
		loaded := load(t, m, newLoRA(1, testmodel.Tiny, 8, allMatrices...).write(t, "llama", nil), newLoRA(2, testmodel.Tiny, 8, "attn_v").write(t, "llama", nil))
		s := newSession(t, m, Options{Context: 128, KVType: tensor.F32})
		answers := map[string]bool{}
		var captured *model.Captured
		for turn, active := range [][]model.ActiveAdapter{{{Adapter: loaded[0], Scale: 1}}, {{Adapter: loaded[1], Scale: 1}}, {{Adapter: loaded[0], Scale: 3}, {Adapter: loaded[1], Scale: 1}}} {
			if err := s.SetAdapters(active); err != nil {
				t.Fatal(err)
			}
			answers[fmt.Sprint(greedy(t, s, randomIDs(3, 5, m.Vocab), 30))] = true
			if len(s.steps) != 1 {
				t.Fatalf("turn %d: %d kinds of steps", turn, len(s.steps))
			}
			for _, g := range s.steps {
				if captured != nil && g.graph != captured {
					t.Errorf("turn %d: captured anew", turn)
				}
				captured = g.graph
			}
		}
		if len(answers) != 3 {
			t.Errorf("%d different answers of 3 adapters", len(answers))
		}
	})
}

func TestBatchWithAnAdapterForEachSequence(t *testing.T) {
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		m := quantized(t, d, testmodel.Tiny, gguf.Q8_0)
		loaded := load(t, m, newLoRA(1, testmodel.Tiny, 8, allMatrices...).write(t, "llama", nil), newLoRA(2, testmodel.Tiny, 6, allMatrices...).write(t, "llama", nil))
		alone := load(t, m, newLoRA(3, testmodel.Tiny, 2, "attn_k").write(t, "llama", nil)) // in another stack
		choices := [][]model.ActiveAdapter{{{Adapter: loaded[0], Scale: 1}}, nil, {{Adapter: loaded[1], Scale: 1}}, {{Adapter: alone[0], Scale: 4}, {Adapter: loaded[0], Scale: 0.5}}}
		b, err := NewBatch(m, len(choices), Options{Context: 64, KVType: tensor.F32})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		var joined []*Sequence
		got := make([][]int32, len(choices))
		step := func() {
			if err := b.Step(); err != nil {
				t.Fatal(err)
			}
			for i, s := range joined {
				got[i] = append(got[i], s.Newest())
			}
		}
		for i, active := range choices {
			s, err := b.Join(context.Background(), randomIDs(uint64(i), 4+i, m.Vocab), nil, false, active...)
			if err != nil {
				t.Fatal(err)
			}
			joined = append(joined, s)
			step()
			step()
		}
		for range 20 {
			step()
		}
		for i, active := range choices {
			s := newSession(t, m, Options{Context: 64, KVType: tensor.F32})
			if err := s.SetAdapters(active); err != nil {
				t.Fatal(err)
			}
			if want := greedy(t, s, randomIDs(uint64(i), 4+i, m.Vocab), len(got[i])); !slices.Equal(got[i], want) {
				t.Errorf("sequence %d: %v, alone %v", i, got[i], want)
			}
		}
	})
}

// TestGoroutinesSwitchAdapters has sessions that change their adapters before each turn, batches whose sequences have different ones, and
// loads of further adapters beside both. Every answer is that of the same turns one after the other.
func TestGoroutinesSwitchAdapters(t *testing.T) {
	const each, turns = 8, 6
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		m := quantized(t, d, testmodel.Tiny, gguf.Q8_0)
		path := newLoRA(3, testmodel.Tiny, 2, "attn_k").write(t, "llama", nil)
		adapters := append(load(t, m, newLoRA(1, testmodel.Tiny, 8, allMatrices...).write(t, "llama", nil),
			newLoRA(2, testmodel.Tiny, 6, "attn_v", "ffn_down").write(t, "llama", nil)), load(t, m, path)...)
		draw := func(r *rand.Rand) (active []model.ActiveAdapter) {
			for _, a := range adapters {
				if r.IntN(2) == 0 {
					active = append(active, model.ActiveAdapter{Adapter: a, Scale: float32(r.IntN(5)-2) / 2})
				}
			}
			return active
		}
		session := func(r *rand.Rand) (ids []int32, err error) {
			s, err := New(m, Options{Context: 64, KVType: tensor.F32})
			if err != nil {
				return nil, err
			}
			defer s.Close()
			for turn := range turns {
				if err := s.SetAdapters(draw(r)); err != nil {
					return nil, err
				}
				if err := s.Prefill(context.Background(), randomIDs(uint64(turn), 3, m.Vocab)); err != nil {
					return nil, err
				}
				for range 5 {
					id, err := s.Next(nil)
					if err == nil {
						err = s.Step(id, nil)
					}
					if err != nil {
						return nil, err
					}
					ids = append(ids, id)
				}
			}
			return ids, nil
		}
		batch := func(r *rand.Rand) (ids []int32, err error) {
			b, err := NewBatch(m, 3, Options{Context: 32, KVType: tensor.F32})
			if err != nil {
				return nil, err
			}
			defer b.Close()
			var joined []*Sequence
			for turn := range turns {
				if len(joined) == 3 {
					joined[0].Leave()
					joined = joined[1:]
				}
				s, err := b.Join(context.Background(), randomIDs(uint64(turn), 3, m.Vocab), nil, false, draw(r)...)
				if err != nil {
					return nil, err
				}
				joined = append(joined, s)
				for range 3 {
					if err := b.Step(); err != nil {
						return nil, err
					}
					for _, s := range joined {
						ids = append(ids, s.Newest())
					}
				}
			}
			return ids, nil
		}
		answers := func(i int) ([]int32, error) {
			return []func(*rand.Rand) ([]int32, error){session, batch}[i%2](rand.New(rand.NewPCG(9, uint64(i))))
		}
		var want [2 * each][]int32
		different := map[string]bool{}
		for i := range want {
			var err error
			if want[i], err = answers(i); err != nil {
				t.Fatal(err)
			}
			different[fmt.Sprint(want[i])] = true
		}
		if len(different) != len(want) {
			t.Fatalf("%d different answers of %d", len(different), len(want))
		}
		var all sync.WaitGroup
		for i := range want {
			all.Add(1)
			go func() {
				defer all.Done()
				if got, err := answers(i); err != nil || !slices.Equal(got, want[i]) {
					t.Errorf("goroutine %d: %v, %v; alone %v", i, got, err, want[i])
				}
			}()
		}
		for range turns {
			if _, err := m.LoadAdapters(context.Background(), []string{path}); err != nil {
				t.Error(err)
			}
		}
		all.Wait()
		t.Logf("%d goroutines changed adapters %d times, beside %d loads", len(want), len(want)*turns, turns)
	})
}

// TestCodesOfEachTokenReachPromptsAndSteps has codes that depend on the token; of 0 and 1 they make the base and the adapter.
func TestCodesOfEachTokenReachPromptsAndSteps(t *testing.T) {
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		m := merged(t, d, testmodel.Tiny, nil)
		loaded := load(t, m, newLoRA(2, testmodel.Tiny, 3, "attn_q").write(t, "llama", nil),
			newLoRA(1, testmodel.Tiny, 8, allMatrices...).write(t, "llama", nil))
		active := []model.ActiveAdapter{{Adapter: loaded[1], Scale: 1}}
		ids := randomIDs(4, 40, m.Vocab)
		rows := func(f CodeSource, active ...model.ActiveAdapter) [][]float32 {
			s := newSession(t, m, Options{Context: 64, KVType: tensor.F32, Chunk: 16, LogitRows: 16})
			if err := s.SetAdapters(active); err != nil {
				t.Fatal(err)
			}
			if f != nil {
				if err := s.SetCodes(loaded[1], f); err != nil {
					t.Fatal(err)
				}
			}
			return allLogits(t, s, ids)
		}
		times := func(factor func(id int32) float32) CodeSource {
			return func(ids []int32, codes [][]float32) {
				for i, row := range codes {
					if len(row) != 8 {
						t.Errorf("%d codes of 8 ranks", len(row))
					}
					for j := range row {
						row[j] *= factor(ids[i])
					}
				}
			}
		}
		closeTo(t, "codes of 0", rows(times(func(int32) float32 { return 0 }), active...), rows(nil))
		closeTo(t, "codes of 1", rows(times(func(int32) float32 { return 1 }), active...), rows(nil, active...))
		odd := times(func(id int32) float32 { return float32(id % 2) })
		mixed := rows(odd, active...)
		if w := worst(mixed, rows(nil, active...)); w < 1e-3 {
			t.Errorf("codes of some tokens change logits by %g", w)
		}
		s := newSession(t, m, Options{Context: 64, KVType: tensor.F32})
		if err := s.SetCodes(loaded[1], odd); !errors.Is(err, gpu.ErrInvalid) {
			t.Errorf("codes of an adapter that is not active: %v", err)
		}
		if err := s.SetAdapters(active); err != nil {
			t.Fatal(err)
		}
		if err := s.SetCodes(loaded[1], odd); err != nil {
			t.Fatal(err)
		}
		if err := s.Prefill(context.Background(), ids[:5]); err != nil {
			t.Fatal(err)
		}
		for i := 5; i < 20; i++ { // by steps, each of a token that the host chooses
			next, err := s.Next(nil)
			if err != nil {
				t.Fatal(err)
			}
			if want := pick(nil, slices.Clone(mixed[i-1]), nil); next != want {
				t.Errorf("after %d tokens %d, by a prompt %d", i, next, want)
			}
			if err := s.Step(ids[i], nil); err != nil {
				t.Fatal(err)
			}
		}
	})
}
