//go:build cgo && linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// limited runs a command line with so many KiB of address space (option -v), or of memory that can be written (-d).
func limited(option string, kib int, args ...string) (out string, err error) {
	c := exec.Command("sh", "-c", fmt.Sprintf(`ulimit %s %d; exec "$0" "$1"`, option, kib), os.Args[0], asCommand)
	c.Env = append(os.Environ(), commandEnv(args...))
	b, err := c.CombinedOutput()
	return string(b), err
}

// Nothing of a pure Go program runs before its runtime has the memory: this holds for cgo builds alone.
func TestALimitedAddressSpaceIsOneLine(t *testing.T) {
	m := reciter(t)
	for _, c := range []struct {
		option string
		kib    int
		args   []string
		want   string // a part of the line on stderr
	}{
		{"-d", 100_000, []string{"version"}, "vibrant: the memory that can be written is limited to 97 MB"},
		{"-d", 512 << 10, []string{"ask", "-m", m, "--device", "cpu", "-t", "1024", "Hi"}, "gpu: open c:0 with 1024 threads: "},
		{"-d", 512 << 10, []string{"ask", "-m", m, "--device", "cpu", "-c", "16000000", "Hi"}, "memory"},
		{"-v", 700_000, []string{"version"}, "vibrant: the address space is limited to 683 MB"},
		{"-v", 1793 << 10, []string{"ask", "-m", m, "--device", "cpu", "-t", "1024", "Hi"}, "gpu: open c:0 with 1024 threads: "},
		{"-v", 1793 << 10, []string{"ask", "-m", m, "--device", "cpu", "-c", "16000000", "Hi"}, "memory"},
	} {
		if out, err := limited(c.option, c.kib, c.args...); err == nil || err.Error() != "exit status 1" || strings.Count(out, "\n") != 1 || !strings.HasPrefix(out, "vibrant: ") || !strings.Contains(out, c.want) {
			t.Errorf("%s %d KiB, %q: %v, %q", c.option, c.kib, c.args, err, out)
		}
	}
}

func TestManyThreadsFitIntoALimitedAddressSpace(t *testing.T) {
	m := reciter(t)
	for range 5 {
		for option, kib := range map[string]int{"-v": 1793 << 10, "-d": 512 << 10} {
			if out, err := limited(option, kib, "ask", "-m", m, "--device", "cpu", "--temp", "0", "-t", "64", "Hi"); err != nil || out != " Hello, I recite.\n" {
				t.Errorf("%s %d KiB: %v, %.300q", option, kib, err, out)
			}
		}
	}
}
