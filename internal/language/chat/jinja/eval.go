package jinja

// scope maps names to values; names that it lacks are looked up in the scope around it. Most scopes live for one round of
// a loop and hold two or three names, for which a list is faster than a map.
type scope struct {
	names  []string
	values []Value
	index  map[string]int // of the names, once there are many
	parent *scope
}

func newScope(parent *scope) *scope { return &scope{parent: parent} }

func (s *scope) find(name string) int {
	if s.index != nil {
		if i, ok := s.index[name]; ok {
			return i
		}
		return -1
	}
	for i, n := range s.names {
		if n == name {
			return i
		}
	}
	return -1
}

func (s *scope) set(name string, v Value) {
	if i := s.find(name); i >= 0 {
		s.values[i] = v
		return
	}
	s.names, s.values = append(s.names, name), append(s.values, v)
	if s.index != nil {
		s.index[name] = len(s.names) - 1
	} else if len(s.names) > 16 {
		s.index = make(map[string]int, len(s.names))
		for i, n := range s.names {
			s.index[n] = i
		}
	}
}

func (s *scope) lookup(name string) (Value, bool) {
	for ; s != nil; s = s.parent {
		if i := s.find(name); i >= 0 {
			return s.values[i], true
		}
	}
	return nil, false
}

// eval computes an expression.
func (in *interp) eval(e expr, sc *scope) Value {
	in.step(1)
	switch e := e.(type) {
	case *constExpr:
		return e.value
	case *nameExpr:
		if v, ok := sc.lookup(e.name); ok {
			return v
		}
		return undefinedName(e.name)
	}
	in.enter()
	defer in.leave()
	switch e := e.(type) {
	case *attrExpr:
		obj := in.eval(e.obj, sc)
		in.line = e.line
		return in.getAttr(obj, e.name)
	case *itemExpr:
		obj := in.eval(e.obj, sc)
		key := in.eval(e.key, sc)
		in.line = e.line
		return in.getItem(obj, key)
	case *sliceExpr:
		obj := in.eval(e.obj, sc)
		start, stop, step := in.evalOptional(e.start, sc), in.evalOptional(e.stop, sc), in.evalOptional(e.step, sc)
		in.line = e.line
		return in.slice(obj, start, stop, step)
	case *callExpr:
		fn := in.eval(e.fn, sc)
		a := in.evalArgs(&e.args, sc)
		in.line = e.line
		return in.call(fn, a)
	case *filterExpr:
		return in.evalFilter(e, sc)
	case *testExpr:
		v := in.eval(e.node, sc)
		a := in.evalArgs(&e.args, sc)
		in.line = e.line
		return in.test(e.name, v, a)
	case *unaryExpr:
		v := in.eval(e.node, sc)
		in.line = e.line
		switch e.op {
		case "not":
			return !truth(v)
		case "-":
			return in.negate(v)
		}
		return in.positive(v)
	case *binaryExpr:
		a := in.eval(e.a, sc)
		b := in.eval(e.b, sc)
		in.line = e.line
		return in.binary(e.op, a, b)
	case *logicExpr:
		a := in.eval(e.a, sc)
		if truth(a) != e.and {
			return a
		}
		return in.eval(e.b, sc)
	case *concatExpr:
		b := textBuilder{in: in}
		for _, part := range e.parts {
			b.add(in.str(in.eval(part, sc)))
		}
		return b.str()
	case *compareExpr:
		return in.evalCompare(e, sc)
	case *condExpr:
		if truth(in.eval(e.test, sc)) {
			return in.eval(e.yes, sc)
		}
		if e.no != nil {
			return in.eval(e.no, sc)
		}
		return &undefined{hint: "the inline if-expression evaluated to false and no else section was defined."}
	case *tupleExpr:
		return &Tuple{items: in.evalAll(e.items, sc)}
	case *listExpr:
		return &List{in.evalAll(e.items, sc)}
	case *dictExpr:
		d := NewDict()
		for i, k := range e.keys {
			key := in.eval(k, sc)
			v := in.eval(e.values[i], sc)
			in.line = e.line
			d.set(in.hash(key), key, v)
		}
		return d
	}
	in.fail("internal error: unknown expression %T", e)
	return nil
}

func (in *interp) evalOptional(e expr, sc *scope) Value {
	if e == nil {
		return nil
	}
	return in.eval(e, sc)
}

func (in *interp) evalAll(list []expr, sc *scope) []Value {
	out := make([]Value, len(list))
	for i, e := range list {
		out[i] = in.eval(e, sc)
	}
	return out
}

func (in *interp) evalCompare(e *compareExpr, sc *scope) Value {
	a := in.eval(e.first, sc)
	ok := true
	for _, c := range e.rest {
		b := in.eval(c.b, sc)
		in.line = e.line
		switch c.op {
		case "==":
			ok = in.equal(a, b)
		case "!=":
			ok = !in.equal(a, b)
		case "in":
			ok = in.contains(b, a)
		case "not in":
			ok = !in.contains(b, a)
		default:
			ok = in.order(c.op, a, b)
		}
		if !ok {
			break
		}
		a = b
	}
	return ok
}

// callArgs are evaluated arguments.
type callArgs struct {
	pos []Value
	kw  []namedValue
}

type namedValue struct {
	name  Str // marked where it is the key of a mapping from outside
	value Value
}

// take removes and returns a keyword argument.
func (a *callArgs) take(name string) (Value, bool) {
	for i, k := range a.kw {
		if k.name.text == name {
			a.kw = append(a.kw[:i:i], a.kw[i+1:]...)
			return k.value, true
		}
	}
	return nil, false
}

func (in *interp) evalArgs(a *args, sc *scope) *callArgs {
	out := &callArgs{}
	if len(a.pos) > 0 {
		out.pos = in.evalAll(a.pos, sc)
	}
	if a.star != nil {
		it := in.mustIterate(in.eval(a.star, sc))
		for v, ok := it(); ok; v, ok = it() {
			in.step(1)
			out.pos = append(out.pos, v)
		}
	}
	for _, k := range a.kw {
		out.kw = append(out.kw, namedValue{Str{text: k.name}, in.eval(k.value, sc)})
	}
	if a.dict != nil {
		v := in.eval(a.dict, sc)
		d, ok := v.(*Dict)
		if !ok {
			in.fail("argument after ** must be a mapping, not %s", typeName(v))
		}
		for _, e := range d.entries {
			key, ok := e.key.(Str)
			if !ok {
				in.fail("keywords must be strings")
			}
			for _, k := range out.kw {
				in.step(1)
				if k.name.text == key.text {
					in.fail("got multiple values for keyword argument '%s'", key.text)
				}
			}
			out.kw = append(out.kw, namedValue{key, e.value})
		}
	}
	return out
}

// call calls what can be called.
func (in *interp) call(fn Value, a *callArgs) Value {
	in.enter()
	defer in.leave()
	switch f := fn.(type) {
	case *function:
		return f.call(in, a)
	case *macro:
		return in.callMacro(f, a)
	case *loopContext:
		return f.recurse(in, a)
	case *joiner:
		return f.call(in, a)
	case *undefined:
		in.failUndefined(f)
	}
	in.fail("'%s' object is not callable", typeName(fn))
	return nil
}

func (in *interp) evalFilter(e *filterExpr, sc *scope) Value {
	var v Value
	if e.node != nil {
		v = in.eval(e.node, sc)
	} else {
		v = in.block
	}
	a := in.evalArgs(&e.args, sc)
	in.line = e.line
	return in.filter(e.name, v, a)
}
