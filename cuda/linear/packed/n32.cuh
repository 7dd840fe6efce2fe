// n32.cuh: 16 or 32 rows of packed W at a time by 5 to 32 rows of x, on Hopper by 5 to 8 (n32_sm90.cu has the others),
// with an `Out` after it in the same kernel. n32_tile.cuh has the arithmetic of a tile. On Hopper the Out adds an
// adapter's update, for which the kernel that prepares x also multiplies x by V.
//
// An item is PARTS rows of tiles, which share loads of x. The warps of a block share an item and split the columns.
// Blocks stay resident and stride over the items. Each warp's ring of tiles is first filled before the previous kernel
// has ended, and refilled across the one barrier that adds up the warps of an item. A small kernel before writes x as
// N32Tiles, once for all blocks. With an RMS norm the small kernel multiplies by the norm's weights only, and
// 1 / sqrt(mean x^2 + eps) is applied to the sums here.
//
//   grid     as many blocks as stay resident (or items, if fewer), up to 16 warps each
//   shared   the rings, partial sums of each warp (of two items, unless they are many), 1 / rms of each row of x
//   moves    the weights once: rows * cols * 4.5 / 8 bytes for Q4_K; x in 16 bits from L1 and L2
//   bound    instructions (Q4_K: about 280 a tile and 8 rows of x) and latency; where x does not fit in L1, L2
//   measured docs/experiments/2026-11-22-packed-steps.md
#ifndef VB_LINEAR_N32_CUH
#define VB_LINEAR_N32_CUH

#include "arch/sm90.cuh"
#include "linear/linear.cuh"
#include "linear/packed/n32_tile.cuh"
#include "linear/packed/rows_update.cuh"
#include "linear/packed/tile_ring.cuh"

namespace vb {

struct N32Input {
    const uint8_t *x; // [tiles] N32Tiles
    int n, tiles, items, stages; // rows of x; tiles of a row; items of all blocks; stages of a warp's ring
    bool norm;        // the product is with rms_norm(x)
    float eps;
    int cols;         // of x
};

// The sums of each warp in the shared memory of a block, which linear_n32_shared adds up.
template <int TOKENS, int PARTS>
struct N32Memory {
    // of a warp's sums [part][token][row]
    static constexpr int stride = packed_rows + 4, size = PARTS * TOKENS * stride;
    static constexpr int buffers = TOKENS * PARTS <= 32 ? 2 : 1;
    static constexpr int most_warps = TOKENS * PARTS < 32 ? 16 : 8; // by registers
};

// One block's share of the items: index, index + count, ... Out has
//   tiles(item, part)                    where the row of tiles begins
//   Ahead                                the data fetched for a result while it is computed:
//   fetch(&ahead, item, token, row)
//   fetch_more(&ahead, item, token, row) data that need the values of fetch
//   store(ahead, item, token, row, sums) of row `row` of each part's 16, by whole warps: lane ^ 1 has row ^ 1 of the
//                                        same token, which may be n: not to be stored
template <class Block, int TOKENS, int PARTS, class Out>
VB_DEVICE void multiply_items(const N32Input &in, const Out &out, int index, int count) {
#if defined(VB_HAS_MMA)
    using P = Packed<Block>;
    using X = N32Tile<P::depth>;
    using M = N32Memory<TOKENS, PARTS>;
    extern __shared__ __align__(128) uint8_t shared[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, stages = in.stages;
    float *partial = reinterpret_cast<float *>(shared + warps * stages * P::tile_bytes); // [buffers][warps][size]
    float *factors = partial + M::buffers * warps * M::size;                             // [TOKENS]
    uint64_t *barriers = reinterpret_cast<uint64_t *>(factors + TOKENS);

    TileRing<P::tile_bytes, true> ring;
    ring.start(shared + warp * stages * P::tile_bytes, barriers + warp * stages, stages, lane);
    int ahead_item = index, ahead_tile = warp, ahead_part = 0; // the next tile to fetch
    const uint8_t *ahead_row[PARTS] = {};
    auto find_rows = [&] {
        if (ahead_item < in.items)
#pragma unroll
            for (int p = 0; p < PARTS; p++) ahead_row[p] = out.tiles(ahead_item, p);
    };
    find_rows();
    auto address = [&] {
        return (PARTS > 1 && ahead_part ? ahead_row[PARTS - 1] : ahead_row[0]) + ahead_tile * P::tile_bytes;
    };
    auto advance = [&] {
        if (PARTS > 1 && (ahead_part ^= 1)) return;
        ahead_tile += warps;
        if (ahead_tile >= in.tiles) ahead_tile = warp, ahead_item += count, find_rows();
    };
    const bool has_tiles = warp < in.tiles;
#pragma unroll(TOKENS == 8 || PARTS == 1 ? 4 : 1) // the first tiles count, or the shorter code
    for (int s = 0; s < stages; s++, advance()) ring.fetch(s, address(), has_tiles && ahead_item < in.items, lane);
    release_next_kernel();
    wait_for_previous_kernel();
    if (in.norm && (int)threadIdx.x < in.n) {
        float square = 0;
        for (int k = 0; k < in.tiles; k++)
            square += reinterpret_cast<const float *>(in.x + k * (int64_t)(TOKENS * X::token_bytes) +
                                                      X::squares * TOKENS)[threadIdx.x];
        factors[threadIdx.x] = rsqrtf(square / static_cast<float>(P::ragged ? in.cols : in.tiles * P::depth) + in.eps);
    }

    int buffer = 0;
    const int token = threadIdx.x / packed_rows, row = threadIdx.x % packed_rows; // the first sum of this thread
    for (int item = index; item < in.items; item += count) {
        typename Out::Ahead ahead;
        if (token < in.n) out.fetch(&ahead, item, token, row), out.fetch_more(&ahead, item, token, row);
        float sum[PARTS][TOKENS / 8][4] = {};
        for (int k = warp; k < in.tiles; k += warps) {
            N32Weights<Block> tiles[PARTS];
#pragma unroll
            for (int p = 0; p < PARTS; p++, advance()) {
                tiles[p].load(ring.wait(), lane);
                ring.refill(address(), ahead_item < in.items, lane);
                tiles[p].prepare();
            }
            multiply<TOKENS, PARTS>(sum, tiles, in.x + k * (int64_t)(TOKENS * X::token_bytes), lane);
        }
        float *sums = partial + buffer * warps * M::size;
        if (M::buffers == 1) __syncthreads(); // the item before has been added up
#pragma unroll
        for (int p = 0; p < PARTS; p++)
#pragma unroll
            for (int j = 0; j < TOKENS / 8; j++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    sums[warp * M::size + (p * TOKENS + 8 * j + 2 * (lane % 4) + (e & 1)) * M::stride + lane / 4 +
                         8 * (e >> 1)] = sum[p][j][e];
        __syncthreads();
        for (int t = token; t - lane / packed_rows < in.n; t += blockDim.x / packed_rows) {
            if (t != token && t < in.n) out.fetch(&ahead, item, t, row), out.fetch_more(&ahead, item, t, row);
            float total[PARTS] = {};
#pragma unroll 4
            for (int w = 0; w < warps; w++)
#pragma unroll
                for (int p = 0; p < PARTS; p++)
                    total[p] += sums[w * M::size + (p * TOKENS + smaller(t, TOKENS - 1)) * M::stride + row];
            if (in.norm)
#pragma unroll
                for (int p = 0; p < PARTS; p++) total[p] *= factors[smaller(t, TOKENS - 1)];
            out.store(ahead, item, t, row, total);
        }
        buffer = M::buffers - 1 - buffer;
    }
#endif
}

// The same, but empty in code for Hopper, which has no kernel of so many rows, and where no kernel has an update
// (linear_rows_adapt).
template <class Block, int TOKENS, int PARTS, class Out>
VB_DEVICE void n32_product(const N32Input &in, const Out &out, int index, int count) {
#if defined(VB_SM90A)
    constexpr int most = LINEAR_N32_HOPPER;
#else
    constexpr int most = LINEAR_N32;
    if constexpr (decltype(Out::update)::active) return __trap();
#endif
    if constexpr (TOKENS <= most) multiply_items<Block, TOKENS, PARTS>(in, out, index, count);
}

// ---- host side ------------------------------------------------------------------------------------------------------

// Writes n rows of x[n][cols], multiplied by norm[cols] if it is given, as N32Tiles of `tokens` rows into the
// stream's workspace (n32.cu). `h` is null, or what an adapter's x V is made from beside.
vb_status n32_x(uint8_t **tiles, const float *x, const float *norm, bool with_norm, int64_t n, int64_t cols, int depth,
                int tokens, const RowsProjection *h, vb_stream *stream);

// Calls f(constant) with the rows of x that the chosen code is for.
template <class F>
vb_status with_tokens(const linear_items &items, F f) {
    return items.tokens == 8 ? f(Constant<8>()) : items.tokens == 16 ? f(Constant<16>()) : f(Constant<32>());
}

// Calls f(update, projection or null) with the change of products of x, or its norm, that share an adapter.
template <int TOKENS, class F>
vb_status with_late_update(const Adapter &a, int count, const float *x, bool with_norm, const float *norm, float eps,
                           int64_t n, int64_t cols, vb_stream *stream, F f) {
    if constexpr (TOKENS <= LINEAR_N32_HOPPER)
        if (changes_rows(a)) {
            RowsUpdate<true> update;
            RowsProjection h;
            VB_TRY(plan_rows_update(&update, &h, a, count, x, with_norm, norm, eps, n, cols, stream));
            return f(update, &h);
        }
    return f(NoRowsUpdate(), nullptr);
}

} // namespace vb
#endif
