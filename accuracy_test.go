package vibrant

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/check/absent"
	"github.com/vibrant-ml/vibrant/internal/check/testdata"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
	"github.com/vibrant-ml/vibrant/internal/language/demomodel"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/tensor"
)

// perplexityTolerance is how much the perplexity of a quantized model may differ from that of the same weights as float32,
// with keys, values and activations in float32 too: 0.2 %. What differs are activations rounded for integer products and a
// cache in halves.
const perplexityTolerance = 0.002

// TestQuantizedPerplexityIsThatOfDequantizedWeights scores stories with models that were trained on such, as their files
// have them and with their weights dequantized, on every device that this build has here.
func TestQuantizedPerplexityIsThatOfDequantizedWeights(t *testing.T) {
	for _, name := range []string{"f16", "q8_0", "q4_0", "q5_1"} {
		t.Run("stories260K-"+name, func(t *testing.T) {
			dir := testdata.Path(t, "models")
			file, err := os.ReadFile(filepath.Join(dir, "stories260K-"+name+".gguf"))
			if err != nil {
				t.Fatal(err)
			}
			text := storyTexts(t, dir)
			want := perplexityOf(t, dequantized(t, file), "cpu", text, 128)
			onDevices(t, func(device string) {
				got := perplexityOf(t, file, device, text, 128)
				comparePerplexity(t, device, "weights as stored", got, "dequantized", want, perplexityTolerance)
			})
		})
	}
}

// TestPerplexityOverAQuantizedCacheIsThatOfF16 scores what the demo model was trained to say, whose heads have whole blocks.
func TestPerplexityOverAQuantizedCacheIsThatOfF16(t *testing.T) {
	file, text := demomodel.GGUF(), demoText(t)
	onDevices(t, func(device string) {
		want := perplexityOf(t, file, device, text, 512, WithKVType(KVF16))
		got := perplexityOf(t, file, device, text, 512, WithKVType(KVQ8))
		comparePerplexity(t, device, "a cache of Q8_0", got, "of F16", want, 0.005)
	})
}

// onDevices calls f with each device that this build has here.
func onDevices(t *testing.T, f func(device string)) {
	t.Helper()
	for _, device := range []string{"cpu", "cuda"} {
		d, err := gpu.Open(device)
		if absent.Device(t, device, err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		d.Close()
		f(device)
	}
}

func comparePerplexity(t *testing.T, device, what string, got float64, than string, want, tolerance float64) {
	t.Helper()
	off := math.Abs(got/want - 1)
	t.Logf("%s: perplexity %.4f with %s, %.4f %s: %.3f %% off", device, got, what, want, than, 100*off)
	if !(off <= tolerance) {
		t.Errorf("%s: more than %.1f %% off", device, 100*tolerance)
	}
}

// demoText returns questions of the demo model with their golden answers.
func demoText(t *testing.T) string {
	t.Helper()
	answers, err := demomodel.GoldenAnswers()
	if err != nil {
		t.Fatal(err)
	}
	m, err := OpenBytes(context.Background(), demomodel.GGUF(), WithDevice("cpu"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	tokens, err := m.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, a := range answers[:40] {
		answer, err := tokens.Decode(a.IDs[:len(a.IDs)-1])
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString(a.Text + "\n" + answer + "\n")
	}
	return text.String()
}

// storyTexts returns the stories that the golden files tell, each once.
func storyTexts(t *testing.T, dir string) string {
	t.Helper()
	var texts []string
	for _, name := range []string{"f32", "f16", "q8_0", "q4_0", "q5_1"} {
		b, err := os.ReadFile(filepath.Join(dir, "stories260K-"+name+".golden.json"))
		if err != nil {
			t.Fatal(err)
		}
		var golden struct {
			Cases []struct{ Text string }
		}
		if err := json.Unmarshal(b, &golden); err != nil {
			t.Fatal(err)
		}
		for _, c := range golden.Cases {
			texts = append(texts, c.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// dequantized returns the file with all tensors as F32.
func dequantized(t *testing.T, file []byte) []byte {
	t.Helper()
	f, err := gguf.FromBytes(file)
	if err != nil {
		t.Fatal(err)
	}
	return testmodel.Retype(f, func(x *gguf.Tensor, data []byte) (gguf.Type, []byte) {
		rows := x.Elements() / x.Dims[0]
		stored, err := tensor.FromMemory(gpu.CPU(), tensor.DType(x.Type), data, f, rows, x.Dims[0])
		if err != nil {
			t.Fatal(err)
		}
		values := stored.Float32s()
		out := make([]byte, 0, 4*len(values))
		for _, v := range values {
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
		}
		return gguf.F32, out
	})
}

// perplexityOf opens the file on the device with a context of length tokens and scores the text.
func perplexityOf(t *testing.T, file []byte, device, text string, length int, options ...Option) float64 {
	t.Helper()
	m, err := OpenBytes(context.Background(), file, append(options, WithDevice(device), WithContext(length))...)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	r, err := m.Perplexity(context.Background(), text, PerplexityOptions{Context: length})
	if err != nil {
		t.Fatal(err)
	}
	if r.Scored < 500 {
		t.Fatalf("only %d tokens were scored", r.Scored)
	}
	return r.Perplexity
}
