/* cpu_codes_products.c: two-bit codes by up to four rows of activations with a factor for each run of them, with
 * AVX-512 (cpu_codes.h). */
#include "cpu_codes_simd.h"

#if VB_X86
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
#endif
