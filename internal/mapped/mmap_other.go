//go:build !unix

package mapped

import (
	"errors"
	"os"
)

func mmap(*os.File, int64, bool) ([]byte, error) { return nil, errors.ErrUnsupported }

func munmap([]byte) error { return nil }
