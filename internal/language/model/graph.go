package model

import (
	"iter"

	"github.com/vibrant-ml/vibrant/tensor"
)

// graph is what a model computes for every token: operations that an architecture's forward function records once, when
// a file is opened. Fused operations then take the place of patterns of plain ones, and every value gets its place in
// the workspace. The number of tokens, their positions and the weights' memory come in when a pass runs.
type graph struct {
	config *Config
	blocks [][]op       // the embedding, each layer, and from the last layer's result to the logits
	ropes  []*RoPE      // whose tables the operations read
	caches []cacheShape // of the layers with attention
	states []stateShape // of the recurrent layers
	hidden *value       // the residual stream after the last layer
	logits *value
	slots  []slot

	segments []segment // of stages, in the order of computation
	layerOf  []int     // the layer of each of caches
	brings   bool      // weights and caches of other devices' layers are lent

	positioned bool // a stage has layers or the embedding, and needs to know of tokens

	counting *value // 0, 1, ... for every token, nil where nothing reads it
}

// value is a matrix [tokens][cols] that one operation writes.
type value struct {
	cols  int
	dtype tensor.DType // F32 where nothing else is said
	slot  int          // index of the piece of the workspace where it lies
}

// op is an operation of a graph.
type op interface {
	reads() []*value
	// writes lists the result, and then what else of the workspace the operation uses.
	writes() []*value
	// overwrites lists the operands in whose place the result may lie.
	overwrites() []*value
	run(p *pass)
}

// adaption says where a graph has the updates of adapters.
type adaption int

const (
	plainly       adaption = iota // nowhere
	adaptedBehind                 // behind each product, for any adapters
	adaptedWithin                 // within the fused operations that take a stack's, else behind
)

// record returns the graph of a model.
func (c *Config) record(w *weights, fused bool, adapted adaption) *graph {
	g := &graph{config: c, blocks: make([][]op, 1)}
	c.arch.forward(g, c, w)
	if fused && adapted == adaptedWithin {
		g.fuseAdapted()
	}
	if adapted != plainly {
		g.adapt()
	}
	if fused {
		g.fuse()
	}
	g.place()
	return g
}

// emit appends an operation and returns its result.
func (g *graph) emit(o op) *value {
	last := &g.blocks[len(g.blocks)-1]
	*last = append(*last, o)
	if w := o.writes(); len(w) > 0 {
		return w[0]
	}
	return nil
}

func newValue(cols int) *value { return &value{cols: cols} }

// layers yields each layer of w; what is recorded meanwhile belongs to it.
func (g *graph) layers(w *weights) iter.Seq2[int, *layer] {
	return func(yield func(int, *layer) bool) {
		for i := range w.layers {
			g.blocks = append(g.blocks, nil)
			more := yield(i, &w.layers[i])
			for len(g.layerOf) < len(g.caches) {
				g.layerOf = append(g.layerOf, i)
			}
			if !more {
				return
			}
		}
	}
}

// head says that x is the result of the last layer: what follows is computed for those tokens whose logits are asked
// for.
func (g *graph) head(x *value) *value {
	g.hidden = x
	g.blocks = append(g.blocks, nil)
	return x
}

// embedding returns the rows of a table that the tokens' ids name.
func (g *graph) embedding(table *weight) *value {
	return g.emit(&embeddingOp{out: newValue(table.cols), table: table})
}

// positionEmbedding returns the rows of a table that the tokens' positions name.
func (g *graph) positionEmbedding(table *weight) *value {
	return g.emit(&embeddingOp{out: newValue(table.cols), table: table, byPosition: true})
}

// norm returns x / sqrt(mean(x^2) + eps) * w over each run of w's width: a row, or a head of it.
func (g *graph) norm(x *value, w *weight) *value {
	return g.emit(&normOp{out: newValue(x.cols), x: x, weight: w, cols: w.cols, eps: g.config.Epsilon})
}

// normIf is norm where the model has the weight, else x.
func (g *graph) normIf(x *value, w *weight) *value {
	if w == nil {
		return x
	}
	return g.norm(x, w)
}

// unitNorm is norm of each run of cols, without a weight.
func (g *graph) unitNorm(x *value, cols int) *value {
	return g.emit(&normOp{out: newValue(x.cols), x: x, cols: cols, eps: g.config.Epsilon})
}

// layerNorm returns (x - mean) / sqrt(variance + eps) * w + bias over each row.
func (g *graph) layerNorm(x *value, w, bias *weight) *value {
	return g.emit(&layerNormOp{out: newValue(x.cols), x: x, weight: w, bias: bias, eps: g.config.Epsilon})
}

// linear returns x w^T + bias; bias may be nil.
func (g *graph) linear(x *value, w, bias *weight) *value {
	if w.scale != 0 { // of x, as the bias has none
		x = g.scale(x, w.scale)
	}
	return g.emit(&linearOp{out: newValue(w.rows), x: x, weight: w, bias: bias})
}

// rope returns each head of x rotated by its token's position.
func (g *graph) rope(x *value, r *RoPE) *value { return g.ropeHeads(x, r, g.config.HeadDim) }

// ropeHeads is rope of heads of dim.
func (g *graph) ropeHeads(x *value, r *RoPE, dim int) *value {
	index := -1
	for i, known := range g.ropes {
		if known == r {
			index = i
		}
	}
	if index < 0 {
		index = len(g.ropes)
		g.ropes = append(g.ropes, r)
	}
	return g.emit(&ropeOp{out: newValue(x.cols), x: x, dim: dim, tables: index, mode: r.Mode})
}

// attention writes keys and values to the layer's cache and returns softmax(scale q k^T) v over what a query sees
// there.
func (g *graph) attention(q, k, v *value, a attentionShape) *value {
	dim, layer := g.config.HeadDim, len(g.caches)
	g.caches = append(g.caches, cacheShape{heads: k.cols / dim, dim: dim, window: a.newest()})
	g.emit(&cacheOp{k: k, v: v, layer: layer, dim: dim})
	return g.emit(&attentionOp{out: newValue(q.cols), q: q, layer: layer, dim: dim, valueDim: dim, attentionShape: a})
}

// attentionShape says what queries of a layer see, and how it counts.
type attentionShape struct {
	window  int     // keys, the newest; 0 for all
	chunk   int     // keys of the query's own chunk alone, of so many positions; 0 for all
	scale   float32 // of q k^T; 0 for 1 / sqrt(dim)
	softCap float32 // bound of the scores, 0 for none
	sinks   *weight // scores of no key, one a head; nil for none
}

// newest returns how many of the newest keys hold all that a query sees; 0 for all.
func (a attentionShape) newest() int {
	if a.window == 0 || a.chunk > 0 && a.chunk < a.window {
		return a.chunk
	}
	return a.window
}

// add returns a + b.
func (g *graph) add(a, b *value) *value { return g.emit(&addOp{out: newValue(a.cols), a: a, b: b}) }

// swiglu returns the layer's gated feed-forward of h: down(silu(gate(h)) * up(h)).
func (g *graph) swiglu(h *value, l *layer) *value {
	gated := g.glu(tensor.ActivationSiLU, g.linear(h, l.gate, l.gateBias), g.linear(h, l.up, l.upBias))
	return g.linear(gated, l.down, l.downBias)
}

// mul returns a * b, element by element.
func (g *graph) mul(a, b *value) *value { return g.emit(&mulOp{out: newValue(a.cols), a: a, b: b}) }

// scale returns x * by; x itself where by is 1.
func (g *graph) scale(x *value, by float32) *value {
	if by == 1 {
		return x
	}
	return g.emit(&scaleOp{out: newValue(x.cols), x: x, by: by})
}

// geluTanh returns GELU(x) in its tanh form.
func (g *graph) geluTanh(x *value) *value { return g.emit(&geluTanhOp{out: newValue(x.cols), x: x}) }

// softCap returns limit * tanh(x / limit); x itself where limit is 0.
func (g *graph) softCap(x *value, limit float32) *value {
	if limit == 0 {
		return x
	}
	return g.emit(&softCapOp{out: newValue(x.cols), x: x, limit: limit})
}

// glu returns f(gate) * up (Shazeer 2020, "GLU Variants Improve Transformer").
func (g *graph) glu(f tensor.Activation, gate, up *value) *value {
	return g.emit(&gluOp{out: newValue(gate.cols), gate: gate, up: up, activation: f})
}

// result says that x are the logits.
func (g *graph) result(x *value) { g.logits = x }

// slot is a piece of the workspace, [rows of a pass][cols], or [rows of logits][cols].
type slot struct {
	cols  int
	dtype tensor.DType
	head  bool // of what follows the last layer
}

func (s slot) rows(rows, logitRows int) int {
	if s.head {
		return logitRows
	}
	return rows
}

// place gives every value a slot. A slot serves values of one width in turns, and an operation in place keeps its
// operand's.
func (g *graph) place() {
	last := map[*value]op{g.hidden: nil}
	for _, block := range g.blocks {
		for _, o := range block {
			for _, list := range [][]*value{o.reads(), o.writes()} {
				for _, v := range list {
					if v != g.hidden && v != g.counting { // logits may be asked for again, and others count too
						last[v] = o
					}
				}
			}
		}
	}
	placed, free := map[*value]bool{}, map[slot][]int{}
	if g.counting != nil {
		g.counting.slot = len(g.slots)
		g.slots = append(g.slots, slot{cols: g.counting.cols, dtype: tensor.I32})
		last[g.counting] = nil
	}
	for i, block := range g.blocks {
		head := i == len(g.blocks)-1
		for _, o := range block {
			taken := map[*value]bool{}
			for j, v := range o.writes() {
				if placed[v] {
					continue
				}
				placed[v] = true
				if over := g.dying(o, v, last); j == 0 && over != nil && g.slots[over.slot].head == head {
					v.slot, taken[over] = over.slot, true
					continue
				}
				kind := slot{v.cols, v.dtype, head}
				if list := free[kind]; len(list) > 0 {
					v.slot, free[kind] = list[len(list)-1], list[:len(list)-1]
					continue
				}
				v.slot = len(g.slots)
				g.slots = append(g.slots, kind)
			}
			for _, list := range [][]*value{o.reads(), o.writes()} {
				for _, v := range list {
					if last[v] == o && !taken[v] {
						taken[v] = true
						kind := g.slots[v.slot]
						free[kind] = append(free[kind], v.slot)
					}
				}
			}
		}
	}
}

// dying returns the operand that o may overwrite with v and that nothing reads later, nil where there is none.
func (g *graph) dying(o op, v *value, last map[*value]op) *value {
	for _, x := range o.overwrites() {
		if last[x] == o && x.cols == v.cols {
			return x
		}
	}
	return nil
}
