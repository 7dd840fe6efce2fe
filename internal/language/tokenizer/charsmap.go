package tokenizer

import (
	"encoding/binary"
	"errors"
	"strings"
	"unicode/utf8"
)

// charsMap is SentencePiece's table of replacements (precompiled_charsmap): a double array of the texts to replace, as
// darts-clone (https://github.com/s-yata/darts-clone) lays it out, and the replacements, each with a zero byte behind it.
type charsMap struct {
	units []uint32
	texts string
}

func newCharsMap(b []byte) (*charsMap, error) {
	if len(b) == 0 {
		return nil, nil
	}
	if len(b) < 4 {
		return nil, errors.New("tokenizer: the map of characters (precompiled_charsmap) is cut short")
	}
	size := binary.LittleEndian.Uint32(b)
	if size%4 != 0 || int64(size) > int64(len(b)-4) {
		return nil, errors.New("tokenizer: the map of characters (precompiled_charsmap) is damaged")
	}
	m := &charsMap{units: make([]uint32, size/4), texts: string(b[4+size:])}
	for i := range m.units {
		m.units[i] = binary.LittleEndian.Uint32(b[4+4*i:])
	}
	return m, nil
}

// replace returns what the start of a text that is not empty becomes, and how many bytes it is: the longest entry of the
// map, else one character. A byte that is no UTF-8 becomes U+FFFD.
func (m *charsMap) replace(s string) (text string, n int) {
	if m != nil {
		if text, n = m.longest(s); n > 0 {
			return text, n
		}
	}
	r, n := utf8.DecodeRuneInString(s)
	if r == utf8.RuneError && n == 1 {
		return string(utf8.RuneError), 1
	}
	return s[:n], n
}

// longest walks the double array: a unit holds its label in the low byte, the offset to its children in the bits from 10
// on, which bit 9 shifts by 8, and in bit 8 whether an entry ends; the child of label 0 then has its value.
func (m *charsMap) longest(s string) (text string, n int) {
	at := uint32(0)
	unit := func() (uint32, bool) {
		if at >= uint32(len(m.units)) {
			return 0, false
		}
		return m.units[at], true
	}
	offset := func(u uint32) uint32 { return u >> 10 << (u & (1 << 9) >> 6) }
	u, ok := unit()
	if !ok {
		return "", 0
	}
	at ^= offset(u)
	for i := range len(s) {
		at ^= uint32(s[i])
		if u, ok = unit(); !ok || u&(1<<31|0xff) != uint32(s[i]) {
			break
		}
		at ^= offset(u)
		if u>>8&1 == 0 {
			continue
		}
		if value, ok := unit(); ok && value&(1<<31-1) < uint32(len(m.texts)) {
			text = m.texts[value&(1<<31-1):]
			if end := strings.IndexByte(text, 0); end >= 0 {
				text = text[:end]
			}
			n = i + 1
		}
	}
	return text, n
}
