// linear_prefill.cu: y[n][rows] = x[n][cols] W^T + bias for many rows of x, W in the packed layout, on 16-bit tensor cores.
//
// Weights go from global memory into registers, are dequantized there and are operand A at once (linear_prefill.cuh). x is
// operand B: converted once a call, into the stream's workspace, to F16, each row scaled by a power of two so that nothing
// overflows, and laid out just as the blocks want it in shared memory, so that a stage of x is one contiguous copy.
// Rounding x and W to 11 bits costs about 0.04 % of y.
//
//   grid     128 rows of W x TOKENS rows of x (64 or 128) x 1 or 2 halves of the columns where the grid would leave
//            multiprocessors idle; the two halves add into y, which was cleared: a + b is the same in either order
//   threads  8 warps of 16 rows of W each; on Hopper one more that fetches x
//   shared   stages of TOKENS x 128 of x: 16 or 32 KiB each
//   bound    tensor cores; for few tokens the bytes of W

#include "linear.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear_prefill.cuh"
#include "wgmma.cuh"

namespace vb {
namespace {

constexpr int stage_depth = 128, block_warps = 8;

// ---- x --------------------------------------------------------------------------------------------------------------------
//
// Block (token block, stage) of x is TOKENS x 128 halves: [k / 8][token / 8][token % 8][k % 8], k in the order of element_at.

// One block a row of x, rows from n on zero. Also clears its row of y where halves will be added.
__global__ void __launch_bounds__(256)
    convert_x_kernel(half *out, float *inverse, const float *x, float *clear, int64_t n, int64_t cols, int64_t rows, int tokens) {
    wait_for_previous_kernel();
    release_next_kernel();
    __shared__ float scratch[32];
    const int64_t token = blockIdx.x;
    x += token * cols;
    if (clear && token < n)
        for (int64_t i = threadIdx.x; i < rows; i += 256) clear[token * rows + i] = 0;
    float most = 0;
    if (token < n)
        for (int64_t k = 4 * threadIdx.x; k < cols; k += 4 * 256) {
            const float4 v = *reinterpret_cast<const float4 *>(x + k);
            most = Max::combine(Max::combine(Max::combine(most, fabsf(v.x)), Max::combine(fabsf(v.y), fabsf(v.z))), fabsf(v.w));
        }
    most = block_reduce<Max>(most, scratch);
    // 2^e that brings the greatest magnitude to [2^13, 2^14); 1 for zero, Inf and NaN.
    float scale = 1;
    if (most > 0.0f && most < 3.0e38f)
        scale = __int_as_float((smaller(13 - (int(__float_as_uint(most) >> 23) - 127), 120) + 127) << 23);
    if (threadIdx.x == 0) inverse[token] = 1.0f / (scale * prefill_unit);
    const int64_t stage_halves = (int64_t)tokens * stage_depth;
    half *base = out + token / tokens * (cols / stage_depth) * stage_halves + token % tokens * 8;
    for (int64_t k = 16 * threadIdx.x; k < cols; k += 16 * 256) {
        float v[16] = {};
        if (token < n)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float4 u = *reinterpret_cast<const float4 *>(x + k + 4 * i);
                v[4 * i] = u.x, v[4 * i + 1] = u.y, v[4 * i + 2] = u.z, v[4 * i + 3] = u.w;
            }
        half *place = base + k / stage_depth * stage_halves + k % stage_depth * tokens;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            Vec<half, 8> t;
#pragma unroll
            for (int i = 0; i < 8; i++) t.at[i] = __float2half_rn(v[element_at(8 * h + i)] * scale);
            *reinterpret_cast<Vec<half, 8> *>(place + h * 8 * tokens) = t;
        }
    }
}

// ---- results ----------------------------------------------------------------------------------------------------------------

// Stores what one warp has: rows row0 + g, + 8, tokens token0 + 8 j + 2 t, + 1.
template <int TOKENS>
VB_DEVICE void store_results(float *y, const float (&c)[TOKENS / 8][4], const float *inverse, const float *bias, int64_t row0,
                             int64_t token0, int64_t n, int64_t rows, bool add, bool with_bias) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    float b[2] = {0, 0};
#pragma unroll
    for (int r = 0; r < 2; r++)
        if (bias && with_bias && row0 + g + 8 * r < rows) b[r] = bias[row0 + g + 8 * r];
#pragma unroll
    for (int j = 0; j < TOKENS / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int64_t token = token0 + 8 * j + 2 * t + e;
            if (token >= n) continue;
            const float scale = inverse[token];
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const int64_t row = row0 + g + 8 * r;
                if (row >= rows) continue;
                const float value = fmaf(c[j][2 * r + e], scale, b[r]);
                if (add) atomicAdd(y + token * rows + row, value);
                else y[token * rows + row] = value;
            }
        }
}

// ---- Hopper -----------------------------------------------------------------------------------------------------------------

template <int TOKENS>
struct WgmmaShape {
    static constexpr int stage_bytes = TOKENS * stage_depth * 2;
    static constexpr int stages = 4;
    static constexpr int shared = stages * stage_bytes + 2 * stages * 8;
};

template <class Block, int TOKENS>
__global__ void __launch_bounds__(32 * (block_warps + 1), 1)
    wgmma_kernel(float *y, const half *x, const float *inverse, const uint8_t *w, const float *bias, int64_t n, int64_t rows,
                 int64_t cols) {
#ifdef VB_HAS_WGMMA
    using P = Packed<Block>;
    using S = WgmmaShape<TOKENS>;
    extern __shared__ __align__(1024) uint8_t shared[];
    uint64_t *full = reinterpret_cast<uint64_t *>(shared + S::stages * S::stage_bytes), *empty = full + S::stages;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int k_tiles = int(cols / P::depth), tile_rows = int((rows + P::rows - 1) / P::rows);
    const int k0 = k_tiles * int(blockIdx.z) / int(gridDim.z), k1 = k_tiles * int(blockIdx.z + 1) / int(gridDim.z);
    constexpr int stages_a_tile = P::depth / stage_depth;

    const int tile_row = blockIdx.x * block_warps + warp;
    const uint8_t *tile = w + ((int64_t)smaller(tile_row, tile_rows - 1) * k_tiles + k0) * P::tile_bytes;
    PrefillWeights<Block> next;
    if (warp < block_warps && k0 < k1) next.load(tile, lane);
    if (threadIdx.x == 0) {
        for (int s = 0; s < S::stages; s++) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(full + s)) : "memory");
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(empty + s)), "n"(block_warps) : "memory");
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    wait_for_previous_kernel();
    release_next_kernel();

    auto wait = [](const uint64_t *barrier, int phase) {
        asm volatile("{\n"
                     ".reg .pred done;\n"
                     "again%=: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                     "@!done bra again%=;\n"
                     "}" ::"r"(shared_address(barrier)),
                     "r"(phase)
                     : "memory");
    };
    if (warp == block_warps) { // fetches x
        if (lane != 0) return;
        const int64_t stages_a_row = cols / stage_depth;
        const half *from = x + (blockIdx.y * stages_a_row + (int64_t)k0 * stages_a_tile) * TOKENS * stage_depth;
        const int count = (k1 - k0) * stages_a_tile;
        for (int i = 0; i < count; i++) {
            const int s = i % S::stages;
            wait(empty + s, (i / S::stages & 1) ^ 1);
            const unsigned barrier = shared_address(full + s);
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(S::stage_bytes) : "memory");
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                             shared_address(shared + s * S::stage_bytes)),
                         "l"(from + (int64_t)i * TOKENS * stage_depth), "r"(S::stage_bytes), "r"(barrier)
                         : "memory");
        }
        return;
    }
    float c[TOKENS / 8][4] = {};
    uint32_t a[2][4][4];
    int i = 0; // stage of x
    for (int k = k0; k < k1; k++) {
        PrefillTile<Block> work;
        work.unpack(next);
        tile += P::tile_bytes;
        if (k + 1 < k1) next.load(tile, lane);
#pragma unroll
        for (int part = 0; part < stages_a_tile; part++, i++) {
            const int s = i % S::stages;
            const unsigned operand = shared_address(shared + s * S::stage_bytes);
#pragma unroll
            for (int b = 0; b < 2; b++) { // batches of four instructions, one at work while the other is prepared
#pragma unroll
                for (int j = 0; j < 4; j++) work.fragment(a[b][j], part * 8 + b * 4 + j);
                if (b == 0) wait(full + s, i / S::stages & 1);
                wgmma_fence();
#pragma unroll
                for (int j = 0; j < 4; j++)
                    wgmma<TOKENS>(c, a[b][j], wgmma_operand(operand + (b * 4 + j) * TOKENS * 32, TOKENS * 16));
                wgmma_commit();
                wgmma_wait<1>();
                if (b == 0 && i > 0 && lane == 0) // the stage before is done with
                    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(
                                     shared_address(empty + (i - 1) % S::stages))
                                 : "memory");
            }
        }
    }
    wgmma_wait<0>();
    if (tile_row < tile_rows)
        store_results<TOKENS>(y, c, inverse, bias, (int64_t)tile_row * P::rows, (int64_t)blockIdx.y * TOKENS, n, rows,
                              gridDim.z > 1, blockIdx.z == 0);
#endif
}

// ---- before and after Hopper --------------------------------------------------------------------------------------------------

constexpr int mma_tokens = 64;

template <class Block>
__global__ void __launch_bounds__(32 * block_warps)
    mma_kernel(float *y, const half *x, const float *inverse, const uint8_t *w, const float *bias, int64_t n, int64_t rows,
               int64_t cols) {
#ifdef VB_HAS_MMA
    using P = Packed<Block>;
    constexpr int stage_halves = mma_tokens * stage_depth, chunks = stage_halves / 8 / (32 * block_warps);
    __shared__ __align__(16) half stage[2][stage_halves];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int k_tiles = int(cols / P::depth), tile_rows = int((rows + P::rows - 1) / P::rows);
    const int k0 = k_tiles * int(blockIdx.z) / int(gridDim.z), k1 = k_tiles * int(blockIdx.z + 1) / int(gridDim.z);
    constexpr int stages_a_tile = P::depth / stage_depth;
    const int tile_row = blockIdx.x * block_warps + warp;
    const uint8_t *tile = w + ((int64_t)smaller(tile_row, tile_rows - 1) * k_tiles + k0) * P::tile_bytes;
    PrefillWeights<Block> next;
    if (k0 < k1) next.load(tile, lane);
    wait_for_previous_kernel();
    release_next_kernel();
    const half *from = x + (blockIdx.y * (cols / stage_depth) + (int64_t)k0 * stages_a_tile) * stage_halves;
    const int count = (k1 - k0) * stages_a_tile;
    auto fetch = [&](int i) {
        if (i < count)
#pragma unroll
            for (int j = 0; j < chunks; j++) {
                const int at = 8 * (threadIdx.x + j * 32 * block_warps);
                copy_async(shared_address(&stage[i & 1][at]), from + (int64_t)i * stage_halves + at);
            }
        copy_async_commit();
    };
    float c[mma_tokens / 8][4] = {};
    int i = 0;
    fetch(0);
    for (int k = k0; k < k1; k++) {
        PrefillTile<Block> work;
        work.unpack(next);
        tile += P::tile_bytes;
        if (k + 1 < k1) next.load(tile, lane);
#pragma unroll
        for (int part = 0; part < stages_a_tile; part++, i++) {
            fetch(i + 1);
            copy_async_wait<1>();
            __syncthreads();
#pragma unroll
            for (int j = 0; j < 8; j++) {
                uint32_t a[4];
                work.fragment(a, part * 8 + j);
                const half *b = &stage[i & 1][j * 16 * mma_tokens + g * 8 + 2 * t];
#pragma unroll
                for (int q = 0; q < mma_tokens / 8; q++)
                    mma_16x8x16(c[q], a, *reinterpret_cast<const uint32_t *>(b + q * 64),
                                *reinterpret_cast<const uint32_t *>(b + q * 64 + 8 * mma_tokens), half());
            }
            __syncthreads();
        }
    }
    if (tile_row < tile_rows)
        store_results<mma_tokens>(y, c, inverse, bias, (int64_t)tile_row * P::rows, (int64_t)blockIdx.y * mma_tokens, n, rows,
                                  gridDim.z > 1, blockIdx.z == 0);
#endif
}

// ---- launch -------------------------------------------------------------------------------------------------------------------

constexpr int64_t most_tokens = 4096; // in one go: bounds the workspace (two bytes an element of x)

template <class Block>
vb_status prefill(const LinearArgs &a, vb_stream *stream) {
    using P = Packed<Block>;
    const bool hopper = device_of(stream->device)->binary == 90 && capability(stream) == 90;
    for (int64_t first = 0; first < a.n; first += most_tokens) {
        const int64_t n = smaller(most_tokens, a.n - first);
        const int64_t row_blocks = ceil_div<int64_t>(a.rows, P::rows * block_warps), sms = multiprocessors(stream);
        const int tokens = hopper && row_blocks * ceil_div<int64_t>(n, 128) * 2 > sms ? 128 : 64;
        const int64_t token_blocks = ceil_div<int64_t>(n, tokens), padded = token_blocks * tokens;
        const int split = row_blocks * token_blocks * 2 <= sms && a.cols / P::depth >= 4 ? 2 : 1;
        void *scratch;
        VB_TRY(workspace(&scratch, padded * (a.cols * (int64_t)sizeof(half) + (int64_t)sizeof(float)), stream));
        half *x = (half *)scratch;
        float *inverse = (float *)(x + padded * a.cols), *y = a.y + first * a.rows;
        VB_TRY(launch_overlapped(stream, (unsigned)padded, 256, 0, convert_x_kernel, x, inverse, a.x + first * a.cols,
                                 split > 1 ? y : nullptr, n, a.cols, a.rows, tokens));
        const dim3 grid((unsigned)row_blocks, (unsigned)token_blocks, (unsigned)split);
        const uint8_t *w = (const uint8_t *)a.w;
        if (!hopper)
            VB_TRY(launch_overlapped(stream, grid, 32 * block_warps, 0, mma_kernel<Block>, y, x, inverse, w, a.bias, n, a.rows,
                                     a.cols));
        else if (tokens == 64)
            VB_TRY(launch_overlapped(stream, grid, 32 * (block_warps + 1), WgmmaShape<64>::shared, wgmma_kernel<Block, 64>, y, x,
                                     inverse, w, a.bias, n, a.rows, a.cols));
        else
            VB_TRY(launch_overlapped(stream, grid, 32 * (block_warps + 1), WgmmaShape<128>::shared, wgmma_kernel<Block, 128>, y,
                                     x, inverse, w, a.bias, n, a.rows, a.cols));
    }
    return VB_OK;
}

} // namespace

vb_status linear_prefill(const LinearArgs &a, vb_dtype type, vb_stream *stream) {
    switch (type) {
#define X(type, Block) case type: return prefill<Block>(a, stream);
        VB_PACKED_TYPES(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
}

} // namespace vb

#else

namespace vb {
vb_status linear_prefill(const LinearArgs &, vb_dtype, vb_stream *) { return VB_UNSUPPORTED; }
} // namespace vb

#endif
