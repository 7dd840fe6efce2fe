//go:build cgo && linux

package gpu

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
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
	if _, err := cudaBackend().Devices(); errors.Is(err, ErrNotCompiled) {
		t.Skip(err)
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip(err)
	}
	source, err := os.ReadFile("../csrc/testdata/libcuda.c")
	if err != nil {
		t.Skipf("the sources are not here: %v", err)
	}
	for name, c := range map[string]struct{ from, to, want string }{
		"old version":  {"*v = 12080;", "*v = 11040;", "the driver is too old: it is of CUDA 11.4"},
		"without call": {"int cuDeviceTotalMem_v2(", "int another_name(", "the driver is too old: it has no cuDeviceTotalMem"},
		"no start":     {"int cuInit(unsigned flags) { (void)flags; return 0;", "int cuInit(unsigned flags) { (void)flags; return 100;", "the driver does not start: error 100"},
		"no GPU":       {"{ *n = 1; return 0; }", "{ *n = 0; return 0; }", "with 0 GPUs (CUDA_VISIBLE_DEVICES may hide them"},
		"old GPU":      {"capability = named ? atoi(named) : 80", "capability = 61", "compute capability 7.0 and newer"},
		"PTX refused":  {"int cuModuleLoadData(void **m, const void *code) {", "int cuModuleLoadData(void **m, const void *code) { return 222;", "compute capability 7.0 and newer (a newer driver may help: this one refuses a kernel for sm_80, error 222"},
		"no library":   {"", "", "no driver: the loader finds no libcuda.so.1"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			changed := strings.Replace(string(source), c.from, c.to, 1)
			if c.from == "" {
				changed = "not a library"
				if err := os.WriteFile(filepath.Join(dir, "libcuda.so.1"), []byte(changed), 0o600); err != nil {
					t.Fatal(err)
				}
			} else {
				if changed == string(source) {
					t.Fatalf("the driver for tests has no %q", c.from)
				}
				build := exec.Command(cc, "-shared", "-fPIC", "-x", "c", "-", "-o", filepath.Join(dir, "libcuda.so.1"), "-lm")
				build.Stdin = strings.NewReader(changed)
				if out, err := build.CombinedOutput(); err != nil {
					t.Fatalf("cc: %v\n%s", err, out)
				}
			}
			child := exec.Command(os.Args[0], "-test.run", "^TestDriversThatAreMissingOldOrWithoutAGPU$")
			child.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir, "VIBRANT_TEST_DRIVER="+c.want, "VIBRANT_CACHE="+dir, "VIBRANT_CUDA=ptx")
			if out, err := child.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
