package model

import (
	"errors"
	"fmt"
	"math"

	"github.com/vibrant-ml/vibrant/tensor"
)

// mixture says how the feed-forward of a layer is a choice of experts (Shazeer et al. 2017, "Outrageously Large Neural
// Networks").
type mixture struct {
	experts, used, width int // how many, how many of them a token has, and the inner width of each
	sharedWidth          int // inner width of what every token has besides, 0 for none
	dense                int // leading layers that have no experts

	gating             tensor.Gating
	normalized         bool    // the chosen weights are divided by their sum
	scale              float32 // and then multiplied by this
	joined             bool    // one tensor holds each expert's rows of the gate and then those of up
	groups, groupsUsed int
	groupByBest        bool // a group's score is that of its best expert, not the sum of the two best
}

const maxExperts = 1024 // the limit of tensor.Route

// readMixture reads the keys of experts; gating and normalized are the architecture's, where the file says nothing. Widths that
// the first converters did not write are those of the tensors.
func (r *reader) readMixture(c *Config, gating tensor.Gating, normalized bool) {
	m := &mixture{
		experts:    r.size("expert_count", maxExperts),
		used:       r.size("expert_used_count", maxExperts),
		width:      r.sizeOr("expert_feed_forward_length", r.columns(c, "ffn_down_exps.weight", c.FeedForward), maxWidth),
		dense:      r.sizeOr("leading_dense_block_count", 0, c.Layers),
		gating:     gating,
		normalized: r.boolOr("expert_weights_norm", normalized),
		scale:      r.scale("expert_weights_scale", 1),
		groups:     r.sizeOr("expert_group_count", 0, maxExperts),
		groupsUsed: r.sizeOr("expert_group_used_count", 0, maxExperts),
	}
	shared := m.width * r.sizeOr("expert_shared_count", 0, maxExperts)
	if shared == 0 {
		shared = r.columns(c, "ffn_down_shexp.weight", 0)
	}
	m.sharedWidth = r.sizeOr("expert_shared_feed_forward_length", shared, maxWidth)
	switch kind := r.sizeOr("expert_gating_func", 0, math.MaxInt32); kind {
	case 0:
	case 1:
		m.gating = tensor.GatingSoftmax
	case 2:
		m.gating = tensor.GatingSigmoid
	case 3:
		m.gating = tensor.GatingSoftmaxChosen
	default:
		r.fail(fmt.Errorf("key %q is %d: not supported (1 softmax, 2 sigmoid, 3 softmax over the chosen)",
			r.prefix+"expert_gating_func", kind))
	}
	if r.f.HasTensor("blk.0.ffn_gate.0.weight") {
		r.fail(errors.New("a tensor for each expert, as converters wrote them before April 2024: not supported; take a newer file of the model"))
	}
	for i := range c.Layers {
		m.joined = m.joined || r.f.HasTensor(fmt.Sprintf("blk.%d.ffn_gate_up_exps.weight", i))
	}
	if m.groups <= 1 {
		m.groups, m.groupsUsed = 0, 0
	}
	switch {
	case r.err != nil:
	case m.used > m.experts:
		r.fail(fmt.Errorf("key %q is %d, of %d experts", r.prefix+"expert_used_count", m.used, m.experts))
	case m.width < 1 || m.sharedWidth > maxWidth:
		r.fail(fmt.Errorf("key %q is %d, want 1 to %d", r.prefix+"expert_feed_forward_length", m.width, maxWidth))
	case m.groups > 0 && (m.experts%m.groups != 0 || m.groupsUsed < 1 || m.groupsUsed > m.groups ||
		m.used > m.experts/m.groups*m.groupsUsed):
		r.fail(fmt.Errorf("keys %q: %d of %d groups of %d experts, of which %d are used",
			r.prefix+"expert_group_*", m.groupsUsed, m.groups, m.experts, m.used))
	}
	c.mixture = m
}

// columns returns how many columns a tensor has in the first layer with such a one, and the default where none has.
func (r *reader) columns(c *Config, within string, def int) int {
	for i := range c.Layers {
		if t, err := r.f.Tensor(fmt.Sprintf("blk.%d.%s", i, within)); err == nil && len(t.Dims) > 1 {
			return t.Dims[0]
		}
	}
	return def
}

// choice says how experts are chosen; bias may be nil.
func (m *mixture) choice(bias *weight) tensor.Router {
	return tensor.Router{
		Gating: m.gating, Normalized: m.normalized, Scale: m.scale, Bias: bias.get(),
		Groups: m.groups, GroupsUsed: m.groupsUsed, GroupByBest: m.groupByBest,
	}
}

// experts lists the tensors of the experts.
func (m *mixture) tensors(c *Config, l *layer, bias need) []spec {
	gate, up, of := "ffn_gate_exps", "ffn_up_exps", 0
	if m.joined {
		gate, up, of = "ffn_gate_up_exps", "ffn_gate_up_exps", 2*m.width
	}
	return []spec{
		matrix("ffn_gate_inp.weight", m.experts, c.Hidden, required, &l.router),
		vector("ffn_gate_inp.bias", m.experts, bias, &l.routerBias),
		vector("exp_probs_b.bias", m.experts, optional, &l.choiceBias),
		matrix(gate+".weight", m.width, c.Hidden, required, &l.expertGate).part(0, of).choice(m.experts),
		vector(gate+".bias", m.width, bias, &l.expertGateBias).part(0, of).choice(m.experts),
		matrix(up+".weight", m.width, c.Hidden, required, &l.expertUp).part(of/2, of).choice(m.experts),
		vector(up+".bias", m.width, bias, &l.expertUpBias).part(of/2, of).choice(m.experts),
		matrix("ffn_down_exps.weight", c.Hidden, m.width, required, &l.expertDown).choice(m.experts),
		vector("ffn_down_exps.bias", c.Hidden, bias, &l.expertDownBias).choice(m.experts),
	}
}

// shared lists the tensors of the expert that every token has; none where it has no width. gate is the need of its
// factor's.
func (m *mixture) shared(c *Config, l *layer, gate need) []spec {
	if m.sharedWidth == 0 {
		return nil
	}
	return []spec{
		matrix("ffn_gate_inp_shexp.weight", 1, c.Hidden, gate, &l.sharedRouter),
		matrix("ffn_gate_shexp.weight", m.sharedWidth, c.Hidden, required, &l.sharedGate),
		matrix("ffn_up_shexp.weight", m.sharedWidth, c.Hidden, required, &l.sharedUp),
		matrix("ffn_down_shexp.weight", c.Hidden, m.sharedWidth, required, &l.sharedDown),
	}
}

// experts returns the sum of the gated feed-forwards of the experts that the router chooses for each token of h, by
// weight.
func (g *graph) experts(h *value, m *mixture, l *layer, f tensor.Activation) *value {
	ids, weights := g.route(g.linear(h, l.router, l.routerBias), m, l.choiceBias)
	gate := g.expertLinear(h, l.expertGate, l.expertGateBias, ids)
	up := g.expertLinear(h, l.expertUp, l.expertUpBias, ids)
	return g.expertSum(g.expertLinear(g.glu(f, gate, up), l.expertDown, l.expertDownBias, ids), weights)
}

// shared returns the feed-forward of the expert that every token has, times sigmoid(router(h)) where it has a router;
// nil for none.
func (g *graph) shared(h *value, l *layer) *value {
	if l.sharedGate == nil {
		return nil
	}
	gated := g.glu(tensor.ActivationSiLU, g.linear(h, l.sharedGate, nil), g.linear(h, l.sharedUp, nil))
	y := g.linear(gated, l.sharedDown, nil)
	if l.sharedRouter == nil {
		return y
	}
	return g.mulRows(y, g.sigmoid(g.linear(h, l.sharedRouter, nil)))
}

// mixed returns the sum of the chosen experts and the shared one, of SwiGLU.
func (g *graph) mixed(h *value, m *mixture, l *layer) *value {
	y := g.experts(h, m, l, tensor.ActivationSiLU)
	if shared := g.shared(h, l); shared != nil {
		y = g.add(y, shared)
	}
	return y
}

// route chooses experts by their logits: ids [tokens][used] of I32, and weights.
func (g *graph) route(logits *value, m *mixture, bias *weight) (ids, weights *value) {
	ids, weights = &value{cols: m.used, dtype: tensor.I32}, newValue(m.used)
	g.emit(&routeOp{ids: ids, weights: weights, logits: logits, mixture: m, bias: bias})
	return ids, weights
}

// expertLinear returns x w[id]^T + bias[id] for each id of a token: [tokens][ids][rows]. x has a row a token, or one an
// id.
func (g *graph) expertLinear(x *value, w, bias *weight, ids *value) *value {
	if w.scale != 0 { // of x, as the bias has none
		x = g.scale(x, w.scale)
	}
	y := g.emit(&expertLinearOp{out: newValue(ids.cols * w.rows), x: x, ids: ids, weight: w, bias: bias})
	if w.scales == nil {
		return y
	}
	factors := g.emit(&chosenOp{out: newValue(ids.cols), ids: ids, of: w.scales})
	return g.emit(&mulRowsOp{out: newValue(y.cols), x: y, factors: factors})
}

// expertSum returns the sum of a token's rows of y by their weights; nil weights are ones.
func (g *graph) expertSum(y, weights *value) *value {
	return g.emit(&expertSumOp{out: newValue(g.config.Hidden), y: y, weights: weights})
}

// sigmoid returns 1 / (1 + exp(-x)).
func (g *graph) sigmoid(x *value) *value { return g.emit(&sigmoidOp{out: newValue(x.cols), x: x}) }

// mulRows returns each run of x times its factor, of which there are as many as factors has columns.
func (g *graph) mulRows(x, factors *value) *value {
	return g.emit(&mulRowsOp{out: newValue(x.cols), x: x, factors: factors})
}

type routeOp struct {
	fresh
	ids, weights, logits *value
	mixture              *mixture
	bias                 *weight
}

func (o *routeOp) reads() []*value  { return []*value{o.logits} }
func (o *routeOp) writes() []*value { return []*value{o.ids, o.weights} }
func (o *routeOp) run(p *pass) {
	tensor.RouteInto(p.rows(o.ids), p.rows(o.weights), p.rows(o.logits), o.mixture.choice(o.bias))
}

type expertLinearOp struct {
	fresh
	out, x, ids  *value
	weight, bias *weight
}

func (o *expertLinearOp) reads() []*value  { return []*value{o.x, o.ids} }
func (o *expertLinearOp) writes() []*value { return []*value{o.out} }
func (o *expertLinearOp) run(p *pass) {
	x := p.rows(o.x)
	if o.x.cols != o.weight.cols {
		x = p.heads(o.x, o.weight.cols)
	}
	tensor.ExpertLinearInto(p.heads(o.out, o.weight.rows), x, o.weight.tensor, o.bias.get(), p.rows(o.ids))
}

// expertSumOp adds what it is given besides, which fusing puts there.
type expertSumOp struct {
	out, y, weights, add *value
}

func (o *expertSumOp) reads() []*value {
	all := []*value{o.y}
	for _, v := range []*value{o.weights, o.add} {
		if v != nil {
			all = append(all, v)
		}
	}
	return all
}
func (o *expertSumOp) writes() []*value { return []*value{o.out} }
func (o *expertSumOp) overwrites() []*value {
	if o.add == nil {
		return nil
	}
	return []*value{o.add}
}
func (o *expertSumOp) run(p *pass) {
	var weights, add *tensor.Tensor
	if o.weights != nil {
		weights = p.rows(o.weights)
	}
	if o.add != nil {
		add = p.rows(o.add)
	}
	tensor.ExpertSumInto(p.rows(o.out), add, p.heads(o.y, o.out.cols), weights)
}

type sigmoidOp struct{ out, x *value }

func (o *sigmoidOp) reads() []*value      { return []*value{o.x} }
func (o *sigmoidOp) writes() []*value     { return []*value{o.out} }
func (o *sigmoidOp) overwrites() []*value { return []*value{o.x} }
func (o *sigmoidOp) run(p *pass)          { tensor.SigmoidInto(p.rows(o.out), p.rows(o.x)) }

type mulRowsOp struct{ out, x, factors *value }

func (o *mulRowsOp) reads() []*value      { return []*value{o.x, o.factors} }
func (o *mulRowsOp) writes() []*value     { return []*value{o.out} }
func (o *mulRowsOp) overwrites() []*value { return []*value{o.x} }
func (o *mulRowsOp) run(p *pass) {
	dim := o.x.cols / o.factors.cols
	tensor.MulRowsInto(p.heads(o.out, dim), p.heads(o.x, dim), p.rows(o.factors))
}

// chosenOp looks up a number of each chosen expert.
type chosenOp struct {
	fresh
	out, ids *value
	of       *weight // one number an expert
}

func (o *chosenOp) reads() []*value  { return []*value{o.ids} }
func (o *chosenOp) writes() []*value { return []*value{o.out} }
func (o *chosenOp) run(p *pass) {
	ids := p.rows(o.ids)
	tensor.EmbeddingInto(p.rows(o.out).Reshape(ids.Len(), 1), o.of.tensor.Reshape(o.of.cols, 1), ids.Reshape(ids.Len()))
}
