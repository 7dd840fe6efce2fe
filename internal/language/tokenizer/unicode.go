package tokenizer

import (
	"sync"
	"unicode"
	"unicode/utf8"
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
	wordChar                   // \w: letters, marks, decimals, connectors, and what else is alphabetic
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
})

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
