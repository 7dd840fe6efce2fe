// gemm_3xf16_sm90.cu: matrix products of F32 with float32 accuracy on Hopper's tensor cores. gemm_sm90_kernel.cuh has
// the kernel of the product; split_kernel converts operands:
//   grid     clusters of 8 blocks: first a cluster for a strip of 64, 32 or 16 columns of B, each block with an eighth
//            of its rows; then a block for each row of A
//   block    256 threads
//   shared   the block's part of the strip until its maxima are known, 112 KiB at most, and the maxima
//   moves    4 (m k + k n) bytes read, as many written; more than 14336 rows, and rows of n not a multiple of 4, are
//            read twice
//   bound    memory
//   measured docs/experiments/2026-11-22-gemm.md
// The product reads 4 (m k + k n) bytes at least, writes 4 m n. FLOPs 6 m n k, bound by the tensor cores.

#include "gemm/gemm_sm90_kernel.cuh"

// An element is the sum of two F16 numbers to 22 bits and a sign (Ootomo & Yokota 2022).
// Before, its row of A or column of B is scaled by a power of two that puts the largest magnitude into [2^14, 2^15).
// The products of two low parts, 2^-24 of the whole at most, are left out.
// An element 2^-39 below the largest of its row or column is lost. In float32 an element 2^-24 below the sum is lost
// too.
// The loss shows only where a row and a column both span more, and their large elements meet small ones alone.
// A row or column with Inf or NaN is computed in plain float32 arithmetic, as IEEE 754 has it, slowly.

namespace vb {

#ifdef VB_WITH_SM90

namespace {

constexpr int split_threads = 256;
constexpr int split_cluster = 8;
constexpr int chunk = product_chunk;

#ifdef VB_SM90A

// Where element i of k lies in an operand in two parts; its low part is `chunk` further on.
VB_DEVICE int64_t place(int64_t i) { return i / chunk * 2 * chunk + i % chunk; }

VB_DEVICE void split(const Raise &raise, float x, half &high, half &low) {
    high = raise.high(x);
    low = raise.low(x, high);
}

// Row `row` of A[..][k]: out[row][2 * ceil(k / chunk) * chunk], padded with zeros. Up to `held` floats a thread stay in
// registers between finding the maximum and splitting.
VB_DEVICE void split_row(half *out, float2 *scale, const float *x, int64_t row, int k, unsigned *scratch) {
    constexpr int held = 8;
    const int padded = ceil_div(k, chunk) * chunk, thread = threadIdx.x;
    x += row * k;
    out += row * 2 * padded;
    const bool vectors = k % 4 == 0; // rows start at multiples of 16 bytes, given that the matrix does
    const auto load = [&](int i) { return load_four(x + i, k - i, vectors); };
    float4 value[held];
    unsigned most = 0;
#pragma unroll
    for (int h = 0; h < held; h++) value[h] = load((h * split_threads + thread) * 4);
#pragma unroll
    for (int h = 0; h < held; h++) most = max(most, greatest_magnitude(value[h]));
    for (int i = (held * split_threads + thread) * 4; i < k; i += split_threads * 4)
        most = max(most, greatest_magnitude(load(i)));
    most = __reduce_max_sync(all_lanes, most);
    if (thread % 32 == 0) scratch[thread / 32] = most;
    __syncthreads();
    most = __reduce_max_sync(all_lanes, scratch[thread % (split_threads / 32)]);
    if (thread == 0) scale[row] = scale_of(most);
    const Raise raise(raise_of(most));
    const auto store = [&](int i, float4 v) {
        if (i >= padded) return;
        Vec<half, 4> high, low;
        split(raise, v.x, high.at[0], low.at[0]);
        split(raise, v.y, high.at[1], low.at[1]);
        split(raise, v.z, high.at[2], low.at[2]);
        split(raise, v.w, high.at[3], low.at[3]);
        *reinterpret_cast<Vec<half, 4> *>(out + place(i)) = high;
        *reinterpret_cast<Vec<half, 4> *>(out + place(i) + chunk) = low;
    };
#pragma unroll
    for (int h = 0; h < held; h++) store((h * split_threads + thread) * 4, value[h]);
    for (int i = (held * split_threads + thread) * 4; i < padded; i += split_threads * 4) store(i, load(i));
}

// Columns of strip `strip` of B[k][n], C of them a lane: out[2 * ceil(k / chunk) * chunk][stride], rows past k zeros.
template <int C>
VB_DEVICE void split_columns(half *out, float2 *scale, const float *x, int64_t strip, int k, int n, int64_t stride,
                             unsigned *scratch) {
    constexpr int warps = split_threads / 32, unroll = 8;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int column = (int)strip * 32 * C + lane * C, padded = ceil_div(k, chunk) * chunk;
    const unsigned rank = sm90::cluster_rank();
    const int each = ceil_div(padded, split_cluster), first = rank * each, last = smaller(first + each, padded);
    const bool inside = column < n; // C is 1, or n even
    using Columns = Vec<float, C>;
    const auto load = [&](int row) {
        Columns v = {};
        if (inside && row < k && row < last) v = *reinterpret_cast<const Columns *>(x + (int64_t)row * n + column);
        return v;
    };
    unsigned most[C] = {};
    for (int row = first + warp; row < last; row += warps * unroll) {
        Columns v[unroll];
#pragma unroll
        for (int u = 0; u < unroll; u++) v[u] = load(row + u * warps);
#pragma unroll
        for (int u = 0; u < unroll; u++)
#pragma unroll
            for (int c = 0; c < C; c++) most[c] = max(most[c], magnitude(v[u].at[c]));
    }
    // This block's maxima are in scratch[C][32].
#pragma unroll
    for (int c = 0; c < C; c++) atomicMax(&scratch[c * 32 + lane], most[c]);
    sm90::cluster_sync();
    Raise raise[C];
#pragma unroll
    for (int c = 0; c < C; c++) {
        unsigned all = 0;
        for (int r = 0; r < split_cluster; r++)
            all = max(all, sm90::load_remote_word(sm90::remote_address(&scratch[c * 32 + lane], r)));
        raise[c] = Raise(raise_of(all));
        if (rank == 0 && warp == 0 && inside) scale[column + c] = scale_of(all);
    }
    for (int row = first + warp; row < last; row += warps * unroll) {
        Columns v[unroll];
#pragma unroll
        for (int u = 0; u < unroll; u++) v[u] = load(row + u * warps);
#pragma unroll
        for (int u = 0; u < unroll; u++) {
            const int at = row + u * warps;
            if (at >= last || !inside) continue;
            Vec<half, C> high, low;
#pragma unroll
            for (int c = 0; c < C; c++) split(raise[c], v[u].at[c], high.at[c], low.at[c]);
            half *const to = out + place(at) * stride + column;
            *reinterpret_cast<Vec<half, C> *>(to) = high;
            *reinterpret_cast<Vec<half, C> *>(to + chunk * stride) = low;
        }
    }
    sm90::cluster_sync(); // others may still read this block's maxima
}

#endif

// Bytes of shared memory for an eighth of a strip of so many columns.
template <int COLUMNS>
constexpr int64_t strip_bytes(int64_t k) {
    return ceil_div<int64_t>(ceil_div<int64_t>(ceil_div<int64_t>(k, chunk) * chunk, split_cluster),
                             4 * split_threads / COLUMNS) *
           split_threads * 16;
}

#ifdef VB_SM90A

// Scales and splits a strip of COLUMNS columns, four a thread, and reads it once: threads keep their elements in shared
// memory.
template <int COLUMNS>
VB_DEVICE void split_kept_columns(half *out, float2 *scale, const float *x, int64_t strip, int k, int n, int64_t stride,
                                  unsigned *scratch) {
    constexpr int lanes = COLUMNS / 4, rows_at_once = split_threads / lanes; // lanes of a row
    extern __shared__ float4 kept[];
    const int thread = threadIdx.x, of_row = thread % lanes, column = (int)strip * COLUMNS + of_row * 4,
              padded = ceil_div(k, chunk) * chunk;
    const unsigned rank = sm90::cluster_rank();
    const int each = ceil_div(padded, split_cluster), last = smaller(((int)rank + 1) * each, padded);
    const int first = rank * each + thread / lanes;
    const bool inside = column < n;
    for (int row = first, i = thread; row < last; row += rows_at_once, i += split_threads) {
        const bool valid = inside && row < k;
        copy_async(shared_address(kept + i), valid ? x + (int64_t)row * n + column : x, valid);
    }
    copy_async_commit();
    copy_async_wait<0>();
    unsigned most[4] = {};
    for (int row = first, i = thread; row < last; row += rows_at_once, i += split_threads) {
        const float4 v = kept[i];
        most[0] = max(most[0], magnitude(v.x)), most[1] = max(most[1], magnitude(v.y));
        most[2] = max(most[2], magnitude(v.z)), most[3] = max(most[3], magnitude(v.w));
    }
#pragma unroll
    for (int c = 0; c < 4; c++) {
#pragma unroll
        for (int offset = lanes; offset < 32; offset *= 2)
            most[c] = max(most[c], __shfl_xor_sync(all_lanes, most[c], offset));
        if (thread % 32 < lanes) atomicMax(&scratch[of_row * 4 + c], most[c]);
    }
    sm90::cluster_sync();
    Raise raise[4];
    uint4 all = make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int r = 0; r < split_cluster; r++) {
        const float4 of_block = sm90::load_remote(sm90::remote_address(scratch + of_row * 4, r));
        all.x = max(all.x, __float_as_uint(of_block.x)), all.y = max(all.y, __float_as_uint(of_block.y));
        all.z = max(all.z, __float_as_uint(of_block.z)), all.w = max(all.w, __float_as_uint(of_block.w));
    }
    const unsigned largest[4] = {all.x, all.y, all.z, all.w};
#pragma unroll
    for (int c = 0; c < 4; c++) {
        raise[c] = Raise(raise_of(largest[c]));
        if (rank == 0 && thread < lanes && inside) scale[column + c] = scale_of(largest[c]);
    }
    if (inside)
        for (int row = first, i = thread; row < last; row += rows_at_once, i += split_threads) {
            const float4 v = kept[i];
            Vec<half, 4> high, low;
            split(raise[0], v.x, high.at[0], low.at[0]);
            split(raise[1], v.y, high.at[1], low.at[1]);
            split(raise[2], v.z, high.at[2], low.at[2]);
            split(raise[3], v.w, high.at[3], low.at[3]);
            half *const to = out + place(row) * stride + column;
            *reinterpret_cast<Vec<half, 4> *>(to) = high;
            *reinterpret_cast<Vec<half, 4> *>(to + chunk * stride) = low;
        }
    sm90::cluster_sync(); // others may still read this block's maxima
}

#endif

// COLUMNS of a strip that stays in shared memory. Where it is 0, the strip is read twice, C columns a lane.
template <int C, int COLUMNS>
__global__ __launch_bounds__(split_threads) void split_kernel(half *a_out, half *b_out, float2 *a_scale,
                                                              float2 *b_scale, const float *a, const float *b, int m,
                                                              int k, int n, int64_t b_stride) {
#ifdef VB_SM90A
    __shared__ __align__(16) unsigned scratch[32 * C];
    if (threadIdx.x < 32 * C) scratch[threadIdx.x] = 0;
    __syncthreads();
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t strips = ceil_div(n, COLUMNS ? COLUMNS : 32 * C), column_blocks = strips * split_cluster,
                  strip = blockIdx.x / split_cluster;
    if constexpr (COLUMNS > 0) {
        if (blockIdx.x < column_blocks)
            return split_kept_columns<COLUMNS>(b_out, b_scale, b, strip, k, n, b_stride, scratch);
    } else {
        if (blockIdx.x < column_blocks) return split_columns<C>(b_out, b_scale, b, strip, k, n, b_stride, scratch);
    }
    if (blockIdx.x - column_blocks < m) split_row(a_out, a_scale, a, blockIdx.x - column_blocks, k, scratch);
#endif
}

constexpr int64_t align256(int64_t bytes) { return (bytes + 255) / 256 * 256; }

} // namespace

vb_status gemm_3xf16_sm90(const vb_matmul_args &x, vb_stream *stream) {
    const int64_t m = x.m, k = x.k, n = x.n;
    const float *const a = (const float *)x.a, *const b = (const float *)x.b;
    const GemmPlan plan = plan_gemm_3xf16(m, k, n, multiprocessors(stream));
    const int64_t width = ceil_div<int64_t>(k, chunk) * 2 * chunk,
                  stride = ceil_div<int64_t>(n, MATMUL_LINE) * MATMUL_LINE;
    const int64_t a_bytes = align256(m * width * 2), b_bytes = align256(width * stride * 2);
    char *memory;
    VB_TRY(workspace((void **)&memory, a_bytes + b_bytes + (m + n) * (int64_t)sizeof(float2), stream));
    half *const a_split = (half *)memory, *const b_split = (half *)(memory + a_bytes);
    float2 *const a_scale = (float2 *)(memory + a_bytes + b_bytes), *const b_scale = a_scale + m;

    const auto split = [&](int columns, int64_t shared_bytes, auto kernel) {
        const int64_t blocks =
            ceil_div<int64_t>(n, columns) * split_cluster + ceil_div<int64_t>(m, split_cluster) * split_cluster;
        return launch_cluster(stream, split_cluster, (unsigned)blocks, split_threads, shared_bytes, kernel, a_split,
                              b_split, a_scale, b_scale, a, b, (int)m, (int)k, (int)n, stride);
    };
    // Three blocks an SM hide each other's waiting; narrow strips write in shorter pieces.
    constexpr int64_t third = 72 << 10, half_of_shared = 112 << 10;
    const bool kept = n % 4 == 0;
    if (kept && n > 1024 && strip_bytes<64>(k) <= third) VB_TRY(split(64, strip_bytes<64>(k), split_kernel<2, 64>));
    else if (kept && strip_bytes<32>(k) <= third) VB_TRY(split(32, strip_bytes<32>(k), split_kernel<1, 32>));
    else if (kept && strip_bytes<16>(k) <= half_of_shared) VB_TRY(split(16, strip_bytes<16>(k), split_kernel<1, 16>));
    else if (n % 2 != 0 || n <= 1024) VB_TRY(split(32, 0, split_kernel<1, 0>));
    else VB_TRY(split(64, 0, split_kernel<2, 0>));

    const int steps = (int)(width / product_depth);
    GemmProblem<float> p = {};
    p.c = (float *)x.c, p.c_stride = n, p.m = (int)m, p.n = (int)n, p.k = (int)k;
    p.steps = steps, p.ksplit = smaller(plan.ksplit, steps), p.group_rows = plan.group_rows;
    p.scaled = {a_scale, b_scale, a, b, k, 1, n, 1, (int)k};
    const auto run = [&](auto bm, auto bn, auto pair) {
        return launch_gemm_sm90<half, float, bm.value, bn.value, pair.value, false, true>(
            a_split, width, width, b_split, stride, width, VB_F16, p, stream);
    };
    switch (plan.tile) {
    case TILE_128x192_PAIR: return run(Constant<128>(), Constant<192>(), Constant<1>());
    case TILE_128x128_PAIR: return run(Constant<128>(), Constant<128>(), Constant<1>());
    case TILE_128x128: return run(Constant<128>(), Constant<128>(), Constant<0>());
    case TILE_128x64: return run(Constant<128>(), Constant<64>(), Constant<0>());
    default: return VB_UNSUPPORTED;
    }
}

#endif

} // namespace vb
