package model

import (
	"slices"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// bitnetB158 is BitNet b1.58: llama's blocks with rotate-half RoPE, squared ReLU, and a norm before the last product of each half.
// The seven products of a layer have ternary weights, and inputs that are rounded to int8 by rows.
//
// Ma et al. 2024, "The Era of 1-bit LLMs"; Ma et al. 2025, "BitNet b1.58 2B4T Technical Report".
var bitnetB158 = architecture{
	name: "bitnet-b1.58", example: "BitNet b1.58 2B-4T", tested: "transformers 5.23",
	rope:   kernel.RoPENeoX,
	rounds: true,
	outer:  plainOuter,
	layer: func(c *Config, _ int, l *layer) []spec {
		matrices := slices.Concat(projections(c, l, absent), gatedFeedForward(c, l))
		for i := range matrices {
			matrices[i].rounded = matrices[i].rows > 0
		}
		return slices.Concat(
			[]spec{
				vector("attn_norm.weight", c.Hidden, required, &l.attnNorm),
				vector("attn_sub_norm.weight", c.Heads*c.HeadDim, required, &l.attnSubNorm),
				vector("ffn_norm.weight", c.Hidden, required, &l.ffnNorm),
				vector("ffn_sub_norm.weight", c.FeedForward, required, &l.ffnSubNorm),
			},
			matrices,
		)
	},
	forward: func(g *graph, c *Config, w *weights) { g.bitnet(c, w, tensor.ActivationReLUSquared) },
}

// bitnet25 is what Microsoft's converter calls the same blocks.
var bitnet25 = architecture{
	name: "bitnet-25", example: "BitNet b1.58 2B-4T, converted earlier", tested: "as bitnet-b1.58, under its other name",
	rope: kernel.RoPENeoX, rounds: true, outer: plainOuter, layer: bitnetB158.layer, forward: bitnetB158.forward,
}

// bitnet is the older model of 1bitLLM: the same with SiLU in the place of squared ReLU, and a scale beside each matrix.
//
// Wang et al. 2023, "BitNet: Scaling 1-bit Transformers for Large Language Models".
var bitnet = architecture{
	name: "bitnet", example: "1bitLLM bitnet_b1_58-3B", tested: "as bitnet-b1.58, with SiLU by the plain operations",
	rope: kernel.RoPENeoX, rounds: true, outer: plainOuter, layer: bitnetB158.layer,
	forward: func(g *graph, c *Config, w *weights) { g.bitnet(c, w, tensor.ActivationSiLU) },
}

// bitnet records a model of BitNet's blocks.
func (g *graph) bitnet(c *Config, w *weights, activation tensor.Activation) {
	x := g.embedding(w.embedding)
	for _, l := range g.layers(w) {
		h := g.bitLinears(rounding{in: x, norm: l.attnNorm}, nil, l.q, l.k, l.v)
		q, k := g.rope(h[0], &c.RoPE), g.rope(h[1], &c.RoPE)
		attended := g.attention(q, k, h[2], attentionShape{})
		x = g.bitLinears(rounding{in: attended, norm: l.attnSubNorm}, x, l.output)[0]
		f := g.bitLinears(rounding{in: x, norm: l.ffnNorm}, nil, l.gate, l.up)
		x = g.bitLinears(rounding{in: f[0], up: f[1], activation: activation, norm: l.ffnSubNorm}, x, l.down)[0]
	}
	x = g.head(x)
	g.result(g.linear(g.norm(x, w.outputNorm), w.output, nil))
}
