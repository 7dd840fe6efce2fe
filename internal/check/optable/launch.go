package optable

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/tensor"
)

// Vary returns a case some of whose dimensions, type and flags are another case's, or random.
func (op *Op) Vary(c Case, rng *rand.Rand) Case {
	other := func() Case { return op.Cases[rng.IntN(len(op.Cases))] }
	switch rng.IntN(4) {
	case 0:
		c.Flags = other().Flags
	case 1:
		c.Flags = mixed(rng, c.Flags, other().Flags)
	}
	switch rng.IntN(4) {
	case 0:
		c.Type = other().Type
	case 1:
		if all := weightTypes(); c.Type.Quantized() {
			c.Type = all[rng.IntN(len(all))]
		}
	}
	c.Dims = slices.Clone(c.Dims)
	for range rng.IntN(4) {
		if at := rng.IntN(max(1, len(c.Dims))); at < len(c.Dims) {
			c.Dims[at] = variedSize(rng, c.Dims[at])
		}
	}
	return c
}

// mixed returns flags that are each of one case or the other: "a_b" and "c_d" make "a_d".
func mixed(rng *rand.Rand, a, b string) string {
	between := "_"
	if strings.Contains(a+b, "-") {
		between = "-"
	}
	of, others := strings.Split(a, between), strings.Split(b, between)
	for i := range min(len(of), len(others)) {
		if rng.IntN(2) == 0 {
			of[i] = others[i]
		}
	}
	return strings.Join(of, between)
}

// variedSize returns a size near n, or one as likely of any magnitude that often is a multiple of a power of two.
func variedSize(rng *rand.Rand, n int) int {
	size, part := 1+rng.IntN(1<<rng.IntN(19)), 1<<rng.IntN(9)
	switch rng.IntN(8) {
	case 0:
		return n + 1
	case 1:
		return 1 + rng.IntN(max(1, n))
	case 2:
		return n + n/2
	case 3:
		return size
	}
	return (size + part - 1) / part * part
}

// Launch calls the operation for each variant of the case, on a device that notes kernels and runs none: operands have sizes and no
// values. Some begin at an odd element, or are every other element of longer rows. Sizes that do not fit each other are passed over.
func (op *Op) Launch(d *gpu.Device, c Case, rng *rand.Rand) {
	defer func() { recover() }()
	in := op.Inputs(&Generator{rng: rng, most: math.MaxInt, shapes: true}, c)
	for _, v := range op.variants(c, in) {
		op.launch(d, c, in, v, rng)
	}
}

func (op *Op) launch(d *gpu.Device, c Case, in []*Array, v variant, rng *rand.Rand) {
	var made []*tensor.Tensor
	defer func() {
		for _, t := range made {
			t.Free()
		}
	}()
	from, apart := 0, 0
	switch rng.IntN(6) {
	case 0:
		from = 1 << rng.IntN(4)
	case 1:
		apart = 1 << rng.IntN(6)
	}
	place := func(t tensor.DType, shape []int) *tensor.Tensor {
		if t.Quantized() {
			made = append(made, made1(tensor.New(d.Stream(), t, shape...)))
			return made[len(made)-1]
		}
		if last := len(shape) - 1; apart > 0 && last > 0 {
			wide := slices.Clone(shape)
			wide[last] += apart
			made = append(made, made1(tensor.New(d.Stream(), t, wide...)))
			return made[len(made)-1].SliceAlong(last, 0, shape[last], 1)
		}
		made = append(made, made1(tensor.New(d.Stream(), t, from+product(shape))))
		return made[len(made)-1].Slice(from, from+product(shape)).Reshape(shape...)
	}
	ins := make([]*tensor.Tensor, len(in))
	for i, a := range in {
		if a != nil {
			ins[i] = place(a.Type, a.Shape)
		}
	}
	if v.packed {
		for _, i := range op.Packs {
			if ins[i].Pack() != nil {
				return
			}
		}
	}
	apart = 0 // results have no gaps
	var outs []*tensor.Tensor
	for i, s := range op.Outputs(c) {
		if i < op.InOut || i == 0 && v.inPlace {
			outs = append(outs, ins[i])
		} else {
			outs = append(outs, place(s.Type, s.Shape))
		}
	}
	tensor.Try(func() { op.Run(outs, ins, c) }) // a refusal launches nothing
}

func made1(t *tensor.Tensor, err error) *tensor.Tensor {
	if err != nil {
		panic(err)
	}
	return t
}
