package model

import (
	"slices"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// qwen3moe is Qwen 3 with experts in every layer: a softmax over all of them, of which the chosen are divided by their
// sum.
//
// Yang et al. 2025, "Qwen3 Technical Report".
var qwen3moe = architecture{
	name: "qwen3moe", example: "Qwen3 30B-A3B, Qwen3-Coder 30B-A3B", tested: transformers523,
	rope:  kernel.RoPENeoX,
	read:  func(r *reader, c *Config) { r.readMixture(c, tensor.GatingSoftmax, true) },
	outer: plainOuter,
	layer: func(c *Config, _ int, l *layer) []spec {
		return slices.Concat(
			[]spec{vector("attn_norm.weight", c.Hidden, required, &l.attnNorm)},
			projections(c, l, optional),
			[]spec{
				vector("attn_q_norm.weight", c.HeadDim, required, &l.qNorm),
				vector("attn_k_norm.weight", c.HeadDim, required, &l.kNorm),
				vector("ffn_norm.weight", c.Hidden, required, &l.ffnNorm),
			},
			c.mixture.tensors(c, l, absent),
		)
	},
	forward: func(g *graph, c *Config, w *weights) {
		x := g.embedding(w.embedding)
		for i, l := range g.layers(w) {
			h := g.norm(x, l.attnNorm)
			q := g.rope(g.norm(g.linear(h, l.q, l.qBias), l.qNorm), &c.RoPE)
			k := g.rope(g.norm(g.linear(h, l.k, l.kBias), l.kNorm), &c.RoPE)
			v := g.linear(h, l.v, l.vBias)
			attended := g.attention(q, k, v, attentionShape{window: c.window(i)})
			x = g.add(x, g.linear(attended, l.output, l.outputBias))
			x = g.add(x, g.mixed(g.norm(x, l.ffnNorm), c.mixture, l))
		}
		x = g.head(x)
		g.result(g.linear(g.norm(x, w.outputNorm), w.output, nil))
	},
}
