//go:build !js && !wasip1 && !plan9

package main

import (
	"os"
	"strings"

	"golang.org/x/term"
)

// makeRaw makes the terminal raw and returns how it was. A signal that ends the process finds that too, at any moment.
func makeRaw(in, out *os.File) (before *term.State, err error) {
	fd := int(in.Fd())
	if before, err = term.GetState(fd); err != nil {
		return nil, err
	}
	atExit.Store(&terminalState{fd, before, out})
	if _, err = term.MakeRaw(fd); err != nil {
		atExit.Store(nil)
		return nil, err
	}
	return before, nil
}

// leaveRaw makes the terminal what it was.
func leaveRaw(in *os.File, before *term.State) error {
	err := term.Restore(int(in.Fd()), before)
	atExit.Store(nil)
	return err
}

// cooked returns what a terminal's driver makes of keys that were read in raw mode: Enter ends a line, and Ctrl-U takes back what was
// typed of it. Ctrl-D is dropped: the next one leaves.
func cooked(typed string) string {
	typed = strings.NewReplacer("\r", "\n", "\x04", "").Replace(typed)
	lines := strings.SplitAfter(typed, "\n")
	for i, line := range lines {
		lines[i] = line[strings.LastIndexByte(line, 0x15)+1:]
	}
	return strings.Join(lines, "")
}
