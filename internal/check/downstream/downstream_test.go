// Package downstream builds a program in a module of its own that requires this one, in each way that users have.
package downstream

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const program = `package main

import (
	"fmt"
	"os"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/tensor"
)

func main() {
	d, err := gpu.Open("cpu") // as the tensors below do
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer d.Close()
	err = tensor.Try(func() {
		a := tensor.FromSlice([]float32{1, 2, 3, 4}, 2, 2)
		fmt.Println(d.Info().Backend, tensor.MatMul(a, a).Float32s())
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if g, err := gpu.Open("cuda"); err != nil {
		fmt.Println(err)
	} else {
		fmt.Println("cuda", g.Info().Name)
		g.Close()
	}
}
`

const root = "../../.."

// module writes a module that requires this one where it lies here, with the versions of everything else.
func module(t *testing.T) string {
	t.Helper()
	ours, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Skipf("the sources are not here: %v", err)
	}
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`(?m)^module .*$`).ReplaceAllString(string(mod), "module example.com/downstream")
	text += "\nrequire github.com/vibrant-ml/vibrant v0.0.0\nreplace github.com/vibrant-ml/vibrant => " + ours + "\n"
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": text, "go.sum": string(sum), "main.go": program} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestDownstreamModule(t *testing.T) {
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skipf("the sources are not compiled here: %v", err)
	}
	if _, err := os.Stat(filepath.Join(root, "vendor")); err == nil {
		t.Skip("this copy has its modules in vendor, which another module does not see")
	}
	dir := module(t)
	library, _ := filepath.Abs(filepath.Join(root, "build/lib/libvibrant.so"))
	linked := filepath.Join(root, "build/cuda/libvibrant_cuda.a")
	const product = "[7 10 15 22]"
	for _, c := range []struct {
		name, cgo, tags, library string
		needs, remedy            string // a file, and how to get it
		want                     []string
	}{
		{name: "pure Go", cgo: "0", want: []string{"go " + product, "libvibrant.so"}},
		{name: "pure Go without a loader", cgo: "0", tags: "nodlopen", want: []string{"go " + product, "not compiled into this build"}},
		{name: "library at run time", cgo: "0", library: library, needs: library, remedy: "make build/lib/libvibrant.so", want: []string{"c " + product}},
		{name: "cgo", cgo: "1", needs: "cc", remedy: "a C compiler", want: []string{"c " + product}},
		{name: "cuda linked", cgo: "1", tags: "cuda", needs: linked, remedy: "make lib-cuda", want: []string{"c " + product, "cuda"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.needs != "" {
				_, err := os.Stat(c.needs)
				if c.needs == "cc" {
					_, err = exec.LookPath("cc")
				}
				if err != nil {
					t.Skipf("%v: %s", err, c.remedy)
				}
			}
			binary := filepath.Join(t.TempDir(), "downstream")
			build := exec.Command(tool, "build", "-mod=mod", "-buildvcs=false", "-tags", c.tags, "-o", binary, ".")
			build.Dir = dir
			build.Env = append(os.Environ(), "CGO_ENABLED="+c.cgo, "GOFLAGS=", "GOWORK=off")
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("build: %v\n%s", err, out)
			}
			run := exec.Command(binary)
			run.Env = append(os.Environ(), "VIBRANT_LIBRARY="+c.library, "VIBRANT_CPU=")
			out, err := run.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, want := range c.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
		})
	}
}

// TestPython runs the example that calls the library from Python.
func TestPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip(err)
	}
	library, _ := filepath.Abs(filepath.Join(root, "build/lib/libvibrant.so"))
	if _, err := os.Stat(library); err != nil {
		t.Skipf("%v: make build/lib/libvibrant.so", err)
	}
	run := func(library string, args ...string) (string, error) {
		c := exec.Command(python, append([]string{filepath.Join(root, "examples/python/linear.py")}, args...)...)
		c.Env = append(os.Environ(), "VIBRANT_LIBRARY="+library)
		out, err := c.CombinedOutput()
		return string(out), err
	}
	if out, err := run(library); err != nil || !strings.Contains(out, "y = 0.500 1.000 1.500 2.000 2.500 3.000 3.500 4.000") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := run(library, "tpu"); err == nil || !strings.Contains(out, "no kind of device: tpu") {
		t.Errorf("%v\n%s", err, out)
	}
}
