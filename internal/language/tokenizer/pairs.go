package tokenizer

// merge is a pair of tokens that join: its place in the list and the token that it makes.
type merge struct {
	left, right int32
	rank        uint32
	id          int32
}

// pairTable finds merges by their pair in about one access to memory: an open hash table, at most half full.
type pairTable struct {
	slots []merge // left none: free
	shift uint
}

func newPairTable(n int) pairTable {
	p := pairTable{shift: 63}
	for 1<<(64-p.shift) < 2*n {
		p.shift--
	}
	p.slots = make([]merge, 1<<(64-p.shift))
	for i := range p.slots {
		p.slots[i].left = none
	}
	return p
}

func (p *pairTable) slot(left, right int32) uint64 {
	return (uint64(uint32(left))<<32 | uint64(uint32(right))) * 0x9e3779b97f4a7c15 >> p.shift
}

// add puts a merge in, unless its pair is there.
func (p *pairTable) add(m merge) {
	for i := p.slot(m.left, m.right); ; i = (i + 1) & uint64(len(p.slots)-1) {
		switch s := &p.slots[i]; {
		case s.left == none:
			*s = m
			return
		case s.left == m.left && s.right == m.right:
			return
		}
	}
}

func (p *pairTable) find(left, right int32) (rank uint32, id int32, ok bool) {
	for i := p.slot(left, right); ; i = (i + 1) & uint64(len(p.slots)-1) {
		switch s := &p.slots[i]; {
		case s.left == none:
			return 0, none, false
		case s.left == left && s.right == right:
			return s.rank, s.id, true
		}
	}
}
