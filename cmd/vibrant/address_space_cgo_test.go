//go:build cgo && linux

package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Nothing of a pure Go program runs before its runtime has the memory: this holds for cgo builds alone.
func TestALimitedAddressSpaceIsOneLine(t *testing.T) {
	c := exec.Command("sh", "-c", `ulimit -v 700000; exec "$0" -test.run '^$'`, os.Args[0])
	out, err := c.CombinedOutput()
	if err == nil || strings.Count(string(out), "\n") != 1 || !strings.HasPrefix(string(out), "vibrant: the address space is limited to 683 MB") {
		t.Errorf("%v: %q", err, out)
	}
}
