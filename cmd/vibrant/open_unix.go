//go:build unix

package main

import "golang.org/x/sys/unix"

// openNonBlock does not wait for the other end of a pipe. openNoFollow refuses links too.
const (
	openNonBlock = unix.O_NONBLOCK
	openNoFollow = unix.O_NOFOLLOW | openNonBlock
)
