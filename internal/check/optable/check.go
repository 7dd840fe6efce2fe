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
// has these. It returns the greatest error in units of the tolerance's measure.
func (op *Op) Check(d *gpu.Device, c Case, seed uint64) (worst float64, err error) {
	return op.CheckEach([]*gpu.Device{d}, c, seed)
}

// CheckEach is Check on several devices, with one computation of the reference, which takes most of the time.
func (op *Op) CheckEach(devices []*gpu.Device, c Case, seed uint64) (worst float64, err error) {
	in := op.Inputs(NewGenerator(seed), c)
	want := op.Reference(in, c) // which may write to the values of in; devices get their bytes
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
	for _, v := range op.variants(c, in) {
		e, err := op.check(d, c, in, want, v)
		if err != nil {
			return math.Inf(1), fmt.Errorf("%v%w", v, err)
		}
		worst = math.Max(worst, e)
	}
	return worst, nil
}

// variants are the ways to run a case: plainly, in place and with packed weights where the operation has these.
func (op *Op) variants(c Case, in []*Array) []variant {
	all := []variant{{}}
	if op.InPlace && in[0] != nil {
		all = append(all, variant{inPlace: true})
	}
	if len(op.Packs) > 0 && c.Type.Quantized() {
		all = append(all, variant{packed: true})
	}
	return all
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

// operands are a case's tensors on a device. A whole has the bytes after a tensor that must not change too.
type operands struct {
	ins, inWholes, outs, outWholes, made []*tensor.Tensor
}

func (o *operands) free() {
	for _, t := range o.made {
		t.Free()
	}
}

// place puts an array on the device, with bytes after it that must not change; quantized ones, which cannot be cut
// anywhere, without, and where they are only read in place.
func (o *operands) place(d *gpu.Device, t tensor.DType, shape []int, raw []byte, written bool) (whole, x *tensor.Tensor, err error) {
	if t.Quantized() && written {
		if x, err = tensor.New(d.Stream(), t, shape...); err == nil {
			o.made = append(o.made, x)
			err = x.WriteBytes(raw)
		}
		return x, x, err
	}
	if t.Quantized() {
		x, err = tensor.FromMemory(d, t, raw, nil, shape...)
		if err == nil {
			o.made = append(o.made, x)
		}
		return x, x, err
	}
	n := product(shape)
	whole, err = tensor.New(d.Stream(), t, n+guard/t.BlockBytes())
	if err != nil {
		return nil, nil, err
	}
	o.made = append(o.made, whole)
	return whole, whole.Slice(0, n).Reshape(shape...), whole.WriteBytes(guarded(raw))
}

// guarded returns what a whole holds before an operation.
func guarded(raw []byte) []byte {
	whole := make([]byte, len(raw)+guard)
	for i := copy(whole, raw); i < len(whole); i++ {
		whole[i] = 0xff
	}
	return whole
}

// operands makes a case's tensors. Outputs hold bytes of 0xff.
func (op *Op) operands(d *gpu.Device, c Case, in []*Array, v variant) (_ *operands, err error) {
	o := &operands{ins: make([]*tensor.Tensor, len(in)), inWholes: make([]*tensor.Tensor, len(in))}
	defer func() {
		if err != nil {
			o.free()
		}
	}()
	for i, a := range in {
		if a == nil {
			continue
		}
		if o.inWholes[i], o.ins[i], err = o.place(d, a.Type, a.Shape, a.Raw, i < op.InOut); err != nil {
			return nil, err
		}
	}
	if v.packed {
		for _, i := range op.Packs {
			if err := o.ins[i].Pack(); err != nil {
				return nil, err
			}
		}
	}
	for i, s := range op.Outputs(c) {
		if i < op.InOut || i == 0 && v.inPlace {
			o.outs, o.outWholes = append(o.outs, o.ins[i]), append(o.outWholes, o.inWholes[i])
			continue
		}
		whole, x, err := o.place(d, s.Type, s.Shape, bytes.Repeat([]byte{0xff}, int(s.Type.Bytes(s.Elements()))), true)
		if err != nil {
			return nil, err
		}
		o.outs, o.outWholes = append(o.outs, x), append(o.outWholes, whole)
	}
	return o, nil
}

// run runs a case on its tensors and returns the bytes of the outputs' wholes.
func (op *Op) run(d *gpu.Device, c Case, o *operands) (raw [][]byte, err error) {
	if err := tensor.Try(func() { op.Run(o.outs, o.ins, c) }); err != nil {
		return nil, err
	}
	if err := d.Stream().Synchronize(); err != nil { // a device may refuse arguments when it comes to them
		return nil, err
	}
	for _, whole := range o.outWholes {
		data := make([]byte, whole.Bytes())
		if err := whole.ReadBytes(data); err != nil {
			return nil, err
		}
		raw = append(raw, data)
	}
	return raw, nil
}

func (op *Op) check(d *gpu.Device, c Case, in []*Array, want []Want, v variant) (worst float64, err error) {
	o, err := op.operands(d, c, in, v)
	if err != nil {
		return 0, err
	}
	defer o.free()
	if v.packed && !slices.ContainsFunc(op.Packs, func(i int) bool { return o.ins[i].Packed() }) {
		return 0, nil // the device keeps them as they are, which was checked before
	}
	all, err := op.run(d, c, o)
	if err != nil {
		return 0, err
	}
	tol := op.Tolerance(c)
	for i, w := range want {
		raw := all[i]
		data := raw
		if !o.outs[i].DType().Quantized() {
			data = raw[:len(raw)-guard]
		}
		for j, b := range raw[len(data):] {
			if b != 0xff {
				return 0, fmt.Errorf("output %d: byte %d after its end was overwritten", i, j)
			}
		}
		e, err := compare(decode(data, o.outs[i].DType(), len(w.Values)), w, tol)
		if err != nil {
			return 0, fmt.Errorf("output %d: %w", i, err)
		}
		worst = math.Max(worst, e)
	}
	return worst, nil
}

// Repeat runs each variant of one case so many times. It is an error when a run's outputs have other bytes than the first run's. It
// calls between before each run but the first.
func (op *Op) Repeat(d *gpu.Device, c Case, seed uint64, times int, between func()) error {
	in := op.Inputs(NewGenerator(seed), c)
	for _, v := range op.variants(c, in) {
		if err := op.repeat(d, c, in, v, times, between); err != nil {
			return fmt.Errorf("%v%w", v, err)
		}
	}
	return nil
}

func (op *Op) repeat(d *gpu.Device, c Case, in []*Array, v variant, times int, between func()) error {
	o, err := op.operands(d, c, in, v)
	if err != nil {
		return err
	}
	defer o.free()
	var first [][]byte
	for n := range times {
		if n > 0 {
			between()
			for i, a := range in { // an operation may write to its operands
				var err error
				switch {
				case a == nil:
				case !a.Type.Quantized():
					err = o.inWholes[i].WriteBytes(guarded(a.Raw))
				case i < op.InOut:
					err = o.inWholes[i].WriteBytes(a.Raw)
				}
				if err != nil {
					return err
				}
			}
		}
		got, err := op.run(d, c, o)
		if err != nil {
			return err
		}
		if n == 0 {
			first = got
		}
		for i := range got {
			if bytes.Equal(got[i], first[i]) {
				continue
			}
			at := 0
			for got[i][at] == first[i][at] {
				at++
			}
			return fmt.Errorf("run %d: byte %d of output %d is %#x, %#x in the first", n, at, i, got[i][at], first[i][at])
		}
	}
	return nil
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
		norm += max(want*want, scale*scale) // a sum that cancels to next to nothing is judged by its terms
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
			worst = max(worst, d/scale)
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
