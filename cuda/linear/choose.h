/* choose.h: which kernel runs for the products of a linear layer, and how it is cut up. Pure functions of types,
 * layouts, sizes, alignment and the GPU; plain C. cuda/README.md has the map, cuda/chooser_test.c the table test.
 * choose_qkv.h has norm_qkv.
 *
 * Kernels are named by the rows of x that they take: n1, n4 (2 to 4), n8, n32 (n32 of packed weights on Hopper up to
 * 8), n64, many. Kernels of packed weights cut their work in one of two ways:
 *   linear_items   items are rows of tiles that the warps of a block share
 *   linear_units   units are 128 rows of W by a block of rows of x */
#ifndef VB_LINEAR_CHOOSE_H
#define VB_LINEAR_CHOOSE_H

#include "gemm/choose.h"
#include "linear/packed/formats.h"
#include "runtime/chooser.h"

#define LINEAR_KERNELS(X) \
    X(LINEAR_STORED_N1, "stored_n1", "linear/stored/n1.cu", "F32, F16, BF16, one row of x, rows of whole vectors") \
    X(LINEAR_STORED_N8, "stored_n8", "linear/stored/n8.cu", \
      "any stored type, up to 8 rows of x at a time, in float32") \
    X(LINEAR_STORED_N32, "stored_n32", "linear/stored/n32.cu", \
      "F16, BF16, 2 to 32 rows of x, before and after Hopper") \
    X(LINEAR_STORED_N64_SM90, "stored_n64_sm90", "linear/stored/n64_sm90.cu", "F16, BF16, 2 to 64 rows of x, Hopper") \
    X(LINEAR_STORED_MANY, "stored_many", "linear/stored/many.cu", "any stored type but F32, many rows of x") \
    X(LINEAR_STORED_MANY_SM90, "stored_many_sm90", "linear/stored/many_sm90.cu", \
      "F16, BF16, more rows of x, or rows of W no multiple of 4, of whole vectors, Hopper") \
    X(LINEAR_STORED_PADDED_SM90, "stored_padded_sm90", "linear/stored/many_sm90.cu", \
      "F16, BF16, 2 rows of x and more, other rows of 24 columns and more, copied to whole vectors, Hopper") \
    X(LINEAR_F32_3XTF32, "f32_3xtf32", "gemm/matmul_3xtf32.cu", "F32, 2 to 64 rows of x, or at most 640^3 products") \
    X(LINEAR_F32_MATMUL, "f32_matmul", "gemm/matmul.cu", \
      "F32, more than 8 rows of x, Hopper: the product of matrices") \
    X(LINEAR_F32_TILES, "f32_tiles", "linear/stored/f32.cu", "F32, more than 8 rows of x, elsewhere") \
    X(LINEAR_PACKED_N1, "packed_n1", "linear/packed/n1.cu", "linear, norm_linear, linear_add of one row of x") \
    X(LINEAR_PACKED_N4, "packed_n4", "linear/packed/n4.cu", "the same of 2 to 4 rows of x") \
    X(LINEAR_PACKED_N32, "packed_n32", "linear/packed/n32.cu", "the same of 5 to 32 rows of x, on Hopper 5 to 8") \
    X(LINEAR_N1_SWIGLU, "packed_n1_swiglu", "linear/packed/n1_swiglu.cu", "norm_swiglu of one row of x") \
    X(LINEAR_N4_SWIGLU, "packed_n4_swiglu", "linear/packed/n4_swiglu.cu", "the same of 2 to 4 rows of x") \
    X(LINEAR_N32_SWIGLU, "packed_n32_swiglu", "linear/packed/n32_swiglu.cu", "the same of 5 to 32, on Hopper 5 to 8") \
    X(LINEAR_N1_QKV, "packed_n1_qkv", "linear/packed/n1_qkv.cu", "norm_qkv of one row of x") \
    X(LINEAR_N4_QKV, "packed_n4_qkv", "linear/packed/n4_qkv.cu", \
      "the same of 2 to 4 rows of x") \
    X(LINEAR_N32_QKV, "packed_n32_qkv", "linear/packed/n32_qkv.cu", "the same of 5 to 32, on Hopper 5 to 8") \
    X(LINEAR_PACKED_N32_SM90, "packed_n32_sm90", "linear/packed/n32_sm90.cu", \
      "all operations of packed weights, 9 to 32 rows of x, of vocabularies 5 to 32, Hopper") \
    X(LINEAR_PACKED_MANY, "packed_many", "linear/packed/many.cu", \
      "more rows of x, before and after Hopper (feed_forward: above 64); plans of items that do not fit") \
    X(LINEAR_PACKED_MANY_SM90, "packed_many_sm90", "linear/packed/many.cu", "all operations, more rows of x, Hopper") \
    X(LINEAR_COMPOSED, "composed", "../csrc/ops_fused.c", "a fused operation as the operations of its formula")
VB_KERNEL_FAMILY(linear, LINEAR, LINEAR_KERNELS)

/* A product: y[n][rows] = x[n][cols] W^T, or with gate and up, two such. */
typedef struct linear_shape {
    vb_dtype type;
    vb_layout layout;
    int64_t n, rows, cols;
    bool norm;                                           /* of rms_norm(x) */
    bool inputs_aligned, output_aligned, bias_aligned;   /* to 16 bytes: x, W and the norm; y; the bias */
} linear_shape;

/* Items: `parts` rows of tiles that the warps of a block, or of the `ksplit` blocks of a cluster, multiply together. */
typedef struct linear_items {
    int parts, ksplit;
    int tokens;                 /* rows of x that the code is for: n32's 8, 16 or 32 */
    int warps, stages;          /* of a block; tiles in a warp's ring */
    int chunk, rounds;          /* items between two barriers; of a block or cluster in all */
    int blocks;                 /* of the grid; 0: the items do not fit */
    int64_t shared_bytes;       /* of a block */
} linear_items;

/* Units: 128 rows of W by `tokens` rows of x. */
typedef struct linear_units {
    linear_kernel kernel;
    /* rows of x; blocks at neighbouring rows of W; blocks that share the columns of a unit, 0: units in turn */
    int tokens, pair, cluster;
    int row_blocks, token_blocks;
    int whole, ksplit;          /* units that one block computes; blocks that share the columns of each of the others */
    int multiprocessors;
    int spread;                 /* 0, or the tiles of the others are spread over all: most blocks that share a unit */
    double time;                /* in units of 0.9 us */
} linear_units;

typedef struct linear_choice {
    linear_kernel kernel;
    linear_items items; /* of packed_n1, packed_n4, packed_n32 and theirs */
    linear_units units; /* of packed_n32_sm90, packed_many, packed_many_sm90 */
} linear_choice;

/* ---- small ------------------------------------------------------------------------------------------------------- */

static inline int64_t linear_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t linear_max(int64_t a, int64_t b) { return a > b ? a : b; }

enum {
    LINEAR_MOST_INT = 2147483647,
    LINEAR_PADDED_COLS = 24, /* of 16-bit rows that are copied, at least: docs/experiments/2026-11-28-linear.md */
    LINEAR_WARPS = 8,             /* of a block of packed_n1 and packed_n4, at most */
    LINEAR_N4 = 4,                /* rows of x that packed_n4 takes */
    LINEAR_RING_STAGES = 3,       /* of a ring before Hopper, which has no bulk copies, */
    LINEAR_RING_MOST = 8,         /* and from 8.0 on, which has asynchronous ones, as many as fit, up to this */
    LINEAR_UNIT_ROWS = 128,       /* of W */
    LINEAR_MANY_TOKENS = 64,      /* of a unit of packed_many before Hopper and after it */
    LINEAR_HALF_GROUP = 64,       /* columns of gated rows that share an exponent */
    LINEAR_SHARED_UNITS = 8192,   /* units with counters, at most */
    LINEAR_MOST_SPREAD = 8,       /* blocks that share a unit whose round is spread */
    LINEAR_MOST_TOKENS = 4096,    /* rows of x in one go: bounds the workspace */
    LINEAR_ADAPTED_RANKS = 32,    /* that kernels add within a product, at most */
    LINEAR_LEFT_SUMS = 65536,     /* floats of x V that an operation of one row leaves for the next, at most */
    /* rows of x that packed_n32 takes; on Hopper packed_n32_sm90 is faster above 8 */
    LINEAR_N32 = 32, LINEAR_N32_HOPPER = 8,
    LINEAR_N16 = 16, /* of packed_n32_sm90's smaller code */
    LINEAR_FEW_UNITS = 64 /* rows of x that packed_many takes with a warp for each 16 rows of W */
};

/* Tiles of a row of packed weights, the last of which may be a part. */
static inline int64_t linear_row_tiles(vb_packed_format f, int64_t cols) { return vb_ceil_div(cols, f.depth); }

/* The bytes of the packed form. 0 where a GPU gains nothing from it (no tensor cores) or too much is lost to padding.
 * Rows may lose 3 %; columns up to as many as there are, for the stored form takes five to ten times as long. */
static inline int64_t linear_packed_bytes(const vb_gpu *gpu, vb_dtype type, int64_t rows, int64_t cols) {
    const vb_packed_format f = vb_packed_format_of(type);
    if (gpu->capability < 75 || f.depth == 0) return 0;
    const int64_t tile_rows = vb_ceil_div(rows, VB_PACKED_ROWS), row_tiles = linear_row_tiles(f, cols),
                  tiles = tile_rows * row_tiles;
    const bool padded = tile_rows * VB_PACKED_ROWS - rows > rows / 32 || row_tiles * f.depth - cols > cols;
    return padded || tiles > LINEAR_MOST_INT ? 0 : tiles * f.tile_bytes;
}

static inline bool linear_has_wgmma(const vb_gpu *gpu) { return gpu->capability == 90 && gpu->hopper; }
/* Rows of x that items take; code for Hopper has none of more. */
static inline int linear_most_by_items(const vb_gpu *gpu) { return gpu->hopper ? LINEAR_N32_HOPPER : LINEAR_N32; }
/* Rows of W with the padding of its last tiles. */
static inline int64_t linear_tile_rows(int64_t rows) { return vb_ceil_div(rows, VB_PACKED_ROWS); }

static inline linear_choice linear_choice_of(linear_kernel kernel) {
    const linear_choice c = {kernel, {0, 0, 0, 0, 0, 0, 0, 0, 0}, {LINEAR_NONE, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}};
    return c;
}

/* ---- items ------------------------------------------------------------------------------------------------------- */

/* Of a block of a short kernel, of which two fit on a multiprocessor; of a longer kernel, which fits beside a short
 * one, but not twice; and of a long one. docs/experiments/2026-11-28-two-h200s.md measured them. */
enum { LINEAR_SHORT_SHARED = 106 << 10, LINEAR_BESIDE_SHORT = 118 << 10, LINEAR_LONG_SHARED = 140 << 10 };

/* The shared memory that a block of items asks for, by the bytes of weights.
 *
 * On Hopper a block takes all shared memory that it is granted, for the grant decides which blocks are neighbours.
 * Good neighbours are a block of this kernel and a block of the next kernel, never three.
 * Two blocks of one long kernel would leave another multiprocessor without work.
 * For very long kernels deep rings are worth more than an early start of the next kernel.
 * A product with a vocabulary has a multiprocessor to itself. The driver takes 1 KiB more a block. */
static inline int64_t linear_granted_shared(int64_t weight_bytes, int64_t most) {
    const int64_t bytes = weight_bytes > 32 << 20   ? LINEAR_LONG_SHARED
                          : weight_bytes > 20 << 20 ? LINEAR_BESIDE_SHORT
                                                    : LINEAR_SHORT_SHARED;
    return weight_bytes > 150 << 20 ? most : linear_min(most, bytes);
}

/* Shared memory of packed_n1: rings, x, sums of each warp of two chunks, and squares. Where blocks share columns, also
 * a mailbox a warp. */
static inline int64_t linear_n1_shared(vb_packed_format f, int tiles, const linear_items *p) {
    const int64_t slots = vb_ceil_div(tiles, p->warps) * p->warps, results = 16 * p->parts;
    return (int64_t)p->warps * p->stages * (f.tile_bytes + 8) + slots * vb_n1_tile_bytes(f) +
           (2 * p->chunk * results + 1) * LINEAR_WARPS * 4 +
           (p->ksplit > 1 ? LINEAR_WARPS * (8 + p->ksplit * results * 4) : 0);
}

/* `beside`: blocks find room beside those of a short kernel before, whatever the bytes of weights. */
static inline linear_items linear_n1_items_of(const vb_gpu *gpu, vb_packed_format f, int parts, int ksplit,
                                              int64_t row_tiles, int64_t items, bool beside) {
    linear_items p = {parts, ksplit, 1, 0, 0, 0, 0, 0, 0};
    const bool bulk = gpu->capability >= 90, async = gpu->capability >= 80;
    const int64_t most = gpu->shared_bytes,
                  of_bytes = linear_granted_shared(items * parts * row_tiles * f.tile_bytes, most),
                  granted = !bulk ? most : beside ? linear_min(of_bytes, LINEAR_BESIDE_SHORT) : of_bytes;
    /* of a warp and item */
    const int tiles = (int)vb_ceil_div(row_tiles, ksplit), each = (int)vb_ceil_div(tiles, LINEAR_WARPS);
    const int64_t rounds = vb_ceil_div(items, gpu->multiprocessors / ksplit);
    p.warps = (int)vb_ceil_div(tiles, each);
    if (ksplit > 1 && vb_ceil_div(rounds, ksplit) > p.warps) return p;
    p.chunk = (int)linear_min(linear_min(rounds, p.warps), linear_max(bulk ? 2 : 1, 4 / each));
    p.stages = async ? (int)linear_min(parts * each * rounds, bulk ? 12 : LINEAR_RING_MOST) : LINEAR_RING_STAGES;
    while (async && p.stages > 1 && linear_n1_shared(f, tiles, &p) > granted) p.stages--;
    while (p.chunk > 1 && linear_n1_shared(f, tiles, &p) > most) p.chunk--;
    const int64_t bytes = linear_n1_shared(f, tiles, &p);
    if (bytes > most) return p;
    p.shared_bytes = bulk ? linear_max(bytes, granted) : bytes;
    const int64_t resident = bulk ? 1 : linear_max(1, linear_min(2, most / (p.shared_bytes + 1024)));
    p.blocks = (int)linear_min(items * ksplit, gpu->multiprocessors * resident / ksplit * ksplit);
    return p;
}

static inline linear_items linear_n1_items(const vb_gpu *gpu, vb_packed_format f, int parts, int ksplit,
                                           int64_t row_tiles, int64_t items) {
    return linear_n1_items_of(gpu, f, parts, ksplit, row_tiles, items, false);
}

/* The shared memory of a block that also adds an adapter's update to so many matrices: x V of each warp. */
static inline int64_t linear_n1_adapted_shared(vb_packed_format f, int64_t cols, const linear_items *p, int matrices,
                                               int64_t ranks) {
    if (!p->blocks || !matrices) return p->shared_bytes;
    const int tiles = (int)vb_ceil_div(linear_row_tiles(f, cols), p->ksplit);
    return linear_max(p->shared_bytes, linear_n1_shared(f, tiles, p) + matrices * ranks * LINEAR_WARPS * 4);
}

/* Whether there is room for x V of rows of x that so many matrices multiply. */
static inline bool linear_leaves(int64_t cols, int matrices, int64_t ranks) {
    return vb_ceil_div(cols, VB_PACKED_ROWS) * matrices * ranks <= LINEAR_LEFT_SUMS;
}

/* Whether the blocks of packed_n1 and its kin add an adapter's update to so many matrices. */
static inline bool linear_n1_adapts(const vb_gpu *gpu, vb_packed_format f, const linear_items *p, int64_t cols,
                                    int matrices, int64_t ranks) {
    return gpu->capability >= 90 && p->blocks && ranks > 0 && ranks % 8 == 0 && ranks <= LINEAR_ADAPTED_RANKS &&
           cols % 8 == 0 && linear_leaves(cols, matrices, ranks) &&
           linear_n1_adapted_shared(f, cols, p, matrices, ranks) <= gpu->shared_bytes;
}

/* Shared memory of packed_n4: rings, x, sums of each warp of two chunks, and squares. Where blocks share columns, also
 * their messages. */
static inline int64_t linear_n4_shared(vb_packed_format f, int n, int tiles, const linear_items *p) {
    const int64_t results = 16 * p->parts, stride = results + 8;
    return (int64_t)p->warps * p->stages * (f.tile_bytes + 8) + (int64_t)tiles * vb_n4_tile_bytes(f) +
           (2 * p->chunk * p->warps * n * stride + LINEAR_WARPS * LINEAR_N4) * 4 +
           (p->ksplit > 1 ? p->rounds * (8 + p->ksplit * 2 * results * 4) : 0);
}

static inline linear_items linear_n4_items(const vb_gpu *gpu, vb_packed_format f, int parts, int ksplit, int64_t n,
                                           int64_t row_tiles, int64_t items) {
    linear_items p = {parts, ksplit, LINEAR_N4, 0, 0, 0, 0, 0, 0};
    if (n > LINEAR_N4) return p;
    const bool bulk = gpu->capability >= 90, async = gpu->capability >= 80;
    const int64_t most = gpu->shared_bytes,
                  granted = bulk ? linear_granted_shared(items * parts * row_tiles * f.tile_bytes, most) : most;
    const int tiles = (int)vb_ceil_div(row_tiles, ksplit), each = (int)vb_ceil_div(tiles, LINEAR_WARPS),
              pairs = (int)(n + 1) / 2;
    const int64_t clusters = linear_min(items, gpu->multiprocessors / ksplit);
    p.warps = (int)linear_max(pairs, vb_ceil_div(tiles, each));
    p.rounds = (int)vb_ceil_div(items, clusters);
    if (ksplit > 1 && p.rounds > p.warps) return p;
    p.chunk = (int)linear_max(1, linear_min(linear_min(p.rounds, p.warps / pairs), linear_min(4 / each, 8 / n)));
    const int least = bulk ? parts : (int)vb_ceil_div(LINEAR_RING_STAGES, parts) * parts;
    p.stages = bulk    ? (int)linear_min((int64_t)parts * each * p.rounds, 12)
               : async ? (int)linear_max(least, linear_min((int64_t)parts * each * p.rounds, LINEAR_RING_MOST))
                       : least;
    while (bulk && p.stages > 2 * parts && linear_n4_shared(f, (int)n, tiles, &p) > granted) p.stages -= parts;
    while (async && p.stages > least && linear_n4_shared(f, (int)n, tiles, &p) > most) p.stages -= parts;
    const int64_t bytes = linear_n4_shared(f, (int)n, tiles, &p);
    if (bytes > most) return p;
    p.shared_bytes = bulk ? linear_max(bytes, granted) : bytes;
    const int64_t resident = bulk ? 1 : linear_max(1, linear_min(2, most / (p.shared_bytes + 1024)));
    p.blocks = (int)(linear_min(items, clusters * resident) * ksplit);
    return p;
}

/* packed_n32: warps of a block at most, by registers; sums of a warp are kept of two items, unless they are many. */
static inline int linear_n32_warps(int tokens, int parts) { return tokens * parts < 32 ? 16 : 8; }
static inline int64_t linear_n32_shared(vb_packed_format f, int tokens, int parts, int warps, int stages) {
    const int64_t buffers = tokens * parts <= 32 ? 2 : 1, sums = parts * tokens * (VB_PACKED_ROWS + 4);
    return (int64_t)warps * (stages * (f.tile_bytes + 8) + buffers * sums * 4) + tokens * 4;
}

static inline linear_items linear_n32_items(const vb_gpu *gpu, vb_packed_format f, int tokens, int parts,
                                            int64_t row_tiles, int64_t items) {
    linear_items p = {parts, 1, tokens, 0, 0, 1, 0, 0, 0};
    const bool bulk = gpu->capability >= 90, async = gpu->capability >= 80;
    const int64_t sms = gpu->multiprocessors, limit = gpu->shared_bytes;
    const int of_block = linear_n32_warps(tokens, parts);
    /* Few items: many warps on each, to have enough bytes on the way. Then so many warps that all have equal work. */
    int64_t most = linear_min(of_block, items <= 2 * sms ? 16 : 8);
    if (!bulk && linear_n32_shared(f, tokens, parts, (int)most, LINEAR_RING_STAGES) > limit)
        most = linear_min(most, 8);
    p.warps = (int)vb_ceil_div(row_tiles, vb_ceil_div(row_tiles, most));
    const int64_t each = linear_max(1, of_block / p.warps); /* blocks a multiprocessor */
    /* of a warp */
    const int64_t tiles = parts * vb_ceil_div(row_tiles, p.warps) * vb_ceil_div(items, linear_min(items, sms * each));
    p.stages = bulk    ? (int)linear_min((f.depth == 128 ? 4 : 2) * parts, tiles)
               : async ? (int)linear_max(linear_min(LINEAR_RING_MOST, tiles), LINEAR_RING_STAGES)
                       : LINEAR_RING_STAGES;
    const int least = bulk ? parts : LINEAR_RING_STAGES;
    while (async && p.stages > least && each * (linear_n32_shared(f, tokens, parts, p.warps, p.stages) + 1024) > limit)
        p.stages--;
    p.shared_bytes = linear_n32_shared(f, tokens, parts, p.warps, p.stages);
    if (p.shared_bytes > limit) return p;
    p.blocks = (int)linear_min(items, sms * linear_max(1, linear_min(each, limit / (p.shared_bytes + 1024))));
    return p;
}

/* The rows of x that packed_n32's code is for, 0 where another kernel is faster. More than 16 rows of x by 8192 and
 * more rows of W take another kernel. */
static inline int linear_n32_tokens(const vb_gpu *gpu, int64_t n, int64_t rows) {
    if (n > linear_most_by_items(gpu) || (n > 16 && rows >= 8192)) return 0;
    return n <= 8 ? 8 : n <= 16 ? 16 : 32;
}

/* Whether two rows of tiles should share x: where there are enough of them for all multiprocessors. */
static inline bool linear_in_pairs(const vb_gpu *gpu, int64_t rows) {
    return rows >= 4 * VB_PACKED_ROWS * (int64_t)gpu->multiprocessors;
}

/* ---- units ------------------------------------------------------------------------------------------------------- */

static inline int64_t linear_unit_count(const linear_units *u) {
    if (u->spread) return u->whole;
    return u->whole + (int64_t)(u->row_blocks * u->token_blocks - u->whole) * u->ksplit;
}
/* Multiprocessors that have work; all blocks of a cluster are there at once. */
static inline int linear_unit_blocks(const linear_units *u) {
    const int together = u->pair * (u->cluster > 1 ? u->cluster : 1);
    if (u->spread) return u->multiprocessors;
    return (int)linear_min(linear_unit_count(u), u->multiprocessors / together) * together;
}
static inline int64_t linear_partial_bytes(const linear_units *u) {
    const int64_t shares = u->spread ? u->spread : u->ksplit > 1 ? u->ksplit : 0;
    return (int64_t)(u->row_blocks * u->token_blocks - u->whole) * u->pair * shares * LINEAR_UNIT_ROWS * u->tokens * 4;
}

/* The blocks of a cluster of packed_n32_sm90 that share the columns of a unit: 1, 2, 4 or 8. */
static inline int linear_n32_sm90_cluster(int64_t rows, int64_t k_tiles, int64_t multiprocessors) {
    const int64_t units = vb_ceil_div(rows, LINEAR_UNIT_ROWS);
    int cluster = 1;
    while (cluster < 8 && 2 * cluster <= k_tiles && 2 * cluster * units <= multiprocessors * 5 / 4) cluster *= 2;
    return cluster;
}

/* `rows` are whole tiles; with gate and up, the tiles of both. The unit of time is 128 columns of 128 rows of x on an
 * H200.
 * Four and eight blocks at the columns of a unit, where they do not all run at once, cost a second wave there. */
static inline linear_units linear_plan_units(const vb_gpu *gpu, vb_packed_format f, int64_t n, int64_t rows,
                                             int64_t cols, bool swiglu, int multiprocessors, int most_cluster) {
    const bool wide = linear_has_wgmma(gpu);
    const int64_t k_tiles = linear_row_tiles(f, cols);
    linear_units best = {
        wide ? LINEAR_PACKED_MANY_SM90 : LINEAR_PACKED_MANY, 0, 0, 0, 0, 0, 0, 0, multiprocessors, 0, 0};
    if (wide && n <= LINEAR_N32) {
        best.kernel = LINEAR_PACKED_N32_SM90;
        best.tokens = n <= LINEAR_N16 ? LINEAR_N16 : LINEAR_N32, best.pair = 1;
        best.cluster = linear_n32_sm90_cluster(rows, k_tiles, multiprocessors);
        best.row_blocks = best.whole = (int)vb_ceil_div(rows, LINEAR_UNIT_ROWS), best.token_blocks = 1, best.ksplit = 1,
        best.time = 1;
        /* Blocks share the units that would make some multiprocessors work longer than the others. */
        const int rest = best.row_blocks % multiprocessors;
        const int64_t shares = rest == 0 ? 1 : linear_min(linear_min(k_tiles, 8), multiprocessors / rest);
        if (best.row_blocks > multiprocessors && shares > 1) best.whole -= rest, best.ksplit = (int)shares;
        return best;
    }
    const struct {
        int tokens, pair;
        double columns, end; /* what 128 columns cost, and the end of a unit */
    } hopper[] = {{64, 1, 0.7, 3}, {128, 1, 1, 3}, {128, 2, 0.91, 3}, {176, 1, 1.25, 3}, {176, 2, 1.2, 3}, {256, 2,
                  1.67, 3.5}},
      few[] = {{LINEAR_MANY_TOKENS, 1, 0.9, 3}}, many[] = {{LINEAR_MANY_TOKENS, 1, 1.3, 3}},
      *const shapes = wide ? hopper : n <= 64 ? few : many;
    const int count = wide ? 6 : 1;
    for (int s = 0; s < count; s++) {
        const int tokens = shapes[s].tokens, pair = shapes[s].pair,
                  places = multiprocessors / pair * (!wide && n > 64 ? 2 : 1);
        if (pair > most_cluster) continue;
        const int row_blocks = (int)vb_ceil_div(rows, LINEAR_UNIT_ROWS * pair),
                  token_blocks = (int)vb_ceil_div(n, tokens);
        const int blocks = row_blocks * token_blocks, rest = blocks % places;
        const double all = (double)cols / 128 * shapes[s].columns, end = shapes[s].end - swiglu;
        /* there both groups finish a unit together */
        const int most_ksplit = wide && swiglu ? 1 : (int)linear_min(8, k_tiles);
        linear_units plan = best;
        plan.tokens = tokens, plan.pair = pair, plan.cluster = 0, plan.row_blocks = row_blocks,
        plan.token_blocks = token_blocks;
        for (int ksplit = 1; ksplit <= most_ksplit; ksplit++) {
            if (ksplit > 1 && rest * pair > LINEAR_SHARED_UNITS) break;
            const double add = ksplit == 1    ? 0
                               : tokens == 64 ? 2 + 0.25 * ksplit
                               : ksplit == 2  ? 5
                                              : (8 + 0.5 * ksplit) * tokens / 128;
            const double share = all * (double)vb_ceil_div(k_tiles, ksplit) / (double)k_tiles + end;
            plan.whole = ksplit > 1 ? blocks - rest : blocks, plan.ksplit = ksplit;
            plan.time = blocks / places * (all + end) + (double)vb_ceil_div(rest * ksplit, places) * (share + add);
            if (best.time == 0 || plan.time < best.time) best = plan;
        }
        /* Units of a round that is not full are spread over all multiprocessors, tile by tile. */
        const int64_t each = rest * k_tiles / places; /* tiles of a block, at least */
        if (wide && swiglu && tokens == 64 && token_blocks == 1 && each > 0) {
            plan.whole = blocks - rest, plan.ksplit = 1;
            plan.spread = (int)vb_ceil_div(k_tiles - 1, each) + 1;
            plan.time = blocks / places * (all + end) +
                        all * (double)vb_ceil_div(rest * k_tiles, places) / (double)k_tiles + end + 3 +
                        0.25 * plan.spread;
            if (plan.time < best.time && plan.spread <= LINEAR_MOST_SPREAD) best = plan;
            plan.spread = 0;
        }
        /* Where some multiprocessors would have two units and others one, each has one, and shares of the others lie
         * beside them. A unit takes two thirds of the time alone. */
        const int one_each = blocks / places * places + multiprocessors, shared = blocks - one_each;
        for (int ksplit = 2; places > multiprocessors && shared > 0 && ksplit <= most_ksplit &&
                             shared <= LINEAR_SHARED_UNITS && shared * ksplit <= multiprocessors;
             ksplit++) {
            plan.whole = one_each, plan.ksplit = ksplit;
            plan.time = blocks / places * (all + end) + (0.65 + 0.35 / ksplit) * (all + end) + 2 + 0.25 * ksplit;
            if (plan.time < best.time) best = plan;
        }
        for (int cluster = 1; wide && pair == 1 && !swiglu && cluster <= linear_min(most_cluster, k_tiles);
             cluster *= 2) {
            if (blocks > linear_min(vb_clusters_at_once(cluster, multiprocessors), places / cluster)) continue;
            plan.cluster = cluster, plan.whole = blocks, plan.ksplit = 1;
            plan.time = all * (double)vb_ceil_div(k_tiles, cluster) / (double)k_tiles + end + cluster / 2 - 1;
            if (best.time == 0 || plan.time < best.time) best = plan;
        }
    }
    return best;
}

static inline linear_units linear_units_of(const vb_gpu *gpu, vb_dtype type, int64_t n, int64_t rows, int64_t cols) {
    return linear_plan_units(gpu, vb_packed_format_of(type), n, linear_tile_rows(rows) * VB_PACKED_ROWS, cols, false,
                             gpu->multiprocessors, 4);
}

/* ---- linear, norm_linear, linear_add ----------------------------------------------------------------------------- */

/* Says whether a cluster's blocks share shorter rows of many too, for 2 to 4 rows of x on Hopper: where a warp of one
 * block would have two tiles of an item. Tiles of Q8_0 have twice the bytes and wait for memory. */
static inline bool linear_halves_short(const vb_gpu *gpu, const linear_shape *s, int64_t row_tiles) {
    return vb_has_clusters(gpu) && !s->norm && s->type != VB_Q8_0 && row_tiles > LINEAR_WARPS && s->cols >= 2048 &&
           s->rows >= 3 * VB_PACKED_ROWS * (int64_t)gpu->multiprocessors;
}

/* Whether products with 5 to 8 rows of x take units: where multiprocessors have one and a half or more, as of a
 * vocabulary. Measured from 32000 rows on (docs/experiments/2026-11-29-halves-and-steps.md). */
static inline bool linear_has_many_units(const vb_gpu *gpu, const linear_shape *s) {
    return linear_has_wgmma(gpu) && s->n > LINEAR_N4 &&
           2 * s->rows >= 3 * LINEAR_UNIT_ROWS * (int64_t)gpu->multiprocessors;
}

/* The items of rows of one matrix that fit, of packed_n1, packed_n4 or packed_n32; no blocks where no item fits. */
static inline linear_choice linear_choose_items(const vb_gpu *gpu, const linear_shape *s) {
    const vb_packed_format f = vb_packed_format_of(s->type);
    const int64_t row_tiles = linear_row_tiles(f, s->cols), tile_rows = linear_tile_rows(s->rows),
                  pairs = vb_ceil_div(tile_rows, 2);
    const bool in_pairs = linear_in_pairs(gpu, s->rows);
    /* Of long rows each block of a cluster takes a half, and so loads and quantizes half of x. Before Hopper a half
     * leaves room for a deeper ring as well. */
    const bool halves = !in_pairs && !s->norm && gpu->capability >= (s->n == 1 ? 80 : 90) && row_tiles >= 32;
    linear_choice c = linear_choice_of(LINEAR_NONE);
    if (s->cols > LINEAR_MOST_INT || linear_has_many_units(gpu, s)) return c;
    if (s->n == 1 && tile_rows * VB_PACKED_ROWS <= LINEAR_MOST_INT) {
        c.kernel = LINEAR_PACKED_N1;
        if (s->norm || in_pairs) c.items = linear_n1_items(gpu, f, 2, 1, row_tiles, pairs);
        else {
            if (halves) c.items = linear_n1_items(gpu, f, 2, 2, row_tiles, pairs);
            if (!c.items.blocks) c.items = linear_n1_items(gpu, f, 1, 1, row_tiles, tile_rows);
        }
        if (c.items.blocks) return c;
    }
    if (s->rows > LINEAR_MOST_INT - 2 * VB_PACKED_ROWS) return c;
    c.kernel = LINEAR_PACKED_N4;
    if (halves || linear_halves_short(gpu, s, row_tiles))
        c.items = linear_n4_items(gpu, f, 2, 2, s->n, row_tiles, pairs);
    if (!c.items.blocks)
        c.items = in_pairs ? linear_n4_items(gpu, f, 2, 1, s->n, row_tiles, pairs)
                           : linear_n4_items(gpu, f, 1, 1, s->n, row_tiles, tile_rows);
    if (c.items.blocks) return c;
    const int tokens = linear_n32_tokens(gpu, s->n, s->rows);
    c.kernel = LINEAR_PACKED_N32;
    if (tokens) c.items = linear_n32_items(gpu, f, tokens, in_pairs ? 2 : 1, row_tiles, in_pairs ? pairs : tile_rows);
    return c;
}

/* Packed weights: linear, norm_linear and linear_add alike. Units are those of the first LINEAR_MOST_TOKENS rows of
 * x. */
static inline linear_choice linear_choose_packed(const vb_gpu *gpu, const linear_shape *s) {
    linear_choice c = linear_choose_items(gpu, s);
    if (c.items.blocks) return c;
    c.units = linear_units_of(gpu, s->type, linear_min(s->n, LINEAR_MOST_TOKENS), s->rows, s->cols);
    c.kernel = c.units.kernel;
    return c;
}

/* Stored weights. */
static inline linear_kernel linear_choose_stored(const vb_gpu *gpu, const linear_shape *s) {
    const bool f32 = s->type == VB_F32, plain = s->type == VB_F16 || s->type == VB_BF16;
    const int64_t wide = f32 ? 4 : 8; /* elements of 16 bytes */
    if (s->n == 1 && (f32 || plain) && s->cols % wide == 0 && s->cols <= 1 << 30 && s->inputs_aligned &&
        s->rows <= (int64_t)LINEAR_MOST_INT * 2 * LINEAR_WARPS)
        return LINEAR_STORED_N1;
    if (f32 && s->n > 1) {
        const int64_t most = 1 << 30;
        const bool few = s->n <= 64 || (double)s->n * (double)s->cols * (double)s->rows <= 640.0 * 640 * 640;
        if (gpu->capability >= 80 && few && s->cols > 0 && s->cols % 4 == 0 && s->rows % 4 == 0 && s->n <= most &&
            s->cols <= most && s->rows <= most && s->inputs_aligned && s->output_aligned &&
            matmul_3xtf32_bytes(matmul_3xtf32_eights(s->n), matmul_3xtf32_abreast(s->rows), 1) <= gpu->shared_bytes)
            return LINEAR_F32_3XTF32;
        if (s->n > 8) return gpu->capability == 90 ? LINEAR_F32_MATMUL : LINEAR_F32_TILES;
    }
    if (plain && s->n > 1 && linear_has_wgmma(gpu)) {
        const int64_t most = 1 << 27; /* so that the grid and indices have 31 bits */
        if (s->n <= 64 && s->rows <= most && s->cols <= most && s->cols > 0 && s->cols % 8 == 0 && s->rows % 4 == 0 &&
            s->inputs_aligned && s->output_aligned && s->bias_aligned)
            return LINEAR_STORED_N64_SM90;
        const bool fits = s->n <= most && s->rows <= most && s->cols <= most && s->cols > 0 && s->output_aligned;
        const bool few = s->n <= 32 && s->cols % 64 == 0; /* stored_n32's */
        if (fits && !few && s->cols % 8 == 0 && s->inputs_aligned) return LINEAR_STORED_MANY_SM90;
        if (fits && !few && s->cols >= LINEAR_PADDED_COLS && s->rows * vb_ceil_div(s->cols, 8) <= LINEAR_MOST_INT)
            return LINEAR_STORED_PADDED_SM90;
    }
    if (!f32 && gpu->capability >= (s->type == VB_BF16 ? 80 : 75) && s->n > (plain ? 1 : 8))
        return plain && s->n <= 32 && s->cols % 64 == 0 ? LINEAR_STORED_N32 : LINEAR_STORED_MANY;
    return LINEAR_STORED_N8;
}

static inline linear_choice choose_linear(const linear_shape *s, const vb_gpu *gpu) {
    return s->layout == VB_PACKED ? linear_choose_packed(gpu, s) : linear_choice_of(linear_choose_stored(gpu, s));
}

/* A product of one row whose results go to a sum over ranks. Blocks of the next kernel find room beside up to 48 MiB of
 * weights, and fill their rings while the ranks' words cross. */
static inline linear_choice choose_linear_sum(const linear_shape *s, const vb_gpu *gpu) {
    linear_choice c = choose_linear(s, gpu);
    if (c.kernel != LINEAR_PACKED_N1) return c;
    const vb_packed_format f = vb_packed_format_of(s->type);
    const int64_t row_tiles = linear_row_tiles(f, s->cols), tile_rows = linear_tile_rows(s->rows);
    if (tile_rows * row_tiles * f.tile_bytes > 48 << 20) return c;
    const linear_items beside = linear_n1_items_of(gpu, f, c.items.parts, c.items.ksplit, row_tiles,
                                                   vb_ceil_div(tile_rows, c.items.parts), true);
    if (beside.blocks) c.items = beside;
    return c;
}

/* norm_linear and linear_add. */
static inline linear_choice choose_fused_linear(const linear_shape *s, const vb_gpu *gpu) {
    return s->layout == VB_PACKED && s->inputs_aligned ? linear_choose_packed(gpu, s)
                                                       : linear_choice_of(LINEAR_COMPOSED);
}

/* ---- norm_swiglu, feed_forward ----------------------------------------------------------------------------------- */

/* Gate and up, of one type and shape. */
static inline linear_choice choose_norm_swiglu(const linear_shape *s, vb_dtype up, vb_layout up_layout,
                                               const vb_gpu *gpu) {
    linear_choice c = linear_choice_of(LINEAR_COMPOSED);
    if (s->layout != VB_PACKED || up_layout != VB_PACKED || up != s->type || !s->inputs_aligned ||
        s->rows > LINEAR_MOST_INT - VB_PACKED_ROWS || s->cols > LINEAR_MOST_INT)
        return c;
    const vb_packed_format f = vb_packed_format_of(s->type);
    const int64_t row_tiles = linear_row_tiles(f, s->cols), tile_rows = linear_tile_rows(s->rows);
    if (s->n == 1) {
        c.items = linear_n1_items_of(gpu, f, 2, 1, row_tiles, tile_rows, true);
        if (c.items.blocks) c.kernel = LINEAR_N1_SWIGLU;
        return c;
    }
    c.items = linear_n4_items(gpu, f, 2, 1, s->n, row_tiles, tile_rows);
    if (c.items.blocks) {
        c.kernel = LINEAR_N4_SWIGLU;
        return c;
    }
    const int tokens = linear_n32_tokens(gpu, s->n, s->rows);
    if (tokens) c.items = linear_n32_items(gpu, f, tokens, 2, row_tiles, tile_rows);
    if (tokens && c.items.blocks) {
        c.kernel = LINEAR_N32_SWIGLU;
        return c;
    }
    if (s->n > LINEAR_MOST_TOKENS) return c;
    c.units = linear_plan_units(gpu, f, s->n, 2 * tile_rows * VB_PACKED_ROWS, s->cols, true, gpu->multiprocessors, 4);
    c.kernel = c.units.kernel;
    return c;
}

/* Norm, gate, up and down with the rows between them in F16: from 8.0 on products of many rows. */
typedef struct linear_feed_forward_choice {
    linear_kernel kernel;
    linear_units gate_up, down;
} linear_feed_forward_choice;

static inline linear_feed_forward_choice choose_feed_forward(const linear_shape *gate, vb_dtype up, vb_layout up_layout,
                                                             vb_dtype down, vb_layout down_layout, const vb_gpu *gpu) {
    linear_feed_forward_choice c = {
        LINEAR_COMPOSED, {LINEAR_NONE, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, {LINEAR_NONE, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}};
    const int64_t most = LINEAR_MOST_INT - VB_PACKED_ROWS;
    const int64_t few = linear_has_wgmma(gpu) ? LINEAR_N32_HOPPER : LINEAR_FEW_UNITS;
    if (gpu->capability < 80 || gate->layout != VB_PACKED || up_layout != VB_PACKED || down_layout != VB_PACKED ||
        up != gate->type || gate->rows > most || gate->cols > most || gate->n <= few ||
        gate->n > LINEAR_MOST_TOKENS || !gate->inputs_aligned || gate->rows % LINEAR_HALF_GROUP != 0 ||
        gate->rows % vb_packed_format_of(down).depth != 0)
        return c;
    c.gate_up =
        linear_plan_units(gpu, vb_packed_format_of(gate->type), gate->n,
                          2 * linear_tile_rows(gate->rows) * VB_PACKED_ROWS, gate->cols, true, gpu->multiprocessors, 4);
    c.down = linear_units_of(gpu, down, gate->n, gate->cols, gate->rows);
    c.kernel = c.gate_up.kernel;
    return c;
}

/* ---- attention_linear_add ---------------------------------------------------------------------------------------- */

/* `attention_in_f16`: attention can leave its rows as a product of many reads them. */
static inline linear_choice choose_attention_linear_add(const linear_shape *s, bool attention_in_f16,
                                                        const vb_gpu *gpu) {
    linear_choice c = linear_choice_of(LINEAR_COMPOSED);
    if (!attention_in_f16 || s->layout != VB_PACKED ||
        s->n <= (linear_has_wgmma(gpu) ? LINEAR_N32_HOPPER : LINEAR_N32) ||
        s->cols % vb_packed_format_of(s->type).depth != 0)
        return c;
    c.units = linear_units_of(gpu, s->type, linear_min(s->n, LINEAR_MOST_TOKENS), s->rows, s->cols);
    c.kernel = c.units.kernel;
    return c;
}

#endif
