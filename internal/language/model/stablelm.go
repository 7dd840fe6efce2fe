package model

import (
	"fmt"
	"slices"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// stablelm is StableLM 3B and StableLM 2 1.6B: LayerNorm with biases before each block, a part of each head rotated,
// SwiGLU. The variant whose blocks run side by side (12B) is not supported.
//
// Bellagente et al. 2024, "Stable LM 2 1.6B Technical Report".
var stablelm = architecture{
	name: "stablelm", example: "StableLM 2 1.6B", tested: transformers523,
	rope: kernel.RoPENeoX, layerNorm: true,
	read: func(r *reader, _ *Config) {
		if r.boolOr("use_parallel_residual", false) {
			r.fail(fmt.Errorf("key %q is true: not supported", r.prefix+"use_parallel_residual"))
		}
	},
	outer: layerNormOuter,
	layer: func(c *Config, _ int, l *layer) []spec {
		return slices.Concat(
			[]spec{
				vector("attn_norm.weight", c.Hidden, required, &l.attnNorm),
				vector("attn_norm.bias", c.Hidden, required, &l.attnNormBias),
			},
			projections(c, l, optional),
			[]spec{
				vector("ffn_norm.weight", c.Hidden, required, &l.ffnNorm),
				vector("ffn_norm.bias", c.Hidden, required, &l.ffnNormBias),
			},
			gatedFeedForward(c, l),
		)
	},
	forward: func(g *graph, c *Config, w *weights) {
		x := g.embedding(w.embedding)
		for _, l := range g.layers(w) {
			h := g.layerNorm(x, l.attnNorm, l.attnNormBias)
			q := g.rope(g.linear(h, l.q, l.qBias), &c.RoPE)
			k := g.rope(g.linear(h, l.k, l.kBias), &c.RoPE)
			attended := g.attention(q, k, g.linear(h, l.v, l.vBias), attentionShape{})
			x = g.add(x, g.linear(attended, l.output, l.outputBias))
			x = g.add(x, g.swiglu(g.layerNorm(x, l.ffnNorm, l.ffnNormBias), l))
		}
		x = g.head(x)
		g.result(g.linear(g.layerNorm(x, w.outputNorm, w.outputNormBias), w.output, nil))
	},
}
