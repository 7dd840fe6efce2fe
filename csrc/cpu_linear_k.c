/* cpu_linear_k.c: few rows of x by weights in Q4_K, Q5_K and Q6_K with AVX-512 and its int8 dot product (VNNI).
 *
 * A group of eight activations has one scale: 32 bits of its codes meet 32 bits of weights twice in one lane, and the
 * two integer products are added before they become a float. So the words of a chunk are taken apart into even ones and
 * odd ones, which a lane then holds of one group: vb_x_chunk has its groups in the order of these lanes (orders below).
 * Per 256 weights there are two conversions and two multiplications by scales; products of 64 consecutive weights
 * (cpu_linear_avx512.c) have four, and four more operations that spread scales over lanes.
 *
 * Weights from the second level of the cache, one core of an AMD EPYC (Zen 4), GB/s, with that file and this one:
 * Q4_K 18.9 and 27.7, Q5_K 19.2 and 25.7, Q6_K 28.9 and 32.6. */
#include "cpu_linear.h"
#include "quant.h"

#if VB_X86
#include <immintrin.h>

#define FN VB_TARGET_AVX512 VB_INLINE

enum { TOGETHER = 4 }; /* weight rows that share what is loaded of x */

/* 256 weights: lane i of q[2h] and q[2h + 1] is a group of eight, and lane i of scale[h] its scale, to be multiplied by
 * d. Q4_K and Q5_K have mins of 32 elements, to be multiplied by dmin. */
typedef struct chunk {
    __m512i q[4];
    __m512 scale[2];
    __m256 min;
    float d, dmin;
} chunk;

/* What one chunk of x contributes to all rows of a group; offsets are the integer products' first terms. */
typedef struct x_vectors {
    __m512i codes[4], offsets[2];
    __m512 scales[2];
    __m256 sums32;
} x_vectors;

FN __m512i bytes(__m512i v, char mask) { return _mm512_and_si512(v, _mm512_set1_epi8(mask)); }

/* Bits of the mask from v, the others from low. */
FN __m512i with_bits(__m512i low, __m512i v, char mask) {
    return _mm512_ternarylogic_epi32(low, v, _mm512_set1_epi8(mask), 0xf8); /* low | v & mask */
}

/* Low four bits of each byte from low, the others from v. */
FN __m512i above(__m512i low, __m512i v) {
    return _mm512_ternarylogic_epi32(low, v, _mm512_set1_epi8(15), 0xe4); /* mask ? low : v */
}

/* The even and the odd words of 128 bytes. */
FN void words(__m512i *even, __m512i *odd, const void *p) {
    const __m512i a = _mm512_loadu_si512(p), b = _mm512_loadu_si512((const char *)p + 64);
    const __m512i evens = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odds = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    *even = _mm512_permutex2var_epi32(a, evens, b);
    *odd = _mm512_permutex2var_epi32(a, odds, b);
}

/* The nibbles of 128 bytes: low ones of even and odd words, then high ones. */
FN void nibbles(__m512i *q, const void *p) {
    __m512i even, odd;
    words(&even, &odd, p);
    q[0] = bytes(even, 15);
    q[1] = bytes(odd, 15);
    q[2] = bytes(_mm512_srli_epi32(even, 4), 15);
    q[3] = bytes(_mm512_srli_epi32(odd, 4), 15);
}

/* Bytes of v, which are the same in all quarters, to lanes: lane i gets byte i / 4 * 2 + odd. */
FN __m512 spread(__m512i v, int odd) {
    const __m512i z = _mm512_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2, 4, 4, 4, 4, 6, 6, 6, 6);
    const __m512i index = _mm512_or_si512(_mm512_add_epi32(z, _mm512_set1_epi32(odd)), _mm512_set1_epi32(~255));
    return _mm512_cvtepi32_ps(_mm512_shuffle_epi8(v, index));
}

/* Scales and mins of Q4_K and Q5_K (vb_k4_scale for all eight at once). */
FN void k4_scales(chunk *c, const uint8_t *scales, vb_half d, vb_half dmin) {
    uint32_t u[3];
    memcpy(u, scales, 12);
    const uint64_t s0 = u[0] & 0x3f3f3f3f, s1 = (u[2] & 0x0f0f0f0f) | (u[0] >> 2 & 0x30303030);
    const uint64_t m0 = u[1] & 0x3f3f3f3f, m1 = (u[2] >> 4 & 0x0f0f0f0f) | (u[1] >> 2 & 0x30303030);
    const __m512i all = _mm512_set1_epi64((long long)(s1 << 32 | s0));
    c->scale[0] = spread(all, 0);
    c->scale[1] = spread(all, 1);
    c->min = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)(m1 << 32 | m0))));
    c->d = _cvtsh_ss(d);
    c->dmin = _cvtsh_ss(dmin);
}

FN void unpack(vb_dtype type, chunk *c, const void *p) {
    if (type == VB_Q4_K) {
        const vb_block_q4_k *b = p;
        nibbles(c->q, b->qs);
        k4_scales(c, b->scales, b->d, b->dmin);
    } else if (type == VB_Q5_K) {
        const vb_block_q5_k *b = p;
        nibbles(c->q, b->qs);
        k4_scales(c, b->scales, b->d, b->dmin);
        const __m512i fifths = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)b->qh));
#pragma GCC unroll 2
        for (int odd = 0; odd < 2; odd++) {
            const __m512i at = _mm512_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6, 0, 2, 4, 6, 0, 2, 4, 6);
            const __m512i v = _mm512_permutexvar_epi32(_mm512_add_epi32(at, _mm512_set1_epi32(odd)), fifths);
            /* bit 2k of lanes 4k.., and bit 2k + 1, to bit 4 */
            const __m512i low = _mm512_setr_epi32(4, 4, 4, 4, 2, 2, 2, 2, 0, 0, 0, 0, 30, 30, 30, 30);
            const __m512i high = _mm512_setr_epi32(3, 3, 3, 3, 1, 1, 1, 1, 31, 31, 31, 31, 29, 29, 29, 29);
            c->q[odd] = with_bits(c->q[odd], _mm512_rolv_epi32(v, low), 16);
            c->q[2 + odd] = with_bits(c->q[2 + odd], _mm512_rolv_epi32(v, high), 16);
        }
    } else {
        const vb_block_q6_k *b = p;
        __m512i lower[2];
        words(&lower[0], &lower[1], b->ql);
        const __m512i upper = _mm512_loadu_si512(b->qh);
#pragma GCC unroll 2
        for (int odd = 0; odd < 2; odd++) {
            const __m512i at = _mm512_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6, 8, 10, 12, 14, 8, 10, 12, 14);
            const __m512i v = _mm512_permutexvar_epi32(_mm512_add_epi32(at, _mm512_set1_epi32(odd)), upper);
            /* Bits 0 and 1 go to 4 and 5 beside low nibbles, bits 4 and 5 stay beside high ones; in every other four
             * lanes bits 2 and 3, and 6 and 7. Without the other bits of v no byte gets a neighbour's above bit 3. */
            const int even = 0x33333333, others = (int)0xcccccccc;
            const __m512i used = _mm512_and_si512(v, _mm512_setr_epi32(even, even, even, even, others, others, others,
                                                                       others, even, even, even, even, others, others,
                                                                       others, others));
            const __m512i low = _mm512_setr_epi32(4, 4, 4, 4, 2, 2, 2, 2, 4, 4, 4, 4, 2, 2, 2, 2);
            const __m512i high = _mm512_setr_epi32(0, 0, 0, 0, 30, 30, 30, 30, 0, 0, 0, 0, 30, 30, 30, 30);
            c->q[odd] = above(lower[odd], _mm512_rolv_epi32(used, low));
            c->q[2 + odd] = above(_mm512_srli_epi32(lower[odd], 4), _mm512_rolv_epi32(used, high));
        }
        /* A byte at the top of a lane has its sign there. */
        const __m512i scales = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)b->scales));
        const __m512i first = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 8, 8, 9, 9, 10, 10, 11, 11);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            const __m512i index = _mm512_slli_epi32(_mm512_add_epi32(first, _mm512_set1_epi32(4 * h)), 24);
            const __m512i top = _mm512_or_si512(index, _mm512_set1_epi32(0x00808080));
            c->scale[h] = _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_shuffle_epi8(scales, top), 24));
        }
        c->d = _cvtsh_ss(b->d);
    }
}

FN x_vectors load_x(vb_dtype type, const vb_x_chunk *x) {
    x_vectors v = {.sums32 = _mm256_load_ps(x->sums32)};
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        v.codes[2 * h] = _mm512_load_si512(x->codes + 128 * h);
        v.codes[2 * h + 1] = _mm512_load_si512(x->codes + 128 * h + 64);
        v.scales[h] = _mm512_load_ps(x->scales + 16 * h);
        v.offsets[h] = _mm512_setzero_si512();
        if (type != VB_Q6_K) continue;
        const __m512i offset = _mm512_set1_epi8(32);
        const __m512i even = _mm512_dpbusd_epi32(_mm512_setzero_si512(), offset, v.codes[2 * h]);
        v.offsets[h] =
            _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_dpbusd_epi32(even, offset, v.codes[2 * h + 1]));
    }
    return v;
}

FN void rows_of_type(vb_dtype type, int64_t bytes, int together, const vb_linear_job *j, int64_t r, int64_t i) {
    __m512 sum[TOGETHER];
    __m256 mins[TOGETHER];
#pragma GCC unroll 4
    for (int t = 0; t < together; t++) sum[t] = _mm512_setzero_ps(), mins[t] = _mm256_setzero_ps();
    const char *row = (const char *)j->w.data + r * j->row_bytes;
    const vb_x_chunk *x = j->q + i;
    const int64_t ahead = vb_bytes_ahead(j, TOGETHER);
    for (int64_t c = 0; c < j->chunks; c++, row += bytes, x += j->n) {
        const x_vectors v = load_x(type, x);
#pragma GCC unroll 4
        for (int t = 0; t < together; t++) {
            chunk w;
            const char *p = row + t * j->row_bytes;
            vb_fetch(p + ahead, bytes);
            unpack(type, &w, p);
            __m512 part[2];
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                const __m512i even = _mm512_dpbusd_epi32(v.offsets[h], w.q[2 * h], v.codes[2 * h]);
                part[h] = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(even, w.q[2 * h + 1], v.codes[2 * h + 1]));
            }
            const __m512 first = _mm512_mul_ps(part[0], _mm512_mul_ps(w.scale[0], v.scales[0]));
            const __m512 both = _mm512_fmadd_ps(part[1], _mm512_mul_ps(w.scale[1], v.scales[1]), first);
            sum[t] = _mm512_fmadd_ps(both, _mm512_set1_ps(w.d), sum[t]);
            if (type == VB_Q6_K) continue;
            mins[t] = _mm256_fmadd_ps(_mm256_mul_ps(w.min, v.sums32), _mm256_set1_ps(w.dmin), mins[t]);
        }
    }
#pragma GCC unroll 4
    for (int t = 0; t < together; t++) {
        const __m512 all = _mm512_sub_ps(sum[t], _mm512_zextps256_ps512(mins[t]));
        *vb_y_at(j, i, r + t) = _mm512_reduce_add_ps(all) + (j->bias ? j->bias[r + t] : 0);
    }
}

/* The groups of the low nibbles in the order of lanes, then those of the high ones. */
static const uint8_t order_k4[] = {0, 1, 2, 3, 8,  9,  10, 11, 16, 17, 18, 19, 24, 25, 26, 27,
                                   4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31};
static const uint8_t order_q6[] = {0, 1, 2,  3,  4,  5,  6,  7,  16, 17, 18, 19, 20, 21, 22, 23,
                                   8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31};

#define TYPES(X) X(Q4_K, q4_k, order_k4) X(Q5_K, q5_k, order_k4) X(Q6_K, q6_k, order_q6)

#define X(TYPE, name, order) \
    VB_TARGET_AVX512 static void rows_##TYPE(const vb_linear_job *j, int64_t begin, int64_t end) { \
        const int64_t bytes = sizeof(vb_block_##name); \
        int64_t r = begin; \
        for (; r + TOGETHER <= end; r += TOGETHER) \
            for (int64_t i = 0; i < j->n; i++) rows_of_type(VB_##TYPE, bytes, TOGETHER, j, r, i); \
        for (; r < end; r++) \
            for (int64_t i = 0; i < j->n; i++) rows_of_type(VB_##TYPE, bytes, 1, j, r, i); \
    }
TYPES(X)
#undef X

vb_linear_rows vb_cpu_linear_rows_k(vb_dtype type) {
    switch ((int)type) {
#define X(TYPE, name, order) \
    case VB_##TYPE: return (vb_linear_rows){rows_##TYPE, order};
        TYPES(X)
#undef X
    }
    return (vb_linear_rows){0};
}
#endif
