// gemm_split_sm90.cu: matrix products of F32 with float32 accuracy on Hopper's tensor cores (the kernel is in
// gemm_sm90_kernel.cuh).
//
// An element is the sum of two F16 numbers to 22 bits and a sign (Ootomo & Yokota 2022), after its row of A or column of B
// was scaled by a power of two that puts the largest magnitude into [2^14, 2^15). The products of two low parts, 2^-24 of
// the whole at most, are left out. An element 2^-39 below the largest of its row or column is lost, as one 2^-24 below the
// sum is in float32: that shows only where a row and a column both span more and their large elements meet small ones alone.
// A row or column with Inf or NaN is computed in plain float32 arithmetic, as IEEE 754 has it, slowly.
//
// split_kernel:
//   grid     clusters of 8 blocks: first one a strip of 64 columns of B (32 where those are few), each block an eighth of
//            its rows; then one row of A a block
//   block    256 threads
//   shared   the maxima of the strip
//   moves    4 (m k + k n) bytes read, as many written; what is read twice comes from L2
//   bound    memory
// The product reads 4 (m k + k n) bytes at least, writes 4 m n. FLOPs 6 m n k, bound by the tensor cores.

#include "gemm_sm90_kernel.cuh"
#include "scaling.cuh"

namespace vb {

#ifdef VB_WITH_SM90

namespace {

constexpr int split_threads = 256;
constexpr int split_cluster = 8;
constexpr int chunk = gemm_depth / 2; // of k: so many high parts, then as many low ones

#ifdef VB_SM90A

// Where element i of k lies in a split operand; its low part is `chunk` further on.
VB_DEVICE int64_t place(int64_t i) { return i / chunk * 2 * chunk + i % chunk; }

VB_DEVICE int shift_of(unsigned bits) { return bits >= infinity_bits ? gemm_not_finite : raise_of(bits); }
// Of a row that is not finite the parts are not used.
VB_DEVICE Raise raise_by(int shift) { return Raise(smaller(shift, 255)); }
VB_DEVICE void split(const Raise &raise, float x, half &high, half &low) {
    high = raise.high(x);
    low = raise.low(x, high);
}

// Row `row` of A[..][k]: out[row][2 * ceil(k / chunk) * chunk], padded with zeros. Up to `held` floats a thread stay in
// registers between finding the maximum and splitting.
VB_DEVICE void split_row(half *out, int *shift, const float *x, int64_t row, int k, unsigned *scratch) {
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
    for (int i = (held * split_threads + thread) * 4; i < k; i += split_threads * 4) most = max(most, greatest_magnitude(load(i)));
    most = __reduce_max_sync(all_lanes, most);
    if (thread % 32 == 0) scratch[thread / 32] = most;
    __syncthreads();
    most = __reduce_max_sync(all_lanes, scratch[thread % (split_threads / 32)]);
    const int raised = shift_of(most);
    if (thread == 0) shift[row] = raised;
    const Raise raise = raise_by(raised);
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
VB_DEVICE void split_columns(half *out, int *shift, const float *x, int64_t strip, int k, int n, int64_t stride,
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
        const int raised = shift_of(all);
        raise[c] = raise_by(raised);
        if (rank == 0 && warp == 0 && inside) shift[column + c] = raised;
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

template <int C>
__global__ __launch_bounds__(split_threads) void split_kernel(half *a_out, half *b_out, int *a_shift, int *b_shift,
                                                              const float *a, const float *b, int m, int k, int n,
                                                              int64_t b_stride) {
#ifdef VB_SM90A
    __shared__ unsigned scratch[32 * C];
    if (threadIdx.x < 32 * C) scratch[threadIdx.x] = 0;
    __syncthreads();
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t strips = ceil_div(n, 32 * C), column_blocks = strips * split_cluster;
    if (blockIdx.x < column_blocks) split_columns<C>(b_out, b_shift, b, blockIdx.x / split_cluster, k, n, b_stride, scratch);
    else if (blockIdx.x - column_blocks < m) split_row(a_out, a_shift, a, blockIdx.x - column_blocks, k, scratch);
#endif
}

constexpr int64_t align256(int64_t bytes) { return (bytes + 255) / 256 * 256; }

} // namespace

vb_status gemm_split_sm90(float *c, const float *a, const float *b, int64_t m, int64_t k, int64_t n, const GemmPlan &plan,
                          vb_stream *stream) {
    if (m >= 1 << 28 || n >= 1 << 28 || k >= 1 << 28 || k == 0 || !aligned16(a, b, c)) return VB_UNSUPPORTED;
    const int64_t width = ceil_div<int64_t>(k, chunk) * 2 * chunk, stride = (n + 7) / 8 * 8;
    const int64_t a_bytes = align256(m * width * 2), b_bytes = align256(width * stride * 2);
    char *memory;
    if (workspace((void **)&memory, a_bytes + b_bytes + (m + n) * 4, stream) != VB_OK) return VB_UNSUPPORTED;
    half *const a_split = (half *)memory, *const b_split = (half *)(memory + a_bytes);
    int *const a_shift = (int *)(memory + a_bytes + b_bytes), *const b_shift = a_shift + m;

    const bool narrow = n % 2 != 0 || n <= 1024;
    const int64_t blocks = ceil_div<int64_t>(n, narrow ? 32 : 64) * split_cluster + ceil_div<int64_t>(m, split_cluster) * split_cluster;
    VB_TRY(launch_cluster(stream, split_cluster, (unsigned)blocks, split_threads, 0, narrow ? split_kernel<1> : split_kernel<2>,
                          a_split, b_split, a_shift, b_shift, a, b, (int)m, (int)k, (int)n, stride));

    const int steps = (int)(width / gemm_depth);
    const GemmProblem<float> p = {c, (int)m, (int)n, (int)k, steps, smaller(plan.splits, steps), plan.group_rows, 0,
                                  a_shift, b_shift, a, b};
    const auto run = [&](auto bm, auto bn, auto pair) {
        return launch_gemm_sm90<half, float, bm.value, bn.value, pair.value, true>(a_split, width, width, b_split, stride,
                                                                                           width, VB_F16, p, stream);
    };
    switch (plan.tile) {
    case TILE_128x192_PAIR: return run(Constant<128>(), Constant<192>(), Constant<1>());
    case TILE_128x128_PAIR: return run(Constant<128>(), Constant<128>(), Constant<1>());
    case TILE_128x128: return run(Constant<128>(), Constant<128>(), Constant<0>());
    case TILE_128x64: return run(Constant<128>(), Constant<64>(), Constant<0>());
    default: return VB_UNSUPPORTED;
    }
}

#else

vb_status gemm_split_sm90(float *, const float *, const float *, int64_t, int64_t, int64_t, const GemmPlan &, vb_stream *) {
    return VB_UNSUPPORTED;
}

#endif

} // namespace vb
