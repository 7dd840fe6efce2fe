package tensor_test

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/check/optable"
	"github.com/vibrant-ml/vibrant/internal/fused"
	"github.com/vibrant-ml/vibrant/tensor"
)

// The two halves of a layer on two ranks, whose sums hand rows over, are the operations of their formulas. The accuracy is that of
// products whose operands are F16, and of summands of 14 bits.
func TestLayersOfRanksAreTheOperationsOfTheirFormulas(t *testing.T) {
	eachRanks(t, []int{2, 4}, func(t *testing.T, c *gpu.Communicator) {
		skipCrowded(t, c)
		sizes := []int{1, 7, 64, 80, 300}
		switch backend := c.Stream(0).Device().Info().Backend; {
		case raceDetector || backend == "go" || backend == "fake":
			sizes = sizes[:2] // one loop computes any number of rows, and the same goroutines run
		case backend == "cuda" && !strings.Contains(os.Getenv("VIBRANT_LIBRARY"), "emulated"):
			sizes = append(sizes, 2048, 2311) // each rank has columns of its own
		}
		for _, n := range sizes {
			for _, beyond := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d rows, beyond F16 %v", n, beyond), func(t *testing.T) {
					if layerOfRanks(t, c, n, beyond, false) {
						t.Log("rows were handed over")
					} else if c.Stream(0).Device().Info().Backend == "fake" {
						t.Error("the fake hands nothing over")
					}
				})
			}
		}
	})
}

// A program may give up between the ranks' parts of a sum and the sum. What comes next is not disturbed.
func TestPartsWithoutTheirSumAreForgotten(t *testing.T) {
	eachRanks(t, []int{2}, func(t *testing.T, c *gpu.Communicator) {
		skipCrowded(t, c)
		layerOfRanks(t, c, 80, false, true)
	})
}

// layerOfRanks also says whether rows were handed over. Where `abandons` is set, parts of a sum come first whose sum does not follow.
func layerOfRanks(t *testing.T, c *gpu.Communicator, n int, beyond, abandons bool) (handed bool) {
	const heads, kvHeads, dim = 8, 2, 64
	cols, inner := 512, 1024
	switch {
	case n >= 2048:
		cols = 2048 // products compute a rank's own columns last, and sums begin before
	case n == 1 && c.Stream(0).Device().Info().Backend == "cuda":
		cols, inner = 2560, 6400 // blocks have several rows of tiles, which one warp sends
	}
	ranks := c.Ranks()
	g := optable.NewGenerator(uint64(n))
	rows := g.Normal(tensor.F32, n, cols).Values
	if beyond {
		rows = rowsBeyondF16(g, n, cols)
	}
	norms := []*optable.Array{g.Offset(1, tensor.F32, cols), g.Offset(1, tensor.F32, cols)}
	in := optable.Floats(rows, n, cols)
	type rank struct {
		promptProduct
		x, q, k, v, output, attended *tensor.Tensor
		norm                         [2]*tensor.Tensor
		ffn                          fused.FFN[*tensor.Tensor]
		product, scratch, y, z       *tensor.Tensor
	}
	var all []rank
	for r := range ranks {
		p := promptProduct{T: t, device: c.Stream(r).Device(), n: n, cols: cols}
		weight := func(rows, cols int) *tensor.Tensor { return p.on(g.Weight(tensor.Q4_K, rows, cols), rows, cols) }
		cache := func() *tensor.Tensor { return p.on(g.Cache(tensor.F16, 1, kvHeads, n, dim), 1, kvHeads, n, dim) }
		all = append(all, rank{
			promptProduct: p, x: p.on(in, n, cols), q: p.on(g.Normal(tensor.F32, 1, n, heads, dim), 1, n, heads, dim), k: cache(), v: cache(),
			output: weight(cols, heads*dim), attended: p.scratch(heads*dim).Reshape(1, n, heads, dim),
			norm: [2]*tensor.Tensor{p.on(norms[0], cols), p.on(norms[1], cols)},
			ffn: fused.FFN[*tensor.Tensor]{
				Gate: weight(inner, cols), Up: weight(inner, cols), Down: weight(cols, inner), Eps: 1e-6, Alone: true,
				Gated: p.scratch(inner), Product: p.scratch(inner), Normed: p.scratch(cols),
			},
			product: p.scratch(cols), scratch: p.scratch(cols), y: p.scratch(cols), z: p.scratch(cols),
		})
	}
	list := func(of func(r *rank) *tensor.Tensor) (tensors []*tensor.Tensor) {
		for r := range all {
			tensors = append(tensors, of(&all[r]))
		}
		return tensors
	}
	x, y, z := list(func(r *rank) *tensor.Tensor { return r.x }), list(func(r *rank) *tensor.Tensor { return r.y }), list(func(r *rank) *tensor.Tensor { return r.z })
	product, normed := list(func(r *rank) *tensor.Tensor { return r.product }), list(func(r *rank) *tensor.Tensor { return r.ffn.Normed })
	first, second := list(func(r *rank) *tensor.Tensor { return r.norm[0] }), list(func(r *rank) *tensor.Tensor { return r.norm[1] })
	options := tensor.AttentionOptions{Causal: true, KVLen: n}

	// The formulas: what attention and the feed-forward add on all ranks.
	for r := range all {
		a := &all[r]
		tensor.AttentionInto(a.attended, a.q, a.k, a.v, options)
		tensor.LinearInto(a.product, a.attended.Reshape(n, heads*dim), a.output, nil)
	}
	tensor.AllReduceInto(c, y, product, x)
	half := all[0].y.Float32s()
	for r := range all {
		a := &all[r]
		fusedOperations.NormSwiGLU(a.ffn.Gated, a.y, a.norm[0], 1e-6, a.ffn.Gate, a.ffn.Up, a.scratch, a.ffn.Product)
		tensor.LinearInto(a.product, a.ffn.Gated, a.ffn.Down, nil)
	}
	tensor.AllReduceInto(c, z, product, y)
	want := [][]float32{half, all[0].z.Float32s()}

	if n == 1 {
		var parts [2][]fused.Part[*tensor.Tensor]
		for r := range all {
			a := &all[r]
			parts[0] = append(parts[0], fused.Part[*tensor.Tensor]{Product: a.product, X: a.attended.Reshape(n, heads*dim), W: a.output})
			parts[1] = append(parts[1], fused.Part[*tensor.Tensor]{Product: a.product, X: a.ffn.Gated, W: a.ffn.Down})
		}
		fusedOperations.LinearAllReduce(c, y, x, parts[0])
		for r := range all {
			a := &all[r]
			fusedOperations.NormSwiGLU(a.ffn.Gated, a.y, a.norm[0], 1e-6, a.ffn.Gate, a.ffn.Up, a.scratch, a.ffn.Product)
		}
		half = all[0].y.Float32s()
		fusedOperations.LinearAllReduce(c, y, y, parts[1]) // in place
		z, handed = y, true
	} else {
		parts := func() (left []fused.Handoff) {
			for r := range all {
				a := &all[r]
				left = append(left, fusedOperations.AttentionLinearAdd(a.product, nil, a.q, a.k, a.v, options, a.output, nil, fused.LowRank[*tensor.Tensor]{}, nil, a.attended, a.scratch, a.norm[0], a.ffn.Normed, [2]*tensor.Tensor{}))
			}
			return left
		}
		if abandons {
			parts()
			tensor.AllReduceRoundedInto(c, z, x, nil)
			for i, v := range z[1].Float32s() { // to 2^-13 of numbers of up to five
				if want := float64(c.Ranks()) * float64(rows[i]); !(math.Abs(float64(v)-want) <= 4e-3) {
					t.Fatalf("the sum after the parts has %v at %d, want %v", v, i, want)
				}
			}
			for r := range all { // of one rank results that the sum finds in memory
				a := &all[r]
				if r == 0 {
					fusedOperations.AttentionLinearAdd(a.product, nil, a.q, a.k, a.v, options, a.output, nil, fused.LowRank[*tensor.Tensor]{}, nil, a.attended, a.scratch, a.norm[0], a.ffn.Normed, [2]*tensor.Tensor{})
					continue
				}
				tensor.AttentionInto(a.attended, a.q, a.k, a.v, options)
				tensor.LinearInto(a.product, a.attended.Reshape(n, heads*dim), a.output, nil)
			}
			tensor.AllReduceRoundedInto(c, z, product, x)
			near(t, "the results of one rank sent", z[0].Float32s(), want[0], all[0].x.Float32s())
			parts() // and once more, before the same parts whose sum comes
		}
		left := parts()
		left = fusedOperations.AllReduceNorm(c, y, product, x, fused.Reduction[*tensor.Tensor]{From: kernel.AfterAttention, Norm: first, Normed: normed, Handoffs: left, Parted: true})
		handed = left[0].Prepared()
		parted := left[0].Parted()
		half = joined(y, parted)
		for r := range all {
			a := &all[r]
			a.ffn.Norm, a.ffn.NextNorm, a.ffn.Handoff = a.norm[0], a.norm[1], left[r]
			left[r] = fusedOperations.FeedForward(a.product, a.y, a.ffn)
		}
		left = fusedOperations.AllReduceNorm(c, z, product, y, fused.Reduction[*tensor.Tensor]{
			From: kernel.AfterAttention, Norm: second, Normed: normed, Handoffs: left, AddParted: parted, Parted: true,
		})
		handed = handed && left[0].Prepared()
		if left[0].Parted() != parted {
			t.Errorf("the first sum is parted: %v, the second: %v", parted, left[0].Parted())
		}
		for r := range all { // which reads the rows next, as after attention
			a := &all[r]
			a.ffn.Norm, a.ffn.NextNorm, a.ffn.Handoff = a.norm[1], nil, left[r]
			fusedOperations.FeedForward(a.product, a.z, a.ffn)
		}
		next := all[0].product.Float32s()
		if parted {
			sum := joined(z, true)
			for i, v := range addedUp(product) {
				sum[i] += v
			}
			fusedOperations.AllReduceNorm(c, y, product, z, fused.Reduction[*tensor.Tensor]{AddParted: true})
			for r := range y {
				near(t, fmt.Sprintf("the whole sum on rank %d", r), y[r].Float32s(), sum, joined(z, true))
			}
			for r := range z {
				if err := z[r].WriteFloat32s(joined(z, true)); err != nil {
					t.Fatal(err)
				}
			}
			t.Log("each rank had columns of its own")
		}
		fusedOperations.NormSwiGLU(all[0].ffn.Gated, all[0].z, all[0].norm[1], 1e-6, all[0].ffn.Gate, all[0].ffn.Up, all[0].scratch, all[0].ffn.Product)
		tensor.LinearInto(all[0].product, all[0].ffn.Gated, all[0].ffn.Down, nil)
		near(t, "the product that follows", next, all[0].product.Float32s(), make([]float32, len(next)))
	}
	got := [][]float32{half, z[0].Float32s()}
	before := all[0].x.Float32s()
	for i, name := range []string{"after attention", "after the feed-forward"} {
		near(t, name, got[i], want[i], before)
		before = want[i]
	}
	for i, v := range z[1].Float32s() {
		if math.Float32bits(v) != math.Float32bits(got[1][i]) {
			t.Fatalf("rank 1 has %v at %d, rank 0 %v", v, i, got[1][i])
		}
	}
	return handed
}

// joined returns a sum of which each rank has its own columns where it is parted: whole groups of 128.
func joined(ranks []*tensor.Tensor, parted bool) []float32 {
	whole, cols := ranks[0].Float32s(), ranks[0].Shape()[1]
	if parted {
		for r := range ranks {
			own, groups := ranks[r].Float32s(), cols/128
			for i := range whole {
				if group := i % cols / 128; group >= groups*r/len(ranks) && group < groups*(r+1)/len(ranks) {
					whole[i] = own[i]
				}
			}
		}
	}
	return whole
}

func addedUp(ranks []*tensor.Tensor) []float32 {
	sum := ranks[0].Float32s()
	for _, x := range ranks[1:] {
		for i, v := range x.Float32s() {
			sum[i] += v
		}
	}
	return sum
}

// near holds a sum to the error of its summands' products: of what was added to `before`, and of the rounding of that.
func near(t *testing.T, name string, got, want, before []float32) {
	t.Helper()
	var errors, added, most float64
	for i := range want {
		d := float64(got[i]) - float64(want[i])
		errors, added = errors+d*d, added+math.Pow(float64(want[i])-float64(before[i]), 2)
		most = max(most, math.Abs(float64(want[i])))
	}
	if bound := 3e-3*math.Sqrt(added) + 1e-6*most*math.Sqrt(float64(len(want))); !(math.Sqrt(errors) <= bound) {
		t.Errorf("%s: an error of %.3g beside %.3g that was added", name, math.Sqrt(errors), math.Sqrt(added))
	}
}
