// n32.cu: y[n][rows] = x[n][cols] W^T + bias for 2 to 32 rows of x and weights stored as F16 or BF16, on tensor cores
// before and after Hopper; on Hopper n64_sm90.cu serves. x is narrowed to the type of W first (narrow.cuh).
//
// Operand A comes straight from global memory. Lane (g, t) loads 16 bytes, the elements 8 t .. 8 t + 7 of 32. They
// stand for the positions 2 t, 2 t + 1, 8 + 2 t, 9 + 2 t of two instructions. The order of k does not matter as long as
// x is read the same way.
//
//   grid     16 rows of W a block, 8 warps that take 64 columns each in turn
//   shared   8 x 16 x 8 * TILES partial sums
//   bound    the bytes of W, read once for up to 32 rows of x

#include "arch/tensor_core.cuh"
#include "linear/stored/narrow.cuh"

namespace vb {
namespace {

constexpr int warps = 8, depth = 64;

template <class T, int TILES>
__global__ void __launch_bounds__(32 * warps, 2)
    n32_kernel(float *y, const T *x, const float *inverse, const T *w, const float *bias, int n, int64_t rows,
                      int64_t cols) {
    constexpr int columns = 8 * TILES;
    __shared__ float partial[warps][16][columns];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int64_t row0 = (int64_t)blockIdx.x * 16;
    const T *row[2] = {w + smaller(row0 + g, rows - 1) * cols + 8 * t,
                       w + smaller(row0 + g + 8, rows - 1) * cols + 8 * t};
    wait_for_previous_kernel();
    release_next_kernel();
    float c[TILES][4] = {};
#pragma unroll 4
    for (int64_t k = warp * depth; k < cols; k += warps * depth) {
        uint4 a[2][2];
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int r = 0; r < 2; r++) a[h][r] = __ldg(reinterpret_cast<const uint4 *>(row[r] + k + 32 * h));
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            const T *column = x + smaller(8 * i + g, n - 1) * cols + k + 8 * t; // past n: a result that is not stored
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const uint4 b = *reinterpret_cast<const uint4 *>(column + 32 * h);
                const uint32_t a0[4] = {a[h][0].x, a[h][1].x, a[h][0].y, a[h][1].y};
                const uint32_t a1[4] = {a[h][0].z, a[h][1].z, a[h][0].w, a[h][1].w};
                mma_16x8x16(c[i], a0, b.x, b.y, T());
                mma_16x8x16(c[i], a1, b.z, b.w, T());
            }
        }
    }
#pragma unroll
    for (int i = 0; i < TILES; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) partial[warp][g + 8 * (e >> 1)][8 * i + 2 * t + (e & 1)] = c[i][e];
    __syncthreads();
    for (int i = threadIdx.x; i < 16 * n; i += 32 * warps) {
        const int r = i % 16, token = i / 16;
        if (row0 + r >= rows) continue;
        float total = 0;
#pragma unroll
        for (int v = 0; v < warps; v++) total += partial[v][r][token];
        y[token * rows + row0 + r] = total * inverse[token] + (bias ? bias[row0 + r] : 0.0f);
    }
}

template <class T>
vb_status n32(const LinearArgs &a, vb_stream *stream) {
    NarrowRows<T> x;
    VB_TRY(narrow_rows(&x, a.x, a.n, a.cols, a.cols, stream));
    return launch_overlapped(stream, (unsigned)ceil_div<int64_t>(a.rows, 16), 32 * warps, 0,
                             a.n <= 8 ? n32_kernel<T, 1> : n32_kernel<T, 4>, a.y, x.rows, x.inverse, (const T *)a.w,
                             a.bias, (int)a.n, a.rows, a.cols);
}

} // namespace

vb_status stored_n32(const LinearArgs &a, vb_dtype type, vb_stream *stream) {
    return type == VB_F16 ? n32<half>(a, stream) : n32<bf16>(a, stream);
}

} // namespace vb
