package model

import (
	"slices"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// llama is Llama 1 to 3 and what is shaped like them: RMSNorm before each block, interleaved RoPE, SwiGLU. Its files'
// q and k are permuted for the pairs (2i, 2i+1).
//
// Touvron et al. 2023, "LLaMA: Open and Efficient Foundation Language Models"; Dubey et al. 2024, "The Llama 3 Herd of
// Models".
var llama = architecture{
	name: "llama", example: "Llama 3.1 8B, Mistral 7B, SmolLM2", tested: transformers517,
	rope:  kernel.RoPEInterleaved,
	outer: plainOuter,
	layer: func(c *Config, _ int, l *layer) []spec {
		return slices.Concat(
			[]spec{vector("attn_norm.weight", c.Hidden, required, &l.attnNorm)},
			projections(c, l, optional),
			[]spec{vector("ffn_norm.weight", c.Hidden, required, &l.ffnNorm)},
			gatedFeedForward(c, l),
		)
	},
	forward: func(g *graph, c *Config, w *weights) {
		x := g.embedding(w.embedding)
		for i, l := range g.layers(w) {
			h := g.norm(x, l.attnNorm)
			q := g.rope(g.linear(h, l.q, l.qBias), &c.RoPE)
			k := g.rope(g.linear(h, l.k, l.kBias), &c.RoPE)
			v := g.linear(h, l.v, l.vBias)
			attended := g.attention(q, k, v, attentionShape{window: c.window(i)})
			x = g.add(x, g.linear(attended, l.output, l.outputBias))
			x = g.add(x, g.swiglu(g.norm(x, l.ffnNorm), l))
		}
		x = g.head(x)
		g.result(g.linear(g.norm(x, w.outputNorm), w.output, nil))
	},
}
