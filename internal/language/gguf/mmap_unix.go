//go:build unix

package gguf

import (
	"errors"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// openNonblock opens a pipe that nobody writes to at once, instead of waiting for a writer.
const openNonblock = unix.O_NONBLOCK

// mmap maps the whole file read-only.
func mmap(fd *os.File, size int64) (data []byte, unmap func() error, err error) {
	if size <= 0 || size > math.MaxInt {
		return nil, nil, errors.ErrUnsupported
	}
	data, err = unix.Mmap(int(fd.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, err
	}
	return data, func() error { return unix.Munmap(data) }, nil
}
