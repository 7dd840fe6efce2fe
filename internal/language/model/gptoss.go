package model

import (
	"slices"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// gptOSS is gpt-oss: biases everywhere, and attention with sinks, which sees a window in every second layer from the first on.
// Experts have a clamped SwiGLU and are weighted by a softmax over the chosen alone.
//
// OpenAI 2025, "gpt-oss-120b & gpt-oss-20b Model Card".
var gptOSS = architecture{
	name: "gpt-oss", example: "gpt-oss 20B and 120B", tested: transformers523,
	rope: kernel.RoPENeoX,
	read: func(r *reader, c *Config) {
		r.need("attention.sliding_window")
		r.windows(c, func(layer int) bool { return layer%2 == 0 })
		r.readMixture(c, tensor.GatingSoftmaxChosen, false)
	},
	outer: plainOuter,
	layer: func(c *Config, _ int, l *layer) []spec {
		return slices.Concat(
			[]spec{vector("attn_norm.weight", c.Hidden, required, &l.attnNorm)},
			projections(c, l, required),
			[]spec{
				vector("attn_output.bias", c.Hidden, required, &l.outputBias),
				vector("attn_sinks.weight", c.Heads, required, &l.sinks),
				vector("post_attention_norm.weight", c.Hidden, required, &l.ffnNorm),
			},
			c.mixture.tensors(c, l, required),
		)
	},
	forward: func(g *graph, c *Config, w *weights) {
		swiglu := tensor.ActivationClampedSiLU(1.702, 7)
		x := g.embedding(w.embedding)
		for i, l := range g.layers(w) {
			h := g.norm(x, l.attnNorm)
			q := g.rope(g.linear(h, l.q, l.qBias), &c.RoPE)
			k := g.rope(g.linear(h, l.k, l.kBias), &c.RoPE)
			v := g.linear(h, l.v, l.vBias)
			attended := g.attention(q, k, v, attentionShape{window: c.window(i), sinks: l.sinks})
			x = g.add(x, g.linear(attended, l.output, l.outputBias))
			x = g.add(x, g.experts(g.norm(x, l.ffnNorm), c.mixture, l, swiglu))
		}
		x = g.head(x)
		g.result(g.linear(g.norm(x, w.outputNorm), w.output, nil))
	},
}
