// matmul_thin.cu: C = A B where k is at most 16, in float32 arithmetic: any type, layout and strides, on any GPU.
//
//   grid     (groups of rows * groups of columns, matrices)
//   block    up to 256 threads: a thread has COLUMNS columns of B in registers, `width` apart, and goes down rows of A
//   shared   rows of A in float32, 8 KiB at most; columns of B where STAGED, [256][K + 1]: 17 KiB
//   moves    C once, B once for each group of rows, 2 m n k FLOPs
//   bound    the writing of C, whose rows may begin anywhere: see matmul_thin_plan; the reading of A from shared memory
//   measured docs/experiments/2026-11-27-sectors.md

#include "gemm/matmul.cuh"

namespace vb {
namespace {

constexpr int threads = MATMUL_THIN_THREADS;
template <int K>
constexpr int most_rows = MATMUL_THIN_FLOATS / K; // of a block

// k is at most K; `width` threads lie side by side. A block has `rows` rows, a power of two, of every `phases`-th row.
// Of more than one phase its first column is that of the sector in which its first row begins, or one before.
// STAGED: B is stored [n][k] with rows that lie apart.
template <class T, int K, int COLUMNS, bool STAGED>
__global__ void __launch_bounds__(threads)
    matmul_thin_kernel(MatMulProblem<T> p, bool a_transposed, bool b_transposed, int width, unsigned across, int rows,
                       int phases) {
    __shared__ __align__(16) float a[most_rows<K>][K];
    p.select();
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t group = blockIdx.x / across, m0 = group / phases * rows * phases + group % phases;
    if (m0 >= p.m) return;
    const uintptr_t first_row = (uintptr_t)(p.c + m0 * p.c_stride);
    const int64_t n0 = blockIdx.x % across * width * COLUMNS -
                       (phases > 1 ? (int64_t)(first_row % MATMUL_SECTOR / sizeof(T)) : 0);
    const int nth = threadIdx.x % width, k = (int)p.k,
              count = (int)smaller<int64_t>(rows, ceil_div<int64_t>(p.m - m0, phases));
    // Neighbouring threads read neighbours in memory.
    const int log_rows = __ffs(rows) - 1;
    for (int i = threadIdx.x; i < (a_transposed ? rows : count) * K; i += blockDim.x) {
        const int row = a_transposed ? i & (rows - 1) : i / K, d = a_transposed ? i >> log_rows : i % K;
        const int64_t of_a = m0 + (int64_t)row * phases;
        if (row < count)
            a[row][d] = d < k ? to_float(p.a[a_transposed ? d * p.a_stride + of_a : of_a * p.a_stride + d]) : 0.0f;
    }
    float b[COLUMNS][K];
    if (STAGED) {
        __shared__ float columns[threads][K + 1];
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
            const int count_b = (int)smaller<int64_t>(width, p.n - n0 - j * width);
#pragma unroll
            for (int e = 0; e < K; e++) { // all of a thread's loads at once
                const int i = threadIdx.x + e * blockDim.x, at = i / K, d = i % K;
                const int64_t column = n0 + j * width + at;
                b[j][e] = column >= 0 && at < count_b && d < k ? to_float(p.b[column * p.b_stride + d]) : 0.0f;
            }
            if (j > 0) __syncthreads();
#pragma unroll
            for (int e = 0; e < K; e++) {
                const int i = threadIdx.x + e * blockDim.x;
                columns[i / K][i % K] = b[j][e];
            }
            __syncthreads();
#pragma unroll
            for (int d = 0; d < K; d++) b[j][d] = columns[nth][d];
        }
    } else {
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
            const int64_t column = n0 + j * width + nth;
#pragma unroll
            for (int d = 0; d < K; d++) {
                const int64_t from = b_transposed ? column * p.b_stride + d : d * p.b_stride + column;
                b[j][d] = d < k && column >= 0 && column < p.n ? to_float(p.b[from]) : 0.0f;
            }
        }
        __syncthreads();
    }
    const int left = (int)smaller<int64_t>(COLUMNS * width, p.n - n0) - nth; // of columns, from the thread's first on
    const int apart = blockDim.x / width, missing = (int)smaller<int64_t>(0, n0 + nth); // columns before the first
    T *c = p.c + (m0 + (int64_t)(threadIdx.x / width) * phases) * p.c_stride + n0 + nth;
#pragma unroll 2
    for (int row = threadIdx.x / width; row < count; row += apart, c += (int64_t)apart * phases * p.c_stride) {
        float sum[COLUMNS] = {};
#pragma unroll
        for (int d = 0; d < K; d += 4) {
            const float4 four = *(const float4 *)&a[row][d];
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) {
                sum[j] = fmaf(four.x, b[j][d], sum[j]), sum[j] = fmaf(four.y, b[j][d + 1], sum[j]);
                sum[j] = fmaf(four.z, b[j][d + 2], sum[j]), sum[j] = fmaf(four.w, b[j][d + 3], sum[j]);
            }
        }
#pragma unroll
        for (int j = 0; j < COLUMNS; j++)
            if (j * width < left && j * width + missing >= 0) c[j * width] = from_float<T>(sum[j]);
    }
}

template <class T, int K, int COLUMNS>
vb_status launch_thin(const vb_matmul_args &x, const matmul_thin_plan &plan, vb_stream *stream) {
    const int width = plan.width, rows = plan.rows;
    // A thread that reads a row of B by itself shares the 32 bytes of a load with no other.
    const bool staged = x.b_transposed && x.n > 64 && x.b_stride * (int64_t)sizeof(T) >= 64;
    return for_batches<T>(x, rows, width * COLUMNS, [&](const MatMulProblem<T> &p, dim3 grid) {
        grid.x = (unsigned)(matmul_thin_groups(&x, &plan) * plan.across);
        return launch_overlapped(
            stream, grid, threads / width * width, 0,
            staged ? matmul_thin_kernel<T, K, COLUMNS, true> : matmul_thin_kernel<T, K, COLUMNS, false>, p,
            x.a_transposed != 0, x.b_transposed != 0, width, (unsigned)plan.across, rows, plan.phases);
    });
}

template <class T, int K>
vb_status launch_thin(const vb_matmul_args &x, vb_stream *stream) {
    const matmul_thin_plan plan = matmul_thin_plan_of(&x, multiprocessors(stream));
    return plan.columns == 1 ? launch_thin<T, K, 1>(x, plan, stream) : launch_thin<T, K, 2>(x, plan, stream);
}

} // namespace

vb_status matmul_thin(const vb_matmul_args &x, vb_stream *stream) {
    return with_float_type(x.type, [&](auto zero) {
        using T = decltype(zero);
        return x.k <= 4 ? launch_thin<T, 4>(x, stream)
                        : x.k <= 8 ? launch_thin<T, 8>(x, stream) : launch_thin<T, 16>(x, stream);
    });
}

} // namespace vb
