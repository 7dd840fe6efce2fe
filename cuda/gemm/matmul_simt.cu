// matmul_simt.cu: C = A B in float32 arithmetic, of any type, layout and strides, on any GPU.
//
//   grid     (ceil(m / BM) * ceil(n / BN), in bands of 8 block rows, so that blocks at work together share A and B in
//            L2; matrices)
//   block    256 threads; a thread accumulates TM x TN outputs as 4 x 4 pieces, a warp is 4 x 8 threads
//   shared   two stages of A [16][BM + 4] and B [16][BN + 4] in float32: 33 KiB for 128 x 128
//   moves    about (1 / BM + 1 / BN) m n k elements from L2, 2 m n k FLOPs
//   bound    fp32 units; small products by how few tiles there are

#include "arch/sm90.cuh"
#include "gemm/matmul.cuh"

namespace vb {
namespace {

constexpr int threads = 256;
constexpr int depth = 16; // of a stage along k

// Elements at [row][col..col+3] of a stored matrix; zeros outside.
template <class T>
VB_DEVICE float4 load_four(const T *matrix, int64_t stride, int64_t row, int64_t col, int64_t rows, int64_t cols,
                           bool vectors) {
    float x[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (row < rows) {
        const T *at = matrix + row * stride + col;
        if (vectors && col + 4 <= cols) {
            const Vec<T, 4> four = *reinterpret_cast<const Vec<T, 4> *>(at);
#pragma unroll
            for (int e = 0; e < 4; e++) x[e] = to_float(four.at[e]);
        } else {
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (col + e < cols) x[e] = to_float(at[e]);
        }
    }
    return make_float4(x[0], x[1], x[2], x[3]);
}

// Part of a tile [depth][SIZE + 4] of an operand on its way through registers. An operand is stored [size][k] where
// by_k, else [k][size].
template <class T, int SIZE>
struct TileLoad {
    static constexpr int loads = SIZE * depth / 4 / threads, width = SIZE + 4;
    float4 next[loads];

    VB_DEVICE void load(const T *matrix, int64_t stride, bool by_k, int64_t first, int64_t size, int64_t k0, int64_t k,
                        bool vectors) {
#pragma unroll
        for (int i = 0; i < loads; i++) {
            const int item = i * threads + threadIdx.x;
            next[i] = by_k ? load_four(matrix, stride, first + item / (depth / 4), k0 + item % (depth / 4) * 4, size, k,
                                       vectors)
                           : load_four(matrix, stride, k0 + item / (SIZE / 4), first + item % (SIZE / 4) * 4, k, size,
                                       vectors);
        }
    }
    VB_DEVICE void store(float (*tile)[width], bool by_k) const {
#pragma unroll
        for (int i = 0; i < loads; i++) {
            const int item = i * threads + threadIdx.x;
            if (by_k) {
                const int at = item / (depth / 4), d = item % (depth / 4) * 4;
                tile[d][at] = next[i].x, tile[d + 1][at] = next[i].y, tile[d + 2][at] = next[i].z,
                tile[d + 3][at] = next[i].w;
            } else {
                *reinterpret_cast<float4 *>(&tile[item / (SIZE / 4)][item % (SIZE / 4) * 4]) = next[i];
            }
        }
    }
};

// Code for Hopper leaves out 16 bits, which are for tensor cores there.
template <class T, int BM, int BN, int TM, int TN>
__global__ void __launch_bounds__(threads, BM == 128 ? 1 : 2)
    matmul_simt_kernel(MatMulProblem<T> p, bool a_transposed, bool b_transposed) {
#ifdef VB_SM90A
    if (sizeof(T) == 2) return __trap();
#endif
    static_assert((BM / TM) * (BN / TN) == threads, "a thread has TM x TN outputs");
    constexpr int warps_n = BN / (8 * TN);
    __shared__ __align__(16) float a_tile[2][depth][BM + 4], b_tile[2][depth][BN + 4];
    p.select();
    wait_for_previous_kernel();
    release_next_kernel();
    const TileOrder tile = tile_of_block(ceil_div<int64_t>(p.m, BM), ceil_div<int64_t>(p.n, BN));
    const int64_t m0 = tile.row * BM, n0 = tile.col * BN;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    // First row and column of the thread's first 4 x 4 piece; the next lie 16 rows and 32 columns on.
    const int row = warp / warps_n * 4 * TM + lane / 8 * 4, col = warp % warps_n * 8 * TN + lane % 8 * 4;

    TileLoad<T, BM> a_next;
    TileLoad<T, BN> b_next;
    const auto load = [&](int64_t k0) {
        a_next.load(p.a, p.a_stride, !a_transposed, m0, p.m, k0, p.k, p.a_vectors);
        b_next.load(p.b, p.b_stride, b_transposed, n0, p.n, k0, p.k, p.b_vectors);
    };
    const auto store = [&](int stage) {
        a_next.store(a_tile[stage], !a_transposed);
        b_next.store(b_tile[stage], b_transposed);
    };

    float sum[TM][TN] = {};
    load(0);
    store(0);
    __syncthreads();
    int stage = 0;
    for (int64_t k0 = 0; k0 < p.k; k0 += depth, stage ^= 1) {
        const bool more = k0 + depth < p.k;
        if (more) load(k0 + depth);
#pragma unroll
        for (int d = 0; d < depth; d++) {
            float x[TM], y[TN];
#pragma unroll
            for (int i = 0; i < TM; i += 4)
                *reinterpret_cast<float4 *>(x + i) =
                    *reinterpret_cast<const float4 *>(&a_tile[stage][d][row + i / 4 * 16]);
#pragma unroll
            for (int j = 0; j < TN; j += 4)
                *reinterpret_cast<float4 *>(y + j) =
                    *reinterpret_cast<const float4 *>(&b_tile[stage][d][col + j / 4 * 32]);
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
        if (r >= p.m) continue;
        T *const c = p.c + r * p.c_stride;
#pragma unroll
        for (int j = 0; j < TN; j += 4) {
            const int64_t q = n0 + col + j / 4 * 32;
            Vec<T, 4> four;
#pragma unroll
            for (int e = 0; e < 4; e++) four.at[e] = from_float<T>(sum[i][j + e]);
            if (p.c_vectors && q + 4 <= p.n) {
                *reinterpret_cast<Vec<T, 4> *>(c + q) = four;
            } else {
#pragma unroll
                for (int e = 0; e < 4; e++)
                    if (q + e < p.n) c[q + e] = four.at[e];
            }
        }
    }
}

template <class T, int BM, int BN, int TM, int TN>
vb_status launch_simt(const vb_matmul_args &x, vb_stream *stream) {
    return for_batches<T>(x, BM, BN, [&](const MatMulProblem<T> &p, dim3 grid) {
        return launch_overlapped(stream, grid, threads, 0, matmul_simt_kernel<T, BM, BN, TM, TN>, p,
                                 x.a_transposed != 0, x.b_transposed != 0);
    });
}

} // namespace

vb_status matmul_simt(const vb_matmul_args &x, vb_stream *stream) {
    const bool large = ceil_div<int64_t>(x.m, 128) * ceil_div<int64_t>(x.n, 128) * x.batch >= multiprocessors(stream);
    return with_float_type(x.type, [&](auto zero) {
        using T = decltype(zero);
        return large ? launch_simt<T, 128, 128, 8, 8>(x, stream) : launch_simt<T, 64, 64, 4, 4>(x, stream);
    });
}

} // namespace vb
