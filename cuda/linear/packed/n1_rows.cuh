// n1_rows.cuh: y = W x + bias + add for packed weights whose rows have few tiles, and one row of x: 9.0 and later.
//
// A warp has rows of tiles of its own: it multiplies all tiles of 16 rows, and adds up its four lanes of a row. So no
// warp waits for another but once, when x lies in shared memory, and a block may have more warps than a row has tiles.
// n1_tile.cuh has the arithmetic of a tile.
//   grid     a block for each multiprocessor; as many warps as leave registers to a block of the next kernel
//   shared   a ring of tiles a warp, x as bytes (2.5 an element)
//   moves    the weights once; x once a block, from L2
//   bound    memory bandwidth, and the latency of a warp's instructions
//   measured docs/experiments/2026-11-28-formats.md
#ifndef VB_LINEAR_N1_ROWS_CUH
#define VB_LINEAR_N1_ROWS_CUH

#include "linear/choose_groups.h"
#include "linear/packed/n1_tile.cuh"
#include "linear/packed/tile_ring.cuh"

namespace vb {

struct N1Rows {
    const uint8_t *w;
    const float *x;          // [cols]
    float *y;                // [rows]
    const float *bias, *add; // or null; add may be y
    int rows, tile_rows;
    int tiles, cols; // of a row
    int stages;      // of a warp's ring
};

template <class Block>
__global__ void __launch_bounds__(32 * LINEAR_OWN_ROWS_WARPS, 2) n1_rows_kernel(N1Rows in) {
#if __CUDA_ARCH__ >= 900
    using P = Packed<Block>;
    using V = N1Tile<Block>;
    constexpr int quads = P::depth / 128;
    extern __shared__ __align__(128) uint8_t shared[];
    const int lane = threadIdx.x % 32, warp = __shfl_sync(all_lanes, threadIdx.x / 32, 0), warps = blockDim.x / 32;
    uint8_t *const x = shared + warps * in.stages * P::tile_bytes;
    uint64_t *const barriers = reinterpret_cast<uint64_t *>(x + in.tiles * V::bytes) + warp * in.stages;

    // Rounds of all warps begin at neighbouring multiprocessors, so that the last round is spread over them.
    const int first = warp * gridDim.x + blockIdx.x, count = warps * gridDim.x;
    int ahead_row = first, ahead_tile = 0;
    const auto ahead = [&] { return in.w + ((int64_t)ahead_row * in.tiles + ahead_tile) * P::tile_bytes; };
    const auto advance = [&] {
        if (++ahead_tile == in.tiles) ahead_tile = 0, ahead_row += count;
    };
    TileRing<P::tile_bytes, true> ring;
    ring.start(shared + warp * in.stages * P::tile_bytes, barriers, in.stages, lane);
    for (int i = 0; i < in.stages; i++, advance()) ring.fetch(i, ahead(), ahead_row < in.tile_rows, lane);
    int offsets[4];
#pragma unroll
    for (int c = 0; c < 4; c++) offsets[c] = V::operand_offset(lane, c);

    wait_for_previous_kernel();
#pragma unroll 1
    for (int k = warp; k < in.tiles; k += warps) {
        float4 v[quads];
#pragma unroll
        for (int i = 0; i < quads; i++)
            v[i] = !P::ragged || k * P::depth + 128 * i + 4 * lane < in.cols
                       ? reinterpret_cast<const float4 *>(in.x + k * P::depth)[32 * i + lane]
                       : make_float4(0, 0, 0, 0);
        V::quantize(x + k * V::bytes, v, lane);
    }
    release_next_kernel();
    __syncthreads();

    const uint4 by = P::summand_words();
    const int t = lane % 4;
#pragma unroll 1
    for (int tile_row = first; tile_row < in.tile_rows; tile_row += count) {
        const int row = tile_row * packed_rows + 8 * (t & 1) + lane / 4; // of the lanes t and t + 2, of which t stores
        const bool stores = t < 2 && row < in.rows;
        float addend = stores && in.bias ? in.bias[row] : 0.0f;
        if (stores && in.add) addend += in.add[row];
        float sum[2] = {}; // of the rows lane / 4 and 8 more
#pragma unroll 1
        for (int k = 0; k < in.tiles; k++) {
            N1Operand<Block> operand;
            operand.load(x + k * V::bytes, offsets, lane);
            N1Weights<Block> weights;
            weights.load(ring.wait(), lane);
            ring.refill(ahead(), ahead_row < in.tile_rows, lane);
            advance();
            weights.multiply(sum, operand, by, lane);
        }
        float total = (t & 1 ? sum[1] : sum[0]) + __shfl_xor_sync(all_lanes, t & 1 ? sum[0] : sum[1], 1);
        total += __shfl_xor_sync(all_lanes, total, 2);
        if (stores) in.y[row] = total + addend;
    }
#endif
}

} // namespace vb
#endif
