package model

import (
	"slices"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// qwen2 is Qwen 2 and 2.5: llama's blocks with biases on q, k and v (few files lack them), and rotate-half RoPE.
//
// Yang et al. 2024, "Qwen2 Technical Report".
var qwen2 = architecture{
	name: "qwen2", example: "Qwen2.5 0.5B to 72B", tested: transformers517,
	rope:  kernel.RoPENeoX,
	outer: plainOuter,
	layer: func(c *Config, _ int, l *layer) []spec {
		return slices.Concat(
			[]spec{vector("attn_norm.weight", c.Hidden, required, &l.attnNorm)},
			projections(c, l, optional),
			[]spec{vector("ffn_norm.weight", c.Hidden, required, &l.ffnNorm)},
			gatedFeedForward(c, l),
		)
	},
	forward: llama.forward,
}
