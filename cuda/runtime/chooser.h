/* chooser.h: how a family of operations says which kernel runs. Plain C99, C++14 and NVRTC; needs no CUDA.
 *
 * A family lists its kernels once, in cuda/FAMILY/choose.h, each with a name, its file and its use:
 *
 *     #define ROPE_KERNELS(X)                                                                      \
 *         X(ROPE_VECTORS, "rope_vectors", "rows/rope.cu", "rows are whole vectors of 16 bytes")    \
 *         X(ROPE_ELEMENTS, "rope_elements", "rows/rope.cu", "any other row")
 *     VB_KERNEL_FAMILY(rope, ROPE, ROPE_KERNELS)
 *
 * declares `enum rope_kernel { ROPE_NONE, ROPE_VECTORS, ROPE_ELEMENTS, ROPE_COUNT }` and rope_kernel_info(kernel).
 * Below it, one pure function goes from the operation's arguments and a vb_gpu to the enumerator. ROPE_NONE is
 * VB_UNSUPPORTED. The launcher calls the function once, tells vb::chosen (common.cuh), and switches.
 * cuda/chooser_test.c calls every chooser and prints the map of cuda/README.md. */
#ifndef VB_CUDA_CHOOSER_H
#define VB_CUDA_CHOOSER_H

#include "vibrant.h"

#ifndef __cplusplus
#include <stdbool.h>
#endif

/* The properties of a GPU that choosers look at. */
typedef struct vb_gpu {
    int capability;       /* 90 for 9.0; VIBRANT_CUDA_CAPABILITY lowers it */
    int multiprocessors;
    int64_t shared_bytes; /* the most shared memory that a block may have */
    /* the machine code in use is Hopper's (sm_90a), whatever the capability has been lowered to */
    bool hopper;
} vb_gpu;

/* 9.0 and later: a kernel begins while the kernel before it ends, and waits itself for its operands. */
static inline bool vb_begins_early(const vb_gpu *gpu) { return gpu->capability >= 90; }
/* 9.0 and later: blocks of a cluster reach each other's shared memory. */
static inline bool vb_has_clusters(const vb_gpu *gpu) { return gpu->capability >= 90; }
/* How many clusters of so many blocks, one block a multiprocessor, surely run at once. A cluster lies in one GPC.
 * A GPC has 16 or 18 multiprocessors, but on some GPUs fewer. Counting multiprocessors / 16 GPCs gave second waves of a
 * single cluster. */
static inline int64_t vb_clusters_at_once(int64_t blocks, int64_t multiprocessors) {
    const int64_t gpcs = multiprocessors / 16 - 1;
    return blocks <= 2 ? multiprocessors / blocks : (gpcs < 1 ? 1 : gpcs) * (16 / blocks);
}

typedef struct vb_kernel {
    const char *name;
    const char *file; /* below cuda/ */
    const char *when; /* what it is for, for the map */
} vb_kernel;

#define VB_KERNEL_ENUMERATOR(id, name, file, when) id,
#define VB_KERNEL_ENTRY(id, name, file, when) {name, file, when},
#define VB_KERNEL_FAMILY(family, FAMILY, KERNELS)                                                                      \
    typedef enum family##_kernel { FAMILY##_NONE, KERNELS(VB_KERNEL_ENUMERATOR) FAMILY##_COUNT } family##_kernel;      \
    static inline vb_kernel family##_kernel_info(family##_kernel kernel) {                                             \
        const vb_kernel kernels[] = {{"none", "", ""}, KERNELS(VB_KERNEL_ENTRY)};                                      \
        return kernels[kernel];                                                                                        \
    }

static inline int64_t vb_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
/* Whether so many bytes, or a pointer's address, allow accesses of 16 bytes. */
static inline int vb_whole16(int64_t bytes) { return bytes % 16 == 0; }
static inline int vb_aligned16(const void *pointer) { return (uintptr_t)pointer % 16 == 0; }
/* Whether a grid's x holds the tiles of an [m][n] matrix. */
static inline int vb_tiles_fit(int64_t m, int64_t tile_m, int64_t n, int64_t tile_n) {
    return vb_ceil_div(m, tile_m) <= INT32_MAX / vb_ceil_div(n, tile_n);
}

/* The most shared memory of a block (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"). */
static inline int64_t vb_shared_bytes_of(int capability) {
    switch (capability) {
    case 70: case 72: return 96 << 10;
    case 75: return 64 << 10;
    case 80: case 87: return 163 << 10;
    case 86: case 89: case 120: case 121: return 99 << 10;
    default: return capability < 70 ? 48 << 10 : 227 << 10;
    }
}

#endif
