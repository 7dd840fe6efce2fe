package jinja

import (
	"strings"
	"unicode/utf8"
)

// textBuilder assembles a string with its marks and accounts for its size.
type textBuilder struct {
	in    *interp
	buf   []byte
	marks []Span
}

// add appends a string with its marks.
func (b *textBuilder) add(s Str) {
	for _, m := range s.marks {
		b.mark(m.Start+len(b.buf), m.End+len(b.buf), m.Source)
	}
	b.text(s.text)
}

// text appends text of the template's own.
func (b *textBuilder) text(s string) {
	b.in.charge(len(s))
	if len(b.buf)+len(s) > b.in.limits.Text {
		b.in.exceeded("a text of more than %d bytes", b.in.limits.Text)
	}
	b.buf = append(b.buf, s...)
}

// textFrom appends text that stands for something from the given source; a negative one means the template.
func (b *textBuilder) textFrom(s string, source int) {
	if source >= 0 && s != "" {
		b.mark(len(b.buf), len(b.buf)+len(s), source)
	}
	b.text(s)
}

func (b *textBuilder) mark(lo, hi, source int) {
	if n := len(b.marks); n > 0 && b.marks[n-1].End == lo && b.marks[n-1].Source == source {
		b.marks[n-1].End = hi
		return
	}
	b.marks = append(b.marks, Span{lo, hi, source})
}

func (b *textBuilder) str() Str { return Str{text: string(b.buf), marks: b.marks} }

// origin tells where the bytes of a string came from; offsets must be asked for in rising order.
type origin struct{ marks []Span }

func (o *origin) at(i int) int {
	for len(o.marks) > 0 && o.marks[0].End <= i {
		o.marks = o.marks[1:]
	}
	if len(o.marks) > 0 && o.marks[0].Start <= i {
		return o.marks[0].Source
	}
	return -1
}

// mapRunes replaces each code point of s by the text that f returns for it, which inherits the mark.
func (in *interp) mapRunes(s Str, f func(r rune) string) Str {
	in.step(int64(len(s.text)) / 8)
	if len(s.marks) == 0 || len(s.marks) == 1 && s.marks[0].Start == 0 && s.marks[0].End == len(s.text) {
		var b strings.Builder
		for _, r := range s.text {
			t := f(r)
			in.charge(len(t))
			b.WriteString(t)
		}
		if b.Len() > in.limits.Text {
			in.exceeded("a text of more than %d bytes", in.limits.Text)
		}
		out := Str{text: b.String(), safe: s.safe}
		if len(s.marks) == 1 && out.text != "" {
			out.marks = []Span{{0, len(out.text), s.marks[0].Source}}
		}
		return out
	}
	b := textBuilder{in: in}
	o := origin{s.marks}
	for i, r := range s.text {
		b.textFrom(f(r), o.at(i))
	}
	out := b.str()
	out.safe = s.safe
	return out
}

// concat joins strings.
func (in *interp) concat(parts ...Str) Str {
	b := textBuilder{in: in}
	for _, p := range parts {
		b.add(p)
	}
	return b.str()
}

// join is Python's sep.join(parts).
func (in *interp) join(sep Str, parts []Str) Str {
	b := textBuilder{in: in}
	for i, p := range parts {
		if i > 0 {
			b.add(sep)
		}
		b.add(p)
	}
	return b.str()
}

// repeat is Python's s * n.
func (in *interp) repeat(s Str, n int64) Str {
	if n <= 0 || s.text == "" {
		return Str{}
	}
	if n > int64(in.limits.Text/len(s.text)) {
		in.exceeded("a text of more than %d bytes", in.limits.Text)
	}
	if len(s.marks) == 0 {
		in.charge(len(s.text) * int(n))
		return Str{text: strings.Repeat(s.text, int(n))}
	}
	b := textBuilder{in: in}
	for ; n > 0; n-- {
		in.step(1)
		b.add(s)
	}
	return b.str()
}

// offset returns the byte offset of code point i of s, len(s) if there are fewer.
func (in *interp) offset(s string, i int64) int {
	if i >= int64(len(s)) {
		return len(s)
	}
	in.step(i / 64)
	at := 0
	for ; i > 0 && at < len(s); i-- {
		if s[at] < utf8.RuneSelf {
			at++
			continue
		}
		_, n := utf8.DecodeRuneInString(s[at:])
		at += n
	}
	return at
}

// find returns the byte offsets of all places where old is found in s without overlap, at most n if n >= 0.
// An empty old is found before each code point and at the end, as in Python.
func (in *interp) find(s, old string, n int64) []int {
	var at []int
	if old == "" {
		for i := range s {
			if n >= 0 && int64(len(at)) >= n {
				return at
			}
			in.step(1)
			at = append(at, i)
		}
		if n < 0 || int64(len(at)) < n {
			at = append(at, len(s))
		}
		return at
	}
	in.step(int64(len(s)) / 64)
	for i := 0; n < 0 || int64(len(at)) < n; {
		k := strings.Index(s[i:], old)
		if k < 0 {
			break
		}
		in.step(4) // a part of the text that follows takes memory for each
		at = append(at, i+k)
		i += k + len(old)
	}
	return at
}

// replace is Python's s.replace(old, new, n).
func (in *interp) replace(s, old, repl Str, n int64) Str {
	places := in.find(s.text, old.text, n)
	if len(places) == 0 {
		return s
	}
	b := textBuilder{in: in}
	last := 0
	for _, at := range places {
		b.add(s.sub(last, at))
		b.add(repl)
		last = at + len(old.text)
	}
	b.add(s.sub(last, len(s.text)))
	out := b.str()
	out.safe = s.safe
	return out
}
