package jinja

import (
	"strconv"
	"strings"
)

// sequenceFilters are the filters of lists, mappings and all that can be iterated over.
func sequenceFilters() map[string]method[Value] {
	return map[string]method[Value]{
		"length": {call: func(in *interp, v Value, a []Value) Value {
			n, ok := in.length(v)
			if !ok {
				in.fail("object of type '%s' has no len()", typeName(v))
			}
			return n
		}},
		"list": {call: func(in *interp, v Value, a []Value) Value { return &List{in.collect(v)} }},
		"first": {call: func(in *interp, v Value, a []Value) Value {
			if item, ok := in.mustIterate(v)(); ok {
				return item
			}
			return &undefined{hint: "No first item, sequence was empty."}
		}},
		"last": {call: func(in *interp, v Value, a []Value) Value {
			items := in.reversible(v)
			if len(items) == 0 {
				return &undefined{hint: "No last item, sequence was empty."}
			}
			return items[len(items)-1]
		}},
		"reverse": {call: func(in *interp, v Value, a []Value) Value {
			if s, ok := v.(Str); ok {
				return in.slice(s, nil, nil, int64(-1))
			}
			items := &List{in.reversed(&List{in.collect(v)})}
			if _, ok := v.(*generator); ok {
				return items
			}
			return &generator{"reversed", in.iterate(items)}
		}},
		"items": {call: func(in *interp, v Value, a []Value) Value {
			return in.lazily("do_items", func() iterator {
				switch v := v.(type) {
				case *undefined:
					return noItems
				case *Dict:
					return in.iterate(&dictView{v, "items"})
				}
				in.fail("Can only get item pairs from a mapping.")
				return nil
			})
		}},
		"join": {params: sig("d=''", "attribute=none"), call: func(in *interp, v Value, a []Value) Value {
			b := textBuilder{in: in}
			sep := in.str(a[0])
			path := attributePath(in, a[1])
			it := in.mustIterate(v)
			for i := 0; ; i++ {
				item, ok := it()
				if !ok {
					return b.str()
				}
				in.step(1)
				if i > 0 {
					b.add(sep)
				}
				b.add(in.str(in.path(item, path, nil)))
			}
		}},
		"sum": {params: sig("attribute=none", "start=0"), call: func(in *interp, v Value, a []Value) Value {
			total := a[1]
			if _, ok := total.(Str); ok {
				in.fail("sum() can't sum strings [use ''.join(seq) instead]")
			}
			path := attributePath(in, a[0])
			for _, item := range in.collect(v) {
				total = in.binary("+", total, in.path(item, path, nil))
			}
			return total
		}},
		"min": {params: sig("case_sensitive=false", "attribute=none"), call: func(in *interp, v Value, a []Value) Value {
			return in.extreme(v, "<", a)
		}},
		"max": {params: sig("case_sensitive=false", "attribute=none"), call: func(in *interp, v Value, a []Value) Value {
			return in.extreme(v, ">", a)
		}},
		"sort": {params: sig("reverse=false", "case_sensitive=false", "attribute=none"), call: func(in *interp, v Value, a []Value) Value {
			items := in.collect(v)
			keys := make([]Value, len(items))
			attributes := []Value{a[2]}
			if s, ok := a[2].(Str); ok {
				attributes = in.split(s, NewStr(","), -1).(*List).items
			}
			paths := make([][]Value, len(attributes))
			for k, attr := range attributes {
				paths[k] = attributePath(in, attr)
			}
			for i, item := range items {
				in.step(int64(len(paths)))
				parts := make([]Value, len(paths))
				for k, path := range paths {
					parts[k] = in.sortKey(in.path(item, path, nil), a[1])
				}
				keys[i] = &List{parts}
			}
			in.sort(items, keys, truth(a[0]))
			return &List{items}
		}},
		"dictsort": {params: sig("case_sensitive=false", "by='key'", "reverse=false"), call: dictSort},
		"unique": {params: sig("case_sensitive=false", "attribute=none"), call: func(in *interp, v Value, a []Value) Value {
			return in.lazily("do_unique", func() iterator {
				it := in.mustIterate(v)
				path := attributePath(in, a[1])
				seen := map[any]bool{}
				return func() (Value, bool) {
					for {
						item, ok := it()
						if !ok {
							return nil, false
						}
						in.step(1)
						if h := in.hash(in.sortKey(in.path(item, path, nil), a[0])); !seen[h] {
							seen[h] = true
							return item, true
						}
					}
				}
			})
		}},
		"groupby": {params: sig("attribute", "default=none", "case_sensitive=false"), call: groupBy},
		"batch":   {params: sig("linecount", "fill_with=none"), call: batch},
		"slice":   {params: sig("slices", "fill_with=none"), call: sliceFilter},
		"map":     {raw: mapFilter},
		"select":  {raw: func(in *interp, v Value, a *callArgs) Value { return in.selection(v, a, false, true) }},
		"reject":  {raw: func(in *interp, v Value, a *callArgs) Value { return in.selection(v, a, false, false) }},
		"selectattr": {raw: func(in *interp, v Value, a *callArgs) Value {
			return in.selection(v, a, true, true)
		}},
		"rejectattr": {raw: func(in *interp, v Value, a *callArgs) Value {
			return in.selection(v, a, true, false)
		}},
	}
}

// lazily returns a generator whose code, like that of Python's, does not run before the first item is asked for.
func (in *interp) lazily(name string, start func() iterator) Value {
	var pull iterator
	return &generator{name, func() (Value, bool) {
		in.enter() // generators may be stacked
		defer in.leave()
		if pull == nil {
			pull = start()
		}
		return pull()
	}}
}

func noItems() (Value, bool) { return nil, false }

// reversible returns the items of what Python's reversed takes: anything but a generator.
func (in *interp) reversible(v Value) []Value {
	if l, ok := v.(*List); ok {
		return l.items
	}
	if _, ok := v.(*generator); ok {
		in.fail("'generator' object is not reversible")
	}
	return in.collect(v)
}

// attributePath splits "a.b.0" into the keys to look up one after the other; nil stands for the value itself.
func attributePath(in *interp, v Value) []Value {
	switch v := v.(type) {
	case nil:
		return nil
	case Str:
		var path []Value
		for _, part := range strings.Split(v.text, ".") {
			if n, err := strconv.ParseInt(part, 10, 64); err == nil && n >= 0 && part[0] != '+' {
				path = append(path, n)
			} else {
				path = append(path, NewStr(part))
			}
		}
		in.step(int64(len(path)))
		return path
	}
	return []Value{v}
}

// path looks keys up one after the other; a default that is not None stands for what is undefined.
func (in *interp) path(v Value, keys []Value, def Value) Value {
	for _, k := range keys {
		in.step(1)
		v = in.getItem(v, k)
		if _, ok := v.(*undefined); ok && def != nil {
			v = def
		}
	}
	return v
}

// sortKey is what a value is ordered by: strings in lower case unless case counts.
func (in *interp) sortKey(v, caseSensitive Value) Value {
	if s, ok := v.(Str); ok && !truth(caseSensitive) {
		return in.lower(s)
	}
	return v
}

func (in *interp) extreme(v Value, op string, a []Value) Value {
	it := in.mustIterate(v)
	path := attributePath(in, a[1])
	key := func(item Value) Value { return in.sortKey(in.path(item, path, nil), a[0]) }
	best, ok := it()
	if !ok {
		return &undefined{hint: "No aggregated item, sequence was empty."}
	}
	bestKey := key(best)
	for item, ok := it(); ok; item, ok = it() {
		if k := key(item); in.order(op, k, bestKey) {
			best, bestKey = item, k
		}
	}
	return best
}

func dictSort(in *interp, v Value, a []Value) Value {
	d, ok := v.(*Dict)
	if !ok {
		if u, isUndef := v.(*undefined); isUndef {
			in.failUndefined(u)
		}
		in.fail("filter 'dictsort' needs a mapping, not %s", typeName(v))
	}
	by := in.str(a[1]).text
	if by != "key" && by != "value" {
		in.fail(`You can only sort by either "key" or "value"`)
	}
	items := in.collect(&dictView{d, "items"})
	keys := make([]Value, len(items))
	for i, e := range d.entries {
		keys[i] = in.sortKey(e.key, a[0])
		if by == "value" {
			keys[i] = in.sortKey(e.value, a[0])
		}
	}
	in.sort(items, keys, truth(a[2]))
	return &List{items}
}

func groupBy(in *interp, v Value, a []Value) Value {
	path := attributePath(in, a[0])
	items := in.collect(v)
	keys := make([]Value, len(items))
	for i, item := range items {
		keys[i] = in.sortKey(in.path(item, path, a[1]), a[2])
	}
	sorted := append([]Value(nil), keys...)
	in.sort(items, keys, false)
	in.sort(sorted, sorted, false)
	out := &List{}
	for i, item := range items {
		in.step(1)
		if i > 0 && in.equal(sorted[i-1], sorted[i]) {
			group := out.items[len(out.items)-1].(*Tuple).items[1].(*List)
			group.items = append(group.items, item)
			continue
		}
		// The group is named as its first item spells it.
		out.items = append(out.items, &Tuple{
			items:  []Value{in.path(item, path, a[1]), &List{[]Value{item}}},
			fields: []string{"grouper", "list"},
		})
	}
	return out
}

func batch(in *interp, v Value, a []Value) Value {
	return in.lazily("do_batch", func() iterator {
		it := in.mustIterate(v)
		size := in.intArg(a[0])
		var held Value
		holds, done := false, false
		return func() (Value, bool) {
			var row []Value
			if holds {
				row, holds = append(row, held), false
			}
			for !done {
				item, ok := it()
				if !ok {
					done = true
					break
				}
				in.step(1)
				if int64(len(row)) == size {
					held, holds = item, true
					return &List{row}, true
				}
				row = append(row, item)
			}
			if len(row) == 0 {
				return nil, false
			}
			if a[1] != nil && int64(len(row)) < size {
				in.step(size)
				for int64(len(row)) < size {
					row = append(row, a[1])
				}
			}
			return &List{row}, true
		}
	})
}

func sliceFilter(in *interp, v Value, a []Value) Value {
	return in.lazily("sync_do_slice", func() iterator {
		items := in.collect(v)
		slices := in.intArg(a[0])
		if slices == 0 {
			in.fail("integer division or modulo by zero")
		}
		if slices < 0 {
			return noItems
		}
		each, extra := int64(len(items))/slices, int64(len(items))%slices
		k, at := int64(0), int64(0)
		return func() (Value, bool) {
			if k >= slices {
				return nil, false
			}
			in.step(1 + each)
			n := each
			if k < extra {
				n++
			}
			row := append([]Value(nil), items[at:at+n]...)
			if a[1] != nil && k >= extra {
				row = append(row, a[1])
			}
			at += n
			k++
			return &List{row}, true
		}
	})
}

// mapFilter looks up an attribute of each item, or applies a filter to it.
func mapFilter(in *interp, v Value, a *callArgs) Value {
	return in.lazily("sync_do_map", func() iterator {
		if !truth(v) {
			return noItems
		}
		each := in.mapping(a)
		it := in.mustIterate(v)
		return func() (Value, bool) {
			item, ok := it()
			if !ok {
				return nil, false
			}
			in.step(1)
			return each(item), true
		}
	})
}

// mapping returns what the filter map does to each item.
func (in *interp) mapping(a *callArgs) func(item Value) Value {
	if len(a.pos) == 0 {
		attr, ok := a.take("attribute")
		if !ok {
			in.fail("map requires a filter argument")
		}
		def, _ := a.take("default")
		if len(a.kw) > 0 {
			in.fail("Unexpected keyword argument '%s'", a.kw[0].name.text)
		}
		path := attributePath(in, attr)
		return func(item Value) Value { return in.path(item, path, def) }
	}
	name := in.strArg(a.pos[0]).text
	return func(item Value) Value {
		return in.filter(name, item, &callArgs{pos: a.pos[1:], kw: append([]namedValue(nil), a.kw...)})
	}
}

// selection yields the items, or with byAttr those whose attribute, for which a test gives want. Without a test it is
// their truth that counts.
func (in *interp) selection(v Value, a *callArgs, byAttr, want bool) Value {
	return in.lazily("select_or_reject", func() iterator {
		if !truth(v) {
			return noItems
		}
		pos := a.pos
		var path []Value
		if byAttr {
			if len(pos) == 0 {
				in.fail("Missing parameter for attribute name")
			}
			path = attributePath(in, pos[0])
			pos = pos[1:]
		}
		check := truth
		if len(pos) > 0 {
			test := in.strArg(pos[0]).text
			check = func(item Value) bool {
				return in.test(test, item, &callArgs{pos: pos[1:], kw: append([]namedValue(nil), a.kw...)})
			}
		}
		it := in.mustIterate(v)
		return func() (Value, bool) {
			for {
				item, ok := it()
				if !ok {
					return nil, false
				}
				in.step(1)
				if check(in.path(item, path, nil)) == want {
					return item, true
				}
			}
		}
	})
}
