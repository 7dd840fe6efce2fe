// linear_packed.cuh: the product of one packed tile of weights with 8 to 32 rows of x, on 16-bit tensor cores.
//
// Operand A are the codes themselves. A code of up to 10 bits, put into the low bits of a 16-bit float, is the subnormal number
// code * 2^-24, which tensor cores multiply exactly: so unpacking is masking, one instruction for two weights. The sums of
// one scale's elements come out as float32, are multiplied by the scale and added to the result: exact but for the
// rounding of x to 11 bits, whatever the range of the weights.
//
// Offsets: the value is scale * (code - zero), or scale * code - min. What is to be subtracted is a product too, of the
// tile's scales (or mins) with the sums of x over their elements: one instruction a tile and eight rows of x.
#ifndef VB_LINEAR_PACKED_CUH
#define VB_LINEAR_PACKED_CUH

#include "packed.cuh"
#include "tensor_core.cuh"

namespace vb {

// x of one tile, `tokens` rows of it, as operand B, one token a column: everything in the order in which lanes
// (g = token % 8, t) read it.
//   values  [32 elements][tokens / 8][g][t]: 16 bytes: of the two value words the elements 4 t + 0, 2, 1, 3, as F16
//   sums    [tokens / 8][g][t]: 2^-6 times the sums over the elements of a scale, each as two F16 numbers, high and low:
//           small: {high 0..3, low 0..3} by two;  k4: high 0..7 by two, low;  k6: high 0..7, 8..15 by two, low
template <class Block>
struct ActivationTile {
    using P = Packed<Block>;
    static constexpr int sum_words = P::small ? 1 : P::k4 ? 2 : 4; // of a lane
    static constexpr int sum_bytes = 16 * sum_words;              // of a token
    static constexpr int token_bytes = 2 * P::depth + sum_bytes;
    static constexpr int zero = P::bits == 8 ? 128 : P::zero;     // what is subtracted from the codes of operand A

    // Writes the elements k..k+3 of a token, k < depth, `tokens` being a multiple of 8. A warp has neighbours.
    static VB_DEVICE void write(uint8_t *out, float4 x, float scale, int k, int token, int tokens) {
        const Vec<half, 4> v = {__float2half_rn(x.x * scale), __float2half_rn(x.z * scale), __float2half_rn(x.y * scale),
                                __float2half_rn(x.w * scale)};
        *reinterpret_cast<Vec<half, 4> *>(out + k / 32 * 64 * tokens + token * 64 + k / 4 % 4 * 16 + k / 16 % 2 * 8) = v;
        float sum = (__half2float(v.at[0]) + __half2float(v.at[1])) + (__half2float(v.at[2]) + __half2float(v.at[3]));
        constexpr int lanes = P::k6 ? 4 : 8; // that share a scale
#pragma unroll
        for (int o = 1; o < lanes; o <<= 1) sum += __shfl_xor_sync(all_lanes, sum, o);
        if (threadIdx.x % lanes != 0) return;
        sum *= 0.015625f;
        const half high = __float2half_rn(sum), low = __float2half_rn(sum - __half2float(high));
        const int s = k / (4 * lanes);
        const int at = P::small ? s : P::k4 ? s / 2 * 4 + s % 2 : s % 8 / 2 * 8 + s / 8 * 2 + s % 2;
        half *sums = reinterpret_cast<half *>(out + P::depth * 2 * tokens + token * sum_bytes) + at;
        sums[0] = high, sums[P::k4 ? 2 : 4] = low;
    }
};

constexpr float subnormal = 16777216.0f; // 2^24: what operand A is too small by

// The codes and scales of one tile, ready to be multiplied.
template <class Block>
struct WeightTile {
    using P = Packed<Block>;
    using X = ActivationTile<Block>;
    const LaneTile<Block> &w;
    uint32_t v[2][P::bits == 4 ? 1 : P::values];
    uint32_t bytes[2][P::small ? 1 : 4]; // of scales; k4: scales 0..3, 4..7, mins 0..3, 4..7; k6: + 128, in packed order
    float unit[2], offset[2];            // scale s of row r times 2^24 is (1 + s / 2^15) * unit + offset

    VB_DEVICE explicit WeightTile(const LaneTile<Block> &w) : w(w) {
        if constexpr (P::bits != 4) P::unpack(v[0], w.words), P::unpack(v[1], w.words + P::words);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            if constexpr (P::k4) { // vb_k4_scale, four at a time
                const uint4 s = w.scales[r];
                bytes[r][0] = s.y & 0x3f3f3f3f, bytes[r][1] = (s.w & 0x0f0f0f0f) | ((s.y >> 2) & 0x30303030);
                bytes[r][2] = s.z & 0x3f3f3f3f, bytes[r][3] = ((s.w >> 4) & 0x0f0f0f0f) | ((s.z >> 2) & 0x30303030);
                unit[r] = low_half(s.x) * (32768.0f * subnormal), offset[r] = -unit[r];
            } else if constexpr (P::k6) {
                const uint4 s = w.scales[r];
                bytes[r][0] = s.x ^ 0x80808080, bytes[r][1] = s.y ^ 0x80808080;
                bytes[r][2] = s.z ^ 0x80808080, bytes[r][3] = s.w ^ 0x80808080;
                unit[r] = half_bits(w.d[r]) * (32768.0f * subnormal), offset[r] = unit[r] * -(1 + 128.0f / 32768);
            }
        }
    }

    // Operand A of value word i: pairs of the bytes 0, 2 and 1, 3.
    VB_DEVICE void operand(uint32_t a[4], int i) const {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            if constexpr (P::bits == 4) { // the upper nibbles are left in place: 16 times the code
                const uint32_t word = w.words[r * P::words + i % P::words], mask = i < P::words ? 0x000f000f : 0x00f000f0;
                a[r] = word & mask, a[2 + r] = (word >> 8) & mask;
            } else {
                const uint32_t word = P::bits == 8 ? v[r][i] ^ 0x80808080 : v[r][i];
                a[r] = word & 0x00ff00ff, a[2 + r] = __byte_perm(word, 0, 0x4341);
            }
        }
    }
    // The scale of value word i of row g + 8 r, times 2^24.
    VB_DEVICE float scale(int r, int i) const {
        if constexpr (P::small) {
            const uint32_t two = r ? (i < 4 ? w.scales[0].z : w.scales[0].w) : (i < 4 ? w.scales[0].x : w.scales[0].y);
            const float d = i & 2 ? high_half(two) : low_half(two);
            return d * (P::bits == 4 && i >= P::words ? subnormal / 16 : subnormal);
        } else {
            const int word = P::k4 ? i >> 3 : i & 3, byte = P::k4 ? (i >> 1) & 3 : i >> 2; // q6_scale_byte
            const float one_and = __uint_as_float(__byte_perm(bytes[r][word], 0x3f800000, 0x7604 | byte << 4));
            const float s = fmaf(one_and, unit[r], offset[r]);
            return P::bits == 4 && i >= P::words ? s * 0.0625f : s;
        }
    }
    // Operand A of what is to be subtracted, for the lane's t; k6 uses all of k, the others half.
    VB_DEVICE void subtrahend(uint32_t a[4], int t) const {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            if constexpr (P::small) {
                a[r] = r ? (t & 1 ? w.scales[0].w : w.scales[0].z) : (t & 1 ? w.scales[0].y : w.scales[0].x);
                a[2 + r] = 0;
            } else if constexpr (P::k4) { // mins 2 t and 2 t + 1, as subnormal numbers; the same for the low parts
                a[r] = __byte_perm(t & 2 ? bytes[r][3] : bytes[r][2], 0, t & 1 ? 0x4342 : 0x4140);
                a[2 + r] = a[r];
            } else { // scales 2 t, 2 t + 1 and 2 t + 8, 2 t + 9
                const uint32_t even = t & 1 ? bytes[r][2] : bytes[r][0], odd = t & 1 ? bytes[r][3] : bytes[r][1];
                const uint32_t both = __byte_perm(even, odd, t & 2 ? 0x7351 : 0x6240); // bytes of a[r], then of a[2 + r]
                const __half2 bias = __float2half2_rn(1152.0f);
                const uint32_t low = __byte_perm(both, 0x64646464, 0x4140), high = __byte_perm(both, 0x64646464, 0x4342);
                const __half2 x = __hsub2(*reinterpret_cast<const __half2 *>(&low), bias);
                const __half2 y = __hsub2(*reinterpret_cast<const __half2 *>(&high), bias);
                a[r] = *reinterpret_cast<const uint32_t *>(&x), a[2 + r] = *reinterpret_cast<const uint32_t *>(&y);
            }
        }
    }
    // What the subtrahend of row g + 8 r is multiplied by.
    VB_DEVICE float subtract(int r) const {
        if constexpr (P::small) return -X::zero * 64.0f;
        else if constexpr (P::k4) return high_half(w.scales[r].x) * (-64.0f * subnormal);
        else return half_bits(w.d[r]) * (-X::zero * 64.0f);
    }

    // sum[j] += the rows g, g + 8 by the tokens 8 j + 2 t, + 1.
    template <int TOKENS>
    VB_DEVICE void multiply(float (&sum)[TOKENS / 8][4], const uint8_t *x, int lane) const {
        const uint4 *values = reinterpret_cast<const uint4 *>(x) + lane;
#pragma unroll
        for (int b = 0; b < P::depth / 32; b++) {
            uint32_t a[2][4];
            float s[2][2];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                operand(a[h], 2 * b + h);
                s[h][0] = scale(0, 2 * b + h), s[h][1] = scale(1, 2 * b + h);
            }
#pragma unroll
            for (int j = 0; j < TOKENS / 8; j++) {
                const uint4 in = values[(b * (TOKENS / 8) + j) * 32];
                float c[2][4] = {};
                mma_16x8x16(c[0], a[0], in.x, in.y, half());
                mma_16x8x16(c[P::k6], a[1], in.z, in.w, half());
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    sum[j][e] = fmaf(s[0][e >> 1], c[0][e], sum[j][e]);
                    if constexpr (P::k6) sum[j][e] = fmaf(s[1][e >> 1], c[1][e], sum[j][e]);
                }
            }
        }
        uint32_t a[4];
        subtrahend(a, lane & 3);
        const float f[2] = {subtract(0), subtract(1)};
#pragma unroll
        for (int j = 0; j < TOKENS / 8; j++) {
            const uint32_t *in = reinterpret_cast<const uint32_t *>(x + P::depth * 2 * TOKENS) + (32 * j + lane) * X::sum_words;
            float c[4] = {};
            mma_16x8x16(c, a, in[0], P::small ? 0 : in[P::small ? 0 : 1], half());
            if constexpr (P::k6) mma_16x8x16(c, a, in[2], in[3], half());
#pragma unroll
            for (int e = 0; e < 4; e++) sum[j][e] = fmaf(f[e >> 1], c[e], sum[j][e]);
        }
    }
};

} // namespace vb
#endif
