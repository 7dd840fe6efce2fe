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
