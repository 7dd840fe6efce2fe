/* choose_gemm.h: the tiles of gemm_sm90, and how it cuts up a product. */
#ifndef VB_CUDA_GEMM_CHOOSE_GEMM_H
#define VB_CUDA_GEMM_CHOOSE_GEMM_H

#include "gemm/kernels.h"

/* A tile is the work of one block at a time. In a pair or a quad, two or four blocks of a cluster compute tiles one
 * above the other, and copy a share of B's tile each, for all. A cluster of split pairs or quads shares the k of their
 * tiles, whose rows may be columns of C. */
typedef enum gemm_tile {
    TILE_128x256_PAIR,
    TILE_128x256,
    TILE_128x192_PAIR,
    TILE_128x128_PAIR,
    TILE_128x128,
    TILE_128x64,
    TILE_64x256,
    TILE_64x128,
    TILE_128x256_QUAD,
    TILE_128x192_QUAD,
    TILE_128x128_QUAD,
    TILE_64x128_PAIR,
    TILE_64x128_QUAD,
    TILE_128x160_PAIR,
    TILE_128x160_QUAD,
    TILE_128x192_SPLIT,
    TILE_128x128_SPLIT,
    TILE_64x128_SPLIT,
    TILE_128x192_SPLIT_QUAD,
    TILE_128x128_SPLIT_QUAD,
    TILE_64x128_SPLIT_QUAD,
    TILE_128x224_PAIR,
    TILE_128x208_PAIR,
    TILE_128x192_TURNS, /* of pairs whose blocks multiply one tile while they store another */
    TILE_128x176_TURNS,
    GEMM_SM90_TILES,
    TILE_128x168_TURNS = GEMM_SM90_TILES, /* these for linear layers only */
    TILE_128x144_TURNS,
    TILE_128x240_PAIR,
    TILE_128x176_PAIR,
    TILE_128x168_PAIR,
    TILE_128x144_PAIR,
    GEMM_TILES
} gemm_tile;
typedef struct gemm_tile_shape {
    int rows, columns, blocks; /* of a block; 2 of a pair, 4 of a quad */
} gemm_tile_shape;
static inline gemm_tile_shape gemm_tile_shape_of(int tile) {
    static const gemm_tile_shape shapes[GEMM_TILES] = {
        {128, 256, 2}, {128, 256, 1}, {128, 192, 2}, {128, 128, 2}, {128, 128, 1}, {128, 64, 1},  {64, 256, 1},
        {64, 128, 1},  {128, 256, 4}, {128, 192, 4}, {128, 128, 4}, {64, 128, 2},  {64, 128, 4},  {128, 160, 2},
        {128, 160, 4}, {128, 192, 2}, {128, 128, 2}, {64, 128, 2},  {128, 192, 4}, {128, 128, 4}, {64, 128, 4},
        {128, 224, 2}, {128, 208, 2}, {128, 192, 2}, {128, 176, 2}, {128, 168, 2}, {128, 144, 2}, {128, 240, 2},
        {128, 176, 2}, {128, 168, 2}, {128, 144, 2}};
    return shapes[tile];
}
static inline int gemm_tile_splits(int tile) { return tile >= TILE_128x192_SPLIT && tile <= TILE_64x128_SPLIT_QUAD; }
static inline int gemm_tile_turns(int tile) { return tile >= TILE_128x192_TURNS && tile <= TILE_128x144_TURNS; }
/* Tiles of a product, or pairs or quads of them. */
static inline int64_t gemm_tile_count(gemm_tile_shape tile, int64_t m, int64_t n) {
    return vb_ceil_div(m, (int64_t)tile.rows * tile.blocks) * vb_ceil_div(n, tile.columns);
}

/* How gemm_sm90 cuts up a product: blocks that share the k of a tile, microseconds. */
enum { GEMM_SM90_MOST_KSPLIT = 8, GEMM_SM90_MOST_TURNED = 512 };
typedef struct gemm_sm90_cut {
    gemm_tile tile;
    int ksplit;
    int turned; /* whether the turned product is computed, and its C written turned */
    double time;
} gemm_sm90_cut;
/* The product whose C is that of x turned. */
static inline vb_matmul_args gemm_sm90_turned(const vb_matmul_args *x) {
    vb_matmul_args y = *x;
    y.a = x->b, y.a_stride = x->b_stride, y.a_batch_stride = x->b_batch_stride, y.a_transposed = !x->b_transposed;
    y.b = x->a, y.b_stride = x->a_stride, y.b_batch_stride = x->a_batch_stride, y.b_transposed = !x->a_transposed;
    y.m = x->n, y.n = x->m;
    return y;
}
/* The longer of two times and a share of the shorter, which does not hide behind it. */
static inline double gemm_sm90_longer(double a, double b, double share) {
    return a > b ? a + share * b : b + share * a;
}
/* The time by one cut: rounds of blocks, each of which begins, takes its steps of 64 of k and writes its tile. A step
 * takes the time of its products or of its copies from the L2, which are slower the fuller the GPU is; all steps take
 * that of the operands' way from memory, more by clusters that are no power of two. Blocks that share k meet in a
 * cluster, pairs in memory unless they are split. */
static inline double gemm_sm90_time(const gemm_sm90_cut *cut, const vb_matmul_args *x, int multiprocessors) {
    const gemm_tile_shape tile = gemm_tile_shape_of(cut->tile);
    const int ksplit = cut->ksplit, split = gemm_tile_splits(cut->tile), pair = tile.blocks > 1,
              meet = pair && !split && ksplit > 1, blocks = tile.blocks * ksplit;
    const int64_t units = gemm_tile_count(tile, x->m, x->n), steps = vb_ceil_div(x->k, 64),
                  places = meet ? multiprocessors / blocks : vb_clusters_at_once(blocks, multiprocessors),
                  whole = units / places, last = units % places;
    const double area = (double)tile.rows * tile.columns / (128 * 128),
                 products = (0.103 + 0.177 * area) *
                            (1 + 0.0254 * !x->b_transposed + 0.168 * (x->a_transposed != 0)),
                 a_off = matmul_off_lines(x->a, x->type, x->a_stride, x->a_batch_stride),
                 b_off = matmul_off_lines(x->b, x->type, x->b_stride, x->b_batch_stride),
                 of_a = (double)(x->m < tile.rows ? x->m : tile.rows) * (1 + 1.14 * a_off),
                 of_b = (double)(x->n < tile.columns ? x->n : tile.columns) / tile.blocks * (1 + 1.14 * b_off),
                 kilobytes = (of_a + of_b) / 8, once = 0.414 + 1.39 * area + 0.0362 * pair,
                 part = (double)vb_ceil_div(steps, ksplit), share = (double)blocks / multiprocessors;
#define GEMM_SM90_STEP(taken)                                                                                          \
    gemm_sm90_longer(products, kilobytes * (0.00467 + 0.005 * share * (double)(taken)), 0.249)
    const double ends = once * (double)(whole + (last > 0)),
                 waited = part * ((double)whole * GEMM_SM90_STEP(places) + (last > 0 ? GEMM_SM90_STEP(last) : 0)),
                 moved = 2e-6 / 4.39 * (ksplit & (ksplit - 1) ? 1.12 : 1) *
                         ((double)x->m * x->k + (double)x->k * x->n),
                 time = 1.05 + ends + gemm_sm90_longer(waited, moved, 0.16);
#undef GEMM_SM90_STEP
    if (gemm_tile_turns(cut->tile)) /* only the last tile's writing is waited for; 3 % for what times are off by */
        return 1.03 * (time - ends + once + 0.5 * (double)(whole + (last > 0)));
    if (split) {
        const double used = (double)(x->m < tile.rows ? x->m : tile.rows) *
                            (double)(x->n < tile.columns ? x->n : tile.columns) / (128 * 128),
                     turned = cut->turned ? 0.446 + 0.214 * used : 0;
        /* It has to gain more than times are off by. */
        return 1.03 * time + turned + (ksplit > 1 ? 0.504 + (0.328 + 0.253 * used) * ksplit : 0);
    }
    if (meet) return time + 1.34 + 0.268 * area;
    /* Of 400 layers, which have more rows than the products of the fit, these took longer than others. */
    if (cut->tile == TILE_128x128_PAIR && x->m > 256) return 1.05 * time;
    if (tile.blocks > 2 && tile.rows == 128) return 1.03 * time;
    return time + (ksplit > 1 ? 0.509 + 0.22 * ksplit + (0.428 + 0.491 * ksplit) * area : 0);
}
/* Whether pairs of tiles may share k in memory: not where a block of the last pairs has no rows. Of whole tiles and in
 * layers only a k of so many elements repays the meeting. */
enum { GEMM_SM90_MEETING_K = 8192 };
static inline int gemm_sm90_meets(int64_t m) { return vb_ceil_div(m, 128) % 2 == 0; }
/* The fastest cut, by times fitted to what a product takes by the cut whose time is least: that takes 1.03 to 1.05 of
 * the fastest cut's time (docs/experiments/2026-11-28-gemm-plans.md, 2026-11-29-shared-k.md). Pairs of tiles of 128 x
 * 128 alone meet in memory, of an A stored [m][k]. Blocks that share k have two steps each, split ones also a tile. */
static inline gemm_sm90_cut gemm_sm90_cut_of(const vb_matmul_args *x, int multiprocessors) {
    const int64_t steps = vb_ceil_div(x->k, 64);
    const int turns = x->m < x->n && x->m <= GEMM_SM90_MOST_TURNED;
    const vb_matmul_args turned = gemm_sm90_turned(x);
    gemm_sm90_cut best = {TILE_128x128, 1, 0, 0};
    for (int t = 0; t < GEMM_SM90_TILES; t++) {
        const gemm_tile_shape tile = gemm_tile_shape_of(t);
        const int pair = tile.blocks > 1, split = gemm_tile_splits(t),
                  meets = t == TILE_128x128_PAIR && !x->a_transposed && gemm_sm90_meets(x->m),
                  most_ksplit = split || !pair ? GEMM_SM90_MOST_KSPLIT / tile.blocks : meets ? 2 : 1;
        for (int turn = 0; turn <= (split && turns); turn++) {
            const vb_matmul_args *const y = turn ? &turned : x;
            if (split && 2 * y->n <= tile.columns) break; /* half of the tile's columns are of no use */
            const int64_t units = gemm_tile_count(tile, y->m, y->n);
            if (gemm_tile_turns(t) && units <= multiprocessors / tile.blocks) continue;
            if (pair && (y->m <= tile.rows * (tile.blocks - 1) || multiprocessors < tile.blocks * tile.blocks))
                continue;
            const int64_t most =
                split ? multiprocessors / tile.blocks : 8 * vb_clusters_at_once(tile.blocks, multiprocessors);
            /* Some multiprocessors are in no cluster. */
            if ((split || (tile.blocks > 2 && tile.rows > 64)) && units > most) continue;
            for (int ksplit = split && !turn ? 2 : 1; ksplit <= most_ksplit; ksplit++) {
                const int blocks = tile.blocks * ksplit;
                if (ksplit > 1 && (2 * ksplit > steps || (split ? 2 * blocks : ksplit) > multiprocessors ||
                                   units * blocks > (pair ? 1 : 2) * multiprocessors))
                    break;
                gemm_sm90_cut cut = {(gemm_tile)t, ksplit, turn, 0};
                cut.time = gemm_sm90_time(&cut, y, multiprocessors);
                if (best.time == 0 || cut.time < best.time) best = cut;
            }
        }
    }
    return best;
}
/* A stored [m][k], whole tiles, and rows that begin where lines of the L2 do. */
static inline int gemm_sm90_whole(const vb_matmul_args *x) {
    return !x->a_transposed && (x->m <= 128 || x->m % 128 == 0) && x->n % 128 == 0 && x->a_stride % MATMUL_LINE == 0 &&
           x->b_stride % MATMUL_LINE == 0;
}
/* Whether such a product takes gemm_plan.cu's plan in place of the cut. The cuts of a short k that tiles of 64 rows or
 * blocks that share k have took up to 1.25 times as long (docs/experiments/2026-11-29-dense-layers.md). */
static inline int gemm_sm90_planned(const vb_matmul_args *x, const gemm_sm90_cut *cut) {
    if (!gemm_sm90_whole(x)) return 0;
    if (x->m <= 128) return 1;
    return cut->ksplit > 1 ? x->k < GEMM_SM90_MEETING_K : gemm_tile_shape_of(cut->tile).rows < 128;
}

#endif
