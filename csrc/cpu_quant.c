/* cpu_quant.c: quantized blocks to float32, as quant.h defines each type. Every product and sum is rounded by itself,
 * so that the values are other engines' values bit for bit. */
#include "codebooks.h"
#include "cpu_books.h"

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF /* gcc does not contract in -std=c11 */
#endif

VB_INLINE void block_q4_0(float *y, const vb_block_q4_0 *b) {
    float d = vb_half_float(b->d);
    for (int i = 0; i < 16; i++) {
        y[i] = (float)((b->qs[i] & 15) - 8) * d;
        y[i + 16] = (float)((b->qs[i] >> 4) - 8) * d;
    }
}

VB_INLINE void block_q4_1(float *y, const vb_block_q4_1 *b) {
    float d = vb_half_float(b->d), m = vb_half_float(b->m);
    for (int i = 0; i < 16; i++) {
        y[i] = (float)(b->qs[i] & 15) * d + m;
        y[i + 16] = (float)(b->qs[i] >> 4) * d + m;
    }
}

/* The codes of Q5_0 and Q5_1. */
VB_INLINE void codes_5(int32_t *q, const uint8_t *qs, const uint8_t *qh) {
    uint32_t high;
    memcpy(&high, qh, 4);
    for (int i = 0; i < 16; i++) {
        q[i] = (int32_t)((qs[i] & 15) | (high >> i & 1) << 4);
        q[i + 16] = (int32_t)((qs[i] >> 4) | (high >> (i + 16) & 1) << 4);
    }
}

VB_INLINE void block_q5_0(float *y, const vb_block_q5_0 *b) {
    int32_t q[32];
    float d = vb_half_float(b->d);
    codes_5(q, b->qs, b->qh);
    for (int i = 0; i < 32; i++) y[i] = (float)(q[i] - 16) * d;
}

VB_INLINE void block_q5_1(float *y, const vb_block_q5_1 *b) {
    int32_t q[32];
    float d = vb_half_float(b->d), m = vb_half_float(b->m);
    codes_5(q, b->qs, b->qh);
    for (int i = 0; i < 32; i++) y[i] = (float)q[i] * d + m;
}

VB_INLINE void block_q8_0(float *y, const vb_block_q8_0 *b) {
    float d = vb_half_float(b->d);
    for (int i = 0; i < 32; i++) y[i] = (float)b->qs[i] * d;
}

VB_INLINE void block_nibble_table(float *y, const uint8_t *qs, const int8_t *values, float d) {
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)values[qs[i] & 15];
        y[i + 16] = d * (float)values[qs[i] >> 4];
    }
}

VB_INLINE void block_iq4_nl(float *y, const vb_block_iq4_nl *b) {
    block_nibble_table(y, b->qs, vb_iq4nl_values, vb_half_float(b->d));
}

VB_INLINE void block_mxfp4(float *y, const vb_block_mxfp4 *b) {
    block_nibble_table(y, b->qs, vb_mxfp4_values, vb_exponent_float(b->e));
}

VB_INLINE void block_q2_k(float *y, const vb_block_q2_k *b) {
    float d = vb_half_float(b->d), dmin = vb_half_float(b->dmin);
    for (int s = 0; s < 16; s++) {
        float scale = d * (float)(b->scales[s] & 15), min = dmin * (float)(b->scales[s] >> 4);
        const uint8_t *qs = b->qs + s / 8 * 32 + s % 2 * 16;
        int shift = s % 8 / 2 * 2;
        for (int i = 0; i < 16; i++) y[16 * s + i] = scale * (float)(qs[i] >> shift & 3) - min;
    }
}

VB_INLINE void block_q3_k(float *y, const vb_block_q3_k *b) {
    float d = vb_half_float(b->d);
    for (int s = 0; s < 16; s++) {
        float scale = d * (float)vb_q3_k_scale(b->scales, s);
        const uint8_t *qs = b->qs + s / 8 * 32 + s % 2 * 16, *hmask = b->hmask + s % 2 * 16;
        int shift = s % 8 / 2 * 2, bit = s / 2;
        for (int i = 0; i < 16; i++)
            y[16 * s + i] = scale * (float)(((qs[i] >> shift & 3) | (hmask[i] >> bit & 1) << 2) - 4);
    }
}

VB_INLINE void block_q4_k(float *y, const vb_block_q4_k *b) {
    float d = vb_half_float(b->d), dmin = vb_half_float(b->dmin);
    for (int s = 0; s < 8; s++) {
        int sc, m;
        vb_k4_scale(b->scales, s, &sc, &m);
        float scale = d * (float)sc, min = dmin * (float)m;
        const uint8_t *qs = b->qs + s / 2 * 32;
        int shift = s % 2 * 4;
        for (int i = 0; i < 32; i++) y[32 * s + i] = scale * (float)(qs[i] >> shift & 15) - min;
    }
}

VB_INLINE void block_q5_k(float *y, const vb_block_q5_k *b) {
    float d = vb_half_float(b->d), dmin = vb_half_float(b->dmin);
    for (int s = 0; s < 8; s++) {
        int sc, m;
        vb_k4_scale(b->scales, s, &sc, &m);
        float scale = d * (float)sc, min = dmin * (float)m;
        const uint8_t *qs = b->qs + s / 2 * 32;
        int shift = s % 2 * 4;
        for (int i = 0; i < 32; i++)
            y[32 * s + i] = scale * (float)((qs[i] >> shift & 15) | (b->qh[i] >> s & 1) << 4) - min;
    }
}

VB_INLINE void block_q6_k(float *y, const vb_block_q6_k *b) {
    float d = vb_half_float(b->d);
    for (int s = 0; s < 16; s++) {
        float scale = d * (float)b->scales[s];
        int j = s % 8 / 2; /* of the runs of 32 in a half */
        const uint8_t *ql = b->ql + s / 8 * 64 + j % 2 * 32 + s % 2 * 16, *qh = b->qh + s / 8 * 32 + s % 2 * 16;
        int low = j / 2 * 4, high = j * 2;
        for (int i = 0; i < 16; i++)
            y[16 * s + i] = scale * (float)(((ql[i] >> low & 15) | (qh[i] >> high & 3) << 4) - 32);
    }
}

VB_INLINE void block_iq4_xs(float *y, const vb_block_iq4_xs *b) {
    float d = vb_half_float(b->d);
    for (int s = 0; s < 8; s++)
        block_nibble_table(y + 32 * s, b->qs + 16 * s, vb_iq4nl_values, d * (float)vb_iq4_xs_scale(b, s));
}

VB_INLINE void block_tq1_0(float *y, const vb_block_tq1_0 *b) {
    float d = vb_half_float(b->d);
    for (int n = 0, power = 1; n < 5; n++, power *= 3) {
        for (int i = 0; i < 32; i++) y[32 * n + i] = (float)(((uint8_t)(b->qs[i] * power) * 3 >> 8) - 1) * d;
        for (int i = 0; i < 16; i++) y[160 + 16 * n + i] = (float)(((uint8_t)(b->qs[32 + i] * power) * 3 >> 8) - 1) * d;
        for (int i = 0; i < 4 && n < 4; i++)
            y[240 + 4 * n + i] = (float)(((uint8_t)(b->qh[i] * power) * 3 >> 8) - 1) * d;
    }
}

VB_INLINE void block_tq2_0(float *y, const vb_block_tq2_0 *b) {
    float d = vb_half_float(b->d);
    for (int s = 0; s < 8; s++)
        for (int i = 0; i < 32; i++) y[32 * s + i] = (float)((b->qs[s / 4 * 32 + i] >> (s % 4 * 2) & 3) - 1) * d;
}

VB_INLINE void block_q1_0(float *y, const vb_block_q1_0 *b) {
    float d = vb_half_float(b->d);
    for (int i = 0; i < 128; i++) y[i] = b->qs[i / 8] >> (i % 8) & 1 ? d : -d;
}

VB_INLINE void block_q2_0(float *y, const vb_block_q2_0 *b) {
    float d = vb_half_float(b->d);
    for (int i = 0; i < 64; i++) y[i] = (float)((b->qs[i / 4] >> (i % 4 * 2) & 3) - 1) * d;
}

VB_INLINE void block_nvfp4(float *y, const vb_block_nvfp4 *b) {
    for (int s = 0; s < 4; s++) {
        float d = vb_ue4m3(b->d[s]);
        for (int i = 0; i < 8; i++) {
            y[16 * s + i] = d * (float)vb_mxfp4_values[b->qs[8 * s + i] & 15];
            y[16 * s + 8 + i] = d * (float)vb_mxfp4_values[b->qs[8 * s + i] >> 4];
        }
    }
}

/* ---- codebooks --------------------------------------------------------------------------------------------------- */

const uint16_t vb_iq2_xxs_book[256] = {VB_CODEBOOK_IQ2_XXS}, vb_iq2_xs_book[512] = {VB_CODEBOOK_IQ2_XS},
               vb_iq2_s_book[1024] = {VB_CODEBOOK_IQ2_S}, vb_iq3_xxs_book[256] = {VB_CODEBOOK_IQ3_XXS},
               vb_iq3_s_book[512] = {VB_CODEBOOK_IQ3_S}, vb_iq1_book[2048] = {VB_CODEBOOK_IQ1};

/* There is no branch, as the signs of weights mispredict every other time. There is no table, so that compilers make
 * vectors of the loops below. */
VB_INLINE float signed_by(float v, uint32_t signs, int i) {
    uint32_t bits;
    memcpy(&bits, &v, 4);
    bits ^= (signs >> i & 1) << 31;
    memcpy(&v, &bits, 4);
    return v;
}

VB_INLINE void group_iq2(float *y, uint32_t entry, uint32_t signs, float d) {
    for (int i = 0; i < 8; i++) {
        int m = (int)(entry >> (2 * i) & 3);
        y[i] = signed_by(d * (float)(8 + 17 * m + (m >> 1)), signs, i); /* 8, 25 or 43 */
    }
}

VB_INLINE void block_iq2_xxs(float *y, const vb_block_iq2_xxs *b) {
    float d = vb_half_float(b->d);
    for (int s = 0; s < 8; s++) {
        uint32_t rest;
        memcpy(&rest, b->qs + 4 * s + 2, 4);
        float scale = d * (0.5f + (float)(rest >> 28)) * 0.25f;
        for (int g = 0; g < 4; g++)
            group_iq2(y + 32 * s + 8 * g, vb_iq2_xxs_book[((const uint8_t *)(b->qs + 4 * s))[g]],
                      vb_even_signs(rest >> (7 * g) & 127), scale);
    }
}

VB_INLINE void block_iq2_xs(float *y, const vb_block_iq2_xs *b) {
    float d = vb_half_float(b->d);
    for (int g = 0; g < 32; g++) {
        float scale = d * (0.5f + (float)(b->scales[g / 4] >> (g / 2 % 2 * 4) & 15)) * 0.25f;
        group_iq2(y + 8 * g, vb_iq2_xs_book[b->qs[g] & 511], vb_even_signs(b->qs[g] >> 9), scale);
    }
}

VB_INLINE void block_iq2_s(float *y, const vb_block_iq2_s *b) {
    float d = vb_half_float(b->d);
    for (int g = 0; g < 32; g++) {
        float scale = d * (0.5f + (float)(b->scales[g / 4] >> (g / 2 % 2 * 4) & 15)) * 0.25f;
        group_iq2(y + 8 * g, vb_iq2_s_book[b->qs[g] | (b->qh[g / 4] >> (g % 4 * 2) & 3) << 8], b->signs[g], scale);
    }
}

VB_INLINE void block_iq3_xxs(float *y, const vb_block_iq3_xxs *b) {
    float d = vb_half_float(b->d);
    for (int s = 0; s < 8; s++) {
        uint32_t rest;
        memcpy(&rest, b->rest + 4 * s, 4);
        float scale = d * (0.5f + (float)(rest >> 28)) * 0.5f;
        for (int g = 0; g < 4; g++) {
            const uint8_t *q = b->qs + 8 * s + 2 * g;
            uint32_t entry = vb_iq3_xxs_book[q[0]] | (uint32_t)vb_iq3_xxs_book[q[1]] << 12;
            uint32_t signs = vb_even_signs(rest >> (7 * g) & 127);
            for (int i = 0; i < 8; i++) {
                int m = (int)(entry >> (3 * i) & 7);
                y[32 * s + 8 * g + i] = /* 4, 12, 20, 28, 36, 44, 52, 62 */
                    signed_by(scale * (float)(4 + 8 * m + ((m + 1) >> 3 << 1)), signs, i);
            }
        }
    }
}

VB_INLINE void block_iq3_s(float *y, const vb_block_iq3_s *b) {
    float d = vb_half_float(b->d);
    for (int g = 0; g < 32; g++) {
        float scale = d * (float)(2 * (b->scales[g / 8] >> (g / 4 % 2 * 4) & 15) + 1);
        int high = b->qh[g / 4] >> (g % 4 * 2);
        uint32_t entry = vb_iq3_s_book[b->qs[2 * g] | (high & 1) << 8] |
                         (uint32_t)vb_iq3_s_book[b->qs[2 * g + 1] | (high >> 1 & 1) << 8] << 12;
        for (int i = 0; i < 8; i++)
            y[8 * g + i] = signed_by(scale * (float)(2 * (entry >> (3 * i) & 7) + 1), b->signs[g], i);
    }
}

VB_INLINE void group_iq1(float *y, int entry, float scale, bool minus) {
    float delta = minus ? -0.125f : 0.125f;
    for (int i = 0; i < 8; i++) y[i] = scale * ((float)((entry >> (2 * i) & 3) - 1) + delta);
}

VB_INLINE void block_iq1_s(float *y, const vb_block_iq1_s *b) {
    float d = vb_half_float(b->d);
    for (int g = 0; g < 32; g++) {
        int rest = b->qh[g / 4];
        group_iq1(y + 8 * g, vb_iq1_book[b->qs[g] | (rest >> (g % 4 * 3) & 7) << 8],
                  d * (float)(2 * (rest >> 12 & 7) + 1), rest >> 15);
    }
}

VB_INLINE void block_iq1_m(float *y, const vb_block_iq1_m *b) {
    uint16_t scales[4];
    memcpy(scales, b->scales, 8);
    float d = vb_iq1_m_d(b);
    for (int g = 0; g < 32; g++) {
        int nibble = b->qh[g / 2] >> (g % 2 * 4), scale = scales[g / 8] >> (g / 2 % 4 * 3) & 7;
        group_iq1(y + 8 * g, vb_iq1_book[b->qs[g] | (nibble & 7) << 8], d * (float)(2 * scale + 1), nibble & 8);
    }
}

#define BLOCKS(TYPE, name, size) \
    case TYPE: \
        for (int64_t i = 0; i < n / size; i++) block_##name(y + i * size, (const vb_block_##name *)in + i); \
        break

VB_INLINE void blocks_body(float *y, const void *in, vb_dtype type, int64_t n) {
    switch (type) {
        BLOCKS(VB_Q4_0, q4_0, 32);
        BLOCKS(VB_Q4_1, q4_1, 32);
        BLOCKS(VB_Q5_0, q5_0, 32);
        BLOCKS(VB_Q5_1, q5_1, 32);
        BLOCKS(VB_Q8_0, q8_0, 32);
        BLOCKS(VB_IQ4_NL, iq4_nl, 32);
        BLOCKS(VB_MXFP4, mxfp4, 32);
        BLOCKS(VB_Q2_K, q2_k, 256);
        BLOCKS(VB_Q3_K, q3_k, 256);
        BLOCKS(VB_Q4_K, q4_k, 256);
        BLOCKS(VB_Q5_K, q5_k, 256);
        BLOCKS(VB_Q6_K, q6_k, 256);
        BLOCKS(VB_IQ4_XS, iq4_xs, 256);
        BLOCKS(VB_TQ1_0, tq1_0, 256);
        BLOCKS(VB_TQ2_0, tq2_0, 256);
        BLOCKS(VB_IQ2_XXS, iq2_xxs, 256);
        BLOCKS(VB_IQ2_XS, iq2_xs, 256);
        BLOCKS(VB_IQ2_S, iq2_s, 256);
        BLOCKS(VB_IQ3_XXS, iq3_xxs, 256);
        BLOCKS(VB_IQ3_S, iq3_s, 256);
        BLOCKS(VB_IQ1_S, iq1_s, 256);
        BLOCKS(VB_IQ1_M, iq1_m, 256);
        BLOCKS(VB_Q1_0, q1_0, 128);
        BLOCKS(VB_Q2_0, q2_0, 64);
        BLOCKS(VB_NVFP4, nvfp4, 64);
    case VB_I8:
        for (int64_t i = 0; i < n; i++) y[i] = (float)((const int8_t *)in)[i];
        break;
    case VB_I32:
        for (int64_t i = 0; i < n; i++) y[i] = (float)((const int32_t *)in)[i];
        break;
    case VB_U8:
    case VB_BOOL: break; /* vb_map's alone */
    case VB_F32:
    case VB_F16:
    case VB_BF16: break; /* vb_cpu_load */
    }
}

VB_TWINS(blocks, (float *y, const void *in, vb_dtype type, int64_t n), (y, in, type, n));

void vb_cpu_dequantize(float *out, const void *in, vb_dtype type, int64_t n, vb_simd simd) {
    if (type == VB_F32 || type == VB_F16 || type == VB_BF16)
        vb_cpu_load(out, in, type, n, simd);
    else
        blocks[simd](out, in, type, n);
}
