package policy

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestGoBlocksOfTheDocsCompile compiles every block of Go in the Markdown files, each as a program. A block without a package
// clause is the body of main, and imports what it names.
func TestGoBlocksOfTheDocsCompile(t *testing.T) {
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skipf("the sources are not compiled here: %v", err)
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	files := []string{filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md")}
	docs, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(docs) == 0 {
		t.Fatal("no docs", err)
	}
	// An overlay has the compiler see the programs within the module, where they may import its packages.
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	var programs []string
	dir := t.TempDir()
	for _, file := range append(files, docs...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
			name := fmt.Sprintf("%s-%d", strings.TrimSuffix(filepath.Base(file), ".md"), i+1)
			source := filepath.Join(dir, name+".go")
			if err := os.WriteFile(source, []byte(program(block[1])), 0o600); err != nil {
				t.Fatal(err)
			}
			overlay.Replace[filepath.Join(root, "internal", "check", "docs", name, "main.go")] = source
			programs = append(programs, "./internal/check/docs/"+name)
		}
	}
	if len(programs) < 2 {
		t.Fatalf("%d blocks of Go", len(programs))
	}
	list := filepath.Join(dir, "overlay.json")
	b, _ := json.Marshal(overlay)
	if err := os.WriteFile(list, b, 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(tool, append([]string{"build", "-overlay", list, "-o", os.DevNull}, programs...)...)
	c.Dir = root
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// program completes a block.
func program(block string) string {
	if strings.HasPrefix(block, "package ") || strings.Contains(block, "\npackage ") {
		return block
	}
	imports := ""
	for name, path := range map[string]string{"fmt": "fmt", "log": "log", "os": "os", "errors": "errors", "vibrant": module,
		"tensor": module + "/tensor", "gpu": module + "/gpu", "gguf": module + "/gguf", "npy": module + "/tensor/npy",
		"safetensors": module + "/tensor/safetensors"} {
		if regexp.MustCompile(`\b` + name + `\.`).MatchString(block) {
			imports += fmt.Sprintf("import %q\n", path)
		}
	}
	return "package main\nimport \"context\"\n" + imports + "func main() {\nctx := context.Background()\n_ = ctx\n" + block + "}\n"
}
