//go:build cgo && unix

package main

import "testing"

func TestAClosedStdoutIsAnError(t *testing.T) {
	if status, said := lostOutput(t, ">&-"); status.ExitStatus() != 1 || said != "vibrant: write /dev/stdout: file already closed\n" {
		t.Errorf("%#x, %q", status, said)
	}
}
