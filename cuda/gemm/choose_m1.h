/* choose_m1.h: whether blocks of a cluster share the k of one row of A, and the kernel of such a product. */
#ifndef VB_CUDA_GEMM_CHOOSE_M1_H
#define VB_CUDA_GEMM_CHOOSE_M1_H

#include "gemm/kernels.h"

/* Columns of B that a lane reads at a time. */
static inline int matmul_m1_width(const void *b, vb_dtype type, int64_t n) {
    const int wide = 16 / matmul_element_bytes(type);
    return n % wide == 0 && vb_aligned16(b) ? wide : 1;
}

/* Warps of a block of a cluster, rows of a warp's lanes at a time, blocks of a cluster. */
enum { MATMUL_M1_WARPS = 16, MATMUL_M1_ROWS = 8, MATMUL_M1_MOST_KSPLIT = 8 };
typedef struct matmul_m1_plan {
    int lanes, ksplit; /* across a tile's columns; blocks of a cluster, which share k: 0 without clusters */
} matmul_m1_plan;

/* The tile and the cluster that take least time: a fit to 8,400 runs of 352 products on an H200, whose choices take
 * 1.03 times the fastest way (docs/experiments/2026-11-28-one-row.md). Where clusters do not fit at once, one block a
 * multiprocessor, some multiprocessors have two blocks, which take 1.55 times as long. An odd block of a cluster has
 * two multiprocessors. Without clusters where they were not timed: fewer blocks than 0.4 a multiprocessor, more than
 * two, a short k; and of 16-bit matrices larger than the L2, which were no faster. */
static inline matmul_m1_plan matmul_m1_cluster(int64_t k, int64_t n, int width, const vb_gpu *gpu) {
    matmul_m1_plan best = {0, 0};
    if (gpu->capability != 90 || width == 1 || k > 1 << 30 || (width == 8 && k * n > 32 << 20)) return best;
    const int64_t sms = gpu->multiprocessors;
    const double megabytes = 16e-6 / width * (double)k * (double)n;
    double least = 0;
    for (int lanes = 32; lanes >= 8; lanes /= 2) {
        const int64_t tiles = vb_ceil_div(n, lanes * width), step = MATMUL_M1_WARPS * (32 / lanes) * MATMUL_M1_ROWS;
        for (int ksplit = 1; ksplit <= MATMUL_M1_MOST_KSPLIT; ksplit++) {
            const int64_t blocks = tiles * ksplit, each = vb_ceil_div(k, ksplit),
                          held = ksplit <= 2 ? ksplit : ksplit + ksplit % 2;
            if (10 * blocks < 4 * sms || blocks > 2 * sms || k < ksplit * MATMUL_M1_WARPS * MATMUL_M1_ROWS) continue;
            const int one_each = tiles <= vb_clusters_at_once(held, sms);
            const double places = ksplit <= 2 ? 2.0 * sms / ksplit : 32.0 * (sms / 16 - 1) / ksplit,
                         taken = one_each ? (double)blocks / sms : (double)tiles / places,
                         rounds = one_each || taken <= 1 ? 1 : 0.19 * taken + 0.81 * 2,
                         idle = taken < 1 ? 1 - taken : 0,
                         step_time = width == 4 ? one_each ? 1.25 : 1.93 : one_each ? 1.37 : 2.13,
                         waited = rounds * step_time *
                                  (0.36 * (double)vb_ceil_div(each, step) + 0.64 * (double)each / (double)step),
                         moved = megabytes / 4 * (1 + (lanes == 32 ? 0 : lanes == 16 ? 0.05 : 0.18) +
                                                  (one_each ? 0.42 * idle : 0.16 + 0.2 * idle)),
                         time = (waited > moved ? waited + 0.18 * moved : moved + 0.18 * waited) +
                                0.16 * (ksplit > 1) + 0.044 * (double)blocks / sms;
            if (!one_each && taken < 0.7 && megabytes > 30) continue;
            if (best.ksplit > 0 && time >= least) continue;
            best.lanes = lanes, best.ksplit = ksplit, least = time;
        }
    }
    return best;
}

/* Fewer columns, and columns that are no whole vectors, take less time by matmul_skinny: 13527x134 of F32 7.4 us in
 * place of 11.1, 13889x5 4.7 in place of 6.6. None is named. */
enum { MATMUL_M1_LEAST_COLUMNS = 512 };
static inline matmul_kernel choose_matmul_m1(const void *b, vb_dtype type, int64_t k, int64_t n, const vb_gpu *gpu) {
    const int width = matmul_m1_width(b, type, n);
    if (matmul_m1_cluster(k, n, width, gpu).ksplit) return MATMUL_M1_CLUSTER;
    if (gpu->capability >= 80 && (width == 1 || n < MATMUL_M1_LEAST_COLUMNS)) return MATMUL_NONE;
    return vb_ceil_div(n, 32 * width) <= INT32_MAX ? MATMUL_M1 : MATMUL_NONE;
}

#endif
