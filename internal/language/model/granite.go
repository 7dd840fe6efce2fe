package model

import (
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// granite is IBM's Granite 3 and 4 (dense): llama's blocks with four multipliers: of the embeddings, of each branch
// before it is added, of the scores, and the logits are divided by one.
//
// Granite Team 2024, "Granite 3.0 Language Models"; Yang et al. 2022, "Tensor Programs V" (muP).
var granite = architecture{
	name: "granite", example: "Granite 3.3 2B and 8B", tested: transformers523,
	rope:  kernel.RoPEInterleaved,
	read:  readGraniteScales,
	outer: plainOuter,
	layer: llama.layer,
	forward: func(g *graph, c *Config, w *weights) {
		x := g.scale(g.embedding(w.embedding), c.embeddingScale)
		for _, l := range g.layers(w) {
			h := g.norm(x, l.attnNorm)
			q := g.rope(g.linear(h, l.q, l.qBias), &c.RoPE)
			k := g.rope(g.linear(h, l.k, l.kBias), &c.RoPE)
			v := g.linear(h, l.v, l.vBias)
			attended := g.attention(q, k, v, attentionShape{scale: c.attentionScale})
			x = g.add(x, g.scale(g.linear(attended, l.output, l.outputBias), c.residualScale))
			x = g.add(x, g.scale(g.swiglu(g.norm(x, l.ffnNorm), l), c.residualScale))
		}
		x = g.head(x)
		g.result(g.scale(g.linear(g.norm(x, w.outputNorm), w.output, nil), 1/c.logitDivisor))
	},
}

// readGraniteScales reads the multipliers, which a file must have; 0 stands for none.
func readGraniteScales(r *reader, c *Config) {
	r.need("embedding_scale", "residual_scale", "attention.scale", "logit_scale")
	c.embeddingScale = r.scale("embedding_scale", 1)
	c.residualScale = r.scale("residual_scale", 1)
	c.attentionScale = r.scale("attention.scale", 0)
	c.logitDivisor = r.scale("logit_scale", 1)
}
