package tensor_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// drawNormal returns normally distributed elements, on the CPU.
func drawNormal(random *rand.Rand, shape ...int) *tensor.Tensor {
	n := 1
	for _, size := range shape {
		n *= size
	}
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(random.NormFloat64())
	}
	return tensor.FromSlice(values, shape...)
}

// A decoding step's own key and value count although a GPU may read the others while the op that writes them still runs: what
// comes out is that of attention which waits.
func TestSettledAttentionSeesWhatTheOpBeforeWrote(t *testing.T) {
	const heads, kvHeads, dim, capacity, steps = 16, 2, 128, 4096, 12
	random := rand.New(rand.NewPCG(1, 2))
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		places := []int{5, 0, 250, 1500, 4000} // of the first token
		if d.Info().HostMemory || b.Name() == "fake" {
			places = places[:1]
		}
		normal := func(shape ...int) *tensor.Tensor { return on(t, d, drawNormal(random, shape...)) }
		everywhere := make([]int32, capacity)
		for i := range everywhere {
			everywhere[i] = int32(i)
		}
		all := on(t, d, tensor.FromInt32s(everywhere, capacity))
		q, kNew, vNew := normal(1, 1, heads, dim), normal(steps, 1, 1, kvHeads, dim), normal(steps, 1, 1, kvHeads, dim)
		kOld, vOld := normal(1, capacity, kvHeads, dim), normal(1, capacity, kvHeads, dim)
		for _, dtype := range []tensor.DType{tensor.F16, tensor.Q8_0} {
			for _, first := range places {
				var results [2][steps][]float32
				for settled := range 2 {
					var caches [2]*tensor.Tensor
					for i := range caches {
						var err error
						if caches[i], err = tensor.New(d.Stream(), dtype, 1, kvHeads, capacity, dim); err != nil {
							t.Fatal(err)
						}
					}
					k, v := caches[0], caches[1]
					tensor.KVWrite(k, v, kOld, vOld, all, nil)
					var out [steps]*tensor.Tensor
					for i := range steps {
						at := all.Slice(first+i, first+i+1)
						o := tensor.AttentionOptions{Causal: true, Positions: at}
						written := tensor.KVWrite(k, v, kNew.Slice(i, i+1).Reshape(1, 1, kvHeads, dim), vNew.Slice(i, i+1).Reshape(1, 1, kvHeads, dim), at, nil)
						if settled == 1 {
							o.Written = written
						}
						out[i] = tensor.Attention(q, k, v, o)
					}
					for i, o := range out {
						results[settled][i] = o.Float32s()
					}
				}
				for i := range steps {
					if !slices.Equal(results[0][i], results[1][i]) {
						t.Fatalf("%v cache, position %d: settled keys change the result", dtype, first+i)
					}
				}
			}
		}
	})
}

// The same of many sequences at places of their own, whose keys blocks share by a plan where the bound of their lengths is great.
func TestSettledAttentionOfManySequences(t *testing.T) {
	const heads, kvHeads, dim, capacity = 8, 2, 64, 512
	random := rand.New(rand.NewPCG(3, 4))
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		batch := 36 // 72 tiles: too many for clusters of four blocks each
		if d.Info().HostMemory || b.Name() == "fake" {
			batch = 3
		}
		normal := func(shape ...int) *tensor.Tensor { return on(t, d, drawNormal(random, shape...)) }
		places, all := make([]int32, batch), make([]int32, 0, batch*capacity)
		for i, p := range random.Perm(batch) {
			places[i] = int32(p)
			for at := range int32(capacity) {
				all = append(all, at)
			}
		}
		sequences, everywhere := on(t, d, tensor.FromInt32s(places, batch)), on(t, d, tensor.FromInt32s(all, batch, capacity))
		q, kNew, vNew := normal(batch, 1, heads, dim), normal(batch, 1, kvHeads, dim), normal(batch, 1, kvHeads, dim)
		kOld, vOld := normal(batch, capacity, kvHeads, dim), normal(batch, capacity, kvHeads, dim)
		for _, bound := range []int{200, capacity} {
			ends := make([]int32, batch)
			for i := range ends {
				ends[i] = int32(random.IntN(bound))
			}
			at := on(t, d, tensor.FromInt32s(ends, batch, 1))
			var results [2][]float32
			for settled := range results {
				var caches [2]*tensor.Tensor
				for i := range caches {
					var err error
					if caches[i], err = tensor.New(d.Stream(), tensor.F16, batch, kvHeads, capacity, dim); err != nil {
						t.Fatal(err)
					}
				}
				tensor.KVWrite(caches[0], caches[1], kOld, vOld, everywhere, nil)
				o := tensor.AttentionOptions{Causal: true, Positions: at, Sequences: sequences, KVLen: bound}
				written := tensor.KVWrite(caches[0], caches[1], kNew, vNew, at, sequences)
				if settled == 1 {
					o.Written = written
				}
				results[settled] = tensor.Attention(q, caches[0], caches[1], o).Float32s()
			}
			if !slices.Equal(results[0], results[1]) {
				t.Errorf("lengths up to %d: settled keys change the result", bound)
			}
		}
	})
}
