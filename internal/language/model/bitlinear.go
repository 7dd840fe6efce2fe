package model

import (
	"fmt"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/fused"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/tensor"
)

// rounding is what the products of BitNet round to int8: in, or activation(in, up), normed.
type rounding struct {
	in, up     *value // up is nil for in
	activation tensor.Activation
	norm       *weight
}

// bitLinears returns the products of what r rounds with each matrix, with add (nil for none) added to them.
func (g *graph) bitLinears(r rounding, add *value, matrices ...*weight) []*value {
	o := &bitLinearsOp{rounding: r, add: add, matrices: matrices, eps: g.config.Epsilon,
		codes: &value{cols: r.in.cols, dtype: tensor.I8}, scales: newValue(1)}
	for _, m := range matrices {
		o.outs = append(o.outs, newValue(m.rows))
		if !m.twoBits && o.rounded == nil {
			o.rounded = newValue(r.in.cols)
		}
	}
	g.emit(o)
	return o.outs
}

// bitLinearsOp multiplies by two-bit codes where a matrix has them, else by the matrix as stored, in floats.
type bitLinearsOp struct {
	rounding
	outs                   []*value
	codes, scales, rounded *value // rounded are the codes as floats; nil where nobody reads these
	add                    *value
	matrices               []*weight
	eps                    float32
}

func (o *bitLinearsOp) reads() []*value {
	all := []*value{o.in}
	for _, v := range []*value{o.up, o.add} {
		if v != nil {
			all = append(all, v)
		}
	}
	return all
}

func (o *bitLinearsOp) writes() []*value {
	all := append(append([]*value{}, o.outs...), o.codes, o.scales)
	if o.rounded != nil {
		all = append(all, o.rounded)
	}
	return all
}

func (o *bitLinearsOp) overwrites() []*value {
	if o.add == nil || o.rounded != nil { // the product of floats is added to in its own place
		return nil
	}
	return []*value{o.add}
}

func (o *bitLinearsOp) run(p *pass) {
	codes, scales := p.rows(o.codes), p.rows(o.scales)
	if o.rounded == nil {
		o.runTwoBits(p)
		return
	}
	r := tensor.Rounding{Activation: o.activation, RMSNorm: true, Norm: o.norm.tensor, Eps: o.eps}
	if o.up != nil {
		r.Up = p.rows(o.up)
	}
	tensor.NormQuantizeInto(codes, scales, p.rows(o.in), r)
	var add, rounded *tensor.Tensor
	if o.add != nil {
		add = p.rows(o.add)
	}
	if o.rounded != nil {
		rounded = p.rows(o.rounded)
		tensor.DequantizeRowsInto(rounded, codes, scales)
	}
	for i, m := range o.matrices {
		out := p.rows(o.outs[i])
		if m.twoBits {
			tensor.W2A8Into(out, codes, scales, m.ternary, tensor.W2A8Options{Add: add})
			continue
		}
		tensor.LinearInto(out, rounded, m.tensor, nil)
		if m.scale != 0 {
			tensor.MulScalarInto(out, out, m.scale)
		}
		if add != nil {
			tensor.AddInto(out, out, add)
		}
	}
}

// runTwoBits is run of two-bit codes alone.
func (o *bitLinearsOp) runTwoBits(p *pass) {
	r := fused.Rounding[*tensor.Tensor, tensor.Activation]{Activation: o.activation, RMSNorm: true, Norm: o.norm.tensor, Eps: o.eps,
		Codes: p.rows(o.codes), Scales: p.rows(o.scales)}
	if o.up != nil {
		r.Up = p.rows(o.up)
	}
	var add *tensor.Tensor
	if o.add != nil {
		add = p.rows(o.add)
	}
	var outs []*tensor.Tensor
	var matrices []*tensor.Ternary
	for i, m := range o.matrices {
		outs, matrices = append(outs, p.rows(o.outs[i])), append(matrices, m.ternary)
	}
	fusedOperations.BitLinear(outs, add, p.rows(o.in), matrices, r)
}

// twoBitTypes are those whose matrices of BitNet's layers are kept as two-bit codes.
func twoBitTypes(t gguf.Type) bool { return t == gguf.TQ1_0 || t == gguf.TQ2_0 || t == gguf.I2_S }

// twoBitBytes returns the memory of a matrix of two-bit codes, with a scale a row, in an arena.
func (s spec) twoBitBytes() int64 {
	return tensor.Aligned(int64(s.rows)*int64(tensor.Int2RowBytes(tensor.Int2Interleaved, s.cols))) + tensor.Aligned(4*int64(s.rows))
}

// placeTwoBits encodes a matrix and puts it on the device.
func (l *loader) placeTwoBits(w *placement) (*tensor.Tensor, error) {
	data, err := l.file.Data(w.stored)
	if err != nil {
		return nil, err
	}
	rows := func(first int, values []float32) error { return i2sRows(data, w.rows*w.cols, first*w.cols, values) }
	if w.stored.Type != gguf.I2_S {
		stored, err := tensor.FromMemory(gpu.CPU(), kernel.DType(w.stored.Type), data, l.file, w.rows, w.cols)
		if err != nil {
			return nil, err
		}
		defer stored.Free()
		rows = func(first int, values []float32) error {
			return stored.Slice(first, first+len(values)/w.cols).ReadFloat32s(values)
		}
	}
	codes, scales, err := tensor.EncodeTernaryRows(w.rows, w.cols, rows)
	if err != nil {
		return nil, fmt.Errorf("%s in architecture %s: %w", w.stored.Type, l.model.Architecture, err)
	}
	if w.scale != 0 {
		for i := range scales {
			scales[i] *= w.scale
		}
	}
	t := &tensor.Ternary{Rows: w.rows, Cols: w.cols, Layout: tensor.Int2Interleaved}
	if t.Codes, err = l.model.memory.New(tensor.I8, w.rows, len(codes)/w.rows); err != nil {
		return nil, err
	}
	if t.Scales, err = l.model.memory.New(tensor.F32, len(scales)); err != nil {
		return nil, err
	}
	if err := t.Codes.WriteBytes(codes); err != nil {
		return nil, err
	}
	w.ternary = t
	return t.Codes, t.Scales.WriteFloat32s(scales)
}

// i2sRows decodes elements from first on of the n elements of a tensor of Microsoft's I2_S: blocks of 128 elements in 32 bytes, of
// which byte i holds the elements i, i + 32, i + 64 and i + 96 from its upper bits down, as value + 1; after them one scale.
func i2sRows(data []byte, n, first int, values []float32) error {
	scale := float32s(data[n/4 : n/4+4])[0]
	for i := range values {
		at := first + i
		code := data[at/128*32+at%32] >> (6 - at%128/32*2) & 3
		values[i] = (float32(code) - 1) * scale
	}
	return nil
}
