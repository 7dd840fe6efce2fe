package model

import (
	"math"

	"slices"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// gemma3 is Gemma 3 (text): scaled embeddings, norms before and after each block and of each head of q and k, GELU in
// its tanh form as the gate. Five of six layers see a window of the newest tokens and rotate by another base, without
// scaling.
//
// Gemma Team 2025, "Gemma 3 Technical Report".
var gemma3 = architecture{
	name: "gemma3", example: "Gemma 3 270M to 27B, text", tested: transformers523,
	rope: kernel.RoPENeoX,
	read: func(r *reader, c *Config) {
		r.windows(c, func(layer int) bool { return (layer+1)%6 != 0 })
		c.localRoPE = r.unscaledRoPE(c, 10000)
		c.embeddingScale = float32(math.Sqrt(float64(c.Hidden)))
		c.logitCap = r.scale("final_logit_softcapping", 0)
		if c.Layers == 62 { // 27B, whose heads are not hidden / heads wide
			c.attentionScale = float32(1 / math.Sqrt(float64(c.Hidden)/float64(c.Heads)))
		}
	},
	outer: plainOuter,
	layer: func(c *Config, _ int, l *layer) []spec {
		return slices.Concat(gemmaLayer(c, l), []spec{
			vector("attn_q_norm.weight", c.HeadDim, required, &l.qNorm),
			vector("attn_k_norm.weight", c.HeadDim, required, &l.kNorm),
		})
	},
	forward: func(g *graph, c *Config, w *weights) {
		x := g.scale(g.embedding(w.embedding), c.embeddingScale)
		for i, l := range g.layers(w) {
			rope := c.layerRoPE(i)
			h := g.norm(x, l.attnNorm)
			q := g.rope(g.norm(g.linear(h, l.q, nil), l.qNorm), rope)
			k := g.rope(g.norm(g.linear(h, l.k, nil), l.kNorm), rope)
			v := g.linear(h, l.v, nil)
			attended := g.attention(q, k, v, attentionShape{window: c.window(i), scale: c.attentionScale})
			x = g.add(x, g.norm(g.linear(attended, l.output, nil), l.postAttnNorm))

			h = g.norm(x, l.ffnNorm)
			gated := g.glu(tensor.ActivationGELUTanh, g.linear(h, l.gate, nil), g.linear(h, l.up, nil))
			x = g.add(x, g.norm(g.linear(gated, l.down, nil), l.postFFNNorm))
		}
		x = g.head(x)
		g.result(g.softCap(g.linear(g.norm(x, w.outputNorm), w.output, nil), c.logitCap))
	},
}

// gemmaLayer lists what layers of Gemma 2 and 3 share. The norms' weights are stored with their "+ 1".
func gemmaLayer(c *Config, l *layer) []spec {
	return slices.Concat(
		[]spec{vector("attn_norm.weight", c.Hidden, required, &l.attnNorm)},
		projections(c, l, absent),
		[]spec{
			vector("post_attention_norm.weight", c.Hidden, required, &l.postAttnNorm),
			vector("ffn_norm.weight", c.Hidden, required, &l.ffnNorm),
		},
		gatedFeedForward(c, l),
		[]spec{vector("post_ffw_norm.weight", c.Hidden, required, &l.postFFNNorm)},
	)
}
