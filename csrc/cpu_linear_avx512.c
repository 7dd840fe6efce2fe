/* cpu_linear_avx512.c: linear layers with AVX-512 and its int8 dot product (VNNI). See cpu_linear.h for the method.
 *
 * One row of x is bound by reading the weights, many rows by the two ports that 512-bit operations share: 18 operations
 * for 512 products. Measured in docs/experiments/2026-11-21-linear-cpu.md. */
#include "cpu_linear.h"

#if VB_X86
#include <immintrin.h>

#include "cpu_books.h"

#define FN VB_TARGET_AVX512 VB_INLINE

/* ---- chunks ------------------------------------------------------------------------------------------------------ */

/* 256 weights: codes in order, scale and min of each 16. */
typedef struct chunk {
    __m512i q[4];
    __m512 scale, min;
} chunk;

FN __m512 half16(uint16_t h) { return _mm512_cvtph_ps(_mm256_set1_epi16((short)h)); }

/* Eight halves, `stride` bytes apart, each for two lanes. */
FN __m512 halves8(const char *p, int stride) {
    uint16_t h[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) memcpy(&h[i], p + i * stride, 2);
    __m128i v = _mm_setr_epi16((short)h[0], (short)h[1], (short)h[2], (short)h[3], (short)h[4], (short)h[5],
                               (short)h[6], (short)h[7]);
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_cvtph_ps(v)));
}

/* Eight exponents, `stride` bytes apart, each for two lanes: vb_exponent_float. */
FN __m512 exponents8(const uint8_t *p, int stride) {
    uint64_t e = 0;
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) e |= (uint64_t)p[i * stride] << 8 * i;
    const __m128i twice = _mm_setr_epi8(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const __m512i v = _mm512_cvtepu8_epi32(_mm_shuffle_epi8(_mm_cvtsi64_si128((int64_t)e), twice));
    const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(v, _mm512_set1_epi32(1)), 23);
    const __m512i denormal = _mm512_sllv_epi32(_mm512_set1_epi32(0x200000), v);
    const __mmask16 least = _mm512_cmplt_epu32_mask(v, _mm512_set1_epi32(2));
    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, least, denormal));
}

/* Two times 16 bytes to 64 nibbles: each 16 low ones, then the high ones. */
FN __m512i nibbles16(const void *a, const void *b) {
    __m256i low = _mm256_broadcastsi128_si256(_mm_loadu_si128(a)),
            high = _mm256_broadcastsi128_si256(_mm_loadu_si128(b));
    __m512i v = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    v = _mm512_srlv_epi64(v, _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4));
    return _mm512_and_si512(v, _mm512_set1_epi8(15));
}

/* 32 bytes to 64 nibbles: all low ones, then the high ones. */
FN __m512i nibbles32(const void *p) {
    __m512i v = _mm512_broadcast_i64x4(_mm256_loadu_si256(p));
    v = _mm512_srlv_epi64(v, _mm512_setr_epi64(0, 0, 0, 0, 4, 4, 4, 4));
    return _mm512_and_si512(v, _mm512_set1_epi8(15));
}

/* Bits 2s.. of 32 bytes, then bits 2s + 2..: the codes of the 2-bit types. */
FN __m512i pairs32(const void *p, int s) {
    __m512i v = _mm512_broadcast_i64x4(_mm256_loadu_si256(p));
    int64_t a = 2 * s, b = 2 * s + 2;
    v = _mm512_srlv_epi64(v, _mm512_setr_epi64(a, a, a, a, b, b, b, b));
    return _mm512_and_si512(v, _mm512_set1_epi8(3));
}

/* Which of 32 bytes have bit b, then which have bit b + 1. */
FN __mmask64 bits32(const void *p, int b) {
    __m512i v = _mm512_broadcast_i64x4(_mm256_loadu_si256(p));
    __m512i bit = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set1_epi8((char)(1 << b))),
                                     _mm256_set1_epi8((char)(2 << b)), 1);
    return _mm512_test_epi8_mask(v, bit);
}

FN __m512i add_where(__m512i v, __mmask64 where, char what) {
    return _mm512_mask_add_epi8(v, where, v, _mm512_set1_epi8(what));
}

FN __m512 signed16(__m128i bytes) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)); }

FN __m512 twice8(__m128i bytes) { /* the low eight bytes, each for two lanes */
    const __m128i twice = _mm_setr_epi8(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return signed16(_mm_shuffle_epi8(bytes, twice));
}

/* Scales and mins of Q4_K and Q5_K (vb_k4_scale for all eight at once). */
FN void k4_scales(chunk *c, const uint8_t *scales, uint16_t d, uint16_t dmin) {
    uint32_t u[3];
    memcpy(u, scales, 12);
    uint32_t s0 = u[0] & 0x3f3f3f3f, s1 = (u[2] & 0x0f0f0f0f) | (u[0] >> 2 & 0x30303030);
    uint32_t m0 = u[1] & 0x3f3f3f3f, m1 = (u[2] >> 4 & 0x0f0f0f0f) | (u[1] >> 2 & 0x30303030);
    c->scale = _mm512_mul_ps(half16(d), twice8(_mm_cvtsi64_si128((int64_t)((uint64_t)s1 << 32 | s0))));
    c->min = _mm512_mul_ps(half16(dmin), twice8(_mm_cvtsi64_si128((int64_t)((uint64_t)m1 << 32 | m0))));
}

FN __m512i table_lookup(__m512i nibbles, const int8_t *values, int offset) {
    __m128i t = _mm_add_epi8(_mm_loadu_si128((const __m128i *)values), _mm_set1_epi8((char)offset));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(t), nibbles);
}

FN void offset_by(chunk *c, float offset) { c->min = _mm512_mul_ps(c->scale, _mm512_set1_ps(offset)); }

FN void unpack(vb_dtype type, chunk *c, const void *p) {
    switch (type) {
    case VB_Q4_0: {
        const vb_block_q4_0 *b = p;
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++) c->q[u] = nibbles16(b[2 * u].qs, b[2 * u + 1].qs);
        c->scale = halves8((const char *)&b->d, sizeof *b);
        offset_by(c, 8);
        return;
    }
    case VB_Q4_1: {
        const vb_block_q4_1 *b = p;
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++) c->q[u] = nibbles16(b[2 * u].qs, b[2 * u + 1].qs);
        c->scale = halves8((const char *)&b->d, sizeof *b);
        c->min = _mm512_sub_ps(_mm512_setzero_ps(), halves8((const char *)&b->m, sizeof *b));
        return;
    }
    case VB_Q5_0: {
        const vb_block_q5_0 *b = p;
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++) {
            uint32_t low, high;
            memcpy(&low, b[2 * u].qh, 4);
            memcpy(&high, b[2 * u + 1].qh, 4);
            c->q[u] =
                add_where(nibbles16(b[2 * u].qs, b[2 * u + 1].qs), _cvtu64_mask64((uint64_t)high << 32 | low), 16);
        }
        c->scale = halves8((const char *)&b->d, sizeof *b);
        offset_by(c, 16);
        return;
    }
    case VB_Q5_1: {
        const vb_block_q5_1 *b = p;
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++) {
            uint32_t low, high;
            memcpy(&low, b[2 * u].qh, 4);
            memcpy(&high, b[2 * u + 1].qh, 4);
            c->q[u] =
                add_where(nibbles16(b[2 * u].qs, b[2 * u + 1].qs), _cvtu64_mask64((uint64_t)high << 32 | low), 16);
        }
        c->scale = halves8((const char *)&b->d, sizeof *b);
        c->min = _mm512_sub_ps(_mm512_setzero_ps(), halves8((const char *)&b->m, sizeof *b));
        return;
    }
    case VB_Q8_0: {
        const vb_block_q8_0 *b = p;
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++) {
            __m512i v = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)b[2 * u].qs));
            v = _mm512_inserti64x4(v, _mm256_loadu_si256((const __m256i *)b[2 * u + 1].qs), 1);
            c->q[u] = _mm512_xor_si512(v, _mm512_set1_epi8(-128));
        }
        c->scale = halves8((const char *)&b->d, sizeof *b);
        offset_by(c, 128);
        return;
    }
    case VB_IQ4_NL: {
        const vb_block_iq4_nl *b = p;
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++)
            c->q[u] = table_lookup(nibbles16(b[2 * u].qs, b[2 * u + 1].qs), vb_iq4nl_values, 128);
        c->scale = halves8((const char *)&b->d, sizeof *b);
        offset_by(c, 128);
        return;
    }
    case VB_MXFP4: {
        const vb_block_mxfp4 *b = p;
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++)
            c->q[u] = table_lookup(nibbles16(b[2 * u].qs, b[2 * u + 1].qs), vb_mxfp4_values, 12);
        c->scale = exponents8(&b->e, sizeof *b);
        offset_by(c, 12);
        return;
    }
    case VB_Q2_K: {
        const vb_block_q2_k *b = p;
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++) c->q[u] = pairs32(b->qs + u / 2 * 32, u % 2 * 2);
        __m128i s = _mm_loadu_si128((const __m128i *)b->scales);
        c->scale = _mm512_mul_ps(half16(b->d), signed16(_mm_and_si128(s, _mm_set1_epi8(15))));
        c->min = _mm512_mul_ps(half16(b->dmin), signed16(_mm_and_si128(_mm_srli_epi16(s, 4), _mm_set1_epi8(15))));
        return;
    }
    case VB_Q3_K: {
        const vb_block_q3_k *b = p;
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++)
            c->q[u] = add_where(pairs32(b->qs + u / 2 * 32, u % 2 * 2), bits32(b->hmask, 2 * u), 4);
        uint32_t s[3];
        memcpy(s, b->scales, 12);
        __m128i low = _mm_setr_epi32((int)(s[0] & 0x0f0f0f0f), (int)(s[1] & 0x0f0f0f0f), (int)(s[0] >> 4 & 0x0f0f0f0f),
                                     (int)(s[1] >> 4 & 0x0f0f0f0f));
        __m128i high = _mm_setr_epi32((int)(s[2] << 4 & 0x30303030), (int)(s[2] << 2 & 0x30303030),
                                      (int)(s[2] & 0x30303030), (int)(s[2] >> 2 & 0x30303030));
        c->scale = _mm512_mul_ps(half16(b->d), signed16(_mm_sub_epi8(_mm_or_si128(low, high), _mm_set1_epi8(32))));
        offset_by(c, 4);
        return;
    }
    case VB_Q4_K: {
        const vb_block_q4_k *b = p;
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++) c->q[u] = nibbles32(b->qs + 32 * u);
        k4_scales(c, b->scales, b->d, b->dmin);
        return;
    }
    case VB_Q5_K: {
        const vb_block_q5_k *b = p;
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++) c->q[u] = add_where(nibbles32(b->qs + 32 * u), bits32(b->qh, 2 * u), 16);
        k4_scales(c, b->scales, b->d, b->dmin);
        return;
    }
    case VB_Q6_K: {
        const vb_block_q6_k *b = p;
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m512i low = _mm512_loadu_si512(b->ql + 64 * h);
            __m512i high = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(b->qh + 32 * h)));
            /* the two upper bits of each element, rotated to bits 4 and 5 */
            __m512i a = _mm512_rolv_epi64(high, _mm512_setr_epi64(4, 4, 4, 4, 2, 2, 2, 2));
            __m512i z = _mm512_rolv_epi64(high, _mm512_setr_epi64(0, 0, 0, 0, 62, 62, 62, 62));
            const __m512i upper = _mm512_set1_epi8(0x30), lower = _mm512_set1_epi8(15);
            c->q[2 * h] = _mm512_or_si512(_mm512_and_si512(a, upper), _mm512_and_si512(low, lower));
            c->q[2 * h + 1] =
                _mm512_or_si512(_mm512_and_si512(z, upper), _mm512_and_si512(_mm512_srli_epi64(low, 4), lower));
        }
        c->scale = _mm512_mul_ps(half16(b->d), signed16(_mm_loadu_si128((const __m128i *)b->scales)));
        offset_by(c, 32);
        return;
    }
    case VB_IQ4_XS: {
        const vb_block_iq4_xs *b = p;
        int8_t s[16];
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++)
            c->q[u] = table_lookup(nibbles16(b->qs + 32 * u, b->qs + 32 * u + 16), vb_iq4nl_values, 128);
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) s[i] = (int8_t)vb_iq4_xs_scale(b, i);
        c->scale = _mm512_mul_ps(half16(b->d), twice8(_mm_loadl_epi64((const __m128i *)s)));
        offset_by(c, 128);
        return;
    }
    case VB_TQ1_0: {
        const vb_block_tq1_0 *b = p;
        uint8_t q[256];
        for (int n = 0, power = 1; n < 5; n++, power *= 3) {
            for (int i = 0; i < 32; i++) q[32 * n + i] = (uint8_t)((uint8_t)(b->qs[i] * power) * 3 >> 8);
            for (int i = 0; i < 16; i++) q[160 + 16 * n + i] = (uint8_t)((uint8_t)(b->qs[32 + i] * power) * 3 >> 8);
            for (int i = 0; i < 4 && n < 4; i++) q[240 + 4 * n + i] = (uint8_t)((uint8_t)(b->qh[i] * power) * 3 >> 8);
        }
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++) c->q[u] = _mm512_loadu_si512(q + 64 * u);
        c->scale = c->min = half16(b->d);
        return;
    }
    case VB_TQ2_0: {
        const vb_block_tq2_0 *b = p;
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++) c->q[u] = pairs32(b->qs + u / 2 * 32, u % 2 * 2);
        c->scale = c->min = half16(b->d);
        return;
    }
    default: { /* of cpu_books.h */
        float scales[16];
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++) {
            __m512i v = _mm512_castsi256_si512(vb_book_codes(type, p, 2 * u));
            v = _mm512_inserti64x4(v, vb_book_codes(type, p, 2 * u + 1), 1);
            c->q[u] = _mm512_xor_si512(v, _mm512_set1_epi8(-128));
        }
        vb_book_scales(type, scales, p);
        c->scale = _mm512_loadu_ps(scales);
        offset_by(c, 128);
        return;
    }
    }
}

/* ---- rows: one weight row against one row of x ------------------------------------------------------------------- */

enum { TOGETHER = 4 }; /* weight rows that share what is loaded of x */

/* What one chunk of x contributes to all rows of a group. */
typedef struct x_vectors {
    __m512i codes[4];
    __m512 scales[4], sums;
} x_vectors;

FN x_vectors load_x(const vb_x_chunk *x) {
    const __m512i pairs = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    x_vectors v = {.sums = _mm512_load_ps(x->sums)};
#pragma GCC unroll 4
    for (int u = 0; u < 4; u++) {
        v.codes[u] = _mm512_load_si512(x->codes + 64 * u);
        v.scales[u] = _mm512_permutexvar_ps(pairs, _mm512_castps256_ps512(_mm256_load_ps(x->scales + 8 * u)));
    }
    return v;
}

FN __m512 multiply(const chunk *w, const x_vectors *x, int quarters, __m512 sum) {
    const __m512i quarter = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    sum = _mm512_fnmadd_ps(w->min, x->sums, sum);
#pragma GCC unroll 4
    for (int u = 0; u < quarters; u++) {
        __m512 dot = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(_mm512_setzero_si512(), w->q[u], x->codes[u]));
        __m512 scale = _mm512_permutexvar_ps(_mm512_add_epi32(quarter, _mm512_set1_epi32(4 * u)), w->scale);
        sum = _mm512_fmadd_ps(dot, _mm512_mul_ps(scale, x->scales[u]), sum);
    }
    return sum;
}

/* The part of a chunk that rows may end in; half of one costs half. */
FN void tail_of_type(vb_dtype type, int64_t bytes, int together, int quarters, const vb_linear_job *j, int64_t r,
                     int64_t c, const vb_x_chunk *x, int64_t ahead, __m512 *sum) {
    x_vectors v = load_x(x);
#pragma GCC unroll 4
    for (int t = 0; t < together; t++) {
        char copy[VB_CHUNK_COPY];
        chunk w;
        int live;
        const char *p = vb_chunk_at(j, r + t, c, copy, &live);
        vb_fetch(p + ahead, bytes * quarters / 4);
        unpack(type, &w, p);
        w.scale = _mm512_maskz_mov_ps((__mmask16)((1 << live) - 1), w.scale);
        w.min = _mm512_maskz_mov_ps((__mmask16)((1 << live) - 1), w.min);
        sum[t] = multiply(&w, &v, quarters, sum[t]);
    }
}

/* Where a chunk is one block, no row ends in a part of a chunk. The code for such ends, most of a type's, is left
 * out. */
FN void rows_of_type(vb_dtype type, int64_t bytes, int blocks, int together, const vb_linear_job *j, int64_t r,
                     int64_t i) {
    __m512 sum[TOGETHER];
#pragma GCC unroll 4
    for (int t = 0; t < together; t++) sum[t] = _mm512_setzero_ps();
    const char *row = (const char *)j->w.data + r * j->row_bytes;
    const vb_x_chunk *x = j->q + i;
    int64_t full = j->row_bytes / bytes, ahead = vb_bytes_ahead(j, TOGETHER);
    for (int64_t c = 0; c < full; c++, row += bytes, x += j->n) {
        x_vectors v = load_x(x);
#pragma GCC unroll 4
        for (int t = 0; t < together; t++) {
            chunk w;
            const char *p = row + t * j->row_bytes;
            vb_fetch(p + ahead, bytes);
            unpack(type, &w, p);
            sum[t] = multiply(&w, &v, 4, sum[t]);
        }
    }
    int64_t rest = j->row_bytes - full * bytes;
    if (blocks > 1 && rest > 0) {
        if (rest <= bytes / 2)
            tail_of_type(type, bytes, together, 2, j, r, full, x, ahead, sum);
        else
            tail_of_type(type, bytes, together, 4, j, r, full, x, ahead, sum);
    }
#pragma GCC unroll 4
    for (int t = 0; t < together; t++)
        *vb_y_at(j, i, r + t) = _mm512_reduce_add_ps(sum[t]) + (j->bias ? j->bias[r + t] : 0);
}

/* ---- panels: 16 weight rows, one a lane, against many rows of x -------------------------------------------------- */

enum { LANES = 16, X_TOGETHER = 8 };

typedef struct panel {
    __m512i q[VB_CHUNK / 4]; /* four elements of each row */
    __m512 scale[16], min[16];
} panel;

/* A matrix of 16 x 16 words of 32 bits. */
FN void transpose16(__m512i *r) {
    __m512i t[16];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
        r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
        r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
        r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[4 + i], 0x88);
        t[4 + i] = _mm512_shuffle_i32x4(r[i], r[4 + i], 0xdd);
        t[8 + i] = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0x88);
        t[12 + i] = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0xdd);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0x88);
        r[4 + i] = _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0x88);
        r[8 + i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0xdd);
        r[12 + i] = _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0xdd);
    }
}

/* Unpacks chunk c of n <= 16 rows from r on into a panel; lanes beyond n become zeros. */
FN void make_panel(vb_dtype type, panel *out, const vb_linear_job *j, int64_t r, int n, int64_t c) {
    char copy[VB_CHUNK_COPY];
    __m512i rows[6][LANES];
    for (int t = 0; t < LANES; t++) {
        chunk w;
        int live = 0;
        vb_fetch_panel(j, r + t + LANES, c);
        if (t < n) unpack(type, &w, vb_chunk_at(j, r + t, c, copy, &live));
        if (live < 16) {
            w.scale = live ? _mm512_maskz_mov_ps((__mmask16)((1 << live) - 1), w.scale) : _mm512_setzero_ps();
            w.min = live ? _mm512_maskz_mov_ps((__mmask16)((1 << live) - 1), w.min) : _mm512_setzero_ps();
        }
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++) rows[u][t] = t < n ? w.q[u] : _mm512_setzero_si512();
        rows[4][t] = _mm512_castps_si512(w.scale);
        rows[5][t] = _mm512_castps_si512(w.min);
    }
    for (int u = 0; u < 6; u++) transpose16(rows[u]);
    for (int u = 0; u < 4; u++)
        for (int t = 0; t < LANES; t++) out->q[16 * u + t] = rows[u][t];
    for (int t = 0; t < LANES; t++) {
        out->scale[t] = _mm512_castsi512_ps(rows[4][t]);
        out->min[t] = _mm512_castsi512_ps(rows[5][t]);
    }
}

/* sums[m][16] += the products of a panel with m rows of x. run is how many elements share a scale: 16 or 32. */
FN void panel_times_m(float *sums, const panel *p, const vb_x_chunk *x, int m, int run) {
    __m512 sum[X_TOGETHER];
#pragma GCC unroll 8
    for (int i = 0; i < m; i++) sum[i] = _mm512_load_ps(sums + 16 * i);
    for (int s = 0; s < VB_CHUNK / run; s++) {
        __m512 part[X_TOGETHER];
#pragma GCC unroll 4
        for (int g = 0; g < run / VB_GROUP; g++) {
            int group = s * (run / VB_GROUP) + g;
            __m512i w0 = p->q[2 * group], w1 = p->q[2 * group + 1];
#pragma GCC unroll 8
            for (int i = 0; i < m; i++) {
                int32_t x0, x1;
                memcpy(&x0, x[i].codes + 8 * group, 4);
                memcpy(&x1, x[i].codes + 8 * group + 4, 4);
                __m512i dot = _mm512_dpbusd_epi32(_mm512_setzero_si512(), w0, _mm512_set1_epi32(x0));
                dot = _mm512_dpbusd_epi32(dot, w1, _mm512_set1_epi32(x1));
                __m512 scale = _mm512_set1_ps(x[i].scales[group]), v = _mm512_cvtepi32_ps(dot);
                part[i] = g == 0 ? _mm512_mul_ps(v, scale) : _mm512_fmadd_ps(v, scale, part[i]);
            }
        }
        __m512 scale = p->scale[s * run / 16], min = p->min[s * run / 16];
#pragma GCC unroll 8
        for (int i = 0; i < m; i++) {
            sum[i] = _mm512_fmadd_ps(part[i], scale, sum[i]);
            sum[i] = _mm512_fnmadd_ps(_mm512_set1_ps(run == 32 ? x[i].sums32[s] : x[i].sums[s]), min, sum[i]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < m; i++) _mm512_store_ps(sums + 16 * i, sum[i]);
}

FN void panel_times_run(float *sums, const panel *p, const vb_x_chunk *x, int64_t n, int run) {
    for (; n >= X_TOGETHER; n -= X_TOGETHER, x += X_TOGETHER, sums += 16 * X_TOGETHER)
        panel_times_m(sums, p, x, X_TOGETHER, run);
    for (; n >= 2; n -= 2, x += 2, sums += 32) panel_times_m(sums, p, x, 2, run);
    if (n) panel_times_m(sums, p, x, 1, run);
}

VB_TARGET_AVX512 static void panel_times_16(float *sums, const void *p, const vb_x_chunk *x, int64_t n) {
    panel_times_run(sums, p, x, n, 16);
}

VB_TARGET_AVX512 static void panel_times_32(float *sums, const void *p, const vb_x_chunk *x, int64_t n) {
    panel_times_run(sums, p, x, n, 32);
}

/* ---- the types --------------------------------------------------------------------------------------------------- */

/* Type, block, blocks of a chunk, elements that share a scale; those of K_TYPES have rows in cpu_linear_k.c. */
#define TYPES(X) \
    X(Q4_0, q4_0, 8, 32) X(Q4_1, q4_1, 8, 32) X(Q5_0, q5_0, 8, 32) X(Q5_1, q5_1, 8, 32) X(Q8_0, q8_0, 8, 32) \
    X(Q2_K, q2_k, 1, 16) X(Q3_K, q3_k, 1, 16) X(IQ4_NL, iq4_nl, 8, 32) X(IQ4_XS, iq4_xs, 1, 32) \
    X(TQ1_0, tq1_0, 1, 32) X(TQ2_0, tq2_0, 1, 32) X(MXFP4, mxfp4, 8, 32) X(Q1_0, q1_0, 2, 32) X(Q2_0, q2_0, 4, 32) \
    X(NVFP4, nvfp4, 4, 16) X(IQ1_S, iq1_s, 1, 32) X(IQ1_M, iq1_m, 1, 16) X(IQ2_XXS, iq2_xxs, 1, 32) \
    X(IQ2_XS, iq2_xs, 1, 16) X(IQ2_S, iq2_s, 1, 16) X(IQ3_XXS, iq3_xxs, 1, 32) X(IQ3_S, iq3_s, 1, 32)
#define K_TYPES(X) X(Q4_K, q4_k, 1, 32) X(Q5_K, q5_k, 1, 32) X(Q6_K, q6_k, 1, 16)

#define X(TYPE, name, blocks, run) \
    VB_TARGET_AVX512 static void rows_##TYPE(const vb_linear_job *j, int64_t begin, int64_t end) { \
        const int64_t bytes = blocks * (int64_t)sizeof(vb_block_##name); \
        int64_t r = begin; \
        for (; r + TOGETHER <= end; r += TOGETHER) \
            for (int64_t i = 0; i < j->n; i++) rows_of_type(VB_##TYPE, bytes, blocks, TOGETHER, j, r, i); \
        for (; r < end; r++) \
            for (int64_t i = 0; i < j->n; i++) rows_of_type(VB_##TYPE, bytes, blocks, 1, j, r, i); \
    }
TYPES(X)
#undef X

#define X(TYPE, ...) \
    VB_TARGET_AVX512 static void panel_##TYPE(void *out, const vb_linear_job *j, int64_t r, int n, int64_t c) { \
        make_panel(VB_##TYPE, out, j, r, n, c); \
    }
TYPES(X) K_TYPES(X)
#undef X

vb_linear_code vb_cpu_linear_code_avx512(vb_dtype type) {
    _Static_assert(sizeof(panel) + VB_PANEL_ROWS_OF_X * LANES * 4 <= VB_PANEL_SCRATCH, "scratch");
    const vb_linear_rows k = vb_cpu_linear_rows_k(type);
    switch ((int)type) {
#define X(TYPE, name, blocks, run) \
    case VB_##TYPE: return (vb_linear_code){LANES, sizeof(panel), rows_##TYPE, NULL, panel_##TYPE, panel_times_##run};
        TYPES(X)
#undef X
#define X(TYPE, name, blocks, run) \
    case VB_##TYPE: return (vb_linear_code){LANES, sizeof(panel), k.rows, k.order, panel_##TYPE, panel_times_##run};
        K_TYPES(X)
#undef X
    }
    return (vb_linear_code){0};
}
#endif
