package model

import (
	"math"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// gemma2 is Gemma 2: scaled embeddings, norms before and after each block, GELU in its tanh form as the gate, scores
// and logits held below a bound. Every second layer, from the first on, sees a window of the newest tokens. The first
// converted files lack the keys of the window and the bounds, which are the same in all of these models.
//
// Gemma Team 2024, "Gemma 2: Improving Open Language Models at a Practical Size".
var gemma2 = architecture{
	name: "gemma2", example: "Gemma 2 2B to 27B", tested: transformers523,
	rope: kernel.RoPENeoX,
	read: func(r *reader, c *Config) {
		c.Window = r.sizeOr("attention.sliding_window", 4096, maxContext)
		r.windows(c, func(layer int) bool { return layer%2 == 0 })
		c.embeddingScale = float32(math.Sqrt(float64(c.Hidden)))
		c.scoreCap = r.scale("attn_logit_softcapping", 50)
		c.logitCap = r.scale("final_logit_softcapping", 30)
		if c.Layers == 46 { // 27B
			c.attentionScale = float32(1 / math.Sqrt(float64(c.Hidden)/float64(c.Heads)))
		}
	},
	outer: plainOuter,
	layer: func(c *Config, _ int, l *layer) []spec { return gemmaLayer(c, l) },
	forward: func(g *graph, c *Config, w *weights) {
		x := g.scale(g.embedding(w.embedding), c.embeddingScale)
		for i, l := range g.layers(w) {
			h := g.norm(x, l.attnNorm)
			q := g.rope(g.linear(h, l.q, nil), &c.RoPE)
			k := g.rope(g.linear(h, l.k, nil), &c.RoPE)
			v := g.linear(h, l.v, nil)
			seen := attentionShape{window: c.window(i), scale: c.attentionScale, softCap: c.scoreCap}
			attended := g.attention(q, k, v, seen)
			x = g.add(x, g.norm(g.linear(attended, l.output, nil), l.postAttnNorm))

			h = g.norm(x, l.ffnNorm)
			gated := g.glu(tensor.ActivationGELUTanh, g.linear(h, l.gate, nil), g.linear(h, l.up, nil))
			x = g.add(x, g.norm(g.linear(gated, l.down, nil), l.postFFNNorm))
		}
		x = g.head(x)
		g.result(g.softCap(g.linear(g.norm(x, w.outputNorm), w.output, nil), c.logitCap))
	},
}
