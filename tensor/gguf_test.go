package tensor_test

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/gguf"
	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/check/testdata"
	"github.com/vibrant-ml/vibrant/tensor"
)

// The file is gguf-py's.
func TestTensorsOfGGUFFiles(t *testing.T) {
	want := make([]float32, 128)
	for i := range want {
		want[i] = float32(i) - 60
	}
	eachBackend(t, func(t *testing.T, _ kernel.Backend, d *gpu.Device) {
		f, err := gguf.Open("../gguf/testdata/golden.gguf")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		load := func(name string) *tensor.Tensor {
			t.Helper()
			x, err := tensor.FromGGUF(d, f, name)
			if err != nil {
				t.Fatal(err)
			}
			if x.Device() != d || !slices.Equal(x.Shape(), []int{2, 64}) {
				t.Errorf("%s: %v on %v", name, x.Shape(), x.Device())
			}
			return x
		}
		plain, half, blocks := load("plain.weight"), load("half.weight"), load("blocks.weight")
		for _, name := range []string{"double", "none"} {
			x, err := tensor.FromGGUF(d, f, name)
			if !errors.Is(err, map[string]error{"double": gpu.ErrUnsupported, "none": gguf.ErrNoTensor}[name]) || !strings.Contains(err.Error(), name) {
				t.Error(x, err)
			}
		}
		f.Close() // the tensors stay
		runtime.GC()
		if !slices.Equal(plain.Float32s(), want) || !slices.Equal(half.Float32s(), want) || half.DType() != tensor.F16 {
			t.Error("other values")
		}
		for i, v := range tensor.Convert(blocks, tensor.F32).Float32s() {
			if !(math.Abs(float64(v-want[i])) <= 68.0/127) { // one step of Q8_0 where the largest value is 67
				t.Errorf("element %d is %v, want about %v", i, v, want[i])
			}
		}
		same(t, tensor.Quantize(plain, tensor.Q8_0), stored(t, blocks))
		tensor.MulScalarInto(plain, plain, 2) // in memory of its own, or of a private mapping
		if got := plain.Float32s()[0]; got != -120 {
			t.Error(got)
		}
	})
}

func stored(t *testing.T, x *tensor.Tensor) []byte {
	t.Helper()
	b := make([]byte, x.Bytes())
	if err := x.ReadBytes(b); err != nil {
		t.Fatal(err)
	}
	return b
}

// A model's tensors are quantized as its publisher quantized them, and written.
func TestQuantizedTensorsOfAModel(t *testing.T) {
	full, err := gguf.Open(testdata.Path(t, "models", "stories260K-f32.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	quantized, err := gguf.Open(testdata.Path(t, "models", "stories260K-q8_0.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer quantized.Close()
	var w gguf.Writer
	checked := 0
	for _, info := range quantized.Tensors() {
		if info.Type != tensor.Q8_0 {
			continue
		}
		x, err := tensor.FromGGUF(gpu.CPU(), full, info.Name)
		if err != nil {
			t.Fatal(err)
		}
		want, _, err := quantized.Data(info.Name)
		if err != nil {
			t.Fatal(err)
		}
		q := tensor.Quantize(x, tensor.Q8_0)
		same(t, q, want)
		w.Add(info.Name, q.DType(), q.Shape(), stored(t, q))
		checked++
	}
	if checked < 10 {
		t.Fatalf("%d tensors", checked)
	}
	path := filepath.Join(t.TempDir(), "x.gguf")
	if err := w.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	again, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	for _, info := range again.Tensors() {
		got, _, _ := again.Data(info.Name)
		if want, _, _ := quantized.Data(info.Name); !bytes.Equal(got, want) {
			t.Errorf("%s differs", info.Name)
		}
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}
