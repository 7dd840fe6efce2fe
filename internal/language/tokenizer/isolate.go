package tokenizer

import (
	"math"
	"strings"
	"sync"
	"unicode/utf8"
)

// The stages of this file isolate what an expression matches: its matches are pieces, and what lies between them.

// isolate takes runs of at most most characters that in holds for.
func isolate(most int, in func(r rune, c class) bool) stage {
	return isolateKinds(most, func(r rune, c class) int {
		if in(r, c) {
			return 1
		}
		return 0
	})
}

// isolateKinds takes runs of at most most characters of the same kind, other than 0.
func isolateKinds(most int, kind func(r rune, c class) int) stage {
	ascii := ofASCII(kind)
	return func(s string, yield func(piece string) bool) bool {
		kinds := ascii()
		start, count, last := 0, 0, 0
		for i, r := range s {
			var k int
			if r < utf8.RuneSelf {
				k = kinds[r]
			} else {
				k = kind(r, classes[r])
			}
			if i > start && (k != last || k != 0 && count == most) {
				if !yield(s[start:i]) {
					return false
				}
				start, count = i, 0
			}
			last = k
			count++
		}
		return yield(s[start:])
	}
}

// ofASCII returns f of each character of ASCII, which most texts are made of. It asks f at the first call: classes is filled by then.
func ofASCII[T any](f func(r rune, c class) T) func() *[utf8.RuneSelf]T {
	return sync.OnceValue(func() *[utf8.RuneSelf]T {
		var all [utf8.RuneSelf]T
		for r := range all {
			all[r] = f(rune(r), classes[r])
		}
		return &all
	})
}

const unlimited = math.MaxInt

func isNumber(_ rune, c class) bool   { return c&number != 0 }
func isNewline(r rune, _ class) bool  { return r == '\r' || r == '\n' }
func isLineFeed(r rune, _ class) bool { return r == '\n' }

func within(r rune, ranges ...rune) bool {
	for i := 0; i < len(ranges); i += 2 {
		if ranges[i] <= r && r <= ranges[i+1] {
			return true
		}
	}
	return false
}

var (
	number1  = isolate(1, isNumber)           // \p{N}
	number3  = isolate(3, isNumber)           // \p{N}{1,3}
	numbers  = isolate(unlimited, isNumber)   // \p{N}+
	newline1 = isolate(1, isNewline)          // [\r\n]
	lines    = isolate(unlimited, isLineFeed) // [^\n]+|[\n]+

	// cjk1 is [一-龥ࠀ-一가-퟿]+
	cjk1 = isolate(unlimited, func(r rune, _ class) bool { return within(r, 0x800, 0x9fa5, 0xac00, 0xd7ff) })
	// cjk3 is [一-龥぀-ゟ゠-ヿ]+
	cjk3 = isolate(unlimited, func(r rune, _ class) bool { return within(r, 0x4e00, 0x9fa5, 0x3040, 0x30ff) })

	// asianScripts is [一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+ with 豈 as U+8C48, where an
	// author certainly meant U+F900: the third range covers the later ones.
	asianScripts = isolate(unlimited, func(r rune, _ class) bool {
		return r >= 0xe40 && within(r, 0x4e00, 0x9fff, 0x3400, 0x4dbf, 0x8c48, 0xfaff, 0x3040, 0x30ff, 0xff65, 0xff9f,
			0x2f00, 0x2fdf, 0xe40, 0xeff, 0x1780, 0x17ff, 0x1000, 0x109f, 0x1100, 0x11ff)
	})

	// youtuScripts is [가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+
	youtuScripts = isolateKinds(unlimited, func(r rune, _ class) int {
		switch {
		case r < 0x2014:
			return 0
		case within(r, 0xac00, 0xd7a3, 0x3131, 0x318e):
			return 1
		case within(r, 0x3001, 0x303f, 0xfe30, 0xfe4f) || strings.ContainsRune("！…“”‘’—：；，", r):
			return 2
		case within(r, 0x3105, 0x312f):
			return 3
		case within(r, 0x4e00, 0x9fa5, 0x3040, 0x30ff):
			return 4
		}
		return 0
	})
)

// operators is [\p{P}$+<=>^~|]+ with further characters.
func operators(more string) stage {
	return isolate(unlimited, func(r rune, c class) bool {
		return c&punct != 0 || strings.ContainsRune("$+<=>^~|", r) || strings.ContainsRune(more, r)
	})
}

// digitBytes is a run of bytes that are digits in GPT-2's alphabet of bytes, which has some beyond ASCII as ², ³, ¹, ¼, ½
// and ¾, or a run of others. Falcon's tokenizer takes digits apart when bytes are characters of that alphabet already.
func digitBytes(s string) int {
	digit := func(b byte) bool {
		return '0' <= b && b <= '9' || b == 0xb2 || b == 0xb3 || b == 0xb9 || 0xbc <= b && b <= 0xbe
	}
	n := 1
	for n < len(s) && digit(s[n]) == digit(s[0]) {
		n++
	}
	return n
}

// threeDigits is [0-9][0-9][0-9].
func threeDigits(s string) int {
	count := 0
	for i := range len(s) {
		if s[i] < '0' || '9' < s[i] {
			count = 0
			continue
		}
		if count++; count == 3 {
			if i == 2 {
				return 3
			}
			return i - 2
		}
	}
	return len(s)
}

// decimalsFromRight is \d{1,3}(?=(?:\d{3})*\b): runs of digits that no word character follows, in threes from the right.
func decimalsFromRight(s string, yield func(piece string) bool) bool {
	start := 0
	for i := 0; i < len(s); {
		c, n := classAt(s, i)
		if c&decimal == 0 {
			i += n
			continue
		}
		end := run(s, i, decimal)
		if next, _ := classAt(s, end); next&wordChar == 0 {
			if i > start && !yield(s[start:i]) || !threesFromRight(s[i:end], yield) {
				return false
			}
			start = end
		}
		i = end
	}
	return start == len(s) || yield(s[start:])
}

// numbersFromRight is runs of \p{N} in threes from the right.
func numbersFromRight(s string, yield func(piece string) bool) bool {
	return numbers(s, func(piece string) bool {
		if c, _ := classAt(piece, 0); c&number == 0 {
			return yield(piece)
		}
		return threesFromRight(piece, yield)
	})
}

// threesFromRight cuts a run of digits into groups of three, the first of which may have fewer.
func threesFromRight(s string, yield func(piece string) bool) bool {
	take := utf8.RuneCountInString(s) % 3
	if take == 0 {
		take = 3
	}
	start, count := 0, 0
	for i := range s {
		if count == take {
			if !yield(s[start:i]) {
				return false
			}
			start, count, take = i, 0, 3
		}
		count++
	}
	return yield(s[start:])
}

var (
	spacedLetters = spaced(func(_ rune, c class) bool { return c&letter != 0 }) // \s?\p{L}+
	spacedPunct   = spaced(func(_ rune, c class) bool { return c&punct != 0 })  // \s?\p{P}+
	spacedCased   = spaced(isCased)                                             // \s?L+

	// spacedSigns is \s?[!-/:-~！-／：-～‘-‟　-。]+
	spacedSigns = spaced(func(r rune, _ class) bool {
		return within(r, '!', '/', ':', '~', '！', '／', '：', '～', '‘', '‟', 0x3000, '。')
	})
)

// spaced is \s?X+ for a class X of characters.
func spaced(in func(r rune, c class) bool) stage {
	ascii := ofASCII(in)
	return func(s string, yield func(piece string) bool) bool {
		inASCII := ascii()
		from, last := 0, 0 // where the piece starts, and the character before r
		matches := false   // whether the piece is a match
		for i, r := range s {
			var x bool
			if r < utf8.RuneSelf {
				x = inASCII[r]
			} else {
				x = in(r, classes[r])
			}
			if x != matches {
				start := i
				if x && i > from {
					if c, _ := classAt(s, last); c&space != 0 {
						start = last
					}
				}
				if start > from && !yield(s[from:start]) {
					return false
				}
				from, matches = start, x
			}
			last = i
		}
		return from == len(s) || yield(s[from:])
	}
}

// trailingSpaces is \s+$.
func trailingSpaces(s string) int {
	end := len(s)
	for end > 0 {
		r, n := utf8.DecodeLastRuneInString(s[:end])
		if classes[r]&space == 0 {
			return end
		}
		end -= n
	}
	return len(s)
}

// isCased holds for the letters that have case as DeepSeek-LLM lists them: those of an older Unicode, without Armenian
// and Georgian small letters.
func isCased(r rune, c class) bool {
	if r < 0x80 {
		return c&letter != 0
	}
	return c&(upper|lower) != 0 && !within(r, 0x560, 0x588, 0x10c7, 0x10ff, 0x1c80, 0x1c88, 0x2d00, 0x2d2d, 0xa790, 0xab68,
		0x10570, 0x105bc, 0x16e40, 0x16e7f, 0x1d400, 0x1df2a)
}
