package optable

import (
	"math/rand/v2"
	"slices"

	"github.com/vibrant-ml/vibrant/gpu"
)

// mostDrawn bounds the product of a draw's dimensions, for references are slow.
const mostDrawn = 1 << 16

// Drawn is a case of random dimensions with its operands and what the outputs should be.
type Drawn struct {
	Case
	op   *Op
	in   []*Array
	want []Want
}

// Check runs the case on a device as Op.Check does.
func (d *Drawn) Check(device *gpu.Device) error {
	_, err := d.op.checkVariants(device, d.Case, d.in, d.want)
	return err
}

// Draw makes the draw of a number: a case of random dimensions out of one of the operation's, some of which become 0, 1, odd or another
// case's. It returns nil where it finds none that operands and a reference can be made for.
func (op *Op) Draw(number uint64) *Drawn {
	rng := rand.New(rand.NewPCG(number, 2026))
	for range 20 {
		c := op.Cases[rng.IntN(len(op.Cases))]
		if c.Large {
			continue
		}
		dims := append([]int(nil), c.Dims...)
		for range 1 + rng.IntN(2) {
			at := rng.IntN(max(1, len(dims)))
			if at < len(dims) {
				dims[at] = op.drawSize(rng, dims[at], at)
			}
		}
		c.Label, c.Dims, c.Bench = "draw", dims, false
		if product(dims) <= mostDrawn {
			if d := op.drawn(c, number); d != nil {
				return d
			}
		}
	}
	return nil
}

// drawSize returns a size for a dimension that is n in some case.
func (op *Op) drawSize(rng *rand.Rand, n, at int) int {
	switch rng.IntN(6) {
	case 0:
		return 0
	case 1:
		return 1
	case 2:
		return n + 1
	case 3:
		return max(0, n-1)
	case 4:
		return 2*rng.IntN(100) + 1
	}
	if other := op.Cases[rng.IntN(len(op.Cases))].Dims; at < len(other) {
		return other[at]
	}
	return n
}

// drawn makes operands and reference of a case, nil where they cannot be made: generators index by dimensions that must fit each other.
func (op *Op) drawn(c Case, seed uint64) (d *Drawn) {
	defer func() {
		if recover() != nil {
			d = nil
		}
	}()
	g := NewGenerator(seed)
	g.most = 4 * mostDrawn // a dimension of 0 hides the others from the product of dimensions
	in := op.Inputs(g, c)
	total := 0
	for _, a := range in {
		if a != nil {
			if slices.ContainsFunc(a.Shape, func(n int) bool { return n < 0 }) {
				return nil
			}
			total += product(a.Shape)
		}
	}
	for _, s := range op.Outputs(c) {
		total += s.Elements()
	}
	if total > 4*mostDrawn {
		return nil
	}
	return &Drawn{c, op, in, op.Reference(copies(in), c)}
}

// eachItsPlace panics, which takes a draw back, where elements share a place, as tokens of one sequence a slot of the cache: which of
// them stays is not said.
func eachItsPlace(elements, places int) {
	if elements > places {
		panic("elements share a place")
	}
}
