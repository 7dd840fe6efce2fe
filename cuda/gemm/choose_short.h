/* choose_short.h: how matmul_short and matmul_thin cut up products of a short k, and their times. */
#ifndef VB_CUDA_GEMM_CHOOSE_SHORT_H
#define VB_CUDA_GEMM_CHOOSE_SHORT_H

#include "gemm/choose_ksplit.h"

/* Rows of C after which a row begins at the same place of a sector of 32 bytes again. A block of every so-manieth row
 * writes whole sectors; a part of a sector costs the memory a reading, which made products up to 2.5 times as long. */
enum { MATMUL_SECTOR = 32 };
static inline int matmul_phases(const vb_matmul_args *x) {
    int phases = 1;
    while (phases * x->c_stride % (MATMUL_SECTOR / matmul_element_bytes(x->type)) != 0) phases *= 2;
    return phases;
}

/* Of matmul_short, of which 8 blocks share a multiprocessor for k up to 32, else 6. Rows of an A stored [k][m] that lie
 * apart would be read one by one. */
enum { MATMUL_SHORT_SIDE = 64, MATMUL_SHORT_MOST_K = 64 };
static inline int matmul_short_phases(const vb_matmul_args *x) {
    const int phases = matmul_phases(x);
    return !x->a_transposed && x->n >= 128 && x->m >= 48 * phases ? phases : 1;
}
/* Rows and columns of tiles. The first of a row ends where a sector does. */
static inline int64_t matmul_short_rows(const vb_matmul_args *x, int phases) {
    return vb_ceil_div(x->m, MATMUL_SHORT_SIDE * phases) * phases;
}
static inline int64_t matmul_short_columns(const vb_matmul_args *x, int phases) {
    return vb_ceil_div(x->n + (phases > 1 ? MATMUL_SECTOR / 2 - 1 : 0), MATMUL_SHORT_SIDE);
}
static inline double matmul_short_time(const vb_matmul_args *x, const vb_gpu *gpu) {
    const int phases = matmul_short_phases(x);
    const int64_t tiles = matmul_short_rows(x, phases) * matmul_short_columns(x, phases) * x->batch;
    const int odd_c = !matmul_vectors(x->c, x->type, x->c_stride, x->c_batch_stride),
              odd = !matmul_vectors(x->a, x->type, x->a_stride, x->a_batch_stride) +
                    !matmul_vectors(x->b, x->type, x->b_stride, x->b_batch_stride);
    const double taken = (double)tiles / ((x->k > 32 ? 6.4 : 8.0) * gpu->multiprocessors),
                 operands = ((double)x->m + x->n) * x->k, of_tile = MATMUL_SHORT_SIDE * MATMUL_SHORT_SIDE,
                 of_rows = (double)x->m * x->batch * MATMUL_SHORT_SIDE * matmul_short_columns(x, phases),
                 stored = x->n < MATMUL_SHORT_SIDE ? of_rows : 1e6 * matmul_millions_of_c(x),
                 filled = stored / ((double)tiles * of_tile),
                 of_c = (phases > 1 ? 0.2 : 3 * filled) * odd_c;
    return 2.2 + (taken > 0.2 ? taken : 0.2) * (1.15 + of_c + 0.07 * odd + 0.43 * (double)vb_ceil_div(x->k, 16)) +
           0.62 * matmul_millions_of_c(x) + 0.73e-6 * x->batch * operands;
}
/* How matmul_thin cuts up a product: a block has `rows` of every `phases`-th row. */
enum { MATMUL_THIN_THREADS = 256, MATMUL_THIN_FLOATS = 2048, MATMUL_THIN_OUTPUTS = 4096, MATMUL_THIN_BLOCKS = 8 };
typedef struct matmul_thin_plan {
    int phases, columns, width, rows; /* columns of a thread; threads side by side */
    int64_t across;                   /* blocks side by side */
    double time;
} matmul_thin_plan;
static inline int64_t matmul_thin_groups(const vb_matmul_args *x, const matmul_thin_plan *plan) {
    return vb_ceil_div(x->m, (int64_t)plan->rows * plan->phases) * plan->phases;
}
/* So many outputs of a block are enough: blocks that run together then write rows that lie close. Rows past the last
 * one are of no use. Fewer rows where there are next to no blocks, if they leave few threads without any. */
static inline int matmul_thin_rows(const vb_matmul_args *x, int depth, int width, int columns, int multiprocessors) {
    int rows = MATMUL_THIN_FLOATS / depth;
    while (rows > 16 && ((rows > 64 && rows * width > MATMUL_THIN_OUTPUTS) || rows >= 2 * x->m)) rows /= 2;
    while (rows > 16 && (rows > 32 || rows > 2 * MATMUL_THIN_THREADS / width) &&
           2 * vb_ceil_div(x->m, rows) * vb_ceil_div(x->n, (int64_t)width * columns) * x->batch < 3 * multiprocessors)
        rows /= 2;
    return rows;
}
/* Its time is a fit to 870 runs of products on an H200, by 0.17 of its logarithm: what blocks read and compute, or a
 * block alone, and the way of C, longer where parts of sectors are written
 * (docs/experiments/2026-11-29-short-products.md). */
static inline matmul_thin_plan matmul_thin_plan_of(const vb_matmul_args *x, int multiprocessors) {
    const int f32 = x->type == VB_F32, bytes = matmul_element_bytes(x->type), sector = MATMUL_SECTOR / bytes,
              depth = x->k <= 4 ? 4 : x->k <= 8 ? 8 : 16;
    const double c = matmul_millions_of_c(x);
    /* Two columns a thread where blocks of one would have few left, or many outputs. A longer k of a B stored [k][n]
     * asks for more registers than it saves of A. */
    const int few_left = x->n > (depth == 4 ? 128 : 256), some = x->n > 32 && c > 4, many = x->n > 32 && c > 16,
              two_columns = depth == 4 || (depth == 8 && x->b_transposed) ? few_left || some : many;
    matmul_thin_plan plan = {matmul_phases(x), two_columns ? 2 : 1, 1, 0, 0, 0};
    /* Phases of 16 bits read A again and again: where it is stored [k][m], an element at a time. */
    const int odd = plan.phases > 1, again = !f32 && depth > 4 && (plan.phases > 8 || x->a_transposed),
              least = (f32 ? 8 : plan.phases > 8 ? 16 : 12) * plan.phases;
    if (odd && again) plan.phases = plan.columns = 1;
    else if (odd && x->n >= 128 && x->m >= least) plan.columns = 2;
    else plan.phases = 1;
    const int64_t columns = x->n + (plan.phases > 1 ? sector - 1 : 0);
    if (plan.columns == 1) {
        while (plan.width < MATMUL_THIN_THREADS && plan.width < x->n) plan.width *= 2;
        plan.across = vb_ceil_div(columns, plan.width);
    } else { /* as many warps as leave few of their columns empty */
        const int64_t of_block = 2 * MATMUL_THIN_THREADS;
        plan.across = vb_ceil_div(columns, of_block);
        plan.width = (int)vb_ceil_div(vb_ceil_div(columns, 2 * plan.across), 32) * 32;
    }
    plan.rows = matmul_thin_rows(x, depth, plan.width, plan.columns, multiprocessors);
    const int threads = MATMUL_THIN_THREADS / plan.width * plan.width;
    const double blocks = (double)matmul_thin_groups(x, &plan) * (double)plan.across * (double)x->batch,
                 places = (double)MATMUL_THIN_BLOCKS * multiprocessors,
                 rows = (double)(x->m < plan.rows ? x->m : plan.rows), of_b = (double)depth * plan.columns,
                 of_a = rows * depth / threads, computed = rows * plan.width / threads * of_b,
                 alone = f32 ? 0.33 + (depth > 8 ? 0.0065 : 0.0039) * computed : 0.0075 * computed,
                 block = f32 ? 2.59 + 0.949 * of_a + 0.06 * of_b : 0.54 + 0.808 * of_a + 0.273 * of_b,
                 waited = blocks / places * block,
                 operands = 1e-6 * x->batch * (double)x->k * ((double)x->m + (double)x->n * plan.phases);
    const int parts = odd && plan.phases == 1; /* of sectors */
    plan.time = (f32 ? 1.9 : 2.3) + (waited > alone ? waited : alone) +
                bytes * ((f32 ? 0.281 : 0.311) * (parts ? 1.82 : 1) * c + (f32 ? 0.164 : 0.426) * operands);
    return plan;
}
/* Before Hopper 16 bits of a longer k take longer, of 4 runs. */
static inline double matmul_thin_time(const vb_matmul_args *x, const vb_gpu *gpu) {
    const double time = matmul_thin_plan_of(x, gpu->multiprocessors).time;
    if (vb_begins_early(gpu)) return time;
    return time * (x->type != VB_F32 && x->k > 8 ? 1.25 : 1);
}

#endif
