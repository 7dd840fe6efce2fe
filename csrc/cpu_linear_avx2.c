/* cpu_linear_avx2.c: linear layers with AVX2, and the rounding of activations for AVX-512 too. See cpu_linear.h for the
 * method. The int8 product (vpmaddubsw) adds two products of unsigned by signed bytes in 16 bits, which overflow for
 * codes above 128: the types with 8-bit values keep them signed, and their signs go to the activations. */
#include "cpu_linear.h"

#if VB_X86
#include <immintrin.h>

#include "cpu_books.h"

#define FN VB_TARGET_AVX2 VB_INLINE

/* ---- rounding activations ---------------------------------------------------------------------------------------- */

/* Groups that hold infinity or NaN get the scale NaN, those below 1e-36 the scale 0 (its inverse would overflow). */
VB_TARGET_AVX2 static void round_chunk(vb_x_chunk *out, const float *x, int64_t n) {
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    const __m256i ones8 = _mm256_set1_epi8(1), ones16 = _mm256_set1_epi16(1);
    memset(out, 0, sizeof *out);
    for (int64_t i = 0; i < n; i += 32) {
        __m256 v[4];
        __m256i top[4];
        for (int g = 0; g < 4; g++) {
            v[g] = _mm256_loadu_ps(x + i + 8 * g);
            top[g] = _mm256_castps_si256(_mm256_and_ps(v[g], magnitude)); /* orders as the numbers do, NaN on top */
        }
        /* the greatest of each group, in the order 0 0 2 2 1 1 3 3 */
        __m256i a = _mm256_max_epi32(_mm256_permute2x128_si256(top[0], top[1], 0x20),
                                     _mm256_permute2x128_si256(top[0], top[1], 0x31));
        __m256i b = _mm256_max_epi32(_mm256_permute2x128_si256(top[2], top[3], 0x20),
                                     _mm256_permute2x128_si256(top[2], top[3], 0x31));
        a = _mm256_max_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
        a = _mm256_max_epi32(a, _mm256_shuffle_epi32(a, 0xb1));
        __m256 max = _mm256_castsi256_ps(a);
        __m256 bad = _mm256_castsi256_ps(_mm256_cmpgt_epi32(a, _mm256_set1_epi32(0x7f7fffff)));
        __m256 fine = _mm256_cmp_ps(max, _mm256_set1_ps(1e-36f), _CMP_GE_OQ);
        /* all bits: NaN */
        __m256 scale = _mm256_or_ps(_mm256_and_ps(_mm256_mul_ps(max, _mm256_set1_ps(1 / 127.0f)), fine), bad);
        __m256 inverse = _mm256_andnot_ps(bad, _mm256_and_ps(_mm256_div_ps(_mm256_set1_ps(127.0f), max), fine));
        __m256i q[4];
        for (int g = 0; g < 4; g++) {
            __m256 factor = _mm256_permutevar8x32_ps(inverse, _mm256_set1_epi32((g & 1) * 4 + (g & 2)));
            q[g] = _mm256_cvtps_epi32(_mm256_mul_ps(v[g], factor));
        }
        __m256i codes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
        codes = _mm256_permutevar8x32_epi32(codes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        _mm256_store_si256((__m256i *)(out->codes + i), codes);
        scale = _mm256_permutevar8x32_ps(scale, _mm256_setr_epi32(0, 0, 4, 4, 2, 2, 6, 6)); /* one a four codes */
        __m128 scales =
            _mm256_castps256_ps128(_mm256_permutevar8x32_ps(scale, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6)));
        _mm_store_ps(out->scales + i / 8, scales);
        __m256 fours = _mm256_cvtepi32_ps(_mm256_madd_epi16(_mm256_maddubs_epi16(ones8, codes), ones16));
        fours = _mm256_mul_ps(fours, scale);
        fours = _mm256_add_ps(fours, _mm256_permute_ps(fours, 0xb1));
        fours = _mm256_add_ps(fours, _mm256_permute_ps(fours, 0x4e));
        float low = _mm256_cvtss_f32(fours), high = _mm_cvtss_f32(_mm256_extractf128_ps(fours, 1));
        out->sums[i / 16] = low;
        out->sums[i / 16 + 1] = high;
        out->sums32[i / 32] = low + high;
    }
}

static void reorder(vb_x_chunk *x, const uint8_t *order) {
    const vb_x_chunk plain = *x;
    for (int i = 0; i < VB_CHUNK / VB_GROUP; i++) {
        int8_t *first = x->codes + i / 16 * 128 + i % 16 * 4;
        memcpy(first, plain.codes + VB_GROUP * order[i], 4);
        memcpy(first + 64, plain.codes + VB_GROUP * order[i] + 4, 4);
        x->scales[i] = plain.scales[order[i]];
    }
}

void vb_cpu_linear_round(const vb_linear_job *j, int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; k++) {
        int64_t c = k / j->n, i = k % j->n, p = c * VB_CHUNK;
        round_chunk(j->q + k, j->x + i * j->w.cols + p, vb_min(VB_CHUNK, j->w.cols - p));
        if (j->order) reorder(j->q + k, j->order);
    }
}

/* ---- chunks ------------------------------------------------------------------------------------------------------ */

/* Says whether cpu_books.h has the codes. */
FN bool in_book(vb_dtype type) {
    return type == VB_Q1_0 || type == VB_Q2_0 || type == VB_NVFP4 || type == VB_IQ1_S || type == VB_IQ1_M ||
           type == VB_IQ2_XXS || type == VB_IQ2_XS || type == VB_IQ2_S || type == VB_IQ3_XXS || type == VB_IQ3_S;
}

FN bool is_signed(vb_dtype type) {
    return type == VB_Q8_0 || type == VB_IQ4_NL || type == VB_IQ4_XS || type == VB_MXFP4 || in_book(type);
}

/* 16 bytes to 32 nibbles, the low ones first. */
FN __m256i nibbles16(const void *p) {
    __m256i v = _mm256_broadcastsi128_si256(_mm_loadu_si128(p));
    v = _mm256_srlv_epi64(v, _mm256_setr_epi64x(0, 0, 4, 4));
    return _mm256_and_si256(v, _mm256_set1_epi8(15));
}

/* Bits 2s and 2s + 1 of 32 bytes. */
FN __m256i pairs32(const void *p, int s) {
    return _mm256_and_si256(_mm256_srli_epi64(_mm256_loadu_si256(p), 2 * s), _mm256_set1_epi8(3));
}

/* `what` where bit b of 32 bytes is set, else 0. */
FN __m256i where_bit(const void *p, int b, char what) {
    __m256i bit = _mm256_set1_epi8((char)(1 << b));
    __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_loadu_si256(p), bit), bit);
    return _mm256_and_si256(set, _mm256_set1_epi8(what));
}

/* 16 where bit i of the 32-bit number is set, in byte i. */
FN __m256i fifth_bits(const void *qh) {
    uint32_t bits;
    memcpy(&bits, qh, 4);
    __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits),
                                    _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
    __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(v, bit), bit), _mm256_set1_epi8(16));
}

FN __m256i table_lookup(__m256i nibbles, const int8_t *values) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)values)), nibbles);
}

/* The codes of elements 32u..32u + 31 of a chunk. */
FN __m256i codes(vb_dtype type, const void *p, int u) {
    switch (type) {
    case VB_Q4_0: return nibbles16(((const vb_block_q4_0 *)p)[u].qs);
    case VB_Q4_1: return nibbles16(((const vb_block_q4_1 *)p)[u].qs);
    case VB_Q5_0:
        return _mm256_or_si256(nibbles16(((const vb_block_q5_0 *)p)[u].qs),
                               fifth_bits(((const vb_block_q5_0 *)p)[u].qh));
    case VB_Q5_1:
        return _mm256_or_si256(nibbles16(((const vb_block_q5_1 *)p)[u].qs),
                               fifth_bits(((const vb_block_q5_1 *)p)[u].qh));
    case VB_Q8_0: return _mm256_loadu_si256((const __m256i *)((const vb_block_q8_0 *)p)[u].qs);
    case VB_IQ4_NL: return table_lookup(nibbles16(((const vb_block_iq4_nl *)p)[u].qs), vb_iq4nl_values);
    case VB_MXFP4: return table_lookup(nibbles16(((const vb_block_mxfp4 *)p)[u].qs), vb_mxfp4_values);
    case VB_IQ4_XS: return table_lookup(nibbles16(((const vb_block_iq4_xs *)p)->qs + 16 * u), vb_iq4nl_values);
    case VB_Q2_K: return pairs32(((const vb_block_q2_k *)p)->qs + u / 4 * 32, u % 4);
    case VB_TQ2_0: return pairs32(((const vb_block_tq2_0 *)p)->qs + u / 4 * 32, u % 4);
    case VB_Q3_K:
        return _mm256_or_si256(pairs32(((const vb_block_q3_k *)p)->qs + u / 4 * 32, u % 4),
                               where_bit(((const vb_block_q3_k *)p)->hmask, u, 4));
    case VB_Q4_K:
    case VB_Q5_K: {
        const uint8_t *qs = type == VB_Q4_K ? ((const vb_block_q4_k *)p)->qs : ((const vb_block_q5_k *)p)->qs;
        __m256i v = _mm256_loadu_si256((const __m256i *)(qs + u / 2 * 32));
        v = _mm256_and_si256(u % 2 ? _mm256_srli_epi64(v, 4) : v, _mm256_set1_epi8(15));
        return type == VB_Q4_K ? v : _mm256_or_si256(v, where_bit(((const vb_block_q5_k *)p)->qh, u, 16));
    }
    case VB_Q6_K: {
        const vb_block_q6_k *b = p;
        __m256i low = _mm256_loadu_si256((const __m256i *)(b->ql + u / 4 * 64 + u % 2 * 32));
        __m256i high = pairs32(b->qh + u / 4 * 32, u % 4);
        low = _mm256_and_si256(u % 4 / 2 ? _mm256_srli_epi64(low, 4) : low, _mm256_set1_epi8(15));
        return _mm256_or_si256(low, _mm256_slli_epi64(high, 4));
    }
    case VB_TQ1_0: {
        const vb_block_tq1_0 *b = p;
        static const uint8_t powers[5] = {1, 3, 9, 27, 81};
        uint8_t q[32];
        for (int i = 0; i < 32; i++) {
            int e = 32 * u + i;
            uint8_t v = e < 160   ? (uint8_t)(b->qs[i] * powers[u])
                        : e < 240 ? (uint8_t)(b->qs[32 + i % 16] * powers[(e - 160) / 16])
                                  : (uint8_t)(b->qh[i % 4] * powers[(e - 240) / 4]);
            q[i] = (uint8_t)(v * 3 >> 8);
        }
        return _mm256_loadu_si256((const __m256i *)q);
    }
    default: return vb_book_codes(type, p, u);
    }
}

/* What the codes of a signed type are too large by: scale times this is min. */
FN float offset_of(vb_dtype type) {
    switch (type) {
    case VB_Q4_0: return 8;
    case VB_Q5_0: return 16;
    case VB_Q3_K: return 4;
    case VB_Q6_K: return 32;
    case VB_TQ1_0:
    case VB_TQ2_0: return 1;
    default: return 0;
    }
}

FN void halves8(float *out, const char *p, int64_t stride) {
    for (int i = 0; i < 8; i++) {
        uint16_t h;
        memcpy(&h, p + i * stride, 2);
        out[2 * i] = out[2 * i + 1] = _cvtsh_ss(h);
    }
}

/* The scale and min of each 16 elements of a chunk; beyond `live` zeros. */
FN void scales(vb_dtype type, float *scale, float *min, const void *p, int live) {
    bool has_min = false;
    switch (type) {
    case VB_Q4_0: halves8(scale, p, sizeof(vb_block_q4_0)); break;
    case VB_Q5_0: halves8(scale, p, sizeof(vb_block_q5_0)); break;
    case VB_Q8_0: halves8(scale, p, sizeof(vb_block_q8_0)); break;
    case VB_IQ4_NL: halves8(scale, p, sizeof(vb_block_iq4_nl)); break;
    case VB_Q4_1:
    case VB_Q5_1: {
        int64_t stride = type == VB_Q4_1 ? sizeof(vb_block_q4_1) : sizeof(vb_block_q5_1);
        halves8(scale, p, stride);
        halves8(min, (const char *)p + 2, stride);
        for (int i = 0; i < 16; i++) min[i] = -min[i];
        has_min = true;
        break;
    }
    case VB_MXFP4:
        for (int i = 0; i < 8; i++)
            scale[2 * i] = scale[2 * i + 1] = vb_exponent_float(((const vb_block_mxfp4 *)p)[i].e);
        break;
    case VB_Q2_K: {
        const vb_block_q2_k *b = p;
        float d = _cvtsh_ss(b->d), dmin = _cvtsh_ss(b->dmin);
        for (int i = 0; i < 16; i++) {
            scale[i] = d * (float)(b->scales[i] & 15);
            min[i] = dmin * (float)(b->scales[i] >> 4);
        }
        has_min = true;
        break;
    }
    case VB_Q3_K: {
        float d = _cvtsh_ss(((const vb_block_q3_k *)p)->d);
        for (int i = 0; i < 16; i++) scale[i] = d * (float)vb_q3_k_scale(((const vb_block_q3_k *)p)->scales, i);
        break;
    }
    case VB_Q4_K:
    case VB_Q5_K: { /* the two begin alike */
        const vb_block_q4_k *b = p;
        float d = _cvtsh_ss(b->d), dmin = _cvtsh_ss(b->dmin);
        for (int i = 0; i < 8; i++) {
            int s, m;
            vb_k4_scale(b->scales, i, &s, &m);
            scale[2 * i] = scale[2 * i + 1] = d * (float)s;
            min[2 * i] = min[2 * i + 1] = dmin * (float)m;
        }
        has_min = true;
        break;
    }
    case VB_Q6_K: {
        float d = _cvtsh_ss(((const vb_block_q6_k *)p)->d);
        for (int i = 0; i < 16; i++) scale[i] = d * (float)((const vb_block_q6_k *)p)->scales[i];
        break;
    }
    case VB_IQ4_XS: {
        float d = _cvtsh_ss(((const vb_block_iq4_xs *)p)->d);
        for (int i = 0; i < 8; i++) scale[2 * i] = scale[2 * i + 1] = d * (float)vb_iq4_xs_scale(p, i);
        break;
    }
    case VB_TQ1_0:
    case VB_TQ2_0: {
        float d = _cvtsh_ss(type == VB_TQ1_0 ? ((const vb_block_tq1_0 *)p)->d : ((const vb_block_tq2_0 *)p)->d);
        for (int i = 0; i < 16; i++) scale[i] = d;
        break;
    }
    default: vb_book_scales(type, scale, p); break;
    }
    for (int i = live; i < 16; i++) scale[i] = min[i] = 0;
    for (int i = 0; i < 16 && !has_min; i++) min[i] = scale[i] * offset_of(type);
}

/* Sums of four products in each lane. */
FN __m256i dot4(vb_dtype type, __m256i w, __m256i x) {
    __m256i pairs =
        is_signed(type) ? _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)) : _mm256_maddubs_epi16(w, x);
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

FN float sum8(__m256 v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

/* ---- rows: one weight row against one row of x ------------------------------------------------------------------- */

FN void rows_of_type(vb_dtype type, const vb_linear_job *j, int64_t r, int64_t i) {
    char copy[VB_CHUNK_COPY];
    __m256 sum = _mm256_setzero_ps();
    for (int64_t c = 0; c < j->chunks; c++) {
        const vb_x_chunk *x = j->q + c * j->n + i;
        float scale[16], min[16];
        int live;
        const void *p = vb_chunk_at(j, r, c, copy, &live);
        scales(type, scale, min, p, live);
        sum = _mm256_fnmadd_ps(_mm256_loadu_ps(min), _mm256_load_ps(x->sums), sum);
        sum = _mm256_fnmadd_ps(_mm256_loadu_ps(min + 8), _mm256_load_ps(x->sums + 8), sum);
#pragma GCC unroll 8
        for (int u = 0; u < 8; u++) {
            __m256 dot = _mm256_cvtepi32_ps(
                dot4(type, codes(type, p, u), _mm256_load_si256((const __m256i *)(x->codes + 32 * u))));
            __m128 group = _mm_load_ps(x->scales + 4 * u);
            __m256 factor = _mm256_set_m128(_mm_mul_ps(_mm_unpackhi_ps(group, group), _mm_set1_ps(scale[2 * u + 1])),
                                            _mm_mul_ps(_mm_unpacklo_ps(group, group), _mm_set1_ps(scale[2 * u])));
            sum = _mm256_fmadd_ps(dot, factor, sum);
        }
    }
    *vb_y_at(j, i, r) = sum8(sum) + (j->bias ? j->bias[r] : 0);
}

/* ---- panels: 8 weight rows, one a lane, against many rows of x --------------------------------------------------- */

enum { LANES = 8, X_TOGETHER = 4 };

typedef struct panel {
    __m256i q[VB_CHUNK / 4]; /* four elements of each row */
    float scale[16][LANES], min[16][LANES];
} panel;

FN void transpose8(__m256i *r) {
    __m256i t[8], s[8];
    for (int i = 0; i < 4; i++) {
        t[2 * i] = _mm256_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        s[4 * i] = _mm256_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
        s[4 * i + 1] = _mm256_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
        s[4 * i + 2] = _mm256_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
        s[4 * i + 3] = _mm256_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2x128_si256(s[i], s[4 + i], 0x20);
        r[4 + i] = _mm256_permute2x128_si256(s[i], s[4 + i], 0x31);
    }
}

/* Unpacks chunk c of n <= 8 rows from r on into a panel; lanes beyond n become zeros. */
FN void make_panel(vb_dtype type, panel *out, const vb_linear_job *j, int64_t r, int n, int64_t c) {
    char copy[LANES][VB_CHUNK_COPY];
    const void *rows[LANES];
    float scale[16], min[16];
    for (int t = 0; t < LANES; t++) {
        int live;
        vb_fetch_panel(j, r + t + LANES, c);
        rows[t] = t < n ? vb_chunk_at(j, r + t, c, copy[t], &live) : rows[0];
        scales(type, scale, min, rows[t], t < n ? live : 0);
        for (int s = 0; s < 16; s++) {
            out->scale[s][t] = scale[s];
            out->min[s][t] = min[s];
        }
    }
#pragma GCC unroll 8
    for (int u = 0; u < 8; u++) {
        __m256i words[LANES];
        for (int t = 0; t < LANES; t++) words[t] = codes(type, rows[t], u);
        transpose8(words);
        for (int t = 0; t < LANES; t++) out->q[8 * u + t] = words[t];
    }
}

/* sums[m][8] += the products of a panel with m rows of x. */
FN void panel_times_m(float *sums, const panel *p, const vb_x_chunk *x, int m, bool is_signed) {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256 sum[X_TOGETHER];
#pragma GCC unroll 4
    for (int i = 0; i < m; i++) sum[i] = _mm256_load_ps(sums + LANES * i);
    for (int s = 0; s < 16; s++) {
        __m256 part[X_TOGETHER];
#pragma GCC unroll 2
        for (int g = 0; g < 2; g++) {
            __m256i w0 = p->q[4 * s + 2 * g], w1 = p->q[4 * s + 2 * g + 1];
            __m256i a0 = _mm256_abs_epi8(w0), a1 = _mm256_abs_epi8(w1);
#pragma GCC unroll 4
            for (int i = 0; i < m; i++) {
                int32_t word[2];
                memcpy(word, x[i].codes + 16 * s + 8 * g, 8);
                __m256i x0 = _mm256_set1_epi32(word[0]), x1 = _mm256_set1_epi32(word[1]), dot;
                if (is_signed) {
                    dot = _mm256_add_epi32(_mm256_madd_epi16(_mm256_maddubs_epi16(a0, _mm256_sign_epi8(x0, w0)), ones),
                                           _mm256_madd_epi16(_mm256_maddubs_epi16(a1, _mm256_sign_epi8(x1, w1)), ones));
                } else { /* four products of codes below 64 fit 16 bits */
                    dot = _mm256_madd_epi16(
                        _mm256_add_epi16(_mm256_maddubs_epi16(w0, x0), _mm256_maddubs_epi16(w1, x1)), ones);
                }
                __m256 scale = _mm256_set1_ps(x[i].scales[2 * s + g]), v = _mm256_cvtepi32_ps(dot);
                part[i] = g == 0 ? _mm256_mul_ps(v, scale) : _mm256_fmadd_ps(v, scale, part[i]);
            }
        }
        __m256 scale = _mm256_load_ps(p->scale[s]), min = _mm256_load_ps(p->min[s]);
#pragma GCC unroll 4
        for (int i = 0; i < m; i++) {
            sum[i] = _mm256_fmadd_ps(part[i], scale, sum[i]);
            if (!is_signed) sum[i] = _mm256_fnmadd_ps(_mm256_set1_ps(x[i].sums[s]), min, sum[i]);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < m; i++) _mm256_store_ps(sums + LANES * i, sum[i]);
}

FN void panel_times(float *sums, const panel *p, const vb_x_chunk *x, int64_t n, bool is_signed) {
    for (; n >= X_TOGETHER; n -= X_TOGETHER, x += X_TOGETHER, sums += LANES * X_TOGETHER)
        panel_times_m(sums, p, x, X_TOGETHER, is_signed);
    for (; n > 0; n--, x++, sums += LANES) panel_times_m(sums, p, x, 1, is_signed);
}

VB_TARGET_AVX2 static void panel_times_signed(float *sums, const void *p, const vb_x_chunk *x, int64_t n) {
    panel_times(sums, p, x, n, true);
}

VB_TARGET_AVX2 static void panel_times_unsigned(float *sums, const void *p, const vb_x_chunk *x, int64_t n) {
    panel_times(sums, p, x, n, false);
}

/* ---- the types --------------------------------------------------------------------------------------------------- */

#define TYPES(X) \
    X(Q4_0, unsigned) X(Q4_1, unsigned) X(Q5_0, unsigned) X(Q5_1, unsigned) X(Q8_0, signed) \
    X(Q2_K, unsigned) X(Q3_K, unsigned) X(Q4_K, unsigned) X(Q5_K, unsigned) X(Q6_K, unsigned) \
    X(IQ4_NL, signed) X(IQ4_XS, signed) X(TQ1_0, unsigned) X(TQ2_0, unsigned) X(MXFP4, signed) \
    X(Q1_0, signed) X(Q2_0, signed) X(NVFP4, signed) X(IQ1_S, signed) X(IQ1_M, signed) \
    X(IQ2_XXS, signed) X(IQ2_XS, signed) X(IQ2_S, signed) X(IQ3_XXS, signed) X(IQ3_S, signed)

#define X(TYPE, sign) \
    VB_TARGET_AVX2 static void rows_##TYPE(const vb_linear_job *j, int64_t begin, int64_t end) { \
        for (int64_t r = begin; r < end; r++) \
            for (int64_t i = 0; i < j->n; i++) rows_of_type(VB_##TYPE, j, r, i); \
    } \
    VB_TARGET_AVX2 static void panel_##TYPE(void *out, const vb_linear_job *j, int64_t r, int n, int64_t c) { \
        make_panel(VB_##TYPE, out, j, r, n, c); \
    }
TYPES(X)
#undef X

vb_linear_code vb_cpu_linear_code_avx2(vb_dtype type) {
    _Static_assert(sizeof(panel) + VB_PANEL_ROWS_OF_X * LANES * 4 <= VB_PANEL_SCRATCH, "scratch");
    switch ((int)type) {
#define X(TYPE, sign) \
    case VB_##TYPE: return (vb_linear_code){LANES, sizeof(panel), rows_##TYPE, NULL, panel_##TYPE, panel_times_##sign};
        TYPES(X)
#undef X
    }
    return (vb_linear_code){0};
}
#endif
