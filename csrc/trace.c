/* trace.c: see trace.h. */
#include "trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int vb_trace_asks(const char *word) {
    const char *at = getenv("VIBRANT_TRACE");
    for (; at && *at; at += *at == ',') {
        const size_t length = strcspn(at, ",");
        if (length == strlen(word) && memcmp(at, word, length) == 0) return 1;
        at += length;
    }
    return 0;
}

#ifdef __linux__

/* Milliseconds since the process began. The kernel tells the beginning in steps of 10 ms: all lines share the error. */
static double milliseconds(void) {
    enum { STARTTIME = 22, TICKS = 100 }; /* of /proc/self/stat: proc(5) */
    char line[1024] = "";
    FILE *file = fopen("/proc/self/stat", "r");
    if (file && !fgets(line, sizeof line, file)) line[0] = 0;
    if (file) fclose(file);
    const char *at = strrchr(line, ')'); /* field 2, which may hold spaces */
    for (int field = 2; at && field < STARTTIME; field++) at = strchr(at + 1, ' ');
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec - 1e3 / TICKS * (at ? strtod(at, NULL) : 0);
}

#else

static double milliseconds(void) { return 1e3 * (double)clock() / CLOCKS_PER_SEC; }

#endif

void vb_trace_phase(const char *phase) {
    if (vb_trace_asks("start")) fprintf(stderr, "vibrant: start: %.1f ms: %s\n", milliseconds(), phase);
}
