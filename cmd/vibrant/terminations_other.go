//go:build !unix

package main

import "os"

// terminations are the signals by which others end the process.
var terminations []os.Signal

// endByDefault has a signal do what it does in every program of Go, where its user wants more than an end: none here.
func endByDefault(os.Signal) {}

// statusOf returns the exit status for the end by a signal: 128 + SIGINT, the only one here.
func statusOf(os.Signal) int { return 130 }
