package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// maxWord is how many characters a word of WordPiece may have; longer ones are unknown.
const maxWord = 100

// wordPiece is BERT's tokenizer (https://github.com/google-research/bert/blob/master/tokenization.py), of the lower-case
// models: words and punctuation signs, in lower case and without accents, become the longest token that they start with,
// then the longest that continues it, and so on. A token that starts a word has a space in front of its text.
type wordPiece struct {
	longest int // bytes of a token's text
}

func (t *Tokenizer) newWordPiece() *wordPiece {
	p := &wordPiece{}
	for id := range t.types {
		p.longest = max(p.longest, len(t.text(int32(id))))
	}
	return p
}

func (p *wordPiece) encode(e *encoder, text string, _ bool) error {
	var err error
	word := []byte{' '} // with the space in front
	count := 0
	end := func() bool {
		if len(word) > 1 {
			if err = e.worked(len(word)); err == nil {
				p.appendWord(e, string(word), count)
			}
		}
		word, count = word[:1], 0
		return err == nil
	}
	add := func(r rune) bool {
		switch {
		case classes[r]&space != 0:
			return end()
		case isBERTPunct(r):
			if !end() {
				return false
			}
			word, count = utf8.AppendRune(word, r), 1
			return end()
		}
		if count++; count <= maxWord { // of a longer one only the length counts
			word = utf8.AppendRune(word, r)
		}
		return true
	}
	for _, r := range text {
		if err = e.worked(1); err != nil || !p.normalize(r, add) {
			break
		}
	}
	if err == nil {
		end()
	}
	return err
}

// normalize calls yield for what a character becomes, and returns false once yield does.
func (p *wordPiece) normalize(r rune, yield func(r rune) bool) bool {
	switch {
	case r < utf8.RuneSelf && r > ' ' && r != 0x7f:
		return yield(unicode.ToLower(r))
	case r == '\t' || r == '\n' || r == '\r':
		return yield(' ')
	case r == 0 || r == utf8.RuneError || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co) && inUnicode8(r):
		return true
	case classes[r]&space != 0:
		return yield(' ')
	case isIdeograph(r):
		return yield(' ') && yieldPlain(r, yield) && yield(' ')
	}
	return yieldPlain(r, yield)
}

// yieldPlain calls yield for a character in lower case without its accents.
func yieldPlain(r rune, yield func(r rune) bool) bool {
	plain := string(r)
	if inUnicode9(r) {
		plain = norm.NFD.String(plain)
	}
	for _, r := range plain {
		if isAccent(r) {
			continue
		}
		for _, r := range strings.ToLower(string(r)) {
			if !yield(r) {
				return false
			}
		}
	}
	return true
}

// isAccent holds for the marks that BERT takes off, \p{Mn} of Unicode 8.0.
func isAccent(r rune) bool {
	return unicode.Is(unicode.Mn, r) && inUnicode8(r) && !within(r, 0x1885, 0x1886, 0xa9bd, 0xa9bd, 0x111c9, 0x111c9) || r == 0x1734
}

// isIdeograph holds for the blocks that BERT puts spaces around.
func isIdeograph(r rune) bool {
	return r >= 0x3400 && within(r, 0x4e00, 0x9fff, 0x3400, 0x4dbf, 0x20000, 0x2a6df, 0x2a700, 0x2b73f, 0x2b740, 0x2b81f,
		0x2b920, 0x2ceaf, 0xf900, 0xfaff, 0x2f800, 0x2fa1f)
}

// isBERTPunct holds for the signs of ASCII and \p{P} of Unicode 8.0.
func isBERTPunct(r rune) bool {
	if r < utf8.RuneSelf {
		return isASCIIPunct(byte(r))
	}
	return classes[r]&punct != 0 && inUnicode8(r) || r == 0x166d || r == 0x111c9
}

// appendWord appends the ids of a word with a space in front, or that of the unknown token.
func (p *wordPiece) appendWord(e *encoder, word string, count int) {
	start := len(e.ids)
	unknown := count > maxWord
	for word != "" && !unknown {
		end := min(len(word), p.longest)
		for ; end > 0; end-- {
			if id, ok := e.t.ordinary(word[:end]); ok && (end == len(word) || utf8.RuneStart(word[end])) && word[:end] != " " {
				e.ids = append(e.ids, id)
				break
			}
		}
		word, unknown = word[end:], end == 0
	}
	if unknown {
		e.ids = e.ids[:start]
		if e.t.unk != none {
			e.ids = append(e.ids, e.t.unk)
		}
	}
}
