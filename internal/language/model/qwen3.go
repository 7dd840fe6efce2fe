package model

import (
	"slices"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// qwen3 is Qwen 3 (dense): an RMSNorm over each head of q and k before RoPE. Its heads may be wider than hidden /
// heads.
//
// Yang et al. 2025, "Qwen3 Technical Report".
var qwen3 = architecture{
	name: "qwen3", example: "Qwen3 0.6B to 32B", tested: transformers517,
	rope:  kernel.RoPENeoX,
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
			gatedFeedForward(c, l),
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
			x = g.add(x, g.swiglu(g.norm(x, l.ffnNorm), l))
		}
		x = g.head(x)
		g.result(g.linear(g.norm(x, w.outputNorm), w.output, nil))
	},
}
