package jinja

import (
	"math"
	"math/big"
	"net/url"
	"strconv"
	"strings"
	"unicode"
)

// filter applies the filter of the given name.
func (in *interp) filter(name string, v Value, a *callArgs) Value {
	f, ok := filters[name]
	if !ok {
		in.fail("No filter named '%s'.", name)
	}
	in.enter()
	defer in.leave()
	if f.raw != nil {
		return f.raw(in, v, a)
	}
	return f.call(in, v, in.bind("filter '"+name+"'", f.params, a))
}

// filters holds the filters of Jinja2, with Hugging Face's tojson. Each has the parameters that it has there.
var filters map[string]method[Value]

func init() {
	filters = map[string]method[Value]{}
	for name, f := range textFilters {
		filters[name] = f
	}
	for name, f := range sequenceFilters() {
		filters[name] = f
	}
	for alias, name := range map[string]string{"d": "default", "e": "escape", "count": "length"} {
		filters[alias] = filters[name]
	}
}

// textFilters are the filters of texts, numbers and single values.
var textFilters = map[string]method[Value]{
	"upper":      {call: func(in *interp, v Value, a []Value) Value { return in.upper(in.softStr(v)) }},
	"lower":      {call: func(in *interp, v Value, a []Value) Value { return in.lower(in.softStr(v)) }},
	"capitalize": {call: func(in *interp, v Value, a []Value) Value { return in.capitalize(in.softStr(v)) }},
	"title":      {call: func(in *interp, v Value, a []Value) Value { return in.titleWords(in.softStr(v)) }},
	"string":     {call: func(in *interp, v Value, a []Value) Value { return in.softStr(v) }},
	"trim": {params: sig("chars=none"), call: func(in *interp, v Value, a []Value) Value {
		return in.strip(in.softStr(v), a[0], true, true)
	}},
	"replace": {params: sig("old", "new", "count=none"), call: func(in *interp, v Value, a []Value) Value {
		n := int64(-1)
		if a[2] != nil {
			n = in.intArg(a[2])
		}
		return in.replace(in.str(v), in.str(a[0]), in.str(a[1]), n)
	}},
	"center": {params: sig("width=80"), call: func(in *interp, v Value, a []Value) Value {
		return in.pad(in.softStr(v), in.intArg(a[0]), NewStr(" "), '^')
	}},
	"indent":    {params: sig("width=4", "first=false", "blank=false"), call: indentFilter},
	"truncate":  {params: sig("length=255", "killwords=false", "end='...'", "leeway=none"), call: truncateFilter},
	"wordcount": {call: wordCount},
	"format": {raw: func(in *interp, v Value, a *callArgs) Value {
		if len(a.kw) == 0 {
			return in.printf(in.softStr(v), &Tuple{items: a.pos})
		}
		if len(a.pos) > 0 {
			in.fail("can't handle positional and keyword arguments at the same time")
		}
		return in.printf(in.softStr(v), makeDict(in, a))
	}},
	"urlencode":   {call: urlEncode},
	"escape":      {call: func(in *interp, v Value, a []Value) Value { return in.escapeHTML(in.softStr(v)) }},
	"forceescape": {call: func(in *interp, v Value, a []Value) Value { return in.escapeHTML(in.str(v)) }},
	"safe": {call: func(in *interp, v Value, a []Value) Value {
		s := in.softStr(v)
		s.safe = true
		return s
	}},
	"abs":   {call: absolute},
	"int":   {params: sig("default=0", "base=10"), call: toInt},
	"float": {params: sig("default=none"), call: toFloatFilter},
	"round": {params: sig("precision=0", "method='common'"), call: roundFilter},
	"filesizeformat": {params: sig("binary=false"), call: func(in *interp, v Value, a []Value) Value {
		return fileSize(in, v, truth(a[0]))
	}},
	"default": {params: sig("default_value=''", "boolean=false"), call: func(in *interp, v Value, a []Value) Value {
		if _, ok := v.(*undefined); ok || truth(a[1]) && !truth(v) {
			return a[0]
		}
		return v
	}},
	"attr": {params: sig("name"), call: func(in *interp, v Value, a []Value) Value {
		name := in.str(a[0])
		if u, ok := v.(*undefined); ok {
			in.failUndefined(u)
		}
		in.step(int64(len(name.text)) / 256)
		if got, ok := in.attribute(v, name.text); ok {
			return got
		}
		return &undefined{obj: v, name: name}
	}},
	"tojson": {params: sig("ensure_ascii=false", "indent=none", "separators=none", "sort_keys=false"), call: toJSONFilter},
}

// titleWords is the filter title, which starts words after spaces, hyphens and opening brackets only.
func (in *interp) titleWords(s Str) Str {
	start, lower := true, in.lowerIn(s.text)
	return in.mapRunes(s, func(r rune) string {
		low := lower(r)
		if isSpace(r) || strings.ContainsRune("-({[<", r) {
			start = true
			return string(r)
		}
		if start {
			start = false
			return upperRune(r)
		}
		return low
	})
}

func indentFilter(in *interp, v Value, a []Value) Value {
	s, ok := v.(Str)
	if !ok {
		if u, isUndef := v.(*undefined); isUndef {
			in.failUndefined(u)
		}
		in.fail("filter 'indent' needs a string, not %s", typeName(v))
	}
	var by Str
	if text, ok := a[0].(Str); ok {
		by = text
	} else {
		by = in.repeat(NewStr(" "), in.intArg(a[0]))
	}
	first, blank := truth(a[1]), truth(a[2])
	b := textBuilder{in: in}
	for i, line := range in.splitLines(in.concat(s, NewStr("\n")), false) {
		if i > 0 {
			b.text("\n")
		}
		if i == 0 && first || i > 0 && (blank || line.text != "") {
			b.add(by)
		}
		b.add(line)
	}
	out := b.str()
	out.safe = s.safe
	return out
}

func truncateFilter(in *interp, v Value, a []Value) Value {
	limit, end, leeway := in.intArg(a[0]), in.strArg(a[2]), int64(5)
	if a[3] != nil {
		leeway = in.intArg(a[3])
	}
	endLen, _ := in.length(end)
	if limit < endLen {
		in.fail("expected length >= %d, got %d", endLen, limit)
	}
	if leeway < 0 {
		in.fail("expected leeway >= 0, got %d", leeway)
	}
	n, ok := in.length(v)
	if ok && n <= limit+leeway {
		return v
	}
	s := in.strArg(v)
	cut := s.sub(0, in.offset(s.text, limit-endLen))
	if !truth(a[1]) {
		if i := strings.LastIndexByte(cut.text, ' '); i >= 0 {
			cut = cut.sub(0, i)
		}
	}
	return in.concat(cut, end)
}

func wordCount(in *interp, v Value, a []Value) Value {
	n, inWord := int64(0), false
	s := in.softStr(v)
	in.step(int64(len(s.text)) / 16)
	for _, r := range s.text {
		is := r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r)
		if is && !inWord {
			n++
		}
		inWord = is
	}
	return n
}

// quoteURL is urllib.parse.quote; in a query a space is a plus and the slash is quoted too.
func (in *interp) quoteURL(v Value, query bool) Str {
	return in.mapRunes(in.str(v), func(r rune) string {
		switch {
		case r == ' ' && !query:
			return "%20"
		case r == '/' && !query, r == '~':
			return string(r)
		}
		return url.QueryEscape(string(r))
	})
}

func urlEncode(in *interp, v Value, a []Value) Value {
	if _, ok := v.(Str); ok || in.iterate(v) == nil {
		return in.quoteURL(v, false)
	}
	if d, ok := v.(*Dict); ok {
		v = &dictView{d, "items"}
	}
	var parts []Str
	for _, pair := range in.collect(v) {
		kv := in.collect(pair)
		if len(kv) != 2 {
			in.fail("filter 'urlencode' needs pairs, got %d values", len(kv))
		}
		parts = append(parts, in.concat(in.quoteURL(kv[0], true), NewStr("="), in.quoteURL(kv[1], true)))
	}
	return in.join(NewStr("&"), parts)
}

func absolute(in *interp, v Value, a []Value) Value {
	switch v := v.(type) {
	case float64:
		return math.Abs(v)
	case *undefined:
		in.failUndefined(v)
	case bool, int64, *big.Int:
		return normInt(new(big.Int).Abs(toBig(v)))
	}
	in.fail("bad operand type for abs(): '%s'", typeName(v))
	return nil
}

// toInt is the filter int: its default stands for what is no number.
func toInt(in *interp, v Value, a []Value) Value {
	var f float64
	switch v := v.(type) {
	case *undefined:
		in.failUndefined(v)
	case bool, int64, *big.Int:
		return normInt(toBig(v))
	case float64:
		f = v
	case Str:
		in.step(int64(len(v.text)))
		base := in.intArg(a[1])
		if base == 0 || base >= 2 && base <= 36 {
			if n, ok := parseInt(v.text, int(base)); ok {
				return n
			}
		}
		var ok bool
		if f, ok = parseFloat(v.text); !ok {
			return a[0]
		}
	default:
		return a[0]
	}
	if math.IsNaN(f) {
		return a[0]
	}
	return in.truncate(f)
}

func toFloatFilter(in *interp, v Value, a []Value) Value {
	switch v := v.(type) {
	case *undefined:
		in.failUndefined(v)
	case Str:
		in.step(int64(len(v.text)))
		if f, ok := parseFloat(v.text); ok {
			return f
		}
	case bool, int64, *big.Int, float64:
		return in.mustFloat(v)
	}
	if a[0] == nil {
		return 0.0
	}
	return a[0]
}

func roundFilter(in *interp, v Value, a []Value) Value {
	if u, ok := v.(*undefined); ok {
		in.failUndefined(u)
	}
	if !isNumber(v) {
		in.fail("type %s doesn't define __round__ method", typeName(v))
	}
	method := in.str(a[1]).text
	if method != "common" && method != "ceil" && method != "floor" {
		in.fail("method must be common, ceil or floor")
	}
	digits := min(max(in.intArg(a[0]), -400), 400)
	in.step(400)
	if method != "common" {
		p := math.Pow(10, float64(digits))
		x := in.mustFloat(v) * p
		if math.IsInf(x, 0) || math.IsNaN(x) {
			in.fail("cannot round %s to %d digits", in.repr(v), digits)
		}
		if method == "ceil" {
			return math.Ceil(x) / p
		}
		return math.Floor(x) / p
	}
	if f, ok := v.(float64); ok {
		return roundTo(f, int(digits))
	}
	n := toBig(v)
	if digits >= 0 {
		return normInt(n)
	}
	// An integer to tens, hundreds, ...: to the nearest multiple, ties to the even one.
	p := new(big.Int).Exp(big.NewInt(10), big.NewInt(-digits), nil)
	q, r := new(big.Int).DivMod(n, p, new(big.Int))
	if c := new(big.Int).Lsh(r, 1).Cmp(p); c > 0 || c == 0 && q.Bit(0) == 1 {
		q.Add(q, big.NewInt(1))
	}
	return in.boundInt(q.Mul(q, p))
}

func fileSize(in *interp, v Value, binary bool) Value {
	n, ok := toFloat(v)
	if s, isStr := v.(Str); isStr {
		n, ok = parseFloat(s.text)
	}
	if !ok {
		in.fail("filter 'filesizeformat' needs a number, not %s", typeName(v))
	}
	base, suffix := 1000.0, "B"
	if binary {
		base, suffix = 1024, "iB"
	}
	switch {
	case n == 1:
		return NewStr("1 Byte")
	case n < base:
		return NewStr(in.repr(in.truncate(n)) + " Bytes")
	}
	prefixes := "kMGTPEZY"
	if binary {
		prefixes = "KMGTPEZY"
	}
	unit := base
	for i := 0; ; i++ {
		if unit *= base; n < unit || i == len(prefixes)-1 {
			return NewStr(strconv.FormatFloat(base*n/unit, 'f', 1, 64) + " " + prefixes[i:i+1] + suffix)
		}
	}
}

func toJSONFilter(in *interp, v Value, a []Value) Value {
	style := jsonStyle{ascii: truth(a[0]), sorted: truth(a[3]), itemSep: NewStr(", "), keySep: NewStr(": ")}
	if a[1] != nil {
		style.pretty, style.itemSep = true, NewStr(",")
		if s, ok := a[1].(Str); ok {
			style.indent = s
		} else {
			style.indent = in.repeat(NewStr(" "), in.intArg(a[1]))
		}
	}
	if a[2] != nil {
		pair := in.collect(a[2])
		if len(pair) != 2 {
			in.fail("separators must be a pair of strings")
		}
		style.itemSep, style.keySep = in.strArg(pair[0]), in.strArg(pair[1])
	}
	return in.toJSON(v, style)
}
