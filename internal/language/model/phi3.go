package model

import (
	"fmt"
	"slices"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// phi3 is Phi-3, Phi-3.5 and Phi-4: llama's blocks with rotate-half RoPE, with q, k and v in one tensor, and gate and
// up in another. Models of long contexts divide each frequency by a factor, of one list in short contexts and of
// another in long ones (LongRoPE).
//
// Abdin et al. 2024, "Phi-3 Technical Report"; Ding et al. 2024, "LongRoPE".
var phi3 = architecture{
	name: "phi3", example: "Phi-3.5 mini, Phi-4 mini, Phi-4", tested: transformers523,
	rope: kernel.RoPENeoX, longRoPE: true,
	read: func(r *reader, c *Config) {
		p := &c.RoPE
		short, err := p.factors(r.f, "rope_factors_short.weight")
		if err == nil {
			p.LongFactors, err = p.factors(r.f, "rope_factors_long.weight")
		}
		if err == nil && (short == nil) != (p.LongFactors == nil) {
			err = fmt.Errorf("tensors rope_factors_short.weight and rope_factors_long.weight: one is missing")
		}
		if err != nil {
			r.fail(err)
			return
		}
		if short != nil {
			p.Factors = short
		}
	},
	outer: plainOuter,
	layer: func(c *Config, _ int, l *layer) []spec {
		return slices.Concat(
			[]spec{vector("attn_norm.weight", c.Hidden, required, &l.attnNorm)},
			joinedProjections(c, l, optional),
			[]spec{vector("ffn_norm.weight", c.Hidden, required, &l.ffnNorm)},
			joinedFeedForward(c, l),
		)
	},
	forward: llama.forward,
}
