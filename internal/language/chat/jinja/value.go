package jinja

import (
	"fmt"
	"math"
	"math/big"
	"sort"
	"strings"
	"unicode/utf8"
)

// Value is a value as a template sees it: nil (Python's None), bool, int64, *big.Int (only beyond the range of int64),
// float64, Str, *List, *Tuple, *Dict, or one of the package's own kinds (undefined values, ranges, generators, functions).
type Value any

// A Span marks bytes [Start, End) of a text as coming from the input named Source rather than from the template.
type Span struct{ Start, End, Source int }

// Str is a string that remembers which of its bytes came from outside of the template. Every operation of the
// interpreter carries the marks along: slices, trims, concatenations, case changes, JSON escapes. So a rendered prompt tells
// a user's words from those of the template, even where both read the same.
//
// A Str is never changed. Its spans are sorted, not empty, and do not overlap.
type Str struct {
	text  string
	marks []Span
	safe  bool // Markup: escaped for HTML already, by the filters safe and escape
}

// NewStr returns a string without marks. What is no UTF-8 becomes U+FFFD, here and in MarkedStr.
func NewStr(s string) Str { return Str{text: validUTF8(s)} }

// MarkedStr returns a string that came from the given source as a whole.
func MarkedStr(s string, source int) Str {
	if s == "" {
		return Str{}
	}
	s = validUTF8(s)
	return Str{text: s, marks: []Span{{0, len(s), source}}}
}

// String returns the text.
func (s Str) String() string { return s.text }

// Spans returns the marked parts of the text. They belong to the string: do not change them.
func (s Str) Spans() []Span { return s.marks }

// sub returns bytes [i, j), nothing where i >= j.
func (s Str) sub(i, j int) Str {
	if i >= j {
		return Str{safe: s.safe}
	}
	out := Str{text: s.text[i:j], safe: s.safe}
	// Searching keeps the cost in proportion to the result, however many marks s has.
	first := sort.Search(len(s.marks), func(k int) bool { return s.marks[k].End > i })
	for _, m := range s.marks[first:] {
		if m.Start >= j {
			break
		}
		out.marks = append(out.marks, Span{max(m.Start, i) - i, min(m.End, j) - i, m.Source})
	}
	return out
}

// List is a mutable sequence.
type List struct{ items []Value }

// NewList returns a list of the given values.
func NewList(items ...Value) *List { return &List{items} }

// Len returns the number of items.
func (l *List) Len() int { return len(l.items) }

// At returns item i.
func (l *List) At(i int) Value { return l.items[i] }

// Append adds items at the end.
func (l *List) Append(items ...Value) { l.items = append(l.items, items...) }

// Tuple is an immutable sequence. Those that the filter groupby makes have named fields.
type Tuple struct {
	items  []Value
	fields []string
}

// Dict is a mapping that keeps the order of insertion, as Python's does.
type Dict struct {
	entries []entry
	index   map[any]int
}

type entry struct{ key, value Value }

// NewDict returns an empty mapping.
func NewDict() *Dict { return &Dict{index: map[any]int{}} }

// Len returns the number of keys.
func (d *Dict) Len() int { return len(d.entries) }

// Set stores a value under a string key. A key that exists keeps its place.
func (d *Dict) Set(key string, v Value) { d.set(key, NewStr(key), v) }

// Get returns the value of a string key.
func (d *Dict) Get(key string) (Value, bool) { return d.get(key) }

// Each calls f for all entries in order until it returns false. Keys are Str unless a template made the mapping.
func (d *Dict) Each(f func(key, value Value) bool) {
	for _, e := range d.entries {
		if !f(e.key, e.value) {
			return
		}
	}
}

func (d *Dict) get(hash any) (Value, bool) {
	i, ok := d.index[hash]
	if !ok {
		return nil, false
	}
	return d.entries[i].value, true
}

func (d *Dict) set(hash any, key, v Value) {
	if i, ok := d.index[hash]; ok {
		d.entries[i].value = v
		return
	}
	d.index[hash] = len(d.entries)
	d.entries = append(d.entries, entry{key, v})
}

func (d *Dict) delete(hash any) {
	at, ok := d.index[hash]
	if !ok {
		return
	}
	d.entries = append(d.entries[:at:at], d.entries[at+1:]...)
	delete(d.index, hash)
	for h, i := range d.index {
		if i > at {
			d.index[h] = i - 1
		}
	}
}

// Keys of a Dict that are equal in Python hash alike here: 1, 1.0 and True to the int64, strings to the Go string.
type (
	noneKey  struct{}
	undefKey struct{}
	bigKey   string
	tupleKey string
)

// hash returns the comparable Go value that stands for a key, or fails where Python's hash does.
func (in *interp) hash(v Value) any {
	switch v := v.(type) {
	case nil:
		return noneKey{}
	case bool:
		if v {
			return int64(1)
		}
		return int64(0)
	case int64:
		return v
	case *big.Int:
		in.step(int64(v.BitLen()) / 16)
		return bigKey(v.String())
	case float64:
		if v == math.Trunc(v) && !math.IsInf(v, 0) {
			b, _ := big.NewFloat(v).Int(nil)
			return in.hash(normInt(b))
		}
		return v
	case Str:
		in.step(int64(len(v.text)) / 256)
		return v.text
	case *Tuple:
		in.enter()
		defer in.leave()
		var b strings.Builder
		for _, item := range v.items {
			in.step(1)
			h := in.hash(item)
			part := fmt.Sprintf("%T:%v", h, h)
			fmt.Fprintf(&b, "%d:%s", len(part), part)
			in.charge(len(part) + 8)
		}
		return tupleKey(b.String())
	case *undefined:
		return undefKey{}
	case *rangeValue:
		return [4]int64{v.n, v.start * min(v.n, 1), v.step * min(v.n/2, 1), 1}
	case *List, *Dict, *dictView:
		in.fail("unhashable type: '%s'", typeName(v))
	}
	return v // functions, macros, generators: by identity
}

// undefined is the value of what does not exist. It prints as nothing, is false and empty; nearly all else fails.
type undefined struct {
	hint string // the whole message, if set
	obj  Value  // what lacks the name; noObject for a variable
	name Value
}

type noObjectType struct{}

var noObject Value = noObjectType{}

func undefinedName(name string) *undefined { return &undefined{obj: noObject, name: NewStr(name)} }

func (in *interp) undefinedMessage(u *undefined) string {
	if u.hint != "" {
		return u.hint
	}
	if u.obj == noObject {
		return in.repr(u.name) + " is undefined"
	}
	if s, ok := u.name.(Str); ok {
		return fmt.Sprintf("'%s' has no attribute %s", objectName(u.obj), in.repr(s))
	}
	return fmt.Sprintf("%s has no element %s", objectName(u.obj), in.repr(u.name))
}

func (in *interp) failUndefined(u *undefined) { in.fail("%s", in.undefinedMessage(u)) }

// rangeValue is what range() returns.
type rangeValue struct{ start, stop, step, n int64 }

func (r *rangeValue) at(i int64) int64 { return r.start + i*r.step }

// dictView is what the methods keys, values and items of a mapping return: live, with a length, not indexable.
type dictView struct {
	d    *Dict
	kind string // keys, values, items
}

func (v *dictView) item(e entry) Value {
	switch v.kind {
	case "keys":
		return e.key
	case "values":
		return e.value
	}
	return &Tuple{items: []Value{e.key, e.value}}
}

// generator yields its items once, when asked: what select, map and the like return.
type generator struct {
	name string
	pull iterator
}

// iterator returns the next item, or false at the end.
type iterator func() (Value, bool)

// namespace is the one kind of object whose attributes a template may set.
type namespace struct{ attrs *Dict }

// function is a built-in function or a bound method.
type function struct {
	name string
	call func(in *interp, a *callArgs) Value
}

// typeName is Python's type(v).__name__.
func typeName(v Value) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case Str:
		if v.safe {
			return "Markup"
		}
		return "str"
	case *List:
		return "list"
	case *Tuple:
		return "tuple"
	case *Dict:
		return "dict"
	case *undefined:
		return "Undefined"
	case *rangeValue:
		return "range"
	case *dictView:
		return "dict_" + v.kind
	case *generator:
		return "generator"
	case *namespace:
		return "Namespace"
	case *macro:
		return "Macro"
	case *loopContext:
		return "LoopContext"
	case *cycler:
		return "Cycler"
	case *joiner:
		return "Joiner"
	case *function:
		return "builtin_function_or_method"
	}
	return "object"
}

// objectName names the type of a value in messages about missing attributes, as Jinja2 does.
func objectName(v Value) string {
	switch v.(type) {
	case nil:
		return "None"
	case *macro, *loopContext, *undefined:
		return "jinja2.runtime." + typeName(v) + " object"
	case *namespace, *cycler, *joiner:
		return "jinja2.utils." + typeName(v) + " object"
	}
	return typeName(v) + " object"
}

// truth is Python's bool(v).
func truth(v Value) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case *big.Int:
		return v.Sign() != 0
	case float64:
		return v != 0
	case Str:
		return v.text != ""
	case *undefined:
		return false
	}
	if n, ok := length(v); ok {
		return n > 0
	}
	return true
}

// length is Python's len(v); false where there is none.
func length(v Value) (int64, bool) {
	switch v := v.(type) {
	case Str:
		return int64(utf8.RuneCountInString(v.text)), true
	case *List:
		return int64(len(v.items)), true
	case *Tuple:
		return int64(len(v.items)), true
	case *Dict:
		return int64(v.Len()), true
	case *dictView:
		return int64(v.d.Len()), true
	case *rangeValue:
		return v.n, true
	case *undefined:
		return 0, true
	}
	return 0, false
}

// iterate is Python's iter(v); nil where v cannot be iterated over.
func (in *interp) iterate(v Value) iterator {
	i := 0
	switch v := v.(type) {
	case Str:
		return func() (Value, bool) {
			if i >= len(v.text) {
				return nil, false
			}
			in.step(2)
			_, n := utf8.DecodeRuneInString(v.text[i:])
			i += n
			c := v.sub(i-n, i)
			c.safe = false
			return c, true
		}
	case *List:
		return func() (Value, bool) { // a list may grow while it is iterated over
			if i >= len(v.items) {
				return nil, false
			}
			in.step(1)
			i++
			return v.items[i-1], true
		}
	case *Tuple:
		return in.iterate(&List{v.items})
	case *Dict:
		return in.iterate(&dictView{v, "keys"})
	case *dictView:
		n := v.d.Len()
		return func() (Value, bool) {
			if v.d.Len() != n {
				in.fail("dictionary changed size during iteration")
			}
			if i >= n {
				return nil, false
			}
			in.step(1)
			i++
			return v.item(v.d.entries[i-1]), true
		}
	case *rangeValue:
		return func() (Value, bool) {
			if int64(i) >= v.n {
				return nil, false
			}
			in.step(1)
			i++
			return v.at(int64(i - 1)), true
		}
	case *generator:
		return v.pull
	case *undefined:
		return func() (Value, bool) { return nil, false }
	}
	return nil
}

// mustIterate fails where v cannot be iterated over.
func (in *interp) mustIterate(v Value) iterator {
	it := in.iterate(v)
	if it == nil {
		in.fail("'%s' object is not iterable", typeName(v))
	}
	return it
}

// collect is Python's list(v), as a slice of its own.
func (in *interp) collect(v Value) []Value {
	var out []Value
	it := in.mustIterate(v)
	for {
		item, ok := it()
		if !ok {
			return out
		}
		in.step(1)
		out = append(out, item)
	}
}

// Clone returns a deep copy of lists and mappings, so that a template can change it without effect on v.
// If source is not negative, all strings in it, keys too, are marked as coming from that source.
func Clone(v Value, source int) Value {
	switch v := v.(type) {
	case Str:
		if source >= 0 {
			return MarkedStr(v.text, source)
		}
		return v
	case *List:
		out := make([]Value, len(v.items))
		for i, item := range v.items {
			out[i] = Clone(item, source)
		}
		return &List{out}
	case *Tuple:
		out := make([]Value, len(v.items))
		for i, item := range v.items {
			out[i] = Clone(item, source)
		}
		return &Tuple{items: out, fields: v.fields}
	case *Dict:
		out := &Dict{entries: make([]entry, len(v.entries)), index: make(map[any]int, len(v.index))}
		for i, e := range v.entries {
			out.entries[i] = entry{Clone(e.key, source), Clone(e.value, source)}
		}
		for h, i := range v.index {
			out.index[h] = i
		}
		return out
	}
	return v
}

// length is the function of that name with its cost accounted for.
func (in *interp) length(v Value) (int64, bool) {
	if s, ok := v.(Str); ok {
		in.step(int64(len(s.text)) / 64)
	}
	return length(v)
}
