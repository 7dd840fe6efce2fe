package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// header is what csrc/vibrant.h declares for operations.
type header struct {
	enums   []*enum
	structs map[string]*args
	order   []*args
	ops     []*op
	version string            // "0.1.0"
	most    map[string]string // the numbers of VB_MAX_...: how many places arrays have
	abi     int64
}

// enum is a C enumeration that becomes a Go type.
type enum struct {
	name   string // "vb_rope_mode"
	doc    string
	values []value
}

type value struct{ name, number, doc string }

// op is an operation.
type op struct {
	name     string // without vb_: "rms_norm_batched"
	section  string
	doc      string
	composed bool // devices may lack it
	params   []*field
}

// args is a struct of arguments, "vb_rope_args".
type args struct {
	name, doc string
	fields    []*field
}

// field is a parameter of an operation or a field of its arguments.
type field struct {
	name    string
	ctype   string // without const and *: "float", "vb_weight"
	pointer bool
	array   string // the number of its places, an expression of C; "" where it is no array
	read    bool   // behind const
	note    string
	memory  *memory // what a pointer points to; nil for numbers, weights and results
}

// Sections of the header whose functions are operations of no device alone, and so no part of the catalogue.
var runtimeSections = []string{"status", "data types", "devices, memory, order", "several devices"}

var (
	commentPattern  = regexp.MustCompile(`(?s)^/\*.*?\*/`)
	directive       = regexp.MustCompile(`^#(?:[^\n]*\\\n)*[^\n]*`)
	externPattern   = regexp.MustCompile(`^(?:extern "C" \{|\})`)
	enumPattern     = regexp.MustCompile(`(?s)^typedef enum (\w+) \{(.*?)\}\s*\w+;`)
	structPattern   = regexp.MustCompile(`(?s)^typedef struct (\w+) \{(.*?)\}\s*\w+;`)
	opaquePattern   = regexp.MustCompile(`^typedef struct \w+ \w+;`)
	functionPattern = regexp.MustCompile(`(?s)^([\w ]+?\*?)\s*(vb_\w+)\((.*?)\);`)
	sectionPattern  = regexp.MustCompile(`(?s)^/\* ---- (.*?) ?-{4,}`)
	valuePattern    = regexp.MustCompile(`(?s)(/\*.*?\*/)|(\w+) = (\d+),?`)
	memberPattern   = regexp.MustCompile(`(?s)(/\*.*?\*/)|([^;/]+);`)
	operandPattern  = regexp.MustCompile(`(?s)^(const )?(\w+)\s+(\**)\s*(\w+)(?:\[(\w+)\])?$`)
	shortFor        = regexp.MustCompile(`Short for (vb_\w+) with`)
	mostPattern     = regexp.MustCompile(`#define VB_(MAX_\w+) (\d+)\n`)
	versionPattern  = regexp.MustCompile(`#define VB_VERSION_[A-Z]+ (\d+)\n`)
	spaces          = regexp.MustCompile(`\s+`)
)

// prose returns the text of a comment on one line.
func prose(comment string) string {
	var words []string
	for _, line := range strings.Split(comment, "\n") {
		line = strings.TrimSpace(line)
		line = strings.TrimPrefix(strings.TrimPrefix(line, "/*"), "*")
		words = append(words, strings.TrimSuffix(line, "*/"))
	}
	return strings.TrimSpace(spaces.ReplaceAllString(strings.Join(words, " "), " "))
}

// parse reads the header; what it does not understand is an error.
func parse(text string) (*header, error) {
	h := &header{structs: map[string]*args{}, abi: abi(text)}
	for _, m := range versionPattern.FindAllStringSubmatch(text, -1) {
		h.version = strings.TrimPrefix(h.version+"."+m[1], ".")
	}
	h.most = map[string]string{}
	for _, m := range mostPattern.FindAllStringSubmatch(text, -1) {
		h.most[m[1]] = m[2]
	}
	section, doc := "", ""
	for {
		text = strings.TrimLeft(text, " \t\n")
		if text == "" {
			return h, h.finish()
		}
		var m []string
		match := func(p *regexp.Regexp) bool { m = p.FindStringSubmatch(text); return m != nil }
		var err error
		switch {
		case match(commentPattern):
			doc = prose(m[0])
			if title := sectionPattern.FindStringSubmatch(m[0]); title != nil {
				section, doc = title[1], ""
			}
		case match(directive), match(externPattern), match(opaquePattern):
			doc = ""
		case match(enumPattern):
			h.enums = append(h.enums, parseEnum(m[1], doc, m[2]))
			doc = ""
		case match(structPattern):
			err = h.addStruct(m[1], doc, m[2])
			doc = ""
		case match(functionPattern):
			if !slices.Contains(runtimeSections, section) && strings.HasSuffix(m[3], "vb_stream *stream") {
				err = h.addFunction(section, m[2], doc, m[3])
			}
			doc = ""
		default:
			return nil, fmt.Errorf("vibrant.h: no declaration: %.60q", text)
		}
		if err != nil {
			return nil, fmt.Errorf("vibrant.h: %w", err)
		}
		text = strings.TrimPrefix(text, m[0])
	}
}

func parseEnum(name, doc, body string) *enum {
	e := &enum{name: name, doc: doc}
	before := ""
	for _, m := range valuePattern.FindAllStringSubmatch(body, -1) {
		switch {
		case m[1] == "":
			e.values = append(e.values, value{name: m[2], number: m[3], doc: before})
			before = ""
		case len(e.values) > 0 && e.values[len(e.values)-1].doc == "" && !strings.HasPrefix(m[1], "/*\n") && sameLine(body, m[1]):
			e.values[len(e.values)-1].doc = prose(m[1])
		default:
			before = prose(m[1])
		}
	}
	return e
}

// sameLine reports whether a comment stands behind something on its line.
func sameLine(body, comment string) bool {
	before := body[:strings.Index(body, comment)]
	return strings.TrimSpace(before[strings.LastIndex(before, "\n")+1:]) != ""
}

func (h *header) addStruct(name, doc, body string) error {
	if !strings.HasSuffix(name, "_args") {
		return nil
	}
	a := &args{name: name, doc: doc}
	var last []*field
	for _, m := range memberPattern.FindAllStringSubmatch(body, -1) {
		if m[1] != "" {
			for _, f := range last {
				f.note = prose(m[1])
			}
			last = nil
			continue
		}
		// "const float *cos, *sin" is "const float *cos" and "const float *sin".
		declarators := strings.Split(strings.TrimSpace(m[2]), ",")
		first, _, _ := strings.Cut(declarators[0], "[")
		base := strings.TrimRight(first, "abcdefghijklmnopqrstuvwxyz0123456789_")
		base = strings.TrimRight(base, "*")
		declarators[0] = strings.TrimPrefix(declarators[0], base)
		last = nil
		for _, d := range declarators {
			f, err := parseOperand(base + strings.TrimSpace(d))
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			last = append(last, f)
		}
		a.fields = append(a.fields, last...)
	}
	for _, f := range a.fields {
		if f.points() || f.ctype == "vb_view" {
			var err error
			if f.memory, err = parseMemory(f.note); err != nil {
				return fmt.Errorf("%s: the comment beside %s: %w", name, f.name, err)
			}
			f.memory.element = f.element(f.memory.element)
		}
		if f.array != "" && h.most[strings.TrimPrefix(f.array, "VB_")] == "" {
			return fmt.Errorf("%s: %s has %s places: want a VB_MAX_... that the header defines", name, f.name, f.array)
		}
	}
	h.structs[name], h.order = a, append(h.order, a)
	return nil
}

func parseOperand(text string) (*field, error) {
	m := operandPattern.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil || len(m[3]) > 1 {
		return nil, fmt.Errorf("no operand: %q", text)
	}
	return &field{name: m[4], ctype: m[2], pointer: m[3] != "", array: m[5], read: m[1] != ""}, nil
}

// points reports whether the field is memory of the device.
func (f *field) points() bool {
	return f.pointer && (f.ctype == "void" || f.ctype == "float" || f.ctype == "int32_t")
}

// result reports whether the operation sets the field for its caller, on the host.
func (f *field) result() bool { return f.pointer && f.ctype == "int" }

// element returns the type of the elements behind a pointer, as an expression of C.
func (f *field) element(said string) string {
	switch {
	case f.ctype == "float":
		return "VB_F32"
	case f.ctype == "int32_t":
		return "VB_I32"
	case said != "":
		return said
	}
	return "type"
}

func (h *header) addFunction(section, name, doc, params string) error {
	o := &op{name: strings.TrimPrefix(name, "vb_"), section: section, doc: doc}
	for _, text := range strings.Split(params, ",") {
		f, err := parseOperand(text)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		o.params = append(o.params, f)
	}
	o.params = o.params[:len(o.params)-1] // the stream
	if shortFor.MatchString(doc) {
		return nil
	}
	if len(o.params) == 1 && h.structs[o.params[0].ctype] != nil {
		o.doc = h.structs[o.params[0].ctype].doc
	}
	o.composed = strings.Contains(o.doc, "Composed: ")
	h.ops = append(h.ops, o)
	if special[o.name] {
		return nil
	}
	shapes, err := parseShapes(o.doc)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for _, f := range o.params {
		if !f.points() {
			continue
		}
		m := shapes[f.name]
		if m == nil {
			return fmt.Errorf("%s: its docstring says no Shapes of %s, nor Short for which operation it is", name, f.name)
		}
		copied := *m
		copied.element = f.element(m.element)
		f.memory = &copied
		delete(shapes, f.name)
	}
	for left := range shapes {
		return fmt.Errorf("%s: Shapes of %s, which is no operand in device memory", name, left)
	}
	return nil
}

// finish checks what needs the whole header.
func (h *header) finish() error {
	for _, o := range h.ops {
		for _, f := range o.params {
			if strings.HasSuffix(f.ctype, "_args") && h.structs[f.ctype] == nil {
				return fmt.Errorf("vibrant.h: vb_%s: %s is not declared before it", o.name, f.ctype)
			}
		}
	}
	if len(h.ops) == 0 {
		return fmt.Errorf("vibrant.h: no operations")
	}
	return nil
}
