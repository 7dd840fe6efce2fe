package optable

import (
	"math"

	"github.com/vibrant-ml/vibrant/tensor"
)

// lengths are the cases of operations on flat arrays.
var lengths = []Case{
	{Label: "empty", Dims: []int{0}}, {Label: "one", Dims: []int{1}}, {Label: "odd", Dims: []int{127}},
	{Label: "even", Dims: []int{128}}, {Label: "odd", Dims: []int{255}}, {Label: "odd_long", Dims: []int{20481}},
	{Label: "qwen2.5-3b_hidden", Dims: []int{2048}}, {Label: "64Mi", Dims: []int{64 << 20}, Bench: true, Large: true},
}

// extremes are where an exponential overflows, or loses a sign.
var extremes = []float64{-1000, -100, -88, -50, 0, 50, 88, 100, 1000, math.Inf(1), math.NaN()}

// withExtremes adds the case of these inputs to a row.
func withExtremes(op *Op) *Op {
	op.Cases = append(op.Cases, Case{Label: "extremes", Type: tensor.F32, Dims: []int{len(extremes)}, Flags: "extremes"})
	return op
}

// mapOp is a row for out[i] = f(a[i], b[i], ...) with the given number of inputs.
func mapOp(name string, inputs int, run func(out, in []*tensor.Tensor), f func(x []float64) float64, rel float64, why string) *Op {
	return &Op{
		Name: name, Cases: each(floats, lengths...), InPlace: true,
		Inputs: func(g *Generator, c Case) []*Array {
			in := make([]*Array, inputs)
			for i := range in {
				in[i] = g.Normal(c.Type, c.Dims...)
			}
			if c.Flags == "extremes" {
				in[0] = Floats(extremes, c.Dims...)
			}
			return in
		},
		Outputs: func(c Case) []Spec { return []Spec{{c.Type, c.Dims}} },
		Run:     func(out, in []*tensor.Tensor, _ Case) { run(out, in) },
		Reference: func(in []*Array, c Case) []Want {
			out := make([]float64, c.Dims[0])
			x := make([]float64, inputs)
			for i := range out {
				for j := range x {
					x[j] = in[j].Values[i]
				}
				out[i] = f(x)
			}
			return []Want{{Values: out}}
		},
		Tolerance: func(c Case) Tolerance { return Tolerance{Rel: rel + 2*epsilon(c.Type), Abs: 1e-7, Why: why} },
		FLOPs:     func(c Case) int64 { return int64(c.Dims[0]) },
	}
}

func silu(x float64) float64 { return x / (1 + math.Exp(-x)) }

// scalar is what MulScalar multiplies with: no power of two, so that rounding shows.
const scalar = float32(0.7)

func elementwiseOps() []*Op {
	const exp = 4e-7 // expf and the division are a few units in the last place off on every backend
	return []*Op{
		mapOp("Add", 2, func(out, in []*tensor.Tensor) { tensor.AddInto(out[0], in[0], in[1]) },
			func(x []float64) float64 { return x[0] + x[1] }, 0, "one rounding"),
		mapOp("Mul", 2, func(out, in []*tensor.Tensor) { tensor.MulInto(out[0], in[0], in[1]) },
			func(x []float64) float64 { return x[0] * x[1] }, 0, "one rounding"),
		mapOp("MulScalar", 1, func(out, in []*tensor.Tensor) { tensor.MulScalarInto(out[0], in[0], scalar) },
			func(x []float64) float64 { return x[0] * float64(scalar) }, 0, "one rounding"),
		withExtremes(mapOp("SiLU", 1, func(out, in []*tensor.Tensor) { tensor.SiLUInto(out[0], in[0]) },
			func(x []float64) float64 { return silu(x[0]) }, exp, "exp in float32")),
		mapOp("GELU", 1, func(out, in []*tensor.Tensor) { tensor.GELUInto(out[0], in[0]) },
			func(x []float64) float64 { return x[0] / 2 * math.Erfc(-x[0]/math.Sqrt2) }, 8e-6,
			"an exponential in float32 of up to -x^2 / 2, whose rounding it multiplies"),
		mapOp("GELUTanh", 1, func(out, in []*tensor.Tensor) { tensor.GELUTanhInto(out[0], in[0]) },
			func(x []float64) float64 {
				return x[0] / (1 + math.Exp(-2*math.Sqrt(2/math.Pi)*(x[0]+0.044715*x[0]*x[0]*x[0])))
			}, 8e-6, "as GELU"),
		mapOp("SwiGLU", 2, func(out, in []*tensor.Tensor) { tensor.SwiGLUInto(out[0], in[0], in[1]) },
			func(x []float64) float64 { return silu(x[0]) * x[1] }, exp, "exp in float32"),
		gluOp("GLU_SiLU", tensor.ActivationSiLU, func(g, u float64) float64 { return silu(g) * u }, exp, "exp in float32"),
		gluOp("GLU_GELU", tensor.ActivationGELU, func(g, u float64) float64 { return g / 2 * math.Erfc(-g/math.Sqrt2) * u }, 8e-6, "as GELU"),
		gluOp("GLU_GELUTanh", tensor.ActivationGELUTanh, func(g, u float64) float64 {
			return g / (1 + math.Exp(-2*math.Sqrt(2/math.Pi)*(g+0.044715*g*g*g))) * u
		}, 8e-6, "as GELU"),
		gluOp("GLU_ReLUSquared", tensor.ActivationReLUSquared, func(g, u float64) float64 { return math.Pow(max(g, 0), 2) * u },
			2e-7, "two roundings"),
		// A limit of 0.9 cuts a third of normally distributed values.
		gluOp("GLU_ClampedSiLU", tensor.ActivationClampedSiLU(1.702, 0.9), func(g, u float64) float64 {
			limit := float64(float32(0.9))
			x, y := min(g, limit), max(-limit, min(u, limit))
			return x / (1 + math.Exp(-float64(float32(1.702))*x)) * (y + 1)
		}, 2e-6, "as SiLU; up + 1 cancels where up is near -limit"),
		withExtremes(mapOp("Sigmoid", 1, func(out, in []*tensor.Tensor) { tensor.SigmoidInto(out[0], in[0]) },
			func(x []float64) float64 { return 1 / (1 + math.Exp(-x[0])) }, exp, "exp in float32")),
		mapOp("SoftCap", 1, func(out, in []*tensor.Tensor) { tensor.SoftCapInto(out[0], in[0], 2.5) },
			func(x []float64) float64 { return 2.5 * math.Tanh(x[0]/2.5) }, exp, "an exponential, or a polynomial near 0, in float32"),
		mapOp("Copy", 1, func(out, in []*tensor.Tensor) { tensor.CopyInto(out[0], in[0]) },
			func(x []float64) float64 { return x[0] }, 0, "bits are copied; the tolerance is that of its family"),
		convertOp(), incrementOp(),
	}
}

// gluOp is a row for GLU with one activation.
func gluOp(name string, act tensor.Activation, f func(g, u float64) float64, rel float64, why string) *Op {
	return mapOp(name, 2, func(out, in []*tensor.Tensor) { tensor.GLUInto(out[0], in[0], in[1], act) },
		func(x []float64) float64 { return f(x[0], x[1]) }, rel, why)
}

// convertOp converts every type to F32, and the float types to each other (Flags names the target).
func convertOp() *Op {
	var cases []Case
	add := func(to tensor.DType, c Case) { c.Flags = "to_" + to.String(); cases = append(cases, c) }
	for _, from := range floats {
		for _, to := range floats {
			for _, c := range each([]tensor.DType{from}, lengths...) {
				if from != to && (!c.Bench || to == tensor.F16) {
					add(to, c)
				}
			}
		}
	}
	for _, from := range weightTypes() {
		if b := from.BlockSize(); b > 1 {
			add(tensor.F32, Case{Label: "blocks", Type: from, Dims: []int{33 * 256}})
		}
	}
	target := func(c Case) tensor.DType {
		for _, t := range floats {
			if c.Flags == "to_"+t.String() {
				return t
			}
		}
		panic("optable: " + c.Flags)
	}
	return &Op{
		Name: "Convert", Cases: cases,
		Inputs: func(g *Generator, c Case) []*Array {
			a := g.Weight(c.Type, 1, c.Dims[0])
			a.Shape = c.Dims
			return []*Array{a}
		},
		Outputs: func(c Case) []Spec { return []Spec{{target(c), c.Dims}} },
		Run:     func(out, in []*tensor.Tensor, _ Case) { tensor.ConvertInto(out[0], in[0]) },
		Reference: func(in []*Array, _ Case) []Want {
			return []Want{{Values: in[0].Values}}
		},
		Tolerance: func(c Case) Tolerance {
			if target(c) == tensor.F32 {
				return Tolerance{Rel: 1e-7, Abs: 1e-9, Why: "the product of a block's scale and value is rounded once"}
			}
			return Tolerance{Rel: epsilon(target(c)), Abs: 0x1p-25, Why: "one rounding, or half the smallest subnormal"}
		},
	}
}

func incrementOp() *Op {
	return &Op{
		Name: "IncrementI32", InOut: 1,
		Cases:   each([]tensor.DType{tensor.I32}, Case{Label: "empty", Dims: []int{0}}, Case{Label: "one", Dims: []int{1}, Bench: true}, Case{Label: "odd", Dims: []int{255}}),
		Inputs:  func(g *Generator, c Case) []*Array { return []*Array{g.Ints(1<<30, c.Dims...)} },
		Outputs: func(c Case) []Spec { return []Spec{{tensor.I32, c.Dims}} },
		Run:     func(out, _ []*tensor.Tensor, _ Case) { tensor.IncrementI32(out[0]) },
		Reference: func(in []*Array, _ Case) []Want {
			for i := range in[0].Values {
				in[0].Values[i]++
			}
			return []Want{{Values: in[0].Values}}
		},
		Tolerance: func(Case) Tolerance { return Tolerance{Why: "integers are exact"} },
	}
}
