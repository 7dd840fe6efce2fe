//go:build cgo && linux && !cuda

package csrc_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vibrant-ml/vibrant/csrc"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// build compiles C text to a shared library, which the tests offer as a library of CUDA kernels.
func build(t *testing.T, text string) string {
	t.Helper()
	source, library := filepath.Join(t.TempDir(), "library.c"), filepath.Join(t.TempDir(), "libvibrant_cuda.so")
	if err := os.WriteFile(source, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-I.", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	return library
}

// kernels is a library without kernels whose description can be spoilt.
func kernels(version, abi, table string) string {
	return `#include "library.h"
static const vb_backend none;
static const char *architectures(void) { return "90a"; }
const vb_library vb_library_of_cuda = {sizeof(vb_library), ` + abi + `, ` + table + `, ` + version + `, architectures, &none};`
}

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
	whole := build(t, kernels("VB_VERSION", "VB_ABI", "sizeof(vb_backend)"))
	data, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string, data []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	foreign := append([]byte(nil), data...)
	foreign[18] ^= 1 // e_machine
	narrow := append([]byte(nil), data...)
	narrow[4] = 1 // EI_CLASS: 32 bits
	unreadable := file("unreadable.so", data)
	if err := os.Chmod(unreadable, 0); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe.so")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, library, want string }{
		{"absent", filepath.Join(t.TempDir(), "none.so"), "no such file (VIBRANT_LIBRARY names it): correct the path or unset it"},
		{"a name without a folder", "library_test.go", "is no shared library of 64 bits: install that of this version"},
		{"a folder", t.TempDir(), "is no regular file: name the library itself"},
		{"text", file("text.so", []byte("no library\n")), "is no shared library of 64 bits: install that of this version"},
		{"cut short", file("short.so", data[:len(data)/2]), "is cut short: copy it again"},
		{"another processor", file("foreign.so", foreign), ": install the archive for this one"},
		{"32 bits", file("narrow.so", narrow), "is no shared library of 64 bits: install that of this version"},
		{"a pipe", pipe, "is no regular file: name the library itself"},
		{"unreadable", unreadable, "cannot be read: let this user read it"},
		{"another library", build(t, "int answer(void) { return 42; }"), "holds no CUDA kernels of Vibrant: name libvibrant_cuda.so"},
		{"another version", build(t, kernels(`"9.8.7"`, "VB_ABI", "sizeof(vb_backend)")), "is of version 9.8.7, this program of"},
		{"another ABI", build(t, kernels("VB_VERSION", "VB_ABI + 1", "sizeof(vb_backend)")), "another ABI"},
		{"another table", build(t, kernels("VB_VERSION", "VB_ABI", "sizeof(vb_backend) - 8")), "another ABI"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.library == unreadable && os.Geteuid() == 0 {
				t.Skip("root reads every file")
			}
			run := exec.Command(os.Args[0], "-test.run=^TestLibrariesThatAreNotTaken$")
			run.Env = append(os.Environ(), "VIBRANT_TEST_LIBRARY=1", "VIBRANT_LIBRARY="+c.library)
			out, err := run.CombinedOutput()
			if err != nil || !strings.Contains(string(out), c.library+": ") && c.name != "absent" || !strings.Contains(string(out), c.want) {
				t.Errorf("%v, %q; want %q", err, out, c.want)
			}
		})
	}
}
