// matmul_few.cu: C[m][n] = A[m][k] B[k][n] in F32 with float32 accuracy, for few rows of A (or few of all), on tensor cores.
//
// matmul_few_kernel:
//   grid     (tiles of 8 * MT rows of A by 64 * WN columns of B, splits of k), one block an SM
//   block    8 warps, WN side by side; the others take the next 16 of k
//   shared   a ring of up to 6 steps of 16 * 8 / WN of k, at most 224 KiB; then the sums of the block's warps
//   moves    4 (k n) bytes once (from L2 for each further tile of rows), 2 m n k FLOPs
//   bound    the memory that holds B to 16 rows, 3 * 2 m n k FLOPs of mma.sync from 64
//   measured H200, cuBLAS in the same run: 4096 x 4096, 4 / 16 / 32 / 64 rows: 20.9, 23.3, 28.5, 49.2 us (67, 79, 41, 56);
//            4096 x 14336: 59.6, 62.4, 87.7, 162.8 us (91, 119, 186, 186); cubes of 256, 512: 5.1, 9.4 us (6.9, 13.6)
//
// Nothing is transposed: the product is C^T = B^T A^T, and the columns and the k of a fragment may be any, so long as both
// operands agree. Lane (g = lane / 4, t = lane % 4) multiplies the columns 4 g .. 4 g + 3 of the rows k = 4 t .. 4 t + 3 of B
// by k = 4 t .. 4 t + 3 of row g of A. What a warp copies of B it alone reads.
//
// An element is the sum of two TF32 numbers of 11 bits, and three of their four products are summed, small ones first
// (3xTF32: NVIDIA CUTLASS, example 27; Ootomo & Yokota 2022). The tensor core truncates its sums, so that those of each eight
// of k are added to float32 sums in registers. A sum that is Inf or NaN is computed again in plain float32 arithmetic, since
// the two parts of an Inf are not it: so IEEE 754's results stand. The low part of elements below 2^-114 may be lost.

#include "matmul.cuh"

namespace vb {
namespace {

constexpr int warps = 8;
constexpr int threads = warps * 32;
constexpr int depth = 16, warp_columns = 64; // of B that a warp multiplies in a step
constexpr int b_vectors = 8;                 // that a lane has of them

// The ring: a step holds B [warp][b_vectors][lane], then A [warp along k][MT][lane], all vectors of 16 bytes.
template <int MT, int WN>
struct Ring {
    static constexpr int warps_k = warps / WN, step_depth = depth * warps_k;
    static constexpr int columns = warp_columns * WN, rows = 8 * MT;
    static constexpr int stride = columns + 4; // of the sums: rows in different banks
    static constexpr int step_vectors = b_vectors * threads + warps_k * MT * 32;
    static constexpr int steps = smaller(6, 224 * 1024 / (step_vectors * 16));
    static constexpr int bytes = steps * step_vectors * 16;
    static_assert(rows * stride * 4 <= bytes, "the sums take the place of the ring");
};

// c += a b with TF32 operands, m16n8k8: a[0] = (g, t), a[1] = (g+8, t), a[2] = (g, t+4), a[3] = (g+8, t+4), b0 = (t, g),
// b1 = (t+4, g), c = {(g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1)}.
VB_DEVICE void mma_tf32(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

// x = high + low to 22 bits. Hardware ignores the 13 lowest bits of a TF32 operand; adding 0x1000 makes that a rounding.
VB_DEVICE void split_tf32(float x, unsigned &high, unsigned &low) {
    high = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
    low = __float_as_uint(x - __uint_as_float(high)) + 0x1000u;
}

// One step of a warp. Fragment q of B^T has the columns 32 (q / 2) + 4 g + 2 (q % 2) and the next; sum[i] is of the rows
// 8 i .. 8 i + 7 of A. `b` and `a` are this lane's vectors of the step.
template <int MT>
VB_DEVICE void multiply(float (&sum)[MT][4][4], const float4 *b, const float4 *a) {
#pragma unroll
    for (int s = 0; s < 2; s++) { // k = 4 t + 2 s and the next
        unsigned high[4][4], low[4][4];
#pragma unroll
        for (int side = 0; side < 2; side++) {
            const float4 rows[2] = {b[(4 * side + 2 * s) * 32], b[(4 * side + 2 * s + 1) * 32]};
#pragma unroll
            for (int r = 0; r < 2; r++) {
                split_tf32(rows[r].x, high[2 * side][2 * r], low[2 * side][2 * r]);
                split_tf32(rows[r].y, high[2 * side][2 * r + 1], low[2 * side][2 * r + 1]);
                split_tf32(rows[r].z, high[2 * side + 1][2 * r], low[2 * side + 1][2 * r]);
                split_tf32(rows[r].w, high[2 * side + 1][2 * r + 1], low[2 * side + 1][2 * r + 1]);
            }
        }
#pragma unroll
        for (int i = 0; i < MT; i++) {
            const float2 two = reinterpret_cast<const float2 *>(a + i * 32)[s];
            unsigned high0, low0, high1, low1;
            split_tf32(two.x, high0, low0);
            split_tf32(two.y, high1, low1);
            float part[4][4] = {};
#pragma unroll
            for (int q = 0; q < 4; q++) mma_tf32(part[q], low[q], high0, high1);
#pragma unroll
            for (int q = 0; q < 4; q++) mma_tf32(part[q], high[q], low0, low1);
#pragma unroll
            for (int q = 0; q < 4; q++) mma_tf32(part[q], high[q], high0, high1);
#pragma unroll
            for (int q = 0; q < 4; q++)
#pragma unroll
                for (int e = 0; e < 4; e++) sum[i][q][e] += part[q][e];
        }
    }
}

// An element once more, in float32 arithmetic.
__device__ __noinline__ float plain_element(const float *a, const float *b, int k, int n, int row, int column) {
    float sum = 0.0f;
    for (int i = 0; i < k; i++) sum = fmaf(a[(int64_t)row * k + i], b[(int64_t)i * n + column], sum);
    return sum;
}

VB_DEVICE void write_four(float *c, const float *a, const float *b, int k, int n, int row, int column, float4 x) {
    const auto finite = [](float y) { return fabsf(y) <= 3.402823466e38f; };
    if (!finite(x.x)) x.x = plain_element(a, b, k, n, row, column);
    if (!finite(x.y)) x.y = plain_element(a, b, k, n, row, column + 1);
    if (!finite(x.z)) x.z = plain_element(a, b, k, n, row, column + 2);
    if (!finite(x.w)) x.w = plain_element(a, b, k, n, row, column + 3);
    *reinterpret_cast<float4 *>(c + (int64_t)row * n + column) = x;
}

// Where a warp keeps the vector of lane (g, t) of B. The eight lanes of a row copy it together, so that its 128 bytes are one
// request to the L2 (four requests of 32 bytes, lane by lane, halved the bandwidth); they are read lane by lane; both without
// bank conflicts.
VB_DEVICE int swizzled_slot(int g, int t) { return 8 * t + (g ^ (2 * t)); }

template <int MT, int WN>
__global__ void __launch_bounds__(threads, 1) matmul_few_kernel(float *c, const float *a, const float *b, int m, int k, int n,
                                                                int steps_per_split, float *partial) {
    using R = Ring<MT, WN>;
    extern __shared__ __align__(16) char shared[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int warp_n = warp % WN, warp_k = warp / WN;
    float4 *const ring = reinterpret_cast<float4 *>(shared), *const b_ring = ring + warp * b_vectors * 32;
    float4 *const a_ring = ring + b_vectors * threads;
    const int tiles_n = ceil_div(n, R::columns);
    const int m0 = blockIdx.x / tiles_n * R::rows, n0 = blockIdx.x % tiles_n * R::columns;
    const int steps = smaller(steps_per_split, ceil_div(k, R::step_depth) - (int)blockIdx.y * steps_per_split);

    // What this lane copies next: of B, 16 bytes of the rows 4 (lane / 8) .. + 3 of its warp, and again 32 columns on;
    const int k0 = blockIdx.y * steps_per_split * R::step_depth;
    int b_k = k0 + warp_k * depth + lane / 8 * 4;
    const int column = n0 + warp_n * warp_columns + lane % 8 * 4;
    const float *b_at = b + (int64_t)b_k * n + column;
    const unsigned b_to = shared_address(b_ring + swizzled_slot(lane % 8, lane / 8));
    // of A, which the warps side by side share, 16 bytes of a row of step_depth.
    constexpr int row_vectors = R::step_depth / 4, rows_at_once = threads / row_vectors;
    const int a_column = threadIdx.x % row_vectors, a_row = threadIdx.x / row_vectors;
    int a_k = k0 + a_column * 4;
    const float *a_at = a + (int64_t)(m0 + a_row) * k + a_k;
    const unsigned a_to = shared_address(a_ring + a_column / 4 * (MT * 32) + a_row * 4 + a_column % 4);
    wait_for_previous_kernel();
    release_next_kernel();

    int loaded = 0, load_slot = 0;
    const auto load = [&] { // k and n are multiples of 4
        if (loaded++ < steps) {
            const unsigned slot_bytes = load_slot * R::step_vectors * 16;
#pragma unroll
            for (int j = 0; j < b_vectors; j++) {
                const int row = j % 4, further = j / 4 * 32;
                copy_async(b_to + slot_bytes + j * 32 * 16, b_at + (int64_t)row * n + further, b_k < k && column + further < n);
            }
#pragma unroll
            for (int i = 0; i < ceil_div(R::rows, rows_at_once); i++) {
                const int row = a_row + i * rows_at_once;
                if (R::rows % rows_at_once == 0 || row < R::rows)
                    copy_async(a_to + slot_bytes + i * rows_at_once * 4 * 16, a_at + (int64_t)(i * rows_at_once) * k,
                               a_k < k && m0 + row < m);
            }
            b_k += R::step_depth;
            a_k += R::step_depth;
            a_at += R::step_depth;
            b_at += (int64_t)R::step_depth * n;
            if (++load_slot == R::steps) load_slot = 0;
        }
        copy_async_commit();
    };
#pragma unroll
    for (int i = 0; i < R::steps - 1; i++) load();

    float sum[MT][4][4] = {};
    int slot = 0;
    for (int step = 0; step < steps; step++) {
        copy_async_wait<R::steps - 2>();
        __syncthreads(); // all have copied this step, and read the one that is overwritten now
        load();
        const int at = slot * R::step_vectors;
        multiply<MT>(sum, b_ring + at + swizzled_slot(g, t), a_ring + at + warp_k * (MT * 32) + lane);
        if (++slot == R::steps) slot = 0;
    }
    copy_async_wait<0>();

    // The warps that share columns add up, one after the other: the same order each time.
    float *const sums = reinterpret_cast<float *>(shared);
    for (int turn = 0; turn < R::warps_k; turn++) {
        __syncthreads();
        if (turn != warp_k) continue;
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int h = 0; h < 2; h++) // row 8 i + 2 t + h of A
#pragma unroll
                for (int q = 0; q < 4; q += 2) {
                    float4 *const to = reinterpret_cast<float4 *>(sums + (8 * i + 2 * t + h) * R::stride + warp_n * warp_columns +
                                                                  16 * q + 4 * g);
                    float4 x = make_float4(sum[i][q][h], sum[i][q][2 + h], sum[i][q + 1][h], sum[i][q + 1][2 + h]);
                    if (turn > 0) {
                        const float4 y = *to;
                        x.x += y.x, x.y += y.y, x.z += y.z, x.w += y.w;
                    }
                    *to = x;
                }
    }
    __syncthreads();
    const int rows = smaller(R::rows, m - m0), columns = smaller(R::columns, n - n0);
    constexpr int fours = R::columns / 4;
    for (int i = threadIdx.x; i < rows * fours; i += threads) {
        const int row = m0 + i / fours, first = i % fours * 4;
        if (first >= columns) continue;
        const float4 x = *reinterpret_cast<const float4 *>(sums + i / fours * R::stride + first);
        if (gridDim.y == 1) write_four(c, a, b, k, n, row, n0 + first, x);
        else *reinterpret_cast<float4 *>(partial + ((int64_t)blockIdx.y * m + row) * n + n0 + first) = x;
    }
}

// Adds up the splits' sums [splits][m][n], in order; four columns a thread. A kernel of its own: the blocks that come last to
// their tiles would be too few for it (a third of the time of 64 rows).
__global__ void __launch_bounds__(threads) add_splits_kernel(float *c, const float *a, const float *b, int m, int k, int n,
                                                             int splits, const float *partial) {
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t at = ((int64_t)blockIdx.x * threads + threadIdx.x) * 4, size = (int64_t)m * n;
    if (at >= size) return;
    float4 x = *reinterpret_cast<const float4 *>(partial + at);
#pragma unroll 8
    for (int s = 1; s < splits; s++) {
        const float4 y = *reinterpret_cast<const float4 *>(partial + s * size + at);
        x.x += y.x, x.y += y.y, x.z += y.z, x.w += y.w;
    }
    write_four(c, a, b, k, n, (int)(at / n), (int)(at % n), x);
}

template <int MT, int WN>
vb_status launch_few(const vb_matmul_args &x, vb_stream *stream) {
    using R = Ring<MT, WN>;
    if (shared_limit(stream) < R::bytes) return VB_UNSUPPORTED;
    const int64_t tiles = ceil_div<int64_t>(x.m, R::rows) * ceil_div<int64_t>(x.n, R::columns), at_once = multiprocessors(stream);
    const int64_t steps = ceil_div<int64_t>(x.k, R::step_depth);
    // As many splits as keep every multiprocessor equally long at work.
    int64_t splits = 1, least = 0;
    for (int64_t s = 1; s <= smaller<int64_t>(steps, 16); s++) {
        const int64_t time = ceil_div(tiles * s, at_once) * (ceil_div(steps, s) + 4); // 4: to begin and to end a block
        if (least == 0 || time < least) least = time, splits = s;
    }
    const int64_t each = ceil_div(steps, splits);
    splits = ceil_div(steps, each);
    void *partial = nullptr;
    if (splits > 1) VB_TRY(workspace(&partial, splits * x.m * x.n * (int64_t)sizeof(float), stream));
    float *const c = (float *)x.c;
    const float *const a = (const float *)x.a, *const b = (const float *)x.b;
    const int m = (int)x.m, k = (int)x.k, n = (int)x.n;
    VB_TRY(launch_overlapped(stream, dim3((unsigned)tiles, (unsigned)splits), threads, R::bytes, matmul_few_kernel<MT, WN>, c, a, b,
                             m, k, n, (int)each, (float *)partial));
    if (splits == 1) return VB_OK;
    return launch_overlapped(stream, (unsigned)ceil_div<int64_t>(x.m * x.n, 4 * threads), threads, 0, add_splits_kernel, c, a, b, m,
                             k, n, (int)splits, (const float *)partial);
}

template <int WN>
vb_status with_columns(const vb_matmul_args &x, vb_stream *stream) {
    if (x.m <= 8) return launch_few<1, WN>(x, stream);
    if (x.m <= 16) return launch_few<2, WN>(x, stream);
    if (x.m <= 32 || x.m > 64) return launch_few<4, WN>(x, stream);
    return launch_few<8, WN>(x, stream);
}

} // namespace

vb_status matmul_few(const vb_matmul_args &x, vb_stream *stream) {
    constexpr int64_t most = 1 << 30;
    const bool contiguous = x.batch == 1 && !x.a_transposed && !x.b_transposed && x.a_stride == x.k && x.b_stride == x.n && x.c_stride == x.n;
    const bool few = x.m <= 64 || (double)x.m * x.k * x.n <= 640.0 * 640 * 640; // larger ones repay gemm_split_sm90.cu's passes
    if (!few || !contiguous || x.precision == VB_PRECISION_IEEE || x.k == 0 || x.k % 4 || x.n % 4 || !aligned16(x.a, x.b, x.c) ||
        x.k > most || x.n > most || x.m > most)
        return VB_UNSUPPORTED;
    return x.n > 2048 ? with_columns<4>(x, stream) : with_columns<2>(x, stream);
}

} // namespace vb
