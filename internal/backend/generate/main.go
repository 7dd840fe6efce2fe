// Command generate makes, from the declarations of csrc/vibrant.h, what would else repeat them: the lists of kernels in C,
// the catalogue of package kernel, its bindings in packages csrc (cgo) and dynamic (no C compiler), and the memory table of the fake
// device; the types of data too, and from csrc/codebooks.h the codebooks in Go.
//
// What it reads beside C is the comments' "Shapes", "Composed" and "Short for", whose form vibrant.h gives. `go generate
// ./...` runs it; its test fails where a generated file is out of date.
package main

import (
	"fmt"
	"go/format"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	root := "../../.." // go generate runs in the folder of the package that asks
	files, err := generate(filepath.Join(root, "csrc/vibrant.h"))
	for _, f := range files {
		if err == nil {
			err = os.WriteFile(filepath.Join(root, f.path), []byte(f.text), 0o644)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// file is a generated file, by its path in the repository.
type file struct{ path, text string }

func generate(path string) ([]file, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	h, err := parse(string(text))
	if err != nil {
		return nil, err
	}
	lists, err := h.lists()
	if err != nil {
		return nil, err
	}
	calls, err := h.callsInC()
	if err != nil {
		return nil, err
	}
	files := []file{{"csrc/operations.h", lists}, {"csrc/calls.c", calls}}
	books, err := codebooks(filepath.Join(filepath.Dir(path), "codebooks.h"))
	if err != nil {
		return nil, err
	}
	for _, part := range []struct {
		path string
		make func() (string, error)
	}{
		{"internal/backend/kernel/operations.go", h.catalogue},
		{"dtype/types.go", h.types},
		{"internal/backend/kernel/types.go", func() (string, error) { return h.typesOf("kernel") }},
		{"tensor/types.go", func() (string, error) { return h.typesOf("tensor") }},
		{"internal/backend/purego/codebooks.go", func() (string, error) { return books, nil }},
		{"csrc/operations.go", h.binding},
		{"internal/backend/dynamic/operations.go", h.callsInGo},
		{"internal/backend/fake/operations.go", h.fake},
		{"internal/backend/profile/operations.go", h.profile},
	} {
		source, err := part.make()
		if err != nil {
			return nil, fmt.Errorf("vibrant.h: %w", err)
		}
		formatted, err := format.Source([]byte(source))
		if err != nil {
			return nil, fmt.Errorf("%s: %w in\n%s", part.path, err, source)
		}
		files = append(files, file{part.path, string(formatted)})
	}
	for i := range files {
		files[i].text = strings.TrimRight(files[i].text, "\n") + "\n"
	}
	return files, nil
}
