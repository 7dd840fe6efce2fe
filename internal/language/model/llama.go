package model

import (
	"slices"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// llama is Llama 1 to 3 and what is shaped like them: RMSNorm before each block, interleaved RoPE, SwiGLU. Its files'
// q and k are permuted for the pairs (2i, 2i+1). Mixtral's files are of this name too: they have experts in every layer,
// a softmax over the chosen ones.
//
// Touvron et al. 2023, "LLaMA: Open and Efficient Foundation Language Models"; Dubey et al. 2024, "The Llama 3 Herd of
// Models"; Jiang et al. 2024, "Mixtral of Experts".
var llama = architecture{
	name: "llama", example: "Llama 3.1 8B, Mistral 7B, Mixtral 8x7B, SmolLM2", tested: transformers517,
	rope: kernel.RoPEInterleaved,
	read: func(r *reader, c *Config) {
		if r.sizeOr("expert_count", 0, maxExperts) > 0 {
			r.readMixture(c, tensor.GatingSoftmax, true)
		}
	},
	outer: plainOuter,
	layer: func(c *Config, _ int, l *layer) []spec {
		feedForward := slices.Concat(gatedFeedForward(c, l), feedForwardBiases(c, l))
		if c.mixture != nil {
			feedForward = c.mixture.tensors(c, l, absent)
		}
		return slices.Concat(
			[]spec{vector("attn_norm.weight", c.Hidden, required, &l.attnNorm)},
			projections(c, l, optional),
			[]spec{vector("ffn_norm.weight", c.Hidden, required, &l.ffnNorm)},
			feedForward,
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
			h = g.norm(x, l.ffnNorm)
			if c.mixture != nil {
				x = g.add(x, g.mixed(h, c.mixture, l))
			} else {
				x = g.add(x, g.swiglu(h, l))
			}
		}
		x = g.head(x)
		g.result(g.linear(g.norm(x, w.outputNorm), w.output, nil))
	},
}
