// linear_packed.cu: packing of weights at load, and the product of packed weights with few rows of x (the idea is told in
// linear_packed.cuh).

#include "linear.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear_packed.cuh"
#include "linear_vector.cuh"

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
// Blocks stay resident and stride over the rows of tiles; each warp's ring of tiles is refilled across the one barrier that a
// row of tiles needs to add up the warps, and is first filled before the previous kernel has ended (weights depend on nothing).
//
//   grid     as many blocks as stay resident (or rows of tiles, if fewer), up to 16 warps each
//   shared   the rings, 2 x warps x 16 x TOKENS partial sums
//   moves    the weights once: rows * cols * 4.5 / 8 bytes for Q4_K; x in 16 bits from L1 and L2
//   bound    memory bandwidth; below a few MB latency; where x does not fit in L1, L2
//   measured on an H200, Q4_K, n = 1 (linear_vector.cu), 8, 16, 32: 2048 x 2048 2.6, 4.2, 5.0, 6.6 us;
//            2048 x 11008 5.8, 8.6, 9.9, 14.9 us; 11008 x 2048 5.7, 9.1, 10.8, 17.1 us

template <class Block, int TOKENS>
__global__ void __launch_bounds__(512, 1)
    linear_packed_kernel(float *y, const uint8_t *x, const float *inverse, const uint8_t *w, const float *bias, int n,
                         int64_t rows, int64_t cols, int stages) {
#if defined(VB_HAS_MMA)
    using P = Packed<Block>;
    extern __shared__ __align__(128) uint8_t shared[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int tiles = int(cols / P::depth), tile_rows = int((rows + P::rows - 1) / P::rows);
    float *partial = reinterpret_cast<float *>(shared + warps * stages * P::tile_bytes); // [2][warps][TOKENS][16 and 4]
    constexpr int stride = P::rows + 4, size = TOKENS * stride;
    uint64_t *barriers = reinterpret_cast<uint64_t *>(partial + 2 * warps * size);

    TileRing<P::tile_bytes> ring;
    ring.start(shared + warp * stages * P::tile_bytes, barriers + warp * stages, stages, lane);
    int ahead_row = blockIdx.x, ahead = warp; // the next tile to fetch
    auto address = [&] { return w + ((int64_t)ahead_row * tiles + ahead) * P::tile_bytes; };
    auto advance = [&] {
        ahead += warps;
        if (ahead >= tiles) ahead = warp, ahead_row += gridDim.x;
    };
    for (int s = 0; s < stages; s++, advance()) ring.fetch(s, address(), ahead_row < tile_rows, lane);
    release_next_kernel();
    wait_for_previous_kernel();

    int buffer = 0; // of partial sums
    for (int row = blockIdx.x; row < tile_rows; row += gridDim.x, buffer ^= 1) {
        float sum[TOKENS / 8][4] = {};
        for (int k = warp; k < tiles; k += warps, advance()) {
            LaneTile<Block> tile;
            tile.template load<false>(ring.wait(), lane);
            ring.refill(address(), ahead_row < tile_rows, lane);
            const uint8_t *activations = x + k * (int64_t)(TOKENS * ActivationTile<Block>::token_bytes);
            WeightTile<Block>(tile).template multiply<TOKENS>(sum, activations, lane);
        }
        float *out = partial + buffer * warps * size;
#pragma unroll
        for (int j = 0; j < TOKENS / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                out[warp * size + (8 * j + 2 * (lane % 4) + (e & 1)) * stride + lane / 4 + 8 * (e >> 1)] = sum[j][e];
        __syncthreads();
        for (int i = threadIdx.x; i < P::rows * n; i += blockDim.x) {
            const int token = i / P::rows, r = i % P::rows; // neighbours write neighbours
            const int64_t out_row = (int64_t)row * P::rows + r;
            if (out_row >= rows) continue;
            float total = 0;
#pragma unroll 4
            for (int v = 0; v < warps; v++) total += out[v * size + token * stride + r];
            y[token * rows + out_row] = fmaf(total, inverse[token], bias ? bias[out_row] : 0.0f);
        }
    }
#endif
}

// x as ActivationTiles, each row scaled by a power of two so that nothing overflows, zeros from row n on. One block a row.
template <class Block>
__global__ void __launch_bounds__(1024, 1) activations_kernel(uint8_t *out, float *inverse, const float *x, int n, int64_t cols,
                                                               int tokens) {
    wait_for_previous_kernel();
    release_next_kernel();
    using X = ActivationTile<Block>;
    constexpr int depth = Packed<Block>::depth, held = 4; // up to 16384 columns are read once
    __shared__ float scratch[32];
    const int token = blockIdx.x, step = blockDim.x, words = (int)(cols / 4);
    const float4 *in = reinterpret_cast<const float4 *>(x + token * cols);
    const auto read = [&](int i) { return token < n ? in[i] : make_float4(0, 0, 0, 0); };
    float most = 0;
    const auto take = [&](float4 u) {
        most = Max::combine(Max::combine(Max::combine(most, fabsf(u.x)), Max::combine(fabsf(u.y), fabsf(u.z))), fabsf(u.w));
    };
    float4 v[held];
#pragma unroll
    for (int h = 0; h < held; h++)
        if ((int)threadIdx.x + h * step < words) take(v[h] = read(threadIdx.x + h * step));
    for (int i = threadIdx.x + held * step; i < words; i += step) take(read(i));
    const float scale = power_of_two_scale(block_reduce<Max>(most, scratch));
    if (threadIdx.x == 0) inverse[token] = 1.0f / scale;
    const auto put = [&](int i, float4 u) {
        const int k = 4 * i;
        X::write(out + k / depth * (int64_t)tokens * X::token_bytes, u, scale, k % depth, token, tokens);
    };
#pragma unroll
    for (int h = 0; h < held; h++)
        if ((int)threadIdx.x + h * step < words) put(threadIdx.x + h * step, v[h]);
    for (int i = threadIdx.x + held * step; i < words; i += step) put(i, read(i));
}

template <class Block, int TOKENS>
vb_status product(const LinearArgs &a, vb_stream *stream) {
    using P = Packed<Block>;
    const int tiles = (int)(a.cols / P::depth), sms = multiprocessors(stream);
    const int64_t tile_rows = ceil_div<int64_t>(a.rows, P::rows), limit = shared_limit(stream);
    // Few rows of tiles: many warps on each, to have enough bytes on the way. Then so many warps that all have equal work.
    const bool few = tile_rows <= 2 * sms;
    const int most = few ? 16 : 8, warps = ceil_div(tiles, ceil_div(tiles, most));
    const int64_t each = larger(1, 16 / warps); // blocks a multiprocessor
    const int64_t items = ceil_div(tiles, warps) * ceil_div(tile_rows, smaller(tile_rows, sms * each)); // of a warp
    const bool bulk = capability(stream) >= 90;
    auto shared = [&](int stages) {
        return warps * (stages * (P::tile_bytes + 8) + 2 * TOKENS * (P::rows + 4) * (int64_t)sizeof(float));
    };
    int stages = bulk ? (int)smaller<int64_t>(P::small ? 4 : 2, items) : TileRing<P::tile_bytes>::old_stages;
    while (bulk && stages > 1 && each * (shared(stages) + 1024) > limit) stages--;
    if (shared(stages) > limit) return VB_UNSUPPORTED;
    const int64_t resident = larger<int64_t>(1, smaller<int64_t>(each, limit / (shared(stages) + 1024)));
    constexpr int token_bytes = ActivationTile<Block>::token_bytes;
    void *scratch;
    VB_TRY(workspace(&scratch, TOKENS * (tiles * (int64_t)token_bytes + (int64_t)sizeof(float)), stream));
    uint8_t *x = (uint8_t *)scratch;
    float *inverse = (float *)(x + TOKENS * tiles * (int64_t)token_bytes);
    VB_TRY(launch_overlapped(stream, TOKENS, (unsigned)smaller<int64_t>(1024, a.cols / 4), 0,
                             activations_kernel<Block>, x, inverse, a.x, (int)a.n, a.cols, TOKENS));
    return launch_overlapped(stream, (unsigned)smaller(tile_rows, sms * resident), 32 * warps, shared(stages),
                             linear_packed_kernel<Block, TOKENS>, a.y, x, inverse, (const uint8_t *)a.w, a.bias, (int)a.n, a.rows,
                             a.cols, stages);
}

template <class Block>
vb_status linear_packed_type(const LinearArgs &a, vb_stream *stream) {
    static_assert(packed_batch == 32, "the greatest number of tokens below");
    return a.n <= 8 ? product<Block, 8>(a, stream) : a.n <= 16 ? product<Block, 16>(a, stream) : product<Block, 32>(a, stream);
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
