// quant.cuh: the values of quantized elements on the device: small functions for each format of csrc/quant.h.
//
//     code8(block, k)              the integers q of the elements k .. k + 7 (through the table, for the types that
//                                  have one)
//     scale_of(block, k, &s, &o)   the scale s and offset o of element k
//     block8(out, block, k)        eight elements, for the formats that are no scale times bytes (codebooks)
//     code(block, k)               the stored integer of one element, for the types that are packed at load
//                                  (packed.cuh)
//
// Element k is s * q + o. dequantize8 puts them together for eight neighbours, which never straddle a scale.
// Every kernel that takes any format as stored (convert, embedding, linear) calls it.
#ifndef VB_QUANT_CUH
#define VB_QUANT_CUH

#include "runtime/common.cuh"
#include "codebooks.h"
#include "quant.h"

// Calls X(type, block) for every type that a weight may have; without F32, for those whose values are narrowed to 16
// bits; without BF16 too, for those whose values are narrowed to F16.
#define VB_WEIGHT_TYPES(X) X(VB_F32, float) VB_NARROW_WEIGHT_TYPES(X)
#define VB_NARROW_WEIGHT_TYPES(X) X(VB_BF16, bf16) VB_HALF_WEIGHT_TYPES(X)
#define VB_HALF_WEIGHT_TYPES(X)                                                                                        \
    X(VB_F16, half)                                                                                                    \
    X(VB_Q4_0, vb_block_q4_0) X(VB_Q4_1, vb_block_q4_1) X(VB_Q5_0, vb_block_q5_0) X(VB_Q5_1, vb_block_q5_1)            \
    X(VB_Q8_0, vb_block_q8_0) X(VB_Q2_K, vb_block_q2_k) X(VB_Q3_K, vb_block_q3_k) X(VB_Q4_K, vb_block_q4_k)            \
    X(VB_Q5_K, vb_block_q5_k) X(VB_Q6_K, vb_block_q6_k) X(VB_IQ4_NL, vb_block_iq4_nl) X(VB_IQ4_XS, vb_block_iq4_xs)    \
    X(VB_TQ1_0, vb_block_tq1_0) X(VB_TQ2_0, vb_block_tq2_0) X(VB_MXFP4, vb_block_mxfp4) X(VB_NVFP4, vb_block_nvfp4)    \
    X(VB_Q1_0, vb_block_q1_0) X(VB_Q2_0, vb_block_q2_0) X(VB_IQ1_S, vb_block_iq1_s) X(VB_IQ1_M, vb_block_iq1_m)        \
    X(VB_IQ2_XXS, vb_block_iq2_xxs) X(VB_IQ2_XS, vb_block_iq2_xs) X(VB_IQ2_S, vb_block_iq2_s)                          \
    X(VB_IQ3_XXS, vb_block_iq3_xxs) X(VB_IQ3_S, vb_block_iq3_s)

namespace vb {

// Elements of a block.
template <class Block>
struct BlockSize {
    static constexpr int value = sizeof(Block) >= 50 ? VB_QK_K : VB_QK;
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

template <>
struct BlockSize<vb_block_q1_0> {
    static constexpr int value = 128;
};
template <>
struct BlockSize<vb_block_q2_0> {
    static constexpr int value = 64;
};
template <>
struct BlockSize<vb_block_nvfp4> {
    static constexpr int value = 64;
};

VB_DEVICE float half_bits(unsigned bits) { return __half2float(__ushort_as_half((unsigned short)bits)); }

// ---- codes ----------------------------------------------------------------------------------------------------------

// Element k of nibbles in the order of Q4_0.
VB_DEVICE int nibble(const uint8_t *qs, int k) { return (qs[k & 15] >> ((k & 16) / 4)) & 15; }
// Element k of two-bit codes in the order of Q2_K.
VB_DEVICE int crumb(const uint8_t *qs, int k) { return (qs[32 * (k >> 7) + (k & 31)] >> (2 * ((k >> 5) & 3))) & 3; }

VB_DEVICE int code(const vb_block_q4_0 &b, int k) { return nibble(b.qs, k); }
VB_DEVICE int code(const vb_block_q5_0 &b, int k) { return nibble(b.qs, k) | ((b.qh[k >> 3] >> (k & 7)) & 1) << 4; }
VB_DEVICE int code(const vb_block_q8_0 &b, int k) { return b.qs[k]; }
VB_DEVICE int code(const vb_block_q4_1 &b, int k) { return nibble(b.qs, k); }
VB_DEVICE int code(const vb_block_q5_1 &b, int k) { return nibble(b.qs, k) | ((b.qh[k >> 3] >> (k & 7)) & 1) << 4; }
VB_DEVICE int code(const vb_block_iq4_nl &b, int k) { return nibble(b.qs, k); }
VB_DEVICE int code(const vb_block_mxfp4 &b, int k) { return nibble(b.qs, k); }
VB_DEVICE int code(const vb_block_nvfp4 &b, int k) { return b.qs[8 * (k >> 4) + (k & 7)] >> (k & 8) / 2 & 15; }
VB_DEVICE int code(const vb_block_iq4_xs &b, int k) { return nibble(b.qs + 16 * (k >> 5), k & 31); }
VB_DEVICE int code(const vb_block_q2_k &b, int k) { return crumb(b.qs, k); }
VB_DEVICE int code(const vb_block_q3_k &b, int k) { // -4..3, plus 4
    return crumb(b.qs, k) + 4 * ((b.hmask[k & 31] >> (k >> 5)) & 1);
}
VB_DEVICE int code(const vb_block_q4_k &b, int k) { return (b.qs[32 * (k >> 6) + (k & 31)] >> ((k & 32) / 8)) & 15; }
VB_DEVICE int code(const vb_block_q5_k &b, int k) {
    return ((b.qs[32 * (k >> 6) + (k & 31)] >> ((k & 32) / 8)) & 15) | ((b.qh[k & 31] >> (k >> 5)) & 1) << 4;
}
VB_DEVICE int code(const vb_block_q6_k &b, int k) {
    const int l = 64 * (k >> 7) + (k & 63);
    return ((b.ql[l] >> ((k & 64) / 16)) & 15) | crumb(b.qh, k) << 4;
}

// ---- scales and offsets ---------------------------------------------------------------------------------------------

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

// ---- eight elements -------------------------------------------------------------------------------------------------
//
// k is a multiple of 8 within the block. Four codes are taken out at a time.

struct Codes8 {
    uint32_t low, high; // elements 0..3 and 4..7, a byte each
    int bias;           // was added, so that no byte is negative
};

// Eight bytes that lie at a multiple of ALIGN.
template <int ALIGN>
VB_DEVICE uint2 bytes8(const uint8_t *p) {
    if (ALIGN == 4)
        return make_uint2(reinterpret_cast<const uint32_t *>(p)[0], reinterpret_cast<const uint32_t *>(p)[1]);
    if (ALIGN == 2) {
        const uint16_t *h = reinterpret_cast<const uint16_t *>(p);
        return make_uint2(h[0] | (uint32_t)h[1] << 16, h[2] | (uint32_t)h[3] << 16);
    }
    return make_uint2(p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24,
                      p[4] | (uint32_t)p[5] << 8 | (uint32_t)p[6] << 16 | (uint32_t)p[7] << 24);
}
// As nibble() and crumb(), for eight.
template <int ALIGN>
VB_DEVICE Codes8 nibble8(const uint8_t *qs, int k) {
    const uint2 v = bytes8<ALIGN>(qs + (k & 8));
    const int shift = (k & 16) / 4;
    return {(v.x >> shift) & 0x0f0f0f0f, (v.y >> shift) & 0x0f0f0f0f, 0};
}
template <int ALIGN>
VB_DEVICE Codes8 crumb8(const uint8_t *qs, int k) {
    const uint2 v = bytes8<ALIGN>(qs + 32 * (k >> 7) + (k & 31));
    const int shift = 2 * ((k >> 5) & 3);
    return {(v.x >> shift) & 0x03030303, (v.y >> shift) & 0x03030303, 0};
}
// Bit i of four goes to the byte i.
VB_DEVICE uint32_t spread_bits(uint32_t four) { return ((four & 15) * 0x00204081u) & 0x01010101u; }

// Four nibbles, a byte each, through a table of 16 signed bytes. No memory: lanes would read it at different addresses.
VB_DEVICE uint32_t look_up(uint32_t four, uint32_t t0, uint32_t t1, uint32_t t2, uint32_t t3) {
    const uint32_t two = four | four >> 4, index = (two & 0xff) | (two >> 8 & 0xff00); // a nibble each
    const uint32_t low = __byte_perm(t0, t1, index & 0x7777), high = __byte_perm(t2, t3, index & 0x7777);
    return __byte_perm(low, high, 0x3210 | (index & 0x8888) >> 1) ^ 0x80808080; // + 128
}
template <int B0, int B1, int B2, int B3>
struct TableWord {
    static constexpr uint32_t value = (B0 & 255) | (B1 & 255) << 8 | (B2 & 255) << 16 | (uint32_t)(B3 & 255) << 24;
};
VB_DEVICE Codes8 iq4nl_values(const Codes8 &c) { // vb_iq4nl_values
    constexpr uint32_t t0 = TableWord<-127, -104, -83, -65>::value, t1 = TableWord<-49, -35, -22, -10>::value;
    constexpr uint32_t t2 = TableWord<1, 13, 25, 38>::value, t3 = TableWord<53, 69, 89, 113>::value;
    return {look_up(c.low, t0, t1, t2, t3), look_up(c.high, t0, t1, t2, t3), 128};
}
VB_DEVICE Codes8 mxfp4_values(const Codes8 &c) { // vb_mxfp4_values
    constexpr uint32_t t0 = TableWord<0, 1, 2, 3>::value, t1 = TableWord<4, 6, 8, 12>::value;
    constexpr uint32_t t2 = TableWord<0, -1, -2, -3>::value, t3 = TableWord<-4, -6, -8, -12>::value;
    return {look_up(c.low, t0, t1, t2, t3), look_up(c.high, t0, t1, t2, t3), 128};
}
// Digit n of four bytes (see quant.h), power = 3^n.
VB_DEVICE uint32_t trits(uint32_t four, uint32_t power) {
    const uint32_t even = (((four & 0x00ff00ff) * power) & 0x00ff00ff) * 3,
                   odd = (((four >> 8 & 0x00ff00ff) * power) & 0x00ff00ff) * 3;
    return (even >> 8 & 0x00030003) | (odd & 0x03000300);
}

VB_DEVICE Codes8 code8(const vb_block_q4_0 &b, int k) { return nibble8<2>(b.qs, k); }
VB_DEVICE Codes8 code8(const vb_block_q4_1 &b, int k) { return nibble8<4>(b.qs, k); }
VB_DEVICE Codes8 code8(const vb_block_q5_0 &b, int k) {
    const Codes8 c = nibble8<2>(b.qs, k);
    const uint32_t fifth = b.qh[k >> 3];
    return {c.low | spread_bits(fifth) << 4, c.high | spread_bits(fifth >> 4) << 4, 0};
}
VB_DEVICE Codes8 code8(const vb_block_q5_1 &b, int k) {
    const Codes8 c = nibble8<4>(b.qs, k);
    const uint32_t fifth = b.qh[k >> 3];
    return {c.low | spread_bits(fifth) << 4, c.high | spread_bits(fifth >> 4) << 4, 0};
}
VB_DEVICE Codes8 code8(const vb_block_q8_0 &b, int k) {
    const uint2 v = bytes8<2>(reinterpret_cast<const uint8_t *>(b.qs + k));
    return {v.x ^ 0x80808080, v.y ^ 0x80808080, 128};
}
VB_DEVICE Codes8 code8(const vb_block_iq4_nl &b, int k) { return iq4nl_values(nibble8<2>(b.qs, k)); }
VB_DEVICE Codes8 code8(const vb_block_iq4_xs &b, int k) { return iq4nl_values(nibble8<4>(b.qs + 16 * (k >> 5), k)); }
VB_DEVICE Codes8 code8(const vb_block_mxfp4 &b, int k) { return mxfp4_values(nibble8<1>(b.qs, k)); }
VB_DEVICE Codes8 code8(const vb_block_q2_k &b, int k) { return crumb8<4>(b.qs, k); }
VB_DEVICE Codes8 code8(const vb_block_tq2_0 &b, int k) { return crumb8<2>(b.qs, k); }
VB_DEVICE Codes8 code8(const vb_block_q3_k &b, int k) {
    const Codes8 c = crumb8<2>(b.qs, k);
    const uint2 third = bytes8<2>(b.hmask + (k & 31));
    return {c.low | (third.x >> (k >> 5) & 0x01010101) << 2, c.high | (third.y >> (k >> 5) & 0x01010101) << 2, 4};
}
VB_DEVICE Codes8 code8(const vb_block_q4_k &b, int k) {
    const uint2 v = bytes8<4>(b.qs + 32 * (k >> 6) + (k & 31));
    const int shift = (k & 32) / 8;
    return {(v.x >> shift) & 0x0f0f0f0f, (v.y >> shift) & 0x0f0f0f0f, 0};
}
VB_DEVICE Codes8 code8(const vb_block_q5_k &b, int k) {
    const uint2 v = bytes8<4>(b.qs + 32 * (k >> 6) + (k & 31)), fifth = bytes8<4>(b.qh + (k & 31));
    const int shift = (k & 32) / 8, bit = k >> 5;
    return {((v.x >> shift) & 0x0f0f0f0f) | (fifth.x >> bit & 0x01010101) << 4,
            ((v.y >> shift) & 0x0f0f0f0f) | (fifth.y >> bit & 0x01010101) << 4, 0};
}
VB_DEVICE Codes8 code8(const vb_block_q6_k &b, int k) {
    const uint2 v = bytes8<2>(b.ql + 64 * (k >> 7) + (k & 63));
    const Codes8 upper = crumb8<2>(b.qh, k);
    const int shift = (k & 64) / 16;
    return {((v.x >> shift) & 0x0f0f0f0f) | upper.low << 4, ((v.y >> shift) & 0x0f0f0f0f) | upper.high << 4, 0};
}
VB_DEVICE Codes8 code8(const vb_block_tq1_0 &b, int k) {
    const int digit = k < 160 ? k >> 5 : k < 240 ? (k - 160) >> 4 : (k - 240) >> 2;
    const uint32_t power = digit == 0 ? 1 : digit == 1 ? 3 : digit == 2 ? 9 : digit == 3 ? 27 : 81;
    if (k >= 240) { // two digits of the four bytes of qh
        const uint16_t *h = reinterpret_cast<const uint16_t *>(b.qh);
        const uint32_t four = h[0] | (uint32_t)h[1] << 16;
        return {trits(four, power), trits(four, 3 * power), 0};
    }
    const uint2 v = bytes8<2>(k < 160 ? b.qs + (k & 31) : b.qs + 32 + (k & 15));
    return {trits(v.x, power), trits(v.y, power), 0};
}

// out[i] = element k + i of a stored row, i = 0..7; k is a multiple of 8. Rows of plain types start at 16 bytes.
template <class Block>
VB_DEVICE void dequantize8(float out[8], const Block *row, int64_t k) {
    const Block &b = row[k / BlockSize<Block>::value];
    const int e = int(k % BlockSize<Block>::value);
    float scale, offset;
    scale_of(b, e, &scale, &offset);
    const Codes8 c = code8(b, e);
    const float unbias = -8388608.0f - static_cast<float>(c.bias); // a byte below the bits of 2^23 is 2^23 + its value
#pragma unroll
    for (int i = 0; i < 8; i++)
        out[i] = fmaf(
            scale, __uint_as_float(__byte_perm(i < 4 ? c.low : c.high, 0x4b000000, 0x7440 | (i & 3))) + unbias, offset);
}
// ---- formats whose eight elements are no scale times bytes ----------------------------------------------------------
//
// Codebooks lie in global memory: lanes read different entries, which constant memory serves one after the other.

static __device__ const uint16_t iq2_xxs_book[256] = {VB_CODEBOOK_IQ2_XXS}, iq2_xs_book[512] = {VB_CODEBOOK_IQ2_XS};
static __device__ const uint16_t iq2_s_book[1024] = {VB_CODEBOOK_IQ2_S}, iq3_xxs_book[256] = {VB_CODEBOOK_IQ3_XXS};
static __device__ const uint16_t iq3_s_book[512] = {VB_CODEBOOK_IQ3_S}, iq1_book[2048] = {VB_CODEBOOK_IQ1};

VB_DEVICE uint32_t word_at(const void *p) { // at an even address
    const uint16_t *h = static_cast<const uint16_t *>(p);
    return h[0] | (uint32_t)h[1] << 16;
}

VB_DEVICE void group_iq2(float out[8], uint32_t entry, uint32_t signs, float scale) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float v = scale * (0x2b1908 >> (8 * (entry >> (2 * i) & 3)) & 255); // 8, 25 or 43
        out[i] = signs >> i & 1 ? -v : v;
    }
}
VB_DEVICE void group_iq1(float out[8], uint32_t entry, float scale, bool minus) {
    const float delta = minus ? -1.125f : -0.875f;
#pragma unroll
    for (int i = 0; i < 8; i++) out[i] = scale * ((int)(entry >> (2 * i) & 3) + delta);
}
// The scale of IQ2_XS and IQ2_S for group g of the block.
VB_DEVICE float iq2_scale(vb_half d, const uint8_t *scales, int g) {
    return half_bits(d) * (0.5f + (scales[g >> 2] >> (4 * (g >> 1 & 1)) & 15)) * 0.25f;
}

VB_DEVICE void block8(float out[8], const vb_block_q1_0 &b, int k) {
    const float d = half_bits(b.d);
#pragma unroll
    for (int i = 0; i < 8; i++) out[i] = b.qs[k >> 3] >> i & 1 ? d : -d;
}
VB_DEVICE void block8(float out[8], const vb_block_q2_0 &b, int k) {
    const float d = half_bits(b.d);
#pragma unroll
    for (int i = 0; i < 8; i++) out[i] = d * ((b.qs[(k + i) >> 2] >> (2 * (i & 3)) & 3) - 1);
}
VB_DEVICE void block8(float out[8], const vb_block_nvfp4 &b, int k) {
    const float d = vb_ue4m3(b.d[k >> 4]);
#pragma unroll
    for (int i = 0; i < 8; i++) out[i] = d * vb_mxfp4_values[b.qs[8 * (k >> 4) + i] >> (k & 8) / 2 & 15];
}
VB_DEVICE void block8(float out[8], const vb_block_iq2_xxs &b, int k) {
    const int s = k >> 5, g = k >> 3 & 3;
    const uint32_t rest = word_at(b.qs + 4 * s + 2);
    const uint32_t index = b.qs[4 * s + (g >> 1)] >> (8 * (g & 1)) & 255;
    group_iq2(out, iq2_xxs_book[index], vb_even_signs(rest >> (7 * g) & 127),
              half_bits(b.d) * (0.5f + (rest >> 28)) * 0.25f);
}
VB_DEVICE void block8(float out[8], const vb_block_iq2_xs &b, int k) {
    const int g = k >> 3;
    group_iq2(out, iq2_xs_book[b.qs[g] & 511], vb_even_signs(b.qs[g] >> 9), iq2_scale(b.d, b.scales, g));
}
VB_DEVICE void block8(float out[8], const vb_block_iq2_s &b, int k) {
    const int g = k >> 3;
    group_iq2(out, iq2_s_book[b.qs[g] | (b.qh[g >> 2] >> (2 * (g & 3)) & 3) << 8], b.signs[g],
              iq2_scale(b.d, b.scales, g));
}
VB_DEVICE void block8(float out[8], const vb_block_iq3_xxs &b, int k) {
    const uint32_t rest = word_at(b.rest + 4 * (k >> 5));
    const uint32_t signs = vb_even_signs(rest >> (7 * (k >> 3 & 3)) & 127);
    const float scale = half_bits(b.d) * (0.5f + (rest >> 28)) * 0.5f;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const uint32_t code = iq3_xxs_book[b.qs[(k + i) >> 2]] >> (3 * (i & 3)) & 7;
        const float v = scale * (8 * code + (code == 7 ? 6 : 4)); // 4, 12, ... 52, 62
        out[i] = signs >> i & 1 ? -v : v;
    }
}
VB_DEVICE void block8(float out[8], const vb_block_iq3_s &b, int k) {
    const float scale = half_bits(b.d) * (2 * (b.scales[k >> 6] >> (4 * (k >> 5 & 1)) & 15) + 1);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int g = (k + i) >> 2;
        const uint32_t entry = iq3_s_book[b.qs[g] | (b.qh[g >> 3] >> (g & 7) & 1) << 8];
        const float v = scale * (2 * (entry >> (3 * (i & 3)) & 7) + 1);
        out[i] = b.signs[k >> 3] >> i & 1 ? -v : v;
    }
}
VB_DEVICE void block8(float out[8], const vb_block_iq1_s &b, int k) {
    const int g = k >> 3, rest = b.qh[k >> 5];
    const float scale = half_bits(b.d) * (2 * (rest >> 12 & 7) + 1);
    group_iq1(out, iq1_book[b.qs[g] | (rest >> (3 * (g & 3)) & 7) << 8], scale, rest >> 15);
}
VB_DEVICE void block8(float out[8], const vb_block_iq1_m &b, int k) {
    const int g = k >> 3, nibble = b.qh[g >> 1] >> (4 * (g & 1));
    const uint8_t *const s = b.scales; // an upper nibble of each 16 bits belongs to d
    const float d = half_bits(s[1] >> 4 | (s[3] >> 4) << 4 | (s[5] >> 4) << 8 | (s[7] >> 4) << 12);
    const int sixteen = s[2 * (g >> 3)] | s[2 * (g >> 3) + 1] << 8, scale = sixteen >> (3 * (g >> 1 & 3)) & 7;
    group_iq1(out, iq1_book[b.qs[g] | (nibble & 7) << 8], d * (2 * scale + 1), nibble & 8);
}

#define VB_BLOCK8(Block) \
    VB_DEVICE void dequantize8(float out[8], const Block *row, int64_t k) { \
        block8(out, row[k / BlockSize<Block>::value], int(k % BlockSize<Block>::value)); \
    }
VB_BLOCK8(vb_block_q1_0)
VB_BLOCK8(vb_block_q2_0)
VB_BLOCK8(vb_block_nvfp4)
VB_BLOCK8(vb_block_iq1_s)
VB_BLOCK8(vb_block_iq1_m)
VB_BLOCK8(vb_block_iq2_xxs)
VB_BLOCK8(vb_block_iq2_xs)
VB_BLOCK8(vb_block_iq2_s)
VB_BLOCK8(vb_block_iq3_xxs)
VB_BLOCK8(vb_block_iq3_s)
#undef VB_BLOCK8

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
