// quantize.cu: rows rounded to int8, of a gated unit or RMSNorm where asked for, and back (vb_norm_quantize,
// vb_dequantize_rows).
//
//   grid     a block of 512 threads a row; a thread keeps up to 16 elements in registers, of wider rows none
//   shared   32 floats for reductions
//   moves    in (and up) read once (wide: three times), a byte an element written; bound by latency in decode

#include "ternary/w2a8.cuh"

namespace vb {
namespace {

constexpr int quantize_threads = TERNARY_QUANTIZE_THREADS, items = TERNARY_QUANTIZE_ITEMS;

VB_DEVICE float gated(const vb_norm_quantize_args &a, int64_t at) {
    const float g = a.in[at];
    if (!a.up) return g;
    return gated_unit(a.activation, g, a.up[at]);
}

template <bool REGISTERS>
__global__ void __launch_bounds__(quantize_threads) norm_quantize_kernel(vb_norm_quantize_args a) {
    __shared__ float scratch[32];
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t row = (int64_t)blockIdx.x * a.cols;
    float kept[REGISTERS ? items : 1];
    // Calls f(element of the row, its value) for this thread's elements.
    const auto each = [&](auto f) {
        if (REGISTERS) {
#pragma unroll
            for (int i = 0; i < (REGISTERS ? items : 1); i++) {
                const int64_t c = threadIdx.x + i * quantize_threads;
                if (c < a.cols) f(c, kept[i]);
            }
        } else {
            for (int64_t c = threadIdx.x; c < a.cols; c += quantize_threads) {
                float h = gated(a, row + c);
                f(c, h);
            }
        }
    };
    if (REGISTERS) {
#pragma unroll
        for (int i = 0; i < (REGISTERS ? items : 1); i++) {
            const int64_t c = threadIdx.x + i * quantize_threads;
            kept[i] = c < a.cols ? gated(a, row + c) : 0.0f;
        }
    }
    float factor = 1.0f;
    if (a.normed) {
        float squares = 0.0f;
        each([&](int64_t, float &h) { squares = fmaf(h, h, squares); });
        factor = 1.0f / sqrtf(block_reduce<Sum>(squares, scratch) / float(a.cols) + a.eps);
    }
    const auto normed = [&](int64_t c, float h) {
        if (!a.normed) return h;
        h *= factor;
        return a.norm ? h * a.norm[c] : h;
    };
    float most = 1e-5f;
    each([&](int64_t c, float &h) {
        const float y = normed(c, h);
        if (REGISTERS) h = y;
        most = Max::combine(most, fabsf(y));
    });
    most = block_reduce<Max>(most, scratch);
    const float scale = __fdiv_rn(127.0f, most);
    if (threadIdx.x == 0) a.scales[blockIdx.x] = scale;
    each([&](int64_t c, float &h) {
        static_cast<signed char *>(a.codes)[row + c] = code_of(REGISTERS ? h : normed(c, h), scale);
    });
}

__global__ void __launch_bounds__(256)
    dequantize_rows_kernel(float *out, const signed char *codes, const float *scales, int64_t cols, int64_t n) {
    wait_for_previous_kernel();
    release_next_kernel();
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < n; i += (int64_t)gridDim.x * 256)
        out[i] = __fdiv_rn(float(codes[i]), scales[i / cols]);
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" {

vb_status vb_cuda_norm_quantize(const vb_norm_quantize_args *args, vb_stream *stream) {
    const vb_norm_quantize_args &a = *args;
    const ternary_kernel kernel = choose_norm_quantize(a.rows, a.cols);
    chosen(stream, ternary_kernel_info(kernel), "norm_quantize", VB_F32, "rows cols", a.rows, a.cols);
    if (kernel == TERNARY_NONE) return VB_UNSUPPORTED;
    const bool registers = kernel == TERNARY_QUANTIZE;
    return launch_overlapped(stream, (unsigned)a.rows, quantize_threads, 0,
                             registers ? norm_quantize_kernel<true> : norm_quantize_kernel<false>, a);
}

vb_status vb_cuda_dequantize_rows(float *out, const void *codes, const float *scales, int64_t rows, int64_t cols,
                                  vb_stream *stream) {
    chosen(stream, ternary_kernel_info(TERNARY_DEQUANTIZE), "dequantize_rows", VB_F32, "rows cols", rows, cols);
    const int64_t n = rows * cols, blocks = smaller<int64_t>(ceil_div<int64_t>(n, 256), 1 << 20);
    return launch_overlapped(stream, (unsigned)blocks, 256, 0, dequantize_rows_kernel, out,
                             (const signed char *)codes, scales, cols, n);
}

} // extern "C"
