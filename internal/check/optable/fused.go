package optable

import (
	"math"
	"strconv"
	"strings"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/fused"
	"github.com/vibrant-ml/vibrant/tensor"
)

// fusedOperations are those of package tensor.
var fusedOperations = fused.On[*tensor.Tensor, tensor.AttentionOptions, tensor.Activation, tensor.Written, tensor.Router, tensor.Ternary]()

func fusedOps() []*Op {
	return []*Op{normLinearOp(), normSwiGLUOp(), linearAddOp(), feedForwardOp(), normQKVOp(), ropeKVWriteOp(), attentionLinearAddOp()}
}

// fusedTypes are the types of weights that fused kernels are written for, and one of those that are composed.
var fusedTypes = []tensor.DType{tensor.Q4_K, tensor.Q5_K, tensor.Q6_K, tensor.Q8_0, tensor.Q5_0, tensor.Q4_0, tensor.F16}

const normEps = 1e-6

// batchSizes are the rows of x that fused kernels are measured with: steps of so many sequences, and a prompt.
var batchSizes = []int{2, 8, 16, 32, 64, 512}

// normed returns rms_norm of each row of x, in float64.
func normed(x, weight *Array) []float64 {
	cols := x.Shape[1]
	out := make([]float64, len(x.Values))
	for r := range x.Shape[0] {
		squares := 0.0
		for _, v := range x.Values[r*cols : (r+1)*cols] {
			squares += v * v
		}
		for j, v := range x.Values[r*cols : (r+1)*cols] {
			out[r*cols+j] = v / math.Sqrt(squares/float64(cols)+normEps)
			if weight != nil {
				out[r*cols+j] *= weight.Values[j]
			}
		}
	}
	return out
}

// dot returns the sum of the products of two rows, as long as a is, and that of their squares. Two sums of each run side by side: an
// addition waits for the one before it.
func dot(a, b []float64) (sum, squares float64) {
	var sum1, squares1 float64
	n := len(a)
	b = b[:n]
	for i := 1; i < n; i += 2 {
		p, q := a[i-1]*b[i-1], a[i]*b[i]
		sum, sum1 = sum+p, sum1+q
		squares, squares1 = squares+p*p, squares1+q*q
	}
	if n%2 != 0 {
		p := a[n-1] * b[n-1]
		sum, squares = sum+p, squares+p*p
	}
	return sum + sum1, squares + squares1
}

// dotSizes returns the sum of the products of two rows, as dot does, and that of their sizes.
func dotSizes(a, b []float64) (sum, sizes float64) {
	var sum1, sizes1 float64
	n := len(a)
	b = b[:n]
	for i := 1; i < n; i += 2 {
		p, q := a[i-1]*b[i-1], a[i]*b[i]
		sum, sum1 = sum+p, sum1+q
		sizes, sizes1 = sizes+math.Abs(p), sizes1+math.Abs(q)
	}
	if n%2 != 0 {
		p := a[n-1] * b[n-1]
		sum, sizes = sum+p, sizes+math.Abs(p)
	}
	return sum + sum1, sizes + sizes1
}

// linearOf returns x W^T + bias; its scale is what independent errors of the terms add up to.
func linearOf(x []float64, n int, w, bias *Array) Want {
	rows, cols := w.Shape[0], w.Shape[1]
	out := Want{Values: make([]float64, n*rows), Scale: make([]float64, n*rows)}
	for i := range n {
		for r := range rows {
			sum, squares := dot(x[i*cols:][:cols], w.Values[r*cols:])
			if bias != nil {
				sum += bias.Values[r]
			}
			out.Values[i*rows+r], out.Scale[i*rows+r] = sum, math.Sqrt(squares)
		}
	}
	return out
}

// adaptedFlags are "r8" and the like for an adapter of so many ranks, with a row of codes for each row of x or one for all
// ("shared"), and "some" where not all products are changed.
func adaptedFlags(c Case) (ranks int, shared, some bool) {
	for _, flag := range strings.Split(c.Flags, "-") {
		if n, err := strconv.Atoi(strings.TrimPrefix(flag, "r")); err == nil && flag[0] == 'r' {
			ranks = n
		}
		shared, some = shared || flag == "shared", some || flag == "some"
	}
	return ranks, shared, some
}

// Adapted reports whether adapters change the case's products, for which PTX that the driver compiles has no kernel.
func (c Case) Adapted() bool {
	ranks, _, _ := adaptedFlags(c)
	return ranks > 0
}

// changes returns V and U of weights of these (rows, columns), and then codes for n rows; nothing but nil without ranks. With "some"
// the second weight has none.
func (g *Generator) changes(c Case, n int, shapes ...[2]int) []*Array {
	ranks, shared, some := adaptedFlags(c)
	all := make([]*Array, 2*len(shapes)+1)
	if ranks == 0 {
		return all
	}
	for i, shape := range shapes {
		if !some || i != 1 {
			all[2*i], all[2*i+1] = g.Scaled(0.5, tensor.F16, ranks, shape[1]), g.Scaled(0.25, tensor.F16, shape[0], ranks)
		}
	}
	if shared {
		n = 1
	}
	all[2*len(shapes)] = g.codesOfSome(tensor.F32, n, ranks)
	return all
}

// change adds ((x V^T) * codes) U^T, where there is an adapter.
func (w Want) change(x []float64, v, u, codes *Array) {
	if v == nil {
		return
	}
	ranks, cols, rows := v.Shape[0], v.Shape[1], u.Shape[0]
	transposed := transposed(u.Values, rows, ranks)
	for i := range len(x) / cols {
		values, scales := w.Values[i*rows:][:rows], w.Scale[i*rows:][:rows]
		for r, scale := range scales {
			scales[r] = scale * scale
		}
		for j := range ranks {
			code := codes.Values[i*ranks%len(codes.Values)+j]
			if code == 0 {
				continue
			}
			sum, squares := dot(x[i*cols:][:cols], v.Values[j*cols:])
			sum, squares = sum*code, squares*code*code
			for r, f := range transposed[j*rows:][:rows] {
				values[r] += sum * f
				scales[r] += squares * f * f
			}
		}
		for r, squares := range scales {
			scales[r] = math.Sqrt(squares)
		}
	}
}

func linearTolerance(Case) Tolerance {
	return Tolerance{RMS: 0.005, Why: "activations may be rounded to int8 blocks or 16-bit floats: the contract of vb_linear"}
}

// normLinearOp has {n, cols, rows}.
func normLinearOp() *Op {
	cases := each(fusedTypes,
		Case{Label: "one", Dims: []int{1, 256, 1}}, Case{Label: "decode", Dims: []int{1, 2048, 255}, Flags: "bias"},
		Case{Label: "decode", Dims: []int{1, 768, 127}}, Case{Label: "many_columns", Dims: []int{1, 18944, 33}},
		Case{Label: "few", Dims: []int{3, 512, 33}}, Case{Label: "few", Dims: []int{7, 2048, 80}, Flags: "bias"},
		Case{Label: "step", Dims: []int{9, 768, 80}}, Case{Label: "step", Dims: []int{31, 1024, 48}},
		Case{Label: "prompt", Dims: []int{67, 256, 144}}, Case{Label: "no_rows", Dims: []int{0, 256, 5}})
	cases = append(cases,
		Case{Label: "qwen2.5-3b_vocabulary", Type: tensor.Q6_K, Dims: []int{1, 2048, 151936}, Bench: true, Large: true},
		Case{Label: "qwen2.5-0.5b_vocabulary", Type: tensor.Q8_0, Dims: []int{1, 896, 151936}, Bench: true, Large: true})
	return &Op{
		Name: "NormLinear", Cases: cases, Packs: []int{2},
		Inputs: func(g *Generator, c Case) []*Array {
			n, cols, rows := c.Dims[0], c.Dims[1], c.Dims[2]
			in := []*Array{g.Normal(tensor.F32, n, cols), g.Normal(tensor.F32, cols), g.Weight(c.Type, rows, cols), nil, g.Normal(tensor.F32, n, cols)}
			if c.Flags == "bias" {
				in[3] = g.Normal(tensor.F32, rows)
			}
			return in
		},
		Outputs: func(c Case) []Spec { return []Spec{{tensor.F32, []int{c.Dims[0], c.Dims[2]}}} },
		Run: func(out, in []*tensor.Tensor, _ Case) {
			fusedOperations.NormLinear(out[0], in[0], in[1], normEps, in[2], in[3], in[4])
		},
		Reference: func(in []*Array, c Case) []Want {
			return []Want{linearOf(normed(in[0], in[1]), c.Dims[0], in[2], in[3])}
		},
		Tolerance: linearTolerance,
		Bytes: func(c Case) int64 {
			return c.Type.Bytes(c.Dims[1]*c.Dims[2]) + 4*int64(c.Dims[0]*(c.Dims[1]+c.Dims[2]))
		},
		FLOPs: func(c Case) int64 { return 2 * elements(c) },
	}
}

// swigluOf returns swiglu(h gate^T, h up^T).
func swigluOf(h []float64, n int, gate, up *Array) Want {
	return swigluOfProducts(linearOf(h, n, gate, nil), linearOf(h, n, up, nil))
}

func swigluOfProducts(out, factor Want) Want {
	for i, g := range out.Values { // errors of either factor, times the other
		silu := g / (1 + math.Exp(-g))
		out.Scale[i] = math.Hypot(out.Scale[i]*factor.Values[i], silu*factor.Scale[i])
		out.Values[i] = silu * factor.Values[i]
	}
	return out
}

// normSwiGLUOp has {n, cols, rows}.
func normSwiGLUOp() *Op {
	cases := each(fusedTypes,
		Case{Label: "one", Dims: []int{1, 256, 1}}, Case{Label: "decode", Dims: []int{1, 2048, 255}},
		Case{Label: "decode", Dims: []int{1, 768, 144}}, Case{Label: "few", Dims: []int{3, 512, 33}}, Case{Label: "few", Dims: []int{8, 2048, 127}},
		Case{Label: "step", Dims: []int{9, 768, 80}}, Case{Label: "step", Dims: []int{31, 512, 127}}, Case{Label: "step", Dims: []int{17, 1024, 48}}, Case{Label: "prompt", Dims: []int{67, 256, 144}}, Case{Label: "no_rows", Dims: []int{0, 256, 5}})
	cases = append(cases,
		// More rows than all blocks of a large GPU take at once.
		Case{Label: "rounds", Type: tensor.Q4_K, Dims: []int{1, 512, 2205}}, Case{Label: "rounds", Type: tensor.Q6_K, Dims: []int{1, 768, 4305}},
		Case{Label: "qwen2.5-0.5b", Type: tensor.Q5_0, Dims: []int{1, 896, 4864}, Bench: true, Large: true},
		Case{Label: "qwen2.5-3b", Type: tensor.Q4_K, Dims: []int{1, 2048, 11008}, Bench: true, Large: true},
		Case{Label: "qwen2.5-7b", Type: tensor.Q4_K, Dims: []int{1, 3584, 18944}, Bench: true, Large: true})
	// Up to 64 rows whose products fill no round of 132 blocks: a part of a round, and a round and a part.
	cases = append(cases, Case{Label: "spread", Type: tensor.Q4_K, Dims: []int{40, 2048, 1280}, Wide: true},
		Case{Label: "spread", Type: tensor.Q6_K, Dims: []int{64, 2048, 1312}, Wide: true},
		Case{Label: "spread", Type: tensor.Q4_K, Dims: []int{33, 1024, 10560}, Wide: true})
	for _, n := range batchSizes {
		cases = append(cases, Case{Label: "qwen2.5-3b_batch", Type: tensor.Q4_K, Dims: []int{n, 2048, 11008}, Bench: true, Large: true})
	}
	return &Op{
		Name: "NormSwiGLU", Cases: cases, Packs: []int{2, 3},
		Inputs: func(g *Generator, c Case) []*Array {
			n, cols, rows := c.Dims[0], c.Dims[1], c.Dims[2]
			return []*Array{g.Normal(tensor.F32, n, cols), g.Normal(tensor.F32, cols), g.Weight(c.Type, rows, cols), g.Weight(c.Type, rows, cols),
				g.Normal(tensor.F32, n, cols), g.Normal(tensor.F32, n, rows)}
		},
		Outputs: func(c Case) []Spec { return []Spec{{tensor.F32, []int{c.Dims[0], c.Dims[2]}}} },
		Run: func(out, in []*tensor.Tensor, _ Case) {
			fusedOperations.NormSwiGLU(out[0], in[0], in[1], normEps, in[2], in[3], in[4], in[5])
		},
		Reference: func(in []*Array, c Case) []Want {
			return []Want{swigluOf(normed(in[0], in[1]), c.Dims[0], in[2], in[3])}
		},
		Tolerance: func(Case) Tolerance {
			return Tolerance{RMS: 0.006, Why: "the contract of vb_linear for two factors; silu's slope is at most 1.1"}
		},
		Bytes: func(c Case) int64 {
			return 2*c.Type.Bytes(c.Dims[1]*c.Dims[2]) + 4*int64(c.Dims[0]*(c.Dims[1]+c.Dims[2]))
		},
		FLOPs: func(c Case) int64 { return 4 * elements(c) },
	}
}

// linearAddOp has {n, cols, rows}; in place it adds to its own output.
func linearAddOp() *Op {
	cases := each(fusedTypes,
		Case{Label: "one", Dims: []int{1, 256, 1}}, Case{Label: "decode", Dims: []int{1, 2048, 255}, Flags: "bias"},
		Case{Label: "decode", Dims: []int{1, 11008, 48}}, Case{Label: "few", Dims: []int{3, 512, 33}},
		Case{Label: "few_long", Dims: []int{2, 11008, 48}, Flags: "bias"}, Case{Label: "few_long", Dims: []int{7, 8448, 80}},
		Case{Label: "step", Dims: []int{9, 4352, 48}, Flags: "bias"}, Case{Label: "step", Dims: []int{31, 1024, 48}},
		Case{Label: "step", Dims: []int{19, 4352, 111}, Flags: "bias"},
		Case{Label: "prompt", Dims: []int{67, 256, 144}, Flags: "bias"}, Case{Label: "no_rows", Dims: []int{0, 256, 5}})
	cases = append(cases,
		// More rows than all blocks take at once, the last ones an odd number of tiles.
		Case{Label: "rounds", Type: tensor.Q4_K, Dims: []int{1, 8448, 4225}, Wide: true},
		Case{Label: "rounds", Type: tensor.Q4_K, Dims: []int{3, 8192, 2145}, Wide: true},
		Case{Label: "rounds", Type: tensor.Q4_K, Dims: []int{3, 256, 17249}, Wide: true},
		Case{Label: "few_tiles", Type: tensor.Q8_0, Dims: []int{1, 576, 8453}, Flags: "bias"},
		Case{Label: "qwen2.5-0.5b_down", Type: tensor.Q5_0, Dims: []int{1, 4864, 896}, Bench: true, Large: true},
		Case{Label: "qwen2.5-0.5b_output", Type: tensor.Q5_0, Dims: []int{1, 896, 896}, Bench: true, Large: true},
		Case{Label: "qwen2.5-3b_down", Type: tensor.Q6_K, Dims: []int{1, 11008, 2048}, Bench: true, Large: true},
		Case{Label: "qwen2.5-3b_output", Type: tensor.Q4_K, Dims: []int{1, 2048, 2048}, Bench: true, Large: true},
		Case{Label: "qwen2.5-7b_down", Type: tensor.Q6_K, Dims: []int{1, 18944, 3584}, Bench: true, Large: true})
	for _, n := range batchSizes {
		cases = append(cases,
			Case{Label: "qwen2.5-3b_down_batch", Type: tensor.Q6_K, Dims: []int{n, 11008, 2048}, Bench: true, Large: true},
			Case{Label: "qwen2.5-3b_output_batch", Type: tensor.Q4_K, Dims: []int{n, 2048, 2048}, Bench: true, Large: true})
	}
	return &Op{
		Name: "LinearAdd", Cases: cases, Packs: []int{2}, InPlace: true,
		Inputs: func(g *Generator, c Case) []*Array {
			n, cols, rows := c.Dims[0], c.Dims[1], c.Dims[2]
			in := []*Array{g.Normal(tensor.F32, n, rows), g.Normal(tensor.F32, n, cols), g.Weight(c.Type, rows, cols), nil, g.Normal(tensor.F32, n, rows)}
			if c.Flags == "bias" {
				in[3] = g.Normal(tensor.F32, rows)
			}
			return in
		},
		Outputs: func(c Case) []Spec { return []Spec{{tensor.F32, []int{c.Dims[0], c.Dims[2]}}} },
		Run: func(out, in []*tensor.Tensor, _ Case) {
			fusedOperations.LinearAdd(out[0], in[0], in[1], in[2], in[3], in[4])
		},
		Reference: func(in []*Array, c Case) []Want {
			w := linearOf(in[1].Values, c.Dims[0], in[2], in[3])
			for i, a := range in[0].Values {
				w.Values[i] += a
			}
			return []Want{w}
		},
		Tolerance: linearTolerance,
		Bytes: func(c Case) int64 {
			return c.Type.Bytes(c.Dims[1]*c.Dims[2]) + 4*int64(c.Dims[0]*(c.Dims[1]+2*c.Dims[2]))
		},
		FLOPs: func(c Case) int64 { return 2 * elements(c) },
	}
}

func changeOf(in []*tensor.Tensor) fused.LowRank[*tensor.Tensor] {
	return fused.LowRank[*tensor.Tensor]{V: in[0], U: in[1]}
}

// feedForwardOp has {n, cols, inner}; in place it adds to its own input. Flag "large": some columns are normed to thousands, which
// only every other row has, so that h goes beyond F16 in some rows and not in others. "up_IQ3_S": the type of up. Those of adaptedFlags.
func feedForwardOp() *Op {
	cases := each(fusedTypes,
		Case{Label: "decode", Dims: []int{1, 256, 768}}, Case{Label: "few", Dims: []int{3, 512, 256}}, Case{Label: "step", Dims: []int{17, 256, 512}},
		Case{Label: "step", Dims: []int{32, 512, 768}, Flags: "large"}, Case{Label: "prompt", Dims: []int{67, 256, 256}}, Case{Label: "prompt", Dims: []int{70, 256, 512}, Flags: "large"}, Case{Label: "no_rows", Dims: []int{0, 256, 512}},
		Case{Label: "adapted", Dims: []int{1, 256, 768}, Flags: "r8"}, Case{Label: "adapted", Dims: []int{3, 512, 256}, Flags: "r8-some"},
		Case{Label: "adapted", Dims: []int{7, 256, 512}, Flags: "r8"}, Case{Label: "adapted", Dims: []int{16, 512, 256}, Flags: "r24-some"},
		Case{Label: "adapted", Dims: []int{19, 256, 512}, Flags: "r16"}, Case{Label: "adapted", Dims: []int{67, 256, 512}, Flags: "r8-some"})
	cases = append(cases, Case{Label: "few", Type: tensor.F16, Dims: []int{2, 64, 96}},
		Case{Label: "prompt", Type: tensor.Q4_K, Dims: []int{130, 256, 1280}, Flags: "large"}, Case{Label: "prompt", Type: tensor.Q6_K, Dims: []int{270, 256, 512}, Flags: "large"},
		Case{Label: "adapted", Type: tensor.Q4_K, Dims: []int{1, 2048, 4352}, Flags: "r32"}, Case{Label: "adapted", Type: tensor.Q6_K, Dims: []int{1, 768, 8448}, Flags: "r16-some"},
		// one item a cluster of blocks, of eight ranks
		Case{Label: "adapted", Type: tensor.Q4_K, Dims: []int{1, 256, 11008}, Flags: "r8"},
		Case{Label: "adapted", Type: tensor.Q4_K, Dims: []int{2, 256, 768}, Flags: "r8"}, Case{Label: "adapted", Type: tensor.Q4_K, Dims: []int{2, 1024, 256}, Flags: "r8-some"},
		Case{Label: "adapted", Type: tensor.Q6_K, Dims: []int{2, 768, 8448}, Flags: "r16-some"},
		Case{Label: "adapted", Type: tensor.Q4_K, Dims: []int{130, 256, 1280}, Flags: "large-r24"}, Case{Label: "adapted", Type: tensor.Q6_K, Dims: []int{270, 512, 768}, Flags: "large-r8-shared"},
		Case{Label: "qwen2.5-3b", Type: tensor.Q4_K, Dims: []int{512, 2048, 11008}, Bench: true, Large: true},
		Case{Label: "qwen2.5-3b_adapted", Type: tensor.Q4_K, Dims: []int{512, 2048, 11008}, Flags: "r8-shared", Bench: true, Large: true})
	cases = append(cases, Case{Label: "spread", Type: tensor.Q4_K, Dims: []int{64, 2048, 1280}, Flags: "large", Wide: true},
		Case{Label: "spread", Type: tensor.Q6_K, Dims: []int{35, 2048, 1536}, Wide: true},
		Case{Label: "spread_adapted", Type: tensor.Q4_K, Dims: []int{36, 2048, 1280}, Flags: "r8-some", Wide: true})
	for _, n := range []int{1, 3, 9, 17, 67} {
		wide := []int{n, 1088, 4416}
		if n == 67 { // tiles of many rows are units of their own, however many there are
			wide = []int{n, 576, 1088}
		}
		cases = append(cases, Case{Label: "sixteens", Type: tensor.Q3_K, Dims: []int{n, 512, 256}}, Case{Label: "sixteens", Type: tensor.NVFP4, Dims: []int{n, 512, 256}},
			Case{Label: "part_of_a_tile", Type: tensor.NVFP4, Dims: []int{n, 640, 512}},
			Case{Label: "adapted_part_of_a_tile", Type: tensor.NVFP4, Dims: []int{n, 640, 576}, Flags: "r8"},
			Case{Label: "adapted_part_of_a_tile", Type: tensor.NVFP4, Dims: []int{n, 320, 1088}, Flags: "r16-some"},
			Case{Label: "adapted_part_of_a_tile", Type: tensor.NVFP4, Dims: wide, Flags: "r24-shared"},
			Case{Label: "two_tables", Type: tensor.IQ2_S, Dims: []int{n, 256, 512}, Flags: "up_IQ3_S"})
	}
	return &Op{
		Name: "FeedForward", Cases: cases, Packs: []int{2, 3, 4}, InPlace: true,
		Inputs: func(g *Generator, c Case) []*Array {
			n, cols, inner := c.Dims[0], c.Dims[1], c.Dims[2]
			x, norm := g.Normal(tensor.F32, n, cols), g.Normal(tensor.F32, cols)
			if strings.Contains(c.Flags, "large") {
				for j := range 16 {
					norm.Values[j] *= 4000
					for i := 1; i < n; i += 2 {
						x.Values[i*cols+j] = 0
					}
				}
				x, norm = Floats(x.Values, n, cols), Floats(norm.Values, cols)
			}
			up := c.Type
			if c.Flags == "up_IQ3_S" {
				up = tensor.IQ3_S
			}
			in := []*Array{x, norm, g.Weight(c.Type, inner, cols), g.Weight(up, inner, cols), g.Weight(c.Type, cols, inner),
				g.Normal(tensor.F32, n, cols), g.Normal(tensor.F32, n, inner), g.Normal(tensor.F32, n, inner)}
			return append(in, g.changes(c, n, [2]int{inner, cols}, [2]int{inner, cols}, [2]int{cols, inner})...)
		},
		Outputs: func(c Case) []Spec { return []Spec{{tensor.F32, []int{c.Dims[0], c.Dims[1]}}} },
		Run: func(out, in []*tensor.Tensor, _ Case) {
			fusedOperations.FeedForward(out[0], in[0], fused.FFN[*tensor.Tensor]{Norm: in[1], Gate: in[2], Up: in[3], Down: in[4], Eps: normEps, Normed: in[5], Gated: in[6], Product: in[7],
				GateUpdate: changeOf(in[8:]), UpUpdate: changeOf(in[10:]), DownUpdate: changeOf(in[12:]), Codes: in[14]})
		},
		Reference: func(in []*Array, c Case) []Want {
			x := normed(in[0], in[1])
			gate, up := linearOf(x, c.Dims[0], in[2], nil), linearOf(x, c.Dims[0], in[3], nil)
			gate.change(x, in[8], in[9], in[14])
			up.change(x, in[10], in[11], in[14])
			h := swigluOfProducts(gate, up)
			w, passed := linearOf(h.Values, c.Dims[0], in[4], nil), linearOf(h.Scale, c.Dims[0], in[4], nil) // h's errors, as its own
			w.change(h.Values, in[12], in[13], in[14])
			passed.change(h.Scale, in[12], in[13], in[14])
			for i, x := range in[0].Values {
				w.Values[i] += x
				w.Scale[i] = math.Hypot(w.Scale[i], passed.Scale[i])
			}
			return []Want{w}
		},
		Tolerance: func(Case) Tolerance {
			return Tolerance{RMS: 0.011, Why: "what norm_swiglu may be off by and what linear may, should they add up"}
		},
		Bytes: func(c Case) int64 {
			return 3*c.Type.Bytes(c.Dims[1]*c.Dims[2]) + 8*int64(c.Dims[0]*c.Dims[1])
		},
		FLOPs: func(c Case) int64 { return 6 * elements(c) },
	}
}

// normQKVOp has {batch, seq, cols, heads, kv heads, dim, half, capacity, sequences}. Type is that of wq and wk. Flags: the
// mode of RoPE, "bias", "headnorm", "f32" or "q8cache" for the cache, "places" for sequences in descending order, and the type of wv
// where it is another; those of adaptedFlags.
func normQKVOp() *Op {
	has := func(c Case, flag string) bool { return strings.Contains("-"+c.Flags+"-", "-"+flag+"-") }
	cases := each(fusedTypes,
		Case{Label: "one", Dims: []int{1, 1, 256, 1, 1, 2, 1, 5, 1}, Flags: "neox"},
		Case{Label: "token", Dims: []int{1, 1, 768, 4, 2, 64, 32, 40, 1}, Flags: "neox-bias"},
		Case{Label: "token", Dims: []int{1, 1, 2048, 2, 1, 128, 64, 40, 3}, Flags: "interleaved-places"},
		Case{Label: "token", Dims: []int{1, 1, 256, 3, 1, 64, 32, 5, 1}, Flags: "neox-headnorm-f32"},
		Case{Label: "token", Dims: []int{1, 1, 768, 4, 2, 64, 32, 40, 1}, Flags: "neox-bias-q8cache"},
		Case{Label: "token", Dims: []int{1, 1, 512, 6, 2, 128, 64, 40, 3}, Flags: "neox-q8cache-places"},
		Case{Label: "token", Dims: []int{1, 1, 256, 2, 1, 64, 32, 40, 1}, Flags: "interleaved-q8cache"},
		Case{Label: "token", Dims: []int{1, 1, 512, 4, 2, 128, 64, 40, 1}, Flags: "neox-headnorm"},
		Case{Label: "partial", Dims: []int{1, 1, 512, 2, 2, 64, 16, 40, 1}, Flags: "neox"},
		Case{Label: "odd_heads", Dims: []int{1, 1, 256, 3, 1, 50, 25, 40, 1}, Flags: "interleaved-bias"},
		Case{Label: "batch", Dims: []int{3, 1, 512, 4, 2, 64, 32, 40, 3}, Flags: "neox-bias-places"},
		Case{Label: "few", Dims: []int{6, 1, 768, 4, 2, 64, 32, 40, 7}, Flags: "interleaved-bias-places"},
		Case{Label: "few", Dims: []int{7, 1, 512, 2, 1, 128, 64, 40, 7}, Flags: "neox-q8cache"},
		Case{Label: "step", Dims: []int{9, 1, 768, 4, 2, 64, 32, 40, 9}, Flags: "interleaved-f32"},
		Case{Label: "step", Dims: []int{31, 1, 256, 2, 1, 128, 64, 40, 31}, Flags: "neox-bias-q8cache-places"},
		Case{Label: "prompt", Dims: []int{1, 17, 512, 2, 1, 64, 32, 40, 1}, Flags: "neox-headnorm"},
		Case{Label: "prompt", Dims: []int{2, 35, 256, 3, 1, 64, 32, 256, 2}, Flags: "neox-bias-places"},
		Case{Label: "prompt", Dims: []int{1, 40, 256, 2, 1, 32, 16, 40, 1}, Flags: "interleaved-bias"},
		Case{Label: "prompt", Dims: []int{1, 33, 256, 1, 1, 50, 25, 40, 1}, Flags: "interleaved-f32"},
		Case{Label: "prompt", Dims: []int{1, 67, 256, 2, 1, 64, 20, 67, 1}, Flags: "interleaved-headnorm-q8cache"},
		Case{Label: "token", Dims: []int{1, 1, 512, 4, 2, 64, 32, 40, 1}, Flags: "neox-ring"},
		Case{Label: "token", Dims: []int{1, 1, 256, 2, 1, 64, 32, 40, 1}, Flags: "neox-q8cache-ring"},
		Case{Label: "token", Dims: []int{1, 1, 256, 4, 1, 256, 128, 40, 1}, Flags: "neox-headnorm-bf16cache"},
		Case{Label: "token", Dims: []int{1, 1, 256, 4, 1, 256, 128, 40, 1}, Flags: "neox-headnorm"},
		Case{Label: "token", Dims: []int{1, 1, 512, 4, 2, 128, 64, 40, 3}, Flags: "interleaved-headnorm-bias-places"},
		Case{Label: "few", Dims: []int{3, 1, 512, 4, 2, 64, 32, 40, 3}, Flags: "neox-bias-ring"},
		Case{Label: "step", Dims: []int{9, 1, 256, 2, 1, 128, 64, 40, 9}, Flags: "neox-ring"},
		Case{Label: "prompt", Dims: []int{1, 37, 256, 2, 1, 64, 32, 48, 1}, Flags: "neox-bias-ring"},
		Case{Label: "prompt", Dims: []int{1, 40, 256, 2, 1, 128, 64, 41, 1}, Flags: "neox-headnorm-ring"},
		Case{Label: "prompt", Dims: []int{1, 33, 256, 2, 1, 128, 64, 40, 1}, Flags: "neox-bf16cache"})
	// Products whose columns several blocks share, and which place the heads.
	cases = append(cases, Case{Label: "shared", Type: tensor.Q4_K, Dims: []int{40, 1, 3584, 2, 1, 128, 64, 48, 40}, Flags: "interleaved-bias-places"},
		Case{Label: "shared", Type: tensor.Q6_K, Dims: []int{1, 64, 3584, 2, 1, 128, 64, 130, 1}, Flags: "neox-f32"})
	mixed := func(t tensor.DType, value string, dims ...int) {
		cases = append(cases, Case{Label: "mixed", Type: t, Dims: dims, Flags: "neox-bias-" + value})
	}
	mixed(tensor.Q4_K, "Q6_K", 1, 1, 2048, 2, 1, 128, 64, 40, 1)
	mixed(tensor.Q5_K, "Q6_K", 1, 1, 768, 4, 2, 64, 32, 40, 1)
	mixed(tensor.Q5_0, "Q8_0", 1, 1, 896, 14, 2, 64, 32, 40, 1)
	mixed(tensor.Q4_K, "Q8_0", 1, 1, 512, 4, 2, 64, 32, 40, 1)
	mixed(tensor.Q4_K, "Q6_K-headnorm", 1, 1, 512, 4, 2, 128, 64, 40, 1)
	mixed(tensor.Q4_K, "Q8_0-headnorm-ring", 1, 1, 512, 4, 2, 64, 32, 40, 1)
	mixed(tensor.Q4_K, "F16", 1, 1, 512, 4, 2, 64, 32, 40, 1)
	mixed(tensor.Q4_K, "Q6_K", 9, 1, 2048, 2, 1, 128, 64, 40, 9)
	mixed(tensor.Q5_K, "Q6_K", 2, 1, 768, 4, 2, 64, 32, 40, 2)
	mixed(tensor.Q4_K, "Q6_K", 8, 1, 2048, 4, 2, 128, 64, 40, 9)
	mixed(tensor.Q5_0, "Q8_0", 5, 1, 896, 14, 2, 64, 32, 40, 6)
	mixed(tensor.Q5_0, "Q8_0", 17, 1, 896, 2, 1, 64, 32, 40, 17)
	mixed(tensor.Q4_K, "Q8_0", 4, 1, 512, 4, 2, 64, 32, 40, 4)
	mixed(tensor.Q4_K, "Q6_K", 33, 1, 3584, 4, 1, 64, 32, 40, 33) // both products have shares, at the same time
	mixed(tensor.Q4_K, "Q6_K", 3, 30, 256, 2, 1, 64, 32, 90, 3)
	// More pairs of rows of tiles than a large GPU has multiprocessors.
	mixed(tensor.Q5_0, "Q8_0", 1, 1, 320, 64, 8, 64, 32, 40, 1)
	mixed(tensor.Q8_0, "Q8_0-q8cache", 1, 1, 1152, 64, 8, 64, 32, 40, 1)
	for _, n := range []int{1, 3, 9, 20, 40} { // tiles of 256 columns beside tiles of 128
		mixed(tensor.NVFP4, "Q8_0", n, 1, 576, 4, 2, 64, 32, 40, n)
		mixed(tensor.NVFP4, "Q8_0-r8", n, 1, 576, 4, 2, 64, 32, 40, n)
		mixed(tensor.NVFP4, "r16", n, 1, 320, 4, 2, 64, 32, 40, n)
		mixed(tensor.NVFP4, "r24-some", n, 1, 1088, 4, 2, 64, 32, 40, n)
	}
	bench := func(label string, t tensor.DType, flags string, dims ...int) {
		cases = append(cases, Case{Label: label, Type: t, Dims: dims, Flags: flags, Bench: true, Large: true})
	}
	bench("qwen2.5-0.5b", tensor.Q5_0, "neox-bias-Q8_0", 1, 1, 896, 14, 2, 64, 32, 1024, 1)
	bench("qwen2.5-3b", tensor.Q4_K, "neox-bias-Q6_K", 1, 1, 2048, 16, 2, 128, 64, 1024, 1)
	bench("qwen2.5-3b", tensor.Q4_K, "neox-bias-Q6_K-q8cache", 1, 1, 2048, 16, 2, 128, 64, 1024, 1)
	bench("qwen2.5-7b", tensor.Q4_K, "neox-bias", 1, 1, 3584, 28, 4, 128, 64, 1024, 1)
	bench("qwen3-30b-a3b", tensor.Q4_K, "neox-headnorm-Q6_K", 1, 1, 2048, 32, 4, 128, 64, 1024, 1)
	for _, n := range batchSizes {
		bench("qwen2.5-3b_batch", tensor.Q4_K, "neox-bias-Q6_K", n, 1, 2048, 16, 2, 128, 64, 1024, n)
	}
	mixed(tensor.Q5_K, "Q6_K", 1, 150, 256, 10, 2, 64, 32, 150, 1)
	mixed(tensor.Q5_0, "Q8_0", 1, 70, 896, 7, 1, 64, 32, 71, 1)
	cases = append(cases, each(fusedTypes,
		Case{Label: "prompt", Dims: []int{1, 129, 512, 2, 1, 128, 64, 160, 1}, Flags: "neox-bias"},
		Case{Label: "prompt", Dims: []int{3, 22, 512, 2, 1, 128, 64, 160, 4}, Flags: "interleaved-bias-f32-places"},
		Case{Label: "adapted", Dims: []int{1, 1, 768, 4, 2, 64, 32, 40, 1}, Flags: "neox-bias-r8"}, Case{Label: "adapted", Dims: []int{1, 1, 768, 4, 2, 64, 32, 40, 1}, Flags: "neox-q8cache-r8"},
		Case{Label: "adapted", Dims: []int{3, 1, 512, 4, 2, 64, 32, 40, 3}, Flags: "neox-bias-places-r8-some"},
		Case{Label: "adapted", Type: tensor.Q4_K, Dims: []int{2, 1, 512, 4, 2, 64, 32, 40, 2}, Flags: "neox-bias-places-r8-some"},
		Case{Label: "adapted", Dims: []int{6, 1, 512, 4, 2, 64, 32, 40, 6}, Flags: "neox-bias-places-r8-some"},
		Case{Label: "adapted", Dims: []int{16, 1, 256, 4, 2, 64, 32, 40, 16}, Flags: "interleaved-bias-r24"},
		Case{Label: "adapted", Dims: []int{19, 1, 512, 4, 2, 64, 32, 40, 19}, Flags: "neox-bias-r16"},
		Case{Label: "adapted", Dims: []int{1, 70, 512, 4, 2, 64, 32, 80, 1}, Flags: "interleaved-bias-r8"})...)
	mixed(tensor.Q4_K, "Q6_K-r16-some", 1, 1, 2048, 16, 2, 128, 64, 40, 1)
	mixed(tensor.Q4_K, "F16-r8", 1, 1, 512, 4, 2, 64, 32, 40, 1)
	mixed(tensor.Q4_K, "Q6_K-r32", 1, 1, 2048, 32, 32, 64, 32, 40, 1)
	mixed(tensor.Q4_K, "Q6_K-r8", 12, 1, 512, 4, 2, 128, 64, 40, 12)
	mixed(tensor.Q4_K, "Q6_K-headnorm-r8", 1, 1, 512, 4, 2, 128, 64, 40, 1)
	mixed(tensor.Q4_K, "Q6_K-r8", 3, 30, 256, 2, 1, 64, 32, 90, 3)
	mixed(tensor.Q4_K, "Q6_K-r32-shared", 1, 200, 512, 4, 2, 64, 32, 256, 1)
	valueType := func(c Case) tensor.DType {
		for _, t := range fusedTypes {
			if has(c, t.String()) {
				return t
			}
		}
		return c.Type
	}
	cacheType := func(c Case) tensor.DType { return rotationOf(c).cacheType() }
	cache := func(c Case) []int { return rotationOf(c).cache() }
	queries := func(c Case) []int { return []int{c.Dims[0], c.Dims[1], c.Dims[3], c.Dims[5]} }
	return &Op{
		Name: "NormQKV", Cases: cases, Packs: []int{4, 5, 6}, InOut: 2,
		Inputs: func(g *Generator, c Case) []*Array {
			cols, heads, kvHeads, dim := c.Dims[2], c.Dims[3], c.Dims[4], c.Dims[5]
			n, f := c.Dims[0]*c.Dims[1], tensor.F32
			cos, sin, positions, places := rotationOf(c).places(g)
			in := []*Array{
				g.Cache(cacheType(c), cache(c)...), g.Cache(cacheType(c), cache(c)...), g.Normal(f, n, cols), g.Normal(f, cols),
				g.Weight(c.Type, heads*dim, cols), g.Weight(c.Type, kvHeads*dim, cols), g.Weight(valueType(c), kvHeads*dim, cols),
				nil, nil, nil, nil, nil, cos, sin, positions, places,
				g.Normal(f, n, cols), g.Normal(f, n, kvHeads*dim), g.Normal(f, n, kvHeads*dim),
			}
			if has(c, "bias") {
				in[7], in[8], in[9] = g.Normal(f, heads*dim), g.Normal(f, kvHeads*dim), g.Normal(f, kvHeads*dim)
			}
			if has(c, "headnorm") {
				in[10], in[11] = g.Normal(f, dim), g.Normal(f, dim)
			}
			return append(in, g.changes(c, n, [2]int{heads * dim, cols}, [2]int{kvHeads * dim, cols}, [2]int{kvHeads * dim, cols})...)
		},
		Outputs: func(c Case) []Spec {
			return []Spec{{cacheType(c), cache(c)}, {cacheType(c), cache(c)}, {tensor.F32, queries(c)}}
		},
		Run: func(out, in []*tensor.Tensor, c Case) {
			mode := tensor.RoPEInterleaved
			if has(c, "neox") {
				mode = tensor.RoPENeoX
			}
			fusedOperations.NormQKV(out[2], out[0], out[1], in[2], fused.QKV[*tensor.Tensor]{
				Norm: in[3], Q: in[4], K: in[5], V: in[6], QBias: in[7], KBias: in[8], VBias: in[9], QNorm: in[10], KNorm: in[11],
				Cos: in[12], Sin: in[13], Mode: kernel.RoPEMode(mode), Eps: normEps, Positions: in[14], Sequences: in[15],
				Normed: in[16], KNew: in[17], VNew: in[18], Ring: has(c, "ring"),
				QUpdate: changeOf(in[19:]), KUpdate: changeOf(in[21:]), VUpdate: changeOf(in[23:]), Codes: in[25],
			})
		},
		Reference: func(in []*Array, c Case) []Want {
			n, r := c.Dims[0]*c.Dims[1], rotationOf(c)
			h := normed(in[2], in[3])
			q, k, v := linearOf(h, n, in[4], in[7]), linearOf(h, n, in[5], in[8]), linearOf(h, n, in[6], in[9])
			q.change(h, in[19], in[20], in[25])
			k.change(h, in[21], in[22], in[25])
			v.change(h, in[23], in[24], in[25])
			r.rotate(q, r.heads, in[10], in[12:])
			r.rotate(k, r.kvHeads, in[11], in[12:])
			return []Want{r.store(in[0], k, in[12:]), r.store(in[1], v, in[12:]), q}
		},
		Tolerance: func(c Case) Tolerance {
			if cacheType(c) == tensor.Q8_0 {
				return Tolerance{RMS: 0.012, Why: "the contract of vb_linear, and 0.6 % of rounding normal values to 127ths of the greatest of 32"}
			}
			return Tolerance{RMS: 0.008, Why: "the contract of vb_linear, for few rows, which share the error of one rounded x"}
		},
		Bytes: func(c Case) int64 {
			qk, v := c.Dims[2]*(c.Dims[3]+c.Dims[4])*c.Dims[5], c.Dims[2]*c.Dims[4]*c.Dims[5]
			return c.Type.Bytes(qk) + valueType(c).Bytes(v) + 4*int64(c.Dims[2]+(c.Dims[3]+c.Dims[4])*c.Dims[5])
		},
	}
}
