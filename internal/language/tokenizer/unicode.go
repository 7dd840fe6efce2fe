package tokenizer

import (
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/rangetable"
)

// class is the set of Unicode properties that the pre-tokenizers ask for, as bits.
type class uint16

const (
	letter   class = 1 << iota // \p{L}
	number                     // \p{N}
	mark                       // \p{M}
	punct                      // \p{P}
	symbol                     // \p{S}
	space                      // \s: White_Space
	upper                      // \p{Lu} and \p{Lt}
	lower                      // \p{Ll}
	han                        // \p{Han}
	decimal                    // \d: \p{Nd}
	wordChar                   // \w: letters, marks, decimals, connectors, what else is alphabetic, and ²³¹¼½¾
)

// classes holds each code point's class; only the pages that are written to take memory.
var classes [unicode.MaxRune + 1]class

// fillClasses fills classes from Go's tables; its cost, about a millisecond, falls to the first tokenizer that is made.
var fillClasses = sync.OnceFunc(func() {
	for _, c := range []struct {
		table *unicode.RangeTable
		class class
	}{
		{unicode.L, letter}, {unicode.N, number}, {unicode.M, mark}, {unicode.P, punct}, {unicode.S, symbol},
		{unicode.White_Space, space}, {unicode.Lu, upper}, {unicode.Lt, upper}, {unicode.Ll, lower},
		{unicode.Han, han}, {unicode.Nd, decimal},
		{unicode.L, wordChar}, {unicode.M, wordChar}, {unicode.Nd, wordChar}, {unicode.Nl, wordChar}, {unicode.Pc, wordChar},
		{unicode.Other_Alphabetic, wordChar},
	} {
		for _, r := range c.table.R16 {
			for x := rune(r.Lo); x <= rune(r.Hi); x += rune(r.Stride) {
				classes[x] |= c.class
			}
		}
		for _, r := range c.table.R32 {
			for x := rune(r.Lo); x <= rune(r.Hi); x += rune(r.Stride) {
				classes[x] |= c.class
			}
		}
	}
	for _, c := range added {
		for x := c.first; x <= c.last; x++ {
			classes[x] |= c.class
		}
	}
})

// added is what the tables of the models' libraries have beside Go's, which are those of Unicode 15.0: the characters of
// 15.1 and 16.0, and some numbers as a part of words (https://github.com/kkos/oniguruma).
var added = []struct {
	first, last rune
	class       class
}{
	{0xb2, 0xb3, wordChar}, {0xb9, 0xb9, wordChar}, {0xbc, 0xbe, wordChar}, {0x897, 0x897, mark | wordChar},
	{0x1b4e, 0x1b4f, punct}, {0x1b7f, 0x1b7f, punct}, {0x1c89, 0x1c89, letter | upper | wordChar},
	{0x1c8a, 0x1c8a, letter | lower | wordChar}, {0x2427, 0x2429, symbol}, {0x2ffc, 0x2fff, symbol},
	{0x31e4, 0x31e5, symbol}, {0x31ef, 0x31ef, symbol}, {0xa7cb, 0xa7cc, letter | upper | wordChar},
	{0xa7cd, 0xa7cd, letter | lower | wordChar}, {0xa7da, 0xa7da, letter | upper | wordChar},
	{0xa7db, 0xa7db, letter | lower | wordChar}, {0xa7dc, 0xa7dc, letter | upper | wordChar},
	{0x105c0, 0x105f3, letter | wordChar}, {0x10d40, 0x10d49, number | decimal | wordChar},
	{0x10d4a, 0x10d4f, letter | wordChar}, {0x10d50, 0x10d65, letter | upper | wordChar},
	{0x10d69, 0x10d6d, mark | wordChar}, {0x10d6e, 0x10d6e, punct}, {0x10d6f, 0x10d6f, letter | wordChar},
	{0x10d70, 0x10d85, letter | lower | wordChar}, {0x10d8e, 0x10d8f, symbol}, {0x10ec2, 0x10ec4, letter | wordChar},
	{0x10efc, 0x10efc, mark | wordChar}, {0x11380, 0x11389, letter | wordChar},
	{0x1138b, 0x1138b, letter | wordChar}, {0x1138e, 0x1138e, letter | wordChar},
	{0x11390, 0x113b5, letter | wordChar}, {0x113b7, 0x113b7, letter | wordChar},
	{0x113b8, 0x113c0, mark | wordChar}, {0x113c2, 0x113c2, mark | wordChar}, {0x113c5, 0x113c5, mark | wordChar},
	{0x113c7, 0x113ca, mark | wordChar}, {0x113cc, 0x113d0, mark | wordChar}, {0x113d1, 0x113d1, letter | wordChar},
	{0x113d2, 0x113d2, mark | wordChar}, {0x113d3, 0x113d3, letter | wordChar}, {0x113d4, 0x113d5, punct},
	{0x113d7, 0x113d8, punct}, {0x113e1, 0x113e2, mark | wordChar}, {0x116d0, 0x116e3, number | decimal | wordChar},
	{0x11bc0, 0x11be0, letter | wordChar}, {0x11be1, 0x11be1, punct},
	{0x11bf0, 0x11bf9, number | decimal | wordChar}, {0x11f5a, 0x11f5a, mark | wordChar},
	{0x13460, 0x143fa, letter | wordChar}, {0x16100, 0x1611d, letter | wordChar},
	{0x1611e, 0x1612f, mark | wordChar}, {0x16130, 0x16139, number | decimal | wordChar},
	{0x16d40, 0x16d6c, letter | wordChar}, {0x16d6d, 0x16d6f, punct},
	{0x16d70, 0x16d79, number | decimal | wordChar}, {0x18cff, 0x18cff, letter | wordChar},
	{0x1cc00, 0x1ccef, symbol}, {0x1ccf0, 0x1ccf9, number | decimal | wordChar}, {0x1cd00, 0x1ceb3, symbol},
	{0x1e5d0, 0x1e5ed, letter | wordChar}, {0x1e5ee, 0x1e5ef, mark | wordChar},
	{0x1e5f0, 0x1e5f0, letter | wordChar}, {0x1e5f1, 0x1e5fa, number | decimal | wordChar},
	{0x1e5ff, 0x1e5ff, punct}, {0x1f8b2, 0x1f8bb, symbol}, {0x1f8c0, 0x1f8c1, symbol}, {0x1fa89, 0x1fa89, symbol},
	{0x1fa8f, 0x1fa8f, symbol}, {0x1fabe, 0x1fabe, symbol}, {0x1fac6, 0x1fac6, symbol}, {0x1fadc, 0x1fadc, symbol},
	{0x1fadf, 0x1fadf, symbol}, {0x1fae9, 0x1fae9, symbol}, {0x1fbcb, 0x1fbef, symbol},
	{0x2ebf0, 0x2ee5d, letter | han | wordChar},
}

// The models' libraries normalize by older tables of Unicode: NFC and NFD know the characters of 9.0, BERT's marks, signs
// and controls are those of 8.0. Later ones are left as they are.
var (
	inUnicode8 = assignedIn("8.0.0")
	inUnicode9 = assignedIn("9.0.0")
)

func assignedIn(version string) func(r rune) bool {
	table := sync.OnceValue(func() *unicode.RangeTable { return rangetable.Assigned(version) })
	return func(r rune) bool { return unicode.Is(table(), r) }
}

// classAt returns the class of the character of s that starts at byte i, and its length; 0, 0 at the end. A byte that is
// no UTF-8 is a character by itself and counts as U+FFFD, the replacement character, does: as a symbol.
func classAt(s string, i int) (class, int) {
	if i >= len(s) {
		return 0, 0
	}
	if b := s[i]; b < utf8.RuneSelf {
		return classes[b], 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	return classes[r], n
}

// run returns the end of the longest run of characters from byte i on that have a property in want.
func run(s string, i int, want class) int {
	for {
		c, n := classAt(s, i)
		if c&want == 0 { // also at the end
			return i
		}
		i += n
	}
}

// runNot returns the end of the longest run of characters from byte i on that have no property in avoid.
func runNot(s string, i int, avoid class) int {
	for {
		c, n := classAt(s, i)
		if n == 0 || c&avoid != 0 {
			return i
		}
		i += n
	}
}

// runOf returns the end of the longest run of the given ASCII bytes from byte i on.
func runOf(s string, i int, bytes string) int {
	for i < len(s) {
		found := false
		for j := range len(bytes) {
			found = found || s[i] == bytes[j]
		}
		if !found {
			break
		}
		i++
	}
	return i
}
