package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

func strAttribute(s Str, name string) (Value, bool) { return bound(strMethods, s, name) }

var strMethods map[string]method[Str]

func init() {
	affix := sig("prefix", "start=0", "end=none")
	search := sig("sub", "start=0", "end=none")
	split := sig("sep=none", "maxsplit=-1")
	pad := sig("width", "fillchar=' '")
	strMethods = map[string]method[Str]{
		"upper":      {call: func(in *interp, s Str, a []Value) Value { return in.upper(s) }},
		"lower":      {call: func(in *interp, s Str, a []Value) Value { return in.lower(s) }},
		"casefold":   {call: func(in *interp, s Str, a []Value) Value { return in.mapRunes(s, foldRune) }},
		"title":      {call: func(in *interp, s Str, a []Value) Value { return in.title(s) }},
		"capitalize": {call: func(in *interp, s Str, a []Value) Value { return in.capitalize(s) }},
		"swapcase":   {call: func(in *interp, s Str, a []Value) Value { return in.swapCase(s) }},
		"strip":      {params: sig("chars=none"), call: func(in *interp, s Str, a []Value) Value { return in.strip(s, a[0], true, true) }},
		"lstrip":     {params: sig("chars=none"), call: func(in *interp, s Str, a []Value) Value { return in.strip(s, a[0], true, false) }},
		"rstrip":     {params: sig("chars=none"), call: func(in *interp, s Str, a []Value) Value { return in.strip(s, a[0], false, true) }},
		"split":      {params: split, call: func(in *interp, s Str, a []Value) Value { return in.split(s, a[0], in.intArg(a[1])) }},
		"rsplit":     {params: split, call: func(in *interp, s Str, a []Value) Value { return in.rsplit(s, a[0], in.intArg(a[1])) }},
		"splitlines": {params: sig("keepends=false"), call: func(in *interp, s Str, a []Value) Value {
			return strList(in.splitLines(s, truth(a[0])))
		}},
		"startswith": {params: affix, call: func(in *interp, s Str, a []Value) Value { return in.hasAffix(s, a, strings.HasPrefix) }},
		"endswith":   {params: affix, call: func(in *interp, s Str, a []Value) Value { return in.hasAffix(s, a, strings.HasSuffix) }},
		"removeprefix": {params: sig("prefix"), call: func(in *interp, s Str, a []Value) Value {
			in.step(int64(len(s.text)) / 1024)
			return s.sub(len(s.text)-len(strings.TrimPrefix(s.text, in.strArg(a[0]).text)), len(s.text))
		}},
		"removesuffix": {params: sig("suffix"), call: func(in *interp, s Str, a []Value) Value {
			in.step(int64(len(s.text)) / 1024)
			return s.sub(0, len(strings.TrimSuffix(s.text, in.strArg(a[0]).text)))
		}},
		"replace": {params: sig("old", "new", "count=-1"), call: func(in *interp, s Str, a []Value) Value {
			return in.replace(s, in.strArg(a[0]), in.strArg(a[1]), in.intArg(a[2]))
		}},
		"find":   {params: search, call: func(in *interp, s Str, a []Value) Value { return in.index(s, a, strings.Index) }},
		"rfind":  {params: search, call: func(in *interp, s Str, a []Value) Value { return in.index(s, a, strings.LastIndex) }},
		"index":  {params: search, call: func(in *interp, s Str, a []Value) Value { return in.mustIndex(s, a, strings.Index) }},
		"rindex": {params: search, call: func(in *interp, s Str, a []Value) Value { return in.mustIndex(s, a, strings.LastIndex) }},
		"count": {params: search, call: func(in *interp, s Str, a []Value) Value {
			lo, hi, ok := in.window(s, a[1], a[2])
			if !ok {
				return int64(0)
			}
			return int64(len(in.find(s.text[lo:hi], in.strArg(a[0]).text, -1)))
		}},
		"join": {params: sig("iterable"), call: func(in *interp, s Str, a []Value) Value {
			var parts []Str
			for i, v := range in.collect(a[0]) {
				p, ok := v.(Str)
				if !ok {
					in.fail("sequence item %d: expected str instance, %s found", i, typeName(v))
				}
				parts = append(parts, p)
			}
			return in.join(s, parts)
		}},
		"partition":  {params: sig("sep"), call: func(in *interp, s Str, a []Value) Value { return in.partition(s, in.strArg(a[0]).text, false) }},
		"rpartition": {params: sig("sep"), call: func(in *interp, s Str, a []Value) Value { return in.partition(s, in.strArg(a[0]).text, true) }},
		"center":     {params: pad, call: func(in *interp, s Str, a []Value) Value { return in.pad(s, in.intArg(a[0]), in.strArg(a[1]), '^') }},
		"ljust":      {params: pad, call: func(in *interp, s Str, a []Value) Value { return in.pad(s, in.intArg(a[0]), in.strArg(a[1]), '<') }},
		"rjust":      {params: pad, call: func(in *interp, s Str, a []Value) Value { return in.pad(s, in.intArg(a[0]), in.strArg(a[1]), '>') }},
		"zfill": {params: sig("width"), call: func(in *interp, s Str, a []Value) Value {
			sign := 0
			if s.text != "" && (s.text[0] == '-' || s.text[0] == '+') {
				sign = 1
			}
			return in.concat(s.sub(0, sign), in.pad(s.sub(sign, len(s.text)), in.intArg(a[0])-int64(sign), NewStr("0"), '>'))
		}},
		"expandtabs": {params: sig("tabsize=8"), call: func(in *interp, s Str, a []Value) Value { return in.expandTabs(s, in.intArg(a[0])) }},
		"format":     {raw: func(in *interp, s Str, a *callArgs) Value { return in.format(s, a) }},
		"format_map": {params: sig("mapping"), call: func(in *interp, s Str, a []Value) Value {
			d, ok := a[0].(*Dict)
			if !ok {
				in.fail("format_map() needs a mapping, not %s", typeName(a[0]))
			}
			args := &callArgs{}
			for _, e := range d.entries {
				if key, ok := e.key.(Str); ok {
					args.kw = append(args.kw, namedValue{key, e.value})
				}
			}
			return in.format(s, args)
		}},
	}
	for name, is := range map[string]func(s string) bool{
		"isalpha":      allRunes(unicode.IsLetter),
		"isdecimal":    allRunes(func(r rune) bool { return unicode.Is(unicode.Nd, r) }),
		"isdigit":      allRunes(isUnicodeDigit),
		"isnumeric":    allRunes(unicode.IsNumber),
		"isalnum":      allRunes(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }),
		"isspace":      allRunes(isSpace),
		"isascii":      func(s string) bool { return strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0 },
		"isprintable":  func(s string) bool { return strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 },
		"isidentifier": isIdentifier,
		"islower":      func(s string) bool { return isCase(s, unicode.IsLower, unicode.IsUpper) },
		"isupper":      func(s string) bool { return isCase(s, unicode.IsUpper, unicode.IsLower) },
		"istitle":      isTitle,
	} {
		strMethods[name] = method[Str]{call: func(in *interp, s Str, a []Value) Value {
			in.step(int64(len(s.text)) / 64)
			return is(s.text)
		}}
	}
}

// allRunes is true of texts that are not empty and consist of such code points alone.
func allRunes(is func(r rune) bool) func(s string) bool {
	return func(s string) bool {
		return s != "" && strings.IndexFunc(s, func(r rune) bool { return !is(r) }) < 0
	}
}

// isUnicodeDigit is the property Numeric_Type=Digit or Decimal: digits, and digits raised, lowered, or in circles.
func isUnicodeDigit(r rune) bool {
	if r < utf8.RuneSelf || unicode.Is(unicode.Nd, r) {
		return unicode.Is(unicode.Nd, r)
	}
	for _, span := range [][2]rune{{0xb2, 0xb3}, {0xb9, 0xb9}, {0x1369, 0x1371}, {0x19da, 0x19da}, {0x2070, 0x2070}, {0x2074, 0x2079},
		{0x2080, 0x2089}, {0x2460, 0x2468}, {0x2474, 0x247c}, {0x2488, 0x2490}, {0x24ea, 0x24ea}, {0x24f5, 0x24fd}, {0x24ff, 0x24ff},
		{0x2776, 0x277e}, {0x2780, 0x2788}, {0x278a, 0x2792}, {0x10a40, 0x10a43}, {0x10e60, 0x10e68}, {0x11052, 0x1105a}, {0x1f100, 0x1f10a}} {
		if r >= span[0] && r <= span[1] {
			return true
		}
	}
	return false
}

func isIdentifier(s string) bool {
	for i, r := range s {
		if !(r == '_' || unicode.IsLetter(r) || unicode.Is(unicode.Nl, r) || i > 0 && unicode.In(r, unicode.Nd, unicode.Mn, unicode.Mc, unicode.Pc)) {
			return false
		}
	}
	return s != ""
}

func strList(parts []Str) *List {
	l := &List{items: make([]Value, len(parts))}
	for i, p := range parts {
		l.items[i] = p
	}
	return l
}

// strip removes white space, or the given characters, from the sides of a text.
func (in *interp) strip(s Str, chars Value, left, right bool) Str {
	drop := isSpace
	if chars != nil {
		set := in.strArg(chars).text
		in.step(int64(len(set)))
		drop = func(r rune) bool {
			in.step(int64(len(set)) / 64)
			return strings.ContainsRune(set, r)
		}
	}
	in.step(int64(len(s.text)) / 16)
	lo, hi := 0, len(s.text)
	if left {
		lo = hi - len(strings.TrimLeftFunc(s.text, drop))
	}
	if right {
		hi = lo + len(strings.TrimRightFunc(s.text[lo:], drop))
	}
	return s.sub(lo, hi)
}

func (in *interp) split(s Str, sep Value, limit int64) Value {
	if limit < 0 {
		limit = 1 << 62
	}
	var parts []Str
	if sep != nil {
		sepText := in.sepArg(sep)
		last := 0
		for _, at := range in.find(s.text, sepText, limit) {
			parts = append(parts, s.sub(last, at))
			last = at + len(sepText)
		}
		return strList(append(parts, s.sub(last, len(s.text))))
	}
	in.step(int64(len(s.text)) / 16)
	for i := skipSpace(s.text, 0); i < len(s.text); i = skipSpace(s.text, i) {
		if int64(len(parts)) == limit {
			parts = append(parts, s.sub(i, len(s.text)))
			break
		}
		end := strings.IndexFunc(s.text[i:], isSpace)
		if end < 0 {
			end = len(s.text) - i
		}
		in.step(1)
		parts = append(parts, s.sub(i, i+end))
		i += end
	}
	return strList(parts)
}

func (in *interp) sepArg(sep Value) string {
	text := in.strArg(sep).text
	if text == "" {
		in.fail("empty separator")
	}
	return text
}

// rsplit splits from the right, which differs from split only where the number of splits is limited.
func (in *interp) rsplit(s Str, sep Value, limit int64) Value {
	if limit < 0 {
		return in.split(s, sep, limit)
	}
	var parts []Str
	hi := len(s.text)
	sepText := ""
	if sep != nil {
		sepText = in.sepArg(sep)
	} else {
		hi = len(strings.TrimRightFunc(s.text, isSpace))
	}
	in.step(int64(len(s.text)) / 16)
	for int64(len(parts)) < limit {
		lo, next := 0, 0
		if sep != nil {
			at := strings.LastIndex(s.text[:hi], sepText)
			if at < 0 {
				break
			}
			lo, next = at+len(sepText), at
		} else {
			at := strings.LastIndexFunc(s.text[:hi], isSpace)
			if at < 0 {
				break
			}
			_, n := utf8.DecodeRuneInString(s.text[at:])
			lo, next = at+n, len(strings.TrimRightFunc(s.text[:at], isSpace))
		}
		in.step(1)
		parts = append(parts, s.sub(lo, hi))
		hi = next
	}
	if sep != nil || skipSpace(s.text[:hi], 0) < hi {
		parts = append(parts, s.sub(0, hi))
	}
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return strList(parts)
}

func isLineBreak(r rune) bool {
	switch r {
	case '\n', '\r', '\v', '\f', 0x1c, 0x1d, 0x1e, 0x85, 0x2028, 0x2029:
		return true
	}
	return false
}

func (in *interp) splitLines(s Str, keepEnds bool) []Str {
	var lines []Str
	in.step(int64(len(s.text)) / 16)
	for i := 0; i < len(s.text); {
		in.step(1)
		k := strings.IndexFunc(s.text[i:], isLineBreak)
		if k < 0 {
			return append(lines, s.sub(i, len(s.text)))
		}
		end := i + k
		_, n := utf8.DecodeRuneInString(s.text[end:])
		next := end + n
		if s.text[end] == '\r' && next < len(s.text) && s.text[next] == '\n' {
			next++
		}
		if keepEnds {
			end = next
		}
		lines = append(lines, s.sub(i, end))
		i = next
	}
	return lines
}

// window turns the arguments start and end, in code points, into byte offsets; false if start lies behind the end.
func (in *interp) window(s Str, start, end Value) (lo, hi int, ok bool) {
	if (start == nil || start == Value(int64(0))) && end == nil {
		return 0, len(s.text), true
	}
	n, _ := in.length(s)
	index := func(v Value, absent int64) int64 {
		if v == nil {
			return absent
		}
		i := in.intArg(v)
		if i < 0 {
			return max(i+n, 0)
		}
		return i
	}
	from, to := index(start, 0), min(index(end, n), n)
	if from > n || from > to {
		return 0, 0, false
	}
	return in.offset(s.text, from), in.offset(s.text, to), true
}

func (in *interp) hasAffix(s Str, a []Value, has func(s, affix string) bool) Value {
	affixes := []Value{a[0]}
	if t, ok := a[0].(*Tuple); ok {
		affixes = t.items
	}
	lo, hi, ok := in.window(s, a[1], a[2])
	for _, v := range affixes {
		in.step(1)
		affix, isStr := v.(Str)
		if !isStr {
			if u, isUndef := v.(*undefined); isUndef {
				in.failUndefined(u)
			}
			in.fail("first arg must be str or a tuple of str, not %s", typeName(v))
		}
		in.step(int64(len(affix.text)) / 1024)
		if ok && has(s.text[lo:hi], affix.text) {
			return true
		}
	}
	return false
}

// index returns the place of a[0] in code points, or -1.
func (in *interp) index(s Str, a []Value, find func(s, sub string) int) Value {
	sub := in.strArg(a[0]).text
	lo, hi, ok := in.window(s, a[1], a[2])
	if !ok {
		return int64(-1)
	}
	in.step(int64(len(s.text)) / 64)
	at := find(s.text[lo:hi], sub)
	if at < 0 {
		return int64(-1)
	}
	return int64(utf8.RuneCountInString(s.text[:lo+at]))
}

func (in *interp) mustIndex(s Str, a []Value, find func(s, sub string) int) Value {
	v := in.index(s, a, find)
	if v == Value(int64(-1)) {
		in.fail("substring not found")
	}
	return v
}

func (in *interp) partition(s Str, sep string, last bool) Value {
	if sep == "" {
		in.fail("empty separator")
	}
	in.step(int64(len(s.text)) / 64)
	at := strings.Index(s.text, sep)
	if last {
		at = strings.LastIndex(s.text, sep)
	}
	switch {
	case at >= 0:
		end := at + len(sep)
		return &Tuple{items: []Value{s.sub(0, at), s.sub(at, end), s.sub(end, len(s.text))}}
	case last:
		return &Tuple{items: []Value{Str{}, Str{}, s}}
	}
	return &Tuple{items: []Value{s, Str{}, Str{}}}
}

// pad fills a text up to a width in code points: '<' sets it to the left, '>' to the right, '^' into the middle.
func (in *interp) pad(s Str, width int64, fill Str, align rune) Str {
	if utf8.RuneCountInString(fill.text) != 1 {
		in.fail("The fill character must be exactly one character long")
	}
	n, _ := in.length(s)
	room := width - n
	if room <= 0 {
		return s
	}
	left := int64(0)
	switch align {
	case '>':
		left = room
	case '^':
		left = room/2 + room&width&1 // as CPython centers
	}
	return in.concat(in.repeat(fill, left), s, in.repeat(fill, room-left))
}

func (in *interp) expandTabs(s Str, size int64) Str {
	b := textBuilder{in: in}
	column := int64(0)
	o := origin{s.marks}
	in.step(int64(len(s.text)))
	for i, r := range s.text {
		switch r {
		case '\t':
			if size > 0 {
				n := size - column%size
				b.textFrom(in.repeat(NewStr(" "), n).text, o.at(i))
				column += n
			}
			continue
		case '\n', '\r':
			column = -1
		}
		column++
		b.textFrom(string(r), o.at(i))
	}
	return b.str()
}
