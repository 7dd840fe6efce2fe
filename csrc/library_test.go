//go:build cgo && linux && !cuda

package csrc_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/csrc"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/check/libraries"
)

// TestLibrariesThatAreNotTaken looks for GPUs in a process of its own for each library, since a process looks once.
func TestLibrariesThatAreNotTaken(t *testing.T) {
	if os.Getenv("VIBRANT_TEST_LIBRARY") != "" {
		_, err := csrc.CUDA().Devices()
		if !errors.Is(err, kernel.ErrNotCompiled) {
			t.Fatalf("devices: %v", err)
		}
		os.Stdout.WriteString(err.Error() + "\n")
		return
	}
	sized := func(size, version, abi, table string) string {
		return libraries.Compile(t, ".", libraries.Described(size, version, abi, table, "0"))
	}
	kernels := func(version, abi, table string) string { return sized("sizeof(vb_library)", version, abi, table) }
	libraries.Refuse(t, append(libraries.Refusals(t, kernels("VB_VERSION", "VB_ABI", "sizeof(vb_backend)")), []libraries.Refusal{
		{"a name without a folder", "library_test.go", "is no shared library of 64 bits: install that of this version"},
		{"another library", libraries.Compile(t, ".", "int answer(void) { return 42; }"), "holds no CUDA kernels of Vibrant: name libvibrant_cuda.so"},
		{"another version", kernels(`"9.8.7"`, "VB_ABI", "sizeof(vb_backend)"), "is of version 9.8.7, this program of"},
		{"another ABI", kernels("VB_VERSION", "VB_ABI + 1", "sizeof(vb_backend)"), "another ABI"},
		{"another table", kernels("VB_VERSION", "VB_ABI", "sizeof(vb_backend) - 8"), "another ABI"},
		{"a shorter description", sized("offsetof(vb_library, driver)", "VB_VERSION", "VB_ABI - 1", "sizeof(vb_backend)"), "another ABI"},
		{"another version's description", sized("offsetof(vb_library, driver)", `"0.0.1"`, "VB_ABI - 1", "sizeof(vb_backend)"), "is of version 0.0.1"},
		{"a description of nothing", sized("8", "NULL", "0", "0"), "another ABI"},
	}...))
}

// TestTheDriverChoosesTheLibrary lays this test's program, as a command, beside the libraries of two CUDA releases: the newest one that
// the driver serves is taken, and the report names each that the driver is too old for.
func TestTheDriverChoosesTheLibrary(t *testing.T) {
	if os.Getenv("VIBRANT_TEST_LIBRARY") != "" {
		_, err := csrc.CUDA().Devices()
		if !errors.Is(err, kernel.ErrNoDevice) {
			t.Fatalf("devices: %v", err)
		}
		os.Stdout.WriteString("kernels: " + csrc.CUDALibrary() + "\n")
		return
	}
	prefix, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	place := func(file, name string) string {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(prefix, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	of := func(driver string) string { return libraries.Compile(t, ".", libraries.WithoutKernels(driver)) }
	const below = "bin/../lib/vibrant/"
	program := place(os.Args[0], "bin/program")
	place(of("12000"), below+"cuda12/libvibrant_cuda.so")
	place(of("13000"), below+"cuda13/libvibrant_cuda.so")
	old := func(path, release, driver, install string) string {
		return filepath.Join(prefix, "bin") + "/../lib/vibrant/" + path + ": needs a driver of CUDA " + release + ", and the driver is of CUDA " +
			driver + ": install driver " + install
	}
	taken := func(release string) string {
		return "kernels: " + filepath.Join(prefix, "bin") + "/../lib/vibrant/" + release + "libvibrant_cuda.so\n"
	}
	run := func(driver string, want ...string) {
		t.Helper()
		folder := t.TempDir()
		text := "int cuDriverGetVersion(int *v) { *v = " + driver + "; return 0; }"
		if err := os.Rename(libraries.Compile(t, ".", text), filepath.Join(folder, "libcuda.so.1")); err != nil {
			t.Fatal(err)
		}
		c := exec.Command(program, "-test.run=^"+t.Name()+"$")
		c.Env = append(os.Environ(), "VIBRANT_TEST_LIBRARY=1", "VIBRANT_LIBRARY=", "LD_LIBRARY_PATH="+folder)
		out, err := c.CombinedOutput()
		for _, w := range want {
			if err != nil || !strings.Contains(string(out), w) {
				t.Errorf("driver %s: %v, %s; want %q", driver, err, out, w)
			}
		}
	}
	run("13000", taken("cuda13/"))
	run("14010", taken("cuda13/"))
	run("0", taken("cuda13/")) // as without a driver
	run("12080", taken("cuda12/"))
	run("12000", taken("cuda12/"))
	both := []string{old("cuda13/libvibrant_cuda.so", "13", "11.4", "580 or newer;"), old("cuda12/libvibrant_cuda.so", "12", "11.4", "525 or newer\n")}
	run("11040", both...)
	if err := os.RemoveAll(filepath.Join(prefix, below, "cuda12")); err != nil {
		t.Fatal(err)
	}
	run("12040", old("cuda13/libvibrant_cuda.so", "13", "12.4", "580 or newer, or the library of CUDA 12\n"))
	place(of("12000"), below+"libvibrant_cuda.so")
	run("12040", taken(""))
}
