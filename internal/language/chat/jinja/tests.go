package jinja

import (
	"math/big"
	"unicode"
)

// test applies the test of the given name: v is name(args).
func (in *interp) test(name string, v Value, a *callArgs) bool {
	t, ok := tests[name]
	if !ok {
		in.fail("No test named '%s'.", name)
	}
	in.enter()
	defer in.leave()
	return t.call(in, v, in.bind("test '"+name+"'", t.params, a)).(bool)
}

// tests holds the tests of Jinja2.
var tests map[string]method[Value]

func init() {
	plain := func(f func(v Value) bool) method[Value] {
		return method[Value]{call: func(in *interp, v Value, a []Value) Value { return f(v) }}
	}
	binary := func(f func(in *interp, v, other Value) bool) method[Value] {
		return method[Value]{params: sig("other"), call: func(in *interp, v Value, a []Value) Value { return f(in, v, a[0]) }}
	}
	compare := func(op string) method[Value] {
		return binary(func(in *interp, v, other Value) bool { return in.order(op, v, other) })
	}
	remainder := func(in *interp, v, n Value) Value {
		if u, ok := v.(*undefined); ok {
			in.failUndefined(u)
		}
		return in.binary("%", v, n)
	}
	eq := binary(func(in *interp, v, other Value) bool { return in.equal(v, other) })
	ne := binary(func(in *interp, v, other Value) bool { return !in.equal(v, other) })
	tests = map[string]method[Value]{
		"defined":   plain(func(v Value) bool { return !isUndefined(v) }),
		"undefined": plain(isUndefined),
		"none":      plain(func(v Value) bool { return v == nil }),
		"boolean":   plain(isBool),
		"true":      plain(func(v Value) bool { b, ok := v.(bool); return ok && b }),
		"false":     plain(func(v Value) bool { b, ok := v.(bool); return ok && !b }),
		"integer":   plain(func(v Value) bool { return isInt(v) }),
		"float":     plain(func(v Value) bool { _, ok := v.(float64); return ok }),
		"number":    plain(isNumber),
		"string":    plain(func(v Value) bool { _, ok := v.(Str); return ok }),
		"mapping":   plain(func(v Value) bool { _, ok := v.(*Dict); return ok }),
		"sequence":  plain(isSequence),
		"iterable": {call: func(in *interp, v Value, a []Value) Value {
			_, isLoop := v.(*loopContext)
			return isLoop || in.iterate(v) != nil
		}},
		"callable": plain(isCallable),
		"escaped":  plain(func(v Value) bool { s, ok := v.(Str); return ok && s.safe }),
		"lower": {call: func(in *interp, v Value, a []Value) Value {
			return in.isCase(v, unicode.IsLower, unicode.IsUpper)
		}},
		"upper": {call: func(in *interp, v Value, a []Value) Value {
			return in.isCase(v, unicode.IsUpper, unicode.IsLower)
		}},
		"odd": {call: func(in *interp, v Value, a []Value) Value {
			return in.equal(remainder(in, v, int64(2)), int64(1))
		}},
		"even": {call: func(in *interp, v Value, a []Value) Value {
			return in.equal(remainder(in, v, int64(2)), int64(0))
		}},
		"divisibleby": {params: sig("num"), call: func(in *interp, v Value, a []Value) Value {
			return in.equal(remainder(in, v, a[0]), int64(0))
		}},
		"filter": {call: func(in *interp, v Value, a []Value) Value { return in.named(filters, v) }},
		"test":   {call: func(in *interp, v Value, a []Value) Value { return in.named(tests, v) }},
		"sameas": binary(same),
		"in":     {params: sig("seq"), call: func(in *interp, v Value, a []Value) Value { return in.contains(a[0], v) }},
		"==":     eq, "eq": eq, "equalto": eq,
		"!=": ne, "ne": ne,
		"<": compare("<"), "lt": compare("<"), "lessthan": compare("<"),
		"<=": compare("<="), "le": compare("<="),
		">": compare(">"), "gt": compare(">"), "greaterthan": compare(">"),
		">=": compare(">="), "ge": compare(">="),
	}
}

func (in *interp) isCase(v Value, is, other func(rune) bool) bool {
	s := in.str(v).text
	in.step(int64(len(s)) / 16)
	return isCase(s, is, other)
}

func (in *interp) named(table map[string]method[Value], v Value) bool {
	s, ok := v.(Str)
	in.step(int64(len(s.text)) / 256)
	_, has := table[s.text]
	return ok && has
}

func isUndefined(v Value) bool { _, ok := v.(*undefined); return ok }

func isBool(v Value) bool { _, ok := v.(bool); return ok }

func isInt(v Value) bool {
	switch v.(type) {
	case int64, *big.Int:
		return true
	}
	return false
}

func isSequence(v Value) bool {
	switch v.(type) {
	case Str, *List, *Tuple, *Dict, *rangeValue, *undefined:
		return true
	}
	return false
}

func isCallable(v Value) bool {
	switch v.(type) {
	case *function, *macro, *loopContext, *joiner, *undefined:
		return true
	}
	return false
}

// same is Python's is: the same object. Equal constants of one type count as the same.
func same(in *interp, v, other Value) bool {
	switch v.(type) {
	case nil, bool, int64, float64, Str, *big.Int:
		return typeName(v) == typeName(other) && in.equal(v, other)
	}
	switch other.(type) {
	case Str:
		return false
	}
	return v == other
}
