package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// bpe is GPT-2's byte-level byte pair encoding: a piece starts as its bytes, and neighbours merge in the order of the
// merge list.
type bpe struct {
	pre   *preTokenizer
	bytes [256]int32        // the token of each byte, or none
	pairs map[uint64]ranked // by the ids of left and right
}

// ranked is a merge: its place in the list and the token it makes.
type ranked struct {
	rank uint32
	id   int32
}

func pairKey(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) }

// byteChars maps a byte to the character that stands for it in the vocabulary, charBytes back. GPT-2 keeps the printable
// bytes of Latin-1 as they are and numbers the others from U+0100 on, so that no token holds a space or control
// character (bytes_to_unicode in https://github.com/openai/gpt-2/blob/master/src/encoder.py).
var byteChars, charBytes = func() (chars [256]rune, bytes map[rune]byte) {
	bytes = make(map[rune]byte, 256)
	next := rune(256)
	for b := range chars {
		chars[b] = rune(b)
		if b <= ' ' || 0x7f <= b && b <= 0xa0 || b == 0xad {
			chars[b] = next
			next++
		}
		bytes[chars[b]] = byte(b)
	}
	return chars, bytes
}()

// appendByteLevel appends the bytes that the text of a token stands for. A character that stands for none, which is not
// of GPT-2's making, stands for itself.
func appendByteLevel(b []byte, text string) []byte {
	for i := 0; i < len(text); {
		if c := text[i]; '!' <= c && c <= '~' {
			b = append(b, c)
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(text[i:])
		if c, ok := charBytes[r]; ok {
			b = append(b, c)
		} else {
			b = append(b, text[i:i+n]...)
		}
		i += n
	}
	return b
}

// newBPE reads the merges, by the ordinary tokens of t. made[id] is set for each token that a merge makes.
func (t *Tokenizer) newBPE(pre *preTokenizer, merges []string) (p *bpe, made []bool, err error) {
	p = &bpe{pre: pre, pairs: make(map[uint64]ranked, len(merges))}
	missing := 0
	for b := range p.bytes {
		id, ok := t.ordinary(string([]byte{byte(b)}))
		if !ok {
			id = none
			missing++
		}
		p.bytes[b] = id
	}
	if missing > 0 && t.unk == none {
		t.warn("%d of the 256 bytes have no token and there is no unknown token: text with them cannot be encoded", missing)
	}
	made = make([]bool, len(t.types))
	unknown := 0
	var buf []byte
	for i, m := range merges {
		if len(m) < 3 {
			return nil, nil, fmt.Errorf("tokenizer: merge %d, %q, is not a pair", i, m)
		}
		// The separator is the first space behind the first character, which may be a space itself.
		cut := strings.IndexByte(m[1:], ' ') + 1
		if cut == 0 || cut == len(m)-1 {
			return nil, nil, fmt.Errorf("tokenizer: merge %d, %q, is not a pair", i, m)
		}
		buf = appendByteLevel(buf[:0], m[:cut])
		left, ok1 := t.ordinary(string(buf))
		middle := len(buf)
		buf = appendByteLevel(buf, m[cut+1:])
		right, ok2 := t.ordinary(string(buf[middle:]))
		both, ok3 := t.ordinary(string(buf))
		if !ok1 || !ok2 || !ok3 {
			unknown++
			continue
		}
		made[both] = true
		if _, dup := p.pairs[pairKey(left, right)]; !dup {
			p.pairs[pairKey(left, right)] = ranked{uint32(i), both}
		}
	}
	if unknown > 0 {
		t.warn("%d of %d merges name tokens that the vocabulary lacks; they are left out", unknown, len(merges))
	}
	return p, made, nil
}

func (p *bpe) encode(t *Tokenizer, ids []int32, text string, _ bool, m *scratch) ([]int32, error) {
	var err error
	split(text, p.pre.stages, func(piece string) {
		if err == nil {
			ids, err = p.encodePiece(t, ids, piece, m)
		}
	})
	return ids, err
}

func (p *bpe) encodePiece(t *Tokenizer, ids []int32, piece string, m *scratch) ([]int32, error) {
	token, ok := t.ordinary(piece)
	if ok && (p.pre.ignoreMerges || t.whole[token].Load()) {
		return append(ids, token), nil
	}
	m.reset(len(piece))
	for i := range len(piece) {
		m.add(i, i+1, p.bytes[piece[i]])
	}
	m.merge(func(l, r *sym) (uint32, int32, bool) {
		x, ok := p.pairs[pairKey(l.id, r.id)]
		return x.rank, x.id, ok
	})
	if ok && m.isOne(token) {
		t.whole[token].Store(true)
	}
	for i := int32(0); i != none; i = m.syms[i].next {
		id := m.syms[i].id
		if id == none {
			id = t.unk
		}
		if id == none {
			return ids, fmt.Errorf("tokenizer: the vocabulary has no token for byte 0x%02x", piece[m.syms[i].start])
		}
		ids = append(ids, id)
	}
	return ids, nil
}
