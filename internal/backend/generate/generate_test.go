package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/dtype"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
)

const root = "../../.."

func TestGeneratedFilesAreCurrent(t *testing.T) {
	files, err := generate(filepath.Join(root, "csrc/vibrant.h"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		got, err := os.ReadFile(filepath.Join(root, f.path))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != f.text {
			t.Errorf("%s is out of date: run go generate ./...", f.path)
		}
	}
}

// Files hold more types than kernels compute on; those of both have one size.
func TestTypesAreThoseOfFiles(t *testing.T) {
	for _, d := range dtype.All() {
		if d == dtype.U8 || d == dtype.BOOL {
			continue // of no file
		}
		if f := gguf.Type(d); f.String() != d.String() || f.BlockSize() != d.BlockSize() || f.TypeSize() != d.BlockBytes() {
			t.Errorf("%v: %d elements in %d bytes; in files %v: %d in %d", d, d.BlockSize(), d.BlockBytes(), f, f.BlockSize(), f.TypeSize())
		}
	}
}

// The header's operations, in the form that its readers see, become Go by name.
func TestOperandsKeepTheirNames(t *testing.T) {
	h, err := parse(`
/* ---- rows; in place allowed ------ */
/* y = f(x).
 * Shapes: y [rows : stride][cols]; x [rows][pad ?: cols] of x_type; next_norm [cols], or NULL for ones. */
vb_status vb_wide_norm_batched(void *y, const void *x, vb_dtype x_type, const float *next_norm, vb_dtype type, int64_t rows,
                               int64_t cols, int64_t stride, int64_t pad, int *found, vb_stream *stream);
`)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []struct {
		name  string
		make  func() (string, error)
		wants []string
	}{
		{"catalogue", h.catalogue, []string{"WideNorm(y, x Ptr, xType DType, nextNorm Ptr, t DType, rows, cols, stride, pad int) (found bool, err error)"}},
		{"binding", h.binding, []string{"C.vb_wide_norm_batched(y, x, C.vb_dtype(xType), f32(nextNorm), C.vb_dtype(t), C.int64_t(rows), C.int64_t(cols), C.int64_t(stride), C.int64_t(pad), &cFound, s.p)"}},
		{"fake", h.fake, []string{"y = o.at(y, reach(t, []int{stride}, rows, cols))", "x = o.at(x, size(xType, rows, cmp.Or(pad, cols)))", "nextNorm = o.optional(nextNorm, size(kernel.F32, cols))"}},
	} {
		text, err := part.make()
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range part.wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", part.name, want, text)
			}
		}
	}
}

func TestUnclearDeclarationsAreErrors(t *testing.T) {
	const head = "/* ---- rows ------ */\n"
	for name, c := range map[string]struct{ text, want string }{
		"no shapes":       {"/* y = x. */\nvb_status vb_f(void *y, vb_dtype type, int64_t n, vb_stream *stream);", "no Shapes of y"},
		"shape forgotten": {"/* Shapes: y [n]. */\nvb_status vb_f(void *y, const void *x, vb_dtype type, int64_t n, vb_stream *stream);", "no Shapes of x"},
		"unknown operand": {"/* Shapes: y, z [n]. */\nvb_status vb_f(void *y, vb_dtype type, int64_t n, vb_stream *stream);", "Shapes of z"},
		"no shape":        {"/* Shapes: y n. */\nvb_status vb_f(void *y, vb_dtype type, int64_t n, vb_stream *stream);", "does not read"},
		"unknown struct":  {"/* f. */\nvb_status vb_f(const vb_f_args *args, vb_stream *stream);", "not declared"},
		"field":           {"typedef struct vb_f_args {\n float *y; /* the result */\n} vb_f_args;\nvb_status vb_f(const vb_f_args *args, vb_stream *stream);", "beside y"},
		"pointer":         {"/* f. Shapes: y [n]. */\nvb_status vb_f(float **y, vb_stream *stream);", "no operand"},
		"nothing":         {"", "no operations"},
		"not C":           {"hello", "no declaration"},
	} {
		if _, err := parse(head + c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	h, err := parse(head + "/* f. Shapes: y [n]. */\nvb_status vb_f(float *y, uint8_t n, vb_stream *stream);")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.catalogue(); err == nil || !strings.Contains(err.Error(), "uint8_t") {
		t.Errorf("a type without a form in Go: %v", err)
	}
}
