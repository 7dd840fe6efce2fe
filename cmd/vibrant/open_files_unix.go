//go:build unix

package main

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// fewestFiles is how many files a command may open beside those that it names. Go's runtime takes two, and ends the process with a trace
// where it gets none.
const fewestFiles = 12

// checkOpenFiles says so where the process cannot open as many files.
func checkOpenFiles() error {
	var held []int
	defer func() {
		for _, fd := range held {
			unix.Close(fd)
		}
	}()
	for range fewestFiles {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
			return fmt.Errorf("only %d more files can be opened (ulimit -n): at least %d are needed", len(held), fewestFiles)
		}
		if err != nil {
			return nil // without /dev/null nothing is known
		}
		held = append(held, fd)
	}
	return nil
}
