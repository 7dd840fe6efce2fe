package tokenizer

import (
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// nfc is the function nfc, part by part, so that it ends with the context.
func (e *encoder) nfc(s string) (string, error) {
	var b strings.Builder
	for done := 0; done < len(s); {
		n := normalEnd(s[done:])
		if err := e.worked(n); err != nil {
			return "", err
		}
		part := s[done : done+n]
		normal := nfc(part)
		if b.Len() == 0 && normal != part {
			b.Grow(len(s))
			b.WriteString(s[:done])
		}
		if b.Len() > 0 || normal != part {
			b.WriteString(normal)
		}
		done += n
	}
	if b.Len() == 0 {
		return s, nil
	}
	return b.String(), nil
}

// normalEnd returns where a text of more than 64 KiB may be cut: before a character that joins none in front of it.
func normalEnd(s string) int {
	for i := 1 << 16; i < len(s); i++ {
		if s[i] < utf8.RuneSelf || utf8.RuneStart(s[i]) && norm.NFC.PropertiesString(s[i:]).BoundaryBefore() {
			return i
		}
	}
	return len(s)
}

// nfc brings a text to Unicode's normal form C. x/text puts a joiner into runs of more than 30 marks, which the models'
// own normalizers do not, and orders marks that are newer than Unicode 9.0, which those do not know. Texts with either are
// therefore composed here (https://www.unicode.org/reports/tr15).
func nfc(s string) string {
	switch {
	case norm.NFC.IsNormalString(s):
		return s
	case hasRareMarks(s):
		return composeMarks(s)
	}
	return norm.NFC.String(s)
}

// hasRareMarks looks for 8 marks in a row, or a new mark: a character decomposes into at most 4.
func hasRareMarks(s string) bool {
	count := 0
	for _, r := range s {
		if classes[r]&mark == 0 {
			count = 0
		} else if count++; count >= 8 || isNewMark(r) {
			return true
		}
	}
	return false
}

// isNewMark holds for marks that are newer than Unicode 9.0.
func isNewMark(r rune) bool { return r >= 0x7fd && classes[r]&mark != 0 && !inUnicode9(r) }

// composeMarks is nfc for any text: each part without invalid bytes is decomposed, its marks are ordered by class, and
// each is joined to the character before them with which it makes one.
func composeMarks(s string) string {
	out := make([]byte, 0, len(s))
	var part []classed
	for s != "" {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			out = append(appendComposed(out, part), s[0])
			part = part[:0]
		case 0xac00 <= r && r <= 0xd7a3: // Hangul, which no table holds
			part = appendClassed(part, norm.NFD.String(s[:n]))
		default:
			if d := norm.NFD.PropertiesString(s).Decomposition(); d != nil && !isNewMark(r) {
				part = appendClassed(part, string(d))
			} else {
				part = append(part, classOf(r))
			}
		}
		s = s[n:]
	}
	return string(appendComposed(out, part))
}

// classed is a character in the low 21 bits, and above them its Canonical_Combining_Class: 0 for what no mark passes.
type classed int32

func (c classed) class() int { return int(c >> 21) }
func (c classed) char() rune { return rune(c & (1<<21 - 1)) }

func classOf(r rune) classed {
	if classes[r]&mark == 0 || isNewMark(r) {
		return classed(r)
	}
	var buf [utf8.UTFMax]byte
	return classed(r) | classed(norm.NFD.Properties(utf8.AppendRune(buf[:0], r)).CCC())<<21
}

func appendClassed(part []classed, s string) []classed {
	for _, r := range s {
		part = append(part, classOf(r))
	}
	return part
}

func appendComposed(out []byte, part []classed) []byte {
	for i := 0; i < len(part); {
		end := i
		for end < len(part) && part[end].class() > 0 {
			end++
		}
		slices.SortStableFunc(part[i:end], func(a, b classed) int { return a.class() - b.class() })
		i = max(end, i+1)
	}
	starter, last, n := -1, -1, 0 // last: the class of the character before, -1 for a starter
	for _, c := range part {
		if starter >= 0 && last < c.class() {
			if joined := []rune(norm.NFC.String(string(part[starter].char()) + string(c.char()))); len(joined) == 1 && !isNewMark(joined[0]) {
				part[starter] = classOf(joined[0])
				continue
			}
		}
		if last = c.class(); last == 0 {
			starter, last = n, -1
		}
		part[n] = c
		n++
	}
	for _, c := range part[:n] {
		out = utf8.AppendRune(out, c.char())
	}
	return out
}
