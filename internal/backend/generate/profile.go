package main

import (
	"fmt"
	"strings"
)

// byHand are the operations whose bytes package profile counts itself: they touch parts of their operands. Of the arguments in
// narrowed it touches a part, too, and makes arguments of these alone.
var (
	byHand   = map[string]bool{"weight_pack": true, "embedding": true, "copy_columns": true}
	narrowed = map[string]bool{"vb_kv_write_args": true, "vb_attention_args": true, "vb_norm_qkv_args": true, "vb_rope_args": true,
		"vb_expert_linear_args": true, "vb_expert_feed_forward_args": true, "vb_index_args": true}
)

// profile returns internal/backend/profile/operations.go: each operation, timed, with the bytes of its operands.
func (h *header) profile() (string, error) {
	var b strings.Builder
	for _, a := range h.order {
		fmt.Fprintf(&b, "\nfunc bytesOf%s(a *kernel.%s) (n int64) {\n", typeName(a.name), typeName(a.name))
		if narrowed[a.name] {
			fmt.Fprintf(&b, "\ta = touched%s(*a)\n", typeName(a.name))
		}
		for _, f := range a.fields {
			b.WriteString(moved(f, a.fields, true))
		}
		b.WriteString("\treturn n\n}\n")
	}
	for _, o := range h.ops {
		if byHand[o.name] {
			continue
		}
		signature, err := h.signature(o, "kernel.")
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "\nfunc (s *Stream) %s {\n\tmoved := int64(0)\n", signature)
		var values []string
		for _, f := range o.params {
			if f.result() {
				continue
			}
			values = append(values, local(f.name))
			if h.structs[f.ctype] != nil {
				fmt.Fprintf(&b, "\tmoved += bytesOf%s(%s)\n", typeName(f.ctype), local(f.name))
				continue
			}
			b.WriteString(strings.ReplaceAll(moved(f, o.params, false), "\tn +=", "\tmoved +="))
		}
		call := fmt.Sprintf("s.Stream.%s(%s)", goName(o.name), strings.Join(values, ", "))
		set := results(o.params)
		if len(set) == 0 {
			fmt.Fprintf(&b, "\treturn s.timed(%q, moved, func() error { return %s })\n}\n", goName(o.name), call)
			continue
		}
		var names []string
		for _, f := range set {
			names = append(names, local(f.name))
		}
		list := strings.Join(names, ", ")
		fmt.Fprintf(&b, "\terr = s.timed(%q, moved, func() (err error) {\n\t\t%s, err = %s\n\t\treturn err\n\t})\n\treturn %s, err\n}\n",
			goName(o.name), list, call, list)
	}
	imports := "import \"github.com/vibrant-ml/vibrant/internal/backend/kernel\"\n"
	if strings.Contains(b.String(), "cmp.Or(") {
		imports = "import (\n\"cmp\"\n\n\"github.com/vibrant-ml/vibrant/internal/backend/kernel\"\n)\n"
	}
	return goNotice + "package profile\n\n" + imports + b.String(), nil
}

// moved returns the statement that adds the bytes of an operand to n.
func moved(f *field, all []*field, arguments bool) string {
	name := expression(f.name, arguments)
	if f.ctype == "vb_weight" {
		return fmt.Sprintf("\tn += weight(%s)\n", name)
	}
	if f.memory == nil {
		return ""
	}
	if f.ctype == "vb_view" {
		extents := expression(f.memory.shape[0].extent, arguments)
		if f.array != "" {
			return fmt.Sprintf("\tfor _, v := range %s {\n\t\tn += view(v, %s[:a.Rank])\n\t}\n", name, extents)
		}
		return fmt.Sprintf("\tn += view(%s, %s[:a.Rank])\n", name, extents)
	}
	element := expression(f.memory.element, arguments)
	add := fmt.Sprintf("\tn += operand(%s, %s)\n", name, bytes(element, f.memory.shape, arguments))
	if f.memory.where == "" {
		return add
	}
	return fmt.Sprintf("\tif %s {\n\t\tn += operand(%s, %s)\n\t} else {\n\t%s\t}\n",
		whether(f, all, arguments), name, bytes(element, f.memory.other, arguments), add)
}
