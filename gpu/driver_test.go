//go:build linux

package gpu

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDriversThatAreMissingOldOrWithoutAGPU puts other drivers in the place of NVIDIA's, in processes of their own: the list of
// devices is without an error, Open("cuda") says why there is no GPU, and the CPU works.
func TestDriversThatAreMissingOldOrWithoutAGPU(t *testing.T) {
	if want := os.Getenv("VIBRANT_TEST_DRIVER"); want != "" {
		kind := ErrNoDevice
		if strings.Contains(want, "compute capability") {
			kind = ErrNoKernelImage
		}
		infos, err := Devices()
		if err != nil && !errors.Is(err, ErrNoKernelImage) || len(infos) != 1 {
			t.Errorf("%v, %v", infos, err)
		}
		_, err = Open("cuda")
		wants(t, err, kind)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
		if _, err := must[*Device](t)(Open("cpu")).Alloc(1); err != nil {
			t.Error(err)
		}
		return
	}
	source := driverSource(t)
	for name, c := range map[string]struct{ from, to, want string }{
		"old version":  {"*v = 12080;", "*v = 11040;", "the driver is too old: it is of CUDA 11.4"},
		"without call": {"int cuDeviceTotalMem_v2(", "int another_name(", "the driver is too old: it has no cuDeviceTotalMem"},
		"no start":     {"int cuInit(unsigned flags) { (void)flags; return 0;", "int cuInit(unsigned flags) { (void)flags; return 100;", "the driver does not start: error 100"},
		"no GPU":       {"{ *n = 1; return 0; }", "{ *n = 0; return 0; }", "with 0 GPUs (CUDA_VISIBLE_DEVICES may hide them"},
		"old GPU":      {"capability = named ? atoi(named) : 80", "capability = 61", "compute capability 7.0 and newer (this GPU is of 6.1: make lib-cuda CUDA_ARCH=61"},
		"PTX refused":  {"int cuModuleLoadData(void **m, const void *code) {", "int cuModuleLoadData(void **m, const void *code) { return 222;", "compute capability 7.0 and newer (a newer driver may help: this one refuses a kernel for sm_80, error 222"},
		"no library":   {"", "", "no driver: the loader finds no libcuda.so.1"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.from != "" {
				runWithDriver(t, changed(t, source, c.from, c.to), t.Name(), "VIBRANT_TEST_DRIVER="+c.want)
				return
			}
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "libcuda.so.1"), []byte("not a library"), 0o600); err != nil {
				t.Fatal(err)
			}
			runWithLibraries(t, dir, t.Name(), "VIBRANT_TEST_DRIVER="+c.want)
		})
	}
}

// TestAContextIsKeptUnlessItIsLost opens a GPU of a driver that refuses to make a context a second time, and then a GPU of a driver
// whose first context is lost at its first wait.
func TestAContextIsKeptUnlessItIsLost(t *testing.T) {
	switch os.Getenv("VIBRANT_TEST_DRIVER") {
	case "kept":
		for range 3 {
			must[*Device](t)(Open("cuda")).Close()
		}
	case "lost":
		d := must[*Device](t)(Open("cuda"))
		wants(t, d.Stream().Synchronize(), ErrDeviceLost)
		d.Close()
		d = must[*Device](t)(Open("cuda"))
		if err := d.Stream().Synchronize(); err != nil {
			t.Error(err)
		}
		d.Close()
	default:
		source := changed(t, driverSource(t), "int cuDevicePrimaryCtxRetain(void **c, int d) { (void)d; *c = &mutex; return 0; }", `
static int users, made, most = MOST;
int cuDevicePrimaryCtxRetain(void **c, int d) { (void)d; *c = &mutex; return users++ == 0 && ++made > most ? 999 : 0; }`)
		source = changed(t, source, "int cuDevicePrimaryCtxRelease_v2(int d) { (void)d; return 0; }",
			"int cuDevicePrimaryCtxRelease_v2(int d) { (void)d; users--; return 0; }")
		runWithDriver(t, changed(t, source, "MOST;", "1;"), t.Name(), "VIBRANT_TEST_DRIVER=kept")
		source = changed(t, source, "int cuStreamSynchronize(void *s) { (void)s; return 0; }",
			"int cuStreamSynchronize(void *s) { (void)s; return made == 1 ? 700 : 0; }")
		runWithDriver(t, changed(t, source, "MOST;", "2;"), t.Name(), "VIBRANT_TEST_DRIVER=lost")
	}
}

// TestTheKernelsThatServeAreNamed says of PTX where it serves, and nothing of it where a library alone may.
func TestTheKernelsThatServeAreNamed(t *testing.T) {
	if os.Getenv("VIBRANT_TEST_DRIVER") != "" {
		fmt.Println("kernels:", CUDALibrary())
		return
	}
	for kernels, want := range map[string]bool{"ptx": true, "library": false} {
		said := runWithDriver(t, driverSource(t), t.Name(), "VIBRANT_TEST_DRIVER="+kernels, "VIBRANT_CUDA="+kernels)
		if strings.Contains(said, "compiled by the driver from PTX") != want || !strings.Contains(said, "kernels: ") {
			t.Errorf("VIBRANT_CUDA=%s: %s", kernels, said)
		}
	}
}

// TestAStartSaysItsPhases opens a GPU where VIBRANT_TRACE asks for phases: those of C and of Go come in order, and their times do not fall.
func TestAStartSaysItsPhases(t *testing.T) {
	if os.Getenv("VIBRANT_TEST_DRIVER") != "" {
		must[*Device](t)(Open("cuda")).Close()
		return
	}
	said := runWithDriver(t, driverSource(t), t.Name(), "VIBRANT_TEST_DRIVER=phases", "VIBRANT_TRACE=ptx,start")
	var phases []string
	newest := 0.0
	for _, line := range strings.Split(said, "\n") {
		var at float64
		if n, _ := fmt.Sscanf(line, "vibrant: start: %f ms:", &at); n == 1 {
			if at < newest {
				t.Errorf("after %.1f ms: %s", newest, line)
			}
			newest = at
			_, name, _ := strings.Cut(line, " ms: ")
			phases = append(phases, name)
		}
	}
	want := []string{"driver loaded", "driver initialized (cuInit)", "context made", "code books copied", "first kernel loaded",
		"device cuda:0 opened", "device cuda:0 closed"}
	if !slices.Equal(phases, want) || !strings.Contains(said, "vibrant: compiled: ptx_probe in ") {
		t.Errorf("%q, want %q, in\n%s", phases, want, said)
	}
}

// driverSource returns the text of the driver for tests, and skips the test where this build has no use for one.
func driverSource(t *testing.T) string {
	t.Helper()
	if _, err := cudaBackend().Devices(); errors.Is(err, ErrNotCompiled) {
		t.Skip(err)
	}
	source, err := os.ReadFile("../csrc/testdata/libcuda.c")
	if err != nil {
		t.Skipf("the sources are not here: %v", err)
	}
	return string(source)
}

// changed replaces a text of the driver for tests.
func changed(t *testing.T, source, from, to string) string {
	t.Helper()
	if !strings.Contains(source, from) {
		t.Fatalf("the driver for tests has no %q", from)
	}
	return strings.Replace(source, from, to, 1)
}

// runWithDriver runs a test of this binary in a process that finds the driver of a source, and returns what it said.
func runWithDriver(t *testing.T, source, test string, environment ...string) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	build := exec.Command(cc, "-shared", "-fPIC", "-x", "c", "-", "-o", filepath.Join(dir, "libcuda.so.1"), "-lm")
	build.Stdin = strings.NewReader(source)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	return runWithLibraries(t, dir, test, environment...)
}

// runWithLibraries runs a test of this binary in a process whose loader looks into a folder first, and returns what it said.
func runWithLibraries(t *testing.T, dir, test string, environment ...string) string {
	t.Helper()
	test, _, _ = strings.Cut(test, "/")
	child := exec.Command(os.Args[0], "-test.run", "^"+test+"$")
	child.Env = append(append(os.Environ(), "LD_LIBRARY_PATH="+dir, "VIBRANT_CACHE="+dir, "VIBRANT_CUDA=ptx"), environment...)
	out, err := child.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return string(out)
}
