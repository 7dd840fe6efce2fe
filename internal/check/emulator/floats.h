// floats.h: numbers of 16 and 8 bits, and rounding as PTX asks for it.
#ifndef EMULATOR_FLOATS_H
#define EMULATOR_FLOATS_H

#include <cmath>
#include <cstdint>
#include <cstring>
#ifdef __F16C__
#include <immintrin.h>
#endif

namespace emulator {

using Half = _Float16;

template <class To, class From>
inline To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From), "");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

// As an instruction where there is one: gcc makes a call of a conversion that goes on to double.
#ifdef __F16C__
inline float from_half(uint16_t bits) { return _cvtsh_ss(bits); }
#else
inline float from_half(uint16_t bits) { return (float)bits_as<Half>(bits); }
#endif
// `count` of them, a multiple of 8.
inline void from_halves(const uint16_t *bits, float *to, int count) {
#ifdef __F16C__
    for (int i = 0; i < count; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(bits + i))));
#else
    for (int i = 0; i < count; i++) to[i] = from_half(bits[i]);
#endif
}
inline uint16_t to_half(float x) { return x != x ? 0x7fff : bits_as<uint16_t>((Half)x); }
inline float from_bf16(uint16_t bits) { return bits_as<float>((uint32_t)bits << 16); }
inline uint16_t to_bf16(float x) { // to nearest, even
    const uint32_t u = bits_as<uint32_t>(x);
    return (u & 0x7fffffff) > 0x7f800000 ? 0x7fff : (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}
inline float tf32_read(uint32_t bits) { return bits_as<float>(bits & 0xffffe000u); } // as tensor cores do

// A double to a narrower float with `mantissa` bits, exponents from `lowest` (of normal numbers): mode n (nearest
// even), z, m (down), p (up), a (nearest, away from 0). Overflow is left to the caller.
inline double round_bits(double x, int mantissa, int lowest, char mode) {
    if (x == 0 || !std::isfinite(x)) return x;
    int exponent = std::ilogb(x);
    if (exponent < lowest) exponent = lowest;
    const double unit = std::ldexp(1.0, exponent - mantissa), q = x / unit;
    double r = std::floor(q);
    const double rest = q - r;
    switch (mode) {
    case 'z': if (q < 0 && rest > 0) r += 1; break;
    case 'm': break;
    case 'p': if (rest > 0) r += 1; break;
    case 'a': if (rest > 0.5 || (rest == 0.5 && q > 0)) r += 1; break;
    default: if (rest > 0.5 || (rest == 0.5 && std::fmod(r, 2) != 0)) r += 1;
    }
    return std::copysign(r * unit, x);
}

// 8-bit floats: e4m3 (largest 448, no infinities) and e5m2. Conversion saturates, as cvt.satfinite does.
inline float from_fp8(uint8_t bits, bool e5m2) {
    if (e5m2) return from_half((uint16_t)(bits << 8));
    const int exponent = bits >> 3 & 15, mantissa = bits & 7;
    if (exponent == 15 && mantissa == 7) return NAN;
    const float x = exponent ? std::ldexp(8.0f + (float)mantissa, exponent - 10) : std::ldexp((float)mantissa, -9);
    return bits & 128 ? -x : x;
}
inline uint8_t to_fp8(float x, bool e5m2) {
    if (x != x) return 0x7f;
    const float largest = e5m2 ? 57344.0f : 448.0f;
    const uint8_t sign = std::signbit(x) ? 128 : 0;
    const float a = (float)round_bits(std::fmin(std::fabs(x), largest), e5m2 ? 2 : 3, e5m2 ? -14 : -6, 'n');
    if (a == 0) return sign;
    if (a > largest) return (uint8_t)(sign | (e5m2 ? 0x7b : 0x7e));
    if (e5m2) return (uint8_t)(sign | to_half(a) >> 8);
    const int exponent = std::ilogb(a);
    if (exponent < -6) return (uint8_t)(sign | (int)std::ldexp(a, 9));
    return (uint8_t)(sign | (exponent + 7) << 3 | ((int)std::ldexp(a, 3 - exponent) & 7));
}

inline float flush(float x) { return std::fabs(x) < 1.17549435e-38f ? std::copysign(0.0f, x) : x; }

} // namespace emulator
#endif
