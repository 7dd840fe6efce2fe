package model

import (
	"github.com/vibrant-ml/vibrant/internal/fused"
	"github.com/vibrant-ml/vibrant/tensor"
)

// within reports whether fused operations can add what the stacks change: they take one.
func within(active []ActiveStack) bool { return len(active) == 1 && active[0].Stack.within }

// update returns what the adapters of the pass add to products with a weight, within an operation that is adapted.
func (p *pass) update(adapted bool, w *weight) (u fused.LowRank[*tensor.Tensor]) {
	if adapted {
		c := p.adapters[0].Stack.changes[w]
		u.V, u.U = c.v, c.u
	}
	return u
}

// factors returns the V of the updates of weights, nil where there is none.
func (p *pass) factors(adapted bool, to []*tensor.Tensor, of ...*weight) {
	for i, w := range of {
		if w != nil {
			to[i] = p.update(adapted, w).V
		}
	}
}

// codes returns those of the rows of a pass, for an operation that is adapted.
func (p *pass) codes(adapted bool) *tensor.Tensor {
	if !adapted {
		return nil
	}
	return p.adapters[0].Codes
}

// adapt puts the making of codes behind the embedding, and the updates of adapters behind every product with a matrix. Where a product is added to something at once, the
// update comes behind the sum, so that product and sum can still be one operation.
func (g *graph) adapt() {
	uses, reader := map[*value]int{}, map[*value]op{}
	for _, block := range g.blocks {
		for _, o := range block {
			for _, v := range o.reads() {
				uses[v]++
				reader[v] = o
			}
		}
	}
	behind := map[*addOp]*updateOp{}
	for i, block := range g.blocks {
		var all []op
		for _, o := range block {
			all = append(all, o)
			switch o := o.(type) {
			case *embeddingOp:
				if !o.byPosition {
					all = append(all, &codesOp{x: o.out})
				}
			case *addOp:
				if u := behind[o]; u != nil {
					all = append(all, u)
				}
			case *linearOp:
				u := &updateOp{x: o.x, weight: o.weight}
				if add, ok := reader[o.out].(*addOp); ok && uses[o.out] == 1 && behind[add] == nil {
					u.out, u.sum = add.out, newValue(add.out.cols)
					add.out, behind[add] = u.sum, u
					continue
				}
				u.out, u.sum = o.out, newValue(o.out.cols)
				o.out = u.sum
				all = append(all, u)
			}
		}
		g.blocks[i] = all
	}
}

// adaptable returns the matrices that adapters can change, of a graph that has updates behind them.
func (g *graph) adaptable() map[*weight]bool {
	all := map[*weight]bool{}
	for _, block := range g.blocks {
		for _, o := range block {
			if u, ok := o.(*updateOp); ok && u.weight != g.config.weights.embedding {
				all[u.weight] = true
			}
		}
	}
	return all
}

// codesOp makes the codes of adapters that say how, from the embeddings of tokens: codes = scale * (x W^T + b).
type codesOp struct{ x *value }

func (o *codesOp) reads() []*value      { return []*value{o.x} }
func (o *codesOp) writes() []*value     { return nil }
func (o *codesOp) overwrites() []*value { return nil }
func (o *codesOp) run(p *pass) {
	for i := range p.adapters {
		a := &p.adapters[i]
		if !a.Stack.MakesCodes() {
			continue
		}
		tensor.LinearInto(a.Made, p.rows(o.x), a.Stack.codes.weight, a.Stack.codes.bias)
		tensor.MulInto(a.Made, a.Made, a.Codes)
		a.Codes = a.Made
	}
}

// updateOp adds what the active adapters make of x to its product with a weight.
type updateOp struct {
	out, sum, x *value
	weight      *weight
}

func (o *updateOp) reads() []*value      { return []*value{o.sum, o.x} }
func (o *updateOp) writes() []*value     { return []*value{o.out} }
func (o *updateOp) overwrites() []*value { return []*value{o.sum} }
func (o *updateOp) run(p *pass) {
	out, sum := p.rows(o.out), p.rows(o.sum)
	for _, a := range p.adapters {
		if c, ok := a.Stack.changes[o.weight]; ok {
			tensor.FusedUpdateInto(out, sum, p.rows(o.x), tensor.Update{V: c.v, VTransposed: true, U: c.u, Codes: a.Codes})
			sum = out
		}
	}
	if sum != out { // no adapter changes this weight, and the sum could not stay where it was
		tensor.CopyInto(out, sum)
	}
}
