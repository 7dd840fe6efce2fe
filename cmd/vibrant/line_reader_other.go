//go:build js || wasip1 || plan9

package main

import "os"

// newLineReader returns a reader of plain lines: the line editor does not know this system's terminals.
func newLineReader(in, out *os.File) (terminalReader, error) {
	return newPlainReader(in, out), nil
}
