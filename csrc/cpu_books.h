/* cpu_books.h: codes of the formats whose elements are a scale times a small signed number: of a codebook (IQ1 to IQ3),
 * two bits (Q2_0), one bit (Q1_0) or a table under scales of 16 elements (NVFP4). cpu_linear_*.c multiply the codes, as
 * int8, with rounded activations. quant.h has the layouts. */
#ifndef VB_CPU_BOOKS_H
#define VB_CPU_BOOKS_H

#include "cpu.h"
#include "quant.h"

/* cpu_quant.c has them. */
extern const uint16_t vb_iq2_xxs_book[256], vb_iq2_xs_book[512], vb_iq2_s_book[1024], vb_iq3_xxs_book[256],
    vb_iq3_s_book[512], vb_iq1_book[2048];

VB_INLINE uint32_t vb_word_at(const void *p) {
    uint32_t word;
    memcpy(&word, p, 4);
    return word;
}

/* d of IQ1_M, whose nibbles lie in four numbers. */
VB_INLINE float vb_iq1_m_d(const vb_block_iq1_m *b) {
    uint16_t s[4];
    memcpy(s, b->scales, 8);
    return vb_half_float((vb_half)(s[0] >> 12 | s[1] >> 12 << 4 | s[2] >> 12 << 8 | s[3] >> 12 << 12));
}

/* Scales of each 16 elements of 256, for the codes below. IQ1's codes are eighths. */
VB_INLINE void vb_book_scales(vb_dtype type, float *scale, const void *p) {
    switch ((int)type) {
    case VB_Q1_0:
        for (int i = 0; i < 16; i++) scale[i] = vb_half_float(((const vb_block_q1_0 *)p)[i / 8].d);
        return;
    case VB_Q2_0:
        for (int i = 0; i < 16; i++) scale[i] = vb_half_float(((const vb_block_q2_0 *)p)[i / 4].d);
        return;
    case VB_NVFP4:
        for (int i = 0; i < 16; i++) scale[i] = vb_ue4m3(((const vb_block_nvfp4 *)p)[i / 4].d[i % 4]);
        return;
    case VB_IQ2_XXS: {
        const vb_block_iq2_xxs *b = p;
        float d = 0.25f * vb_half_float(b->d);
        for (int i = 0; i < 16; i++) scale[i] = d * (0.5f + (float)(vb_word_at(b->qs + 4 * (i / 2) + 2) >> 28));
        return;
    }
    case VB_IQ2_XS:
    case VB_IQ2_S: {
        const uint8_t *s =
            type == VB_IQ2_XS ? ((const vb_block_iq2_xs *)p)->scales : ((const vb_block_iq2_s *)p)->scales;
        float d = 0.25f * vb_half_float(((const vb_block_iq2_xs *)p)->d); /* the two begin alike */
        for (int i = 0; i < 16; i++) scale[i] = d * (0.5f + (float)(s[i / 2] >> (i % 2 * 4) & 15));
        return;
    }
    case VB_IQ3_XXS: {
        const vb_block_iq3_xxs *b = p;
        float d = 0.5f * vb_half_float(b->d);
        for (int i = 0; i < 16; i++) scale[i] = d * (0.5f + (float)(vb_word_at(b->rest + 4 * (i / 2)) >> 28));
        return;
    }
    case VB_IQ3_S: {
        const vb_block_iq3_s *b = p;
        float d = vb_half_float(b->d);
        for (int i = 0; i < 16; i++) scale[i] = d * (float)(2 * (b->scales[i / 4] >> (i / 2 % 2 * 4) & 15) + 1);
        return;
    }
    case VB_IQ1_S: {
        const vb_block_iq1_s *b = p;
        float d = 0.125f * vb_half_float(b->d);
        for (int i = 0; i < 16; i++) scale[i] = d * (float)(2 * (b->qh[i / 2] >> 12 & 7) + 1);
        return;
    }
    case VB_IQ1_M: {
        uint16_t s[4];
        memcpy(s, ((const vb_block_iq1_m *)p)->scales, 8);
        float d = 0.125f * vb_iq1_m_d(p);
        for (int i = 0; i < 16; i++) scale[i] = d * (float)(2 * (s[i / 4] >> (i % 4 * 3) & 7) + 1);
        return;
    }
    default: __builtin_unreachable();
    }
}

#if VB_X86
#include <immintrin.h>

/* values[two bits of `pairs`], in the order of the bits. Byte i holds its two bits in one of four places, of which two
 * fall on each other when the nibbles meet: so the table has each value at both. */
VB_TARGET_AVX2 VB_INLINE __m256i vb_book_pairs(uint64_t pairs, int8_t v0, int8_t v1, int8_t v2, int8_t v3) {
    const __m256i byte_of = _mm256_setr_epi64x(0x0101010100000000, 0x0303030302020202, 0x0505050504040404,
                                               0x0707070706060606);
    const __m256i table = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(v0, v1, v2, v3, v1, 0, 0, 0, v2, 0, 0, 0, v3, 0, 0, 0));
    __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi64x((long long)pairs), byte_of);
    v = _mm256_and_si256(v, _mm256_set1_epi32((int)0xc0300c03));
    v = _mm256_and_si256(_mm256_or_si256(v, _mm256_srli_epi16(v, 4)), _mm256_set1_epi8(15));
    return _mm256_shuffle_epi8(table, v);
}

/* All bits of byte i where bit i of the number is set. */
VB_TARGET_AVX2 VB_INLINE __m256i vb_book_bits(uint32_t bits) {
    const __m256i byte_of = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), byte_of);
    return _mm256_cmpeq_epi8(_mm256_and_si256(v, bit), bit);
}

VB_TARGET_AVX2 VB_INLINE __m256i vb_book_negate(__m256i v, uint32_t where) {
    __m256i mask = vb_book_bits(where);
    return _mm256_sub_epi8(_mm256_xor_si256(v, mask), mask);
}

/* values[three bits], of four numbers of eight indices. */
VB_TARGET_AVX2 VB_INLINE __m256i vb_book_threes(const uint32_t *entry, __m128i values) {
    const __m256i shift = _mm256_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21), seven = _mm256_set1_epi32(7);
    __m256i v[4];
    for (int g = 0; g < 4; g++)
        v[g] = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32((int)entry[g]), shift), seven);
    __m256i bytes = _mm256_packus_epi16(_mm256_packus_epi32(v[0], v[1]), _mm256_packus_epi32(v[2], v[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(values), bytes);
}

VB_INLINE uint32_t vb_even_signs4(uint32_t sevens) {
    return vb_even_signs(sevens & 127) | vb_even_signs(sevens >> 7 & 127) << 8 |
           vb_even_signs(sevens >> 14 & 127) << 16 | vb_even_signs(sevens >> 21 & 127) << 24;
}

/* The codes of elements 32u..32u + 31 of 256, signed, of at most 62. */
VB_TARGET_AVX2 VB_INLINE __m256i vb_book_codes(vb_dtype type, const void *p, int u) {
    uint64_t pairs = 0;
    uint32_t entry[4], signs = 0;
    switch ((int)type) {
    case VB_Q1_0: /* 1 where a bit is set, else -1 */
        return _mm256_or_si256(vb_book_bits(~vb_word_at(((const vb_block_q1_0 *)p)[u / 4].qs + u % 4 * 4)),
                               _mm256_set1_epi8(1));
    case VB_Q2_0:
        memcpy(&pairs, ((const vb_block_q2_0 *)p)[u / 2].qs + u % 2 * 8, 8);
        return vb_book_pairs(pairs, -1, 0, 1, 2);
    case VB_NVFP4: {
        __m128i v = _mm_loadu_si128((const __m128i *)(((const vb_block_nvfp4 *)p)[u / 2].qs + u % 2 * 16));
        const __m128i fifteen = _mm_set1_epi8(15);
        __m128i low = _mm_and_si128(v, fifteen), high = _mm_and_si128(_mm_srli_epi16(v, 4), fifteen);
        __m256i nibbles = _mm256_set_m128i(_mm_unpackhi_epi64(low, high), _mm_unpacklo_epi64(low, high));
        return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)vb_mxfp4_values)),
                                   nibbles);
    }
    case VB_IQ2_XXS: {
        const uint16_t *q = ((const vb_block_iq2_xxs *)p)->qs + 4 * u;
        uint32_t index = vb_word_at(q);
        for (int g = 0; g < 4; g++) pairs |= (uint64_t)vb_iq2_xxs_book[index >> (8 * g) & 255] << (16 * g);
        return vb_book_negate(vb_book_pairs(pairs, 8, 25, 43, 0), vb_even_signs4(vb_word_at(q + 2)));
    }
    case VB_IQ2_XS: {
        const uint16_t *q = ((const vb_block_iq2_xs *)p)->qs + 4 * u;
        for (int g = 0; g < 4; g++) {
            pairs |= (uint64_t)vb_iq2_xs_book[q[g] & 511] << (16 * g);
            signs |= vb_even_signs(q[g] >> 9) << (8 * g);
        }
        return vb_book_negate(vb_book_pairs(pairs, 8, 25, 43, 0), signs);
    }
    case VB_IQ2_S: {
        const vb_block_iq2_s *b = p;
        for (int g = 0; g < 4; g++)
            pairs |= (uint64_t)vb_iq2_s_book[b->qs[4 * u + g] | (b->qh[u] >> (2 * g) & 3) << 8] << (16 * g);
        return vb_book_negate(vb_book_pairs(pairs, 8, 25, 43, 0), vb_word_at(b->signs + 4 * u));
    }
    case VB_IQ3_XXS: {
        const vb_block_iq3_xxs *b = p;
        const uint8_t *q = b->qs + 8 * u;
        for (int g = 0; g < 4; g++)
            entry[g] = vb_iq3_xxs_book[q[2 * g]] | (uint32_t)vb_iq3_xxs_book[q[2 * g + 1]] << 12;
        const __m128i values = _mm_setr_epi8(4, 12, 20, 28, 36, 44, 52, 62, 0, 0, 0, 0, 0, 0, 0, 0);
        return vb_book_negate(vb_book_threes(entry, values), vb_even_signs4(vb_word_at(b->rest + 4 * u)));
    }
    case VB_IQ3_S: {
        const vb_block_iq3_s *b = p;
        const uint8_t *q = b->qs + 8 * u;
        for (int g = 0; g < 4; g++) {
            int high = b->qh[u] >> (2 * g);
            entry[g] = vb_iq3_s_book[q[2 * g] | (high & 1) << 8] |
                       (uint32_t)vb_iq3_s_book[q[2 * g + 1] | (high >> 1 & 1) << 8] << 12;
        }
        const __m128i values = _mm_setr_epi8(1, 3, 5, 7, 9, 11, 13, 15, 0, 0, 0, 0, 0, 0, 0, 0);
        return vb_book_negate(vb_book_threes(entry, values), vb_word_at(b->signs + 4 * u));
    }
    case VB_IQ1_S: {
        const vb_block_iq1_s *b = p;
        int rest = b->qh[u];
        for (int g = 0; g < 4; g++)
            pairs |= (uint64_t)vb_iq1_book[b->qs[4 * u + g] | (rest >> (3 * g) & 7) << 8] << (16 * g);
        return _mm256_add_epi8(vb_book_pairs(pairs, -8, 0, 8, 0), _mm256_set1_epi8(rest >> 15 ? -1 : 1));
    }
    case VB_IQ1_M: {
        const vb_block_iq1_m *b = p;
        for (int g = 0; g < 4; g++) {
            int nibble = b->qh[2 * u + g / 2] >> (g % 2 * 4);
            pairs |= (uint64_t)vb_iq1_book[b->qs[4 * u + g] | (nibble & 7) << 8] << (16 * g);
            if (nibble & 8) signs |= 0xffu << (8 * g);
        }
        return _mm256_add_epi8(vb_book_pairs(pairs, -8, 0, 8, 0), vb_book_negate(_mm256_set1_epi8(1), signs));
    }
    default: __builtin_unreachable();
    }
}
#endif
#endif
