package model

import "github.com/vibrant-ml/vibrant/internal/backend/kernel"

// llama is Llama 1 to 3 and what shares its blocks and its name in GGUF: Mistral, TinyLlama, SmolLM and SmolLM 2.
// Converters permute the rows of attn_q and attn_k so that the pairs of RoPE lie side by side. Some relatives
// (InternLM) have biases on q, k and v.
//
// Touvron et al. 2023, "LLaMA"; Grattafiori et al. 2024, "The Llama 3 Herd of Models".
var llama = architecture{rope: kernel.RoPEInterleaved, qkvBias: optional}
