//go:build cgo && linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// limited runs a command line in so many KiB of address space.
func limited(kib int, args ...string) (out string, err error) {
	c := exec.Command("sh", "-c", fmt.Sprintf(`ulimit -v %d; exec "$0" "$1"`, kib), os.Args[0], asCommand)
	c.Env = append(os.Environ(), commandEnv(args...))
	b, err := c.CombinedOutput()
	return string(b), err
}

// Nothing of a pure Go program runs before its runtime has the memory: this holds for cgo builds alone.
func TestALimitedAddressSpaceIsOneLine(t *testing.T) {
	m := reciter(t)
	for _, c := range []struct {
		kib  int
		args []string
		want string // a part of the line on stderr
	}{
		{700_000, []string{"version"}, "vibrant: the address space is limited to 683 MB"},
		{1793 << 10, []string{"ask", "-m", m, "--device", "cpu", "-t", "1024", "Hi"}, "gpu: open c:0 with 1024 threads: "},
		{1793 << 10, []string{"ask", "-m", m, "--device", "cpu", "-c", "16000000", "Hi"}, "memory"},
	} {
		if out, err := limited(c.kib, c.args...); err == nil || err.Error() != "exit status 1" || strings.Count(out, "\n") != 1 || !strings.HasPrefix(out, "vibrant: ") || !strings.Contains(out, c.want) {
			t.Errorf("%d KiB, %q: %v, %q", c.kib, c.args, err, out)
		}
	}
}

func TestManyThreadsFitIntoALimitedAddressSpace(t *testing.T) {
	m := reciter(t)
	for range 5 {
		if out, err := limited(1793<<10, "ask", "-m", m, "--device", "cpu", "--temp", "0", "-t", "64", "Hi"); err != nil || out != " Hello, I recite.\n" {
			t.Errorf("%v, %.300q", err, out)
		}
	}
}
