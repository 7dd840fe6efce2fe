package model

import (
	"os"
	"slices"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/environment"
	"github.com/vibrant-ml/vibrant/tensor"
)

// fusing reads VIBRANT_FUSE: off computes a model by the plain operations of its forward function, for tests and for
// finding faults; on, or nothing, by fused ones where the patterns match.
func fusing() (bool, error) {
	const name = "VIBRANT_FUSE"
	return os.Getenv(name) != "off", environment.Check(name)
}

// fuse puts fused operations in the place of the patterns that they compute. A pattern's inner values are read by it
// alone.
func (g *graph) fuse() {
	m := &matcher{config: g.config}
	m.patterns = []pattern{
		m.feedForward, m.feedForwardAlone, m.attentionLinearAdd, m.attentionLinear, m.normQKV, m.ropeKVWrite, m.normSwiGLU, m.linearAdd, m.expertSumAdd, m.expertFeedForward, m.normRoute, m.normLinear,
	}
	g.rewrite(m)
	g.handOver()
}

// fuseAdapted fuses what adds the updates of adapters itself.
func (g *graph) fuseAdapted() {
	m := &matcher{config: g.config, adapted: true}
	m.patterns = []pattern{m.feedForward, m.attentionLinearAdd, m.normQKV}
	g.rewrite(m)
}

func (g *graph) rewrite(m *matcher) {
	m.uses = map[*value]int{}
	for _, block := range g.blocks {
		for _, o := range block {
			for _, v := range o.reads() {
				m.uses[v]++
			}
		}
	}
	for i, block := range g.blocks {
		m.producer = map[*value]op{} // patterns lie within a block: nothing is computed between its operations
		for _, o := range block {
			for _, v := range o.writes() {
				m.producer[v] = o
			}
		}
		g.blocks[i] = m.rewrite(block)
	}
}

// pattern returns the fused operation that o, in a block, is the end of, and the others that it replaces; nil for none.
type pattern func(o op, block []op) (op, []op)

// matcher finds patterns by who writes a value and how many read it.
type matcher struct {
	config   *Config
	patterns []pattern
	adapted  bool // fused operations add the updates of adapters
	producer map[*value]op
	uses     map[*value]int
}

// by returns the operation that writes v, where it is of type T and so many operands are v.
func by[T op](m *matcher, v *value, uses int) (o T, ok bool) {
	o, ok = m.producer[v].(T)
	return o, ok && m.uses[v] == uses
}

// rewrite tries the widest patterns first. Each is anchored at its last operation, in whose place the fused one comes.
func (m *matcher) rewrite(block []op) []op {
	for _, match := range m.patterns {
		var out []op
		gone := map[op]bool{}
		for _, o := range block {
			if fused, inner := match(o, block); fused != nil {
				for _, x := range inner {
					gone[x] = true
				}
				o = fused
			}
			out = append(out, o)
		}
		block = block[:0:0]
		for _, o := range out {
			if !gone[o] {
				block = append(block, o)
			}
		}
	}
	return block
}

// feedForward matches x + down(silu(gate(h)) * up(h)) with h = norm(x).
func (m *matcher) feedForward(o op, _ []op) (op, []op) {
	add, ok := o.(*addOp)
	if !ok {
		return nil, nil
	}
	for x, product := range add.either() {
		down, ok := by[*linearOp](m, product, 1)
		if !ok || down.bias != nil {
			continue
		}
		glu, ok := by[*gluOp](m, down.x, 1)
		if !ok {
			continue
		}
		gated, norm, inner := m.gated(glu)
		if gated == nil || norm.x != x {
			continue
		}
		return &feedForwardOp{
			out: add.out, x: x, normed: norm.out, gated: gated.gate.out, product: gated.up.out,
			norm: norm.weight, gate: gated.gate.weight, up: gated.up.weight, down: down.weight, eps: norm.eps, adapted: m.adapted,
		}, append(inner, glu, down)
	}
	return nil, nil
}

// feedForwardAlone matches the same on a rank, whose product is a part of the sum.
func (m *matcher) feedForwardAlone(o op, block []op) (op, []op) {
	down, ok := o.(*linearOp)
	if !ok || down.bias != nil || !summed(down.out, block) {
		return nil, nil
	}
	glu, ok := by[*gluOp](m, down.x, 1)
	if !ok {
		return nil, nil
	}
	gated, norm, inner := m.gated(glu)
	if gated == nil {
		return nil, nil
	}
	return &feedForwardOp{
		out: down.out, x: norm.x, normed: norm.out, gated: gated.gate.out, product: gated.up.out, alone: true,
		norm: norm.weight, gate: gated.gate.weight, up: gated.up.weight, down: down.weight, eps: norm.eps,
	}, append(inner, glu)
}

// summed reports whether the ranks add a value up, and to another.
func summed(v *value, block []op) bool {
	return slices.ContainsFunc(block, func(o op) bool {
		r, ok := o.(*reduceOp)
		return ok && r.x == v && r.add != nil
	})
}

// gatedPair is the two products of one input that a gated unit multiplies.
type gatedPair struct{ gate, up *linearOp }

// gated matches silu(gate(h)) * up(h) with h = norm(x), and returns what lies within.
func (m *matcher) gated(glu *gluOp) (*gatedPair, *normOp, []op) {
	gate, ok1 := by[*linearOp](m, glu.gate, 1)
	up, ok2 := by[*linearOp](m, glu.up, 1)
	if !ok1 || !ok2 || glu.activation != tensor.ActivationSiLU || gate.bias != nil || up.bias != nil || gate.x != up.x {
		return nil, nil, nil
	}
	norm, ok := by[*normOp](m, gate.x, 2)
	if !ok || norm.cols != norm.x.cols {
		return nil, nil, nil
	}
	return &gatedPair{gate, up}, norm, []op{norm, gate, up}
}

// normSwiGLU matches the same where more than an addition follows.
func (m *matcher) normSwiGLU(o op, _ []op) (op, []op) {
	glu, ok := o.(*gluOp)
	if !ok {
		return nil, nil
	}
	pair, norm, inner := m.gated(glu)
	if pair == nil {
		return nil, nil
	}
	return &normSwiGLUOp{
		out: glu.out, x: norm.x, normed: norm.out, product: pair.up.out,
		norm: norm.weight, gate: pair.gate.weight, up: pair.up.weight, eps: norm.eps,
	}, inner
}

// attentionLinearAdd matches x + output(attention(q)).
func (m *matcher) attentionLinearAdd(o op, _ []op) (op, []op) {
	add, ok := o.(*addOp)
	if !ok {
		return nil, nil
	}
	for x, product := range add.either() {
		output, ok := by[*linearOp](m, product, 1)
		if !ok {
			continue
		}
		if attention, ok := by[*attentionOp](m, output.x, 1); ok && attention.valueDim == attention.dim {
			return &attentionLinearAddOp{
				attentionOp: *attention, out: add.out, x: x, product: product, weight: output.weight, bias: output.bias,
				adapted: m.adapted,
			}, []op{attention, output}
		}
	}
	return nil, nil
}

// attentionLinear matches output(attention(q)) on a rank, a part of the sum.
func (m *matcher) attentionLinear(o op, block []op) (op, []op) {
	output, ok := o.(*linearOp)
	if !ok || !summed(output.out, block) {
		return nil, nil
	}
	attention, ok := by[*attentionOp](m, output.x, 1)
	if !ok || attention.valueDim != attention.dim {
		return nil, nil
	}
	return &attentionLinearAddOp{
		attentionOp: *attention, out: output.out, product: newValue(output.out.cols), weight: output.weight, bias: output.bias,
	}, []op{attention}
}

// linearAdd matches a + linear(x).
func (m *matcher) linearAdd(o op, _ []op) (op, []op) {
	add, ok := o.(*addOp)
	if !ok {
		return nil, nil
	}
	for a, product := range add.either() {
		if l, ok := by[*linearOp](m, product, 1); ok && l.x != a {
			return &linearAddOp{out: add.out, a: a, x: l.x, product: product, weight: l.weight, bias: l.bias}, []op{l}
		}
	}
	return nil, nil
}

// expertSumAdd matches a + expertSum(y).
func (m *matcher) expertSumAdd(o op, _ []op) (op, []op) {
	add, ok := o.(*addOp)
	if !ok {
		return nil, nil
	}
	for a, sum := range add.either() {
		if s, ok := by[*expertSumOp](m, sum, 1); ok && s.add == nil {
			return &expertSumOp{out: add.out, y: s.y, weights: s.weights, add: a}, []op{s}
		}
	}
	return nil, nil
}

// expertFeedForward matches the sum of experts that are gated units, perhaps with what is added to it.
func (m *matcher) expertFeedForward(o op, _ []op) (op, []op) {
	sum, ok := o.(*expertSumOp)
	if !ok {
		return nil, nil
	}
	down, ok := by[*expertLinearOp](m, sum.y, 1)
	if !ok {
		return nil, nil
	}
	glu, ok := by[*gluOp](m, down.x, 1)
	if !ok {
		return nil, nil
	}
	gate, ok1 := by[*expertLinearOp](m, glu.gate, 1)
	up, ok2 := by[*expertLinearOp](m, glu.up, 1)
	if !ok1 || !ok2 || gate.x != up.x || gate.ids != up.ids || gate.ids != down.ids || gate.x.cols != gate.weight.cols ||
		gate.weight.rows != up.weight.rows || down.weight.rows != gate.weight.cols {
		return nil, nil
	}
	return &expertFeedForwardOp{
		out: sum.out, add: sum.add, x: gate.x, ids: gate.ids, weights: sum.weights, gated: glu.out, product: up.out, chosen: down.out,
		gate: gate, up: up, down: down, activation: glu.activation,
	}, []op{gate, up, glu, down}
}

// normRoute matches route(linear(h)) with h = norm(x), which others may read as well, after the choice.
func (m *matcher) normRoute(o op, block []op) (op, []op) {
	route, ok := o.(*routeOp)
	if !ok {
		return nil, nil
	}
	router, ok := by[*linearOp](m, route.logits, 1)
	if !ok {
		return nil, nil
	}
	norm, ok := m.producer[router.x].(*normOp)
	if !ok || norm.cols != norm.x.cols {
		return nil, nil
	}
	for _, other := range block[slices.Index(block, op(norm)):slices.Index(block, o)] {
		if other != op(router) && slices.Contains(other.reads(), norm.out) {
			return nil, nil
		}
	}
	return &normRouteOp{
		ids: route.ids, weights: route.weights, normed: norm.out, logits: route.logits, x: norm.x, norm: norm.weight, router: router.weight,
		routerBias: router.bias, eps: norm.eps, mixture: route.mixture, bias: route.bias,
	}, []op{norm, router}
}

// normLinear matches linear(norm(x)).
func (m *matcher) normLinear(o op, _ []op) (op, []op) {
	l, ok := o.(*linearOp)
	if !ok {
		return nil, nil
	}
	norm, ok := by[*normOp](m, l.x, 1)
	if !ok || norm.cols != norm.x.cols {
		return nil, nil
	}
	return &normLinearOp{
		out: l.out, x: norm.x, normed: norm.out, norm: norm.weight, weight: l.weight, bias: l.bias, eps: norm.eps,
	}, []op{norm}
}

// projection is the way from a layer's normed input to queries or keys: linear, perhaps a norm of each head, rope.
type projection struct {
	linear *linearOp
	norm   *normOp // nil for none
	rope   *ropeOp
}

func (m *matcher) projection(v *value) (p projection, ok bool) {
	if p.rope, ok = by[*ropeOp](m, v, 1); !ok {
		return p, false
	}
	if p.linear, ok = by[*linearOp](m, p.rope.x, 1); ok {
		return p, true
	}
	if p.norm, ok = by[*normOp](m, p.rope.x, 1); !ok || p.norm.cols != p.rope.dim {
		return p, false
	}
	p.linear, ok = by[*linearOp](m, p.norm.x, 1)
	return p, ok
}

// normQKV matches what comes before attention: h = norm(x), queries and keys of one shape of projection, values
// linear(h), and the write to the cache, which is the anchor.
func (m *matcher) normQKV(o op, block []op) (op, []op) {
	write, ok := o.(*cacheOp)
	if !ok || write.v == nil {
		return nil, nil
	}
	queries := queriesOf(write.layer, block)
	if queries == nil {
		return nil, nil
	}
	q, ok1 := m.projection(queries)
	k, ok2 := m.projection(write.k)
	v, ok3 := by[*linearOp](m, write.v, 1)
	if !ok1 || !ok2 || !ok3 || (q.norm == nil) != (k.norm == nil) {
		return nil, nil
	}
	if q.rope.tables != k.rope.tables || q.rope.mode != k.rope.mode || q.rope.dim != write.dim {
		return nil, nil
	}
	norm, ok := by[*normOp](m, v.x, 3)
	if !ok || norm.cols != norm.x.cols || q.linear.x != v.x || k.linear.x != v.x {
		return nil, nil
	}
	fused := &normQKVOp{
		q: queries, x: norm.x, normed: norm.out, kNew: k.linear.out, vNew: v.out, layer: write.layer, dim: write.dim,
		tables: q.rope.tables, mode: q.rope.mode, eps: norm.eps, norm: norm.weight,
		wq: q.linear.weight, wk: k.linear.weight, wv: v.weight, bq: q.linear.bias, bk: k.linear.bias, bv: v.bias, adapted: m.adapted,
	}
	inner := []op{norm, q.linear, k.linear, v, q.rope, k.rope}
	if q.norm != nil {
		fused.qNorm, fused.kNorm = q.norm.weight, k.norm.weight
		inner = append(inner, q.norm, k.norm)
	}
	return fused, inner
}

// rotation returns the rope that writes v, and the norm of each head before it, nil for none.
func (m *matcher) rotation(v *value) (rope *ropeOp, norm *normOp) {
	rope, ok := by[*ropeOp](m, v, 1)
	if !ok || m.uses[rope.x] != 1 {
		return nil, nil
	}
	if norm, ok = by[*normOp](m, rope.x, 1); !ok || norm.cols != rope.dim || norm.weight == nil || m.uses[norm.x] != 1 {
		norm = nil
	}
	return rope, norm
}

// ropeKVWrite matches the write of rotated keys to the cache, which is the anchor, with the rotation of the queries. It takes
// what is left by normQKV.
func (m *matcher) ropeKVWrite(o op, block []op) (op, []op) {
	write, ok := o.(*cacheOp)
	if !ok || write.v == nil || write.v.cols != write.k.cols {
		return nil, nil
	}
	queries := queriesOf(write.layer, block)
	if queries == nil {
		return nil, nil
	}
	q, qNorm := m.rotation(queries)
	k, kNorm := m.rotation(write.k)
	if q == nil || k == nil || q.tables != k.tables || q.mode != k.mode || q.dim != write.dim || k.dim != write.dim ||
		slices.Index(block, op(q)) > slices.Index(block, o) {
		return nil, nil
	}
	fused := &ropeKVWriteOp{
		q: queries, x: q.x, k: k.x, v: write.v, layer: write.layer, dim: write.dim, tables: q.tables, mode: q.mode, eps: m.config.Epsilon,
	}
	inner := []op{q, k}
	if qNorm != nil && kNorm != nil && qNorm.eps == kNorm.eps {
		fused.x, fused.k, fused.eps, fused.qNorm, fused.kNorm = qNorm.x, kNorm.x, qNorm.eps, qNorm.weight, kNorm.weight
		inner = append(inner, qNorm, kNorm)
	}
	return fused, inner
}

// queriesOf returns what attends to the cache of a layer.
func queriesOf(layer int, block []op) *value {
	for _, o := range block {
		switch o := o.(type) {
		case *attentionOp:
			if o.layer == layer {
				return o.q
			}
		case *attentionLinearAddOp:
			if o.layer == layer {
				return o.q
			}
		}
	}
	return nil
}

// either yields the operands of an addition in both orders.
func (o *addOp) either() func(yield func(a, b *value) bool) {
	return func(yield func(a, b *value) bool) {
		_ = yield(o.a, o.b) && yield(o.b, o.a)
	}
}

// handOver lets an operation prepare the normed rows for the one that follows it at once, in memory that they share.
func (g *graph) handOver() {
	var before op
	var sum *reduceOp // of what `before` has left on each rank, nil for none
	for _, block := range g.blocks {
		for _, o := range block {
			if r, ok := o.(*reduceOp); ok && r.add != nil {
				sum = r
				continue
			}
			// hands reports whether the operation before has left `out`, or the ranks' parts of it.
			hands := func(out *value, next *value) bool {
				return out == next || sum != nil && sum.x == out && sum.out == next
			}
			switch next := o.(type) {
			case *feedForwardOp:
				if a, ok := before.(*attentionLinearAddOp); ok && hands(a.out, next.x) {
					a.nextNorm, a.next, a.normed = next.norm, [2]*weight{next.gate, next.up}, next.normed
					sum.prepare(kernel.AfterAttention, a.nextNorm, a.normed)
				}
			case *normQKVOp:
				if f, ok := before.(*feedForwardOp); ok && hands(f.out, next.x) {
					f.nextNorm, f.next, next.normed = next.norm, [3]*weight{next.wq, next.wk, next.wv}, f.normed
					sum.prepare(kernel.AfterFeedForward, f.nextNorm, f.normed)
				}
			}
			before, sum = o, nil
		}
	}
	g.part()
}

// part lets ranks keep their own columns alone of sums that the operation which follows gets handed over, and the next sum adds to.
func (g *graph) part() {
	readers := map[*value][]op{}
	for _, block := range g.blocks {
		for _, o := range block {
			for _, v := range o.reads() {
				readers[v] = append(readers[v], o)
			}
		}
	}
	for _, block := range g.blocks {
		for _, o := range block {
			if sum, ok := o.(*reduceOp); ok && sum.nextNorm != nil && len(readers[sum.out]) == 2 {
				next, ok := readers[sum.out][1].(*reduceOp)
				sum.parted = ok && next.add == sum.out && sum.out != g.hidden
			}
		}
	}
}

// prepare has the sum, where there is one, pass on what an operation hands over.
func (o *reduceOp) prepare(from kernel.HalfLayer, norm *weight, normed *value) {
	if o != nil {
		o.from, o.nextNorm, o.normed = from, norm, normed
	}
}
