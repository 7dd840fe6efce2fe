package model

import (
	"fmt"
	"slices"

	"github.com/vibrant-ml/vibrant/tensor"
)

// deltaNet gives the sizes of the gated delta nets that stand in the place of attention in most layers of Qwen3-Next and
// Qwen3.5 (Yang, Kautz & Hatamizadeh 2024, "Gated Delta Networks").
type deltaNet struct {
	taps             int // of the convolution over q, k and v
	keyHeads, heads  int // of keys, and of values
	keyDim, valueDim int
	interleaved      bool // value head j reads key head j mod keyHeads, else j div (heads / keyHeads)
	joined           bool // beta and alpha are one matrix: for each key head the rows of beta, then those of alpha
}

const maxTaps = 8 // the limit of tensor.CausalConv

// channels is how wide q, k and v are together.
func (d *deltaNet) channels() int { return 2*d.keyHeads*d.keyDim + d.inner() }

// inner is how wide the values of all heads are; 0 for no delta net.
func (d *deltaNet) inner() int {
	if d == nil {
		return 0
	}
	return d.heads * d.valueDim
}

// readDeltaNet reads the keys of delta nets, and which layers are ones.
func (r *reader) readDeltaNet(c *Config) {
	d := &deltaNet{
		taps:     r.size("ssm.conv_kernel", maxTaps),
		keyDim:   r.size("ssm.state_size", maxHeadDim),
		keyHeads: r.size("ssm.group_count", maxWidth),
		heads:    r.size("ssm.time_step_rank", maxWidth),
	}
	inner := r.size("ssm.inner_size", maxWidth)
	d.valueDim = inner / d.heads
	every := r.sizeOr("full_attention_interval", 4, maxLayers)
	switch {
	case r.err != nil:
	case inner%d.heads != 0 || d.heads%d.keyHeads != 0 || d.channels() > maxWidth:
		r.fail(fmt.Errorf("keys %q do not fit: inner_size %d, time_step_rank %d, group_count %d, state_size %d", r.prefix+"ssm.*",
			inner, d.heads, d.keyHeads, d.keyDim))
	case every < 1:
		r.fail(fmt.Errorf("key %q is 0", r.prefix+"full_attention_interval"))
	}
	c.delta, c.recurrent = d, make([]bool, c.Layers)
	if r.err != nil {
		return
	}
	for i := range c.recurrent {
		c.recurrent[i] = (i+1)%every != 0
		if name := fmt.Sprintf("blk.%d.", i); r.f.HasTensor(name+"ssm_a") != r.f.HasTensor(name+"attn_q.weight") {
			c.recurrent[i] = r.f.HasTensor(name + "ssm_a") // the converter's interval is 4, whatever the model's
		}
	}
	r.perLayerBools("attention.recurrent_layers", c.recurrent)
}

// tensors lists the tensors of a delta net.
func (d *deltaNet) tensors(c *Config, l *layer) []spec {
	gates := []spec{
		matrix("ssm_alpha.weight", d.heads, c.Hidden, required, &l.alpha),
		matrix("ssm_beta.weight", d.heads, c.Hidden, required, &l.beta),
	}
	if d.joined {
		gates = []spec{matrix("ssm_ba.weight", 2*d.heads, c.Hidden, required, &l.beta)}
	}
	return slices.Concat([]spec{
		matrix("attn_qkv.weight", d.channels(), c.Hidden, required, &l.qkv),
		matrix("attn_gate.weight", d.inner(), c.Hidden, required, &l.outputGate),
		vector("ssm_conv1d.weight", d.taps, required, &l.conv).each(d.channels()),
	}, gates, []spec{
		vector("ssm_dt.bias", d.heads, required, &l.timeShift),
		vector("ssm_a", d.heads, required, &l.rate),
		vector("ssm_norm.weight", d.valueDim, required, &l.qNorm),
		matrix("ssm_out.weight", c.Hidden, d.inner(), required, &l.output),
	})
}

// deltaNet returns the output of a layer's delta net for h. The convolution mixes a few tokens of each channel of q, k and v.
// The delta rule writes values to a state and reads them by queries; the values read are normed and gated.
func (g *graph) deltaNet(h *value, d *deltaNet, l *layer) *value {
	state := len(g.states)
	g.states = append(g.states, stateShape{})
	qkv := g.emit(&convOp{out: newValue(d.channels()), x: g.linear(h, l.qkv, nil), weight: l.conv, state: state})
	beta := g.linear(h, l.beta, nil)
	var alpha *value
	if d.joined {
		each := d.heads / d.keyHeads
		alpha, beta = g.columns(beta, 2*each, each, each), g.columns(beta, 2*each, 0, each)
	} else {
		alpha = g.linear(h, l.alpha, nil)
	}
	read := g.emit(&deltaOp{out: newValue(d.inner()), qkv: qkv, alpha: alpha, beta: beta, net: d, layer: l, state: state})
	gated := g.glu(tensor.ActivationSiLU, g.linear(h, l.outputGate, nil), g.norm(read, l.qNorm))
	return g.linear(gated, l.output, nil)
}

// gatedAttention returns the output of a layer's attention for h. The rows of l.q are, for each head, those of its query
// and then those of a gate of what the head attended to.
func (g *graph) gatedAttention(h *value, c *Config, l *layer) *value {
	both, n := g.linear(h, l.q, nil), c.HeadDim
	q := g.rope(g.norm(g.columns(both, 2*n, 0, n), l.qNorm), &c.RoPE)
	k := g.rope(g.norm(g.linear(h, l.k, nil), l.kNorm), &c.RoPE)
	attended := g.attention(q, k, g.linear(h, l.v, nil), attentionShape{})
	return g.linear(g.mul(attended, g.sigmoid(g.columns(both, 2*n, n, n))), l.output, nil)
}

// gatedProjections lists the matrices and norms around gatedAttention.
func gatedProjections(c *Config, l *layer) []spec {
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	return []spec{
		matrix("attn_q.weight", 2*q, c.Hidden, required, &l.q),
		matrix("attn_k.weight", kv, c.Hidden, required, &l.k),
		matrix("attn_v.weight", kv, c.Hidden, required, &l.v),
		vector("attn_q_norm.weight", c.HeadDim, required, &l.qNorm),
		vector("attn_k_norm.weight", c.HeadDim, required, &l.kNorm),
		matrix("attn_output.weight", c.Hidden, q, required, &l.output),
	}
}

// deltaLayer lists the tensors of a layer of Qwen3-Next and Qwen3.5.
func deltaLayer(c *Config, i int, l *layer) []spec {
	mixer := gatedProjections
	if c.recurrent[i] {
		mixer = c.delta.tensors
	}
	feedForward := gatedFeedForward(c, l)
	if c.mixture != nil {
		feedForward = slices.Concat(c.mixture.tensors(c, l, absent), c.mixture.shared(c, l, required))
	}
	return slices.Concat(
		[]spec{vector("attn_norm.weight", c.Hidden, required, &l.attnNorm)},
		mixer(c, l),
		[]spec{vector("post_attention_norm.weight", c.Hidden, required, &l.ffnNorm)},
		feedForward,
	)
}

// deltaForward computes Qwen3-Next and Qwen3.5.
func deltaForward(g *graph, c *Config, w *weights) {
	x := g.embedding(w.embedding)
	for i, l := range g.layers(w) {
		h := g.norm(x, l.attnNorm)
		if c.recurrent[i] {
			x = g.add(x, g.deltaNet(h, c.delta, l))
		} else {
			x = g.add(x, g.gatedAttention(h, c, l))
		}
		h = g.norm(x, l.ffnNorm)
		if c.mixture != nil {
			x = g.add(x, g.mixed(h, c.mixture, l))
		} else {
			x = g.add(x, g.swiglu(h, l))
		}
	}
	x = g.head(x)
	g.result(g.linear(g.norm(x, w.outputNorm), w.output, nil))
}

// places says where a pass finds the states of its sequences.
func (p *pass) places() tensor.Places {
	return tensor.Places{Sequences: p.batch.Sequences, Positions: p.batch.Positions}
}

type convOp struct {
	fresh
	out, x *value
	weight *weight
	state  int
}

func (o *convOp) reads() []*value  { return []*value{o.x} }
func (o *convOp) writes() []*value { return []*value{o.out} }
func (o *convOp) run(p *pass) {
	weight := o.weight.tensor.Reshape(o.weight.experts, o.weight.cols)
	tensor.CausalConvInto(p.sequences(o.out, 0), p.sequences(o.x, 0), p.cache.states[o.state].liveConv, weight, p.places())
}

type deltaOp struct {
	fresh
	out, qkv, alpha, beta *value
	net                   *deltaNet
	layer                 *layer
	state                 int
}

func (o *deltaOp) reads() []*value  { return []*value{o.qkv, o.alpha, o.beta} }
func (o *deltaOp) writes() []*value { return []*value{o.out} }
func (o *deltaOp) run(p *pass) {
	const eps = 1e-6 // of the norm of queries and keys, whatever the model's is
	tensor.GatedDeltaInto(p.sequences(o.out, o.net.valueDim), p.sequences(o.qkv, 0), p.rows(o.alpha), p.rows(o.beta),
		p.cache.states[o.state].liveDelta, tensor.Delta{
			A: o.layer.rate.tensor, Dt: o.layer.timeShift.tensor, KeyHeads: o.net.keyHeads, Interleaved: o.net.interleaved,
			Eps: eps, Places: p.places(),
		})
}
