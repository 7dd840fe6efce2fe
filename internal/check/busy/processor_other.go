//go:build !unix

package busy

import "time"

var start = time.Now()

// Processor returns the time that has passed, where the system does not tell what a process has computed.
func Processor() time.Duration { return time.Since(start) }
