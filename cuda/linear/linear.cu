// linear.cu: y[n][rows] = x[n][cols] W^T + bias for every weight type: the choice of a kernel, and the two kernels that
// need nothing of the GPU:
//
//   linear_rows_kernel   few rows of x, any stored type, float32 arithmetic on dequantized weights
//   linear_tiles_kernel  many rows of x, F32 weights (no 16-bit rounding for these)
//
// The others: of stored weights linear_row.cu (floats, one row of x), matmul_3xtf32.cu and the other products of matrices (F32, more
// rows), linear_few_sm90.cu (16-bit floats, few rows, Hopper), linear_gemm.cu (all but F32, many rows); of packed ones
// linear_vector.cu (one row: decode), linear_packed.cu (a few), linear_prefill.cu (many).

#include "linear/linear.cuh"
#include "gemm/matmul.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear/packed/packed.cuh"
#endif

namespace vb {
namespace {

// ---- few rows -----------------------------------------------------------------------------------------------------------
//
//   grid     8 warps a block, two rows of W a warp: lane l multiplies the elements 8l..8l+7 of each 256 with BATCH rows of x
//   moves    rows * cols weights once; x comes from L1 and L2
//   bound    bytes for F32, F16 and BF16; the unpacking of codes for the quantized types

template <class Block>
VB_DEVICE void read8(float out[8], const Block *row, int64_t k, int64_t, bool) {
    dequantize8(out, row, k);
}
// Plain types may have rows of any length: those that do not start at 16 bytes are read one by one.
template <class T>
VB_DEVICE void read8_plain(float out[8], const T *row, int64_t k, int64_t cols, bool aligned) {
    if (aligned) dequantize8(out, row, k);
    else
        for (int i = 0; i < 8; i++) out[i] = k + i < cols ? to_float(row[k + i]) : 0.0f;
}
VB_DEVICE void read8(float out[8], const float *row, int64_t k, int64_t cols, bool aligned) {
    read8_plain(out, row, k, cols, aligned);
}
VB_DEVICE void read8(float out[8], const half *row, int64_t k, int64_t cols, bool aligned) {
    read8_plain(out, row, k, cols, aligned);
}
VB_DEVICE void read8(float out[8], const bf16 *row, int64_t k, int64_t cols, bool aligned) {
    read8_plain(out, row, k, cols, aligned);
}

constexpr int rows_warps = 8, rows_a_warp = 2;

template <class Block, int BATCH>
__global__ void __launch_bounds__(32 * rows_warps)
    linear_rows_kernel(float *y, const float *x, const Block *w, const float *bias, int n, int64_t rows, int64_t cols) {
    wait_for_previous_kernel();
    release_next_kernel();
    const int lane = threadIdx.x % 32;
    const int64_t first = ((int64_t)blockIdx.x * rows_warps + threadIdx.x / 32) * rows_a_warp;
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
vb_status linear_rows(const LinearArgs &a, vb_stream *stream) {
    const unsigned blocks = (unsigned)ceil_div<int64_t>(a.rows, rows_warps * rows_a_warp);
    constexpr int batch = 8;
    for (int64_t c = 0; c < a.n; c += batch) {
        const int n = (int)smaller<int64_t>(batch, a.n - c);
        float *y = a.y + c * a.rows;
        const float *x = a.x + c * a.cols;
        const Block *w = (const Block *)a.w;
        VB_TRY(n == 1 ? launch_overlapped(stream, blocks, 32 * rows_warps, 0, linear_rows_kernel<Block, 1>, y, x, w, a.bias,
                                          n, a.rows, a.cols)
                      : launch_overlapped(stream, blocks, 32 * rows_warps, 0, linear_rows_kernel<Block, batch>, y, x, w,
                                          a.bias, n, a.rows, a.cols));
    }
    return VB_OK;
}

// ---- many rows of x, F32 weights -------------------------------------------------------------------------------------------
//
//   grid     64 rows of W x 64 rows of x a block, 256 threads, 4 x 4 results a thread
//   shared   two tiles of 64 x 16, transposed, 8.5 KiB
//   bound    FP32 arithmetic and shared-memory loads (one 16-byte load for 8 multiplications)

constexpr int tile = 64, tile_depth = 16;

__global__ void __launch_bounds__(256)
    linear_tiles_kernel(float *y, const float *x, const float *w, const float *bias, int64_t n, int64_t rows, int64_t cols) {
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

vb_status linear_tiles(const LinearArgs &a, vb_stream *stream) {
    const int64_t most = 65535 * (int64_t)tile; // rows of x in one grid
    for (int64_t c = 0; c < a.n; c += most) {
        const int64_t n = smaller(most, a.n - c);
        VB_TRY(launch_overlapped(stream, dim3((unsigned)ceil_div<int64_t>(a.rows, tile), (unsigned)ceil_div<int64_t>(n, tile)),
                                 256, 0, linear_tiles_kernel, a.y + c * a.rows, a.x + c * a.cols, (const float *)a.w, a.bias,
                                 n, a.rows, a.cols));
    }
    return VB_OK;
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

// F32 weights on tensor cores of split operands, which have float32's accuracy.
vb_status linear_float32(const LinearArgs &a, vb_stream *stream) {
    const vb_matmul_args product = {a.y, a.x, a.w, a.n, a.cols, a.rows, 1, a.cols, a.cols, a.rows, 0, 0, 0, 0, 1, VB_F32,
                                    VB_PRECISION_FLOAT32};
    if (matmul_3xtf32_suits(&product, &gpu_of(stream))) return matmul_3xtf32(product, a.bias, stream);
    if (capability(stream) != 90 || a.n <= 8) return VB_UNSUPPORTED;
    matmul_kernel kernel;
    VB_TRY(matmul(&kernel, product, stream));
    if (!a.bias) return VB_OK;
    const dim3 grid((unsigned)ceil_div<int64_t>(a.rows, 256), (unsigned)smaller<int64_t>(a.n, 1024));
    return launch_overlapped(stream, grid, 256, 0, add_bias_kernel, a.y, a.bias, a.n, a.rows);
}

vb_status linear_stored(const LinearArgs &a, vb_dtype type, vb_stream *stream) {
    switch (type) {
#define X(type, Block) case type: return linear_rows<Block>(a, stream);
        VB_WEIGHT_TYPES(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
}

} // namespace

vb_status linear_of_packed(const LinearArgs &args, const LinearExtra &extra, vb_dtype type, vb_stream *stream) {
    vb_status status = args.n == 1 ? linear_vector(args, extra, type, stream) : VB_UNSUPPORTED;
    if (status == VB_UNSUPPORTED) status = linear_packed(args, extra, type, stream);
    return status == VB_UNSUPPORTED ? linear_prefill(args, extra, type, stream) : status;
}

} // namespace vb

using namespace vb;

extern "C" {

vb_status vb_cuda_weight_packed_size(int64_t *bytes, const vb_weight *w, vb_device *device) {
    *bytes = 0;
#ifdef VB_HAS_PACKED_LAYOUT
    if (device_of(device)->gpu.capability < 75) return VB_OK; // no tensor cores: the stored form serves as well
    int64_t depth = 0, tile_bytes = 0;
    switch (w->type) {
#define X(type, Block) case type: depth = Packed<Block>::depth, tile_bytes = Packed<Block>::tile_bytes; break;
        VB_PACKED_TYPES(X)
#undef X
    default: return VB_OK;
    }
    // Columns in whole tiles only, and no more than 3 % lost to the padding of rows.
    const int64_t tile_rows = ceil_div<int64_t>(w->rows, packed_rows);
    if (w->cols % depth != 0 || tile_rows * packed_rows - w->rows > w->rows / 32) return VB_OK;
    *bytes = tile_rows * (w->cols / depth) * tile_bytes;
#else
    (void)w, (void)device;
#endif
    return VB_OK;
}

vb_status vb_cuda_linear(float *y, const float *x, const vb_weight *w, const float *bias, int64_t n, vb_stream *stream) {
    const LinearArgs args = {y, x, w->data, bias, n, w->rows, w->cols};
    if (w->layout == VB_PACKED) return linear_of_packed(args, {}, w->type, stream);
    if (n == 1) {
        const vb_status status = linear_row(args, w->type, stream);
        if (status != VB_UNSUPPORTED) return status;
    }
    if (w->type == VB_F32 && n > 1) {
        const vb_status status = linear_float32(args, stream);
        if (status != VB_UNSUPPORTED) return status;
    }
    if (w->type == VB_F32 && n > 8) return linear_tiles(args, stream);
    const bool tensor_cores = w->type != VB_F32 && capability(stream) >= (w->type == VB_BF16 ? 80 : 75);
    const bool plain = w->type == VB_F16 || w->type == VB_BF16;
    if (plain && n > 1 && capability(stream) == 90) {
        const vb_status status = linear_few_sm90(args, w->type, stream);
        if (status != VB_UNSUPPORTED) return status;
    }
    if (n > (plain ? 1 : 8) && tensor_cores) return linear_gemm(args, w->type, stream);
    return linear_stored(args, w->type, stream);
}

} // extern "C"
