package jinja

import (
	"math/big"
	"strconv"
	"strings"
)

// params are the parameters of a built-in function.
type params struct {
	names    []string
	defaults []Value // of the last parameters
}

// sig reads parameters as they are written in Python: "s", "width=4", "first=false", "d=”".
func sig(spec ...string) params {
	var p params
	for _, s := range spec {
		name, def, has := strings.Cut(s, "=")
		p.names = append(p.names, name)
		if !has {
			continue
		}
		var v Value
		switch {
		case def == "none":
		case def == "missing":
			v = missing{}
		case def == "true", def == "false":
			v = def == "true"
		case strings.HasPrefix(def, "'"):
			v = NewStr(strings.Trim(def, "'"))
		default:
			n, err := strconv.ParseInt(def, 10, 64)
			if err != nil {
				panic("jinja: bad default in signature: " + s)
			}
			v = n
		}
		p.defaults = append(p.defaults, v)
	}
	return p
}

// bind assigns arguments to the parameters of the function called name.
func (in *interp) bind(name string, p params, a *callArgs) []Value {
	if len(a.pos) > len(p.names) {
		in.fail("%s takes at most %d argument(s), got %d", name, len(p.names), len(a.pos))
	}
	out := make([]Value, len(p.names))
	copy(out, a.pos)
	given := make([]bool, len(p.names))
	for i := range a.pos {
		given[i] = true
	}
	for _, k := range a.kw {
		at := -1
		for i, n := range p.names {
			if n == k.name.text {
				at = i
			}
		}
		switch {
		case at < 0:
			in.fail("%s got an unexpected keyword argument '%s'", name, k.name.text)
		case given[at]:
			in.fail("%s got multiple values for argument '%s'", name, k.name.text)
		}
		out[at], given[at] = k.value, true
	}
	for i := range out {
		if given[i] {
			continue
		}
		d := i - len(p.names) + len(p.defaults)
		if d < 0 {
			in.fail("%s is missing the argument '%s'", name, p.names[i])
		}
		out[i] = p.defaults[d]
	}
	return out
}

// intArg returns an argument that must be an integer. Huge ones are capped: no use of one could tell.
func (in *interp) intArg(v Value) int64 {
	switch v := v.(type) {
	case *undefined:
		in.failUndefined(v)
	case bool, int64:
		n, _ := smallInt(v)
		return min(max(n, -(1<<40)), 1<<40)
	case *big.Int:
		return int64(v.Sign()) << 40
	}
	in.fail("'%s' object cannot be interpreted as an integer", typeName(v))
	return 0
}

// strArg returns an argument that must be a string.
func (in *interp) strArg(v Value) Str {
	switch v := v.(type) {
	case Str:
		return v
	case *undefined:
		in.failUndefined(v)
	}
	in.fail("must be str, not %s", typeName(v))
	return Str{}
}

// maxRange is the length that Jinja2's sandbox allows a range.
const maxRange = 100000

// globals are the names that each template knows.
var globals scope

func init() {
	for name, f := range map[string]func(in *interp, a *callArgs) Value{
		"range":           makeRange,
		"dict":            makeDict,
		"namespace":       func(in *interp, a *callArgs) Value { return &namespace{makeDict(in, a).(*Dict)} },
		"cycler":          makeCycler,
		"joiner":          makeJoiner,
		"raise_exception": raiseException,
		"strftime_now":    strftimeNow,
	} {
		globals.set(name, &function{name, f})
	}
}

var messageSig, formatSig, joinerSig = sig("message"), sig("format"), sig("sep=', '")

func raiseException(in *interp, a *callArgs) Value {
	msg := in.str(in.bind("raise_exception()", messageSig, a)[0])
	panic(&Error{Kind: ErrRaised, Line: in.line, Msg: shorten(msg.text)})
}

func strftimeNow(in *interp, a *callArgs) Value {
	return in.strftime(in.now(), in.strArg(in.bind("strftime_now()", formatSig, a)[0]))
}

func makeRange(in *interp, a *callArgs) Value {
	if len(a.kw) > 0 {
		in.fail("range() takes no keyword arguments")
	}
	var n [3]int64
	for i, v := range a.pos {
		if i < 3 {
			n[i] = in.intArg(v)
		}
	}
	r := &rangeValue{step: 1}
	switch len(a.pos) {
	case 1:
		r.stop = n[0]
	case 2:
		r.start, r.stop = n[0], n[1]
	case 3:
		r.start, r.stop, r.step = n[0], n[1], n[2]
	default:
		in.fail("range expected 1 to 3 arguments, got %d", len(a.pos))
	}
	switch {
	case r.step == 0:
		in.fail("range() arg 3 must not be zero")
	case r.step > 0 && r.stop > r.start:
		r.n = (r.stop-r.start-1)/r.step + 1
	case r.step < 0 && r.stop < r.start:
		r.n = (r.start-r.stop-1)/-r.step + 1
	}
	if r.n > maxRange {
		in.exceeded("a range of %d items (at most %d)", r.n, maxRange)
	}
	return r
}

// makeDict is Python's dict(): of a mapping or of pairs, and of keyword arguments.
func makeDict(in *interp, a *callArgs) Value {
	d := NewDict()
	if len(a.pos) > 1 {
		in.fail("dict expected at most 1 argument, got %d", len(a.pos))
	}
	if len(a.pos) == 1 {
		in.update(d, a.pos[0])
	}
	for _, k := range a.kw {
		d.set(k.name.text, k.name, k.value)
	}
	return d
}

func (in *interp) update(d *Dict, from Value) {
	switch from := from.(type) {
	case *Dict:
		in.step(int64(from.Len()))
		for _, e := range from.entries {
			d.set(in.hash(e.key), e.key, e.value)
		}
		return
	case *namespace:
		in.update(d, from.attrs)
		return
	}
	it := in.mustIterate(from)
	for i := 0; ; i++ {
		pair, ok := it()
		if !ok {
			return
		}
		in.step(1)
		if in.iterate(pair) == nil {
			in.fail("cannot convert dictionary update sequence element #%d to a sequence", i)
		}
		kv := in.collect(pair)
		if len(kv) != 2 {
			in.fail("dictionary update sequence element #%d has length %d; 2 is required", i, len(kv))
		}
		d.set(in.hash(kv[0]), kv[0], kv[1])
	}
}

// cycler gives its items in turn.
type cycler struct {
	items []Value
	pos   int
}

func makeCycler(in *interp, a *callArgs) Value {
	if len(a.pos) == 0 || len(a.kw) > 0 {
		in.fail("cycler() takes one or more items")
	}
	return &cycler{items: a.pos}
}

// joiner gives nothing the first time it is called, and its separator from then on.
type joiner struct {
	sep  Value
	used bool
}

func makeJoiner(in *interp, a *callArgs) Value {
	return &joiner{sep: in.bind("joiner()", joinerSig, a)[0]}
}

func (j *joiner) call(in *interp, a *callArgs) Value {
	in.bind("joiner", params{}, a)
	if !j.used {
		j.used = true
		return Str{}
	}
	return j.sep
}

// loopContext is the variable loop.
type loopContext struct {
	iterable Value // nil if it has no length of its own
	pull     iterator
	node     *forStmt
	scope    *scope
	depth0   int

	index0        int
	before        Value
	current       Value
	ahead         []Value // items pulled before their turn
	done          bool    // pull has come to its end
	total         int     // number of items, once known; else 0
	changedBefore *Tuple
}

func (l *loopContext) next(in *interp) (Value, bool) {
	if !l.peek() {
		return nil, false
	}
	v := l.ahead[0]
	l.ahead = l.ahead[1:]
	l.index0++
	l.before, l.current = l.current, v
	return v, true
}

// peek makes sure that the next item is in ahead, if there is one.
func (l *loopContext) peek() bool {
	if len(l.ahead) > 0 {
		return true
	}
	if l.done {
		return false
	}
	v, ok := l.pull()
	if !ok {
		l.done = true
		return false
	}
	l.ahead = append(l.ahead, v)
	return true
}

func (l *loopContext) length(in *interp) int {
	if l.iterable != nil {
		if n, ok := in.length(l.iterable); ok {
			return int(n)
		}
	}
	if l.total == 0 {
		for !l.done {
			v, ok := l.pull()
			if !ok {
				l.done = true
				break
			}
			in.step(1)
			l.ahead = append(l.ahead, v)
		}
		l.total = l.index0 + 1 + len(l.ahead)
	}
	return l.total
}

func (l *loopContext) attribute(in *interp, name string) (Value, bool) {
	i := int64(l.index0)
	switch name {
	case "index":
		return i + 1, true
	case "index0":
		return i, true
	case "revindex":
		return int64(l.length(in)) - i, true
	case "revindex0":
		return int64(l.length(in)) - i - 1, true
	case "first":
		return i == 0, true
	case "last":
		return !l.peek(), true
	case "length":
		return int64(l.length(in)), true
	case "depth":
		return int64(l.depth0 + 1), true
	case "depth0":
		return int64(l.depth0), true
	case "previtem":
		if i == 0 {
			return &undefined{hint: "there is no previous item"}, true
		}
		return l.before, true
	case "nextitem":
		if !l.peek() {
			return &undefined{hint: "there is no next item"}, true
		}
		return l.ahead[0], true
	case "cycle":
		return &function{name, func(in *interp, a *callArgs) Value {
			if len(a.pos) == 0 {
				in.fail("no items for cycling given")
			}
			return a.pos[l.index0%len(a.pos)]
		}}, true
	case "changed":
		return &function{name, func(in *interp, a *callArgs) Value {
			if l.changedBefore != nil && in.equalSeq(l.changedBefore.items, a.pos) {
				return false
			}
			l.changedBefore = &Tuple{items: a.pos}
			return true
		}}, true
	}
	return nil, false
}

// recurse renders the body of a recursive loop for other items.
func (l *loopContext) recurse(in *interp, a *callArgs) Value {
	if !l.node.recursive {
		in.fail("The loop must have the 'recursive' marker to be called recursively.")
	}
	if len(a.pos) != 1 || len(a.kw) > 0 {
		in.fail("loop() takes one iterable")
	}
	line := in.line
	s := in.capture(func() { in.execFor(l.node, a.pos[0], l.scope, l.depth0+1) })
	in.line = line
	return s
}
