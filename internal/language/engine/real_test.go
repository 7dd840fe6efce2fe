package engine

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/check/testdata"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/internal/language/tokenizer"
	"github.com/vibrant-ml/vibrant/tensor"
)

// realModel is what transformers computed in float64 on the dequantized weights of a trained model, and how far llama.cpp is
// from that.
type realModel struct {
	Cases []struct {
		Text     string
		IDs      []int32
		NLL      []float64
		Top8     [][]int32
		Top8LogP [][]float64 `json:"top8_logp"`
		LlamaCPP struct {
			KLMean float64 `json:"kl_mean"`
			Top1   float64 `json:"top1_agree"`
		}
	}
}

// realFiles returns the trained models in the folders of VIBRANT_REAL_MODELS that there are references of.
func realFiles(t *testing.T) map[string]string {
	t.Helper()
	folders := os.Getenv("VIBRANT_REAL_MODELS")
	if folders == "" {
		t.Skip("VIBRANT_REAL_MODELS names no folder with trained models")
	}
	references, err := filepath.Glob(testdata.Path(t, "real", "*.golden.json"))
	if err != nil || len(references) == 0 {
		t.Fatalf("no references of trained models: %v", err)
	}
	files := map[string]string{}
	for _, reference := range references {
		name := strings.TrimSuffix(filepath.Base(reference), ".golden.json") + ".gguf"
		for _, folder := range filepath.SplitList(folders) {
			if path := filepath.Join(folder, name); files[reference] == "" {
				if _, err := os.Stat(path); err == nil {
					files[reference] = path
				}
			}
		}
		if files[reference] == "" {
			t.Errorf("%s is in none of %s", name, folders)
		}
	}
	return files
}

// TestRealModelsAreTwiceAsCloseAsLlamaCPP holds trained, quantized models to exact arithmetic on their weights: the mean
// divergence over a text is at most half of llama.cpp's.
func TestRealModelsAreTwiceAsCloseAsLlamaCPP(t *testing.T) {
	files := realFiles(t)
	eachRealDevice(t, func(t *testing.T, d *gpu.Device) {
		for reference, path := range files {
			t.Run(filepath.Base(path), func(t *testing.T) {
				var want realModel
				readJSON(t, reference, &want)
				m := loadModel(t, d, path, 512)
				s := newSession(t, m, Options{Context: 512, KVType: tensor.F16, LogitRows: 32})
				for _, c := range want.Cases {
					divergence, off, agree := 0.0, 0.0, 0
					for i, row := range allLogits(t, s, c.IDs) {
						logP := logSoftmax(row)
						divergence += grouped(logP, c.Top8[i], c.Top8LogP[i])
						if pick(nil, row, nil) == c.Top8[i][0] {
							agree++
						} else if lead := c.Top8LogP[i][0] - c.Top8LogP[i][1]; lead > 0.25 { // four times what rounding moves here
							t.Errorf("after %d tokens the likeliest is another, though it leads by %.3f", i+1, lead)
						}
						if i+1 < len(c.IDs) {
							off += -logP[c.IDs[i+1]] - c.NLL[i]
						}
					}
					n := float64(len(c.IDs))
					t.Logf("divergence %.6f (llama.cpp %.6f), nll %+.5f, likeliest the same %.3f (%.3f)", divergence/n, c.LlamaCPP.KLMean,
						off/n, float64(agree)/n, c.LlamaCPP.Top1)
					if !(divergence/n <= c.LlamaCPP.KLMean/2) {
						t.Errorf("mean divergence %g, want at most half of llama.cpp's %g", divergence/n, c.LlamaCPP.KLMean)
					}
					if !(math.Abs(off/n) <= 0.01) { // 1 % of the perplexity
						t.Errorf("negative log-likelihoods differ by %g in the mean", off/n)
					}
				}
			})
		}
	})
}

// TestRealModelsGoOnCounting asks for what models of any size know, greedily.
func TestRealModelsGoOnCounting(t *testing.T) {
	files := realFiles(t)
	eachRealDevice(t, func(t *testing.T, d *gpu.Device) {
		for _, path := range files {
			t.Run(filepath.Base(path), func(t *testing.T) {
				f, err := gguf.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				tok, err := tokenizer.FromGGUF(f, "")
				if err != nil {
					t.Fatal(err)
				}
				ids, err := tok.Encode(t.Context(), "1, 2, 3, 4, 5, 6, 7,", tokenizer.Options{AddBOS: tok.AddsBOS()})
				if err != nil {
					t.Fatal(err)
				}
				s := newSession(t, loadModel(t, d, path, 512), Options{Context: 512, KVType: tensor.F16})
				text, err := tok.Decode(greedy(t, s, ids, 24))
				if err != nil || !strings.HasPrefix(text, " 8, 9, 10, 11") {
					t.Errorf("%q, %v", text, err)
				}
				t.Logf("%q", text)
			})
		}
	})
}

// eachRealDevice is eachDevice without what takes minutes: pure Go kernels, which the fake GPU has too.
func eachRealDevice(t *testing.T, f func(t *testing.T, d *gpu.Device)) {
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		if b := d.Info().Backend; slices.Contains([]string{"go", "fake"}, b) {
			t.Skip("too slow for trained models")
		}
		f(t, d)
	})
}

func logSoftmax(logits []float32) []float64 {
	most, sum := math.Inf(-1), 0.0
	for _, x := range logits {
		most = math.Max(most, float64(x))
	}
	for _, x := range logits {
		sum += math.Exp(float64(x) - most)
	}
	out := make([]float64, len(logits))
	for i, x := range logits {
		out[i] = float64(x) - most - math.Log(sum)
	}
	return out
}

// grouped returns the Kullback-Leibler divergence of logP from the exact probabilities of eight ids and of all others together.
func grouped(logP []float64, ids []int32, exact []float64) float64 {
	divergence, rest, exactRest := 0.0, 1.0, 1.0
	for i, id := range ids {
		p := math.Exp(exact[i])
		divergence += p * (exact[i] - logP[id])
		rest, exactRest = rest-math.Exp(logP[id]), exactRest-p
	}
	if exactRest > 0 && rest > 0 {
		divergence += exactRest * math.Log(exactRest/rest)
	}
	return divergence
}
