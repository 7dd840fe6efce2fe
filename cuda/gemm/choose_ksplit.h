/* choose_ksplit.h: the tiles of kernels whose blocks share k, as matmul_ksplit and matmul_f32, and their times. */
#ifndef VB_CUDA_GEMM_CHOOSE_KSPLIT_H
#define VB_CUDA_GEMM_CHOOSE_KSPLIT_H

#include "gemm/kernels.h"

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

/* Microseconds of kernels: fits to 20,000 runs of 1,500 drawn products on an H200, by 0.10 to 0.15 of their logarithm
 * (docs/experiments/2026-11-29-drawn-products.md). A step takes longer the fuller the GPU is. */
typedef struct matmul_times {
    double start, block, step, crowded;
    double add, part;        /* where blocks share k: the addition of parts; a million elements of one of them */
    double store, odd_store; /* a million elements of C; the share more where its rows begin anywhere */
    double rate;             /* megabytes of the matrices in a microsecond */
    double odd;              /* the share more of a step for each operand whose rows begin anywhere */
    double round;            /* the least that a round of blocks takes after the first */
} matmul_times;
static inline double matmul_millions_of_c(const vb_matmul_args *x) { return 1e-6 * x->m * x->n * x->batch; }
static inline double matmul_megabytes(const vb_matmul_args *x) {
    return 1e-6 * matmul_element_bytes(x->type) * x->batch *
           ((double)x->m * x->k + (double)x->k * x->n + (double)x->m * x->n);
}
/* Blocks wait for the memory beside their steps; before Hopper, the times say, only where that takes longer. A round of
 * blocks that follow others has its least (docs/experiments/2026-11-29-short-products.md).
 * A block that stores goes through the columns of its tile that the matrix lacks: these take as long as others where
 * rows of C begin anywhere, else half of it, but for matmul_f32 (docs/experiments/2026-11-28-product-tail.md). */
static inline double matmul_time(const matmul_ksplit_plan *plan, const matmul_times *t, const vb_matmul_args *x,
                                 int early) {
    const int odd = !matmul_vectors(x->a, x->type, x->a_stride, x->a_batch_stride) +
                    !matmul_vectors(x->b, x->type, x->b_stride, x->b_batch_stride),
              odd_c = !matmul_vectors(x->c, x->type, x->c_stride, x->c_batch_stride);
    const double taken = (double)plan->tiles * plan->parts / (double)plan->places, rounds = taken > 1 ? taken : 1,
                 crowded = taken < 1 ? taken : 1, whole = (double)x->k / plan->depth,
                 steps = plan->parts > 1 ? (double)vb_ceil_div(plan->steps, plan->parts) : whole > 0.25 ? whole : 0.25,
                 step = (t->step + t->crowded * crowded) * (1 + t->odd * odd), c = matmul_millions_of_c(x),
                 block = t->block + step * steps, waited = t->start + rounds * block,
                 moved = matmul_megabytes(x) / t->rate,
                 taking = early ? waited + moved : waited > 1.5 + moved ? waited : 1.5 + moved,
                 past = plan->depth > MATMUL_F32_DEPTH && x->n < plan->tile_n ? (double)(plan->tile_n - x->n) : 0,
                 lacking = past / (double)x->n * (odd_c ? 1 : 0.5),
                 stored = taking + t->store * c * (1 + t->odd_store * odd_c) * (1 + lacking),
                 again = (double)(vb_ceil_div(plan->tiles * plan->parts, plan->places) - 1),
                 least = t->start + block + again * t->round;
    return (stored > least ? stored : least) + (plan->parts > 1 ? t->add + t->part * plan->parts * c : 0);
}
/* The time by as many blocks a tile as take least: as the places have room for, twice as many, a half, or before Hopper
 * also a quarter and so on. */
static inline double matmul_fewest_parts(matmul_ksplit_plan *plan, const matmul_times *t, const vb_matmul_args *x,
                                         int least, int early) {
    const int planned = plan->parts;
    int best = planned;
    double time = matmul_time(plan, t, x, early);
    for (int i = -1; i <= (early ? 1 : 6); i++) {
        plan->parts = i < 0 ? 2 * planned : planned >> i;
        if (plan->parts < 1 || plan->parts > MATMUL_MOST_PARTS || (int64_t)plan->parts * least > plan->steps ||
            plan->tiles > MATMUL_MOST_SHARED_TILES)
            continue;
        const double other = matmul_time(plan, t, x, early);
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
    static const matmul_tiles mma = {
        2,
        MATMUL_MMA_DEPTH,
        3,
        {{128, 128, 2, {1.75, 1.36, 0.835, 0.612, 0.762, 2.45, 1.11, 0.323, 7.88, 0, 4.15}},
         {64, 64, 4, {1.99, 0.35, 0.277, 0.729, 0.741, 2.7, 1.28, 0.404, 7.62, 0, 2.35}}}};
    static const matmul_tiles ksplit = {
        5,
        MATMUL_KSPLIT_DEPTH,
        2,
        {{64, 64, 3, {2.64, 0, 0.666, 0.728, 0.055, 2.82, 1.68, 0.193, 5.64, 0.044, 2.3}},
         {32, 32, 6, {2.28, 0, 0.49, 0.862, 0.448, 2.99, 1.9, 0.308, 4.04, 0.041, 2.25}},
         {64, 16, 6, {2, 0, 0.366, 1.02, 0.868, 3.13, 2.44, 0.176, 3.5, 0.048, 2.65}},
         {16, 64, 6, {2, 0, 0.364, 0.936, 0.842, 2.95, 2.39, 0.035, 3.36, 0.054, 2.75}},
         {16, 16, 6, {0.836, 1.15, 0.164, 0.477, 0, 0, 4.87, 0.018, 5, 0.043, 2.35}}}};
    static const matmul_tiles tf32 = {
        7,
        MATMUL_TF32_DEPTH,
        2,
        {{64, 64, 3, {2.6, 0, 0.752, 1.24, 0.616, 2.2, 1.36, 0.44, 6.72, 0.063, 3.15}},
         {32, 32, 5, {2.02, 0, 0.358, 0.96, 1.22, 2.16, 2.28, 0.431, 6.97, 0.09, 2.65}},
         {64, 32, 5, {2.04, 0, 0.543, 1.41, 1.07, 2.31, 1.66, 0.375, 6.15, 0.078, 3.1}},
         {32, 64, 5, {2.13, 0, 0.535, 1.45, 1.09, 2.31, 1.66, 0.362, 8.73, 0.08, 3.15}},
         {64, 16, 5, {1.78, 0.162, 0.385, 0.925, 1.2, 3.18, 2.69, 0.5, 9, 0.106, 2.6}},
         {16, 64, 5, {1.89, 0.1, 0.38, 0.994, 1.19, 2.62, 2.36, 0.369, 9, 0.087, 2.55}},
         {16, 16, 4, {2.19, 0.2, 0.086, 0.335, 0, 0, 2.04, 0.011, 5.08, 0.109, 2.15}}}};
    static const matmul_tiles f32 = {
        4,
        MATMUL_F32_DEPTH,
        6,
        {{256, 128, 1, {4.37, 1.55, 2.91, 0.263, 0, 0, 2.43, 1.19, 4.31, 0.034, 0}},
         {128, 128, 2, {0.687, 4.88, 2.39, 1.08, 0, 0, 1.03, 2.79, 4.46, 0.039, 0}},
         {64, 64, 3, {1.17, 1.09, 0.394, 0.885, 0.813, 2.87, 1.29, 1.24, 4.96, 0.044, 2.55}},
         {32, 64, 3, {1.69, 0.021, 0.276, 0.569, 1.19, 2.67, 2.04, 0.243, 6.03, 0.032, 1.7}}}};
    return matmul_tiles_among(kernel, &mma, &ksplit, &tf32, &f32);
}
/* Before Hopper kernels do not begin early: fits to 6,000 runs of 230 products by an H100 taken for a GPU of 8.6, by
 * 0.12 of their logarithm (docs/experiments/2026-11-28-portable-products.md). */
static inline const matmul_tiles *matmul_portable_tiles_of(matmul_kernel kernel) {
    static const matmul_tiles mma = {
        2,
        MATMUL_MMA_DEPTH,
        1,
        {{128, 128, 2, {3.17, 1.51, 0.688, 1.04, 0.023, 2.25, 1.2, 0.45, 3.79, 0.001, 0}},
         {64, 64, 4, {2.15, 1.16, 0.268, 0.911, 1.09, 2.46, 1.39, 0.734, 2.86, 0.001, 0}}}};
    static const matmul_tiles ksplit = {
        5,
        MATMUL_KSPLIT_DEPTH,
        1,
        {{64, 64, 3, {2.77, 1.29, 0.763, 0.658, 0.117, 2.38, 1.11, 0.134, 2.03, 0.039, 0}},
         {32, 32, 6, {2.15, 1.24, 0.637, 0.762, 0.634, 2.41, 1.21, 0.046, 1.91, 0.065, 0}},
         {64, 16, 6, {1.83, 1.18, 0.501, 1.04, 0.997, 2.45, 1.75, 0, 2.48, 0.059, 0}},
         {16, 64, 6, {1.45, 1.53, 0.453, 1.02, 1.03, 2.48, 1.29, 0, 2.21, 0.077, 0}},
         {16, 16, 6, {1.05, 2.02, 0.116, 0.71, 0, 0, 4.85, 0.022, 1.48, 0.042, 0}}}};
    static const matmul_tiles tf32 = {
        7,
        MATMUL_TF32_DEPTH,
        1,
        {{64, 64, 3, {3.33, 0.628, 0.796, 1.45, 0.348, 2.62, 1.17, 0.321, 2.11, 0.045, 0}},
         {32, 32, 5, {2.08, 1.33, 0.43, 1.02, 1, 2.52, 0.597, 1.41, 1.46, 0.085, 0}},
         {64, 32, 5, {2.73, 0.913, 0.572, 1.56, 0.721, 2.93, 0.984, 0.461, 1.81, 0.082, 0}},
         {32, 64, 5, {2.26, 1.32, 0.58, 1.65, 0.635, 2.83, 0.728, 0.756, 2.17, 0.06, 0}},
         {64, 16, 5, {2.68, 0.921, 0.353, 1.24, 0.955, 2.7, 1.75, 0.472, 2.44, 0.076, 0}},
         {16, 64, 5, {1.52, 2.13, 0.434, 1.14, 0.657, 2.96, 0.024, 4, 2.01, 0.064, 0}},
         {16, 16, 4, {0.8, 2, 0.113, 0.405, 0, 0, 2.03, 0, 2.15, 0.106, 0}}}};
    static const matmul_tiles f32 = {
        4,
        MATMUL_F32_DEPTH,
        4,
        {{256, 128, 1, {3.94, 3.66, 2.79, 0.229, 1.19, 10.3, 3.48, 0.162, 3.6, 0.02, 0}},
         {128, 128, 2, {2.1, 4.55, 2.32, 1.1, 4.93, 4.55, 2.58, 0, 1.85, 0.066, 0}},
         {64, 64, 3, {2.67, 0.99, 0.429, 0.962, 0.674, 2.23, 2.23, 0, 1.62, 0.031, 0}},
         {32, 64, 3, {1.96, 1.03, 0.308, 0.571, 1.31, 2.29, 1.07, 0.001, 1.56, 0.001, 0}}}};
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
                    ? matmul_fewest_parts(&plan, &tile.times, x, tiles->least, early)
                    : matmul_time(&plan, &tile.times, x, early);
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
/* Whether matmul_f32 turns the smaller operand first, where both run along k, for 8 bytes an element of it. */
enum { MATMUL_TURN_SIDE = 64, MATMUL_MOST_GRID_Y = 65535 };
static inline int matmul_f32_turns(const vb_matmul_args *x) {
    const int of_b = x->m >= x->n;
    const int64_t few = of_b ? x->n : x->m, many = of_b ? x->m : x->n;
    const int64_t matrices = (of_b ? x->b_batch_stride : x->a_batch_stride) == 0 ? 1 : x->batch;
    return !x->a_transposed && x->b_transposed && few >= 128 && many >= 1536 &&
           vb_ceil_div(few, MATMUL_TURN_SIDE) <= MATMUL_MOST_GRID_Y && matrices <= MATMUL_MOST_GRID_Y;
}
/* Multiprocessors of 8.0 have half as many fp32 units. To turn an operand takes another kernel. */
static inline double matmul_f32_time(const vb_matmul_args *x, const vb_gpu *gpu) {
    return matmul_plan_of(MATMUL_F32, x, gpu).time * (gpu->capability == 80 ? 2 : 1) + (matmul_f32_turns(x) ? 3.5 : 0);
}

#endif
