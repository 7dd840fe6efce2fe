//go:build unix

package main

import (
	"os"
	"syscall"
)

// terminations are the signals by which others end the process.
var terminations = []os.Signal{syscall.SIGTERM, syscall.SIGHUP}

// statusOf returns the exit status that shells report for the end by a signal.
func statusOf(s os.Signal) int { return 128 + int(s.(syscall.Signal)) }
