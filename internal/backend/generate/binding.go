package main

import (
	"fmt"
	"strings"
)

// binding returns csrc/operations.go.
func (h *header) binding() (string, error) {
	var wrappers, b strings.Builder
	for _, a := range h.order {
		fmt.Fprintf(&b, "\nfunc c%s(a *kernel.%s) C.%s {\n\treturn C.%s{\n", typeName(a.name), typeName(a.name), a.name, a.name)
		for _, f := range a.fields {
			switch {
			case f.ctype == "size_t":
				fmt.Fprintf(&b, "\t\t%s: C.sizeof_%s,\n", cField(f.name), a.name)
			case !f.result():
				fmt.Fprintf(&b, "\t\t%s: %s,\n", cField(f.name), toC(f, "a."+goName(f.name)))
			}
		}
		b.WriteString("\t}\n}\n")
	}
	for _, o := range h.ops {
		signature, err := h.signature(o, "kernel.")
		if err != nil {
			return "", err
		}
		single := h.single(o)
		set := results(o.params)
		if single != nil {
			set = results(single.fields)
		}
		fmt.Fprintf(&b, "\nfunc (s *stream) %s {\n", signature)
		for _, f := range set {
			fmt.Fprintf(&b, "\tvar c%s C.int\n", goName(f.name))
		}
		var values []string
		for _, f := range o.params {
			switch {
			case f.result():
				values = append(values, "&c"+goName(f.name))
			case h.structs[f.ctype] != nil:
				values = append(values, fmt.Sprintf("c%s(%s)", typeName(f.ctype), local(f.name)))
			default:
				values = append(values, toC(f, local(f.name)))
			}
		}
		if single != nil {
			for _, f := range set {
				values = append(values, "&c"+goName(f.name))
			}
		}
		call := "C.vb_" + o.name
		if wrapper := h.wrapper(o, single, set); wrapper != "" {
			wrappers.WriteString(wrapper)
			call = "C.call_" + o.name
		}
		check := fmt.Sprintf("s.check(%q, %s(%s, s.p))", strings.TrimSuffix(o.name, "_batched"), call, strings.Join(values, ", "))
		b.WriteString(returns(o, single != nil, set, check, func(f *field) string { return "c" + goName(f.name) }))
	}
	return strings.Join([]string{
		goNotice + "//go:build cgo\n\npackage csrc\n\n/*\n#include \"vibrant.h\"\n\n",
		"// Structs go by value: what they point to may be Go memory, and C must not be handed Go memory that holds such pointers.\n",
		wrappers.String(), "*/\nimport \"C\"\n\nimport \"github.com/vibrant-ml/vibrant/internal/backend/kernel\"\n", b.String(),
	}, ""), nil
}

// returns ends a method that makes a call and gives back what the operation set, which value names: in the struct of its arguments
// where there is one, else as results before the error.
func returns(o *op, inStruct bool, set []*field, call string, value func(*field) string) string {
	var b strings.Builder
	switch {
	case len(set) == 0:
		fmt.Fprintf(&b, "\treturn %s\n", call)
	case inStruct:
		fmt.Fprintf(&b, "\terr := %s\n", call)
		for _, f := range set {
			fmt.Fprintf(&b, "\t%s.%s = %s != 0\n", local(o.params[0].name), goName(f.name), value(f))
		}
		b.WriteString("\treturn err\n")
	default:
		fmt.Fprintf(&b, "\terr = %s\n\treturn ", call)
		for _, f := range set {
			fmt.Fprintf(&b, "%s != 0, ", value(f))
		}
		b.WriteString("err\n")
	}
	b.WriteString("}\n")
	return b.String()
}

// cField returns how cgo names a field of a struct.
func cField(name string) string {
	if name == "type" {
		return "_type"
	}
	return name
}

// toC returns the expression that makes a Go value one of C.
func toC(f *field, value string) string {
	switch {
	case f.array != "":
		return plural(f) + "(" + value + ")"
	case f.points() && f.ctype == "float":
		return "f32(" + value + ")"
	case f.points() && f.ctype == "int32_t":
		return "i32(" + value + ")"
	case f.points():
		return value
	case values[f.ctype] != "":
		return local(strings.TrimPrefix(f.ctype, "vb_")) + "(" + value + ")"
	case f.ctype == "int":
		return "truth(" + value + ")"
	}
	return fmt.Sprintf("C.%s(%s)", f.ctype, value)
}

// plural returns the name of the function that converts an array: views of vb_view, numbers of int64_t.
func plural(f *field) string {
	if f.ctype == "int64_t" {
		return "numbers"
	}
	return strings.TrimPrefix(f.ctype, "vb_") + "s"
}

// wrapper returns a C function that takes by value what the operation takes by pointer, or nothing where it takes no structs.
func (h *header) wrapper(o *op, single *args, set []*field) string {
	var params, values []string
	structs := false
	for _, f := range o.params {
		declared := f.ctype + " " + f.name
		value := f.name
		switch {
		case f.pointer && (f.ctype == "vb_weight" || h.structs[f.ctype] != nil):
			structs, value = true, "&"+f.name
		case f.pointer:
			declared = f.ctype + " *" + f.name
			if f.read {
				declared = "const " + declared
			}
		}
		params, values = append(params, declared), append(values, value)
	}
	if !structs {
		return ""
	}
	body := ""
	if single != nil {
		for _, f := range set {
			params = append(params, "int *"+f.name)
			body += fmt.Sprintf(" %s.%s = %s;", o.params[0].name, f.name, f.name)
		}
	}
	return fmt.Sprintf("static vb_status call_%s(%s, vb_stream *stream) {%s return vb_%s(%s, stream); }\n",
		o.name, strings.Join(params, ", "), body, o.name, strings.Join(values, ", "))
}
