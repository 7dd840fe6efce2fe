package tokenizer

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"unicode/utf8"
)

// bpe is GPT-2's byte-level byte pair encoding: a piece starts as its bytes, and neighbours merge in the order of the
// merge list.
type bpe struct {
	pre   *preTokenizer
	bytes [256]int32 // the token of each byte, or none
	pairs pairTable
}

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

// isOutsideByteLevel reports whether a token's text has characters that stand for no byte: it can be generated, but no
// text becomes it.
func isOutsideByteLevel(text string) bool {
	for _, r := range text {
		if _, ok := charBytes[r]; !ok {
			return true
		}
	}
	return false
}

// newBPE reads the merges, by the ordinary tokens of t. made[id] is set for each token that a merge makes.
func (t *Tokenizer) newBPE(pre *preTokenizer, merges []string) (p *bpe, made []bool, err error) {
	p = &bpe{pre: pre}
	for b := range p.bytes {
		id, ok := t.ordinary(string([]byte{byte(b)}))
		if !ok {
			id = none
		}
		p.bytes[b] = id
	}
	p.pairs, made, err = t.readMerges(merges, appendByteLevel)
	return p, made, err
}

// readMerges reads a list of pairs of tokens; decode appends what the spelling of a token stands for. Looking up the tokens takes most of
// the time, and is divided among the processors.
func (t *Tokenizer) readMerges(merges []string, decode func(b []byte, text string) []byte) (p pairTable, made []bool, err error) {
	const least = 4096 // merges that are worth a goroutine
	parts := min(runtime.GOMAXPROCS(0), len(merges)/least+1)
	found, errs := make([]merge, len(merges)), make([]error, parts)
	var wg sync.WaitGroup
	for part := range parts {
		first, end := part*len(merges)/parts, (part+1)*len(merges)/parts
		wg.Add(1)
		go func() {
			defer wg.Done()
			errs[part] = t.findMerges(found[first:end], merges[first:end], first, decode)
		}()
	}
	wg.Wait()
	p, made = newPairTable(len(merges)), make([]bool, len(t.types))
	for _, err := range errs {
		if err != nil {
			return p, nil, err
		}
	}
	unknown := 0
	for _, m := range found {
		if m.id == none {
			unknown++
			continue
		}
		made[m.id] = true
		p.add(m)
	}
	if unknown > 0 {
		t.warn("%d of %d merges name tokens that the vocabulary lacks; they are left out", unknown, len(merges))
	}
	return p, made, nil
}

// findMerges looks up the tokens of merges, of which the first has the rank `first`. One whose tokens are not all there has none as id.
func (t *Tokenizer) findMerges(found []merge, merges []string, first int, decode func(b []byte, text string) []byte) error {
	var buf []byte
	for i, m := range merges {
		// The separator is the first space behind the first character, which may be a space itself.
		cut := 0
		if len(m) >= 3 {
			cut = strings.IndexByte(m[1:], ' ') + 1
		}
		if cut == 0 || cut == len(m)-1 {
			return fmt.Errorf("tokenizer: merge %d, %.200q, is not a pair", first+i, m)
		}
		buf = decode(buf[:0], m[:cut])
		left, ok1 := t.ordinary(string(buf))
		middle := len(buf)
		buf = decode(buf, m[cut+1:])
		right, ok2 := t.ordinary(string(buf[middle:]))
		both, ok3 := t.ordinary(string(buf))
		if !ok1 || !ok2 || !ok3 {
			both = none
		}
		found[i] = merge{left, right, uint32(first + i), both}
	}
	return nil
}

func (p *bpe) encode(e *encoder, text string, _ bool) error {
	var err error
	if p.pre.nfc {
		if text, err = e.nfc(text); err != nil {
			return err
		}
	}
	encode := e.piece
	if p.pre.phrases {
		encode = e.phrase
	}
	p.pre.split(text, func(piece string) bool {
		err = encode(p, piece)
		return err == nil
	})
	return err
}

func (p *bpe) whole(t *Tokenizer, piece string) (id int32, ok bool) {
	if !p.pre.ignoreMerges {
		return none, false
	}
	return t.ordinary(piece)
}

func (p *bpe) symbols(_ *Tokenizer, m *scratch, text string) {
	for i := range len(text) {
		if id := p.bytes[text[i]]; id != none { // else the byte is dropped
			m.add(i, i+1, id)
		}
	}
}

func (p *bpe) pair(_ *Tokenizer, _ string, left, right *sym) (rank uint32, id int32, ok bool) {
	return p.pairs.find(left.id, right.id)
}

func (p *bpe) appendSymbol(_ *Tokenizer, ids []int32, _ string, s *sym) ([]int32, error) {
	return append(ids, s.id), nil
}
