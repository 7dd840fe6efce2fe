package mapped

import "golang.org/x/sys/unix"

// Limited reports whether the process's address space is limited (ulimit -v).
func Limited() bool {
	var limit unix.Rlimit
	return unix.Getrlimit(unix.RLIMIT_AS, &limit) == nil && limit.Cur != unix.RLIM_INFINITY
}
