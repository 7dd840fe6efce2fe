/* cpu_device.c: the CPU as a device: its description, memory, streams and events. Work is done when a call returns.
 * So streams keep no order, and an event is the time of its record. */
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"
#include "cpu.h"
#include "trace.h"

#if VB_X86
#include <cpuid.h>
#endif
#ifdef VB_AMX
#include <sys/syscall.h>
#endif

static vb_status device_count(int *count) {
    *count = 1;
    return VB_OK;
}

/* ---- the processor ----------------------------------------------------------------------------------------------- */

static vb_simd best_simd(void) {
#if VB_X86
    unsigned a, b, c = 0, d;
    __get_cpuid(1, &a, &b, &c, &d);
    bool f16c = c & bit_F16C;
    __builtin_cpu_init();
    if (!f16c || !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return VB_SIMD_PLAIN;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni"))
        return VB_SIMD_AVX512;
    return VB_SIMD_AVX2;
#else
    return VB_SIMD_PLAIN;
#endif
}

/* Whether the processor has tiles of int8, and the system lets this process use their registers. */
static bool has_tiles(void) {
#ifdef VB_AMX
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18, TILES = 3 << 24 };
    unsigned a, b, c, d = 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & TILES) != TILES) return false;
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
#else
    return false;
#endif
}

/* Whether looking up words is as fast as multiplying bytes. Intel's processors have one permutation a cycle where they
 * have two products of bytes. */
static bool has_fast_words(void) {
#if VB_X86
    return __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_is("amd");
#else
    return false;
#endif
}

static const char *const names[VB_SIMD_LEVELS] = {"plain", "avx2", "avx512"};

/* The best level, lowered to the level that VIBRANT_SIMD names; false where it names no level. "amx" is the best. */
static bool choose_simd(vb_simd *simd, bool *tiles) {
    *simd = best_simd();
    *tiles = false;
    const char *limit = getenv("VIBRANT_SIMD");
    if (!limit || !*limit || strcmp(limit, "amx") == 0) {
        *tiles = *simd == VB_SIMD_AVX512 && has_tiles();
        return true;
    }
    for (int level = 0; level < VB_SIMD_LEVELS; level++) {
        if (strcmp(limit, names[level]) != 0) continue;
        if (level < (int)*simd) *simd = (vb_simd)level;
        return true;
    }
    return false;
}

static void processor_name(char *name, size_t size) {
    snprintf(name, size, "CPU");
#if VB_X86
    unsigned brand[13] = {0};
    for (unsigned i = 0; i < 3; i++)
        if (!__get_cpuid(0x80000002 + i, &brand[4 * i], &brand[4 * i + 1], &brand[4 * i + 2], &brand[4 * i + 3]))
            return;
    const char *text = (const char *)brand;
    while (*text == ' ') text++;
    if (*text) snprintf(name, size, "%s", text);
#endif
}

static int usable_cores(void) {
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return (int)vb_max(CPU_COUNT(&set), 1);
#endif
    return (int)vb_max(sysconf(_SC_NPROCESSORS_ONLN), 1);
}

/* ---- device ------------------------------------------------------------------------------------------------------ */

enum { MAX_THREADS = 1024 };

static vb_status device_open(vb_device **device, int index, const vb_device_options *options) {
    if (index != 0) return VB_NO_DEVICE;
    int threads = options && options->threads > 0 ? options->threads : usable_cores();
    vb_simd simd;
    bool tiles;
    if (threads > MAX_THREADS) return VB_INVALID_ARGUMENT;
    if (!choose_simd(&simd, &tiles)) return VB_INVALID_ENVIRONMENT;
    vb_cpu_device *d = calloc(1, sizeof *d);
    if (!d) return VB_OUT_OF_MEMORY;
    d->base.backend = &vb_cpu_backend;
    d->simd = simd;
    d->tiles = tiles;
    d->words = simd == VB_SIMD_AVX512 && has_fast_words();
    d->traced = vb_trace_asks("kernels");
    atomic_init(&d->references, 1);
    d->pool = vb_cpu_pool_create(threads);
    if (!d->pool) {
        free(d);
        return VB_OUT_OF_MEMORY;
    }
    *device = &d->base;
    return VB_OK;
}

static void retain(vb_device *device) { atomic_fetch_add(&((vb_cpu_device *)device)->references, 1); }

static void release(vb_device *device) {
    vb_cpu_device *d = (vb_cpu_device *)device;
    if (atomic_fetch_sub(&d->references, 1) != 1) return;
    vb_cpu_pool_destroy(d->pool);
    free(d);
}

void vb_cpu_device_close(vb_device *device) { release(device); }

vb_status vb_cpu_device_get_info(vb_device_info *info, const vb_device *device) {
    static const char *const features[VB_SIMD_LEVELS] = {"plain", "avx2 fma f16c", "avx512f avx512bw vnni"};
    const vb_cpu_device *d = (const vb_cpu_device *)device;
    int64_t free_bytes;
    memset(info, 0, sizeof *info);
    info->kind = VB_CPU;
    processor_name(info->name, sizeof info->name);
    vb_cpu_device_memory(&free_bytes, &info->total_memory, NULL);
    info->multiprocessors = vb_cpu_pool_threads(d->pool);
#ifdef _SC_LEVEL3_CACHE_SIZE
    info->l2_bytes = vb_max(sysconf(_SC_LEVEL3_CACHE_SIZE), 0);
#endif
    snprintf(info->features, sizeof info->features, "%s%s", features[d->simd], d->tiles ? " amx" : "");
    return VB_OK;
}

/* Linux tells the memory that can be allocated without swapping; elsewhere all memory counts as free. */
vb_status vb_cpu_device_memory(int64_t *free_bytes, int64_t *total_bytes, vb_device *device) {
    (void)device;
    *total_bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    *free_bytes = *total_bytes;
#ifdef __linux__
    FILE *f = fopen("/proc/meminfo", "r");
    char line[128];
    long long kib;
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %lld", &kib) == 1) *free_bytes = kib * 1024;
    if (f) fclose(f);
#endif
    return VB_OK;
}

int vb_cpu_device_driver_error(const vb_device *device) {
    (void)device;
    return 0;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Large blocks are mappings of their own. Memory that malloc gets back between living blocks serves only smaller ones.
 * So a process whose sessions come and go would grow. Before each block stands the length of its mapping, 0 without a
 * mapping. */
enum { ALIGNMENT = 256, HUGE_PAGE = 2 << 20, LEAST_MAPPING = 128 << 10 };

static bool is_limited(int resource) {
    struct rlimit limit;
    return getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

/* RLIMIT_DATA counts mappings that can be written. */
bool vb_cpu_room_to_grow(void) {
    const size_t room = (size_t)256 << 20;
    if (!is_limited(RLIMIT_AS) && !is_limited(RLIMIT_DATA)) return true;
    void *const probe = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return probe != MAP_FAILED && munmap(probe, room) == 0;
}

static void *allocate(size_t size) {
    char *start = aligned_alloc(ALIGNMENT, (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + ALIGNMENT);
    if (!start) return NULL;
    ((size_t *)(start + ALIGNMENT))[-1] = 0;
    return start + ALIGNMENT;
}

static void *map(size_t size) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), alignment = size >= HUGE_PAGE ? HUGE_PAGE : page;
    const size_t bytes = (size + alignment - 1) / alignment * alignment, all = page + bytes + alignment - page;
    char *const start = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return NULL;
    if (!vb_cpu_room_to_grow()) {
        munmap(start, all);
        return NULL;
    }
    char *const memory = (char *)(((uintptr_t)start + page + alignment - 1) / alignment * alignment);
    char *const first = memory - page, *const end = memory + bytes;
    if (first > start) munmap(start, (size_t)(first - start));
    if (end < start + all) munmap(end, (size_t)(start + all - end));
#ifdef MADV_HUGEPAGE
    if (alignment == HUGE_PAGE) madvise(memory, bytes, MADV_HUGEPAGE); /* fewer TLB misses; a refusal does no harm */
#endif
    ((size_t *)memory)[-1] = page + bytes;
    return memory;
}

vb_status vb_cpu_alloc(void **memory, int64_t bytes, vb_device *device) {
    (void)device;
    if (bytes > INT64_MAX / 2) return VB_OUT_OF_MEMORY;
    const size_t size = (size_t)vb_max(bytes, 1);
    *memory = size >= LEAST_MAPPING ? map(size) : allocate(size);
    return *memory ? VB_OK : VB_OUT_OF_MEMORY;
}

vb_status vb_cpu_free(void *memory, vb_device *device) {
    (void)device;
    if (!memory) return VB_OK;
    const size_t mapped = ((size_t *)memory)[-1];
    if (mapped)
        munmap((char *)memory - sysconf(_SC_PAGESIZE), mapped);
    else
        free((char *)memory - ALIGNMENT);
    return VB_OK;
}

vb_status vb_cpu_memory_check(const void *memory, int64_t bytes, vb_device *device) {
    (void)memory, (void)bytes, (void)device;
    return VB_OK;
}

vb_status vb_cpu_alloc_host(void **memory, int64_t bytes, vb_device *device) {
    return vb_cpu_alloc(memory, bytes, device);
}

vb_status vb_cpu_free_host(void *memory, vb_device *device) { return vb_cpu_free(memory, device); }

/* ---- streams ----------------------------------------------------------------------------------------------------- */

vb_status vb_cpu_stream_create_with(vb_stream **stream, vb_device *device, const vb_allocator *allocator) {
    (void)allocator;
    vb_cpu_stream *s = calloc(1, sizeof *s);
    if (!s) return VB_OUT_OF_MEMORY;
    s->base.device = device;
    retain(device);
    *stream = &s->base;
    return VB_OK;
}

void vb_cpu_stream_destroy(vb_stream *stream) {
    vb_device *device = stream->device;
    vb_cpu_free(((vb_cpu_stream *)stream)->scratch, device);
    free(stream);
    release(device);
}

void vb_cpu_ran(const char *op, vb_stream *stream) {
    const vb_cpu_device *d = vb_cpu_device_of(stream);
    if (!stream->kernel) stream->kernel = names[d->simd];
    if (d->traced) fprintf(stderr, "vibrant: %s: %s\n", op, stream->kernel);
}

vb_status vb_cpu_stream_handle(void **handle, vb_stream *stream) {
    (void)handle, (void)stream;
    return VB_OK;
}

void *vb_cpu_scratch(vb_stream *stream, int64_t bytes) {
    vb_cpu_stream *s = (vb_cpu_stream *)stream;
    if (s->scratch && s->scratch_bytes >= bytes) return s->scratch;
    vb_cpu_free(s->scratch, stream->device);
    s->scratch = NULL;
    s->scratch_bytes = (bytes + bytes / 4 + 4095) / 4096 * 4096; /* grows with prompts: not by every row */
    if (vb_cpu_alloc(&s->scratch, s->scratch_bytes, stream->device) != VB_OK) s->scratch_bytes = 0;
    return s->scratch;
}

vb_status vb_cpu_stream_synchronize(vb_stream *stream) {
    (void)stream;
    return VB_OK;
}

typedef struct copy_job {
    char *out;
    const char *in;
} copy_job;

static void copy_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    copy_job *j = context;
    memcpy(j->out + begin, j->in + begin, (size_t)(end - begin));
}

vb_status vb_cpu_memcpy(void *out, const void *in, int64_t bytes, vb_copy_kind kind, vb_stream *stream) {
    (void)kind;
    copy_job job = {out, in};
    if (out != in) vb_cpu_parallel(stream, bytes, 1 << 20, copy_range, &job);
    return VB_OK;
}

vb_status vb_cpu_memset(void *out, int value, int64_t bytes, vb_stream *stream) {
    (void)stream;
    memset(out, value, (size_t)bytes);
    return VB_OK;
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

typedef struct cpu_event {
    vb_event base;
    atomic_int_fast64_t nanoseconds; /* of the record, 0 before */
} cpu_event;

vb_status vb_cpu_event_create(vb_event **event, vb_device *device) {
    cpu_event *e = calloc(1, sizeof *e);
    if (!e) return VB_OUT_OF_MEMORY;
    e->base.device = device;
    retain(device);
    *event = &e->base;
    return VB_OK;
}

void vb_cpu_event_destroy(vb_event *event) {
    vb_device *device = event->device;
    free(event);
    release(device);
}

vb_status vb_cpu_event_record(vb_event *event, vb_stream *stream) {
    (void)stream;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    atomic_store(&((cpu_event *)event)->nanoseconds, (int64_t)now.tv_sec * 1000000000 + now.tv_nsec);
    return VB_OK;
}

vb_status vb_cpu_event_synchronize(vb_event *event) {
    (void)event;
    return VB_OK;
}

vb_status vb_cpu_event_done(int *done, vb_event *event) {
    (void)event;
    *done = 1;
    return VB_OK;
}

vb_status vb_cpu_event_elapsed(float *milliseconds, vb_event *start, vb_event *end) {
    int64_t a = atomic_load(&((cpu_event *)start)->nanoseconds), b = atomic_load(&((cpu_event *)end)->nanoseconds);
    if (a == 0 || b == 0) return VB_INVALID_ARGUMENT;
    *milliseconds = (float)((double)(b - a) * 1e-6);
    return VB_OK;
}

vb_status vb_cpu_stream_wait(vb_stream *stream, vb_event *event) {
    (void)stream;
    (void)event;
    return VB_OK;
}

/* ---- graphs: none ------------------------------------------------------------------------------------------------ */

vb_status vb_cpu_graph_begin(vb_stream *stream) {
    (void)stream;
    return VB_UNSUPPORTED;
}

vb_status vb_cpu_graph_end(vb_graph **graph, vb_stream *stream) {
    (void)graph;
    (void)stream;
    return VB_UNSUPPORTED;
}

vb_status vb_cpu_graph_update(vb_graph *graph, const vb_graph *newer) {
    (void)graph;
    (void)newer;
    return VB_UNSUPPORTED;
}

vb_status vb_cpu_graph_launch(vb_graph *graph, vb_stream *stream) {
    (void)graph;
    (void)stream;
    return VB_UNSUPPORTED;
}

vb_status vb_cpu_graph_prepare(vb_graph *graph) {
    (void)graph;
    return VB_UNSUPPORTED;
}

void vb_cpu_graph_destroy(vb_graph *graph) { (void)graph; }

/* A CPU gains nothing from fusing the steps of a layer, whose results stay in its caches. So it has no kernels of
 * VB_COMPOSED. */
const vb_backend vb_cpu_backend = {
    .device_count = device_count,
    .device_open = device_open,
#define X(op) .op = vb_cpu_##op,
    VB_RUNTIME(X) VB_KERNELS(X)
#undef X
};
