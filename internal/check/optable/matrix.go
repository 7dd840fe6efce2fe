package optable

import (
	"math"

	"github.com/vibrant-ml/vibrant/tensor"
)

// weightTypes are the types that Linear and Embedding take.
func weightTypes() []tensor.DType {
	return []tensor.DType{
		tensor.F32, tensor.F16, tensor.BF16, tensor.Q4_0, tensor.Q4_1, tensor.Q5_0, tensor.Q5_1, tensor.Q8_0,
		tensor.Q2_K, tensor.Q3_K, tensor.Q4_K, tensor.Q5_K, tensor.Q6_K, tensor.IQ4_NL, tensor.IQ4_XS,
		tensor.TQ1_0, tensor.TQ2_0, tensor.MXFP4, tensor.Q1_0, tensor.Q2_0, tensor.IQ1_S, tensor.IQ1_M, tensor.IQ2_XXS, tensor.IQ2_XS,
		tensor.IQ2_S, tensor.IQ3_XXS, tensor.IQ3_S, tensor.NVFP4,
	}
}

func matrixOps() []*Op { return []*Op{matMulOp(), matMulWithOp(), linearOp(), embeddingOp()} }

// product writes the product of an m x k and a k x n matrix from an offset on. Transposed ones, as the flags "tn", "nt" and "tt" say, lie
// in memory the other way round.
func (w Want) product(at int, a, b []float64, m, k, n int, flags string) {
	if flags[0] == 't' {
		a = transposed(a, k, m)
	}
	if flags[1] != 't' {
		b = transposed(b, k, n)
	}
	for i := range m {
		for j := range n {
			w.Values[at+i*n+j], w.Scale[at+i*n+j] = dotSizes(a[i*k:][:k], b[j*k:])
		}
	}
}

func transposed(a []float64, rows, cols int) []float64 {
	t := make([]float64, rows*cols)
	for i := range rows {
		for j, v := range a[i*cols:][:cols] {
			t[j*rows+i] = v
		}
	}
	return t
}

// matMulOp has {m, k, n}; one row takes the single-row kernel.
func matMulOp() *Op {
	cases := each(floats,
		Case{Label: "one", Dims: []int{1, 1, 1}}, Case{Label: "no_rows", Dims: []int{0, 3, 4}}, Case{Label: "no_columns", Dims: []int{3, 4, 0}},
		Case{Label: "no_terms", Dims: []int{3, 0, 4}}, Case{Label: "odd", Dims: []int{3, 127, 5}}, Case{Label: "tile", Dims: []int{128, 128, 128}},
		Case{Label: "around_tile", Dims: []int{127, 255, 129}}, Case{Label: "deep", Dims: []int{2, 20481, 3}},
		Case{Label: "two_rows", Dims: []int{2, 260, 36}}, Case{Label: "few_rows", Dims: []int{13, 1028, 516}},
		Case{Label: "few_rows_wide", Dims: []int{33, 196, 2052}}, Case{Label: "few_rows_deep", Dims: []int{61, 4100, 68}},
		Case{Label: "few_rows_shared_terms", Dims: []int{17, 2056, 264}}, Case{Label: "few_rows_all_columns", Dims: []int{33, 24, 8456}},
		Case{Label: "row_shared_terms", Dims: []int{1, 1040, 5000}},
		Case{Label: "row", Dims: []int{1, 255, 127}}, Case{Label: "row_deep", Dims: []int{1, 20481, 3}}, Case{Label: "row_wide", Dims: []int{1, 3, 20481}},
		Case{Label: "cube", Dims: []int{512, 512, 512}, Bench: true, Large: true}, Case{Label: "cube", Dims: []int{1024, 1024, 1024}, Bench: true, Large: true},
		Case{Label: "cube", Dims: []int{2048, 2048, 2048}, Bench: true, Large: true}, Case{Label: "cube", Dims: []int{4096, 4096, 4096}, Bench: true, Large: true},
		Case{Label: "row", Dims: []int{1, 4096, 4096}, Bench: true, Large: true}, Case{Label: "row", Dims: []int{1, 4096, 14336}, Bench: true, Large: true},
	)
	cases = append(cases, each([]tensor.DType{tensor.F32}, // more rows than few, in parts of 64, 32 and 16 columns
		Case{Label: "wide_strips", Dims: []int{130, 136, 1028}}, Case{Label: "strips", Dims: []int{130, 1000, 132}},
		Case{Label: "narrow_strips", Dims: []int{130, 4700, 28}})...)
	cases = append(cases, each([]tensor.DType{tensor.F32}, // strips whose copies are exactly 48 KiB
		Case{Label: "wide_strips_48k", Dims: []int{16, 1410, 1028}}, Case{Label: "strips_48k", Dims: []int{16, 2861, 372}},
		Case{Label: "narrow_strips_48k", Dims: []int{17, 5822, 180}})...)
	cases = append(cases, Case{Label: "dense", Type: tensor.F16, Dims: []int{256, 320, 88}}, // Hopper's kernels of dense matrices
		Case{Label: "dense_odd", Type: tensor.F32, Dims: []int{364, 189, 399}})
	cases = append(cases, each([]tensor.DType{tensor.F16, tensor.BF16}, // rows that are not whole vectors
		Case{Label: "odd_terms", Dims: []int{65, 1027, 48}}, Case{Label: "odd_columns", Dims: []int{5, 1032, 131}},
		Case{Label: "all_odd", Dims: []int{131, 515, 259}})...)
	return &Op{
		Name: "MatMul", Cases: cases,
		Inputs: func(g *Generator, c Case) []*Array {
			return []*Array{g.Normal(c.Type, c.Dims[0], c.Dims[1]), g.Normal(c.Type, c.Dims[1], c.Dims[2])}
		},
		Outputs: func(c Case) []Spec { return []Spec{{c.Type, []int{c.Dims[0], c.Dims[2]}}} },
		Run:     func(out, in []*tensor.Tensor, _ Case) { tensor.MatMulInto(out[0], in[0], in[1]) },
		Reference: func(in []*Array, c Case) []Want {
			m, k, n := c.Dims[0], c.Dims[1], c.Dims[2]
			w := Want{Values: make([]float64, m*n), Scale: make([]float64, m*n)}
			w.product(0, in[0].Values, in[1].Values, m, k, n, "nn")
			return []Want{w}
		},
		Tolerance: func(c Case) Tolerance {
			// A float32 sum of k terms in blocks or pairs is off by about sqrt(k) units of the sum of their sizes at
			// worst in practice, and k in theory; the bound below is the first with a margin of 4.
			return Tolerance{Rel: 4*math.Sqrt(float64(c.Dims[1])+1)*0x1p-24 + epsilon(c.Type), Abs: underflow(c.Type),
				Why: "float32 sums in any order, relative to the sum of the terms' sizes"}
		},
		FLOPs: func(c Case) int64 { return 2 * elements(c) },
	}
}

// matMulWithOp has {batch, m, k, n}. Flags, in this order: "nt", "tn", "tt" or "nn"; "shared_a" or "shared_b" for one matrix
// in all products; "ieee" or "tf32".
func matMulWithOp() *Op {
	var cases []Case
	for _, layout := range []string{"nn", "nt", "tn", "tt"} {
		cases = append(cases, each(floats,
			Case{Label: "one", Dims: []int{1, 1, 1, 1}, Flags: layout}, Case{Label: "no_matrices", Dims: []int{0, 3, 4, 5}, Flags: layout},
			Case{Label: "no_terms", Dims: []int{2, 3, 0, 5}, Flags: layout}, Case{Label: "row", Dims: []int{1, 1, 255, 127}, Flags: layout},
			Case{Label: "column", Dims: []int{1, 127, 255, 1}, Flags: layout}, Case{Label: "odd", Dims: []int{3, 5, 127, 33}, Flags: layout},
			Case{Label: "tile", Dims: []int{2, 128, 64, 128}, Flags: layout + "_shared_a"}, Case{Label: "around_tile", Dims: []int{2, 129, 72, 127}, Flags: layout + "_shared_b"},
			Case{Label: "aligned", Dims: []int{1, 144, 264, 136}, Flags: layout}, Case{Label: "deep", Dims: []int{1, 7, 4104, 24}, Flags: layout},
			// rows that begin anywhere, of which a block has some
			Case{Label: "thin_odd_columns", Dims: []int{1, 1200, 3, 3001}, Flags: layout}, Case{Label: "thin_pairs", Dims: []int{3, 301, 12, 1502}, Flags: layout},
			// small matrices, whose terms the warps of a block share
			Case{Label: "small", Dims: []int{67, 13, 437, 11}, Flags: layout}, Case{Label: "small_short", Dims: []int{130, 9, 97, 10}, Flags: layout},
			Case{Label: "cube", Dims: []int{1, 4096, 4096, 4096}, Flags: layout, Bench: true, Large: true},
			Case{Label: "heads", Dims: []int{64, 512, 128, 512}, Flags: layout, Bench: true, Large: true})...)
		cases = append(cases, each([]tensor.DType{tensor.F16, tensor.BF16},
			Case{Label: "shared_terms", Dims: []int{1, 72, 2056, 264}, Flags: layout},
			Case{Label: "few_rows_odd_columns", Dims: []int{1, 5, 376, 5701}, Flags: layout},
			Case{Label: "short_terms", Dims: []int{2, 163, 20, 199}, Flags: layout}, Case{Label: "short_terms", Dims: []int{1, 200, 45, 520}, Flags: layout},
			Case{Label: "short_terms_odd_columns", Dims: []int{2, 901, 33, 145}, Flags: layout},
			Case{Label: "few_columns_deep", Dims: []int{1, 2832, 1032, 24}, Flags: layout}, Case{Label: "few_rows_deep", Dims: []int{1, 24, 1032, 2832}, Flags: layout},
			Case{Label: "middle_columns", Dims: []int{66, 200, 136, 184}, Flags: layout},
			Case{Label: "few_columns", Dims: []int{1, 200, 136, 11}, Flags: layout}, Case{Label: "few_rows", Dims: []int{2, 11, 200, 136}, Flags: layout})...)
		cases = append(cases, each([]tensor.DType{tensor.F32},
			Case{Label: "split", Dims: []int{2, 137, 400, 159}, Flags: layout}, Case{Label: "narrow", Dims: []int{9, 1030, 70, 29}, Flags: layout},
			Case{Label: "low", Dims: []int{9, 29, 70, 1030}, Flags: layout}, Case{Label: "thin", Dims: []int{3, 49, 8, 152}, Flags: layout},
			Case{Label: "ieee", Dims: []int{1, 129, 255, 257}, Flags: layout + "_ieee"},
			Case{Label: "ieee_wide", Dims: []int{1, 130, 40, 1540}, Flags: layout + "_ieee"},
			Case{Label: "tf32_small", Dims: []int{2, 65, 127, 33}, Flags: layout + "_tf32"}, Case{Label: "tf32", Dims: []int{1, 260, 264, 256}, Flags: layout + "_tf32"},
			Case{Label: "tf32_cube", Dims: []int{1, 4096, 4096, 4096}, Flags: layout + "_tf32", Bench: true, Large: true},
			Case{Label: "ieee_cube", Dims: []int{1, 4096, 4096, 4096}, Flags: layout + "_ieee", Bench: true, Large: true})...)
	}
	cases = append(cases, each(floats, // one row or column of matrices of which a block has several
		Case{Label: "many_columns", Dims: []int{301, 5, 264, 1}, Flags: "nt"},
		Case{Label: "many_rows", Dims: []int{301, 1, 267, 3}, Flags: "nt"},
		Case{Label: "odd_rows_alike", Dims: []int{1, 1, 1029, 4001}, Flags: "nt"}, Case{Label: "odd_rows_alike", Dims: []int{2, 2999, 517, 1}, Flags: "nn"},
		// of a short k, each output by a thread
		Case{Label: "many_short_rows", Dims: []int{301, 1, 7, 13}, Flags: "nn"}, Case{Label: "many_short_columns", Dims: []int{37, 119, 16, 1}, Flags: "tt"})...)
	cases = append(cases, each([]tensor.DType{tensor.F32}, // rows that begin anywhere, or at even elements
		Case{Label: "parts_odd_columns", Dims: []int{1, 900, 300, 901}, Flags: "nt"},
		Case{Label: "parts_even_columns", Dims: []int{1, 900, 300, 902}, Flags: "tn"})...)
	cases = append(cases, Case{Label: "tf32_dense", Type: tensor.F32, Dims: []int{1, 496, 952, 856}, Flags: "tn_tf32"},
		Case{Label: "copied_to_vectors", Type: tensor.F16, Dims: []int{1, 487, 447, 208}, Flags: "tt"},
		Case{Label: "large_tiles", Type: tensor.F16, Dims: []int{110, 72, 72, 136}, Flags: "nn"},
		Case{Label: "large_tiles", Type: tensor.F16, Dims: []int{55, 72, 72, 280}, Flags: "tt"},
		Case{Label: "low", Type: tensor.F32, Dims: []int{1, 9, 70, 503}, Flags: "tn"}, Case{Label: "low", Type: tensor.F32, Dims: []int{1, 9, 70, 503}, Flags: "tt"},
		Case{Label: "square_tiles", Type: tensor.F16, Dims: []int{5, 24, 974, 21}, Flags: "tt"})
	cases = append(cases, each([]tensor.DType{tensor.BF16}, // pairs and quads of blocks; copies whose blocks share terms
		Case{Label: "quads", Dims: []int{1, 328, 136, 264}, Flags: "tt"}, Case{Label: "quads", Dims: []int{1, 392, 72, 2392}, Flags: "nt"},
		Case{Label: "quads", Dims: []int{1, 2336, 72, 784}, Flags: "nn"}, Case{Label: "quads", Dims: []int{1, 2013, 40, 1784}, Flags: "nt"},
		Case{Label: "quads", Dims: []int{1, 5648, 72, 264}, Flags: "tn"}, Case{Label: "pairs", Dims: []int{1, 2844, 72, 656}, Flags: "nt"},
		Case{Label: "pairs", Dims: []int{1, 3624, 72, 520}, Flags: "tt"}, Case{Label: "two_blocks", Dims: []int{230, 85, 40, 72}, Flags: "nn"},
		Case{Label: "pairs", Dims: []int{66, 136, 264, 136}, Flags: "nt"}, Case{Label: "pairs", Dims: []int{66, 136, 264, 136}, Flags: "tn"},
		Case{Label: "wide_pairs", Dims: []int{1, 1544, 40, 1912}, Flags: "nn"}, Case{Label: "wide_pairs", Dims: []int{1, 784, 56, 3400}, Flags: "tt"},
		Case{Label: "wide_pairs", Dims: []int{1, 864, 56, 3088}, Flags: "tn"}, Case{Label: "wide_pairs", Dims: []int{1, 1361, 40, 2264}, Flags: "nt"},
		Case{Label: "in_turns", Dims: []int{1, 1672, 40, 3256}, Flags: "nn"}, Case{Label: "in_turns", Dims: []int{1, 1418, 40, 3912}, Flags: "nt"},
		Case{Label: "in_turns", Dims: []int{1, 2312, 56, 1544}, Flags: "tn"}, Case{Label: "in_turns", Dims: []int{1, 1144, 48, 3712}, Flags: "tt"},
		Case{Label: "split_pairs", Dims: []int{1, 88, 784, 704}, Flags: "tn"}, Case{Label: "turned_pairs", Dims: []int{1, 66, 1208, 1160}, Flags: "nt"},
		Case{Label: "odd_shared_terms", Dims: []int{1, 65, 4001, 384}, Flags: "nn"},
		Case{Label: "odd_columns", Dims: []int{1, 65, 72, 641}, Flags: "nt"}, Case{Label: "odd_columns", Dims: []int{33, 65, 72, 385}, Flags: "nt"},
		Case{Label: "odd_columns", Dims: []int{33, 65, 72, 641}, Flags: "nt"}, Case{Label: "odd_columns", Dims: []int{33, 65, 72, 641}, Flags: "nn"})...)
	options := func(c Case) tensor.MatMulOptions {
		o := tensor.MatMulOptions{TransA: c.Flags[0] == 't', TransB: c.Flags[1] == 't'}
		if hasFlag(c, "ieee") {
			o.Precision = tensor.PrecisionIEEE
		} else if hasFlag(c, "tf32") {
			o.Precision = tensor.PrecisionTF32
		}
		return o
	}
	return &Op{
		Name: "MatMulWith", Cases: cases,
		Inputs: func(g *Generator, c Case) []*Array {
			shape := func(rows, cols int, transposed, shared bool) []int {
				if transposed {
					rows, cols = cols, rows
				}
				if shared {
					return []int{rows, cols}
				}
				return []int{c.Dims[0], rows, cols}
			}
			o := options(c)
			return []*Array{g.Normal(c.Type, shape(c.Dims[1], c.Dims[2], o.TransA, hasFlag(c, "shared_a"))...),
				g.Normal(c.Type, shape(c.Dims[2], c.Dims[3], o.TransB, hasFlag(c, "shared_b"))...)}
		},
		Outputs: func(c Case) []Spec { return []Spec{{c.Type, []int{c.Dims[0], c.Dims[1], c.Dims[3]}}} },
		Run:     func(out, in []*tensor.Tensor, c Case) { tensor.MatMulWithInto(out[0], in[0], in[1], options(c)) },
		Reference: func(in []*Array, c Case) []Want {
			batch, m, k, n := c.Dims[0], c.Dims[1], c.Dims[2], c.Dims[3]
			w := Want{Values: make([]float64, batch*m*n), Scale: make([]float64, batch*m*n)}
			for z := range batch {
				a, b := in[0].Values, in[1].Values
				if !hasFlag(c, "shared_a") {
					a = a[z*m*k:]
				}
				if !hasFlag(c, "shared_b") {
					b = b[z*k*n:]
				}
				w.product(z*m*n, a, b, m, k, n, c.Flags)
			}
			return []Want{w}
		},
		Tolerance: func(c Case) Tolerance {
			rel := 4*math.Sqrt(float64(c.Dims[2])+1)*0x1p-24 + epsilon(c.Type)
			if hasFlag(c, "tf32") {
				return Tolerance{Rel: rel + 2*0x1p-11, Abs: underflow(c.Type), Why: "both operands rounded to 11 significant bits, float32 sums"}
			}
			return Tolerance{Rel: rel, Abs: underflow(c.Type), Why: "as MatMul"}
		},
		FLOPs: func(c Case) int64 { return 2 * elements(c) },
	}
}

// linearOp has {n, cols, rows}.
func linearOp() *Op {
	var cases []Case
	for _, t := range weightTypes() {
		cols := max(t.BlockSize(), 32)
		cases = append(cases,
			Case{Label: "no_rows", Type: t, Dims: []int{0, cols, 3}}, Case{Label: "one", Type: t, Dims: []int{1, cols, 1}},
			Case{Label: "decode", Type: t, Dims: []int{1, 3 * 256, 127}}, Case{Label: "decode", Type: t, Dims: []int{1, 2048, 255}, Flags: "packed"},
			Case{Label: "few", Type: t, Dims: []int{2, 512, 33}, Flags: "bias"}, Case{Label: "few", Type: t, Dims: []int{2, 512, 127}, Flags: "packed"}, Case{Label: "few", Type: t, Dims: []int{3, 512, 127}, Flags: "packed"}, Case{Label: "few", Type: t, Dims: []int{8, 768, 127}, Flags: "packed"},
			Case{Label: "batch", Type: t, Dims: []int{9, 512, 128}, Flags: "packed_bias"}, Case{Label: "batch", Type: t, Dims: []int{17, 512, 127}, Flags: "packed"},
			Case{Label: "prefill", Type: t, Dims: []int{33, 512, 129}, Flags: "packed_bias"}, Case{Label: "prefill", Type: t, Dims: []int{65, 1024, 127}, Flags: "packed"},
			Case{Label: "qwen2.5-3b_ffn_up", Type: t, Dims: []int{1, 2048, 11008}, Flags: "packed", Bench: true, Large: true},
			Case{Label: "qwen2.5-3b_ffn_down", Type: t, Dims: []int{1, 11008, 2048}, Flags: "packed", Bench: true, Large: true},
			Case{Label: "qwen2.5-3b_attn", Type: t, Dims: []int{1, 2048, 2048}, Flags: "packed", Bench: true, Large: true},
			Case{Label: "qwen2.5-3b_vocabulary", Type: t, Dims: []int{1, 2048, 151936}, Flags: "packed", Bench: true, Large: true},
			Case{Label: "qwen2.5-3b_prefill", Type: t, Dims: []int{512, 2048, 11008}, Flags: "packed", Bench: true, Large: true})
		if t != tensor.Q4_K && t != tensor.Q6_K {
			for _, n := range []int{2, 8, 32} {
				cases = append(cases, Case{Label: "qwen2.5-3b_ffn_up", Type: t, Dims: []int{n, 2048, 11008}, Flags: "packed", Bench: true, Large: true})
			}
		}
		if t == tensor.Q4_K || t == tensor.Q6_K { // steps of several sequences
			for _, n := range []int{2, 8, 16, 32, 64} {
				cases = append(cases,
					Case{Label: "qwen2.5-3b_ffn_up", Type: t, Dims: []int{n, 2048, 11008}, Flags: "packed", Bench: true, Large: true},
					Case{Label: "qwen2.5-3b_ffn_down", Type: t, Dims: []int{n, 11008, 2048}, Flags: "packed", Bench: true, Large: true},
					Case{Label: "qwen2.5-3b_attn", Type: t, Dims: []int{n, 2048, 2048}, Flags: "packed", Bench: true, Large: true})
			}
			cases = append(cases, Case{Label: "vocabulary", Type: t, Dims: []int{9, 256, 65600}, Flags: "packed"},
				Case{Label: "qwen2.5-3b_prefill_down", Type: t, Dims: []int{512, 11008, 2048}, Flags: "packed", Bench: true, Large: true})
		}
		if !t.Quantized() {
			cases = append(cases, Case{Label: "odd_columns", Type: t, Dims: []int{3, 127, 5}}, Case{Label: "odd_columns", Type: t, Dims: []int{1, 255, 127}},
				Case{Label: "odd_columns", Type: t, Dims: []int{66, 139, 132}, Flags: "bias"}, Case{Label: "odd_columns", Type: t, Dims: []int{131, 1034, 257}},
				Case{Label: "few_columns", Type: t, Dims: []int{33, 17, 9}, Flags: "bias"},
				Case{Label: "part_of_a_tile", Type: t, Dims: []int{2, 8, 4}, Flags: "bias"}, Case{Label: "part_of_a_tile", Type: t, Dims: []int{15, 520, 132}, Flags: "bias"},
				Case{Label: "part_of_a_tile", Type: t, Dims: []int{31, 1032, 260}}, Case{Label: "part_of_a_tile", Type: t, Dims: []int{64, 1096, 516}, Flags: "bias"},
				Case{Label: "many", Type: t, Dims: []int{66, 72, 131}, Flags: "bias"}, Case{Label: "many", Type: t, Dims: []int{130, 520, 260}, Flags: "bias"},
				Case{Label: "many_shared_columns", Type: t, Dims: []int{257, 8200, 130}})
		} else if t.BlockSize() == 32 || t == tensor.NVFP4 {
			cases = append(cases, Case{Label: "qwen2.5-0.5b_hidden", Type: t, Dims: []int{1, 896, 151}, Flags: "packed"},
				Case{Label: "few_long", Type: t, Dims: []int{2, 8448, 80}, Flags: "packed"})
			for _, n := range []int{1, 2, 3, 9, 20, 33} { // hidden sizes of other models, no multiples of 128
				cases = append(cases, Case{Label: "smollm2-135m_hidden", Type: t, Dims: []int{n, 576, 160}, Flags: "packed"},
					Case{Label: "gpt-oss_hidden", Type: t, Dims: []int{n, 2880, 144}, Flags: "packed_bias"})
			}
		}
	}
	cases = append(cases, // warps with rows of tiles of their own, also two each; several groups of warps a block
		Case{Label: "few_tiles", Type: tensor.Q4_K, Dims: []int{1, 256, 8453}, Flags: "packed"},
		Case{Label: "few_tiles", Type: tensor.Q8_0, Dims: []int{1, 576, 8453}, Flags: "packed"},
		Case{Label: "few_tiles", Type: tensor.NVFP4, Dims: []int{1, 576, 8453}, Flags: "packed"},
		Case{Label: "few_tiles", Type: tensor.MXFP4, Dims: []int{1, 1152, 8453}, Flags: "packed_bias"},
		Case{Label: "teams", Type: tensor.IQ4_NL, Dims: []int{1, 1888, 8453}, Flags: "packed_bias"},
		Case{Label: "teams", Type: tensor.NVFP4, Dims: []int{1, 3008, 5300}, Flags: "packed"},
		Case{Label: "teams", Type: tensor.Q4_1, Dims: []int{1, 4096, 2120}, Flags: "packed"},
		Case{Label: "few_tiles", Type: tensor.Q4_0, Dims: []int{2, 96, 67400}, Flags: "packed"},
		Case{Label: "few_tiles", Type: tensor.Q4_1, Dims: []int{1, 128, 33825}, Flags: "packed_bias"},
		Case{Label: "few_tiles", Type: tensor.IQ4_NL, Dims: []int{2, 576, 8453}, Flags: "packed_bias"},
		Case{Label: "few_tiles", Type: tensor.Q6_K, Dims: []int{3, 256, 8453}, Flags: "packed"},
		Case{Label: "few_tiles", Type: tensor.NVFP4, Dims: []int{4, 320, 8453}, Flags: "packed"})
	for _, rows := range []int{1, 2, 9, 33, 129} { // a tile and a half
		cases = append(cases, Case{Label: "half_tile", Type: tensor.MXFP4, Dims: []int{rows, 192, 77}, Flags: "packed_bias"},
			Case{Label: "half_tile", Type: tensor.Q5_1, Dims: []int{rows, 96, 77}, Flags: "packed"})
	}
	for i, width := range []int{144, 160, 168, 176, 192, 208, 224, 240, 256} { // pairs of tiles as wide, one for each two of 132
		cases = append(cases, Case{Label: "one_round", Type: []tensor.DType{tensor.F16, tensor.BF16}[i%2],
			Dims: []int{129, 40, 66*width - 4 + i%4/3}, Flags: []string{"", "bias"}[i/2%2]})
	}
	cases = append(cases, // several such rounds, whose tiles a block's groups multiply in turn
		Case{Label: "in_turns", Type: tensor.F16, Dims: []int{129, 40, 2*66*144 - 4}, Flags: "bias"},
		Case{Label: "in_turns", Type: tensor.BF16, Dims: []int{129, 136, 3*66*168 - 3}},
		Case{Label: "in_turns", Type: tensor.F16, Dims: []int{300, 72, 66*192 - 8}})
	for _, t := range weightTypes() { // prompts short enough for an interpreter: a part of a tile, a whole one and a row
		cases = append(cases, Case{Label: "short_prompt", Type: t, Dims: []int{33, 256, 5}, Flags: "packed_bias"},
			Case{Label: "short_prompt", Type: t, Dims: []int{129, 256, 1}, Flags: "packed_bias"})
	}
	return &Op{
		Name: "Linear", Cases: cases, Packs: []int{1},
		Inputs: func(g *Generator, c Case) []*Array {
			in := []*Array{g.Normal(tensor.F32, c.Dims[0], c.Dims[1]), g.Weight(c.Type, c.Dims[2], c.Dims[1]), nil}
			if c.Flags == "bias" || c.Flags == "packed_bias" {
				in[2] = g.Normal(tensor.F32, c.Dims[2])
			}
			return in
		},
		Outputs: func(c Case) []Spec { return []Spec{{tensor.F32, []int{c.Dims[0], c.Dims[2]}}} },
		Run:     func(out, in []*tensor.Tensor, _ Case) { tensor.LinearInto(out[0], in[0], in[1], in[2]) },
		Reference: func(in []*Array, c Case) []Want {
			n, cols, rows := c.Dims[0], c.Dims[1], c.Dims[2]
			w := Want{Values: make([]float64, n*rows), Scale: make([]float64, n*rows)}
			for i := range n {
				for r := range rows {
					x, row := in[0].Values[i*cols:][:cols], in[1].Values[r*cols:]
					bias := 0.0
					if in[2] != nil {
						bias = in[2].Values[r]
					}
					if c.Type == tensor.F32 {
						sum, sizes := dotSizes(x, row)
						w.Values[i*rows+r], w.Scale[i*rows+r] = sum+bias, sizes+math.Abs(bias)
					} else { // what independent errors of the terms add up to
						sum, squares := dot(x, row)
						w.Values[i*rows+r], w.Scale[i*rows+r] = sum+bias, math.Sqrt(squares)
					}
				}
			}
			return []Want{w}
		},
		Tolerance: func(c Case) Tolerance {
			if c.Type == tensor.F32 {
				return Tolerance{Rel: 4 * math.Sqrt(float64(c.Dims[1])+1) * 0x1p-24, Why: "float32 sums in any order, relative to the sum of the terms' sizes"}
			}
			return Tolerance{RMS: 0.005, Why: "activations may be rounded to int8 blocks or 16-bit floats: the contract of vb_linear"}
		},
		FLOPs: func(c Case) int64 { return 2 * elements(c) },
	}
}

// embeddingOp has {ids, cols, rows}.
func embeddingOp() *Op {
	var cases []Case
	for _, t := range weightTypes() {
		cases = append(cases,
			Case{Label: "none", Type: t, Dims: []int{0, 256, 5}}, Case{Label: "one", Type: t, Dims: []int{1, 512, 127}},
			Case{Label: "several", Type: t, Dims: []int{33, 256, 255}, Flags: "packed"})
	}
	cases = append(cases, Case{Label: "odd_columns", Type: tensor.F32, Dims: []int{3, 127, 5}},
		Case{Label: "qwen2.5-3b_prompt", Type: tensor.Q6_K, Dims: []int{512, 2048, 151936}, Flags: "packed", Bench: true, Large: true})
	return &Op{
		Name: "Embedding", Cases: cases, Packs: []int{0},
		Inputs: func(g *Generator, c Case) []*Array {
			return []*Array{g.Weight(c.Type, c.Dims[2], c.Dims[1]), g.Ints(c.Dims[2], c.Dims[0])}
		},
		Outputs: func(c Case) []Spec { return []Spec{{tensor.F32, c.Dims[:2]}} },
		Run:     func(out, in []*tensor.Tensor, _ Case) { tensor.EmbeddingInto(out[0], in[0], in[1]) },
		Reference: func(in []*Array, c Case) []Want {
			cols := c.Dims[1]
			var out []float64
			for _, id := range in[1].Values {
				out = append(out, in[0].Values[int(id)*cols:int(id+1)*cols]...)
			}
			return []Want{{Values: out}}
		},
		Tolerance: func(c Case) Tolerance {
			if c.Type == tensor.IQ4_XS {
				return Tolerance{Rel: 0x1p-11, Abs: 1e-9, Why: "packed, a scale of 17 bits is rounded to F16"}
			}
			return Tolerance{Rel: 2e-7, Abs: 1e-9, Why: "the product of a block's scale and value, and the minimum, are rounded once each"}
		},
		Bytes: func(c Case) int64 { return int64(c.Dims[0])*c.Type.Bytes(c.Dims[1]) + 4*int64(c.Dims[0]*c.Dims[1]) },
	}
}
