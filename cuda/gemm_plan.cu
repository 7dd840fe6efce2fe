// gemm_plan.cu: how Hopper's matrix products are cut up. A model of an SM's time, whose constants were fitted to measured
// times of every tile, with splits 1 to 8, at some 50 shapes on an H200.

#include "gemm_sm90.cuh"

namespace vb {
namespace {

struct TileShape {
    int bm, bn, pair;
};
constexpr TileShape tile_shapes[GEMM_TILES] = {{128, 256, 2}, {128, 256, 1}, {128, 192, 2}, {128, 128, 2},
                                               {128, 128, 1}, {128, 64, 1},  {64, 256, 1},  {64, 128, 1}};

// Cycles.
constexpr double launch_cycles = 5190;
constexpr double tile_cycles = 442;             // until the first stage has come
constexpr double write_cycles = 70.0 / 1024;    // an element of C
constexpr double product_cycles = 1.02 / 2048;  // a multiplication of 16-bit elements
constexpr double l2_bytes_per_cycle = 81;       // to one SM
constexpr double memory_bytes_per_cycle = 9.04; // times the number of SMs
constexpr double reduce_cycles = 701;           // of split tiles
constexpr double reduce_element_cycles = 0.24;

// How many clusters of so many blocks, one block an SM, surely run at once. A cluster lies in one GPC; these have 16 or 18
// SMs, but some parts fewer: a count of SMs / 16 GPCs gave second waves of a single cluster.
int clusters_at_once(int blocks, int multiprocessors) {
    return blocks <= 2 ? multiprocessors / blocks : larger(1, multiprocessors / 16 - 1) * (16 / blocks);
}

double plan_cycles(const GemmPlan &plan, int64_t m, int64_t k, int64_t n, bool split_operands, int multiprocessors) {
    const TileShape t = tile_shapes[plan.tile];
    const int64_t tiles = ceil_div<int64_t>(m, t.bm * t.pair) * ceil_div<int64_t>(n, t.bn);
    const int64_t at_once = clusters_at_once(t.pair * plan.splits, multiprocessors), waves = ceil_div(tiles, at_once);
    const int64_t stored_k = split_operands ? 2 * k : k; // and three products of halves instead of one
    const double steps = (double)ceil_div<int64_t>(ceil_div<int64_t>(stored_k, 64), plan.splits);
    const double multiply = (double)t.bm * t.bn * 64 * product_cycles * (split_operands ? 1.5 : 1);
    const double load = 128.0 * (smaller<int64_t>(t.bm, m) + t.bn / t.pair) / l2_bytes_per_cycle;
    const double tile = steps * larger(multiply, load) + tile_cycles + write_cycles * t.bm * t.bn;
    const double memory = (double)stored_k * n * 2 / (memory_bytes_per_cycle * multiprocessors);
    const double reduce = plan.splits > 1 ? reduce_cycles + reduce_element_cycles * t.bm * t.bn : 0;
    return launch_cycles + larger(waves * (tile + reduce), memory);
}

template <int COUNT>
GemmPlan best_plan(const GemmTile (&tiles)[COUNT], int64_t m, int64_t k, int64_t n, bool split_operands,
                   int multiprocessors) {
    GemmPlan best = {};
    double least = 0;
    for (const GemmTile tile : tiles) {
        const int rows = tile_shapes[tile].bm * tile_shapes[tile].pair;
        for (int splits = 1; splits <= (tile_shapes[tile].pair > 1 ? 1 : 8); splits++) {
            if (splits > 1 && (split_operands ? 2 * k : k) < 2 * 64 * splits) break; // two steps a block at least
            const GemmPlan plan = {tile, splits, 2048 / rows};
            const double cycles = plan_cycles(plan, m, k, n, split_operands, multiprocessors);
            if (least == 0 || cycles < least) best = plan, least = cycles;
        }
    }
    return best;
}

} // namespace

GemmPlan plan_gemm(int64_t m, int64_t k, int64_t n, int multiprocessors) {
    constexpr GemmTile tiles[] = {TILE_128x256_PAIR, TILE_128x256, TILE_128x192_PAIR, TILE_128x128_PAIR,
                                  TILE_128x128,      TILE_128x64,  TILE_64x256,       TILE_64x128};
    return best_plan(tiles, m, k, n, false, multiprocessors);
}

GemmPlan plan_gemm_split(int64_t m, int64_t k, int64_t n, int multiprocessors) {
    constexpr GemmTile tiles[] = {TILE_128x192_PAIR, TILE_128x128_PAIR, TILE_128x128, TILE_128x64};
    return best_plan(tiles, m, k, n, true, multiprocessors);
}

} // namespace vb
