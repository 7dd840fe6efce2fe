// many_sm90.cuh: the kernel of many.cu on Hopper.
//
// Eight warps dequantize 16 rows of W each into registers, operand A of wgmma, while the instructions of the stage
// before are at work. With SwiGLU a warp has eight rows of gate and the same rows of up, so that a lane has both sums
// of a result. A ninth warp fetches x, operand B, into a ring of stages of 64 or 128 columns. Three warps read the
// scales of the sums, and even x out where it has exponents (HalfRows), which is rare; of 24 registers they spill some.
// The two groups of four warps multiply by the same x and finish their rows by themselves (sm90_store.cuh).
// Blocks may be in pairs, at neighbouring rows of W: each block of a pair fetches half of x for both.
//
//   shared   stages of 16 to 32 KiB, 200 KiB in all; 18 KiB for results
//   measured docs/experiments/2026-11-22-packed-many.md
#ifndef VB_LINEAR_MANY_SM90_CUH
#define VB_LINEAR_MANY_SM90_CUH

#include "linear/packed/sm90_stage.cuh"
#include "linear/packed/sm90_store.cuh"

#ifdef VB_WITH_SM90

namespace vb {

constexpr int wgmma_threads = unit_threads + 128; // registers change hands by four warps
constexpr int helpers = 96;                          // threads beside the multiplying warps and the fetching warp

template <int TOKENS>
struct WgmmaShape {
    static constexpr int tokens = TOKENS;
    static constexpr int boxes = TOKENS > 128 ? 1 : 2, columns = boxes * sm90::tile_width; // of x in a stage
    static constexpr int box_bytes = TOKENS * sm90::row_bytes, stage_bytes = boxes * box_bytes,
                         stages = (200 << 10) / stage_bytes;
    static constexpr int registers = TOKENS == 256 ? 240 : TOKENS == 176 ? 232 : 216,
                         helper_registers = 3 * 168 - 2 * registers;
    // where they begin
    static constexpr int staging = stages * stage_bytes, inverse = staging + unit_groups * staging_bytes;
    static constexpr int places = inverse + TOKENS * 4, barriers = places + TOKENS * 8;
    static constexpr int shared = barriers + (3 * stages + 2) * 8;
};

#ifdef VB_SM90A

// Stored words FIRST.. of one row of a lane, by the widest loads.
template <class Block, int FIRST>
VB_DEVICE void load_words(uint32_t *words, const uint8_t *tile, int lane) {
    using P = Packed<Block>;
    constexpr int end = FIRST + P::words;
#pragma unroll
    for (int i = FIRST; i < end; i++) {
        const int four = i / 4 * 4, two = i / 2 * 2;
        const uint8_t *const at = tile + P::word_offset(lane, i);
        uint32_t *const to = words + i - FIRST;
        if (four >= FIRST && four + 4 <= end && four < 4 * P::quads) {
            if (i > four) continue;
            const uint4 v = load_once(reinterpret_cast<const uint4 *>(at));
            to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
        } else if (two >= FIRST && two + 2 <= end) {
            if (i > two) continue;
            const uint2 v = __ldg(reinterpret_cast<const uint2 *>(at));
            to[0] = v.x, to[1] = v.y;
        } else {
            to[0] = __ldg(reinterpret_cast<const uint32_t *>(at));
        }
    }
}

// Row g + 8 * half of a tile of gate and the same row of the tile of up, in the places of a tile's rows g and g + 8.
// So the lane has both sums of SwiGLU.
template <class Block>
VB_DEVICE void load_gate_and_up(LaneTile<Block> &to, const uint8_t *gate, int64_t up, int half, int lane) {
    using P = Packed<Block>;
    const int row = lane / 4 + 8 * half;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const uint8_t *const tile = r ? gate + up : gate, *const scales = tile + P::code_bytes;
        if constexpr (P::words % 4 == 0)
            load_words<Block, 0>(to.words + r * P::words, tile + half * (P::words / 4 * 512), lane);
        else if (half) load_words<Block, P::words>(to.words + r * P::words, tile, lane);
        else load_words<Block, 0>(to.words + r * P::words, tile, lane);
        if constexpr (P::small) {
            const uint2 v = load_once(reinterpret_cast<const uint2 *>(scales) + row);
            if (r) to.scales[0].z = v.x, to.scales[0].w = v.y;
            else to.scales[0].x = v.x, to.scales[0].y = v.y;
            if constexpr (P::mins) {
                const uint2 m = load_once(reinterpret_cast<const uint2 *>(scales + P::scale_bytes) + row);
                if (r) to.scales[1].z = m.x, to.scales[1].w = m.y;
                else to.scales[1].x = m.x, to.scales[1].y = m.y;
            }
        } else {
            to.scales[r] = load_once(reinterpret_cast<const uint4 *>(scales) + row);
        }
        if constexpr (P::own_table) to.table[r] = load_once(reinterpret_cast<const uint4 *>(tile + P::table_at));
        if constexpr (P::k2 || P::k6)
            to.d[r] = __ldg(reinterpret_cast<const typename P::RowScale *>(scales + P::scale_bytes) + row);
    }
}

#endif

// The work of a block where the tiles of the units after the whole ones are spread over all blocks: first an equal part
// of these tiles, which lies in one or two units, then whole units.
struct Spread {
    int block = 0, blocks = 1, first = 0, end = 0; // its tiles, of all of them
    int nth = 0, pieces = 0;                       // the unit they begin in, and how many they lie in

    VB_DEVICE Spread(const Product &p, int block, int blocks) : block(block), blocks(blocks) {
        if (!p.spread) return;
        const int all = tiles(p);
        first = all * block / blocks, end = all * (block + 1) / blocks;
        nth = first / p.k_tiles, pieces = ceil_div(end, p.k_tiles) - nth;
    }
    static VB_DEVICE int tiles(const Product &p) { return (ceil_div(p.tile_rows, unit_warps) - p.whole) * p.k_tiles; }
    VB_DEVICE Unit piece(const Product &p, int i) const {
        const int all = tiles(p), unit = nth + i, begin = unit * p.k_tiles;
        const auto block_of = [&](int tile) { return ((tile + 1) * blocks - 1) / all; };
        Unit u;
        u.rows = p.whole + unit, u.tokens = 0, u.nth = unit;
        u.k0 = larger(first - begin, 0), u.k1 = smaller(end - begin, p.k_tiles);
        const int from = block_of(begin);
        u.share = block - from, u.ksplit = block_of(begin + p.k_tiles - 1) - from + 1;
        return u;
    }
};

// A product whose sum over ranks may follow (runtime/early.cuh).
struct EarlyProduct : Product {
    int first_rows = 0, all_rows = 0; // the block of 128 rows of W that comes first, and how many there are; or 0
    unsigned *done = nullptr;         // counts groups of warps that have stored one of the first `early` units, or null
    int early = 0;
    Mail mail = {}; // of ranks that all get y for its sum, in place of y (Sender); or of none
};

template <class Block, int TOKENS, bool SWIGLU>
__global__ void __launch_bounds__(wgmma_threads, 1)
    wgmma_kernel(VB_IN_PLACE CUtensorMap x, VB_IN_PLACE EarlyProduct product) {
#ifdef VB_SM90A
    using P = Packed<Block>;
    using S = WgmmaShape<TOKENS>;
    extern __shared__ __align__(1024) uint8_t shared[];
    uint64_t *const full = reinterpret_cast<uint64_t *>(shared + S::barriers), *const empty = full + S::stages,
                    *const even = empty + S::stages;
    uint64_t *const inverse_known = even + S::stages, *const inverse_read = inverse_known + 1;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, pair = product.pair,
              cluster = larger(pair, product.cluster);
    const int rank = cluster > 1 ? sm90::cluster_rank() : 0;
    const auto unit_at = [&](int block) { return pair > 1 ? block >> 1 : product.shares.of(block); };
    constexpr bool spreads = SWIGLU && TOKENS == 64;
    const int step = unit_at(gridDim.x);
    const Spread spread(product, spreads ? blockIdx.x : 0, spreads ? gridDim.x : 1);
    const int first_unit = unit_at(blockIdx.x) - (spreads ? spread.pieces * step : 0);
    constexpr int stages_a_tile = P::depth / S::columns;
    const auto unit_of = [&](int u) {
        if (spreads && u < 0) return spread.piece(product, spread.pieces + (u - spread.block) / step);
        Unit unit = Unit::of(product, u, rank);
        unit.rows += product.first_rows;
        if (product.first_rows && unit.rows >= product.all_rows) unit.rows -= product.all_rows;
        return unit;
    };

    LaneTile<Block> next;
    const uint8_t *tile = nullptr;
    const int64_t up = SWIGLU ? product.matrices[1].w - product.matrices[0].w : 0;
    // With SwiGLU a warp has half of the rows of a tile of gate and the same rows of up, else the rows of a tile.
    const auto tile_row_of = [&](const Unit &unit) { return (unit.rows * unit_warps + warp) / (SWIGLU ? 2 : 1); };
    const auto load = [&] {
        if constexpr (SWIGLU) load_gate_and_up<Block>(next, tile, up, warp % 2, lane);
        else next.template load<true>(tile, lane);
    };
    const auto begin = [&](const Unit &unit) { // fetches the first tile of weights
        if constexpr (SWIGLU)
            tile =
                product.matrices[0].w +
                ((int64_t)smaller(tile_row_of(unit), product.matrices[0].tile_rows - 1) * product.k_tiles + unit.k0) *
                    P::tile_bytes;
        else tile = first_tile<Block, false>(product, unit, warp);
        load();
    };
    if (warp < unit_warps) begin(unit_of(first_unit));
    if (lane == 0) {
#pragma unroll 1
        for (int s = warp; s < S::stages; s += wgmma_threads / 32)
            sm90::barrier_init(full + s, 1), sm90::barrier_init(empty + s, pair * unit_warps),
                sm90::barrier_init(even + s, helpers);
        if (warp == unit_warps) {
            sm90::prefetch_map(&x);
            sm90::barrier_init(inverse_known, helpers), sm90::barrier_init(inverse_read, unit_warps);
        }
        sm90::barrier_init_fence();
    }
    if (pair > 1) sm90::cluster_sync();
    else __syncthreads();
    if (!product.beside) wait_for_previous_kernel();
    release_next_kernel();

    int stage = 0;
    unsigned phase = 0;
    const auto advance = [&] {
        if (++stage == S::stages) stage = 0, phase ^= 1;
    };
    float *const inverse = reinterpret_cast<float *>(shared + S::inverse);
    int2 *const places = reinterpret_cast<int2 *>(shared + S::places);
    // The values of a unit in `inverse` come with every unit, or with the first unit for all.
    const auto comes = [&](int u) { return u == first_unit || !product.same_tokens; };
    if (warp >= unit_warps) {
        sm90::registers_shrink<S::helper_registers>();
        // Loops whose time does not count are not unrolled: it would double the kernel's code.
        if (warp == unit_warps && lane == 0) // fetches x
#pragma unroll 1
            for (int u = first_unit; u < product.units; u += step) {
                const Unit unit = unit_of(u);
                const int token = unit.tokens * TOKENS;
#pragma unroll 1
                for (int k = unit.k0 * stages_a_tile; k < unit.k1 * stages_a_tile; k++, advance()) {
                    sm90::barrier_wait(empty + stage, phase ^ 1);
                    sm90::barrier_expect(full + stage, S::stage_bytes);
#pragma unroll
                    for (int box = 0; box < S::boxes; box++) {
                        uint8_t *const to = shared + stage * S::stage_bytes + box * S::box_bytes;
                        const int column = k * S::columns + box * sm90::tile_width;
                        if (pair > 1)
                            sm90::copy_box_multicast(to + rank * (S::box_bytes / 2), &x, full + stage, column,
                                                     token + rank * (TOKENS / 2), 3);
                        else sm90::copy_box(to, &x, full + stage, column, token);
                    }
                }
            }
        if (warp > unit_warps) { // prepare the scales of sums, and x where it is uneven
            const int thread = threadIdx.x - unit_threads - 32;
            const bool uneven = product.uneven();
            unsigned turn = 0; // of the unit
#pragma unroll 1
            for (int u = first_unit; u < product.units && (comes(u) || uneven); u += step, turn ^= 1) {
                const Unit unit = unit_of(u);
                const int64_t token0 = (int64_t)unit.tokens * TOKENS;
                if (comes(u)) {
                    sm90::barrier_wait(inverse_read, turn ^ 1);
                    load_inverse<TOKENS>(inverse, product, token0, uneven, thread, helpers);
                    if constexpr (TOKENS < 256 && !SWIGLU)
                        if (product.heads.positions)
                            for (int at = thread; at < TOKENS && token0 + at < product.n; at += helpers)
                                places[at] = product.heads.place((int)token0 + at);
                    sm90::barrier_arrive(inverse_known);
                }
                if (!uneven) continue;
                int exponents[ceil_div(TOKENS, helpers)];
#pragma unroll 1
                for (int i = 0; i < ceil_div(TOKENS, helpers); i++) {
                    const int64_t token = token0 + i * helpers + thread;
                    exponents[i] = token < product.n ? row_exponent(product, token) : 0;
                }
#pragma unroll 1
                for (int k = unit.k0 * stages_a_tile; k < unit.k1 * stages_a_tile; k++, advance()) {
                    sm90::barrier_wait(full + stage, phase);
                    even_out<S, helpers>(product, shared + stage * S::stage_bytes, k * S::boxes, token0, exponents,
                                         thread);
                    sm90::shared_writes_fence();
                    sm90::barrier_arrive(even + stage);
                }
            }
        }
        __syncwarp();
        if (product.cluster > 1) sm90::cluster_sync(); // in store_lone
        if (cluster > 1) sm90::cluster_end();
        return;
    }
    sm90::registers_grow<S::registers>();
    uint64_t *const ready = product.uneven() ? even : full;
    const int group = group_of_thread();
    const auto before = [&] { return stage == 0 ? S::stages - 1 : stage - 1; };
    const auto release = [&](int at) { // of each block of a pair
        if (lane < pair) sm90::barrier_arrive_remote(empty + at, pair > 1 ? lane : rank);
    };
    uint8_t *const staging = shared + S::staging + group * staging_bytes;
    unsigned turn = 0; // of the unit
    for (int u = first_unit; u < product.units; u += step, turn ^= 1) {
        const Unit unit = unit_of(u);
        float c[TOKENS / 2] = {};
        uint32_t a[2][batch_of<S, Block>][4];
        for (int k = unit.k0; k < unit.k1; k++) {
            ManyTile<Block> work;
            work.unpack(next);
            tile += P::tile_bytes;
            if (k + 1 < unit.k1) load();
#pragma unroll
            for (int part = 0; part < stages_a_tile; part++) {
                multiply_stage<S>(
                    c, a, work, part, sm90::describe(shared + stage * S::stage_bytes, 0),
                    [&] { sm90::barrier_wait(ready + stage, phase); },
                    [&] {
                        if (part > 0 || k > unit.k0) release(before());
                    });
                advance();
            }
        }
        sm90::wgmma_wait<0>();
        release(before());
        if (u + step < product.units) begin(unit_of(u + step));
        if (product.h && unit.share == 0) {
            const int64_t token0 = (int64_t)unit.tokens * TOKENS;
            int there = tile_row_of(unit);
            sm90::settle(c);
            if (product.late) wait_for_previous_kernel();
            if constexpr (SWIGLU) {
                const int64_t row = (int64_t)there * packed_rows + warp % 2 * 8 + lane / 4;
                add_update<TOKENS, true>(product, c, {product.matrices, row}, {product.matrices + 1, row}, token0);
            } else if (there < product.tile_rows) {
                const Matrix &m = product.find<false>(there);
                const int64_t row = (int64_t)there * packed_rows + lane / 4;
                add_update<TOKENS, false>(product, c, {&m, row}, {&m, row + 8}, token0);
            }
        }
        if (comes(u)) sm90::barrier_wait(inverse_known, turn);
        if constexpr (TOKENS < 256 && !SWIGLU)
            if (product.cluster > 0) {
                store_lone<TOKENS>(product, unit, c, inverse, places, reinterpret_cast<float *>(shared), rank,
                                   product.mail);
                break;
            }
        if constexpr (spreads) {
            if (!add_shares<TOKENS, unit_threads, true>(product, unit, c)) continue;
        } else if constexpr (!SWIGLU)
            if (!add_shares<TOKENS>(product, unit, c)) {
                if (lane == 0 && !product.same_tokens) sm90::barrier_arrive(inverse_read);
                continue;
            }
        if constexpr (SWIGLU) {
            combine_gate_and_up<TOKENS>(c, inverse);
            __shared__ __align__(8) unsigned largest[TOKENS];
            if (product.to.x) store_gated<TOKENS>(product, unit, c, staging, largest);
            else store_swiglu_rows<TOKENS>(product, unit, c, reinterpret_cast<float *>(staging));
        } else store_sums_staged<TOKENS>(product, unit, c, inverse, reinterpret_cast<float *>(staging));
        __syncwarp();
        if (lane == 0 && !product.same_tokens) sm90::barrier_arrive(inverse_read);
        group_sync(); // all have read the memory that the next unit replaces
        if constexpr (!SWIGLU)
            if (product.done && u < product.early && threadIdx.x % group_threads == 0) {
                __threadfence();
                atomicAdd(product.done, 1u);
            }
    }
    if (cluster > 1) sm90::cluster_end(); // others may still send to this block, or read its sums
    if (product.beside) wait_for_previous_kernel();
#endif
}

} // namespace vb

#endif // VB_WITH_SM90
#endif
