package tensor_test

import (
	"math"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// TestGELUOverItsRange holds both forms of GELU to float64 from -20 to 20 and at special numbers, by each set of instructions. The
// tolerance is that of the op table: of the result near 0, and 1e-7 where a tail ends in 0.
func TestGELUOverItsRange(t *testing.T) {
	x := []float32{0, float32(math.Copysign(0, -1)), float32(math.Inf(1)), float32(math.NaN()), math.MaxFloat32, -math.MaxFloat32, 1e-40, -1e-40, 7.9999995, 8, -8}
	for i := range 40001 {
		x = append(x, float32(i-20000)*1e-3)
	}
	forms := map[string]struct {
		of   func(a *tensor.Tensor) *tensor.Tensor
		want func(x float64) float64
	}{
		"erf": {tensor.GELU, func(x float64) float64 { return x / 2 * math.Erfc(-x/math.Sqrt2) }},
		"tanh": {tensor.GELUTanh, func(x float64) float64 {
			return x / (1 + math.Exp(-2*math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
		}},
	}
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		devices := []*gpu.Device{d}
		if b.Name() == "c" {
			devices = append(devices, withFewerInstructions(t, b, d)...)
		}
		for _, d := range devices {
			for name, f := range forms {
				wrong := 0
				for i, got := range f.of(on(t, d, tensor.FromSlice(x))).Float32s() {
					want := f.want(float64(x[i]))
					same := float64(got) == want || got != got && want != want
					if !same && !(math.Abs(float64(got)-want) <= 8e-6*math.Abs(want)+1e-7) {
						if wrong++; wrong < 5 {
							t.Errorf("%s on %s (%s): %v for %v, want %v", name, d, d.Info().Features, got, x[i], want)
						}
					}
				}
			}
		}
	})
}
