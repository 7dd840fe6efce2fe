package model

import (
	"slices"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// glm4 is GLM-4 and GLM-Z1 of 2025: norms before and after each block, biases on q, k and v, half of each head rotated
// in interleaved pairs, and gate and up in one tensor.
//
// GLM Team 2024, "ChatGLM: A Family of Large Language Models from GLM-130B to GLM-4 All Tools".
var glm4 = architecture{
	name: "glm4", example: "GLM-4 9B 0414, GLM-4 32B 0414", tested: transformers523,
	rope:  kernel.RoPEInterleaved,
	outer: plainOuter,
	layer: func(c *Config, _ int, l *layer) []spec {
		return slices.Concat(
			[]spec{vector("attn_norm.weight", c.Hidden, required, &l.attnNorm)},
			projections(c, l, optional),
			[]spec{
				vector("post_attention_norm.weight", c.Hidden, required, &l.postAttnNorm),
				vector("ffn_norm.weight", c.Hidden, required, &l.ffnNorm),
			},
			joinedFeedForward(c, l),
			[]spec{vector("post_ffw_norm.weight", c.Hidden, required, &l.postFFNNorm)},
		)
	},
	forward: func(g *graph, c *Config, w *weights) {
		x := g.embedding(w.embedding)
		for _, l := range g.layers(w) {
			h := g.norm(x, l.attnNorm)
			q := g.rope(g.linear(h, l.q, l.qBias), &c.RoPE)
			k := g.rope(g.linear(h, l.k, l.kBias), &c.RoPE)
			attended := g.attention(q, k, g.linear(h, l.v, l.vBias), attentionShape{})
			x = g.add(x, g.norm(g.linear(attended, l.output, l.outputBias), l.postAttnNorm))
			x = g.add(x, g.norm(g.swiglu(g.norm(x, l.ffnNorm), l), l.postFFNNorm))
		}
		x = g.head(x)
		g.result(g.linear(g.norm(x, w.outputNorm), w.output, nil))
	},
}
