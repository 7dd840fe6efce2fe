// w2a8.cuh: what the kernels of vb_w2a8_gemv share: dot products of four bytes, and the result of a sum.
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

// Writes what becomes of a sum: row i of the activations, row r of the weights.
VB_DEVICE void store_sum(const vb_w2a8_gemv_args &a, int64_t i, int64_t r, int sum) {
    const int64_t at = i * a.n + r;
    if (a.out_type == VB_I32) {
        static_cast<int *>(a.out)[at] = sum;
        return;
    }
    float v = float(sum);
    if (a.activation_scales) v = __fdiv_rn(v, a.activation_scales[i]);
    if (a.weight_scales) {
        int64_t s = 0;
        if (a.segment_ends)
            while (s + 1 < a.segments && r >= a.segment_ends[s]) s++;
        else if (a.segments == a.n)
            s = r;
        else if (a.segments > 1)
            s = r * a.segments / a.n;
        v *= a.weight_scales[s];
    }
    if (a.bias) v += a.bias[r];
    if (a.add) v += a.add[at];
    if (a.out_type == VB_F32)
        static_cast<float *>(a.out)[at] = v;
    else if (a.out_type == VB_F16)
        static_cast<half *>(a.out)[at] = from_float<half>(v);
    else
        static_cast<bf16 *>(a.out)[at] = from_float<bf16>(v);
}

// Where the elements of a word of a piece begin: word w has those from first + w * step on.
struct PieceElements {
    int64_t first;
    int step;
};
VB_DEVICE PieceElements elements_of(int piece, int pieces) {
    const int run = piece / 8, in_run = smaller(8, pieces - run * 8);
    return {(int64_t)run * VB_INT2_RUN + 16 * (piece - run * 8), 16 * in_run};
}

// The pieces of row r of the weights, the last row for those behind it.
VB_DEVICE const uint4 *row_of(const vb_w2a8_gemv_args &a, int64_t r) {
    const char *const weights = static_cast<const char *>(a.weights);
    return reinterpret_cast<const uint4 *>(weights + smaller(r, a.n - 1) * a.row_bytes);
}

// w2a8_any.cu, w2a8_mma.cu, w2a8_ring.cu, w2a8_tiles.cu
vb_status w2a8_any(const vb_w2a8_gemv_args &a, bool words, vb_stream *stream);
vb_status w2a8_mma(const vb_w2a8_gemv_args &a, bool many, vb_stream *stream);
vb_status w2a8_ring(const vb_w2a8_gemv_args &a, const ternary_ring &ring, vb_stream *stream);
vb_status w2a8_tiles(const vb_w2a8_gemv_args &a, const ternary_choice &c, vb_stream *stream);

} // namespace vb
#endif
