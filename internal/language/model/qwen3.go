package model

import "github.com/vibrant-ml/vibrant/internal/backend/kernel"

// qwen3 is Qwen 3 (dense): no biases, and an RMSNorm over each head of q and k before RoPE. Its heads may be wider than
// hidden / heads.
//
// Yang et al. 2025, "Qwen3 Technical Report".
var qwen3 = architecture{rope: kernel.RoPENeoX, qkNorm: required}
