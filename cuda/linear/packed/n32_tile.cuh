// n32_tile.cuh: the product of one packed tile of weights with 8 to 32 rows of x, on 16-bit tensor cores.
//
// Operand A is the codes themselves. A code of up to 10 bits in the low bits of a 16-bit float is the subnormal number
// code * 2^-24, which tensor cores multiply exactly. So unpacking is masking, one instruction for two weights.
// The sums of one scale's elements come out as float32, are multiplied by the scale and added to the result.
// The result is exact but for the rounding of x to 11 bits, whatever the range of the weights.
//
// Offsets: the value is scale * (code - zero), or scale * code - min. The subtrahend is a product too: the tile's
// scales (or mins) with the sums of x over their elements, one instruction a tile and eight rows of x.
#ifndef VB_LINEAR_N32_TILE_CUH
#define VB_LINEAR_N32_TILE_CUH

#include "linear/packed/packed.cuh"
#include "arch/tensor_core.cuh"

namespace vb {

// x of one tile, `tokens` rows of it (a multiple of 8), as operand B, one token a column. Everything lies in the order
// in which lanes (g = token % 8, t) read it. Every type of this depth reads the same.
//   values   [32 elements][tokens / 8][g][t]: 16 bytes: of the two value words the elements 4 t + 0, 2, 1, 3, as F16,
//            each row of the tile scaled by a power of two so that nothing overflows
//   sums32   [tokens / 8][g][t]: 2^-6 times the sums over 32 elements, each as two F16 numbers, high and low:
//            {high 0..3, low 0..3} by two where there are 4; high 0..7 by two, low where there are 8
//   sums16   [tokens / 8][g][t]: where the depth is 256, the same over 16: high 0..7, 8..15 by two, low
//   inverse  [tokens]: 1 / scale
//   squares  [tokens]: the sum of squares of the row's elements before they were multiplied by a norm's weights
template <int DEPTH>
struct N32Tile {
    static constexpr bool deep = DEPTH == 256;
    // Offsets and sizes in bytes of a token.
    static constexpr int sums32 = 2 * DEPTH, sums16 = sums32 + (deep ? 32 : 16), inverse = sums16 + (deep ? 64 : 0);
    static constexpr int squares = inverse + 4, token_bytes = squares + 4;

    // One warp writes row `token`; v are 4 elements of each 128 a lane, multiplied by norm if it is given.
    static VB_DEVICE void write(uint8_t *out, float4 (&v)[DEPTH / 128], const float4 (&norm)[DEPTH / 128],
                                bool with_norm, int lane, int token, int tokens) {
        uint32_t most = 0;
        float square = 0;
#pragma unroll
        for (int i = 0; i < DEPTH / 128; i++) {
            float4 &e = v[i];
            if (with_norm) {
                square = fmaf(e.x, e.x, fmaf(e.y, e.y, fmaf(e.z, e.z, fmaf(e.w, e.w, square))));
                e.x *= norm[i].x, e.y *= norm[i].y, e.z *= norm[i].z, e.w *= norm[i].w;
            }
            most = larger(most, greatest_bits(e));
        }
        if (with_norm) square = warp_reduce<Sum>(square);
        const float scale = power_of_two_scale(__uint_as_float(warp_most(most)));
        if (lane == 0) {
            reinterpret_cast<float *>(out + inverse * tokens)[token] = 1.0f / scale;
            reinterpret_cast<float *>(out + squares * tokens)[token] = square;
        }
#pragma unroll
        for (int i = 0; i < DEPTH / 128; i++) write_four(out, v[i], scale, 128 * i + 4 * lane, token, tokens);
    }

private:
    // The elements k..k+3, by all lanes of a warp together.
    static VB_DEVICE void write_four(uint8_t *out, float4 x, float scale, int k, int token, int tokens) {
        const Vec<half, 4> v = {__float2half_rn(x.x * scale), __float2half_rn(x.z * scale),
                                __float2half_rn(x.y * scale), __float2half_rn(x.w * scale)};
        *reinterpret_cast<Vec<half, 4> *>(out + k / 32 * 64 * tokens + token * 64 + k / 4 % 4 * 16 + k / 16 % 2 * 8) =
            v;
        float sum = (__half2float(v.at[0]) + __half2float(v.at[1])) + (__half2float(v.at[2]) + __half2float(v.at[3]));
        const auto put = [&](half *sums, int high_at, int low_at) {
            const float part = sum * 0.015625f;
            const half high = __float2half_rn(part);
            sums[high_at] = high, sums[low_at] = __float2half_rn(part - __half2float(high));
        };
        sum += __shfl_xor_sync(all_lanes, sum, 1);
        sum += __shfl_xor_sync(all_lanes, sum, 2);
        if (deep && k % 16 == 0) {
            const int s = k / 16, at = s % 8 / 2 * 8 + s / 8 * 2 + s % 2;
            put(reinterpret_cast<half *>(out + sums16 * tokens + token * 64), at, at + 4);
        }
        sum += __shfl_xor_sync(all_lanes, sum, 4);
        if (k % 32 == 0) {
            const int s = k / 32, at = deep ? s / 2 * 4 + s % 2 : s;
            put(reinterpret_cast<half *>(out + sums32 * tokens + token * (deep ? 32 : 16)), at, at + (deep ? 2 : 4));
        }
    }
};

constexpr float subnormal = 16777216.0f; // 2^24: operand A is too small by this factor

// The codes and scales of one tile, ready to be multiplied.
template <class Block>
struct N32Weights {
    using P = Packed<Block>;
    // the zero that is subtracted from the codes of operand A
    static constexpr int zero = P::floats ? 0 : P::is_signed ? 128 : P::zero;
    LaneTile<Block> w;
    uint32_t v[2][P::nibbles || P::floats ? 1 : P::values];
    // of scales; k4: scales 0..3, 4..7, mins 0..3, 4..7; sixteens: in packed order, k6 + 128
    uint32_t bytes[2][P::small ? 1 : P::e4m3 ? 8 : 4];
    float unit[2], offset[2];            // scale s of row r times 2^24 is (1 + s / 2^15) * unit + offset

    // From a tile in shared memory, which may be overwritten afterwards.
    VB_DEVICE void load(const uint8_t *tile, int lane) {
        w.template load<false>(tile, lane);
    }
    VB_DEVICE void prepare() {
        if constexpr (P::table && !P::floats)
#pragma unroll
            for (int r = 0; r < 2; r++)
                P::unpack_raised_by_products(v[r], w.words + r * P::words, w.table[P::own_table ? r : 0]);
        else if constexpr (!P::nibbles && !P::floats) unpack_rows_raised(v, w);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            if constexpr (P::k4) {
                const uint4 s = w.scales[r];
                k4_scales(bytes[r], s);
                unit[r] = low_half(s.x) * (32768.0f * subnormal), offset[r] = -unit[r];
            } else if constexpr (P::e4m3) { // as halves: even ones, odd ones
                const uint32_t s[4] = {w.scales[r].x, w.scales[r].y, w.scales[r].z, w.scales[r].w};
#pragma unroll
                for (int i = 0; i < 4; i++)
                    bytes[r][i] = s[i] << 7 & 0x3f803f80, bytes[r][4 + i] = s[i] >> 1 & 0x3f803f80;
            } else if constexpr (P::sixteens) {
                const uint32_t s[4] = {w.scales[r].x, w.scales[r].y, w.scales[r].z, w.scales[r].w};
#pragma unroll
                for (int i = 0; i < 4; i++) bytes[r][i] = P::k2 ? s[i] & 0x0f0f0f0f : s[i] ^ 0x80808080;
                unit[r] = low_half(w.d[r]) * (32768.0f * subnormal);
                offset[r] = unit[r] * -(1 + (P::k2 ? 0 : 128.0f / 32768));
            }
        }
    }

    // Operand A of value word i: pairs of the bytes 0, 2 and 1, 3.
    VB_DEVICE void operand(uint32_t a[4], int i) const {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            if constexpr (P::nibbles) { // the upper nibbles are left in place: 16 times the code
                const uint32_t word = w.words[r * P::words + i % P::words],
                               mask = i < P::words ? 0x000f000f : 0x00f000f0;
                a[r] = word & mask, a[2 + r] = (word >> 8) & mask;
            } else if constexpr (P::floats) { // values as they are, not as subnormal numbers
                const uint32_t word = w.words[r * P::words + i % P::words];
                const uint32_t upper = i < P::words ? P::half_bytes(word, turned_lower_half(word))
                                                    : P::half_bytes(upper_half(word), turned_upper_half(word));
                a[r] = __byte_perm(upper, 0, 0x2404), a[2 + r] = upper & 0xff00ff00;
            } else {
                a[r] = v[r][i] & 0x00ff00ff, a[2 + r] = __byte_perm(v[r][i], 0, 0x4341);
            }
        }
    }
    // The scale of value word i of row g + 8 r, times 2^24. e4m3: divided by e4m3_half_unit.
    VB_DEVICE float scale(int r, int i) const {
        if constexpr (P::small) {
            const uint32_t two = r ? (i < 4 ? w.scales[0].z : w.scales[0].w) : (i < 4 ? w.scales[0].x : w.scales[0].y);
            const float d = P::scale_of_bits(i & 2 ? two >> 16 : two & 0xffff);
            if constexpr (P::floats) return d;
            return d * (P::nibbles && i >= P::words ? subnormal / 16 : subnormal);
        } else if constexpr (P::e4m3) {
            const uint32_t two = bytes[r][(i >> 2 & 1) * 4 + (i & 3)]; // q6_scale_byte
            return i & 8 ? high_half(two) : low_half(two);
        } else {
            const int word = P::k4 ? i >> 3 : i & 3, byte = P::k4 ? (i >> 1) & 3 : i >> 2; // q6_scale_byte
            const float one_and = __uint_as_float(__byte_perm(bytes[r][word], 0x3f800000, 0x7604 | byte << 4));
            const float s = fmaf(one_and, unit[r], offset[r]);
            return P::nibbles && i >= P::words ? s * 0.0625f : s;
        }
    }
    // Operand A of the subtrahend, for the lane's t; sixteens use all of k, the others half.
    VB_DEVICE void subtrahend(uint32_t a[4], int t) const {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            if constexpr (P::small) {
                const uint4 s = w.scales[P::mins ? 1 : 0];
                a[r] = r ? (t & 1 ? s.w : s.z) : (t & 1 ? s.y : s.x);
                a[2 + r] = 0;
            } else if constexpr (P::k4) { // mins 2 t and 2 t + 1, as subnormal numbers; the same for the low parts
                a[r] = __byte_perm(t & 2 ? bytes[r][3] : bytes[r][2], 0, t & 1 ? 0x4342 : 0x4140);
                a[2 + r] = a[r];
            } else {
                sixteens_operand<Block>(a[r], a[2 + r], w.scales[r], t);
            }
        }
    }
    // The factor of the subtrahend of row g + 8 r.
    VB_DEVICE float subtract(int r) const {
        if constexpr (P::mins) return 64.0f;
        else if constexpr (P::small) return -zero * 64.0f;
        else if constexpr (P::k4) return high_half(w.scales[r].x) * (-64.0f * subnormal);
        else if constexpr (P::k2) return high_half(w.d[r]) * (-64.0f * subnormal);
        else return low_half(w.d[r]) * (-zero * 64.0f);
    }
};

// sum[p][j] += the rows g, g + 8 of tile p by the tokens 8 j + 2 t, + 1.
template <int TOKENS, int PARTS, class Block>
VB_DEVICE void multiply(float (&sum)[PARTS][TOKENS / 8][4], const N32Weights<Block> (&w)[PARTS], const uint8_t *x,
                        int lane) {
    using P = Packed<Block>;
    using X = N32Tile<P::depth>;
    float tile[PARTS][TOKENS / 8][4] = {};
    // The subtrahend, where there is one, comes first, so that its operands leave their registers to the products.
    uint32_t minus[PARTS][4];
    float f[PARTS][2];
#pragma unroll
    for (int p = 0; !P::floats && p < PARTS; p++)
        w[p].subtrahend(minus[p], lane & 3), f[p][0] = w[p].subtract(0), f[p][1] = w[p].subtract(1);
#pragma unroll
    for (int j = 0; !P::floats && j < TOKENS / 8; j++) {
        constexpr int words = P::small ? 1 : P::k4 ? 2 : 4; // of a lane
        constexpr int sums = P::sixteens ? X::sums16 : X::sums32;
        const uint32_t *from = reinterpret_cast<const uint32_t *>(x + sums * TOKENS) + (32 * j + lane) * words;
        uint32_t in[words];
#pragma unroll
        for (int i = 0; i < words; i++) in[i] = from[i];
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
            float c[4] = {};
            mma_16x8x16(c, minus[p], in[0], P::small ? 0 : in[P::small ? 0 : 1], half());
            if constexpr (P::sixteens) mma_16x8x16(c, minus[p], in[2], in[3], half());
#pragma unroll
            for (int e = 0; e < 4; e++) tile[p][j][e] = f[p][e >> 1] * c[e];
        }
    }
    const uint4 *values = reinterpret_cast<const uint4 *>(x) + lane;
#pragma unroll
    for (int b = 0; b < P::depth / 32; b++) {
        uint32_t a[PARTS][2][4];
        float s[PARTS][2][2];
#pragma unroll
        for (int p = 0; p < PARTS; p++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                w[p].operand(a[p][h], 2 * b + h);
                s[p][h][0] = w[p].scale(0, 2 * b + h), s[p][h][1] = w[p].scale(1, 2 * b + h);
            }
#pragma unroll
        for (int j = 0; j < TOKENS / 8; j++) {
            const uint4 in = values[(b * (TOKENS / 8) + j) * 32];
#pragma unroll
            for (int p = 0; p < PARTS; p++) {
                float c[2][4] = {};
                mma_16x8x16(c[0], a[p][0], in.x, in.y, half());
                mma_16x8x16(c[P::sixteens], a[p][1], in.z, in.w, half());
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    tile[p][j][e] = fmaf(s[p][0][e >> 1], c[0][e], tile[p][j][e]);
                    if constexpr (P::sixteens) tile[p][j][e] = fmaf(s[p][1][e >> 1], c[1][e], tile[p][j][e]);
                }
            }
        }
    }
#pragma unroll
    for (int j = 0; j < TOKENS / 8; j++) {
        const float2 inverse =
            *reinterpret_cast<const float2 *>(x + X::inverse * TOKENS + (8 * j + 2 * (lane & 3)) * 4);
#pragma unroll
        for (int p = 0; p < PARTS; p++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                sum[p][j][e] = fmaf(e & 1 ? inverse.y : inverse.x,
                                    P::e4m3 ? tile[p][j][e] * P::e4m3_half_unit : tile[p][j][e], sum[p][j][e]);
    }
}

} // namespace vb
#endif
