package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// writePEFT writes the adapter as PEFT saves it: rows of queries and keys in transformers' order.
func (l *lora) writePEFT(t testing.TB, headDim int, permuted bool) string {
	t.Helper()
	folder := t.TempDir()
	config := fmt.Sprintf(`{"peft_type": "LORA", "r": %d, "lora_alpha": %g, "bias": "none", "rank_pattern": {}}`, l.ranks, l.alpha)
	if err := os.WriteFile(filepath.Join(folder, "adapter_config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	modules := map[string]string{"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
		"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
	header, data := map[string]any{"__metadata__": map[string]string{"format": "pt"}}, []byte(nil)
	add := func(name string, rows, cols int, values []float32) {
		start := len(data)
		data, _ = binary.Append(data, binary.LittleEndian, values)
		header[name] = map[string]any{"dtype": "F32", "shape": []int{rows, cols}, "data_offsets": []int{start, len(data)}}
	}
	for name, a := range l.a {
		module := "base_model.model.lm_head"
		b := l.b[name]
		if parts := strings.Split(name, "."); parts[0] == "blk" {
			module = "base_model.model.model.layers." + parts[1] + "." + modules[parts[2]]
			if permuted && (parts[2] == "attn_q" || parts[2] == "attn_k") {
				b = make([]float32, len(b))
				for row := range len(b) / l.ranks {
					i := row % headDim
					from := row - i + i%(headDim/2)*2 + i/(headDim/2)
					copy(b[row*l.ranks:], l.b[name][from*l.ranks:(from+1)*l.ranks])
				}
			}
		}
		add(module+".lora_A.weight", l.ranks, len(a)/l.ranks, a)
		add(module+".lora_B.weight", len(b)/l.ranks, l.ranks, b)
	}
	head, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...)
	if err := os.WriteFile(filepath.Join(folder, "adapter_model.safetensors"), append(file, data...), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

func TestPEFTFoldersEqualTheirGGUFFiles(t *testing.T) {
	for _, architecture := range []string{"llama", "qwen2"} {
		shape := testmodel.Tiny
		shape.Architecture = architecture
		l := newLoRA(1, shape, 4, allMatrices...)
		m := merged(t, gpu.CPU(), shape, nil)
		var rows [2][][]float32
		for i, path := range []string{l.write(t, architecture, nil), l.writePEFT(t, shape.HeadDim, architecture == "llama")} {
			s := newSession(t, m, Options{Context: 32, KVType: tensor.F32, LogitRows: 32})
			if err := s.SetAdapters([]model.ActiveAdapter{{Adapter: load(t, m, path)[0], Scale: 1}}); err != nil {
				t.Fatal(err)
			}
			rows[i] = allLogits(t, s, randomIDs(1, 20, m.Vocab))
		}
		if w := worst(rows[1], rows[0]); w != 0 {
			t.Errorf("%s: logits differ by %g", architecture, w)
		}
	}
	m := merged(t, gpu.CPU(), testmodel.Tiny, nil)
	config := func(text string) map[string]string { return map[string]string{"adapter_config.json": text} }
	tensors := func(header string) map[string]string {
		length := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
		return map[string]string{"adapter_model.safetensors": string(length) + header + strings.Repeat("\x00", 64)}
	}
	for what, files := range map[string]map[string]string{
		"cannot unmarshal":      config(`{"peft_type": "LORA", "lora_alpha": {}}`),
		"exceeded max depth":    config(strings.Repeat("[", 20000)),
		"makes a scale of -Inf": config(`{"peft_type": "LORA", "lora_alpha": -1e300}`),
		"is there twice": tensors(`{"base_model.model.lm_head.lora_A.weight": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]},
			"base_model.model.lm_head.lora_A.weight": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]}}`),
		"use_dora":             config(`{"peft_type": "LORA", "use_dora": true}`),
		"fan_in_fan_out":       config(`{"peft_type": "LORA", "fan_in_fan_out": true}`),
		`bias is "all"`:        config(`{"peft_type": "LORA", "bias": "all"}`),
		"alpha_pattern":        config(`{"peft_type": "LORA", "alpha_pattern": {"q_proj": 3}}`),
		`peft_type is "IA3"`:   config(`{"peft_type": "IA3"}`),
		"lora_alpha is 0":      config(`{"peft_type": "LORA", "lora_alpha": 0}`),
		"alpha is 1e-60":       config(`{"peft_type": "LORA", "lora_alpha": 1e-60}`),
		"alpha is 1e+300":      config(`{"peft_type": "LORA", "lora_alpha": 1e300}`),
		"lora_alpha of type":   config(`{"peft_type": "LORA", "lora_alpha": "8"}`),
		"unexpected end":       config(`{"peft_type": "LORA"`),
		"pissa_niter_4":        config(`{"peft_type": "LORA", "init_lora_weights": "pissa_niter_4"}`),
		"layer_replication":    config(`{"peft_type": "LORA", "layer_replication": [[0, 4], [2, 5]]}`),
		"use_qalora":           config(`{"peft_type": "LORA", "use_qalora": true}`),
		"header":               {"adapter_model.safetensors": strings.Repeat("\x01", 20)},
		"embed_tokens":         tensors(`{"base_model.model.model.embed_tokens.lora_A.weight": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]}}`),
		"q_proj.lora_A.weight": tensors(`{"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight": {"dtype": "I8", "shape": [4, 4], "data_offsets": [0, 16]}}`),
		"both change blk.0.ffn_up": tensors(`{"base_model.model.model.layers.0.mlp.up_proj.lora_A.weight": {"dtype": "F16", "shape": [4, 4], "data_offsets": [0, 32]},
			"base_model.model.model.layers.0.mlp.gate_up_proj.lora_A.weight": {"dtype": "F16", "shape": [4, 4], "data_offsets": [32, 64]}}`),
		"overlap": tensors(`{"base_model.model.model.layers.0.mlp.up_proj.lora_A.weight": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]},
			"base_model.model.model.layers.0.mlp.up_proj.lora_B.weight": {"dtype": "F16", "shape": [4, 4], "data_offsets": [32, 64]}}`),
		"beyond":            tensors(`{"base_model.model.model.layers.0.mlp.up_proj.lora_A.weight": {"dtype": "F32", "shape": [4, 8], "data_offsets": [0, 128]}}`),
		"too many elements": tensors(`{"base_model.model.model.layers.0.mlp.up_proj.lora_A.weight": {"dtype": "F32", "shape": [4611686018427387904, 4], "data_offsets": [0, 64]}}`),
		"no B beside it":    tensors(`{"base_model.model.model.layers.0.mlp.up_proj.lora_A.weight": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]}}`),
		"shape [16]":        tensors(`{"base_model.model.model.layers.0.mlp.up_proj.lora_A.weight": {"dtype": "F32", "shape": [16], "data_offsets": [0, 64]}}`),
		"[0 64]":            tensors(`{"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight": {"dtype": "F16", "shape": [4, 4], "data_offsets": [0, 64]}}`),
	} {
		folder := newLoRA(1, testmodel.Tiny, 4, "attn_q").writePEFT(t, testmodel.Tiny.HeadDim, true)
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := m.LoadAdapters(context.Background(), []string{folder}); !errors.Is(err, model.ErrAdapter) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestRootScaledAdaptersAreOfAlphaByTheRootOfTheirRanks compares use_rslora with the alpha that gives the same scale without.
func TestRootScaledAdaptersAreOfAlphaByTheRootOfTheirRanks(t *testing.T) {
	m := merged(t, gpu.CPU(), testmodel.Tiny, nil)
	l := newLoRA(1, testmodel.Tiny, 4, allMatrices...)
	rooted := l.writePEFT(t, testmodel.Tiny.HeadDim, true)
	config := fmt.Sprintf(`{"peft_type": "LORA", "lora_alpha": %g, "use_rslora": true}`, l.alpha/2) // 2 is the root of 4 ranks
	if err := os.WriteFile(filepath.Join(rooted, "adapter_config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var rows [2][][]float32
	for i, path := range []string{l.write(t, "llama", nil), rooted} {
		s := newSession(t, m, Options{Context: 32, KVType: tensor.F32, LogitRows: 32})
		if err := s.SetAdapters([]model.ActiveAdapter{{Adapter: load(t, m, path)[0], Scale: 1}}); err != nil {
			t.Fatal(err)
		}
		rows[i] = allLogits(t, s, randomIDs(1, 20, m.Vocab))
	}
	if w := worst(rows[1], rows[0]); w != 0 {
		t.Errorf("logits differ by %g", w)
	}
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

func TestAdaptersThatDoNotFitAreNamed(t *testing.T) {
	d := gpu.CPU()
	m := merged(t, d, testmodel.Tiny, nil)
	other := testmodel.Tiny
	other.Hidden = 40
	one := func() *lora { return newLoRA(1, testmodel.Tiny, 4, "attn_q") }
	tensorOf := func(name string, dims ...int) func(*gguf.Writer) {
		return func(w *gguf.Writer) { w.AddTensor(name, gguf.F32, dims, make([]byte, 4*dims[0]*dims[1])) }
	}
	for _, c := range []struct {
		name  string
		path  string
		wants []string
	}{
		{"architecture", one().write(t, "qwen2", nil), []string{`"qwen2"`, `"llama"`}},
		{"kind", (&lora{kind: "control_vector"}).write(t, "llama", nil), []string{"adapter.type", "control_vector"}},
		{"shape", newLoRA(1, other, 4, "attn_q").write(t, "llama", nil), []string{"attn_q.weight.lora_a", "attn_q.weight.lora_b", "40 columns", "32"}},
		{"half", one().write(t, "llama", tensorOf("blk.0.attn_k.weight.lora_a", 32, 4)), []string{"blk.0.attn_k.weight.lora_a", "no B"}},
		{"ranks", one().write(t, "llama", func(w *gguf.Writer) {
			tensorOf("blk.0.attn_k.weight.lora_a", 32, 4)(w)
			tensorOf("blk.0.attn_k.weight.lora_b", 5, 16)(w)
		}), []string{"blk.0.attn_k.weight.lora_a has 4 ranks", "lora_b 5"}},
		{"layer", one().write(t, "llama", func(w *gguf.Writer) {
			tensorOf("blk.7.attn_k.weight.lora_a", 32, 4)(w)
			tensorOf("blk.7.attn_k.weight.lora_b", 4, 16)(w)
		}), []string{"blk.7.attn_k.weight"}},
		{"norm", one().write(t, "llama", func(w *gguf.Writer) {
			tensorOf("token_embd.weight.lora_a", 32, 4)(w)
			tensorOf("token_embd.weight.lora_b", 4, 64)(w)
		}), []string{"token_embd.weight"}},
		{"other tensors", one().write(t, "llama", tensorOf("blk.0.attn_k.weight", 32, 16)), []string{"blk.0.attn_k.weight", "neither"}},
		{"codes", one().write(t, "llama", tensorOf("adapter.codes.weight", 32, 3)), []string{"adapter.codes.weight makes 3 codes", "4 ranks"}},
		{"embeddings", one().write(t, "llama", tensorOf("adapter.codes.weight", 30, 4)), []string{"adapter.codes.weight", "embeddings of 30", "32"}},
		{"codes without a weight", one().write(t, "llama", tensorOf("adapter.codes.bias", 4, 1)), []string{"adapter.codes.bias", "no adapter.codes.weight"}},
		{"other codes", one().write(t, "llama", tensorOf("adapter.codes.scale", 4, 1)), []string{"adapter.codes.scale", "adapter.codes.bias"}},
		{"a tiny alpha", func() string { l := one(); l.alpha = 1e-45; return l.write(t, "llama", nil) }(), []string{"makes a scale of 0 of 4 ranks"}},
		{"no number for alpha", func() string { l := one(); l.alpha = float32(math.NaN()); return l.write(t, "llama", nil) }(), []string{"alpha is NaN"}},
		{"ranks of all", newLoRA(1, testmodel.Tiny, 257, "attn_q").write(t, "llama", nil), []string{"257 ranks", "256"}},
	} {
		_, err := m.LoadAdapters(context.Background(), []string{c.path})
		if !errors.Is(err, model.ErrAdapter) {
			t.Errorf("%s: %v, want ErrAdapter", c.name, err)
			continue
		}
		for _, want := range c.wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q in it", c.name, err, want)
			}
		}
	}
	if _, err := m.LoadAdapters(context.Background(), []string{filepath.Join(t.TempDir(), "none.gguf")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	stranger := load(t, merged(t, d, testmodel.Tiny, nil), one().write(t, "llama", nil))
	if err := newSession(t, m, Options{Context: 16, KVType: tensor.F32}).SetAdapters([]model.ActiveAdapter{{Adapter: stranger[0], Scale: 1}}); !errors.Is(err, gpu.ErrInvalid) {
		t.Errorf("an adapter of another model: %v", err)
	}
}

// FuzzAdapters reads what may be a file, or the two of a folder of PEFT. It wants an error that says so, or an adapter of the memory
// that was predicted, with which a session computes. An error leaves no memory behind.
func FuzzAdapters(f *testing.F) {
	l := newLoRA(1, testmodel.Tiny, 4, allMatrices...)
	read := func(path string) []byte {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	file, folder := read(l.write(f, "llama", nil)), l.writePEFT(f, testmodel.Tiny.HeadDim, true)
	config, tensors := read(filepath.Join(folder, "adapter_config.json")), read(filepath.Join(folder, "adapter_model.safetensors"))
	f.Add([]byte(nil), file)
	f.Add([]byte(nil), bytes.Replace(file, []byte("lora_b"), []byte("lora_a"), 1))
	f.Add([]byte(nil), file[:len(file)/2])
	for _, bias := range []bool{true, false} {
		codes, _ := codesOf(1, l.ranks, testmodel.Tiny, bias)
		withCodes := read(l.write(f, "llama", codes))
		f.Add([]byte(nil), withCodes)
		f.Add([]byte(nil), bytes.Replace(withCodes, []byte("adapter.codes.weight"), []byte("adapter.codes.weighs"), 1))
	}
	f.Add(config, tensors)
	f.Add([]byte(`{"peft_type": "LORA", "lora_alpha": 1e-40, "use_rslora": true}`), tensors)
	f.Add([]byte(`{"peft_type": "LORA", "lora_alpha": 1, "bias": "`+strings.Repeat("\xff", 5000)+`"}`), tensors) // a short error all the same
	f.Add(config, bytes.Replace(tensors, []byte("lora_A"), bytes.Repeat([]byte("long"), 5000), 1))
	f.Add(config, bytes.Replace(tensors, []byte(`"shape":[4,`), []byte(`"shape":[5,`), 1))
	f.Add(config, append([]byte("\xff\xff\xff\xff\xff\xff\xff\x7f"), tensors[8:]...))
	gone := filepath.Join(f.TempDir(), "adapter")
	d, base := gpu.CPU(), mergedFile(testmodel.Tiny, nil)
	var m *model.Model // until it has an adapter
	f.Cleanup(func() {
		if m != nil {
			m.Close()
		}
	})
	f.Fuzz(func(t *testing.T, config, tensors []byte) {
		path := gone
		var err error
		if config == nil {
			err = os.WriteFile(path, tensors, 0o600)
		} else if err = os.MkdirAll(path, 0o700); err == nil {
			err = errors.Join(os.WriteFile(filepath.Join(path, "adapter_config.json"), config, 0o600),
				os.WriteFile(filepath.Join(path, "adapter_model.safetensors"), tensors, 0o600))
		}
		defer os.RemoveAll(path)
		if err != nil {
			t.Fatal(err)
		}
		if m == nil {
			if m, err = loaded(d, base); err != nil {
				t.Fatal(err)
			}
		}
		before := d.Pool().Stats().InUse
		predicted, err := m.AdapterBytes([]string{path})
		var stack *model.AdapterStack
		if err == nil {
			stack, err = m.LoadAdapters(context.Background(), []string{path})
		}
		if err != nil {
			if !errors.Is(err, model.ErrAdapter) && !errors.Is(err, gguf.ErrInvalid) && !errors.Is(err, gguf.ErrNotGGUF) || len(err.Error()) > 2000 {
				t.Fatal(err)
			}
			if after := d.Pool().Stats().InUse; after != before {
				t.Fatalf("%d bytes in use before, %d after: %v", before, after, err)
			}
			return
		}
		defer func() {
			m.Close()
			m = nil
		}()
		if taken := m.AdapterMemory(); taken != predicted {
			t.Fatalf("%d bytes, predicted %d", taken, predicted)
		}
		s, err := New(m, Options{Context: 4, KVType: tensor.F32})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.SetAdapters([]model.ActiveAdapter{{Adapter: stack.Adapters[0], Scale: 1}}); err != nil {
			t.Fatal(err)
		}
		if err := s.Prefill(context.Background(), []int32{1, 2}); err != nil {
			t.Fatal(err)
		}
	})
}
