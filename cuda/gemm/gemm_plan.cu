// gemm_plan.cu: how Hopper's matrix products are cut up that choose_gemm.h has no choice for.
//
// Linear layers of more than 128 rows: by choose_gemm.h's times, among the tiles that layers have kernels of.
// Others of more than 128 rows: by a model of an SM's time. Its constants were fitted to the times of every tile, with
// ksplit 1 to 8, at some 40 shapes on an H200. Its choices take 2 % longer than the best cuts on average.
// Fewer rows: such products wait for the memory that holds B, and the plan is the best of those measured.

#include "gemm/gemm_sm90.cuh"

namespace vb {
namespace {

// Cycles.
constexpr double tile_cycles = 1227;           // until the first stage has come, and the like
constexpr double write_cycles = 47.3 / 1024;   // an element of C
constexpr double product_cycles = 1.11 / 2048; // a multiplication of 16-bit elements
constexpr double l2_bytes_per_cycle = 65;      // to one SM
constexpr double crowded_bytes_per_cycle = 32; // to each of all SMs; of 16-bit matrices
constexpr double reduce_cycles = 1125;         // of tiles whose k is shared
constexpr double reduce_element_cycles = 0.28;

double plan_cycles(const GemmPlan &plan, int64_t m, int64_t k, int64_t n, bool two_parts, bool crowded,
                   int multiprocessors) {
    const gemm_tile_shape t = gemm_tile_shape_of(plan.tile);
    const int64_t tiles = ceil_div<int64_t>(m, t.rows * t.blocks) * ceil_div<int64_t>(n, t.columns);
    const int64_t at_once = vb_clusters_at_once(t.blocks * plan.ksplit, multiprocessors);
    const int64_t waves = ceil_div(tiles, at_once);
    const int64_t stored_k = two_parts ? 2 * k : k; // and three products of halves instead of one
    const double steps = (double)ceil_div<int64_t>(ceil_div<int64_t>(stored_k, 64), plan.ksplit);
    const double multiply = (double)t.rows * t.columns * 64 * product_cycles * (two_parts ? 1.5 : 1);
    const double bytes = 128.0 * (smaller<int64_t>(t.rows, m) + t.columns / t.blocks);
    const double reduce = plan.ksplit > 1 ? reduce_cycles + reduce_element_cycles * t.rows * t.columns : 0;
    const auto wave = [&](int64_t clusters) {
        const double taken = crowded ? (double)(clusters * t.blocks * plan.ksplit) / multiprocessors : 0;
        const double load = bytes * larger(1 / l2_bytes_per_cycle, taken / crowded_bytes_per_cycle);
        return steps * larger(multiply, load) + tile_cycles + write_cycles * t.rows * t.columns + reduce;
    };
    return (waves - 1) * wave(at_once) + wave(tiles - (waves - 1) * at_once);
}

template <int COUNT>
GemmPlan best_plan(const gemm_tile (&tiles)[COUNT], int64_t m, int64_t k, int64_t n, bool two_parts, bool crowded,
                   int multiprocessors) {
    GemmPlan best = {};
    double least = 0;
    for (const gemm_tile tile : tiles) {
        const gemm_tile_shape shape = gemm_tile_shape_of(tile);
        for (int ksplit = 1; ksplit <= (shape.blocks > 1 ? 1 : 8); ksplit++) {
            if (ksplit > 1 && (two_parts ? 2 * k : k) < 2 * 64 * ksplit) break; // two steps a block at least
            const GemmPlan plan = {tile, ksplit, 2048 / (shape.rows * shape.blocks)};
            const double cycles = plan_cycles(plan, m, k, n, two_parts, crowded, multiprocessors);
            if (least == 0 || cycles < least) best = plan, least = cycles;
        }
    }
    return best;
}

// Blocks that share a tile's k: up to three. Three eighths of the SMs have to be free, and each block keeps eight
// steps.
int few_ksplit(int64_t tiles, int64_t stored_k, int multiprocessors) {
    int ksplit = 1;
    while (ksplit < 3 && tiles * ksplit < multiprocessors * 3 / 8 && stored_k >= 64 * 8 * (ksplit + 1)) ksplit++;
    return ksplit;
}

// Up to 128 rows. Wide tiles read longer pieces of B's rows, narrow ones occupy more SMs.
GemmPlan plan_few_rows(int64_t m, int64_t k, int64_t n, bool two_parts, int multiprocessors) {
    const int64_t stored_k = two_parts ? 2 * k : k;
    if (m > 64 || two_parts) {
        const int64_t tiles = ceil_div<int64_t>(n, 64);
        if (tiles > multiprocessors) return {TILE_128x128, 1, 1};
        return {TILE_128x64, 2 * tiles <= multiprocessors && stored_k >= 64 * 16 ? 2 : 1, 1};
    }
    const int64_t wide = ceil_div<int64_t>(n, 256);
    if (wide * 4 >= multiprocessors) return {TILE_64x256, 1, 1};
    return {TILE_64x128, few_ksplit(ceil_div<int64_t>(n, 128), stored_k, multiprocessors), 1};
}

} // namespace

GemmPlan plan_gemm(int64_t m, int64_t k, int64_t n, int multiprocessors) {
    if (m <= 128) return plan_few_rows(m, k, n, false, multiprocessors);
    constexpr gemm_tile tiles[] = {TILE_128x256_PAIR, TILE_128x256, TILE_128x192_PAIR, TILE_128x128_PAIR,
                                   TILE_128x128,      TILE_128x64,  TILE_64x256,       TILE_64x128};
    // Fewer tiles than two rounds read the same rows at the same time.
    const bool crowded = ceil_div<int64_t>(m, 128) * ceil_div<int64_t>(n, 128) >= 2 * multiprocessors;
    const GemmPlan plan = best_plan(tiles, m, k, n, false, crowded, multiprocessors);
    // Two blocks of a tile with many steps each wait for the L2; a pair asks the L2 for three quarters as much.
    // Meeting in memory costs pairs more than meeting in a cluster (docs/experiments/2026-11-22-gemm.md).
    const bool pairs = gemm_sm90_meets(m) && k >= GEMM_SM90_MEETING_K;
    if (plan.tile == TILE_128x128 && plan.ksplit == 2 && pairs) return {TILE_128x128_PAIR, 2, plan.group_rows / 2};
    return plan;
}

// A few tiles more than whole rounds cost a round, so pairs have the width that fills the last round best.
GemmPlan plan_linear(int64_t m, int64_t k, int64_t n, int multiprocessors) {
    if (m <= 128) return plan_few_rows(m, k, n, false, multiprocessors);
    constexpr gemm_tile tiles[] = {TILE_128x256_PAIR,  TILE_128x240_PAIR,  TILE_128x224_PAIR,  TILE_128x208_PAIR,
                                   TILE_128x192_PAIR,  TILE_128x176_PAIR,  TILE_128x168_PAIR,  TILE_128x160_PAIR,
                                   TILE_128x144_PAIR,  TILE_128x128_PAIR,  TILE_128x256,       TILE_128x128,
                                   TILE_128x64,        TILE_128x192_TURNS, TILE_128x168_TURNS, TILE_128x144_TURNS};
    vb_matmul_args x = {};
    x.type = VB_F16, x.m = m, x.k = k, x.n = n, x.batch = 1, x.a_stride = x.b_stride = k, x.c_stride = n;
    x.b_transposed = 1;
    gemm_sm90_cut best = {};
    for (const gemm_tile tile : tiles) {
        const gemm_tile_shape shape = gemm_tile_shape_of(tile);
        const bool pair = shape.blocks > 1,
                   meets = tile == TILE_128x128_PAIR && gemm_sm90_meets(m) && k >= GEMM_SM90_MEETING_K;
        const int64_t units = gemm_tile_count(shape, m, n);
        if (gemm_tile_turns(tile) && units <= multiprocessors / shape.blocks) continue;
        for (int ksplit = 1; ksplit <= (pair ? meets ? 2 : 1 : GEMM_SM90_MOST_KSPLIT); ksplit++) {
            const int64_t blocks = units * shape.blocks * ksplit;
            if (ksplit > 1 && (k < 2 * 64 * ksplit || blocks > (pair ? 1 : 2) * multiprocessors)) break;
            gemm_sm90_cut cut = {tile, ksplit, 0, 0};
            cut.time = gemm_sm90_time(&cut, &x, multiprocessors);
            if (best.time == 0 || cut.time < best.time) best = cut;
        }
    }
    const gemm_tile_shape tile = gemm_tile_shape_of(best.tile);
    return {best.tile, best.ksplit, 2048 / (tile.rows * tile.blocks)};
}

GemmPlan plan_gemm_3xf16(int64_t m, int64_t k, int64_t n, int multiprocessors) {
    if (m <= 128) return plan_few_rows(m, k, n, true, multiprocessors);
    constexpr gemm_tile tiles[] = {TILE_128x192_PAIR, TILE_128x128_PAIR, TILE_128x128, TILE_128x64};
    return best_plan(tiles, m, k, n, true, false, multiprocessors);
}

} // namespace vb
