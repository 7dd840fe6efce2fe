package model

import (
	"slices"
)

// gpt2 is GPT-2: LayerNorm with biases before each block, learned embeddings of positions instead of rotation, and a
// feed-forward of two products with GELU in its tanh form between them.
//
// Radford et al. 2019, "Language Models are Unsupervised Multitask Learners".
var gpt2 = architecture{
	name: "gpt2", example: "GPT-2 124M to 1.5B", tested: transformers523,
	layerNorm: true,
	outer: func(c *Config, w *weights) []spec {
		return append(layerNormOuter(c, w), matrix("position_embd.weight", c.Context, c.Hidden, required, &w.positions))
	},
	layer: func(c *Config, _ int, l *layer) []spec {
		return slices.Concat(
			[]spec{
				vector("attn_norm.weight", c.Hidden, required, &l.attnNorm),
				vector("attn_norm.bias", c.Hidden, required, &l.attnNormBias),
			},
			joinedProjections(c, l, required),
			[]spec{
				vector("ffn_norm.weight", c.Hidden, required, &l.ffnNorm),
				vector("ffn_norm.bias", c.Hidden, required, &l.ffnNormBias),
				matrix("ffn_up.weight", c.FeedForward, c.Hidden, required, &l.up),
				vector("ffn_up.bias", c.FeedForward, required, &l.upBias),
				matrix("ffn_down.weight", c.Hidden, c.FeedForward, required, &l.down),
				vector("ffn_down.bias", c.Hidden, required, &l.downBias),
			},
		)
	},
	forward: func(g *graph, c *Config, w *weights) {
		x := g.add(g.embedding(w.embedding), g.positionEmbedding(w.positions))
		for _, l := range g.layers(w) {
			h := g.layerNorm(x, l.attnNorm, l.attnNormBias)
			q, k, v := g.linear(h, l.q, l.qBias), g.linear(h, l.k, l.kBias), g.linear(h, l.v, l.vBias)
			x = g.add(x, g.linear(g.attention(q, k, v, attentionShape{}), l.output, l.outputBias))
			h = g.layerNorm(x, l.ffnNorm, l.ffnNormBias)
			x = g.add(x, g.linear(g.geluTanh(g.linear(h, l.up, l.upBias)), l.down, l.downBias))
		}
		x = g.head(x)
		g.result(g.linear(g.layerNorm(x, w.outputNorm, w.outputNormBias), w.output, nil))
	},
}
