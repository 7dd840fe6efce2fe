package tokenizer

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// underscore is U+2581, which stands for a space in SentencePiece's vocabularies.
const underscore = "▁"

// spm is SentencePiece's byte pair encoding (https://arxiv.org/abs/1808.06226): the text starts as its characters, and
// of all neighbours that make a token the one with the highest score merges first. Characters without a token become
// their bytes' tokens, <0x00> to <0xFF>.
type spm struct {
	addSpacePrefix bool
	bytes          [256]int32 // the token of each byte, or none
	ranks          []uint32   // of each token: the higher its score, the lower
	words          bool       // no token has a space behind another character: the text can be cut there
}

func (t *Tokenizer) newSPM(scores []float32, addSpacePrefix bool) *spm {
	p := &spm{addSpacePrefix: addSpacePrefix, ranks: make([]uint32, len(t.types)), words: true}
	for b := range p.bytes {
		p.bytes[b] = none
	}
	for id := range t.types {
		if scores != nil {
			p.ranks[id] = rankOfScore(scores[id])
		}
		switch text := t.text(int32(id)); {
		case t.types[id] == Byte:
			if len(text) == 1 && p.bytes[text[0]] == none {
				p.bytes[text[0]] = int32(id)
			}
		case t.isOrdinary(int32(id)) && t.types[id] != UserDefined: // those are cut out of the text before
			if i := strings.LastIndexByte(text, ' '); i > 0 && strings.Trim(text[:i], " ") != "" {
				p.words = false
			}
		}
	}
	missing := 0
	for _, id := range p.bytes {
		if id == none {
			missing++
		}
	}
	if missing > 0 && t.unk == none {
		t.warn("%d of the 256 bytes have no token and there is no unknown token: characters without a token cannot be encoded", missing)
	}
	return p
}

// rankOfScore orders scores, the highest first. Not-a-number gets some place in the order.
func rankOfScore(score float32) uint32 {
	b := math.Float32bits(score)
	if b>>31 != 0 {
		return b // negative: the larger its bits, the smaller it is; -0 has the same rank as 0
	}
	return 1<<31 - b
}

// encode takes the text with its spaces as they are; first says that it starts the input or follows a special token.
func (p *spm) encode(e *encoder, text string, first bool) error {
	text = strings.ReplaceAll(text, underscore, " ") // to SentencePiece they are the same
	if first && p.addSpacePrefix {
		text = " " + text
	}
	for text != "" {
		n := len(text)
		if p.words {
			n = wordEnd(text)
		}
		if err := e.piece(p, text[:n]); err != nil {
			return err
		}
		text = text[n:]
	}
	return nil
}

// wordEnd returns where a space follows another character: the end of spaces and the word behind them.
func wordEnd(s string) int {
	i := 0
	for i < len(s) && s[i] == ' ' {
		i++
	}
	if j := strings.IndexByte(s[i:], ' '); j >= 0 {
		return i + j
	}
	return len(s)
}

func (p *spm) whole(*Tokenizer, string) (id int32, ok bool) { return none, false }

func (p *spm) symbols(t *Tokenizer, m *scratch, text string) {
	for i := 0; i < len(text); {
		_, n := utf8.DecodeRuneInString(text[i:])
		id, ok := t.ordinary(text[i : i+n])
		if !ok {
			id = none
		}
		m.add(i, i+n, id)
		i += n
	}
}

func (p *spm) pair(t *Tokenizer, text string, left, right *sym) (rank uint32, id int32, ok bool) {
	if id, ok = t.ordinary(text[left.start:right.end]); ok {
		rank = p.ranks[id]
	}
	return rank, id, ok
}

func (p *spm) appendSymbol(t *Tokenizer, ids []int32, text string, s *sym) ([]int32, error) {
	if s.id != none {
		return append(ids, s.id), nil
	}
	for _, b := range []byte(text[s.start:s.end]) {
		id := p.bytes[b]
		if id == none {
			id = t.unk
		}
		if id == none {
			return ids, fmt.Errorf("tokenizer: the vocabulary has no token for byte 0x%02x", b)
		}
		ids = append(ids, id)
	}
	return ids, nil
}
