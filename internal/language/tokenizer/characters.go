package tokenizer

import (
	"fmt"
	"unicode/utf8"
)

// characters is what the models share whose tokens are made of characters: SentencePiece's BPE and Gemma 4's. A character
// without a token becomes the tokens of its bytes, <0x00> to <0xFF>.
type characters struct {
	bytes [256]int32 // the token of each byte, or none
}

func (t *Tokenizer) newCharacters() characters {
	var c characters
	for b := range c.bytes {
		c.bytes[b] = none
	}
	missing := len(c.bytes)
	for id := range t.types {
		if text := t.text(int32(id)); t.types[id] == Byte && len(text) == 1 && c.bytes[text[0]] == none {
			c.bytes[text[0]] = int32(id)
			missing--
		}
	}
	if missing > 0 && t.unk == none {
		t.warn("%d of the 256 bytes have no token and there is no unknown token: characters without a token cannot be encoded", missing)
	}
	return c
}

func (c *characters) whole(*Tokenizer, string) (id int32, ok bool) { return none, false }

func (c *characters) symbols(t *Tokenizer, m *scratch, text string) {
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

func (c *characters) appendSymbol(t *Tokenizer, ids []int32, text string, s *sym) ([]int32, error) {
	if s.id != none {
		return append(ids, s.id), nil
	}
	for _, b := range []byte(text[s.start:s.end]) {
		id := c.bytes[b]
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
