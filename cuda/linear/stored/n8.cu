// n8.cu: y[n][rows] = x[n][cols] W^T + bias for any stored type and up to 8 rows of x at a time, in float32 arithmetic
// on dequantized weights: any GPU will do.
//
//   grid     8 warps a block, two rows of W a warp: lane l multiplies the elements 8l..8l+7 of each 256 with BATCH rows
//            of x
//   moves    rows * cols weights once; x comes from L1 and L2
//   bound    bytes for F32, F16 and BF16; the unpacking of codes for the quantized types

#include "arch/sm90.cuh"
#include "linear/linear.cuh"
#include "linear/stored/read8.cuh"

namespace vb {
namespace {

constexpr int warps = 8, rows_a_warp = 2;

// Code for Hopper leaves out several rows of x by F16 and BF16, which are for tensor cores there.
template <class Block, int BATCH>
__global__ void __launch_bounds__(32 * warps)
    n8_kernel(float *y, const float *x, const Block *w, const float *bias, int n, int64_t rows, int64_t cols) {
#ifdef VB_SM90A
    if (sizeof(Block) == 2 && BATCH > 1) return __trap();
#endif
    wait_for_previous_kernel();
    release_next_kernel();
    const int lane = threadIdx.x % 32;
    const int64_t first = ((int64_t)blockIdx.x * warps + threadIdx.x / 32) * rows_a_warp;
    if (first >= rows) return;
    const int64_t stride = cols / BlockSize<Block>::value;
    const Block *row[rows_a_warp];
#pragma unroll
    for (int r = 0; r < rows_a_warp; r++) row[r] = w + smaller<int64_t>(first + r, rows - 1) * stride;
    const bool aligned = cols % 8 == 0;
    float sum[rows_a_warp][BATCH] = {};
#pragma unroll 2
    for (int64_t k = 8 * lane; k < cols; k += 8 * 32) {
        float v[rows_a_warp][8];
#pragma unroll
        for (int r = 0; r < rows_a_warp; r++) read8(v[r], row[r], k, cols, aligned);
#pragma unroll
        for (int c = 0; c < BATCH; c++) {
            float u[8];
            read8_plain(u, x + smaller(c, n - 1) * cols, k, cols, aligned); // past n: a result that is not stored
#pragma unroll
            for (int r = 0; r < rows_a_warp; r++)
#pragma unroll
                for (int i = 0; i < 8; i++) sum[r][c] = fmaf(v[r][i], u[i], sum[r][c]);
        }
    }
#pragma unroll
    for (int r = 0; r < rows_a_warp; r++)
#pragma unroll
        for (int c = 0; c < BATCH; c++) {
            const float total = warp_reduce<Sum>(sum[r][c]);
            if (lane == 0 && c < n && first + r < rows)
                y[c * rows + first + r] = total + (bias ? bias[first + r] : 0.0f);
        }
}

template <class Block>
vb_status n8(const LinearArgs &a, vb_stream *stream) {
    const unsigned blocks = (unsigned)ceil_div<int64_t>(a.rows, warps * rows_a_warp);
    constexpr int batch = 8;
    for (int64_t c = 0; c < a.n; c += batch) {
        const int n = (int)smaller<int64_t>(batch, a.n - c);
        float *y = a.y + c * a.rows;
        const float *x = a.x + c * a.cols;
        const Block *w = (const Block *)a.w;
        VB_TRY(n == 1 ? launch_overlapped(stream, blocks, 32 * warps, 0, n8_kernel<Block, 1>, y, x, w, a.bias,
                                          n, a.rows, a.cols)
                      : launch_overlapped(stream, blocks, 32 * warps, 0, n8_kernel<Block, batch>, y, x, w,
                                          a.bias, n, a.rows, a.cols));
    }
    return VB_OK;
}

} // namespace

vb_status stored_n8(const LinearArgs &a, vb_dtype type, vb_stream *stream) {
    switch (type) {
#define X(type, Block) case type: return n8<Block>(a, stream);
        VB_WEIGHT_TYPES(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
}

} // namespace vb
