package jinja

import "sort"

// method is a built-in method of a type: its parameters and its code. recv is the object it is called on. One whose
// arguments fit no list of parameters has raw instead.
type method[T any] struct {
	params params
	call   func(in *interp, recv T, a []Value) Value
	raw    func(in *interp, recv T, a *callArgs) Value
}

// missing is the default of a parameter that the code must know to be absent.
type missing struct{}

// bound returns the method as a function of its own.
func bound[T any](table map[string]method[T], recv T, name string) (Value, bool) {
	m, ok := table[name]
	if !ok {
		return nil, false
	}
	return &function{name, func(in *interp, a *callArgs) Value {
		if m.raw != nil {
			return m.raw(in, recv, a)
		}
		return m.call(in, recv, in.bind(name+"()", m.params, a))
	}}, true
}

// attribute returns what Python's getattr gives: methods, and the attributes of the few objects that have some.
func (in *interp) attribute(obj Value, name string) (Value, bool) {
	switch v := obj.(type) {
	case Str:
		return strAttribute(v, name)
	case *List:
		return bound(listMethods, v, name)
	case *Dict:
		return bound(dictMethods, v, name)
	case *Tuple:
		for i, f := range v.fields {
			if f == name {
				return v.items[i], true
			}
		}
		return bound(tupleMethods, v, name)
	case *namespace:
		return v.attrs.get(name)
	case *loopContext:
		return v.attribute(in, name)
	case *macro:
		return v.attribute(name)
	case *cycler:
		return v.attribute(name)
	}
	return nil, false
}

func (m *macro) attribute(name string) (Value, bool) {
	switch name {
	case "name":
		if m.node.name == "" {
			return nil, true
		}
		return NewStr(m.node.name), true
	case "arguments":
		t := &Tuple{}
		for _, p := range m.node.params {
			t.items = append(t.items, NewStr(p))
		}
		return t, true
	case "caller":
		return m.node.caller, true
	case "catch_kwargs":
		return m.node.kwargs, true
	case "catch_varargs":
		return m.node.varargs, true
	}
	return nil, false
}

func (c *cycler) attribute(name string) (Value, bool) {
	switch name {
	case "current":
		return c.items[c.pos], true
	case "next":
		return &function{name, func(in *interp, a *callArgs) Value {
			v := c.items[c.pos]
			c.pos = (c.pos + 1) % len(c.items)
			return v
		}}, true
	case "reset":
		return &function{name, func(in *interp, a *callArgs) Value {
			c.pos = 0
			return nil
		}}, true
	}
	return nil, false
}

var (
	listMethods  map[string]method[*List]
	tupleMethods map[string]method[*Tuple]
	dictMethods  map[string]method[*Dict]
)

func init() {
	listMethods = map[string]method[*List]{
		"append": {params: sig("object"), call: func(in *interp, l *List, a []Value) Value {
			l.items = append(l.items, a[0])
			return nil
		}},
		"extend": {params: sig("iterable"), call: func(in *interp, l *List, a []Value) Value {
			l.items = append(l.items, in.collect(a[0])...)
			return nil
		}},
		"insert": {params: sig("index", "object"), call: func(in *interp, l *List, a []Value) Value {
			i := clampIndex(in.intArg(a[0]), len(l.items))
			in.step(int64(len(l.items) - i))
			l.items = append(l.items, nil)
			copy(l.items[i+1:], l.items[i:])
			l.items[i] = a[1]
			return nil
		}},
		"pop": {params: sig("index=-1"), call: func(in *interp, l *List, a []Value) Value {
			n, i := int64(len(l.items)), in.intArg(a[0])
			if n == 0 {
				in.fail("pop from empty list")
			}
			if i < 0 {
				i += n
			}
			if i < 0 || i >= n {
				in.fail("pop index out of range")
			}
			in.step(n - i)
			v := l.items[i]
			l.items = append(l.items[:i], l.items[i+1:]...)
			return v
		}},
		"remove": {params: sig("value"), call: func(in *interp, l *List, a []Value) Value {
			for i, v := range l.items {
				if in.equal(v, a[0]) {
					in.step(int64(len(l.items) - i))
					l.items = append(l.items[:i], l.items[i+1:]...)
					return nil
				}
			}
			in.fail("list.remove(x): x not in list")
			return nil
		}},
		"clear": {params: sig(), call: func(in *interp, l *List, a []Value) Value {
			l.items = nil
			return nil
		}},
		"copy": {params: sig(), call: func(in *interp, l *List, a []Value) Value {
			return &List{in.collect(l)}
		}},
		"reverse": {params: sig(), call: func(in *interp, l *List, a []Value) Value {
			l.items = in.reversed(l)
			return nil
		}},
		"sort": {params: sig("reverse=false"), call: func(in *interp, l *List, a []Value) Value {
			items := in.collect(l)
			in.sort(items, items, truth(a[0]))
			l.items = items
			return nil
		}},
		"index": {params: sig("value", "start=0", "stop=none"), call: func(in *interp, l *List, a []Value) Value {
			return in.indexOf("list", l.items, a)
		}},
		"count": {params: sig("value"), call: func(in *interp, l *List, a []Value) Value {
			return in.countOf(l.items, a[0])
		}},
	}
	tupleMethods = map[string]method[*Tuple]{
		"index": {params: sig("value", "start=0", "stop=none"), call: func(in *interp, t *Tuple, a []Value) Value {
			return in.indexOf("tuple", t.items, a)
		}},
		"count": {params: sig("value"), call: func(in *interp, t *Tuple, a []Value) Value {
			return in.countOf(t.items, a[0])
		}},
	}
	dictMethods = map[string]method[*Dict]{
		"keys":   {params: sig(), call: func(in *interp, d *Dict, a []Value) Value { return &dictView{d, "keys"} }},
		"values": {params: sig(), call: func(in *interp, d *Dict, a []Value) Value { return &dictView{d, "values"} }},
		"items":  {params: sig(), call: func(in *interp, d *Dict, a []Value) Value { return &dictView{d, "items"} }},
		"get": {params: sig("key", "default=none"), call: func(in *interp, d *Dict, a []Value) Value {
			if v, ok := d.get(in.hash(a[0])); ok {
				return v
			}
			return a[1]
		}},
		"pop": {params: sig("key", "default=missing"), call: func(in *interp, d *Dict, a []Value) Value {
			h := in.hash(a[0])
			if v, ok := d.get(h); ok {
				in.deleteKey(d, h)
				return v
			}
			if a[1] == (missing{}) {
				in.fail("pop(): no key %s", in.repr(a[0]))
			}
			return a[1]
		}},
		"update": {raw: func(in *interp, d *Dict, a *callArgs) Value {
			in.update(d, makeDict(in, a))
			return nil
		}},
		"setdefault": {params: sig("key", "default=none"), call: func(in *interp, d *Dict, a []Value) Value {
			h := in.hash(a[0])
			if v, ok := d.get(h); ok {
				return v
			}
			d.set(h, a[0], a[1])
			return a[1]
		}},
		"popitem": {params: sig(), call: func(in *interp, d *Dict, a []Value) Value {
			if d.Len() == 0 {
				in.fail("popitem(): dictionary is empty")
			}
			last := d.entries[d.Len()-1]
			in.deleteKey(d, in.hash(last.key))
			return &Tuple{items: []Value{last.key, last.value}}
		}},
		"clear": {params: sig(), call: func(in *interp, d *Dict, a []Value) Value {
			*d = *NewDict()
			return nil
		}},
		"copy": {params: sig(), call: func(in *interp, d *Dict, a []Value) Value {
			c := NewDict()
			in.update(c, d)
			return c
		}},
	}
}

func clampIndex(i int64, n int) int {
	if i < 0 {
		i += int64(n)
	}
	return int(min(max(i, 0), int64(n)))
}

func (in *interp) deleteKey(d *Dict, hash any) {
	in.step(int64(d.Len()))
	d.delete(hash)
}

func (in *interp) reversed(l *List) []Value {
	items := in.collect(l)
	for i, j := 0, len(items)-1; i < j; i, j = i+1, j-1 {
		items[i], items[j] = items[j], items[i]
	}
	return items
}

func (in *interp) indexOf(kind string, items []Value, a []Value) Value {
	lo, hi := clampIndex(in.intArg(a[1]), len(items)), len(items)
	if a[2] != nil {
		hi = clampIndex(in.intArg(a[2]), len(items))
	}
	for i := lo; i < hi; i++ {
		if in.equal(items[i], a[0]) {
			return int64(i)
		}
	}
	in.fail("%s is not in %s", in.repr(a[0]), kind)
	return nil
}

func (in *interp) countOf(items []Value, v Value) Value {
	n := int64(0)
	for _, item := range items {
		if in.equal(item, v) {
			n++
		}
	}
	return n
}

// sort orders items by their keys with Python's stable sort; keys may be items itself.
func (in *interp) sort(items, keys []Value, reverse bool) {
	order := make([]int, len(items))
	for i := range order {
		order[i] = i
	}
	in.step(int64(len(items)))
	sort.SliceStable(order, func(i, j int) bool {
		if reverse {
			return in.order("<", keys[order[j]], keys[order[i]])
		}
		return in.order("<", keys[order[i]], keys[order[j]])
	})
	sorted := make([]Value, len(items))
	for to, from := range order {
		sorted[to] = items[from]
	}
	copy(items, sorted)
}
