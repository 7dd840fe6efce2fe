/* cpu_codes.c: exact sums of two-bit codes times int8 activations (cpu_codes.h): the layout of activations, and sums of
 * a few rows of codes by a few rows of activations, plain and with AVX-512.
 *
 * Several rows of codes meet several rows of activations in registers: unpacked codes serve all rows of activations,
 * and a vector of activations, once read, all rows of codes. The rows to come are fetched ahead in the order of memory,
 * since a processor fetches several streams of short rows worse than one
 * (docs/experiments/2026-11-28-ternary-streams.md). */
#include "cpu_codes_simd.h"

#if VB_X86
/* 32 neighbours of each slot from 128: bytes of a slot side by side in fours, then eights. */
VB_TARGET_AVX2 static void arrange_avx2(int8_t *to, const int8_t *from) {
    const __m256i slots = _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, 0, 4, 8, 12, 1, 5, 9,
                                           13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m256i fours = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7); /* slot 0, 1, 2, 3: eight bytes each */
    __m256i v[4];
    for (int i = 0; i < 4; i++)
        v[i] = _mm256_permutevar8x32_epi32(
            _mm256_shuffle_epi8(_mm256_loadu_si256((const __m256i *)from + i), slots), fours);
    for (int pair = 0; pair < 2; pair++) { /* slots 0 and 2, then 1 and 3 */
        const __m256i a = pair ? _mm256_unpackhi_epi64(v[0], v[1]) : _mm256_unpacklo_epi64(v[0], v[1]);
        const __m256i b = pair ? _mm256_unpackhi_epi64(v[2], v[3]) : _mm256_unpacklo_epi64(v[2], v[3]);
        _mm256_storeu_si256((__m256i *)(to + pair * VECTOR), _mm256_permute2x128_si256(a, b, 0x20));
        _mm256_storeu_si256((__m256i *)(to + (pair + 2) * VECTOR), _mm256_permute2x128_si256(a, b, 0x31));
    }
}
#endif

void vb_codes_arrange(int8_t *to, int64_t step, const int8_t *from, int64_t k, vb_simd simd) {
    int64_t i = 0;
    for (; i + X <= k; i += X, to += step * X) {
#if VB_X86
        if (simd != VB_SIMD_PLAIN) {
            arrange_avx2(to, from + i);
            arrange_avx2(to + VECTOR / 2, from + i + X / 2);
            continue;
        }
#endif
        for (int slot = 0; slot < 4; slot++)
            for (int j = 0; j < VECTOR; j++) to[slot * VECTOR + j] = from[i + 4 * j + slot];
    }
    (void)simd;
    for (; i < k; i++) to[i % 4 * VECTOR + i / 4 % VECTOR] = from[i];
}

typedef int32_t sums_row[VB_CODES_TILE];

static void sums_plain(sums_row *sums, const uint8_t *w, int64_t stride, int64_t bytes, int rows, const int8_t *x,
                       int n) {
    const int64_t row_of_x = vb_codes_vectors(bytes) * X;
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < n; i++) {
            int32_t total = 0;
            for (int64_t b = 0; b < bytes; b += VECTOR) {
                const uint8_t *codes = w + r * stride + b;
                const int8_t *a = x + i * row_of_x + 4 * b;
                const int live = (int)vb_min(VECTOR, bytes - b);
                for (int slot = 0; slot < 4; slot++)
                    for (int j = 0; j < live; j++) total += (codes[j] >> 2 * slot & 3) * a[slot * VECTOR + j];
            }
            sums[r][i] = total;
        }
}

#if VB_X86
/* Where sums are few there is one a slot: its codes stay in place, and the sum is divided by their place at the end. A
 * lane has 1/16 of a row's slot and up to 64 times its codes: no more than a sum of the whole row would reach. */
VB_TARGET_AVX512 VB_INLINE void tile_avx512(sums_row *sums, const uint8_t *w, int64_t stride, int64_t bytes,
                                            const int8_t *x, const int R, const int N) {
    const int slots = R * N <= 4 ? 4 : 1;
    const int64_t row_of_x = vb_codes_vectors(bytes) * X;
    __m512i sum[16];
    _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++) sum[i] = _mm512_setzero_si512();
    for (int64_t b = 0; b < bytes; b += VECTOR) {
        __m512i codes[4];
        load_codes(codes, w, stride, bytes, b, R);
        _Pragma("GCC unroll 4") for (int slot = 0; slot < 4; slot++) {
            const int place = slots > 1 ? 2 * slot : 0, own = slots > 1 ? slot * R * N : 0;
            const __m512i mask = _mm512_set1_epi8((char)(3 << place));
            __m512i q[4];
            _Pragma("GCC unroll 4") for (int r = 0; r < R; r++)
                q[r] = _mm512_and_si512(slot && !place ? _mm512_srli_epi16(codes[r], 2 * slot) : codes[r], mask);
            _Pragma("GCC unroll 8") for (int i = 0; i < N; i++) {
                const __m512i a = _mm512_load_si512(x + i * row_of_x + 4 * b + slot * VECTOR);
                _Pragma("GCC unroll 4") for (int r = 0; r < R; r++)
                    sum[own + r * N + i] = _mm512_dpbusd_epi32(sum[own + r * N + i], q[r], a);
            }
        }
    }
    if (slots > 1)
        _Pragma("GCC unroll 4") for (int i = 0; i < R * N; i++)
            _Pragma("GCC unroll 4") for (int slot = 1; slot < 4; slot++)
                sum[i] = _mm512_add_epi32(sum[i], _mm512_srai_epi32(sum[slot * R * N + i], 2 * slot));
    int32_t all[16];
    _Pragma("GCC unroll 4") for (int i = 0; i < R * N; i += 4)
        _mm_storeu_si128((__m128i *)(all + i), reduce_avx512(sum[i], sum[i + 1], sum[i + 2], sum[i + 3]));
    for (int r = 0; r < R; r++)
        for (int i = 0; i < N; i++) sums[r][i] = all[r * N + i];
}

#define TILE(R, N) \
    VB_TARGET_AVX512 static void tile_##R##_##N(sums_row *sums, const uint8_t *w, int64_t stride, int64_t bytes, \
                                               const int8_t *x) { \
        tile_avx512(sums, w, stride, bytes, x, R, N); \
    }
TILE(1, 1)
TILE(1, 2)
TILE(1, 3)
TILE(1, 4)
TILE(4, 1)
TILE(4, 2)
TILE(4, 3)
TILE(4, 4)

typedef void (*tile_function)(sums_row *sums, const uint8_t *w, int64_t stride, int64_t bytes, const int8_t *x);
/* How many rows of codes meet n rows of activations at a time, and how a single one does. */
typedef struct tile {
    int n, rows;
    tile_function several, one;
} tile;
static const tile sum_tiles[] = {
    {4, 4, tile_4_4, tile_1_4}, {3, 4, tile_4_3, tile_1_3}, {2, 4, tile_4_2, tile_1_2}, {1, 4, tile_4_1, tile_1_1}};

static void sums_by(const tile *t, sums_row *sums, const uint8_t *w, int64_t stride, int64_t bytes, int rows,
                    const int8_t *x, int n) {
    const int64_t row_of_x = vb_codes_vectors(bytes) * X;
    for (int i = 0; i < n; i += t->n) {
        while (t->n > n - i) t++;
        int r = 0;
        for (; r + t->rows <= rows; r += t->rows)
            t->several((sums_row *)&sums[r][i], w + r * stride, stride, bytes, x + i * row_of_x);
        for (; r < rows; r++) t->one((sums_row *)&sums[r][i], w + r * stride, stride, bytes, x + i * row_of_x);
    }
}
#endif

void vb_cpu_code_sums(int32_t sums[VB_CODES_ROWS][VB_CODES_TILE], const uint8_t *w, int64_t stride, int64_t bytes,
                      int rows, const int8_t *x, int n, vb_simd simd) {
#if VB_X86
    if (simd == VB_SIMD_AVX512) {
        sums_by(sum_tiles, sums, w, stride, bytes, rows, x, n);
        return;
    }
#endif
    (void)simd;
    sums_plain(sums, w, stride, bytes, rows, x, n);
}
