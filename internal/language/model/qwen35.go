package model

import "github.com/vibrant-ml/vibrant/internal/backend/kernel"

// qwen35 is Qwen 3.5 (dense, text): three gated delta nets, then one layer of attention whose output is gated, and so on.
// A part of each head rotates; the sections of its rotation are for images. Its draft layers, which come after the
// others, are not used.
//
// Qwen Team 2026, "Qwen3.5"; Yang, Kautz & Hatamizadeh 2024, "Gated Delta Networks".
var qwen35 = architecture{
	name: "qwen35", example: "Qwen3.5 0.8B to 27B, text", tested: transformers523,
	rope:  kernel.RoPENeoX,
	read:  readQwen35,
	outer: plainOuter, layer: deltaLayer, forward: deltaForward,
}

func readQwen35(r *reader, c *Config) {
	r.ignore("rope.dimension_sections")
	r.draftLayers(c)
	r.readDeltaNet(c)
	c.delta.interleaved = true
}
