package engine

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/fake"
	"github.com/vibrant-ml/vibrant/internal/backend/purego"
	"github.com/vibrant-ml/vibrant/internal/check/absent"
	"github.com/vibrant-ml/vibrant/internal/check/testdata"
	"github.com/vibrant-ml/vibrant/internal/language/demomodel"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/internal/language/model"
	"github.com/vibrant-ml/vibrant/tensor"
)

// eachDevice runs a test on every device that this build can use here: the CPU as it is and in pure Go, a GPU, and a fake
// GPU, which shows on any machine whether waits, captures and copies are where they must be.
func eachDevice(t *testing.T, f func(t *testing.T, d *gpu.Device)) {
	open := map[string]func() (*gpu.Device, error){
		"go":   func() (*gpu.Device, error) { return gpu.OpenBackend(purego.Backend(), 0) },
		"cuda": func() (*gpu.Device, error) { return gpu.Open("cuda") },
		"fake": func() (*gpu.Device, error) {
			b := fake.New(fake.Config{})
			t.Cleanup(func() {
				for _, err := range b.GPU(0).Misuse() {
					t.Error(err)
				}
			})
			return gpu.OpenBackend(b, 0)
		},
	}
	if cpu, err := gpu.Open("cpu"); err == nil {
		if b := cpu.Info().Backend; b != "go" {
			open[b] = func() (*gpu.Device, error) { return gpu.Open("cpu") }
		}
		cpu.Close()
	}
	for name, open := range open {
		t.Run(name, func(t *testing.T) {
			d, err := open()
			if absent.Device(t, name, err) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			tensor.SetStrict(true)
			defer tensor.SetStrict(false)
			f(t, d)
		})
	}
}

func loadModel(t testing.TB, d *gpu.Device, path string, maxContext int) *model.Model {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(context.Background(), f, d, model.Options{Context: maxContext})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close(); f.Close() })
	return m
}

func newSession(t testing.TB, m *model.Model, o Options) *Session {
	t.Helper()
	s, err := New(m, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// allLogits returns the logits after each id.
func allLogits(t testing.TB, s *Session, ids []int32) [][]float32 {
	t.Helper()
	var rows [][]float32
	err := s.Logits(context.Background(), ids, 0, func(i int, row []float32) error {
		if i != len(rows) {
			t.Fatalf("logits of row %d came after %d", i, len(rows)-1)
		}
		rows = append(rows, slices.Clone(row))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// greedy returns n ids that follow a prompt.
func greedy(t testing.TB, s *Session, prompt []int32, n int) []int32 {
	t.Helper()
	if err := s.Prefill(context.Background(), prompt); err != nil {
		t.Fatal(err)
	}
	var ids []int32
	for range n {
		id, err := s.Next(nil)
		if err != nil {
			t.Fatal(err)
		}
		if ids = append(ids, id); len(ids) < n {
			if err := s.Step(id, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	return ids
}

// worst returns the greatest difference; NaN counts as infinite.
func worst(got, want [][]float32) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	w := 0.0
	for i := range got {
		if len(got[i]) != len(want[i]) {
			return math.Inf(1)
		}
		for j := range got[i] {
			d := math.Abs(float64(got[i][j]) - float64(want[i][j]))
			if math.IsNaN(d) {
				return math.Inf(1)
			}
			w = max(w, d)
		}
	}
	return w
}

// worstOfHalf is the greatest difference in the half of the rows that differs least.
func worstOfHalf(got, want [][]float32) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	var rows []float64
	for i := range got {
		rows = append(rows, worst(got[i:i+1], want[i:i+1]))
	}
	slices.Sort(rows)
	return rows[len(rows)/2]
}

// f32Tolerance is the deviation of logits that float32 arithmetic in another order explains, against float64.
const f32Tolerance = 1e-4

// TestStoriesMatchLlama2C holds a trained model, in F32 and quantized, to float64 arithmetic on its dequantized weights, which
// llama2.c confirms for F32.
func TestStoriesMatchLlama2C(t *testing.T) {
	dir := testdata.Path(t, "models")
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		for _, name := range fewer([]string{"f32", "f16", "q8_0", "q4_0", "q5_1"}) {
			t.Run(name, func(t *testing.T) {
				var golden struct {
					Cases []struct {
						PromptIDs []int32 `json:"prompt_ids"`
						IDs       []int32
						First     [][]float32 `json:"logits_first16"`
						Last      []float32   `json:"logits_last"`
					}
				}
				readJSON(t, filepath.Join(dir, "stories260K-"+name+".golden.json"), &golden)
				m := loadModel(t, d, filepath.Join(dir, "stories260K-"+name+".gguf"), 512)
				// Quantized weights may be multiplied with activations rounded to int8, and F16 ones with halves.
				tolerance, kv := 0.35, tensor.F16
				if name == "f32" {
					tolerance, kv = f32Tolerance, tensor.F32
				}
				s := newSession(t, m, Options{Context: 512, KVType: kv, LogitRows: 64})
				for _, c := range golden.Cases {
					if w := worst(allLogits(t, s, c.IDs[:16]), c.First); !(w <= tolerance) {
						t.Errorf("first logits differ by %g", w)
					}
					want := c.IDs[len(c.PromptIDs):]
					if name != "f32" || testing.Short() {
						want = want[:24] // beyond, rounded activations may choose another of two words
					}
					ids := greedy(t, s, c.PromptIDs, len(want))
					same := 0
					for same < len(ids) && ids[same] == want[same] {
						same++
					}
					if name == "f32" && same < len(want) || same < 8 {
						t.Errorf("%d of %d greedy ids are the same", same, len(want))
					}
				}
			})
		}
	})
}

// TestQuantizedCacheAnswersAsGolden asks the demo model what no rounding of keys and values decides.
func TestQuantizedCacheAnswersAsGolden(t *testing.T) {
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
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		s := newSession(t, loadModel(t, d, path, 512), Options{Context: 512, KVType: tensor.Q8_0})
		asked := 0
		for i, c := range answers {
			if i%20 != 0 || len(c.IDs) > 60 || c.LeastLead < 1 {
				continue
			}
			asked++
			if ids := greedy(t, s, c.PromptIDs, len(c.IDs)); !slices.Equal(ids, c.IDs) {
				t.Errorf("%q: %v, want %v", c.Text, ids, c.IDs)
			}
		}
		if asked < 5 {
			t.Errorf("%d questions", asked)
		}
	})
}

func readJSON(t testing.TB, path string, v any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// The golden files write keys in lower case, which encoding/json matches to fields of any case.
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}
