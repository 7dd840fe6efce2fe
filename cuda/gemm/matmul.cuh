// matmul.cuh: what the matrix product kernels share. vb_matmul_args says what their sizes and strides mean.

#ifndef VB_CUDA_MATMUL_CUH
#define VB_CUDA_MATMUL_CUH

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

// Whether matrices can be read and written in pieces of 16 bytes along their rows (the last piece of a row may be part).
template <class T>
bool rows_of_vectors(const void *matrix, int64_t stride, int64_t batch_stride) {
    return (uintptr_t)matrix % 16 == 0 && stride % Wide<T>::size == 0 && batch_stride % Wide<T>::size == 0;
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
          b_stride(x.b_stride), c_stride(x.c_stride), a_batch_stride(x.a_batch_stride), b_batch_stride(x.b_batch_stride),
          c_batch_stride(x.c_batch_stride), a_vectors(rows_of_vectors<T>(x.a, x.a_stride, x.a_batch_stride)),
          b_vectors(rows_of_vectors<T>(x.b, x.b_stride, x.b_batch_stride)),
          c_vectors(rows_of_vectors<T>(x.c, x.c_stride, x.c_batch_stride)) {}

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
    if (rows > INT32_MAX / cols) return VB_UNSUPPORTED;
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

// ---- kernels, each returns VB_UNSUPPORTED with nothing enqueued where a product does not suit it -----------------------------

// 16-bit types on tensor cores, operands of whole vectors; capability 8.0.
vb_status matmul_mma(const vb_matmul_args &x, vb_stream *stream);
// F32 with operands rounded to TF32, on tensor cores; capability 8.0.
vb_status matmul_tf32(const vb_matmul_args &x, vb_stream *stream);
// F32 on the fp32 units; capability 8.0.
vb_status matmul_f32(const vb_matmul_args &x, vb_stream *stream);
// F32 with float32 accuracy, contiguous: few rows of A, or few of all; capability 8.0 with the shared memory of 9.0 and 10.0.
// Adds bias[n] to each row, unless null.
vb_status matmul_few(const vb_matmul_args &x, const float *bias, vb_stream *stream);
// Hopper's: F16 and BF16, and F32 with float32 accuracy or TF32's.
vb_status matmul_sm90(const vb_matmul_args &x, vb_stream *stream);

} // namespace vb
#endif
