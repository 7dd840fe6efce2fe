package model

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
)

// Split returns what each of so many devices computes of a model, with the same sizes for one device. Heads, and the
// inner columns of feed-forwards and of each expert, are divided (Shoeybi et al. 2019, "Megatron-LM"): what a rank
// makes of its columns is summed over the ranks after attention and after each feed-forward, and the rows of an output
// matrix of its own are divided too. Everything else is on each device. Of fewer key-value heads than devices, several
// have the same. A Config of a rank counts what that rank has; Vocab, Hidden and HeadDim stay.
//
// Errors name what does not divide and say by how many devices it would.
func (c *Config) Split(f *gguf.File, ranks int) ([]*Config, error) {
	if ranks == 1 {
		return []*Config{c}, nil
	}
	if ranks < 1 || ranks > maxParts {
		return nil, fmt.Errorf("a model on %d devices: want 1 to %d", ranks, maxParts)
	}
	if reason := c.indivisible(f, ranks); reason != "" {
		var fitting []string
		for n := 2; n <= max(ranks, kernel.MaxRanks); n++ {
			if c.indivisible(f, n) == "" {
				fitting = append(fitting, fmt.Sprint(n))
			}
		}
		if len(fitting) == 0 {
			return nil, fmt.Errorf("%s cannot be divided among %d devices, nor among any other number: %s", c.Architecture, ranks, reason)
		}
		return nil, fmt.Errorf("the model cannot be divided among %d devices: %s; among %s it can", ranks, reason, strings.Join(fitting, " or "))
	}
	fused, err := fusing()
	if err != nil {
		return nil, err
	}
	parts := make([]*Config, ranks)
	for rank := range parts {
		if parts[rank], err = c.part(f, rank, ranks); err != nil {
			return nil, err
		}
	}
	for rank, p := range parts {
		for i, w := range p.weights.all {
			w.whole = c.weights.all[i].spec
			w.firstRow = firstOf(parts, rank, w.whole.rows, func(p *Config) int { return p.weights.all[i].rows })
			w.firstCol = firstOf(parts, rank, w.whole.cols, func(p *Config) int { return p.weights.all[i].cols })
		}
		if p.graph, err = p.recordPart(p.weights, rank, fused); err != nil {
			return nil, err
		}
	}
	joinGathers(parts)
	return parts, nil
}

// maxParts is how many parts a model may have, most of them in other processes.
const maxParts = 256

// joinGathers tells each rank's gathers the columns of all ranks.
func joinGathers(parts []*Config) {
	for b, block := range parts[0].graph.blocks {
		for i, o := range block {
			if _, ok := o.(*gatherOp); !ok {
				continue
			}
			var columns []int
			for _, p := range parts {
				columns = append(columns, p.graph.blocks[b][i].(*gatherOp).x.cols)
			}
			for _, p := range parts {
				p.graph.blocks[b][i].(*gatherOp).columns = columns
			}
		}
	}
}

// firstOf returns where a rank's share of a size begins: after those of the ranks before it, or where there are not as
// many shares as ranks, of which several then have the same.
func firstOf(parts []*Config, rank, size int, share func(*Config) int) int {
	before, all := 0, 0
	for r, p := range parts {
		if r < rank {
			before += share(p)
		}
		all += share(p)
	}
	if own := share(parts[rank]); all > size && own > 0 {
		return rank * size / len(parts) / own * own
	}
	return before
}

// part returns the sizes and weights of a rank, without its graph.
func (c *Config) part(f *gguf.File, rank, ranks int) (_ *Config, err error) {
	p := new(Config)
	*p = *c
	p.Heads, p.KVHeads = c.Heads/ranks, max(1, c.KVHeads/ranks)
	share := func(size int, down func(*layer) *weight) int {
		return shareOf(size, max(1, c.unit(f, size, ranks, down)), rank, ranks)
	}
	p.FeedForward = share(c.FeedForward, denseDown)
	if c.mixture != nil {
		m := *c.mixture
		m.width, m.sharedWidth = share(m.width, expertDown), share(m.sharedWidth, sharedDown)
		p.mixture = &m
	}
	if c.queryRoPE == &c.RoPE {
		p.queryRoPE = &p.RoPE
	}
	if p.weights, err = p.bind(f); err != nil {
		return nil, err
	}
	p.adapted, p.within = nil, nil // adapters change whole matrices
	if out := p.weights.output; out != p.weights.embedding {
		unit := 64 // tiles of kernels, as whole as they can be
		for unit > 1 && c.Vocab/unit < ranks {
			unit /= 2
		}
		out.rows = shareOf(c.Vocab, unit, rank, ranks)
	}
	return p, nil
}

// The matrices whose columns are the inner width of a feed-forward.
func denseDown(l *layer) *weight  { return l.down }
func expertDown(l *layer) *weight { return l.expertDown }
func sharedDown(l *layer) *weight { return l.sharedDown }

// shareOf returns what a rank has of a size: whole units, as evenly as they go; the last rank has the rest of a unit.
func shareOf(size, unit, rank, ranks int) int {
	units := (size + unit - 1) / unit
	bound := func(r int) int { return min(size, units*r/ranks*unit) }
	return bound(rank+1) - bound(rank)
}

// unit returns what a width is divided by: blocks of the types of the matrices whose rows it is the length of, as many
// together as still give every rank the same, or else some; 0 where there are too few blocks.
func (c *Config) unit(f *gguf.File, size, ranks int, down func(*layer) *weight) int {
	block := 1
	for i := range c.weights.layers {
		if w := down(&c.weights.layers[i]); w != nil {
			block = max(block, blockOf(f, w))
		}
	}
	for _, even := range []bool{true, false} {
		for unit := max(256, block); unit > 1 && unit >= block; unit /= 2 {
			if unit%block == 0 && size%unit == 0 && size/unit >= ranks && (!even || size/unit%ranks == 0) {
				return unit
			}
		}
	}
	if size > 0 && (size%block != 0 || size/block < ranks) {
		return 0
	}
	return block
}

// blockOf returns the elements of a block of a weight's type in the file.
func blockOf(f *gguf.File, w *weight) int {
	if t, err := f.Tensor(w.name); err == nil && kernel.DType(t.Type).Known() {
		return kernel.DType(t.Type).BlockSize()
	}
	return 1
}

// indivisible says why a model cannot be divided among so many devices, "" where it can.
func (c *Config) indivisible(f *gguf.File, ranks int) string {
	switch {
	case c.latent != nil:
		return "its heads share one compressed key"
	case c.delta != nil:
		return "its recurrent layers carry on one state"
	case slices.ContainsFunc(c.weights.all, func(w *weight) bool { return w.twoBits }):
		return "its matrices are two-bit codes with one scale"
	case c.Heads%ranks != 0:
		return fmt.Sprintf("%d heads", c.Heads)
	case c.KVHeads%ranks != 0 && ranks%c.KVHeads != 0:
		return fmt.Sprintf("%d key-value heads", c.KVHeads)
	case c.Vocab < ranks:
		return fmt.Sprintf("a vocabulary of %d", c.Vocab)
	}
	for i := range c.weights.layers {
		if w := c.weights.layers[i].output; w != nil && w.cols/ranks%blockOf(f, w) != 0 {
			return fmt.Sprintf("%d of the %d columns of %s are no whole blocks of %d", w.cols/ranks, w.cols, w.name, blockOf(f, w))
		}
	}
	type width struct {
		name string
		size int
		down func(*layer) *weight
	}
	widths := []width{{"feed-forward", c.FeedForward, denseDown}}
	if m := c.mixture; m != nil {
		widths = append(widths, width{"expert", m.width, expertDown}, width{"shared expert", m.sharedWidth, sharedDown})
	}
	for _, w := range widths {
		used := slices.ContainsFunc(c.weights.layers, func(l layer) bool { return w.down(&l) != nil })
		if used && w.size > 0 && c.unit(f, w.size, ranks, w.down) == 0 {
			return fmt.Sprintf("the %d columns of the %s have fewer blocks", w.size, w.name)
		}
	}
	return ""
}

// Bytes of a file's tensor that a weight has: `count` pieces, each so long and a stride after the one before.
type pieces struct {
	first, length, stride, count int64
}

func (p pieces) bytes() int64 { return p.length * p.count }

// read fills dst with the bytes from an offset of the weight on.
func (p pieces) read(dst []byte, offset int64, read func(dst []byte, offset int64) error) error {
	for len(dst) > 0 {
		piece, at := offset/p.length, offset%p.length
		n := min(int64(len(dst)), p.length-at)
		if err := read(dst[:n], p.first+piece*p.stride+at); err != nil {
			return err
		}
		dst, offset = dst[n:], offset+n
	}
	return nil
}

// pieces returns where the weight lies in the file's tensor, of a type.
func (w *weight) pieces(t kernel.DType) pieces {
	each := int64(max(w.whole.experts, 1))
	row := t.Bytes(w.whole.rowInFile())
	var p pieces
	switch {
	case w.turned: // which no ranks divide
		p = pieces{row * int64(w.whole.first), row * int64(w.cols), row * int64(w.whole.inFile()), each}
	case w.rows == 0:
		p = pieces{t.Bytes(w.whole.first + w.firstCol), t.Bytes(w.cols), t.Bytes(w.whole.inFile()), each}
	case w.cols == w.whole.cols:
		p = pieces{row * int64(w.whole.first+w.firstRow), row * int64(w.rows), row * int64(w.whole.inFile()), each}
	default: // of every row
		p = pieces{row*int64(w.whole.first) + t.Bytes(w.firstCol), t.Bytes(w.cols), row, each * int64(w.rows)}
	}
	if p.count == 1 || p.length == p.stride {
		p.length, p.count = p.length*p.count, 1
	}
	return p
}
