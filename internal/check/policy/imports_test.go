// Package policy states what holds between the packages of this module, as tests.
package policy

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/vibrant-ml/vibrant"

// rules states which packages of the module each package may import besides the standard library, in the manner of Go's
// own go/build/deps_test.go: imports go one way, and what reads files and text knows nothing of tensors. A line is
//
//	package, package < package, package
//
// where those on the left may import those on the right and whatever these may import. A name ending in /... stands for
// a folder and all below it; "." is the root package. Tests are free, as they may reach across.
const rules = `
dtype, internal/digits, internal/backend/generate, internal/check/pages, internal/check/soak, internal/check/testdata, internal/check/busy, internal/check/libraries, internal/mapped, internal/filelock, internal/language/demomodel, internal/phase, internal/cgroup, internal/environment <
internal/ranks          < internal/digits
internal/wholefile      < internal/filelock
internal/language/gguf  < internal/mapped
internal/backend/kernel < dtype
internal/backend/purego < internal/mapped
internal/backend/dynamic, internal/backend/profile, internal/backend/purego, internal/check/kerneltest, internal/check/absent < internal/backend/kernel, internal/check/testdata
csrc                    < internal/backend/dynamic
cuda                    < csrc
gpu                     < csrc, cuda, internal/backend/profile, internal/backend/purego, internal/ranks, internal/phase, internal/cgroup, internal/environment
ptx                     < csrc
internal/backend/fake           < internal/backend/purego
internal/fused          < gpu
gguf                    < internal/language/gguf, internal/wholefile, dtype
tensor                  < gpu, internal/fused, gguf
internal/arrayfile      < tensor, internal/mapped, internal/wholefile
tensor/npy, tensor/safetensors < internal/arrayfile
internal/check/optable        < tensor

internal/language/hub   < internal/mapped, internal/filelock
internal/language/tokenizer/..., internal/language/chat/..., internal/language/sample/... < internal/language/gguf, internal/check/testdata

internal/check/testmodel      < internal/language/gguf, internal/check/testdata
internal/language/model < tensor, tensor/safetensors, internal/language/gguf
internal/language/engine         < internal/language/model, internal/language/sample
.                       < internal/language/engine, internal/language/tokenizer, internal/language/chat, internal/language/chat/jinja, internal/language/hub
demo                    < ., internal/language/demomodel
cmd/...                 < ., demo, ptx, internal/check/optable
examples/...            < ., demo
scripts/...             < ., internal/language/demomodel
`

// A package below its own pattern may be imported within it: internal/language/chat uses internal/language/chat/jinja.
type rule struct {
	from []string
	to   []string
}

func parse(t *testing.T, text string) []rule {
	t.Helper()
	list := func(s string) (names []string) {
		for _, n := range strings.Split(s, ",") {
			if n = strings.TrimSpace(n); n != "" {
				names = append(names, n)
			}
		}
		return names
	}
	var all []rule
	for _, line := range strings.Split(text, "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		left, right, ok := strings.Cut(line, "<")
		if !ok {
			t.Fatalf("rule %q has no <", line)
		}
		all = append(all, rule{list(left), list(right)})
	}
	return all
}

func matches(pattern, pkg string) bool {
	folder, below := strings.CutSuffix(pattern, "/...")
	return pkg == folder || below && strings.HasPrefix(pkg, folder+"/")
}

// allowed returns the patterns of all that a package may import, and whether any rule names it.
func allowed(rules []rule, pkg string) (patterns map[string]bool, known bool) {
	patterns = map[string]bool{}
	var follow func(name string)
	follow = func(name string) {
		for _, r := range rules {
			for _, from := range r.from {
				if !matches(from, name) && from != name {
					continue
				}
				for _, to := range r.to {
					if !patterns[to] {
						patterns[to] = true
						follow(to)
					}
				}
			}
		}
	}
	for _, r := range rules {
		for _, from := range r.from {
			if matches(from, pkg) {
				known = true
				if strings.HasSuffix(from, "/...") && !strings.HasPrefix(from, "cmd") && !strings.HasPrefix(from, "examples") {
					patterns[from] = true
				}
			}
		}
	}
	follow(pkg)
	return patterns, known
}

// violations checks the imports of all packages: package -> its imports within the module.
func violations(rules []rule, imports map[string][]string) (all []string) {
	for _, pkg := range slices.Sorted(maps.Keys(imports)) {
		patterns, known := allowed(rules, pkg)
		if !known {
			all = append(all, fmt.Sprintf("%s: no rule in internal/check/policy says what it may import", pkg))
			continue
		}
		for _, imp := range imports[pkg] {
			if !slices.ContainsFunc(slices.Collect(maps.Keys(patterns)), func(p string) bool { return matches(p, imp) }) {
				all = append(all, fmt.Sprintf("%s may not import %s", pkg, imp))
			}
		}
	}
	return all
}

// sources reads the imports of every file that is no test, whatever its build tags.
func sources(root string) (map[string][]string, error) {
	imports := map[string][]string{}
	err := filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			if n := e.Name(); name != root && (strings.HasPrefix(n, ".") || strings.HasPrefix(n, "_") || n == "testdata" || n == "build") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(name))
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(dir)
		imports[pkg] = append(imports[pkg], []string{}...)
		for _, spec := range file.Imports {
			p, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if p == module {
				p = "."
			} else if rel, ours := strings.CutPrefix(p, module+"/"); ours {
				p = rel
			} else {
				continue
			}
			if !slices.Contains(imports[pkg], p) {
				imports[pkg] = append(imports[pkg], p)
			}
		}
		return nil
	})
	return imports, err
}

func TestImportsGoOneWay(t *testing.T) {
	_, file, _, _ := runtime.Caller(0)
	root := path.Join(path.Dir(filepath.ToSlash(file)), "..", "..", "..")
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Skipf("the sources are not here: %v", err)
	}
	imports, err := sources(filepath.Clean(root))
	if err != nil {
		t.Fatal(err)
	}
	if len(imports["gpu"]) == 0 || len(imports["tensor"]) == 0 {
		t.Fatalf("found no imports of gpu and tensor: %v", imports)
	}
	for _, v := range violations(parse(t, rules), imports) {
		t.Error(v)
	}
}

func TestThePolicyFindsWhatBreaksIt(t *testing.T) {
	parsed := parse(t, rules)
	for _, bad := range []struct{ pkg, imports string }{
		{"gpu", "tensor"}, {"internal/backend/kernel", "gpu"}, {"csrc", "gpu"}, {"cuda", "tensor"}, {"tensor", "internal/language/model"},
		{"internal/language/gguf", "tensor"}, {"internal/language/tokenizer", "internal/backend/kernel"}, {"internal/language/chat", "tensor"},
		{"internal/language/chat/jinja", "internal/language/model"}, {"internal/language/sample", "gpu"}, {"internal/language/model", "internal/language/engine"},
		{"internal/language/engine", "."}, {".", "cmd/vibrant"}, {"tensor", "internal/backend/fake"}, {"internal/fused", "tensor"}, {"gpu", "internal/check/optable"},
		{"examples/go/pool", "cmd/vibrant"}, {"internal/newcomer", "gpu"},
	} {
		if v := violations(parsed, map[string][]string{bad.pkg: {bad.imports}}); len(v) != 1 {
			t.Errorf("%s importing %s: %v", bad.pkg, bad.imports, v)
		}
	}
	for _, good := range []struct{ pkg, imports string }{
		{"gpu", "internal/backend/kernel"}, {"tensor", "internal/backend/kernel"}, {"internal/language/chat", "internal/language/chat/jinja"},
		{"internal/language/model", "internal/backend/kernel"}, {"cmd/vibrant", "."}, {"cmd/vibrant", "gpu"}, {"examples/go/matmul", "tensor"},
	} {
		if v := violations(parsed, map[string][]string{good.pkg: {good.imports}}); len(v) != 0 {
			t.Errorf("%s importing %s: %v", good.pkg, good.imports, v)
		}
	}
}

// TestTemplatesReachNoFilesAndNoNetwork holds what interprets templates, and tokenizers, to packages that cannot.
func TestTemplatesReachNoFilesAndNoNetwork(t *testing.T) {
	for _, folder := range []string{"chat", "chat/jinja", "tokenizer", "sample"} {
		files, err := filepath.Glob(filepath.Join("..", "..", "language", folder, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", folder, len(files), err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, imported := range file.Imports {
				name, _ := strconv.Unquote(imported.Path.Value)
				first, _, _ := strings.Cut(name, "/")
				if name != "net/url" && slices.Contains([]string{"C", "embed", "net", "os", "plugin", "syscall", "unsafe"}, first) || name == "io/fs" {
					t.Errorf("%s imports %s", path, name)
				}
			}
		}
	}
}
