package jinja

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// tokenKind says what a token is. Operators carry their spelling in token.text.
type tokenKind uint8

const (
	tokEOF      tokenKind = iota
	tokData               // template text outside of tags
	tokVarBegin           // {{
	tokVarEnd             // }}
	tokBlkBegin           // {%
	tokBlkEnd             // %}
	tokName               // identifiers and keywords
	tokString             // text holds the unescaped value
	tokNumber             // value holds an int64, *big.Int or float64
	tokOp                 // + - ** [ and so on
)

type token struct {
	kind  tokenKind
	text  string
	value Value
	line  int
}

// describe names a token for an error message, as Jinja2 does.
func (t token) describe() string {
	switch t.kind {
	case tokEOF:
		return "end of template"
	case tokData:
		return "template data / text"
	case tokVarBegin:
		return "begin of print statement"
	case tokVarEnd:
		return "end of print statement"
	case tokBlkBegin:
		return "begin of statement block"
	case tokBlkEnd:
		return "end of statement block"
	case tokString:
		return "a string"
	case tokNumber:
		return "a number"
	}
	return t.text
}

func (t token) is(op string) bool       { return t.kind == tokOp && t.text == op }
func (t token) isName(name string) bool { return t.kind == tokName && t.text == name }

// lexer cuts a template into tokens under trim_blocks and lstrip_blocks, the settings of Hugging Face's chat templates:
// the first newline after a block tag is dropped, and so is white space between the start of a line and a block tag.
type lexer struct {
	src    string
	pos    int
	line   int // line of src[counted]
	marked int // everything before this offset has been counted into line
	toks   []token
	// lineStart tells whether the text from pos on starts a line; text after a tag that swallowed its newline does.
	lineStart bool
}

// isSpace is Python's str.isspace for one code point.
func isSpace(r rune) bool { return unicode.IsSpace(r) || (r >= 0x1c && r <= 0x1f) }

func skipSpace(s string, i int) int {
	for i < len(s) {
		r, n := utf8.DecodeRuneInString(s[i:])
		if !isSpace(r) {
			break
		}
		i += n
	}
	return i
}

// normalizeNewlines turns \r\n and \r into \n and drops one trailing newline, as Jinja2 does before it lexes.
func normalizeNewlines(s string) string {
	if strings.IndexByte(s, '\r') >= 0 {
		s = strings.ReplaceAll(s, "\r\n", "\n")
		s = strings.ReplaceAll(s, "\r", "\n")
	}
	return strings.TrimSuffix(s, "\n")
}

func lex(source string) []token {
	l := &lexer{src: normalizeNewlines(source), line: 1, lineStart: true}
	for l.pos < len(l.src) {
		l.data()
	}
	l.emit(tokEOF, "", nil, l.pos)
	return l.toks
}

func (l *lexer) lineAt(pos int) int {
	if pos > l.marked {
		l.line += strings.Count(l.src[l.marked:pos], "\n")
		l.marked = pos
	}
	return l.line
}

func (l *lexer) emit(kind tokenKind, text string, value Value, pos int) {
	l.toks = append(l.toks, token{kind: kind, text: text, value: value, line: l.lineAt(pos)})
}

func (l *lexer) fail(pos int, format string, args ...any) {
	panic(&Error{Kind: ErrSyntax, Line: l.lineAt(pos), Msg: fmt.Sprintf(format, args...)})
}

// data reads text up to the next tag, and the tag.
func (l *lexer) data() {
	start := l.pos
	i := start
	for {
		k := strings.IndexByte(l.src[i:], '{')
		if k < 0 || i+k+1 >= len(l.src) {
			l.text(l.src[start:], start)
			l.pos = len(l.src)
			return
		}
		i += k
		if c := l.src[i+1]; c == '%' || c == '{' || c == '#' {
			break
		}
		i++
	}
	kind := l.src[i+1]
	sign := byte(0)
	body := i + 2
	if body < len(l.src) && (l.src[body] == '-' || l.src[body] == '+') {
		sign = l.src[body]
		body++
	}
	l.text(l.stripBefore(l.src[start:i], sign, kind), start)
	switch kind {
	case '#':
		l.comment(i, body)
	case '{':
		l.emit(tokVarBegin, "{{", nil, i)
		l.pos = body
		l.tag(tokVarEnd)
	default:
		if end, ok := rawBegin(l.src, body); ok {
			l.raw(i, end)
			return
		}
		l.emit(tokBlkBegin, "{%", nil, i)
		l.pos = body
		l.tag(tokBlkEnd)
	}
}

// stripBefore applies the white space control of a tag to the text in front of it.
func (l *lexer) stripBefore(text string, sign, kind byte) string {
	switch {
	case sign == '-':
		return strings.TrimRightFunc(text, isSpace)
	case sign == '+' || kind == '{':
		return text
	}
	at := strings.LastIndexByte(text, '\n') + 1
	if (at > 0 || l.lineStart) && skipSpace(text, at) == len(text) {
		return text[:at]
	}
	return text
}

func (l *lexer) text(s string, pos int) {
	if s != "" {
		l.emit(tokData, s, nil, pos)
	}
}

// afterBlock returns the offset behind a closing %} or #}, for which closing has been found at pos.
// sign is the character before it if that is white space control.
func (l *lexer) afterBlock(pos int, sign byte) int {
	end := pos + 2
	if sign == '-' {
		return skipSpace(l.src, end)
	}
	if sign == 0 && end < len(l.src) && l.src[end] == '\n' {
		return end + 1
	}
	return end
}

func (l *lexer) moveTo(pos int) {
	l.lineStart = pos > 0 && l.src[pos-1] == '\n'
	l.pos = pos
}

func (l *lexer) comment(start, body int) {
	k := strings.Index(l.src[body:], "#}")
	if k < 0 {
		l.fail(start, "Missing end of comment tag")
	}
	end, sign := body+k, byte(0)
	if k > 0 && (l.src[end-1] == '-' || l.src[end-1] == '+') {
		sign = l.src[end-1]
	}
	l.moveTo(l.afterBlock(end, sign))
}

// rawBegin reports whether the tag whose inside starts at i is {% raw %}, and where the raw text starts.
func rawBegin(s string, i int) (int, bool) {
	i = skipSpace(s, i)
	if !strings.HasPrefix(s[i:], "raw") {
		return 0, false
	}
	i = skipSpace(s, i+3)
	switch {
	case strings.HasPrefix(s[i:], "-%}"):
		return skipSpace(s, i+3), true
	case strings.HasPrefix(s[i:], "%}"):
		return i + 2, true
	}
	return 0, false
}

func (l *lexer) raw(start, body int) {
	l.lineStart = l.src[body-1] == '\n'
	for i := body; ; {
		k := strings.Index(l.src[i:], "{%")
		if k < 0 {
			l.fail(start, "Missing end of raw directive")
		}
		i += k
		j, sign := i+2, byte(0)
		if j < len(l.src) && (l.src[j] == '-' || l.src[j] == '+') {
			sign = l.src[j]
			j++
		}
		j = skipSpace(l.src, j)
		if strings.HasPrefix(l.src[j:], "endraw") {
			j = skipSpace(l.src, j+len("endraw"))
			after := byte(0)
			if j < len(l.src) && (l.src[j] == '-' || l.src[j] == '+') {
				after = l.src[j]
				j++
			}
			if strings.HasPrefix(l.src[j:], "%}") {
				l.text(l.stripBefore(l.src[body:i], sign, '%'), body)
				l.moveTo(l.afterBlock(j, after))
				return
			}
		}
		i += 2
	}
}

// operators, longest first.
var operators = []string{"**", "//", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}",
	">", "<", "=", ".", ":", "|", ",", ";"}

var closing = map[string]string{"(": ")", "[": "]", "{": "}"}

// tag reads the tokens of a tag up to its end. An end tag counts only outside of brackets, so that {{ {'a': {}} }} works.
func (l *lexer) tag(end tokenKind) {
	var open []string
	for {
		l.pos = skipSpace(l.src, l.pos)
		if l.pos >= len(l.src) {
			return // the parser reports the missing end
		}
		if len(open) == 0 && l.tagEnd(end) {
			return
		}
		start := l.pos
		rest := l.src[start:]
		c := rest[0]
		switch {
		case c >= '0' && c <= '9':
			l.number()
		case c == '\'' || c == '"':
			l.str(c)
		case c < utf8.RuneSelf && !(c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'):
			op := ""
			for _, o := range operators {
				if strings.HasPrefix(rest, o) {
					op = o
					break
				}
			}
			switch op {
			case "":
				l.fail(start, "unexpected char %q", rune(c))
			case "(", "[", "{":
				open = append(open, closing[op])
			case ")", "]", "}":
				if len(open) == 0 {
					l.fail(start, "unexpected '%s'", op)
				}
				want := open[len(open)-1]
				open = open[:len(open)-1]
				if want != op {
					l.fail(start, "unexpected '%s', expected '%s'", op, want)
				}
			}
			l.emit(tokOp, op, nil, start)
			l.pos += len(op)
		default:
			l.name()
		}
	}
}

// tagEnd consumes the end of a tag if it is next.
func (l *lexer) tagEnd(kind tokenKind) bool {
	rest := l.src[l.pos:]
	mark := "%}"
	if kind == tokVarEnd {
		mark = "}}"
	}
	sign := byte(0)
	at := l.pos
	if rest != "" && (rest[0] == '-' || rest[0] == '+' && kind == tokBlkEnd) {
		sign = rest[0]
		at++
	}
	if !strings.HasPrefix(l.src[at:], mark) {
		return false
	}
	l.emit(kind, mark, nil, l.pos)
	end := at + 2
	if kind == tokBlkEnd {
		end = l.afterBlock(at, sign)
	} else if sign == '-' {
		end = skipSpace(l.src, end)
	}
	l.moveTo(end)
	return true
}

func (l *lexer) name() {
	start, i := l.pos, l.pos
	for i < len(l.src) {
		r, n := utf8.DecodeRuneInString(l.src[i:])
		if r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.Is(unicode.Mn, r) && !unicode.Is(unicode.Mc, r) && !unicode.Is(unicode.Pc, r) {
			break
		}
		if r == utf8.RuneError && n <= 1 {
			break
		}
		i += n
	}
	if i == start {
		r, _ := utf8.DecodeRuneInString(l.src[start:])
		l.fail(start, "unexpected char %q", r)
	}
	l.emit(tokName, l.src[start:i], nil, start)
	l.pos = i
}

// digits returns the end of a run of digits of the base in which single underscores may separate digits.
func digits(s string, i int, ok func(byte) bool) int {
	end := i
	for i < len(s) {
		if ok(s[i]) {
			i++
			end = i
		} else if s[i] == '_' && end == i && i+1 < len(s) && ok(s[i+1]) {
			i++
		} else {
			break
		}
	}
	return end
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isHex(c byte) bool {
	return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func (l *lexer) number() {
	start, s := l.pos, l.src
	end := digits(s, start, isDigit)
	float := false
	if start == 0 || s[start-1] != '.' { // after a dot it is an index, as in x.0.1
		if end+1 < len(s) && s[end] == '.' && isDigit(s[end+1]) {
			end = digits(s, end+1, isDigit)
			float = true
		}
		if end < len(s) && (s[end] == 'e' || s[end] == 'E') {
			i := end + 1
			if i < len(s) && (s[i] == '+' || s[i] == '-') {
				i++
			}
			if i < len(s) && isDigit(s[i]) {
				end = digits(s, i, isDigit)
				float = true
			}
		}
	}
	if float {
		f, err := strconv.ParseFloat(strings.ReplaceAll(s[start:end], "_", ""), 64)
		if err != nil && f == 0 {
			l.fail(start, "invalid number %s", s[start:end])
		}
		l.emit(tokNumber, s[start:end], f, start)
		l.pos = end
		return
	}
	base, from := 10, start
	if s[start] == '0' && start+2 < len(s) {
		var ok func(byte) bool
		switch s[start+1] | 0x20 {
		case 'x':
			base, ok = 16, isHex
		case 'o':
			base, ok = 8, func(c byte) bool { return c >= '0' && c <= '7' }
		case 'b':
			base, ok = 2, func(c byte) bool { return c == '0' || c == '1' }
		}
		if ok != nil && digits(s, start+2, ok) > start+2 {
			from = start + 2
			end = digits(s, from, ok)
		} else {
			base = 10
		}
	}
	if base == 10 && s[start] == '0' { // a decimal starts with 1-9 or is all zeros
		end = digits(s, start, func(c byte) bool { return c == '0' })
	}
	if end-from > maxIntDigits {
		l.fail(start, "integer with more than %d digits", maxIntDigits)
	}
	n, ok := new(big.Int).SetString(strings.ReplaceAll(s[from:end], "_", ""), base)
	if !ok {
		l.fail(start, "invalid number %s", s[start:end])
	}
	l.emit(tokNumber, s[start:end], normInt(n), start)
	l.pos = end
}

// str reads a string literal with Python's escapes.
func (l *lexer) str(quote byte) {
	start := l.pos
	i := start + 1
	var b strings.Builder
	for {
		if i >= len(l.src) {
			l.fail(start, "unexpected char %q: the string is not closed", rune(quote))
		}
		c := l.src[i]
		if c == quote {
			break
		}
		if c != '\\' {
			b.WriteByte(c)
			i++
			continue
		}
		if i+1 >= len(l.src) {
			l.fail(start, "unexpected char %q: the string is not closed", rune(quote))
		}
		i += l.escape(&b, i+1) + 1
	}
	l.emit(tokString, b.String(), nil, start)
	l.pos = i + 1
}

var simpleEscapes = map[byte]string{'\n': "", '\\': "\\", '\'': "'", '"': "\"", 'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n",
	'r': "\r", 't': "\t", 'v': "\v"}

// escape writes the escape sequence whose character after the backslash is at i and returns its length without the backslash.
func (l *lexer) escape(b *strings.Builder, i int) int {
	c := l.src[i]
	if s, ok := simpleEscapes[c]; ok {
		b.WriteString(s)
		return 1
	}
	if width := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]; width > 0 {
		if i+1+width > len(l.src) {
			l.fail(i, "truncated \\%c escape", c)
		}
		n, err := strconv.ParseUint(l.src[i+1:i+1+width], 16, 32)
		if err != nil || n > unicode.MaxRune {
			l.fail(i, "invalid \\%c escape", c)
		}
		// A surrogate pair spelled as two \u escapes stays two code points in Python; as text it is one character.
		if hi := rune(n); hi >= 0xd800 && hi < 0xdc00 && c == 'u' && strings.HasPrefix(l.src[i+5:], "\\u") && len(l.src) >= i+11 {
			if lo, err := strconv.ParseUint(l.src[i+7:i+11], 16, 32); err == nil && lo >= 0xdc00 && lo < 0xe000 {
				b.WriteRune((hi-0xd800)<<10 + rune(lo) - 0xdc00 + 0x10000)
				return 11
			}
		}
		b.WriteRune(rune(n))
		return 1 + width
	}
	if c >= '0' && c <= '7' {
		n, k := rune(0), 0
		for k < 3 && i+k < len(l.src) && l.src[i+k] >= '0' && l.src[i+k] <= '7' {
			n = n*8 + rune(l.src[i+k]-'0')
			k++
		}
		b.WriteRune(n)
		return k
	}
	if c == 'N' {
		l.fail(i, "\\N{...} escapes are not supported")
	}
	b.WriteByte('\\') // unknown escapes keep their backslash
	_, n := utf8.DecodeRuneInString(l.src[i:])
	b.WriteString(l.src[i : i+n])
	return n
}
