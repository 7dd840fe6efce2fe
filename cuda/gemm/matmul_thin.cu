// matmul_thin.cu: C = A B where k is at most 16, in float32 arithmetic: any type, layout and strides, on any GPU.
//
//   grid     (groups of rows * groups of columns, matrices)
//   block    256 threads: a thread has a column of B in registers and goes down rows of A, which lie in shared memory
//   shared   rows of A in float32, 8 KiB at most; columns of B where STAGED, [256][K + 1]: 17 KiB
//   moves    C once, B once for each group of rows, 2 m n k FLOPs
//   bound    the writing of C

#include "gemm/matmul.cuh"

namespace vb {
namespace {

constexpr int threads = 256;
template <int K>
constexpr int most_rows = 2048 / K; // of a block

// k is at most K; `width` columns and `rows` rows a block, powers of two.
// STAGED: B is stored [n][k] with rows that lie apart.
template <class T, int K, bool STAGED>
__global__ void __launch_bounds__(threads)
    matmul_thin_kernel(MatMulProblem<T> p, bool a_transposed, bool b_transposed, int width, int rows) {
    __shared__ __align__(16) float a[most_rows<K>][K];
    p.select();
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t across = ceil_div<int64_t>(p.n, width);
    const int64_t m0 = blockIdx.x / across * rows, column = blockIdx.x % across * width + threadIdx.x % width;
    const int k = (int)p.k, count = (int)smaller<int64_t>(rows, p.m - m0);
    // Neighbouring threads read neighbours in memory.
    const int log_rows = __ffs(rows) - 1;
    for (int i = threadIdx.x; i < (a_transposed ? rows : count) * K; i += threads) {
        const int row = a_transposed ? i & (rows - 1) : i / K, d = a_transposed ? i >> log_rows : i % K;
        const int64_t from = a_transposed ? d * p.a_stride + m0 + row : (m0 + row) * p.a_stride + d;
        if (row < count) a[row][d] = d < k ? to_float(p.a[from]) : 0.0f;
    }
    float b[K];
    if (STAGED) {
        __shared__ float columns[threads][K + 1];
        const int64_t n0 = column - threadIdx.x % width;
        const int count_b = (int)smaller<int64_t>(width, p.n - n0);
#pragma unroll
        for (int j = 0; j < K; j++) { // all of a thread's loads at once
            const int i = threadIdx.x + j * threads, at = i / K, d = i % K;
            b[j] = at < count_b && d < k ? to_float(p.b[(n0 + at) * p.b_stride + d]) : 0.0f;
        }
#pragma unroll
        for (int j = 0; j < K; j++) {
            const int i = threadIdx.x + j * threads;
            columns[i / K][i % K] = b[j];
        }
        __syncthreads();
#pragma unroll
        for (int d = 0; d < K; d++) b[d] = columns[threadIdx.x % width][d];
    } else {
#pragma unroll
        for (int d = 0; d < K; d++) {
            const int64_t from = b_transposed ? column * p.b_stride + d : d * p.b_stride + column;
            b[d] = d < k && column < p.n ? to_float(p.b[from]) : 0.0f;
        }
        __syncthreads();
    }
    if (column >= p.n) return;
    T *c = p.c + m0 * p.c_stride + column;
    const int apart = threads / width;
#pragma unroll 4
    for (int row = threadIdx.x / width; row < count; row += apart) {
        float sum = 0.0f;
#pragma unroll
        for (int d = 0; d < K; d += 4) {
            const float4 four = *(const float4 *)&a[row][d];
            sum = fmaf(four.x, b[d], sum), sum = fmaf(four.y, b[d + 1], sum);
            sum = fmaf(four.z, b[d + 2], sum), sum = fmaf(four.w, b[d + 3], sum);
        }
        c[row * p.c_stride] = from_float<T>(sum);
    }
}

template <class T, int K>
vb_status launch_thin(const vb_matmul_args &x, vb_stream *stream) {
    int width = 1, rows = most_rows<K>;
    while (width < threads && width < x.n) width *= 2;
    // So many outputs of a block are enough, and rows past the last one are of no use.
    while (rows > 16 && (rows * width > most_rows<16> * threads || rows >= 2 * x.m)) rows /= 2;
    const auto blocks = [&] { return ceil_div<int64_t>(x.m, rows) * ceil_div<int64_t>(x.n, width) * x.batch; };
    while (rows > 16 && rows > 2 * threads / width && blocks() < 4 * multiprocessors(stream)) rows /= 2;
    // A thread that reads a row of B by itself shares the 32 bytes of a load with no other.
    const bool staged = x.b_transposed && x.n > 64 && x.b_stride * (int64_t)sizeof(T) >= 64;
    return for_batches<T>(x, rows, width, [&](const MatMulProblem<T> &p, dim3 grid) {
        return launch_overlapped(stream, grid, threads, 0,
                                 staged ? matmul_thin_kernel<T, K, true> : matmul_thin_kernel<T, K, false>, p,
                                 x.a_transposed != 0, x.b_transposed != 0, width, rows);
    });
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
