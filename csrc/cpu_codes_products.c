/* cpu_codes_products.c: two-bit codes by up to four rows of activations with a factor for each run of them, with
 * AVX-512 (cpu_codes.h).
 *
 * Rows of codes share what is read of x: a core reads half as much as it multiplies. Sums of runs of two registers are
 * packed into one, so that an instruction multiplies both by their factors: long runs of two rows, whose factors are
 * there twice, others of even and odd elements. */
#include "cpu_codes_simd.h"

#if VB_X86
/* The codes of the four slots of a vector of R rows, side by side. */
VB_TARGET_AVX512 VB_INLINE void unpack_avx512(__m512i q[][4], const uint8_t *w, int64_t stride, int64_t bytes,
                                              int64_t b, const int R) {
    const __m512i mask = held(_mm512_set1_epi8(3));
    __m512i codes[4];
    load_codes(codes, w, stride, bytes, b, R);
    _Pragma("GCC unroll 4") for (int r = 0; r < R; r++)
        _Pragma("GCC unroll 4") for (int slot = 0; slot < 4; slot++)
            q[r][slot] = held(_mm512_and_si512(slot ? _mm512_srli_epi16(codes[r], 2 * slot) : codes[r], mask));
}

/* Slots `first`, `first` + `step` ... of a vector of R rows times one column: each number of 32 bits is the sum of a
 * run, and fits 16 bits. */
VB_TARGET_AVX512 VB_INLINE void runs_avx512(__m512i runs[4], __m512i q[][4], const int8_t *x, const int first,
                                            const int step, const int R) {
    _Pragma("GCC unroll 4") for (int r = 0; r < R; r++) runs[r] = _mm512_setzero_si512();
    _Pragma("GCC unroll 4") for (int slot = first; slot < 4; slot += step) {
        const __m512i a = held(_mm512_load_si512(x + slot * VECTOR));
        _Pragma("GCC unroll 4") for (int r = 0; r < R; r++) runs[r] = _mm512_dpbusd_epi32(runs[r], q[r][slot], a);
    }
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

/* The sums of two rows in a, and in b: pairs of numbers alternate. */
VB_TARGET_AVX512 VB_INLINE __m128 reduce_rows_avx512(__m512i a, __m512i b) {
    const __m512 f[2] = {_mm512_cvtepi32_ps(a), _mm512_cvtepi32_ps(b)};
    __m256 half[2];
    _Pragma("GCC unroll 2") for (int i = 0; i < 2; i++) half[i] =
        _mm256_add_ps(_mm512_castps512_ps256(f[i]), _mm512_extractf32x8_ps(f[i], 1));
    const __m256 s = _mm256_hadd_ps(half[0], half[1]);
    return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}

/* Long runs of P pairs of rows. */
VB_TARGET_AVX512 VB_INLINE void long_products_avx512(float *sums, const uint8_t *w, int64_t stride, int64_t bytes,
                                                     const int8_t *x, int64_t row_of_x, const int16_t *factors,
                                                     int64_t row_of_factors, const int P, const int N) {
    __m512i sum[8];
    _Pragma("GCC unroll 8") for (int i = 0; i < P * N; i++) sum[i] = _mm512_setzero_si512();
    for (int64_t b = 0; b < bytes; b += VECTOR) {
        __m512i q[4][4];
        unpack_avx512(q, w, stride, bytes, b, 2 * P);
        _Pragma("GCC unroll 4") for (int i = 0; i < N; i++) {
            __m512i runs[4];
            runs_avx512(runs, q, x + i * row_of_x + 4 * b, 0, 1, 2 * P);
            const __m512i f = _mm512_loadu_si512(factors + i * row_of_factors + b / 2);
            _Pragma("GCC unroll 2") for (int p = 0; p < P; p++) {
                const __m512i packed = _mm512_packs_epi32(runs[2 * p], runs[2 * p + 1]);
                sum[p * N + i] = held(_mm512_dpwssd_epi32(sum[p * N + i], packed, f));
            }
        }
    }
    _Pragma("GCC unroll 2") for (int p = 0; p < P; p++) {
        __m128 both[2]; /* of two columns each */
        _Pragma("GCC unroll 2") for (int i = 0; i < N; i += 2) both[i / 2] =
            reduce_rows_avx512(sum[p * N + i], sum[p * N + vb_min(i + 1, N - 1)]);
        /* two numbers are written, of which the second may be the next row's */
        _Pragma("GCC unroll 2") for (int r = 0; r < 2; r++)
            _Pragma("GCC unroll 2") for (int i = 0; i < N; i += 2) {
                const __m128 a = both[i / 2], row = r ? _mm_shuffle_ps(a, a, 0x0d) : _mm_shuffle_ps(a, a, 0x08);
                _mm_storel_pi((__m64 *)(sums + (2 * p + r) * N + i), row);
            }
    }
}

/* Runs of eight of R rows. */
VB_TARGET_AVX512 VB_INLINE void products_avx512(float *sums, const uint8_t *w, int64_t stride, int64_t bytes,
                                                const int8_t *x, int64_t row_of_x, const int16_t *factors,
                                                int64_t row_of_factors, const int R, const int N) {
    __m512i sum[8];
    _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) sum[i] = _mm512_setzero_si512();
    for (int64_t b = 0; b < bytes; b += VECTOR) {
        __m512i q[2][4];
        unpack_avx512(q, w, stride, bytes, b, R);
        _Pragma("GCC unroll 4") for (int i = 0; i < N; i++) {
            __m512i even[4], odd[4];
            runs_avx512(even, q, x + i * row_of_x + 4 * b, 0, 2, R);
            runs_avx512(odd, q, x + i * row_of_x + 4 * b, 1, 2, R);
            const __m512i f = _mm512_loadu_si512(factors + i * row_of_factors + b / 2);
            _Pragma("GCC unroll 2") for (int r = 0; r < R; r++)
                sum[r * N + i] = held(_mm512_dpwssd_epi32(sum[r * N + i], _mm512_packs_epi32(even[r], odd[r]), f));
        }
    }
    _Pragma("GCC unroll 2") for (int i = 0; i < R * N; i += 4)
        _mm_storeu_ps(sums + i, reduce_products_avx512(sum[i], sum[i + 1], sum[i + 2], sum[i + 3]));
}

/* All rows, of long runs four at a time, then two, of which a last one is both. */
#define PRODUCTS(N) \
    VB_TARGET_AVX512 static void products_##N(float *sums, const uint8_t *w, int64_t stride, int64_t bytes, int rows, \
                                              const int8_t *x, int64_t row_of_x, const int16_t *factors, \
                                              int64_t row_of_factors) { \
        int r = 0; \
        for (; r + 2 <= rows; r += 2) \
            products_avx512(sums + r * N, w + r * stride, stride, bytes, x, row_of_x, factors, row_of_factors, 2, N); \
        if (r < rows) \
            products_avx512(sums + r * N, w + r * stride, stride, bytes, x, row_of_x, factors, row_of_factors, 1, N); \
    } \
    VB_TARGET_AVX512 static void long_products_##N(float *sums, const uint8_t *w, int64_t stride, int64_t bytes, \
                                                   int rows, const int8_t *x, int64_t row_of_x, \
                                                   const int16_t *factors, int64_t row_of_factors) { \
        int r = 0; \
        for (; r + 4 <= rows; r += 4) \
            long_products_avx512(sums + r * N, w + r * stride, stride, bytes, x, row_of_x, factors, row_of_factors, \
                                 2, N); \
        for (; r < rows; r += 2) \
            long_products_avx512(sums + r * N, w + r * stride, r + 1 < rows ? stride : 0, bytes, x, row_of_x, factors, \
                                 row_of_factors, 1, N); \
    }
PRODUCTS(1)
PRODUCTS(2)
PRODUCTS(3)
PRODUCTS(4)

void vb_cpu_code_products(float *sums, const uint8_t *w, int64_t stride, int64_t bytes, int rows, const int8_t *x,
                          int64_t row_of_x, const int16_t *factors, int64_t row_of_factors, bool long_runs, int n) {
    typedef void products(float *, const uint8_t *, int64_t, int64_t, int, const int8_t *, int64_t, const int16_t *,
                          int64_t);
    static products *const all[2][VB_CODES_LONG_N] = {
        {products_1, products_2, products_3, products_4},
        {long_products_1, long_products_2, long_products_3, long_products_4}};
    all[long_runs][n - 1](sums, w, stride, bytes, rows, x, row_of_x, factors, row_of_factors);
}
#endif
