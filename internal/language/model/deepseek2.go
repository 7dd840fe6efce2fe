package model

import (
	"fmt"
	"math"
	"slices"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// deepseek2 is DeepSeek V2, V3 and R1. Keys and values of all heads are products of one compressed row a token, which
// the cache holds beside one rotated part of a key: queries are taken into the compressed space, and what they attended
// to out of it. After the first layers there are experts, with one that every token has.
//
// DeepSeek-AI 2024, "DeepSeek-V2" (multi-head latent attention) and "DeepSeek-V3 Technical Report" (the choice of
// experts).
var deepseek2 = architecture{
	name: "deepseek2", example: "DeepSeek V2 Lite, V3, R1, GLM 4.7 Flash", tested: transformers523,
	rope: kernel.RoPEInterleaved, latent: true,
	read: func(r *reader, c *Config) {
		gating := tensor.GatingSoftmax
		if r.f.HasTensor(fmt.Sprintf("blk.%d.exp_probs_b.bias", r.sizeOr("leading_dense_block_count", 0, c.Layers))) {
			gating = tensor.GatingSigmoid // files of GLM 4.7 Flash do not say so
		}
		r.readMixture(c, gating, false)
		c.mixture.groupByBest = c.mixture.gating == tensor.GatingSoftmax // V2; V3 adds up a group's two best
		r.draftLayers(c)
		r.readLatent(c)
	},
	outer: plainOuter,
	layer: func(c *Config, i int, l *layer) []spec {
		t, q := c.latent, c.Heads*(c.latent.still+c.latent.rotated)
		queries := []spec{matrix("attn_q.weight", q, c.Hidden, required, &l.q)}
		if t.queryRank > 0 {
			queries = []spec{
				matrix("attn_q_a.weight", t.queryRank, c.Hidden, required, &l.queryDown),
				vector("attn_q_a_norm.weight", t.queryRank, required, &l.qNorm),
				matrix("attn_q_b.weight", q, t.queryRank, required, &l.q),
			}
		}
		feedForward := gatedFeedForward(c, l)
		if i >= c.mixture.dense {
			feedForward = slices.Concat(c.mixture.tensors(c, l, absent), c.mixture.shared(c, l, absent))
		}
		keyUp := matrix("attn_k_b.weight", t.rank, t.still, required, &l.keyUp).each(c.Heads)
		valueUp := matrix("attn_v_b.weight", t.value, t.rank, required, &l.valueUp).each(c.Heads)
		if t.together {
			both := t.still + t.value
			keyUp = matrix("attn_kv_b.weight", t.rank, t.still, required, &l.keyUp).part(0, both).inOne(c.Heads).transposed()
			valueUp = matrix("attn_kv_b.weight", t.value, t.rank, required, &l.valueUp).part(t.still, both).inOne(c.Heads)
		}
		return slices.Concat(
			[]spec{vector("attn_norm.weight", c.Hidden, required, &l.attnNorm)},
			queries,
			[]spec{
				matrix("attn_kv_a_mqa.weight", t.rank+t.rotated, c.Hidden, required, &l.k),
				vector("attn_kv_a_norm.weight", t.rank, required, &l.kNorm),
				keyUp,
				valueUp,
				matrix("attn_output.weight", c.Hidden, c.Heads*t.value, required, &l.output),
				vector("ffn_norm.weight", c.Hidden, required, &l.ffnNorm),
			},
			feedForward,
		)
	},
	forward: func(g *graph, c *Config, w *weights) {
		t := c.latent
		x := g.embedding(w.embedding)
		heads := g.constant(c.Heads)
		for i, l := range g.layers(w) {
			h := g.norm(x, l.attnNorm)
			queries := h
			if t.queryRank > 0 {
				queries = g.norm(g.linear(h, l.queryDown, nil), l.qNorm)
			}
			q := g.linear(queries, l.q, nil)
			still := g.expertLinear(g.columns(q, t.still+t.rotated, 0, t.still), l.keyUp, nil, heads)
			rotated := g.ropeHeads(g.columns(q, t.still+t.rotated, t.still, t.rotated), &c.RoPE, t.rotated)

			kv := g.linear(h, l.k, nil)
			compressed := g.norm(g.columns(kv, kv.cols, 0, t.rank), l.kNorm)
			key := g.ropeHeads(g.columns(kv, kv.cols, t.rank, t.rotated), &c.RoPE, t.rotated)

			query := g.join(still, t.rank, rotated, t.rotated)
			attended := g.latentAttention(query, g.join(compressed, t.rank, key, t.rotated), t)
			x = g.add(x, g.linear(g.expertLinear(attended, l.valueUp, nil, heads), l.output, nil))

			h = g.norm(x, l.ffnNorm)
			if i < c.mixture.dense {
				x = g.add(x, g.swiglu(h, l))
			} else {
				x = g.add(x, g.mixed(h, c.mixture, l))
			}
		}
		x = g.head(x)
		g.result(g.linear(g.norm(x, w.outputNorm), w.output, nil))
	},
}

// latent gives the sizes of multi-head latent attention.
type latent struct {
	queryRank int  // of the compressed queries, 0 where they are not
	rank      int  // of the compressed keys and values
	still     int  // elements of a head's keys that do not rotate
	rotated   int  // elements that do, one row for all heads
	value     int  // elements of a head's values
	together  bool // the file has, for each head, what makes its keys and what makes its values in one tensor
	scale     float32
}

// readLatent reads the sizes. Converters before April 2025 gave those of the heads as if nothing were compressed.
func (r *reader) readLatent(c *Config) {
	t := &latent{
		queryRank: r.sizeOr("attention.q_lora_rank", 0, maxWidth),
		rank:      r.size("attention.kv_lora_rank", maxLatentDim),
		rotated:   c.RoPE.Dim,
		together:  r.f.HasTensor("blk.0.attn_kv_b.weight"),
	}
	key := c.HeadDim
	if t.together {
		t.value = r.size("attention.value_length", maxLatentDim)
		c.HeadDim, c.KVHeads = t.rank+t.rotated, 1
	} else {
		key, t.value = r.size("attention.key_length_mla", maxLatentDim), r.size("attention.value_length_mla", maxLatentDim)
	}
	t.still = key - t.rotated
	if r.err == nil && (t.still < 1 || t.rank+t.rotated != c.HeadDim || c.HeadDim > maxLatentDim || c.KVHeads != 1) {
		r.fail(fmt.Errorf("keys %q do not fit: key_length %d, key_length_mla %d, kv_lora_rank %d, %d rotated, head_count_kv %d",
			r.prefix+"attention.*", c.HeadDim, key, t.rank, t.rotated, c.KVHeads))
		t.still = 1
	}
	// With YaRN the scores take the whole magnitude, squared, and rotation none: as DeepSeek's own code does.
	magnitude := 1.0
	if m := r.logMultiplier(); m != 0 && c.RoPE.Scaling == "yarn" {
		magnitude = 1 + m*math.Log(c.RoPE.Factor)
		c.RoPE.LogMultiplier = 1
	}
	t.scale = float32(magnitude * magnitude / math.Sqrt(float64(key)))
	c.latent = t
}

// latentAttention writes keys to the layer's cache and attends with their first elements as values.
func (g *graph) latentAttention(q, k *value, t *latent) *value {
	dim, layer := k.cols, len(g.caches)
	g.caches = append(g.caches, cacheShape{heads: 1, dim: dim, latent: true})
	g.emit(&cacheOp{k: k, layer: layer, dim: dim})
	return g.emit(&attentionOp{out: newValue(q.cols / dim * t.rank), q: q, layer: layer, dim: dim, valueDim: t.rank,
		attentionShape: attentionShape{scale: t.scale}})
}

// columns returns so many elements from first on of each run of unit elements of x.
func (g *graph) columns(x *value, unit, first, cols int) *value {
	return g.emit(&columnsOp{out: newValue(x.cols / unit * cols), x: x, unit: unit, first: first, cols: cols})
}

// join puts runs of a and runs of b one after another.
func (g *graph) join(a *value, aRun int, b *value, bRun int) *value {
	return g.emit(&joinOp{out: newValue(a.cols + b.cols), a: a, b: b, aRun: aRun, bRun: bRun})
}

// constant returns 0, 1, ... n-1 for every token.
func (g *graph) constant(n int) *value {
	if g.counting == nil {
		g.counting = &value{cols: n, dtype: tensor.I32}
	}
	return g.counting
}

type columnsOp struct {
	fresh
	out, x            *value
	unit, first, cols int
}

func (o *columnsOp) reads() []*value  { return []*value{o.x} }
func (o *columnsOp) writes() []*value { return []*value{o.out} }
func (o *columnsOp) run(p *pass) {
	tensor.CopyColumnsInto(p.heads(o.out, o.cols), 0, p.heads(o.x, o.unit), o.first, o.cols)
}

type joinOp struct {
	fresh
	out, a, b  *value
	aRun, bRun int
}

func (o *joinOp) reads() []*value  { return []*value{o.a, o.b} }
func (o *joinOp) writes() []*value { return []*value{o.out} }
func (o *joinOp) run(p *pass) {
	out := p.heads(o.out, o.aRun+o.bRun)
	tensor.CopyColumnsInto(out, 0, p.heads(o.a, o.aRun), 0, o.aRun)
	tensor.CopyColumnsInto(out, o.aRun, p.heads(o.b, o.bRun), 0, o.bRun)
}
