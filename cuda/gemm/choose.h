/* choose.h: which kernel computes a product of matrices. In the names, gemm takes contiguous matrices and matmul any
 * layout and strides; m1 and m64 are the most rows of A; 3xtf32 and 3xf16 multiply F32 by parts of fewer bits, with
 * float32's accuracy. */
#ifndef VB_CUDA_GEMM_CHOOSE_H
#define VB_CUDA_GEMM_CHOOSE_H

#include "gemm/choose_skinny.h"

#define MATMUL_KERNELS(X)                                                                                              \
    X(MATMUL_M1_CLUSTER, "matmul_m1_cluster", "gemm/matmul_m1.cu",                                                     \
      "one row of A, 9.0: the blocks that share k are a cluster, one or two an SM")                                    \
    X(MATMUL_M1, "matmul_m1", "gemm/matmul_m1.cu", "one row of A, any other")                                          \
    X(MATMUL_THIN, "matmul_thin", "gemm/matmul_thin.cu", "k of at most 16, any type and layout")                       \
    X(MATMUL_SKINNY, "matmul_skinny", "gemm/matmul_skinny.cu",                                                         \
      "up to 8 rows of A or columns of B, any type and layout")                                                        \
    X(MATMUL_SHORT, "matmul_short", "gemm/matmul_short.cu", "16 bits of any layout and strides, k of at most 64, 8.0") \
    X(MATMUL_3XTF32, "matmul_3xtf32", "gemm/matmul_3xtf32.cu",                                                         \
      "F32, contiguous, 64 rows of A or at most 640^3 products, 8.0 with 196 KiB of shared memory")                    \
    X(GEMM_M64_SM90, "gemm_m64_sm90", "gemm/gemm_m64_sm90.cu",                                                         \
      "16 bits, rows of whole vectors, up to 64 rows of A or columns of B, 9.0")                                       \
    X(GEMM_SM90, "gemm_sm90", "gemm/gemm_sm90.cu", "16 bits, one product, rows of whole vectors, 9.0")                 \
    X(GEMM_3XF16_SM90, "gemm_3xf16_sm90", "gemm/gemm_3xf16_sm90.cu", "F32, contiguous, B as [k][n], 9.0")              \
    X(MATMUL_SM90, "matmul_sm90", "gemm/matmul_sm90.cu", "16 bits, any layout of whole vectors, 9.0")                  \
    X(MATMUL_3XF16_SM90, "matmul_3xf16_sm90", "gemm/matmul_3xf16_sm90.cu", "F32, any layout, large, 9.0")              \
    X(MATMUL_1XF16_SM90, "matmul_1xf16_sm90", "gemm/matmul_3xf16_sm90.cu", "F32 with TF32 permitted, large, 9.0")      \
    X(MATMUL_PADDED_SM90, "matmul_padded_sm90", "gemm/matmul_padded.cu",                                               \
      "16 bits of any other strides, copied to whole vectors for matmul_sm90, 9.0")                                    \
    X(MATMUL_PADDED_M64_SM90, "matmul_padded_m64_sm90", "gemm/matmul_padded.cu",                                       \
      "the same with up to 64 rows of A or columns of B, for gemm_m64_sm90, 9.0")                                      \
    X(MATMUL_KSPLIT, "matmul_ksplit", "gemm/matmul_ksplit.cu",                                                         \
      "16 bits of any strides, few tiles or small ones, 8.0: blocks share k")                                          \
    X(MATMUL_MMA, "matmul_mma", "gemm/matmul_mma.cu", "16 bits, any layout of whole vectors, 8.0")                     \
    X(MATMUL_PADDED_MMA, "matmul_padded_mma", "gemm/matmul_padded.cu",                                                 \
      "16 bits of any other strides, copied to whole vectors for matmul_mma, 8.0")                                     \
    X(MATMUL_3XTF32_ANY, "matmul_3xtf32_any", "gemm/matmul_3xtf32_any.cu",                                             \
      "F32 of any layout, 8.0: blocks share k")                                                                        \
    X(MATMUL_TF32, "matmul_tf32", "gemm/matmul_tf32.cu", "F32 with TF32 permitted, 8.0")                               \
    X(MATMUL_F32, "matmul_f32", "gemm/matmul_f32.cu", "F32 on fp32 units, 8.0")                                        \
    X(MATMUL_SIMT, "matmul_simt", "gemm/matmul_simt.cu",                                                               \
      "anything before 8.0; then F32 of sizes or shared memory that no other takes")
VB_KERNEL_FAMILY(matmul, MATMUL, MATMUL_KERNELS)

/* ---- one row of A ----------------------------------------------------------------------------------------------- */

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

/* Lanes that read elements of 16 bits one by one are slower than kernels of tiles, and of F32 than matmul_skinny in
 * large matrices: none is named. Few odd columns of F32 took it up to twice as long. */
static inline matmul_kernel choose_matmul_m1(const void *b, vb_dtype type, int64_t k, int64_t n, const vb_gpu *gpu) {
    const int width = matmul_m1_width(b, type, n);
    if (width == 1 && gpu->capability >= 80 && (type != VB_F32 || (n >= 1024 && k >= 256))) return MATMUL_NONE;
    if (matmul_m1_cluster(k, n, width, gpu).ksplit) return MATMUL_M1_CLUSTER;
    return vb_ceil_div(n, 32 * width) <= INT32_MAX ? MATMUL_M1 : MATMUL_NONE;
}

/* ---- F32 in TF32 parts ------------------------------------------------------------------------------------------ */

/* The instance of matmul_3xtf32.cu: eights of rows a tile, warps side by side. */
static inline int matmul_3xtf32_eights(int64_t m) { return m <= 8 ? 1 : m <= 16 ? 2 : m <= 32 || m > 64 ? 4 : 8; }
static inline int matmul_3xtf32_abreast(int64_t n) { return n > 2048 ? 4 : 2; }
/* Its shared memory. */
static inline int64_t matmul_3xtf32_bytes(int eights, int abreast, int b_transposed) {
    const int64_t depth = (b_transposed ? 32 : 16) * (8 / abreast), step = (8 * 256 + depth / 16 * eights * 32) * 16;
    const int64_t steps = (224 << 10) / step;
    return (steps < 6 ? steps : 6) * step;
}
/* Whether it computes the product well: larger ones repay the passes of gemm_3xf16_sm90.cu, and a few columns of many
 * rows fill little of its tiles. */
static inline int matmul_3xtf32_suits(const vb_matmul_args *x, const vb_gpu *gpu) {
    const int few = x->m <= 64 ? x->n >= 128 && x->k >= 128
                               : x->n > 32 && (double)x->m * x->k * x->n <= 640.0 * 640 * 640;
    return gpu->capability >= 80 && x->type == VB_F32 && x->precision != VB_PRECISION_IEEE && few &&
           matmul_contiguous(x) && matmul_sizes_below(x, (1 << 30) + 1) && x->k % 4 == 0 && x->n % 4 == 0 &&
           vb_aligned16(x->a) && vb_aligned16(x->b) && vb_aligned16(x->c) &&
           matmul_3xtf32_bytes(matmul_3xtf32_eights(x->m), matmul_3xtf32_abreast(x->n), x->b_transposed) <=
               gpu->shared_bytes;
}

/* ---- Hopper ----------------------------------------------------------------------------------------------------- */

enum { GEMM_M64_TILE = 128, GEMM_M64_DEPTH = 64, GEMM_M64_MOST_KSPLIT = 8 };

/* Blocks of a cluster of gemm_m64_sm90.cu, of which 2 share a multiprocessor, and the time. At least as many as there
 * are multiprocessors for, so long as each has eight steps; more of four steps where these take a twentieth less
 * time. */
static inline double gemm_m64_plan(int *ksplit, int64_t few, int64_t many, int64_t k, int64_t batch,
                                   int multiprocessors) {
    const int64_t tiles = vb_ceil_div(many, GEMM_M64_TILE) * batch, steps = vb_ceil_div(k, GEMM_M64_DEPTH);
    const double moved = 2e-6 / 1.9 * ((double)few * k + (double)k * many + (double)few * many) * batch;
    double least = 0;
    for (int blocks = 1; blocks <= GEMM_M64_MOST_KSPLIT && (blocks == 1 || steps >= 4 * blocks); blocks *= 2) {
        const double taken = (double)(tiles * blocks) / (2.0 * multiprocessors), rounds = taken > 1 ? taken : 1,
                     step = 0.165 + 1.05 * (taken < 1 ? taken : 1),
                     waited = rounds * step * (few > 32 ? 1.5 : 1) * (double)vb_ceil_div(steps, blocks),
                     time = 2.2 + (waited > moved ? waited : moved) + (blocks > 1 ? few > 32 ? 1.8 : 0.4 : 0);
        const int room = tiles * blocks <= multiprocessors && steps >= 8 * blocks;
        if (blocks == 1 || room || time < 0.95 * least) least = time, *ksplit = blocks;
    }
    return least;
}
static inline int gemm_m64_ksplit(int64_t few, int64_t many, int64_t k, int64_t batch, int multiprocessors) {
    int ksplit = 1;
    gemm_m64_plan(&ksplit, few, many, k, batch, multiprocessors);
    return ksplit;
}
/* Whether the few are columns of B: the product is computed turned. */
static inline int gemm_m64_turned(const vb_matmul_args *x) { return x->n <= 64 && x->n < x->m; }
/* Rows with or without gaps, C in whole vectors. */
static inline int gemm_sm90_takes(const vb_matmul_args *x) {
    return x->type != VB_F32 && x->batch == 1 && matmul_operand_vectors(x) &&
           matmul_vectors(x->c, x->type, x->c_stride, x->c_batch_stride) && x->n % 8 == 0 &&
           matmul_sizes_below(x, 1 << 30);
}

/* F32 operands have to be split first, which small products and products of few rows do not repay. */
static inline int gemm_3xf16_suits(const vb_matmul_args *x) {
    return x->precision == VB_PRECISION_FLOAT32 && !x->b_transposed && x->m >= 16 && x->k >= 128 &&
           (double)x->m * x->n * x->k >= 256.0 * 256 * 256 && matmul_sizes_below(x, 1 << 28) && vb_aligned16(x->a) &&
           vb_aligned16(x->b) && vb_aligned16(x->c);
}
/* The same of any layout, where kernels on plain operands take as long for the conversion. */
static inline int matmul_xf16_suits(const vb_matmul_args *x) {
    const double work = (double)x->m * x->n * x->k * x->batch;
    return x->precision != VB_PRECISION_IEEE && matmul_sizes_below(x, 1 << 28) && x->m >= 32 && x->n >= 32 &&
           x->k >= 48 && work >= (x->precision == VB_PRECISION_TF32 ? 4e8 : 2e7) &&
           (double)x->batch * (x->m + x->n) < (double)(1 << 29);
}
/* Whether the tiles that blocks walk through are counted in 32 bits, and TMA takes the strides. */
static inline int matmul_sm90_fits(const vb_matmul_args *x) {
    const int64_t most_stride = (int64_t)1 << 39; /* elements of 2 bytes */
    return (double)vb_ceil_div(x->m, 64) * vb_ceil_div(x->n, 64) * x->batch < (double)(1 << 28) &&
           x->a_stride < most_stride && x->b_stride < most_stride && x->a_batch_stride < most_stride &&
           x->b_batch_stride < most_stride;
}

/* ---- blocks that share k ---------------------------------------------------------------------------------------- */

enum {
    MATMUL_KSPLIT_DEPTH = 64,
    MATMUL_MMA_DEPTH = 64,
    MATMUL_TF32_DEPTH = 32,
    MATMUL_F32_DEPTH = 16,
    MATMUL_MOST_PARTS = 128,
    MATMUL_MOST_SHARED_TILES = 4096
};

/* So many blocks share the k of each of `tiles` tiles that `places` are taken, with `least` steps each. */
static inline int matmul_parts(int64_t tiles, int64_t steps, int64_t places, int least) {
    int64_t parts = tiles == 0 || tiles > MATMUL_MOST_SHARED_TILES ? 1 : places / tiles;
    if (parts > MATMUL_MOST_PARTS) parts = MATMUL_MOST_PARTS;
    if (parts > steps / least) parts = steps / least;
    return parts <= 1 ? 1 : (int)vb_ceil_div(steps, vb_ceil_div(steps, parts));
}
/* The tiles of a product and the blocks that share each, of which a GPU holds `places`; microseconds. */
typedef struct matmul_ksplit_plan {
    int tile_m, tile_n, parts, depth; /* of a step */
    int64_t tiles, steps, places;
    double time;
} matmul_ksplit_plan;
/* Of matmul_mma: stages of k on their way, and shared memory. */
enum { MATMUL_MMA_STAGES = 3 };
static inline int64_t matmul_mma_bytes(int tile_m, int tile_n) {
    return (int64_t)MATMUL_MMA_STAGES * (tile_m + tile_n) * MATMUL_MMA_DEPTH * 2;
}

/* Microseconds of kernels: fits to 28,000 runs of 1,100 products on an H200, half of them drawn at random, by 0.10 to
 * 0.15 of their logarithm (docs/experiments/2026-11-28-shapes.md). A step takes longer the fuller the GPU is. */
typedef struct matmul_times {
    double start, block, step, crowded;
    double add, part;        /* where blocks share k: the addition of parts; a million elements of one of them */
    double store, odd_store; /* a million elements of C; the share more where its rows begin anywhere */
    double rate;             /* megabytes of the matrices in a microsecond, at most */
    double odd;              /* the share more of a step for each operand whose rows begin anywhere */
} matmul_times;
static inline double matmul_millions_of_c(const vb_matmul_args *x) { return 1e-6 * x->m * x->n * x->batch; }
static inline double matmul_megabytes(const vb_matmul_args *x) {
    return 1e-6 * matmul_element_bytes(x->type) * x->batch *
           ((double)x->m * x->k + (double)x->k * x->n + (double)x->m * x->n);
}
static inline double matmul_time(const matmul_ksplit_plan *plan, const matmul_times *t, const vb_matmul_args *x) {
    const int odd = !matmul_vectors(x->a, x->type, x->a_stride, x->a_batch_stride) +
                    !matmul_vectors(x->b, x->type, x->b_stride, x->b_batch_stride),
              odd_c = !matmul_vectors(x->c, x->type, x->c_stride, x->c_batch_stride);
    const double taken = (double)plan->tiles * plan->parts / (double)plan->places, rounds = taken > 1 ? taken : 1,
                 crowded = taken < 1 ? taken : 1, whole = (double)x->k / plan->depth,
                 steps = plan->parts > 1 ? (double)vb_ceil_div(plan->steps, plan->parts) : whole > 0.25 ? whole : 0.25,
                 step = (t->step + t->crowded * crowded) * (1 + t->odd * odd), c = matmul_millions_of_c(x),
                 waited = t->start + rounds * (t->block + step * steps), moved = 1.5 + matmul_megabytes(x) / t->rate;
    return (waited > moved ? waited : moved) + t->store * c * (1 + t->odd_store * odd_c) +
           (plan->parts > 1 ? t->add + t->part * plan->parts * c : 0);
}
/* The time by as many blocks a tile as take least: as the places have room for, twice as many, or a half, a quarter and
 * so on, `halvings` times. */
static inline double matmul_fewest_parts(matmul_ksplit_plan *plan, const matmul_times *t, const vb_matmul_args *x,
                                         int least, int halvings) {
    const int planned = plan->parts;
    int best = planned;
    double time = matmul_time(plan, t, x);
    for (int i = -1; i <= halvings; i++) {
        plan->parts = i < 0 ? 2 * planned : planned >> i;
        if (plan->parts < 1 || plan->parts > MATMUL_MOST_PARTS || (int64_t)plan->parts * least > plan->steps ||
            plan->tiles > MATMUL_MOST_SHARED_TILES)
            continue;
        const double other = matmul_time(plan, t, x);
        if (other < time) time = other, best = plan->parts;
    }
    plan->parts = best;
    return time;
}
typedef struct matmul_tile {
    int m, n, blocks; /* so many a multiprocessor */
    matmul_times times;
} matmul_tile;
/* The tiles that a kernel has; the depth of a step, and the steps that each of the blocks has that share a tile. */
typedef struct matmul_tiles {
    int count, depth, least;
    matmul_tile of[7];
} matmul_tiles;
static inline const matmul_tiles *matmul_tiles_among(matmul_kernel kernel, const matmul_tiles *mma,
                                                     const matmul_tiles *ksplit, const matmul_tiles *tf32,
                                                     const matmul_tiles *f32) {
    return kernel == MATMUL_MMA ? mma : kernel == MATMUL_KSPLIT ? ksplit : kernel == MATMUL_F32 ? f32 : tf32;
}
static inline const matmul_tiles *matmul_early_tiles_of(matmul_kernel kernel) {
    static const matmul_tiles mma = {2,
                                     MATMUL_MMA_DEPTH,
                                     3,
                                     {{128, 128, 2, {1.3, 1.57, 0.885, 0.814, 0.978, 2.52, 0.981, 0, 2.28, 0}},
                                      {64, 64, 4, {2, 0.621, 0.318, 0.871, 0.661, 2.57, 1.34, 0.265, 2.83, 0}}}},
                              ksplit = {5,
                                        MATMUL_KSPLIT_DEPTH,
                                        2,
                                        {{64, 64, 3, {1.76, 1.13, 0.714, 0.92, 0, 3.39, 1.32, 0.222, 1.71, 0.04}},
                                         {32, 32, 6, {1.68, 0.88, 0.584, 0.894, 0.27, 3.99, 1.64, 0.376, 1.43, 0.036}},
                                         {64, 16, 6, {1.41, 0.84, 0.465, 1.17, 0.6, 3.95, 2.54, 0.244, 1.72, 0.035}},
                                         {16, 64, 6, {1.48, 0.86, 0.435, 1.18, 0.55, 3.6, 2.41, 0.016, 1.7, 0.051}},
                                         {16, 16, 6, {0.55, 2.02, 0.116, 0.71, 0, 0, 4.85, 0.022, 1.48, 0.042}}}},
                              tf32 = {7,
                                      MATMUL_TF32_DEPTH,
                                      2,
                                      {{64, 64, 3, {1.56, 1.5, 0.848, 1.32, 0, 2.73, 1.22, 0.0821, 2.09, 0.0434}},
                                       {32, 32, 5, {1.45, 1.13, 0.446, 1.03, 0.459, 2.89, 1.72, 0.191, 1.56, 0.0752}},
                                       {64, 32, 5, {1.53, 1.25, 0.619, 1.52, 0.292, 3.06, 1.19, 0.177, 1.98, 0.0664}},
                                       {32, 64, 5, {1.79, 1.04, 0.617, 1.58, 0.17, 2.9, 1.53, 0.0244, 2.77, 0.0571}},
                                       {64, 16, 5, {1.8, 0.584, 0.448, 1.07, 0.579, 3.65, 2.47, 0.45, 2.4, 0.0933}},
                                       {16, 64, 5, {1.35, 1.04, 0.438, 1.12, 0.572, 2.92, 2.15, 0.0286, 2.22, 0.0787}},
                                       {16, 16, 4, {0.3, 2, 0.113, 0.405, 0, 0, 2.03, 0, 2.15, 0.106}}}},
                              f32 = {4,
                                     MATMUL_F32_DEPTH,
                                     6,
                                     {{256, 128, 1, {4.4, 1.6, 2.9, 0.28, 0, 0, 2.5, 1.2, 3.6, 0.035}},
                                      {128, 128, 2, {0.8, 5.0, 2.4, 1.1, 0, 0, 1.2, 2.8, 1.8, 0.04}},
                                      {64, 64, 3, {0.628, 1.6, 0.439, 0.983, 0.796, 4.09, 1.2, 1.27, 1.54, 0.0439}},
                                      {32, 64, 3, {1.54, 0.551, 0.305, 0.613, 0.854, 3.88, 2.14, 0.16, 2.82, 0.0305}}}};
    return matmul_tiles_among(kernel, &mma, &ksplit, &tf32, &f32);
}
/* Before Hopper kernels do not begin early: fits to 6,000 runs of 230 products by an H100 taken for a GPU of 8.6, by
 * 0.12 of their logarithm (docs/experiments/2026-11-28-portable-products.md). */
static inline const matmul_tiles *matmul_portable_tiles_of(matmul_kernel kernel) {
    static const matmul_tiles mma = {2,
                                     MATMUL_MMA_DEPTH,
                                     1,
                                     {{128, 128, 2, {3.49, 2.3, 0.775, 0.908, 0.024, 2.42, 0.984, 0.097, 2.4, 0.001}},
                                      {64, 64, 4, {2.85, 1.12, 0.315, 0.917, 0.77, 2.12, 1.17, 0.221, 3.34, 0.001}}}},
                              ksplit = {4,
                                        MATMUL_KSPLIT_DEPTH,
                                        1,
                                        {{64, 64, 3, {2.77, 1.29, 0.763, 0.658, 0.117, 2.38, 1.11, 0.134, 2.03, 0.039}},
                                         {32, 32, 6, {2.15, 1.24, 0.637, 0.762, 0.634, 2.41, 1.21, 0.046, 1.91, 0.065}},
                                         {64, 16, 6, {1.83, 1.18, 0.501, 1.04, 0.997, 2.45, 1.75, 0, 2.48, 0.059}},
                                         {16, 64, 6, {1.45, 1.53, 0.453, 1.02, 1.03, 2.48, 1.29, 0, 2.21, 0.077}}}},
                              tf32 = {6,
                                      MATMUL_TF32_DEPTH,
                                      1,
                                      {{64, 64, 3, {3.33, 0.628, 0.796, 1.45, 0.348, 2.62, 1.17, 0.321, 2.11, 0.045}},
                                       {32, 32, 5, {2.08, 1.33, 0.43, 1.02, 1, 2.52, 0.597, 1.41, 1.46, 0.085}},
                                       {64, 32, 5, {2.73, 0.913, 0.572, 1.56, 0.721, 2.93, 0.984, 0.461, 1.81, 0.082}},
                                       {32, 64, 5, {2.26, 1.32, 0.58, 1.65, 0.635, 2.83, 0.728, 0.756, 2.17, 0.06}},
                                       {64, 16, 5, {2.75, 0.447, 0.45, 1.1, 1.16, 2.93, 1.92, 0.428, 1.69, 0.078}},
                                       {16, 64, 5, {1.52, 2.13, 0.434, 1.14, 0.657, 2.96, 0.024, 4, 2.01, 0.064}}}},
                              f32 = {4,
                                     MATMUL_F32_DEPTH,
                                     4,
                                     {{256, 128, 1, {3.94, 3.66, 2.79, 0.229, 1.19, 10.3, 3.48, 0.162, 3.6, 0.02}},
                                      {128, 128, 2, {2.1, 4.55, 2.32, 1.1, 4.93, 4.55, 2.58, 0, 1.85, 0.066}},
                                      {64, 64, 3, {2.67, 0.99, 0.429, 0.962, 0.674, 2.23, 2.23, 0, 1.62, 0.031}},
                                      {32, 64, 3, {1.96, 1.03, 0.308, 0.571, 1.31, 2.29, 1.07, 0.001, 1.56, 0.001}}}};
    return matmul_tiles_among(kernel, &mma, &ksplit, &tf32, &f32);
}
static inline const matmul_tiles *matmul_tiles_of(matmul_kernel kernel, const vb_gpu *gpu) {
    return vb_begins_early(gpu) ? matmul_early_tiles_of(kernel) : matmul_portable_tiles_of(kernel);
}
/* Outputs of a tile whose k the warps of its block share, and the most rows and columns of such a product, to which its
 * time was fitted. Larger ones take up to twice as long, but for few tiles of a stage of k at least. */
enum { MATMUL_WARPS_SHARE = 16 * 16, MATMUL_WARPS_MOST = 48 };
/* A product by one of a kernel's tiles. No blocks share large tiles of matmul_f32, nor tiles whose warps share k.
 * Shared memory may hold fewer blocks of matmul_mma than registers do, which the times before Hopper leave out: no
 * places are none. */
static inline matmul_ksplit_plan matmul_plan_tile(matmul_kernel kernel, int nth, const vb_matmul_args *x,
                                                  const vb_gpu *gpu) {
    const matmul_tiles *const tiles = matmul_tiles_of(kernel, gpu);
    const matmul_tile tile = tiles->of[nth];
    const int early = vb_begins_early(gpu);
    const int64_t room =
        kernel == MATMUL_MMA ? (gpu->shared_bytes + 1024) / (matmul_mma_bytes(tile.m, tile.n) + 1024) : tile.blocks;
    matmul_ksplit_plan plan = {tile.m, tile.n, 1, tiles->depth, 0, vb_ceil_div(x->k, tiles->depth), 0, 0};
    if (room == 0) return plan;
    plan.places = (early && room < tile.blocks ? room : tile.blocks) * gpu->multiprocessors;
    plan.tiles = vb_ceil_div(x->m, tile.m) * vb_ceil_div(x->n, tile.n) * x->batch;
    const int shared = (kernel != MATMUL_F32 || tile.m <= 64) && tile.m * tile.n > MATMUL_WARPS_SHARE;
    if (shared) plan.parts = matmul_parts(plan.tiles, plan.steps, plan.places, tiles->least);
    plan.time = shared && (kernel != MATMUL_F32 || !early)
                    ? matmul_fewest_parts(&plan, &tile.times, x, tiles->least, early ? 1 : 6)
                    : matmul_time(&plan, &tile.times, x);
    /* Few blocks of matmul_mma in a last round take as long as one alone. */
    const int64_t blocks = plan.tiles * plan.parts;
    if (kernel == MATMUL_MMA && blocks > plan.places)
        plan.time += ((double)vb_ceil_div(blocks, plan.places) - (double)blocks / (double)plan.places) *
                     (tile.times.block + tile.times.step * (double)vb_ceil_div(plan.steps, plan.parts));
    return plan;
}
/* The fastest tile of matmul_mma, matmul_ksplit or matmul_3xtf32_any. Of matmul_f32 it is the largest tile that the
 * matrix fills by more than half, if there are about as many tiles as multiprocessors.
 * With a small k, several blocks a multiprocessor: blocks that begin and end together take most of the time. */
static inline matmul_ksplit_plan matmul_plan_of(matmul_kernel kernel, const vb_matmul_args *x, const vb_gpu *gpu) {
    if (kernel == MATMUL_F32 && vb_begins_early(gpu)) {
        const int64_t enough = gpu->multiprocessors * 7 / 8;
#define MATMUL_F32_TILES(tile_m, tile_n)                                                                               \
    (vb_ceil_div(x->m, tile_m) * vb_ceil_div(x->n, tile_n) * x->batch >= enough)
        const int many_small = x->m > 32 && MATMUL_F32_TILES(64, 64), large = x->k > 64 || !many_small;
        const int nth = large && x->m > 128 && x->n > 64 && MATMUL_F32_TILES(256, 128)  ? 0
                        : large && x->m > 64 && x->n > 64 && MATMUL_F32_TILES(128, 128) ? 1
                        : many_small                                                    ? 2
                                                                                        : 3;
#undef MATMUL_F32_TILES
        return matmul_plan_tile(kernel, nth, x, gpu);
    }
    const int small = (x->m <= MATMUL_WARPS_MOST && x->n <= MATMUL_WARPS_MOST) ||
                      (x->k >= 128 && vb_ceil_div(x->m, 16) * vb_ceil_div(x->n, 16) * x->batch <=
                                          2 * gpu->multiprocessors);
    matmul_ksplit_plan best = {64, 64, 1, 0, 0, 0, 0, 0};
    for (int nth = 0; nth < matmul_tiles_of(kernel, gpu)->count; nth++) {
        const matmul_ksplit_plan plan = matmul_plan_tile(kernel, nth, x, gpu);
        if (plan.tile_m * plan.tile_n == MATMUL_WARPS_SHARE && !small) continue;
        if (plan.places > 0 && (best.places == 0 || plan.time < best.time)) best = plan;
    }
    return best;
}
static inline double matmul_ksplit_time(const vb_matmul_args *x, const vb_gpu *gpu) {
    return matmul_plan_of(MATMUL_KSPLIT, x, gpu).time;
}
static inline double matmul_tf32_time(const vb_matmul_args *x, const vb_gpu *gpu) {
    return matmul_plan_of(MATMUL_3XTF32_ANY, x, gpu).time;
}
/* Multiprocessors of 8.0 have half as many fp32 units. */
static inline double matmul_f32_time(const vb_matmul_args *x, const vb_gpu *gpu) {
    return matmul_plan_of(MATMUL_F32, x, gpu).time * (gpu->capability == 80 ? 2 : 1);
}

/* Whether matmul_f32 turns the smaller operand first, where both run along k, for 8 bytes an element of it. */
enum { MATMUL_TURN_SIDE = 64, MATMUL_MOST_GRID_Y = 65535 };
static inline int matmul_f32_turns(const vb_matmul_args *x) {
    const int of_b = x->m >= x->n;
    const int64_t few = of_b ? x->n : x->m, many = of_b ? x->m : x->n;
    const int64_t matrices = (of_b ? x->b_batch_stride : x->a_batch_stride) == 0 ? 1 : x->batch;
    return !x->a_transposed && x->b_transposed && few >= 128 && many >= 1536 &&
           vb_ceil_div(few, MATMUL_TURN_SIDE) <= MATMUL_MOST_GRID_Y && matrices <= MATMUL_MOST_GRID_Y;
}

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
    const double taken = (double)tiles / ((x->k > 32 ? 6.0 : 8.0) * gpu->multiprocessors),
                 operands = ((double)x->m + x->n) * x->k, of_tile = MATMUL_SHORT_SIDE * MATMUL_SHORT_SIDE,
                 filled = 1e6 * matmul_millions_of_c(x) / ((double)tiles * of_tile),
                 of_c = (phases > 1 ? 1.5 : 3.1 * filled) * odd_c;
    return 2.1 + (taken > 0.2 ? taken : 0.2) * (0.2 + of_c + 0.2 * odd + 0.45 * (double)vb_ceil_div(x->k, 16)) +
           0.86 * matmul_millions_of_c(x) + 1.5e-6 * x->batch * operands;
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
    const double start = !f32 ? 4.7 : x->k > 8 ? 3.8 : 2.8;
    plan.time = start + c * (f32 ? 1.22 : 0.52) * (odd && plan.phases == 1 ? f32 ? 2.2 : 2.8 : 1) +
                1e-6 * x->batch *
                    ((f32 ? 0.29 : 0.28) * computed * (plan.columns == 1 ? 1 : f32 ? 0.6 : 0.72) +
                     (f32 ? 4.6 : 4.2) * of_a + ((f32 ? 0.3 : 0.56) + (alone && f32 ? 17 : 0)) * of_b);
    return plan;
}
/* Before Hopper 16 bits of a k of up to 8 took 0.84 of it, and a longer k as long or longer, of 25 of those runs. */
static inline double matmul_thin_time(const vb_matmul_args *x, const vb_gpu *gpu) {
    return matmul_thin_plan_of(x).time * (vb_begins_early(gpu) ? 1 : x->k > 8 ? 1.25 : x->type == VB_F32 ? 1 : 0.84);
}
/* Of F32 in three F16 parts, on Hopper. Elements are converted by rows along k, each of which takes its time, of short
 * ones several at once; or by columns, in whole strips of 64. */
static inline double matmul_3xf16_time(const vb_matmul_args *x, const vb_gpu *gpu) {
    const int64_t tiles = vb_ceil_div(x->m, 128) * vb_ceil_div(x->n, 128) * x->batch;
    const double rows = (x->a_transposed ? 0 : (double)x->m) + (x->b_transposed ? (double)x->n : 0),
                 columns = (x->a_transposed ? (double)vb_ceil_div(x->m, 64) * 64 : 0) +
                           (x->b_transposed ? 0 : (double)vb_ceil_div(x->n, 64) * 64),
                 row = 940.0 / (x->k <= 128 ? 8 : x->k <= 256 ? 4 : x->k <= 512 ? 2 : 1);
    return 5.0 + (double)vb_ceil_div(tiles, gpu->multiprocessors) * (3.65 + 0.51 * (double)vb_ceil_div(x->k, 32)) +
           1e-6 * x->batch * (rows * (row + 2.6 * x->k) + 5.5 * columns * x->k + 1.5 * x->m * x->n);
}
/* Whether tiles of matmul_sm90 256 columns wide take less time than tiles of 128: so many rounds of tiles, by their
 * widths. Two narrow tiles load more, and end twice. */
enum { MATMUL_SM90_TILE_M = 128, MATMUL_SM90_MOST_PARTS = 16, MATMUL_SM90_MOST_MEETING = 4 };
static inline int64_t matmul_sm90_tiles(const vb_matmul_args *x, int tile_n) {
    return vb_ceil_div(x->m, MATMUL_SM90_TILE_M) * vb_ceil_div(x->n, tile_n) * x->batch;
}
static inline int matmul_sm90_wide(const vb_matmul_args *x, int multiprocessors) {
    return vb_ceil_div(matmul_sm90_tiles(x, 256), multiprocessors) * 20 <=
           vb_ceil_div(matmul_sm90_tiles(x, 128), multiprocessors) * 11;
}
/* How matmul_sm90 cuts up a product of 16 bits. */
typedef struct matmul_sm90_plan {
    int tile_n, parts; /* columns of a tile, 128 or 256; blocks that share the k of a tile */
    int meet; /* whether the last block of a shared tile adds the sums of the others; else add_parts does */
    int pair; /* 2: two blocks at tiles one above the other copy half of B's tile each, for both; else 1 */
    double time;
} matmul_sm90_plan;
/* Tiles of a product, or pairs of them; those that have one block each: where blocks meet, all rounds but the last. */
static inline int64_t matmul_sm90_units(const vb_matmul_args *x, const matmul_sm90_plan *plan) {
    return vb_ceil_div(x->m, MATMUL_SM90_TILE_M * plan->pair) * vb_ceil_div(x->n, plan->tile_n) * x->batch;
}
static inline int64_t matmul_sm90_whole(const vb_matmul_args *x, const matmul_sm90_plan *plan, int multiprocessors) {
    const int64_t places = multiprocessors / plan->pair;
    return plan->meet ? matmul_sm90_units(x, plan) / places * places : 0;
}
/* Memory in which blocks meet. */
static inline int64_t matmul_sm90_meeting_bytes(const vb_matmul_args *x, const matmul_sm90_plan *plan,
                                                int multiprocessors) {
    const int64_t shared = matmul_sm90_units(x, plan) - matmul_sm90_whole(x, plan, multiprocessors);
    return shared * plan->pair * plan->parts * MATMUL_SM90_TILE_M * plan->tile_n * (int64_t)sizeof(float);
}
/* One block a multiprocessor takes whole tiles, and a step takes half as long on an empty GPU. Sums of parts are
 * written and read once. */
static inline double matmul_sm90_time(const vb_matmul_args *x, const matmul_sm90_plan *plan, int multiprocessors) {
    const int wide = plan->tile_n == 256, parts = plan->parts,
              odd = !matmul_vectors(x->c, x->type, x->c_stride, x->c_batch_stride);
    const int64_t tiles = matmul_sm90_tiles(x, plan->tile_n), whole = matmul_sm90_whole(x, plan, multiprocessors),
                  items = (tiles - whole) * parts, last = items % multiprocessors,
                  steps = vb_ceil_div(x->k, 64), part = vb_ceil_div(steps, parts);
    const double tile = (wide ? 1.7 : 1.1) + (odd && (parts == 1 || plan->meet) ? wide ? 2.2 : 1.35 : 0),
                 step = (wide ? 1.1 : 0.635) * (x->a_transposed ? 1.09 : 1);
    double blocks = (double)(whole / multiprocessors) * (tile + step * (double)steps) +
                    (double)(items / multiprocessors) * (tile + step * (double)part);
    if (last) blocks += tile + step * (0.4 + 0.6 * (double)last / multiprocessors) * (double)part;
    const double memory = 2 / 2.1e6 * ((double)x->m * x->k + (double)x->k * x->n) * x->batch;
    if (blocks < memory) blocks = memory;
    const double c = matmul_millions_of_c(x), time = 2.9 + blocks + 0.43 * c;
    if (parts == 1) return time;
    if (plan->meet) return time + 2.1 + (wide ? 1.4 : 0.55) * parts;
    return time + 1.4 + 2.2 * parts * c;
}
/* Blocks share k where tiles are fewer than multiprocessors, or those of the last round. Pairs of them take no more
 * rounds. */
static inline matmul_sm90_plan matmul_sm90_plan_of(const vb_matmul_args *x, int multiprocessors) {
    const int64_t sms = multiprocessors;
    matmul_sm90_plan best = {0, 1, 0, 1, 0};
    double least = 0;
    for (int tile_n = 128; tile_n <= 256; tile_n *= 2) {
        const int64_t tiles = matmul_sm90_tiles(x, tile_n), last = tiles % sms;
        for (int parts = 1; parts <= MATMUL_SM90_MOST_PARTS; parts++) {
            if (parts > 1 && parts * 4 * 64 > x->k) break;
            for (int meet = 0; meet <= 1; meet++) {
                if (meet ? parts == 1 || parts > MATMUL_SM90_MOST_MEETING || last == 0 || last * parts > sms
                         : parts > 1 && tiles >= sms)
                    continue;
                matmul_sm90_plan plan = {tile_n, parts, meet, 1, 0};
                plan.time = matmul_sm90_time(x, &plan, multiprocessors);
                /* Blocks that meet have to gain more than the model is off by. Narrow tiles of an A stored [k][m] take
                 * longer than others where there are wide ones. */
                const double cost = plan.time * (meet ? 1.06 : 1) * (tile_n == 128 && x->a_transposed ? 1.08 : 1);
                if (best.tile_n == 0 || cost < least) best = plan, least = cost;
            }
        }
    }
    const int64_t tiles = matmul_sm90_tiles(x, 256), places = sms / 2,
                  pairs = vb_ceil_div(x->m, 2 * MATMUL_SM90_TILE_M) * vb_ceil_div(x->n, 256) * x->batch;
    const int64_t last = pairs % places;
    const int no_more = best.meet ? pairs / places <= tiles / sms && last > 0 && last * best.parts <= places
                                  : vb_ceil_div(pairs * best.parts, places) <= vb_ceil_div(tiles * best.parts, sms);
    if (best.tile_n == 256 && (best.parts > 1 || tiles >= sms) && x->k >= 256 * best.parts && no_more) best.pair = 2;
    return best;
}
/* How gemm_sm90 cuts up a product whose A is stored [k][m]: a tile, by its number among those of gemm_sm90.cuh, and the
 * blocks that share k. A fit to 4,800 runs of 220 products on an H200, by 0.13 of their logarithm
 * (docs/experiments/2026-11-28-products.md). */
typedef struct gemm_sm90_cut {
    int tile, ksplit;
    double time;
} gemm_sm90_cut;
/* The longer of two times and a share of the shorter, which does not hide behind it. */
static inline double gemm_sm90_longer(double a, double b, double share) {
    return a > b ? a + share * b : b + share * a;
}
/* A step takes the time of its products or of its copies from the L2, which are slower on a full GPU. */
static inline gemm_sm90_cut gemm_sm90_cut_of(const vb_matmul_args *x, int multiprocessors) {
    static const int tiles[][3] = {{128, 256, 2}, {128, 256, 1}, {128, 192, 2}, {128, 128, 2},
                                   {128, 128, 1}, {128, 64, 1},  {64, 256, 1},  {64, 128, 1}};
    const int64_t steps = vb_ceil_div(x->k, 64), sms = multiprocessors;
    const double moved = 2e-6 / 8.49 * ((double)x->m * x->k + (double)x->k * x->n);
    gemm_sm90_cut best = {4, 1, 0};
    for (int t = 0; t < (int)(sizeof tiles / sizeof *tiles); t++) {
        const int rows = tiles[t][0], columns = tiles[t][1], pair = tiles[t][2];
        const int64_t units = vb_ceil_div(x->m, (int64_t)rows * pair) * vb_ceil_div(x->n, columns);
        if (pair > 1 && x->m <= rows) continue;
        const int copied = (columns + 63) / 64 * 64;
        const double area = (double)rows * columns / (128 * 128),
                     products = (0.0843 + 0.134 * area) * (x->b_transposed ? 1 : 1.111),
                     of_b = (double)(x->n < copied ? x->n : copied) / pair,
                     kilobytes = ((double)(x->m < rows ? x->m : rows) + of_b) / 8,
                     once = 0.0909 + 1.29 * area;
        for (int ksplit = 1; ksplit <= (pair > 1 ? 1 : 8) && (ksplit == 1 || 2 * ksplit <= steps); ksplit++) {
            /* A cluster of more than two lies in one part of a GPU, of which one may have fewer multiprocessors. */
            const int64_t places = pair * ksplit <= 2 ? sms / pair / ksplit : (sms / 16 - 1) * (16 / ksplit);
            if (places == 0 || (ksplit > 1 && units * ksplit > 2 * sms)) break;
            const int64_t whole = units / places, last = units % places;
            const double part = (double)vb_ceil_div(steps, ksplit), share = (double)(pair * ksplit) / multiprocessors,
                         full = gemm_sm90_longer(products, kilobytes * 0.0102 * (double)places * share, 0.866),
                         rest = gemm_sm90_longer(products, kilobytes * 0.0102 * (double)last * share, 0.866),
                         rounds = (double)whole * (once + part * full) + (last > 0 ? once + part * rest : 0),
                         time = 2.25 + gemm_sm90_longer(rounds, moved, 1.24) +
                                (ksplit > 1 ? 0.506 + 0.0851 * ksplit + (0.694 + 0.332 * ksplit) * area : 0);
            if (best.time == 0 || time < best.time) best.tile = t, best.ksplit = ksplit, best.time = time;
        }
    }
    return best;
}
/* The time that copies of the operands take that are no whole vectors. */
static inline double matmul_copies_time(const vb_matmul_args *x) {
    const int whole_a = matmul_vectors(x->a, x->type, x->a_stride, x->a_batch_stride),
              whole_b = matmul_vectors(x->b, x->type, x->b_stride, x->b_batch_stride);
    double time = whole_a && whole_b ? 0 : 1.0;
    if (!whole_a) time += 1.26e-6 * x->m * x->k * (x->a_batch_stride == 0 ? 1 : x->batch);
    if (!whole_b) time += 1.26e-6 * x->n * x->k * (x->b_batch_stride == 0 ? 1 : x->batch);
    return time;
}
/* 16 bits by matmul_sm90 or matmul_mma, with such copies. */
static inline double matmul_vectors_time(const vb_matmul_args *x, const vb_gpu *gpu) {
    const double copies = matmul_copies_time(x);
    if (gpu->capability == 90) return matmul_sm90_plan_of(x, gpu->multiprocessors).time + copies;
    return matmul_plan_of(MATMUL_MMA, x, gpu).time + (copies > 0 ? 0.3 : 0) + copies;
}

/* A fit to 540 runs on an H200, by 0.12 of their logarithm. Operands whose k is not innermost take longer, and so do
 * pairs of C that are written one by one. */
static inline double gemm_m64_time(const vb_matmul_args *x, const vb_gpu *gpu) {
    const int turned = gemm_m64_turned(x), odd_c = x->c_stride % 2 != 0 || x->c_batch_stride % 2 != 0,
              few_across = turned ? !x->b_transposed : x->a_transposed,
              many_across = turned ? x->a_transposed : !x->b_transposed;
    const int64_t few = turned ? x->n : x->m, many = turned ? x->m : x->n,
                  tiles = vb_ceil_div(many, GEMM_M64_TILE) * x->batch, steps = vb_ceil_div(x->k, GEMM_M64_DEPTH);
    const int ksplit = gemm_m64_ksplit(few, many, x->k, x->batch, gpu->multiprocessors), large = few > 32;
    const double taken = (double)(tiles * ksplit) / (2.0 * gpu->multiprocessors), rounds = taken > 1 ? taken : 1,
                 step = (0.14 + 0.61 * (taken < 1 ? taken : 1)) * (large ? 1.27 : 1) *
                        (1 + 0.34 * many_across + 0.36 * few_across),
                 waited = rounds * (1.26 + step * (double)vb_ceil_div(steps, ksplit)),
                 moved = 2e-6 * (double)x->batch * ((double)few + (double)many) * (double)x->k /
                         (many_across ? 2.14 : 2.53);
    return 0.35 + (waited > moved ? waited : moved) + (ksplit > 1 ? large ? 2.6 : 0.8 : 0) +
           2 * matmul_millions_of_c(x) * (0.24 + 1.8 * odd_c + 0.16 * turned);
}
/* Whether tiles are as many as multiprocessors, and no blocks share k: many sums take long to exchange. */
static inline int gemm_m64_shares_no_k(const vb_matmul_args *x, const vb_gpu *gpu) {
    const int sms = gpu->multiprocessors, turned = gemm_m64_turned(x);
    const int64_t few = turned ? x->n : x->m, many = turned ? x->m : x->n;
    return gemm_m64_ksplit(few, many, x->k, x->batch, sms) == 1 && many * x->batch >= 64 * sms;
}
/* Whether gemm_m64_sm90 takes operands of such sizes. */
static inline int gemm_m64_fits(const vb_matmul_args *x, const vb_gpu *gpu) {
    return gpu->capability == 90 && x->type != VB_F32 && x->batch <= 65535 && (x->m <= 64 || x->n <= 64) &&
           matmul_sizes_below(x, (1 << 27) + 1);
}
static inline int gemm_m64_pays(const vb_matmul_args *x, double time, const vb_gpu *gpu) {
    const int64_t many = gemm_m64_turned(x) ? x->m : x->n;
    return x->k > 16 && 2 * many >= GEMM_M64_TILE && time < matmul_ksplit_time(x, gpu) &&
           time < matmul_vectors_time(x, gpu) &&
           (!matmul_operand_vectors(x) || time < 1.1 * matmul_plan_of(MATMUL_MMA, x, gpu).time);
}
static inline int gemm_m64_takes(const vb_matmul_args *x, const vb_gpu *gpu) {
    if (!matmul_operand_vectors(x) || !gemm_m64_fits(x, gpu)) return 0;
    const int few = (gemm_m64_turned(x) ? x->n : x->m) <= 32 || gemm_m64_shares_no_k(x, gpu);
    if (few && !gemm_m64_turned(x) && matmul_contiguous(x) && x->n % 8 == 0 && vb_aligned16(x->c)) return 1;
    if (!few && gemm_sm90_takes(x) &&
        (!x->a_transposed || gemm_sm90_cut_of(x, gpu->multiprocessors).time < gemm_m64_time(x, gpu)))
        return 0;
    return gemm_m64_pays(x, gemm_m64_time(x, gpu), gpu);
}

static inline int matmul_3xtf32_any_suits(const vb_matmul_args *x, const vb_gpu *gpu) {
    return x->precision != VB_PRECISION_IEEE && x->k > 0 && vb_tiles_fit(x->m, 16, x->n, 16) &&
           0.95 * matmul_tf32_time(x, gpu) < matmul_f32_time(x, gpu); /* the surer of these times */
}
/* F32 operands have to be split first, which few rows do not repay. Kernels that take as long need no memory for it. */
static inline int matmul_3xf16_suits(const vb_matmul_args *x, const vb_gpu *gpu) {
    const double time = 1.07 * matmul_3xf16_time(x, gpu);
    return matmul_xf16_suits(x) && (x->precision == VB_PRECISION_TF32 ||
                                    (time < matmul_f32_time(x, gpu) && time < matmul_tf32_time(x, gpu)));
}
/* Whether matmul_thin takes it, and in less time than tiles on tensor cores. */
static inline int matmul_thin_suits(const vb_matmul_args *x, const vb_gpu *gpu) {
    if (x->k > 16 || !vb_tiles_fit(x->m, 16, x->n, 8)) return 0;
    if (gpu->capability < 80 || x->k == 0) return 1;
    /* Its own is the surest of these times, of F32 on Hopper for the shortest k alone. */
    const int early = vb_begins_early(gpu);
    const double time = (!early ? 0.8 : x->type != VB_F32 ? 0.7 : x->k > 4 ? 1 : 0.8) * matmul_thin_time(x, gpu);
    if (x->type != VB_F32) return time < matmul_ksplit_time(x, gpu) && time < matmul_vectors_time(x, gpu);
    if (x->precision == VB_PRECISION_IEEE) return time < matmul_f32_time(x, gpu);
    return time < matmul_tf32_time(x, gpu) && (x->k <= 8 || time < matmul_f32_time(x, gpu));
}
/* Whether matmul_short takes it, and in less time than other kernels of tiles. */
static inline int matmul_short_suits(const vb_matmul_args *x, const vb_gpu *gpu) {
    if (gpu->capability < 80 || x->type == VB_F32 || x->k <= 0 || x->k > MATMUL_SHORT_MOST_K || x->m <= 16 ||
        x->n <= 16 || !vb_tiles_fit(x->m, 16, x->n, 16))
        return 0;
    const double time = matmul_short_time(x, gpu);
    if (gemm_m64_takes(x, gpu) && gemm_m64_time(x, gpu) < time) return 0;
    return (x->k > 16 || time < matmul_thin_time(x, gpu)) && time < matmul_ksplit_time(x, gpu) &&
           time < matmul_vectors_time(x, gpu);
}
static inline int matmul_ksplit_suits(const vb_matmul_args *x, const vb_gpu *gpu) {
    return gpu->capability >= 80 && x->type != VB_F32 && x->m > 0 && x->n > 0 &&
           vb_tiles_fit(x->m, 16, x->n, 16) &&
           (x->k == 0 || matmul_ksplit_time(x, gpu) < matmul_vectors_time(x, gpu));
}

/* Whether operands repay copies with rows of whole vectors: tensor cores then do the work of fp32 units. */
static inline int matmul_padded_suits(const vb_matmul_args *x) {
    const double work = (double)x->m * x->n * x->k * x->batch;
    const int64_t most = INT32_MAX / 2; /* pieces of 8 elements of a matrix, counted in 32 bits */
    return x->type != VB_F32 && matmul_sizes_below(x, 1 << 28) && x->batch <= 65535 &&
           (x->k >= 512 || work >= 128.0 * 128 * 128) && x->m * vb_ceil_div(x->k, 8) < most &&
           x->k * vb_ceil_div(x->m, 8) < most && x->n * vb_ceil_div(x->k, 8) < most &&
           x->k * vb_ceil_div(x->n, 8) < most;
}

/* The same for gemm_m64_sm90, and its time. */
static inline double matmul_padded_m64_time(const vb_matmul_args *x, const vb_gpu *gpu) {
    return gemm_m64_time(x, gpu) + matmul_copies_time(x) + 0.45;
}
static inline int matmul_padded_m64_suits(const vb_matmul_args *x, const vb_gpu *gpu) {
    return x->k >= 80 && !matmul_operand_vectors(x) && gemm_m64_fits(x, gpu) && matmul_padded_suits(x) &&
           (x->m <= 32 || x->n <= 32 || gemm_m64_shares_no_k(x, gpu)) &&
           gemm_m64_pays(x, matmul_padded_m64_time(x, gpu), gpu);
}

/* Whether matmul_skinny takes less time than kernels of tiles, which are up to four times as fast as lanes along k of
 * more than two rows. */
static inline int matmul_skinny_pays(const vb_matmul_args *x, const vb_gpu *gpu) {
    const double time = matmul_skinny_time(x, gpu);
    if (gpu->capability < 80) return 1;
    const matmul_skinny_plan plan = matmul_skinny_plan_of(x, gpu->multiprocessors);
    if (plan.by_k ? x->m > 2 && x->n > 2 : x->type != VB_F32 && !plan.lone) return 0;
    if (x->type == VB_F32) return time < matmul_f32_time(x, gpu) && time < matmul_tf32_time(x, gpu);
    if (gpu->capability == 90 && matmul_contiguous(x) && x->k % 8 == 0 && x->n % 8 == 0 && x->m <= x->n) return 0;
    if (gemm_m64_takes(x, gpu)) return 0;
    if (matmul_padded_m64_suits(x, gpu) && matmul_padded_m64_time(x, gpu) < time) return 0;
    return time < matmul_ksplit_time(x, gpu) && time < matmul_vectors_time(x, gpu);
}

/* Few tiles do not repay the conversion, unless k is short, nor do few columns of a tile. */
static inline int gemm_3xf16_pays(const vb_matmul_args *x, const vb_gpu *gpu) {
    const int64_t tiles = vb_ceil_div(x->m, 128) * vb_ceil_div(x->n, 128);
    if (5 * tiles >= gpu->multiprocessors && x->n >= 256) return 1;
    return (x->n >= 256 ? 0.6 : 1.0) * matmul_3xf16_time(x, gpu) < matmul_tf32_time(x, gpu);
}

/* Few tiles of a long k are shared by more blocks than a cluster has, small ones by matmul_ksplit. Of the longest,
 * whose last tile of rows is not filled, clusters took up to 1.5 times as long as blocks that share k in memory. */
enum { GEMM_SM90_LONG_K = 9000 };
static inline int gemm_sm90_pays(const vb_matmul_args *x, const vb_gpu *gpu) {
    if (x->a_transposed) {
        const double time = 1.05 * gemm_sm90_cut_of(x, gpu->multiprocessors).time;
        return time < matmul_vectors_time(x, gpu) && time < matmul_ksplit_time(x, gpu) &&
               time < matmul_plan_of(MATMUL_MMA, x, gpu).time;
    }
    const int large = matmul_contiguous(x) && (double)x->m * x->k * x->n >= 64e6,
              parts = matmul_sm90_plan_of(x, gpu->multiprocessors).parts;
    if (x->k >= GEMM_SM90_LONG_K && parts > 2 && x->m % MATMUL_SM90_TILE_M != 0) return 0;
    return large || (parts < 4 && 0.9 * matmul_vectors_time(x, gpu) < matmul_ksplit_time(x, gpu));
}

/* Small products end sooner in small tiles. */
static inline int matmul_mma_pays(const vb_matmul_args *x, const vb_gpu *gpu) {
    if (x->type == VB_F32 || x->k < 8 || !matmul_operand_vectors(x) || !vb_tiles_fit(x->m, 64, x->n, 64)) return 0;
    const double time = matmul_plan_of(MATMUL_MMA, x, gpu).time;
    return time < 0.93 * matmul_ksplit_time(x, gpu) && time < 0.93 * matmul_vectors_time(x, gpu);
}

static inline matmul_kernel choose_matmul_sm90(const vb_matmul_args *x, const vb_gpu *gpu, int room) {
    const int f32 = x->type == VB_F32;
    if (!matmul_sm90_fits(x)) return MATMUL_NONE;
    if (gemm_m64_takes(x, gpu)) return GEMM_M64_SM90;
    if (gemm_sm90_takes(x) && gemm_sm90_pays(x, gpu)) return GEMM_SM90;
    if (f32 && room && matmul_contiguous(x) && gemm_3xf16_suits(x) && gemm_3xf16_pays(x, gpu)) return GEMM_3XF16_SM90;
    if (matmul_mma_pays(x, gpu)) return MATMUL_MMA;
    if (room && matmul_padded_m64_suits(x, gpu)) return MATMUL_PADDED_M64_SM90;
    if (matmul_ksplit_suits(x, gpu)) return MATMUL_KSPLIT;
    if (!f32 && matmul_operand_vectors(x)) return matmul_sizes_below(x, 1 << 28) ? MATMUL_SM90 : MATMUL_NONE;
    if (!f32) return room && matmul_padded_suits(x) ? MATMUL_PADDED_SM90 : MATMUL_NONE;
    if (!room || !matmul_3xf16_suits(x, gpu)) return MATMUL_NONE;
    return x->precision == VB_PRECISION_TF32 ? MATMUL_1XF16_SM90 : MATMUL_3XF16_SM90;
}

/* ---- any product ------------------------------------------------------------------------------------------------ */

/* `room`: whether there is memory for copies of the operands. */
static inline matmul_kernel choose_matmul(const vb_matmul_args *x, const vb_gpu *gpu, int room) {
    const int ampere = gpu->capability >= 80, f32 = x->type == VB_F32;
    if (matmul_short_suits(x, gpu)) return MATMUL_SHORT;
    if (matmul_thin_suits(x, gpu)) return MATMUL_THIN;
    const int skinny = matmul_skinny_suits(x) && matmul_skinny_pays(x, gpu);
    if (skinny && x->n < x->m) return MATMUL_SKINNY;
    if (matmul_3xtf32_suits(x, gpu)) return MATMUL_3XTF32;
    if (skinny) return MATMUL_SKINNY;
    if (gpu->capability == 90) {
        const matmul_kernel kernel = choose_matmul_sm90(x, gpu, room);
        if (kernel != MATMUL_NONE) return kernel;
    }
    if (ampere && f32) {
        if (x->precision == VB_PRECISION_TF32 && vb_tiles_fit(x->m, 128, x->n, 128)) return MATMUL_TF32;
        if (matmul_3xtf32_any_suits(x, gpu)) return MATMUL_3XTF32_ANY;
        if (vb_tiles_fit(x->m, 32, x->n, 64)) return MATMUL_F32;
    }
    if (!vb_tiles_fit(x->m, 64, x->n, 64)) return MATMUL_NONE;
    if (!ampere || f32) return MATMUL_SIMT;
    /* Code for Hopper has no matmul_mma: what matmul_sm90 refuses are sizes of 2^28. */
    if (gpu->capability == 90 || matmul_ksplit_suits(x, gpu)) return MATMUL_KSPLIT;
    if (matmul_operand_vectors(x)) return MATMUL_MMA;
    return room && matmul_padded_suits(x) ? MATMUL_PADDED_MMA : MATMUL_KSPLIT;
}

#endif
