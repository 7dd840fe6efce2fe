// linear_packed.cu: packing of weights at load, and the product of packed weights with few rows of x (the idea is told in
// linear_packed.cuh).

#include "linear.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear_packed.cuh"

namespace vb {
namespace {

// ---- packing ------------------------------------------------------------------------------------------------------------
//
//   grid     one block a tile, a thread gathers the bits of a stored word that Packed::unpack will spread
//   moves    the weights once in, once out; bound by the byte loads of the codes (about 10 ms a GB, once at load)

template <class Block>
__global__ void __launch_bounds__(256) pack_kernel(uint8_t *out, const Block *in, int64_t rows, int64_t cols) {
    wait_for_previous_kernel(); // and no release: linear_packed_kernel reads weights before it waits
    using P = Packed<Block>;
    constexpr int size = BlockSize<Block>::value;
    const int64_t tiles_a_row = cols / P::depth;
    const int64_t row0 = blockIdx.x / tiles_a_row * P::rows, col0 = blockIdx.x % tiles_a_row * P::depth;
    uint8_t *tile = out + blockIdx.x * (int64_t)P::tile_bytes, *scales = tile + P::code_bytes;
    auto block = [&](int row, int k) -> const Block & { return in[(row0 + row) * (cols / size) + (col0 + k) / size]; };

    for (int i = threadIdx.x; i < P::code_bytes / 4; i += blockDim.x) {
        const int lane = i % 32, word = i / 32, lower = word >= P::words;
        const int row = lane / 4 + 8 * lower, t = lane % 4;
        uint32_t packed = 0;
        if (row0 + row < rows)
            for (int b = 0; b < 4; b++) {
                auto value = [&](int v) {
                    const int k = 16 * v + 4 * t + b;
                    return code(block(row, k), k % size);
                };
                packed |= P::pack_byte(word - lower * P::words, value) << (8 * b);
            }
        *reinterpret_cast<uint32_t *>(tile + P::word_offset(lane, word)) = packed;
    }
    for (int row = threadIdx.x; row < P::rows; row += blockDim.x) {
        const bool inside = row0 + row < rows;
        if constexpr (P::small) {
            constexpr int count = P::depth / VB_QK;
            for (int j = 0; j < count; j++)
                reinterpret_cast<vb_half *>(scales)[count * row + j] = inside ? block(row, VB_QK * j).d : 0;
        } else {
            const uint8_t *first = nullptr; // of the 16 bytes to keep: d, dmin and scales of K4, the scales of Q6_K
            if (inside) {
                if constexpr (P::k4) first = reinterpret_cast<const uint8_t *>(&block(row, 0));
                else first = reinterpret_cast<const uint8_t *>(block(row, 0).scales);
            }
            for (int j = 0; j < 16; j++)
                scales[16 * row + (P::k6 ? P::q6_scale_byte(j) : j)] = inside ? first[j] : 0;
            if constexpr (P::k6) reinterpret_cast<vb_half *>(scales + P::scale_bytes)[row] = inside ? block(row, 0).d : 0;
        }
    }
}

template <class Block>
vb_status pack(void *out, const vb_weight *w, vb_stream *stream) {
    using P = Packed<Block>;
    const int64_t tiles = ceil_div<int64_t>(w->rows, P::rows) * (w->cols / P::depth);
    if (w->cols % P::depth != 0 || tiles > INT32_MAX) return VB_UNSUPPORTED;
    return launch_overlapped(stream, (unsigned)tiles, 256, 0, pack_kernel<Block>, (uint8_t *)out, (const Block *)w->data,
                             w->rows, w->cols);
}

// ---- product --------------------------------------------------------------------------------------------------------------
//
// The warps of a block share 16 rows and split the columns: warp w takes the tiles w, w + warps, ... of the row of tiles.
// Blocks stay resident and stride over the rows of tiles; the next tile of weights is always in flight, also across the one
// barrier that a row of tiles needs to add up the warps, and before the previous kernel has ended.
//
//   grid     as many blocks as stay resident (or rows of tiles, if fewer), up to 16 warps each
//   shared   2 x warps x 16 x 4 * GROUPS partial sums
//   moves    the weights once: rows * cols * 4.5 / 8 bytes for Q4_K; x as bytes (2.6 an element) from L1 and L2
//   bound    memory bandwidth up to about 4 rows of x, instructions beyond; below a few MB latency

template <class Block, int GROUPS>
__global__ void __launch_bounds__(512, 1)
    linear_packed_kernel(float *y, const uint8_t *activations, const uint8_t *w, const float *bias, int n, int64_t rows,
                         int64_t cols) {
#if defined(VB_HAS_MMA)
    using P = Packed<Block>;
    extern __shared__ float partial[]; // [2][warps][16][columns]
    constexpr int columns = 4 * GROUPS;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int tiles = int(cols / P::depth), tile_rows = int((rows + P::rows - 1) / P::rows);
    const int activation_bytes = ActivationTile<Block>::bytes(n);

    WeightTile<Block> next, current;
    int ahead_row = blockIdx.x, ahead = warp; // the tile of `next`
    auto fetch_next = [&] {
        if (ahead_row < tile_rows && ahead < tiles)
            next.load(w + ((int64_t)ahead_row * tiles + ahead) * P::tile_bytes, lane);
        ahead += warps;
        if (ahead - warp >= tiles) ahead = warp, ahead_row += gridDim.x; // for all warps at once
    };
    fetch_next();
    wait_for_previous_kernel();
    release_next_kernel();

    int buffer = 0;
    for (int row = blockIdx.x; row < tile_rows; row += gridDim.x, buffer ^= 1) {
        float sum[2 * GROUPS] = {};
        for (int k = warp; k - warp < tiles; k += warps) {
            if (k < tiles) current = next;
            fetch_next();
            if (k < tiles) multiply_tile<Block, GROUPS>(sum, current, activations + (int64_t)k * activation_bytes, n, lane);
        }
        float *out = partial + (buffer * warps + warp) * 16 * columns + lane / 4 * columns + lane % 4;
#pragma unroll
        for (int q = 0; q < GROUPS; q++) out[4 * q] = sum[2 * q], out[8 * columns + 4 * q] = sum[2 * q + 1];
        __syncthreads();
        for (int i = threadIdx.x; i < 16 * n; i += blockDim.x) {
            const int c = i / 16, r = i % 16; // neighbours write neighbours
            const int64_t out_row = (int64_t)row * P::rows + r;
            if (out_row >= rows) continue;
            float total = bias ? bias[out_row] : 0.0f;
            for (int v = 0; v < warps; v++) total += partial[(buffer * warps + v) * 16 * columns + r * columns + c];
            y[c * rows + out_row] = total;
        }
    }
#endif
}

// x as ActivationTiles for the kernel above, one warp a tile and row of x.
template <class Block>
__global__ void __launch_bounds__(32) quantize_kernel(uint8_t *out, const float *x, int n, int64_t cols) {
    wait_for_previous_kernel();
    release_next_kernel();
    using A = ActivationTile<Block>;
    A::quantize_row(out + blockIdx.x * (int64_t)A::bytes(n), x + blockIdx.x * (int64_t)Packed<Block>::depth, cols,
                    blockIdx.y, n, threadIdx.x);
}

template <class Block, int GROUPS>
vb_status product(const LinearArgs &a, vb_stream *stream) {
    using P = Packed<Block>;
    const int n = (int)a.n, tiles = (int)(a.cols / P::depth), sms = multiprocessors(stream);
    const int64_t tile_rows = ceil_div<int64_t>(a.rows, P::rows);
    // Few rows of tiles: many warps on each, to have enough bytes on the way. Then so many warps that all have equal work.
    const int most = tile_rows <= 2 * sms ? 16 : 8;
    const int warps = ceil_div(tiles, ceil_div(tiles, most));
    const unsigned blocks = (unsigned)smaller<int64_t>(tile_rows, sms * (16 / warps));
    void *activations;
    VB_TRY(workspace(&activations, tiles * (int64_t)ActivationTile<Block>::bytes(n), stream));
    VB_TRY(launch_overlapped(stream, dim3(tiles, n), 32, 0, quantize_kernel<Block>, (uint8_t *)activations, a.x, n, a.cols));
    return launch_overlapped(stream, blocks, 32 * warps, 2 * warps * 16 * 4 * GROUPS * (int64_t)sizeof(float),
                             linear_packed_kernel<Block, GROUPS>, a.y, (const uint8_t *)activations, (const uint8_t *)a.w,
                             a.bias, n, a.rows, a.cols);
}

template <class Block>
vb_status linear_packed_type(const LinearArgs &a, vb_stream *stream) {
    static_assert(packed_batch == 16, "four groups");
    return a.n <= 4   ? product<Block, 1>(a, stream)
           : a.n <= 8 ? product<Block, 2>(a, stream)
                      : product<Block, 4>(a, stream);
}

} // namespace

vb_status linear_packed(const LinearArgs &a, vb_dtype type, vb_stream *stream) {
    switch (type) {
#define X(type, Block) case type: return linear_packed_type<Block>(a, stream);
        VB_PACKED_TYPES(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
}

} // namespace vb

extern "C" vb_status vb_cuda_weight_pack(void *out, const vb_weight *w, vb_stream *stream) {
    switch (w->type) {
#define X(type, Block) case type: return vb::pack<Block>(out, w, stream);
        VB_PACKED_TYPES(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
}

#else

namespace vb {
vb_status linear_packed(const LinearArgs &, vb_dtype, vb_stream *) { return VB_UNSUPPORTED; }
} // namespace vb
extern "C" vb_status vb_cuda_weight_pack(void *, const vb_weight *, vb_stream *) { return VB_UNSUPPORTED; }

#endif
