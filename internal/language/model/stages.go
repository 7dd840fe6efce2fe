package model

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vibrant-ml/vibrant/internal/language/gguf"
)

// Stages of a model: several devices have some of the layers each, and compute one after another. The first device may have the
// routed experts of other devices' layers besides: a CPU, whose memory is larger. What one device needs of another, the residual
// stream between layers, and around experts their input, their choice and their sum, crosses once (relay.go).

// Placement says which device has what of a model. The zero Placement has every device compute a part of every layer.
type Placement struct {
	Layers  []int // how many each device has, in order; nil where all devices compute every layer together
	Experts int   // the first device has the routed experts of so many layers, from the first on, whoever has the layer
	Stream  int   // prompts of so many tokens or more are computed by the last device alone, which is lent weights; 0 for none
	Turns   int   // each device has its layers in so many runs, in turn with the others, so that prompts keep all busy; 0 for one

	lends bool // for such a prompt
}

// ofLayer returns the device that has a layer.
func (p Placement) ofLayer(layer int) int {
	turns := max(1, p.Turns)
	for turn := range turns {
		for device, n := range p.Layers {
			run := n*(turn+1)/turns - n*turn/turns
			if layer < run {
				return device
			}
			layer -= run
		}
	}
	return len(p.Layers) - 1 // what follows the layers
}

// together returns how many chunks of a prompt are computed at a time, of a model of more than one run a device.
func (p Placement) together() int {
	if p.Turns > 1 {
		return len(p.Layers)
	}
	return 1
}

// check says why a model of so many layers cannot be placed so.
func (p Placement) check(c *Config) error {
	sum := 0
	for device, n := range p.Layers {
		if n < 0 || n == 0 && (device > 0 || p.Experts == 0) {
			return fmt.Errorf("a device with %d layers: want 1 or more", n)
		}
		if n < p.Turns {
			return fmt.Errorf("a device with %d layers in %d runs", n, p.Turns)
		}
		sum += n
	}
	switch {
	case sum != c.Layers:
		return fmt.Errorf("%v layers on %d devices, the model has %d", p.Layers, len(p.Layers), c.Layers)
	case p.Turns > 1 && (p.Experts > 0 || p.Stream > 0):
		return errors.New("layers in several runs beside weights in RAM")
	case p.Stream > 0:
		if err := p.Streamable(c); err != nil {
			return err
		}
	}
	if p.Experts == 0 {
		return nil
	}
	if err := c.CheckExperts(p.Experts); err != nil {
		return err
	}
	if len(p.Layers) < 2 {
		return errors.New("experts on another device than their layers: want two devices or more")
	}
	return nil
}

// CheckExperts says why the routed experts of the first n layers cannot be on another device.
func (c *Config) CheckExperts(n int) error {
	switch first := slices.IndexFunc(c.weights.layers, func(l layer) bool { return l.expertDown != nil }); {
	case first < 0:
		return fmt.Errorf("%s has no experts to keep in RAM", c.Architecture)
	case n < 1 || n > c.Layers:
		return fmt.Errorf("the experts of %d layers in RAM: the model has %d layers", n, c.Layers)
	case n <= first:
		return fmt.Errorf("the experts of %d layers in RAM: the first layer with experts is layer %d", n, first+1)
	}
	return nil
}

// Stages returns what each device computes of a model that is placed so. The last one has what follows the layers too. Errors name
// what is not supported.
func (c *Config) Stages(f *gguf.File, p Placement) ([]*Config, error) {
	if err := p.check(c); err != nil {
		return nil, err
	}
	if len(p.Layers) == 1 {
		return []*Config{c}, nil
	}
	fused, err := fusing()
	if err != nil {
		return nil, err
	}
	stages := make([]*Config, len(p.Layers))
	for device := range stages {
		s := new(Config)
		*s = *c
		if c.queryRoPE == &c.RoPE {
			s.queryRoPE = &s.RoPE
		}
		s.adapted, s.within = nil, nil // adapters are of all layers
		s.together = p.together()
		if s.weights, err = s.bind(f); err != nil {
			return nil, err
		}
		s.weights.keep(p, device)
		s.graph, err = s.recordStage(p, device, fused)
		if err == nil && p.Stream > 0 {
			s.streamFrom = p.Stream
			s.guest, err = s.recordStage(p.lent(), device, fused)
		}
		if err != nil {
			return nil, fmt.Errorf("%s cannot be divided by layers: %w", c.Architecture, err)
		}
		stages[device] = s
	}
	return stages, nil
}

// keep marks the weights that other devices have.
func (w *weights) keep(p Placement, device int) {
	last := len(p.Layers) - 1
	for _, t := range w.all {
		layer, owner := 0, last
		switch n, _ := fmt.Sscanf(t.name, "blk.%d.", &layer); {
		case n == 1 && p.Stream > 0 && t.rows == 0 && device == last:
			owner = last // vectors are small: they are not lent
		case n == 1 && layer < p.Experts && routed(t.name):
			owner = 0
		case n == 1:
			owner = p.ofLayer(layer)
		case t == w.embedding && device == last && w.output == w.embedding:
		case t == w.embedding || t == w.positions:
			owner = p.ofLayer(0)
		}
		t.elsewhere = owner != device
	}
}

// segment is what a device computes before another one goes on. Every device's graph lists the segments of all, with its own values.
type segment struct {
	device     int
	first, end int        // blocks of the device's own graph
	sends      []crossing // after it was computed
	receives   []crossing // before it is computed
}

// crossing is a value that goes from one device to another.
type crossing struct {
	from, to int
	segment  int // that writes it
	value    *value
}

// piece is a run of operations that one device computes.
type piece struct {
	device int
	ops    []op
	ends   bool // a segment, so that what it sends is on its way while more is given to the device
}

// lent returns the placement of passes for which the last device is lent the weights of all layers.
func (p Placement) lent() Placement {
	p.lends, p.Experts = true, 0
	return p
}

// computes returns the device that computes a block: the embedding, or layer i-1.
func (p Placement) computes(block int) int {
	if p.lends && block > 0 {
		return len(p.Layers) - 1
	}
	return p.ofLayer(max(0, block-1))
}

// pieces returns the operations of the graph but for its head in the order in which devices compute them.
func (p Placement) pieces(g *graph) []piece {
	var all []piece
	for i, block := range g.blocks[:len(g.blocks)-1] { // block 0 is the embedding, block i layer i-1
		owner := p.computes(i)
		if i == 0 || i > p.Experts || owner == 0 {
			all = append(all, piece{device: owner, ops: block})
			continue
		}
		before, experts, beside, after := aroundExperts(block)
		all = append(all, piece{owner, before, len(experts) > 0})
		if len(experts) > 0 {
			all = append(all, piece{device: owner, ops: beside}, piece{device: 0, ops: experts}, piece{device: owner, ops: after})
		}
	}
	return slices.DeleteFunc(all, func(p piece) bool { return len(p.ops) == 0 })
}

// aroundExperts divides a layer: what comes before the routed experts, these, what needs nothing of them though it comes later, such
// as a shared expert, and the rest.
func aroundExperts(block []op) (before, experts, beside, after []op) {
	first := slices.IndexFunc(block, func(o op) bool {
		l, ok := o.(*expertLinearOp)
		return ok && l.weight.chosen
	})
	if first < 0 {
		return block, nil, nil, nil
	}
	end := first
	for i, o := range block {
		if _, ok := o.(*expertSumOp); ok {
			end = i + 1
		}
	}
	needs := map[*value]bool{}
	for _, o := range block[first:end] {
		for _, v := range o.writes() {
			needs[v] = true
		}
	}
	for _, o := range block[end:] {
		place := &beside
		if slices.ContainsFunc(o.reads(), func(v *value) bool { return needs[v] }) || len(o.writes()) == 0 {
			place = &after
			for _, v := range o.writes() {
				needs[v] = true
			}
		}
		*place = append(*place, o)
	}
	return block[:first], block[first:end], beside, after
}

// recordStage returns the graph of what a device has.
func (c *Config) recordStage(p Placement, device int, fused bool) (*graph, error) {
	g := &graph{config: c, blocks: make([][]op, 1)}
	c.arch.forward(g, c, c.weights)
	head, last := g.blocks[len(g.blocks)-1], len(p.Layers)-1
	pieces := p.pieces(g)
	if err := g.divide(append(pieces, piece{device: last, ops: head})); err != nil {
		return nil, err
	}
	g.blocks = nil
	for i := range g.segments {
		s := &g.segments[i]
		if n := len(g.blocks); n > 0 {
			for _, x := range s.receives {
				if x.from == device { // it must last until then
					g.blocks[n-1] = append(slices.Clone(g.blocks[n-1]), &exitOp{x: x.value})
				}
			}
		}
		s.first = len(g.blocks)
		for ; len(pieces) > 0 && pieces[0].device == s.device; pieces = pieces[1:] {
			if s.device == device {
				g.blocks = append(g.blocks, pieces[0].ops)
			} else {
				g.leave(pieces[0].ops)
			}
			if pieces[0].ends {
				pieces = pieces[1:]
				break
			}
		}
		s.end = len(g.blocks)
		if s.device != device {
			continue
		}
		var entries []op
		for _, x := range s.receives {
			entries = append(entries, &entryOp{out: x.value})
		}
		at, place := s.first, 0
		if p.Turns > 1 && at > 0 { // another chunk may come while this device still has what it sends
			at--
			place = slices.IndexFunc(g.blocks[at], func(o op) bool { _, exit := o.(*exitOp); return exit })
		}
		g.blocks[at] = slices.Insert(slices.Clone(g.blocks[at]), place, entries...)
	}
	if device == last {
		g.blocks = append(g.blocks, head)
	} else {
		g.blocks = append(g.blocks, nil)
		g.hidden, g.logits = nil, nil
	}
	g.brings = p.lends && device == last
	for i := range c.Layers + 1 {
		g.positioned = g.positioned || p.computes(i) == device
	}
	if p.Layers[device] == 0 {
		g.ropes, g.counting = nil, nil
	}
	if fused {
		g.fuse()
	}
	g.place()
	return g, nil
}

// divide makes the segments of the graph, of which the head of the model is none.
func (g *graph) divide(pieces []piece) error {
	writer, has := map[*value]int{}, map[int]map[*value]bool{}
	ended := true
	for i, p := range pieces {
		if n := len(g.segments); ended || g.segments[n-1].device != p.device {
			g.segments = append(g.segments, segment{device: p.device})
			if has[p.device] == nil {
				has[p.device] = map[*value]bool{}
			}
		}
		ended = p.ends || i == len(pieces)-2
		at := len(g.segments) - 1
		for _, o := range p.ops {
			for _, v := range o.reads() {
				from, written := writer[v]
				if !written || has[p.device][v] {
					continue
				}
				x := crossing{g.segments[from].device, p.device, from, v}
				g.segments[at].receives = append(g.segments[at].receives, x)
				g.segments[from].sends = append(g.segments[from].sends, x)
				has[p.device][v] = true
			}
			for _, v := range o.writes() {
				writer[v], has[p.device][v] = at, true
			}
		}
	}
	// What is on its way from a device is of one segment, for one other.
	for at, s := range g.segments {
		for _, x := range s.receives {
			for between := x.segment; between < at; between++ {
				for _, other := range g.segments[between].sends {
					if other.from == x.from && (other.segment != x.segment || other.to != x.to) {
						return errors.New("more than the residual stream goes from one layer to the next")
					}
				}
			}
		}
	}
	if head := g.segments[len(g.segments)-1]; len(head.receives) > 0 {
		return errors.New("what follows the layers needs more than the residual stream")
	}
	g.segments = g.segments[:len(g.segments)-1]
	return nil
}

// leave notes that another device keeps what these operations leave to later tokens.
func (g *graph) leave(ops []op) {
	for _, o := range ops {
		switch o := o.(type) {
		case *cacheOp:
			g.caches[o.layer].elsewhere = true
		case *convOp:
			g.states[o.state].elsewhere = true
		}
	}
}

// entryOp stands for what another device has computed, which Workspace.receive puts there.
type entryOp struct {
	fresh
	out *value
}

func (o *entryOp) reads() []*value  { return nil }
func (o *entryOp) writes() []*value { return []*value{o.out} }
func (o *entryOp) run(*pass)        {}

// exitOp stands for what another device is sent.
type exitOp struct {
	fresh
	x *value
}

func (o *exitOp) reads() []*value  { return []*value{o.x} }
func (o *exitOp) writes() []*value { return nil }
func (o *exitOp) run(*pass)        {}

// Staged reports whether several devices compute the model's layers one after another, which no single graph can hold.
func (m *Model) Staged() bool { return m.staged }
