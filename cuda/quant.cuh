// quant.cuh: what a quantized element is worth, on the device: three small functions for each format of csrc/quant.h.
//
//     code(block, k)               the integer q of element k, as quant.h defines it (Q3_K's in -4..3)
//     scale_of(block, k, &s, &o)   the scale s and offset o of element k
//     value_of(block, q)           the number that q stands for before scaling: q itself but for the types with a table
//
// so that element k is s * value_of(q) + o. dequantize8 puts them together for eight neighbours, which never straddle a
// scale. Every kernel that takes any format (convert, embedding, linear) goes through it; the fast kernels of the packed
// layout (packed.cuh) are made and checked with the same functions.
#ifndef VB_QUANT_CUH
#define VB_QUANT_CUH

#include "common.cuh"
#include "quant.h"

// Calls X(type, block) for every type that a weight may have.
#define VB_WEIGHT_TYPES(X)                                                                                             \
    X(VB_F32, float) X(VB_F16, half) X(VB_BF16, bf16)                                                                  \
    X(VB_Q4_0, vb_block_q4_0) X(VB_Q4_1, vb_block_q4_1) X(VB_Q5_0, vb_block_q5_0) X(VB_Q5_1, vb_block_q5_1)            \
    X(VB_Q8_0, vb_block_q8_0) X(VB_Q2_K, vb_block_q2_k) X(VB_Q3_K, vb_block_q3_k) X(VB_Q4_K, vb_block_q4_k)            \
    X(VB_Q5_K, vb_block_q5_k) X(VB_Q6_K, vb_block_q6_k) X(VB_IQ4_NL, vb_block_iq4_nl) X(VB_IQ4_XS, vb_block_iq4_xs)    \
    X(VB_TQ1_0, vb_block_tq1_0) X(VB_TQ2_0, vb_block_tq2_0) X(VB_MXFP4, vb_block_mxfp4)

namespace vb {

// Elements of a block.
template <class Block>
struct BlockSize {
    static constexpr int value = sizeof(Block) >= 54 ? VB_QK_K : VB_QK;
};
template <>
struct BlockSize<float> {
    static constexpr int value = 1;
};
template <>
struct BlockSize<half> {
    static constexpr int value = 1;
};
template <>
struct BlockSize<bf16> {
    static constexpr int value = 1;
};

VB_DEVICE float half_bits(unsigned bits) { return __half2float(__ushort_as_half((unsigned short)bits)); }

// ---- codes ------------------------------------------------------------------------------------------------------------

// Element k of nibbles in the order of Q4_0.
VB_DEVICE int nibble(const uint8_t *qs, int k) { return (qs[k & 15] >> ((k & 16) / 4)) & 15; }
// Element k of two-bit codes in the order of Q2_K.
VB_DEVICE int crumb(const uint8_t *qs, int k) { return (qs[32 * (k >> 7) + (k & 31)] >> (2 * ((k >> 5) & 3))) & 3; }

VB_DEVICE int code(const vb_block_q4_0 &b, int k) { return nibble(b.qs, k); }
VB_DEVICE int code(const vb_block_q4_1 &b, int k) { return nibble(b.qs, k); }
VB_DEVICE int code(const vb_block_q5_0 &b, int k) { return nibble(b.qs, k) | ((b.qh[k >> 3] >> (k & 7)) & 1) << 4; }
VB_DEVICE int code(const vb_block_q5_1 &b, int k) { return nibble(b.qs, k) | ((b.qh[k >> 3] >> (k & 7)) & 1) << 4; }
VB_DEVICE int code(const vb_block_q8_0 &b, int k) { return b.qs[k]; }
VB_DEVICE int code(const vb_block_iq4_nl &b, int k) { return nibble(b.qs, k); }
VB_DEVICE int code(const vb_block_mxfp4 &b, int k) { return nibble(b.qs, k); }
VB_DEVICE int code(const vb_block_q2_k &b, int k) { return crumb(b.qs, k); }
VB_DEVICE int code(const vb_block_tq2_0 &b, int k) { return crumb(b.qs, k); }
VB_DEVICE int code(const vb_block_q3_k &b, int k) {
    return crumb(b.qs, k) + (((b.hmask[k & 31] >> (k >> 5)) & 1) << 2) - 4;
}
VB_DEVICE int code(const vb_block_q4_k &b, int k) { return (b.qs[32 * (k >> 6) + (k & 31)] >> ((k & 32) / 8)) & 15; }
VB_DEVICE int code(const vb_block_q5_k &b, int k) {
    return ((b.qs[32 * (k >> 6) + (k & 31)] >> ((k & 32) / 8)) & 15) | ((b.qh[k & 31] >> (k >> 5)) & 1) << 4;
}
VB_DEVICE int code(const vb_block_q6_k &b, int k) {
    const int l = 64 * (k >> 7) + (k & 63);
    return ((b.ql[l] >> ((k & 64) / 16)) & 15) | crumb(b.qh, k) << 4;
}
VB_DEVICE int code(const vb_block_iq4_xs &b, int k) { return nibble(b.qs + 16 * (k >> 5), k); }
VB_DEVICE int code(const vb_block_tq1_0 &b, int k) {
    const int byte = k < 160 ? b.qs[k & 31] : k < 240 ? b.qs[32 + (k & 15)] : b.qh[k & 3];
    const int digit = k < 160 ? k >> 5 : k < 240 ? (k - 160) >> 4 : (k - 240) >> 2;
    const int power = digit == 0 ? 1 : digit == 1 ? 3 : digit == 2 ? 9 : digit == 3 ? 27 : 81;
    return (((byte * power) & 255) * 3) >> 8;
}

template <class Block>
VB_DEVICE int value_of(const Block &, int q) {
    return q;
}
VB_DEVICE int value_of(const vb_block_iq4_nl &, int q) { return vb_iq4nl_values[q]; }
VB_DEVICE int value_of(const vb_block_iq4_xs &, int q) { return vb_iq4nl_values[q]; }
VB_DEVICE int value_of(const vb_block_mxfp4 &, int q) { return vb_mxfp4_values[q]; }

// ---- scales and offsets -------------------------------------------------------------------------------------------------

VB_DEVICE void scale_of(const vb_block_q4_0 &b, int, float *scale, float *offset) {
    *scale = half_bits(b.d), *offset = -8 * *scale;
}
VB_DEVICE void scale_of(const vb_block_q5_0 &b, int, float *scale, float *offset) {
    *scale = half_bits(b.d), *offset = -16 * *scale;
}
VB_DEVICE void scale_of(const vb_block_q4_1 &b, int, float *scale, float *offset) {
    *scale = half_bits(b.d), *offset = half_bits(b.m);
}
VB_DEVICE void scale_of(const vb_block_q5_1 &b, int, float *scale, float *offset) {
    *scale = half_bits(b.d), *offset = half_bits(b.m);
}
VB_DEVICE void scale_of(const vb_block_q8_0 &b, int, float *scale, float *offset) {
    *scale = half_bits(b.d), *offset = 0;
}
VB_DEVICE void scale_of(const vb_block_iq4_nl &b, int, float *scale, float *offset) {
    *scale = half_bits(b.d), *offset = 0;
}
VB_DEVICE void scale_of(const vb_block_mxfp4 &b, int, float *scale, float *offset) {
    const int e = b.e; // 2^(e - 128), subnormal for e < 2
    *scale = __int_as_float(e < 2 ? 0x00200000 << e : (e - 1) << 23), *offset = 0;
}
VB_DEVICE void scale_of(const vb_block_q2_k &b, int k, float *scale, float *offset) {
    const int s = b.scales[k >> 4];
    *scale = half_bits(b.d) * (s & 15), *offset = -half_bits(b.dmin) * (s >> 4);
}
VB_DEVICE void scale_of(const vb_block_q3_k &b, int k, float *scale, float *offset) {
    const int s = k >> 4;
    const int low = (b.scales[s & 7] >> ((s & 8) / 2)) & 15, high = (b.scales[8 + (s & 3)] >> (2 * (s >> 2))) & 3;
    *scale = half_bits(b.d) * ((low | high << 4) - 32), *offset = 0;
}
VB_DEVICE void scale_of(const vb_block_q4_k &b, int k, float *scale, float *offset) {
    int s, m;
    vb_k4_scale(b.scales, k >> 5, &s, &m);
    *scale = half_bits(b.d) * s, *offset = -half_bits(b.dmin) * m;
}
VB_DEVICE void scale_of(const vb_block_q5_k &b, int k, float *scale, float *offset) {
    int s, m;
    vb_k4_scale(b.scales, k >> 5, &s, &m);
    *scale = half_bits(b.d) * s, *offset = -half_bits(b.dmin) * m;
}
VB_DEVICE void scale_of(const vb_block_q6_k &b, int k, float *scale, float *offset) {
    *scale = half_bits(b.d) * b.scales[k >> 4], *offset = -32 * *scale;
}
VB_DEVICE void scale_of(const vb_block_iq4_xs &b, int k, float *scale, float *offset) {
    const int s = k >> 5;
    const int low = (b.scales_l[s >> 1] >> (4 * (s & 1))) & 15, high = (b.scales_h >> (2 * s)) & 3;
    *scale = half_bits(b.d) * ((low | high << 4) - 32), *offset = 0;
}
VB_DEVICE void scale_of(const vb_block_tq1_0 &b, int, float *scale, float *offset) {
    *scale = half_bits(b.d), *offset = -*scale;
}
VB_DEVICE void scale_of(const vb_block_tq2_0 &b, int, float *scale, float *offset) {
    *scale = half_bits(b.d), *offset = -*scale;
}

// ---- eight elements ---------------------------------------------------------------------------------------------------

// out[i] = element k + i of a stored row, i = 0..7; k is a multiple of 8. Rows of plain types start at 16 bytes.
template <class Block>
VB_DEVICE void dequantize8(float out[8], const Block *row, int64_t k) {
    const Block &b = row[k / BlockSize<Block>::value];
    const int e = int(k % BlockSize<Block>::value);
    float scale, offset;
    scale_of(b, e, &scale, &offset);
#pragma unroll
    for (int i = 0; i < 8; i++) out[i] = fmaf(scale, float(value_of(b, code(b, e + i))), offset);
}
VB_DEVICE void dequantize8(float out[8], const float *row, int64_t k) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float4 v = __ldg(reinterpret_cast<const float4 *>(row + k) + i);
        out[4 * i] = v.x, out[4 * i + 1] = v.y, out[4 * i + 2] = v.z, out[4 * i + 3] = v.w;
    }
}
VB_DEVICE void dequantize8(float out[8], const half *row, int64_t k) {
    const uint4 v = __ldg(reinterpret_cast<const uint4 *>(row + k));
    const unsigned word[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++) out[2 * i] = half_bits(word[i] & 0xffff), out[2 * i + 1] = half_bits(word[i] >> 16);
}
VB_DEVICE void dequantize8(float out[8], const bf16 *row, int64_t k) {
    const uint4 v = __ldg(reinterpret_cast<const uint4 *>(row + k));
    const unsigned word[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++)
        out[2 * i] = __uint_as_float(word[i] << 16), out[2 * i + 1] = __uint_as_float(word[i] & 0xffff0000u);
}

} // namespace vb
#endif
