package mapped

import "golang.org/x/sys/unix"

// Limited reports whether the process's address space or its writable memory is limited (ulimit -v, -d).
func Limited() bool {
	for _, resource := range []int{unix.RLIMIT_AS, unix.RLIMIT_DATA} {
		var limit unix.Rlimit
		if unix.Getrlimit(resource, &limit) == nil && limit.Cur != unix.RLIM_INFINITY {
			return true
		}
	}
	return false
}
