package main

import (
	"fmt"
	"os"
	"syscall"
)

// peak is the most memory that a process or one of its children held.
func peak(state *os.ProcessState) string {
	if state == nil {
		return ""
	}
	usage, ok := state.SysUsage().(*syscall.Rusage)
	if !ok {
		return ""
	}
	return fmt.Sprintf(", at most %d MiB", usage.Maxrss>>10)
}
