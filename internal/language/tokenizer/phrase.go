package tokenizer

import "strings"

// Phrases seldom come twice, but their words and the neighbours in them do. What merging makes of two texts side by side is what it
// makes of each if the tokens at the border stay as they are when merged alone (mergePiece says why). So a phrase is encoded word by
// word; words between which a merge happens are encoded as one.

// mostJoined bounds the bytes of words that are encoded as one, and so the time that a phrase takes, before it is merged as a whole.
const mostJoined = 64

// borderCacheSize is how many pairs of tokens an encoder remembers, and whether they stay apart: 64 KiB.
const borderCacheSize = 1 << 13

// part is where words of a phrase begin, and their ids.
type part struct{ at, id int }

// phrase appends the ids of a piece of words with single spaces between.
func (e *encoder) phrase(p pieces, piece string) error {
	if err := e.worked(len(piece)); err != nil {
		return err
	}
	first := len(e.ids)
	e.parts = e.parts[:0]
	for at := 0; at < len(piece); {
		end := endOfWord(piece, at)
		e.parts = append(e.parts, part{at, len(e.ids)})
		if err := e.word(p, piece[at:end]); err != nil {
			return err
		}
		for n := len(e.parts); n > 1; n-- {
			stay, err := e.stayApart(p, e.parts[n-1].id)
			if err != nil {
				return err
			}
			if stay {
				break
			}
			e.parts = e.parts[:n-1]
			both := e.parts[n-2]
			e.ids = e.ids[:both.id]
			if end-both.at > mostJoined {
				e.ids = e.ids[:first]
				return e.mergePiece(p, piece)
			}
			if err := e.word(p, piece[both.at:end]); err != nil {
				return err
			}
		}
		at = end
	}
	return nil
}

// endOfWord returns where the word that begins at a byte ends: before the next space behind another character. So spaces side by side, whose
// tokens nearly always merge, belong to one word.
func endOfWord(piece string, at int) int {
	for at < len(piece) && piece[at] == ' ' {
		at++
	}
	if i := strings.IndexByte(piece[at:], ' '); i >= 0 {
		return at + i
	}
	return len(piece)
}

// word appends the ids of a text by merging alone.
func (e *encoder) word(p pieces, text string) error {
	if e.recall(text) {
		return nil
	}
	start := len(e.ids)
	if err := e.mergePiece(p, text); err != nil {
		return err
	}
	e.remember(text, start)
	return nil
}

// stayApart reports whether the tokens before and behind a border are what merging makes of their text.
func (e *encoder) stayApart(p pieces, border int) (bool, error) {
	if border == e.parts[0].id || border == len(e.ids) {
		return true, nil // no token stands there: bytes without one are dropped
	}
	left, right := e.ids[border-1], e.ids[border]
	const known, joined = 1 << 63, 1 << 31 // bits that ids leave free; an empty slot has none
	pair := uint64(left)<<32 | uint64(right) | known
	slot := &e.borders[pair*0x9e3779b97f4a7c15>>(64-13)]
	if *slot&^joined == pair {
		return *slot&joined == 0, nil
	}
	n := len(e.ids)
	if err := e.mergePiece(p, e.t.text(left)+e.t.text(right)); err != nil {
		return false, err
	}
	stay := len(e.ids) == n+2 && e.ids[n] == left && e.ids[n+1] == right
	e.ids = e.ids[:n]
	*slot = pair
	if !stay {
		*slot |= joined
	}
	return stay, nil
}
