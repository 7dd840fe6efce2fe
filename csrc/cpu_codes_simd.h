/* cpu_codes_simd.h: what the kernels of cpu_codes.h share: how far they fetch ahead, how codes are unpacked, and how
 * the elements of four vectors are added up. */
#ifndef VB_CPU_CODES_SIMD_H
#define VB_CPU_CODES_SIMD_H

#include "cpu_codes.h"

#if VB_X86
#include <immintrin.h>
#endif

/* How far ahead: of rows of up to VB_CODES_SHORT bytes, four of which lie within that distance, and of longer ones. */
enum { VECTOR = VB_CODES_VECTOR, HALF = VECTOR / 2, X = VB_CODES_X };
enum { SHORT = VB_CODES_SHORT, AHEAD = 4 << 10, AHEAD_LONG = 16 << 10 };

#if VB_X86
/* Fetches the lines to come, in the order of memory, while R rows of codes are at byte b. */
VB_TARGET_AVX2 VB_INLINE void fetch_ahead(const uint8_t *w, int64_t bytes, int64_t b, const int R) {
    const char *const at = (const char *)w + R * b;
    if (bytes <= SHORT)
        _Pragma("GCC unroll 4") for (int r = 0; r < R; r++) _mm_prefetch(at + AHEAD + r * VECTOR, _MM_HINT_T0);
    else
        _Pragma("GCC unroll 4") for (int r = 0; r < R; r++)
            _mm_prefetch(at + vb_max(AHEAD_LONG, R * bytes) + r * VECTOR, _MM_HINT_T1);
}

/* The same of a piece of rows, which lie `stride` bytes apart: of longer rows the same piece of later ones. */
VB_TARGET_AVX2 VB_INLINE void fetch_piece(const uint8_t *w, int64_t stride, int64_t bytes, int64_t b, const int R) {
    if (bytes == stride || stride <= SHORT) {
        fetch_ahead(w, bytes, b, R);
        return;
    }
    const int64_t later = (AHEAD_LONG / (VB_CODES_ROWS * stride) + 1) * VB_CODES_ROWS * stride;
    _Pragma("GCC unroll 4") for (int r = 0; r < R; r++)
        _mm_prefetch((const char *)w + r * stride + b + later, _MM_HINT_T1);
}

/* The sums of four vectors' elements. */
VB_TARGET_AVX2 VB_INLINE __m128i reduce_avx2(__m256i a, __m256i b, __m256i c, __m256i d) {
    const __m256i s = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
    return _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
}

/* Keeps a vector in a register, in place of reading it for each use. */
VB_TARGET_AVX512 VB_INLINE __m512i held(__m512i x) {
    __asm__("" : "+v"(x));
    return x;
}

/* Keeps the compiler from adding up in another order, for which it has too few registers. */
VB_TARGET_AVX2 VB_INLINE __m256i in_order(__m256i x) {
    __asm__("" : "+x"(x));
    return x;
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

/* R rows of codes from byte b on, 0 behind the end of a row. */
VB_TARGET_AVX512 VB_INLINE void load_codes(__m512i codes[4], const uint8_t *w, int64_t stride, int64_t bytes, int64_t b,
                                           const int R) {
    const __mmask64 live = bytes - b >= VECTOR ? ~0ull : (1ull << (bytes - b)) - 1;
    _Pragma("GCC unroll 4") for (int r = 0; r < R; r++)
        codes[r] = _mm512_maskz_loadu_epi8(live, w + r * stride + b);
    fetch_piece(w, stride, bytes, b, R);
}

/* The sums of four vectors' elements, of 512 bits. */
VB_TARGET_AVX512 VB_INLINE __m128i reduce_avx512(__m512i a, __m512i b, __m512i c, __m512i d) {
    const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    const __m512i all = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}
#endif

#endif
