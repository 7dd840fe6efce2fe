// f32.cu: y[n][rows] = x[n][cols] W^T + bias for F32 weights and several rows of x. The products of matrices serve
// where they can, with float32's accuracy; the kernel here serves other GPUs and shapes.
//
//   grid     64 rows of W x 64 rows of x a block, 256 threads, 4 x 4 results a thread
//   shared   two tiles of 64 x 16, transposed, 8.5 KiB
//   bound    FP32 arithmetic and shared-memory loads (one 16-byte load for 8 multiplications)

#include "gemm/matmul.cuh"
#include "linear/linear.cuh"

namespace vb {
namespace {

constexpr int tile = 64, tile_depth = 16;

__global__ void __launch_bounds__(256) f32_tiles_kernel(float *y, const float *x, const float *w, const float *bias,
                                                        int64_t n, int64_t rows, int64_t cols) {
    wait_for_previous_kernel();
    release_next_kernel();
    __shared__ __align__(16) float ws[tile_depth][tile + 4], xs[tile_depth][tile + 4];
    const int64_t row0 = (int64_t)blockIdx.x * tile, token0 = (int64_t)blockIdx.y * tile;
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    float sum[4][4] = {};
    for (int64_t k0 = 0; k0 < cols; k0 += tile_depth) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int k = threadIdx.x % tile_depth, r = threadIdx.x / tile_depth + 16 * i;
            const bool inside = k0 + k < cols;
            ws[k][r] = inside && row0 + r < rows ? w[(row0 + r) * cols + k0 + k] : 0.0f;
            xs[k][r] = inside && token0 + r < n ? x[(token0 + r) * cols + k0 + k] : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < tile_depth; k++) {
            const float4 a = *reinterpret_cast<const float4 *>(&xs[k][4 * ty]);
            const float4 b = *reinterpret_cast<const float4 *>(&ws[k][4 * tx]);
            const float u[4] = {a.x, a.y, a.z, a.w}, v[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) sum[i][j] = fmaf(u[i], v[j], sum[i][j]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int64_t token = token0 + 4 * ty + i, row = row0 + 4 * tx + j;
            if (token < n && row < rows) y[token * rows + row] = sum[i][j] + (bias ? bias[row] : 0.0f);
        }
}

// y[n][rows] += bias
__global__ void __launch_bounds__(256) add_bias_kernel(float *y, const float *bias, int64_t n, int64_t rows) {
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t row = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (row >= rows) return;
    const float b = bias[row];
    for (int64_t token = blockIdx.y; token < n; token += gridDim.y) y[token * rows + row] += b;
}

vb_matmul_args product_of(const LinearArgs &a) {
    return {
        sizeof(vb_matmul_args), a.y, a.x, a.w, a.n, a.cols, a.rows, 1, a.cols, a.cols, a.rows, 0, 0, 0, 0, 1, VB_F32,
        VB_PRECISION_FLOAT32};
}

} // namespace

vb_status f32_3xtf32(const LinearArgs &a, vb_stream *stream) { return matmul_3xtf32(product_of(a), a.bias, stream); }

vb_status f32_matmul(const LinearArgs &a, vb_stream *stream) {
    const vb_matmul_args product = product_of(a);
    matmul_kernel kernel;
    VB_TRY(matmul(&kernel, product, stream));
    if (!a.bias) return VB_OK;
    const dim3 grid((unsigned)ceil_div<int64_t>(a.rows, 256), (unsigned)smaller<int64_t>(a.n, 1024));
    return launch_overlapped(stream, grid, 256, 0, add_bias_kernel, a.y, a.bias, a.n, a.rows);
}

vb_status f32_tiles(const LinearArgs &a, vb_stream *stream) {
    const int64_t most = 65535 * (int64_t)tile; // rows of x in one grid
    for (int64_t c = 0; c < a.n; c += most) {
        const int64_t n = smaller(most, a.n - c);
        VB_TRY(launch_overlapped(
            stream, dim3((unsigned)ceil_div<int64_t>(a.rows, tile), (unsigned)ceil_div<int64_t>(n, tile)), 256, 0,
            f32_tiles_kernel, a.y + c * a.rows, a.x + c * a.cols, (const float *)a.w, a.bias, n, a.rows, a.cols));
    }
    return VB_OK;
}

} // namespace vb
