package optable

import (
	"math"

	"github.com/vibrant-ml/vibrant/internal/fused"
	"github.com/vibrant-ml/vibrant/tensor"
)

func expertOps() []*Op {
	return []*Op{routeOp(), normRouteOp(), expertLinearOp(), expertSumOp(), expertFeedForwardOp()}
}

// routerOf returns how a case chooses experts, by its flags.
func routerOf(c Case, groups, groupsUsed int, bias *tensor.Tensor) tensor.Router {
	r := tensor.Router{Normalized: hasFlag(c, "normalized"), Bias: bias, Groups: groups, GroupsUsed: groupsUsed, GroupByBest: hasFlag(c, "best")}
	switch {
	case hasFlag(c, "chosen"):
		r.Gating = tensor.GatingSoftmaxChosen
	case hasFlag(c, "sigmoid"):
		r.Gating = tensor.GatingSigmoid
	}
	if hasFlag(c, "scaled") {
		r.Scale = 2.5
	}
	return r
}

// routing is what a router makes of rows of logits: k experts a row, their weights, and how good each expert of each row is.
type routing struct {
	k              int
	ids, weights   []float64
	scores, choice [][]float64 // by row and expert; the experts of the best choice, which has the bias in it, are taken
}

// wants are the two outputs. Rounding may exchange experts whose scores differ by rel or less; none may be chosen twice.
func (r *routing) wants(rel float64) []Want {
	alike := func(got []float64, i int) bool {
		row, e := i/r.k, got[i]
		scores, choice := r.scores[row], r.choice[row]
		if !(e >= 0 && e < float64(len(scores))) || e != math.Trunc(e) {
			return false
		}
		for j := row * r.k; j < (row+1)*r.k; j++ {
			if j != i && got[j] == e {
				return false
			}
		}
		a, b := int(e), int(r.ids[i])
		return math.Abs(choice[a]-choice[b]) <= rel*(scores[a]+scores[b]+math.Abs(choice[a]-scores[a]))
	}
	return []Want{{Values: r.ids, Alike: alike}, {Values: r.weights}}
}

// add chooses the experts of a row of logits; bias may be nil.
func (to *routing) add(row []float64, r tensor.Router, bias *Array) {
	scores := softmax(row)
	if r.Gating == tensor.GatingSigmoid {
		for e, l := range row {
			scores[e] = 1 / (1 + math.Exp(-l))
		}
	}
	choice := append([]float64(nil), scores...)
	for e := range choice {
		if bias != nil {
			choice[e] += bias.Values[e]
		}
	}
	if r.Groups > 0 {
		size := len(row) / r.Groups
		groups := make([]float64, r.Groups)
		for g := range groups {
			of := choice[g*size:][:size]
			best := ranked(of)
			groups[g] = of[best[0]]
			if !r.GroupByBest && size > 1 {
				groups[g] += of[best[1]]
			}
		}
		for _, g := range ranked(groups)[r.GroupsUsed:] {
			for e := range size {
				choice[g*size+e] = math.Inf(-1)
			}
		}
	}
	sum, chosen := 0.0, ranked(choice)[:to.k]
	for _, e := range chosen {
		sum += scores[e]
	}
	for _, e := range chosen {
		w := scores[e]
		if r.Normalized || r.Gating == tensor.GatingSoftmaxChosen {
			w /= sum
		}
		if r.Scale != 0 {
			w *= float64(r.Scale)
		}
		to.ids, to.weights = append(to.ids, float64(e)), append(to.weights, w)
	}
	to.scores, to.choice = append(to.scores, scores), append(to.choice, choice)
}

// routeOp has {n, experts, k, groups, groups used}. Flags: "softmax", "chosen" or "sigmoid"; "normalized", "bias", "best" (a group's
// score is its best), "ties" (logits of few values), "scaled".
func routeOp() *Op {
	return &Op{
		Name: "Route", NoPTX: true,
		Cases: each([]tensor.DType{tensor.F32},
			Case{Label: "no_tokens", Dims: []int{0, 8, 2, 0, 0}, Flags: "softmax"}, Case{Label: "one", Dims: []int{1, 1, 1, 0, 0}, Flags: "softmax"},
			Case{Label: "none_chosen", Dims: []int{3, 8, 0, 0, 0}, Flags: "softmax"}, Case{Label: "all", Dims: []int{3, 33, 33, 0, 0}, Flags: "chosen"},
			Case{Label: "qwen3moe", Dims: []int{33, 128, 8, 0, 0}, Flags: "softmax_normalized"},
			Case{Label: "qwen2moe", Dims: []int{5, 60, 4, 0, 0}, Flags: "softmax"}, Case{Label: "ties", Dims: []int{17, 255, 9, 0, 0}, Flags: "softmax_ties"},
			Case{Label: "gpt-oss", Dims: []int{7, 32, 4, 0, 0}, Flags: "chosen"}, Case{Label: "llama4", Dims: []int{9, 16, 1, 0, 0}, Flags: "sigmoid"},
			Case{Label: "glm4moe", Dims: []int{9, 128, 8, 0, 0}, Flags: "sigmoid_normalized_bias_scaled"},
			Case{Label: "deepseek-v2", Dims: []int{9, 160, 6, 8, 3}, Flags: "softmax_best_scaled"},
			Case{Label: "deepseek-v3", Dims: []int{9, 256, 8, 8, 4}, Flags: "sigmoid_normalized_bias_scaled"},
			Case{Label: "groups_of_one", Dims: []int{3, 12, 2, 12, 5}, Flags: "sigmoid_bias"},
			Case{Label: "most", Dims: []int{2, 1024, 16, 0, 0}, Flags: "sigmoid_normalized"},
			Case{Label: "qwen3-30b-a3b", Dims: []int{1, 128, 8, 0, 0}, Flags: "softmax_normalized", Bench: true},
			Case{Label: "qwen3-30b-a3b_prompt", Dims: []int{512, 128, 8, 0, 0}, Flags: "softmax_normalized", Bench: true}),
		Inputs: func(g *Generator, c Case) []*Array {
			in := []*Array{g.Scaled(2, tensor.F32, c.Dims[0], c.Dims[1]), nil}
			if hasFlag(c, "ties") {
				in[0] = withTies(g, c.Dims[0], c.Dims[1])
			}
			if hasFlag(c, "bias") {
				in[1] = g.Scaled(0.3, tensor.F32, c.Dims[1])
			}
			return in
		},
		Outputs: func(c Case) []Spec {
			shape := []int{c.Dims[0], c.Dims[2]}
			return []Spec{{tensor.I32, shape}, {tensor.F32, shape}}
		},
		Run: func(out, in []*tensor.Tensor, c Case) {
			tensor.RouteInto(out[0], out[1], in[0], routerOf(c, c.Dims[3], c.Dims[4], in[1]))
		},
		Reference: func(in []*Array, c Case) []Want {
			to := routing{k: c.Dims[2]}
			byRow(in[0].Values, c.Dims[1], func(row []float64) []float64 {
				to.add(row, routerOf(c, c.Dims[3], c.Dims[4], nil), in[1])
				return nil
			})
			return to.wants(routeTolerance(c).Rel)
		},
		Tolerance: routeTolerance,
		Bytes:     func(c Case) int64 { return 4 * int64(c.Dims[0]*c.Dims[1]+2*c.Dims[0]*c.Dims[2]) },
	}
}

func routeTolerance(Case) Tolerance {
	return Tolerance{Rel: 4e-6, Why: "exponentials and sums in float32; an index that is off is off by one at least"}
}

// normRouteOp has {n, cols, experts, k, groups, groups used}. Type is the router's. Flags as Route's, and "plain" (no norm); "ties" are
// experts of equal rows.
func normRouteOp() *Op {
	return &Op{
		Name: "NormRoute", NoPTX: true,
		Cases: append(each([]tensor.DType{tensor.F32},
			Case{Label: "no_tokens", Dims: []int{0, 64, 8, 2, 0, 0}, Flags: "softmax"}, Case{Label: "one", Dims: []int{1, 4, 1, 1, 0, 0}, Flags: "softmax"},
			Case{Label: "none_chosen", Dims: []int{2, 64, 8, 0, 0, 0}, Flags: "softmax"}, Case{Label: "odd", Dims: []int{2, 127, 9, 2, 0, 0}, Flags: "softmax"},
			Case{Label: "gpt-oss", Dims: []int{1, 2880, 32, 4, 0, 0}, Flags: "chosen_bias"}, Case{Label: "all", Dims: []int{1, 256, 40, 40, 0, 0}, Flags: "chosen"},
			Case{Label: "deepseek-v3", Dims: []int{3, 1024, 256, 8, 8, 4}, Flags: "sigmoid_normalized_bias_scaled"},
			Case{Label: "most", Dims: []int{2, 132, 1024, 16, 0, 0}, Flags: "sigmoid_plain"}, Case{Label: "step", Dims: []int{16, 512, 60, 4, 0, 0}, Flags: "softmax"},
			Case{Label: "prompt", Dims: []int{19, 512, 60, 4, 0, 0}, Flags: "softmax_normalized_bias"},
			Case{Label: "few", Dims: []int{3, 256, 68, 32, 0, 0}, Flags: "sigmoid"}, Case{Label: "ties", Dims: []int{2, 64, 124, 9, 0, 0}, Flags: "softmax_ties"},
			Case{Label: "four", Dims: []int{1, 64, 4, 4, 0, 0}, Flags: "softmax"},
			Case{Label: "qwen3-30b-a3b", Dims: []int{1, 2048, 128, 8, 0, 0}, Flags: "softmax_normalized", Bench: true}),
			Case{Label: "half", Type: tensor.F16, Dims: []int{1, 512, 60, 4, 0, 0}, Flags: "softmax"}),
		Inputs: func(g *Generator, c Case) []*Array {
			n, cols, experts := c.Dims[0], c.Dims[1], c.Dims[2]
			in := []*Array{g.Normal(tensor.F32, n, cols), g.Offset(1, tensor.F32, cols), g.Scaled(3/math.Sqrt(float64(cols)), c.Type, experts, cols), nil, nil,
				g.Normal(tensor.F32, n, experts)}
			if hasFlag(c, "plain") {
				in[1] = nil
			}
			if hasFlag(c, "ties") && !g.fast { // experts of seven rows
				for i := range in[2].Values {
					in[2].Values[i] = in[2].Values[i%(7*cols)]
				}
				in[2] = Floats(in[2].Values, experts, cols)
			}
			if hasFlag(c, "bias") {
				in[3] = g.Scaled(0.3, tensor.F32, experts)
				if !hasFlag(c, "chosen") { // scores are known once the experts are: there is none to add a bias to
					in[4] = g.Scaled(0.3, tensor.F32, experts)
				}
			}
			return in
		},
		Outputs: func(c Case) []Spec {
			shape := []int{c.Dims[0], c.Dims[3]}
			return []Spec{{tensor.I32, shape}, {tensor.F32, shape}, {tensor.F32, []int{c.Dims[0], c.Dims[1]}}}
		},
		Run: func(out, in []*tensor.Tensor, c Case) {
			fusedOperations.NormRoute(out[0], out[1], out[2], in[0], fused.Router[*tensor.Tensor, tensor.Router]{Norm: in[1], Router: in[2], RouterBias: in[3],
				Eps: 1e-6, Choice: routerOf(c, c.Dims[4], c.Dims[5], in[4]), Logits: in[5]})
		},
		Reference: func(in []*Array, c Case) []Want {
			cols, experts := c.Dims[1], c.Dims[2]
			to := routing{k: c.Dims[3]}
			var normed []float64
			byRow(in[0].Values, cols, func(row []float64) []float64 {
				squares := 0.0
				for _, v := range row {
					squares += v * v
				}
				h := make([]float64, cols)
				for i, v := range row {
					h[i] = v / math.Sqrt(squares/float64(cols)+1e-6)
					if in[1] != nil {
						h[i] *= in[1].Values[i]
					}
				}
				logits := make([]float64, experts)
				for e := range logits {
					for i, v := range h {
						logits[e] += v * in[2].Values[e*cols+i]
					}
					if in[3] != nil {
						logits[e] += in[3].Values[e]
					}
				}
				to.add(logits, routerOf(c, c.Dims[4], c.Dims[5], nil), in[4])
				normed = append(normed, h...)
				return nil
			})
			return append(to.wants(normRouteTolerance(c).Rel), Want{Values: normed})
		},
		Tolerance: normRouteTolerance,
		Bytes:     func(c Case) int64 { return c.Type.Bytes(c.Dims[1]*c.Dims[2]) + 8*int64(c.Dims[0]*c.Dims[1]) },
	}
}

func normRouteTolerance(c Case) Tolerance {
	if c.Type != tensor.F32 {
		return Tolerance{Rel: 0.02, Why: "logits of the accuracy of vb_linear, in an exponential"}
	}
	return Tolerance{Rel: 3e-5, Why: "logits around 3 in float32, in an exponential; an index that is off is off by one at least"}
}

// expertLinearOp has {n, k, experts, cols, rows}. Type is the weights'. Flags: "each" (a row of x for each choice), "bias", "one" (all
// choose one expert).
func expertLinearOp() *Op {
	var cases []Case
	for _, t := range weightTypes() {
		cases = append(cases,
			Case{Label: "no_tokens", Type: t, Dims: []int{0, 2, 3, 256, 5}}, Case{Label: "small", Type: t, Dims: []int{2, 2, 3, 256, 5}}, Case{Label: "decode", Type: t, Dims: []int{1, 4, 9, 512, 37}},
			Case{Label: "decode", Type: t, Dims: []int{1, 3, 5, 768, 21}, Flags: "each_bias"},
			Case{Label: "few", Type: t, Dims: []int{5, 3, 7, 256, 65}, Flags: "each_bias"},
			Case{Label: "prompt", Type: t, Dims: []int{39, 4, 5, 256, 129}, Flags: "bias"},
			Case{Label: "prompt", Type: t, Dims: []int{70, 2, 11, 512, 33}, Flags: "each"},
			Case{Label: "one_expert", Type: t, Dims: []int{67, 1, 3, 256, 17}, Flags: "one"},
			Case{Label: "whole_tiles", Type: t, Dims: []int{2, 3, 5, 512, 48}, Flags: "bias"}, // whose experts have a packed form
			Case{Label: "whole_tiles", Type: t, Dims: []int{70, 2, 3, 768, 160}, Flags: "each_bias"},
			Case{Label: "qwen3-30b-a3b_up", Type: t, Dims: []int{1, 8, 128, 2048, 768}, Bench: true, Large: true},
			Case{Label: "qwen3-30b-a3b_down", Type: t, Dims: []int{1, 8, 128, 768, 2048}, Flags: "each", Bench: true, Large: true},
			Case{Label: "qwen3-30b-a3b_prompt_up", Type: t, Dims: []int{512, 8, 128, 2048, 768}, Bench: true, Large: true})
		if t == tensor.Q4_K || t == tensor.F32 { // more choices than the CPU takes at a time
			cases = append(cases, Case{Label: "choices", Type: t, Dims: []int{1100, 4, 7, 512, 16}})
		}
		if !t.Quantized() {
			cases = append(cases, Case{Label: "odd_columns", Type: t, Dims: []int{2, 3, 5, 127, 9}}, Case{Label: "odd_columns", Type: t, Dims: []int{33, 2, 3, 129, 7}, Flags: "each_bias"})
		}
	}
	return &Op{
		Name: "ExpertLinear", NoPTX: true, Cases: cases, Packs: []int{1},
		Inputs: func(g *Generator, c Case) []*Array {
			n, k, experts, cols, rows := c.Dims[0], c.Dims[1], c.Dims[2], c.Dims[3], c.Dims[4]
			if experts == 0 {
				panic("no expert to choose")
			}
			w := g.Weight(c.Type, experts*rows, cols)
			w.Shape = []int{experts, rows, cols}
			in := []*Array{g.Normal(tensor.F32, n, cols), w, nil, g.Ints(experts, n, k)}
			if hasFlag(c, "each") {
				in[0] = g.Normal(tensor.F32, n, k, cols)
			}
			if hasFlag(c, "bias") {
				in[2] = g.Normal(tensor.F32, experts, rows)
			}
			if hasFlag(c, "one") {
				in[3] = g.Ints(1, n, k)
			}
			return in
		},
		Outputs: func(c Case) []Spec { return []Spec{{tensor.F32, []int{c.Dims[0], c.Dims[1], c.Dims[4]}}} },
		Run:     func(out, in []*tensor.Tensor, _ Case) { tensor.ExpertLinearInto(out[0], in[0], in[1], in[2], in[3]) },
		Reference: func(in []*Array, c Case) []Want {
			k, cols, rows := c.Dims[1], c.Dims[3], c.Dims[4]
			var w Want
			for choice, id := range in[3].Values {
				x := in[0].Values[choice/k*cols:]
				if hasFlag(c, "each") {
					x = in[0].Values[choice*cols:]
				}
				for r := range rows {
					row, sum, sizes, squares := int(id)*rows+r, 0.0, 0.0, 0.0
					for j := range cols {
						p := x[j] * in[1].Values[row*cols+j]
						sum, sizes, squares = sum+p, sizes+math.Abs(p), squares+p*p
					}
					if in[2] != nil {
						sum += in[2].Values[row]
						sizes += math.Abs(in[2].Values[row])
					}
					if c.Type != tensor.F32 {
						sizes = math.Sqrt(squares) // as Linear
					}
					w.Values, w.Scale = append(w.Values, sum), append(w.Scale, sizes)
				}
			}
			return []Want{w}
		},
		Tolerance: func(c Case) Tolerance {
			if c.Type == tensor.F32 {
				return Tolerance{Rel: 4 * math.Sqrt(float64(c.Dims[3])+1) * 0x1p-24, Why: "as Linear: float32 sums in any order"}
			}
			return Tolerance{RMS: 0.005, Why: "as Linear: activations may be rounded"}
		},
		Bytes: func(c Case) int64 { // each expert once
			n, k, experts, cols, rows := c.Dims[0], c.Dims[1], c.Dims[2], c.Dims[3], c.Dims[4]
			return c.Type.Bytes(min(n*k, experts)*rows*cols) + 4*int64(n*cols+n*k*rows)
		},
		FLOPs: func(c Case) int64 { return 2 * int64(c.Dims[0]*c.Dims[1]*c.Dims[3]*c.Dims[4]) },
	}
}

// expertSumOp has {n, k, cols}. Flags: "add", "plain" (no weights).
func expertSumOp() *Op {
	return &Op{
		Name: "ExpertSum", NoPTX: true, InPlace: true,
		Cases: each([]tensor.DType{tensor.F32},
			Case{Label: "no_tokens", Dims: []int{0, 2, 8}, Flags: "add"}, Case{Label: "one", Dims: []int{1, 1, 1}, Flags: "add"},
			Case{Label: "odd", Dims: []int{3, 5, 127}, Flags: "add"}, Case{Label: "even", Dims: []int{9, 8, 128}, Flags: "add_plain"},
			Case{Label: "qwen3-30b-a3b", Dims: []int{1, 8, 2048}, Flags: "add", Bench: true},
			Case{Label: "qwen3-30b-a3b_prompt", Dims: []int{512, 8, 2048}, Flags: "add", Bench: true, Large: true}),
		Inputs: func(g *Generator, c Case) []*Array {
			in := []*Array{g.Normal(tensor.F32, c.Dims[0], c.Dims[2]), g.Normal(tensor.F32, c.Dims...), g.Normal(tensor.F32, c.Dims[0], c.Dims[1])}
			if hasFlag(c, "plain") {
				in[2] = nil
			}
			return in
		},
		Outputs: func(c Case) []Spec { return []Spec{{tensor.F32, []int{c.Dims[0], c.Dims[2]}}} },
		Run:     func(out, in []*tensor.Tensor, _ Case) { tensor.ExpertSumInto(out[0], in[0], in[1], in[2]) },
		Reference: func(in []*Array, c Case) []Want {
			k, cols := c.Dims[1], c.Dims[2]
			w := Want{Values: make([]float64, len(in[0].Values)), Scale: make([]float64, len(in[0].Values))}
			for i, v := range in[0].Values {
				row, col := i/cols, i%cols
				w.Values[i], w.Scale[i] = v, math.Abs(v)
				for j := row * k; j < (row+1)*k; j++ {
					x := in[1].Values[j*cols+col]
					if in[2] != nil {
						x *= in[2].Values[j]
					}
					w.Values[i] += x
					w.Scale[i] += math.Abs(x)
				}
			}
			return []Want{w}
		},
		Tolerance: func(c Case) Tolerance {
			return Tolerance{Rel: float64(c.Dims[1]+2) * 0x1p-24, Why: "a float32 sum of k + 1 terms, relative to their sizes"}
		},
		FLOPs: func(c Case) int64 { return 2 * elements(c) },
	}
}

// expertFeedForwardOp has {n, k, experts, cols, inner}; in place it adds to its own input. Flags: "bias", "clamped" (gpt-oss's
// activation instead of SiLU), "one" (all choose one expert), "plain" (no weights, nothing added).
func expertFeedForwardOp() *Op {
	cases := each([]tensor.DType{tensor.Q4_K, tensor.Q5_K, tensor.Q6_K, tensor.Q8_0, tensor.MXFP4, tensor.Q4_0, tensor.Q5_0, tensor.Q4_1, tensor.Q5_1, tensor.IQ4_NL, tensor.F16},
		Case{Label: "decode", Dims: []int{1, 4, 9, 256, 512}, Flags: "bias"}, Case{Label: "prompt", Dims: []int{37, 3, 5, 256, 256}, Flags: "bias"})
	cases = append(cases, each([]tensor.DType{tensor.Q4_K, tensor.Q6_K, tensor.MXFP4},
		Case{Label: "no_tokens", Dims: []int{0, 2, 3, 256, 256}}, Case{Label: "one", Dims: []int{1, 1, 1, 256, 256}},
		Case{Label: "decode", Dims: []int{1, 3, 5, 768, 256}, Flags: "clamped_plain"}, Case{Label: "few", Dims: []int{3, 2, 16, 256, 512}, Flags: "one"},
		Case{Label: "step", Dims: []int{7, 4, 11, 512, 256}, Flags: "clamped_bias"}, Case{Label: "prompt", Dims: []int{70, 2, 9, 256, 512}})...)
	cases = append(cases,
		Case{Label: "small", Type: tensor.Q8_0, Dims: []int{2, 2, 3, 64, 32}, Flags: "bias"}, Case{Label: "small", Type: tensor.MXFP4, Dims: []int{1, 3, 4, 32, 64}},
		Case{Label: "one_expert", Type: tensor.Q4_K, Dims: []int{67, 1, 3, 256, 512}, Flags: "one_clamped_bias"},
		Case{Label: "parts_of_tiles", Type: tensor.MXFP4, Dims: []int{1, 4, 5, 960, 992}, Flags: "clamped_bias"},
		Case{Label: "parts_of_tiles", Type: tensor.MXFP4, Dims: []int{17, 2, 3, 960, 992}, Flags: "clamped_bias"},
		Case{Label: "parts_of_tiles", Type: tensor.NVFP4, Dims: []int{1, 4, 5, 960, 1088}, Flags: "clamped_bias"},
		Case{Label: "parts_of_tiles", Type: tensor.NVFP4, Dims: []int{17, 2, 3, 960, 1088}, Flags: "clamped_bias"},
		Case{Label: "many_choices", Type: tensor.MXFP4, Dims: []int{2, 11, 24, 288, 320}, Flags: "clamped_bias"}, // more than biases at a time
		Case{Label: "pairs", Type: tensor.MXFP4, Dims: []int{1, 16, 2, 2144, 544}, Flags: "clamped_bias"},        // two items for each multiprocessor of a large GPU
		Case{Label: "rounds_of_two_tiles", Type: tensor.MXFP4, Dims: []int{1, 4, 5, 160, 2400}, Flags: "clamped_bias"},
		Case{Label: "rounds", Type: tensor.Q4_K, Dims: []int{1, 8, 16, 256, 1024}},                                 // more items than a large GPU has blocks
		Case{Label: "rounds_of_halves", Type: tensor.MXFP4, Dims: []int{2, 4, 6, 2240, 96}, Flags: "clamped_bias"}, // a little more
		Case{Label: "rounds_of_halves", Type: tensor.Q4_K, Dims: []int{1, 3, 5, 2304, 512}})
	for _, n := range []int{1, 2, 8, 16, 32, 64, 512} {
		cases = append(cases,
			Case{Label: "qwen3-30b-a3b", Type: tensor.Q4_K, Dims: []int{n, 8, 128, 2048, 768}, Bench: true, Large: true},
			Case{Label: "qwen3-30b-a3b", Type: tensor.Q6_K, Dims: []int{n, 8, 128, 2048, 768}, Bench: true, Large: true},
			Case{Label: "gpt-oss-20b", Type: tensor.MXFP4, Dims: []int{n, 4, 32, 2880, 2880}, Flags: "clamped_bias", Bench: true, Large: true})
	}
	activation := func(c Case) tensor.Activation {
		if hasFlag(c, "clamped") {
			return tensor.ActivationClampedSiLU(1.702, 7)
		}
		return tensor.ActivationSiLU
	}
	return &Op{
		Name: "ExpertFeedForward", NoPTX: true, Cases: cases, Packs: []int{2, 3, 4}, InPlace: true,
		Inputs: func(g *Generator, c Case) []*Array {
			n, k, experts, cols, inner := c.Dims[0], c.Dims[1], c.Dims[2], c.Dims[3], c.Dims[4]
			if experts == 0 {
				panic("no expert to choose")
			}
			weights := func(rows, cols int) *Array {
				w := g.Weight(c.Type, experts*rows, cols)
				w.Shape = []int{experts, rows, cols}
				return w
			}
			in := []*Array{g.Normal(tensor.F32, n, cols), g.Normal(tensor.F32, n, cols), weights(inner, cols), weights(inner, cols), weights(cols, inner),
				nil, nil, nil, g.Ints(experts, n, k), g.Normal(tensor.F32, n, k), g.Normal(tensor.F32, n*k, inner), g.Normal(tensor.F32, n*k, inner), g.Normal(tensor.F32, n*k, cols)}
			if hasFlag(c, "bias") {
				in[5], in[6], in[7] = g.Normal(tensor.F32, experts, inner), g.Normal(tensor.F32, experts, inner), g.Normal(tensor.F32, experts, cols)
			}
			if hasFlag(c, "one") {
				in[8] = g.Ints(1, n, k)
			}
			if hasFlag(c, "plain") {
				in[9] = nil
			}
			return in
		},
		Outputs: func(c Case) []Spec { return []Spec{{tensor.F32, []int{c.Dims[0], c.Dims[3]}}} },
		Run: func(out, in []*tensor.Tensor, c Case) {
			add := in[0]
			if hasFlag(c, "plain") {
				add = nil
			}
			fusedOperations.ExpertFeedForward(out[0], add, in[1], fused.Experts[*tensor.Tensor, tensor.Activation]{
				Gate: in[2], Up: in[3], Down: in[4], GateBias: in[5], UpBias: in[6], DownBias: in[7], IDs: in[8], Weights: in[9],
				Activation: activation(c), Gated: in[10], Product: in[11], Chosen: in[12],
			})
		},
		Reference: expertFeedForwardReference,
		Tolerance: func(Case) Tolerance {
			return Tolerance{RMS: 0.006, Why: "the contract of vb_linear for three factors, whose independent errors the scale adds up"}
		},
		Bytes: func(c Case) int64 { // each expert once
			n, k, experts, cols, inner := c.Dims[0], c.Dims[1], c.Dims[2], c.Dims[3], c.Dims[4]
			return c.Type.Bytes(3*min(n*k, experts)*inner*cols) + 4*int64(n*cols*3)
		},
		FLOPs: func(c Case) int64 { return 6 * int64(c.Dims[0]*c.Dims[1]*c.Dims[3]*c.Dims[4]) },
	}
}

// expertFeedForwardReference judges each element by what independent errors of its terms add up to.
func expertFeedForwardReference(in []*Array, c Case) []Want {
	k, cols, inner := c.Dims[1], c.Dims[3], c.Dims[4]
	// product adds a row of a matrix times x and its bias, and the squares of the terms.
	product := func(w, bias *Array, row int, x []float64) (sum, squares float64) {
		for j, v := range x {
			p := v * w.Values[row*len(x)+j]
			sum, squares = sum+p, squares+p*p
		}
		if bias != nil {
			sum += bias.Values[row]
		}
		return sum, squares
	}
	out := Want{Values: make([]float64, c.Dims[0]*cols), Scale: make([]float64, c.Dims[0]*cols)}
	if !hasFlag(c, "plain") {
		copy(out.Values, in[0].Values)
	}
	gated, errors := make([]float64, inner), make([]float64, inner)
	for choice, id := range in[8].Values {
		token, e, weight := choice/k, int(id), 1.0
		if in[9] != nil {
			weight = in[9].Values[choice]
		}
		x := in[1].Values[token*cols:][:cols]
		for r := range inner {
			gate, gateSquares := product(in[2], in[5], e*inner+r, x)
			up, upSquares := product(in[3], in[6], e*inner+r, x)
			activated := gate / (1 + math.Exp(-gate))
			if hasFlag(c, "clamped") {
				gate, up = math.Min(gate, 7), math.Max(-7, math.Min(up, 7))+1
				activated = gate / (1 + math.Exp(-1.702*gate))
			}
			gated[r] = activated * up
			// Errors of either factor, times the other; slopes of activations are at most 1.1.
			errors[r] = 1.21*gateSquares*up*up + upSquares*activated*activated
		}
		for r := range cols {
			sum, squares := product(in[4], in[7], e*cols+r, gated)
			for j, v := range errors {
				w := in[4].Values[(e*cols+r)*inner+j]
				squares += w * w * v
			}
			out.Values[token*cols+r] += weight * sum
			out.Scale[token*cols+r] += weight * weight * squares
		}
	}
	for i, v := range out.Scale {
		out.Scale[i] = math.Sqrt(v)
	}
	return []Want{out}
}
