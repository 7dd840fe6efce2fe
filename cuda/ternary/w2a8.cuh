// w2a8.cuh: the parts common to kernels of two-bit weights: dot products of four bytes, rounding, the result of a sum.
#ifndef VB_CUDA_W2A8_CUH
#define VB_CUDA_W2A8_CUH

#include "runtime/common.cuh"
#include "ternary/choose.h"

namespace vb {

// sum += the four unsigned bytes of `codes` times the four signed bytes of x.
template <bool DP4A>
VB_DEVICE void dot4(int &sum, unsigned codes, int x) {
#if __CUDA_ARCH__ >= 610
    if (DP4A)
        asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(codes), "r"(x));
    else
#endif
#pragma unroll
        for (int i = 0; i < 4; i++) sum += int(codes >> (8 * i) & 255) * int((signed char)(x >> (8 * i)));
}

// A gated unit of BitNet's feed-forward block.
VB_DEVICE float gated_unit(vb_activation activation, float g, float u) {
    if (activation == VB_SILU) return __fdividef(g, 1.0f + expf(-g)) * u;
    const float positive = g < 0.0f ? 0.0f : g;
    return positive * positive * u;
}

// The code of a value that the scale makes at most 127.
VB_DEVICE signed char code_of(float h, float scale) { return (signed char)__float2int_rn(h * scale); }

// The result from the sum of row i of the activations and row r of the weights.
struct Ending {
    float divisor = 1.0f, factor = 1.0f, bias = 0.0f, add = 0.0f;
};
VB_DEVICE Ending ending_of_row(const vb_w2a8_gemv_args &a, int64_t r) {
    Ending e;
    if (a.weight_scales) {
        int64_t s = 0;
        if (a.segment_ends)
            while (s + 1 < a.segments && r >= a.segment_ends[s]) s++;
        else if (a.segments == a.n)
            s = r;
        else if (a.segments > 1)
            s = r * a.segments / a.n;
        e.factor = a.weight_scales[s];
    }
    if (a.bias) e.bias = a.bias[r];
    return e;
}
VB_DEVICE Ending ending_of_token(const vb_w2a8_gemv_args &a, Ending e, int64_t i, int64_t r) {
    if (a.activation_scales) e.divisor = a.activation_scales[i];
    if (a.add) e.add = a.add[i * a.n + r];
    return e;
}
VB_DEVICE Ending ending_of(const vb_w2a8_gemv_args &a, int64_t i, int64_t r) {
    return ending_of_token(a, ending_of_row(a, r), i, r);
}

// Writes the result of a sum.
VB_DEVICE void store_sum(const vb_w2a8_gemv_args &a, int64_t i, int64_t r, int sum, const Ending &e) {
    const int64_t at = i * a.n + r;
    const float v = __fadd_rn(__fadd_rn(__fmul_rn(__fdiv_rn(float(sum), e.divisor), e.factor), e.bias), e.add);
    if (a.out_type == VB_I32)
        static_cast<int *>(a.out)[at] = sum;
    else if (a.out_type == VB_F32)
        static_cast<float *>(a.out)[at] = v;
    else if (a.out_type == VB_F16)
        static_cast<half *>(a.out)[at] = from_float<half>(v);
    else
        static_cast<bf16 *>(a.out)[at] = from_float<bf16>(v);
}
VB_DEVICE void store_sum(const vb_w2a8_gemv_args &a, int64_t i, int64_t r, int sum) {
    store_sum(a, i, r, sum, ending_of(a, i, r));
}

// Where the elements of a piece's words begin: word w has the elements from first + w * step on.
struct PieceElements {
    int64_t first;
    int step;
};
VB_DEVICE PieceElements elements_of(int piece, int pieces) {
    const int run = piece / 8, in_run = smaller(8, pieces - run * 8);
    return {(int64_t)run * VB_INT2_RUN + 16 * (piece - run * 8), 16 * in_run};
}

// The pieces of row r of the weights; rows behind the last read the last row.
VB_DEVICE const uint4 *row_of(const vb_w2a8_gemv_args &a, int64_t r) {
    const char *const weights = static_cast<const char *>(a.weights);
    return reinterpret_cast<const uint4 *>(weights + smaller(r, a.n - 1) * a.row_bytes);
}

// mma_b1.cu, w2a8_any.cu, w2a8_mma.cu, w2a8_sm90.cu, w2a8_tiles.cu
vb_status w2a8_bits(const vb_w2a8_gemv_args &a, const ternary_bits &cut, vb_stream *stream);
vb_status w2a8_any(const vb_w2a8_gemv_args &a, bool words, vb_stream *stream);
vb_status w2a8_mma(const vb_w2a8_gemv_args &a, ternary_kernel kernel, vb_stream *stream);
vb_status w2a8_sm90(const vb_w2a8_gemv_args &a, const ternary_wgmma &c, vb_stream *stream);
vb_status w2a8_tiles(const vb_w2a8_gemv_args &a, const ternary_choice &c, vb_stream *stream);

} // namespace vb
#endif
