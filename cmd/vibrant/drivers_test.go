//go:build cgo && linux

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAutoSaysWhyADriverDoesNotServe has drivers that no kernels run on: auto answers on the CPU, -v and devices say why and name a
// remedy, and cuda fails in one line.
func TestAutoSaysWhyADriverDoesNotServe(t *testing.T) {
	const driver = "../../csrc/testdata/libcuda.c"
	source, err := os.ReadFile(driver)
	if err != nil {
		t.Skipf("the sources are not here: %v", err)
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip(err)
	}
	m := reciter(t)
	for name, c := range map[string]struct{ from, to, environment, want, remedy string }{
		"old GPU":     {"", "", "VIBRANT_TEST_CAPABILITY=61", "this GPU is of 6.1", "make lib-cuda CUDA_ARCH=61"},
		"PTX refused": {"", "", "VIBRANT_TEST_REFUSES=.version", "this one refuses a kernel for sm_80, error 218", "a newer driver may help"},
		"old driver":  {"*v = 12080;", "*v = 11040;", "VIBRANT_CUDA=ptx", "the driver is too old: it is of CUDA 11.4", "install 525 or newer"},
		"no driver":   {string(source), "int nothing;", "VIBRANT_CUDA=ptx", "the driver is too old: it has no cuInit", "install 525 or newer"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			build := exec.Command(cc, "-shared", "-fPIC", "-x", "c", "-", "-o", filepath.Join(dir, "libcuda.so.1"), "-lm", "-pthread")
			build.Stdin = strings.NewReader(strings.Replace(string(source), c.from, c.to, min(1, len(c.from))))
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("cc: %v\n%s", err, out)
			}
			run := func(args ...string) (string, string, error) {
				p := exec.Command(os.Args[0], asCommand)
				p.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir, "VIBRANT_CUDA=ptx", "VIBRANT_CACHE="+dir, c.environment, commandEnv(args...))
				var out, errs bytes.Buffer
				p.Stdout, p.Stderr = &out, &errs
				err := p.Run()
				return out.String(), errs.String(), err
			}
			answer, said, err := run("ask", "-m", m, "--device", "auto", "-v", "-n", "4", "hi")
			if err != nil || answer == "" || !strings.Contains(said, "no GPU: ") || !strings.Contains(said, c.want) || !strings.Contains(said, c.remedy) {
				t.Errorf("auto: %v, %q, %q", err, answer, said)
			}
			list, said, err := run("devices", "-v")
			if err != nil || !strings.HasPrefix(list, "ID ") || !strings.Contains(said, c.want) || !strings.Contains(said, c.remedy) {
				t.Errorf("devices: %v, %q, %q", err, list, said)
			}
			_, said, err = run("ask", "-m", m, "--device", "cuda", "hi")
			if err == nil || !strings.HasPrefix(said, "vibrant: ") || strings.Count(said, "\n") != 1 || !strings.Contains(said, c.want) {
				t.Errorf("cuda: %v, %q", err, said)
			}
		})
	}
}
