//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package hub

import (
	"os"

	"golang.org/x/sys/unix"
)

// tryLock takes the lock of an open file, which ends with the file, unless somebody has it.
func tryLock(f *os.File) (bool, error) {
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err {
	case nil, unix.ENOTSUP, unix.ENOLCK: // some network file systems have no locks
		return true, nil
	case unix.EWOULDBLOCK, unix.EINTR:
		return false, nil
	default:
		return false, err
	}
}
