package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Decode returns the text of ids without control tokens. What is no UTF-8 becomes U+FFFD. Where Encode puts a space in
// front of a text, Decode takes it away again. Spaces before punctuation and the like stay as the model wrote them.
func (t *Tokenizer) Decode(ids []int32) (string, error) {
	d := t.NewDecoder()
	var b strings.Builder
	for _, id := range ids {
		s, err := d.Next(id)
		if err != nil {
			return "", err
		}
		b.WriteString(s)
	}
	b.WriteString(d.Flush())
	s := b.String()
	if t.prefixesSpace() {
		s = strings.TrimPrefix(s, " ")
	}
	return s, nil
}

// prefixesSpace reports whether Encode puts a space in front of a text.
func (t *Tokenizer) prefixesSpace() bool {
	switch p := t.model.(type) {
	case *spm:
		return p.addSpacePrefix
	case *unigram:
		return p.addSpacePrefix
	case *wordPiece:
		return true
	}
	return false
}

// Decoder turns tokens into text one by one, as they are generated. It holds back a UTF-8 character that is not complete
// yet: at most 3 bytes.
type Decoder struct {
	// Special makes control tokens appear by their names. Else they are left out.
	Special bool

	t    *Tokenizer
	held []byte
}

// NewDecoder returns a decoder for the continuation of a text: a leading space is kept.
func (t *Tokenizer) NewDecoder() *Decoder { return &Decoder{t: t} }

// Next takes a token and returns the text that is complete with it, which may be empty. What is no UTF-8 becomes U+FFFD.
func (d *Decoder) Next(id int32) (string, error) {
	if err := d.t.check(id); err != nil {
		return "", err
	}
	if !d.Special && !d.t.isOrdinary(id) {
		return "", nil
	}
	text := d.t.text(id)
	if len(d.held) == 0 && utf8.ValidString(text) {
		return text, nil
	}
	d.held = append(d.held, text...)
	var b strings.Builder
	n := 0
	for n < len(d.held) && utf8.FullRune(d.held[n:]) {
		r, size := utf8.DecodeRune(d.held[n:])
		if r == utf8.RuneError && size == 1 {
			size = brokenPrefix(d.held[n:])
		}
		b.WriteRune(r)
		n += size
	}
	d.held = append(d.held[:0], d.held[n:]...)
	return b.String(), nil
}

// brokenPrefix returns how many bytes of b one U+FFFD stands for: the longest start of a character, or one byte. It is
// Unicode's recommended practice, which Python and Rust follow too.
func brokenPrefix(b []byte) int {
	n := 1
	for n < len(b) && !utf8.FullRune(b[:n]) {
		n++
	}
	if n > 1 {
		n-- // the byte that broke the character may start the next
	}
	return n
}

// Flush returns U+FFFD if an incomplete character was held back, and makes the decoder ready for another text.
func (d *Decoder) Flush() string {
	if len(d.held) == 0 {
		return ""
	}
	d.held = d.held[:0]
	return string(utf8.RuneError)
}
