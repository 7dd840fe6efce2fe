/* choose_sm90.h: which products Hopper's kernels take, how they cut them up, and their times. */
#ifndef VB_CUDA_GEMM_CHOOSE_SM90_H
#define VB_CUDA_GEMM_CHOOSE_SM90_H

#include "gemm/choose_gemm.h"
#include "gemm/choose_ksplit.h"

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
    int tile_n, parts; /* columns of a tile, 128, 192 or 256; blocks that share the k of a tile */
    int meet; /* whether the last block of a shared tile adds the sums of the others; else add_parts does */
    int pair; /* 2: two blocks at tiles one above the other copy half of B's tile each, for both; else 1 */
    int blocks; /* that share a multiprocessor: of narrow tiles 2, of which one multiplies while the other stores */
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
 * written and read once. Of two blocks one multiplies while the other stores, by a ring of half as many stages. */
static inline double matmul_sm90_time(const vb_matmul_args *x, const matmul_sm90_plan *plan, int multiprocessors) {
    const double wide = (plan->tile_n - 128) / 128.0; /* 192 columns: halfway between the times of 128 and 256 */
    const int parts = plan->parts,
              odd = !matmul_vectors(x->c, x->type, x->c_stride, x->c_batch_stride);
    const int64_t tiles = matmul_sm90_tiles(x, plan->tile_n), whole = matmul_sm90_whole(x, plan, multiprocessors),
                  items = (tiles - whole) * parts, last = items % multiprocessors,
                  steps = vb_ceil_div(x->k, 64), part = vb_ceil_div(steps, parts);
    const double tile = (1.1 + 0.6 * wide + (odd && (parts == 1 || plan->meet) ? 1.35 + 0.85 * wide : 0)) *
                        (plan->blocks > 1 ? 0.85 : 1),
                 step = (0.635 + 0.465 * wide) * (x->a_transposed ? 1.09 : 1) * (plan->blocks > 1 ? 1.03 : 1);
    double blocks = (double)(whole / multiprocessors) * (tile + step * (double)steps) +
                    (double)(items / multiprocessors) * (tile + step * (double)part);
    if (last) blocks += tile + step * (0.4 + 0.6 * (double)last / multiprocessors) * (double)part;
    const double memory = 2 / 2.1e6 * ((double)x->m * x->k + (double)x->k * x->n) * x->batch;
    if (blocks < memory) blocks = memory;
    const double c = matmul_millions_of_c(x), time = 2.9 + blocks + 0.43 * c;
    if (parts == 1) return time;
    if (plan->meet) return time + 2.1 + (0.55 + 0.85 * wide) * parts;
    return time + 1.4 + 2.2 * parts * c;
}
/* Blocks share k where tiles are fewer than multiprocessors, or those of the last round. Pairs of them take no more
 * rounds. */
static inline matmul_sm90_plan matmul_sm90_plan_of(const vb_matmul_args *x, int multiprocessors) {
    const int64_t sms = multiprocessors;
    matmul_sm90_plan best = {0, 1, 0, 1, 1, 0};
    double least = 0;
    for (int tile_n = 128; tile_n <= 256; tile_n *= 2) {
        const int64_t tiles = matmul_sm90_tiles(x, tile_n), last = tiles % sms;
        for (int parts = 1; parts <= MATMUL_SM90_MOST_PARTS; parts++) {
            if (parts > 1 && parts * 4 * 64 > x->k) break;
            for (int meet = 0; meet <= 1; meet++) {
                if (meet ? parts == 1 || parts > MATMUL_SM90_MOST_MEETING || last == 0 || last * parts > sms
                         : parts > 1 && tiles >= sms)
                    continue;
                matmul_sm90_plan plan = {tile_n, parts, meet, 1, 1, 0};
                plan.time = matmul_sm90_time(x, &plan, multiprocessors);
                /* Products of hundreds of megabytes wait for the memory, which more blocks do not hurry. */
                if (tile_n == 128 && parts == 1 && tiles > sms && matmul_megabytes(x) < 250) {
                    matmul_sm90_plan two = plan;
                    two.blocks = 2, two.time = matmul_sm90_time(x, &two, multiprocessors);
                    if (two.time < plan.time) plan = two;
                }
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
    if (best.tile_n == 256 && (best.parts > 1 || tiles >= sms) && x->k >= 128 * best.parts && no_more) best.pair = 2;
    /* Tiles of 192 columns have whole k, and have to gain more than the model is off by. */
    matmul_sm90_plan middle = {192, 1, 0, 1, 1, 0};
    middle.time = matmul_sm90_time(x, &middle, multiprocessors);
    if (best.parts > 1 || middle.time >= 0.95 * best.time) return best;
    if (vb_ceil_div(x->m, MATMUL_SM90_TILE_M) % 2 == 0) middle.pair = 2;
    return middle;
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
static inline double matmul_copied_time(const vb_matmul_args *x, const vb_gpu *gpu) {
    const double copies = matmul_copies_time(x);
    if (gpu->capability == 90) return matmul_sm90_plan_of(x, gpu->multiprocessors).time + copies;
    return matmul_plan_of(MATMUL_MMA, x, gpu).time + (copies > 0 ? 0.3 : 0) + copies;
}
/* The same against kernels that copy nothing: rows of copies begin where lines of the L2 do, unlike those of the
 * products to which matmul_sm90's time was fitted. Where C is not most of the work, 730 runs on an H200 took less, the
 * longer the less. */
static inline double matmul_vectors_time(const vb_matmul_args *x, const vb_gpu *gpu) {
    const double time = matmul_copied_time(x, gpu);
    if (gpu->capability != 90 || matmul_operand_vectors(x) || x->k < 256) return time;
    return x->batch == 1 ? 2.5 + 0.75 * time : 1.2 + 0.9 * time;
}

/* A fit to 540 runs on an H200, by 0.12 of their logarithm. Operands whose k is not innermost take longer, most of all
 * rows of 16 bytes, and so do pairs of C that are written one by one. */
static inline double gemm_m64_time(const vb_matmul_args *x, const vb_gpu *gpu) {
    const int turned = gemm_m64_turned(x), odd_c = x->c_stride % 2 != 0 || x->c_batch_stride % 2 != 0,
              alone = x->batch == 1 && matmul_operand_vectors(x),
              few_across = turned ? !x->b_transposed : x->a_transposed,
              many_across = turned ? x->a_transposed : !x->b_transposed;
    const int64_t few = turned ? x->n : x->m, many = turned ? x->m : x->n,
                  tiles = vb_ceil_div(many, GEMM_M64_TILE) * x->batch, steps = vb_ceil_div(x->k, GEMM_M64_DEPTH);
    const int ksplit = gemm_m64_ksplit(few, many, x->k, x->batch, gpu->multiprocessors), large = few > 32;
    const double taken = (double)(tiles * ksplit) / (2.0 * gpu->multiprocessors), rounds = taken > 1 ? taken : 1,
                 step = (0.14 + 0.61 * (taken < 1 ? taken : 1)) * (large ? 1.27 : 1) *
                        (1 + 0.34 * many_across + 0.36 * few_across),
                 waited = rounds * (1.26 + step * (double)vb_ceil_div(steps, ksplit)),
                 megabytes = 2e-6 * (double)x->batch * ((double)few + (double)many) * (double)x->k,
                 faster = megabytes > 40 && !few_across ? 0.45 * (megabytes - 40) : 0, /* the longer the copies */
                 slower = few_across && few <= 8 && alone ? 1.15 : 1, rate = many_across ? 2.14 : 2.53,
                 moved = (megabytes - faster) * slower / rate;
    const double time = 0.35 + (waited > moved ? waited : moved) + (ksplit > 1 ? large ? 2.6 : 0.8 : 0) +
                        2 * matmul_millions_of_c(x) * (0.24 + 1.8 * odd_c + 0.16 * turned);
    /* A short k of operands that need no copies was fitted again, by random batches. */
    if (!matmul_operand_vectors(x) || x->k > 256) return time;
    return time * (x->k > 64 ? 1.12 : large ? 1.4 : 1.15);
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
    /* Times of matmul_sm90 are too long for batches of whole vectors. */
    const double sure = x->batch > 1 && matmul_operand_vectors(x) ? 0.87 : 1;
    return x->k > 16 && 2 * many >= GEMM_M64_TILE && time < matmul_ksplit_time(x, gpu) &&
           time < sure * matmul_copied_time(x, gpu) &&
           (!matmul_operand_vectors(x) || time < matmul_plan_of(MATMUL_MMA, x, gpu).time);
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

#endif
