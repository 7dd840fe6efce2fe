package optable

import (
	"math"
	"strconv"
	"strings"

	"github.com/vibrant-ml/vibrant/internal/fused"
	"github.com/vibrant-ml/vibrant/tensor"
)

func ternaryOps() []*Op {
	return []*Op{normQuantizeOp(), dequantizeRowsOp(), w2a8Op(), bitLinearOp(), tmacLUTOp(), tmacOp()}
}

// Bytes makes I8 values in [-limit, limit].
func (g *Generator) Bytes(limit int, shape ...int) *Array {
	return g.build(tensor.I8, shape, func(n int) []byte {
		raw := make([]byte, n)
		for i := range raw {
			raw[i] = byte(g.rng.IntN(2*limit+1) - limit)
		}
		return raw
	})
}

// codes makes bytes of two-bit codes, of which Values are nothing: 3, too, which kernels compute as 2.
func (g *Generator) codes(rows, rowBytes int) *Array {
	return g.build(tensor.I8, []int{rows, rowBytes}, func(n int) []byte {
		raw := make([]byte, n)
		for i := range raw {
			raw[i] = byte(g.rng.Uint32())
		}
		return raw
	})
}

// normQuantizeOp has {rows, cols}. Flags: "norm", "weight" (of the norm), "relu2", "silu" (of a gated unit).
func normQuantizeOp() *Op {
	return &Op{
		Name: "NormQuantize", NoPTX: true,
		Cases: each([]tensor.DType{tensor.F32},
			Case{Label: "no_rows", Dims: []int{0, 4}}, Case{Label: "one", Dims: []int{1, 1}}, Case{Label: "odd", Dims: []int{3, 255}},
			Case{Label: "norm", Dims: []int{2, 127}, Flags: "norm"}, Case{Label: "norm", Dims: []int{5, 2560}, Flags: "norm_weight"},
			Case{Label: "gated", Dims: []int{3, 129}, Flags: "relu2"}, Case{Label: "gated", Dims: []int{2, 6912}, Flags: "relu2_norm_weight"},
			Case{Label: "gated", Dims: []int{4, 512}, Flags: "silu"}, Case{Label: "wide", Dims: []int{2, 20481}},
			Case{Label: "wide", Dims: []int{1, 20481}, Flags: "silu_norm_weight"},
			Case{Label: "bitnet-2b_hidden", Dims: []int{1, 2560}, Flags: "norm_weight", Bench: true},
			Case{Label: "bitnet-2b_gated", Dims: []int{1, 6912}, Flags: "relu2_norm_weight", Bench: true},
			Case{Label: "bitnet-2b_prompt", Dims: []int{512, 6912}, Flags: "relu2_norm_weight", Bench: true, Large: true}),
		Inputs: func(g *Generator, c Case) []*Array {
			in := []*Array{g.Normal(tensor.F32, c.Dims...), nil, nil}
			if hasFlag(c, "relu2") || hasFlag(c, "silu") {
				in[1] = g.Normal(tensor.F32, c.Dims...)
			}
			if hasFlag(c, "weight") {
				in[2] = g.Normal(tensor.F32, c.Dims[1])
			}
			return in
		},
		Outputs: func(c Case) []Spec { return []Spec{{tensor.I8, c.Dims}, {tensor.F32, c.Dims[:1]}} },
		Run: func(out, in []*tensor.Tensor, c Case) {
			o := tensor.Rounding{Up: in[1], Norm: in[2], RMSNorm: hasFlag(c, "norm"), Eps: 1e-5, Activation: tensor.ActivationReLUSquared}
			if hasFlag(c, "silu") {
				o.Activation = tensor.ActivationSiLU
			}
			tensor.NormQuantizeInto(out[0], out[1], in[0], o)
		},
		Reference: func(in []*Array, c Case) []Want {
			rows, cols := c.Dims[0], c.Dims[1]
			codes := Want{Values: make([]float64, rows*cols), Scale: make([]float64, rows*cols)}
			scales := Want{Values: make([]float64, rows), Scale: make([]float64, rows)}
			for r := range rows {
				h, squares, most := in[0].Values[r*cols:(r+1)*cols], 0.0, 1e-5
				for i, x := range h {
					if in[1] != nil {
						up := in[1].Values[r*cols+i]
						if h[i] = silu(x) * up; hasFlag(c, "relu2") {
							h[i] = math.Pow(math.Max(x, 0), 2) * up
						}
					}
					squares += h[i] * h[i]
				}
				for i := range h {
					if hasFlag(c, "norm") {
						h[i] /= math.Sqrt(squares/float64(cols) + float64(float32(1e-5)))
					}
					if in[2] != nil {
						h[i] *= in[2].Values[i]
					}
					most = math.Max(most, math.Abs(h[i]))
				}
				scales.Values[r], scales.Scale[r] = 127/most, 127/most*1e-5 // float32 sums of squares and exponentials
				for i, x := range h {
					// The distance from the exact product to the nearest integer is at most a half: what is rounded the other way is close to it.
					exact := x * 127 / most
					codes.Values[r*cols+i] = math.RoundToEven(exact)
					if math.Abs(math.Abs(exact-math.Trunc(exact))-0.5) < 1e-3 {
						codes.Scale[r*cols+i] = 1
					}
				}
			}
			return []Want{codes, scales}
		},
		Tolerance: func(Case) Tolerance {
			return Tolerance{Rel: 1, Abs: 1e-4, Why: "a product within 1e-3 of a half may round either way, a scale is off by 1e-5 of its size; Abs is below a code"}
		},
	}
}

func dequantizeRowsOp() *Op {
	return &Op{
		Name: "DequantizeRows", NoPTX: true,
		Cases: each([]tensor.DType{tensor.F32}, Case{Label: "no_columns", Dims: []int{3, 0}}, Case{Label: "one", Dims: []int{1, 1}},
			Case{Label: "odd", Dims: []int{5, 127}}, Case{Label: "wide", Dims: []int{3, 20481}}),
		Inputs: func(g *Generator, c Case) []*Array {
			return []*Array{g.Bytes(127, c.Dims...), g.Offset(40, tensor.F32, c.Dims[0])}
		},
		Outputs: sameShape,
		Run:     func(out, in []*tensor.Tensor, _ Case) { tensor.DequantizeRowsInto(out[0], in[0], in[1]) },
		Reference: func(in []*Array, c Case) []Want {
			out := make([]float64, len(in[0].Values))
			for i, v := range in[0].Values {
				out[i] = v / in[1].Values[i/c.Dims[1]]
			}
			return []Want{{Values: out}}
		},
		Tolerance: func(Case) Tolerance { return Tolerance{Rel: 0x1p-23, Why: "one division, to 1 ulp"} },
	}
}

// weightsOf returns the weights of row r of codes as they lie in memory, by the definition in vibrant.h.
func weightsOf(c Case, raw []byte, r, cols int) []float64 {
	weights, interleaved := make([]float64, cols), hasFlag(c, "interleaved")
	for k := range weights {
		if !interleaved {
			weights[k] = float64(raw[r*((cols+3)/4)+k/4]>>(k%4*2)&3) - 1
			continue
		}
		pieces := (cols + 63) / 64
		n := min(8, pieces-k/512*8) // pieces of this run
		word, e := k%512/16, k%16
		piece, w := word%n, word/n
		bits := uint32(0)
		for b := range 4 {
			bits |= uint32(raw[(r*pieces+k/512*8+piece)*16+w*4+b]) << (8 * b)
		}
		weights[k] = float64(bits>>(8*(e%4)+2*(e/4))&3) - 1
	}
	return weights
}

// w2a8Op has {m, n, k}; the type is that of the result. Flags: "rows" or "interleaved"; "scaled" (activations, and one scale of the
// weights), "segments" (three of different sizes), "equal" (five equal segments, as in Microsoft's kernel), "bias", "add"; "t64" .. "t512", "l4"
// .. "l32", "r1", "r2", "persistent", "plain", "narrow" of the ways on CUDA.
func w2a8Op() *Op {
	ints := []tensor.DType{tensor.I32}
	var cases []Case
	for _, layout := range []string{"rows", "interleaved"} {
		cases = append(cases, each(ints,
			Case{Label: "no_rows", Dims: []int{0, 3, 4}, Flags: layout}, Case{Label: "no_terms", Dims: []int{2, 3, 0}, Flags: layout},
			Case{Label: "one", Dims: []int{1, 1, 4}, Flags: layout}, Case{Label: "odd", Dims: []int{1, 127, 68}, Flags: layout},
			Case{Label: "part_of_a_run", Dims: []int{1, 33, 516}, Flags: layout}, Case{Label: "deep", Dims: []int{1, 3, 20480}, Flags: layout},
			Case{Label: "bitnet_tail", Dims: []int{1, 40, 6912}, Flags: layout},
			Case{Label: "two", Dims: []int{2, 65, 260}, Flags: layout}, Case{Label: "three", Dims: []int{3, 31, 1028}, Flags: layout},
			Case{Label: "few", Dims: []int{4, 129, 640}, Flags: layout}, Case{Label: "five", Dims: []int{5, 17, 128}, Flags: layout},
			Case{Label: "sixteen", Dims: []int{16, 127, 1280}, Flags: layout}, Case{Label: "sixteen_odd", Dims: []int{15, 9, 2564}, Flags: layout},
			Case{Label: "thirty_two", Dims: []int{17, 70, 320}, Flags: layout}, Case{Label: "thirty_two", Dims: []int{32, 257, 1040}, Flags: layout},
			Case{Label: "many", Dims: []int{33, 70, 320}, Flags: layout}, Case{Label: "many", Dims: []int{131, 257, 580}, Flags: layout})...)
		cases = append(cases, each([]tensor.DType{tensor.F32, tensor.F16, tensor.BF16},
			Case{Label: "scaled", Dims: []int{1, 130, 256}, Flags: layout + "_scaled_segments_bias"}, Case{Label: "scaled", Dims: []int{3, 25, 68}, Flags: layout + "_scaled_equal_add"},
			Case{Label: "scaled", Dims: []int{9, 48, 512}, Flags: layout + "_scaled"}, Case{Label: "scaled", Dims: []int{40, 129, 192}, Flags: layout + "_scaled_segments_bias_add"})...)
	}
	for _, way := range []string{"t64", "t256", "l8", "l16", "l32", "l8_r2", "l16_r2", "l32_r2", "persistent", "persistent_r2", "plain", "narrow",
		"l4_t64", "l4_t128_r2", "l4_t256", "l4_t512"} {
		for _, m := range []int{1, 2, 4} {
			cases = append(cases, Case{Label: "way", Type: tensor.I32, Dims: []int{m, 70, 1616}, Flags: "interleaved_" + way})
		}
	}
	// Pieces and units of a row that are whole and not, on tensor cores.
	for i, k := range []int{16, 64, 240, 256, 512, 1040, 2560, 3200, 10240, 16384, 33024} {
		cases = append(cases, Case{Label: "tiles", Type: tensor.I32, Dims: []int{i%8 + 1, 35, k}, Flags: "interleaved"},
			Case{Label: "tiles", Type: tensor.BF16, Dims: []int{1, 47, k}, Flags: "interleaved_scaled_segments_bias"},
			Case{Label: "ring", Type: tensor.I32, Dims: []int{1, 33, k}, Flags: "interleaved_l4_persistent"})
	}
	// Several tiles a block of a large GPU, more than its ring has stages, blocks of few tiles in pairs, and blocks beside the next kernel's.
	for _, shape := range [][2]int{{5003, 64}, {4097, 3200}, {40000, 256}, {16919, 3200}, {9450, 2880}, {17533, 3840}, {2120, 8512}} {
		cases = append(cases, Case{Label: "ring", Type: tensor.I32, Dims: []int{1, shape[0], shape[1]}, Flags: "interleaved_l4_persistent", Wide: true})
	}
	for _, shape := range [][2]int{{2560, 2560}, {3840, 2560}, {13824, 2560}, {2560, 6912}, {3200, 3200}, {4800, 3200}, {3200, 10240}, {20480, 3200}} {
		cases = append(cases, Case{Label: "bitnet", Type: tensor.BF16, Dims: []int{1, shape[0], shape[1]}, Flags: "interleaved_scaled", Bench: true, Large: true})
	}
	// Tiles of 64 and 128 rows that are whole and not, and parts of k that are shared: more than 16 rows on Hopper.
	for _, dims := range [][]int{{33, 65, 16}, {64, 128, 512}, {65, 257, 1040}, {129, 385, 2576}, {40, 4300, 656}} {
		cases = append(cases, Case{Label: "many", Type: tensor.I32, Dims: dims, Flags: "interleaved"})
	}
	cases = append(cases, Case{Label: "many", Type: tensor.BF16, Dims: []int{33, 300, 848}, Flags: "interleaved_scaled_segments_bias_add"})
	for _, m := range []int{4, 16, 64, 512} {
		cases = append(cases, Case{Label: "bitnet-2b_ffn_up", Type: tensor.F32, Dims: []int{m, 6912, 2560}, Flags: "interleaved_scaled", Bench: true, Large: true})
	}
	ternary := func(in []*tensor.Tensor, c Case) *tensor.Ternary {
		w := &tensor.Ternary{Rows: c.Dims[1], Cols: c.Dims[2], Layout: tensor.Int2Rows, Codes: in[1], Scales: in[3], Ends: in[4]}
		if hasFlag(c, "interleaved") {
			w.Layout = tensor.Int2Interleaved
		}
		return w
	}
	return &Op{
		Name: "W2A8GEMV", NoPTX: true, Cases: cases,
		Inputs: func(g *Generator, c Case) []*Array {
			m, n, k := c.Dims[0], c.Dims[1], c.Dims[2]
			layout := tensor.Int2Rows
			if hasFlag(c, "interleaved") {
				layout = tensor.Int2Interleaved
			}
			in := []*Array{g.Bytes(127, m, k), g.codes(n, tensor.Int2RowBytes(layout, k)), nil, nil, nil, nil, nil}
			if hasFlag(c, "scaled") {
				in[2], in[3] = g.Offset(40, tensor.F32, m), g.Normal(tensor.F32, 1)
			}
			if hasFlag(c, "segments") {
				in[3], in[4] = g.Normal(tensor.F32, 3), List(n/2, n/2+n/8, n)
			}
			if hasFlag(c, "equal") {
				in[3] = g.Normal(tensor.F32, 5)
			}
			if hasFlag(c, "bias") {
				in[5] = g.Normal(tensor.F32, n)
			}
			if hasFlag(c, "add") {
				in[6] = g.Normal(tensor.F32, m, n)
			}
			return in
		},
		Outputs: func(c Case) []Spec { return []Spec{{c.Type, c.Dims[:2]}} },
		Run: func(out, in []*tensor.Tensor, c Case) {
			o := tensor.W2A8Options{Bias: in[5], Add: in[6]}
			for _, flag := range strings.Split(c.Flags, "_") {
				if flag == "" {
					continue
				}
				number, _ := strconv.Atoi(flag[1:])
				switch {
				case number > 0 && flag[0] == 't':
					o.Threads = number
				case number > 0 && flag[0] == 'l':
					o.Lanes = number
				case number > 0 && flag[0] == 'r':
					o.Tile = number
				}
			}
			o.Persistent, o.WithoutDP4A, o.Narrow = hasFlag(c, "persistent"), hasFlag(c, "plain"), hasFlag(c, "narrow")
			tensor.W2A8Into(out[0], in[0], in[2], ternary(in, c), o)
		},
		Reference: func(in []*Array, c Case) []Want {
			m, n, k := c.Dims[0], c.Dims[1], c.Dims[2]
			w := Want{Values: make([]float64, m*n), Scale: make([]float64, m*n)}
			for r := range n {
				segment := 0
				if hasFlag(c, "equal") {
					segment = r * 5 / n
				}
				for in[4] != nil && r >= int(in[4].Values[segment]) {
					segment++
				}
				weights := weightsOf(c, in[1].Raw, r, k)
				for i := range m {
					sum := 0.0
					for j, x := range in[0].Values[i*k:][:k] {
						sum += weights[j] * x
					}
					size := math.Abs(sum)
					if in[2] != nil {
						sum /= in[2].Values[i]
						sum *= in[3].Values[segment]
						size = math.Abs(sum)
					}
					for j, at := range []int{5: r, 6: i*n + r} {
						if j >= 5 && in[j] != nil {
							sum += in[j].Values[at]
							size += math.Abs(in[j].Values[at])
						}
					}
					w.Values[i*n+r], w.Scale[i*n+r] = sum, size
				}
			}
			return []Want{w}
		},
		Tolerance: func(c Case) Tolerance {
			if c.Type == tensor.I32 {
				return Tolerance{Why: "sums of integers are exact"}
			}
			return Tolerance{Rel: 4*0x1p-24 + epsilon(c.Type), Abs: 0x1p-25, Why: "a product, a division and two additions in float32, and one rounding"}
		},
		FLOPs: func(c Case) int64 { return 2 * int64(product(c.Dims)) },
	}
}

// bitLinearOp has {m, k, n, n2, n3}. Flags: "rows" or "interleaved"; "norm", "weight" (of the norm), "relu2", "silu" (of a gated
// unit), "add".
func bitLinearOp() *Op {
	cases := each([]tensor.DType{tensor.F32},
		Case{Label: "no_rows", Dims: []int{0, 64, 3, 0, 0}, Flags: "interleaved_norm"}, Case{Label: "one", Dims: []int{1, 16, 1, 0, 0}, Flags: "interleaved"},
		Case{Label: "one", Dims: []int{1, 512, 33, 17, 1}, Flags: "interleaved_norm"}, Case{Label: "rows", Dims: []int{1, 132, 33, 17, 0}, Flags: "rows_norm_weight"},
		Case{Label: "tail", Dims: []int{1, 1040, 47, 15, 80}, Flags: "interleaved_norm_weight_add"}, Case{Label: "words", Dims: []int{1, 516, 20, 5, 0}, Flags: "interleaved_norm_weight"},
		Case{Label: "gated", Dims: []int{1, 6912, 70, 0, 0}, Flags: "interleaved_relu2_norm_weight_add"}, Case{Label: "gated", Dims: []int{1, 4352, 40, 3, 0}, Flags: "interleaved_silu_norm"},
		Case{Label: "gated", Dims: []int{1, 256, 40, 0, 0}, Flags: "interleaved_silu"}, Case{Label: "deep", Dims: []int{1, 12544, 40, 16, 16}, Flags: "interleaved_norm_weight"},
		// Several tiles a block of a large GPU, and more than its ring has stages.
		Case{Label: "ring", Dims: []int{1, 64, 5003, 1200, 700}, Flags: "interleaved_norm"}, Case{Label: "ring", Dims: []int{1, 3200, 4097, 300, 1}, Flags: "interleaved_norm_add"},
		Case{Label: "few", Dims: []int{3, 640, 65, 33, 17}, Flags: "interleaved_norm_weight_add"}, Case{Label: "many", Dims: []int{33, 256, 70, 16, 0}, Flags: "interleaved_relu2_norm_weight_add"})
	for _, c := range []Case{
		{Label: "bitnet-2b_qkv", Dims: []int{1, 2560, 2560, 640, 640}, Flags: "interleaved_norm_weight"},
		{Label: "bitnet-2b_output", Dims: []int{1, 2560, 2560, 0, 0}, Flags: "interleaved_norm_weight_add"},
		{Label: "bitnet-2b_gate_up", Dims: []int{1, 2560, 6912, 6912, 0}, Flags: "interleaved_norm_weight"},
		{Label: "bitnet-2b_down", Dims: []int{1, 6912, 2560, 0, 0}, Flags: "interleaved_relu2_norm_weight_add"},
	} {
		c.Type, c.Bench, c.Large = tensor.F32, true, true
		cases = append(cases, c)
	}
	layoutOf := func(c Case) tensor.Int2Layout {
		if hasFlag(c, "interleaved") {
			return tensor.Int2Interleaved
		}
		return tensor.Int2Rows
	}
	return &Op{
		Name: "BitLinear", NoPTX: true, Cases: cases,
		Inputs: func(g *Generator, c Case) []*Array {
			m, k := c.Dims[0], c.Dims[1]
			in := []*Array{g.Normal(tensor.F32, m, k), nil, nil, nil, g.Bytes(1, m, k), g.Normal(tensor.F32, m)}
			if hasFlag(c, "relu2") || hasFlag(c, "silu") {
				in[1] = g.Normal(tensor.F32, m, k)
			}
			if hasFlag(c, "weight") {
				in[2] = g.Normal(tensor.F32, k)
			}
			if hasFlag(c, "add") {
				in[3] = g.Normal(tensor.F32, m, c.Dims[2])
			}
			for i, n := range c.Dims[2:] {
				if n == 0 {
					break
				}
				scales := n // a scale a row, or one for all
				if i == 1 {
					scales = 1
				}
				in = append(in, g.codes(n, tensor.Int2RowBytes(layoutOf(c), k)), g.Normal(tensor.F32, scales))
			}
			return in
		},
		Outputs: func(c Case) []Spec {
			var outs []Spec
			for _, n := range c.Dims[2:] {
				if n == 0 {
					break
				}
				outs = append(outs, Spec{tensor.F32, []int{c.Dims[0], n}})
			}
			return outs
		},
		Run: func(out, in []*tensor.Tensor, c Case) {
			r := fused.Rounding[*tensor.Tensor, tensor.Activation]{Up: in[1], Norm: in[2], RMSNorm: hasFlag(c, "norm"), Eps: 1e-5,
				Activation: tensor.ActivationReLUSquared, Codes: in[4], Scales: in[5]}
			if hasFlag(c, "silu") {
				r.Activation = tensor.ActivationSiLU
			}
			var matrices []*tensor.Ternary
			for i := range out {
				matrices = append(matrices, &tensor.Ternary{Rows: c.Dims[2+i], Cols: c.Dims[1], Layout: layoutOf(c), Codes: in[6+2*i], Scales: in[7+2*i]})
			}
			fusedOperations.BitLinear(out, in[3], in[0], matrices, r)
		},
		Reference: func(in []*Array, c Case) []Want {
			m, k := c.Dims[0], c.Dims[1]
			rounding := Case{Dims: []int{m, k}, Flags: c.Flags}
			rounded := normQuantizeOp().Reference(in[:3], rounding)
			var wants []Want
			for j, n := range c.Dims[2:] {
				if n == 0 {
					break
				}
				w := Want{Values: make([]float64, m*n), Scale: make([]float64, m*n)}
				for r := range n {
					scale := in[7+2*j].Values[min(r, len(in[7+2*j].Values)-1)]
					weights := weightsOf(c, in[6+2*j].Raw, r, k)
					for i := range m {
						sum, doubtful := 0.0, 0.0
						for c2, weight := range weights {
							sum += weight * rounded[0].Values[i*k+c2]
							doubtful += math.Abs(weight) * rounded[0].Scale[i*k+c2]
						}
						value := sum / rounded[1].Values[i] * scale
						// A code that may round either way moves the sum by its weight.
						size := math.Abs(value)*1e-5 + doubtful/rounded[1].Values[i]*math.Abs(scale)
						if j == 0 && in[3] != nil {
							value += in[3].Values[i*n+r]
							size += math.Abs(in[3].Values[i*n+r]) * 1e-6
						}
						w.Values[i*n+r], w.Scale[i*n+r] = value, size+math.Abs(value)*1e-5
					}
				}
				wants = append(wants, w)
			}
			return wants
		},
		Tolerance: func(Case) Tolerance {
			return Tolerance{Rel: 2, Abs: 1e-6, Why: "a code within 1e-3 of a half may round either way; the scale is off by 1e-5 of its size"}
		},
		FLOPs: func(c Case) int64 { return 2 * int64(c.Dims[0]*c.Dims[1]*(c.Dims[2]+c.Dims[3]+c.Dims[4])) },
	}
}

// tmacLUTOp has {k, n}.
func tmacLUTOp() *Op {
	return &Op{
		Name: "TMACLUT", NoPTX: true,
		Cases: each([]tensor.DType{tensor.F32}, Case{Label: "no_columns", Dims: []int{8, 0}}, Case{Label: "one", Dims: []int{1, 1}},
			Case{Label: "odd", Dims: []int{127, 3}}, Case{Label: "wide", Dims: []int{2560, 1}, Bench: true}),
		Inputs:  func(g *Generator, c Case) []*Array { return []*Array{g.Normal(tensor.F32, c.Dims...)} },
		Outputs: func(c Case) []Spec { return []Spec{{tensor.F32, []int{c.Dims[1], (c.Dims[0] + 3) / 4, 256}}} },
		Run:     func(out, in []*tensor.Tensor, _ Case) { tensor.TMACLUTInto(out[0], in[0]) },
		Reference: func(in []*Array, c Case) []Want {
			k, n := c.Dims[0], c.Dims[1]
			var w Want
			for j := range n {
				for g := range (k + 3) / 4 {
					for b := range 256 {
						sum, size := 0.0, 0.0
						for i := range min(4, k-4*g) {
							p := in[0].Values[(4*g+i)*n+j] * float64(b>>(2*i)&3-1)
							sum, size = sum+p, size+2*math.Abs(in[0].Values[(4*g+i)*n+j])
						}
						w.Values, w.Scale = append(w.Values, sum), append(w.Scale, size)
					}
				}
			}
			return []Want{w}
		},
		Tolerance: func(Case) Tolerance {
			return Tolerance{Rel: 8 * 0x1p-24, Why: "eight sums in float32 of terms up to twice an element, which are the scale"}
		},
	}
}

// tmacOp has {m, n, k, groups}; 0 groups are no scales. Flags: "table" (given), "norm", "weight" (of the norm), "settled",
// "ternary" (no code of 3).
func tmacOp() *Op {
	return &Op{
		Name: "TMACMatMul", NoPTX: true,
		Cases: each([]tensor.DType{tensor.F32},
			Case{Label: "no_rows", Dims: []int{0, 1, 4, 0}}, Case{Label: "no_terms", Dims: []int{3, 2, 0, 0}}, Case{Label: "one", Dims: []int{1, 1, 1, 1}},
			Case{Label: "odd", Dims: []int{127, 1, 255, 1}}, Case{Label: "columns", Dims: []int{65, 3, 129, 1}}, Case{Label: "groups", Dims: []int{33, 2, 320, 5}},
			Case{Label: "small_groups", Dims: []int{70, 1, 96, 24}}, Case{Label: "table", Dims: []int{129, 2, 130, 1}, Flags: "table"},
			Case{Label: "table", Dims: []int{40, 1, 512, 4}, Flags: "table"}, Case{Label: "norm", Dims: []int{97, 1, 640, 1}, Flags: "norm_weight"},
			Case{Label: "norm", Dims: []int{31, 5, 260, 1}, Flags: "norm"}, Case{Label: "deep", Dims: []int{5, 1, 20480, 1}},
			Case{Label: "whole_groups", Dims: []int{70, 1, 1536, 3}}, Case{Label: "whole_groups", Dims: []int{33, 6, 3200, 1}, Flags: "norm_weight"},
			Case{Label: "whole", Dims: []int{47, 2, 64, 1}}, Case{Label: "whole", Dims: []int{129, 9, 10240, 0}}, Case{Label: "whole_groups", Dims: []int{31, 3, 33024, 129}},
			Case{Label: "words", Dims: []int{31, 8, 1, 1}, Flags: "ternary"}, Case{Label: "words", Dims: []int{300, 13, 777, 0}, Flags: "ternary"},
			Case{Label: "words", Dims: []int{160, 9, 1154, 1}, Flags: "ternary_norm_weight"}, Case{Label: "words", Dims: []int{65, 35, 9216, 1}, Flags: "ternary"},
			Case{Label: "words", Dims: []int{165, 10, 190, 1}},
			Case{Label: "many", Dims: []int{197, 33, 1024, 4}}, Case{Label: "many", Dims: []int{70, 66, 3264, 1}, Flags: "norm_weight"},
			Case{Label: "many", Dims: []int{300, 129, 640, 0}, Flags: "settled"},
			Case{Label: "bits", Dims: []int{33, 1, 4096, 1}}, Case{Label: "bits", Dims: []int{47, 1, 8192, 0}}, Case{Label: "bits", Dims: []int{35, 1, 10240, 1}, Flags: "norm_weight"}, Case{Label: "bits", Dims: []int{33, 1, 13888, 1}, Flags: "norm_weight"}, Case{Label: "bits", Dims: []int{1, 1, 64, 1}, Flags: "settled"},
			Case{Label: "bits", Dims: []int{5003, 1, 128, 1}, Flags: "settled"}, Case{Label: "bits", Dims: []int{70, 1, 3200, 1}, Flags: "norm_settled"},
			Case{Label: "bits", Dims: []int{35, 1, 1600, 0}, Flags: "norm_weight"},
			Case{Label: "bitnet-2b_ffn_up", Dims: []int{6912, 1, 2560, 1}, Flags: "settled", Bench: true, Large: true},
			Case{Label: "bitnet-2b_ffn_down", Dims: []int{2560, 1, 6912, 1}, Flags: "settled", Bench: true, Large: true},
			Case{Label: "bitnet", Dims: []int{20480, 1, 3200, 1}, Flags: "settled", Bench: true, Large: true}),
		Inputs: func(g *Generator, c Case) []*Array {
			m, n, k, groups := c.Dims[0], c.Dims[1], c.Dims[2], c.Dims[3]
			in := []*Array{g.codes(m, (k+3)/4), g.Normal(tensor.F32, k, n), nil, nil, nil}
			if hasFlag(c, "ternary") {
				for i, b := range in[0].Raw {
					in[0].Raw[i] = b &^ (b >> 1 & 0x55)
				}
			}
			if groups > 0 {
				in[2] = g.Normal(tensor.F32, m, groups)
			}
			if hasFlag(c, "weight") {
				in[3] = g.Normal(tensor.F32, k)
			}
			if hasFlag(c, "table") && g.shapes {
				in[4] = g.Normal(tensor.F32, n, (k+3)/4, 256)
			} else if hasFlag(c, "table") {
				table := tmacLUTOp().Reference(in[1:2], Case{Dims: []int{k, n}})[0]
				in[4] = Floats(table.Values, n, (k+3)/4, 256)
			}
			return in
		},
		Outputs: func(c Case) []Spec { return []Spec{{tensor.F32, c.Dims[:2]}} },
		Run: func(out, in []*tensor.Tensor, c Case) {
			tensor.TMACMatMulInto(out[0], in[0], in[1], tensor.TMAC{Scales: in[2], LUT: in[4], Norm: in[3], RMSNorm: hasFlag(c, "norm"), Eps: 1e-5, Settled: hasFlag(c, "settled")})
		},
		Reference: func(in []*Array, c Case) []Want {
			m, n, k, groups := c.Dims[0], c.Dims[1], c.Dims[2], max(1, c.Dims[3])
			w := Want{Values: make([]float64, m*n), Scale: make([]float64, m*n)}
			for j := range n {
				squares := 0.0
				for i := range k {
					squares += math.Pow(in[1].Values[i*n+j], 2)
				}
				for i := range k {
					x := &in[1].Values[i*n+j]
					if hasFlag(c, "norm") {
						*x /= math.Sqrt(squares/float64(k) + float64(float32(1e-5)))
					}
					if in[3] != nil {
						*x *= in[3].Values[i]
					}
				}
				for r := range m {
					sizes := 0.0
					for i, weight := range weightsOf(Case{}, in[0].Raw, r, k) {
						p := weight * in[1].Values[i*n+j]
						if in[2] != nil {
							p *= in[2].Values[r*groups+i*groups/k]
						}
						w.Values[r*n+j] += p
						sizes += p * p
					}
					w.Scale[r*n+j] = math.Sqrt(sizes)
				}
			}
			return []Want{w}
		},
		Tolerance: func(c Case) Tolerance {
			few := float64(max(1, min(c.Dims[0]*c.Dims[1], c.Dims[2])))
			return Tolerance{RMS: 0.005 * (1 + 4/math.Sqrt(few)), Why: "activations may be rounded by runs: vibrant.h's bound, and five deviations of few samples' RMS"}
		},
		FLOPs: func(c Case) int64 { return 2 * int64(product(c.Dims[:3])) },
	}
}
