//go:build !unix

package gguf

// openFlags: opening waits for nobody on this system.
const openFlags = 0
