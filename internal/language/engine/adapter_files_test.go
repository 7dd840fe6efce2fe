package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/internal/language/model"
	"github.com/vibrant-ml/vibrant/tensor"
)

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
		"vocabulary was":       tensors(`{"base_model.model.lm_head.base_layer.weight": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]}}`),
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

// TestAdaptersOfPEFTMatchPEFT reads the folders that PEFT itself saved: testdata/adapters.py makes them, and says what each is. The
// model beside them answers as before once they are left out.
func TestAdaptersOfPEFTMatchPEFT(t *testing.T) {
	type expected struct {
		Model       string
		IDs, Greedy []int32
		Logits      [][]float32
	}
	var adapters, models map[string]expected
	readJSON(t, filepath.Join("testdata", "adapters.json"), &adapters)
	readJSON(t, filepath.Join("testdata", "variants.json"), &models)
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		for name, golden := range adapters {
			for _, fuse := range []string{"off", "on"} {
				t.Setenv("VIBRANT_FUSE", fuse)
				m := loadModel(t, d, filepath.Join("testdata", golden.Model+".gguf"), 64)
				active := []model.ActiveAdapter{{Adapter: load(t, m, filepath.Join("testdata", name))[0], Scale: 1}}
				s := newSession(t, m, Options{Context: 64, KVType: tensor.F32, Chunk: 7, LogitRows: 16})
				for _, c := range []struct {
					active []model.ActiveAdapter
					want   expected
				}{{active, golden}, {nil, models[golden.Model]}} {
					if err := s.SetAdapters(c.active); err != nil {
						t.Fatal(err)
					}
					what := fmt.Sprintf("%s, fused %s, %d active", name, fuse, len(c.active))
					closeTo(t, what, allLogits(t, s, c.want.IDs), c.want.Logits)
					if ids := greedy(t, s, c.want.IDs, len(c.want.Greedy)); !slices.Equal(ids, c.want.Greedy) {
						t.Errorf("%s: greedy ids %v, want %v", what, ids, c.want.Greedy)
					}
				}
			}
		}
	})
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
