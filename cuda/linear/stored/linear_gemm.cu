// linear_gemm.cu: y[n][rows] = x[n][cols] W^T + bias for many rows of x, W as stored, on tensor cores of 16-bit floats.
//
// x is narrowed first, once a call, into the stream's workspace: to F16, each row scaled by a power of two so that nothing
// overflows (or to BF16 for BF16 weights, whose range F16 lacks). Weights are dequantized on their way into shared memory.
// Products are exact in the float32 accumulators, so the error is that of rounding x and W: 2^-12 relative each for F16
// (about 0.03 % of y), 2^-9 for BF16 (about 0.25 %).
//
#include "linear/linear.cuh"
#include "arch/tensor_core.cuh"

namespace vb {
namespace {

// ---- x in 16 bits ---------------------------------------------------------------------------------------------------------

// 2^e that brings a row's greatest magnitude to [2^13, 2^14); 1 for zero, Inf and NaN.
VB_DEVICE float row_scale(float most, half) {
    if (!(most > 0.0f) || !(most < 3.0e38f)) return 1.0f;
    const int exponent = int(__float_as_uint(most) >> 23) - 127; // below -126 for a subnormal number: clamped
    return __int_as_float((smaller(larger(13 - exponent, -126), 127) + 127) << 23);
}
VB_DEVICE float row_scale(float, bf16) { return 1.0f; }

// out[r][0..stride) = x[r] * scale in T, zeros beyond cols; inverse[r] = 1 / scale. One block a row.
template <class T>
__global__ void __launch_bounds__(256) narrow_kernel(T *out, float *inverse, const float *x, int64_t cols, int64_t stride) {
    wait_for_previous_kernel();
    release_next_kernel();
    __shared__ float scratch[32];
    x += blockIdx.x * cols, out += blockIdx.x * stride;
    float most = 0;
    for (int64_t k = threadIdx.x; k < cols; k += 256) most = Max::combine(most, fabsf(x[k]));
    most = block_reduce<Max>(most, scratch);
    const float scale = row_scale(most, T());
    if (threadIdx.x == 0) inverse[blockIdx.x] = 1.0f / scale;
    for (int64_t k = threadIdx.x; k < stride; k += 256) out[k] = from_float<T>(k < cols ? x[k] * scale : 0.0f);
}

// ---- weights by eight -------------------------------------------------------------------------------------------------------

// What the kernel reads weights through: eight of a row from k on, zeros beyond the matrix.
template <class Block>
struct Stored {
    const Block *data;
    VB_DEVICE void read8(float out[8], int64_t row, int64_t k, int64_t cols) const {
        dequantize8(out, data + row * (cols / BlockSize<Block>::value), k);
    }
};
template <class T>
struct OddRows { // of a plain type, not starting at 16 bytes
    const T *data;
    VB_DEVICE void read8(float out[8], int64_t row, int64_t k, int64_t cols) const {
        for (int i = 0; i < 8; i++) out[i] = k + i < cols ? to_float(data[row * cols + k + i]) : 0.0f;
    }
};
// ---- product --------------------------------------------------------------------------------------------------------------
//
//   grid     128 rows of W x 64 rows of x a block; 8 warps of 32 x 32
//   shared   two buffers of (128 + 64) x 32 elements, 30 KiB
//   bound    the unpacking of codes for the quantized types, shared memory for the others

constexpr int block_rows = 128, block_tokens = 64, block_depth = 32, block_stride = block_depth + 8; // no bank conflicts

template <class T, class Weights>
__global__ void __launch_bounds__(256)
    linear_gemm_kernel(float *y, const T *x, const float *inverse, Weights weights, const float *bias, int64_t n,
                       int64_t rows, int64_t cols, int64_t stride) {
    wait_for_previous_kernel();
    release_next_kernel();
    __shared__ __align__(16) T ws[2][block_rows][block_stride], xs[2][block_tokens][block_stride];
    const int64_t row0 = (int64_t)blockIdx.x * block_rows, token0 = (int64_t)blockIdx.y * block_tokens;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int warp_row = warp % 4 * 32, warp_token = warp / 4 * 32;
    const int k8 = threadIdx.x % 4 * 8, r = threadIdx.x / 4; // this thread's eights: rows r and r + 64 of W, r of x
    float acc[2][4][4] = {};
    Vec<T, 8> w8[2], x8;
    auto fetch = [&](int64_t k0) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float v[8] = {};
            if (row0 + r + 64 * i < rows && k0 + k8 < cols) weights.read8(v, row0 + r + 64 * i, k0 + k8, cols);
#pragma unroll
            for (int e = 0; e < 8; e++) w8[i].at[e] = from_float<T>(v[e]);
        }
        x8 = Vec<T, 8>();
        if (token0 + r < n && k0 + k8 < stride)
            x8 = *reinterpret_cast<const Vec<T, 8> *>(x + (token0 + r) * stride + k0 + k8);
    };
    fetch(0);
    int buffer = 0;
    for (int64_t k0 = 0; k0 < cols; k0 += block_depth, buffer ^= 1) {
        *reinterpret_cast<Vec<T, 8> *>(&ws[buffer][r][k8]) = w8[0];
        *reinterpret_cast<Vec<T, 8> *>(&ws[buffer][r + 64][k8]) = w8[1];
        *reinterpret_cast<Vec<T, 8> *>(&xs[buffer][r][k8]) = x8;
        __syncthreads();
        if (k0 + block_depth < cols) fetch(k0 + block_depth);
#pragma unroll
        for (int k = 0; k < block_depth; k += 16) {
            uint32_t a[2][4];
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    a[i][j] = *reinterpret_cast<const uint32_t *>(
                        &ws[buffer][warp_row + 16 * i + g + 8 * (j & 1)][k + 2 * t + 8 * (j >> 1)]);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const T *b = &xs[buffer][warp_token + 8 * j + g][k + 2 * t];
                const uint32_t b0 = *reinterpret_cast<const uint32_t *>(b);
                const uint32_t b1 = *reinterpret_cast<const uint32_t *>(b + 8);
#pragma unroll
                for (int i = 0; i < 2; i++) mma_16x8x16(acc[i][j], a[i], b0, b1, T());
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int64_t row = row0 + warp_row + 16 * i + g + 8 * (e >> 1);
                const int64_t token = token0 + warp_token + 8 * j + 2 * t + (e & 1);
                if (row < rows && token < n)
                    y[token * rows + row] = acc[i][j][e] * inverse[token] + (bias ? bias[row] : 0.0f);
            }
}

template <class T, class Weights>
vb_status gemm(const LinearArgs &a, Weights weights, vb_stream *stream) {
    const int64_t stride = ceil_div<int64_t>(a.cols, 8) * 8, most = 65535 * (int64_t)block_tokens;
    for (int64_t c = 0; c < a.n; c += most) {
        const int64_t n = smaller(most, a.n - c);
        void *scratch;
        VB_TRY(workspace(&scratch, n * stride * (int64_t)sizeof(T) + n * (int64_t)sizeof(float), stream));
        T *narrow = (T *)scratch;
        float *inverse = (float *)(narrow + n * stride);
        VB_TRY(launch_overlapped(stream, (unsigned)n, 256, 0, narrow_kernel<T>, narrow, inverse, a.x + c * a.cols, a.cols,
                                 stride));
        const dim3 grid((unsigned)ceil_div<int64_t>(a.rows, block_rows), (unsigned)ceil_div<int64_t>(n, block_tokens));
        VB_TRY(launch_overlapped(stream, grid, 256, 0, linear_gemm_kernel<T, Weights>, a.y + c * a.rows, narrow, inverse,
                                 weights, a.bias, n, a.rows, a.cols, stride));
    }
    return VB_OK;
}

// ---- few rows of x, F16 and BF16 weights ------------------------------------------------------------------------------------
//
// Before Hopper, whose kernel is in linear_few_sm90.cu.
//
// The same instructions with operand A straight from global memory: lane (g, t) loads 16 bytes, the elements 8 t .. 8 t + 7 of
// 32, which stand for the positions 2 t, 2 t + 1, 8 + 2 t, 9 + 2 t of two instructions. The order of k does not matter as long
// as x is read the same way.
//
//   grid     16 rows of W a block, 8 warps that take 64 columns each in turn
//   shared   8 x 16 x 8 * TILES partial sums
//   bound    the bytes of W, read once for up to 32 rows of x

constexpr int few_warps = 8, few_tokens = 32, few_depth = 64;

template <class T, int TILES>
__global__ void __launch_bounds__(32 * few_warps, 2)
    linear_few_kernel(float *y, const T *x, const float *inverse, const T *w, const float *bias, int n, int64_t rows,
                      int64_t cols) {
    constexpr int columns = 8 * TILES;
    __shared__ float partial[few_warps][16][columns];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int64_t row0 = (int64_t)blockIdx.x * 16;
    const T *row[2] = {w + smaller(row0 + g, rows - 1) * cols + 8 * t, w + smaller(row0 + g + 8, rows - 1) * cols + 8 * t};
    wait_for_previous_kernel();
    release_next_kernel();
    float c[TILES][4] = {};
#pragma unroll 4
    for (int64_t k = warp * few_depth; k < cols; k += few_warps * few_depth) {
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
    for (int i = threadIdx.x; i < 16 * n; i += 32 * few_warps) {
        const int r = i % 16, token = i / 16;
        if (row0 + r >= rows) continue;
        float total = 0;
#pragma unroll
        for (int v = 0; v < few_warps; v++) total += partial[v][r][token];
        y[token * rows + row0 + r] = total * inverse[token] + (bias ? bias[row0 + r] : 0.0f);
    }
}

template <class T>
vb_status few(const LinearArgs &a, vb_stream *stream) {
    const int n = (int)a.n;
    void *scratch;
    VB_TRY(workspace(&scratch, n * a.cols * (int64_t)sizeof(T) + n * (int64_t)sizeof(float), stream));
    T *narrow = (T *)scratch;
    float *inverse = (float *)(narrow + n * a.cols);
    VB_TRY(launch_overlapped(stream, n, 256, 0, narrow_kernel<T>, narrow, inverse, a.x, a.cols, a.cols));
    const unsigned blocks = (unsigned)ceil_div<int64_t>(a.rows, 16);
    const T *w = (const T *)a.w;
    if (n <= 8)
        return launch_overlapped(stream, blocks, 32 * few_warps, 0, linear_few_kernel<T, 1>, a.y, narrow, inverse, w, a.bias, n,
                                 a.rows, a.cols);
    return launch_overlapped(stream, blocks, 32 * few_warps, 0, linear_few_kernel<T, 4>, a.y, narrow, inverse, w, a.bias, n,
                             a.rows, a.cols);
}

template <class Block>
struct Narrow { // the 16-bit type that holds the values of a weight type
    using type = half;
};
template <>
struct Narrow<bf16> {
    using type = bf16;
};

template <class Block>
vb_status gemm_stored(const LinearArgs &a, vb_stream *stream) {
    return gemm<typename Narrow<Block>::type>(a, Stored<Block>{(const Block *)a.w}, stream);
}
template <>
vb_status gemm_stored<float>(const LinearArgs &, vb_stream *) {
    return VB_UNSUPPORTED; // linear.cu keeps F32 in float32
}

} // namespace

vb_status linear_gemm(const LinearArgs &a, vb_dtype type, vb_stream *stream) {
    if (a.n <= few_tokens && a.cols % few_depth == 0) {
        if (type == VB_F16) return few<half>(a, stream);
        if (type == VB_BF16) return few<bf16>(a, stream);
    }
    if (a.cols % 8 != 0 && type == VB_F16) return gemm<half>(a, OddRows<half>{(const half *)a.w}, stream);
    if (a.cols % 8 != 0 && type == VB_BF16) return gemm<bf16>(a, OddRows<bf16>{(const bf16 *)a.w}, stream);
    switch (type) {
#define X(type, Block) case type: return gemm_stored<Block>(a, stream);
        VB_WEIGHT_TYPES(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
}

} // namespace vb
