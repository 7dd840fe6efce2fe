/* choose.h: which kernel runs for an adapter's update, and in what pieces. Pure functions; plain C. cuda/README.md has
 * the map, choose_test.h the test. */
#ifndef VB_ADAPTER_CHOOSE_H
#define VB_ADAPTER_CHOOSE_H

#include "runtime/chooser.h"

#define ADAPTER_KERNELS(X)                                                                                             \
    X(ADAPTER_SPLIT, "fused_update_split", "adapter/fused_update.cuh",                                                 \
      "8.0: the warps of a block or cluster share 16 to 64 rows, first by k, then by n")                               \
    X(ADAPTER_STREAM, "fused_update_stream", "adapter/fused_update_stream.cu",                                         \
      "8.0: F16, BF16, many rows, 8 or 16 ranks, V [k][r], U [n][r]")                                                  \
    X(ADAPTER_SHORT, "fused_update_short", "adapter/fused_update_stream.cu",                                           \
      "the same of fewer rows, 8 ranks and k up to 768")                                                               \
    X(ADAPTER_SM90, "fused_update_sm90", "adapter/fused_update_sm90.cu",                                               \
      "9.0: F16, BF16, many rows, ranks or a long k; copies rows that are no whole vectors")                           \
    X(ADAPTER_F32_SM90, "fused_update_f32_sm90", "adapter/fused_update_f32_sm90.cu",                                   \
      "9.0: F32 of more than 16 ranks, or of many rows; splits factors in two, V and U once")                          \
    X(ADAPTER_TILED, "fused_update_tiled", "adapter/fused_update_tiled.cu",                                            \
      "8.0: more than 32 ranks (a multiple of 8), 512 rows and more, U [n][r], from shared memory")                    \
    X(ADAPTER_ROWS, "fused_update_rows", "adapter/fused_update.cuh",                                                   \
      "tensor cores (8.0); a warp has rows of its own: many rows and ranks")                                           \
    X(ADAPTER_CLUSTER, "fused_update_cluster", "adapter/fused_update_cluster.cu",                                      \
      "9.0: any sizes, types and alignment; a cluster shares the ranks and k of 16 or 32 rows")                        \
    X(ADAPTER_ANY, "fused_update_any", "adapter/fused_update_any.cu",                                                  \
      "any other: before 8.0; little k by ranks where rows are no whole vectors, or ranks odd")
VB_KERNEL_FAMILY(adapter, ADAPTER, ADAPTER_KERNELS)

enum { ADAPTER_MOST_TILES = 32, ADAPTER_COLUMNS = 32, ADAPTER_SQUARE = 32 };

typedef struct adapter_plan {
    adapter_kernel kernel;
    int row_tiles;     /* of 16 rows a warp: 1, 2 or 4; stream: a block, 2, 4 or 8; tiled, sm90: a block, 4 or 8 */
    int rank_tiles;    /* of 8 ranks: a power of two up to 32 */
    int warps;         /* of a block */
    int cluster;       /* blocks that share rows */
    int64_t row_blocks, column_blocks;
} adapter_plan;

/* Sums of row_tiles * rank_tiles tiles are 4 registers each. More than 8 tiles take blocks of 4 warps, whose sums fit
 * shared memory. */
static inline int adapter_warps(int row_tiles, int rank_tiles) { return row_tiles * rank_tiles <= 8 ? 8 : 4; }

static inline bool adapter_tiles_can(const vb_fused_update_args *a, const vb_gpu *gpu) {
    const int64_t vector = a->type == VB_F32 ? 4 : 8;
    return gpu->capability >= 80 && a->k % vector == 0 && a->n % 8 == 0 && a->r % 2 == 0 && a->k > 0 && a->r > 0 &&
           a->m < INT32_MAX / 2 && a->k < INT32_MAX / 2 && a->n < INT32_MAX / 2 && vb_aligned16(a->out) &&
           vb_aligned16(a->add) && vb_aligned16(a->x) && vb_aligned16(a->v) && vb_aligned16(a->u) &&
           vb_aligned16(a->codes) && (a->codes_stride % 2 == 0);
}

enum { ADAPTER_TILED_STAGES = 3, ADAPTER_TILED_STAGES_OF_U = 4 };

/* Shared memory of the tiled kernel: stages of x and V, and in their place x V and stages of U. */
static inline int64_t adapter_tiled_bytes(int64_t rows, int64_t ranks) {
    const int64_t first = ADAPTER_TILED_STAGES * 128 * (rows + ranks);
    const int64_t then = 2 * rows * ranks + ADAPTER_TILED_STAGES_OF_U * 16384;
    return first > then ? first : then;
}

/* The most shared memory of a block of the kernel for many rows: a multiprocessor of 9.0 has two such blocks.
 * Then the k of a block that has all of x under way at once. */
enum { ADAPTER_STREAM_BYTES = 108 << 10, ADAPTER_STREAM_ALL = 180 << 10 }; /* two, or one a multiprocessor */
enum { ADAPTER_SHORT_DEPTH = 768, ADAPTER_CLUSTER_BYTES = 227 << 10 };

static inline int64_t adapter_at_most(int64_t x, int64_t most) { return x < most ? x : most; }

static inline bool adapter_cluster_can(const vb_fused_update_args *a, const vb_gpu *gpu) {
    return gpu->capability >= 90 && gpu->capability < 120 && gpu->shared_bytes >= ADAPTER_CLUSTER_BYTES && a->k > 0 &&
           a->r > 0 && a->m < INT32_MAX / 2 && a->k < INT32_MAX / 2 && a->n < INT32_MAX / 2;
}

/* Clusters of as many blocks as leave work for every multiprocessor; then shares of the columns. */
static inline adapter_plan adapter_cluster_plan(const vb_fused_update_args *a, const vb_gpu *gpu) {
    const int64_t ranks = a->r <= 16 ? 16 : 64, chunks = vb_ceil_div(a->r, ranks), sms = gpu->multiprocessors;
    const int64_t steps = vb_ceil_div(a->k, ADAPTER_SQUARE), tiles = vb_ceil_div(a->n, ADAPTER_SQUARE);
    adapter_plan p = {ADAPTER_CLUSTER, a->type != VB_F32 || a->m <= 128 ? 1 : 2, (int)(ranks / 8), 8, 1, 1, 1};
    p.row_blocks = vb_ceil_div(a->m, 16 * p.row_tiles);
    if (p.row_blocks * chunks <= 2 * sms) {
        int64_t parts = 1;
        while (2 * parts * chunks <= 8 && 2 * parts * chunks * p.row_blocks <= 2 * sms && 8 * parts < steps) parts *= 2;
        p.cluster = (int)(chunks * parts);
    }
    const int64_t left = 2 * sms / (p.row_blocks * p.cluster), shares = vb_ceil_div(tiles, 8 * p.cluster);
    if (left > 1 && shares > 1) p.column_blocks = adapter_at_most(left, shares);
    return p;
}

/* Where it takes less time than kernels without shared memory: `whole` says whether fused_update_split can. Limits are
 * those of shapes drawn at random: docs/experiments/2026-11-27-fused-update.md. */
static inline bool adapter_cluster_pays(const vb_fused_update_args *a, bool whole) {
    const bool f32 = a->type == VB_F32;
    if (whole && f32) /* F16 beside F32: ranks without codes */
        return a->weight_type == VB_F32 && (a->r > 64 || (a->r > 8 && a->m <= 64));
    if (whole) return a->r > 32 || (a->k <= 128 && a->n >= 512);
    int64_t wide = 1; /* threads along the ranks in fused_update_any */
    while (wide < a->r) wide *= 2;
    return a->r > 32 || a->k * wide > (f32 ? 25000 : a->r <= 4 && a->m >= 100 ? 40000 : 5000);
}

/* Rows that are no whole vectors are copied before, and elements of such rows of out are stored alone. */
static inline bool adapter_sm90_can(const vb_fused_update_args *a, const vb_gpu *gpu) {
    return gpu->capability == 90 && gpu->hopper && a->type != VB_F32 && adapter_cluster_can(a, gpu);
}

/* A meeting of blocks that share k takes as long as so much of k. */
enum { ADAPTER_SM90_ALONE = 1280, ADAPTER_F32_SM90_ALONE = 384 };

static inline bool adapter_sm90_pays(const vb_fused_update_args *a, bool whole) {
    if (a->r > 16 && (a->m >= 32 || a->k <= ADAPTER_SM90_ALONE)) return true;
    if (a->r > (whole ? 32 : 16) && a->k >= 1024) return true; /* of any rows: clusters share k */
    const bool vectors = a->k % 8 == 0 && a->n % 8 == 0;
    if (a->m >= 512 && (a->r > 4 || (a->k >= 512 && a->k + a->n >= 4096))) return true;
    return a->m >= 2048 && vectors;
}

/* Whether clusters of twice as many blocks are all at work at once: those of four and more do not find room on all
 * multiprocessors. */
static inline bool adapter_sm90_finds_room(const adapter_plan *p, const vb_gpu *gpu) {
    return p->row_blocks <= vb_clusters_at_once(2 * p->cluster, gpu->multiprocessors);
}

/* Clusters that find room beside those of all rows take shares of the columns, and compute x V again. */
static inline int64_t adapter_sm90_shares(const adapter_plan *p, int64_t n, const vb_gpu *gpu) {
    const int64_t left = vb_clusters_at_once(p->cluster, gpu->multiprocessors) / p->row_blocks,
                  shares = vb_ceil_div(n, 128) / p->cluster;
    return left > 1 && shares > 1 ? adapter_at_most(left, shares) : 1;
}

static inline adapter_plan adapter_sm90_plan(const vb_fused_update_args *a, const vb_gpu *gpu) {
    const int64_t sms = gpu->multiprocessors;
    const int rank_tiles = a->r <= 64 ? 8 : a->r <= 128 ? 16 : 32;
    /* 64 rows a block need V and U twice as often: for few ranks, where half of the GPU would have no work */
    const int row_tiles = rank_tiles == 8 && vb_ceil_div(a->m, 128) <= sms / 2 ? 4 : 8;
    adapter_plan p = {ADAPTER_SM90, row_tiles, rank_tiles, 8, 1, vb_ceil_div(a->m, 16 * row_tiles), 1};
    while (a->k > ADAPTER_SM90_ALONE && p.cluster < 8 && adapter_sm90_finds_room(&p, gpu)) p.cluster *= 2;
    p.column_blocks = adapter_sm90_shares(&p, a->n, gpu);
    return p;
}

static inline bool adapter_f32_sm90_can(const vb_fused_update_args *a, const vb_gpu *gpu) {
    return gpu->capability == 90 && gpu->hopper && a->type == VB_F32 && adapter_cluster_can(a, gpu);
}
static inline bool adapter_f32_sm90_pays(const vb_fused_update_args *a) {
    if (a->weight_type != VB_F32) return false;
    return a->r > 16 ? a->m >= 16 || a->k >= 512 : a->r >= 4 && a->m >= 512;
}
static inline adapter_plan adapter_f32_sm90_plan(const vb_fused_update_args *a, const vb_gpu *gpu) {
    const int rank_tiles = a->r <= 64 ? 8 : a->r <= 128 ? 16 : 32, row_tiles = rank_tiles == 32 ? 4 : 8;
    adapter_plan p = {ADAPTER_F32_SM90, row_tiles, rank_tiles, 8, 1, vb_ceil_div(a->m, 16 * row_tiles), 1};
    while (a->k > ADAPTER_F32_SM90_ALONE && p.cluster < 8 && (a->k >= 128 * p.cluster || a->n >= 256 * p.cluster) &&
           adapter_sm90_finds_room(&p, gpu))
        p.cluster *= 2;
    p.column_blocks = adapter_sm90_shares(&p, a->n, gpu);
    return p;
}

/* V and U are read anew for each block of rows. So a block has as many rows as leave work for every multiprocessor. */
static inline adapter_plan choose_fused_update(const vb_fused_update_args *a, const vb_gpu *gpu) {
    adapter_plan p = {ADAPTER_ANY, 1, 1, 8, 1, 1, 1};
    const int64_t sms = gpu->multiprocessors;
    const bool whole = adapter_tiles_can(a, gpu);
    const bool streams =
        whole && a->type != VB_F32 && (a->r == 8 || a->r == 16) && !a->v_transposed && !a->u_transposed;
    const int64_t most = 7 * sms / 8; /* blocks that keep the memory busy */
    const bool many = vb_ceil_div(a->m, 32) >= most, is_short = a->r == 8 && a->k <= ADAPTER_SHORT_DEPTH;
    /* Too few rows to stream, and long ones: fused_update_split reads V and U for every 16 or 32 of them. */
    const bool leaves = streams && !many && !is_short && a->m >= 512 && a->k + a->n >= 4096;
    if ((!streams || leaves) && adapter_sm90_can(a, gpu) && adapter_sm90_pays(a, whole))
        return adapter_sm90_plan(a, gpu);
    if (adapter_f32_sm90_can(a, gpu) && adapter_f32_sm90_pays(a)) return adapter_f32_sm90_plan(a, gpu);
    if (adapter_cluster_can(a, gpu) && adapter_cluster_pays(a, whole)) return adapter_cluster_plan(a, gpu);
    if (!whole) {
        p.row_blocks = vb_ceil_div(a->m, 4);
        p.column_blocks =
            p.row_blocks < sms ? adapter_at_most(vb_ceil_div(a->n, 256), vb_ceil_div(sms, p.row_blocks)) : 1;
        if (p.row_blocks > INT32_MAX) p.kernel = ADAPTER_NONE;
        return p;
    }
    while (8 * p.rank_tiles < a->r) p.rank_tiles *= 2;
    const int64_t chunks = vb_ceil_div(a->n, ADAPTER_COLUMNS), steps = vb_ceil_div(a->k, a->type == VB_F32 ? 16 : 32);
    if (streams) {
        if (many && ADAPTER_STREAM_BYTES <= gpu->shared_bytes) {
            p.kernel = ADAPTER_STREAM;
            p.row_tiles = vb_ceil_div(a->m, 64) >= most ? 4 : 2;
            /* V and U are read half as often. Not where some multiprocessors alone would have a last block, and
             * nothing hides what is added to the result. */
            const int64_t blocks = vb_ceil_div(a->m, 128), last = blocks % sms;
            if (a->r == 16 && !a->add && a->k + a->n >= 4096 && blocks >= most && (last == 0 || last >= 3 * sms / 4) &&
                ADAPTER_STREAM_ALL <= gpu->shared_bytes)
                p.row_tiles = 8;
            p.row_blocks = vb_ceil_div(a->m, 16 * p.row_tiles);
            return p;
        }
        if (is_short) {
            p.kernel = ADAPTER_SHORT;
            p.row_blocks = vb_ceil_div(a->m, 16);
            p.column_blocks = 2 * p.row_blocks <= sms && a->n > 256 ? 2 : 1;
            return p;
        }
    }
    if (p.rank_tiles >= 8 && a->m >= 512 && a->type != VB_F32 && a->r % 8 == 0 && !a->u_transposed) {
        p.row_tiles = p.rank_tiles == 8 && vb_ceil_div(a->m, 128) < sms ? 4 : 8;
        if (adapter_tiled_bytes(16 * p.row_tiles, 8 * p.rank_tiles) <= gpu->shared_bytes) {
            p.kernel = ADAPTER_TILED;
            p.row_blocks = vb_ceil_div(a->m, 16 * p.row_tiles);
            const int64_t tiles = vb_ceil_div(a->n, 128), shares = sms / p.row_blocks;
            p.column_blocks = shares < 2 ? 1 : adapter_at_most(tiles, adapter_at_most(shares, 4));
            return p;
        }
        p.row_tiles = 1;
    }
    if (p.rank_tiles >= 8 && a->m >= 64 * sms) { /* V and U are what is read most: 64 or 128 rows have them together */
        p.kernel = ADAPTER_ROWS;
        p.warps = adapter_warps(1, p.rank_tiles);
        p.row_blocks = vb_ceil_div(a->m, 16 * p.warps);
        return p;
    }
    p.kernel = ADAPTER_SPLIT;
    /* for sums of so many tiles, beside the parts of F32 operands */
    const int registers = a->type == VB_F32 ? 4 : 8;
    const int most_row_tiles = p.rank_tiles <= 2 ? registers / 2 : p.rank_tiles == 4 ? registers / 4 : 1;
    while (p.row_tiles < most_row_tiles && vb_ceil_div(a->m, 32 * p.row_tiles) >= 3 * sms / 2) p.row_tiles *= 2;
    p.warps = adapter_warps(p.row_tiles, p.rank_tiles);
    p.row_blocks = vb_ceil_div(a->m, 16 * p.row_tiles);
    const int64_t work = steps > chunks ? steps : chunks;
    const int most_blocks = gpu->capability >= 90 && gpu->capability < 120 ? 8 : 1;
    while (p.cluster < most_blocks && 2 * p.cluster * p.row_blocks <= sms && p.cluster * p.warps < work) p.cluster *= 2;
    /* The rest of the multiprocessors take shares of the columns, and compute x V again. */
    const int64_t left = sms / (p.row_blocks * p.cluster), shares = chunks / (p.cluster * p.warps);
    if (left > 1 && shares > 1) p.column_blocks = adapter_at_most(left, shares);
    return p;
}

#endif
