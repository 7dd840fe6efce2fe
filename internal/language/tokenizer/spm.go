package tokenizer

import (
	"math"
	"strings"
)

// underscore is U+2581, which stands for a space in SentencePiece's vocabularies.
const underscore = "▁"

// spm is SentencePiece's byte pair encoding (https://arxiv.org/abs/1808.06226): the text starts as its characters, and
// of all neighbours that make a token the one with the highest score merges first.
type spm struct {
	characters
	addSpacePrefix bool
	ranks          []uint32 // of each token: the higher its score, the lower
	words          bool     // no token has a space behind another character: the text can be cut there
}

func (t *Tokenizer) newSPM(scores []float32, addSpacePrefix bool) *spm {
	p := &spm{characters: t.newCharacters(), addSpacePrefix: addSpacePrefix, ranks: make([]uint32, len(t.types)), words: true}
	for id := range t.types {
		if scores != nil {
			p.ranks[id] = rankOfScore(scores[id])
		}
		// User-defined tokens are cut out of the text before.
		if typ := t.types[id]; typ != Byte && typ != UserDefined && t.isOrdinary(int32(id)) && hasInnerSpace(t.text(int32(id))) {
			p.words = false
		}
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

func (p *spm) pair(t *Tokenizer, text string, left, right *sym) (rank uint32, id int32, ok bool) {
	if id, ok = t.ordinary(text[left.start:right.end]); ok {
		rank = p.ranks[id]
	}
	return rank, id, ok
}
