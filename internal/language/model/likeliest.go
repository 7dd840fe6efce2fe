package model

import (
	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/tensor"
)

// Greedy steps of several ranks: each rank finds the likeliest token of its own part of the vocabulary, and two numbers of each row
// cross in place of all logits.

// likeliestFrom is from how many logits on this takes less time than gathering them.
const likeliestFrom = 1 << 20

// FindsLikeliest reports whether Likeliest is the faster way to the likeliest tokens of so many rows. It is for ranks of one process.
func (m *Model) FindsLikeliest(rows int) bool {
	if m.Alone() || m.world != nil || m.staged || rows*m.Vocab < likeliestFrom || m.Vocab > 1<<24 { // a float holds smaller ids
		return false
	}
	_, gathers := m.last().(*gatherOp)
	return gathers
}

// last returns the last operation of the model.
func (m *Model) last() op {
	head := m.graph.blocks[len(m.graph.blocks)-1]
	return head[len(head)-1]
}

// Likeliest writes the likeliest token of each row of what Forward returned to ids (I32), and its logit to logits (F32, of one
// column). Of equal logits the first one's token counts, and NaN is the greatest, as tensor.Argmax has it.
func (m *Model) Likeliest(w *Workspace, x, ids, logits *tensor.Tensor) {
	rows := ids.Len()
	passes := []*pass{{model: m, graph: w.plain.graph, views: w.plain.viewsOf(1, rows), hidden: x.Slice(0, rows), likeliest: ids}}
	for _, f := range w.followers {
		p := f.logits(0, rows)
		p.likeliest = f.ids.Slice(0, rows) // the next pass is sent others
		passes = append(passes, p)
	}
	w.run(len(w.plain.graph.blocks)-1, passes, nil) // without a check there is no error
	_, all, token := m.last().(*gatherOp).rowsOfTwo(passes[0], w.streams.Ranks())
	found, tokens := all.SliceAlong(1, 0, all.Dim(1), 2), all.SliceAlong(1, 1, all.Dim(1), 2)
	best := ids.Reshape(rows, 1)
	tensor.ArgmaxOverInto(ids, found, 1)
	tensor.GatherInto(logits, found, best, 1)
	tensor.GatherInto(token, tokens, best, 1)
	tensor.ConvertInto(best, token)
}

// gatherLikeliest sends each rank's greatest logit of each row, and its token, to all ranks.
func (o *gatherOp) gatherLikeliest(c *gpu.Communicator, ops []op, passes []*pass) {
	var out, in []*tensor.Tensor
	first := 0.0
	for rank, p := range passes {
		part := ops[rank].(*gatherOp)
		x, ids := p.rows(part.x), p.likeliest.Reshape(p.likeliest.Len(), 1)
		own, all, _ := part.rowsOfTwo(p, c.Ranks())
		tensor.ArgmaxInto(p.likeliest, x)
		tensor.GatherInto(own.SliceAlong(1, 0, 1, 1), x, ids, 1)
		from := first
		tensor.Fuse(func(id tensor.Expr) tensor.Expr { return id.To(tensor.F32).AddScalar(from) }).CallInto(own.SliceAlong(1, 1, 2, 1), ids)
		out, in = append(out, all), append(in, own)
		first += float64(x.Dim(1))
	}
	tensor.AllGatherInto(c, out, in)
}

// rowsOfTwo returns memory for a logit and a token of each row, of a rank and of all ranks, and for another token of each row: where
// all logits would be.
func (o *gatherOp) rowsOfTwo(p *pass, ranks int) (own, all, token *tensor.Tensor) {
	logits := p.rows(o.out)
	rows, memory := logits.Dim(0), logits.Reshape(logits.Len())
	next := func(cols int) *tensor.Tensor {
		t := memory.Slice(0, rows*cols).Reshape(rows, cols)
		memory = memory.Slice(rows*cols, memory.Len())
		return t
	}
	return next(2), next(2 * ranks), next(1)
}
