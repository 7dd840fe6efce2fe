//go:build linux

package csrc_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// compile compiles C files with cc.
func compile(t *testing.T, out string, arguments ...string) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skipf("no C compiler: %v", err)
	}
	path := filepath.Join(t.TempDir(), out)
	c := exec.Command(cc, append([]string{"-std=c11", "-D_GNU_SOURCE", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-I.", "-o", path}, arguments...)...)
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, text)
	}
	return path
}

// TestNCCL runs the binding against a library with NCCL's names, whose ranks are threads.
func TestNCCL(t *testing.T) {
	program := compile(t, "nccl_test", "nccl.c", "testdata/nccl_test.c", "-ldl")
	stub := compile(t, "libnccl.so.2", "-shared", "-fPIC", "testdata/nccl_stub.c")
	other := compile(t, "libother.so", "-shared", "-fPIC", "-x", "c", os.DevNull)
	run := func(want string, arguments []string, env ...string) {
		t.Helper()
		c := exec.Command(program, arguments...)
		c.Env = append([]string{"PATH=" + os.Getenv("PATH")}, env...)
		out, err := c.CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) || strings.Count(string(out), "\n") != 1 {
			t.Errorf("%v: %v\n%s, want %q", env, err, out, want)
		}
	}
	beside := "LD_LIBRARY_PATH=" + filepath.Dir(stub)
	run("ok", []string{"all"}, beside)
	run("1 NCCL 2.28.5", nil, beside)
	run("1 NCCL 2.28.5", nil, "VIBRANT_NCCL="+stub)
	run("0 NCCL is too old: libnccl.so.2 is 2.10.3, 2.18 or newer is needed", nil, beside, "STUB_NCCL_VERSION=21003")
	run("is 2.7.8, 2.18 or newer is needed", nil, beside, "STUB_NCCL_VERSION=2708")
	run("0 no NCCL: /nowhere/libnccl.so.2: cannot open", nil, "VIBRANT_NCCL=/nowhere/libnccl.so.2")
	run("(2.18 or newer is needed; VIBRANT_NCCL names a file)", nil, "VIBRANT_NCCL=/nowhere/libnccl.so.2")
	run("libother.so is no NCCL, or too old: it has no ncclGetErrorString", nil, "VIBRANT_NCCL="+other)
}
