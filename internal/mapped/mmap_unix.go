//go:build unix

package mapped

import (
	"errors"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

func mmap(fd *os.File, size int64, private bool) ([]byte, error) {
	if size <= 0 || size > math.MaxInt {
		return nil, errors.ErrUnsupported
	}
	protection, flags := unix.PROT_READ, unix.MAP_SHARED
	if private {
		protection, flags = unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE
	}
	data, err := unix.Mmap(int(fd.Fd()), 0, int(size), protection, flags)
	if errors.Is(err, unix.ENODEV) {
		return nil, errors.ErrUnsupported // a file system without mappings
	}
	if err == nil && !roomToGrow() {
		return nil, errors.Join(unix.ENOMEM, unix.Munmap(data))
	}
	if err == nil && !private {
		largePages(data)
	}
	return data, err
}

func munmap(data []byte) error { return unix.Munmap(data) }

// roomToGrow reports whether the process can still grow by 256 MB where its address space is limited (ulimit -v): Go's runtime ends the
// process where it cannot grow, which nothing can catch.
func roomToGrow() bool {
	const room = 256 << 20
	if !Limited() {
		return true
	}
	probe, err := unix.Mmap(-1, 0, room, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	return err == nil && unix.Munmap(probe) == nil
}
