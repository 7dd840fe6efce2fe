package mapped

import "golang.org/x/sys/unix"

// Limited reports whether the process's address space is limited (ulimit -v).
func Limited() bool {
	var limit unix.Rlimit
	return unix.Getrlimit(unix.RLIMIT_AS, &limit) == nil && limit.Cur != unix.RLIM_INFINITY
}

// roomToGrow reports whether the process can still grow by 256 MB where its address space is limited (ulimit -v): Go's runtime ends the
// process where it cannot grow, which nothing can catch.
func roomToGrow() bool {
	const room = 256 << 20
	if !Limited() {
		return true
	}
	probe, err := unix.Mmap(-1, 0, room, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	return err == nil && unix.Munmap(probe) == nil
}
