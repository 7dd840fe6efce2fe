// n4_tile.cuh: the product of one packed tile of weights with 2 to 4 rows of x, on integer tensor cores.
//
// The arithmetic is as in n1_tile.cuh. Operand A is the codes. Operand B is x, quantized by tiles of `depth` elements
// and rows to 15 bits, x = scale * (128 * high + low). Columns 2c and 2c + 1 of B's eight are the high and the low part
// of row c. So four rows cost as many instructions as one row, and lane t ends up with all sums of row t. Each sum is
// multiplied by its scale as an integer.
//
// The subtrahend, min (K4) or zero * scale, or the addend (mins), times the sum of x over the scale's elements, is a
// product of 16-bit floats for all rows at once, as in n32_tile.cuh. Sums are two such floats, which hold them exactly.
// Of offsets, zero times the sum of x is what an integer sum begins with.
//
// TWO rows of x use half of the columns. So columns 4 to 7 have the same rows for every other scale, and zeros stand in
// the columns that a scale does not use. Two scales share an accumulator, and lane t has a half of the sums of row
// t % 2: half as many sums become floats.
#ifndef VB_LINEAR_N4_TILE_CUH
#define VB_LINEAR_N4_TILE_CUH

#include "linear/choose.h"
#include "linear/packed/code_rows.cuh"

namespace vb {

constexpr int n4_rows = LINEAR_N4; // rows of x

// x of one tile in shared memory, in the order in which lanes (g, t) read it.
//   codes  [64 elements][g][t]: four value words of row g / 2, high (g even) or low
//   sums   [row][t]: 2^-6 times, as two F16 numbers each:
//            k4: {high, low} of the sums over 32 elements 2 t, 2 t + 1
//            sixteens: over 16 elements, {high 2 t, 2 t + 1, 2 t + 8, 2 t + 9, low ...}
//            mins: high of 2 t, 2 t + 1 for t < 2, low for the others
//            offsets: an integer for the scale t; no sums of other types
//   scale  [row] floats
template <class Block>
struct N4Tile {
    using P = Packed<Block>;
    static constexpr int codes = 2 * n4_rows * P::depth;
    static constexpr int lane_sums = vb_n4_sum_bytes(P::format); // bytes
    static constexpr int scale = codes + 4 * n4_rows * lane_sums, bytes = scale + 4 * n4_rows;
    static_assert(bytes == vb_n4_tile_bytes(P::format) && bytes % 16 == 0,
                  "what the chooser plans with; loads of 16 bytes");
    static constexpr bool offsets = P::small && P::zero != 0;
    static constexpr bool takes_two = P::small || P::e4m3; // scales become floats one by one

    // One warp quantizes a row, of which v are 4 elements of each 128 a lane. TWO: words of every other scale go to the
    // row two below, and zeros to their places here, as zeros do to the places of the other words there.
    template <bool TWO>
    static VB_DEVICE void quantize(uint8_t *out, const float4 (&v)[P::depth / 128], int row, int lane) {
        const Quantization q = quantization_of(v);
        if (lane == 0) reinterpret_cast<float *>(out + scale)[row] = q.scale;
        const int word = lane / 4 % 4, odd = P::e4m3 ? word % 2 : word / 2; // of the word's scale
        uint8_t *const to = out + row * 128 + lane % 4 * 16 + word * 4 + lane / 16 * 512;
        uint8_t *const values = TWO && odd ? to + 256 : to, *const zeros = odd ? to : to + 256;
#pragma unroll
        for (int i = 0; i < P::depth / 128; i++) {
            const QuantizedWord w = quantize_word(v[i], q.inverse);
            *reinterpret_cast<uint32_t *>(values + 1024 * i) = w.high;
            *reinterpret_cast<uint32_t *>(values + 1024 * i + 64) = w.low;
            if constexpr (TWO)
                *reinterpret_cast<uint32_t *>(zeros + 1024 * i) =
                    *reinterpret_cast<uint32_t *>(zeros + 1024 * i + 64) = 0;
            if constexpr (lane_sums != 0) {
                constexpr int lanes = P::sixteens ? 4 : 8; // that share a scale
                int sum = 128 * w.high_sum + w.low_sum;
#pragma unroll
                for (int o = 1; o < lanes; o <<= 1) sum += __shfl_xor_sync(all_lanes, sum, o);
                const int s = 32 / lanes * i + lane / lanes;
                if constexpr (offsets) {
                    static_assert(lane_sums == 4, "an integer");
                    const int by = -P::zero * (P::nibbles && s >= 2 ? 16 : 1);
                    if (lane % lanes == 0) reinterpret_cast<int *>(out + codes)[row * 4 + s] = by * sum;
                    continue;
                }
                const float part = static_cast<float>(sum) * 0.015625f;
                const half high = __float2half_rn(part), low = __float2half_rn(part - __half2float(high));
                const int t = P::sixteens ? s % 8 / 2 : s / 2;
                half *at = reinterpret_cast<half *>(out + codes + (row * 4 + t) * lane_sums) + s % 2;
                if (lane % lanes == 0) {
                    if constexpr (P::sixteens) at[s / 8 * 2] = high, at[s / 8 * 2 + 4] = low;
                    else at[0] = high, at[P::k4 ? 2 : 4] = low;
                }
            }
        }
    }
};

// sum[r] += row g + 8 r of the tile by row t of x. `by` are the type's summand_words. TWO: sum[r] of the lanes t and
// t ^ 2 make the sum of row t % 2.
template <class Block, bool TWO>
VB_DEVICE void n4_multiply(float (&sum)[2], const LaneTile<Block> &tile, const uint8_t *x, const uint4 &by, int lane) {
    using P = Packed<Block>;
    using X = N4Tile<Block>;
    constexpr bool nibbles = P::nibbles; // the upper ones are multiplied in place, 16 times their value
    static_assert(!TWO || X::takes_two, "scales are in each lane");
    const int t = lane & 3;
    const CodeRows<Block> rows(tile.words, P::own_table ? tile.table[0] : by);

    // The subtrahend.
    uint32_t bytes[2][4]; // of scales; k4: scales 0..3, 4..7, mins 0..3, 4..7; sixteens: in packed order
    uint32_t a[4] = {0, 0, 0, 0};
    float factor[2] = {0, 0}, subtrahend[4] = {0, 0, 0, 0};
#pragma unroll
    for (int r = 0; r < 2; r++) {
        if constexpr (P::k4) {
            const uint4 s = tile.scales[r];
            k4_scales(bytes[r], s);
            // Mins 2 t and 2 t + 1 as subnormal numbers; the same for the low parts.
            a[r] = a[2 + r] = __byte_perm(t & 2 ? bytes[r][3] : bytes[r][2], 0, t & 1 ? 0x4342 : 0x4140);
            factor[r] = high_half(s.x) * (-64.0f * 16777216.0f);
        } else if constexpr (P::sixteens) {
            const uint4 s = tile.scales[r];
            bytes[r][0] = s.x, bytes[r][1] = s.y, bytes[r][2] = s.z, bytes[r][3] = s.w;
            if constexpr (P::e4m3) continue;
            sixteens_operand<Block>(a[r], a[2 + r], s, t);
            factor[r] =
                P::k2 ? high_half(tile.d[r]) * (-64.0f * 16777216.0f) : low_half(tile.d[r]) * (-P::zero * 64.0f);
        } else if constexpr (P::mins) {
            const uint4 s = tile.scales[1];
            a[r] = r ? (t & 1 ? s.w : s.z) : (t & 1 ? s.y : s.x);
            factor[r] = 64.0f;
        }
    }
    // Columns 2 t and 2 t + 1 are both of row t.
    if constexpr (X::lane_sums != 0 && !X::offsets) {
        const uint8_t *sums = x + X::codes + (lane / 8 * 4 + t) * X::lane_sums;
        if constexpr (P::k4) {
            const uint2 in = *reinterpret_cast<const uint2 *>(sums);
            mma_16x8x16(subtrahend, a, in.x, in.y, half());
        } else if constexpr (P::sixteens) {
            const uint4 in = *reinterpret_cast<const uint4 *>(sums);
            mma_16x8x16(subtrahend, a, in.x, in.y, half()), mma_16x8x16(subtrahend, a, in.z, in.w, half());
        } else {
            mma_16x8x16(subtrahend, a, *reinterpret_cast<const uint32_t *>(sums), 0, half());
        }
    }

    int high[2][2] = {}, low[2][2] = {}; // of the rows g, g + 8; where the codes are nibbles, of lower and upper ones
    float total[2] = {0, 0};             // small, e4m3
#pragma unroll
    for (int q = 0; q < P::depth / 64; q++) {
        const uint4 four = reinterpret_cast<const uint4 *>(x)[32 * q + lane];
        const uint32_t b[4] = {four.x, four.y, four.z, four.w};
        constexpr int together = TWO ? 2 : 1; // scales that share an accumulator
        if constexpr (P::e4m3) {
#pragma unroll
            for (int i = 0; i < 4; i += together) {
                int c[4] = {0, 0, 0, 0};
                rows.multiply_word(c, 4 * q + i, b[i]);
                if constexpr (TWO) rows.multiply_word(c, 4 * q + i + 1, b[i + 1]);
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    const uint32_t four = TWO && t & 2 ? bytes[r][i + together - 1] : bytes[r][i],
                                   s = q < 3 ? four << (20 - 8 * q) : four >> 4;
                    const float dot = static_cast<float>(128 * c[2 * r] + c[2 * r + 1]);
                    total[r] = fmaf(P::e4m3_bits(s & 0x07f00000), dot, total[r]);
                }
            }
        } else if constexpr (P::sixteens) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int c[4] = {0, 0, 0, 0};
                rows.multiply_word(c, 4 * q + i, b[i]);
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    const uint32_t byte = bytes[r][i] >> (8 * q); // q6_scale_byte(4 q + i)
                    const int s = P::k2 ? byte & 15 : static_cast<int8_t>(byte), upper = nibbles && q >= 2;
                    high[r][upper] += s * c[2 * r], low[r][upper] += s * c[2 * r + 1];
                }
            }
        } else {
#pragma unroll
            for (int i = 0; i < 2; i += together) {
                const int s = 2 * q + i;
                int offset = 0; // of this lane's row and scale, with the low parts
                if constexpr (X::offsets)
                    offset = reinterpret_cast<const int *>(x + X::codes)[TWO ? (t & 1) * 4 + s + t / 2 : t * 4 + s];
                int c[4] = {0, offset, 0, offset};
                rows.multiply_words(c, 2 * s, b[2 * i], b[2 * i + 1]);
                if constexpr (TWO) rows.multiply_words(c, 2 * s + 2, b[2], b[3]);
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    if constexpr (P::k4) { // of 256 codes of 31 and scales of 63, sums of the high part are 6.4e7
                        const int upper = nibbles && s >= 4;
                        const int unit = (bytes[r][s / 4] >> (8 * (s % 4))) & 255;
                        high[r][upper] += unit * c[2 * r], low[r][upper] += unit * c[2 * r + 1];
                    } else {
                        const uint4 d = tile.scales[0];
                        const uint32_t two = r ? (s < 2 ? d.z : d.w) : (s < 2 ? d.x : d.y);
                        const bool odd = TWO ? t & 2 : s & 1;
                        const float unit =
                            P::scale_of_bits(odd ? two >> 16 : two & 0xffff) * (nibbles && s >= 2 ? 0.0625f : 1.0f);
                        total[r] = fmaf(unit, static_cast<float>(c[2 * r] * 128 + c[2 * r + 1]), total[r]);
                    }
                }
            }
        }
    }
    const float scale = reinterpret_cast<const float *>(x + X::scale)[TWO ? t & 1 : t];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        if constexpr (P::e4m3) {
            total[r] *= P::e4m3_unit;
        } else if constexpr (!P::small) {
            if constexpr (nibbles) high[r][0] = 16 * high[r][0] + high[r][1], low[r][0] = 16 * low[r][0] + low[r][1];
            const float unit = (nibbles ? 0.0625f : 1.0f) * low_half(P::k4 ? tile.scales[P::small ? 0 : r].x
                                                                           : tile.d[P::k2 || P::k6 ? r : 0]);
            total[r] = unit * fmaf(static_cast<float>(high[r][0]), 128.0f, static_cast<float>(low[r][0]));
        }
        if (!X::offsets && (!TWO || t < 2)) total[r] = fmaf(factor[r], subtrahend[2 * r], total[r]);
        sum[r] = fmaf(scale, total[r], sum[r]);
    }
}

} // namespace vb
#endif
