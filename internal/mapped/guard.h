/* guard.h: see guard.c. */
#include <stddef.h>

int vb_guard(const void *start, size_t bytes); /* returns a slot, -1 where none is free */
int vb_guard_struck(int slot);
void vb_guard_release(int slot);
