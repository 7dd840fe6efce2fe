package engine

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/check/testdata"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/internal/language/model"
	"github.com/vibrant-ml/vibrant/tensor"
)

// TestVariantsMatchTransformers holds shapes of architectures that no model of the golden data has: testdata/variants.py
// makes them, and says what each is.
func TestVariantsMatchTransformers(t *testing.T) {
	var variants map[string]struct {
		IDs, Greedy []int32
		Logits      [][]float32
	}
	readJSON(t, filepath.Join("testdata", "variants.json"), &variants)
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		for name, golden := range variants {
			for _, fuse := range []string{"off", "on"} {
				t.Setenv("VIBRANT_FUSE", fuse)
				m := loadModel(t, d, filepath.Join("testdata", name+".gguf"), 64)
				s := newSession(t, m, Options{Context: 64, KVType: tensor.F32, Chunk: 7, LogitRows: 16})
				if w := worst(allLogits(t, s, golden.IDs), golden.Logits); !(w <= f32Tolerance) {
					t.Errorf("%s, fused %s: logits differ by %g", name, fuse, w)
				}
				if ids := greedy(t, s, golden.IDs, len(golden.Greedy)); !slices.Equal(ids, golden.Greedy) {
					t.Errorf("%s, fused %s: greedy ids %v, want %v", name, fuse, ids, golden.Greedy)
				}
			}
		}
	})
}

// TestTextOfQwen3VLWithExpertsIsQwen3MoE computes a golden model of qwen3moe under the name that files of Qwen3-VL have,
// with the keys that are for images.
func TestTextOfQwen3VLWithExpertsIsQwen3MoE(t *testing.T) {
	dir := testdata.Path(t, "models")
	golden := readGolden(t, dir, "tiny-qwen3moe")
	text, err := gguf.Open(filepath.Join(dir, "tiny-qwen3moe.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	w := testmodel.Copy(text, testmodel.Edit{Key: func(key string) string {
		if key == "general.architecture" {
			return ""
		}
		return strings.Replace(key, "qwen3moe.", "qwen3vlmoe.", 1)
	}})
	w.Set("general.architecture", "qwen3vlmoe")
	w.Set("qwen3vlmoe.rope.dimension_sections", []int32{4, 2, 2, 0})
	w.Set("qwen3vlmoe.n_deepstack_layers", uint32(3))
	f, err := gguf.FromBytes(testmodel.Bytes(w))
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(t.Context(), f, gpu.CPU(), model.Options{Context: 128})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	s := newSession(t, m, Options{Context: 128, KVType: tensor.F32, LogitRows: 16})
	if w := worst(allLogits(t, s, golden.IDs), golden.rows); !(w <= f32Tolerance) {
		t.Errorf("logits differ by %g", w)
	}
}

// TestExpertsInOneTensorAreThoseInTwo computes golden models whose experts' gates and ups lie in one tensor, as llama.cpp's
// converter writes them by --fuse-gate-up-exps.
func TestExpertsInOneTensorAreThoseInTwo(t *testing.T) {
	dir := testdata.Path(t, "models")
	for _, name := range []string{"tiny-qwen3moe", "tiny-qwen35moe", "tiny-gpt-oss", "tiny-deepseek2-v3", "tiny-llama4"} {
		t.Run(name, func(t *testing.T) {
			golden := readGolden(t, dir, name)
			apart, err := gguf.Open(filepath.Join(dir, name+".gguf"))
			if err != nil {
				t.Fatal(err)
			}
			defer apart.Close()
			data := testmodel.Bytes(joinExperts(t, apart))
			eachDevice(t, func(t *testing.T, d *gpu.Device) {
				checkInMemory(t, []*gpu.Device{d}, data, golden, deltaTolerance)
			})
			if name == "tiny-qwen3moe" || name == "tiny-gpt-oss" { // which can be divided
				eachDevices(t, 2, func(t *testing.T, devices []*gpu.Device) {
					checkInMemory(t, devices, data, golden, deltaTolerance)
				})
			}
		})
	}
}

// TestOlderFilesOfDeepseek2 computes golden models whose heads' keys and values are made by one tensor, as converters before
// April 2025 wrote them, and by keys that say nothing of what is compressed.
func TestOlderFilesOfDeepseek2(t *testing.T) {
	dir := testdata.Path(t, "models")
	for _, name := range []string{"tiny-deepseek2-v2", "tiny-deepseek2-v3"} {
		t.Run(name, func(t *testing.T) {
			golden := readGolden(t, dir, name)
			f, err := gguf.Open(filepath.Join(dir, name+".gguf"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			data := testmodel.Bytes(olderDeepseek2(t, f))
			eachDevice(t, func(t *testing.T, d *gpu.Device) {
				checkInMemory(t, []*gpu.Device{d}, data, golden, f32Tolerance)
			})
		})
	}
}

// checkInMemory holds the model of a file's bytes to another engine's logits and greedy ids.
func checkInMemory(t *testing.T, devices []*gpu.Device, data []byte, golden goldenModel, tolerance float64) {
	t.Helper()
	m := splitInMemory(t, devices, data, model.Placement{})
	defer m.Close()
	checkGolden(t, m, golden, 128, tolerance, "on")
}

// olderDeepseek2 returns a copy of a file with each head's rows of attn_k_b, transposed, before those of attn_v_b.
func olderDeepseek2(t *testing.T, f *gguf.File) *gguf.Writer {
	const prefix = "deepseek2.attention."
	get := func(key string) uint32 {
		v, err := f.Uint(prefix + key)
		if err != nil {
			t.Fatal(err)
		}
		return uint32(v)
	}
	rank, value, heads := int(get("kv_lora_rank")), int(get("value_length_mla")), int(get("head_count"))
	edit := testmodel.Without(prefix+"key_length_mla", prefix+"value_length_mla", prefix+"head_count_kv", prefix+"key_length",
		prefix+"value_length")
	edit.Tensor = func(w *gguf.Writer, k *gguf.Tensor, data []byte) {
		if strings.Contains(k.Name, ".attn_v_b.") {
			return
		}
		name, ok := strings.CutSuffix(k.Name, ".attn_k_b.weight")
		if !ok {
			w.AddTensor(k.Name, k.Type, k.Dims, data)
			return
		}
		v, err := f.Tensor(name + ".attn_v_b.weight")
		if err != nil {
			t.Fatal(err)
		}
		values, err := f.Data(v)
		if err != nil {
			t.Fatal(err)
		}
		still := k.Dims[0]
		var both []byte
		for h := range heads {
			for row := range still {
				for col := range rank {
					at := 4 * ((h*rank+col)*still + row)
					both = append(both, data[at:at+4]...)
				}
			}
			both = append(both, values[4*h*value*rank:4*(h+1)*value*rank]...)
		}
		w.AddTensor(name+".attn_kv_b.weight", k.Type, []int{rank, heads * (still + value)}, both)
	}
	w := testmodel.Copy(f, edit)
	w.Set(prefix+"head_count_kv", get("head_count"))
	w.Set(prefix+"key_length", get("key_length_mla"))
	w.Set(prefix+"value_length", get("value_length_mla"))
	return w
}

// TestWindowsMayBeGivenByTheirPeriod computes golden models whose layers with a window follow from one number, as newer
// converters write it.
func TestWindowsMayBeGivenByTheirPeriod(t *testing.T) {
	dir := testdata.Path(t, "models")
	for name, period := range map[string]uint32{"tiny-gemma2": 2, "tiny-gemma3": 6, "tiny-gpt-oss": 2, "tiny-olmo2-swa": 4} {
		arch := strings.TrimSuffix(strings.TrimPrefix(name, "tiny-"), "-swa")
		golden := readGolden(t, dir, name)
		list, err := gguf.Open(filepath.Join(dir, name+".gguf"))
		if err != nil {
			t.Fatal(err)
		}
		defer list.Close()
		key := arch + ".attention.sliding_window_pattern"
		logits := func(period uint32) [][]float32 {
			w := testmodel.Copy(list, testmodel.Without(key))
			w.Set(key, period)
			m := splitInMemory(t, []*gpu.Device{gpu.CPU()}, testmodel.Bytes(w), model.Placement{})
			t.Cleanup(m.Close)
			return allLogits(t, newSession(t, m, Options{Context: 128, KVType: tensor.F32, LogitRows: 16}), golden.IDs)
		}
		if w := worst(logits(period), golden.rows); !(w <= f32Tolerance) {
			t.Errorf("%s: logits differ by %g", name, w)
		}
		if w := worst(logits(1), golden.rows); !(w > 10*f32Tolerance) {
			t.Errorf("%s: without windows the logits differ by %g alone", name, w)
		}
	}
}

// joinExperts returns a copy of a file with each expert's rows of the gate before those of up, in one tensor.
func joinExperts(t *testing.T, f *gguf.File) *gguf.Writer {
	return testmodel.Copy(f, testmodel.Edit{Tensor: func(w *gguf.Writer, gate *gguf.Tensor, data []byte) {
		if strings.Contains(gate.Name, "ffn_up_exps.") {
			return
		}
		if !strings.Contains(gate.Name, "ffn_gate_exps.") {
			w.AddTensor(gate.Name, gate.Type, gate.Dims, data)
			return
		}
		up, err := f.Tensor(strings.Replace(gate.Name, "_gate_", "_up_", 1))
		if err != nil {
			t.Fatal(err)
		}
		ups, err := f.Data(up)
		if err != nil {
			t.Fatal(err)
		}
		last := len(gate.Dims) - 1
		each := len(data) / gate.Dims[last]
		var joined []byte
		for i := range gate.Dims[last] {
			joined = append(append(joined, data[i*each:(i+1)*each]...), ups[i*each:(i+1)*each]...)
		}
		dims := slices.Clone(gate.Dims)
		dims[last-1] *= 2
		w.AddTensor(strings.Replace(gate.Name, "_gate_", "_gate_up_", 1), gate.Type, dims, joined)
	}})
}
