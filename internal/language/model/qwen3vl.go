package model

import "github.com/vibrant-ml/vibrant/internal/backend/kernel"

// qwen3vl is the text part of Qwen3-VL: qwen3. The sections of its rotation and its deep-stacked layers are for images:
// a token of text has one position in all sections.
//
// Bai et al. 2025, "Qwen3-VL Technical Report".
var qwen3vl = architecture{
	name: "qwen3vl", example: "Qwen3-VL 2B to 32B, text", tested: transformers523,
	rope: kernel.RoPENeoX,
	read: func(r *reader, _ *Config) {
		r.ignore("rope.dimension_sections")
		r.ignore("n_deepstack_layers")
	},
	outer:   plainOuter,
	layer:   qwen3.layer,
	forward: qwen3.forward,
}

// qwen3vlmoe is the same of Qwen3-VL with experts: qwen3moe.
var qwen3vlmoe = architecture{
	name: "qwen3vlmoe", example: "Qwen3-VL 30B-A3B, text", tested: "transformers 5.23, as qwen3moe",
	rope: kernel.RoPENeoX,
	read: func(r *reader, c *Config) {
		qwen3vl.read(r, c)
		qwen3moe.read(r, c)
	},
	outer:   plainOuter,
	layer:   qwen3moe.layer,
	forward: qwen3moe.forward,
}
