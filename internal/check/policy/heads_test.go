package policy

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// headLines counts the lines of the comment that a file of C or CUDA begins with.
func headLines(text string) (n int) {
	block := strings.HasPrefix(text, "/*")
	for line := range strings.Lines(text) {
		if !block && !strings.HasPrefix(line, "//") {
			return n
		}
		n++
		if block && strings.Contains(line, "*/") {
			return n
		}
	}
	return n
}

// TestHeadsOfKernelFilesAreShort holds the comment at the head of a file to 15 lines: formula, launch, moves, bound. What was measured
// lies in docs/experiments. The head of vibrant.h is the library's introduction.
func TestHeadsOfKernelFilesAreShort(t *testing.T) {
	const root, most = "../../..", 15
	files := 0
	for _, folder := range []string{"csrc", "cuda"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !slices.Contains([]string{".c", ".h", ".cu", ".cuh"}, filepath.Ext(path)) || entry.Name() == "vibrant.h" {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			files++
			if n := headLines(string(text)); n > most {
				t.Errorf("%s begins with %d lines of comment, more than %d", path, n, most)
			}
			return nil
		})
		if err != nil {
			t.Skipf("the sources are not here: %v", err)
		}
	}
	if files < 100 {
		t.Errorf("%d files", files)
	}
	for text, want := range map[string]int{"// a\n// b\n\n// c\n": 2, "/* a\n * b */\nint c; /* d */\n": 2, "int a;\n": 0, "/* a */ int b;\n": 1} {
		if got := headLines(text); got != want {
			t.Errorf("the head of %q: %d lines, want %d", text, got, want)
		}
	}
}
