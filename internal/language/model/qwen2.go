package model

import "github.com/vibrant-ml/vibrant/internal/backend/kernel"

// qwen2 is Qwen 2 and 2.5: llama's blocks with biases on q, k and v, and rotate-half RoPE.
//
// Yang et al. 2024, "Qwen2 Technical Report".
var qwen2 = architecture{rope: kernel.RoPENeoX, qkvBias: required}
