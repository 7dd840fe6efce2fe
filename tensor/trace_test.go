package tensor_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// TestTraceNamesTheKernelOfACall holds VIBRANT_TRACE=kernels to a line on stderr for each call: operation, type, sizes, kernel. The
// variable is read when the library is loaded, hence in a process of its own.
func TestTraceNamesTheKernelOfACall(t *testing.T) {
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		if b.Name() != "cuda" {
			t.Skip("the kernels of this backend are not chosen by their sizes")
		}
		if os.Getenv("VIBRANT_TRACE") == "kernels" {
			on := func(values []float32, shape ...int) *tensor.Tensor {
				x, err := tensor.FromSlice(values, shape...).ToDevice(tensor.On(d))
				if err != nil {
					t.Fatal(err)
				}
				return x
			}
			tensor.Convert(tensor.MulRows(on(make([]float32, 24), 3, 8), on(make([]float32, 3), 3)), tensor.F16).Float32s()
			return
		}
		c := exec.Command(os.Args[0], "-test.run=^TestTraceNamesTheKernelOfACall$/^cuda$")
		c.Env = append(os.Environ(), "VIBRANT_TRACE=kernels")
		var said strings.Builder
		c.Stderr = &said
		if err := c.Run(); err != nil {
			t.Fatalf("%v\n%s", err, said.String())
		}
		for _, want := range []string{
			"vibrant: mul_rows F32 rows=3 cols=8: mul_rows_vectors\n",
			"vibrant: convert F32 n=24: convert\n",
		} {
			if strings.Count(said.String(), want) != 1 {
				t.Errorf("not one line %q in\n%s", want, said.String())
			}
		}
	})
}
