package optable

import (
	"math"
	"slices"
	"strings"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/fused"
	"github.com/vibrant-ml/vibrant/tensor"
)

// rotation is what NormQKV and RoPEKVWrite do with q, k and v. Flags, joined by "-": "neox", "places" (sequences of the caches), "ring",
// and "f32", "bf16cache" or "q8cache" for the caches, which are F16.
type rotation struct {
	batch, seq, heads, kvHeads, dim, half, capacity, sequences int
	flags                                                      string
}

// rotationOf returns that of NormQKV.
func rotationOf(c Case) rotation {
	return rotation{c.Dims[0], c.Dims[1], c.Dims[3], c.Dims[4], c.Dims[5], c.Dims[6], c.Dims[7], c.Dims[8], c.Flags}
}

func (r rotation) has(flag string) bool { return strings.Contains("-"+r.flags+"-", "-"+flag+"-") }
func (r rotation) cache() []int         { return []int{r.sequences, r.kvHeads, r.capacity, r.dim} }
func (r rotation) cacheType() tensor.DType {
	if r.has("f32") {
		return tensor.F32
	}
	if r.has("q8cache") {
		return tensor.Q8_0
	}
	if r.has("bf16cache") {
		return tensor.BF16
	}
	return tensor.F16
}
func (r rotation) mode() kernel.RoPEMode {
	if r.has("neox") {
		return kernel.RoPENeoX
	}
	return kernel.RoPEInterleaved
}

// places returns tables of any angles, positions, and the sequences of the caches, nil without the flag. A ring's positions lie beyond
// its capacity.
func (r rotation) places(g *Generator) (cos, sin, positions, sequences *Array) {
	rows := r.capacity
	if r.has("ring") {
		rows *= 3
	}
	distinct := r.capacity
	if r.capacity%7 == 0 {
		distinct /= 7
	}
	eachItsPlace(r.seq, distinct)
	var tokens, places []int
	for i := range r.batch * r.seq {
		p := (r.capacity/2 + 7*i) % r.capacity
		if r.has("ring") && i%4 > 0 {
			p += rows - r.capacity
		}
		tokens = append(tokens, p)
	}
	for b := range r.batch {
		places = append(places, r.sequences-1-b)
	}
	if r.has("places") {
		sequences = List(places...)
	}
	cos = g.Of(func(i int) float64 { return math.Cos(float64(i)) }, rows, r.half)
	sin = g.Of(func(i int) float64 { return math.Sin(float64(i)) }, rows, r.half)
	return cos, sin, List(tokens...), sequences
}

// rotate norms and rotates each head in place by what places returned; scales grow by what they are multiplied with.
func (r rotation) rotate(w Want, heads int, norm *Array, places []*Array) {
	for row := range r.batch * r.seq * heads {
		x, scale := w.Values[row*r.dim:(row+1)*r.dim], w.Scale[row*r.dim:(row+1)*r.dim]
		if norm != nil {
			y := normed(&Array{Values: x, Shape: []int{1, r.dim}}, norm)
			for i := range x {
				if x[i] != 0 {
					scale[i] *= math.Abs(y[i] / x[i])
				}
				x[i] = y[i]
			}
		}
		p := int(places[2].Values[row/heads])
		for i := range r.half {
			a, b := 2*i, 2*i+1
			if r.has("neox") {
				a, b = i, i+r.half
			}
			cos, sin := places[0].Values[p*r.half+i], places[1].Values[p*r.half+i]
			x[a], x[b] = x[a]*cos-x[b]*sin, x[a]*sin+x[b]*cos
			scale[a], scale[b] = math.Hypot(scale[a]*cos, scale[b]*sin), math.Hypot(scale[a]*sin, scale[b]*cos)
		}
	}
}

// store returns a cache with new rows where places said.
func (r rotation) store(cache *Array, rows Want, places []*Array) Want {
	out := Want{Values: cache.Values, Scale: make([]float64, len(cache.Values))}
	for t := range r.batch * r.seq {
		sequence := t / max(r.seq, 1)
		if places[3] != nil {
			sequence = int(places[3].Values[sequence])
		}
		for head := range r.kvHeads {
			to := ((sequence*r.kvHeads+head)*r.capacity + int(places[2].Values[t])%r.capacity) * r.dim
			copy(out.Values[to:to+r.dim], rows.Values[(t*r.kvHeads+head)*r.dim:])
			copy(out.Scale[to:to+r.dim], rows.Scale[(t*r.kvHeads+head)*r.dim:])
		}
	}
	return out
}

// ropeKVWriteOp has {batch, seq, heads, kv heads, dim, half, capacity, sequences}. Flags as rotation has them, and "headnorm".
func ropeKVWriteOp() *Op {
	of := func(c Case) rotation {
		return rotation{c.Dims[0], c.Dims[1], c.Dims[2], c.Dims[3], c.Dims[4], c.Dims[5], c.Dims[6], c.Dims[7], c.Flags}
	}
	return &Op{
		Name: "RoPEKVWrite", InOut: 2,
		Cases: each([]tensor.DType{tensor.F32},
			Case{Label: "no_tokens", Dims: []int{1, 0, 2, 1, 8, 4, 5, 1}, Flags: "neox"}, Case{Label: "one", Dims: []int{1, 1, 1, 1, 2, 1, 5, 1}, Flags: "neox-f32"},
			Case{Label: "token", Dims: []int{1, 1, 20, 5, 128, 64, 40, 1}, Flags: "neox-f32"}, Case{Label: "token", Dims: []int{1, 1, 4, 2, 64, 32, 40, 3}, Flags: "interleaved-places"},
			Case{Label: "token", Dims: []int{1, 1, 4, 2, 128, 64, 40, 1}, Flags: "neox-headnorm-bf16cache"}, Case{Label: "token", Dims: []int{1, 1, 4, 2, 64, 32, 40, 1}, Flags: "neox-q8cache"},
			Case{Label: "partial", Dims: []int{1, 3, 2, 2, 64, 16, 40, 1}, Flags: "neox"}, Case{Label: "odd_heads", Dims: []int{1, 2, 3, 1, 50, 25, 40, 1}, Flags: "interleaved"},
			Case{Label: "odd_heads", Dims: []int{1, 2, 3, 1, 48, 24, 40, 1}, Flags: "neox-headnorm"}, Case{Label: "batch", Dims: []int{5, 1, 4, 2, 64, 32, 40, 7}, Flags: "neox-ring-places-f32"},
			Case{Label: "prompt", Dims: []int{2, 37, 6, 3, 64, 32, 256, 2}, Flags: "interleaved-headnorm"},
			Case{Label: "bitnet-2b", Dims: []int{1, 1, 20, 5, 128, 64, 4096, 1}, Flags: "neox-f32", Bench: true, Large: true}),
		Inputs: func(g *Generator, c Case) []*Array {
			r, f := of(c), tensor.F32
			n := r.batch * r.seq
			cos, sin, positions, sequences := r.places(g)
			in := []*Array{g.Cache(r.cacheType(), r.cache()...), g.Cache(r.cacheType(), r.cache()...), g.Normal(f, n, r.heads*r.dim), g.Normal(f, n, r.kvHeads*r.dim),
				g.Normal(f, n, r.kvHeads*r.dim), nil, nil, cos, sin, positions, sequences}
			if r.has("headnorm") {
				in[5], in[6] = g.Normal(f, r.dim), g.Normal(f, r.dim)
			}
			return in
		},
		Outputs: func(c Case) []Spec {
			r := of(c)
			return []Spec{{r.cacheType(), r.cache()}, {r.cacheType(), r.cache()}, {tensor.F32, []int{r.batch, r.seq, r.heads, r.dim}}}
		},
		Run: func(out, in []*tensor.Tensor, c Case) {
			fusedOperations.RoPEKVWrite(out[2], out[0], out[1], in[3], in[2], in[4], fused.Rotation[*tensor.Tensor]{
				QNorm: in[5], KNorm: in[6], Cos: in[7], Sin: in[8], Mode: of(c).mode(), Eps: normEps, Positions: in[9], Sequences: in[10], Ring: of(c).has("ring"),
				Settled: true,
			})
		},
		Reference: func(in []*Array, c Case) []Want {
			r := of(c)
			rows := func(x *Array) Want {
				w := Want{Values: slices.Clone(x.Values), Scale: make([]float64, len(x.Values))}
				for i, v := range x.Values {
					w.Scale[i] = math.Abs(v)
				}
				return w
			}
			q, k := rows(in[2]), rows(in[3])
			r.rotate(q, r.heads, in[5], in[7:])
			r.rotate(k, r.kvHeads, in[6], in[7:])
			return []Want{r.store(in[0], k, in[7:]), r.store(in[1], rows(in[4]), in[7:]), q}
		},
		Tolerance: func(c Case) Tolerance {
			if of(c).cacheType() == tensor.Q8_0 {
				return Tolerance{RMS: 0.012, Why: "0.6 % of rounding normal values to 127ths of the greatest of 32"}
			}
			return Tolerance{Rel: 2*epsilon(of(c).cacheType()) + 1e-5, Abs: 0x1p-24, Why: "two products, a norm's division, and one rounding to the cache's type"}
		},
		Bytes: func(c Case) int64 {
			r := of(c)
			return int64(r.batch*r.seq) * (8*int64(r.heads*r.dim) + 2*(4*int64(r.kvHeads*r.dim)+r.cacheType().Bytes(r.kvHeads*r.dim)))
		},
	}
}
