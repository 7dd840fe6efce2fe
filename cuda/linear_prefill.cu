// linear_prefill.cu: y[n][rows] = x[n][cols] W^T + bias for many rows of x, W in the packed layout, on 16-bit tensor cores.
//
// Weights go from global memory into registers, are dequantized there and are operand A at once (linear_prefill.cuh). x is
// operand B: converted once a call, into the stream's workspace, to F16, each row scaled by a power of two so that nothing
// overflows. Rounding x and W to 11 bits costs about 0.04 % of y.
//
//   grid     128 rows of W x TOKENS rows of x (64 or 128) x splits of the columns, where the grid would otherwise leave
//            multiprocessors idle; the last of these blocks to come adds the sums of all, in the order of the columns
//   threads  8 warps of 16 rows of W each; on Hopper one more that fetches x
//   shared   stages of TOKENS x 128 of x: 16 or 32 KiB each
//   bound    tensor cores; for few tokens the dequantization (about 550 instructions a tile and warp)
//   measured on an H200, Q4_K, n = 64, 128, 256, 512: 11008 x 2048 13.6, 17.3, 32.2, 49.1 us (470 TFLOP/s);
//            2048 x 11008 18.2, 23.2, 30.4, 51.8 us; 18944 x 3584 39.7, 51.9, 76.8, 130.7 us (532 TFLOP/s)

#include "linear.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear_prefill.cuh"
#include "sm90.cuh"

namespace vb {
namespace {

constexpr int stage_depth = 128, block_warps = 8, block_threads = 32 * block_warps; // that multiply

// ---- x --------------------------------------------------------------------------------------------------------------------

// x in F16, [n][cols], the columns of each 16 in the order of element_at. One block a row.
__global__ void __launch_bounds__(256) convert_x_kernel(half *out, float *inverse, const float *x, int64_t cols) {
    wait_for_previous_kernel();
    release_next_kernel();
    __shared__ float scratch[32];
    constexpr int held = 3; // 16 elements each, in registers
    x += blockIdx.x * cols, out += blockIdx.x * cols;
    float v[held][16], most = 0;
    const auto read = [&](float(&to)[16], int64_t k) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float4 u = *reinterpret_cast<const float4 *>(x + k + 4 * i);
            to[4 * i] = u.x, to[4 * i + 1] = u.y, to[4 * i + 2] = u.z, to[4 * i + 3] = u.w;
        }
    };
    const auto take = [&](const float(&of)[16]) {
#pragma unroll
        for (int i = 0; i < 16; i++) most = Max::combine(most, fabsf(of[i]));
    };
    const int64_t step = 16 * 256, first = 16 * threadIdx.x;
#pragma unroll
    for (int h = 0; h < held; h++)
        if (first + h * step < cols) read(v[h], first + h * step), take(v[h]);
    for (int64_t k = first + held * step; k < cols; k += step) {
        float u[16];
        read(u, k), take(u);
    }
    const float scale = power_of_two_scale(block_reduce<Max>(most, scratch));
    if (threadIdx.x == 0) inverse[blockIdx.x] = 1.0f / (scale * prefill_unit);
    const auto write = [&](const float(&from)[16], int64_t k) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            Vec<half, 8> t;
#pragma unroll
            for (int i = 0; i < 8; i++) t.at[i] = __float2half_rn(from[element_at(8 * h + i)] * scale);
            *reinterpret_cast<Vec<half, 8> *>(out + k + 8 * h) = t;
        }
    };
#pragma unroll
    for (int h = 0; h < held; h++)
        if (first + h * step < cols) write(v[h], first + h * step);
    for (int64_t k = first + held * step; k < cols; k += step) {
        float u[16];
        read(u, k), write(u, k);
    }
}

// ---- results ----------------------------------------------------------------------------------------------------------------

struct Results {
    float *y;
    const float *inverse, *bias;
    float *partial;    // where there are splits: [blocks of a split][splits][TOKENS / 8][threads] of four sums
    unsigned *arrived; // a counter for each block of a split, 0 between kernels
    int64_t n, rows;
};

VB_DEVICE void multipliers_sync() { asm volatile("bar.sync 1, %0;" ::"n"(block_threads) : "memory"); }

// 1 / scale of the block's rows of x, read early: at the end of a block every load would have to be waited for. Followed by
// multipliers_sync before store_results.
template <int TOKENS>
VB_DEVICE void load_inverse(float *inverse, const Results &r, int64_t token0) {
    if (threadIdx.x < TOKENS) inverse[threadIdx.x] = token0 + threadIdx.x < r.n ? r.inverse[token0 + threadIdx.x] : 0.0f;
}

// What one warp has: rows row0 + g, + 8, tokens token0 + 8 j + 2 t, + 1.
template <int TOKENS>
VB_DEVICE void store_sums(const Results &r, const float (&c)[TOKENS / 2], const float *inverse, int64_t row0, int64_t token0) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const int tokens = (int)smaller<int64_t>(TOKENS, r.n - token0);
    const bool inside[2] = {row0 + g < r.rows, row0 + g + 8 < r.rows};
    const float b[2] = {r.bias && inside[0] ? r.bias[row0 + g] : 0.0f, r.bias && inside[1] ? r.bias[row0 + g + 8] : 0.0f};
    float *y = r.y + (token0 + 2 * t) * r.rows + row0 + g;
#pragma unroll
    for (int j = 0; j < TOKENS / 8; j++, y += 8 * r.rows) {
        const float2 scale = *reinterpret_cast<const float2 *>(inverse + 8 * j + 2 * t);
        const bool first = 8 * j + 2 * t < tokens, second = 8 * j + 2 * t + 1 < tokens;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            if (first && inside[h]) y[8 * h] = fmaf(c[4 * j + 2 * h], scale.x, b[h]);
            if (second && inside[h]) y[r.rows + 8 * h] = fmaf(c[4 * j + 2 * h + 1], scale.y, b[h]);
        }
    }
}

// The same at the end of a block, with splits once all of its blocks have come.
template <int TOKENS>
VB_DEVICE void store_results(const Results &r, const float (&c)[TOKENS / 2], const float *inverse, int64_t row0, int64_t token0) {
    const int splits = gridDim.z;
    if (splits == 1) return store_sums<TOKENS>(r, c, inverse, row0, token0);
    __shared__ bool last;
    const int block = blockIdx.y * gridDim.x + blockIdx.x;
    float4 *const sums = reinterpret_cast<float4 *>(r.partial) + (int64_t)block * splits * (TOKENS / 8 * block_threads) + threadIdx.x;
    const auto place = [&](int split, int j) { return sums + (split * (TOKENS / 8) + j) * block_threads; };
#pragma unroll
    for (int j = 0; j < TOKENS / 8; j++) __stcg(place(blockIdx.z, j), make_float4(c[4 * j], c[4 * j + 1], c[4 * j + 2], c[4 * j + 3]));
    multipliers_sync();
    if (threadIdx.x == 0) { // releases what all threads have written, acquires what the other blocks have
        unsigned before = 0;
#if __CUDA_ARCH__ >= 700
        asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(r.arrived + block) : "memory");
#endif
        last = before == (unsigned)splits - 1;
        if (last) r.arrived[block] = 0;
    }
    multipliers_sync();
    if (!last) return;
    float total[TOKENS / 2] = {};
#pragma unroll 2
    for (int split = 0; split < splits; split++)
#pragma unroll
        for (int j = 0; j < TOKENS / 8; j++) {
            const float4 v = __ldcg(place(split, j));
            total[4 * j] += v.x, total[4 * j + 1] += v.y, total[4 * j + 2] += v.z, total[4 * j + 3] += v.w;
        }
    store_sums<TOKENS>(r, total, inverse, row0, token0);
}

#ifdef VB_WITH_SM90

// ---- Hopper -----------------------------------------------------------------------------------------------------------------

template <int TOKENS>
struct WgmmaShape {
    static constexpr int box_bytes = TOKENS * sm90::row_bytes, stage_bytes = 2 * box_bytes; // two boxes of 64 columns
    static constexpr int stages = 4;
    static constexpr int shared = stages * stage_bytes + 2 * stages * 8;
};

template <class Block, int TOKENS>
__global__ void __launch_bounds__(32 * (block_warps + 1), 1)
    wgmma_kernel(const __grid_constant__ CUtensorMap x, const uint8_t *w, int k_tiles, const Results results) {
#ifdef VB_SM90A
    using P = Packed<Block>;
    using S = WgmmaShape<TOKENS>;
    extern __shared__ __align__(1024) uint8_t shared[];
    uint64_t *full = reinterpret_cast<uint64_t *>(shared + S::stages * S::stage_bytes), *empty = full + S::stages;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int tile_rows = int((results.rows + P::rows - 1) / P::rows);
    const int k0 = k_tiles * int(blockIdx.z) / int(gridDim.z), k1 = k_tiles * int(blockIdx.z + 1) / int(gridDim.z);
    constexpr int stages_a_tile = P::depth / stage_depth;

    const int tile_row = blockIdx.x * block_warps + warp;
    const uint8_t *tile = w + ((int64_t)smaller(tile_row, tile_rows - 1) * k_tiles + k0) * P::tile_bytes;
    LaneTile<Block> next;
    if (warp < block_warps && k0 < k1) next.template load<true>(tile, lane);
    if (threadIdx.x == 0) {
        sm90::prefetch_map(&x);
        for (int s = 0; s < S::stages; s++) sm90::barrier_init(full + s, 1), sm90::barrier_init(empty + s, block_warps);
        sm90::barrier_init_fence();
    }
    __syncthreads();
    wait_for_previous_kernel();
    release_next_kernel();

    if (warp == block_warps) { // fetches x
        if (lane != 0) return;
        const int first = k0 * stages_a_tile, count = (k1 - k0) * stages_a_tile;
        for (int i = 0; i < count; i++) {
            const int s = i % S::stages;
            sm90::barrier_wait(empty + s, (i / S::stages & 1) ^ 1);
            sm90::barrier_expect(full + s, S::stage_bytes);
#pragma unroll
            for (int half = 0; half < 2; half++)
                sm90::copy_box(shared + s * S::stage_bytes + half * S::box_bytes, &x, full + s,
                               (first + i) * stage_depth + half * sm90::tile_width, blockIdx.y * TOKENS);
        }
        return;
    }
    __shared__ __align__(8) float inverse[TOKENS];
    load_inverse<TOKENS>(inverse, results, (int64_t)blockIdx.y * TOKENS);
    float c[TOKENS / 2] = {};
    uint32_t a[2][4][4];
    int i = 0; // stage of x
    for (int k = k0; k < k1; k++) {
        PrefillTile<Block> work;
        work.unpack(next);
        tile += P::tile_bytes;
        if (k + 1 < k1) next.template load<true>(tile, lane);
#pragma unroll
        for (int part = 0; part < stages_a_tile; part++, i++) {
            const int s = i % S::stages;
            const uint64_t operand = sm90::describe(shared + s * S::stage_bytes, 0);
#pragma unroll
            for (int b = 0; b < 2; b++) { // batches of four instructions, one at work while the other is prepared
#pragma unroll
                for (int j = 0; j < 4; j++) work.fragment(a[b][j], part * 8 + b * 4 + j);
                if (b == 0) sm90::barrier_wait(full + s, i / S::stages & 1);
                sm90::wgmma_fence();
#pragma unroll
                for (int j = 0; j < 4; j++)
                    sm90::WgmmaRegisters<half, TOKENS, 0>::run(c, a[b][j], operand + (b * S::box_bytes + j * 32) / 16); // a box has 64 columns, an instruction 16
                sm90::wgmma_commit();
                sm90::wgmma_wait<1>();
                if (b == 0 && i > 0 && lane == 0) sm90::barrier_arrive(empty + (i - 1) % S::stages); // done with
            }
        }
    }
    sm90::wgmma_wait<0>();
    multipliers_sync();
    store_results<TOKENS>(results, c, inverse, (int64_t)tile_row * P::rows, (int64_t)blockIdx.y * TOKENS);
#endif
}

#endif // VB_WITH_SM90

// ---- before and after Hopper --------------------------------------------------------------------------------------------------

constexpr int mma_tokens = 64;

template <class Block>
__global__ void __launch_bounds__(32 * block_warps)
    mma_kernel(const half *x, const uint8_t *w, int k_tiles, const Results results) {
#ifdef VB_HAS_MMA
    using P = Packed<Block>;
    constexpr int stage_halves = mma_tokens * stage_depth, chunks = stage_halves / 8 / (32 * block_warps);
    __shared__ __align__(16) half stage[2][stage_halves]; // [k / 8][token][k % 8]
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int tile_rows = int((results.rows + P::rows - 1) / P::rows);
    const int k0 = k_tiles * int(blockIdx.z) / int(gridDim.z), k1 = k_tiles * int(blockIdx.z + 1) / int(gridDim.z);
    constexpr int stages_a_tile = P::depth / stage_depth;
    const int tile_row = blockIdx.x * block_warps + warp;
    const uint8_t *tile = w + ((int64_t)smaller(tile_row, tile_rows - 1) * k_tiles + k0) * P::tile_bytes;
    LaneTile<Block> next;
    if (k0 < k1) next.template load<true>(tile, lane);
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t token0 = (int64_t)blockIdx.y * mma_tokens, cols = (int64_t)k_tiles * P::depth;
    const int count = (k1 - k0) * stages_a_tile;
    auto fetch = [&](int i) {
        if (i < count)
#pragma unroll
            for (int j = 0; j < chunks; j++) { // four neighbours of 8 rows a warp
                const int at = threadIdx.x + j * block_threads, k8 = at / 256 * 4 + at % 4, token = at / 4 % mma_tokens;
                const bool valid = token0 + token < results.n;
                copy_async(shared_address(&stage[i & 1][(k8 * mma_tokens + token) * 8]),
                           x + (valid ? token0 + token : 0) * cols + (k0 * stages_a_tile + i) * stage_depth + 8 * k8, valid);
            }
        copy_async_commit();
    };
    __shared__ __align__(8) float inverse[mma_tokens];
    load_inverse<mma_tokens>(inverse, results, token0);
    float c[mma_tokens / 2] = {};
    int i = 0;
    fetch(0);
    for (int k = k0; k < k1; k++) {
        PrefillTile<Block> work;
        work.unpack(next);
        tile += P::tile_bytes;
        if (k + 1 < k1) next.template load<true>(tile, lane);
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
                    mma_16x8x16(c + 4 * q, a, *reinterpret_cast<const uint32_t *>(b + q * 64),
                                *reinterpret_cast<const uint32_t *>(b + q * 64 + 8 * mma_tokens), half());
            }
            __syncthreads();
        }
    }
    store_results<mma_tokens>(results, c, inverse, (int64_t)tile_row * P::rows, token0);
#endif
}

// ---- launch -------------------------------------------------------------------------------------------------------------------

constexpr int64_t most_tokens = 4096; // in one go: bounds the workspace (two bytes an element of x)

// How a product is cut up: rows of x a block, and blocks that share the columns.
struct PrefillPlan {
    int tokens, splits;
};

PrefillPlan plan_prefill(int64_t n, int64_t rows, int64_t cols, int64_t k_tiles, bool wide, int multiprocessors) {
    PrefillPlan best = {64, 1};
    double least = 0;
    for (int tokens = 64; tokens <= (wide ? 128 : 64); tokens *= 2)
        for (int splits = 1; splits <= smaller<int64_t>(8, k_tiles); splits++) {
            const int64_t blocks = ceil_div<int64_t>(rows, packed_rows * block_warps) * ceil_div<int64_t>(n, tokens);
            if (splits > 1 && blocks > workspace_counters) break;
            const int64_t waves = ceil_div<int64_t>(blocks * splits, multiprocessors);
            // In units of 128 columns of a block of 128 tokens: the start and the end of a block cost about four.
            const double stages = (double)ceil_div<int64_t>(k_tiles, splits) * (cols / k_tiles) / stage_depth;
            const double time = waves * (stages * (tokens == 64 ? 0.7 : 1) + 4 + (splits > 1 ? 2 + 0.25 * splits : 0));
            if (least == 0 || time < least) best = {tokens, splits}, least = time;
        }
    return best;
}

template <class Block>
vb_status prefill(const LinearArgs &a, vb_stream *stream) {
    using P = Packed<Block>;
#ifdef VB_WITH_SM90
    const bool hopper = device_of(stream->device)->binary == 90 && capability(stream) == 90;
#else
    const bool hopper = false;
#endif
    const int k_tiles = (int)(a.cols / P::depth);
    for (int64_t first = 0; first < a.n; first += most_tokens) {
        const int64_t n = smaller(most_tokens, a.n - first);
        const PrefillPlan plan = plan_prefill(n, a.rows, a.cols, k_tiles, hopper, multiprocessors(stream));
        const dim3 grid((unsigned)ceil_div<int64_t>(a.rows, P::rows * block_warps), (unsigned)ceil_div<int64_t>(n, plan.tokens),
                        (unsigned)plan.splits);
        const int64_t x_bytes = n * a.cols * (int64_t)sizeof(half), scale_bytes = ceil_div<int64_t>(n, 64) * 256;
        const int64_t sums = plan.splits > 1 ? (int64_t)grid.x * grid.y * grid.z * 128 * plan.tokens * 4 : 0;
        void *scratch;
        VB_TRY(workspace(&scratch, x_bytes + scale_bytes + sums, stream));
        half *x = (half *)scratch;
        float *inverse = (float *)((char *)scratch + x_bytes);
        const Results results = {a.y + first * a.rows, inverse, a.bias, inverse + scale_bytes / 4, counters(stream), n, a.rows};
        const uint8_t *w = (const uint8_t *)a.w;
        VB_TRY(launch_overlapped(stream, (unsigned)n, 256, 0, convert_x_kernel, x, inverse, a.x + first * a.cols, a.cols));
        if (!hopper) {
            VB_TRY(launch_overlapped(stream, grid, block_threads, 0, mma_kernel<Block>, x, w, k_tiles, results));
            continue;
        }
#ifdef VB_WITH_SM90
        CUtensorMap map;
        VB_TRY(sm90::tensor_map(&map, x, VB_F16, a.cols, n, a.cols, plan.tokens, stream));
        if (plan.tokens == 64)
            VB_TRY(launch_overlapped(stream, grid, block_threads + 32, WgmmaShape<64>::shared, wgmma_kernel<Block, 64>, map, w,
                                     k_tiles, results));
        else
            VB_TRY(launch_overlapped(stream, grid, block_threads + 32, WgmmaShape<128>::shared, wgmma_kernel<Block, 128>, map, w,
                                     k_tiles, results));
#endif
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
