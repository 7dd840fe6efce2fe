//go:build cgo && linux

package tensor_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestOpsInterpreted runs TestOps on kernels in PTX without a GPU: a driver for tests interprets them (csrc/testdata/libcuda.c), in a
// process of its own that finds it in place of NVIDIA's. Where ptxas is, it must take each text without a warning.
func TestOpsInterpreted(t *testing.T) {
	if testing.Short() || raceDetector {
		t.Skip("half a minute of one core")
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip(err)
	}
	if _, err := os.Stat("../csrc/testdata/libcuda.c"); err != nil {
		t.Skipf("the sources are not here: %v", err)
	}
	dir := t.TempDir()
	texts := filepath.Join(dir, "texts")
	if err := os.Mkdir(texts, 0o700); err != nil {
		t.Fatal(err)
	}
	build := exec.Command(cc, "-O2", "-shared", "-fPIC", "-o", filepath.Join(dir, "libcuda.so.1"), "../csrc/testdata/libcuda.c", "-lm")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	run := func(pattern string) string {
		c := exec.Command(os.Args[0], "-test.run="+pattern, "-test.v")
		c.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir, "VIBRANT_CACHE="+filepath.Join(dir, "cache"), "VIBRANT_TEST_PTX="+texts, "VIBRANT_TRACE=ptx")
		out, err := c.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestOps/ptx") {
			var failed []string
			for _, line := range strings.Split(string(out), "\n") {
				if !strings.Contains(line, "--- PASS") && !strings.Contains(line, "=== ") {
					failed = append(failed, line)
				}
			}
			t.Fatalf("%v\n%.4000s", err, strings.Join(failed, "\n"))
		}
		return string(out)
	}
	run("^TestOps$/^ptx$")
	compiled, err := filepath.Glob(filepath.Join(texts, "*.ptx"))
	if err != nil || len(compiled) < 100 {
		t.Fatalf("%d texts, %v", len(compiled), err)
	}

	// A second process reads machine code from the cache; what is not whole is compiled again.
	cached, _ := filepath.Glob(filepath.Join(dir, "cache", "*.cubin"))
	if len(cached) < 100 {
		t.Fatalf("%d files in the cache", len(cached))
	}
	whole := map[string]int64{}
	for i, path := range cached {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		whole[path] = int64(len(b))
		switch i % 3 {
		case 0:
			b = b[:len(b)/2]
		case 1:
			b[len(b)-3] ^= 1
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run("^TestOps$/^ptx$/^(Add|RMSNorm|Linear)$")
	rewritten := 0
	for i, path := range cached {
		if info, err := os.Stat(path); err == nil && i%3 == 0 && info.Size() == whole[path] {
			rewritten++
		}
	}
	if rewritten == 0 {
		t.Error("no file that was cut short was written again")
	}

	ptxas, err := exec.LookPath("ptxas")
	if err != nil {
		t.Logf("not assembled: %v", err)
		return
	}
	for _, path := range compiled {
		out, err := exec.Command(ptxas, "-arch=sm_90", "-o", os.DevNull, path).CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("ptxas: %v\n%s", err, out)
		}
	}
}
