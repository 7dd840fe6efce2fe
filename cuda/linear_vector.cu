// linear_vector.cu: y[rows] = W x + bias for one row of x, W in the packed layout (the arithmetic is told in
// linear_vector.cuh).
//
// The warps of a block share 16 rows and split the columns: warp w takes the tiles w, w + warps, ... of the row of tiles.
// It quantizes just those parts of x, for itself, while its first tiles are on the way, so that no barrier precedes the
// loop. Blocks stay resident and stride over the rows of tiles; each warp's ring of tiles is refilled across the one barrier
// that a row of tiles needs to add up the warps, and is first filled before the previous kernel has ended (weights depend
// on nothing) - by `early` tiles only: more would delay x, which everybody waits for.
//
//   grid     as many blocks as stay resident (or rows of tiles, if fewer), up to 16 warps each
//   shared   the rings, x as bytes (2.6 an element), 2 x warps x 16 partial sums
//   moves    the weights once: rows * cols * 4.5 / 8 bytes for Q4_K; x once a block, from L2
//   bound    memory bandwidth; below a few MB the latency of x: load, quantize, multiply, store

#include "linear.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear_vector.cuh"

namespace vb {
namespace {

template <class Block>
__global__ void __launch_bounds__(512, 1)
    linear_vector_kernel(float *y, const float *x, const uint8_t *w, const float *bias, int64_t rows, int64_t cols,
                         int stages, int early) {
#if defined(VB_HAS_MMA)
    using P = Packed<Block>;
    using V = VectorTile<Block>;
    extern __shared__ __align__(128) uint8_t shared[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int tiles = int(cols / P::depth), tile_rows = int((rows + P::rows - 1) / P::rows);
    uint8_t *activations = shared + warps * stages * P::tile_bytes;
    float *partial = reinterpret_cast<float *>(activations + tiles * V::bytes); // [2][warps][16]
    uint64_t *barriers = reinterpret_cast<uint64_t *>(partial + 2 * warps * 16);

    TileRing<P::tile_bytes> ring;
    ring.start(shared + warp * stages * P::tile_bytes, barriers + warp * stages, stages, lane);
    int ahead_row = blockIdx.x, ahead = warp; // the next tile to fetch
    auto address = [&] { return w + ((int64_t)ahead_row * tiles + ahead) * P::tile_bytes; };
    auto advance = [&] {
        ahead += warps;
        if (ahead >= tiles) ahead = warp, ahead_row += gridDim.x;
    };
    for (int s = 0; s < early; s++, advance()) ring.fetch(s, address(), ahead_row < tile_rows, lane);
    int offsets[4];
#pragma unroll
    for (int c = 0; c < 4; c++) offsets[c] = V::operand_offset(lane, c);
    wait_for_previous_kernel();
    for (int k = warp; k < tiles; k += warps) V::quantize(activations + k * V::bytes, x + k * P::depth, lane);
    for (int s = early; s < stages; s++, advance()) ring.fetch(s, address(), ahead_row < tile_rows, lane);
    __syncwarp();
    release_next_kernel();

    int buffer = 0, turn = 0; // of partial sums; the warp that adds them up
    for (int row = blockIdx.x; row < tile_rows; row += gridDim.x) {
        float sum[2] = {0, 0};
        for (int k = warp; k < tiles; k += warps, advance()) {
            VectorWeights<Block> weights;
            weights.load(ring.wait(), lane);
            ring.refill(address(), ahead_row < tile_rows, lane);
            weights.multiply(sum, activations + k * V::bytes, offsets, lane);
        }
        float *out = partial + buffer * warps * 16;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            sum[r] += __shfl_xor_sync(all_lanes, sum[r], 1);
            sum[r] += __shfl_xor_sync(all_lanes, sum[r], 2);
        }
        if (lane % 4 == 0) out[warp * 16 + lane / 4] = sum[0], out[warp * 16 + lane / 4 + 8] = sum[1];
        __syncthreads();
        const int64_t out_row = (int64_t)row * P::rows + lane;
        if (warp == turn && lane < 16 && out_row < rows) {
            float total = bias ? bias[out_row] : 0.0f;
#pragma unroll 4
            for (int v = 0; v < warps; v++) total += out[v * 16 + lane];
            y[out_row] = total;
        }
        buffer ^= 1;
        if (++turn == warps) turn = 0;
    }
#endif
}

template <class Block>
vb_status vector_product(const LinearArgs &a, vb_stream *stream) {
    using P = Packed<Block>;
    const int tiles = (int)(a.cols / P::depth), sms = multiprocessors(stream);
    const int64_t tile_rows = ceil_div<int64_t>(a.rows, P::rows), limit = shared_limit(stream);
    // Few rows of tiles: many warps on each, to have enough bytes on the way. Then so many warps that all have equal work.
    const bool few = tile_rows <= 2 * sms;
    const int most = few ? 16 : 8, warps = ceil_div(tiles, ceil_div(tiles, most));
    // Measured on an H200 over the shapes of Qwen2.5: 24 warps a multiprocessor where registers allow and a tile is large;
    // one stage where a warp has but one tile of a row, for more tiles in flight only delay x and each other.
    const int64_t each = larger(1, (P::k4 || P::bits == 8 ? 24 : 16) / warps); // blocks a multiprocessor
    const int want = P::small ? 4 : tiles == warps ? 1 : few ? 2 : 4;
    const int64_t items = ceil_div(tiles, warps) * ceil_div(tile_rows, smaller(tile_rows, sms * each)); // of a warp
    const bool bulk = capability(stream) >= 90;
    auto shared = [&](int stages) {
        return warps * (stages * (P::tile_bytes + 8) + 2 * 16 * (int64_t)sizeof(float)) + tiles * (int64_t)VectorTile<Block>::bytes;
    };
    int stages = bulk ? (int)smaller<int64_t>(want, items) : TileRing<P::tile_bytes>::old_stages;
    while (bulk && stages > 1 && each * (shared(stages) + 1024) > limit) stages--;
    if (shared(stages) > limit) return VB_UNSUPPORTED;
    const int64_t resident = larger<int64_t>(1, smaller<int64_t>(each, limit / (shared(stages) + 1024)));
    return launch_overlapped(stream, (unsigned)smaller(tile_rows, sms * resident), 32 * warps, shared(stages),
                             linear_vector_kernel<Block>, a.y, a.x, (const uint8_t *)a.w, a.bias, a.rows, a.cols, stages,
                             bulk && few && !P::small ? 1 : stages);
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
