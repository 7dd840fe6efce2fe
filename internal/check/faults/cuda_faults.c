// cuda_faults.c: calls of the CUDA runtime that fail when a test says so. scripts/link-fault-library.sh links it
// between the kernels and NVIDIA's runtime, by the linker's --wrap, into a library for tests alone.
//
// The environment variable VIBRANT_FAULTS names a file of 13 ints of 32 bits, which the test writes and this code maps:
// for allocations, copies, launches and synchronizations how many calls there were, from which of them on calls fail
// (-1: none), and how many then fail; last how many blocks of memory are live.
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALLOC, COPY, LAUNCH, SYNC, KINDS };
enum { OUT_OF_MEMORY = 2, UNKNOWN_ERROR = 999 }; // cudaErrorMemoryAllocation, cudaErrorUnknown

static struct {
    struct {
        int32_t calls, first, count;
    } kind[KINDS];
    int32_t live;
} *faults;

__attribute__((constructor)) static void map_faults(void) {
    const char *const path = getenv("VIBRANT_FAULTS");
    if (!path) return;
    const int file = open(path, O_RDWR);
    void *const memory =
        file < 0 ? MAP_FAILED : mmap(NULL, sizeof *faults, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) {
        perror(path);
        abort(); // a test that injects nothing would pass
    }
    faults = memory;
    close(file);
}

static int fails(int kind) {
    if (!faults) return 0;
    const int32_t n = __atomic_fetch_add(&faults->kind[kind].calls, 1, __ATOMIC_SEQ_CST);
    const int32_t first = faults->kind[kind].first;
    return first >= 0 && n >= first && n - first < faults->kind[kind].count;
}

static int counted(int error, int change) {
    if (faults && error == 0) __atomic_fetch_add(&faults->live, change, __ATOMIC_SEQ_CST);
    return error;
}

typedef struct {
    unsigned x, y, z;
} dim3;

#define WRAP(error, kind, name, parameters, arguments)                                                                 \
    int __real_##name parameters;                                                                                      \
    int __wrap_##name parameters;                                                                                      \
    int __wrap_##name parameters { return fails(kind) ? error : __real_##name arguments; }

WRAP(UNKNOWN_ERROR, COPY, cudaMemcpyAsync, (void *out, const void *in, size_t bytes, int kind, void *stream),
     (out, in, bytes, kind, stream))
WRAP(UNKNOWN_ERROR, COPY, cudaMemsetAsync, (void *out, int value, size_t bytes, void *stream),
     (out, value, bytes, stream))
WRAP(UNKNOWN_ERROR, LAUNCH, cudaLaunchKernel,
     (const void *kernel, dim3 grid, dim3 block, void **parameters, size_t shared, void *stream),
     (kernel, grid, block, parameters, shared, stream))
WRAP(UNKNOWN_ERROR, LAUNCH, cudaLaunchKernelExC, (const void *config, const void *kernel, void **parameters),
     (config, kernel, parameters))
WRAP(UNKNOWN_ERROR, LAUNCH, cudaGraphInstantiate, (void **executable, void *graph, unsigned long long flags),
     (executable, graph, flags))
WRAP(UNKNOWN_ERROR, LAUNCH, cudaGraphLaunch, (void *executable, void *stream), (executable, stream))
WRAP(UNKNOWN_ERROR, SYNC, cudaStreamSynchronize, (void *stream), (stream))
WRAP(UNKNOWN_ERROR, SYNC, cudaEventSynchronize, (void *event), (event))

int __real_cudaMalloc(void **memory, size_t bytes);
int __wrap_cudaMalloc(void **memory, size_t bytes);
int __wrap_cudaMalloc(void **memory, size_t bytes) {
    return fails(ALLOC) ? OUT_OF_MEMORY : counted(__real_cudaMalloc(memory, bytes), 1);
}

int __real_cudaHostAlloc(void **memory, size_t bytes, unsigned flags);
int __wrap_cudaHostAlloc(void **memory, size_t bytes, unsigned flags);
int __wrap_cudaHostAlloc(void **memory, size_t bytes, unsigned flags) {
    return fails(ALLOC) ? OUT_OF_MEMORY : counted(__real_cudaHostAlloc(memory, bytes, flags), 1);
}

int __real_cudaFree(void *memory);
int __wrap_cudaFree(void *memory);
int __wrap_cudaFree(void *memory) { return counted(__real_cudaFree(memory), memory ? -1 : 0); }

int __real_cudaFreeHost(void *memory);
int __wrap_cudaFreeHost(void *memory);
int __wrap_cudaFreeHost(void *memory) { return counted(__real_cudaFreeHost(memory), memory ? -1 : 0); }
