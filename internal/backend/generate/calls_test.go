package main

import (
	"strings"
	"testing"
)

// Frames hold operands in the order of the header on both sides, and every declaration changes the number that is compared.
func TestFramesAreAlikeInCAndGo(t *testing.T) {
	const text = `
#define VB_VERSION_MAJOR 1
#define VB_VERSION_MINOR 2
/* ---- rows ------ */
/* y = s x. Shapes: y, x [n]. */
vb_status vb_scale(float *y, const float *x, float by, const vb_weight *w, vb_dtype type, int64_t n, int *found, vb_stream *stream);
`
	h, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	c, err := h.callsInC()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"int64_t operation;\n    float *y;\n    const float *x;\n    float by;\n    vb_weight w;\n    vb_dtype type;\n    int64_t n;\n    int found;\n    vb_stream *stream;",
		"return vb_scale(f->y, f->x, f->by, &f->w, f->type, f->n, &f->found, f->stream);", "case 0: return call_scale(frame);",
	} {
		if !strings.Contains(c, want) {
			t.Errorf("no %q in\n%s", want, c)
		}
	}
	g, err := h.callsInGo()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"operation int64\n\ty kernel.Ptr\n\tx kernel.Ptr\n\tby float32\n\tw cWeight\n\tt int32\n\tn int64\n\tfound int32\n\tstream kernel.Ptr",
		"f := enter(s, &s.own.scaleFrame)", "*f = scaleFrame{operation: 0, y: y, ", "type frames struct {\n\tscaleFrame\n}", `version = "1.2"`, "return f.found != 0, err",
	} {
		if !strings.Contains(g, want) {
			t.Errorf("no %q in\n%s", want, g)
		}
	}
	if other, _ := parse(strings.Replace(text, "float by, ", "double by, ", 1)); other.abi == h.abi {
		t.Error("another declaration has the same number")
	}
	if same, _ := parse(strings.Replace(text, "y = s x", "y = x s", 1)); same.abi != h.abi {
		t.Error("another comment has another number")
	}
}
