// matmul.cuh: what the matrix product kernels share. vb_matmul_args says what their sizes and strides mean.

#ifndef VB_CUDA_MATMUL_CUH
#define VB_CUDA_MATMUL_CUH

#include "gemm/choose.h"
#include "runtime/common.cuh"

namespace vb {

struct TileOrder {
    int64_t row, col;
};

// The tile of this block in a grid of rows * cols tiles: bands of 8 rows, down each column of the band. Blocks that run
// together then read few rows of A and few columns of B, which stay in L2.
VB_DEVICE TileOrder tile_of_block(int64_t rows, int64_t cols) {
    constexpr int64_t band = 8;
    const int64_t block = blockIdx.x, first = block / (band * cols) * band;
    const int64_t height = smaller(band, rows - first), within = block - first * cols;
    return {first + within % height, within / height};
}

// The product that blocks with the same blockIdx.y compute.
template <class T>
struct MatMulProblem {
    T *c;
    const T *a, *b;
    int64_t m, k, n, a_stride, b_stride, c_stride, a_batch_stride, b_batch_stride, c_batch_stride;
    bool a_vectors, b_vectors, c_vectors;

    explicit MatMulProblem(const vb_matmul_args &x)
        : c((T *)x.c), a((const T *)x.a), b((const T *)x.b), m(x.m), k(x.k), n(x.n), a_stride(x.a_stride),
          b_stride(x.b_stride), c_stride(x.c_stride), a_batch_stride(x.a_batch_stride),
          b_batch_stride(x.b_batch_stride), c_batch_stride(x.c_batch_stride),
          a_vectors(matmul_vectors(x.a, x.type, x.a_stride, x.a_batch_stride)),
          b_vectors(matmul_vectors(x.b, x.type, x.b_stride, x.b_batch_stride)),
          c_vectors(matmul_vectors(x.c, x.type, x.c_stride, x.c_batch_stride)) {}

    VB_DEVICE void select() {
        a += blockIdx.y * a_batch_stride;
        b += blockIdx.y * b_batch_stride;
        c += blockIdx.y * c_batch_stride;
    }
};

// Calls launch(problem, grid) for all matrices of a batch, in as many launches as a grid's height makes necessary.
template <class T, class F>
vb_status for_batches(vb_matmul_args x, int64_t tile_m, int64_t tile_n, F launch) {
    constexpr int64_t most = 65535;
    const int64_t rows = ceil_div<int64_t>(x.m, tile_m), cols = ceil_div<int64_t>(x.n, tile_n);
    for (; x.batch > 0; x.batch -= most) {
        VB_TRY(launch(MatMulProblem<T>(x), dim3((unsigned)(rows * cols), (unsigned)smaller(x.batch, most))));
        x.a = (const T *)x.a + most * x.a_batch_stride;
        x.b = (const T *)x.b + most * x.b_batch_stride;
        x.c = (T *)x.c + most * x.c_batch_stride;
    }
    return VB_OK;
}

// Calls f(A_T, B_T) with the layouts as types: whether A is stored [k][m] and B [n][k].
template <bool VALUE>
struct Bool {
    static constexpr bool value = VALUE;
};
template <class F>
vb_status with_layouts(const vb_matmul_args &x, F f) {
    if (x.a_transposed) return x.b_transposed ? f(Bool<true>(), Bool<true>()) : f(Bool<true>(), Bool<false>());
    return x.b_transposed ? f(Bool<false>(), Bool<true>()) : f(Bool<false>(), Bool<false>());
}

// The first `bytes` of 16 from global memory to a shared address, then zeros; nothing is read where there are none.
VB_DEVICE void copy_async_part(unsigned shared, const void *global, int bytes) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(bytes));
#endif
}
// One float, or zero.
VB_DEVICE void copy_async_word(unsigned shared, const void *global, bool valid) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(global), "r"(valid ? 4 : 0));
#endif
}

// ---- blocks that share the k of a tile ------------------------------------------------------------------------------

// Where the sums of such blocks go: float4s [tile][part][so many a thread][thread].
struct KParts {
    int count; // of a tile
    float4 *sums;
    unsigned *counters; // one a tile
};

// Memory for `tiles` tiles of so many float4s in `count` parts. Without room for it the parts stay together.
inline vb_status plan_k_parts(KParts *parts, int count, int64_t tiles, int64_t vectors, vb_stream *stream) {
    *parts = {count, nullptr, counters(stream)};
    if (count == 1) return VB_OK;
    const vb_status status =
        workspace((void **)&parts->sums, tiles * count * vectors * (int64_t)sizeof(float4), stream);
    if (status == VB_OUT_OF_MEMORY) parts->count = 1;
    return status == VB_OUT_OF_MEMORY ? VB_OK : status;
}

// Narrows the product of a matrix to this block's part of k, whole steps of `depth`.
template <bool A_T, bool B_T, class T>
VB_DEVICE void select_part(MatMulProblem<T> &p, const KParts &parts, int depth) {
    if (parts.count == 1) return;
    const int64_t each = ceil_div<int64_t>(ceil_div<int64_t>(p.k, depth), parts.count) * depth,
                  first = blockIdx.z * each;
    p.a += A_T ? first * p.a_stride : first;
    p.b += B_T ? first : first * p.b_stride;
    p.k = larger<int64_t>(0, smaller(each, p.k - first));
}

// True in the block that is to write its tile, whose `sum` is then that of all parts, added in their order. inside(i):
// whether vector i of this thread lies in the matrix. `flag` is shared memory; the whole block calls it.
template <int COUNT, class F>
VB_DEVICE bool sum_parts(float4 (&sum)[COUNT], const KParts &parts, F inside, unsigned *flag) {
    if (parts.count == 1) return true;
    const unsigned tile = blockIdx.y * gridDim.x + blockIdx.x;
    float4 *const sums = parts.sums + (int64_t)tile * parts.count * COUNT * blockDim.x + threadIdx.x;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        if (inside(i)) __stcg(sums + (blockIdx.z * COUNT + i) * blockDim.x, sum[i]);
    if (!last_arriver(parts.counters + tile, (unsigned)parts.count, flag)) return false;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        if (!inside(i)) continue;
        float4 all = make_float4(0, 0, 0, 0);
#pragma unroll 8
        for (int part = 0; part < parts.count; part++) {
            const float4 one = __ldcg(sums + (part * COUNT + i) * blockDim.x);
            all.x += one.x, all.y += one.y, all.z += one.z, all.w += one.w;
        }
        sum[i] = all;
    }
    return true;
}

// ---- kernels: each takes the products for which choose.h names it --------------------------------------------------

vb_status matmul_3xtf32(const vb_matmul_args &x, const float *bias,
                        vb_stream *stream); // adds bias[n] to each row, unless null
vb_status matmul_ksplit(const vb_matmul_args &x, vb_stream *stream);
vb_status matmul_mma(const vb_matmul_args &x, vb_stream *stream);
// By a kernel for whole vectors.
vb_status matmul_padded(const vb_matmul_args &x, vb_status (*product)(const vb_matmul_args &, vb_stream *),
                        vb_stream *stream);
vb_status matmul_tf32(const vb_matmul_args &x, vb_stream *stream);
vb_status matmul_f32(const vb_matmul_args &x, vb_stream *stream);
vb_status matmul_simt(const vb_matmul_args &x, vb_stream *stream);
vb_status run_matmul(matmul_kernel kernel, const vb_matmul_args &x, vb_stream *stream);

// Chooses and runs; *kernel is what ran.
vb_status matmul(matmul_kernel *kernel, const vb_matmul_args &x, vb_stream *stream);

} // namespace vb
#endif
