package policy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestTheTableBesideOtherLibrariesIsComplete holds the first column of the table in docs/tensor.md to package tensor: it names each
// function that makes or changes tensors, X for XInto too, and nothing that is not there.
func TestTheTableBesideOtherLibrariesIsComplete(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "tensor.md"))
	if err != nil {
		t.Skipf("the sources are not here: %v", err)
	}
	_, table, ok := strings.Cut(string(text), "| here | PyTorch | gonum | gomlx |")
	if !ok {
		t.Fatal("docs/tensor.md has no table of operations beside PyTorch, gonum and gomlx")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	named := map[string]bool{}
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 6 && strings.TrimSpace(line) != "" {
			t.Errorf("not four columns: %s", line)
			continue
		}
		for _, name := range regexp.MustCompile("`([A-Za-z0-9_.]+)`").FindAllStringSubmatch(strings.Join(cells[min(1, len(cells)-1):min(2, len(cells))], ""), -1) {
			named[name[1]] = true
		}
	}
	exported := map[string]bool{}
	for _, folder := range []string{"tensor", "tensor/npy", "tensor/safetensors", "gguf"} {
		operations, all := functions(t, filepath.Join(root, filepath.FromSlash(folder)))
		if folder == "tensor" {
			for _, name := range operations {
				base := strings.TrimSuffix(name, "Into")
				if !named[name] && !(base != name && named[base]) {
					t.Errorf("docs/tensor.md: the table does not name %s", name)
				}
			}
		}
		for _, name := range all {
			if folder != "tensor" {
				name = filepath.Base(folder) + "." + name
			}
			exported[name] = true
		}
	}
	for name := range named {
		if !exported[name] {
			t.Errorf("docs/tensor.md: the table names %s, which is not there", name)
		}
	}
}

// functions returns the exported functions of a package that take or return a *Tensor, as methods of it do, and all that it exports.
func functions(t *testing.T, folder string) (operations, all []string) {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: no sources, %v", folder, err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !f.Name.IsExported() || f.Recv != nil && !isTensor(f.Recv.List[0].Type) {
				continue
			}
			all = append(all, f.Name.Name)
			fields := f.Type.Params.List
			if f.Type.Results != nil {
				fields = append(slices.Clone(fields), f.Type.Results.List...)
			}
			if slices.ContainsFunc(fields, func(p *ast.Field) bool { return isTensor(p.Type) }) {
				operations = append(operations, f.Name.Name)
			}
		}
	}
	return operations, all
}

// isTensor tells *Tensor, and lists of it.
func isTensor(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.StarExpr:
		name, ok := x.X.(*ast.Ident)
		return ok && name.Name == "Tensor"
	case *ast.ArrayType:
		return isTensor(x.Elt)
	case *ast.Ellipsis:
		return isTensor(x.Elt)
	}
	return false
}
