package jinja

// control says how a statement ended.
type control uint8

const (
	goOn control = iota
	breakLoop
	continueLoop
)

func (in *interp) render(body []stmt, vars map[string]Value) Str {
	root := newScope(&globals)
	for name, v := range vars {
		root.set(name, v)
	}
	return in.capture(func() { in.exec(body, root) })
}

func (in *interp) exec(body []stmt, sc *scope) control {
	in.enter()
	defer in.leave()
	for _, s := range body {
		in.step(1)
		switch s := s.(type) {
		case textStmt:
			in.out.add(s.value)
		case outputStmt:
			in.line = s.line
			v := in.eval(s.node, sc)
			in.line = s.line
			in.out.add(in.str(v))
		case *ifStmt:
			branch := s.not
			if truth(in.eval(s.test, sc)) {
				branch = s.body
			}
			if c := in.exec(branch, sc); c != goOn {
				return c
			}
		case *forStmt:
			if c := in.execFor(s, in.eval(s.iter, sc), sc, 0); c != goOn {
				return c
			}
		case setStmt:
			v := in.eval(s.value, sc)
			in.line = s.line
			in.assign(s.target, v, sc)
		case setBlockStmt:
			inner := newScope(sc)
			ended := goOn
			var v Value = in.capture(func() { ended = in.exec(s.body, inner) })
			if ended != goOn { // a break inside drops what was captured
				return ended
			}
			if s.filter != nil {
				v = in.filterBlock(s.filter, v.(Str), inner)
			}
			in.line = s.line
			in.assign(s.target, v, sc)
		case macroStmt:
			sc.set(s.macro.name, &macro{s.macro, sc})
		case callStmt:
			fn := in.eval(s.call.fn, sc)
			a := in.evalArgs(&s.call.args, sc)
			in.line = s.line
			a.kw = append(a.kw, namedValue{Str{text: "caller"}, &macro{s.block, sc}})
			in.out.add(in.str(in.call(fn, a)))
		case filterStmt:
			inner := newScope(sc)
			ended := goOn
			text := in.capture(func() { ended = in.exec(s.body, inner) })
			if ended != goOn {
				return ended
			}
			v := in.filterBlock(s.filter, text, inner)
			in.line = s.line
			in.out.add(in.str(v))
		case withStmt:
			inner := newScope(sc)
			for i, t := range s.targets {
				v := in.eval(s.values[i], sc)
				in.line = s.line
				in.assign(t, v, inner)
			}
			if c := in.exec(s.body, inner); c != goOn {
				return c
			}
		case generationStmt:
			in.exec(s.body, newScope(sc))
		case breakStmt:
			return breakLoop
		case continueStmt:
			return continueLoop
		}
	}
	return goOn
}

func (in *interp) filterBlock(f *filterExpr, text Str, sc *scope) Value {
	outer := in.block
	in.block = text
	v := in.eval(f, sc)
	in.block = outer
	return v
}

// assign stores v in the innermost scope or in an attribute of a namespace.
func (in *interp) assign(t target, v Value, sc *scope) {
	switch {
	case t.attr != "":
		obj, ok := sc.lookup(t.name)
		if !ok {
			obj = undefinedName(t.name)
		}
		ns, ok := obj.(*namespace)
		if !ok {
			in.fail("cannot assign attribute on non-namespace object ('%s' is %s)", t.name, typeName(obj))
		}
		ns.attrs.Set(t.attr, v)
	case t.items != nil:
		it := in.iterate(v)
		if it == nil {
			in.fail("cannot unpack non-iterable %s object", typeName(v))
		}
		for i, item := range t.items {
			part, ok := it()
			if !ok {
				in.fail("not enough values to unpack (expected %d, got %d)", len(t.items), i)
			}
			in.assign(item, part, sc)
		}
		if _, more := it(); more {
			in.fail("too many values to unpack (expected %d)", len(t.items))
		}
	default:
		sc.set(t.name, v)
	}
}

// execFor runs a loop. Items that the loop's condition leaves out are skipped when the next one is asked for, so the
// condition sees what the body before has done, as in Python. A break in its else branch is for the loop around it.
func (in *interp) execFor(s *forStmt, iterable Value, sc *scope, depth int) control {
	in.line = s.line
	pull := in.mustIterate(iterable)
	loop := &loopContext{iterable: iterable, pull: pull, node: s, scope: sc, depth0: depth, index0: -1}
	if s.test != nil {
		loop.iterable = nil
		loop.pull = func() (Value, bool) {
			for {
				v, ok := pull()
				if !ok {
					return nil, false
				}
				inner := newScope(sc)
				in.line = s.line
				in.assign(s.target, v, inner)
				if truth(in.eval(s.test, inner)) {
					return v, true
				}
			}
		}
	}
	ran := false
	for {
		v, ok := loop.next(in)
		if !ok {
			break
		}
		in.step(1)
		inner := newScope(sc)
		inner.names, inner.values = make([]string, 0, 4), make([]Value, 0, 4)
		inner.set("loop", loop)
		in.line = s.line
		in.assign(s.target, v, inner)
		c := in.exec(s.body, inner)
		ran = ran || c == goOn // Jinja2 runs the else branch unless a round came to its end
		if c == breakLoop {
			break
		}
	}
	if !ran && s.not != nil {
		return in.exec(s.not, newScope(sc))
	}
	return goOn
}

// macro is a macro, or the block of a call, with the scope it was defined in.
type macro struct {
	node  *macroNode
	scope *scope
}

func (m *macro) displayName() string {
	if m.node.name == "" {
		return "None"
	}
	return "'" + m.node.name + "'"
}

func (in *interp) callMacro(m *macro, a *callArgs) Value {
	in.enter()
	defer in.leave()
	n := m.node
	sc := newScope(m.scope)
	line := in.line
	missing := make([]bool, len(n.params))
	for i, name := range n.params {
		if i < len(a.pos) {
			sc.set(name, a.pos[i])
		} else if v, ok := a.take(name); ok {
			sc.set(name, v)
		} else {
			missing[i] = true
			sc.set(name, &undefined{hint: "parameter '" + name + "' was not provided"})
		}
	}
	if n.caller {
		caller, ok := a.take("caller")
		if !ok {
			caller = &undefined{hint: "No caller defined"}
		}
		sc.set("caller", caller)
	}
	if n.kwargs {
		d := NewDict()
		for _, k := range a.kw {
			d.set(k.name.text, k.name, k.value)
		}
		sc.set("kwargs", d)
	} else if len(a.kw) > 0 {
		for _, k := range a.kw {
			if k.name.text == "caller" {
				in.fail("macro %s was invoked with two values for the special caller argument. This is most likely a bug.", m.displayName())
			}
		}
		in.fail("macro %s takes no keyword argument '%s'", m.displayName(), a.kw[0].name.text)
	}
	extra := a.pos[min(len(a.pos), len(n.params)):]
	if n.varargs {
		sc.set("varargs", &Tuple{items: extra})
	} else if len(extra) > 0 {
		in.fail("macro %s takes not more than %d argument(s)", m.displayName(), len(n.params))
	}
	for i, d := range n.defaults {
		if at := len(n.params) - len(n.defaults) + i; missing[at] {
			sc.set(n.params[at], in.eval(d, sc))
		}
	}
	s := in.capture(func() { in.exec(n.body, sc) })
	in.line = line
	return s
}
