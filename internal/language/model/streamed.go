package model

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/tensor"
)

// Prompts of many tokens may be computed by a GPU alone, though a part of the layers or their experts is in RAM: the weights of a layer
// come into one of two slots of the GPU's memory while the layer before computes from the other. What is computed is what a GPU with
// all of the model computes, operation by operation. Keys and values of the CPU's layers are brought for the pass, and what the pass
// adds to them goes back.

// StreamTokens is from how many tokens on a prompt is worth bringing a dense model's weights to a GPU: a CPU computes about so many
// while a bus carries the weights.
const StreamTokens = 32

// StreamFrom returns that number for the model. A token has some of the experts, so that it takes more tokens to use them all.
func (c *Config) StreamFrom() int {
	if m := c.mixture; m != nil {
		return StreamTokens * m.experts / m.used
	}
	return StreamTokens
}

// streamer has what streamed passes of a model need on its GPU. They run one at a time, as they share the slots.
type streamer struct {
	layers []streamedLayer // by layer
	slots  []*tensor.Arena // of weights as the GPU computes with them
	stored *tensor.Arena   // of the largest weight as stored, until it is rearranged
	copies *gpu.Stream

	mu   sync.Mutex
	done *gpu.Event // the newest pass
}

// streamedLayer is what a layer lacks on the GPU.
type streamedLayer struct {
	weights []streamedWeight
	kept    bool // its keys and values are on the other device
}

type streamedWeight struct {
	*weight
	there  *tensor.Tensor // in a slot
	upload gpu.Upload
}

// streamPlan says what streaming takes of a GPU's memory.
type streamPlan struct {
	layers       [][]placement // by layer
	slot, stored int64
	slots        int
}

func (p *streamPlan) bytes(d *gpu.Device) int64 {
	return int64(p.slots)*p.slot + p.stored + d.StreamBytes()
}

// planStreams decides how the matrices that the device lacks lie in a slot.
func (c *Config) planStreams(found map[string]*gguf.Tensor, d *gpu.Device) (*streamPlan, error) {
	p := &streamPlan{layers: make([][]placement, c.Layers)}
	for _, bound := range c.weights.all {
		layer := 0
		if n, _ := fmt.Sscanf(bound.name, "blk.%d.", &layer); n == 0 || !bound.elsewhere {
			continue
		}
		w, err := c.placeWeight(found[bound.name], bound, d, true)
		if err != nil {
			return nil, err
		}
		p.layers[layer] = append(p.layers[layer], w)
		if w.packed {
			p.stored = max(p.stored, tensor.Aligned(w.size))
		}
	}
	for _, weights := range p.layers {
		var sum int64
		for _, w := range weights {
			sum += tensor.Aligned(w.bytes)
		}
		p.slot = max(p.slot, sum)
		if sum > 0 {
			p.slots = min(p.slots+1, 2)
		}
	}
	return p, nil
}

// newStreamer allocates the slots. The memory is in the order of the device's own stream, on which nothing runs once a model is
// loaded: events order the copies and the passes.
func (m *Model) newStreamer(f *gguf.File, p *streamPlan) (_ *streamer, err error) {
	s := &streamer{layers: make([]streamedLayer, len(p.layers))}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.copies, err = m.device.NewStream(); err != nil {
		return nil, err
	}
	for range p.slots {
		slot, err := tensor.NewArena(m.device.Stream(), p.slot)
		if err != nil {
			return nil, err
		}
		s.slots = append(s.slots, slot)
	}
	if p.stored > 0 {
		if s.stored, err = tensor.NewArena(m.device.Stream(), p.stored); err != nil {
			return nil, err
		}
	}
	streamed := 0
	for i, weights := range p.layers {
		if len(weights) == 0 {
			continue
		}
		slot := s.slots[streamed%len(s.slots)]
		slot.Reset()
		for j := range weights {
			w, err := s.place(f, &weights[j], slot)
			if err != nil {
				return nil, fmt.Errorf("tensor %s: %w", weights[j].name, err)
			}
			s.layers[i].weights = append(s.layers[i].weights, w)
		}
		streamed++
	}
	for i, layer := range m.guest.layerOf {
		if m.graph.caches[i].elsewhere {
			s.layers[layer].kept = true
		}
	}
	return s, nil
}

// place cuts a weight off a slot, and says how it comes there.
func (s *streamer) place(f *gguf.File, w *placement, slot *tensor.Arena) (streamedWeight, error) {
	stored, shape := kernel.DType(w.stored.Type), w.shape()
	read := func(dst []byte, offset int64) error {
		return w.from.read(dst, offset, func(dst []byte, at int64) error { return f.ReadTensor(w.stored, dst, at) })
	}
	if !w.packed {
		t, err := slot.New(stored, shape...)
		if err != nil {
			return streamedWeight{}, err
		}
		return streamedWeight{w.weight, t, t.Upload(read, nil)}, nil
	}
	t, err := slot.NewPacked(stored, shape...)
	if err != nil {
		return streamedWeight{}, err
	}
	s.stored.Reset() // each is rearranged before the next one is copied
	from, err := s.stored.New(stored, shape...)
	if err != nil {
		return streamedWeight{}, err
	}
	return streamedWeight{w.weight, t, from.Upload(read, func() error { return tensor.PackOn(s.copies, t, from) })}, nil
}

func (s *streamer) close() {
	if s == nil {
		return
	}
	if s.copies != nil {
		s.copies.Close()
	}
	if s.done != nil {
		s.done.Close()
	}
	for _, slot := range s.slots {
		slot.Free()
	}
	s.stored.Free()
}

// streamedPass is one pass over streamed weights.
type streamedPass struct {
	*streamer
	pass        *pass
	stream      *gpu.Stream   // that computes
	host        *Cache        // of the layers in RAM
	memory      *tensor.Arena // for the keys and values of one of them
	order       map[int]int   // how many layers were streamed before a layer
	arrived     []mark        // weights of each streamed layer
	computed    []mark        // and the layer itself
	uploaded    chan error    // the end of all copies
	context     context.Context
	cancel      context.CancelFunc
	first, rows int // tokens
}

// mark is something that was given to a stream: another one waits for the event once it is recorded.
type mark struct {
	event    *gpu.Event
	recorded chan struct{}
}

func (m mark) record(s *gpu.Stream) error {
	err := s.Record(m.event)
	close(m.recorded)
	return err
}

// begin has the weights of all layers come, as slots become free.
func (p *streamedPass) begin() error {
	p.context, p.cancel = context.WithCancel(context.Background())
	p.uploaded, p.order = make(chan error, 1), map[int]int{}
	if p.done == nil {
		p.done = p.stream.Device().NewEvent()
	}
	if err := p.copies.Wait(p.done); err != nil {
		return err
	}
	var uploads []gpu.Upload
	for layer, l := range p.layers {
		if len(l.weights) == 0 {
			continue
		}
		n := len(p.arrived)
		p.order[layer] = n
		p.arrived = append(p.arrived, mark{p.stream.Device().NewEvent(), make(chan struct{})})
		p.computed = append(p.computed, mark{p.stream.Device().NewEvent(), make(chan struct{})})
		for i, w := range l.weights {
			u := w.upload
			finish := u.Then
			u.Then = func() error {
				if finish != nil {
					if err := finish(); err != nil {
						return fmt.Errorf("tensor %s: %w", w.name, err)
					}
				}
				if i < len(l.weights)-1 {
					return nil
				}
				return p.next(n)
			}
			uploads = append(uploads, u)
		}
	}
	go func() { p.uploaded <- p.copies.Upload(p.context, uploads) }()
	return nil
}

// next says that a layer's weights are on their way, and has those of the layer after it wait until their slot is free.
func (p *streamedPass) next(n int) error {
	if err := p.arrived[n].record(p.copies); err != nil || n == 0 {
		return err
	}
	select {
	case <-p.computed[n-1].recorded:
		return p.copies.Wait(p.computed[n-1].event)
	case <-p.context.Done():
		return p.context.Err()
	}
}

// layer computes a layer, which compute enqueues, once its weights and its keys and values are there.
func (p *streamedPass) layer(layer int, compute func() error) error {
	l := p.layers[layer]
	n, streamed := p.order[layer]
	if !streamed {
		return compute()
	}
	select {
	case <-p.arrived[n].recorded:
	case err := <-p.uploaded:
		p.uploaded <- err
		if err != nil {
			return err
		}
	}
	if err := p.stream.Wait(p.arrived[n].event); err != nil {
		return err
	}
	for _, w := range l.weights {
		w.tensor = w.there
		defer func() { w.tensor = nil }()
	}
	if err := p.keys(layer, true); err != nil {
		return err
	}
	if err := compute(); err != nil {
		return err
	}
	if err := p.keys(layer, false); err != nil {
		return err
	}
	return p.computed[n].record(p.stream)
}

// keys brings the keys and values of the tokens before the pass to the GPU, or those of the pass back.
func (p *streamedPass) keys(layer int, bring bool) error {
	if !p.layers[layer].kept {
		return nil
	}
	at := slices.Index(p.pass.graph.layerOf, layer)
	host := p.host.layers[at]
	card := layerCache{ring: host.ring}
	p.memory.Reset()
	var err error
	if card.k, err = p.memory.New(host.k.DType(), host.k.Shape()...); err != nil {
		return err
	}
	if host.v != nil {
		if card.v, err = p.memory.New(host.v.DType(), host.v.Shape()...); err != nil {
			return err
		}
	}
	lo, hi, room := 0, p.first, host.k.Dim(2)
	if !bring {
		lo, hi = p.first, p.first+p.rows
	}
	if hi > room { // of a ring, which begins anew
		lo, hi = 0, room
	}
	sequence := 0
	if known := p.pass.batch.Known.Sequences; known != nil {
		sequence = int(known[0])
	}
	p.pass.cache.layers[at] = card
	for _, pair := range [][2]*tensor.Tensor{{card.k, host.k}, {card.v, host.v}} {
		dst, src := pair[0], pair[1]
		if dst == nil || lo == hi {
			continue
		}
		if !bring {
			dst, src = src, dst
		}
		heads := dst.Dim(1)
		rows := func(t *tensor.Tensor, head int) *tensor.Tensor {
			first := (sequence*heads + head) * room
			return t.Reshape(t.Dim(0)*heads*room, t.Dim(3)).Slice(first+lo, first+hi)
		}
		for head := range heads {
			if e := tensor.Try(func() { tensor.CopyInto(rows(dst, head), rows(src, head)) }); e != nil {
				return e
			}
		}
	}
	return nil
}

// end waits for the copies of the pass, which is over.
func (p *streamedPass) end(err error) error {
	if err != nil {
		p.cancel()
	}
	if e := <-p.uploaded; err == nil {
		err = e
	}
	p.cancel()
	for _, m := range append(p.arrived, p.computed...) {
		m.event.Close()
	}
	if e := p.stream.Record(p.done); err == nil {
		err = e
	}
	return err
}

// streams reports whether a batch is computed over streamed weights: a prompt of many tokens, of which the host knows where they are.
func (m *Model) streams(b Batch) bool {
	return m.streamer != nil && b.Count == 1 && b.Seq >= m.streamFrom && b.Known.Positions != nil
}

// forwardStreamed is Forward over streamed weights.
func (m *Model) forwardStreamed(w *Workspace, c *Cache, b Batch) (hidden *tensor.Tensor, err error) {
	w.newest, w.adapters = w.guest, nil
	own := *c
	own.layers = slices.Clone(c.layers)
	p := &pass{model: m, graph: w.guest.graph, cache: &own, batch: b, views: w.guest.viewsOf(b.Count, b.Seq)}
	passes := []*pass{p}
	for i, f := range w.followers {
		passes = append(passes, f.pass(f.work.guest, c.followers[i], b, 0))
	}
	m.streamer.mu.Lock()
	defer m.streamer.mu.Unlock()
	s := &streamedPass{
		streamer: m.streamer, pass: p, stream: w.streams.Stream(0), host: c.followers[0], memory: c.guest, first: int(b.Known.Positions[0]), rows: b.Seq,
	}
	if err := s.begin(); err != nil {
		return nil, err
	}
	if e := tensor.Try(func() { err = w.forwardStages([][]*pass{passes}, nil, s, b.Check) }); e != nil {
		err = e
	}
	if err = s.end(err); err != nil {
		return nil, err
	}
	return p.rows(p.graph.hidden), nil
}

// guestBytes returns the size of the keys and values of one layer that another device keeps, of the largest.
func (c *Config) guestBytes(o CacheOptions) (most int64) {
	if c.guest == nil || !c.guest.brings {
		return 0
	}
	for _, shape := range c.graph.caches {
		if shape.elsewhere {
			most = max(most, shape.bytes(o))
		}
	}
	return most
}

// Streamable says why prompts cannot be computed over streamed weights.
func (p Placement) Streamable(c *Config) error {
	switch {
	case len(p.Layers) != 2:
		return errors.New("streamed prompts beside several GPUs are not supported")
	case c.delta != nil && p.Layers[0] > 0:
		return fmt.Errorf("%s has recurrent layers: prompts cannot be streamed with layers in RAM, but with experts (--cpu-moe)", c.Architecture)
	case slices.ContainsFunc(c.weights.all, func(w *weight) bool { return w.twoBits }):
		return errors.New("prompts of a model in two-bit codes cannot be computed by streamed weights")
	}
	return nil
}

// routed reports whether a weight is of routed experts.
func routed(name string) bool { return strings.Contains(name, "_exps.") }
