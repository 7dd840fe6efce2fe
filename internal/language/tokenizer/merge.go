package tokenizer

import (
	"math"
	"slices"
)

// none marks the absence of a token or a neighbour.
const none = -1

// sym is a part of the text that became one token so far, or is still a character without a token (id none).
type sym struct {
	start, end int32 // bytes of the text; start == end once it was merged into its left neighbour
	prev, next int32 // neighbours, or none
	id         int32
}

// bigram is a possible merge of two neighbours. It has lapsed when they have changed meanwhile: symbols only grow, so
// that the pair still is what it was if its left one exists and its right one ends where it did.
type bigram struct {
	order uint64 // rank << 32 | index of the left symbol: what merges first has the lowest rank, then is the leftmost
	end   int32  // where the right symbol ends
	id    int32  // the token that they make
}

func (b bigram) left() int32 { return int32(uint32(b.order)) }

// scratch is the memory of merging one text. It needs n log n time for n symbols, since a heap holds the possible merges.
type scratch struct {
	syms []sym
	heap []bigram
}

// maxKeptScratch bounds the memory that an idle scratch keeps after a long text.
const maxKeptScratch = 1 << 16

// reset makes room for a piece of n symbols at most.
func (m *scratch) reset(n int) {
	m.syms = slices.Grow(m.syms[:0], n)
	m.heap = slices.Grow(m.heap[:0], n)
}

// add appends a symbol to those of the piece.
func (m *scratch) add(start, end int, id int32) {
	i := int32(len(m.syms))
	if i > 0 {
		m.syms[i-1].next = i
	}
	m.syms = append(m.syms, sym{start: int32(start), end: int32(end), prev: i - 1, next: none, id: id})
}

// merge joins neighbours, lowest rank first, until p knows no more merges.
func (m *scratch) merge(t *Tokenizer, p pieces, text string) {
	if len(m.syms) <= fewSymbols {
		m.mergeFew(t, p, text)
	} else {
		m.mergeMany(t, p, text)
	}
}

// mergeMany is merge by a heap of the possible merges.
func (m *scratch) mergeMany(t *Tokenizer, p pieces, text string) {
	offer := func(left int32) {
		l := &m.syms[left]
		r := &m.syms[l.next]
		if rank, id, ok := p.pair(t, text, l, r); ok {
			m.push(bigram{uint64(rank)<<32 | uint64(left), r.end, id})
		}
	}
	for i := range len(m.syms) - 1 {
		offer(int32(i))
	}
	for len(m.heap) > 0 {
		b := m.pop()
		left := b.left()
		l := &m.syms[left]
		if l.start == l.end || l.next == none || m.syms[l.next].end != b.end {
			continue
		}
		r := &m.syms[l.next]
		l.end, l.id, l.next = r.end, b.id, r.next
		r.start = r.end
		if r.next != none {
			m.syms[r.next].prev = left
			offer(left)
		}
		if l.prev != none {
			offer(l.prev)
		}
	}
}

// fewSymbols is how many are merged faster by looking at all of them each time than by a heap: those of a word.
const fewSymbols = 24

// mergeFew is merge for few symbols, which lie one behind the other again when it ends.
func (m *scratch) mergeFew(t *Tokenizer, p pieces, text string) {
	const noMerge = math.MaxUint64
	var ranks [fewSymbols]uint64 // of the merges of each symbol with the next
	var ids [fewSymbols]int32    // which these make
	syms := m.syms
	offer := func(i int) {
		ranks[i] = noMerge
		if rank, id, ok := p.pair(t, text, &syms[i], &syms[i+1]); ok {
			ranks[i], ids[i] = uint64(rank), id
		}
	}
	for i := range len(syms) - 1 {
		offer(i)
	}
	for n := len(syms) - 1; n > 0; n-- {
		best := 0
		for i, rank := range ranks[:n] {
			if rank < ranks[best] {
				best = i
			}
		}
		if ranks[best] == noMerge {
			break
		}
		syms[best].end, syms[best].id = syms[best+1].end, ids[best]
		copy(syms[best+1:], syms[best+2:])
		copy(ranks[best:n], ranks[best+1:n])
		copy(ids[best:n], ids[best+1:n])
		syms = syms[:n]
		if best+1 < n {
			offer(best)
		}
		if best > 0 {
			offer(best - 1)
		}
	}
	for i := range syms {
		syms[i].prev, syms[i].next = int32(i-1), int32(i+1)
	}
	if n := len(syms); n > 0 {
		syms[n-1].next = none
	}
	m.syms = syms
}

// push and pop keep heap a heap of four children a node, which halves the cache misses of the usual two.
func (m *scratch) push(b bigram) {
	m.heap = append(m.heap, b)
	h, i := m.heap, len(m.heap)-1
	for i > 0 {
		up := (i - 1) / 4
		if b.order >= h[up].order {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = b
}

func (m *scratch) pop() bigram {
	n := len(m.heap) - 1
	top, last := m.heap[0], m.heap[n]
	h := m.heap[:n]
	m.heap = h
	i := 0
	for {
		down := 4*i + 1
		if down >= n {
			break
		}
		least := h[down].order
		for c, end := down+1, min(down+4, n); c < end; c++ {
			if x := h[c].order; x < least {
				down, least = c, x
			}
		}
		if least >= last.order {
			break
		}
		h[i] = h[down]
		i = down
	}
	if n > 0 {
		h[i] = last
	}
	return top
}
