package tokenizer

import (
	"math"
	"strings"
	"unicode/utf8"
)

// A pre-tokenizer cuts text into pieces that no merge crosses. The models define it by regular expressions with
// lookahead, which Go's regexp lacks; here each is a function written by hand, which looks at a character a bounded
// number of times. The expressions stand above the functions, with \p{..} and \s as in Unicode.

// stage cuts the first piece off a text that is not empty and returns its length in bytes, at least 1.
type stage func(s string) int

// preTokenizer is what a value of tokenizer.ggml.pre asks for.
type preTokenizer struct {
	stages []stage // each cuts the pieces of the one before further

	// ignoreMerges: a piece that is a token is taken whole, whether or not merges lead to it.
	ignoreMerges bool
	addBOS       bool // unless the file says otherwise
}

// split calls emit for each piece of s.
func split(s string, stages []stage, emit func(piece string)) {
	if len(stages) == 0 {
		emit(s)
		return
	}
	for s != "" {
		n := stages[0](s)
		split(s[:n], stages[1:], emit)
		s = s[n:]
	}
}

// The pre-tokenizers by their first or best known name.
var (
	preGPT2       = &preTokenizer{stages: []stage{gpt2}}
	preStarcoder  = &preTokenizer{stages: []stage{number1, gpt2}}
	preQwen2      = &preTokenizer{stages: []stage{cl100k{digits: 1}.next}}
	preQwen35     = &preTokenizer{stages: []stage{cl100k{digits: 1, marks: mark}.next}}
	preLlama3     = &preTokenizer{stages: []stage{cl100k{digits: 3}.next}, ignoreMerges: true, addBOS: true}
	preDBRX       = &preTokenizer{stages: []stage{cl100k{digits: 3}.next}}
	preGPT4o      = &preTokenizer{stages: []stage{o200k{digits: 3, contractions: true}.next}}
	preTekken     = &preTokenizer{stages: []stage{o200k{digits: 1}.next}, ignoreMerges: true, addBOS: true}
	preFalcon     = &preTokenizer{stages: []stage{operators("`").next, gpt2, threeDigits}}
	preDefault    = &preTokenizer{stages: []stage{operators("").next, gpt2, numbers, threeDigits}}
	preDeepseek3  = &preTokenizer{stages: []stage{upToThreeNumbers, cjk3, deepseek3}}
	preDeepseek1  = &preTokenizer{stages: []stage{newline, spaced(letter).next, spaced(punct).next, cjk1, number1}}
	preBloom      = &preTokenizer{stages: []stage{bloom}}
	preViking     = &preTokenizer{stages: []stage{bloom, number1}}
	preTokenizers = map[string]*preTokenizer{
		"default": preDefault,

		"llama3": preLlama3, "llama-v3": preLlama3, "llama-bpe": preLlama3, "laguna": preLlama3, "falcon3": preLlama3,
		"falcon-h1": preLlama3, "pixtral": preLlama3, "midm-2.0": preLlama3, "lfm2": preLlama3, "jina-v5-nano": preLlama3,
		"dbrx": preDBRX, "smaug-bpe": preDBRX, "glm4": preDBRX, "chatglm-bpe": preDBRX,

		"qwen2": preQwen2, "deepseek-r1-qwen": preQwen2, "kormo": preQwen2, "openpangu": preQwen2, "f2llmv2": preQwen2,
		"megrez": preQwen2, "stablelm2": preQwen2, "hunyuan": preQwen2, "solar-open": preQwen2, "grok-2": preQwen2,
		"qwen35": preQwen35,

		"gpt-2": preGPT2, "phi-2": preGPT2, "jina-es": preGPT2, "jina-de": preGPT2, "gigachat": preGPT2,
		"jina-v2-es": preGPT2, "jina-v2-de": preGPT2, "jina-v1-en": preGPT2, "jina-v2-code": preGPT2,
		"roberta-bpe": preGPT2, "a.x-4.0": preGPT2, "mellum": preGPT2, "modern-bert": preGPT2, "exaone4": preGPT2,
		"mpt": preGPT2, "olmo": preGPT2, "jais": preGPT2, "trillion": preGPT2, "granite-docling": preGPT2,

		"starcoder": preStarcoder, "refact": preStarcoder, "command-r": preStarcoder, "cohere2_moe": preStarcoder,
		"smollm": preStarcoder, "codeshell": preStarcoder, "exaone": preStarcoder, "minerva-7b": preStarcoder,
		"mellum2": preStarcoder,

		"gpt-4o": preGPT4o, "llama4": preGPT4o, "kanana2": preGPT4o, "minimax-m2": preGPT4o,
		"tekken": preTekken,
		"falcon": preFalcon,

		"deepseek-v3": preDeepseek3, "hunyuan-dense": preDeepseek3, "joyai-llm": preDeepseek3,
		"deepseek-coder": preDeepseek1,

		"bloom": preBloom, "poro-chat": preBloom, "gpt3-finnish": preBloom,
		"viking": preViking,
	}
)

// nearestPreTokenizers names, for pre-tokenizers that differ in rare places only, the one that is used in their stead.
var nearestPreTokenizers = map[string]string{
	"deepseek-llm": "deepseek-coder",                                      // letters of some scripts only
	"jais-2":       "dbrx",                                                // runs of spaces are cut into powers of two
	"seed-coder":   "qwen2",                                               // newlines after punctuation
	"bailingmoe":   "qwen2", "bailingmoe2": "qwen2", "llada-moe": "qwen2", // one newline at a time
	"exaone-moe": "qwen2",       // words with a space between letters
	"chameleon":  "starcoder",   // its image tokens, pairs of spaces
	"tiny_aya":   "gpt-4o",      // digits grouped from the right
	"youtu":      "gpt-4o",      // Chinese and Korean text cut off
	"afmoe":      "deepseek-v3", // digits grouped from the right
}

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
	digits int
	marks  class // mark, or 0
}

func (p cl100k) next(s string) int {
	if n := contraction(s, 0, true); n > 0 {
		return n
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
	return otherThanWord(s, c, space|number|word, "\r\n")
}

// o200k is the family of GPT-4o's expression, with U = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}], V = [\p{Ll}\p{Lm}\p{Lo}\p{M}]
// and C = (?i:'s|'t|'re|'ve|'m|'ll|'d)?, which Tekken lacks,
//
//	[^\r\n\p{L}\p{N}]?U*V+C|[^\r\n\p{L}\p{N}]?U+V*C|\p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
type o200k struct {
	digits       int
	contractions bool
}

func (p o200k) next(s string) int {
	c, n := classAt(s, 0)
	prefix := 0 // length of what [^\r\n\p{L}\p{N}]? takes
	if c&(letter|number) == 0 && s[0] != '\r' && s[0] != '\n' {
		prefix = n
	}
	end := p.lowerWord(s, prefix)
	if end == 0 && prefix > 0 {
		end = p.lowerWord(s, 0)
	}
	if end == 0 {
		end = upperWord(s, prefix)
	}
	if end == 0 && prefix > 0 {
		end = upperWord(s, 0)
	}
	if end > 0 {
		if p.contractions {
			end += contraction(s, end, true)
		}
		return end
	}
	if c&number != 0 {
		return upTo(s, p.digits, number)
	}
	return otherThanWord(s, c, space|letter|number, "\r\n/")
}

func isU(c class) bool { return c&mark != 0 || c&letter != 0 && c&lower == 0 }
func isV(c class) bool { return c&mark != 0 || c&letter != 0 && c&upper == 0 }

// lowerWord returns the end of U*V+ from byte i on, 0 if it does not match. Where no V follows the run of U, the
// expression gives characters of that run back until the last one left is a V too.
func (p o200k) lowerWord(s string, i int) int {
	last := 0 // end of the last V in the run of U
	for {
		c, n := classAt(s, i)
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
		c, n := classAt(s, end)
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
func upperWord(s string, i int) int {
	end := i
	for {
		c, n := classAt(s, end)
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

// isolate cuts at the bounds of runs: pieces are runs of at most most characters that in holds for, and what lies between.
func isolate(s string, most int, in func(r rune, c class) bool) int {
	count, inside := 0, false
	for i, r := range s {
		is := in(r, classes[r])
		switch {
		case i == 0:
			inside = is
		case is != inside, inside && count == most:
			return i
		}
		count++
	}
	return len(s)
}

const unlimited = math.MaxInt

// number1 is \p{N}, isolated.
func number1(s string) int {
	return isolate(s, 1, func(_ rune, c class) bool { return c&number != 0 })
}

// upToThreeNumbers is \p{N}{1,3}, isolated.
func upToThreeNumbers(s string) int {
	return isolate(s, 3, func(_ rune, c class) bool { return c&number != 0 })
}

// numbers is \p{N}+, isolated.
func numbers(s string) int {
	return isolate(s, unlimited, func(_ rune, c class) bool { return c&number != 0 })
}

// newline is [\r\n], isolated.
func newline(s string) int {
	return isolate(s, 1, func(r rune, _ class) bool { return r == '\r' || r == '\n' })
}

// cjk1 is [一-龥ࠀ-一가-퟿]+, isolated.
func cjk1(s string) int {
	return isolate(s, unlimited, func(r rune, _ class) bool { return 0x800 <= r && r <= 0x9fa5 || 0xac00 <= r && r <= 0xd7ff })
}

// cjk3 is [一-龥぀-ゟ゠-ヿ]+, isolated.
func cjk3(s string) int {
	return isolate(s, unlimited, func(r rune, _ class) bool { return 0x4e00 <= r && r <= 0x9fa5 || 0x3040 <= r && r <= 0x30ff })
}

// operators is [\p{P}$+<=>^~|]+ with further characters, isolated.
type operators string

func (more operators) next(s string) int {
	return isolate(s, unlimited, func(r rune, c class) bool {
		return c&punct != 0 || strings.ContainsRune("$+<=>^~|", r) || strings.ContainsRune(string(more), r)
	})
}

// threeDigits is [0-9][0-9][0-9], isolated.
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

// spaced is \s?X+, isolated, for a class X without spaces.
type spaced class

func (x spaced) next(s string) int {
	i := runNot(s, 0, class(x))
	if i == len(s) {
		return i
	}
	if _, n := utf8.DecodeLastRuneInString(s[:i]); n > 0 {
		if c, _ := classAt(s, i-n); c&space != 0 {
			i -= n
		}
	}
	if i > 0 {
		return i
	}
	if c, n := classAt(s, 0); c&space != 0 {
		i = n
	}
	return run(s, i, class(x))
}

// deepseek3 is the last of its model's three expressions; what it does not match, such as control characters, is left
// between the pieces.
//
//	[!-/:-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
func deepseek3(s string) int {
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
		return runOf(s, run(s, 0, punct|symbol), "\r\n")
	}
	if s[0] != '\r' && s[0] != '\n' {
		if next, _ := classAt(s, n); next&word != 0 {
			return run(s, n, word)
		}
	}
	if s[0] == ' ' {
		if end := run(s, 1, punct|symbol); end > 1 {
			return runOf(s, end, "\r\n")
		}
	}
	if c&space != 0 {
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

// bloom is
//
//	?[^(\s|.,!?…。，、।۔،)]+
func bloom(s string) int {
	word := func(i int) int {
		for i < len(s) {
			r, n := utf8.DecodeRuneInString(s[i:])
			if classes[r]&space != 0 || strings.ContainsRune("(|.,!?…。，、।۔،)", r) {
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
