//go:build unix

package mapped

import "golang.org/x/sys/unix"

// openFlags keep the open of a pipe, which is refused after it, from waiting for a writer.
const openFlags = unix.O_NONBLOCK
