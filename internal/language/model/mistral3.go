package model

import "github.com/vibrant-ml/vibrant/internal/backend/kernel"

// mistral3 is Ministral 3: llama's blocks with heads of a size of their own, YaRN with a magnitude of its own, and
// queries that grow with their position: times 1 + s ln(1 + floor(position / original context)).
//
// Mistral AI 2025, "Ministral 3"; the growth of queries is that of Meta 2025, "Llama 4".
var mistral3 = architecture{
	name: "mistral3", example: "Ministral 3 3B to 14B", tested: transformers523,
	rope: kernel.RoPEInterleaved,
	read: func(r *reader, c *Config) {
		c.RoPE.LogMultiplier = r.logMultiplier()
		r.growingQueries(c, r.floatOr("attention.temperature_scale", 0), c.RoPE.OriginalContext, 0)
	},
	outer: plainOuter,
	layer: llama.layer,
	forward: func(g *graph, c *Config, w *weights) {
		x := g.embedding(w.embedding)
		for _, l := range g.layers(w) {
			h := g.norm(x, l.attnNorm)
			q := g.rope(g.linear(h, l.q, l.qBias), c.queryRoPE)
			k := g.rope(g.linear(h, l.k, l.kBias), &c.RoPE)
			v := g.linear(h, l.v, l.vBias)
			x = g.add(x, g.linear(g.attention(q, k, v, attentionShape{}), l.output, l.outputBias))
			x = g.add(x, g.swiglu(g.norm(x, l.ffnNorm), l))
		}
		x = g.head(x)
		g.result(g.linear(g.norm(x, w.outputNorm), w.output, nil))
	},
}
