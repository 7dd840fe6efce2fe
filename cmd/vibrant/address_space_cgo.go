//go:build cgo && linux

package main

/*
#include <malloc.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

// The Go runtime reserves address space before any Go code runs and dies with a trace where it cannot. Below this limit it
// did so, at the start or soon after, in most runs.
#define NEEDED ((rlim_t)7 << 28)

__attribute__((constructor)) static void check_address_space(void) {
	struct rlimit limit;
	if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
#ifdef M_ARENA_MAX
	mallopt(M_ARENA_MAX, 1); // glibc reserves 64 MB for each thread that allocates
#endif
	if (limit.rlim_cur < NEEDED) {
		fprintf(stderr, "vibrant: the address space is limited to %llu MB (ulimit -v): at least %llu MB are needed\n",
			(unsigned long long)limit.rlim_cur >> 20, (unsigned long long)NEEDED >> 20);
		_exit(1);
	}
}
*/
import "C"
