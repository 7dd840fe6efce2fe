/* cpu_codes_lines.c: two-bit codes by a single row of activations, exactly and with factors (cpu_codes.h). It is as
 * fast as memory (docs/experiments/2026-11-28-ternary-streams.md). Rows of up to SHORT bytes are taken in pairs or
 * fours, which are fetched into the first cache. With AVX-512 four longer rows share what is read of x, and are fetched
 * into the second cache, further ahead (docs/experiments/2026-11-29-ternary-cpu.md). With AVX2 these come one by one:
 * what comes next AMD's processors fetch best by themselves, and Intel's where it is asked for. */
#include "cpu_codes_simd.h"

#if VB_X86
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

/* A vector of codes, 0 behind the end of a row. */
VB_TARGET_AVX512 VB_INLINE __m512i vector_avx512(const uint8_t *w, int64_t left) {
    return left >= VECTOR ? _mm512_loadu_si512(w) : _mm512_maskz_loadu_epi8((1ull << left) - 1, w);
}

/* A vector of codes of R rows, of which so many bytes are left. */
VB_TARGET_AVX512 VB_INLINE void line_step_avx512(__m512i sum[4][FOUR], const uint8_t *w, int64_t stride, int64_t left,
                                                 const int8_t *x, const int R) {
    _Pragma("GCC unroll 4") for (int slot = 0; slot < 4; slot++) {
        const __m512i mask = _mm512_set1_epi8((char)(3 << 2 * slot)), a = _mm512_load_si512(x + slot * VECTOR);
        _Pragma("GCC unroll 4") for (int r = 0; r < R; r++) {
            const __m512i codes = vector_avx512(w + r * stride, left);
            sum[slot][r] = _mm512_dpbusd_epi32(sum[slot][r], _mm512_and_si512(codes, mask), a);
        }
    }
}

/* R rows. The codes of a slot stay in place, and its sum is divided by that place at the end. */
VB_TARGET_AVX512 VB_INLINE void line_avx512(__m512i *sums, const uint8_t *w, int64_t stride, int64_t bytes,
                                            const int8_t *x, const int R) {
    __m512i sum[4][FOUR];
    _Pragma("GCC unroll 4") for (int slot = 0; slot < 4; slot++)
        _Pragma("GCC unroll 4") for (int r = 0; r < R; r++) sum[slot][r] = _mm512_setzero_si512();
    int64_t b = 0;
    for (; b + VECTOR <= bytes; b += VECTOR) {
        if (R > 1) fetch_ahead(w, bytes, b, R);
        line_step_avx512(sum, w + b, stride, VECTOR, x + 4 * b, R);
    }
    if (b < bytes) line_step_avx512(sum, w + b, stride, bytes - b, x + 4 * b, R);
    _Pragma("GCC unroll 4") for (int r = 0; r < R; r++) {
        sums[r] = sum[0][r];
        _Pragma("GCC unroll 4") for (int slot = 1; slot < 4; slot++)
            sums[r] = _mm512_add_epi32(sums[r], _mm512_srai_epi32(sum[slot][r], 2 * slot));
    }
}

VB_TARGET_AVX512 static void lines_avx512(int32_t *sums, const uint8_t *w, int64_t stride, int64_t bytes, int rows,
                                          const int8_t *x) {
    for (int r = 0; r < rows; r += FOUR, w += FOUR * stride) {
        __m512i sum[FOUR];
        int32_t all[FOUR];
        for (int i = 0; i < FOUR; i++) sum[i] = _mm512_setzero_si512();
        if (r + FOUR <= rows && bytes > SHORT)
            line_avx512(sum, w, stride, bytes, x, FOUR);
        else
            for (int i = 0; i < FOUR && r + i < rows; i++) line_avx512(sum + i, w + i * stride, stride, bytes, x, 1);
        _mm_storeu_si128((__m128i *)all, reduce_avx512(sum[0], sum[1], sum[2], sum[3]));
        memcpy(sums + r, all, (size_t)vb_min(FOUR, rows - r) * 4);
    }
}

/* R rows with factors, times four: codes of odd elements stay in place, and factors of even ones are four times
 * themselves. A run has even or odd elements; 16 vectors fit int32. */
VB_TARGET_AVX512 VB_INLINE void scaled_line_avx512(__m512 *sums, const uint8_t *w, int64_t stride, int64_t bytes,
                                                   const int8_t *x, const int16_t *factors, const int R) {
    enum { PIECE = VB_CODES_PIECE / 2 };
    const __m512i even = held(_mm512_set1_epi8(3)), odd = held(_mm512_set1_epi8(12)), zero = _mm512_setzero_si512();
    for (int64_t b = 0; b < bytes;) {
        const int64_t end = vb_min(b + PIECE, bytes);
        __m512i sum[FOUR] = {zero, zero, zero, zero};
        for (; b < end; b += VECTOR) {
            const __m512i *const a = (const __m512i *)(x + 4 * b);
            const __m512i a0 = held(a[0]), a1 = held(a[1]), a2 = held(a[2]), a3 = held(a[3]);
            const __m512i f = held(_mm512_loadu_si512(factors + b / 2));
            if (R > 1) fetch_ahead(w, bytes, b, R);
            _Pragma("GCC unroll 4") for (int r = 0; r < R; r++) {
                const __m512i low = vector_avx512(w + r * stride + b, bytes - b), high = _mm512_srli_epi16(low, 4);
                const __m512i once = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(zero, _mm512_and_si512(low, even), a0),
                                                         _mm512_and_si512(high, even), a2);
                const __m512i fourfold = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(zero, _mm512_and_si512(low, odd), a1),
                                                             _mm512_and_si512(high, odd), a3);
                sum[r] = held(_mm512_dpwssd_epi32(sum[r], _mm512_packs_epi32(once, fourfold), f));
            }
        }
        _Pragma("GCC unroll 4") for (int r = 0; r < R; r++)
            sums[r] = _mm512_add_ps(sums[r], _mm512_cvtepi32_ps(sum[r]));
    }
}

void VB_TARGET_AVX512 vb_cpu_code_even_odd_lines(float *sums, const uint8_t *w, int64_t stride, int64_t bytes, int rows,
                                                 const int8_t *x, const int16_t *factors) {
    for (int r = 0; r < rows; r += FOUR, w += FOUR * stride) {
        __m512 sum[FOUR];
        __m256 half[FOUR];
        float all[FOUR];
        for (int i = 0; i < FOUR; i++) sum[i] = _mm512_setzero_ps();
        if (r + FOUR <= rows)
            scaled_line_avx512(sum, w, stride, bytes, x, factors, FOUR);
        else
            for (int i = 0; r + i < rows; i++)
                scaled_line_avx512(sum + i, w + i * stride, stride, bytes, x, factors, 1);
        for (int i = 0; i < FOUR; i++)
            half[i] = _mm256_add_ps(_mm512_castps512_ps256(sum[i]), _mm512_extractf32x8_ps(sum[i], 1));
        const __m256 s = _mm256_hadd_ps(_mm256_hadd_ps(half[0], half[1]), _mm256_hadd_ps(half[2], half[3]));
        const __m128 total = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
        _mm_storeu_ps(all, _mm_mul_ps(total, _mm_set1_ps(0.25f)));
        memcpy(sums + r, all, (size_t)vb_min(FOUR, rows - r) * 4);
    }
}
#endif

void vb_cpu_code_lines(int32_t *sums, const uint8_t *w, int64_t stride, int64_t bytes, int rows, const int8_t *x,
                       vb_simd simd) {
#if VB_X86
    if (simd != VB_SIMD_PLAIN) {
        const bool whole = ((uintptr_t)w | (uintptr_t)stride | (uintptr_t)bytes) % VECTOR == 0;
        const bool by_avx512 = simd == VB_SIMD_AVX512 && (whole || bytes > SHORT);
        (by_avx512 ? lines_avx512 : lines_avx2)(sums, w, stride, bytes, rows, x);
        return;
    }
#endif
    (void)simd;
    for (int r = 0; r < rows; r++) {
        int32_t sum[VB_CODES_ROWS][VB_CODES_TILE];
        vb_cpu_code_sums(sum, w + r * stride, stride, bytes, 1, x, 1, VB_SIMD_PLAIN);
        sums[r] = sum[0][0];
    }
}
