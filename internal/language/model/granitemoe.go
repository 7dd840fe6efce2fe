package model

import (
	"slices"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// graniteMoE is IBM's Granite 3 and 4 with experts: granite's multipliers, a softmax over the chosen experts alone, and
// where the file has it one that every token has.
//
// Granite Team 2024, "Granite 3.0 Language Models".
var graniteMoE = architecture{
	name: "granitemoe", example: "Granite 3.1 1B-A400M and 3B-A800M", tested: transformers523,
	rope: kernel.RoPEInterleaved,
	read: func(r *reader, c *Config) {
		readGraniteScales(r, c)
		r.readMixture(c, tensor.GatingSoftmaxChosen, false)
	},
	outer: plainOuter,
	layer: func(c *Config, _ int, l *layer) []spec {
		return slices.Concat(
			[]spec{vector("attn_norm.weight", c.Hidden, required, &l.attnNorm)},
			projections(c, l, optional),
			[]spec{vector("ffn_norm.weight", c.Hidden, required, &l.ffnNorm)},
			c.mixture.tensors(c, l, absent),
			c.mixture.shared(c, l, absent),
		)
	},
	forward: func(g *graph, c *Config, w *weights) {
		x := g.scale(g.embedding(w.embedding), c.embeddingScale)
		for _, l := range g.layers(w) {
			h := g.norm(x, l.attnNorm)
			q := g.rope(g.linear(h, l.q, l.qBias), &c.RoPE)
			k := g.rope(g.linear(h, l.k, l.kBias), &c.RoPE)
			v := g.linear(h, l.v, l.vBias)
			attended := g.attention(q, k, v, attentionShape{scale: c.attentionScale})
			x = g.add(x, g.scale(g.linear(attended, l.output, l.outputBias), c.residualScale))
			x = g.add(x, g.scale(g.mixed(g.norm(x, l.ffnNorm), c.mixture, l), c.residualScale))
		}
		x = g.head(x)
		g.result(g.scale(g.linear(g.norm(x, w.outputNorm), w.output, nil), 1/c.logitDivisor))
	},
}
