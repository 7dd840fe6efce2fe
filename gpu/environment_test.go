package gpu_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
)

// TestEnvironmentWithoutMeaningIsNamed has devices refuse a variable's value by the variable's name, and take what has a meaning.
func TestEnvironmentWithoutMeaningIsNamed(t *testing.T) {
	for _, v := range [][2]string{
		{"VIBRANT_CPU", "junk"}, {"VIBRANT_CPU", "GO"}, {"VIBRANT_CPU", "\x1b[31m"}, {"VIBRANT_CPU", strings.Repeat("x", 100_000)},
		{"VIBRANT_CUDA", "cubin"}, {"VIBRANT_CUDA", " "}, {"VIBRANT_SIMD", "mmx"}, {"VIBRANT_SIMD", "avx512\n"},
		{"VIBRANT_TRACE", "junk"}, {"VIBRANT_TRACE", "start,junk"}, {"VIBRANT_TRACE", "start, ptx"},
		{"VIBRANT_CUDA_CAPABILITY", "8.6"}, {"VIBRANT_CUDA_CAPABILITY", "-86"}, {"VIBRANT_CUDA_CAPABILITY", "99999999999999999999"},
	} {
		t.Run(v[0], func(t *testing.T) {
			t.Setenv(v[0], v[1])
			_, openErr := gpu.Open("cpu")
			_, listErr := gpu.Devices()
			for _, err := range []error{openErr, listErr} {
				if !errors.Is(err, gpu.ErrInvalid) || !strings.Contains(err.Error(), v[0]+" is ") || len(err.Error()) > 200 || strings.ContainsAny(err.Error(), "\n\x1b") {
					t.Errorf("%.40q: %v", v[1], err)
				}
			}
		})
	}
	for _, v := range [][2]string{{"VIBRANT_CPU", "go"}, {"VIBRANT_CPU", "c"}, {"VIBRANT_CPU", ""}, {"VIBRANT_SIMD", "plain"},
		{"VIBRANT_CUDA", "library"}, {"VIBRANT_CUDA_CAPABILITY", "86"}, {"VIBRANT_TRACE", ","}} {
		t.Run(v[0]+" means something", func(t *testing.T) {
			t.Setenv(v[0], v[1])
			d, err := gpu.Open("cpu")
			if err != nil {
				t.Fatalf("%s=%s: %v", v[0], v[1], err)
			}
			d.Close()
		})
	}
}

// TestAnEmptyVariableIsNone has a script's VIBRANT_CUDA= choose the kernels that are chosen without it.
func TestAnEmptyVariableIsNone(t *testing.T) {
	open := func() error {
		d, err := gpu.Open("cuda")
		if err == nil {
			d.Close()
		}
		return err
	}
	t.Setenv("VIBRANT_CUDA", "") // which has the variable as it was when the test ends
	os.Unsetenv("VIBRANT_CUDA")
	want := open()
	os.Setenv("VIBRANT_CUDA", "")
	if got := open(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("empty: %v, unset: %v", got, want)
	}
}
