package model

import "github.com/vibrant-ml/vibrant/internal/backend/kernel"

// smollm3 is SmolLM3: llama's blocks, of which each fourth does not rotate queries and keys (NoPE).
//
// Bakouch et al. 2025, "SmolLM3: smol, multilingual, long-context reasoner"; Yang et al. 2025, "RoPE to NoPE and Back
// Again".
var smollm3 = architecture{
	name: "smollm3", example: "SmolLM3 3B", tested: transformers523,
	rope:  kernel.RoPEInterleaved,
	outer: plainOuter,
	layer: llama.layer,
	forward: func(g *graph, c *Config, w *weights) {
		x := g.embedding(w.embedding)
		for i, l := range g.layers(w) {
			h := g.norm(x, l.attnNorm)
			q, k := g.linear(h, l.q, l.qBias), g.linear(h, l.k, l.kBias)
			if (i+1)%4 != 0 {
				q, k = g.rope(q, &c.RoPE), g.rope(k, &c.RoPE)
			}
			attended := g.attention(q, k, g.linear(h, l.v, l.vBias), attentionShape{window: c.window(i)})
			x = g.add(x, g.linear(attended, l.output, l.outputBias))
			x = g.add(x, g.swiglu(g.norm(x, l.ffnNorm), l))
		}
		x = g.head(x)
		g.result(g.linear(g.norm(x, w.outputNorm), w.output, nil))
	},
}
