package policy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path"
	"strings"
	"testing"
)

// documented is a function of a package, and what it panics with.
type documented struct {
	*ast.FuncDecl
	calls  map[types.Object]bool
	panics map[string]bool // "*ShapeError", "*OpError"
}

// panicSources are the functions of tensor that panic themselves.
var panicSources = map[string][]string{"misuse": {"*ShapeError"}, "fail": {"*OpError"}, "output": {"*ShapeError", "*OpError"}}

// nothing imports packages without their contents: of a call we want to know whether the function is of the package at hand.
type nothing struct{}

func (nothing) Import(name string) (*types.Package, error) {
	p := types.NewPackage(name, path.Base(name))
	p.MarkComplete()
	return p, nil
}

// undocumented names the exported functions of a package whose comments do not say what they panic with, or which errors they return.
func undocumented(set *token.FileSet, files []*ast.File) (all []string) {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: nothing{}, Error: func(error) {}}
	config.Check("tensor", set, files, info)
	functions := map[types.Object]*documented{}
	for _, file := range files {
		for _, d := range file.Decls {
			d, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			f := &documented{d, map[types.Object]bool{}, map[string]bool{}}
			functions[info.Defs[d.Name]] = f
			for _, p := range panicSources[d.Name.Name] {
				f.panics[p] = true
			}
			ast.Inspect(d, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && d.Name.Name != "Try" {
					if of, ok := info.Uses[id].(*types.Func); ok {
						f.calls[of.Origin()] = true
					}
				}
				return true
			})
		}
	}
	for changed := true; changed; {
		changed = false
		for _, f := range functions {
			for called := range f.calls {
				if g := functions[called]; g != nil {
					for p := range g.panics {
						changed = changed || !f.panics[p]
						f.panics[p] = true
					}
				}
			}
		}
	}
	for _, f := range functions {
		want := ""
		switch {
		case !f.Name.IsExported() || f.Recv != nil && !exportedReceiver(f.Recv) || f.Name.Name == "Try" || f.Name.Name == "Unwrap":
		case returnsError(f.Type):
			want = "rror"
		case f.panics["*OpError"]:
			want = "Panics: *ShapeError, *OpError."
		case f.panics["*ShapeError"]:
			want = "Panics: *ShapeError."
		}
		if !strings.Contains(strings.Join(strings.Fields(f.Doc.Text()), " "), want) {
			all = append(all, f.Name.Name+": "+want)
		}
	}
	return all
}

func exportedReceiver(r *ast.FieldList) bool {
	of := r.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	name, ok := of.(*ast.Ident)
	return ok && name.IsExported()
}

func returnsError(f *ast.FuncType) bool {
	if f.Results == nil {
		return false
	}
	last, ok := f.Results.List[len(f.Results.List)-1].Type.(*ast.Ident)
	return ok && last.Name == "error"
}

// TestOperationsSayTheirPanics holds the comments of package tensor to it.
func TestOperationsSayTheirPanics(t *testing.T) {
	set := token.NewFileSet()
	packages, err := parser.ParseDir(set, "../../../tensor", func(f fs.FileInfo) bool { return !strings.HasSuffix(f.Name(), "_test.go") }, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, f := range packages["tensor"].Files {
		files = append(files, f)
	}
	for _, missing := range undocumented(set, files) {
		t.Errorf("tensor: the comment lacks %q", missing)
	}

	const bad = `package tensor
type Tensor struct{}
func misuse(op string) {}
func fail(op string) {}
func (t *Tensor) check() { misuse("check") }
// Add adds.
func Add(a *Tensor) { func() { a.check() }() }
// Sub subtracts. Panics: *ShapeError.
func Sub(a *Tensor) { a.check(); fail("sub") }
// Mul multiplies. Panics: *ShapeError, *OpError.
func Mul(a *Tensor) { Sub(a) }
// Read reads.
func Read(a *Tensor) error { return nil }
// Neg negates.
func Neg(a *Tensor) {}
`
	file, err := parser.ParseFile(set, "bad.go", bad, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	if missing := undocumented(set, []*ast.File{file}); len(missing) != 3 {
		t.Errorf("missing in the example: %q, want Add, Sub and Read", missing)
	}
}
