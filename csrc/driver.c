/* driver.c: finds NVIDIA's driver: libcuda.so.1, which comes with it and not with a toolkit. */
#include "driver.h"

#include <stdio.h>
#include <string.h>

#include "trace.h"
#include "vibrant.h"

static char report[256];

#ifdef __linux__

#include <dlfcn.h>
#include <pthread.h>

static pthread_once_t once = PTHREAD_ONCE_INIT, loaded = PTHREAD_ONCE_INIT;
static void *handle;
static int version; /* 0: no driver, or none that states it */
static vb_driver driver;
static const vb_driver *found;

enum { OLDEST = 12000 }; /* CUDA 12.0: graphs are updated by calls that came with it */

static void load(void) {
    handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!handle) return;
    vb_trace_phase("driver loaded");
    void *const symbol = dlsym(handle, "cuDriverGetVersion");
    int (*get)(int *);
    memcpy(&get, &symbol, sizeof get);
    if (!symbol || get(&version) != 0) version = 0;
}

int vb_driver_version(void) {
    pthread_once(&loaded, load);
    return version;
}

static void find(void) {
    pthread_once(&loaded, load);
    if (!handle) {
        snprintf(report, sizeof report,
            "no driver: the loader finds no libcuda.so.1 (install NVIDIA's driver, 525 or newer)");
        return;
    }
    if (version > 0 && version < OLDEST) {
        snprintf(report, sizeof report, "the driver is too old: it is of CUDA %d.%d (install 525 or newer)",
            version / 1000, version % 1000 / 10);
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
    const cu_result result = driver.init(0);
    vb_trace_phase("driver initialized (cuInit)");
    if (result != 0) {
        snprintf(report, sizeof report,
            "the driver does not start: error %d (is a GPU there, and may this user use it?)", result);
    } else if (version == 0) {
        snprintf(report, sizeof report, "the driver does not say its version (install 525 or newer)");
    } else {
        int gpus = 0;
        driver.device_count(&gpus);
        snprintf(report, sizeof report, "driver of CUDA %d.%d with %d GPU%s", version / 1000, version % 1000 / 10, gpus,
            gpus == 1 ? "" : gpus > 1 ? "s" : "s (CUDA_VISIBLE_DEVICES may hide them; nvidia-smi lists all)");
        found = &driver;
    }
}

const vb_driver *vb_driver_in_use(void) {
    pthread_once(&once, find);
    return found;
}

#else

int vb_driver_version(void) { return 0; }

const vb_driver *vb_driver_in_use(void) {
    snprintf(report, sizeof report, "this system has no driver of NVIDIA's");
    return NULL;
}

#endif

int vb_driver_owns(const vb_driver *in_use, int device, const void *memory, int64_t bytes) {
    enum { MANAGED = 8, ORDINAL = 9, RANGE_START = 11, RANGE_BYTES = 12 }; /* CUpointer_attribute */
    cu_address at = (cu_address)(uintptr_t)memory;
    if ((uint64_t)bytes > UINT64_MAX - at) return 0;
    const cu_address end = at + (uint64_t)bytes;
    while (at < end) { /* memory that was mapped in pieces has several ranges */
        cu_address start = 0;
        size_t size = 0;
        int owner = -1;
        unsigned managed = 0;
        if (in_use->pointer_attribute(&managed, MANAGED, at) != 0) return 0; /* the driver does not know it */
        if (!managed && (in_use->pointer_attribute(&owner, ORDINAL, at) != 0 || owner != device)) return 0;
        if (in_use->pointer_attribute(&start, RANGE_START, at) != 0) return 0;
        if (in_use->pointer_attribute(&size, RANGE_BYTES, at) != 0) return 0;
        if (start > at || size <= at - start) return 0;
        at = start + size;
    }
    return 1;
}

const char *vb_driver_report(void) {
    vb_driver_in_use();
    return report;
}
