package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// cNotice heads generated C, goNotice generated Go, in the form that Go's tools know.
const (
	cNotice  = "/* Code generated from vibrant.h by internal/backend/generate. DO NOT EDIT. */\n"
	goNotice = "// Code generated from csrc/vibrant.h by internal/backend/generate. DO NOT EDIT.\n\n"
)

// goType returns the type of an operand in package kernel.
func (h *header) goType(f *field) string {
	switch {
	case f.array != "":
		one := *f
		one.array = ""
		return "[" + goName(strings.TrimPrefix(f.array, "VB_")) + "]" + h.goType(&one)
	case f.points():
		return "Ptr"
	case f.result():
		return "bool"
	case values[f.ctype] != "":
		return values[f.ctype]
	case f.ctype == "vb_dtype":
		return "DType"
	case f.ctype == "int64_t":
		return "int"
	case f.ctype == "float":
		return "float32"
	case f.ctype == "int":
		return "bool"
	case h.structs[f.ctype] != nil:
		return "*" + typeName(f.ctype)
	case slices.ContainsFunc(h.enums, func(e *enum) bool { return e.name == f.ctype }):
		return typeName(f.ctype)
	}
	return ""
}

// lists returns csrc/operations.h.
func (h *header) lists() (string, error) {
	var b strings.Builder
	b.WriteString(cNotice)
	for _, list := range []struct {
		comment, macro string
		composed       bool
	}{
		{"Every device has a kernel of each of these.", "VB_KERNELS", false},
		{"A device that has no kernel of these leaves their place in its table empty: ops.c composes them.", "VB_COMPOSED", true},
	} {
		fmt.Fprintf(&b, "\n/* %s */\n#define %s(X)", list.comment, list.macro)
		for _, o := range h.ops {
			if o.composed == list.composed {
				fmt.Fprintf(&b, " \\\n    X(%s)", o.name)
			}
		}
		b.WriteString("\n")
	}
	b.WriteString("\n/* X(name, elements of a block, bytes of a block) for each type of data. */\n#define VB_DTYPES(X)")
	err := h.dtypes(func(name, _, elements, bytes string) {
		fmt.Fprintf(&b, " \\\n    X(%s, %s, %s)", name, elements, bytes)
	})
	b.WriteString("\n")
	return b.String(), err
}

// dtypes calls f with each type of data: its name, number, and the elements and bytes of a block.
func (h *header) dtypes(f func(name, number, elements, bytes string)) error {
	for _, e := range h.enums {
		for _, v := range e.values {
			if e.name != "vb_dtype" {
				break
			}
			m := blockPattern.FindStringSubmatch(v.doc)
			if m == nil {
				return fmt.Errorf("vibrant.h: %s: %q does not say how many elements lie in how many bytes", v.name, v.doc)
			}
			f(strings.TrimPrefix(v.name, "VB_"), v.number, m[1], m[2])
		}
	}
	return nil
}

var blockPattern = regexp.MustCompile(`^(\d+) elements? in (\d+) bytes$`)

// types returns dtype/types.go.
func (h *header) types() (string, error) {
	var constants, table strings.Builder
	err := h.dtypes(func(name, number, elements, bytes string) {
		fmt.Fprintf(&constants, "\t%s Type = %s\n", name, number)
		fmt.Fprintf(&table, "\t{%s, %q, %s, %s},\n", name, name, elements, bytes)
	})
	return goNotice + "package dtype\n\n// The types that every backend computes on.\nconst (\n" + constants.String() +
		")\n\nvar table = []row{\n" + table.String() + "}\n", err
}

// typesOf returns the types under the names of another package: internal/backend/kernel/types.go and tensor/types.go.
func (h *header) typesOf(name string) (string, error) {
	var b strings.Builder
	b.WriteString(goNotice + "package " + name + "\n\nimport \"github.com/vibrant-ml/vibrant/dtype\"\n\n// The element types.\nconst (\n")
	err := h.dtypes(func(name, _, _, _ string) { fmt.Fprintf(&b, "\t%s = dtype.%s\n", name, name) })
	b.WriteString(")\n")
	return b.String(), err
}

// catalogue returns internal/backend/kernel/operations.go.
func (h *header) catalogue() (string, error) {
	var b strings.Builder
	b.WriteString(goNotice + "package kernel\n")
	for _, name := range slices.Sorted(maps.Keys(h.most)) {
		fmt.Fprintf(&b, "\n// %s is VB_%s.\nconst %s = %s\n", goName(name), name, goName(name), h.most[name])
	}
	for _, e := range h.used() {
		b.WriteString("\n" + comment("", typeName(e.name)+" is "+e.name+sentence(e.doc)))
		fmt.Fprintf(&b, "type %s int\n\nconst (\n", typeName(e.name))
		for _, v := range e.values {
			b.WriteString(comment("\t", valueName(e, v.name)+" is "+v.name+sentence(v.doc)))
			fmt.Fprintf(&b, "\t%s %s = %s\n", valueName(e, v.name), typeName(e.name), v.number)
		}
		b.WriteString(")\n")
	}
	for _, a := range h.order {
		fmt.Fprintf(&b, "\n// %s is %s.\ntype %s struct {\n", typeName(a.name), a.name, typeName(a.name))
		for _, f := range a.operands() {
			t := h.goType(f)
			if t == "" {
				return "", fmt.Errorf("%s: %s has type %s, which has no form in Go", a.name, f.name, f.ctype)
			}
			fmt.Fprintf(&b, "\t%s %s", goName(f.name), t)
			if f.note != "" {
				fmt.Fprintf(&b, " // %s", f.note)
			}
			b.WriteString("\n")
		}
		b.WriteString("}\n")
	}
	b.WriteString("\n// Kernels are the operations, enqueued in the order of their stream: see vibrant.h for what each computes.\ntype Kernels interface {")
	section := ""
	for _, o := range h.ops {
		if o.section != section {
			section = o.section
			fmt.Fprintf(&b, "\n\t// %s.\n\n", title(section))
		}
		signature, err := h.signature(o, "")
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "\t%s\n", signature)
	}
	b.WriteString("}\n")
	return b.String(), nil
}

// operands returns the fields that callers fill in: all but the size.
func (a *args) operands() (all []*field) {
	for _, f := range a.fields {
		if f.ctype != "size_t" {
			all = append(all, f)
		}
	}
	return all
}

// used returns the enumerations that operands have, steps of expressions, and what calls return.
func (h *header) used() (all []*enum) {
	for _, e := range h.enums {
		has := func(f *field) bool { return f.ctype == e.name }
		if e.name != "vb_dtype" && (e.name == "vb_element_op" || e.name == "vb_status" || slices.ContainsFunc(h.order, func(a *args) bool { return slices.ContainsFunc(a.fields, has) }) ||
			slices.ContainsFunc(h.ops, func(o *op) bool { return slices.ContainsFunc(o.params, has) })) {
			all = append(all, e)
		}
	}
	return all
}

// sentence returns how a sentence ends that goes on with the text, if there is any.
func sentence(text string) string {
	if text == "" {
		return "."
	}
	return ": " + strings.TrimSuffix(text, ".") + "."
}

// comment returns the text as lines of a comment of Go.
func comment(indent, text string) string {
	var b strings.Builder
	line := indent + "//"
	for _, word := range strings.Fields(text) {
		if len(line)+len(word) > 115 {
			b.WriteString(line + "\n")
			line = indent + "//"
		}
		line += " " + word
	}
	return b.String() + line + "\n"
}

// signature returns an operation's method: its name, operands in the order of vibrant.h, and what it returns.
func (h *header) signature(o *op, qualifier string) (string, error) {
	var names, types, results []string
	for _, f := range o.params {
		t := h.goType(f)
		switch {
		case t == "":
			return "", fmt.Errorf("vb_%s: %s has type %s, which has no form in Go", o.name, f.name, f.ctype)
		case f.result():
			results = append(results, local(f.name)+" bool")
			continue
		case strings.HasPrefix(t, "*"):
			t = "*" + qualifier + t[1:]
		case strings.ToUpper(t[:1]) == t[:1]:
			t = qualifier + t
		}
		names, types = append(names, local(f.name)), append(types, t)
	}
	var list []string
	for i, n := range names {
		if i+1 < len(names) && types[i+1] == types[i] {
			list = append(list, n)
			continue
		}
		list = append(list, n+" "+types[i])
	}
	returns := "error"
	if len(results) > 0 {
		returns = "(" + strings.Join(append(results, "err error"), ", ") + ")"
	}
	return fmt.Sprintf("%s(%s) %s", goName(o.name), strings.Join(list, ", "), returns), nil
}

// results returns the operands of an operation that it sets for its caller.
func results(fields []*field) (all []*field) {
	for _, f := range fields {
		if f.result() {
			all = append(all, f)
		}
	}
	return all
}

// single returns the arguments of an operation whose operands are one struct, or nil.
func (h *header) single(o *op) *args {
	if len(o.params) == 1 {
		return h.structs[o.params[0].ctype]
	}
	return nil
}
