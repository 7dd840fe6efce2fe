// many.cu: y[n][rows] = x[n][cols] W^T + bias for many rows of x, W as stored, on tensor cores of 16-bit floats.
//
// x is narrowed first, once a call, into the stream's workspace: to F16, each row scaled by a power of two so that
// nothing overflows (or to BF16 for BF16 weights, whose range F16 lacks). Weights are dequantized on their way into
// shared memory. Products are exact in the float32 accumulators, so the error is that of rounding x and W: 2^-12
// relative each for F16 (about 0.03 % of y), 2^-9 for BF16 (about 0.25 %).
//
//   grid     128 rows of W x 64 rows of x a block; 8 warps of 32 x 32
//   shared   two buffers of (128 + 64) x 32 elements, 30 KiB
//   bound    the unpacking of codes for the quantized types, shared memory for the others

#include "arch/tensor_core.cuh"
#include "linear/stored/narrow.cuh"

namespace vb {
namespace {

// ---- weights by eight -----------------------------------------------------------------------------------------------

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

// ---- product --------------------------------------------------------------------------------------------------------

// no bank conflicts
constexpr int block_rows = 128, block_tokens = 64, block_depth = 32, block_stride = block_depth + 8;

template <class T, class Weights>
__global__ void __launch_bounds__(256)
    many_kernel(float *y, const T *x, const float *inverse, Weights weights, const float *bias, int64_t n,
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
        NarrowRows<T> x;
        VB_TRY(narrow_rows(&x, a.x + c * a.cols, n, a.cols, stride, stream));
        const dim3 grid((unsigned)ceil_div<int64_t>(a.rows, block_rows), (unsigned)ceil_div<int64_t>(n, block_tokens));
        VB_TRY(launch_overlapped(stream, grid, 256, 0, many_kernel<T, Weights>, a.y + c * a.rows, x.rows, x.inverse,
                                 weights, a.bias, n, a.rows, a.cols, stride));
    }
    return VB_OK;
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
    return VB_UNSUPPORTED; // F32 stays in float32
}

} // namespace

vb_status stored_many(const LinearArgs &a, vb_dtype type, vb_stream *stream) {
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
