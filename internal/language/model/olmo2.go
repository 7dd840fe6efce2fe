package model

import (
	"slices"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// olmo2 is OLMo 2, and OLMo 3 with a window in three of four layers: no norms before the blocks but after them, and
// norms over all of q and all of k. Layers with a window rotate by frequencies that are not scaled.
//
// OLMo Team 2024, "2 OLMo 2 Furious"; OLMo Team 2025, "OLMo 3".
var olmo2 = architecture{
	name: "olmo2", example: "OLMo 2 1B to 32B, OLMo 3 7B", tested: transformers523,
	rope: kernel.RoPENeoX,
	read: func(r *reader, c *Config) {
		r.windows(c, func(layer int) bool { return (layer+1)%4 != 0 })
		c.localRoPE = r.unscaledRoPE(c, c.RoPE.Base)
	},
	outer: plainOuter,
	layer: func(c *Config, _ int, l *layer) []spec {
		return slices.Concat(
			projections(c, l, absent),
			[]spec{
				vector("attn_q_norm.weight", c.Heads*c.HeadDim, required, &l.qNorm),
				vector("attn_k_norm.weight", c.KVHeads*c.HeadDim, required, &l.kNorm),
				vector("post_attention_norm.weight", c.Hidden, required, &l.postAttnNorm),
			},
			gatedFeedForward(c, l),
			[]spec{vector("post_ffw_norm.weight", c.Hidden, required, &l.postFFNNorm)},
		)
	},
	forward: func(g *graph, c *Config, w *weights) {
		x := g.embedding(w.embedding)
		for i, l := range g.layers(w) {
			rope := c.layerRoPE(i)
			q := g.rope(g.norm(g.linear(x, l.q, nil), l.qNorm), rope)
			k := g.rope(g.norm(g.linear(x, l.k, nil), l.kNorm), rope)
			attended := g.attention(q, k, g.linear(x, l.v, nil), attentionShape{window: c.window(i)})
			x = g.add(x, g.norm(g.linear(attended, l.output, nil), l.postAttnNorm))
			x = g.add(x, g.norm(g.swiglu(x, l), l.postFFNNorm))
		}
		x = g.head(x)
		g.result(g.linear(g.norm(x, w.outputNorm), w.output, nil))
	},
}
