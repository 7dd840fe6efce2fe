// linear_vector.cu: y[rows] = W x + bias for one row of x, W in the packed layout (the arithmetic is told in
// linear_vector.cuh).
//
// The warps of a block share 16 rows and split the columns: warp w takes the tiles w, w + warps, ... of the row of tiles
// (pairs of tiles for the small ones). It quantizes just those parts of x, for itself, while its first tiles are on the way,
// so that no barrier precedes the loop. Blocks stay resident and stride over the rows of tiles; the next tile of weights is
// always in flight, also across the one barrier that a row of tiles needs to add up the warps, and before the previous
// kernel has ended (weights depend on nothing).
//
//   grid     as many blocks as stay resident (or rows of tiles, if fewer), up to 16 warps each
//   shared   x as bytes (2.6 an element), 2 x warps x 16 partial sums
//   moves    the weights once: rows * cols * 4.5 / 8 bytes for Q4_K; x once a block, from L2
//   bound    memory bandwidth; below a few MB the latency of x: load, quantize, multiply, store

#include "linear.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear_vector.cuh"

namespace vb {
namespace {

template <class Block>
__global__ void __launch_bounds__(512, 1)
    linear_vector_kernel(float *y, const float *x, const uint8_t *w, const float *bias, int64_t rows, int64_t cols) {
#if defined(VB_HAS_MMA)
    using P = Packed<Block>;
    using V = VectorTile<Block>;
    constexpr int unroll = P::small ? 2 : 1; // neighbouring tiles that a warp takes at a time
    extern __shared__ __align__(16) uint8_t shared[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int tiles = int(cols / P::depth), tile_rows = int((rows + P::rows - 1) / P::rows);
    const int first = warp * unroll, step = warps * unroll;
    float *partial = reinterpret_cast<float *>(shared); // [2][warps][16]
    uint8_t *activations = shared + 2 * warps * 16 * sizeof(float);

    VectorWeights<Block> next[unroll];
    int ahead_row = blockIdx.x, ahead = first; // the tiles of `next`
    auto fetch_next = [&] {
#pragma unroll
        for (int u = 0; u < unroll; u++)
            if (ahead_row < tile_rows && ahead + u < tiles)
                next[u].load(w + ((int64_t)ahead_row * tiles + ahead + u) * P::tile_bytes, lane);
        ahead += step;
        if (ahead >= tiles) ahead = first, ahead_row += gridDim.x;
    };
    fetch_next();
    int offsets[4];
#pragma unroll
    for (int c = 0; c < 4; c++) offsets[c] = V::operand_offset(lane, c);
    wait_for_previous_kernel();
    for (int k = first; k < tiles; k += step)
#pragma unroll
        for (int u = 0; u < unroll; u++)
            if (k + u < tiles) V::quantize(activations + (k + u) * V::bytes, x + (k + u) * P::depth, lane);
    __syncwarp();
    release_next_kernel();

    int turn = 0; // alternates the buffers of partial sums, and the warps that add them up
    for (int row = blockIdx.x; row < tile_rows; row += gridDim.x, turn++) {
        float sum[2] = {0, 0};
        for (int k = first; k < tiles; k += step) {
            VectorWeights<Block> current[unroll];
#pragma unroll
            for (int u = 0; u < unroll; u++) current[u] = next[u];
            fetch_next();
#pragma unroll
            for (int u = 0; u < unroll; u++)
                if (u == 0 || k + u < tiles)
                    current[u].multiply(sum, activations + (k + u) * V::bytes, offsets, lane);
        }
        float *out = partial + (turn & 1) * warps * 16;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            sum[r] += __shfl_xor_sync(all_lanes, sum[r], 1);
            sum[r] += __shfl_xor_sync(all_lanes, sum[r], 2);
        }
        if (lane % 4 == 0) out[warp * 16 + lane / 4] = sum[0], out[warp * 16 + lane / 4 + 8] = sum[1];
        __syncthreads();
        const int64_t out_row = (int64_t)row * P::rows + lane;
        if (warp == turn % warps && lane < 16 && out_row < rows) {
            float total = bias ? bias[out_row] : 0.0f;
#pragma unroll 4
            for (int v = 0; v < warps; v++) total += out[v * 16 + lane];
            y[out_row] = total;
        }
    }
#endif
}

template <class Block>
vb_status vector_product(const LinearArgs &a, vb_stream *stream) {
    using P = Packed<Block>;
    const int tiles = (int)(a.cols / P::depth), turns = ceil_div(tiles, P::small ? 2 : 1), sms = multiprocessors(stream);
    const int64_t tile_rows = ceil_div<int64_t>(a.rows, P::rows), limit = shared_limit(stream);
    // Few rows of tiles: many warps on each, to have enough bytes on the way. Then so many warps that all have equal work.
    const int most = tile_rows <= 2 * sms ? 16 : 8, per_sm = P::small ? 24 : 16;
    const int warps = ceil_div(turns, ceil_div(turns, most));
    const int64_t shared = 2 * warps * 16 * (int64_t)sizeof(float) + tiles * (int64_t)VectorTile<Block>::bytes;
    if (shared > limit) return VB_UNSUPPORTED;
    const int64_t resident = larger<int64_t>(1, smaller<int64_t>(per_sm / warps, limit / (shared + 1024)));
    return launch_overlapped(stream, (unsigned)smaller(tile_rows, sms * resident), 32 * warps, shared,
                             linear_vector_kernel<Block>, a.y, a.x, (const uint8_t *)a.w, a.bias, a.rows, a.cols);
}

} // namespace

vb_status linear_vector(const LinearArgs &a, vb_dtype type, vb_stream *stream) {
    switch (type) {
#define X(type, Block) case type: return vector_product<Block>(a, stream);
        VB_PACKED_TYPES(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
}

} // namespace vb

#else

namespace vb {
vb_status linear_vector(const LinearArgs &, vb_dtype, vb_stream *) { return VB_UNSUPPORTED; }
} // namespace vb

#endif
