package optable

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/tensor"
)

// Check runs one case on a device against the reference, and again in place and with packed weights where the operation
// has these, and returns the greatest error in units of the tolerance's measure.
func (op *Op) Check(d *gpu.Device, c Case, seed uint64) (worst float64, err error) {
	return op.CheckEach([]*gpu.Device{d}, c, seed)
}

// CheckEach is Check on several devices, with one computation of the reference, which takes most of the time.
func (op *Op) CheckEach(devices []*gpu.Device, c Case, seed uint64) (worst float64, err error) {
	in := op.Inputs(NewGenerator(seed), c)
	want := op.Reference(copies(in), c)
	for _, d := range devices {
		e, err := op.checkVariants(d, c, in, want)
		if err != nil && len(devices) > 1 {
			err = fmt.Errorf("%s: %w", d.Info().Features, err)
		}
		if err != nil {
			return e, err
		}
		worst = math.Max(worst, e)
	}
	return worst, nil
}

func (op *Op) checkVariants(d *gpu.Device, c Case, in []*Array, want []Want) (worst float64, err error) {
	variants := []variant{{}}
	if op.InPlace && in[0] != nil {
		variants = append(variants, variant{inPlace: true})
	}
	if len(op.Packs) > 0 && c.Type.Quantized() {
		variants = append(variants, variant{packed: true})
	}
	for _, v := range variants {
		e, err := op.check(d, c, in, want, v)
		if err != nil {
			return math.Inf(1), fmt.Errorf("%v%w", v, err)
		}
		worst = math.Max(worst, e)
	}
	return worst, nil
}

// copies returns arrays whose values may be changed.
func copies(in []*Array) []*Array {
	out := make([]*Array, len(in))
	for i, a := range in {
		if a != nil {
			c := *a
			c.Values = slices.Clone(a.Values)
			out[i] = &c
		}
	}
	return out
}

type variant struct{ inPlace, packed bool }

func (v variant) String() string {
	switch {
	case v.inPlace:
		return "in place: "
	case v.packed:
		return "packed: "
	}
	return ""
}

// guard is how many bytes after each output must not change.
const guard = 256

func (op *Op) check(d *gpu.Device, c Case, in []*Array, want []Want, v variant) (worst float64, err error) {
	var made []*tensor.Tensor
	defer func() {
		for _, t := range made {
			t.Free()
		}
	}()
	// place puts an array on the device, with bytes after it that must not change; quantized ones, which cannot be cut
	// anywhere, without, and where they are only read in place.
	place := func(t tensor.DType, shape []int, raw []byte, written bool) (whole, x *tensor.Tensor, err error) {
		if t.Quantized() && written {
			if x, err = tensor.New(d.Stream(), t, shape...); err == nil {
				made = append(made, x)
				err = x.WriteBytes(raw)
			}
			return x, x, err
		}
		if t.Quantized() {
			x, err = tensor.FromMemory(d, t, raw, nil, shape...)
			if err == nil {
				made = append(made, x)
			}
			return x, x, err
		}
		n := product(shape)
		whole, err = tensor.New(d.Stream(), t, n+guard/t.BlockBytes())
		if err != nil {
			return nil, nil, err
		}
		made = append(made, whole)
		return whole, whole.Slice(0, n).Reshape(shape...), whole.WriteBytes(append(bytes.Clone(raw), bytes.Repeat([]byte{0xff}, guard)...))
	}

	ins := make([]*tensor.Tensor, len(in))
	wholes := make([]*tensor.Tensor, len(in))
	for i, a := range in {
		if a == nil {
			continue
		}
		if wholes[i], ins[i], err = place(a.Type, a.Shape, a.Raw, i < op.InOut); err != nil {
			return 0, err
		}
	}
	if v.packed {
		for _, i := range op.Packs {
			if err := ins[i].Pack(); err != nil {
				return 0, err
			}
		}
	}
	var outs, outWholes []*tensor.Tensor
	for i, s := range op.Outputs(c) {
		if i < op.InOut || i == 0 && v.inPlace {
			outs, outWholes = append(outs, ins[i]), append(outWholes, wholes[i])
			continue
		}
		whole, x, err := place(s.Type, s.Shape, bytes.Repeat([]byte{0xff}, int(s.Type.Bytes(s.Elements()))), true)
		if err != nil {
			return 0, err
		}
		outs, outWholes = append(outs, x), append(outWholes, whole)
	}

	if err := tensor.Try(func() { op.Run(outs, ins, c) }); err != nil {
		return 0, err
	}
	if err := d.Stream().Synchronize(); err != nil { // a device may refuse arguments when it comes to them
		return 0, err
	}
	tol := op.Tolerance(c)
	for i, w := range want {
		raw := make([]byte, outWholes[i].Bytes())
		if err := outWholes[i].ReadBytes(raw); err != nil {
			return 0, err
		}
		data := raw
		if !outs[i].DType().Quantized() {
			data = raw[:len(raw)-guard]
		}
		for j, b := range raw[len(data):] {
			if b != 0xff {
				return 0, fmt.Errorf("output %d: byte %d after its end was overwritten", i, j)
			}
		}
		e, err := compare(decode(data, outs[i].DType(), len(w.Values)), w, tol)
		if err != nil {
			return 0, fmt.Errorf("output %d: %w", i, err)
		}
		worst = math.Max(worst, e)
	}
	return worst, nil
}

// compare returns the greatest error, relative to the scale, or an error if any element is outside the tolerance.
// Everything that is not clearly inside fails: NaN and infinities unless both agree, and missing elements.
func compare(got []float64, w Want, tol Tolerance) (worst float64, err error) {
	if len(got) != len(w.Values) || w.Scale != nil && len(w.Scale) != len(got) {
		return math.Inf(1), fmt.Errorf("%d elements, want %d", len(got), len(w.Values))
	}
	diff, norm := 0.0, 0.0
	for i, g := range got {
		want := w.Values[i]
		scale := math.Abs(want)
		if w.Scale != nil {
			scale = w.Scale[i]
		}
		norm += math.Max(want*want, scale*scale) // a sum that cancels to next to nothing is judged by its terms
		if math.IsNaN(want) && math.IsNaN(g) || g == want || w.Alike != nil && w.Alike(got, i) {
			continue
		}
		d := math.Abs(g - want)
		if math.IsNaN(d) || math.IsInf(d, 0) {
			return math.Inf(1), fmt.Errorf("element %d of %d is %v, want %v", i, len(got), g, want)
		}
		diff += d * d
		if tol.RMS > 0 {
			continue
		}
		if !(d <= tol.Abs+tol.Rel*scale) {
			return math.Inf(1), fmt.Errorf("element %d of %d is %v, want %v: off by %.2g, allowed %.2g + %.2g * %.3g (%s)",
				i, len(got), g, want, d, tol.Abs, tol.Rel, scale, tol.Why)
		}
		if scale > 0 {
			worst = math.Max(worst, d/scale)
		}
	}
	if tol.RMS == 0 {
		return worst, nil
	}
	if diff == 0 {
		return 0, nil
	}
	worst = math.Sqrt(diff / norm)
	allowed := tol.RMS * (1 + 3/math.Sqrt(float64(len(got)))) // three deviations of an RMS over so few elements
	if !(worst <= allowed) {
		return math.Inf(1), fmt.Errorf("relative RMS error %.3g, allowed %.3g (%s)", worst, allowed, tol.Why)
	}
	return worst, nil
}
