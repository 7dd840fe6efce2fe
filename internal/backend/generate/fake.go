package main

import (
	"fmt"
	"slices"
	"strings"
)

// fake returns internal/backend/fake/operations.go: which memory each operation reads and writes.
func (h *header) fake() (string, error) {
	var b strings.Builder
	for _, a := range h.order {
		fmt.Fprintf(&b, "\n// place%s returns the arguments with the host addresses of their memory.\n", typeName(a.name))
		fmt.Fprintf(&b, "func (o *op) place%s(a kernel.%s) kernel.%s {\n", typeName(a.name), typeName(a.name), typeName(a.name))
		for _, f := range a.fields {
			b.WriteString(place(f, a.fields, true))
		}
		for _, f := range results(a.fields) {
			fmt.Fprintf(&b, "\ta.%s = false\n", goName(f.name))
		}
		b.WriteString("\treturn a\n}\n")
	}
	for _, o := range h.ops {
		if special[o.name] {
			continue
		}
		signature, err := h.signature(o, "kernel.")
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "\nfunc (s *stream) %s {\n\to := s.op(%q)\n", signature, goName(o.name))
		var values []string
		for _, f := range o.params {
			name := local(f.name)
			switch {
			case f.result():
				continue
			case h.structs[f.ctype] != nil:
				fmt.Fprintf(&b, "\tplaced%s := o.place%s(*%s)\n", goName(f.name), typeName(f.ctype), name)
				name = "&placed" + goName(f.name)
			default:
				b.WriteString(place(f, o.params, false))
			}
			values = append(values, name)
		}
		call := fmt.Sprintf("s.kernels.%s(%s)", goName(o.name), strings.Join(values, ", "))
		single, set := h.single(o), results(o.params)
		if single != nil {
			for _, f := range results(single.fields) {
				fmt.Fprintf(&b, "\t%s.%s = false\n", local(o.params[0].name), goName(f.name))
			}
		}
		if len(set) == 0 {
			fmt.Fprintf(&b, "\treturn o.launch(func() error { return %s })\n}\n", call)
			continue
		}
		blanks, falses := strings.Repeat("_, ", len(set)), strings.Repeat("false, ", len(set))
		fmt.Fprintf(&b, "\terr = o.launch(func() error {\n\t\t%serr := %s\n\t\treturn err\n\t})\n\treturn %serr\n}\n", blanks, call, falses)
	}
	imports := "import \"github.com/vibrant-ml/vibrant/internal/backend/kernel\"\n"
	if strings.Contains(b.String(), "cmp.Or(") {
		imports = "import (\n\"cmp\"\n\n\"github.com/vibrant-ml/vibrant/internal/backend/kernel\"\n)\n"
	}
	return goNotice + "package fake\n\n" + imports + b.String(), nil
}

// place returns the statements that replace an operand's device address by its host address. All are the operands beside it.
func place(f *field, all []*field, arguments bool) string {
	name := expression(f.name, arguments)
	if f.ctype == "vb_weight" {
		return fmt.Sprintf("\t%s = o.weight(%s)\n", name, name)
	}
	m := f.memory
	if m == nil {
		return ""
	}
	if f.ctype == "vb_view" {
		extents := expression(m.shape[0].extent, arguments)
		if f.array != "" {
			return fmt.Sprintf("\tfor i := range %s {\n\t\t%s[i] = o.view(%s[i], %s[:a.Rank])\n\t}\n", name, name, name, extents)
		}
		return fmt.Sprintf("\t%s = o.view(%s, %s[:a.Rank])\n", name, name, extents)
	}
	method := "at"
	if m.optional {
		method = "optional"
	}
	element := expression(m.element, arguments)
	if m.where == "" {
		return fmt.Sprintf("\t%s = o.%s(%s, %s)\n", name, method, name, bytes(element, m.shape, arguments))
	}
	return fmt.Sprintf("\tif %s {\n\t\t%s = o.%s(%s, %s)\n\t} else {\n\t\t%s = o.%s(%s, %s)\n\t}\n",
		whether(f, all, arguments), name, method, name, bytes(element, m.other, arguments), name, method, name, bytes(element, m.shape, arguments))
}

// whether returns the condition under which an operand has its other shape.
func whether(f *field, all []*field, arguments bool) string {
	condition := expression(f.memory.where, arguments)
	if slices.ContainsFunc(all, func(other *field) bool { return other.name == f.memory.where && other.pointer }) {
		condition += " != nil"
	}
	return condition
}

// bytes returns the expression of how many bytes a shape covers.
func bytes(element string, shape []dim, arguments bool) string {
	var extents, strides []string
	gaps := false
	for _, d := range shape {
		extents = append(extents, expression(d.extent, arguments))
		if d.stride != "" {
			gaps = true
			strides = append(strides, expression(d.stride, arguments))
		}
	}
	if !gaps {
		return fmt.Sprintf("size(%s, %s)", element, strings.Join(extents, ", "))
	}
	return fmt.Sprintf("reach(%s, []int{%s}, %s)", element, strings.Join(strides, ", "), strings.Join(extents, ", "))
}
