/* nccl.c: communicators of processes on GPUs, by NCCL. NCCL is found at run time: libnccl.so.2, or the file that
 * VIBRANT_NCCL names. Source: "NCCL User Guide", NVIDIA. */
#include "nccl.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

static char report[512];
static const vb_nccl_calls *found;

#ifdef __linux__

#include <dlfcn.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static vb_nccl_calls library;

/* The oldest version that is taken: collectives of several streams in captured graphs are sound there. */
enum { OLDEST = 21800 };

/* Versions are 1000 major + 100 minor + patch up to 2.8, and then 10000 major + 100 minor + patch. */
static void print_version(char *text, size_t size, int version) {
    const int major = version < 10000 ? version / 1000 : version / 10000;
    snprintf(text, size, "%d.%d.%d", major, version % (version < 10000 ? 1000 : 10000) / 100, version % 100);
}

static void find(void) {
    const char *named = getenv("VIBRANT_NCCL"), *path = named && *named ? named : "libnccl.so.2";
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *error = dlerror();
        snprintf(report, sizeof report, "no NCCL: %.300s (2.18 or newer is needed; VIBRANT_NCCL names a file)",
                 error ? error : path);
        return;
    }
    const struct { void *place; const char *name; } all[] = {
        {&library.error_string, "ncclGetErrorString"},
#define X(field, name, parameters) {&library.field, name},
        VB_NCCL(X)
#undef X
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        void *symbol = dlsym(handle, all[i].name);
        if (!symbol) {
            snprintf(report, sizeof report, "%.300s is no NCCL, or too old: it has no %s (2.18 or newer is needed)",
                     path, all[i].name);
            return;
        }
        memcpy(all[i].place, &symbol, sizeof symbol);
    }
    int version = 0;
    char text[32];
    const int result = library.get_version(&version);
    print_version(text, sizeof text, version);
    if (result != NCCL_SUCCESS) {
        snprintf(report, sizeof report, "%.300s does not tell its version: error %d", path, result);
    } else if (version < OLDEST) {
        snprintf(report, sizeof report, "NCCL is too old: %.300s is %s, 2.18 or newer is needed", path, text);
    } else {
        snprintf(report, sizeof report, "NCCL %s", text);
        found = &library;
    }
}

static const vb_nccl_calls *in_use(void) {
    pthread_once(&once, find);
    return found;
}

#else

static const vb_nccl_calls *in_use(void) {
    snprintf(report, sizeof report, "no NCCL on this system");
    return NULL;
}

#endif

const char *vb_nccl(int *usable) {
    const int there = in_use() != NULL;
    if (usable) *usable = there;
    return report;
}

typedef struct nccl_communicator {
    vb_communicator base;
    const vb_nccl_calls *calls;
    void *comm;
    _Atomic(int) ended; /* by vb_communicator_abort */
    void *scratch[40];  /* captured graphs may use the older ones */
    int64_t scratch_bytes;
    int scratches;
} nccl_communicator;

static const vb_backend vb_nccl_backend;

/* The status of an error, whose text the stream keeps. Where the communicator was aborted, later calls find the device
 * lost. */
static vb_status status_of(int result, const nccl_communicator *c, vb_stream *stream) {
    if (result == NCCL_SUCCESS) return VB_OK;
    if (stream) stream->invalid_argument = found->error_string(result);
    return c && atomic_load(&c->ended) ? VB_DEVICE_LOST : VB_INTERNAL;
}

vb_status vb_unique_id(char *id) {
    if (!id) return VB_INVALID_ARGUMENT;
    const vb_nccl_calls *calls = in_use();
    if (!calls) return VB_UNSUPPORTED;
    nccl_id made;
    const vb_status s = status_of(calls->get_unique_id(&made), NULL, NULL);
    if (s == VB_OK) memcpy(id, &made, sizeof made);
    return s;
}

vb_status vb_communicator_join(vb_communicator **communicator, vb_stream *stream, int rank, int ranks, const char *id) {
    if (!communicator) return VB_INVALID_ARGUMENT;
    *communicator = NULL;
    if (!stream || !id || ranks < 1 || rank < 0 || rank >= ranks) return VB_INVALID_ARGUMENT;
    const vb_nccl_calls *calls = in_use();
    if (!calls || !stream->native) return VB_UNSUPPORTED;
    nccl_communicator *c = calloc(1, sizeof *c);
    if (!c) return VB_OUT_OF_MEMORY;
    c->base = (vb_communicator){
        .backend = &vb_nccl_backend, .ranks = 1, .first = rank, .all = ranks, .streams = {stream}};
    c->calls = calls;
    nccl_id given;
    memcpy(&given, id, sizeof given);
    /* NCCL takes the device that is current for this thread, which this call makes the stream's. */
    vb_status s = stream->device->backend->stream_synchronize(stream);
    if (s == VB_OK) s = status_of(calls->init_rank(&c->comm, ranks, given, rank), c, stream);
    if (s != VB_OK) {
        free(c);
        return s;
    }
    *communicator = &c->base;
    return VB_OK;
}

void vb_communicator_abort(vb_communicator *communicator) {
    if (!communicator || communicator->backend != &vb_nccl_backend) return;
    nccl_communicator *c = (nccl_communicator *)communicator;
    if (!atomic_exchange(&c->ended, 1)) c->calls->abort(c->comm);
}

static void destroy(vb_communicator *communicator) {
    nccl_communicator *c = (nccl_communicator *)communicator;
    vb_stream *stream = c->base.streams[0];
    stream->device->backend->stream_synchronize(stream);
    if (!atomic_load(&c->ended)) c->calls->destroy(c->comm);
    for (int i = 0; i < c->scratches; i++) stream->device->backend->free(c->scratch[i], stream->device);
    free(c);
}

/* Memory of the device that lives as long as the communicator. It grows by doubling, but not while work is captured:
 * captured work ran before. */
static vb_status scratch(void **memory, nccl_communicator *c, int64_t bytes) {
    if (bytes > c->scratch_bytes) {
        if (c->scratches == (int)(sizeof c->scratch / sizeof *c->scratch)) return VB_OUT_OF_MEMORY;
        int64_t more = c->scratch_bytes ? c->scratch_bytes : 1 << 16;
        while (more < bytes) more *= 2;
        vb_device *device = c->base.streams[0]->device;
        const vb_status s = device->backend->alloc(&c->scratch[c->scratches], more, device);
        if (s != VB_OK) return s;
        c->scratches++;
        c->scratch_bytes = more;
    }
    *memory = c->scratch[c->scratches - 1];
    return VB_OK;
}

static vb_status all_reduce(float *const *out, const float *const *in, const float *const *add, int64_t n, int rounded,
                            vb_communicator *communicator) {
    (void)rounded;
    nccl_communicator *c = (nccl_communicator *)communicator;
    vb_stream *stream = c->base.streams[0];
    if (atomic_load(&c->ended)) return VB_DEVICE_LOST;
    void *sum = out[0];
    if (add && add[0] == out[0]) { /* which the sum would overwrite */
        const vb_status s = scratch(&sum, c, n * (int64_t)sizeof(float));
        if (s != VB_OK) return s;
    }
    const int result =
        c->calls->all_reduce(in[0], sum, (size_t)n, NCCL_FLOAT32, NCCL_SUM, c->comm, stream->native);
    const vb_status s = status_of(result, c, stream);
    if (s != VB_OK || !add) return s;
    return stream->device->backend->add(out[0], sum, add[0], VB_F32, n, stream);
}

/* A broadcast of each rank: to its place where there is one row, else to scratch memory. From there the columns are put
 * side by side. */
static vb_status all_gather(float *const *out, const float *const *in, int64_t rows, const int64_t *cols,
                            vb_communicator *communicator) {
    nccl_communicator *c = (nccl_communicator *)communicator;
    vb_stream *stream = c->base.streams[0];
    if (atomic_load(&c->ended)) return VB_DEVICE_LOST;
    int64_t total = 0;
    for (int r = 0; r < c->base.all; r++) total += cols[r];
    void *place = out[0];
    vb_status s = rows == 1 ? VB_OK : scratch(&place, c, rows * total * (int64_t)sizeof(float));
    if (s != VB_OK) return s;
    int result = c->calls->group_start();
    float *at = place;
    for (int r = 0; r < c->base.all && result == NCCL_SUCCESS; at += rows * cols[r++]) {
        if (cols[r] == 0) continue;
        const void *from = r == c->base.first ? (const void *)in[0] : at;
        result = c->calls->broadcast(from, at, (size_t)(rows * cols[r]), NCCL_FLOAT32, r, c->comm, stream->native);
    }
    const int ended = c->calls->group_end(); /* also after an error */
    s = status_of(result != NCCL_SUCCESS ? result : ended, c, stream);
    at = place;
    for (int64_t r = 0, first = 0; r < c->base.all && rows > 1 && s == VB_OK; first += cols[r++]) {
        if (cols[r] > 0)
            s = vb_copy_columns(out[0], total, first, at, cols[r], 0, VB_F32, rows, cols[r], stream);
        at += rows * cols[r];
    }
    return s;
}

static vb_status broadcast(void *const *data, int64_t words, int root, vb_communicator *communicator) {
    nccl_communicator *c = (nccl_communicator *)communicator;
    vb_stream *stream = c->base.streams[0];
    if (atomic_load(&c->ended)) return VB_DEVICE_LOST;
    const int result =
        c->calls->broadcast(data[0], data[0], (size_t)words, NCCL_INT32, root, c->comm, stream->native);
    return status_of(result, c, stream);
}

static vb_status send(void *out, const void *in, int64_t words, int from, int to, vb_communicator *communicator) {
    nccl_communicator *c = (nccl_communicator *)communicator;
    vb_stream *stream = c->base.streams[0];
    const int own = c->base.first;
    if (atomic_load(&c->ended)) return VB_DEVICE_LOST;
    if (own != from && own != to) return VB_OK;
    if (from == to) return vb_memcpy(out, in, 4 * words, VB_DEVICE_TO_DEVICE, stream);
    const int result = own == from
        ? c->calls->send(in, (size_t)words, NCCL_INT32, to, c->comm, stream->native)
        : c->calls->receive(out, (size_t)words, NCCL_INT32, from, c->comm, stream->native);
    return status_of(result, c, stream);
}

static const vb_backend vb_nccl_backend = {
    .communicator_destroy = destroy,
    .all_reduce = all_reduce,
    .all_gather = all_gather,
    .broadcast = broadcast,
    .send = send,
};
