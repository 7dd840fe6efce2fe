package main

import (
	"fmt"
	"hash/fnv"
	"regexp"
	"strings"
)

// An operation is called with a frame: a struct of its number, its operands in the order of vibrant.h, and the stream. Structs lie in
// it by value, and so do results. C and Go lay such structs out alike.

var anyComment = regexp.MustCompile(`(?s)/\*.*?\*/`)

// abi returns a number that changes with every declaration of the header.
func abi(text string) int64 {
	sum := fnv.New64a()
	sum.Write([]byte(strings.TrimSpace(spaces.ReplaceAllString(anyComment.ReplaceAllString(text, " "), " "))))
	return int64(sum.Sum64() >> 1)
}

// callsInC returns csrc/calls.c.
func (h *header) callsInC() (string, error) {
	var b strings.Builder
	b.WriteString(cNotice + "#include \"vibrant.h\"\n\n")
	var cases strings.Builder
	for i, o := range h.ops {
		single := h.single(o)
		set := results(o.params)
		if single != nil {
			set = results(single.fields)
		}
		var fields, values []string
		for _, f := range o.params {
			switch {
			case f.result():
				values = append(values, "&f->"+f.name)
			case f.pointer && (f.ctype == "vb_weight" || h.structs[f.ctype] != nil):
				fields, values = append(fields, f.ctype+" "+f.name), append(values, "&f->"+f.name)
			case f.pointer:
				read := ""
				if f.read {
					read = "const "
				}
				fields, values = append(fields, read+f.ctype+" *"+f.name), append(values, "f->"+f.name)
			default:
				fields, values = append(fields, f.ctype+" "+f.name), append(values, "f->"+f.name)
			}
		}
		prepare := ""
		for _, f := range set {
			fields = append(fields, "int "+f.name)
			if single != nil {
				prepare += fmt.Sprintf("    f->%s.%s = &f->%s;\n", o.params[0].name, f.name, f.name)
			}
		}
		fmt.Fprintf(&b, "struct %s_frame {\n    int64_t operation;\n    %s;\n    vb_stream *stream;\n};\n\n", o.name, strings.Join(fields, ";\n    "))
		fmt.Fprintf(&b, "static vb_status call_%s(struct %s_frame *f) {\n%s%s\n}\n\n", o.name, o.name, prepare,
			callOf("    return vb_"+o.name+"(", append(values, "f->stream")))
		fmt.Fprintf(&cases, "    case %d: return call_%s(frame);\n", i, o.name)
	}
	b.WriteString("vb_status vb_call(void *frame) {\n    if (!frame) return VB_INVALID_ARGUMENT;\n    switch (*(const int64_t *)frame) {\n" +
		cases.String() + "    }\n    return VB_INVALID_ARGUMENT;\n}\n")
	fmt.Fprintf(&b, "\nint64_t vb_call_abi(void) { return INT64_C(%d); }\n", h.abi)
	return b.String(), nil
}

// callOf returns a call in C, in lines of at most 120 columns that are aligned behind its parenthesis.
func callOf(start string, arguments []string) string {
	text, width := start, len(start)
	for i, a := range arguments {
		a += ", "
		if i == len(arguments)-1 {
			a = strings.TrimSuffix(a, ", ") + ");"
		}
		if width+len(strings.TrimRight(a, " ")) > 120 {
			text, width = strings.TrimRight(text, " ")+"\n"+strings.Repeat(" ", len(start)), len(start)
		}
		text, width = text+a, width+len(a)
	}
	return text
}

// callsInGo returns internal/backend/dynamic/operations.go.
func (h *header) callsInGo() (string, error) {
	var b, frames strings.Builder
	for _, a := range h.order {
		fmt.Fprintf(&b, "\ntype c%s struct {\n", typeName(a.name))
		for _, f := range a.fields {
			fmt.Fprintf(&b, "\t%s %s\n", local(f.name), h.rawType(f))
		}
		fmt.Fprintf(&b, "}\n\nfunc as%s(a *kernel.%s) c%s {\n\treturn c%s{\n", typeName(a.name), typeName(a.name), typeName(a.name), typeName(a.name))
		for _, f := range a.fields {
			switch {
			case f.ctype == "size_t":
				fmt.Fprintf(&b, "\t\t%s: unsafe.Sizeof(c%s{}),\n", local(f.name), typeName(a.name))
			case !f.result():
				fmt.Fprintf(&b, "\t\t%s: %s,\n", local(f.name), h.toRaw(f, "a."+goName(f.name)))
			}
		}
		b.WriteString("\t}\n}\n")
	}
	for i, o := range h.ops {
		signature, err := h.signature(o, "kernel.")
		if err != nil {
			return "", err
		}
		single := h.single(o)
		set := results(o.params)
		if single != nil {
			set = results(single.fields)
		}
		var fields, values []string
		for _, f := range o.params {
			if f.result() {
				continue
			}
			fields = append(fields, local(f.name)+" "+h.rawType(f))
			values = append(values, local(f.name)+": "+h.toRaw(f, local(f.name)))
		}
		for _, f := range set {
			fields = append(fields, local(f.name)+" int32")
		}
		frame := strings.ToLower(o.name[:1]) + goName(o.name)[1:] + "Frame"
		fmt.Fprintf(&b, "\ntype %s struct {\n\toperation int64\n\t%s\n\tstream kernel.Ptr\n}\n", frame, strings.Join(fields, "\n\t"))
		fmt.Fprintf(&frames, "\t%s\n", frame)
		fmt.Fprintf(&b, "\nfunc (s *stream) %s {\n\tf := enter(s, &s.own.%s)\n\tdefer leave(s, &s.own.%s, f)\n", signature, frame, frame)
		fmt.Fprintf(&b, "\t*f = %s{operation: %d, %s, stream: s.p}\n", frame, i, strings.Join(values, ", "))
		call := fmt.Sprintf("s.call(%q, kernel.Ptr(f))", strings.TrimSuffix(o.name, "_batched"))
		b.WriteString(returns(o, single != nil, set, call, func(f *field) string { return "f." + local(f.name) }))
	}
	return strings.Join([]string{
		goNotice, "//go:build linux && (amd64 || arm64) && !nodlopen\n\npackage dynamic\n\nimport (\n\t\"unsafe\"\n\n",
		"\t\"github.com/vibrant-ml/vibrant/internal/backend/kernel\"\n)\n\n",
		fmt.Sprintf("// What vb_version and vb_call_abi return of a library that these calls fit.\nconst (\n\tversion = %q\n\tabi = %d\n)\n", h.version, h.abi),
		b.String(),
		"\n// frames are a stream's own, one of each operation.\ntype frames struct {\n" + frames.String() + "}\n",
	}, ""), nil
}

// rawType returns the Go type of what lies in a frame, as wide and aligned as C's.
func (h *header) rawType(f *field) string {
	switch {
	case f.array != "":
		one := *f
		one.array = ""
		return "[kernel." + goName(strings.TrimPrefix(f.array, "VB_")) + "]" + h.rawType(&one)
	case f.points(), f.result():
		return "kernel.Ptr"
	case values[f.ctype] != "":
		return "c" + values[f.ctype]
	case h.structs[f.ctype] != nil:
		return "c" + typeName(f.ctype)
	case f.ctype == "size_t":
		return "uintptr"
	case f.ctype == "int64_t":
		return "int64"
	case f.ctype == "float":
		return "float32"
	}
	return "int32"
}

// toRaw returns the expression that makes a Go value one of a frame.
func (h *header) toRaw(f *field, value string) string {
	switch {
	case f.array != "":
		return "as" + title(plural(f)) + "(" + value + ")"
	case f.points():
		return value
	case values[f.ctype] != "":
		return "as" + values[f.ctype] + "(" + value + ")"
	case h.structs[f.ctype] != nil:
		return "as" + typeName(f.ctype) + "(" + value + ")"
	case f.ctype == "int":
		return "truth(" + value + ")"
	}
	return h.rawType(f) + "(" + value + ")"
}
