//go:build linux

package downstream

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/vibrant-ml/vibrant/internal/check/libraries"
)

// TestKernelsBesideTheLibraryAreFound installs the library below a PREFIX that the interpreter does not lie in, with CUDA kernels beside
// it: Python finds them there.
func TestKernelsBesideTheLibraryAreFound(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip(err)
	}
	prefix := t.TempDir()
	place := func(from, name string) string {
		data, err := os.ReadFile(from)
		if err != nil {
			t.Skipf("%v: make build/lib/libvibrant.so", err)
		}
		path := filepath.Join(prefix, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	place(filepath.Join(root, "build/lib/libvibrant.so"), "lib/libvibrant.so.0")
	example := place(filepath.Join(root, "examples/python/linear.py"), "share/doc/examples/linear.py")
	kernels := libraries.Compile(t, filepath.Join(root, "csrc"), libraries.WithoutKernels("0"))
	for _, name := range []string{"lib/libvibrant_cuda.so", "lib/vibrant/libvibrant_cuda.so", "lib/vibrant/cuda12/libvibrant_cuda.so"} {
		path := place(kernels, name)
		c := exec.Command(python, example, "cuda")
		c.Env = append(os.Environ(), "VIBRANT_LIBRARY=", "VIBRANT_CUDA=", "LD_LIBRARY_PATH="+filepath.Join(prefix, "lib"))
		out, err := c.CombinedOutput()
		if want := "vibrant: no such device, or no driver (" + path + ")\n"; err == nil || string(out) != want {
			t.Errorf("%v, %s; want %s", err, out, want)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}
