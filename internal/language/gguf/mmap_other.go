//go:build !unix

package gguf

import (
	"errors"
	"os"
)

const openNonblock = 0 // opening does not wait on this system

// mmap maps nothing on this system: Open reads on demand.
func mmap(*os.File, int64) (data []byte, unmap func() error, err error) {
	return nil, nil, errors.ErrUnsupported
}
