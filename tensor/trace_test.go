package tensor_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// TestTraceNamesTheKernelOfACall holds VIBRANT_TRACE=kernels to a line on stderr for each call: operation, kernel, and on a GPU type and
// sizes. The variable is read when the library is loaded, hence in a process of its own.
func TestTraceNamesTheKernelOfACall(t *testing.T) {
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		if b.Name() != "cuda" && b.Name() != "c" {
			t.Skip("the kernels of this backend say nothing")
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
		c := exec.Command(os.Args[0], "-test.run=^TestTraceNamesTheKernelOfACall$/^"+b.Name()+"$")
		c.Env = append(os.Environ(), "VIBRANT_TRACE=kernels", "VIBRANT_SIMD=plain")
		var said strings.Builder
		c.Stderr = &said
		if err := c.Run(); err != nil {
			t.Fatalf("%v\n%s", err, said.String())
		}
		wanted := []string{"vibrant: mul_rows F32 rows=3 cols=8: mul_rows_vectors\n", "vibrant: convert F32 n=24: convert\n"}
		if b.Name() == "c" {
			wanted = []string{"vibrant: mul_rows: plain\n"} // the results of the other are converted by a third call
		}
		for _, want := range wanted {
			if strings.Count(said.String(), want) != 1 {
				t.Errorf("not one line %q in\n%s", want, said.String())
			}
		}
	})
}

// TestACPUNamesTheFormThatRan holds the name of an operation's kernel on a CPU to the instructions that its device has, on each level.
func TestACPUNamesTheFormThatRan(t *testing.T) {
	forms := map[string]string{ // by level: an addition; W2A8 of one and eight rows; table look-up of one and eight columns, by a table given
		"plain":      "plain w2a8_plain w2a8_plain tmac_shuffle_(plain|neon) tmac_shuffle_(plain|neon) tmac_table",
		"avx2":       "avx2 w2a8_avx2 w2a8_avx2 tmac_scaled_avx2 tmac_scaled_avx2 tmac_table",
		"avx512":     "avx512 w2a8_avx512 w2a8_avx512 tmac_scaled_avx512 tmac_(words_vbmi|scaled_avx512) tmac_table",
		"avx512 amx": "avx512 w2a8_avx512 w2a8_amx tmac_bytes_avx512 tmac_bytes_amx tmac_table",
	}
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		if b.Name() != "c" {
			t.Skip("the kernels of this backend have no forms by instructions")
		}
		for _, d := range append(withFewerInstructions(t, b, d), d) {
			var got []string
			name := func(*tensor.Tensor) { got = append(got, d.Stream().LastKernel()) }
			of := func(typ tensor.DType, shape ...int) *tensor.Tensor {
				x, err := tensor.New(d.Stream(), typ, shape...)
				if err != nil {
					t.Fatal(err)
				}
				return x
			}
			w, err := tensor.NewTernary(d, make([]int8, 16*256), 16, 256, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Free()
			codes := of(tensor.I8, 16, 64)
			name(tensor.Add(of(tensor.F32, 4), of(tensor.F32, 4)))
			for _, n := range []int{1, 8} {
				name(tensor.W2A8Sums(of(tensor.I8, n, 256), w))
			}
			for _, n := range []int{1, 8} {
				name(tensor.TMACMatMul(codes, of(tensor.F32, 256, n), tensor.TMAC{}))
			}
			name(tensor.TMACMatMul(codes, nil, tensor.TMAC{LUT: tensor.TMACLUT(of(tensor.F32, 256, 1))}))
			level, features, _ := strings.Cut(d.Info().Features, " ")
			if level = strings.TrimSuffix(level, "f"); strings.HasSuffix(features, " amx") {
				level += " amx"
			}
			if said := strings.Join(got, " "); !regexp.MustCompile("^" + forms[level] + "$").MatchString(said) {
				t.Errorf("%s: %s, want %s", d.Info().Features, said, forms[level])
			}
		}
	})
}
