package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// gpt2 is
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
func gpt2(s string) int {
	if n := contraction(s, 0, false); n > 0 {
		return n
	}
	i := 0
	if s[0] == ' ' {
		i = 1
	}
	switch c, n := classAt(s, i); {
	case n == 0 || c&space != 0:
		return spaces(s)
	case c&letter != 0:
		return run(s, i, letter)
	case c&number != 0:
		return run(s, i, number)
	default:
		return runNot(s, i, space|letter|number)
	}
}

// cl100k is the family of GPT-4's expression, with W the letters, of Qwen 3.5 the marks too,
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?W+|\p{N}{1,digits}| ?[^\sW\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
type cl100k struct {
	digits            int
	marks             class // mark, or 0
	noContractions    bool  // without the first alternative
	noNewlinesInSigns bool  // Seed-Coder's  ?[^\s\p{L}\p{N}\r\n]+ in place of the fourth
}

func (p cl100k) next(s string) int {
	if !p.noContractions {
		if n := contraction(s, 0, true); n > 0 {
			return n
		}
	}
	word := letter | p.marks
	c, n := classAt(s, 0)
	switch {
	case c&word != 0:
		return run(s, n, word)
	case c&number != 0:
		return upTo(s, p.digits, number)
	case s[0] != '\r' && s[0] != '\n':
		if next, _ := classAt(s, n); next&word != 0 {
			return run(s, n, word)
		}
	}
	newlines := "\r\n"
	if p.noNewlinesInSigns {
		newlines = ""
	}
	return otherThanWord(s, c, space|number|word, newlines)
}

// jais2 is cl100k with up to three digits, but for spaces without a line end, which are cut into powers of two:
//
//	...|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|...|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}
func jais2(s string, yield func(piece string) bool) bool {
	return preDBRX.stages[0](s, func(piece string) bool {
		if !isSpaces(piece) || strings.ContainsAny(piece, "\r\n") {
			return yield(piece)
		}
		for left := utf8.RuneCountInString(piece); left > 0; {
			take := 512
			for take > left {
				take /= 2
			}
			n := upTo(piece, take, space)
			if !yield(piece[:n]) {
				return false
			}
			piece, left = piece[n:], left-take
		}
		return true
	})
}

func isSpaces(s string) bool { return run(s, 0, space) == len(s) }

// exaoneMoE is
//
//	C|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+
//
// with C = (?i:'s|'t|'re|'ve|'m|'ll|'d): letters with single spaces between are one piece.
func exaoneMoE(s string) int {
	if n := contraction(s, 0, true); n > 0 {
		return n
	}
	c, n := classAt(s, 0)
	first := 0 // where the letters start
	if c&(letter|number) == 0 && s[0] != '\r' && s[0] != '\n' {
		first = n
	}
	if next, _ := classAt(s, first); next&letter != 0 {
		for i := first; ; {
			i = run(s, i, letter|mark)
			if i == len(s) || s[i] != ' ' {
				return i
			}
			if next, _ := classAt(s, i+1); next&letter == 0 {
				return i
			}
			i++
		}
	}
	if c&number != 0 {
		return n
	}
	end := otherThanWord(s, c, space|letter|number, "")
	if end < len(s) && !isSpaces(s[:end]) && strings.IndexByte("\r\n/", s[end]) >= 0 {
		end++
	}
	return end
}

// o200k is the family of GPT-4o's expression, with U = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}], V = [\p{Ll}\p{Lm}\p{Lo}\p{M}]
// and C = (?i:'s|'t|'re|'ve|'m|'ll|'d)?, which Tekken lacks,
//
//	[^\r\n\p{L}\p{N}]?U*V+C|[^\r\n\p{L}\p{N}]?U+V*C|\p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[newlines]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// Kimi K2 takes \p{Han}+ first, and Han out of U and V.
type o200k struct {
	digits       int
	contractions bool
	hanApart     bool
	newlines     string
}

func (p o200k) next(s string) int {
	c, n := classAt(s, 0)
	if p.hanApart && c&han != 0 {
		return run(s, n, han)
	}
	prefix := 0 // length of what [^\r\n\p{L}\p{N}]? takes
	if c&(letter|number) == 0 && s[0] != '\r' && s[0] != '\n' {
		prefix = n
	}
	if next, _ := p.at(s, prefix); (c|next)&(letter|mark) != 0 {
		if end := p.word(s, prefix); end > 0 {
			return end
		}
	}
	if c&number != 0 {
		return upTo(s, p.digits, number)
	}
	return otherThanWord(s, c, space|letter|number, p.newlines)
}

// word returns the end of the first two alternatives, of which `prefix` bytes are the character before the letters; 0 if neither matches.
func (p o200k) word(s string, prefix int) int {
	end := p.lowerWord(s, prefix)
	if end == 0 && prefix > 0 {
		end = p.lowerWord(s, 0)
	}
	if end == 0 {
		end = p.upperWord(s, prefix)
	}
	if end == 0 && prefix > 0 {
		end = p.upperWord(s, 0)
	}
	if end > 0 && p.contractions {
		end += contraction(s, end, true)
	}
	return end
}

// at is classAt without the letters that are not p's.
func (p o200k) at(s string, i int) (class, int) {
	c, n := classAt(s, i)
	if p.hanApart && c&han != 0 {
		c = han
	}
	return c, n
}

func isU(c class) bool { return c&mark != 0 || c&letter != 0 && c&lower == 0 }
func isV(c class) bool { return c&mark != 0 || c&letter != 0 && c&upper == 0 }

// lowerWord returns the end of U*V+ from byte i on, 0 if it does not match. Where no V follows the run of U, the
// expression gives characters of that run back until the last one left is a V too.
func (p o200k) lowerWord(s string, i int) int {
	last := 0 // end of the last V in the run of U
	for {
		c, n := p.at(s, i)
		if n == 0 || !isU(c) {
			break
		}
		i += n
		if isV(c) {
			last = i
		}
	}
	end := i
	for {
		c, n := p.at(s, end)
		if n == 0 || !isV(c) {
			break
		}
		end += n
	}
	if end > i {
		return end
	}
	return last
}

// upperWord returns the end of U+V* from byte i on, 0 if it does not match. It is asked where U*V+ failed: no V can
// follow.
func (p o200k) upperWord(s string, i int) int {
	end := i
	for {
		c, n := p.at(s, end)
		if n == 0 || !isU(c) {
			break
		}
		end += n
	}
	if end > i {
		return end
	}
	return 0
}

// otherThanWord is what cl100k and o200k share, c being the class of the first character:
//
//	?[^avoid]+[newlines]*|\s*[\r\n]+|\s+(?!\S)|\s+
func otherThanWord(s string, c, avoid class, newlines string) int {
	if c&avoid == 0 {
		return runOf(s, runNot(s, 0, avoid), newlines)
	}
	if s[0] == ' ' {
		if end := runNot(s, 1, avoid); end > 1 {
			return runOf(s, end, newlines)
		}
	}
	return newlinesOrSpaces(s)
}

// newlinesOrSpaces is
//
//	\s*[\r\n]+|\s+(?!\S)|\s+
func newlinesOrSpaces(s string) int {
	end := run(s, 0, space)
	if i := strings.LastIndexAny(s[:end], "\r\n"); i >= 0 {
		return i + 1
	}
	return spaces(s)
}

// spaces is
//
//	\s+(?!\S)|\s+
//
// that is: the run of spaces without its last one, which is left to the word behind it, unless it is the only one or no
// word follows.
func spaces(s string) int {
	end := run(s, 0, space)
	if end == len(s) {
		return end
	}
	if _, last := utf8.DecodeLastRuneInString(s[:end]); end > last {
		return end - last
	}
	return end
}

// contraction returns the length of 's, 't, 're, 've, 'm, 'll or 'd at byte i, else 0. Without regard to case, U+017F,
// the long s, is an s too.
func contraction(s string, i int, ignoreCase bool) int {
	if i+1 >= len(s) || s[i] != '\'' {
		return 0
	}
	at := func(j int) byte {
		if j >= len(s) {
			return 0
		}
		if b := s[j]; ignoreCase && 'A' <= b && b <= 'Z' {
			return b + 'a' - 'A'
		}
		return s[j]
	}
	switch a, b := at(i+1), at(i+2); {
	case a == 's' || a == 't' || a == 'm' || a == 'd':
		return 2
	case ignoreCase && strings.HasPrefix(s[i+1:], "ſ"):
		return 1 + len("ſ")
	case a == 'r' && b == 'e' || a == 'v' && b == 'e' || a == 'l' && b == 'l':
		return 3
	}
	return 0
}

// upTo returns the end of at most n characters of class want, of which s starts with one.
func upTo(s string, n int, want class) int {
	i := 0
	for ; n > 0; n-- {
		c, size := classAt(s, i)
		if c&want == 0 {
			break
		}
		i += size
	}
	return i
}

// deepseek3 is the last of its model's three expressions; what it does not match, such as control characters, is left
// between the pieces.
//
//	[!-/:-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[afterSigns]*|\s*[\r\n]+|\s+(?!\S)|\s+
type deepseek3 struct {
	afterSigns string
	oneNewline bool // Spark's [\r\n] in place of \s*[\r\n]+
}

func (p deepseek3) next(s string) int {
	const word = letter | mark
	if isASCIIPunct(s[0]) {
		i := 1
		for i < len(s) && isASCIILetter(s[i]) {
			i++
		}
		if i > 1 {
			return i
		}
	}
	c, n := classAt(s, 0)
	switch {
	case c&word != 0:
		return run(s, n, word)
	case c&(punct|symbol) != 0:
		return runOf(s, run(s, 0, punct|symbol), p.afterSigns)
	}
	if s[0] != '\r' && s[0] != '\n' {
		if next, _ := classAt(s, n); next&word != 0 {
			return run(s, n, word)
		}
	}
	if s[0] == ' ' {
		if end := run(s, 1, punct|symbol); end > 1 {
			return runOf(s, end, p.afterSigns)
		}
	}
	switch {
	case p.oneNewline && (s[0] == '\r' || s[0] == '\n'):
		return 1
	case p.oneNewline && c&space != 0:
		return spaces(s)
	case c&space != 0:
		return newlinesOrSpaces(s)
	}
	for i := n; ; i += n { // nothing matches here: up to where something does
		if c, n = classAt(s, i); n == 0 || c&(word|punct|symbol|space) != 0 {
			return i
		}
		if next, _ := classAt(s, i+n); next&word != 0 {
			return i
		}
	}
}

func isASCIIPunct(b byte) bool {
	return '!' <= b && b <= '/' || ':' <= b && b <= '@' || '[' <= b && b <= '`' || '{' <= b && b <= '~'
}

func isASCIILetter(b byte) bool { return 'a' <= b|0x20 && b|0x20 <= 'z' }

// endsBloom are the characters of ASCII that bloom's words end at.
var endsBloom = [utf8.RuneSelf]bool{
	'(': true, '|': true, '.': true, ',': true, '!': true, '?': true, ')': true,
	' ': true, '\t': true, '\n': true, '\v': true, '\f': true, '\r': true,
}

// bloom is
//
//	?[^(\s|.,!?…。，、।۔،)]+
func bloom(s string) int {
	word := func(i int) int {
		for i < len(s) {
			if b := s[i]; b < utf8.RuneSelf {
				if endsBloom[b] {
					break
				}
				i++
				continue
			}
			r, n := utf8.DecodeRuneInString(s[i:])
			if classes[r]&space != 0 || strings.ContainsRune("…。，、।۔،", r) {
				break
			}
			i += n
		}
		return i
	}
	if end := word(0); end > 0 {
		return end
	}
	if s[0] == ' ' {
		if end := word(1); end > 1 {
			return end
		}
	}
	// What lies between: up to the next word, with its space.
	for i, r := range s {
		if i > 0 && (word(i) > i || r == ' ' && word(i+1) > i+1) {
			return i
		}
	}
	return len(s)
}
