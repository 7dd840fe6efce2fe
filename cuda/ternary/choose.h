/* choose.h: which kernel runs for ternary weights, and how. Pure functions; plain C. cuda/README.md has the map,
 * choose_test.h the test. */
#ifndef VB_TERNARY_CHOOSE_H
#define VB_TERNARY_CHOOSE_H

#include "int2.h"
#include "runtime/chooser.h"

#define TERNARY_KERNELS(X)                                                                                             \
    X(TERNARY_TILES, "w2a8_tiles", "ternary/w2a8_tiles.cu", \
      "w2a8_gemv of up to 8 rows, interleaved weights, int8 tensor cores (8.0)") \
    X(TERNARY_BITS, "w2a8_bits", "ternary/mma_b1.cu", \
      "w2a8_gemv of one row, interleaved weights, products of bits on tensor cores (9.0)") \
    X(TERNARY_BIT_LINEAR, "bit_linear", "ternary/mma_b1.cu", \
      "bit_linear of one row, interleaved weights, up to three matrices (9.0)") \
    X(TERNARY_GEMV, "w2a8_gemv", "ternary/w2a8_gemv.cu", \
      "w2a8_gemv of up to 4 rows, interleaved weights, before 8.0; of one row of more than 16384 columns, 9.0") \
    X(TERNARY_WORDS, "w2a8_words", "ternary/w2a8_any.cu", \
      "w2a8_gemv by words of 4 bytes: other layouts, narrow reads") \
    X(TERNARY_BYTES, "w2a8_bytes", "ternary/w2a8_any.cu", "w2a8_gemv by bytes: rows, or activations, not aligned")     \
    X(TERNARY_WGMMA, "w2a8_sm90", "ternary/w2a8_sm90.cu", \
      "w2a8_gemv of more than 16 rows, interleaved weights (9.0)") \
    X(TERNARY_MMA_16, "w2a8_mma_16", "ternary/w2a8_mma.cu", "w2a8_gemv of up to 16 rows, int8 tensor cores (7.5)")     \
    X(TERNARY_MMA_32, "w2a8_mma_32", "ternary/w2a8_mma.cu", "w2a8_gemv of up to 32 rows (7.5); few rows of W on 9.0")  \
    X(TERNARY_MMA_64, "w2a8_mma_64", "ternary/w2a8_mma.cu", "w2a8_gemv of more rows, 64 at a time (7.5), before 9.0")  \
    X(TERNARY_QUANTIZE, "norm_quantize", "ternary/quantize.cu", "norm_quantize of rows that fit registers")            \
    X(TERNARY_QUANTIZE_WIDE, "norm_quantize_wide", "ternary/quantize.cu", "norm_quantize of wider rows")               \
    X(TERNARY_DEQUANTIZE, "dequantize_rows", "ternary/quantize.cu", "dequantize_rows")                                 \
    X(TERNARY_LUT, "tmac_lut", "ternary/tmac.cu", "tmac_lut")                                                          \
    X(TERNARY_TMAC_BITS, "tmac_bits", "ternary/mma_b1.cu", \
      "tmac_matmul of a column without a table, rows of whole 16 bytes, a scale a row, 9.0") \
    X(TERNARY_TMAC_COLUMNS, "tmac_columns", "ternary/tmac_columns.cu", \
      "tmac_matmul of up to 16 columns, of few rows 64, as tmac_tiles, in clusters (9.0)") \
    X(TERNARY_TMAC_WGMMA, "tmac_sm90", "ternary/tmac_sm90.cu", \
      "tmac_matmul of more columns, as tmac_tiles, int8 wgmma (9.0)") \
    X(TERNARY_TMAC_TILES, "tmac_tiles", "ternary/tmac_tiles.cu", \
      "tmac_matmul without a table, rows of whole 16 bytes, groups of 256, 8.0")                              \
    X(TERNARY_TMAC, "tmac_matmul", "ternary/tmac.cu", "tmac_matmul, tables built in shared memory")                    \
    X(TERNARY_TMAC_TABLE, "tmac_matmul_table", "ternary/tmac.cu", "tmac_matmul with a table that is given")
VB_KERNEL_FAMILY(ternary, TERNARY, TERNARY_KERNELS)

enum { TERNARY_FEW = 4, TERNARY_TILE_COLUMNS = 8, TERNARY_TILE_WARPS = 16,
       TERNARY_TILE_UNITS = 2, TERNARY_QUANTIZE_THREADS = 512, TERNARY_QUANTIZE_ITEMS = 16 };

/* How a matrix of one row of activations is cut up for products of bits. */
typedef struct ternary_bits {
    int threads;                  /* of a block */
    int units;                    /* of 64 bytes of a row that a warp has */
    int tiles, most, stages;      /* tiles of 16 rows: of the matrix, of a block, in shared memory at once */
    int ahead;                    /* tiles that a block asks for before the kernel before it has ended */
    int beside;                   /* whether a block leaves registers for one of the next kernel */
    int64_t blocks, shared_bytes; /* of a block */
} ternary_bits;

/* How w2a8_sm90 and tmac_sm90 cut a product up. */
typedef struct ternary_wgmma {
    int tokens, groups; /* of a block: rows of X or columns, and warpgroups, which have 64 rows of W each */
    int each;           /* blocks of a multiprocessor */
    int split;          /* blocks of a cluster, which share k */
    int x_stages;       /* tiles of X, or of planes, in shared memory at once */
    int64_t blocks, shared_bytes;
} ternary_wgmma;

typedef struct ternary_choice {
    ternary_kernel kernel;
    int threads, lanes, tile; /* of TERNARY_GEMV and TERNARY_TILES */
    int64_t blocks;           /* of both */
    ternary_bits bits;        /* of TERNARY_BITS */
    ternary_wgmma wgmma;      /* of TERNARY_WGMMA */
} ternary_choice;

/* The columns of TERNARY_TILES: sums of 192 times a code by 128 stay within int32 with two warps. */
enum { TERNARY_TILE_DEPTH = 1 << 18 };

/* How tiles of 16 rows are cut up: the warps of a block share the units of 64 bytes of its rows. */
typedef struct ternary_tiles {
    int threads, tile; /* of a block: threads, tiles of 16 rows */
    int64_t blocks;
} ternary_tiles;

/* Two units are on their way to a warp at once. Few blocks have a warp for each two units, so that a row is asked for
 * at once. Many have fewer and, where the kernel has that (most_tiles), two tiles. threads and tile are 0 where free.
 */
static inline ternary_tiles ternary_tiles_of(int64_t rows, int64_t units, int most_tiles, int threads, int tile,
                                             const vb_gpu *gpu) {
    ternary_tiles t = {threads, tile < most_tiles ? tile : most_tiles, 0};
    const int many = vb_ceil_div(rows, 16) >= 3 * (int64_t)gpu->multiprocessors;
    if (t.tile == 0) t.tile = many ? most_tiles : 1;
    if (t.threads == 0) {
        const int64_t pairs = vb_ceil_div(units, 2), most = !many ? TERNARY_TILE_WARPS : units > 40 ? 8 : 4;
        t.threads = 32 * (int)(pairs < 2 ? 2 : pairs < most ? pairs : most);
    }
    t.blocks = vb_ceil_div(rows, 16 * t.tile);
    return t;
}

/* Threads of a block, so that a thread has 64 registers, or 72 where x has two bytes and a warp two units; of blocks
 * with short rows. Tiles in shared memory: of short rows, of long ones, and where there is no room for so many. */
enum { TERNARY_BITS_THREADS = 1024, TERNARY_BITS_THREADS_SHORTS = 896, TERNARY_BITS_THREADS_SHORT_ROWS = 256,
       TERNARY_BITS_STAGES_SHORT_ROWS = 8, TERNARY_BITS_STAGES = 5, TERNARY_BITS_STAGES_PAIRS = 4,
       TERNARY_BITS_STAGES_FEW = 3 };
/* Two blocks of up to 512 threads with 64 registers find room on a multiprocessor, and of so many with 56. Kernels of
 * more than half as many blocks as multiprocessors begin earlier so: up to a tenth less time. */
enum { TERNARY_BITS_THREADS_BESIDE = 576 };
/* Bytes of weights, for each multiprocessor, that are on their way while the kernel before ends. More of them delay its
 * last writes, and the read of x. A block of long rows asks for more. */
enum { TERNARY_BITS_AHEAD = 48 << 10, TERNARY_BITS_AHEAD_LONG_ROWS = 64 << 10, TERNARY_BITS_FEW_TILES = 4 };

/* Blocks that fit a multiprocessor. */
static inline int64_t ternary_bits_fit(int64_t shared_bytes, const vb_gpu *gpu) {
    return (gpu->shared_bytes + 1024) / (shared_bytes + 1024);
}

/* How codes of short rows are multiplied by two blocks of so many warps a multiprocessor, with up to `most` tiles each:
 * tiles in shared memory, and those asked for before the kernel before has ended. One tile is multiplied at a time, so
 * that registers leave room for blocks of the next kernel. By the times of 168 shapes: 0 stages where other ways are
 * faster, or nothing was measured (docs/experiments/2026-11-28-ternary-late.md). */
typedef struct ternary_pair {
    int stages, ahead;
} ternary_pair;
static inline ternary_pair ternary_pair_of(int64_t warps, int64_t most) {
    const ternary_pair none = {0, 0}, few = {TERNARY_BITS_STAGES, 2}, many = {TERNARY_BITS_STAGES, 3},
                       wide = {TERNARY_BITS_STAGES_PAIRS, 3};
    if (warps < 5 || most < 3 || most > (warps == 6 ? 7 : 8) || most == 6) return none;
    if (most <= 4) return warps == 5 ? none : warps == 8 && most == 4 ? wide : few;
    if (warps == 8) return most == 7 ? none : wide;
    return warps == 7 && most == 5 ? wide : many;
}

/* 0 blocks where the rows are too long, or too many for their sums. Blocks of up to four tiles build the planes of x
 * less often than those of one, and start no later. From there on two blocks a multiprocessor hide more latency, where
 * x has few planes. Codes whose next kernel finds no room beside them have blocks of few tiles, as many as fit; rows
 * that are rounded keep fewer tiles where two blocks would not fit.
 * A warp has two units. It has one where x has two bytes, whose columns take registers: of rows of up to 16 units, or
 * 32 with more than three tiles a block. x_bytes are those of an element that a block keeps: 0 to 2. */
static inline ternary_bits ternary_bits_of(int64_t rows, int64_t row_bytes, int x_bytes, const vb_gpu *gpu) {
    const ternary_bits none = {0, 0, 0, 0, 0, 0, 0, 0, 0};
    const int64_t units = vb_ceil_div(row_bytes, 64), tiles = vb_ceil_div(rows, 16), each = gpu->multiprocessors,
                  pairs = vb_ceil_div(tiles, 2), two = tiles <= 3 * each ? 16 : 32,
                  unit = x_bytes < 2 || units > two ? 2 : 1, warps = vb_ceil_div(units, unit),
                  stage_bytes = 1024 * unit * warps;
    const int limit = x_bytes == 2 && unit > 1 ? TERNARY_BITS_THREADS_SHORTS : TERNARY_BITS_THREADS,
              short_rows = units <= 16;
    if (units == 0 || 32 * warps > limit || tiles == 0 || rows > INT32_MAX - 32) return none;
    int64_t of = tiles > 4 * each && short_rows && x_bytes < 2 ? 2 : 1, /* blocks of a multiprocessor */
            blocks = of == 1 && pairs < each ? pairs : of * each, most = vb_ceil_div(tiles, blocks),
            stages = short_rows                  ? TERNARY_BITS_STAGES_SHORT_ROWS
                     : x_bytes == 2 && unit == 2 ? TERNARY_BITS_STAGES_FEW
                                                 : TERNARY_BITS_STAGES;
    /* x, with 16 bytes behind each 128 where it is rounded to one byte; four sums a row and warp */
    const int64_t x = warps * unit * (x_bytes == 2 ? 512 : 288 * x_bytes), sums = 256 * warps;
    int64_t held = most < stages ? most : stages, shared_bytes = held * stage_bytes + x + sums * most;
    if (of == 2 && x_bytes == 0) {
        const ternary_pair pair = ternary_pair_of(warps, most);
        shared_bytes = (most < pair.stages ? most : pair.stages) * stage_bytes + sums * most;
        const ternary_bits b = {32 * (int)warps, (int)unit, (int)tiles, (int)most, pair.stages,
                                pair.ahead, 0, blocks, shared_bytes};
        if (pair.stages > 0 && ternary_bits_fit(shared_bytes, gpu) >= 2) return b;
        shared_bytes = held * stage_bytes + x + sums * most;
    }
    if (of == 2 && ternary_bits_fit(shared_bytes, gpu) < (x_bytes ? 2 : 3)) {
        stages = held = TERNARY_BITS_STAGES_FEW;
        of = x_bytes ? 3 : vb_ceil_div(tiles, stages * each) + 1;
        do {
            blocks = --of * each;
            most = vb_ceil_div(tiles, blocks);
            shared_bytes = held * stage_bytes + x + sums * most;
        } while (of > 2 && ternary_bits_fit(shared_bytes, gpu) < of);
    }
    if (shared_bytes > gpu->shared_bytes - 1024 && stages > TERNARY_BITS_STAGES_FEW) {
        shared_bytes -= (held - TERNARY_BITS_STAGES_FEW) * stage_bytes;
        stages = TERNARY_BITS_STAGES_FEW;
    }
    if (shared_bytes > gpu->shared_bytes - 1024) return none;
    /* Two blocks of few tiles end together, so that both of the next kernel ask at once. */
    const bool together = of == 2 && most <= TERNARY_BITS_FEW_TILES;
    const int64_t fit = ternary_bits_fit(shared_bytes, gpu) - of,
                  next = (fit > 0 && fit < of && !together ? fit : of) * each,
                  tile_bytes = 16 * row_bytes, running = next < blocks ? next : blocks;
    int64_t ahead = x_bytes ? stages : each * TERNARY_BITS_AHEAD / (tile_bytes * running);
    if (!x_bytes && of == 3 && ahead > 2) ahead = 2; /* of three tiles, each of three blocks */
    if (!x_bytes && !short_rows) { /* two tiles of four and more, and of three not all */
        if (ahead < TERNARY_BITS_AHEAD_LONG_ROWS / tile_bytes) ahead = TERNARY_BITS_AHEAD_LONG_ROWS / tile_bytes;
        if (most == 3 ? ahead > 2 : most > 3 && ahead < 2) ahead = 2;
    }
    const int beside = !x_bytes && stages == TERNARY_BITS_STAGES && 32 * warps > 512 &&
        32 * warps <= TERNARY_BITS_THREADS_BESIDE && 2 * blocks > each && blocks < each &&
        ternary_bits_fit(shared_bytes, gpu) > 1;
    const ternary_bits b = {32 * (int)warps, (int)unit, (int)tiles, (int)most, (int)stages,
                            (int)(ahead < 1 ? 1 : ahead < stages ? ahead : stages), beside, blocks, shared_bytes};
    return b;
}

/* w2a8_sm90 and tmac_sm90: elements of a tile of X; tiles of W in shared memory, which hold 512 elements each; the most
 * of X. */
enum { TERNARY_WGMMA_DEPTH = 128, TERNARY_WGMMA_RUNS = 2, TERNARY_WGMMA_STAGES = 12 };

/* 0 blocks where shared memory has no room. Barriers and the places of words are within 2 KiB beside the tiles. */
static inline ternary_wgmma ternary_wgmma_cut(int64_t m, int64_t n, int tokens, int groups, int each, int split,
                                              const vb_gpu *gpu) {
    ternary_wgmma c = {tokens, groups, each, split, 0, 0, 0};
    const int64_t eights = tokens / 8, held = TERNARY_WGMMA_RUNS * 64 * groups * (VB_INT2_RUN / 4),
                  sums = (split - 1) * vb_ceil_div(eights, split) * 128 * groups * 16,
                  stage = tokens * TERNARY_WGMMA_DEPTH,
                  room = (each == 1 ? gpu->shared_bytes : (gpu->shared_bytes + 1024) / each - 1024) - 2048,
                  stages = (room - held - sums) / stage;
    if (stages < 3) return c;
    c.x_stages = stages < TERNARY_WGMMA_STAGES ? (int)stages : TERNARY_WGMMA_STAGES;
    c.blocks = vb_ceil_div(m, tokens) * vb_ceil_div(n, 64 * groups) * split;
    c.shared_bytes = held + sums + c.x_stages * stage;
    return c;
}

/* A tile of these kernels as above, the most blocks that share k, and nanoseconds: of a step of 128 elements where a
 * block has its multiprocessor alone and where it shares it, and of a block's beginning and end. */
typedef struct ternary_wgmma_tile {
    int tokens, groups, each, split, alone, beside, ends;
} ternary_wgmma_tile;

/* Nanoseconds, fitted to the times of 13 ways of 203 products (docs/experiments/2026-11-29-w2a8-wgmma.md). */
static inline int64_t ternary_wgmma_time(const ternary_wgmma *c, const ternary_wgmma_tile *tile, int64_t k,
                                         const vb_gpu *gpu) {
    const int64_t steps = vb_ceil_div(vb_ceil_div(k, TERNARY_WGMMA_DEPTH), c->split),
                  places = vb_clusters_at_once(c->split, gpu->multiprocessors) * c->split, held = places * c->each,
                  whole = c->blocks / held, rest = c->blocks % held;
    return whole * (steps * tile->beside + tile->ends) +
        (rest > 0 ? steps * (rest > places ? tile->beside : tile->alone) + tile->ends : 0);
}

/* 0 blocks where that is not the kernel. */
static inline ternary_wgmma ternary_wgmma_of(const vb_w2a8_gemv_args *a, const vb_gpu *gpu) {
    const ternary_wgmma_tile tiles[] = {{64, 2, 2, 5, 430, 695, 5300},
                                        {64, 4, 1, 4, 641, 641, 6540},
                                        {128, 3, 1, 2, 636, 636, 12550},
                                        {128, 4, 1, 3, 819, 819, 12280}};
    const int64_t steps = vb_ceil_div(a->k, TERNARY_WGMMA_DEPTH);
    ternary_wgmma best = {0, 0, 0, 0, 0, 0, 0};
    int64_t least = 0;
    if (a->m <= 16 || a->k == 0 || gpu->capability < 90 || !gpu->hopper) return best;
    if (a->m > INT32_MAX - 256 || a->n > INT32_MAX - 256) return best; /* a tile ends within int */
    /* A block a multiprocessor of w2a8_mma_32 is as fast. */
    if (a->m <= 32 && vb_ceil_div(a->n, 32) <= gpu->multiprocessors) return best;
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++)
        for (int split = 1; split <= tiles[i].split && split <= steps; split++) {
            const ternary_wgmma_tile *t = &tiles[i];
            const ternary_wgmma c = ternary_wgmma_cut(a->m, a->n, t->tokens, t->groups, t->each, split, gpu);
            if (c.blocks == 0 || c.blocks > INT32_MAX) continue;
            const int64_t time = ternary_wgmma_time(&c, t, a->k, gpu);
            if (best.blocks == 0 || time < least) best = c, least = time;
        }
    return best;
}

/* Longer rows than products of bits have go to a warp each, or from so many rows on in pairs. */
enum { TERNARY_BITS_ROW_BYTES = TERNARY_BITS_THREADS / 32 * 2 * 64, TERNARY_PAIRS = 2560 };

static inline ternary_choice choose_w2a8_gemv(const vb_w2a8_gemv_args *a, const vb_gpu *gpu) {
    ternary_choice c = {TERNARY_NONE, 0, 0, 0, 0, {0, 0, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 0}};
    const int words = vb_aligned16(a->activations) && (uintptr_t)a->weights % 4 == 0 && a->row_bytes % 4 == 0 &&
        a->k % 16 == 0;
    const int pieces = words && vb_aligned16(a->weights) && a->layout == VB_INT2_INTERLEAVED;
    if (vb_ceil_div(a->n, 4) > INT32_MAX || a->m > INT32_MAX) return c;
    /* 4 lanes and persistent ask for it, threads or a tile for the other. */
    if (pieces && a->m == 1 && gpu->capability >= 90 && gpu->hopper && !a->narrow && !a->without_dp4a && a->tile == 0 &&
        a->threads == 0 && (a->lanes == 0 || a->lanes == 4)) {
        c.bits = ternary_bits_of(a->n, a->row_bytes, 0, gpu);
        if (c.bits.blocks > 0) {
            c.kernel = TERNARY_BITS;
            c.threads = c.bits.threads, c.lanes = 4, c.tile = 1, c.blocks = c.bits.blocks;
            return c;
        }
        if (a->row_bytes > TERNARY_BITS_ROW_BYTES && a->k <= TERNARY_TILE_DEPTH && a->lanes == 0 && !a->persistent) {
            c.kernel = TERNARY_GEMV, c.lanes = 32;
            c.tile = a->n >= TERNARY_PAIRS ? 2 : 1, c.threads = c.tile == 2 ? 128 : 256;
            c.blocks = vb_ceil_div(a->n, c.threads / c.lanes * c.tile);
            return c;
        }
    }
    const int other_way = a->narrow || a->without_dp4a || (a->persistent && a->lanes != 4) || a->lanes > 4;
    if (pieces && a->m <= TERNARY_TILE_COLUMNS && gpu->capability >= 80 && a->k <= TERNARY_TILE_DEPTH && !other_way) {
        c.kernel = TERNARY_TILES;
        c.lanes = 4;
        const ternary_tiles t = ternary_tiles_of(a->n, vb_ceil_div(a->row_bytes, 64), a->m == 1 ? 2 : 1,
                                                 (int)a->threads, (int)a->tile, gpu);
        c.threads = t.threads, c.tile = t.tile, c.blocks = t.blocks;
        return c;
    }
    if (pieces) c.wgmma = ternary_wgmma_of(a, gpu);
    if (c.wgmma.blocks > 0) {
        c.kernel = TERNARY_WGMMA;
        return c;
    }
    if (pieces && a->m > TERNARY_FEW && gpu->capability >= 75) {
        c.kernel = a->m <= 16 ? TERNARY_MMA_16 : a->m <= 32 || gpu->hopper ? TERNARY_MMA_32 : TERNARY_MMA_64;
        return c;
    }
    if (!pieces || a->narrow) {
        c.kernel = words ? TERNARY_WORDS : TERNARY_BYTES;
        return c;
    }
    c.kernel = TERNARY_GEMV;
    c.threads = a->threads == 0 || a->threads > 256 ? 128 : (int)a->threads;
    /* As few lanes a row as leave every multiprocessor 512 threads: then the reads in flight cover the memory's
     * latency. */
    const int64_t wanted = (int64_t)gpu->multiprocessors * 512;
    c.lanes = a->lanes > 4 ? (int)a->lanes : a->n * 8 >= wanted ? 8 : a->n * 16 >= wanted ? 16 : 32;
    if (c.lanes == 8 && a->k > 1 << 21) c.lanes = 16; /* or a lane's sum of 64 times a code would pass int32 */
    c.tile = a->tile ? (int)a->tile : a->n * c.lanes >= 4 * wanted ? 2 : 1;
    if (a->without_dp4a) c.lanes = 32, c.tile = 1;
    const int64_t rows = (int64_t)c.threads / c.lanes * c.tile,
        resident = (int64_t)gpu->multiprocessors * (1024 / c.threads);
    c.blocks = vb_ceil_div(a->n, rows);
    if (a->persistent && c.blocks > resident) c.blocks = resident;
    return c;
}

/* 0 blocks where the operation is composed. */
static inline ternary_bits choose_bit_linear(const vb_bit_linear_args *a, const vb_gpu *gpu) {
    const ternary_bits none = {0, 0, 0, 0, 0, 0, 0, 0, 0};
    const int aligned = vb_aligned16(a->in) && vb_aligned16(a->up) && vb_aligned16(a->norm) &&
        vb_aligned16(a->weights) && vb_aligned16(a->weights2) && vb_aligned16(a->weights3);
    if (a->m != 1 || a->k % 16 || a->layout != VB_INT2_INTERLEAVED || gpu->capability < 90 || !gpu->hopper || !aligned)
        return none;
    return ternary_bits_of(16 * (vb_ceil_div(a->n, 16) + vb_ceil_div(a->n2, 16) + vb_ceil_div(a->n3, 16)),
                           a->row_bytes, 1, gpu);
}

static inline ternary_kernel choose_tmac_lut(int64_t k, int64_t n) {
    return n <= 65535 && vb_ceil_div(k, 4) <= INT32_MAX ? TERNARY_LUT : TERNARY_NONE;
}

static inline ternary_kernel choose_norm_quantize(int64_t rows, int64_t cols) {
    if (rows > INT32_MAX) return TERNARY_NONE;
    return cols <= TERNARY_QUANTIZE_THREADS * TERNARY_QUANTIZE_ITEMS ? TERNARY_QUANTIZE : TERNARY_QUANTIZE_WIDE;
}

/* Bytes of a row whose tables are in shared memory, and the rows that use them. */
enum { TERNARY_SLICE = 32, TERNARY_SLICE_ROWS = 1024 };

/* Slices of a row of so many bytes: each lies in one group. */
static inline int64_t tmac_group_bytes(const vb_tmac_matmul_args *a) {
    const int64_t bytes = vb_ceil_div(vb_ceil_div(a->k, 4), a->groups);
    return bytes > 0 ? bytes : 1;
}
static inline int64_t tmac_slices(const vb_tmac_matmul_args *a) {
    return a->k == 0 ? 0 : vb_ceil_div(tmac_group_bytes(a), TERNARY_SLICE) * a->groups;
}
/* Elements of a row that a unit of tmac_tiles has. */
enum { TERNARY_TMAC_UNIT = 256 };

static inline ternary_bits tmac_bits_of(const vb_tmac_matmul_args *a, const vb_gpu *gpu) {
    const ternary_bits none = {0, 0, 0, 0, 0, 0, 0, 0, 0};
    if (a->n != 1 || a->lut || a->k % 64 || a->groups != 1 || gpu->capability < 90 || !gpu->hopper ||
        !vb_aligned16(a->weights))
        return none;
    return ternary_bits_of(a->m, a->k / 4, 2, gpu);
}

/* How tmac_columns cuts a product up: `cluster` blocks share the units of 256 elements of the same rows, `units` each,
 * and `parts` warps of a block share those. A warp has `turns` times 32 rows, a block four columns `fours` times. */
typedef struct ternary_columns {
    int fours, units, parts, turns, cluster, threads;
    int64_t blocks, shares, shared_bytes; /* blocks: clusters of a share of the columns */
} ternary_columns;

enum { TERNARY_COLUMNS_THREADS = 256, TERNARY_COLUMNS_FOURS = 4, TERNARY_COLUMNS_CLUSTER = 8 };
/* Up to so many columns there is no wgmma, and from so many on no tmac_columns. */
enum { TERNARY_FEW_COLUMNS = 16, TERNARY_MANY_COLUMNS = 64 };
/* Units whose weights are on their way to a warp: STAGED in shared memory for blocks of up to so many fours, else AHEAD
 * in registers. */
enum { TERNARY_COLUMNS_STAGED_FOURS = 2, TERNARY_COLUMNS_STAGED = 4, TERNARY_COLUMNS_AHEAD = 2 };

static inline ternary_columns ternary_columns_cut(int64_t rows, int64_t cols, int64_t units, int most_fours,
                                                  int cluster, int threads, int parts, int turns) {
    const int64_t of = vb_ceil_div(units, cluster), fours = vb_ceil_div(cols, 4), held = threads / parts * turns;
    ternary_columns c = {1, (int)of, parts, turns, cluster, threads, 0, 0, 0};
    while (c.fours < most_fours && c.fours < fours) c.fours *= 2;
    c.shares = vb_ceil_div(fours, c.fours);
    c.blocks = vb_ceil_div(rows, held);
    /* the planes of a unit are 2 KiB for four columns, and three numbers a column; sums of four columns are 16 bytes */
    c.shared_bytes = 16 * c.fours * (of * (128 + 3) + TERNARY_COLUMNS_CLUSTER +
                                     parts * vb_ceil_div(held, cluster) * cluster);
    if (c.fours <= TERNARY_COLUMNS_STAGED_FOURS) c.shared_bytes += 64 * threads * TERNARY_COLUMNS_STAGED;
    return c;
}

/* Blocks of a multiprocessor, and clusters of the GPU, that run at once. */
static inline int64_t ternary_columns_resident(const ternary_columns *c, const vb_gpu *gpu) {
    const int64_t registers = c->fours < 4 ? 128 : 208,
                  by_registers = 65536 / (registers * c->threads), by_memory = ternary_bits_fit(c->shared_bytes, gpu);
    return by_registers < by_memory ? by_registers : by_memory;
}
static inline int64_t ternary_columns_at_once(const ternary_columns *c, const vb_gpu *gpu) {
    return vb_clusters_at_once(c->cluster, gpu->multiprocessors) * ternary_columns_resident(c, gpu);
}

/* Nanoseconds, fitted to 1,050 times of 59 products (docs/experiments/2026-11-29-ternary-columns.md). Blocks that do
 * not run at once are a second wave, which takes as long as the first. */
static inline int64_t ternary_columns_time(const ternary_columns *c, const vb_gpu *gpu) {
    static const struct {
        int wave, turn, late, all, load; /* the last two in tenths */
    } times[] = {{670, 706, 358, 183, 355}, /* of four columns a block, */
                 {408, 931, 290, 76, 381},  /* of eight and */
                 {2406, 1003, 463, 22, 192}}; /* of 16 */
    const int kind = c->fours == 1 ? 0 : c->fours == 2 ? 1 : 2;
    const int64_t all = c->blocks * c->shares, waves = vb_ceil_div(all, ternary_columns_at_once(c, gpu)),
                  resident = ternary_columns_resident(c, gpu),
                  each = vb_ceil_div(all, vb_clusters_at_once(c->cluster, gpu->multiprocessors)),
                  beside = each < resident ? each : resident, steps = vb_ceil_div(c->units, c->parts) * c->turns,
                  ahead = c->fours <= TERNARY_COLUMNS_STAGED_FOURS ? TERNARY_COLUMNS_STAGED : TERNARY_COLUMNS_AHEAD,
                  late = steps > ahead ? steps - ahead : 0; /* the weights of these steps are there by then */
    return 1000 + times[kind].all * all * c->cluster * c->units * c->fours / 40 +
        waves * (times[kind].wave + times[kind].turn * c->turns + times[kind].late * late +
                 times[kind].load * beside * (c->threads / 32) * steps * c->fours / 10);
}

/* 0 blocks where that is not the kernel; *least: nanoseconds. */
static inline ternary_columns ternary_columns_of(const vb_tmac_matmul_args *a, const vb_gpu *gpu, int64_t *least) {
    const int64_t units = vb_ceil_div(a->k, TERNARY_TMAC_UNIT);
    ternary_columns best = {0, 0, 0, 0, 0, 0, 0, 0, 0};
    if (gpu->capability < 90 || !gpu->hopper || a->n > TERNARY_MANY_COLUMNS || a->m > INT32_MAX / 64)
        return best;
    for (int fours = TERNARY_COLUMNS_FOURS; fours > 0; fours /= 2)
        for (int threads = 128; threads <= TERNARY_COLUMNS_THREADS; threads *= 2)
            for (int way = 1; way <= 2 * TERNARY_COLUMNS_CLUSTER; way++) {
                const int parts = 1 + way % 2, cluster = (way + 1) / 2;
                const ternary_columns one = ternary_columns_cut(a->m, a->n, units, fours, cluster, threads, parts, 1);
                if (cluster * parts > units || (parts > 1 && fours > 1) || one.fours < fours) continue;
                /* More shares were not measured: they are for rows too long for more columns. */
                if (best.fours > fours && one.shares > (fours > 1 ? 4 : 2)) continue;
                if (one.shared_bytes > gpu->shared_bytes - 1024) continue;
                /* As many turns as leave one wave at least, if there is memory for them. */
                const int64_t waves = vb_ceil_div(one.blocks * one.shares, ternary_columns_at_once(&one, gpu));
                for (int turns = waves < 8 ? (int)waves : 8; turns > 0; turns--) {
                    const ternary_columns c =
                        ternary_columns_cut(a->m, a->n, units, fours, cluster, threads, parts, turns);
                    if (c.shared_bytes > gpu->shared_bytes - 1024) continue;
                    const int64_t time = ternary_columns_time(&c, gpu);
                    if (best.blocks == 0 || time < *least) best = c, *least = time;
                }
            }
    return best;
}

/* tmac_sm90: 0 blocks where shared memory has no room. Barriers and factors are within 2 KiB beside the tiles. A
 * thread's sums are `fours` times four columns. */
static inline ternary_wgmma ternary_many_cut(const vb_tmac_matmul_args *a, int columns, int groups, int each, int split,
                                             const vb_gpu *gpu) {
    ternary_wgmma c = {columns, groups, each, split, 0, 0, 0};
    const int64_t units = vb_ceil_div(a->k, TERNARY_TMAC_UNIT), fours = columns / 8,
                  held = TERNARY_WGMMA_RUNS * 64 * groups * (TERNARY_TMAC_UNIT / 2),
                  steps = vb_ceil_div(units, split) * columns * 4,
                  sums = (split - 1) * vb_ceil_div(fours, split) * 128 * groups * 16,
                  stage = 2 * columns * TERNARY_WGMMA_DEPTH,
                  room = (each == 1 ? gpu->shared_bytes : (gpu->shared_bytes + 1024) / each - 1024) - 2048,
                  stages = (room - held - steps - sums) / stage;
    if (stages < 3) return c;
    c.x_stages = stages < TERNARY_WGMMA_STAGES ? (int)stages : TERNARY_WGMMA_STAGES;
    c.blocks = vb_ceil_div(a->n, columns) * vb_ceil_div(a->m, 64 * groups) * split;
    c.shared_bytes = held + steps + sums + c.x_stages * stage;
    return c;
}

/* 0 blocks where that is not the kernel; *least: nanoseconds, without the rounding. */
static inline ternary_wgmma ternary_many_of(const vb_tmac_matmul_args *a, const vb_gpu *gpu, int64_t *least) {
    /* Fitted to the times of 1,090 ways of 128 products (docs/experiments/2026-11-29-ternary-many-columns.md). */
    const ternary_wgmma_tile tiles[] = {{32, 2, 2, 4, 472, 660, 2054},
                                        {32, 4, 1, 4, 523, 523, 4056},
                                        {64, 2, 1, 8, 491, 491, 2832},
                                        {64, 3, 1, 8, 624, 624, 4665},
                                        {128, 2, 1, 8, 651, 651, 7008}};
    const int64_t units = vb_ceil_div(a->k, TERNARY_TMAC_UNIT);
    ternary_wgmma best = {0, 0, 0, 0, 0, 0, 0};
    if (a->n <= TERNARY_FEW_COLUMNS || gpu->capability < 90 || !gpu->hopper) return best;
    /* A tile ends within int, and so do its planes; a grid's y has a block for each 32 columns. */
    if (a->m > INT32_MAX - 256 || a->n > 32 * 65535 - 128 || units > INT32_MAX / 256) return best;
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++)
        for (int split = 1; split <= tiles[i].split && split <= units; split++) {
            const ternary_wgmma_tile *t = &tiles[i];
            if (a->n <= t->tokens / 2) continue; /* half a tile or more would be empty, and was not measured */
            const ternary_wgmma c = ternary_many_cut(a, t->tokens, t->groups, t->each, split, gpu);
            if (c.blocks == 0 || c.blocks > INT32_MAX) continue;
            const int64_t time = ternary_wgmma_time(&c, t, TERNARY_TMAC_UNIT * units, gpu);
            if (best.blocks == 0 || time < *least) best = c, *least = time;
        }
    return best;
}

/* Which kernel, and how it cuts the product up. */
typedef struct ternary_tmac {
    ternary_kernel kernel;
    ternary_bits bits;       /* of TERNARY_TMAC_BITS */
    ternary_columns columns; /* of TERNARY_TMAC_COLUMNS */
    ternary_wgmma many;      /* of TERNARY_TMAC_WGMMA */
} ternary_tmac;

static inline ternary_tmac choose_tmac_matmul(const vb_tmac_matmul_args *a, const vb_gpu *gpu) {
    const int whole = vb_aligned16(a->weights) && vb_ceil_div(a->k, 4) % 16 == 0 &&
        (a->groups == 1 || a->k % (a->groups * TERNARY_TMAC_UNIT) == 0);
    ternary_tmac c = {TERNARY_NONE, tmac_bits_of(a, gpu), {0, 0, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 0}};
    if (c.bits.blocks > 0) {
        c.kernel = TERNARY_TMAC_BITS;
        return c;
    }
    if (!a->lut && whole && a->k > 0) {
        int64_t time = 0, many_time = 0;
        c.columns = ternary_columns_of(a, gpu, &time);
        c.many = ternary_many_of(a, gpu, &many_time);
        /* The rounding takes 2 us. The times of few columns are a tenth too short where there are more than 16. */
        if (c.columns.blocks > 0 && (c.many.blocks == 0 || time / 10 * 11 < many_time + 2000))
            c.kernel = TERNARY_TMAC_COLUMNS;
        else if (c.many.blocks > 0) c.kernel = TERNARY_TMAC_WGMMA;
        else if (gpu->capability >= 80 && a->k <= TERNARY_TILE_DEPTH && a->n <= 4 * 65535)
            c.kernel = TERNARY_TMAC_TILES;
        if (c.kernel != TERNARY_NONE) return c;
    }
    if (a->n <= 65535 && tmac_slices(a) <= 65535 && vb_ceil_div(a->m, TERNARY_SLICE_ROWS) <= INT32_MAX)
        c.kernel = a->lut ? TERNARY_TMAC_TABLE : TERNARY_TMAC;
    return c;
}

#endif
