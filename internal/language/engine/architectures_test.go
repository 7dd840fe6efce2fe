package engine

import (
	"context"
	"encoding/binary"
	"math"
	"os"
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

// goldenCase is a model that has random weights, whose logits and greedy ids Hugging Face transformers computed in float64.
type goldenCase struct {
	file    string
	context int     // of the sessions, 0 for 128
	f32     float64 // greatest difference of logits, 0 for f32Tolerance
	f16     float64 // with keys and values in F16, 0 for 2e-2: their 11 bits show in the third decimal of logits around 1 to 10
	routes  bool    // rounded keys let some token choose other experts, so that half of the rows are held to f16 and q8
	q8      float64 // with keys and values in Q8_0 or BF16, 0 for 0.4: they round normal values by 0.6 and 0.2 %, thirty and ten times as much as F16
}

var randomModels = []goldenCase{
	{file: "tiny-deepseek2-v2", routes: true},
	{file: "tiny-deepseek2-v3", routes: true},
	{file: "tiny-gemma2"},
	{file: "tiny-gemma3"},
	{file: "tiny-glm4"},
	{file: "tiny-glm4moe", routes: true},
	{file: "tiny-gpt-oss", routes: true},
	{file: "tiny-gpt2"},
	{file: "tiny-granite"},
	{file: "tiny-granitemoe-shared", routes: true},
	{file: "tiny-llama"},
	{file: "tiny-llama4", routes: true},
	{file: "tiny-mistral3"},
	{file: "tiny-olmo2"},
	{file: "tiny-olmo2-swa"},
	{file: "tiny-phi3"},
	{file: "tiny-phi3-longrope"},
	{file: "tiny-phi3-longrope-short"},
	{file: "tiny-qwen2"},
	{file: "tiny-qwen2moe", routes: true},
	{file: "tiny-qwen3"},
	{file: "tiny-qwen35", f32: deltaTolerance},
	{file: "tiny-qwen35moe", f32: deltaTolerance, routes: true},
	{file: "tiny-qwen3moe", routes: true},
	{file: "tiny-qwen3next", f32: deltaTolerance, routes: true},
	{file: "tiny-qwen3vl"},
	{file: "tiny-smollm3"},
	{file: "tiny-stablelm"},
}

// deltaTolerance is how far transformers is from the golden logits where it computes the delta rule in float32: what the
// rule reads from a state may be almost 0, and is then normed, so that the last bit of an embedding moves logits by 2e-4.
const deltaTolerance = 5e-4

// fewer returns every eighth of the cases where the race detector is at work: it is slow, and each case runs the same goroutines.
func fewer[T any](cases []T) (some []T) {
	for i, c := range cases {
		if !raceDetector || i%8 == 0 {
			some = append(some, c)
		}
	}
	return some
}

// goldenModel is what transformers computed.
type goldenModel struct {
	IDs, Greedy []int32
	Logits      string
	Tolerance   map[string]float64
	rows        [][]float32
}

func readGolden(t testing.TB, dir, name string) (g goldenModel) {
	t.Helper()
	readJSON(t, filepath.Join(dir, name+".golden.json"), &g)
	raw, err := os.ReadFile(filepath.Join(dir, g.Logits))
	if err != nil {
		t.Fatal(err)
	}
	vocab := len(raw) / 4 / len(g.IDs)
	for i := range g.IDs {
		row := make([]float32, vocab)
		if _, err := binary.Decode(raw[4*i*vocab:], binary.LittleEndian, row); err != nil {
			t.Fatal(err)
		}
		g.rows = append(g.rows, row)
	}
	return g
}

// TestRandomModelsMatchTransformers holds every architecture to other engines' logits and greedy ids: a prompt in one
// piece and in chunks, by fused operations and by those of the forward function, with keys and values of each type.
func TestRandomModelsMatchTransformers(t *testing.T) {
	dir := testdata.Path(t, "models")
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		for _, c := range fewer(randomModels) {
			t.Run(c.file, func(t *testing.T) {
				or := func(tolerance, usual float64) float64 {
					if tolerance > 0 {
						return tolerance
					}
					return usual
				}
				golden := readGolden(t, dir, c.file)
				tokens := int(or(float64(c.context), 128))
				for _, fuse := range []string{"off", "on"} {
					t.Setenv("VIBRANT_FUSE", fuse)
					m := loadModel(t, d, filepath.Join(dir, c.file+".gguf"), tokens)
					for _, chunk := range fewer([]int{7, 0}) {
						s := newSession(t, m, Options{Context: tokens, KVType: tensor.F32, Chunk: chunk, LogitRows: 16})
						if w := worst(allLogits(t, s, golden.IDs), golden.rows); !(w <= or(c.f32, f32Tolerance)) {
							t.Errorf("fused %s, chunks of %d: logits differ by %g", fuse, chunk, w)
						}
						if ids := greedy(t, s, golden.IDs, len(golden.Greedy)); !slices.Equal(ids, golden.Greedy) {
							t.Errorf("fused %s, chunks of %d: greedy ids %v, want %v", fuse, chunk, ids, golden.Greedy)
						}
					}
				}
				m := loadModel(t, d, filepath.Join(dir, c.file+".gguf"), tokens)
				worst := worst
				if c.routes {
					worst = worstOfHalf
				}
				s := newSession(t, m, Options{Context: tokens, KVType: tensor.F16})
				if w := worst(allLogits(t, s, golden.IDs), golden.rows); !(w <= or(c.f16, 2e-2)) {
					t.Errorf("cache in F16: logits differ by %g", w)
				}
				s = newSession(t, m, Options{Context: tokens, KVType: tensor.BF16})
				if w := worst(allLogits(t, s, golden.IDs), golden.rows); !(w <= or(c.q8, 0.4)) {
					t.Errorf("cache in BF16: logits differ by %g", w)
				}
				if m.CheckCacheType(tensor.Q8_0) != nil {
					return
				}
				s = newSession(t, m, Options{Context: tokens, KVType: tensor.Q8_0})
				if w := worst(allLogits(t, s, golden.IDs), golden.rows); !(w <= or(c.q8, 0.4)) {
					t.Errorf("cache in Q8_0: logits differ by %g", w)
				}
			})
		}
	})
}

// TestQuantizedModelsMatchTransformers holds models whose weights llama.cpp has quantized to float64 arithmetic on the
// same weights. A device may round the other factors to int8, as llama.cpp does: the golden file says how far that took
// it in the mean.
func TestQuantizedModelsMatchTransformers(t *testing.T) {
	dir := testdata.Path(t, "models")
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		for _, name := range []string{"tiny-gemma3-q8_0", "tiny-gpt-oss-mxfp4", "tiny-qwen3moe-q8_0"} {
			t.Run(name, func(t *testing.T) {
				golden := readGolden(t, dir, name)
				m := loadModel(t, d, filepath.Join(dir, name+".gguf"), 128)
				s := newSession(t, m, Options{Context: 128, KVType: tensor.F32})
				sum, n := 0.0, 0
				for i, row := range allLogits(t, s, golden.IDs) {
					for j, x := range row {
						sum += math.Abs(float64(x) - float64(golden.rows[i][j]))
						n++
					}
				}
				tolerance := golden.Tolerance["int8 activations, mean"]
				if mean := sum / float64(n); !(mean <= tolerance) {
					t.Errorf("logits differ by %g in the mean, want at most %g", mean, tolerance)
				}
			})
		}
	})
}

// TestScalesOfMatricesAreApplied divides the matrices of golden models by powers of two, exactly, and puts these beside them, as
// files in NVFP4 have them: one number for a matrix, or one for each expert.
func TestScalesOfMatricesAreApplied(t *testing.T) {
	dir := testdata.Path(t, "models")
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		for _, name := range fewer([]string{"tiny-qwen2", "tiny-qwen3", "tiny-qwen3moe", "tiny-qwen2moe", "tiny-deepseek2-v3"}) {
			for _, fuse := range []string{"off", "on"} {
				t.Setenv("VIBRANT_FUSE", fuse)
				golden := readGolden(t, dir, name)
				whole, err := gguf.Open(filepath.Join(dir, name+".gguf"))
				if err != nil {
					t.Fatal(err)
				}
				defer whole.Close()
				f, err := gguf.FromBytes(withScales(t, whole))
				if err != nil {
					t.Fatal(err)
				}
				m, err := model.Load(t.Context(), f, d, model.Options{Context: 128})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(m.Close)
				s := newSession(t, m, Options{Context: 128, KVType: tensor.F32, LogitRows: 16})
				if w := worst(allLogits(t, s, golden.IDs), golden.rows); !(w <= f32Tolerance) {
					t.Errorf("%s, fused %s: logits differ by %g", name, fuse, w)
				}
			}
		}
	})
}

// withScales takes a power of two out of each matrix of a layer, and adds a tensor with it and one that counts for nothing here.
func withScales(t *testing.T, f *gguf.File) []byte {
	t.Helper()
	one := func(values ...float32) []byte {
		b, err := binary.Append(nil, binary.LittleEndian, values)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	matrices := 0
	return testmodel.Bytes(testmodel.Copy(f, testmodel.Edit{Tensor: func(w *gguf.Writer, x *gguf.Tensor, data []byte) {
		stem, isMatrix := strings.CutSuffix(x.Name, ".weight")
		if !isMatrix || len(x.Dims) < 2 || stem == "token_embd" {
			w.AddTensor(x.Name, x.Type, x.Dims, data)
			return
		}
		matrices++
		parts := 1
		if len(x.Dims) == 3 && strings.HasSuffix(stem, "_exps") {
			parts = x.Dims[2]
		}
		values := make([]float32, len(data)/4)
		if _, err := binary.Decode(data, binary.LittleEndian, values); err != nil {
			t.Fatal(err)
		}
		var scales []float32
		for part := range parts {
			scale := float32(math.Ldexp(1, (matrices+part)%5-2))
			scales = append(scales, scale)
			for j := range len(values) / parts {
				values[part*(len(values)/parts)+j] /= scale
			}
		}
		w.AddTensor(x.Name, x.Type, x.Dims, one(values...))
		w.AddTensor(stem+".scale", gguf.F32, []int{parts}, one(scales...))
		w.AddTensor(stem+".input_scale", gguf.F32, []int{1}, one(3))
	}}))
}

// TestRandomModelsInBatches generates by every architecture beside sequences of other lengths.
func TestRandomModelsInBatches(t *testing.T) {
	dir := testdata.Path(t, "models")
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		for _, c := range fewer(randomModels) {
			t.Run(c.file, func(t *testing.T) {
				golden := readGolden(t, dir, c.file)
				m := loadModel(t, d, filepath.Join(dir, c.file+".gguf"), 128)
				b, err := NewBatch(m, 3, Options{Context: 128, KVType: tensor.F32, Chunk: 16})
				if err != nil {
					t.Fatal(err)
				}
				defer b.Close()
				var members []*Sequence
				for _, n := range []int{5, len(golden.IDs), 23} {
					s, err := b.Join(context.Background(), golden.IDs[:n], nil, false)
					if err != nil {
						t.Fatal(err)
					}
					members = append(members, s)
				}
				var ids []int32
				for len(ids) < len(golden.Greedy) {
					if err := b.Step(); err != nil {
						t.Fatal(err)
					}
					ids = append(ids, members[1].Newest())
				}
				if !slices.Equal(ids, golden.Greedy) {
					t.Errorf("greedy ids %v, want %v", ids, golden.Greedy)
				}
			})
		}
	})
}
