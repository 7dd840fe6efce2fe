package engine

import (
	"math"

	"github.com/vibrant-ml/vibrant/internal/language/model"
)

const (
	// checkpoints is how many states a session of a recurrent model keeps to go back to. Each takes the memory of the
	// state, which is that of some thousand tokens' keys and values.
	checkpoints = 4
	// tail is how many tokens at a prompt's end are a pass of their own, so that the state before them is kept: the next
	// prompt often differs in the last few tokens, such as those that open an answer.
	tail = 32
)

// past knows the positions that the cache of a session can go back to. Keys and values can at any, where they are kept of
// all tokens; rings of the newest have overwritten older ones, and of a recurrent state there are a few copies.
type past struct {
	model *model.Model
	cache *model.Cache
	held  int // how far behind the newest position rings can go back, -1 for all the way

	newest int                   // position after the last one written since the cache was empty
	live   [model.StateSlots]int // position before which each slot holds the state, -1 for none
	saved  []int                 // the same of each checkpoint
}

func newPast(m *model.Model, c *model.Cache) past {
	p := past{model: m, cache: c, held: m.Held(c), saved: make([]int, c.Checkpoints)}
	p.forgetAfter(-1)
	return p
}

// forgetAfter forgets states after a position: the tokens before them are others from now on.
func (p *past) forgetAfter(position int) {
	for _, list := range [][]int{p.live[:], p.saved} {
		for i, at := range list {
			if at > position {
				list[i] = -1
			}
		}
	}
}

// back makes the cache continue at the last position it can, of those up to one, and returns it.
func (p *past) back(position int) (int, error) {
	if p.held >= 0 && p.newest > position+p.held {
		position = 0
	}
	p.forgetAfter(position)
	if p.model.Recurrent() && position > 0 {
		best, from := 0, -1
		for i, at := range p.saved {
			if at > best {
				best, from = at, i
			}
		}
		for _, at := range p.live {
			if at >= best && at > 0 {
				best, from = at, -1
			}
		}
		if from >= 0 {
			if err := p.cache.LoadState(best, from); err != nil {
				return 0, err
			}
			p.live[best%model.StateSlots] = best
		}
		position = best
		p.forgetAfter(position)
	}
	if position == 0 {
		p.newest = 0
	}
	return position, nil
}

// begin says that tokens from a position up to another are about to be computed, end that they were.
func (p *past) begin(from, to int) {
	p.newest = max(p.newest, to)
	p.live[to%model.StateSlots] = -1
}

func (p *past) end(to int) { p.live[to%model.StateSlots] = to }

// whole says whether the cache can go on after so many tokens: a pass that failed may have changed the state in some layers.
func (p *past) whole(tokens int) bool {
	return tokens == 0 || !p.model.Recurrent() || p.live[tokens%model.StateSlots] == tokens
}

// save keeps the state before a position, in the place of the one that leaves the smallest gap.
func (p *past) save(position int) error {
	if len(p.saved) == 0 || !p.model.Recurrent() || position == 0 {
		return nil
	}
	place, smallest := 0, math.MaxInt
	for i, at := range p.saved {
		if at == position {
			return nil
		}
		if at < 0 {
			place, smallest = i, -1
		}
		if smallest < 0 {
			continue
		}
		before, after := 0, position
		for _, other := range p.saved {
			if other < at {
				before = max(before, other)
			}
			if other > at {
				after = min(after, other)
			}
		}
		if gap := after - before; gap < smallest {
			place, smallest = i, gap
		}
	}
	p.saved[place] = -1
	if err := p.cache.SaveState(position, place); err != nil {
		return err
	}
	p.saved[place] = position
	return nil
}
