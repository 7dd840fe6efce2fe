package jinja

import (
	"math/big"
	"strings"
	"unicode/utf8"
)

// binary computes a op b for the operators of arithmetic.
func (in *interp) binary(op string, a, b Value) Value {
	for _, v := range []Value{a, b} {
		if u, ok := v.(*undefined); ok {
			if s, isStr := a.(Str); op == "%" && isStr {
				return in.printf(s, b)
			}
			in.failUndefined(u)
		}
	}
	if isNumber(a) && isNumber(b) {
		return in.arith(op, a, b)
	}
	switch op {
	case "+":
		switch x := a.(type) {
		case Str:
			if y, ok := b.(Str); ok {
				return in.addStr(x, y)
			}
			in.fail("can only concatenate str (not %q) to str", typeName(b))
		case *List:
			if y, ok := b.(*List); ok {
				return &List{in.addSeq(x.items, y.items)}
			}
			in.fail("can only concatenate list (not %q) to list", typeName(b))
		case *Tuple:
			if y, ok := b.(*Tuple); ok {
				return &Tuple{items: in.addSeq(x.items, y.items)}
			}
			in.fail("can only concatenate tuple (not %q) to tuple", typeName(b))
		}
	case "*":
		if n, ok := repeatCount(b); ok {
			if v := in.repeated(a, n); v != nil {
				return v
			}
		}
		if n, ok := repeatCount(a); ok {
			if v := in.repeated(b, n); v != nil {
				return v
			}
		}
	case "%":
		if s, ok := a.(Str); ok {
			return in.printf(s, b)
		}
	}
	name := op
	if op == "**" {
		name = "** or pow()"
	}
	in.fail("unsupported operand type(s) for %s: '%s' and '%s'", name, typeName(a), typeName(b))
	return nil
}

// addStr is a + b for strings. One that is safe makes the other escaped, as markupsafe does.
func (in *interp) addStr(a, b Str) Str {
	if a.safe != b.safe {
		if a.safe {
			b = in.escapeHTML(b)
		} else {
			a = in.escapeHTML(a)
		}
	}
	out := in.concat(a, b)
	out.safe = a.safe
	return out
}

func (in *interp) addSeq(a, b []Value) []Value {
	in.step(int64(len(a) + len(b)))
	return append(append(make([]Value, 0, len(a)+len(b)), a...), b...)
}

func repeatCount(v Value) (int64, bool) {
	if b, ok := v.(*big.Int); ok {
		if b.Sign() < 0 {
			return 0, true
		}
		return 1 << 62, true
	}
	return smallInt(v)
}

func (in *interp) repeated(v Value, n int64) Value {
	repeat := func(items []Value) []Value {
		if n <= 0 || len(items) == 0 {
			return nil
		}
		if n > in.limits.Steps/int64(len(items)) {
			in.exceeded("a sequence of more than %d items", in.limits.Steps)
		}
		in.step(n * int64(len(items)))
		out := make([]Value, 0, int(n)*len(items))
		for ; n > 0; n-- {
			out = append(out, items...)
		}
		return out
	}
	switch v := v.(type) {
	case Str:
		return in.repeat(v, n)
	case *List:
		return &List{repeat(v.items)}
	case *Tuple:
		return &Tuple{items: repeat(v.items)}
	}
	return nil
}

// negate is -v.
func (in *interp) negate(v Value) Value {
	switch v := v.(type) {
	case *undefined:
		in.failUndefined(v)
	case float64:
		return -v
	case bool, int64, *big.Int:
		return in.arith("-", int64(0), v)
	}
	in.fail("bad operand type for unary -: '%s'", typeName(v))
	return nil
}

// positive is +v.
func (in *interp) positive(v Value) Value {
	switch v := v.(type) {
	case *undefined:
		in.failUndefined(v)
	case float64, int64, *big.Int:
		return v
	case bool:
		n, _ := smallInt(v)
		return n
	}
	in.fail("bad operand type for unary +: '%s'", typeName(v))
	return nil
}

// equal is Python's a == b.
func (in *interp) equal(a, b Value) bool {
	in.step(1)
	if isNumber(a) && isNumber(b) {
		return compareNumbers(a, b) == 0
	}
	switch x := a.(type) {
	case nil:
		return b == nil
	case Str:
		y, ok := b.(Str)
		in.step(int64(len(x.text)) / 1024)
		return ok && x.text == y.text
	case *List:
		y, ok := b.(*List)
		return ok && (x == y || in.equalSeq(x.items, y.items))
	case *Tuple:
		y, ok := b.(*Tuple)
		return ok && in.equalSeq(x.items, y.items)
	case *Dict:
		y, ok := b.(*Dict)
		return ok && (x == y || in.equalDict(x, y))
	case *undefined:
		_, ok := b.(*undefined)
		return ok
	case *rangeValue:
		y, ok := b.(*rangeValue)
		return ok && x.n == y.n && (x.n == 0 || x.start == y.start && (x.n == 1 || x.step == y.step))
	case *dictView:
		y, ok := b.(*dictView)
		if !ok || x.kind != y.kind || x.kind == "values" || x.d.Len() != y.d.Len() {
			return false
		}
		if x.kind == "items" {
			return in.equalDict(x.d, y.d)
		}
		for h := range x.d.index {
			in.step(1)
			if _, ok := y.d.index[h]; !ok {
				return false
			}
		}
		return true
	case float64, bool, int64, *big.Int:
		return false
	}
	return a == b // pointers of functions and the like
}

func (in *interp) equalSeq(a, b []Value) bool {
	if len(a) != len(b) {
		return false
	}
	in.enter()
	defer in.leave()
	for i := range a {
		if !in.equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

func (in *interp) equalDict(a, b *Dict) bool {
	if a.Len() != b.Len() {
		return false
	}
	in.enter()
	defer in.leave()
	for h, i := range a.index {
		v, ok := b.get(h)
		if !ok || !in.equal(a.entries[i].value, v) {
			return false
		}
	}
	return true
}

// order compares a and b for the operator op (<, <=, >, >=).
func (in *interp) order(op string, a, b Value) bool {
	in.step(1)
	for _, v := range []Value{a, b} {
		if u, ok := v.(*undefined); ok {
			in.failUndefined(u)
		}
	}
	c := 0
	switch x := a.(type) {
	case Str:
		y, ok := b.(Str)
		if !ok {
			in.notOrdered(op, a, b)
		}
		in.step(int64(min(len(x.text), len(y.text))) / 1024)
		c = strings.Compare(x.text, y.text) // the order of UTF-8 is the order of code points
	case *List:
		y, ok := b.(*List)
		if !ok {
			in.notOrdered(op, a, b)
		}
		return in.orderSeq(op, x.items, y.items)
	case *Tuple:
		y, ok := b.(*Tuple)
		if !ok {
			in.notOrdered(op, a, b)
		}
		return in.orderSeq(op, x.items, y.items)
	default:
		if !isNumber(a) || !isNumber(b) {
			in.notOrdered(op, a, b)
		}
		if c = compareNumbers(a, b); c == 2 {
			return false
		}
	}
	return ordered(op, c)
}

func ordered(op string, c int) bool {
	switch op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	}
	return c >= 0
}

func (in *interp) notOrdered(op string, a, b Value) {
	in.fail("'%s' not supported between instances of '%s' and '%s'", op, typeName(a), typeName(b))
}

func (in *interp) orderSeq(op string, a, b []Value) bool {
	in.enter()
	defer in.leave()
	for i := 0; i < len(a) && i < len(b); i++ {
		if !in.equal(a[i], b[i]) {
			return in.order(op, a[i], b[i])
		}
	}
	return ordered(op, len(a)-len(b))
}

// contains is Python's item in container.
func (in *interp) contains(container, item Value) bool {
	switch c := container.(type) {
	case Str:
		s, ok := item.(Str)
		if !ok {
			if u, isUndef := item.(*undefined); isUndef {
				in.fail("'in <string>' requires string as left operand, not Undefined (%s)", in.undefinedMessage(u))
			}
			in.fail("'in <string>' requires string as left operand, not %s", typeName(item))
		}
		in.step(int64(len(c.text)) / 64)
		return strings.Contains(c.text, s.text)
	case *Dict:
		_, ok := c.get(in.hash(item))
		return ok
	case *dictView:
		if c.kind == "keys" {
			return in.contains(c.d, item)
		}
	case *namespace, nil, bool, int64, *big.Int, float64:
		in.fail("argument of type '%s' is not iterable", typeName(container))
	}
	it := in.iterate(container)
	if it == nil {
		in.fail("argument of type '%s' is not iterable", typeName(container))
	}
	for {
		v, ok := it()
		if !ok {
			return false
		}
		if in.equal(v, item) {
			return true
		}
	}
}

// getAttr is obj.name: a method first, then an item of that name.
func (in *interp) getAttr(obj Value, name string) Value {
	if u, ok := obj.(*undefined); ok {
		in.failUndefined(u)
	}
	if v, ok := in.attribute(obj, name); ok {
		return v
	}
	if d, ok := obj.(*Dict); ok {
		if v, ok := d.get(name); ok {
			return v
		}
	}
	if strings.HasPrefix(name, "__") {
		return &undefined{hint: "access to attribute '" + name + "' of '" + typeName(obj) + "' object is unsafe.", obj: obj, name: NewStr(name)}
	}
	return &undefined{obj: obj, name: NewStr(name)}
}

// getItem is obj[key]: an item first, then a method of that name.
func (in *interp) getItem(obj, key Value) Value {
	if u, ok := obj.(*undefined); ok {
		in.failUndefined(u)
	}
	if v, ok := in.item(obj, key); ok {
		return v
	}
	if s, ok := key.(Str); ok {
		in.step(int64(len(s.text)) / 256)
		if v, ok := in.attribute(obj, s.text); ok {
			return v
		}
	}
	return &undefined{obj: obj, name: key}
}

// item is Python's obj[key]; false where that raises.
func (in *interp) item(obj, key Value) (Value, bool) {
	if d, ok := obj.(*Dict); ok {
		switch key.(type) {
		case *List, *Dict, *dictView:
			return nil, false
		}
		return d.get(in.hash(key))
	}
	i, ok := smallInt(key)
	if !ok {
		return nil, false
	}
	at := func(n int64) (int64, bool) {
		if i < 0 {
			return i + n, i+n >= 0
		}
		return i, i < n
	}
	switch v := obj.(type) {
	case *List:
		if i, ok := at(int64(len(v.items))); ok {
			return v.items[i], true
		}
	case *Tuple:
		if i, ok := at(int64(len(v.items))); ok {
			return v.items[i], true
		}
	case *rangeValue:
		if i, ok := at(v.n); ok {
			return v.at(i), true
		}
	case Str:
		if i < 0 {
			in.step(int64(len(v.text)) / 64)
			n, _ := length(v)
			if i += n; i < 0 {
				return nil, false
			}
		}
		lo := in.offset(v.text, i)
		if lo >= len(v.text) {
			return nil, false
		}
		_, n := utf8.DecodeRuneInString(v.text[lo:])
		return v.sub(lo, lo+n), true
	}
	return nil, false
}

// slice is obj[start:stop:step]; parts that are nil are absent.
func (in *interp) slice(obj, start, stop, step Value) Value {
	if u, ok := obj.(*undefined); ok {
		in.failUndefined(u)
	}
	var n int64
	switch v := obj.(type) {
	case Str:
		in.step(int64(len(v.text)) / 64)
		n, _ = length(v)
	case *List, *Tuple, *rangeValue:
		n, _ = length(v)
	case *Dict:
		in.fail("unhashable type: 'slice'")
	default:
		in.fail("'%s' object is not subscriptable", typeName(obj))
	}
	by := int64(1)
	if step != nil {
		by = in.sliceIndex(step)
		if by == 0 {
			in.fail("slice step cannot be zero")
		}
		by = max(by, -(1 << 62))
	}
	lowest, highest := int64(0), n
	if by < 0 {
		lowest, highest = -1, n-1
	}
	bound := func(v Value, absent int64) int64 {
		if v == nil {
			return absent
		}
		i := in.sliceIndex(v)
		if i < 0 {
			i = max(i, -(1<<62)) + n
		}
		return min(max(i, lowest), highest)
	}
	lo, hi := bound(start, lowest), bound(stop, highest)
	if by < 0 {
		lo, hi = bound(start, highest), bound(stop, lowest)
	}
	count := int64(0)
	if by > 0 && lo < hi {
		count = (hi-lo-1)/by + 1
	} else if by < 0 && hi < lo {
		count = (lo-hi-1)/-by + 1
	}
	pick := func(items []Value) []Value {
		in.step(count)
		out := make([]Value, count)
		for k := range out {
			out[k] = items[lo+int64(k)*by]
		}
		return out
	}
	switch v := obj.(type) {
	case *List:
		return &List{pick(v.items)}
	case *Tuple:
		return &Tuple{items: pick(v.items)}
	case *rangeValue:
		return &rangeValue{v.at(lo), v.at(hi), by * v.step, count}
	}
	s := obj.(Str)
	if count == 0 {
		return Str{safe: s.safe}
	}
	if by == 1 {
		i := in.offset(s.text, lo)
		return s.sub(i, i+in.offset(s.text[i:], count))
	}
	runes := in.runeOffsets(s.text)
	b := textBuilder{in: in}
	for k := int64(0); k < count; k++ {
		in.step(1)
		i := lo + k*by
		b.add(s.sub(runes[i], runes[i+1]))
	}
	out := b.str()
	out.safe = s.safe
	return out
}

// runeOffsets returns where each code point of s starts, and the length of s.
func (in *interp) runeOffsets(s string) []int {
	in.step(int64(len(s)))
	out := make([]int, 0, len(s)+1)
	for i := range s {
		out = append(out, i)
	}
	return append(out, len(s))
}

func (in *interp) sliceIndex(v Value) int64 {
	switch v := v.(type) {
	case bool, int64:
		n, _ := smallInt(v)
		return n
	case *big.Int:
		if v.Sign() < 0 {
			return -(1 << 62)
		}
		return 1 << 62
	case *undefined:
		in.failUndefined(v)
	}
	in.fail("slice indices must be integers or None or have an __index__ method")
	return 0
}
