package optable

import (
	"math"
	"slices"
	"sort"

	"github.com/vibrant-ml/vibrant/tensor"
)

// eps is what the norms add to the mean square, as Qwen2.5 does.
const eps = float32(1e-6)

// rowCases are {rows, cols}.
var rowCases = []Case{
	{Label: "no_rows", Dims: []int{0, 5}}, {Label: "one", Dims: []int{1, 1}}, {Label: "odd_columns", Dims: []int{3, 127}},
	{Label: "even_columns", Dims: []int{2, 128}}, {Label: "odd_columns", Dims: []int{5, 255}},
	{Label: "one_column", Dims: []int{255, 1}}, {Label: "odd_few", Dims: []int{301, 5}}, {Label: "odd_hidden", Dims: []int{3, 2285}},
	{Label: "odd_wide", Dims: []int{5, 7001}}, {Label: "odd_long", Dims: []int{2, 20481}},
	{Label: "odd_longer", Dims: []int{1, 36867}}, {Label: "longer", Dims: []int{2, 16392}},
	{Label: "half_vectors", Dims: []int{3, 2284}}, {Label: "half_vectors_narrow", Dims: []int{601, 124}},
	{Label: "half_vectors_long", Dims: []int{2, 16388}},
	// Where a GPU has one multiprocessor, two rows a block, and rows that are left.
	{Label: "odd_together", Dims: []int{25, 2001}}, {Label: "odd_long_together", Dims: []int{17, 16389}},
	{Label: "qwen2.5-0.5b_hidden", Dims: []int{3, 896}}, {Label: "qwen2.5-3b_hidden", Dims: []int{1, 2048}, Bench: true},
	{Label: "7b_hidden", Dims: []int{1, 4096}, Bench: true}, {Label: "vocabulary", Dims: []int{1, 151936}, Bench: true},
	{Label: "batch", Dims: []int{32, 151936}, Bench: true, Large: true},
	{Label: "square", Dims: []int{4096, 4096}, Bench: true, Large: true},
	{Label: "many", Dims: []int{65536, 2048}, Bench: true, Large: true},
}

// narrowCases are more rows than a GPU has multiprocessors, a few of which a warp may take.
var narrowCases = []Case{
	{Label: "narrow_vectors", Dims: []int{301, 8}}, {Label: "narrow_wide_vectors", Dims: []int{301, 488}},
	{Label: "narrow_odd", Dims: []int{301, 33}}, {Label: "narrow_wide_odd", Dims: []int{301, 257}},
	{Label: "narrow_words", Dims: []int{301, 127}}, {Label: "narrow_most_words", Dims: []int{571, 701}},
	// Where a GPU has one multiprocessor, fewer threads a row than the vectors fill of a warp.
	{Label: "narrow_spread", Dims: []int{301, 72}}, {Label: "narrow_spread", Dims: []int{201, 264}},
	{Label: "narrow", Dims: []int{1000000, 8}, Bench: true, Large: true},
	{Label: "narrow_odd", Dims: []int{100000, 33}, Bench: true, Large: true},
}

func softmax(x []float64) []float64 {
	greatest := math.Inf(-1)
	for _, v := range x {
		greatest = math.Max(greatest, v)
	}
	sum := 0.0
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = math.Exp(v - greatest)
		sum += out[i]
	}
	for i := range out {
		out[i] /= sum
	}
	return out
}

func rmsNorm(x, weight []float64) []float64 {
	sum := 0.0
	for _, v := range x {
		sum += v * v
	}
	scale := 1 / math.Sqrt(sum/float64(len(x))+float64(eps))
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = v * scale
		if weight != nil {
			out[i] *= weight[i]
		}
	}
	return out
}

// byRow calls f with each row and gathers what it returns.
func byRow(x []float64, cols int, f func(row []float64) []float64) []float64 {
	var out []float64
	for at := 0; at < len(x); at += cols {
		out = append(out, f(x[at:at+cols])...)
	}
	return out
}

func sameShape(c Case) []Spec { return []Spec{{c.Type, c.Dims}} }

func elements(c Case) int64 { return int64(product(c.Dims)) }

func rowOps() []*Op {
	return []*Op{softmaxOp(), rmsNormOp(), layerNormOp(), addRMSNormOp(), argmaxOp(), topKOp()}
}

// sharedRows are rows that clusters of blocks share, and whole vectors of which a warp has two rows: several rows each where a GPU has
// one multiprocessor, and where it has 132.
func sharedRows() []Case {
	cases := each([]tensor.DType{tensor.F16, tensor.BF16}, Case{Label: "long_several", Dims: []int{19, 20008}},
		Case{Label: "longer_several", Dims: []int{19, 28016}},
		Case{Label: "odd_longer_several", Dims: []int{17, 20011}}, Case{Label: "of_a_warp_several", Dims: []int{57, 1128}})
	return append(cases, Case{Label: "half_long_several", Type: tensor.BF16, Dims: []int{201, 30012}, Wide: true},
		Case{Label: "odd_longest_several", Type: tensor.F32, Dims: []int{61, 50001}, Wide: true},
		Case{Label: "of_a_warp_several", Type: tensor.BF16, Dims: []int{7301, 1032}, Wide: true})
}

func softmaxOp() *Op {
	return &Op{
		Name: "Softmax", InPlace: true, Outputs: sameShape,
		Cases: append(each(floats, slices.Concat(rowCases, narrowCases)...),
			Case{Label: "fifth_vector_of_a_warp", Type: tensor.F32, Dims: []int{4099, 528}, Wide: true},
			Case{Label: "third_vector_of_two", Type: tensor.F16, Dims: []int{4099, 1304}, Wide: true},
			Case{Label: "five_vectors", Type: tensor.F16, Dims: []int{301, 40}},
			Case{Label: "divided_vectors", Type: tensor.F16, Dims: []int{3, 14152}},
			Case{Label: "divided_vectors", Type: tensor.BF16, Dims: []int{2, 27680}},
			Case{Label: "extremes", Type: tensor.F32, Dims: []int{7, 3}, Flags: "extremes"},
			Case{Label: "narrow_extremes", Type: tensor.F32, Dims: []int{147, 33}, Flags: "extremes"}),
		Inputs: func(g *Generator, c Case) []*Array {
			if c.Flags == "extremes" {
				inf, nan := math.Inf(1), math.NaN()
				rows := [][]float64{{-inf, -inf, -inf}, {-inf, 0, -inf}, {1e30, -1e30, 1e30}, {nan, 1, 2}, {3e38, 3e38, 0}, {inf, 1, 0},
					{-3e38, -3e38, 3e38}}
				var values []float64
				for row := range c.Dims[0] {
					values = append(append(values, rows[row%len(rows)]...), slices.Repeat([]float64{-inf}, c.Dims[1]-3)...)
				}
				return []*Array{Floats(values, c.Dims...)}
			}
			return []*Array{g.Scaled(3, c.Type, c.Dims...)}
		},
		Run: func(out, in []*tensor.Tensor, _ Case) { tensor.SoftmaxInto(out[0], in[0]) },
		Reference: func(in []*Array, c Case) []Want {
			return []Want{{Values: byRow(in[0].Values, c.Dims[1], softmax)}}
		},
		Tolerance: func(c Case) Tolerance {
			// exp multiplies the error of its argument, x - max <= 30, by that argument.
			return Tolerance{Rel: 8e-6 + 2*epsilon(c.Type), Abs: 0x1p-24 * 1.01, Why: "exp(x - max) and the sum in float32; small values are subnormal in F16"}
		},
		FLOPs: elements,
	}
}

func rmsNormOp() *Op {
	cases := append(each(floats, rowCases...), sharedRows()...)
	// Each number of threads that has an odd row of 16 bits in parts.
	cases = append(cases, each([]tensor.DType{tensor.F16, tensor.BF16}, Case{Label: "odd_divided", Dims: []int{9, 1407}},
		Case{Label: "odd_divided", Dims: []int{9, 1501}}, Case{Label: "odd_divided", Dims: []int{3, 9001}},
		Case{Label: "odd_divided", Dims: []int{3, 17001}}, Case{Label: "odd_divided", Dims: []int{2, 19001}})...)
	cases = append(cases, Case{Label: "no_weight", Type: tensor.F32, Dims: []int{3, 255}, Flags: "plain"})
	return &Op{
		Name: "RMSNorm", Cases: cases, InPlace: true, Outputs: sameShape,
		Inputs: func(g *Generator, c Case) []*Array {
			in := []*Array{g.Normal(c.Type, c.Dims...), g.Normal(tensor.F32, c.Dims[1])}
			if c.Flags == "plain" {
				in[1] = nil
			}
			return in
		},
		Run: func(out, in []*tensor.Tensor, _ Case) { tensor.RMSNormInto(out[0], in[0], in[1], eps) },
		Reference: func(in []*Array, c Case) []Want {
			return []Want{{Values: byRow(in[0].Values, c.Dims[1], func(row []float64) []float64 { return rmsNorm(row, values(in[1])) })}}
		},
		Tolerance: func(c Case) Tolerance {
			return Tolerance{Rel: 4e-6 + 2*epsilon(c.Type), Abs: 0x1p-24, Why: "the mean square is summed in float32, in any order"}
		},
		FLOPs: elements,
	}
}

// layerNormOp's rows lie off zero, by more than they vary: where a variance from the mean of squares goes wrong. Flags: "plain"
// without weight and bias, "unbiased" with a weight only.
func layerNormOp() *Op {
	cases := each(floats, rowCases...)
	cases = append(cases, Case{Label: "no_weight", Type: tensor.F32, Dims: []int{3, 255}, Flags: "plain"},
		Case{Label: "no_bias", Type: tensor.F16, Dims: []int{3, 256}, Flags: "unbiased"})
	// Blocks that stay for several rows, where a GPU has one multiprocessor, and where it has 132.
	cases = append(cases, each([]tensor.DType{tensor.F16, tensor.BF16}, Case{Label: "odd_several", Dims: []int{25, 2603}},
		Case{Label: "half_vectors_several", Dims: []int{19, 3308}})...)
	cases = append(cases, Case{Label: "odd_several", Type: tensor.F16, Dims: []int{1613, 3301}, Wide: true},
		Case{Label: "odd_of_a_warp_several", Type: tensor.BF16, Dims: []int{61, 1109}},
		Case{Label: "odd_of_a_warp_several", Type: tensor.F16, Dims: []int{6409, 1109}, Wide: true},
		Case{Label: "odd_of_a_warp_several", Type: tensor.F16, Dims: []int{61, 1301}},
		Case{Label: "odd_several", Type: tensor.BF16, Dims: []int{33, 10001}},
		Case{Label: "vectors_several", Type: tensor.F16, Dims: []int{21, 4200}})
	cases = append(cases, each([]tensor.DType{tensor.F16, tensor.BF16}, Case{Label: "odd_long_several", Dims: []int{17, 13315}},
		Case{Label: "vectors_several", Dims: []int{21, 3208}})...)
	cases = append(cases, sharedRows()...)
	return &Op{
		Name: "LayerNorm", Cases: cases, InPlace: true, Outputs: sameShape,
		Inputs: func(g *Generator, c Case) []*Array {
			in := []*Array{g.Offset(5, c.Type, c.Dims...), g.Normal(tensor.F32, c.Dims[1]), g.Normal(tensor.F32, c.Dims[1])}
			if c.Flags == "plain" {
				in[1] = nil
			}
			if c.Flags != "" {
				in[2] = nil
			}
			return in
		},
		Run: func(out, in []*tensor.Tensor, _ Case) { tensor.LayerNormInto(out[0], in[0], in[1], in[2], eps) },
		Reference: func(in []*Array, c Case) []Want {
			var w Want
			for at := 0; at < len(in[0].Values); at += c.Dims[1] {
				row := in[0].Values[at:][:c.Dims[1]]
				mean, variance := 0.0, 0.0
				for _, v := range row {
					mean += v / float64(len(row))
				}
				for _, v := range row {
					variance += (v - mean) * (v - mean) / float64(len(row))
				}
				for i, v := range row {
					// The mean is known to a unit of x's last place, not of the difference's.
					y, scale := (v-mean)/math.Sqrt(variance+float64(eps)), (math.Abs(v)+math.Abs(mean))/math.Sqrt(variance+float64(eps))
					if in[1] != nil {
						y, scale = y*in[1].Values[i], scale*math.Abs(in[1].Values[i])
					}
					if in[2] != nil {
						y, scale = y+in[2].Values[i], scale+math.Abs(in[2].Values[i])
					}
					if c.Type != tensor.F32 {
						scale = math.Max(math.Abs(y), 1e-3*scale) // rounding the result counts for more than computing it
					}
					w.Values, w.Scale = append(w.Values, y), append(w.Scale, scale)
				}
			}
			return []Want{w}
		},
		Tolerance: func(c Case) Tolerance {
			return Tolerance{Rel: 1e-6 + 2*epsilon(c.Type), Abs: 0x1p-24, Why: "mean and variance are float32, relative to the size of the elements"}
		},
		FLOPs: elements,
	}
}

func values(a *Array) []float64 {
	if a == nil {
		return nil
	}
	return a.Values
}

func addRMSNormOp() *Op {
	return &Op{
		Name: "AddRMSNorm", Cases: each(floats, rowCases...), InPlace: true,
		Inputs: func(g *Generator, c Case) []*Array {
			return []*Array{g.Normal(c.Type, c.Dims...), g.Normal(c.Type, c.Dims...), g.Normal(tensor.F32, c.Dims[1])}
		},
		Outputs: func(c Case) []Spec { return []Spec{{c.Type, c.Dims}, {c.Type, c.Dims}} },
		Run: func(out, in []*tensor.Tensor, _ Case) {
			tensor.AddRMSNormInto(out[0], out[1], in[0], in[1], in[2], eps)
		},
		Reference: func(in []*Array, c Case) []Want {
			sum := make([]float64, len(in[0].Values))
			scale := make([]float64, len(sum))
			for i := range sum {
				sum[i] = in[0].Values[i] + in[1].Values[i]
			}
			normed := byRow(sum, c.Dims[1], func(row []float64) []float64 { return rmsNorm(row, in[2].Values) })
			for i := range scale {
				scale[i] = math.Abs(normed[i])
			}
			return []Want{{Values: sum}, {Values: normed, Scale: scale}}
		},
		Tolerance: func(c Case) Tolerance {
			return Tolerance{Rel: 4e-6 + 3*epsilon(c.Type), Abs: 1e-6, Why: "as RMSNorm; the sum may be rounded to the type before it is normed"}
		},
		FLOPs: elements,
	}
}

// ranked returns the indices of a row by descending value, NaN above all, the lowest first among equals.
func ranked(row []float64) []int {
	ids := make([]int, len(row))
	for i := range ids {
		ids[i] = i
	}
	sort.SliceStable(ids, func(a, b int) bool {
		x, y := row[ids[a]], row[ids[b]]
		return x > y || math.IsNaN(x) && !math.IsNaN(y)
	})
	return ids
}

// withExtremes makes F32 rows of NaN, infinities, both zeros and subnormals in any order; the first row is of -Inf alone.
func (g *Generator) withExtremes(rows, cols int) *Array {
	inf := math.Inf(1)
	kinds := []float64{math.NaN(), inf, -inf, math.Copysign(0, -1), 0, 1, -1, 1e-45, -1e-45, 3e38}
	x := make([]float64, rows*cols)
	for i := range x {
		switch row := i / cols; {
		case row == 0:
			x[i] = -inf
		case row%2 == 0: // zeros
			x[i] = kinds[3+g.rng.IntN(2)]
		default:
			x[i] = kinds[g.rng.IntN(len(kinds))]
		}
	}
	return Floats(x, rows, cols)
}

// withTies makes F32 rows of few distinct values, so that the order among equals shows.
func withTies(g *Generator, shape ...int) *Array {
	a := g.Ints(97, shape...)
	if g.fast {
		return g.Normal(tensor.F32, shape...)
	}
	return Floats(a.Values, shape...)
}

// rankedInputs makes the rows of a case whose first dimensions are {rows, cols}.
func rankedInputs(g *Generator, c Case) []*Array {
	if c.Flags == "extremes" {
		return []*Array{g.withExtremes(c.Dims[0], c.Dims[1])}
	}
	return []*Array{withTies(g, c.Dims[:2]...)}
}

func argmaxOp() *Op {
	return &Op{
		Name: "Argmax",
		Cases: each([]tensor.DType{tensor.F32}, slices.Concat(rowCases, []Case{
			{Label: "extremes", Dims: []int{5, 17}, Flags: "extremes"}, {Label: "extremes", Dims: []int{5, 20481}, Flags: "extremes"}})...),
		Inputs:  rankedInputs,
		Outputs: func(c Case) []Spec { return []Spec{{tensor.I32, c.Dims[:1]}} },
		Run:     func(out, in []*tensor.Tensor, _ Case) { tensor.ArgmaxInto(out[0], in[0]) },
		Reference: func(in []*Array, c Case) []Want {
			return []Want{{Values: byRow(in[0].Values, c.Dims[1], func(row []float64) []float64 {
				return []float64{float64(ranked(row)[0])}
			})}}
		},
		Tolerance: func(Case) Tolerance { return Tolerance{Why: "indices are exact"} },
	}
}

// topKOp has {rows, cols, k}.
func topKOp() *Op {
	return &Op{
		Name: "TopK",
		Cases: each([]tensor.DType{tensor.F32},
			Case{Label: "no_rows", Dims: []int{0, 5, 2}}, Case{Label: "none", Dims: []int{3, 5, 0}}, Case{Label: "one", Dims: []int{1, 1, 1}},
			Case{Label: "greatest_odd", Dims: []int{5, 255, 1}}, Case{Label: "greatest", Dims: []int{3, 128, 1}},
			Case{Label: "greatest_extremes", Dims: []int{5, 20481, 1}, Flags: "extremes"}, Case{Label: "greatest_vocabulary", Dims: []int{1, 151936, 1}, Bench: true},
			Case{Label: "all", Dims: []int{3, 127, 127}}, Case{Label: "odd", Dims: []int{5, 255, 7}},
			Case{Label: "extremes", Dims: []int{5, 17, 17}, Flags: "extremes"}, Case{Label: "extremes", Dims: []int{5, 255, 40}, Flags: "extremes"},
			Case{Label: "extremes", Dims: []int{5, 20481, 64}, Flags: "extremes"},
			Case{Label: "odd_long", Dims: []int{2, 20481, 64}}, Case{Label: "vocabulary", Dims: []int{1, 151936, 40}, Bench: true}),
		Inputs: rankedInputs,
		Outputs: func(c Case) []Spec {
			shape := []int{c.Dims[0], c.Dims[2]}
			return []Spec{{tensor.F32, shape}, {tensor.I32, shape}}
		},
		Run: func(out, in []*tensor.Tensor, _ Case) { tensor.TopKInto(out[0], out[1], in[0]) },
		Reference: func(in []*Array, c Case) []Want {
			var best, ids []float64
			byRow(in[0].Values, c.Dims[1], func(row []float64) []float64 {
				for _, id := range ranked(row)[:c.Dims[2]] {
					best, ids = append(best, row[id]), append(ids, float64(id))
				}
				return nil
			})
			return []Want{{Values: best}, {Values: ids}}
		},
		Tolerance: func(Case) Tolerance { return Tolerance{Why: "values and indices are exact"} },
	}
}
