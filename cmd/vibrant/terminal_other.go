//go:build !linux

package main

import "os"

// isTerminal reports whether v is a file that is a character device: a terminal, or rarely a null device.
func isTerminal(v any) bool {
	f, ok := v.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}
