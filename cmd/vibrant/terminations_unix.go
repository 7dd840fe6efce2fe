//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// terminations are the signals by which others end the process.
var terminations = []os.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// endByDefault has a signal do what it does in every program of Go, where its user wants more than an end: SIGQUIT (Ctrl-\) shows what
// each goroutine does.
func endByDefault(s os.Signal) {
	if s != syscall.SIGQUIT {
		return
	}
	signal.Reset(s)
	syscall.Kill(os.Getpid(), syscall.SIGQUIT)
	select {}
}

// statusOf returns the exit status that shells report for the end by a signal.
func statusOf(s os.Signal) int { return 128 + int(s.(syscall.Signal)) }

// suspend stops the process and those beside it in a pipe, as Ctrl-Z does, until a shell has them go on. Where no shell waits for
// them, as in a container, the system ignores the signal, and suspend returns.
func suspend() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	syscall.Kill(0, syscall.SIGTSTP)
	select {
	case <-continued:
	case <-time.After(200 * time.Millisecond): // which pass while it is stopped too
	}
}
