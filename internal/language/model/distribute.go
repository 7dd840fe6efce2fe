package model

import (
	"fmt"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/fused"
	"github.com/vibrant-ml/vibrant/tensor"
)

// The graph of one rank of a model that several devices compute. Each rank records the model with its own sizes;
// distribute then follows what of a value a rank has, and exchanges where an operation needs all of it.

// extent says what of a value a rank has.
type extent int

const (
	whole extent = iota // all of it, as every other rank
	part                // its own columns
	sum                 // a summand of all columns
)

// recordPart returns the graph of a rank.
func (c *Config) recordPart(w *weights, rank int, fused bool) (*graph, error) {
	g := &graph{config: c, blocks: make([][]op, 1)}
	c.arch.forward(g, c, w)
	if err := g.distribute(rank); err != nil {
		return nil, err
	}
	if fused {
		g.fuse()
	}
	g.place()
	return g, nil
}

// distributor rewrites the blocks of a graph.
type distributor struct {
	rank   int
	extent map[*value]extent
	whole  map[*value]*value // of summands that were added up
	block  []op              // what has become of the block so far
	err    error
}

func (g *graph) distribute(rank int) error {
	d := &distributor{rank: rank, extent: map[*value]extent{}, whole: map[*value]*value{}}
	for i, block := range g.blocks {
		d.block = nil
		for _, o := range block {
			d.rewrite(o)
		}
		switch i {
		case len(g.blocks) - 2:
			g.hidden = d.all(g.hidden)
		case len(g.blocks) - 1:
			if d.extent[g.logits] == part {
				out := newValue(g.config.Vocab)
				d.block = append(d.block, &gatherOp{out: out, x: g.logits})
				g.logits = out
			}
			g.logits = d.all(g.logits)
		}
		g.blocks[i] = d.block
	}
	if d.err != nil {
		return fmt.Errorf("%s cannot be divided among devices: %w", g.config.Architecture, d.err)
	}
	return nil
}

func (d *distributor) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
}

// all returns a value of which every rank has all.
func (d *distributor) all(v *value) *value {
	switch {
	case d.whole[v] != nil:
		return d.whole[v]
	case d.extent[v] == sum:
		out := newValue(v.cols)
		d.block = append(d.block, &reduceOp{out: out, x: v})
		d.whole[v] = out
		return out
	case d.extent[v] == part:
		d.fail("an operation needs the columns of all devices")
	}
	return v
}

// rewrite appends an operation, after the exchanges that it needs.
func (d *distributor) rewrite(o op) {
	switch o := o.(type) {
	case *embeddingOp:
	case *normOp:
		if d.extent[o.x] == part { // of each head
			if o.weight != nil && o.weight.cols != o.weight.whole.cols {
				d.fail("a norm goes over all heads")
			}
			d.extent[o.out] = part
		} else {
			o.x = d.all(o.x)
		}
	case *layerNormOp:
		o.x = d.all(o.x)
	case *headLayerNormOp:
		d.fail("each head has a norm of its own")
	case *linearOp:
		o.x, o.bias = d.product(o.out, o.x, o.weight, o.bias)
	case *expertLinearOp:
		o.x, o.bias = d.product(o.out, o.x, o.weight, o.bias)
	case *ropeOp:
		o.x = d.each(o.out, o.x)
	case *geluTanhOp:
		o.x = d.each(o.out, o.x)
	case *softCapOp:
		o.x = d.each(o.out, o.x)
	case *sigmoidOp:
		o.x = d.each(o.out, o.x)
	case *cacheOp, *chosenOp:
	case *attentionOp:
		d.extent[o.out] = d.extent[o.q]
	case *scaleOp:
		o.x = d.latest(o.x)
		d.extent[o.out] = d.extent[o.x]
	case *mulRowsOp:
		o.x, o.factors = d.latest(o.x), d.all(o.factors)
		d.extent[o.out] = d.extent[o.x]
	case *gluOp:
		if d.extent[o.gate] != part || d.extent[o.up] != part {
			o.gate, o.up = d.all(o.gate), d.all(o.up)
		}
		d.extent[o.out] = d.extent[o.gate]
	case *addOp:
		a, b := d.extent[o.a], d.extent[o.b]
		switch {
		case a == b && a != whole:
			d.extent[o.out] = a
		case b == sum && d.whole[o.b] == nil:
			d.block = append(d.block, &reduceOp{out: o.out, x: o.b, add: d.all(o.a)})
			return
		case a == sum && d.whole[o.a] == nil:
			d.block = append(d.block, &reduceOp{out: o.out, x: o.a, add: d.all(o.b)})
			return
		default:
			o.a, o.b = d.all(o.a), d.all(o.b)
		}
	case *mulOp:
		if d.extent[o.a] != part || d.extent[o.b] != part {
			o.a, o.b = d.all(o.a), d.all(o.b)
		}
		d.extent[o.out] = d.extent[o.a]
	case *routeOp:
		o.logits = d.all(o.logits)
	case *expertSumOp:
		d.extent[o.out] = d.extent[o.y]
		if o.weights != nil {
			o.weights = d.all(o.weights)
		}
	default:
		d.fail("%T is computed by one", o)
	}
	d.block = append(d.block, o)
}

// latest returns the sum of a value where it was added up already, else the value.
func (d *distributor) latest(v *value) *value {
	if w := d.whole[v]; w != nil {
		return w
	}
	return v
}

// each is for operations on each element or head: a rank computes its own columns.
func (d *distributor) each(out, x *value) *value {
	if d.extent[x] != part {
		return d.all(x)
	}
	d.extent[out] = part
	return x
}

// product is for x w^T + bias: rows of w give columns of the result, columns of w a summand. One rank adds the bias.
func (d *distributor) product(out, x *value, w, bias *weight) (*value, *weight) {
	switch {
	case w.cols != w.whole.cols:
		if d.extent[x] != part {
			d.fail("tensor %s has columns that no rank computes", w.name)
		}
		d.extent[out] = sum
		if d.rank > 0 {
			bias = nil
		}
		return x, bias
	case w.rows != w.whole.rows:
		d.extent[out] = part
	}
	return d.all(x), bias
}

// collectiveOp is an operation of all ranks together.
type collectiveOp interface {
	op
	// together runs it; ops has that of each rank, passes where it runs.
	together(c *gpu.Communicator, ops []op, passes []*pass)
}

// reduceOp adds up what the ranks have, and a value that all have. Where many rows cross, what the ranks have may be rounded, as the
// products of many rows round theirs.
type reduceOp struct {
	out, x, add *value // add: nil for none

	from     kernel.HalfLayer // which half of a layer ends here, where nextNorm is not nil
	nextNorm *weight          // of the operation that follows, nil for none
	normed   *value           // what that one may find prepared
	parted   bool             // that one, which is handed normed, and the next sum, which adds to out, are all that read out
}

func (o *reduceOp) reads() []*value {
	if o.add == nil {
		return []*value{o.x}
	}
	return []*value{o.x, o.add}
}
func (o *reduceOp) writes() []*value {
	if o.normed != nil {
		return []*value{o.out, o.normed}
	}
	return []*value{o.out}
}
func (o *reduceOp) overwrites() []*value { return o.reads() }
func (o *reduceOp) run(*pass)            { panic("model: a rank alone adds up") }
func (o *reduceOp) together(c *gpu.Communicator, ops []op, passes []*pass) {
	var out, in, add []*tensor.Tensor
	var parts []fused.Part[*tensor.Tensor]
	next := fused.Reduction[*tensor.Tensor]{From: o.from, Parted: o.parted, AddParted: o.add != nil && passes[0].parted == o.add}
	for rank, p := range passes {
		own := ops[rank].(*reduceOp)
		out, in = append(out, p.rows(own.out)), append(in, p.rows(own.x))
		if own.add != nil {
			add = append(add, p.rows(own.add))
		}
		if own.nextNorm != nil {
			next.Norm, next.Normed = append(next.Norm, own.nextNorm.get()), append(next.Normed, p.rows(own.normed))
			next.Handoffs = append(next.Handoffs, p.handoff)
		}
	}
	for _, p := range passes {
		if p.part != nil {
			parts = append(parts, *p.part)
		}
		p.part = nil
	}
	if len(parts) > 0 {
		fusedOperations.LinearAllReduce(c, out, add, parts)
		return
	}
	if o.nextNorm == nil && !next.AddParted {
		tensor.AllReduceRoundedInto(c, out, in, add)
		return
	}
	passes[0].parted = nil
	for rank, h := range fusedOperations.AllReduceNorm(c, out, in, add, next) {
		passes[rank].handoff = h
		if h.Parted() {
			passes[0].parted = o.out
		}
	}
}

// gatherOp puts the columns of the ranks side by side.
type gatherOp struct {
	fresh
	out, x  *value
	columns []int // of each rank
}

func (o *gatherOp) reads() []*value  { return []*value{o.x} }
func (o *gatherOp) writes() []*value { return []*value{o.out} }
func (o *gatherOp) run(*pass)        { panic("model: a rank alone gathers") }
func (o *gatherOp) together(c *gpu.Communicator, ops []op, passes []*pass) {
	if passes[0].likeliest != nil {
		o.gatherLikeliest(c, ops, passes)
		return
	}
	var out, in []*tensor.Tensor
	for rank, p := range passes {
		own := ops[rank].(*gatherOp)
		out, in = append(out, p.rows(own.out)), append(in, p.rows(own.x))
	}
	tensor.AllGatherColumnsInto(c, out, in, o.columns)
}
