//go:build unix

package gguf

import (
	"errors"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

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
