package fake

import (
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// op gathers the operands of one kernel: their host addresses, and the first that does not lie in live memory.
type op struct {
	stream *stream
	name   string
	blocks []*block
	first  int64 // bytes of the first operand
	err    error
}

func (s *stream) op(name string) *op {
	o := &op{stream: s, name: name}
	if slices.Contains(s.config.Lacks, name) {
		o.err = fmt.Errorf("fake: %s: %w", name, kernel.ErrUnsupported)
	}
	return o
}

// at returns the host address of an operand of that many bytes. An empty one has none: it is passed on as it is, unchecked, for a
// null pointer means that an operand was left out.
func (o *op) at(p kernel.Ptr, bytes int64) kernel.Ptr {
	if o.err != nil {
		return nil
	}
	if bytes <= 0 {
		return p
	}
	if p == nil {
		o.err = fmt.Errorf("fake: %s: null pointer: %w", o.name, kernel.ErrInvalid)
		return nil
	}
	if o.first == 0 {
		o.first = bytes
	}
	g := o.stream.GPU
	g.mu.Lock()
	defer g.mu.Unlock()
	b, err := g.find(o.name, p, bytes)
	if err != nil {
		o.err = err
		return nil
	}
	o.blocks = append(o.blocks, b)
	return b.at(p)
}

// anywhere is at for an operand that may lie on another GPU of the backend, as those of copies may.
func (o *op) anywhere(p kernel.Ptr, bytes int64) kernel.Ptr {
	for _, g := range o.stream.backend.gpus {
		if g != o.stream.GPU && g.owns(p) && o.err == nil {
			g.mu.Lock()
			defer g.mu.Unlock()
			b, err := g.find(o.name, p, bytes)
			if err != nil {
				o.err = err
				return nil
			}
			return b.at(p)
		}
	}
	return o.at(p, bytes)
}

// optional is at for an operand that may be left out.
func (o *op) optional(p kernel.Ptr, bytes int64) kernel.Ptr {
	if p == nil {
		return nil
	}
	return o.at(p, bytes)
}

func (o *op) enqueue(c Call, run func() error) error {
	if o.err != nil {
		return o.err
	}
	return o.stream.enqueue(c, work{op: o.name, blocks: o.blocks, run: run})
}

func (o *op) launch(run func() error) error {
	if strings.HasPrefix(o.name, "Attention") {
		o.scratch(o.first)
	}
	return o.enqueue(Launch, run)
}

// scratch has the op use memory of the stream itself, which grows as CUDA's does.
func (o *op) scratch(bytes int64) {
	s := o.stream
	if s.memory == nil || o.err != nil {
		return
	}
	if bytes > s.scratchBytes {
		p, err := s.memory.Alloc(bytes)
		if err != nil {
			o.err = err
			return
		}
		if s.scratch != nil {
			s.memory.Free(s.scratch)
		}
		s.scratch, s.scratchBytes = p, bytes
	}
	o.at(s.scratch, bytes)
	o.at(s.counters, counterBytes)
}

// size returns the bytes of n elements.
func size(t kernel.DType, n ...int) int64 {
	all := 1
	for _, d := range n {
		all *= d
	}
	return t.Bytes(all)
}

// reach returns the bytes from the first to the last element of an array. Along each of its first axes neighbours lie a stride of
// elements apart; the rest is without gaps.
func reach(t kernel.DType, strides []int, extents ...int) int64 {
	last := 1
	for i, n := range extents {
		if n <= 0 {
			return 0
		}
		if i >= len(strides) {
			last *= n
		}
	}
	for i, s := range strides {
		last += (extents[i] - 1) * s
	}
	return t.Bytes(last)
}

// view makes a view of this device one of host memory; nil stays for what is left out.
func (o *op) view(v kernel.View, sizes []int) kernel.View {
	v.Data = o.optional(v.Data, reach(v.Type, v.Strides[:len(sizes)], sizes...))
	return v
}

// weight makes a weight of this device one of internal/backend/purego, which knows only the stored form.
func (o *op) weight(w kernel.Weight) kernel.Weight {
	n := size(w.Type, w.Rows, w.Cols)
	if w.Packed {
		if w.Data = o.at(w.Data, packedHeader+n); w.Data != nil {
			w.Data = unsafe.Add(w.Data, packedHeader)
		}
		w.Packed = false
		return w
	}
	w.Data = o.at(w.Data, n)
	return w
}

// WeightPack is written out, as the packed form has no shape: see generate's special operations.
func (s *stream) WeightPack(out kernel.Ptr, w kernel.Weight) error {
	o := s.op("WeightPack")
	n := size(w.Type, w.Rows, w.Cols)
	out = o.at(out, packedHeader+n)
	w.Data = o.at(w.Data, n)
	return o.launch(func() error {
		return s.kernels.CopyOnDevice(unsafe.Add(out, packedHeader), w.Data, n)
	})
}
