//go:build unix

package main

import (
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// probeTime is how long a terminal may take to answer: many round trips of a slow connection.
const probeTime = time.Second

// probe asks the terminal where the cursor is, which the line editor has to know, and reports whether it answers. typed
// is what else was read meanwhile.
func probe(in, out *os.File) (typed string, answers bool, err error) {
	fd := int(in.Fd())
	before, err := makeRaw(in, out)
	if err != nil {
		return "", false, nil // not a terminal that can be edited on
	}
	defer leaveRaw(in, before)
	if _, err := io.WriteString(out, "\x1b[6n"); err != nil {
		return "", false, err
	}
	deadline := time.Now().Add(probeTime)
	var read []byte
	for {
		wait := time.Until(deadline)
		if wait <= 0 {
			return string(read), false, nil
		}
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(wait.Milliseconds())+1)
		if err == unix.EINTR || ready == 0 {
			continue
		}
		if err != nil {
			return string(read), false, err
		}
		var b [256]byte
		n, err := unix.Read(fd, b[:])
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		if n <= 0 || err != nil {
			return string(read), false, nil // the end of the input: the reader meets it again
		}
		read = append(read, b[:n]...)
		if at := positionReport.FindIndex(read); at != nil {
			return string(read[:at[0]]) + string(read[at[1]:]), true, nil
		}
	}
}
