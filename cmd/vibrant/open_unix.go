//go:build unix

package main

import "golang.org/x/sys/unix"

// openNoFollow refuses links, and does not wait for the other end of a pipe.
const openNoFollow = unix.O_NOFOLLOW | unix.O_NONBLOCK
