// w2a8_tiles.cu: out = X W^T for up to eight rows of int8 activations and interleaved two-bit weights, by int8 tensor
// cores (vb_w2a8_gemv, 8.0).
//
//   grid     a block has 16 rows of W (TILES times as many); its 2 to 16 warps take turns at the elements
//   shared   a sum a warp and row
//   moves    n k / 4 bytes of weights, read once
//   bound    the weights from some megabytes on, below by latency: twice 64 bytes of each row are on their way to a
//            warp before the kernel before this one has ended
//
// A code counts one too many, so the sum of the activations is subtracted.
// With one row of X all columns of an instruction are the row.

#include "arch/streaming.cuh"
#include "ternary/tiles.cuh"
#include "ternary/w2a8.cuh"

namespace vb {
namespace {

// M rows of X, 1 or up to 8.
template <int M, int TILES>
__global__ void __launch_bounds__(512) w2a8_tiles_kernel(vb_w2a8_gemv_args a) {
    constexpr int units_ahead = TERNARY_TILE_UNITS;
    constexpr int columns = M == 1 ? 1 : 8, rows = 16 * TILES;
    __shared__ int parts[TERNARY_TILE_WARPS][rows * columns], totals[TERNARY_TILE_WARPS][columns];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, group = lane / 4,
        pieces = int(a.row_bytes / 16), units = (pieces + 3) / 4;
    const int64_t first = (int64_t)blockIdx.x * rows;
    const uint4 *from[2 * TILES];
#pragma unroll
    for (int t = 0; t < 2 * TILES; t++) from[t] = row_of(a, first + 8 * t + group);
    uint4 w[units_ahead][2 * TILES];
    const auto load = [&](uint4(&to)[2 * TILES], int unit) {
        const int p = 4 * unit + lane % 4;
#pragma unroll
        for (int t = 0; t < 2 * TILES; t++) to[t] = p < pieces ? load_once(from[t] + p) : make_uint4(0, 0, 0, 0);
    };
    if (!a.settled) wait_for_previous_kernel();
#pragma unroll
    for (int u = 0; u < units_ahead; u++) load(w[u], warp + u * warps);
    if (a.settled) wait_for_previous_kernel();
    release_next_kernel();
    const signed char *const x = static_cast<const signed char *>(a.activations) + (group < a.m ? group * a.k : 0);
    RowTile sums[TILES] = {};
    int total = 0;
    for (int base = warp; base < units; base += units_ahead * warps) {
#pragma unroll
        for (int u = 0; u < units_ahead; u++) {
            const int unit = base + u * warps, p = 4 * unit + lane % 4;
            const PieceElements e = elements_of(p, pieces);
            int4 v[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int64_t at = e.first + j * e.step;
                v[j] = p < pieces && at < a.k ? *reinterpret_cast<const int4 *>(x + at) : make_int4(0, 0, 0, 0);
            }
            if (M == 1) { // each lane sums an eighth of its operand: the other lanes of its column have the rest
                const int64_t at = 256 * (int64_t)unit + 8 * lane;
                if (at < a.k) {
                    const int2 own = *reinterpret_cast<const int2 *>(x + at);
                    dot4<true>(total, 0x01010101u, own.x);
                    dot4<true>(total, 0x01010101u, own.y);
                }
            } else {
#pragma unroll
                for (int j = 0; j < 4; j++)
#pragma unroll
                    for (int i = 0; i < 4; i++) dot4<true>(total, 0x01010101u, word_of(v[j], i));
            }
#pragma unroll
            for (int t = 0; t < TILES; t++) sums[t].add(w[u][2 * t], w[u][2 * t + 1], v);
            if (unit + units_ahead * warps < units) load(w[u], unit + units_ahead * warps);
        }
    }
#pragma unroll
    for (int offset = 1; offset < (M == 1 ? 32 : 4); offset *= 2) total += __shfl_xor_sync(all_lanes, total, offset);
    if (lane % (M == 1 ? 32 : 4) == 0) totals[warp][M == 1 ? 0 : group] = total;
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int *const to = parts[warp] + (16 * t + 8 * half + group) * columns;
            if (M == 1) {
                if (lane % 4 == 0) to[0] = sums[t].sum(half, 0);
            } else {
                to[lane % 4 * 2 % columns] = sums[t].sum(half, 0);
                to[(lane % 4 * 2 + 1) % columns] = sums[t].sum(half, 1);
            }
        }
    __syncthreads();
    for (int i = threadIdx.x; i < rows * columns; i += blockDim.x) {
        int sum = 0;
        for (int o = 0; o < warps; o++) sum += parts[o][i] - totals[o][i % columns];
        const int64_t row = first + i / columns;
        if (row < a.n && i % columns < a.m) store_sum(a, i % columns, row, sum);
    }
}

} // namespace

vb_status w2a8_tiles(const vb_w2a8_gemv_args &a, const ternary_choice &c, vb_stream *stream) {
    const auto kernel = a.m > 1 ? w2a8_tiles_kernel<8, 1>
        : c.tile == 2           ? w2a8_tiles_kernel<1, 2>
                                : w2a8_tiles_kernel<1, 1>;
    return launch_overlapped(stream, (unsigned)c.blocks, c.threads, 0, kernel, a);
}

} // namespace vb
