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
/* How matmul_thin cuts up a product: a block has every `phases`-th row. */
enum { MATMUL_THIN_THREADS = 256 };
typedef struct matmul_thin_plan {
    int phases, columns, width; /* columns of a thread; threads side by side */
    int64_t across;             /* blocks side by side */
    double time;
} matmul_thin_plan;
static inline matmul_thin_plan matmul_thin_plan_of(const vb_matmul_args *x) {
    const int f32 = x->type == VB_F32, sector = MATMUL_SECTOR / matmul_element_bytes(x->type);
    const double c = matmul_millions_of_c(x);
    matmul_thin_plan plan = {matmul_phases(x), x->n > 32 && c > 4 ? 2 : 1, 1, 0, 0};
    /* Phases of 16 bits read A again and again: where it is stored [k][m], an element at a time. */
    const int odd = plan.phases > 1, again = !f32 && (plan.phases > 8 || (x->k > 4 && x->a_transposed));
    if (odd && again) plan.phases = plan.columns = 1;
    else if (odd && x->n >= 128 && x->m >= 8 * plan.phases) plan.columns = 2;
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
    const int steps = x->k <= 4 ? 1 : x->k <= 8 ? 2 : 4, alone = x->b_transposed && x->n <= 64;
    const double computed = (double)plan.across * plan.width * plan.columns * x->m * steps,
                 of_a = (double)x->m * x->k * (x->a_transposed && plan.phases > 1 ? 4 : 1),
                 of_b = (double)x->n * x->k * (1 + (f32 ? 3.1 : 2.1) * (plan.phases - 1));
    /* F32 of a longer k was fitted again, by random batches. */
    const int longer = f32 && x->k > 4;
    const double start = longer ? x->k > 8 ? 3.9 : 3.5 : f32 ? 2.8 : 4.7,
                 odd_c = longer ? 1.7 : f32 ? 2.2 : 2.8, two = longer ? 0.85 : f32 ? 0.6 : 0.72;
    plan.time = start + c * (longer ? 0.95 : f32 ? 1.22 : 0.52) * (odd && plan.phases == 1 ? odd_c : 1) +
                1e-6 * x->batch *
                    ((longer ? 0.27 : f32 ? 0.29 : 0.28) * computed * (plan.columns == 1 ? 1 : two) +
                     (longer ? 4.5 : f32 ? 4.6 : 4.2) * of_a +
                     (!f32 ? 0.56 : (longer ? 0.2 : 0.3) + (alone ? longer ? 9.5 : 17 : 0)) * of_b);
    return plan;
}
/* F32 of a k above 4 against tiles of small matrices, which take longer than their times say. Before Hopper 16 bits of
 * a k of up to 8 took 0.84 of it, and a longer k as long or longer, of 25 of those runs. */
static inline double matmul_thin_time(const vb_matmul_args *x, const vb_gpu *gpu) {
    const int f32 = x->type == VB_F32, early = vb_begins_early(gpu);
    if (f32 && x->k > 4) return matmul_thin_plan_of(x).time * (early ? 0.9 : 1.3);
    return matmul_thin_plan_of(x).time * (early || f32 ? 1 : x->k > 8 ? 1.25 : 0.84);
}

#endif
