package policy

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// listed is a package as go list describes it for a system.
type listed struct {
	ImportPath, Dir, ForTest string
	GoFiles                  []string
	ImportMap                map[string]string
	Standard                 bool
}

// systems are one processor of each GOOS, and the processors of 32 bits, whose tests are checked too. Of ios Go lists no program
// without cgo; its files are those of darwin.
func systems(t *testing.T) (all []string) {
	out, err := exec.Command("go", "tool", "dist", "list").Output()
	if err != nil {
		t.Fatal(err)
	}
	all = []string{"android/arm64"} // the one of android's that needs no cgo
	seen := map[string]bool{"android": true, "ios": true}
	for _, s := range strings.Fields(string(out)) {
		goos, _, _ := strings.Cut(s, "/")
		if !seen[goos] {
			seen[goos], all = true, append(all, s)
		}
	}
	for _, s := range []string{"linux/386", "linux/arm"} {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}

// TestPackagesAreForEverySystem checks the types of every package, without cgo, for each system of `go tool dist list`. Nothing is
// compiled. Files that go list leaves out have a build constraint.
func TestPackagesAreForEverySystem(t *testing.T) {
	if testing.Short() {
		t.Skip("checks the standard library for each system")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // a third less work: most types live as long as their system
	files := token.NewFileSet()
	parsed := map[string]*ast.File{} // systems share most files
	for _, system := range systems(t) {
		t.Run(system, func(t *testing.T) {
			goos, goarch, _ := strings.Cut(system, "/")
			list := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,ForTest,GoFiles,ImportMap,Standard")
			if system == "linux/386" || system == "linux/arm" {
				list.Args = append(list.Args, "-test")
			}
			list.Args = append(list.Args, "./...")
			list.Dir = filepath.Join("..", "..", "..")
			list.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch)
			list.Stderr = os.Stderr
			out, err := list.Output()
			if err != nil {
				t.Fatal(err)
			}
			check(t, files, parsed, goarch, json.NewDecoder(strings.NewReader(string(out))))
		})
	}
}

// check checks the types of packages that come after those that they import.
func check(t *testing.T, files *token.FileSet, parsed map[string]*ast.File, goarch string, packages *json.Decoder) {
	known := map[string]*types.Package{"unsafe": types.Unsafe}
	count := 0
	for {
		var p listed
		err := packages.Decode(&p)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if p.ImportPath == "unsafe" || strings.HasSuffix(p.ImportPath, ".test") {
			continue
		}
		own := !p.Standard && (p.ImportPath == module || strings.HasPrefix(p.ImportPath, module+"/"))
		var syntax []*ast.File
		for _, name := range p.GoFiles {
			path := filepath.Join(p.Dir, name)
			if parsed[path] == nil {
				if parsed[path], err = parser.ParseFile(files, path, nil, parser.SkipObjectResolution); err != nil {
					t.Fatal(err)
				}
			}
			syntax = append(syntax, parsed[path])
		}
		var wrong []string
		config := types.Config{
			IgnoreFuncBodies: !own,
			Sizes:            types.SizesFor("gc", goarch),
			Importer: importer(func(path string) (*types.Package, error) {
				if mapped, ok := p.ImportMap[path]; ok {
					path = mapped
				}
				return known[path], nil
			}),
			Error: func(err error) { wrong = append(wrong, err.Error()) },
		}
		name, _, _ := strings.Cut(p.ImportPath, " ")
		known[p.ImportPath], _ = config.Check(name, files, syntax, nil)
		if own {
			count++
			for _, w := range wrong[:min(3, len(wrong))] {
				t.Error(w)
			}
		}
	}
	if count < 10 {
		t.Errorf("only %d packages of the module were checked", count)
	}
}

type importer func(path string) (*types.Package, error)

func (f importer) Import(path string) (*types.Package, error) { return f(path) }
