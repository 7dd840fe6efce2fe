// many.cu: y[n][rows] = x[n][cols] W^T + bias for many rows of x, W as stored, on tensor cores of 16-bit floats.
//
// x is narrowed first, once a call, into the stream's workspace: to F16, each row scaled by a power of two so that
// nothing overflows. BF16 weights, whose range F16 lacks, take x in BF16. Weights are dequantized on their way into
// shared memory. Products are exact in the float32 accumulators, so the error is the rounding of x and W.
// F16: 2^-12 relative each (about 0.03 % of y). BF16: 2^-9 (about 0.25 %).
//
//   grid     128 rows of W x 64 rows of x a block; 8 warps of 32 x 32
//   shared   two buffers of (128 + 64) x 32 elements, 30 KiB
//   bound    the unpacking of codes for the quantized types, shared memory for the others

#include "arch/sm90.cuh"
#include "linear/stored/narrow.cuh"
#include "linear/stored/read8.cuh"
#include "linear/stored/tile.cuh"

namespace vb {
namespace {

// ---- weights by eight -----------------------------------------------------------------------------------------------

// The kernel's reader of weights: eight elements of a row from k on, zeros beyond the matrix.
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
        read8_plain(out, data + row * cols, k, cols, false);
    }
};

// Whether code for Hopper has the kernel: its own take rows of whole vectors of 16 bits.
template <class Weights>
constexpr bool on_hopper = true;
template <>
constexpr bool on_hopper<Stored<half>> = false;
template <>
constexpr bool on_hopper<Stored<bf16>> = false;

// ---- product --------------------------------------------------------------------------------------------------------

template <class T, class Weights>
__global__ void __launch_bounds__(256)
    many_kernel(float *y, const T *x, const float *inverse, Weights weights, const float *bias, int64_t n,
                       int64_t rows, int64_t cols, int64_t stride) {
#ifdef VB_SM90A
    if (!on_hopper<Weights>) return;
#endif
    wait_for_previous_kernel();
    release_next_kernel();
    __shared__ __align__(16) T ws[2][tile_rows][tile_stride], xs[2][tile_tokens][tile_stride];
    const int64_t row0 = (int64_t)blockIdx.x * tile_rows, token0 = (int64_t)blockIdx.y * tile_tokens;
    float acc[2][4][4] = {};
    multiply_tile<T>(
        acc, ws, xs, row0, token0, cols,
        [&](float (&v)[8], int64_t row, int64_t k) {
            if (row < rows && k < cols) weights.read8(v, row, k, cols);
        },
        [&](Vec<T, 8> &v, int64_t token, int64_t k) {
            if (token < n && k < stride) v = *reinterpret_cast<const Vec<T, 8> *>(x + token * stride + k);
        });
    each_sum(acc, row0, token0, [&](int64_t row, int64_t token, float sum) {
        if (row < rows && token < n) y[token * rows + row] = sum * inverse[token] + (bias ? bias[row] : 0.0f);
    });
}

template <class T, class Weights>
vb_status gemm(const LinearArgs &a, Weights weights, vb_stream *stream) {
    const int64_t stride = ceil_div<int64_t>(a.cols, 8) * 8, most = 65535 * (int64_t)tile_tokens;
    for (int64_t c = 0; c < a.n; c += most) {
        const int64_t n = smaller(most, a.n - c);
        NarrowRows<T> x;
        VB_TRY(narrow_rows(&x, a.x + c * a.cols, n, a.cols, stride, stream));
        const dim3 grid((unsigned)ceil_div<int64_t>(a.rows, tile_rows), (unsigned)ceil_div<int64_t>(n, tile_tokens));
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

} // namespace

vb_status stored_many(const LinearArgs &a, vb_dtype type, vb_stream *stream) {
    const bool odd = a.cols % 8 != 0 || gpu_of(stream).hopper; // on Hopper: y begins anywhere
    if (odd && type == VB_F16) return gemm<half>(a, OddRows<half>{(const half *)a.w}, stream);
    if (odd && type == VB_BF16) return gemm<bf16>(a, OddRows<bf16>{(const bf16 *)a.w}, stream);
    switch (type) {
#define X(type, Block) case type: return gemm_stored<Block>(a, stream);
        VB_NARROW_WEIGHT_TYPES(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
}

} // namespace vb
