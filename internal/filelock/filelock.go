// Package filelock has processes take turns by the lock of an open file.
package filelock

import "os"

// Try takes the lock of an open file, which ends with the file or its process, and reports whether it did: another open file may have
// the lock. errors.ErrUnsupported: the system or the file system has no locks.
func Try(f *os.File) (bool, error) { return try(f) }
