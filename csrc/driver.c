/* driver.c: finds NVIDIA's driver: libcuda.so.1, which comes with it and not with a toolkit. */
#include "driver.h"

#include <stdio.h>
#include <string.h>

#include "vibrant.h"

static char report[256];

#ifdef __linux__

#include <dlfcn.h>
#include <pthread.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static vb_driver driver;
static const vb_driver *found;

enum { OLDEST = 12000 }; /* CUDA 12.0: graphs are updated by calls that came with it */

static void find(void) {
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        snprintf(report, sizeof report,
            "no driver: the loader finds no libcuda.so.1 (install NVIDIA's driver, 525 or newer)");
        return;
    }
    const struct { void *place; const char *name; } all[] = {
#define X(field, name, parameters) {&driver.field, name},
        VB_DRIVER(X)
#undef X
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        void *symbol = dlsym(handle, all[i].name);
        if (!symbol) {
            snprintf(report, sizeof report, "the driver is too old: it has no %s (install 525 or newer)", all[i].name);
            return;
        }
        memcpy(all[i].place, &symbol, sizeof symbol);
    }
    int version = 0;
    const cu_result result = driver.init(0);
    if (result != 0) {
        snprintf(report, sizeof report,
            "the driver does not start: error %d (is a GPU there, and may this user use it?)", result);
    } else if (driver.driver_version(&version) != 0 || version < OLDEST) {
        snprintf(report, sizeof report, "the driver is too old: it is of CUDA %d.%d (install 525 or newer)",
            version / 1000, version % 1000 / 10);
    } else {
        snprintf(report, sizeof report, "driver of CUDA %d.%d", version / 1000, version % 1000 / 10);
        found = &driver;
    }
}

const vb_driver *vb_driver_in_use(void) {
    pthread_once(&once, find);
    return found;
}

#else

const vb_driver *vb_driver_in_use(void) {
    snprintf(report, sizeof report, "this system has no driver of NVIDIA's");
    return NULL;
}

#endif

const char *vb_driver_report(void) {
    vb_driver_in_use();
    return report;
}
