package model

import (
	"slices"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// llama4 is the text part of Llama 4. Three of four layers rotate, attend within chunks, and norm the heads of q and k
// without a weight; the fourth does neither, and its queries grow with their position. Some layers have experts, mostly
// one a token, whose input is weighted, and one that every token has.
//
// Meta 2025, "The Llama 4 herd".
var llama4 = architecture{
	name: "llama4", example: "Llama 4 Scout and Maverick, text", tested: transformers523,
	rope: kernel.RoPEInterleaved,
	read: func(r *reader, c *Config) {
		r.readMixture(c, tensor.GatingSigmoid, false)
		c.mixture.sharedWidth = c.mixture.width
		c.mixtureStep = r.sizeOr("interleave_moe_layer_step", 1, maxLayers)
		c.queryRoPE = &RoPE{
			Mode: c.RoPE.Mode, Dim: c.HeadDim, Still: true, Growth: 0.1, GrowthEvery: 8192, GrowthAhead: 1,
		}
	},
	outer: plainOuter,
	layer: func(c *Config, i int, l *layer) []spec {
		feedForward := gatedFeedForward(c, l)
		if c.mixes(i) {
			feedForward = slices.Concat(c.mixture.tensors(c, l, absent), c.mixture.shared(c, l, absent))
		}
		return slices.Concat(
			[]spec{vector("attn_norm.weight", c.Hidden, required, &l.attnNorm)},
			projections(c, l, absent),
			[]spec{vector("ffn_norm.weight", c.Hidden, required, &l.ffnNorm)},
			feedForward,
		)
	},
	forward: func(g *graph, c *Config, w *weights) {
		const chunk = 8192
		x := g.embedding(w.embedding)
		for i, l := range g.layers(w) {
			h := g.norm(x, l.attnNorm)
			q, k, v := g.linear(h, l.q, nil), g.linear(h, l.k, nil), g.linear(h, l.v, nil)
			var attended *value
			if (i+1)%4 == 0 {
				attended = g.attention(g.rope(q, c.queryRoPE), k, v, attentionShape{})
			} else {
				q, k = g.rope(q, &c.RoPE), g.rope(k, &c.RoPE)
				if c.mixture.experts != 128 { // Maverick does without
					q, k = g.unitNorm(q, c.HeadDim), g.unitNorm(k, c.HeadDim)
				}
				attended = g.attention(q, k, v, attentionShape{chunk: chunk})
			}
			x = g.add(x, g.linear(attended, l.output, nil))

			h = g.norm(x, l.ffnNorm)
			if !c.mixes(i) {
				x = g.add(x, g.swiglu(h, l))
				continue
			}
			ids, weights := g.route(g.linear(h, l.router, nil), c.mixture, nil)
			repeated := h // once for each expert
			for range c.mixture.used - 1 {
				repeated = g.join(repeated, repeated.cols, h, h.cols)
			}
			weighted := g.mulRows(repeated, weights)
			gate, up := g.expertLinear(weighted, l.expertGate, nil, ids), g.expertLinear(weighted, l.expertUp, nil, ids)
			down := g.expertLinear(g.glu(tensor.ActivationSiLU, gate, up), l.expertDown, nil, ids)
			x = g.add(x, g.add(g.expertSum(down, nil), g.shared(h, l)))
		}
		x = g.head(x)
		g.result(g.linear(g.norm(x, w.outputNorm), w.output, nil))
	},
}

// mixes says whether a layer has experts.
func (c *Config) mixes(layer int) bool { return c.mixtureStep > 0 && (layer+1)%c.mixtureStep == 0 }
