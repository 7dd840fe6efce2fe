//go:build !linux

package phase

import "time"

var began = time.Now()

// age returns the time since the package was initialized: nearly that since the process began.
func age() time.Duration { return time.Since(began) }
