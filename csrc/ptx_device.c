/* ptx_device.c: devices, memory, streams, events and graphs of GPUs through the driver's API, and their table for
 * ops.c.
 *
 * The driver's current context belongs to a thread and goroutines change threads, so each call sets it anew.
 * All devices of one GPU share its primary context, with other users of the driver in the process too. */
#include "ptx_device.h"

#include "trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct jit_event {
    struct vb_event base;
    void *handle;
} jit_event;

typedef struct jit_graph {
    struct vb_graph base;
    void *recorded, *executable;
} jit_graph;

static vb_jit_device *of(const vb_device *device) { return (vb_jit_device *)(uintptr_t)device; }

static vb_status status_of(cu_result result) {
    if (result >= CU_FIRST_FAULT && result <= CU_LAST_FAULT) return VB_DEVICE_LOST;
    switch (result) {
    case CU_OUT_OF_MEMORY: return VB_OUT_OF_MEMORY;
    case CU_NO_DEVICE:
    case CU_INVALID_DEVICE: return VB_NO_DEVICE;
    case CU_INVALID_IMAGE:
    case CU_NO_BINARY:
    case CU_INVALID_PTX:
    case CU_UNSUPPORTED_PTX: return VB_NO_KERNEL_IMAGE;
    case CU_ILLEGAL_ADDRESS:
    case CU_LAUNCH_TIMEOUT:
    case CU_ASSERT:
    case CU_UNCORRECTABLE: return VB_DEVICE_LOST;
    case CU_NOT_SUPPORTED: return VB_UNSUPPORTED;
    }
    return VB_INTERNAL;
}

vb_status vb_jit_status(cu_result result, vb_jit_device *device) {
    if (result == 0) return VB_OK;
    const vb_status status = status_of(result);
    if (device) device->driver_error = result;
    if (device && status == VB_DEVICE_LOST) device->lost = true;
    return status;
}

#define TRY(call) \
    do { \
        const vb_status status_ = (call); \
        if (status_ != VB_OK) return status_; \
    } while (0)
#define DRIVER(d, call, ...) vb_jit_status((d)->driver->call(__VA_ARGS__), d)

static vb_status make_current(vb_jit_device *d) { return DRIVER(d, set_current, d->context); }

/* The context of a GPU that was opened stays until the process ends, as a context of NVIDIA's runtime does: the driver
 * takes 110 ms to make one and 65 ms to end it. The context of a lost GPU goes with its last user. */
static void keep_context(vb_jit_device *d, bool wanted) {
    enum { MOST_GPUS = 64 };
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static bool kept[MOST_GPUS];
    void *context;
    if (d->index >= MOST_GPUS) return;
    pthread_mutex_lock(&mutex);
    if (kept[d->index] != wanted &&
        (wanted ? d->driver->retain(&context, d->handle) : d->driver->release(d->handle)) == 0)
        kept[d->index] = wanted;
    pthread_mutex_unlock(&mutex);
}

static void release(vb_device *device) {
    vb_jit_device *d = of(device);
    if (atomic_fetch_sub(&d->references, 1) != 1) return;
    if (d->context && make_current(d) == VB_OK) {
        vb_jit_unload(d);
        if (d->books) d->driver->free(d->books);
        if (d->lost) keep_context(d, false);
        d->driver->release(d->handle);
    }
    pthread_cond_destroy(&d->loaded);
    pthread_mutex_destroy(&d->mutex);
    free(d);
}

static vb_status device_count(int *count) {
    const vb_driver *driver = vb_driver_in_use();
    *count = 0;
    if (!driver || driver->device_count(count) != 0) return VB_NO_DEVICE;
    return *count > 0 ? VB_OK : VB_NO_DEVICE;
}

/* The newest target of the emitter that a GPU runs, 0 where it is older than all. */
static int target_of(int capability) {
    static const int targets[] = {120, 100, 90, 89, 87, 86, 80, 75, 72, 70};
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (targets[i] <= capability) return targets[i];
    return 0;
}

static vb_status describe(vb_jit_device *d) {
    enum { MULTIPROCESSORS = 16, MAJOR = 75, MINOR = 76, SHARED_BYTES = 97 };
    TRY(DRIVER(d, device_get, &d->handle, d->index));
    TRY(DRIVER(d, device_name, d->name, (int)sizeof d->name, d->handle));
    TRY(DRIVER(d, device_attribute, &d->major, MAJOR, d->handle));
    TRY(DRIVER(d, device_attribute, &d->minor, MINOR, d->handle));
    TRY(DRIVER(d, device_attribute, &d->multiprocessors, MULTIPROCESSORS, d->handle));
    TRY(DRIVER(d, device_attribute, &d->shared_bytes, SHARED_BYTES, d->handle));
    TRY(DRIVER(d, driver_version, &d->driver_version));
    d->target = target_of(d->major * 10 + d->minor);
    if (d->target) return VB_OK;
    vb_jit_refuse(d);
    return VB_NO_KERNEL_IMAGE;
}

/* A driver that refuses PTX for the GPU is known when the device is opened: a caller may take another device then. */
static const char probe[] = VB_PTX_SOURCE(
kernel ENTRY(u32 *out) threads(32) {
    out[thread.x] = block.x;
}
);

static vb_status device_open(vb_device **device, int index, const vb_device_options *options) {
    (void)options;
    int count;
    TRY(device_count(&count));
    if (index >= count) return VB_NO_DEVICE;
    vb_jit_device *d = calloc(1, sizeof *d);
    if (!d) return VB_OUT_OF_MEMORY;
    d->base.backend = &vb_ptx_backend;
    d->driver = vb_driver_in_use();
    d->index = index;
    atomic_init(&d->references, 1);
    pthread_mutex_init(&d->mutex, NULL);
    pthread_cond_init(&d->loaded, NULL);
    vb_status status = describe(d);
    if (status == VB_OK) status = DRIVER(d, retain, &d->context, d->handle);
    vb_trace_phase("context made");
    if (status == VB_OK) keep_context(d, true);
    if (status == VB_OK) status = make_current(d);
    if (status == VB_OK) status = vb_jit_load_books(d);
    vb_trace_phase("code books copied");
    if (status == VB_OK) status = vb_jit_compiles(&(vb_jit_filling){.source = probe}, "ptx_probe", d);
    vb_trace_phase("first kernel loaded");
    if (status != VB_OK) {
        release(&d->base);
        return status;
    }
    *device = &d->base;
    return VB_OK;
}

void vb_jit_device_close(vb_device *device) { release(device); }

vb_status vb_jit_device_get_info(vb_device_info *info, const vb_device *device) {
    enum { L2_BYTES = 38 };
    vb_jit_device *d = of(device);
    size_t total = 0;
    int l2 = 0;
    TRY(DRIVER(d, device_bytes, &total, d->handle));
    TRY(DRIVER(d, device_attribute, &l2, L2_BYTES, d->handle));
    *info = (vb_device_info){.kind = VB_CUDA, .index = d->index, .total_memory = (int64_t)total,
        .compute_major = d->major,
                             .compute_minor = d->minor, .multiprocessors = d->multiprocessors, .l2_bytes = l2,
                                 .shared_memory_bytes = d->shared_bytes};
    memcpy(info->name, d->name, sizeof info->name);
    snprintf(info->features, sizeof info->features, "ptx sm_%d", d->target);
    return VB_OK;
}

vb_status vb_jit_device_memory(int64_t *free_bytes, int64_t *total_bytes, vb_device *device) {
    vb_jit_device *d = of(device);
    size_t left = 0, total = 0;
    TRY(make_current(d));
    TRY(DRIVER(d, memory, &left, &total));
    *free_bytes = (int64_t)left;
    *total_bytes = (int64_t)total;
    return VB_OK;
}

int vb_jit_device_driver_error(const vb_device *device) { return of(device)->driver_error; }

vb_status vb_jit_alloc(void **memory, int64_t bytes, vb_device *device) {
    vb_jit_device *d = of(device);
    cu_address address = 0;
    *memory = NULL;
    if (bytes == 0) return VB_OK;
    TRY(make_current(d));
    TRY(DRIVER(d, alloc, &address, (size_t)bytes));
    *memory = (void *)(uintptr_t)address;
    return VB_OK;
}

/* cuMemFree waits for all work of the device, as the contract asks. */
vb_status vb_jit_free(void *memory, vb_device *device) {
    vb_jit_device *d = of(device);
    vb_jit_settle_all(d);
    TRY(make_current(d));
    return DRIVER(d, free, (cu_address)(uintptr_t)memory);
}

/* Locked memory of the CPU backend's huge pages: the driver takes 0.8 ms for 12 MiB of these, and 7 to 10 where it
 * allocates them itself. */
struct vb_jit_locked {
    struct vb_jit_locked *next;
    void *memory;
};

enum { HUGE_PAGE = 2 << 20, PORTABLE = 1 };

static bool lock_huge(void **memory, int64_t bytes, vb_jit_device *d) {
    const int64_t whole = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    struct vb_jit_locked *l = malloc(sizeof *l);
    if (!l) return false;
    if (vb_cpu_alloc(&l->memory, whole, NULL) == VB_OK) {
        if (d->driver->lock_host(l->memory, (size_t)whole, PORTABLE) == 0) {
            *memory = l->memory;
            pthread_mutex_lock(&d->mutex);
            l->next = d->locked;
            d->locked = l;
            pthread_mutex_unlock(&d->mutex);
            return true;
        }
        vb_cpu_free(l->memory, NULL);
    }
    free(l);
    return false;
}

vb_status vb_jit_alloc_host(void **memory, int64_t bytes, vb_device *device) {
    vb_jit_device *d = of(device);
    *memory = NULL;
    if (bytes == 0) return VB_OK;
    TRY(make_current(d));
    if (bytes >= HUGE_PAGE && lock_huge(memory, bytes, d)) return VB_OK;
    return DRIVER(d, alloc_host, memory, (size_t)bytes, PORTABLE);
}

vb_status vb_jit_free_host(void *memory, vb_device *device) {
    vb_jit_device *d = of(device);
    pthread_mutex_lock(&d->mutex);
    struct vb_jit_locked **at = &d->locked;
    while (*at && (*at)->memory != memory) at = &(*at)->next;
    struct vb_jit_locked *l = *at;
    if (l) *at = l->next;
    pthread_mutex_unlock(&d->mutex);
    vb_status status = make_current(d);
    if (status == VB_OK) status = l ? DRIVER(d, unlock_host, memory) : DRIVER(d, free_host, memory);
    if (l) vb_cpu_free(l->memory, NULL);
    free(l);
    return status;
}

/* The scratch of streams that were given no allocator. Outgrown memory stays until the end, for captured graphs may use
 * it. */
static vb_status own_alloc(void **memory, int64_t bytes, void *stream) {
    return vb_jit_alloc(memory, bytes, ((vb_jit_stream *)stream)->base.device);
}

static void own_free(void *memory, void *stream) {
    vb_jit_stream *s = stream;
    struct vb_jit_outgrown *o = malloc(sizeof *o);
    if (!o) return; /* it stays to the end of the process */
    *o = (struct vb_jit_outgrown){s->outgrown, (cu_address)(uintptr_t)memory};
    s->outgrown = o;
}

vb_status vb_jit_workspace(void **memory, int64_t bytes, vb_stream *stream) {
    enum { STEP = 1 << 20 };
    vb_jit_stream *s = (vb_jit_stream *)stream;
    *memory = NULL;
    if (bytes > s->scratch_bytes) {
        /* Growing may wait for the device: so by an eighth at least. */
        const int64_t least = s->scratch_bytes + s->scratch_bytes / 8, wanted = bytes > least ? bytes : least;
        const int64_t size = (wanted + STEP - 1) / STEP * STEP;
        void *grown = NULL;
        TRY(s->memory.alloc(&grown, size, s->memory.context));
        if (s->scratch) s->memory.free(s->scratch, s->memory.context);
        s->scratch = grown;
        s->scratch_bytes = size;
    }
    *memory = s->scratch;
    return VB_OK;
}

vb_status vb_jit_stream_create_with(vb_stream **stream, vb_device *device, const vb_allocator *allocator) {
    enum { NON_BLOCKING = 1 };
    vb_jit_device *d = of(device);
    *stream = NULL;
    TRY(make_current(d));
    vb_jit_stream *s = calloc(1, sizeof *s);
    if (!s) return VB_OUT_OF_MEMORY;
    s->base.device = device;
    s->memory = allocator ? *allocator : (vb_allocator){sizeof s->memory, own_alloc, own_free, s};
    vb_status status = DRIVER(d, alloc, &s->row_scales, VB_JIT_SCALED_ROWS * sizeof(float));
    if (status == VB_OK) status = DRIVER(d, stream_create, &s->handle, NON_BLOCKING);
    if (status != VB_OK) {
        if (s->row_scales) d->driver->free(s->row_scales);
        free(s);
        return status;
    }
    atomic_fetch_add(&d->references, 1);
    s->base.native = s->handle;
    pthread_mutex_lock(&d->mutex);
    s->next = d->streams;
    d->streams = s;
    pthread_mutex_unlock(&d->mutex);
    *stream = &s->base;
    return VB_OK;
}

static void *handle_of(vb_stream *stream) { return ((vb_jit_stream *)stream)->handle; }

void vb_jit_stream_destroy(vb_stream *stream) {
    vb_jit_device *d = vb_jit_of(stream);
    vb_jit_stream *s = (vb_jit_stream *)stream;
    vb_jit_settle(stream);
    pthread_mutex_lock(&d->mutex);
    for (vb_jit_stream **at = &d->streams; *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    pthread_mutex_unlock(&d->mutex);
    const bool current = make_current(d) == VB_OK;
    if (current) d->driver->stream_synchronize(s->handle);
    if (s->scratch) s->memory.free(s->scratch, s->memory.context);
    if (current) {
        d->driver->stream_destroy(s->handle);
        d->driver->free(s->row_scales);
    }
    for (struct vb_jit_outgrown *o = s->outgrown, *next; o; o = next) {
        next = o->next;
        if (current) d->driver->free(o->memory);
        free(o);
    }
    free(stream);
    release(&d->base);
}

vb_status vb_jit_stream_handle(void **handle, vb_stream *stream) {
    TRY(vb_jit_settle(stream));
    *handle = handle_of(stream);
    return VB_OK;
}

vb_status vb_jit_memory_check(const void *memory, int64_t bytes, vb_device *device) {
    vb_jit_device *d = of(device);
    TRY(make_current(d));
    return vb_driver_owns(d->driver, d->index, memory, bytes) ? VB_OK : VB_INVALID_ARGUMENT;
}

vb_status vb_jit_stream_synchronize(vb_stream *stream) {
    vb_jit_device *d = vb_jit_of(stream);
    TRY(vb_jit_settle(stream));
    return DRIVER(d, stream_synchronize, handle_of(stream));
}

vb_status vb_jit_memcpy(void *out, const void *in, int64_t bytes, vb_copy_kind kind, vb_stream *stream) {
    vb_jit_device *d = vb_jit_of(stream);
    const cu_address to = (cu_address)(uintptr_t)out, from = (cu_address)(uintptr_t)in;
    TRY(vb_jit_settle(stream));
    if (kind == VB_HOST_TO_DEVICE) return DRIVER(d, copy_to_device_async, to, in, (size_t)bytes, handle_of(stream));
    if (kind == VB_DEVICE_TO_HOST) return DRIVER(d, copy_to_host_async, out, from, (size_t)bytes, handle_of(stream));
    return DRIVER(d, copy_on_device_async, to, from, (size_t)bytes, handle_of(stream));
}

vb_status vb_jit_memset(void *out, int value, int64_t bytes, vb_stream *stream) {
    vb_jit_device *d = vb_jit_of(stream);
    TRY(vb_jit_settle(stream));
    return DRIVER(d, set_async, (cu_address)(uintptr_t)out, (unsigned char)value, (size_t)bytes, handle_of(stream));
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static void *event_of(const vb_event *event) { return ((const jit_event *)event)->handle; }

vb_status vb_jit_event_create(vb_event **event, vb_device *device) {
    vb_jit_device *d = of(device);
    *event = NULL;
    TRY(make_current(d));
    jit_event *e = calloc(1, sizeof *e);
    if (!e) return VB_OUT_OF_MEMORY;
    e->base.device = device;
    const vb_status status = DRIVER(d, event_create, &e->handle, 0);
    if (status != VB_OK) {
        free(e);
        return status;
    }
    atomic_fetch_add(&d->references, 1);
    *event = &e->base;
    return VB_OK;
}

void vb_jit_event_destroy(vb_event *event) {
    vb_jit_device *d = of(event->device);
    if (make_current(d) == VB_OK) d->driver->event_destroy(event_of(event));
    free(event);
    release(&d->base);
}

vb_status vb_jit_event_record(vb_event *event, vb_stream *stream) {
    vb_jit_device *d = vb_jit_of(stream);
    TRY(vb_jit_settle(stream));
    return DRIVER(d, event_record, event_of(event), handle_of(stream));
}

vb_status vb_jit_event_synchronize(vb_event *event) {
    vb_jit_device *d = of(event->device);
    TRY(make_current(d));
    return DRIVER(d, event_synchronize, event_of(event));
}

vb_status vb_jit_event_done(int *done, vb_event *event) {
    vb_jit_device *d = of(event->device);
    *done = 0;
    TRY(make_current(d));
    const cu_result result = d->driver->event_query(event_of(event));
    if (result == CU_NOT_READY) return VB_OK;
    *done = result == 0;
    return vb_jit_status(result, d);
}

vb_status vb_jit_event_elapsed(float *milliseconds, vb_event *start, vb_event *end) {
    vb_jit_device *d = of(end->device);
    TRY(make_current(d));
    return DRIVER(d, event_elapsed, milliseconds, event_of(start), event_of(end));
}

vb_status vb_jit_stream_wait(vb_stream *stream, vb_event *event) {
    vb_jit_device *d = vb_jit_of(stream);
    TRY(vb_jit_settle(stream));
    return DRIVER(d, stream_wait, handle_of(stream), event_of(event), 0);
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

/* Relaxed: other threads (and this one) may allocate memory and load kernels meanwhile. */
vb_status vb_jit_graph_begin(vb_stream *stream) {
    enum { RELAXED = 2 };
    vb_jit_device *d = vb_jit_of(stream);
    TRY(vb_jit_settle(stream));
    return DRIVER(d, capture_begin, handle_of(stream), RELAXED);
}

vb_status vb_jit_graph_end(vb_graph **graph, vb_stream *stream) {
    vb_jit_device *d = vb_jit_of(stream);
    void *recorded = NULL;
    *graph = NULL;
    vb_status status = vb_jit_settle(stream); /* the capture ends in any case */
    TRY(DRIVER(d, capture_end, handle_of(stream), &recorded));
    jit_graph *g = status == VB_OK ? calloc(1, sizeof *g) : NULL;
    if (!g) {
        d->driver->graph_destroy(recorded);
        return status != VB_OK ? status : VB_OUT_OF_MEMORY;
    }
    g->base.device = stream->device;
    g->recorded = recorded;
    atomic_fetch_add(&d->references, 1);
    *graph = &g->base;
    return VB_OK;
}

static vb_status instantiate(jit_graph *g) {
    vb_jit_device *d = of(g->base.device);
    return g->executable ? VB_OK : DRIVER(d, graph_instantiate, &g->executable, g->recorded, 0);
}

vb_status vb_jit_graph_update(vb_graph *graph, const vb_graph *newer) {
    jit_graph *g = (jit_graph *)graph;
    vb_jit_device *d = of(graph->device);
    uint64_t info[8] = {0}; /* CUgraphExecUpdateResultInfo: a number and two handles */
    TRY(make_current(d));
    TRY(instantiate(g));
    const cu_result result = d->driver->graph_update(g->executable, ((const jit_graph *)newer)->recorded, info);
    const vb_status status = vb_jit_status(result, d);
    return result == CU_UPDATE_FAILURE ? VB_UNSUPPORTED : status;
}

vb_status vb_jit_graph_launch(vb_graph *graph, vb_stream *stream) {
    jit_graph *g = (jit_graph *)graph;
    vb_jit_device *d = of(graph->device);
    TRY(vb_jit_settle(stream));
    TRY(instantiate(g));
    return DRIVER(d, graph_launch, g->executable, handle_of(stream));
}

vb_status vb_jit_graph_prepare(vb_graph *graph) {
    TRY(make_current(of(graph->device)));
    return instantiate((jit_graph *)graph);
}

void vb_jit_graph_destroy(vb_graph *graph) {
    jit_graph *g = (jit_graph *)graph;
    vb_jit_device *d = of(graph->device);
    if (make_current(d) == VB_OK) {
        if (g->executable) d->driver->graph_exec_destroy(g->executable);
        d->driver->graph_destroy(g->recorded);
    }
    free(g);
    release(&d->base);
}

/* Models spread over several of these devices have no collectives. */
vb_status vb_jit_communicator_create(vb_communicator **communicator, vb_stream *const *streams, int ranks) {
    (void)communicator, (void)streams, (void)ranks;
    return VB_UNSUPPORTED;
}

void vb_jit_communicator_destroy(vb_communicator *communicator) { (void)communicator; }

vb_status vb_jit_all_reduce(float *const *out, const float *const *in, const float *const *add, int64_t n, int rounded,
                            vb_communicator *communicator) {
    (void)out, (void)in, (void)add, (void)n, (void)rounded, (void)communicator;
    return VB_UNSUPPORTED;
}

vb_status vb_jit_all_gather(float *const *out, const float *const *in, int64_t rows, const int64_t *cols,
                            vb_communicator *communicator) {
    (void)out, (void)in, (void)rows, (void)cols, (void)communicator;
    return VB_UNSUPPORTED;
}

vb_status vb_jit_broadcast(void *const *data, int64_t words, int root, vb_communicator *communicator) {
    (void)data, (void)words, (void)root, (void)communicator;
    return VB_UNSUPPORTED;
}

vb_status vb_jit_send(void *out, const void *in, int64_t words, int from, int to, vb_communicator *communicator) {
    (void)out, (void)in, (void)words, (void)from, (void)to, (void)communicator;
    return VB_UNSUPPORTED;
}

/* The operations of a dense language model; ops.c composes or refuses the rest. */
#define HAVE(X) \
    X(add) X(mul) X(mul_scalar) X(silu) X(gelu) X(gelu_tanh) X(swiglu) X(glu) X(sigmoid) X(soft_cap) X(copy) \
        X(convert) \
    X(increment_i32) X(softmax_batched) X(rms_norm_batched) X(layer_norm_batched) X(add_rms_norm) X(mul_rows) \
    X(copy_columns) X(argmax) X(top_k) X(matmul_batched) X(matmul_single_row) X(linear) X(embedding) X(rope) \
        X(kv_write) \
    X(attention) X(weight_pack) X(norm_linear) X(linear_add) X(norm_swiglu) X(norm_qkv) \
    X(map) X(reduce) X(cumsum) X(index) X(sort)

const vb_backend vb_ptx_backend = {
    .device_count = device_count,
    .device_open = device_open,
#define X(op) .op = vb_jit_##op,
    VB_RUNTIME(X) HAVE(X)
#undef X
};
