package model

import (
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/fused"
	"github.com/vibrant-ml/vibrant/tensor"
)

// The fused operations of a graph. The values within a pattern, which nothing else reads, are their scratch memory.

// fusedOperations are those of package tensor.
var fusedOperations = fused.On[*tensor.Tensor, tensor.AttentionOptions, tensor.Activation, tensor.Written, tensor.Router, tensor.Ternary]()

type normQKVOp struct {
	fresh
	q, x, normed, kNew, vNew *value
	layer, dim, tables       int
	mode                     kernel.RoPEMode
	eps                      float32

	norm, wq, wk, wv, bq, bk, bv, qNorm, kNorm *weight
	adapted                                    bool // the products are changed by the pass's adapters
}

func (o *normQKVOp) reads() []*value  { return []*value{o.x} }
func (o *normQKVOp) writes() []*value { return []*value{o.q, o.normed, o.kNew, o.vNew} }
func (o *normQKVOp) run(p *pass) {
	t, cache := p.model.tables[o.tables], p.cache.layers[o.layer]
	p.written = fusedOperations.NormQKV(p.sequences(o.q, o.dim), cache.k, cache.v, p.rows(o.x), fused.QKV[*tensor.Tensor]{
		Norm: o.norm.get(), Q: o.wq.tensor, K: o.wk.tensor, V: o.wv.tensor,
		QBias: o.bq.get(), KBias: o.bk.get(), VBias: o.bv.get(), QNorm: o.qNorm.get(), KNorm: o.kNorm.get(), Cos: t.cos, Sin: t.sin, Mode: o.mode, Eps: o.eps,
		QUpdate: p.update(o.adapted, o.wq), KUpdate: p.update(o.adapted, o.wk), VUpdate: p.update(o.adapted, o.wv), Codes: p.codes(o.adapted),
		Positions: p.batch.Positions, Sequences: p.batch.Sequences, Ring: cache.ring,
		Handoff: p.handoff, Normed: p.rows(o.normed), KNew: p.rows(o.kNew), VNew: p.rows(o.vNew),
	})
	p.handoff = fused.Handoff{}
}

// ropeKVWriteOp rotates queries, and keys on their way to the cache.
type ropeKVWriteOp struct {
	q, x, k, v         *value // q and k are normed by heads before where the norms are not nil
	qNorm, kNorm       *weight
	layer, dim, tables int
	mode               kernel.RoPEMode
	eps                float32
}

func (o *ropeKVWriteOp) reads() []*value      { return []*value{o.x, o.k, o.v} }
func (o *ropeKVWriteOp) writes() []*value     { return []*value{o.q} }
func (o *ropeKVWriteOp) overwrites() []*value { return []*value{o.x} }
func (o *ropeKVWriteOp) run(p *pass) {
	t, cache := p.model.tables[o.tables], p.cache.layers[o.layer]
	p.written = fusedOperations.RoPEKVWrite(p.sequences(o.q, o.dim), cache.k, cache.v, p.rows(o.k), p.rows(o.x), p.rows(o.v), fused.Rotation[*tensor.Tensor]{
		QNorm: o.qNorm.get(), KNorm: o.kNorm.get(), Cos: t.cos, Sin: t.sin, Mode: o.mode, Eps: o.eps,
		Positions: p.batch.Positions, Sequences: p.batch.Sequences, Ring: cache.ring, Settled: true,
	})
}

type attentionLinearAddOp struct {
	attentionOp
	out, x, product *value // x: nil for none
	weight, bias    *weight
	nextNorm        *weight    // of the operation that follows, nil for none
	next            [2]*weight // gate and up of that one
	normed          *value     // what that one may find prepared
	adapted         bool       // the product is changed by the pass's adapters
}

func (o *attentionLinearAddOp) reads() []*value {
	if o.x == nil {
		return []*value{o.q}
	}
	return []*value{o.q, o.x}
}
func (o *attentionLinearAddOp) writes() []*value {
	all := []*value{o.out, o.attentionOp.out, o.product}
	if o.normed != nil {
		all = append(all, o.normed)
	}
	return all
}
func (o *attentionLinearAddOp) overwrites() []*value {
	if o.x == nil {
		return nil
	}
	return []*value{o.x}
}
func (o *attentionLinearAddOp) run(p *pass) {
	cache := p.cache.layers[o.layer]
	var x, normed *tensor.Tensor
	if o.x == nil && p.single() {
		o.attentionOp.run(p)
		p.part = &fused.Part[*tensor.Tensor]{Product: p.rows(o.out), X: p.rows(o.attentionOp.out), W: o.weight.tensor, Bias: o.bias.get()}
		return
	}
	if o.x != nil {
		x = p.rows(o.x)
	}
	if o.normed != nil {
		normed = p.rows(o.normed)
	}
	var next [2]*tensor.Tensor
	p.factors(o.adapted, next[:], o.next[:]...)
	p.handoff = fusedOperations.AttentionLinearAdd(p.rows(o.out), x, p.sequences(o.q, o.dim),
		cache.k, cache.v, o.options(p), o.weight.tensor, o.bias.get(), p.update(o.adapted, o.weight), p.codes(o.adapted),
		p.sequences(o.attentionOp.out, o.dim), p.rows(o.product), o.nextNorm.get(), normed, next)
}

type feedForwardOp struct {
	out, x, normed, gated, product *value
	norm, gate, up, down           *weight
	eps                            float32
	alone                          bool       // without x, a rank's part of a sum
	nextNorm                       *weight    // of the operation that follows and shares normed, nil for none
	next                           [3]*weight // the matrices of queries, keys and values of that one
	adapted                        bool       // the products are changed by the pass's adapters
}

func (o *feedForwardOp) reads() []*value  { return []*value{o.x} }
func (o *feedForwardOp) writes() []*value { return []*value{o.out, o.normed, o.gated, o.product} }
func (o *feedForwardOp) overwrites() []*value {
	if o.alone {
		return nil
	}
	return []*value{o.x}
}
func (o *feedForwardOp) run(p *pass) {
	if o.alone && p.single() {
		fusedOperations.NormSwiGLU(p.rows(o.gated), p.rows(o.x), o.norm.get(), o.eps, o.gate.tensor, o.up.tensor, p.rows(o.normed), p.rows(o.product))
		p.part = &fused.Part[*tensor.Tensor]{Product: p.rows(o.out), X: p.rows(o.gated), W: o.down.tensor}
		return
	}
	var next [3]*tensor.Tensor
	p.factors(o.adapted, next[:], o.next[:]...)
	p.handoff = fusedOperations.FeedForward(p.rows(o.out), p.rows(o.x), fused.FFN[*tensor.Tensor]{
		Norm: o.norm.get(), Gate: o.gate.tensor, Up: o.up.tensor, Down: o.down.tensor, Eps: o.eps, Alone: o.alone,
		GateUpdate: p.update(o.adapted, o.gate), UpUpdate: p.update(o.adapted, o.up), DownUpdate: p.update(o.adapted, o.down), Codes: p.codes(o.adapted),
		NextNorm: o.nextNorm.get(), Next: next, Handoff: p.handoff, Normed: p.rows(o.normed), Gated: p.rows(o.gated), Product: p.rows(o.product),
	})
}

type expertFeedForwardOp struct {
	out, add, x, ids, weights *value // add and weights: nil for none
	gated, product, chosen    *value
	gate, up, down            *expertLinearOp // whose weights these are
	activation                tensor.Activation
}

func (o *expertFeedForwardOp) reads() []*value {
	all := []*value{o.x, o.ids}
	for _, v := range []*value{o.add, o.weights} {
		if v != nil {
			all = append(all, v)
		}
	}
	return all
}
func (o *expertFeedForwardOp) writes() []*value {
	return []*value{o.out, o.gated, o.product, o.chosen}
}
func (o *expertFeedForwardOp) overwrites() []*value {
	if o.add == nil {
		return nil
	}
	return []*value{o.add}
}
func (o *expertFeedForwardOp) run(p *pass) {
	var weights, add *tensor.Tensor
	if o.weights != nil {
		weights = p.rows(o.weights)
	}
	if o.add != nil {
		add = p.rows(o.add)
	}
	fusedOperations.ExpertFeedForward(p.rows(o.out), add, p.rows(o.x), fused.Experts[*tensor.Tensor, tensor.Activation]{
		Gate: o.gate.weight.tensor, Up: o.up.weight.tensor, Down: o.down.weight.tensor,
		GateBias: o.gate.bias.get(), UpBias: o.up.bias.get(), DownBias: o.down.bias.get(),
		IDs: p.rows(o.ids), Weights: weights, Activation: o.activation,
		Gated: p.rows(o.gated), Product: p.rows(o.product), Chosen: p.rows(o.chosen),
	})
}

type normRouteOp struct {
	fresh
	ids, weights, normed, logits, x *value
	norm, router, routerBias, bias  *weight
	mixture                         *mixture
	eps                             float32
}

func (o *normRouteOp) reads() []*value  { return []*value{o.x} }
func (o *normRouteOp) writes() []*value { return []*value{o.ids, o.weights, o.normed, o.logits} }
func (o *normRouteOp) run(p *pass) {
	fusedOperations.NormRoute(p.rows(o.ids), p.rows(o.weights), p.rows(o.normed), p.rows(o.x), fused.Router[*tensor.Tensor, tensor.Router]{
		Norm: o.norm.get(), Router: o.router.tensor, RouterBias: o.routerBias.get(), Eps: o.eps, Choice: o.mixture.choice(o.bias),
		Logits: p.rows(o.logits),
	})
}

type normSwiGLUOp struct {
	fresh
	out, x, normed, product *value
	norm, gate, up          *weight
	eps                     float32
}

func (o *normSwiGLUOp) reads() []*value  { return []*value{o.x} }
func (o *normSwiGLUOp) writes() []*value { return []*value{o.out, o.normed, o.product} }
func (o *normSwiGLUOp) run(p *pass) {
	fusedOperations.NormSwiGLU(p.rows(o.out), p.rows(o.x), o.norm.get(), o.eps, o.gate.tensor, o.up.tensor,
		p.rows(o.normed), p.rows(o.product))
}

type linearAddOp struct {
	out, a, x, product *value
	weight, bias       *weight
}

func (o *linearAddOp) reads() []*value      { return []*value{o.a, o.x} }
func (o *linearAddOp) writes() []*value     { return []*value{o.out, o.product} }
func (o *linearAddOp) overwrites() []*value { return []*value{o.a} }
func (o *linearAddOp) run(p *pass) {
	fusedOperations.LinearAdd(p.rows(o.out), p.rows(o.a), p.rows(o.x), o.weight.tensor, o.bias.get(), p.rows(o.product))
}

type normLinearOp struct {
	fresh
	out, x, normed *value
	norm           *weight
	weight, bias   *weight
	eps            float32
}

func (o *normLinearOp) reads() []*value  { return []*value{o.x} }
func (o *normLinearOp) writes() []*value { return []*value{o.out, o.normed} }
func (o *normLinearOp) run(p *pass) {
	fusedOperations.NormLinear(p.rows(o.out), p.rows(o.x), o.norm.get(), o.eps, o.weight.tensor, o.bias.get(),
		p.rows(o.normed))
}
