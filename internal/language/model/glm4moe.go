package model

import (
	"slices"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// glm4moe is GLM 4.5 and 4.6: biases on q, k and v, norms of their heads in some models, a part of each head rotated. Layers
// after the first ones have experts, chosen by a sigmoid and a bias for the choice alone, and an expert that every token has.
// Its draft layers, which come after the others, are not used.
//
// GLM-4.5 Team 2025, "GLM-4.5: Agentic, Reasoning, and Coding (ARC) Foundation Models".
var glm4moe = architecture{
	name: "glm4moe", example: "GLM 4.5 Air, GLM 4.6", tested: transformers523,
	rope: kernel.RoPENeoX,
	read: func(r *reader, c *Config) {
		r.readMixture(c, tensor.GatingSigmoid, true)
		r.draftLayers(c)
	},
	outer: plainOuter,
	layer: func(c *Config, i int, l *layer) []spec {
		feedForward := gatedFeedForward(c, l)
		if i >= c.mixture.dense {
			feedForward = slices.Concat(c.mixture.tensors(c, l, absent), c.mixture.shared(c, l, absent))
		}
		return slices.Concat(
			[]spec{vector("attn_norm.weight", c.Hidden, required, &l.attnNorm)},
			projections(c, l, optional),
			[]spec{
				vector("attn_q_norm.weight", c.HeadDim, optional, &l.qNorm),
				vector("attn_k_norm.weight", c.HeadDim, optional, &l.kNorm),
				vector("post_attention_norm.weight", c.Hidden, required, &l.ffnNorm),
			},
			feedForward,
		)
	},
	forward: func(g *graph, c *Config, w *weights) {
		x := g.embedding(w.embedding)
		for i, l := range g.layers(w) {
			h := g.norm(x, l.attnNorm)
			q := g.rope(g.normIf(g.linear(h, l.q, l.qBias), l.qNorm), &c.RoPE)
			k := g.rope(g.normIf(g.linear(h, l.k, l.kBias), l.kNorm), &c.RoPE)
			attended := g.attention(q, k, g.linear(h, l.v, l.vBias), attentionShape{})
			x = g.add(x, g.linear(attended, l.output, l.outputBias))
			h = g.norm(x, l.ffnNorm)
			if i < c.mixture.dense {
				x = g.add(x, g.swiglu(h, l))
			} else {
				x = g.add(x, g.mixed(h, c.mixture, l))
			}
		}
		x = g.head(x)
		g.result(g.linear(g.norm(x, w.outputNorm), w.output, nil))
	},
}
