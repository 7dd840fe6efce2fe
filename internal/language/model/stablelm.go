package model

import (
	"slices"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// stablelm is StableLM 3B and StableLM 2: LayerNorm with biases before each block, a part of each head rotated, SwiGLU.
// In the 12B the blocks run side by side on one norm, and each head of q and k has a LayerNorm without a bias.
//
// Bellagente et al. 2024, "Stable LM 2 1.6B Technical Report".
var stablelm = architecture{
	name: "stablelm", example: "StableLM 2 1.6B and 12B", tested: transformers523,
	rope: kernel.RoPENeoX, layerNorm: true,
	read: func(r *reader, c *Config) {
		c.sideBySide = r.boolOr("use_parallel_residual", false)
	},
	outer: layerNormOuter,
	layer: func(c *Config, _ int, l *layer) []spec {
		between := required
		if c.sideBySide {
			between = absent
		}
		return slices.Concat(
			[]spec{
				vector("attn_norm.weight", c.Hidden, required, &l.attnNorm),
				vector("attn_norm.bias", c.Hidden, required, &l.attnNormBias),
			},
			projections(c, l, optional),
			[]spec{
				vector("attn_q_norm.weight", c.HeadDim, optional, &l.qNorm).each(c.Heads),
				vector("attn_k_norm.weight", c.HeadDim, optional, &l.kNorm).each(c.KVHeads),
				vector("ffn_norm.weight", c.Hidden, between, &l.ffnNorm),
				vector("ffn_norm.bias", c.Hidden, between, &l.ffnNormBias),
			},
			gatedFeedForward(c, l),
		)
	},
	forward: func(g *graph, c *Config, w *weights) {
		x := g.embedding(w.embedding)
		for _, l := range g.layers(w) {
			h := g.layerNorm(x, l.attnNorm, l.attnNormBias)
			q := g.rope(g.headLayerNorm(g.linear(h, l.q, l.qBias), l.qNorm), &c.RoPE)
			k := g.rope(g.headLayerNorm(g.linear(h, l.k, l.kBias), l.kNorm), &c.RoPE)
			attended := g.attention(q, k, g.linear(h, l.v, l.vBias), attentionShape{})
			x = g.add(x, g.linear(attended, l.output, l.outputBias))
			if !c.sideBySide {
				h = g.layerNorm(x, l.ffnNorm, l.ffnNormBias)
			}
			x = g.add(x, g.swiglu(h, l))
		}
		x = g.head(x)
		g.result(g.linear(g.layerNorm(x, w.outputNorm, w.outputNormBias), w.output, nil))
	},
}

// headLayerNorm is layerNorm of each head of x, with a weight for each element of each head; x itself where the model has
// none.
func (g *graph) headLayerNorm(x *value, w *weight) *value {
	if w == nil {
		return x
	}
	return g.emit(&headLayerNormOp{out: newValue(x.cols), x: x, weight: w, eps: g.config.Epsilon})
}

type headLayerNormOp struct {
	out, x *value
	weight *weight
	eps    float32
}

func (o *headLayerNormOp) reads() []*value      { return []*value{o.x} }
func (o *headLayerNormOp) writes() []*value     { return []*value{o.out} }
func (o *headLayerNormOp) overwrites() []*value { return []*value{o.x} }
func (o *headLayerNormOp) run(p *pass) {
	tensor.LayerNormInto(p.heads(o.out, o.weight.cols), p.heads(o.x, o.weight.cols), nil, nil, o.eps)
	tensor.MulInto(p.rows(o.out), p.rows(o.out), o.weight.tensor)
}
