package policy

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestGoBlocksOfTheDocsCompile compiles every block of Go in the Markdown files. A block without a package clause is the body of
// main, and imports what it names. Blocks become packages that are no programs: these would be linked too, which takes most of the time.
func TestGoBlocksOfTheDocsCompile(t *testing.T) {
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skipf("the sources are not compiled here: %v", err)
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	pages := []string{filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md")}
	docs, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(docs) == 0 {
		t.Fatal("no docs", err)
	}
	// An overlay has the compiler see the blocks within the module, where they may import its packages.
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	var packages []string
	dir := t.TempDir()
	for _, page := range append(pages, docs...) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for i, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
			name := fmt.Sprintf("%s-%d", strings.TrimSuffix(filepath.Base(page), ".md"), i+1)
			file := filepath.Join(dir, name+".go")
			if err := os.WriteFile(file, []byte(source(block[1])), 0o600); err != nil {
				t.Fatal(err)
			}
			overlay.Replace[filepath.Join(root, "internal", "check", "docs", name, "main.go")] = file
			packages = append(packages, "./internal/check/docs/"+name)
		}
	}
	if len(packages) < 2 {
		t.Fatalf("%d blocks of Go", len(packages))
	}
	list := filepath.Join(dir, "overlay.json")
	b, _ := json.Marshal(overlay)
	if err := os.WriteFile(list, b, 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(tool, append([]string{"build", "-overlay", list}, packages...)...)
	c.Dir = root
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestCBlockOfReadmeCompiles has a C compiler check the types of README's C, as the body of a function of its operands.
func TestCBlockOfReadmeCompiles(t *testing.T) {
	block := regexp.MustCompile("(?s)```c\n(.*?)```").FindStringSubmatch(readPages(t)["README.md"])
	if block == nil {
		t.Fatal("README.md has no C")
	}
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("there is no gcc")
	}
	check := func(body string) ([]byte, error) {
		c := exec.Command(cc, "-std=c11", "-Wall", "-Werror", "-fsyntax-only", "-I", filepath.Join(root, "csrc"), "-x", "c", "-")
		c.Stdin = strings.NewReader("#include \"vibrant.h\"\nvoid f(void *c, const void *a, const void *b, int64_t m, int64_t k, int64_t n) {\n" + body + "}\n")
		return c.CombinedOutput()
	}
	if out, err := check(block[1]); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := check(strings.Replace(block[1], "VB_F32, ", "", 1)); err == nil {
		t.Error("a call without one of its arguments is taken")
	}
}

// source returns a block of Go as a file of a package that is no program.
func source(block string) string {
	if clause := regexp.MustCompile(`(?m)^package \w+`); clause.MatchString(block) {
		return clause.ReplaceAllString(block, "package docs")
	}
	imports := ""
	for name, path := range map[string]string{"fmt": "fmt", "log": "log", "os": "os", "errors": "errors", "vibrant": module,
		"tensor": module + "/tensor", "gpu": module + "/gpu", "gguf": module + "/gguf", "npy": module + "/tensor/npy",
		"safetensors": module + "/tensor/safetensors"} {
		if regexp.MustCompile(`\b` + name + `\.`).MatchString(block) {
			imports += fmt.Sprintf("import %q\n", path)
		}
	}
	return "package docs\nimport \"context\"\n" + imports + "func main() {\nctx := context.Background()\n_ = ctx\n" + block + "}\n"
}

// TestTestsOfThePagesExist holds the tests that pages name against those that there are.
func TestTestsOfThePagesExist(t *testing.T) {
	texts := readPages(t)
	var all strings.Builder
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			source, e := os.ReadFile(path)
			all.Write(source)
			err = e
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for page, text := range texts {
		for _, name := range regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Za-z0-9]+)`").FindAllStringSubmatch(text, -1) {
			found++
			if !strings.Contains(all.String(), "func "+name[1]+"(") {
				t.Errorf("%s names %s, which is nowhere", page, name[1])
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d names were found", found)
	}
}

// TestDockerfileBuildsWithTheModulesGo holds the compiler of the image's first stage against go.mod.
func TestDockerfileBuildsWithTheModulesGo(t *testing.T) {
	image, err := os.ReadFile("../../../Dockerfile")
	if err != nil {
		t.Skipf("the sources are not here: %v", err)
	}
	module, err := os.ReadFile("../../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(module))
	if version == nil || !strings.Contains(string(image), "FROM golang:"+version[1]+"-") {
		t.Errorf("go.mod wants Go %v, the Dockerfile has another", version)
	}
	for _, line := range []string{":nonroot\n", "\nUSER nonroot\n"} {
		if !strings.Contains(string(image), line) {
			t.Errorf("the Dockerfile lacks %q: the command must not run as root", line)
		}
	}
}
