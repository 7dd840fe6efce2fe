// matmul.cu: C[m][n] = A[m][k] B[k][n], row-major, in float32 arithmetic; chooses the kernel. Hopper's are in gemm_sm90.cu
// and gemm_split_sm90.cu. Else, where rows are whole 16-byte vectors, 16-bit matrices go to the tensor cores of
// matmul_mma.cu and float ones to matmul_f32.cu; a single row goes to matmul_row.cu. What is here takes the rest: odd sizes,
// and GPUs before 8.0.
//
// matmul_simt_kernel:
//   grid     ceil(m / BM) * ceil(n / BN), in bands of 8 block rows, so that blocks at work together share A and B in L2
//   block    256 threads; a thread accumulates TM x TN outputs as 4 x 4 pieces, a warp is 4 x 8 threads
//   shared   two stages of A [16][BM + 4] (transposed) and B [16][BN] in float32: 33 KiB for 128 x 128
//   moves    about (1 / BM + 1 / BN) m n k elements from L2, 2 m n k FLOPs
//   bound    fp32 units; small products by how few tiles there are

#include "gemm_sm90.cuh"
#include "matmul.cuh"

namespace vb {
namespace {

constexpr int threads = 256;
constexpr int depth = 16; // of a stage along k

// Elements at [row][col..col+3] of a matrix [rows][cols]; zeros outside.
template <class T>
VB_DEVICE float4 load_four(const T *matrix, int64_t row, int64_t col, int64_t rows, int64_t cols, bool vectors) {
    float x[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (row < rows) {
        const T *at = matrix + row * cols + col;
        if (vectors) { // cols is a multiple of 4
            if (col < cols) {
                const Vec<T, 4> four = *reinterpret_cast<const Vec<T, 4> *>(at);
#pragma unroll
                for (int e = 0; e < 4; e++) x[e] = to_float(four.at[e]);
            }
        } else {
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (col + e < cols) x[e] = to_float(at[e]);
        }
    }
    return make_float4(x[0], x[1], x[2], x[3]);
}

template <class T, int BM, int BN, int TM, int TN>
__global__ void __launch_bounds__(threads, 2)
    matmul_simt_kernel(T *c, const T *a, const T *b, int64_t m, int64_t k, int64_t n, bool a_vectors, bool b_vectors) {
    static_assert((BM / TM) * (BN / TN) == threads, "a thread has TM x TN outputs");
    constexpr int warps_n = BN / (8 * TN);
    constexpr int a_loads = BM * depth / 4 / threads, b_loads = BN * depth / 4 / threads;
    __shared__ __align__(16) float a_tile[2][depth][BM + 4], b_tile[2][depth][BN];
    wait_for_previous_kernel();
    release_next_kernel();
    const TileOrder tile = tile_of_block(ceil_div<int64_t>(m, BM), ceil_div<int64_t>(n, BN));
    const int64_t m0 = tile.row * BM, n0 = tile.col * BN;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    // First row and column of the thread's first 4 x 4 piece; the next lie 16 rows and 32 columns on.
    const int row = warp / warps_n * 4 * TM + lane / 8 * 4, col = warp % warps_n * 8 * TN + lane % 8 * 4;

    float4 a_next[a_loads], b_next[b_loads];
    const auto load = [&](int64_t k0) {
#pragma unroll
        for (int i = 0; i < a_loads; i++) {
            const int item = i * threads + threadIdx.x;
            a_next[i] = load_four(a, m0 + item / (depth / 4), k0 + item % (depth / 4) * 4, m, k, a_vectors);
        }
#pragma unroll
        for (int i = 0; i < b_loads; i++) {
            const int item = i * threads + threadIdx.x;
            b_next[i] = load_four(b, k0 + item / (BN / 4), n0 + item % (BN / 4) * 4, k, n, b_vectors);
        }
    };
    const auto store = [&](int stage) {
#pragma unroll
        for (int i = 0; i < a_loads; i++) {
            const int item = i * threads + threadIdx.x, at = item / (depth / 4), first = item % (depth / 4) * 4;
            a_tile[stage][first][at] = a_next[i].x;
            a_tile[stage][first + 1][at] = a_next[i].y;
            a_tile[stage][first + 2][at] = a_next[i].z;
            a_tile[stage][first + 3][at] = a_next[i].w;
        }
#pragma unroll
        for (int i = 0; i < b_loads; i++) {
            const int item = i * threads + threadIdx.x;
            *reinterpret_cast<float4 *>(&b_tile[stage][item / (BN / 4)][item % (BN / 4) * 4]) = b_next[i];
        }
    };

    float sum[TM][TN] = {};
    load(0);
    store(0);
    __syncthreads();
    int stage = 0;
    for (int64_t k0 = 0; k0 < k; k0 += depth, stage ^= 1) {
        const bool more = k0 + depth < k;
        if (more) load(k0 + depth);
#pragma unroll
        for (int d = 0; d < depth; d++) {
            float x[TM], y[TN];
#pragma unroll
            for (int i = 0; i < TM; i += 4)
                *reinterpret_cast<float4 *>(x + i) = *reinterpret_cast<const float4 *>(&a_tile[stage][d][row + i / 4 * 16]);
#pragma unroll
            for (int j = 0; j < TN; j += 4)
                *reinterpret_cast<float4 *>(y + j) = *reinterpret_cast<const float4 *>(&b_tile[stage][d][col + j / 4 * 32]);
#pragma unroll
            for (int i = 0; i < TM; i++)
#pragma unroll
                for (int j = 0; j < TN; j++) sum[i][j] += x[i] * y[j];
        }
        if (more) store(stage ^ 1);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < TM; i++) {
        const int64_t r = m0 + row + i / 4 * 16 + i % 4;
        if (r >= m) continue;
#pragma unroll
        for (int j = 0; j < TN; j += 4) {
            const int64_t q = n0 + col + j / 4 * 32;
            if (b_vectors) {
                Vec<T, 4> four;
#pragma unroll
                for (int e = 0; e < 4; e++) four.at[e] = from_float<T>(sum[i][j + e]);
                if (q < n) *reinterpret_cast<Vec<T, 4> *>(c + r * n + q) = four;
            } else {
#pragma unroll
                for (int e = 0; e < 4; e++)
                    if (q + e < n) c[r * n + q + e] = from_float<T>(sum[i][j + e]);
            }
        }
    }
}

template <class T, int BM, int BN, int TM, int TN>
vb_status launch_simt(void *c, const void *a, const void *b, int64_t m, int64_t k, int64_t n, vb_stream *stream) {
    const int64_t rows = ceil_div<int64_t>(m, BM), cols = ceil_div<int64_t>(n, BN);
    if (rows > INT32_MAX / cols) return VB_UNSUPPORTED;
    return launch_overlapped(stream, (unsigned)(rows * cols), threads, 0, matmul_simt_kernel<T, BM, BN, TM, TN>, (T *)c,
                             (const T *)a, (const T *)b, m, k, n, k % 4 == 0 && aligned16(a),
                             n % 4 == 0 && aligned16(b, c));
}

// Hopper's kernels. Float32 operands have to be split first, which small products and those of few rows do not repay.
vb_status matmul_sm90(void *c, const void *a, const void *b, vb_dtype type, int64_t m, int64_t k, int64_t n,
                      vb_stream *stream) {
    if (type != VB_F32)
        return gemm_sm90(c, a, b, type, m, k, n, false, plan_gemm(m, k, n, multiprocessors(stream)), stream);
    if (m < 16 || k < 128 || (double)m * n * k < 256.0 * 256 * 256) return VB_UNSUPPORTED;
    return gemm_split_sm90((float *)c, (const float *)a, (const float *)b, m, k, n,
                           plan_gemm_split(m, k, n, multiprocessors(stream)), stream);
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" vb_status vb_cuda_matmul(void *c, const void *a, const void *b, vb_dtype type, int64_t m, int64_t k, int64_t n,
                                    vb_stream *stream) {
    if (m == 1) return vb_cuda_matmul_single_row(c, a, b, type, k, n, stream);
    if (capability(stream) == 90) {
        const vb_status status = matmul_sm90(c, a, b, type, m, k, n, stream);
        if (status != VB_UNSUPPORTED) return status;
    }
    if (type != VB_F32 && capability(stream) >= 80 && k % 8 == 0 && n % 8 == 0 && aligned16(a, b, c))
        return matmul_mma(c, a, b, type, m, k, n, stream);
    if (type == VB_F32 && capability(stream) >= 80 && k % 4 == 0 && n % 4 == 0 && aligned16(a, b, c))
        return matmul_f32((float *)c, (const float *)a, (const float *)b, m, k, n, stream);
    const bool large = ceil_div<int64_t>(m, 128) * ceil_div<int64_t>(n, 128) >= multiprocessors(stream);
    return with_float_type(type, [&](auto zero) {
        using T = decltype(zero);
        if (large) return launch_simt<T, 128, 128, 8, 8>(c, a, b, m, k, n, stream);
        return launch_simt<T, 64, 64, 4, 4>(c, a, b, m, k, n, stream);
    });
}
