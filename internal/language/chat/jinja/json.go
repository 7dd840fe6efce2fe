package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxJSONDepth bounds the nesting of JSON input.
const maxJSONDepth = 500

// FromJSON reads one JSON value as Python's json.loads does: mappings keep the order of their keys (of a repeated key the
// last value counts), 1 is an int64, 1.0 a float64, and integers beyond int64 are kept in full.
func FromJSON(data []byte) (Value, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	v, err := decodeValue(dec, 0)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("JSON: text after the value at byte %d", dec.InputOffset())
	}
	return v, nil
}

func decodeValue(dec *json.Decoder, depth int) (Value, error) {
	if depth > maxJSONDepth {
		return nil, fmt.Errorf("nested more than %d deep", maxJSONDepth)
	}
	t, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case json.Delim:
		if t == '[' {
			list := &List{}
			for dec.More() {
				item, err := decodeValue(dec, depth+1)
				if err != nil {
					return nil, err
				}
				list.items = append(list.items, item)
			}
			_, err := dec.Token()
			return list, err
		}
		d := NewDict()
		for dec.More() {
			key, err := dec.Token()
			if err != nil {
				return nil, err
			}
			v, err := decodeValue(dec, depth+1)
			if err != nil {
				return nil, err
			}
			d.Set(key.(string), v)
		}
		_, err := dec.Token()
		return d, err
	case json.Number:
		s := t.String()
		if strings.ContainsAny(s, ".eE") {
			f, err := strconv.ParseFloat(s, 64)
			if err != nil && !math.IsInf(f, 0) {
				return nil, err
			}
			return f, nil
		}
		if len(s) > maxIntDigits {
			return nil, fmt.Errorf("integer of more than %d digits", maxIntDigits)
		}
		n, ok := new(big.Int).SetString(s, 10)
		if !ok {
			return nil, fmt.Errorf("invalid number %s", s)
		}
		return normInt(n), nil
	case string:
		return NewStr(t), nil
	}
	return t, nil // bool or nil
}

// ToJSON writes a value as json.dumps(v, ensure_ascii=False) does.
func ToJSON(v Value) (string, error) {
	var s Str
	in := newInterp(Options{})
	err := in.protect(func() { s = in.toJSON(v, jsonStyle{itemSep: NewStr(", "), keySep: NewStr(": ")}) })
	return s.text, err
}

// jsonStyle holds the arguments of json.dumps.
type jsonStyle struct {
	ascii, sorted   bool
	pretty          bool
	indent          Str
	itemSep, keySep Str
}

func (in *interp) toJSON(v Value, style jsonStyle) Str {
	b := textBuilder{in: in}
	in.writeJSON(&b, v, &style, 0)
	return b.str()
}

func (in *interp) writeJSON(b *textBuilder, v Value, style *jsonStyle, level int) {
	in.step(1)
	switch v := v.(type) {
	case nil:
		b.text("null")
	case bool:
		b.text(strconv.FormatBool(v))
	case int64, *big.Int:
		b.text(in.repr(v))
	case float64:
		b.text(jsonFloat(v))
	case Str:
		in.writeJSONStr(b, v, style)
	case *List:
		in.writeJSONSeq(b, v.items, style, level)
	case *Tuple:
		in.writeJSONSeq(b, v.items, style, level)
	case *Dict:
		in.writeJSONDict(b, v, style, level)
	default:
		what := ""
		if u, ok := v.(*undefined); ok {
			what = " (" + in.undefinedMessage(u) + ")"
		}
		in.fail("Object of type %s is not JSON serializable%s", typeName(v), what)
	}
}

func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return floatRepr(f)
}

func (in *interp) jsonBreak(b *textBuilder, style *jsonStyle, level int) {
	if style.pretty {
		b.text("\n")
		b.add(in.repeat(style.indent, int64(level)))
	}
}

func (in *interp) writeJSONSeq(b *textBuilder, items []Value, style *jsonStyle, level int) {
	if len(items) == 0 {
		b.text("[]")
		return
	}
	in.enter()
	defer in.leave()
	b.text("[")
	for i, item := range items {
		if i > 0 {
			b.add(style.itemSep)
		}
		in.jsonBreak(b, style, level+1)
		in.writeJSON(b, item, style, level+1)
	}
	in.jsonBreak(b, style, level)
	b.text("]")
}

func (in *interp) writeJSONDict(b *textBuilder, d *Dict, style *jsonStyle, level int) {
	entries := d.entries
	if len(entries) == 0 {
		b.text("{}")
		return
	}
	in.enter()
	defer in.leave()
	if style.sorted {
		in.step(int64(len(entries)))
		entries = append([]entry(nil), entries...)
		sort.SliceStable(entries, func(i, j int) bool { return in.order("<", entries[i].key, entries[j].key) })
	}
	b.text("{")
	for i, e := range entries {
		if i > 0 {
			b.add(style.itemSep)
		}
		in.jsonBreak(b, style, level+1)
		switch k := e.key.(type) {
		case Str:
			in.writeJSONStr(b, k, style)
		case nil, bool, int64, *big.Int, float64:
			b.text(`"`)
			in.writeJSON(b, k, style, level)
			b.text(`"`)
		default:
			in.fail("keys must be str, int, float, bool or None, not %s", typeName(k))
		}
		b.add(style.keySep)
		in.writeJSON(b, e.value, style, level+1)
	}
	in.jsonBreak(b, style, level)
	b.text("}")
}

func (in *interp) writeJSONStr(b *textBuilder, s Str, style *jsonStyle) {
	b.text(`"`)
	if style.ascii || strings.IndexFunc(s.text, jsonSpecial) >= 0 {
		s = in.mapRunes(s, func(r rune) string { return jsonRune(r, style.ascii) })
	}
	b.add(s)
	b.text(`"`)
}

func jsonSpecial(r rune) bool { return r < 0x20 || r == '"' || r == '\\' }

func jsonRune(r rune, ascii bool) string {
	switch r {
	case '"':
		return `\"`
	case '\\':
		return `\\`
	case '\n':
		return `\n`
	case '\r':
		return `\r`
	case '\t':
		return `\t`
	case '\f':
		return `\f`
	case '\b':
		return `\b`
	}
	switch {
	case r < 0x20 || ascii && r >= 0x7f && r < 0x10000:
		return fmt.Sprintf(`\u%04x`, r)
	case ascii && r >= 0x10000:
		r -= 0x10000
		return fmt.Sprintf(`\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
	case r < utf8.RuneSelf:
		return asciiChars[r : r+1]
	}
	return string(r)
}

// asciiChars spares an allocation for each character that stands for itself.
var asciiChars = func() string {
	var b [utf8.RuneSelf]byte
	for i := range b {
		b[i] = byte(i)
	}
	return string(b[:])
}()
