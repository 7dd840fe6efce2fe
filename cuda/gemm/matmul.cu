// matmul.cu: C = A B, in float32 arithmetic; chooses the kernel. Hopper's products of contiguous matrices are in gemm_sm90.cu and
// gemm_split_sm90.cu, all its others in matmul_sm90.cu. Else, where rows are whole 16-byte vectors, 16-bit matrices go to the
// tensor cores of matmul_mma.cu; float ones go to matmul_f32.cu, or matmul_tf32.cu where that is permitted; a single row goes to
// matmul_row.cu. What is here takes the rest: 16-bit matrices of odd sizes, and GPUs before 8.0.
//
// matmul_simt_kernel:
//   grid     (ceil(m / BM) * ceil(n / BN), in bands of 8 block rows, so that blocks at work together share A and B in L2; matrices)
//   block    256 threads; a thread accumulates TM x TN outputs as 4 x 4 pieces, a warp is 4 x 8 threads
//   shared   two stages of A [16][BM + 4] and B [16][BN + 4] in float32: 33 KiB for 128 x 128
//   moves    about (1 / BM + 1 / BN) m n k elements from L2, 2 m n k FLOPs
//   bound    fp32 units; small products by how few tiles there are

#include "gemm/gemm_few_sm90.cuh"
#include "gemm/gemm_sm90.cuh"
#include "gemm/matmul.cuh"

namespace vb {
namespace {

constexpr int threads = 256;
constexpr int depth = 16; // of a stage along k

// Elements at [row][col..col+3] of a stored matrix; zeros outside.
template <class T>
VB_DEVICE float4 load_four(const T *matrix, int64_t stride, int64_t row, int64_t col, int64_t rows, int64_t cols, bool vectors) {
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

// Part of a tile [depth][SIZE + 4] of an operand on its way through registers. An operand is stored [size][k] where by_k,
// else [k][size].
template <class T, int SIZE>
struct TileLoad {
    static constexpr int loads = SIZE * depth / 4 / threads, width = SIZE + 4;
    float4 next[loads];

    VB_DEVICE void load(const T *matrix, int64_t stride, bool by_k, int64_t first, int64_t size, int64_t k0, int64_t k, bool vectors) {
#pragma unroll
        for (int i = 0; i < loads; i++) {
            const int item = i * threads + threadIdx.x;
            next[i] = by_k ? load_four(matrix, stride, first + item / (depth / 4), k0 + item % (depth / 4) * 4, size, k, vectors)
                           : load_four(matrix, stride, k0 + item / (SIZE / 4), first + item % (SIZE / 4) * 4, k, size, vectors);
        }
    }
    VB_DEVICE void store(float (*tile)[width], bool by_k) const {
#pragma unroll
        for (int i = 0; i < loads; i++) {
            const int item = i * threads + threadIdx.x;
            if (by_k) {
                const int at = item / (depth / 4), d = item % (depth / 4) * 4;
                tile[d][at] = next[i].x, tile[d + 1][at] = next[i].y, tile[d + 2][at] = next[i].z, tile[d + 3][at] = next[i].w;
            } else {
                *reinterpret_cast<float4 *>(&tile[item / (SIZE / 4)][item % (SIZE / 4) * 4]) = next[i];
            }
        }
    }
};

template <class T, int BM, int BN, int TM, int TN>
__global__ void __launch_bounds__(threads, BM == 128 ? 1 : 2) matmul_simt_kernel(MatMulProblem<T> p, bool a_transposed, bool b_transposed) {
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
        return launch_overlapped(stream, grid, threads, 0, matmul_simt_kernel<T, BM, BN, TM, TN>, p, x.a_transposed != 0,
                                 x.b_transposed != 0);
    });
}

vb_status matmul_simt(const vb_matmul_args &x, vb_stream *stream) {
    const bool large = ceil_div<int64_t>(x.m, 128) * ceil_div<int64_t>(x.n, 128) * x.batch >= multiprocessors(stream);
    return with_float_type(x.type, [&](auto zero) {
        using T = decltype(zero);
        return large ? launch_simt<T, 128, 128, 8, 8>(x, stream) : launch_simt<T, 64, 64, 4, 4>(x, stream);
    });
}

// Whether the matrices have no gaps and are stored as gemm_sm90.cuh wants them.
bool contiguous(const vb_matmul_args &x) {
    return x.batch == 1 && !x.a_transposed && x.a_stride == x.k && x.b_stride == (x.b_transposed ? x.k : x.n) && x.c_stride == x.n;
}

// Hopper's products of contiguous matrices. Float32 operands have to be split first, which small products and those of few
// rows do not repay.
vb_status gemm(const vb_matmul_args &x, vb_stream *stream) {
    if (!contiguous(x)) return VB_UNSUPPORTED;
    const int sms = multiprocessors(stream);
    if (x.type != VB_F32 && gemm_few_suits(x.m, x.n, x.k, sms)) {
        const vb_status status = gemm_few_sm90(x.c, x.a, x.b, x.type, x.m, x.k, x.n, x.b_transposed != 0, stream);
        if (status != VB_UNSUPPORTED) return status;
    }
    if (x.type != VB_F32) return gemm_sm90(x.c, x.a, x.b, x.type, x.m, x.k, x.n, x.b_transposed != 0, plan_gemm(x.m, x.k, x.n, sms), stream);
    if (x.precision != VB_PRECISION_FLOAT32 || x.b_transposed) return VB_UNSUPPORTED;
    if (x.m < 16 || x.k < 128 || (double)x.m * x.n * x.k < 256.0 * 256 * 256) return VB_UNSUPPORTED;
    return gemm_split_sm90((float *)x.c, (const float *)x.a, (const float *)x.b, x.m, x.k, x.n, plan_gemm_split(x.m, x.k, x.n, sms), stream);
}

} // namespace
} // namespace vb

using namespace vb;

// The first kernel that takes the product.
extern "C" vb_status vb_cuda_matmul_batched(const vb_matmul_args *args, vb_stream *stream) {
    const vb_matmul_args &x = *args;
    vb_status status = VB_UNSUPPORTED;
    const auto otherwise = [&](bool suits, vb_status (*kernel)(const vb_matmul_args &, vb_stream *)) {
        if (suits && status == VB_UNSUPPORTED) status = kernel(x, stream);
    };
    const bool ampere = capability(stream) >= 80, hopper = capability(stream) == 90, f32 = x.type == VB_F32;
    otherwise(ampere && f32, [](const vb_matmul_args &y, vb_stream *on) { return matmul_few(y, nullptr, on); });
    otherwise(hopper, gemm);
    otherwise(hopper && x.precision != VB_PRECISION_IEEE, matmul_sm90);
    otherwise(ampere && !f32, matmul_mma);
    otherwise(ampere && f32 && x.precision == VB_PRECISION_TF32, matmul_tf32);
    otherwise(ampere && f32, matmul_f32);
    otherwise(true, matmul_simt);
    return status;
}
