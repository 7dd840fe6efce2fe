/* cpu_codes_panel.c: two-bit codes by groups of 8, 4, 3, 2 or 1 rows of activations whose vectors alternate, with AVX2:
 * exact sums, and sums with a factor for each run of activations (cpu_codes.h). */
#include "cpu_codes_simd.h"

#if VB_X86
/* The sums of four vectors' elements. */
VB_TARGET_AVX2 VB_INLINE __m128 reduce_products(__m256i a, __m256i b, __m256i c, __m256i d) {
    const __m256 s = _mm256_hadd_ps(_mm256_hadd_ps(_mm256_cvtepi32_ps(a), _mm256_cvtepi32_ps(b)),
                                    _mm256_hadd_ps(_mm256_cvtepi32_ps(c), _mm256_cvtepi32_ps(d)));
    return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
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
        fetch_piece(w, stride, bytes, b, R);
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
SCALED(2, 3)
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
PANEL(2, 3)
PANEL(4, 2)
PANEL(4, 1)

void vb_cpu_code_scaled_panel(float *sums, const uint8_t *w, int64_t stride, int64_t bytes, int rows, const int8_t *x,
                              const int16_t *factors, int n) {
    typedef void panel(float *, const uint8_t *, int64_t, int64_t, int, const int8_t *, const int16_t *);
    static panel *const all[] = {scaled_1, scaled_2, scaled_3, scaled_4};
    (n == 8 ? scaled_8 : all[n - 1])(sums, w, stride, bytes, rows, x, factors);
}

void vb_cpu_code_panel(int32_t *sums, const uint8_t *w, int64_t stride, int64_t bytes, int rows, const int8_t *x,
                       int n) {
    typedef void panel(int32_t *, const uint8_t *, int64_t, int64_t, int, const int8_t *);
    static panel *const all[] = {panel_1, panel_2, panel_3, panel_4};
    (n == 8 ? panel_8 : all[n - 1])(sums, w, stride, bytes, rows, x);
}
#endif
