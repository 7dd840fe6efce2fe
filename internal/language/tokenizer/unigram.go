package tokenizer

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// unknownPenalty is how much worse an unknown character is than the worst token, as in SentencePiece.
const unknownPenalty = 10

// maxGrowth bounds how many bytes a map of characters makes of one. Unicode's NFKC makes at most 11, of U+FDFA.
const maxGrowth = 16

// unigram is SentencePiece's language model of tokens (https://arxiv.org/abs/1804.10959): of all ways to write a text in
// tokens the one with the largest sum of scores.
type unigram struct {
	bytes           [256]int32 // the token of each byte, or none
	chars           *charsMap
	keepExtraSpaces bool
	addSpacePrefix  bool
	words           bool // no token has a space behind another character: the text can be cut there
	tokens          trie
	scores          []float32
	unknown         float64 // score of an unknown character
}

func (t *Tokenizer) newUnigram(c Config, addSpacePrefix bool) (*unigram, error) {
	p := &unigram{scores: make([]float32, len(t.types)), addSpacePrefix: addSpacePrefix,
		keepExtraSpaces: c.KeepExtraSpaces, words: true}
	copy(p.scores, c.Scores)
	for b := range p.bytes {
		p.bytes[b] = none
	}
	var err error
	if p.chars, err = newCharsMap(c.CharsMap); err != nil {
		return nil, err
	}
	least := math.Inf(1)
	for id := range t.types {
		text := t.text(int32(id))
		switch t.types[id] {
		case Byte:
			if len(text) == 1 {
				p.bytes[text[0]] = int32(id)
			}
		case Normal, Undefined:
			least = min(least, float64(p.scores[id]))
			if len(text) > maxSpecial {
				t.warn("token %d of %d bytes is not looked for in texts; the limit is %d", id, len(text), maxSpecial)
				continue
			}
			p.tokens.add(text, int32(id))
			if hasInnerSpace(text) {
				p.words = false
			}
		}
	}
	p.unknown = least - unknownPenalty
	return p, nil
}

// hasInnerSpace reports whether a space follows another character.
func hasInnerSpace(text string) bool {
	i := strings.LastIndexByte(text, ' ')
	return i > 0 && strings.Trim(text[:i], " ") != ""
}

func (p *unigram) encode(e *encoder, text string, first bool) error {
	text, err := p.normalize(e, text, first)
	if err != nil {
		return err
	}
	for text != "" {
		n := len(text)
		if p.words {
			n = wordEnd(text)
		}
		if !e.recall(text[:n]) {
			start := len(e.ids)
			if err := p.appendBest(e, text[:n]); err != nil {
				return err
			}
			e.remember(text[:n], start)
		}
		text = text[n:]
	}
	return nil
}

// normalize replaces characters by the map, and brings spaces to one between words and none at the ends.
func (p *unigram) normalize(e *encoder, text string, first bool) (string, error) {
	most := maxGrowth*len(text) + 1
	var b strings.Builder
	b.Grow(len(text) + 1)
	if first && p.addSpacePrefix {
		b.WriteByte(' ')
	}
	afterSpace, empty := !p.keepExtraSpaces, true
	for text != "" {
		s, n := p.chars.replace(text)
		if err := e.worked(n); err != nil {
			return "", err
		}
		text = text[n:]
		if afterSpace {
			s = strings.TrimLeft(s, " ")
		}
		if s == "" {
			continue
		}
		if len(s) > most-b.Len() {
			return "", fmt.Errorf("tokenizer: the map of characters (precompiled_charsmap) makes a text more than %d times as long", maxGrowth)
		}
		b.WriteString(strings.ReplaceAll(s, underscore, " "))
		empty = false
		afterSpace = !p.keepExtraSpaces && s[len(s)-1] == ' '
	}
	if empty {
		return "", nil
	}
	if p.keepExtraSpaces {
		return b.String(), nil
	}
	return strings.TrimRight(b.String(), " "), nil
}

// appendBest appends the ids of the best way to write a text, by Viterbi's algorithm.
func (p *unigram) appendBest(e *encoder, text string) error {
	type step struct {
		score float64
		from  int32
		id    int32 // none: an unknown character
	}
	best := make([]step, len(text)+1)
	for i := range best {
		best[i].score = math.Inf(-1)
	}
	best[0].score = 0
	for i := 0; i < len(text); {
		if err := e.worked(16); err != nil {
			return err
		}
		_, size := utf8.DecodeRuneInString(text[i:])
		offer := func(end int, score float64, id int32) {
			if score += best[i].score; score > best[end].score {
				best[end] = step{score, int32(i), id}
			}
		}
		single := false
		p.tokens.prefixes(text[i:], func(n int, id int32) {
			offer(i+n, float64(p.scores[id]), id)
			single = single || n == size
		})
		if !single {
			offer(i+size, p.unknown, none)
		}
		i += size
	}
	start := len(e.ids)
	for i := len(text); i > 0; i = int(best[i].from) {
		b := best[i]
		switch last := len(e.ids) - 1; {
		case b.id != none:
			e.ids = append(e.ids, b.id)
		case p.hasBytes(text[b.from:i]):
			for j := i - 1; j >= int(b.from); j-- {
				e.ids = append(e.ids, p.bytes[text[j]])
			}
		case e.t.unk != none && (last < start || e.ids[last] != e.t.unk): // once for a run of unknown characters
			e.ids = append(e.ids, e.t.unk)
		}
	}
	slices.Reverse(e.ids[start:])
	return nil
}

func (p *unigram) hasBytes(text string) bool {
	for _, b := range []byte(text) {
		if p.bytes[b] == none {
			return false
		}
	}
	return true
}
