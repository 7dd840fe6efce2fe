// n1_rows.cuh: y = W x + bias + add for packed weights and one row of x, where warps of a block have rows of tiles of
// their own: 9.0 and later.
//
// A team of one to four warps multiplies all tiles of 16 rows, each warp a part of them. A warp adds up its four lanes
// of a row, and a team its warps. So no warp waits for another team but once, when x lies in shared memory, and a block
// may have more warps than a row has tiles. n1_tile.cuh has the arithmetic of a tile.
//   grid     a block for each multiprocessor; as many warps as leave registers to a block of the next kernel
//   shared   a ring of tiles a warp, x as bytes (2.5 an element), sums of each warp
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
    int tiles, cols;   // of a row
    int stages, share; // of a warp's ring; warps of a team
    unsigned inverse;  // (65536 + share - 1) / share
    int each;          // tiles of a warp, of which the last one of a team may have fewer
};

// Where the warps of a team meet, each thread of them: a barrier in shared memory.
struct Team {
    uint64_t *barrier;
    uint32_t phase = 0;

    VB_DEVICE void start(int threads) const { barrier_init(barrier, threads); }
    VB_DEVICE void meet() {
        barrier_arrive(barrier);
        barrier_wait(barrier, phase);
        phase ^= 1;
    }
};

template <class Block>
constexpr int own_rows_step = linear_own_rows_step(Packed<Block>::format);

template <class Block>
__global__ void __launch_bounds__(32 * LINEAR_OWN_ROWS_WARPS, 2) n1_rows_kernel(N1Rows in) {
#if __CUDA_ARCH__ >= 900
    using P = Packed<Block>;
    using V = N1Tile<Block>;
    constexpr int quads = P::depth / 128, step = own_rows_step<Block>, stage_bytes = step * P::tile_bytes;
    extern __shared__ __align__(128) uint8_t shared[];
    const int lane = threadIdx.x % 32, warp = __shfl_sync(all_lanes, threadIdx.x / 32, 0), warps = blockDim.x / 32;
    uint8_t *const x = shared + warps * in.stages * stage_bytes;
    uint64_t *const barriers = reinterpret_cast<uint64_t *>(x + in.tiles * V::bytes);
    const int number = warp * in.inverse >> 16, part = warp - number * in.share, teams = warps * in.inverse >> 16;
    Team team = {barriers + warps * in.stages + number};
    float *const sums = reinterpret_cast<float *>(barriers + warps * (in.stages + 1)); // [warps][2][16]
    const int begin = part * in.each, end = smaller(begin + in.each, in.tiles); // of this warp

    // Rounds of all teams begin at neighbouring multiprocessors, so that the last round is spread over them.
    const int first = number * gridDim.x + blockIdx.x, count = teams * gridDim.x;
    int ahead_row = first, ahead_tile = begin;
    const auto ahead = [&] { return in.w + ((int64_t)ahead_row * in.tiles + ahead_tile) * P::tile_bytes; };
    const auto ahead_bytes = [&] { return step > 1 ? smaller(step, end - ahead_tile) * P::tile_bytes : P::tile_bytes; };
    const auto advance = [&] {
        if ((ahead_tile += step) >= end) ahead_tile = begin, ahead_row += count;
    };
    TileRing<stage_bytes, true> ring;
    if (in.share > 1 && part == 0 && lane == 0) team.start(32 * in.share);
    ring.start(shared + warp * in.stages * stage_bytes, barriers + warp * in.stages, in.stages, lane);
    for (int i = 0; i < in.stages; i++, advance())
        ring.fetch(i, ahead(), ahead_row < in.tile_rows, lane, ahead_bytes());
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
        const bool stores = t < 2 && part == 0 && row < in.rows;
        float addend = stores && in.bias ? in.bias[row] : 0.0f;
        if (stores && in.add) addend += in.add[row];
        float sum[2] = {}; // of the rows lane / 4 and 8 more
#pragma unroll 1
        for (int k = begin; k < end; k += step) {
            N1Weights<Block> weights[step];
            const uint8_t *const tile = ring.wait();
#pragma unroll
            for (int i = 0; i < step; i++) weights[i].load(tile + i * P::tile_bytes, lane);
            ring.refill(ahead(), ahead_row < in.tile_rows, lane, ahead_bytes());
            advance();
#pragma unroll
            for (int i = 0; i < step; i++)
                if (i == 0 || k + i < end) {
                    N1Operand<Block> operand;
                    operand.load(x + (k + i) * V::bytes, offsets, lane);
                    weights[i].multiply(sum, operand, by, lane);
                }
        }
        float total = (t & 1 ? sum[1] : sum[0]) + __shfl_xor_sync(all_lanes, t & 1 ? sum[0] : sum[1], 1);
        total += __shfl_xor_sync(all_lanes, total, 2);
        if (in.share > 1) { // two places, for the sums of the row before may be read still
            float *const own = sums + warp * 32 + team.phase * 16 + 8 * (t & 1) + lane / 4;
            if (t < 2) *own = total;
            team.meet();
#pragma unroll 1
            for (int i = 1; i < (part == 0 ? in.share : 0); i++) total += own[32 * i];
        }
        if (stores) in.y[row] = total + addend;
    }
#endif
}

} // namespace vb
#endif
