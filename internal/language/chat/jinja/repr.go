package jinja

import (
	"fmt"
	"math/big"
	"strings"
	"unicode"
	"unicode/utf8"
)

// str is Python's str(v).
func (in *interp) str(v Value) Str {
	switch v := v.(type) {
	case Str:
		v.safe = false
		return v
	case *undefined:
		return Str{}
	case *List, *Tuple, *Dict, *dictView, *namespace:
		b := textBuilder{in: in}
		in.writeRepr(&b, v)
		return b.str()
	}
	return NewStr(in.repr(v))
}

// softStr is str that keeps a safe string safe.
func (in *interp) softStr(v Value) Str {
	if s, ok := v.(Str); ok {
		return s
	}
	return in.str(v)
}

// repr is Python's repr(v), without marks.
func (in *interp) repr(v Value) string {
	b := textBuilder{in: in}
	in.writeRepr(&b, v)
	return string(b.buf)
}

func (in *interp) writeRepr(b *textBuilder, v Value) {
	in.step(1)
	switch v := v.(type) {
	case nil:
		b.text("None")
	case bool:
		if v {
			b.text("True")
		} else {
			b.text("False")
		}
	case int64:
		b.text(fmt.Sprint(v))
	case *big.Int:
		b.text(v.String())
	case float64:
		b.text(floatRepr(v))
	case Str:
		if v.safe {
			b.text("Markup(")
		}
		in.writeStrRepr(b, v)
		if v.safe {
			b.text(")")
		}
	case *List:
		in.writeSeq(b, "[", v.items, "]")
	case *Tuple:
		if len(v.items) == 1 {
			in.writeSeq(b, "(", v.items, ",)")
		} else {
			in.writeSeq(b, "(", v.items, ")")
		}
	case *Dict:
		in.enter()
		defer in.leave()
		b.text("{")
		for i, e := range v.entries {
			if i > 0 {
				b.text(", ")
			}
			in.writeRepr(b, e.key)
			b.text(": ")
			in.writeRepr(b, e.value)
		}
		b.text("}")
	case *dictView:
		items := make([]Value, 0, v.d.Len())
		for _, e := range v.d.entries {
			in.step(1)
			items = append(items, v.item(e))
		}
		b.text("dict_" + v.kind + "(")
		in.writeSeq(b, "[", items, "]")
		b.text(")")
	case *undefined:
		b.text("Undefined")
	case *rangeValue:
		fmt.Fprintf(writerTo{b}, "range(%d, %d", v.start, v.stop)
		if v.step != 1 {
			fmt.Fprintf(writerTo{b}, ", %d", v.step)
		}
		b.text(")")
	case *namespace:
		b.text("<Namespace ")
		in.writeRepr(b, v.attrs)
		b.text(">")
	case *macro:
		if v.node.name == "" {
			b.text("<Macro anonymous>")
		} else {
			b.text("<Macro " + in.repr(NewStr(v.node.name)) + ">")
		}
	case *loopContext:
		fmt.Fprintf(writerTo{b}, "<LoopContext %d/%d>", v.index0+1, v.length(in))
	case *generator:
		b.text("<generator object " + v.name + ">") // Python adds an address, which no template can rely on
	case *function:
		b.text("<built-in method " + v.name + ">")
	default:
		b.text("<" + typeName(v) + " object>")
	}
}

type writerTo struct{ b *textBuilder }

func (w writerTo) Write(p []byte) (int, error) {
	w.b.text(string(p))
	return len(p), nil
}

func (in *interp) writeSeq(b *textBuilder, open string, items []Value, end string) {
	in.enter()
	defer in.leave()
	b.text(open)
	for i, item := range items {
		if i > 0 {
			b.text(", ")
		}
		in.writeRepr(b, item)
	}
	b.text(end)
}

func (in *interp) writeStrRepr(b *textBuilder, s Str) {
	quote := '\''
	if strings.ContainsRune(s.text, '\'') && !strings.ContainsRune(s.text, '"') {
		quote = '"'
	}
	b.text(string(quote))
	b.add(in.mapRunes(s, func(r rune) string {
		switch {
		case r == quote || r == '\\':
			return "\\" + string(r)
		case r == '\n':
			return "\\n"
		case r == '\r':
			return "\\r"
		case r == '\t':
			return "\\t"
		case unicode.IsPrint(r):
			return string(r)
		case r < 0x100:
			return fmt.Sprintf("\\x%02x", r)
		case r < 0x10000:
			return fmt.Sprintf("\\u%04x", r)
		}
		return fmt.Sprintf("\\U%08x", r)
	}))
	b.text(string(quote))
}

// escapeHTML is markupsafe's escape of a string that is not safe yet.
func (in *interp) escapeHTML(s Str) Str {
	if s.safe {
		return s
	}
	in.step(int64(len(s.text)) / 64)
	if strings.ContainsAny(s.text, `&<>"'`) {
		s = in.mapRunes(s, func(r rune) string {
			switch r {
			case '&':
				return "&amp;"
			case '<':
				return "&lt;"
			case '>':
				return "&gt;"
			case '"':
				return "&#34;"
			case '\'':
				return "&#39;"
			}
			return string(r)
		})
	}
	s.safe = true
	return s
}

// validUTF8 replaces what is no UTF-8, so that code points and bytes can be counted alike everywhere.
func validUTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
