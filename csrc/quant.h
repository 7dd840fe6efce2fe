/* quant.h: the block formats of GGUF's quantized tensors, byte for byte, for C and CUDA alike.
 *
 * A quantized row is a sequence of blocks of 32 or 256 elements. A block holds small integers q and what turns them
 * into numbers: a half-precision scale d and, for the asymmetric types, an offset. The comment of each struct gives the
 * value of element i as the format defines it; "low" and "high" nibble are bits 0-3 and 4-7 of a byte. All numbers are
 * little-endian. No struct has padding, and the largest member has two bytes, so a block may start at any even address
 * (at any address for MXFP4): read wider words with memcpy or unaligned loads.
 *
 * The 256-element types ("K-quants" and their kin) cut the block into sub-blocks of 16 or 32 with small integer scales.
 * Their packing is not sequential; the comments spell it out.
 */
#ifndef VB_QUANT_H
#define VB_QUANT_H

#include <stdint.h>

#ifdef __cplusplus
#define VB_STATIC_ASSERT(condition, text) static_assert(condition, text)
#else
#define VB_STATIC_ASSERT(condition, text) _Static_assert(condition, text)
#endif

/* VB_TABLE qualifies a constant table that kernels read: constant memory in device code, plain read-only data in C.
 * VB_QUANT_FN qualifies a small function for both sides. A table that host code of a .cu file needs as well is made
 * from its initializer macro. */
#ifdef __CUDACC__
#define VB_TABLE static __constant__ const
#define VB_QUANT_FN static __host__ __device__ __forceinline__
#else
#define VB_TABLE static const
#define VB_QUANT_FN static inline
#endif

enum { VB_QK = 32, VB_QK_K = 256 }; /* elements of a small block and of a K-block */

typedef uint16_t vb_half; /* the bits of an IEEE 754 binary16 */

/* ---- 32 elements a block ----------------------------------------------------------------------------------------- */

/* d * (q[i] - 8); q[i] is the low nibble of qs[i], for i >= 16 the high nibble of qs[i - 16]. */
typedef struct vb_block_q4_0 {
    vb_half d;
    uint8_t qs[16];
} vb_block_q4_0;
VB_STATIC_ASSERT(sizeof(vb_block_q4_0) == 18, "Q4_0");

/* d * q[i] + m; nibbles as in Q4_0. */
typedef struct vb_block_q4_1 {
    vb_half d, m;
    uint8_t qs[16];
} vb_block_q4_1;
VB_STATIC_ASSERT(sizeof(vb_block_q4_1) == 20, "Q4_1");

/* d * (q[i] - 16); q[i] has its low four bits as in Q4_0, its fifth is bit i of the 32-bit number qh. */
typedef struct vb_block_q5_0 {
    vb_half d;
    uint8_t qh[4];
    uint8_t qs[16];
} vb_block_q5_0;
VB_STATIC_ASSERT(sizeof(vb_block_q5_0) == 22, "Q5_0");

/* d * q[i] + m; q[i] as in Q5_0. */
typedef struct vb_block_q5_1 {
    vb_half d, m;
    uint8_t qh[4];
    uint8_t qs[16];
} vb_block_q5_1;
VB_STATIC_ASSERT(sizeof(vb_block_q5_1) == 24, "Q5_1");

/* d * qs[i] */
typedef struct vb_block_q8_0 {
    vb_half d;
    int8_t qs[32];
} vb_block_q8_0;
VB_STATIC_ASSERT(sizeof(vb_block_q8_0) == 34, "Q8_0");

/* d * vb_iq4nl_values[q[i]]; nibbles as in Q4_0. */
typedef struct vb_block_iq4_nl {
    vb_half d;
    uint8_t qs[16];
} vb_block_iq4_nl;
VB_STATIC_ASSERT(sizeof(vb_block_iq4_nl) == 18, "IQ4_NL");

/* 2^(e - 128) * vb_mxfp4_values[q[i]]; nibbles as in Q4_0. This is OCP's MX format of E2M1 elements under one E8M0
 * exponent 2^(e - 127), with the element values doubled to make them integers. (E8M0's NaN, e = 255, is read as 2^127
 * by ggml's rule, which this library follows.) */
typedef struct vb_block_mxfp4 {
    uint8_t e;
    uint8_t qs[16];
} vb_block_mxfp4;
VB_STATIC_ASSERT(sizeof(vb_block_mxfp4) == 17, "MXFP4");

/* ---- 256 elements a block ---------------------------------------------------------------------------------------- */

/* Sub-blocks of 16: d * (scales[s] & 15) * q[i] - dmin * (scales[s] >> 4), s = i / 16.
 * Each half of 128 elements has 32 bytes of qs; the element 32 * j + l of the half is bits 2j, 2j + 1 of its byte l. */
typedef struct vb_block_q2_k {
    uint8_t scales[16];
    uint8_t qs[64];
    vb_half d, dmin;
} vb_block_q2_k;
VB_STATIC_ASSERT(sizeof(vb_block_q2_k) == 84, "Q2_K");

/* Sub-blocks of 16: d * (scale[s] - 32) * q[i], s = i / 16, q in -4..3.
 * The low two bits of q + 4 lie as in Q2_K, the third of element i is bit i / 32 of hmask[i % 32].
 * The sixteen 6-bit scales: low four bits are the low nibbles of scales[0..7], then the high nibbles of the same bytes;
 * the upper two bits of scale s are bits 2 * (s / 4), + 1 of scales[8 + s % 4]. */
typedef struct vb_block_q3_k {
    uint8_t hmask[32];
    uint8_t qs[64];
    uint8_t scales[12];
    vb_half d;
} vb_block_q3_k;
VB_STATIC_ASSERT(sizeof(vb_block_q3_k) == 110, "Q3_K");

/* Sub-blocks of 32: d * scale[s] * q[i] - dmin * min[s], s = i / 32; the 6-bit scale and min by vb_k4_scale.
 * Each 64 elements have 32 bytes of qs: the first 32 elements are the low nibbles, the last 32 the high ones. */
typedef struct vb_block_q4_k {
    vb_half d, dmin;
    uint8_t scales[12];
    uint8_t qs[128];
} vb_block_q4_k;
VB_STATIC_ASSERT(sizeof(vb_block_q4_k) == 144, "Q4_K");

/* As Q4_K with a fifth bit: of element i, bit i / 32 of qh[i % 32]. */
typedef struct vb_block_q5_k {
    vb_half d, dmin;
    uint8_t scales[12];
    uint8_t qh[32];
    uint8_t qs[128];
} vb_block_q5_k;
VB_STATIC_ASSERT(sizeof(vb_block_q5_k) == 176, "Q5_K");

/* Sub-blocks of 16: d * scales[i / 16] * (q[i] - 32).
 * Each half of 128 elements has 64 bytes of ql and 32 of qh. Its element 32 * j + l (j = 0..3) has as low four bits the
 * low (j < 2) or high nibble of ql[32 * (j % 2) + l], as upper two the bits 2j, 2j + 1 of qh[l]. */
typedef struct vb_block_q6_k {
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t scales[16];
    vb_half d;
} vb_block_q6_k;
VB_STATIC_ASSERT(sizeof(vb_block_q6_k) == 210, "Q6_K");

/* Sub-blocks of 32: d * (scale[s] - 32) * vb_iq4nl_values[q[i]], s = i / 32. The low four bits of scale s are the low
 * (s even) or high nibble of scales_l[s / 2], the upper two are bits 2s, 2s + 1 of scales_h.
 * Sub-block s has the 16 bytes from qs[16 * s]: low nibbles first, as in Q4_0. */
typedef struct vb_block_iq4_xs {
    vb_half d;
    uint16_t scales_h;
    uint8_t scales_l[4];
    uint8_t qs[128];
} vb_block_iq4_xs;
VB_STATIC_ASSERT(sizeof(vb_block_iq4_xs) == 136, "IQ4_XS");

/* d * (t[i] - 1), t a base-3 digit 0..2. A byte b stands for the fraction b / 256, of which digit n (the first is n =
 * 0) is ((b * 3^n mod 256) * 3) >> 8. Elements 0..159: element 32 * n + l is digit n of qs[l]. Elements 160..239:
 * element 160 + 16 * n + l is digit n of qs[32 + l]. Elements 240..255: element 240 + 4 * n + l is digit n of qh[l], n
 * < 4. */
typedef struct vb_block_tq1_0 {
    uint8_t qs[48];
    uint8_t qh[4];
    vb_half d;
} vb_block_tq1_0;
VB_STATIC_ASSERT(sizeof(vb_block_tq1_0) == 54, "TQ1_0");

/* d * (q[i] - 1); bits as in Q2_K. */
typedef struct vb_block_tq2_0 {
    uint8_t qs[64];
    vb_half d;
} vb_block_tq2_0;
VB_STATIC_ASSERT(sizeof(vb_block_tq2_0) == 66, "TQ2_0");

/* ---- 64 and 128 elements a block --------------------------------------------------------------------------------- */

/* d where bit i of the 128 is set, else -d. */
typedef struct vb_block_q1_0 {
    vb_half d;
    uint8_t qs[16];
} vb_block_q1_0;
VB_STATIC_ASSERT(sizeof(vb_block_q1_0) == 18, "Q1_0");

/* d * (q[i] - 1); q[i] is bits 2 * (i % 4), + 1 of qs[i / 4]. 64 elements: files of older writers have 128. */
typedef struct vb_block_q2_0 {
    vb_half d;
    uint8_t qs[16];
} vb_block_q2_0;
VB_STATIC_ASSERT(sizeof(vb_block_q2_0) == 18, "Q2_0");

/* Sub-blocks of 16: vb_ue4m3(d[s]) * vb_mxfp4_values[q[i]], s = i / 16; the low nibbles of the 8 bytes from qs[8 * s]
 * are the first 8 of a sub-block, the high ones the last. NVIDIA's E2M1 elements under E4M3 scales; a tensor's own
 * float scale is not here. */
typedef struct vb_block_nvfp4 {
    uint8_t d[4];
    uint8_t qs[32];
} vb_block_nvfp4;
VB_STATIC_ASSERT(sizeof(vb_block_nvfp4) == 36, "NVFP4");

/* ---- 256 elements a block, of codebooks -----------------------------------------------------------------------------
 *
 * Element i is a scale times a signed magnitude. An entry of a codebook (codebooks.h) gives the magnitudes of a group
 * of 8 elements, of 4 in IQ3. "Even signs" are 7 bits, one an element, and an eighth that makes the number of set ones
 * even. */

/* Groups g of 8; each 32 elements have 8 bytes of qs: the indices of four groups, then a 32-bit number with the even
 * signs of group j in the bits from 7 * j and the scale in the upper four: d * (scale + 0.5) / 4. Magnitudes
 * 8, 25 and 43. */
typedef struct vb_block_iq2_xxs {
    vb_half d;
    uint16_t qs[32];
} vb_block_iq2_xxs;
VB_STATIC_ASSERT(sizeof(vb_block_iq2_xxs) == 66, "IQ2_XXS");

/* qs[g] is the index of group g in its low nine bits, the even signs above. d * (scale + 0.5) / 4, the scale of 16
 * elements the low or high nibble of scales[i / 32]. */
typedef struct vb_block_iq2_xs {
    vb_half d;
    uint16_t qs[32];
    uint8_t scales[8];
} vb_block_iq2_xs;
VB_STATIC_ASSERT(sizeof(vb_block_iq2_xs) == 74, "IQ2_XS");

/* As IQ2_XS with indices of ten bits: qs[g], and above it bits 2 * (g % 4), + 1 of qh[g / 4]; signs[g] has eight
 * signs. */
typedef struct vb_block_iq2_s {
    vb_half d;
    uint8_t qs[32];
    uint8_t signs[32];
    uint8_t qh[8];
    uint8_t scales[8];
} vb_block_iq2_s;
VB_STATIC_ASSERT(sizeof(vb_block_iq2_s) == 82, "IQ2_S");

/* Groups g of 4 with index qs[g]. The 32-bit number from rest[4 * (i / 32)] has the even signs of 8 elements in each
 * seven bits, and the scale above: d * (scale + 0.5) / 2. Magnitudes 4, 12, 20, 28,
 * 36, 44, 52 and 62. */
typedef struct vb_block_iq3_xxs {
    vb_half d;
    uint8_t qs[64];
    uint8_t rest[32];
} vb_block_iq3_xxs;
VB_STATIC_ASSERT(sizeof(vb_block_iq3_xxs) == 98, "IQ3_XXS");

/* Groups g of 4: index qs[g], and above it bit g % 8 of qh[g / 8]; signs[i / 8] has eight signs. d * (2 * scale + 1),
 * the scale of 32 elements a nibble of scales[i / 64]. Magnitudes 2 * code + 1. */
typedef struct vb_block_iq3_s {
    vb_half d;
    uint8_t qs[64];
    uint8_t qh[8];
    uint8_t signs[32];
    uint8_t scales[4];
} vb_block_iq3_s;
VB_STATIC_ASSERT(sizeof(vb_block_iq3_s) == 110, "IQ3_S");

/* d * (2 * scale + 1) * (t - 1 + delta), t in 0..2 of the entry: groups g of 8 with index qs[g], and above it bits 3 *
 * (g % 4) to + 2 of qh[i / 32], whose bits 12 to 14 are the scale and whose top bit says that delta is -1/8, not
 * 1/8. */
typedef struct vb_block_iq1_s {
    vb_half d;
    uint8_t qs[32];
    uint16_t qh[8];
} vb_block_iq1_s;
VB_STATIC_ASSERT(sizeof(vb_block_iq1_s) == 50, "IQ1_S");

/* As IQ1_S. Group g has a nibble of qh[g / 2]: three upper bits of its index, and delta's sign. scales are four 16-bit
 * numbers: each has the 3-bit scales of four times 16 elements, and a nibble of the half d in its upper bits. */
typedef struct vb_block_iq1_m {
    uint8_t qs[32];
    uint8_t qh[16];
    uint8_t scales[8];
} vb_block_iq1_m;
VB_STATIC_ASSERT(sizeof(vb_block_iq1_m) == 56, "IQ1_M");

/* ---- tables, and the packings that are worth a function ---------------------------------------------------------- */

#define VB_IQ4NL_VALUES {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
#define VB_MXFP4_VALUES {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

VB_TABLE int8_t vb_iq4nl_values[16] = VB_IQ4NL_VALUES;
VB_TABLE int8_t vb_mxfp4_values[16] = VB_MXFP4_VALUES;

/* The 6-bit scale and min of sub-block s (0..7) of Q4_K and Q5_K. For s < 4 they are the low six bits of bytes s and
 * s + 4; for the others four bits lie in byte s + 4 and the two upper ones on top of bytes s - 4 and s. */
VB_QUANT_FN void vb_k4_scale(const uint8_t *scales, int s, int *scale, int *min) {
    if (s < 4) {
        *scale = scales[s] & 63;
        *min = scales[s + 4] & 63;
    } else {
        *scale = (scales[s + 4] & 15) | (scales[s - 4] >> 6) << 4;
        *min = (scales[s + 4] >> 4) | (scales[s] >> 6) << 4;
    }
}

/* Scale s (0..15) of Q3_K, in -32..31. */
VB_QUANT_FN int vb_q3_k_scale(const uint8_t *scales, int s) {
    int low = scales[s % 8] >> (s / 8 * 4) & 15, high = scales[8 + s % 4] >> (s / 4 * 2) & 3;
    return (low | high << 4) - 32;
}

/* Scale s (0..7) of IQ4_XS, in -32..31. */
VB_QUANT_FN int vb_iq4_xs_scale(const vb_block_iq4_xs *b, int s) {
    return ((b->scales_l[s / 2] >> (s % 2 * 4) & 15) | (b->scales_h >> (2 * s) & 3) << 4) - 32;
}

/* Half the value of a float of 4 exponent and 3 mantissa bits without a sign; its NaN is 0. */
VB_QUANT_FN float vb_ue4m3(uint8_t code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    if (code == 0x7f) return 0;
    return exponent == 0 ? (float)mantissa * (1.0f / 1024) : (float)((8 + mantissa) << exponent) * (1.0f / 2048);
}

/* Seven signs with the eighth that makes the number of set ones even. */
VB_QUANT_FN uint32_t vb_even_signs(uint32_t seven) {
    uint32_t parity = seven ^ seven >> 4;
    parity ^= parity >> 2;
    return seven | ((parity ^ parity >> 1) & 1) << 7;
}

#endif
