package tensor_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/fake"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/check/optable"
	"github.com/vibrant-ml/vibrant/tensor"
)

// TestFusedUpdateSwitchedOffIsComposed holds the operations in its place against the same references, and counts them.
func TestFusedUpdateSwitchedOffIsComposed(t *testing.T) {
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		if err := tensor.FusedUpdateAvailable(d); (err != nil) != (b.Name() == "ptx") {
			t.Error(err)
		}
		tensor.SetFusedUpdate(false)
		defer tensor.SetFusedUpdate(true)
		before := composedUpdates()
		ran := int64(0)
		for _, op := range optable.Table() {
			for i, c := range op.Cases {
				if op.Name != "FusedUpdate" || c.Large || slices.Contains(c.Dims, 0) || c.Dims[0]*c.Dims[3]*(c.Dims[1]+c.Dims[2]) > 1<<20 {
					continue
				}
				ran++
				strict := *op
				strict.Tolerance = func(c optable.Case) optable.Tolerance {
					tolerance := op.Tolerance(c)
					if c.Type != tensor.F32 { // each step rounds
						tolerance.RMS *= 2
					}
					return tolerance
				}
				if _, err := strict.Check(d, c, uint64(i)); err != nil {
					t.Errorf("%s: %v", c.Name(), err)
				}
			}
		}
		if n := composedUpdates() - before; ran == 0 || n < ran {
			t.Errorf("%d of %d calls were counted", n, ran)
		}
	})
}

func composedUpdates() (n int64) {
	for _, f := range tensor.Fallbacks() {
		if f.Op == "fused update" && strings.Contains(f.Reason, "switched off") {
			n += f.Count
		}
	}
	return n
}

func TestFusedUpdateNamesBothSides(t *testing.T) {
	x, v, u := tensor.Zeros(3, 8), tensor.Zeros(8, 4), tensor.Zeros(6, 4)
	for _, c := range []struct {
		name   string
		x      *tensor.Tensor
		update tensor.Update
		wants  []string
	}{
		{"inner", x, tensor.Update{V: tensor.Zeros(7, 4), U: u}, []string{"(3,8)", "(7,4)"}},
		{"ranks", x, tensor.Update{V: v, U: tensor.Zeros(6, 5)}, []string{"(8,4)", "(6,5)"}},
		{"transposed", x, tensor.Update{V: v, U: u, UTransposed: true}, []string{"(8,4)", "(6,4)"}},
		{"codes", x, tensor.Update{V: v, U: u, Codes: tensor.Zeros(2, 4)}, []string{"(2,4)", "(3,4)"}},
		{"types", x, tensor.Update{V: v, U: tensor.Convert(u, tensor.F16)}, []string{"F32", "F16"}},
		{"none", x, tensor.Update{U: u}, []string{"none", "(6,4)"}},
	} {
		err := tensor.Try(func() { tensor.FusedUpdate(c.x, c.update) })
		var shape *tensor.ShapeError
		if !errors.As(err, &shape) {
			t.Errorf("%s: %v, want a ShapeError", c.name, err)
			continue
		}
		for _, want := range c.wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q in it", c.name, err, want)
			}
		}
	}
	if err := tensor.Try(func() {
		tensor.FusedUpdate(tensor.Zeros(1, 8), tensor.Update{V: tensor.Zeros(8, 257), U: tensor.Zeros(6, 257)})
	}); err == nil {
		t.Error("257 ranks were taken")
	}
}

// TestFusedUpdateTakesViewsAndNamesDevices has operands of turned strides, and in strict mode one on another device.
func TestFusedUpdateTakesViewsAndNamesDevices(t *testing.T) {
	matrix := func(rows, cols int) *tensor.Tensor { return tensor.FromSlice(ramp(rows*cols), rows, cols) }
	turned := func(x *tensor.Tensor) *tensor.Tensor { return x.Transpose(0, 1).ToContiguous().Transpose(0, 1) }
	x, add, update := matrix(3, 8), matrix(3, 6), tensor.Update{V: matrix(8, 4), U: matrix(6, 4), Codes: matrix(3, 4), Scale: 0.5}
	want, got := tensor.Zeros(3, 6), turned(tensor.Zeros(3, 6))
	tensor.FusedUpdateInto(want, add, x, update)
	tensor.FusedUpdateInto(got, turned(add), turned(x), tensor.Update{V: turned(update.V), U: turned(update.U), Codes: turned(update.Codes), Scale: 0.5})
	equal(t, "turned", got, want.Float32s()...)

	d, _ := openFake(t, fake.Config{})
	strictly(t)
	err := tensor.Try(func() { tensor.FusedUpdate(on(t, d, x), update) })
	if !errors.Is(err, gpu.ErrInvalid) || !strings.Contains(err.Error(), "operand on cpu") || !strings.Contains(err.Error(), "op on "+d.String()) {
		t.Errorf("codes on another device: %v", err)
	}
}

// TestUpdatesOfLoRAsScaleAreExact bounds the absolute error of F16 inputs of the size that adapters have.
func TestUpdatesOfLoRAsScaleAreExact(t *testing.T) {
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		for _, op := range optable.Table() {
			if op.Name != "FusedUpdate" {
				continue
			}
			small := *op
			small.Tolerance = func(optable.Case) optable.Tolerance {
				return optable.Tolerance{Abs: 1e-4, Why: "the older system's bound"}
			}
			small.Inputs = func(g *optable.Generator, c optable.Case) []*optable.Array {
				m, k, n, r := c.Dims[0], c.Dims[1], c.Dims[2], c.Dims[3]
				return []*optable.Array{nil, g.Scaled(0.1, c.Type, m, k), g.Scaled(1/math.Sqrt(float64(k)), c.Type, k, r), nil, g.Scaled(0.1, c.Type, n, r)}
			}
			if _, err := small.Check(d, optable.Case{Type: tensor.F16, Dims: []int{64, 256, 256, 8}}, 1); err != nil {
				t.Error(err)
			}
		}
	})
}

func ExampleFusedUpdate() {
	x := tensor.FromSlice([]float32{1, 2, 3}, 1, 3)
	update := tensor.Update{
		V:     tensor.FromSlice([]float32{1, 0, 0, 1, 1, 1}, 3, 2), // x V is (4, 5)
		Codes: tensor.FromSlice([]float32{1, 0}, 1, 2),             // the first rank alone
		U:     tensor.FromSlice([]float32{1, 9, 10, 9}, 2, 2),
		Scale: 0.5,
	}
	fmt.Println(tensor.FusedUpdate(x, update).Float32s())
	// Output: [2 20]
}
