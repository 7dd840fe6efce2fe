package model

import (
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// qwen35moe is qwen35 with experts in every layer, chosen as in qwen3moe, and one that every token has, times a sigmoid.
//
// Qwen Team 2026, "Qwen3.5".
var qwen35moe = architecture{
	name: "qwen35moe", example: "Qwen3.5 35B-A3B to 397B-A17B, text", tested: transformers523,
	rope: kernel.RoPENeoX,
	read: func(r *reader, c *Config) {
		r.readMixture(c, tensor.GatingSoftmax, true)
		readQwen35(r, c)
	},
	outer: plainOuter, layer: deltaLayer, forward: deltaForward,
}
