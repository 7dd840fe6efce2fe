package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// The code points whose upper case (or title case) is more than one, each followed by that: SpecialCasing.txt of Unicode.
const (
	upperSpecial = "\u00dfSS \u0149\u02bcN \u01f0J\u030c \u0390\u0399\u0308\u0301 \u03b0\u03a5\u0308\u0301 " +
		"\u0587\u0535\u0552 \u1e96H\u0331 \u1e97T\u0308 \u1e98W\u030a \u1e99Y\u030a \u1e9aA\u02be " +
		"\u1f50\u03a5\u0313 \u1f52\u03a5\u0313\u0300 \u1f54\u03a5\u0313\u0301 \u1f56\u03a5\u0313\u0342 " +
		"\u1f80\u1f08\u0399 \u1f81\u1f09\u0399 \u1f82\u1f0a\u0399 \u1f83\u1f0b\u0399 \u1f84\u1f0c\u0399 " +
		"\u1f85\u1f0d\u0399 \u1f86\u1f0e\u0399 \u1f87\u1f0f\u0399 \u1f88\u1f08\u0399 \u1f89\u1f09\u0399 " +
		"\u1f8a\u1f0a\u0399 \u1f8b\u1f0b\u0399 \u1f8c\u1f0c\u0399 \u1f8d\u1f0d\u0399 \u1f8e\u1f0e\u0399 " +
		"\u1f8f\u1f0f\u0399 \u1f90\u1f28\u0399 \u1f91\u1f29\u0399 \u1f92\u1f2a\u0399 \u1f93\u1f2b\u0399 " +
		"\u1f94\u1f2c\u0399 \u1f95\u1f2d\u0399 \u1f96\u1f2e\u0399 \u1f97\u1f2f\u0399 \u1f98\u1f28\u0399 " +
		"\u1f99\u1f29\u0399 \u1f9a\u1f2a\u0399 \u1f9b\u1f2b\u0399 \u1f9c\u1f2c\u0399 \u1f9d\u1f2d\u0399 " +
		"\u1f9e\u1f2e\u0399 \u1f9f\u1f2f\u0399 \u1fa0\u1f68\u0399 \u1fa1\u1f69\u0399 \u1fa2\u1f6a\u0399 " +
		"\u1fa3\u1f6b\u0399 \u1fa4\u1f6c\u0399 \u1fa5\u1f6d\u0399 \u1fa6\u1f6e\u0399 \u1fa7\u1f6f\u0399 " +
		"\u1fa8\u1f68\u0399 \u1fa9\u1f69\u0399 \u1faa\u1f6a\u0399 \u1fab\u1f6b\u0399 \u1fac\u1f6c\u0399 " +
		"\u1fad\u1f6d\u0399 \u1fae\u1f6e\u0399 \u1faf\u1f6f\u0399 \u1fb2\u1fba\u0399 \u1fb3\u0391\u0399 " +
		"\u1fb4\u0386\u0399 \u1fb6\u0391\u0342 \u1fb7\u0391\u0342\u0399 \u1fbc\u0391\u0399 " +
		"\u1fc2\u1fca\u0399 \u1fc3\u0397\u0399 \u1fc4\u0389\u0399 \u1fc6\u0397\u0342 " +
		"\u1fc7\u0397\u0342\u0399 \u1fcc\u0397\u0399 \u1fd2\u0399\u0308\u0300 \u1fd3\u0399\u0308\u0301 " +
		"\u1fd6\u0399\u0342 \u1fd7\u0399\u0308\u0342 \u1fe2\u03a5\u0308\u0300 \u1fe3\u03a5\u0308\u0301 " +
		"\u1fe4\u03a1\u0313 \u1fe6\u03a5\u0342 \u1fe7\u03a5\u0308\u0342 \u1ff2\u1ffa\u0399 " +
		"\u1ff3\u03a9\u0399 \u1ff4\u038f\u0399 \u1ff6\u03a9\u0342 \u1ff7\u03a9\u0342\u0399 " +
		"\u1ffc\u03a9\u0399 \ufb00FF \ufb01FI \ufb02FL \ufb03FFI \ufb04FFL \ufb05ST \ufb06ST " +
		"\ufb13\u0544\u0546 \ufb14\u0544\u0535 \ufb15\u0544\u053b \ufb16\u054e\u0546 \ufb17\u0544\u053d "
	titleSpecial = "\u00dfSs \u0149\u02bcN \u01f0J\u030c \u0390\u0399\u0308\u0301 \u03b0\u03a5\u0308\u0301 " +
		"\u0587\u0535\u0582 \u1e96H\u0331 \u1e97T\u0308 \u1e98W\u030a \u1e99Y\u030a \u1e9aA\u02be " +
		"\u1f50\u03a5\u0313 \u1f52\u03a5\u0313\u0300 \u1f54\u03a5\u0313\u0301 \u1f56\u03a5\u0313\u0342 " +
		"\u1fb2\u1fba\u0345 \u1fb4\u0386\u0345 \u1fb6\u0391\u0342 \u1fb7\u0391\u0342\u0345 " +
		"\u1fc2\u1fca\u0345 \u1fc4\u0389\u0345 \u1fc6\u0397\u0342 \u1fc7\u0397\u0342\u0345 " +
		"\u1fd2\u0399\u0308\u0300 \u1fd3\u0399\u0308\u0301 \u1fd6\u0399\u0342 \u1fd7\u0399\u0308\u0342 " +
		"\u1fe2\u03a5\u0308\u0300 \u1fe3\u03a5\u0308\u0301 \u1fe4\u03a1\u0313 \u1fe6\u03a5\u0342 " +
		"\u1fe7\u03a5\u0308\u0342 \u1ff2\u1ffa\u0345 \u1ff4\u038f\u0345 \u1ff6\u03a9\u0342 " +
		"\u1ff7\u03a9\u0342\u0345 \ufb00Ff \ufb01Fi \ufb02Fl \ufb03Ffi \ufb04Ffl \ufb05St \ufb06St " +
		"\ufb13\u0544\u0576 \ufb14\u0544\u0565 \ufb15\u0544\u056b \ufb16\u054e\u0576 \ufb17\u0544\u056d "
)

var upperMany, titleMany = specialCases(upperSpecial), specialCases(titleSpecial)

func specialCases(list string) map[rune]string {
	m := map[rune]string{}
	for _, s := range strings.Fields(list) {
		r, n := utf8.DecodeRuneInString(s)
		m[r] = s[n:]
	}
	return m
}

func upperRune(r rune) string {
	if r < utf8.RuneSelf {
		if r >= 'a' && r <= 'z' {
			r -= 'a' - 'A'
		}
		return asciiChars[r : r+1]
	}
	if s, ok := upperMany[r]; ok {
		return s
	}
	return string(unicode.ToUpper(r))
}

func titleRune(r rune) string {
	if r < utf8.RuneSelf {
		return upperRune(r)
	}
	if s, ok := titleMany[r]; ok {
		return s
	}
	return string(unicode.ToTitle(r))
}

func lowerRune(r rune) string {
	if r < utf8.RuneSelf {
		if r >= 'A' && r <= 'Z' {
			r += 'a' - 'A'
		}
		return asciiChars[r : r+1]
	}
	if r == 0x130 { // capital I with a dot above
		return "i\u0307"
	}
	return string(unicode.ToLower(r))
}

// foldRune is the case folding of one code point, near enough: the lower case of its upper case.
func foldRune(r rune) string {
	if r < utf8.RuneSelf {
		return lowerRune(r)
	}
	return strings.ToLower(upperRune(r))
}

func (in *interp) upper(s Str) Str { return in.mapRunes(s, upperRune) }

// lower is Python's lower, which writes a capital sigma at the end of a word as a final one.
func (in *interp) lower(s Str) Str { return in.mapRunes(s, in.lowerIn(s.text)) }

// lowerIn returns what lowers the code points of a text, to be called for each of them in order.
func (in *interp) lowerIn(text string) func(r rune) string {
	if !strings.ContainsRune(text, '\u03a3') {
		return lowerRune
	}
	in.step(int64(len(text)))
	at := 0
	return func(r rune) string {
		i := at
		at += utf8.RuneLen(r)
		if r == '\u03a3' && finalSigma(text, i) {
			return "\u03c2"
		}
		return lowerRune(r)
	}
}

// finalSigma reports whether the sigma at offset i ends a word: a cased letter before it and none after it, not counting
// what case ignores.
func finalSigma(s string, i int) bool {
	before := strings.TrimRightFunc(s[:i], caseIgnorable)
	after := strings.TrimLeftFunc(s[i+2:], caseIgnorable)
	prev, _ := utf8.DecodeLastRuneInString(before)
	next, _ := utf8.DecodeRuneInString(after)
	return before != "" && cased(prev) && !(after != "" && cased(next))
}

func cased(r rune) bool { return unicode.IsUpper(r) || unicode.IsLower(r) || unicode.IsTitle(r) }

func caseIgnorable(r rune) bool {
	return unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk) || strings.ContainsRune("'.:\u00b7\u2019", r)
}

// capitalize is Python's capitalize: the first code point in title case, the rest in lower case.
func (in *interp) capitalize(s Str) Str {
	first, lower := true, in.lowerIn(s.text)
	return in.mapRunes(s, func(r rune) string {
		low := lower(r)
		if first {
			first = false
			return titleRune(r)
		}
		return low
	})
}

// title is the method str.title: each run of cased letters starts in title case.
func (in *interp) title(s Str) Str {
	inWord, lower := false, in.lowerIn(s.text)
	return in.mapRunes(s, func(r rune) string {
		low := lower(r)
		start := !inWord
		inWord = cased(r)
		if start {
			return titleRune(r)
		}
		return low
	})
}

func (in *interp) swapCase(s Str) Str {
	lower := in.lowerIn(s.text)
	return in.mapRunes(s, func(r rune) string {
		low := lower(r)
		switch {
		case unicode.IsUpper(r):
			return low
		case unicode.IsLower(r):
			return upperRune(r)
		}
		return string(r)
	})
}

// isCase is islower (or isupper): some cased letter, and none of the other case.
func isCase(s string, is, other func(rune) bool) bool {
	found := false
	for _, r := range s {
		if other(r) || unicode.IsTitle(r) {
			return false
		}
		found = found || is(r)
	}
	return found
}

func isTitle(s string) bool {
	found, inWord := false, false
	for _, r := range s {
		switch {
		case unicode.IsUpper(r) || unicode.IsTitle(r):
			if inWord {
				return false
			}
			found, inWord = true, true
		case unicode.IsLower(r):
			if !inWord {
				return false
			}
		default:
			inWord = false
		}
	}
	return found
}
