//go:build cgo && unix

package main

/*
#include <fcntl.h>

static int closed;

// Go's runtime opens /dev/null in the place of a stdout that is closed, before any Go code runs.
__attribute__((constructor)) static void look_at_stdout(void) { closed = fcntl(1, F_GETFD) < 0; }

static int stdout_was_closed(void) { return closed; }
*/
import "C"

// stdoutWasClosed reports whether the process began without a stdout.
func stdoutWasClosed() bool { return C.stdout_was_closed() != 0 }
