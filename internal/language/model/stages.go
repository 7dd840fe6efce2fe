package model

import (
	"fmt"

	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/tensor"
)

// Stages of a model: several devices have some of the layers each, and compute one after another. What a layer passes on, the
// residual stream, crosses once between two devices: between GPUs in the order of their streams, else through the host's memory, so
// that the devices may be of any kinds. While one GPU computes a chunk of a prompt, the next one has the chunk before.

// Stages returns what each device computes of a model of which it has so many layers, in order. The last one has what follows the
// layers too. Errors name what is not supported.
func (c *Config) Stages(f *gguf.File, layers []int) ([]*Config, error) {
	sum := 0
	for _, n := range layers {
		if n < 1 {
			return nil, fmt.Errorf("a device with %d layers: want 1 or more", n)
		}
		sum += n
	}
	if sum != c.Layers {
		return nil, fmt.Errorf("%v layers on %d devices, the model has %d", layers, len(layers), c.Layers)
	}
	if len(layers) == 1 {
		return []*Config{c}, nil
	}
	if c.delta != nil {
		return nil, fmt.Errorf("%s cannot be divided by layers: its recurrent layers carry on one state", c.Architecture)
	}
	fused, err := fusing()
	if err != nil {
		return nil, err
	}
	var stages []*Config
	first := 0
	for _, n := range layers {
		s := new(Config)
		*s = *c
		if c.queryRoPE == &c.RoPE {
			s.queryRoPE = &s.RoPE
		}
		s.adapted = nil // adapters are of all layers
		if s.weights, err = s.bind(f); err != nil {
			return nil, err
		}
		s.weights.keep(first, first+n)
		if s.graph, err = s.recordStage(first, first+n, fused); err != nil {
			return nil, fmt.Errorf("%s cannot be divided by layers: %w", c.Architecture, err)
		}
		stages = append(stages, s)
		first += n
	}
	return stages, nil
}

// keep marks the weights that layers first to end-1, and what comes before all layers or after them, do not have.
func (w *weights) keep(first, end int) {
	isFirst, isLast := first == 0, end == len(w.layers)
	for _, t := range w.all {
		layer := 0
		switch n, _ := fmt.Sscanf(t.name, "blk.%d.", &layer); {
		case n == 1:
			t.elsewhere = layer < first || layer >= end
		case t == w.embedding:
			t.elsewhere = !isFirst && !(isLast && w.output == w.embedding)
		case t == w.positions:
			t.elsewhere = !isFirst
		default:
			t.elsewhere = !isLast
		}
	}
}

// recordStage returns the graph of layers first to end-1.
func (c *Config) recordStage(first, end int, fused bool) (*graph, error) {
	g := &graph{config: c, blocks: make([][]op, 1)}
	c.arch.forward(g, c, c.weights)
	blocks, head := g.blocks, len(g.blocks)-1
	mine := func(i int) bool { // block 0 is the embedding, block i layer i-1
		return i == 0 && first == 0 || i > first && i <= end || i == head && end == c.Layers
	}
	here := map[*value]bool{}
	for i, block := range blocks {
		for _, o := range block {
			for _, v := range o.writes() {
				here[v] = mine(i)
			}
			if o, ok := o.(*cacheOp); ok && !mine(i) {
				g.caches[o.layer].elsewhere = true
			}
		}
	}
	var in, out *value // that cross
	for i, block := range blocks {
		for _, o := range block {
			for _, v := range o.reads() {
				written, known := here[v]
				place := &in
				if !known || written == mine(i) {
					continue
				}
				if written {
					place = &out
				} else if i > end {
					continue
				}
				if *place != nil && *place != v {
					return nil, fmt.Errorf("more than the residual stream goes from one layer to the next")
				}
				*place = v
			}
		}
	}
	g.blocks = make([][]op, 1)
	if first == 0 {
		g.blocks[0] = blocks[0]
	} else {
		g.entry = in
		g.blocks[0] = []op{&entryOp{out: in}}
	}
	g.blocks = append(g.blocks, blocks[first+1:end+1]...)
	if end == c.Layers {
		g.blocks = append(g.blocks, blocks[head])
	} else {
		g.blocks = append(g.blocks, nil)
		g.hidden, g.logits = out, nil
	}
	if fused {
		g.fuse()
	}
	g.place()
	return g, nil
}

// entryOp stands for what the stage before has left, which forwardStages copies there.
type entryOp struct {
	fresh
	out *value
}

func (o *entryOp) reads() []*value  { return nil }
func (o *entryOp) writes() []*value { return []*value{o.out} }
func (o *entryOp) run(*pass)        {}

// Staged reports whether several devices compute the model's layers one after another, which no graph can hold.
func (m *Model) Staged() bool { return m.staged }

// forwardStages computes the stages in order. passes[0] is that of the last one.
func (w *Workspace) forwardStages(passes []*pass, check func() error) error {
	if err := w.share(passes); err != nil {
		return err
	}
	order := append(append([]*pass{}, passes[1:]...), passes[0])
	for i, p := range order {
		if i > 0 {
			from := order[i-1]
			tensor.CopyInto(p.rows(p.graph.entry), from.rows(from.graph.hidden))
		}
		for block := range len(p.graph.blocks) - 1 {
			if err := w.run(block, []*pass{p}, check); err != nil {
				return err
			}
		}
	}
	return nil
}

// share brings the batch, which lies on the last stage's device, to the others.
func (w *Workspace) share(passes []*pass) error {
	known := passes[0].batch.Known
	for _, part := range []struct {
		known []int32
		of    func(Batch) *tensor.Tensor
	}{
		{known.IDs, func(b Batch) *tensor.Tensor { return b.IDs }},
		{known.Positions, func(b Batch) *tensor.Tensor { return b.Positions }},
		{known.Sequences, func(b Batch) *tensor.Tensor { return b.Sequences }},
	} {
		values, of := part.known, part.of
		from := of(passes[0].batch)
		if from == nil {
			continue
		}
		if values == nil {
			values = make([]int32, from.Len())
			if err := from.ReadInt32s(values); err != nil {
				return err
			}
		}
		for _, p := range passes[1:] {
			if err := of(p.batch).WriteInt32s(values); err != nil {
				return err
			}
		}
	}
	return nil
}
