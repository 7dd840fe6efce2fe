//go:build linux

// Package libraries makes shared libraries that a program must not take, for tests of what looks for one.
package libraries

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Compile makes a shared library of C text that may include headers of a folder, with more arguments of the compiler.
func Compile(t testing.TB, headers, text string, args ...string) string {
	t.Helper()
	source, library := filepath.Join(t.TempDir(), "library.c"), filepath.Join(t.TempDir(), "libvibrant.so")
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"-shared", "-fPIC", "-I" + headers, "-o", library, source}, args...)
	if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	return library
}

// WithoutKernels is a library of CUDA kernels that has none, for programs that find it and see no GPU by it: C text for Compile with csrc's
// headers. The driver is the oldest CUDA whose driver serves it, such as 13000.
func WithoutKernels(driver string) string {
	return Described("sizeof(vb_library)", "VB_VERSION", "VB_ABI", "sizeof(vb_backend)", driver)
}

// Described is such a library whose description may be spoilt.
func Described(size, version, abi, table, driver string) string {
	return `#include "library.h"
static vb_status count(int *n) { *n = 0; return VB_NO_DEVICE; }
static vb_status open_device(vb_device **d, int i, const vb_device_options *o) { (void)i, (void)o; *d = NULL; return VB_NO_DEVICE; }
static const vb_backend none = {.device_count = count, .device_open = open_device};
static const char *architectures(void) { return "90a"; }
const vb_library vb_library_of_cuda = {` + strings.Join([]string{size, abi, table, version, "architectures, &none", driver}, ", ") + `};`
}

// Refusal is a path that is not taken, and what the error says of it.
type Refusal = struct{ Name, Path, Want string }

// Refusals are of files that the loader must not see. They are made of a library that it would load, or are none.
func Refusals(t testing.TB, library string) []Refusal {
	t.Helper()
	data, err := os.ReadFile(library)
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string, data []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	set := func(data []byte, at, n int, value byte) []byte {
		data = bytes.Clone(data)
		for i := range n {
			data[at+i] = value
		}
		return data
	}
	const class, machine, sections, counts = 4, 18, 40, 60 // e_ident[EI_CLASS], e_machine, e_shoff, e_shnum and e_shstrndx
	unreadable := file("unreadable.so", data)
	if err := os.Chmod(unreadable, 0); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe.so")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	text := file("text.so", []byte(strings.Repeat("no library\n", 10)))
	return []Refusal{
		{"absent", filepath.Join(t.TempDir(), "none.so"), "no such file (VIBRANT_LIBRARY names it): correct the path or unset it"},
		{"folder", t.TempDir(), "is no regular file: name the library itself"},
		{"pipe", pipe, "is no regular file: name the library itself"},
		{"empty", file("empty.so", nil), "is no shared library of 64 bits: install that of this version"},
		{"text", text, "is no shared library of 64 bits: install that of this version"},
		{"32 bits", file("narrow.so", set(data, class, 1, 1)), "is no shared library of 64 bits: install that of this version"},
		{"another processor", file("foreign.so", set(data, machine, 1, data[machine]^1)), ": install the archive for this one"},
		{"cut short", file("short.so", data[:len(data)/2]), "is cut short: copy it again"},
		{unreadableName, unreadable, "cannot be read: let this user read it"},
		{"cut short, without sections", file("bare.so", set(set(data, sections, 8, 0), counts, 4, 0)[:len(data)/2]), "is cut short: copy it again"},
	}
}

const unreadableName = "unreadable"

// Refuse runs the test again for each path, in a process of its own with VIBRANT_TEST_LIBRARY set, since a process looks for a library
// once. What that process prints has to name the path and the reason.
func Refuse(t *testing.T, all []Refusal) {
	for _, c := range all {
		t.Run(c.Name, func(t *testing.T) {
			args := []string{os.Args[0], "-test.run=^" + strings.Split(t.Name(), "/")[0] + "$"}
			if c.Name == unreadableName && os.Geteuid() == 0 { // root reads every file while it has these capabilities
				if _, err := exec.LookPath("setpriv"); err != nil {
					t.Skip(err)
				}
				args = append([]string{"setpriv", "--bounding-set=-dac_override,-dac_read_search"}, args...)
			}
			run := exec.Command(args[0], args[1:]...)
			run.Env = append(os.Environ(), "VIBRANT_TEST_LIBRARY=1", "VIBRANT_LIBRARY="+c.Path)
			out, err := run.CombinedOutput()
			if err != nil || !strings.Contains(string(out), c.Path+": ") || !strings.Contains(string(out), c.Want) {
				t.Errorf("%v, %.500q; want %q", err, out, c.Want)
			}
		})
	}
}
