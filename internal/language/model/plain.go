package model

import (
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// The plain operations of a graph: each is one of package tensor.

// fresh is embedded where a result needs memory of its own.
type fresh struct{}

func (fresh) overwrites() []*value { return nil }

type embeddingOp struct {
	fresh
	out        *value
	table      *weight
	byPosition bool
}

func (o *embeddingOp) reads() []*value  { return nil }
func (o *embeddingOp) writes() []*value { return []*value{o.out} }
func (o *embeddingOp) run(p *pass) {
	rows := p.batch.IDs
	if o.byPosition {
		rows = p.batch.Positions
	}
	tensor.EmbeddingInto(p.rows(o.out), o.table.tensor, rows)
}

type normOp struct {
	out, x *value
	weight *weight
	cols   int // what is normed together
	eps    float32
}

func (o *normOp) reads() []*value      { return []*value{o.x} }
func (o *normOp) writes() []*value     { return []*value{o.out} }
func (o *normOp) overwrites() []*value { return []*value{o.x} }
func (o *normOp) run(p *pass) {
	if o.cols == o.x.cols {
		tensor.RMSNormInto(p.rows(o.out), p.rows(o.x), o.weight.get(), o.eps)
		return
	}
	tensor.RMSNormInto(p.heads(o.out, o.cols), p.heads(o.x, o.cols), o.weight.get(), o.eps)
}

type layerNormOp struct {
	out, x       *value
	weight, bias *weight
	eps          float32
}

func (o *layerNormOp) reads() []*value      { return []*value{o.x} }
func (o *layerNormOp) writes() []*value     { return []*value{o.out} }
func (o *layerNormOp) overwrites() []*value { return []*value{o.x} }
func (o *layerNormOp) run(p *pass) {
	tensor.LayerNormInto(p.rows(o.out), p.rows(o.x), o.weight.tensor, o.bias.get(), o.eps)
}

type linearOp struct {
	fresh
	out, x       *value
	weight, bias *weight
}

func (o *linearOp) reads() []*value  { return []*value{o.x} }
func (o *linearOp) writes() []*value { return []*value{o.out} }
func (o *linearOp) run(p *pass) {
	tensor.LinearInto(p.rows(o.out), p.rows(o.x), o.weight.tensor, o.bias.get())
}

type ropeOp struct {
	out, x      *value
	dim, tables int
	mode        kernel.RoPEMode
}

func (o *ropeOp) reads() []*value      { return []*value{o.x} }
func (o *ropeOp) writes() []*value     { return []*value{o.out} }
func (o *ropeOp) overwrites() []*value { return []*value{o.x} }
func (o *ropeOp) run(p *pass) {
	t := p.model.tables[o.tables]
	tensor.RoPEInto(p.heads(o.out, o.dim), p.heads(o.x, o.dim), t.cos, t.sin, p.batch.Positions, tensor.RoPEMode(o.mode))
}

// cacheOp stores keys and values at the tokens' positions; without values where those are a part of the keys.
type cacheOp struct {
	fresh
	k, v       *value
	layer, dim int
}

func (o *cacheOp) reads() []*value {
	if o.v == nil {
		return []*value{o.k}
	}
	return []*value{o.k, o.v}
}
func (o *cacheOp) writes() []*value { return nil }
func (o *cacheOp) run(p *pass) {
	var v *tensor.Tensor
	if o.v != nil {
		v = p.sequences(o.v, o.dim)
	}
	write, cache := tensor.KVWrite, p.cache.layers[o.layer]
	if cache.ring {
		write = tensor.KVWriteRing
	}
	p.written = write(cache.k, cache.v, p.sequences(o.k, o.dim), v, p.batch.Positions, p.batch.Sequences)
}

type attentionOp struct {
	fresh
	attentionShape
	out, q               *value
	layer, dim, valueDim int
}

func (o *attentionOp) reads() []*value  { return []*value{o.q} }
func (o *attentionOp) writes() []*value { return []*value{o.out} }
func (o *attentionOp) run(p *pass) {
	cache := p.cache.layers[o.layer]
	tensor.AttentionInto(p.sequences(o.out, o.valueDim), p.sequences(o.q, o.dim), cache.k, cache.v, o.options(p))
}

func (o *attentionOp) options(p *pass) tensor.AttentionOptions {
	options := tensor.AttentionOptions{
		Causal: true, Positions: p.batch.Positions, Sequences: p.batch.Sequences, KVLen: p.batch.KVLen,
		Window: o.window, Chunk: o.chunk, Scale: o.scale, SoftCap: o.softCap, Sinks: o.sinks.get(), Written: p.written,
		ValueDim: o.valueDim, Ring: p.cache.layers[o.layer].ring,
	}
	if options.Ring {
		options.Window = o.newest()
	}
	return options
}

type addOp struct{ out, a, b *value }

func (o *addOp) reads() []*value      { return []*value{o.a, o.b} }
func (o *addOp) writes() []*value     { return []*value{o.out} }
func (o *addOp) overwrites() []*value { return []*value{o.a, o.b} }
func (o *addOp) run(p *pass)          { tensor.AddInto(p.rows(o.out), p.rows(o.a), p.rows(o.b)) }

type mulOp struct{ out, a, b *value }

func (o *mulOp) reads() []*value      { return []*value{o.a, o.b} }
func (o *mulOp) writes() []*value     { return []*value{o.out} }
func (o *mulOp) overwrites() []*value { return []*value{o.a, o.b} }
func (o *mulOp) run(p *pass)          { tensor.MulInto(p.rows(o.out), p.rows(o.a), p.rows(o.b)) }

type scaleOp struct {
	out, x *value
	by     float32
}

func (o *scaleOp) reads() []*value      { return []*value{o.x} }
func (o *scaleOp) writes() []*value     { return []*value{o.out} }
func (o *scaleOp) overwrites() []*value { return []*value{o.x} }
func (o *scaleOp) run(p *pass)          { tensor.MulScalarInto(p.rows(o.out), p.rows(o.x), o.by) }

type geluTanhOp struct{ out, x *value }

func (o *geluTanhOp) reads() []*value      { return []*value{o.x} }
func (o *geluTanhOp) writes() []*value     { return []*value{o.out} }
func (o *geluTanhOp) overwrites() []*value { return []*value{o.x} }
func (o *geluTanhOp) run(p *pass)          { tensor.GELUTanhInto(p.rows(o.out), p.rows(o.x)) }

type softCapOp struct {
	out, x *value
	limit  float32
}

func (o *softCapOp) reads() []*value      { return []*value{o.x} }
func (o *softCapOp) writes() []*value     { return []*value{o.out} }
func (o *softCapOp) overwrites() []*value { return []*value{o.x} }
func (o *softCapOp) run(p *pass)          { tensor.SoftCapInto(p.rows(o.out), p.rows(o.x), o.limit) }

type gluOp struct {
	out, gate, up *value
	activation    tensor.Activation
}

func (o *gluOp) reads() []*value      { return []*value{o.gate, o.up} }
func (o *gluOp) writes() []*value     { return []*value{o.out} }
func (o *gluOp) overwrites() []*value { return []*value{o.gate, o.up} }
func (o *gluOp) run(p *pass) {
	out, gate, up := p.rows(o.out), p.rows(o.gate), p.rows(o.up)
	if o.activation == tensor.ActivationSiLU {
		tensor.SwiGLUInto(out, gate, up)
		return
	}
	tensor.GLUInto(out, gate, up, o.activation)
}
