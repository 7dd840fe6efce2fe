// folded_tile.cuh: operand A of n32_sm90.cu in fewer instructions than ManyTile's: of Q4_K some 330 a tile, not 420.
//
// A code in the low bits of a 16-bit float is the subnormal number code * 2^-24, which needs no instruction but its
// mask. A fused product with the group's scale and offset makes it a normal number:
//   a = code * 2^-24 * scale + offset
// So that these are 16-bit floats, they are divided by a power of two of the tile's row, or by the row's d. The sums of
// the row over the tile are multiplied by it (`factor`) when they are added to those of the tiles before.
#ifndef VB_LINEAR_FOLDED_TILE_CUH
#define VB_LINEAR_FOLDED_TILE_CUH

#include "linear/packed/many.cuh"

namespace vb {

// The types whose tiles can be folded. Scales of others, floats of 8 bits and powers of two, differ by more than 16-bit
// floats hold; so may the addends of the types with a minimum.
template <class Block>
constexpr bool folds = Packed<Block>::k2 || Packed<Block>::k4 || Packed<Block>::k6 ||
                       (Packed<Block>::small && !Packed<Block>::mins && !Packed<Block>::powers);

// A LaneTile, unpacked: for the rows g and g + 8.
template <class Block>
struct FoldedTile {
    using P = Packed<Block>;
    static constexpr int pairs = P::sixteens ? 8 : P::k4 ? 4 : 2; // of scales of a row
    static constexpr int zero = P::is_signed ? 128 : P::zero;
    uint32_t v[2][P::nibbles ? P::words : P::values]; // stored words of nibbles, or value words
    __half2 scale[2][pairs], offset[2][pairs];        // of two groups each
    float factor[2];
    static constexpr bool starts_anew = true; // a tile's sums are apart from those of the tiles before

    VB_DEVICE void unpack(const LaneTile<Block> &w) {
        if constexpr (P::nibbles)
#pragma unroll
            for (int i = 0; i < 2 * P::words; i++) v[i / P::words][i % P::words] = w.words[i];
        else unpack_rows_raised(v, w);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const uint4 s = w.scales[P::small ? 0 : r];
            if constexpr (P::small) take_halves(r, r ? s.z : s.x, r ? s.w : s.y);
            else if constexpr (P::k6) take_numbers(r, s, w.d[r]);
            else if constexpr (P::k2) take_minima(r, s, w.d[r]);
            else take_minima(r, s, s.x);
        }
    }

    // a[0..3] = operand A for value word i, which is a constant after unrolling.
    VB_DEVICE void fragment(uint32_t a[4], int i) const {
        const int group = P::sixteens ? i >> 2 : i >> 1, // K2, K6: of those in word i % 4
                  pair = P::sixteens ? i % 4 * 2 + group / 2 : group / 2;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const auto of_group = [&](__half2 two) { return group % 2 ? __high2half2(two) : __low2half2(two); };
            const uint32_t bytes =
                !P::nibbles ? v[r][i] : v[r][i % P::words] & (i < P::words ? 0x0f0f0f0f : 0xf0f0f0f0);
#pragma unroll
            for (int h = 0; h < 2; h++)
                a[2 * h + r] = as_word(__hfma2(as_half2(__byte_perm(bytes, 0, h ? 0x4342 : 0x4140)),
                                               of_group(scale[r][pair]), of_group(offset[r][pair])));
        }
    }

private:
    // Nibbles of the upper half of a row's words are 16 times their codes.
    static VB_DEVICE constexpr bool upper(int pair) {
        return P::nibbles && (P::sixteens ? pair % 2 == 1 : pair >= pairs / 2);
    }
    static VB_DEVICE uint32_t two_bytes(uint32_t four, uint32_t beside, int nth) {
        return __byte_perm(four, beside, nth % 2 ? 0x4342 : 0x4140);
    }
    // 2^20 and the unit of half_unit
    static constexpr float unit = half_unit * 1048576.0f;

    // Scales of 32 elements, divided by the greatest's power of two, times 2^14.
    VB_DEVICE void take_halves(int r, uint32_t first, uint32_t second) {
        const __half2 most = __hmax2(__habs2(as_half2(first)), __habs2(as_half2(second)));
        const __half2 both = __hmax2(most, __lowhigh2highlow(most));
        const uint32_t exponent = as_word(both) & 0x7c007c00u;
        const __half2 inverse = as_half2(0x78007800u - exponent);
        factor[r] = __uint_as_float(((exponent & 0x7c00u) << 13) + (112u << 23)) * (half_unit * 1024.0f);
#pragma unroll
        for (int pair = 0; pair < 2; pair++) {
            scale[r][pair] =
                __hmul2(__hmul2(as_half2(pair ? second : first), inverse), splat(upper(pair) ? 1024.0f : 16384.0f));
            offset[r][pair] = __hmul2(scale[r][pair], splat((upper(pair) ? -16 : -1) * zero * 0x1p-24f));
        }
    }
    // 16 signed numbers; the row's d is the factor.
    VB_DEVICE void take_numbers(int r, uint4 s, uint32_t d) {
        const uint32_t words[4] = {s.x ^ 0x80808080, s.y ^ 0x80808080, s.z ^ 0x80808080, s.w ^ 0x80808080};
        factor[r] = low_half(d) * unit;
#pragma unroll
        for (int pair = 0; pair < pairs; pair++) {
            const bool up = upper(pair);
            const __half2 raised = as_half2(two_bytes(words[pair / 2], up ? 0x64646464 : 0x74747474, pair));
            scale[r][pair] = __hsub2(raised, splat(up ? 1152.0f : 18432.0f));
            offset[r][pair] = __hmul2(scale[r][pair], splat((up ? -16 : -1) * zero * 0x1p-24f));
        }
    }
    // Scales and minima, of {d, dmin}: both divided by the power of two of d, or of dmin / 256 where that is greater. A
    // power of dmin, which mostly is several times d, would leave the products with d fewer digits.
    VB_DEVICE void take_minima(int r, uint4 s, uint32_t two) {
        const float d = low_half(two), dmin = high_half(two);
        const uint32_t exponent = __float_as_uint(fmaxf(fabsf(d), fabsf(dmin) * 0x1p-8f)) & 0x7f800000u;
        const float inverse = __uint_as_float(0x7f000000u - exponent);
        factor[r] = __uint_as_float(exponent) * unit;
        const __half2 by = splat(d * inverse), minus = splat(dmin * (inverse * (P::k2 ? -1.0f : -16.0f)));
        uint32_t words[4] = {s.x, s.y, s.z, s.w};
        if constexpr (P::k4) k4_scales(words, s);
#pragma unroll
        for (int pair = 0; pair < pairs; pair++) {
            uint32_t raised, minima;
            if constexpr (P::k4) {
                raised = two_bytes(words[pair / 2], upper(pair) ? 0x64646464 : 0x74747474, pair);
                minima = two_bytes(words[2 + pair / 2], 0, pair);
            } else {
                const uint32_t bytes = two_bytes(words[pair / 2], 0, pair);
                raised = (bytes & 0x000f000f) | 0x74007400, minima = bytes & 0x00f000f0;
            }
            scale[r][pair] = __hfma2(as_half2(raised), by, __hmul2(by, splat(upper(pair) ? -1024.0f : -16384.0f)));
            offset[r][pair] = __hmul2(as_half2(minima), minus);
        }
    }
};

} // namespace vb
#endif
