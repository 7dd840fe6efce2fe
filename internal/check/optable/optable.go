// Package optable is the table of operations: for each its shapes, types, tolerance with the reason for it, the bytes it
// moves, its floating-point operations, and a float64 reference written to be obviously right.
//
// One row drives the tests on every backend (TestOps in package tensor, by Check) and the benchmark with its percent of
// the roofline (Bench).
package optable

import (
	"fmt"
	"strings"

	"github.com/vibrant-ml/vibrant/tensor"
)

// Op is one row: an operation and the cases in which it is tested and measured.
type Op struct {
	Name  string
	Cases []Case

	Inputs  func(g *Generator, c Case) []*Array // operands, some of which may be nil
	Outputs func(c Case) []Spec
	Run     func(out, in []*tensor.Tensor, c Case) // enqueues the operation
	// Reference computes the outputs in float64. It may scribble on its inputs.
	Reference func(in []*Array, c Case) []Want
	Tolerance func(c Case) Tolerance

	InPlace bool               // the first output may be the first input; tested both ways
	InOut   int                // this many inputs are also what the outputs hold before: caches, counters
	Packs   []int              // the inputs that may be packed for the device
	NoPTX   bool               // no kernel in PTX: such devices say that they lack it
	Bytes   func(c Case) int64 // read and written; nil for every input and output once
	FLOPs   func(c Case) int64 // nil for what is bound by memory at any size
}

// Case is one shape and type of an operation.
type Case struct {
	Label string // what is special: "odd_columns", "qwen2.5-3b_ffn_down"
	Type  tensor.DType
	Dims  []int // what they mean is the operation's business
	Flags string
	Bench bool // measured
	Large bool // only measured: the reference would take too long
	// so many rows that each block of a large GPU has several; a CPU takes the other cases, of fewer rows, in the same way
	Wide bool
}

// Name is the case's part of a test's name: label, dimensions, type, flags.
func (c Case) Name() string {
	dims := strings.ReplaceAll(strings.Trim(fmt.Sprint(c.Dims), "[]"), " ", "x")
	parts := []string{c.Label, dims, c.Type.String(), c.Flags}
	var kept []string
	for _, p := range parts {
		if p != "" {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, "_")
}

// Spec is the type and shape of an output.
type Spec struct {
	Type  tensor.DType
	Shape []int
}

// Elements returns the product of the shape.
func (s Spec) Elements() int { return product(s.Shape) }

// Want is what an output should be. An element may be off by Tolerance.Rel times its scale, which is its own size where
// Scale is nil: sums of many terms are judged by the size of the terms.
type Want struct {
	Values []float64
	Scale  []float64
	Alike  func(got []float64, i int) bool // whether element i is as good as the wanted one, where it is another
}

// Tolerance bounds the error of an operation.
type Tolerance struct {
	Rel float64 // of each element, relative to its scale
	Abs float64 // of each element, added
	RMS float64 // if not 0: of the whole output, relative to its RMS or that of its scale, instead of the above
	Why string
}

func product(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// Table lists all operations, in the order of vibrant.h.
func Table() []*Op {
	var all []*Op
	for _, family := range [][]*Op{elementwiseOps(), rowOps(), columnOps(), mapOps(), reduceOps(), sortOps(), indexOps(), matrixOps(), ternaryOps(), adapterOps(), expertOps(), transformerOps(), recurrenceOps(), fusedOps()} {
		all = append(all, family...)
	}
	return all
}

// epsilon is half a step of rounding to a type, relative.
func epsilon(t tensor.DType) float64 {
	switch t {
	case tensor.F16:
		return 0x1p-11
	case tensor.BF16:
		return 0x1p-8
	}
	return 0x1p-24
}

// underflow is half the smallest subnormal of a type: rounding may take this from a value, however small the value is. Drawn
// values are of the order of 1, where F32 and BF16 do not get near theirs; a product of two of them does in F16.
func underflow(t tensor.DType) float64 {
	if t == tensor.F16 {
		return 0x1p-25
	}
	return 0
}

var floats = []tensor.DType{tensor.F32, tensor.F16, tensor.BF16}

// each makes the cases of all types.
func each(types []tensor.DType, cases ...Case) []Case {
	var all []Case
	for _, t := range types {
		for _, c := range cases {
			c.Type = t
			all = append(all, c)
		}
	}
	return all
}
