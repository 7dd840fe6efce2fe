package model

import (
	"slices"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// qwen2moe is Qwen 1.5 and 2 with experts: a softmax over all of them, as it is, and one that every token has, times a
// sigmoid.
//
// Yang et al. 2024, "Qwen2 Technical Report".
var qwen2moe = architecture{
	name: "qwen2moe", example: "Qwen1.5-MoE A2.7B, Qwen2 57B-A14B", tested: transformers523,
	rope:  kernel.RoPENeoX,
	read:  func(r *reader, c *Config) { r.readMixture(c, tensor.GatingSoftmax, false) },
	outer: plainOuter,
	layer: func(c *Config, _ int, l *layer) []spec {
		return slices.Concat(
			[]spec{vector("attn_norm.weight", c.Hidden, required, &l.attnNorm)},
			projections(c, l, optional),
			[]spec{vector("ffn_norm.weight", c.Hidden, required, &l.ffnNorm)},
			c.mixture.tensors(c, l, absent),
			c.mixture.shared(c, l, required),
		)
	},
	forward: func(g *graph, c *Config, w *weights) {
		x := g.embedding(w.embedding)
		for i, l := range g.layers(w) {
			h := g.norm(x, l.attnNorm)
			q := g.rope(g.linear(h, l.q, l.qBias), &c.RoPE)
			k := g.rope(g.linear(h, l.k, l.kBias), &c.RoPE)
			v := g.linear(h, l.v, l.vBias)
			attended := g.attention(q, k, v, attentionShape{window: c.window(i)})
			x = g.add(x, g.linear(attended, l.output, l.outputBias))
			x = g.add(x, g.mixed(g.norm(x, l.ffnNorm), c.mixture, l))
		}
		x = g.head(x)
		g.result(g.linear(g.norm(x, w.outputNorm), w.output, nil))
	},
}
