package tensor_test

import (
	"math"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// TestFunctionsOfSpecialNumbers holds functions to math's at zeros, infinities, NaN, subnormal numbers and angles of many turns, which
// stand among ordinary numbers: kernels compute whole vectors, and other numbers apart.
func TestFunctionsOfSpecialNumbers(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	special := []float32{0, float32(math.Copysign(0, -1)), 1, -1, inf, -inf, nan, 1e-40, -1e-40, math.MaxFloat32, -math.MaxFloat32, 2, -2, -3, 0.5, -0.5,
		8191.5, 8192.5, -48040, 1e6, -1e10, 16777215, 16777216, -16777217, math.Pi, 22.5}
	var x, y []float32
	for i, a := range special {
		for j, b := range special {
			x, y = append(x, a, float32(i)*0.37+0.01), append(y, b, float32(j)*0.43-5)
		}
	}
	least := float64(math.Float32frombits(0x00800000)) // GPUs may make 0 of what is less
	for name, f := range map[string]struct {
		of       func(a, b *tensor.Tensor) *tensor.Tensor
		want     func(a, b float64) float64
		rel, abs float64 // those of the op table
	}{
		"sin":   {func(a, _ *tensor.Tensor) *tensor.Tensor { return tensor.Sin(a) }, func(a, _ float64) float64 { return math.Sin(a) }, 4e-7, 2e-7},
		"cos":   {func(a, _ *tensor.Tensor) *tensor.Tensor { return tensor.Cos(a) }, func(a, _ float64) float64 { return math.Cos(a) }, 4e-7, 2e-7},
		"exp":   {func(a, _ *tensor.Tensor) *tensor.Tensor { return tensor.Exp(a) }, func(a, _ float64) float64 { return math.Exp(a) }, 4e-7, 0},
		"log":   {func(a, _ *tensor.Tensor) *tensor.Tensor { return tensor.Log(a) }, func(a, _ float64) float64 { return math.Log(a) }, 4e-7, 1e-7},
		"tanh":  {func(a, _ *tensor.Tensor) *tensor.Tensor { return tensor.Tanh(a) }, func(a, _ float64) float64 { return math.Tanh(a) }, 6e-7, 0},
		"sqrt":  {func(a, _ *tensor.Tensor) *tensor.Tensor { return tensor.Sqrt(a) }, func(a, _ float64) float64 { return math.Sqrt(a) }, 2e-7, 0},
		"rsqrt": {func(a, _ *tensor.Tensor) *tensor.Tensor { return tensor.Rsqrt(a) }, func(a, _ float64) float64 { return 1 / math.Sqrt(a) }, 4e-7, 0},
		"pow":   {tensor.Pow, math.Pow, 2e-6, 1e-7},
	} {
		t.Run(name, func(t *testing.T) {
			eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
				got := f.of(on(t, d, tensor.FromSlice(x)), on(t, d, tensor.FromSlice(y))).Float32s()
				for i, g := range got {
					want := f.want(float64(x[i]), float64(y[i]))
					rounded := float64(float32(want)) // infinite beyond float32
					same := float64(g) == rounded || g != g && want != want
					if math.Abs(want)*(1+f.rel) > math.MaxFloat32 { // what is allowed is infinite too
						same = same || math.IsInf(float64(g), 0) && math.Signbit(float64(g)) == math.Signbit(want)
					}
					if !same && !(math.Abs(float64(g)-rounded) <= f.rel*math.Abs(rounded)+f.abs+least) {
						t.Errorf("%s of %v, %v: %v, want %v", name, x[i], y[i], g, rounded)
					}
				}
			})
		})
	}
}
