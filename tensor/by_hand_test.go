package tensor_test

import (
	"math"
	"slices"
	"testing"

	"github.com/vibrant-ml/vibrant/tensor"
)

// TestOperationsByHand has operations make their results, of values that are computed in the head. The table of operations holds
// the forms that write into a result.
func TestOperationsByHand(t *testing.T) {
	f := tensor.FromSlice
	check := func(name string, got *tensor.Tensor, shape []int, want ...float64) {
		t.Helper()
		if s := got.Shape(); !slices.Equal(s, shape) {
			t.Errorf("%s has the shape %v, want %v", name, s, shape)
		}
		for i, x := range got.Float64s() {
			if i >= len(want) || !(math.Abs(x-want[i]) <= 1e-5*math.Abs(want[i])) { // a few roundings of float32
				t.Errorf("%s: %v, want %v", name, got.Float64s(), want)
				break
			}
		}
	}

	silu := func(x float64) float64 { return x / (1 + math.Exp(-x)) }
	rows := f([]float32{3}, 1, 1, 1)
	check("CausalConv", tensor.CausalConv(f([]float32{1, 2}, 2, 1), rows, f([]float32{10, 1}, 1, 2), tensor.Places{}), []int{2, 1}, silu(31), silu(12))
	check("the newest row", rows, []int{1, 1, 1}, 2)

	// Of one key, which the norm makes 1: the state 2 moves half of the way to the value 6, and is read by the query 1.
	state, zero := f([]float32{2}, 1, 1, 1, 1), f([]float32{0}, 1)
	delta := tensor.Delta{A: zero, Dt: zero, KeyHeads: 1}
	check("GatedDelta", tensor.GatedDelta(f([]float32{3, 3, 6}, 1, 3), zero, zero, state, delta), []int{1, 1, 1, 1}, 4)
	check("the state", state, []int{1, 1, 1, 1}, 4)

	ids, weights := tensor.Route(f([]float32{1, 3, 2}, 1, 3), 2, tensor.Router{Gating: tensor.GatingSoftmaxChosen})
	first := 1 / (1 + math.Exp(-1))
	check("Route, ids", ids, []int{1, 2}, 1, 2)
	check("Route, weights", weights, []int{1, 2}, first, 1-first)
	y := tensor.ExpertLinear(f([]float32{5, 7}, 1, 2), f([]float32{1, 0, 0, 1, 1, 1}, 3, 1, 2), nil, ids)
	check("ExpertLinear", y, []int{1, 2, 1}, 7, 12)
	check("ExpertSum", tensor.ExpertSum(f([]float32{100}, 1, 1), y, weights), []int{1, 1}, 100+7*first+12*(1-first))

	check("DequantizeRows", tensor.DequantizeRows(tensor.FromInt8s([]int8{2, 4, 9, -3}, 2, 2), f([]float32{2, 3})), []int{2, 2}, 1, 2, 3, -1)

	a := f([]float32{1, 2, 3, 4}, 2, 2)
	check("Keep", tensor.Sub(a, tensor.Keep(tensor.Mean(a, 1), a, 1)), []int{2, 2}, -.5, .5, -.5, .5)

	codes, err := tensor.EncodeInt2(tensor.Int2Rows, []int8{1, -1, 0, 1}, 1, 4)
	if err != nil {
		t.Fatal(err)
	}
	table := tensor.TMACLUT(f([]float32{1, 2, 3, 4}, 4, 1))
	w := tensor.FromInt8s([]int8{int8(codes[0])}, 1, 1)
	check("TMACMatMul by a table", tensor.TMACMatMul(w, nil, tensor.TMAC{LUT: table}), []int{1, 1}, 3)
}
