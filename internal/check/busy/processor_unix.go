//go:build unix

package busy

import (
	"syscall"
	"time"
)

// Processor returns what this process has computed on all processors. Other processes do not add to it.
func Processor() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
