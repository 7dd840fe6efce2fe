/* cpu_codes.c: exact sums of two-bit codes times int8 activations (cpu_codes.h).
 *
 * Several rows of codes meet several rows of activations in registers: unpacked codes serve all rows of activations,
 * and a vector of activations, once read, all rows of codes. The rows to come are fetched ahead in the order of memory,
 * since a processor fetches several streams of short rows worse than one. A single row of activations is as fast as
 * memory: it meets long rows of codes one after the other (docs/experiments/2026-11-28-ternary-streams.md). */
#include "cpu_codes.h"

#if VB_X86
#include <immintrin.h>
#endif

/* How far ahead: of rows of up to SHORT bytes, four of which lie within that distance, and of longer ones. */
enum { VECTOR = VB_CODES_VECTOR, HALF = VECTOR / 2, X = VB_CODES_X };
enum { SHORT = 1 << 10, AHEAD = 4 << 10, AHEAD_LONG = 8 << 10 };

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
/* Fetches the lines to come, in the order of memory, while R rows of codes are at byte b. */
VB_TARGET_AVX2 VB_INLINE void fetch_ahead(const uint8_t *w, int64_t bytes, int64_t b, const int R) {
    const char *const at = (const char *)w + R * b;
    if (bytes <= SHORT)
        _Pragma("GCC unroll 4") for (int r = 0; r < R; r++) _mm_prefetch(at + AHEAD + r * VECTOR, _MM_HINT_T0);
    else
        _Pragma("GCC unroll 4") for (int r = 0; r < R; r++) _mm_prefetch(at + AHEAD_LONG + r * VECTOR, _MM_HINT_T1);
}

/* R rows of codes from byte b on, 0 behind the end of a row. Of a piece of longer rows the same piece of later rows is
 * fetched. */
VB_TARGET_AVX512 VB_INLINE void load_codes(__m512i codes[4], const uint8_t *w, int64_t stride, int64_t bytes, int64_t b,
                                           const int R) {
    const __mmask64 live = bytes - b >= VECTOR ? ~0ull : (1ull << (bytes - b)) - 1;
    const int64_t later = (AHEAD_LONG / (VB_CODES_ROWS * stride) + 1) * VB_CODES_ROWS * stride;
    _Pragma("GCC unroll 4") for (int r = 0; r < R; r++)
        codes[r] = _mm512_maskz_loadu_epi8(live, w + r * stride + b);
    if (bytes == stride || stride <= SHORT)
        fetch_ahead(w, bytes, b, R);
    else
        _Pragma("GCC unroll 4") for (int r = 0; r < R; r++)
            _mm_prefetch((const char *)w + r * stride + b + later, _MM_HINT_T1);
}

/* The sums of four vectors' elements. */
VB_TARGET_AVX2 VB_INLINE __m128i reduce_avx2(__m256i a, __m256i b, __m256i c, __m256i d) {
    const __m256i s = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
    return _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
}

/* Keeps the compiler from adding up in another order, for which it has too few registers. */
VB_TARGET_AVX2 VB_INLINE __m256i in_order(__m256i x) {
    __asm__("" : "+x"(x));
    return x;
}

/* The sums of four vectors' elements. */
VB_TARGET_AVX2 VB_INLINE __m128 reduce_products(__m256i a, __m256i b, __m256i c, __m256i d) {
    const __m256 s = _mm256_hadd_ps(_mm256_hadd_ps(_mm256_cvtepi32_ps(a), _mm256_cvtepi32_ps(b)),
                                    _mm256_hadd_ps(_mm256_cvtepi32_ps(c), _mm256_cvtepi32_ps(d)));
    return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}

/* The codes of the four slots of a vector, side by side. */
VB_TARGET_AVX2 VB_INLINE void unpack_avx2(__m256i q[4], __m256i codes) {
    const __m256i mask = _mm256_set1_epi8(3);
    _Pragma("GCC unroll 4") for (int slot = 0; slot < 4; slot++)
        q[slot] = _mm256_and_si256(slot ? _mm256_srli_epi16(codes, 2 * slot) : codes, mask);
}

/* Four elements' products with codes of half a vector, of 16 bits: at most 8 * 3 * 128. */
VB_TARGET_AVX2 VB_INLINE __m256i products_of_half(const __m256i q[4], const int8_t *x) {
    const __m256i *const a = (const __m256i *)x;
    return _mm256_add_epi16(
        _mm256_add_epi16(_mm256_maddubs_epi16(q[0], a[0]), _mm256_maddubs_epi16(q[1], a[2])),
        _mm256_add_epi16(_mm256_maddubs_epi16(q[2], a[4]), _mm256_maddubs_epi16(q[3], a[6])));
}

/* Half a vector of codes of R rows meets N columns, R * N <= 8, whose vectors alternate: one pointer with fixed
 * distances finds them all. A number of 16 bits is the sum of a run, and its factor's turn is where it is widened. */
VB_TARGET_AVX2 VB_INLINE void scaled_step(__m256i sum[8], const uint8_t *w, int64_t stride, const int8_t *x,
                                          const int16_t *factors, const int R, const int N) {
    _Pragma("GCC unroll 4") for (int r = 0; r < R; r++) {
        __m256i q[4];
        unpack_avx2(q, _mm256_loadu_si256((const __m256i *)(w + r * stride)));
        _Pragma("GCC unroll 8") for (int i = 0; i < N; i++) {
            const __m256i f = _mm256_loadu_si256((const __m256i *)(factors + i * X / VB_CODES_RUN));
            const __m256i run = products_of_half(q, x + i * X);
            sum[r * N + i] = in_order(_mm256_add_epi32(sum[r * N + i], _mm256_madd_epi16(run, f)));
        }
    }
}

/* Pairs of products are at most 2 * 3 * 128 in int16. Those of TOGETHER vectors, 8 each, are added before they are
 * widened. */
enum { TOGETHER = 5 };
VB_TARGET_AVX2 VB_INLINE void pairs_step(__m256i pairs[8], const uint8_t *w, int64_t stride, const int8_t *x,
                                         const int R, const int N) {
    _Pragma("GCC unroll 4") for (int r = 0; r < R; r++) {
        __m256i q[4];
        unpack_avx2(q, _mm256_loadu_si256((const __m256i *)(w + r * stride)));
        _Pragma("GCC unroll 8") for (int i = 0; i < N; i++)
            pairs[r * N + i] = in_order(_mm256_add_epi16(pairs[r * N + i], products_of_half(q, x + i * X)));
    }
}

/* Fetches what comes next while R rows, at w, are at byte b: of groups of eight, which read all rows of a panel again,
 * the same place of the next panel. */
VB_TARGET_AVX2 VB_INLINE void fetch_panel(const uint8_t *w, int64_t stride, int64_t bytes, int64_t b, const int R,
                                          const int N) {
    if (N == 8)
        _mm_prefetch((const char *)w + b + VB_CODES_PANEL_ROWS * stride, _MM_HINT_T1);
    else
        fetch_ahead(w, bytes, b, R);
}

/* The last bytes of R rows, where they fill no half of a vector. */
VB_INLINE void copy_last(uint8_t last[4][HALF], const uint8_t *w, int64_t stride, int64_t bytes, const int R) {
    memset(last, 0, 4 * HALF);
    for (int r = 0; r < R; r++) memcpy(last[r], w + r * stride, (size_t)bytes);
}

/* sums[r][i] of R rows and N columns. */
VB_TARGET_AVX2 VB_INLINE void scaled_avx2(float *sums, const uint8_t *w, int64_t stride, int64_t bytes,
                                          const int8_t *x, const int16_t *factors, const int R, const int N) {
    enum { F = HALF * 4 / VB_CODES_RUN }; /* factors of half a vector */
    __m256i sum[8];
    uint8_t last[4][HALF];
    int64_t b = 0;
    _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) sum[i] = _mm256_setzero_si256();
    for (; b + VECTOR <= bytes; b += VECTOR, x += N * X, factors += N * 2 * F) {
        fetch_panel(w, stride, bytes, b, R, N);
        scaled_step(sum, w + b, stride, x, factors, R, N);
        scaled_step(sum, w + b + HALF, stride, x + HALF, factors + F, R, N);
    }
    if (b + HALF <= bytes) {
        scaled_step(sum, w + b, stride, x, factors, R, N);
        b += HALF, x += HALF, factors += F;
    }
    if (b < bytes) {
        copy_last(last, w + b, stride, bytes - b, R);
        scaled_step(sum, last[0], HALF, x, factors, R, N);
    }
    _Pragma("GCC unroll 2") for (int i = 0; i < R * N; i += 4)
        _mm_storeu_ps(sums + i, reduce_products(sum[i], sum[i + 1], sum[i + 2], sum[i + 3]));
}

/* Adds pairs to sums, and begins them anew. */
VB_TARGET_AVX2 VB_INLINE void widen(__m256i sum[8], __m256i pairs[8], const int n) {
    _Pragma("GCC unroll 8") for (int i = 0; i < n; i++) {
        sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(pairs[i], _mm256_set1_epi16(1)));
        pairs[i] = _mm256_setzero_si256();
    }
}

VB_TARGET_AVX2 VB_INLINE void panel_avx2(int32_t *sums, const uint8_t *w, int64_t stride, int64_t bytes,
                                         const int8_t *x, const int R, const int N) {
    __m256i sum[8], pairs[8];
    uint8_t last[4][HALF];
    int64_t b = 0;
    _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) sum[i] = pairs[i] = _mm256_setzero_si256();
    while (b + VECTOR <= bytes) {
        const int64_t end = vb_min(b + TOGETHER * VECTOR, bytes / VECTOR * VECTOR);
        for (; b < end; b += VECTOR, x += N * X) {
            fetch_panel(w, stride, bytes, b, R, N);
            pairs_step(pairs, w + b, stride, x, R, N);
            pairs_step(pairs, w + b + HALF, stride, x + HALF, R, N);
        }
        widen(sum, pairs, R * N);
    }
    if (b + HALF <= bytes) {
        pairs_step(pairs, w + b, stride, x, R, N);
        b += HALF, x += HALF;
    }
    if (b < bytes) {
        copy_last(last, w + b, stride, bytes - b, R);
        pairs_step(pairs, last[0], HALF, x, R, N);
    }
    widen(sum, pairs, R * N);
    _Pragma("GCC unroll 2") for (int i = 0; i < R * N; i += 4)
        _mm_storeu_si128((__m128i *)(sums + i), reduce_avx2(sum[i], sum[i + 1], sum[i + 2], sum[i + 3]));
}

/* All rows, R at a time: two of few columns, whose rows come from memory, are fetched as one stream (fetch_ahead). */
#define SCALED(R, N) \
    VB_TARGET_AVX2 static void scaled_##N(float *sums, const uint8_t *w, int64_t stride, int64_t bytes, int rows, \
                                          const int8_t *x, const int16_t *factors) { \
        float one[4 + N]; \
        int r = 0; \
        for (; r + R <= rows; r += R) scaled_avx2(sums + r * N, w + r * stride, stride, bytes, x, factors, R, N); \
        for (; R > 1 && r < rows; r++) { \
            scaled_avx2(one, w + r * stride, stride, bytes, x, factors, 1, N); \
            memcpy(sums + r * N, one, sizeof(float) * N); \
        } \
    }
SCALED(1, 8)
SCALED(2, 4)
SCALED(2, 2)
SCALED(4, 1)

#define PANEL(R, N) \
    VB_TARGET_AVX2 static void panel_##N(int32_t *sums, const uint8_t *w, int64_t stride, int64_t bytes, int rows, \
                                         const int8_t *x) { \
        int32_t one[4 + N]; \
        int r = 0; \
        for (; r + R <= rows; r += R) panel_avx2(sums + r * N, w + r * stride, stride, bytes, x, R, N); \
        for (; R > 1 && r < rows; r++) { \
            panel_avx2(one, w + r * stride, stride, bytes, x, 1, N); \
            memcpy(sums + r * N, one, sizeof(int32_t) * N); \
        } \
    }
PANEL(1, 8)
PANEL(2, 4)
PANEL(4, 2)
PANEL(4, 1)

void vb_cpu_code_scaled_panel(float *sums, const uint8_t *w, int64_t stride, int64_t bytes, int rows, const int8_t *x,
                              const int16_t *factors, int n) {
    (n == 8 ? scaled_8 : n == 4 ? scaled_4 : n == 2 ? scaled_2 : scaled_1)(sums, w, stride, bytes, rows, x, factors);
}

void vb_cpu_code_panel(int32_t *sums, const uint8_t *w, int64_t stride, int64_t bytes, int rows, const int8_t *x,
                       int n) {
    (n == 8 ? panel_8 : n == 4 ? panel_4 : n == 2 ? panel_2 : panel_1)(sums, w, stride, bytes, rows, x);
}

/* The sums of four vectors' elements, of 512 bits. */
VB_TARGET_AVX512 VB_INLINE __m128 reduce_products_avx512(__m512i a, __m512i b, __m512i c, __m512i d) {
    const __m512 f[4] = {_mm512_cvtepi32_ps(a), _mm512_cvtepi32_ps(b), _mm512_cvtepi32_ps(c), _mm512_cvtepi32_ps(d)};
    __m256 half[4];
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++) half[i] =
        _mm256_add_ps(_mm512_castps512_ps256(f[i]), _mm512_extractf32x8_ps(f[i], 1));
    const __m256 s = _mm256_hadd_ps(_mm256_hadd_ps(half[0], half[1]), _mm256_hadd_ps(half[2], half[3]));
    return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}

/* Keeps a vector in a register, in place of reading it for each use. */
VB_TARGET_AVX512 VB_INLINE __m512i held(__m512i x) {
    __asm__("" : "+v"(x));
    return x;
}

/* The codes of the four slots of a vector, side by side. */
VB_TARGET_AVX512 VB_INLINE void unpack_avx512(__m512i q[4], __m512i codes) {
    const __m512i mask = _mm512_set1_epi8(3);
    _Pragma("GCC unroll 4") for (int slot = 0; slot < 4; slot++)
        q[slot] = _mm512_and_si512(slot ? _mm512_srli_epi16(codes, 2 * slot) : codes, mask);
}

/* Slots `first` to `end` - 1 of a vector of R rows times one column: each number of 32 bits is the sum of a run, and
 * fits 16 bits. */
VB_TARGET_AVX512 VB_INLINE void runs_avx512(__m512i runs[2], __m512i q[2][4], const int8_t *x, const int first,
                                            const int end, const int R) {
    _Pragma("GCC unroll 2") for (int r = 0; r < R; r++) runs[r] = _mm512_setzero_si512();
    _Pragma("GCC unroll 4") for (int slot = first; slot < end; slot++) {
        const __m512i a = held(_mm512_load_si512(x + slot * VECTOR));
        _Pragma("GCC unroll 2") for (int r = 0; r < R; r++) runs[r] = _mm512_dpbusd_epi32(runs[r], q[r][slot], a);
    }
}

/* Two rows of codes share what is read of x: a core reads half as much as it multiplies. Runs are packed from two
 * registers into one, so that an instruction multiplies both by their factors: long runs of two vectors, others of two
 * pairs of slots. */
VB_TARGET_AVX512 VB_INLINE void products_avx512(float *sums, const uint8_t *w, int64_t stride, int64_t bytes,
                                                const int8_t *x, int64_t row_of_x, const int16_t *factors,
                                                int64_t row_of_factors, const bool LONG, const int R, const int N) {
    const int64_t step = LONG ? 2 * VECTOR : VECTOR, run = LONG ? VB_CODES_LONG_RUN : VB_CODES_RUN;
    __m512i sum[8];
    _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) sum[i] = _mm512_setzero_si512();
    for (int64_t b = 0; b < bytes; b += step) {
        const bool both = LONG && b + VECTOR < bytes;
        __m512i codes[4], q[2][2][4];
        load_codes(codes, w, stride, bytes, b, R);
        _Pragma("GCC unroll 2") for (int r = 0; r < R; r++) unpack_avx512(q[0][r], codes[r]);
        if (both) {
            load_codes(codes, w, stride, bytes, b + VECTOR, R);
            _Pragma("GCC unroll 2") for (int r = 0; r < R; r++) unpack_avx512(q[1][r], codes[r]);
        }
        _Pragma("GCC unroll 4") for (int i = 0; i < N; i++) {
            __m512i runs[2][2];
            runs_avx512(runs[0], q[0], x + i * row_of_x + 4 * b, 0, LONG ? 4 : 2, R);
            if (!LONG)
                runs_avx512(runs[1], q[0], x + i * row_of_x + 4 * b, 2, 4, R);
            else if (both)
                runs_avx512(runs[1], q[1], x + i * row_of_x + 4 * b + X, 0, 4, R);
            else
                _Pragma("GCC unroll 2") for (int r = 0; r < R; r++) runs[1][r] = _mm512_setzero_si512();
            const __m512i f = _mm512_loadu_si512(factors + i * row_of_factors + 4 * b / run);
            _Pragma("GCC unroll 2") for (int r = 0; r < R; r++) {
                const __m512i packed = _mm512_packs_epi32(runs[0][r], runs[1][r]);
                sum[r * N + i] = held(_mm512_dpwssd_epi32(sum[r * N + i], packed, f));
            }
        }
    }
    _Pragma("GCC unroll 2") for (int i = 0; i < R * N; i += 4)
        _mm_storeu_ps(sums + i, reduce_products_avx512(sum[i], sum[i + 1], sum[i + 2], sum[i + 3]));
}

#define PRODUCTS(N, LONG) \
    VB_TARGET_AVX512 static void products_##N##_##LONG(float *sums, const uint8_t *w, int64_t stride, int64_t bytes, \
                                                       int rows, const int8_t *x, int64_t row_of_x, \
                                                       const int16_t *factors, int64_t row_of_factors) { \
        int r = 0; \
        for (; r + 2 <= rows; r += 2) \
            products_avx512(sums + r * N, w + r * stride, stride, bytes, x, row_of_x, factors, row_of_factors, LONG, \
                            2, N); \
        if (r < rows) \
            products_avx512(sums + r * N, w + r * stride, stride, bytes, x, row_of_x, factors, row_of_factors, LONG, \
                            1, N); \
    }
PRODUCTS(1, 0)
PRODUCTS(2, 0)
PRODUCTS(3, 0)
PRODUCTS(4, 0)
PRODUCTS(1, 1)
PRODUCTS(2, 1)
PRODUCTS(3, 1)
PRODUCTS(4, 1)

void vb_cpu_code_products(float *sums, const uint8_t *w, int64_t stride, int64_t bytes, int rows, const int8_t *x,
                          int64_t row_of_x, const int16_t *factors, int64_t row_of_factors, bool long_runs, int n) {
    typedef void products(float *, const uint8_t *, int64_t, int64_t, int, const int8_t *, int64_t, const int16_t *,
                          int64_t);
    static products *const all[2][VB_CODES_LONG_N] = {{products_1_0, products_2_0, products_3_0, products_4_0},
                                                      {products_1_1, products_2_1, products_3_1, products_4_1}};
    all[long_runs][n - 1](sums, w, stride, bytes, rows, x, row_of_x, factors, row_of_factors);
}

/* The sums of four vectors' elements, of 512 bits. */
VB_TARGET_AVX512 VB_INLINE __m128i reduce_avx512(__m512i a, __m512i b, __m512i c, __m512i d) {
    const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    const __m512i all = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

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
TILE(1, 4)
TILE(4, 1)
TILE(4, 2)
TILE(4, 4)

typedef void (*tile_function)(sums_row *sums, const uint8_t *w, int64_t stride, int64_t bytes, const int8_t *x);
/* How many rows of codes meet n rows of activations at a time, and how a single one does. */
typedef struct tile {
    int n, rows;
    tile_function several, one;
} tile;
static const tile sum_tiles[] = {{4, 4, tile_4_4, tile_1_4}, {2, 4, tile_4_2, tile_1_2},
                                    {1, 4, tile_4_1, tile_1_1}};

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

/* ---- one row of activations -------------------------------------------------------------------------------------- */

#if VB_X86
/* Rows of up to SHORT bytes are taken in pairs or fours. Longer ones come one by one. What comes next AMD's processors
 * fetch best by themselves, and Intel's where it is asked for (docs/experiments/2026-11-28-ternary-packed.md). */
enum { PAIR = 2, FOUR = 4 };

VB_TARGET_AVX2 VB_INLINE void fetch_line(const uint8_t *w, int64_t bytes, int64_t b, bool asked, const int R) {
    if (R > 1)
        fetch_ahead(w, bytes, b, R);
    else if (asked)
        _mm_prefetch((const char *)w + b + AHEAD, _MM_HINT_T0);
}

/* The codes of half a vector from byte b of a row on, 0 behind its end. */
VB_TARGET_AVX2 VB_INLINE __m256i half_avx2(const uint8_t *w, int64_t bytes, int64_t b) {
    uint8_t last[HALF] = {0};
    if (bytes - b >= HALF) return _mm256_loadu_si256((const __m256i *)(w + b));
    return _mm256_loadu_si256(memcpy(last, w + b, (size_t)(bytes - b)));
}

/* Four times products_of_half: the second and fourth code of a byte stay in place, which saves a shift. */
VB_TARGET_AVX2 VB_INLINE __m256i fourfold_of_half(__m256i codes, const int8_t *x) {
    const __m256i *const a = (const __m256i *)x;
    const __m256i lower = _mm256_set1_epi8(3), upper = _mm256_set1_epi8(12), high = _mm256_srli_epi16(codes, 4);
    const __m256i once = _mm256_add_epi16(_mm256_maddubs_epi16(_mm256_and_si256(codes, lower), a[0]),
                                          _mm256_maddubs_epi16(_mm256_and_si256(high, lower), a[4]));
    const __m256i fourfold = _mm256_add_epi16(_mm256_maddubs_epi16(_mm256_and_si256(codes, upper), a[2]),
                                              _mm256_maddubs_epi16(_mm256_and_si256(high, upper), a[6]));
    return _mm256_add_epi16(_mm256_slli_epi16(once, 2), fourfold);
}

/* sums of R rows. */
VB_TARGET_AVX2 VB_INLINE void line_avx2(__m256i *sums, const uint8_t *w, int64_t stride, int64_t bytes,
                                        const int8_t *x, const int R) {
    const __m256i ones = _mm256_set1_epi16(1);
    const bool asked = __builtin_cpu_is("intel");
    const int64_t whole = bytes / VECTOR * VECTOR;
    _Pragma("GCC unroll 4") for (int r = 0; r < R; r++) sums[r] = _mm256_setzero_si256();
    int64_t b = 0;
    for (; b < whole; b += VECTOR) {
        fetch_line(w, bytes, b, asked, R);
        _Pragma("GCC unroll 4") for (int r = 0; r < R; r++) {
            const __m256i *const codes = (const __m256i *)(w + r * stride + b);
            __m256i q[2][4];
            unpack_avx2(q[0], _mm256_loadu_si256(codes));
            unpack_avx2(q[1], _mm256_loadu_si256(codes + 1));
            const __m256i pairs = _mm256_add_epi16(products_of_half(q[0], x + 4 * b),
                                                   products_of_half(q[1], x + 4 * b + HALF));
            sums[r] = in_order(_mm256_add_epi32(sums[r], _mm256_madd_epi16(pairs, ones)));
        }
    }
    for (; b < bytes; b += HALF)
        _Pragma("GCC unroll 4") for (int r = 0; r < R; r++) {
            __m256i q[4];
            unpack_avx2(q, half_avx2(w + r * stride, bytes, b));
            const __m256i pairs = products_of_half(q, x + 4 * whole + (b - whole));
            sums[r] = _mm256_add_epi32(sums[r], _mm256_madd_epi16(pairs, ones));
        }
}

/* The same with factors, times four: 16 vectors fit int32. */
VB_TARGET_AVX2 VB_INLINE void scaled_line_avx2(__m256 *sums, const uint8_t *w, int64_t stride, int64_t bytes,
                                               const int8_t *x, const int16_t *factors, const int R) {
    enum { PIECE = VB_CODES_PIECE / 2 };
    const bool asked = __builtin_cpu_is("intel");
    const int64_t whole = bytes / VECTOR * VECTOR;
    const __m256i zero = _mm256_setzero_si256();
    __m256i sum[FOUR] = {zero, zero, zero, zero};
    _Pragma("GCC unroll 4") for (int r = 0; r < R; r++) sums[r] = _mm256_setzero_ps();
    int64_t b = 0;
    while (b < whole) {
        const int64_t end = vb_min(b + PIECE, whole);
        for (; b < end; b += VECTOR) {
            fetch_line(w, bytes, b, asked, R);
            _Pragma("GCC unroll 2") for (int half = 0; half < VECTOR; half += HALF) {
                const __m256i f = _mm256_loadu_si256((const __m256i *)(factors + (b + half) / 2));
                _Pragma("GCC unroll 4") for (int r = 0; r < R; r++) {
                    const __m256i codes = _mm256_loadu_si256((const __m256i *)(w + r * stride + b + half));
                    const __m256i run = fourfold_of_half(codes, x + 4 * b + half);
                    sum[r] = in_order(_mm256_add_epi32(sum[r], _mm256_madd_epi16(run, f)));
                }
            }
        }
        if (b == whole && b < bytes && whole % PIECE) break; /* the rest fits, too */
        _Pragma("GCC unroll 4") for (int r = 0; r < R; r++) {
            sums[r] = _mm256_add_ps(sums[r], _mm256_cvtepi32_ps(sum[r]));
            sum[r] = zero;
        }
    }
    for (; b < bytes; b += HALF) {
        const __m256i f = _mm256_loadu_si256((const __m256i *)(factors + b / 2));
        _Pragma("GCC unroll 4") for (int r = 0; r < R; r++) {
            const __m256i run = fourfold_of_half(half_avx2(w + r * stride, bytes, b), x + 4 * whole + (b - whole));
            sum[r] = _mm256_add_epi32(sum[r], _mm256_madd_epi16(run, f));
        }
    }
    _Pragma("GCC unroll 4") for (int r = 0; r < R; r++)
        sums[r] = _mm256_mul_ps(_mm256_add_ps(sums[r], _mm256_cvtepi32_ps(sum[r])), _mm256_set1_ps(0.25f));
}

VB_TARGET_AVX2 static void lines_avx2(int32_t *sums, const uint8_t *w, int64_t stride, int64_t bytes, int rows,
                                      const int8_t *x) {
    for (int r = 0; r < rows; r += FOUR, w += FOUR * stride) {
        __m256i sum[FOUR];
        int32_t all[FOUR];
        for (int i = 0; i < FOUR; i++) sum[i] = _mm256_setzero_si256();
        if (r + FOUR <= rows && bytes <= SHORT)
            for (int i = 0; i < FOUR; i += PAIR) line_avx2(sum + i, w + i * stride, stride, bytes, x, PAIR);
        else
            for (int i = 0; i < FOUR && r + i < rows; i++) line_avx2(sum + i, w + i * stride, stride, bytes, x, 1);
        _mm_storeu_si128((__m128i *)all, reduce_avx2(sum[0], sum[1], sum[2], sum[3]));
        memcpy(sums + r, all, (size_t)vb_min(FOUR, rows - r) * 4);
    }
}

void VB_TARGET_AVX2 vb_cpu_code_scaled_lines(float *sums, const uint8_t *w, int64_t stride, int64_t bytes, int rows,
                                             const int8_t *x, const int16_t *factors) {
    for (int r = 0; r < rows; r += FOUR, w += FOUR * stride) {
        __m256 sum[FOUR];
        float all[FOUR];
        for (int i = 0; i < FOUR; i++) sum[i] = _mm256_setzero_ps();
        if (r + FOUR <= rows && bytes <= SHORT)
            scaled_line_avx2(sum, w, stride, bytes, x, factors, FOUR);
        else
            for (int i = 0; i < FOUR && r + i < rows; i++)
                scaled_line_avx2(sum + i, w + i * stride, stride, bytes, x, factors, 1);
        const __m256 s = _mm256_hadd_ps(_mm256_hadd_ps(sum[0], sum[1]), _mm256_hadd_ps(sum[2], sum[3]));
        _mm_storeu_ps(all, _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1)));
        memcpy(sums + r, all, (size_t)vb_min(FOUR, rows - r) * 4);
    }
}

/* Short rows of whole vectors. The codes of a slot stay in place, and its sum is divided by that place at the end. */
VB_TARGET_AVX512 VB_INLINE __m512i line_avx512(const uint8_t *w, int64_t bytes, const int8_t *x) {
    const __m512i zero = _mm512_setzero_si512();
    __m512i sum[4] = {zero, zero, zero, zero};
    for (int64_t b = 0; b < bytes; b += VECTOR)
        _Pragma("GCC unroll 4") for (int slot = 0; slot < 4; slot++) {
            const __m512i codes = _mm512_loadu_si512(w + b), mask = _mm512_set1_epi8((char)(3 << 2 * slot));
            sum[slot] = _mm512_dpbusd_epi32(sum[slot], _mm512_and_si512(codes, mask),
                                            _mm512_load_si512(x + 4 * b + slot * VECTOR));
        }
    _Pragma("GCC unroll 4") for (int slot = 1; slot < 4; slot++)
        sum[0] = _mm512_add_epi32(sum[0], _mm512_srai_epi32(sum[slot], 2 * slot));
    return sum[0];
}

VB_TARGET_AVX512 static void lines_avx512(int32_t *sums, const uint8_t *w, int64_t stride, int64_t bytes, int rows,
                                          const int8_t *x) {
    for (int r = 0; r < rows; r += FOUR) {
        __m512i sum[FOUR];
        int32_t all[FOUR];
        _Pragma("GCC unroll 4") for (int i = 0; i < FOUR; i++)
            sum[i] = r + i < rows ? line_avx512(w + (r + i) * stride, bytes, x) : _mm512_setzero_si512();
        _mm_storeu_si128((__m128i *)all, reduce_avx512(sum[0], sum[1], sum[2], sum[3]));
        memcpy(sums + r, all, (size_t)vb_min(FOUR, rows - r) * 4);
    }
}
#endif

void vb_cpu_code_lines(int32_t *sums, const uint8_t *w, int64_t stride, int64_t bytes, int rows, const int8_t *x,
                       vb_simd simd) {
#if VB_X86
    if (simd != VB_SIMD_PLAIN) {
        const bool whole = ((uintptr_t)w | (uintptr_t)stride | (uintptr_t)bytes) % VECTOR == 0 && bytes <= SHORT;
        (simd == VB_SIMD_AVX512 && whole ? lines_avx512 : lines_avx2)(sums, w, stride, bytes, rows, x);
        return;
    }
#endif
    (void)simd;
    for (int r = 0; r < rows; r++) {
        int32_t sum[1][VB_CODES_TILE];
        sums_plain(sum, w + r * stride, stride, bytes, 1, x, 1);
        sums[r] = sum[0][0];
    }
}

/* ---- tiles of int8 ----------------------------------------------------------------------------------------------- */

void vb_codes_to_tiles(int8_t *to, const int8_t *x, int64_t row_of_x, int n) {
    enum { SIDE = VB_CODES_TILE_SIZE };
    for (int64_t at = 0; at < row_of_x; at += VECTOR, to += SIDE * VECTOR)
        for (int quad = 0; quad < SIDE; quad++)
            for (int i = 0; i < SIDE; i++)
                if (i < n)
                    memcpy(to + (quad * SIDE + i) * 4, x + i * row_of_x + at + 4 * quad, 4);
                else
                    memset(to + (quad * SIDE + i) * 4, 0, 4);
}

#ifdef VB_AMX
/* Tiles 0 to 3 are sums, 4 codes, 5 and 6 activations. The codes of the next vector are unpacked while the tiles of
 * this one are multiplied. */
VB_TARGET_AMX void vb_cpu_code_tiles(int32_t sums[VB_CODES_TILE_SIZE][VB_CODES_MOST], const uint8_t *w, int64_t stride,
                                     int64_t bytes, int rows, const int8_t *tiles, int n) {
    enum { SIDE = VB_CODES_TILE_SIZE, TILE = SIDE * VECTOR };
    static const struct {
        uint8_t palette, start, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } shape = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16}};
    uint8_t codes[2][4][TILE] __attribute__((aligned(64)));
    const __m512i mask = _mm512_set1_epi8(3);
    const int64_t vectors = vb_codes_vectors(bytes), block = vectors * 4 * TILE;
    const int blocks = (int)(vb_codes_whole(n) / SIDE);
    _tile_loadconfig(&shape);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (rows < SIDE) memset(codes, 0, sizeof codes);
    for (int64_t v = -1; v < vectors; v++) {
        if (v + 1 < vectors) {
            const int64_t b = (v + 1) * VECTOR;
            const __mmask64 live = bytes - b >= VECTOR ? ~0ull : (1ull << (bytes - b)) - 1;
            uint8_t(*to)[TILE] = codes[(v + 1) & 1];
            for (int r = 0; r < rows; r++) {
                const __m512i c = _mm512_maskz_loadu_epi8(live, w + r * stride + b);
                _mm_prefetch((const char *)w + AHEAD_LONG + SIDE * b + r * VECTOR, _MM_HINT_T1);
                _mm512_store_si512(to[0] + r * VECTOR, _mm512_and_si512(c, mask));
                _mm512_store_si512(to[1] + r * VECTOR, _mm512_and_si512(_mm512_srli_epi16(c, 2), mask));
                _mm512_store_si512(to[2] + r * VECTOR, _mm512_and_si512(_mm512_srli_epi16(c, 4), mask));
                _mm512_store_si512(to[3] + r * VECTOR, _mm512_and_si512(_mm512_srli_epi16(c, 6), mask));
            }
        }
        if (v < 0) continue;
        for (int slot = 0; slot < 4; slot++) {
            const int8_t *x = tiles + (v * 4 + slot) * TILE;
            _tile_loadd(4, codes[v & 1][slot], VECTOR);
            _tile_loadd(5, x, VECTOR);
            _tile_dpbusd(0, 4, 5);
            if (blocks < 2) continue;
            _tile_loadd(6, x + block, VECTOR);
            _tile_dpbusd(1, 4, 6);
            if (blocks < 3) continue;
            _tile_loadd(5, x + 2 * block, VECTOR);
            _tile_dpbusd(2, 4, 5);
            if (blocks < 4) continue;
            _tile_loadd(6, x + 3 * block, VECTOR);
            _tile_dpbusd(3, 4, 6);
        }
    }
    _tile_stored(0, sums[0], sizeof sums[0]);
    if (blocks > 1) _tile_stored(1, sums[0] + SIDE, sizeof sums[0]);
    if (blocks > 2) _tile_stored(2, sums[0] + 2 * SIDE, sizeof sums[0]);
    if (blocks > 3) _tile_stored(3, sums[0] + 3 * SIDE, sizeof sums[0]);
    _tile_release();
}
#else
void vb_cpu_code_tiles(int32_t sums[VB_CODES_TILE_SIZE][VB_CODES_MOST], const uint8_t *w, int64_t stride, int64_t bytes,
                       int rows, const int8_t *tiles, int n) { /* no device has tiles */
    (void)sums, (void)w, (void)stride, (void)bytes, (void)rows, (void)tiles, (void)n;
}
#endif
