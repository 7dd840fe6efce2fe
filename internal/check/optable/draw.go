package optable

import (
	"math/rand/v2"
	"slices"
)

// mostDrawn bounds the product of a draw's dimensions, for references are slow.
const mostDrawn = 1 << 16

// Draw makes a case of random dimensions out of one of the operation's: some of them become 0, 1, odd or another case's. It reports
// false where it finds none that operands and a reference can be made for.
func (op *Op) Draw(rng *rand.Rand) (Case, bool) {
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
		if product(dims) <= mostDrawn && op.possible(c) {
			return c, true
		}
	}
	return Case{}, false
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

// possible reports whether operands, outputs and a reference of a case can be made: generators index by dimensions that must fit
// each other.
func (op *Op) possible(c Case) (ok bool) {
	defer func() { ok = recover() == nil && ok }()
	in := op.Inputs(NewGenerator(1), c)
	total := 0
	for _, a := range in {
		if a != nil {
			if slices.ContainsFunc(a.Shape, func(n int) bool { return n < 0 }) {
				return false
			}
			total += product(a.Shape)
		}
	}
	for _, s := range op.Outputs(c) {
		total += s.Elements()
	}
	if total > 4*mostDrawn {
		return false
	}
	op.Reference(copies(in), c)
	return true
}

// eachItsSlot panics, which takes a draw back, where tokens of one sequence share a slot of the cache: which of them stays is not said.
func eachItsSlot(tokens, capacity int) {
	if tokens > capacity {
		panic("tokens share a slot")
	}
}
