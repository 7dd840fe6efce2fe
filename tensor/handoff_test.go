package tensor_test

import (
	"slices"
	"testing"

	"github.com/vibrant-ml/vibrant/internal/backend/fake"
	"github.com/vibrant-ml/vibrant/internal/check/optable"
	"github.com/vibrant-ml/vibrant/internal/fused"
	"github.com/vibrant-ml/vibrant/tensor"
)

// fusedOperations are those of package tensor.
var fusedOperations = fused.On[*tensor.Tensor, tensor.AttentionOptions, tensor.Activation, tensor.Written, tensor.Router, tensor.Ternary]()

// A handoff counts for the operation right after, on the same rows with the same norm and scratch. The fake hands over
// wherever it is asked to, and fails where it is given rows that are others.
func TestHandoffCountsForTheNextOperationAlone(t *testing.T) {
	const n, cols, inner = 3, 64, 32
	d, _ := openFake(t, fake.Config{})
	g := optable.NewGenerator(1)
	p := promptProduct{T: t, device: d, n: n, cols: cols}
	vector := func() *tensor.Tensor { return p.on(g.Offset(1, tensor.F32, cols), cols) }
	weight := func(rows, cols int) *tensor.Tensor { return p.on(g.Normal(tensor.F32, rows, cols), rows, cols) }
	first := fused.FFN[*tensor.Tensor]{
		Norm: vector(), NextNorm: vector(), Eps: 1e-6,
		Gate: weight(inner, cols), Up: weight(inner, cols), Down: weight(cols, inner),
		Normed: p.scratch(cols), Gated: p.scratch(inner), Product: p.scratch(inner),
	}
	in, y, other := p.on(g.Normal(tensor.F32, n, cols), n, cols), p.scratch(cols), p.scratch(cols)
	next := first
	next.Norm, next.NextNorm = first.NextNorm, nil
	want := func() []float32 {
		fusedOperations.FeedForward(y, in, first)
		fusedOperations.FeedForward(other, y, next)
		return other.Float32s()
	}()

	for name, between := range map[string]func(next *fused.FFN[*tensor.Tensor]){
		"nothing":            func(*fused.FFN[*tensor.Tensor]) {},
		"scratch used again": func(next *fused.FFN[*tensor.Tensor]) { tensor.RMSNormInto(first.Normed, in, nil, 1e-6) },
		"another operation":  func(next *fused.FFN[*tensor.Tensor]) { tensor.AddInto(other, in, in) },
		"other scratch":      func(next *fused.FFN[*tensor.Tensor]) { next.Normed = p.scratch(cols) },
	} {
		t.Run(name, func(t *testing.T) {
			after := next
			if after.Handoff = fusedOperations.FeedForward(y, in, first); !after.Handoff.Prepared() {
				t.Fatal("the fake hands nothing over")
			}
			between(&after)
			fusedOperations.FeedForward(other, y, after)
			if got := other.Float32s(); !slices.Equal(got, want) {
				t.Error("the result is another one")
			}
		})
	}
	t.Run("other rows", func(t *testing.T) {
		rows := p.on(g.Normal(tensor.F32, n, cols), n, cols)
		fusedOperations.FeedForward(other, rows, next)
		want := other.Float32s()
		after := next
		after.Handoff = fusedOperations.FeedForward(y, in, first)
		fusedOperations.FeedForward(other, rows, after)
		if got := other.Float32s(); !slices.Equal(got, want) {
			t.Error("the result is another one")
		}
	})
	t.Run("another norm", func(t *testing.T) {
		after := next
		after.Norm = first.Norm
		fusedOperations.FeedForward(y, in, first)
		fusedOperations.FeedForward(other, y, after)
		want := other.Float32s()
		after.Handoff = fusedOperations.FeedForward(y, in, first)
		fusedOperations.FeedForward(other, y, after)
		if got := other.Float32s(); !slices.Equal(got, want) {
			t.Error("the result is another one")
		}
	})
}
