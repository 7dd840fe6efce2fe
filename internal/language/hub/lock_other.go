//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package hub

import "os"

// tryLock has no locks here: two pulls of a file at once are for the user to avoid.
func tryLock(*os.File) (bool, error) { return true, nil }
