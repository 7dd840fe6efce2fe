//go:build cgo && linux

package main

/*
#include <malloc.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

// The Go runtime reserves address space before any Go code runs and dies with a trace where it cannot. Below this limit it
// did so, at the start or soon after, in most runs.
#define NEEDED_SPACE ((rlim_t)7 << 28)
// The same of memory that can be written: a fifth of it failed, and blocks are refused that would leave less than 256 MB.
#define NEEDED_DATA ((rlim_t)1 << 29)

static void check(int resource, const char *what, const char *option, rlim_t needed) {
	struct rlimit limit;
	if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
#ifdef M_ARENA_MAX
	mallopt(M_ARENA_MAX, 1); // glibc reserves 64 MB for each thread that allocates
#endif
	if (limit.rlim_cur < needed) {
		fprintf(stderr, "vibrant: the %s is limited to %llu MB (ulimit %s): at least %llu MB are needed\n", what,
			(unsigned long long)limit.rlim_cur >> 20, option, (unsigned long long)needed >> 20);
		_exit(1);
	}
}

__attribute__((constructor)) static void check_limits(void) {
	check(RLIMIT_AS, "address space", "-v", NEEDED_SPACE);
	check(RLIMIT_DATA, "memory that can be written", "-d", NEEDED_DATA);
}
*/
import "C"
