package tensor_test

import (
	"fmt"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/check/optable"
	"github.com/vibrant-ml/vibrant/internal/fused"
	"github.com/vibrant-ml/vibrant/tensor"
)

// TestNormQKVOfPromptsEqualsThatOfTheirParts computes prompts at once and some tokens at a time, for which a GPU has other kernels: the
// products of a prompt rotate heads and write the cache in several ways by its size.
func TestNormQKVOfPromptsEqualsThatOfTheirParts(t *testing.T) {
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		sizes := [][5]int{ // tokens, columns, heads, key heads, elements of a head
			{100, 512, 14, 2, 64}, {511, 2048, 16, 2, 128}, {700, 256, 40, 5, 128}, {900, 256, 40, 5, 64}, {1111, 512, 28, 4, 128}, {2050, 512, 14, 2, 64},
		}
		if d.Info().ID == "cpu" || b.Name() == "fake" {
			sizes = [][5]int{{40, 256, 2, 1, 64}}
		}
		for _, size := range sizes {
			for _, mode := range []tensor.RoPEMode{tensor.RoPENeoX, tensor.RoPEInterleaved} {
				for _, values := range []tensor.DType{tensor.Q4_K, tensor.Q6_K} {
					for _, cache := range []tensor.DType{tensor.F16, tensor.F32} {
						t.Run(fmt.Sprintf("%v_%v_%v_%v", size, mode, values, cache), func(t *testing.T) {
							queriesOfParts(t, d, size, mode, values, cache)
						})
					}
				}
			}
		}
	})
}

func queriesOfParts(t *testing.T, d *gpu.Device, size [5]int, mode tensor.RoPEMode, values, cache tensor.DType) {
	n, cols, heads, kvHeads, dim := size[0], size[1], size[2], size[3], size[4]
	const part, sequences, place = 30, 3, 1
	g := optable.NewGenerator(uint64(n))
	p := promptProduct{T: t, device: d, n: n, cols: cols}
	x := g.Normal(tensor.F32, n, cols)
	positions := make([]int, n)
	for i := range positions {
		positions[i] = i * 13 % n // every one once: 13 divides none of the sizes
	}
	vector := func(rows int) *tensor.Tensor { return p.on(g.Normal(tensor.F32, rows), rows) }
	weight := func(dtype tensor.DType, rows int) *tensor.Tensor {
		return p.on(g.Weight(dtype, rows, cols), rows, cols)
	}
	qkv := fused.QKV[*tensor.Tensor]{
		Norm: vector(cols), Q: weight(tensor.Q4_K, heads*dim), K: weight(tensor.Q4_K, kvHeads*dim), V: weight(values, kvHeads*dim),
		QBias: vector(heads * dim), KBias: vector(kvHeads * dim), VBias: vector(kvHeads * dim),
		Cos: p.on(g.Normal(tensor.F32, n, dim/2), n, dim/2), Sin: p.on(g.Normal(tensor.F32, n, dim/2), n, dim/2), Mode: kernel.RoPEMode(mode), Eps: 1e-6,
		Sequences: p.on(optable.List(place), 1),
	}
	before := [2]*optable.Array{g.Normal(cache, sequences, kvHeads, n, dim), g.Normal(cache, sequences, kvHeads, n, dim)}
	run := func(step int) (q, k, v []float32) {
		caches := [2]*tensor.Tensor{}
		for i := range caches {
			caches[i] = p.on(before[i], sequences, kvHeads, n, dim)
		}
		for first := 0; first < n; first += step {
			count := min(step, n-first)
			of := promptProduct{T: t, device: d, n: count, cols: cols}
			out := of.scratch(heads*dim).Reshape(1, count, heads, dim)
			qkv.Positions, qkv.Normed = p.on(optable.List(positions[first:first+count]...), count), of.scratch(cols)
			qkv.KNew, qkv.VNew = of.scratch(kvHeads*dim), of.scratch(kvHeads*dim)
			fusedOperations.NormQKV(out, caches[0], caches[1], of.on(optable.Floats(x.Values[first*cols:][:count*cols], count, cols), count, cols), qkv)
			q = append(q, out.Float32s()...)
		}
		return q, caches[0].Float32s(), caches[1].Float32s()
	}
	gotQ, gotK, gotV := run(n)
	wantQ, wantK, wantV := run(part)
	const tolerance = 0.005 // both round x to 11 bits, prompts W too, and a cache of F16 what comes of it
	sameRows(t, "q", gotQ, wantQ, dim, tolerance)
	sameRows(t, "k", gotK, wantK, dim, tolerance)
	sameRows(t, "v", gotV, wantV, dim, tolerance)
}
