package tensor_test

import (
	"errors"
	"math"
	"slices"
	"strings"
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

// TestPowersOfWholeNumbers holds powers to what PyTorch 2.15 gives: torch.pow of two tensors of torch.int32, torch.int8 and torch.uint8.
func TestPowersOfWholeNumbers(t *testing.T) {
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		x := tensor.FromInt32s([]int32{0, 0, 0, 1, 1, -1, -1, -1, 2, 2, 2, 2, 3, -3, -3, 7, 46341, 65536, math.MinInt32, math.MinInt32, math.MaxInt32, 10, -2, -2})
		y := tensor.FromInt32s([]int32{0, 1, -1, -7, math.MinInt32, -7, -8, math.MinInt32, 30, 31, 32, -1, 20, 3, 21, math.MaxInt32, 2, 2, 1, -1, math.MaxInt32, -9, 31, -31})
		want := []int32{1, 0, 0, 1, 1, -1, 1, 1, 1 << 30, math.MinInt32, 0, 0, -808182895, -27, -1870418611, -1227133513, -2147479015, 0, math.MinInt32, 0,
			math.MaxInt32, 0, math.MinInt32, 0}
		if got := tensor.Pow(on(t, d, x), on(t, d, y)).Int32s(); !slices.Equal(got, want) {
			t.Errorf("I32: %v, want %v", got, want)
		}
		signed := tensor.Pow(on(t, d, tensor.FromInt8s([]int8{-128, -2, -2, 3, 11, -1, -1, 2})), on(t, d, tensor.FromInt8s([]int8{1, 7, 8, 5, 127, -128, -127, -1})))
		if got, want := signed.Int8s(), []int8{-128, -128, 0, -13, -93, 1, -1, 0}; !slices.Equal(got, want) {
			t.Errorf("I8: %v, want %v", got, want)
		}
		unsigned := tensor.Pow(on(t, d, tensor.FromUint8s([]uint8{0, 2, 3, 255, 255, 16, 13})), on(t, d, tensor.FromUint8s([]uint8{0, 7, 255, 255, 254, 2, 129})))
		if got, want := unsigned.Int32s(), []int32{1, 128, 171, 255, 1, 0, 13}; !slices.Equal(got, want) {
			t.Errorf("U8: %v, want %v", got, want)
		}
		// A sum beyond its type wraps before it is an exponent: 100 + 100 is -56, and 200 where there is no sign.
		f := tensor.Fuse(func(x, y tensor.Expr) tensor.Expr { return x.Pow(y.Add(y)) })
		hundred := on(t, d, tensor.FromInt8s([]int8{100, 100}))
		if got, want := f.Call(on(t, d, tensor.FromInt8s([]int8{-1, 3})), hundred).Int8s(), []int8{1, 0}; !slices.Equal(got, want) {
			t.Errorf("sum as exponent: %v, want %v", got, want)
		}
	})
}

// TestPowersThatWholeNumbersHaveNot holds errors to those cases that PyTorch refuses too.
func TestPowersThatWholeNumbersHaveNot(t *testing.T) {
	whole, truths := tensor.FromInt32s([]int32{2}), tensor.FromBools([]bool{true})
	constant := tensor.Fuse(func(x tensor.Expr) tensor.Expr { return x.Pow(x.Const(-2)) })
	for want, call := range map[string]func(){
		"pow of I32 to -2: whole numbers have no negative powers": func() { constant.Call(whole) },
		"pow of BOOL: convert it first":                           func() { tensor.Pow(truths, truths) },
		"pow of I32 and BOOL: types differ":                       func() { tensor.Pow(whole, truths) },
	} {
		var misuse *tensor.ShapeError
		if err := tensor.Try(call); !errors.As(err, &misuse) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if got := constant.Call(tensor.FromSlice([]float32{4})).Float32s()[0]; got != 0.0625 {
		t.Errorf("4 to the power of -2: %v", got)
	}
}
