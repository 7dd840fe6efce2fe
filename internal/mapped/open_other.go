//go:build !unix

package mapped

// openFlags: opening waits for nobody on this system.
const openFlags = 0
