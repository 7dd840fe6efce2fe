package model

import (
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// qwen3next is Qwen3-Next: qwen35moe, but that neighbouring value heads share a key head, and that one matrix gives both
// gates of a delta net.
//
// Qwen Team 2025, "Qwen3-Next"; Yang, Kautz & Hatamizadeh 2024, "Gated Delta Networks".
var qwen3next = architecture{
	name: "qwen3next", example: "Qwen3-Next 80B-A3B", tested: transformers523,
	rope: kernel.RoPENeoX,
	read: func(r *reader, c *Config) {
		r.readMixture(c, tensor.GatingSoftmax, true)
		r.draftLayers(c)
		r.readDeltaNet(c)
		c.delta.joined = true
	},
	outer: plainOuter, layer: deltaLayer, forward: deltaForward,
}
