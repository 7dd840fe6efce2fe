// n1_tile.cuh: y[rows] = W x of one tile, for one row of x, W in the packed layout.
//
// Bound by the bytes of W, so that few instructions are left. A warp multiplies a tile (packed.cuh) at a time by
// integer tensor-core instructions. Operand A is the codes of 16 rows of W. Operand B is x, quantized by tiles of
// `depth` elements to 15 bits, x = scale * (128 * high + low): the result is float32's to about 1e-4, far better than
// with 8 bits.
//
// A product with one row of x would use one column of B's eight. Here column 2c + part holds the part (0 high, 1 low)
// of x for the scales s = c, c + 4, ... only, and zeros elsewhere. So the instructions of four scales add into one
// accumulator, and lane t = c ends up with the sums of the scales c, c + 4, .... Each lane multiplies by a quarter of
// the scales, and the four lanes are added up at the end. The zeros cost nothing: all lanes without a part in an
// instruction read a common zero.
#ifndef VB_LINEAR_N1_TILE_CUH
#define VB_LINEAR_N1_TILE_CUH

#include "linear/packed/code_rows.cuh"

namespace vb {

// x of one tile, as bytes in shared memory:
//   codes  [c][high, low][t][value words of the scales c, c + 4, ...]
//   zeros  read by lanes that have no part in an instruction
//   sums   [t]: k2: the sums of x over the scales t, t + 4..; k4: over t and t + 4; mins: over t; zero != 0: {-zero *
//          high, -zero * low} of the scales t, t + 4..
//   scale  one float
template <class Block>
struct N1Tile {
    using P = Packed<Block>;
    static constexpr int lane_bytes = P::small ? 8 : 16;        // of codes a lane and c
    static constexpr int zeros = 4 * 2 * 4 * lane_bytes;        // byte offsets
    static constexpr int sums = zeros + 4 * lane_bytes;
    static constexpr int sum_bytes = vb_n1_sum_bytes(P::format); // for a t
    static constexpr int scale = sums + 4 * sum_bytes;
    static constexpr int bytes = scale + 16;
    static_assert(bytes == vb_n1_tile_bytes(P::format), "what the chooser plans with");

    // One warp quantizes x[0..depth-1], of which v are 4 elements of each 128 a lane.
    static VB_DEVICE void quantize(uint8_t *out, const float4 (&v)[P::depth / 128], int lane) {
        constexpr int parts = P::depth / 128;
        const Quantization q = quantization_of(v);
        if (lane == 0) *reinterpret_cast<float *>(out + scale) = q.scale;
        if (lane < lane_bytes) reinterpret_cast<uint32_t *>(out + zeros)[lane] = 0;
#pragma unroll
        for (int i = 0; i < parts; i++) {
            QuantizedWord w = quantize_word(v[i], q.inverse);
            const int word = 32 * i + lane, value = word >> 2, t = word & 3;
            // the scale of a value word, and its place among the value words of this c
            const int s = P::sixteens ? value : value >> 1, c = s & 3;
            const int place = P::sixteens ? s >> 2 : (s >> 2) * 2 + (value & 1);
            uint8_t *code = out + ((c * 2 * 4) + t) * lane_bytes + place * 4;
            *reinterpret_cast<uint32_t *>(code) = w.high;
            *reinterpret_cast<uint32_t *>(code + 4 * lane_bytes) = w.low;
            if constexpr (sum_bytes != 0) {
                constexpr int lanes = P::sixteens ? 4 : 8; // that share a scale
                add_sums(w, lanes);
                if (lane % lanes != 0) continue;
                if constexpr (P::k2 || P::k4 || P::mins)
                    reinterpret_cast<int *>(out + sums + c * sum_bytes)[s >> 2] = 128 * w.high_sum + w.low_sum;
                else { // nibbles of the upper half are multiplied in place, 16 times their value
                    const bool upper = P::nibbles && value >= P::words;
                    const int zero = upper ? -16 * P::zero : -P::zero;
                    reinterpret_cast<int2 *>(out + sums + c * sum_bytes)[s >> 2] =
                        make_int2(zero * w.high_sum, zero * w.low_sum);
                }
            }
        }
    }

    // Where a lane's operand B lies for c, relative to the tile.
    static VB_DEVICE int operand_offset(int lane, int c) {
        const int g = lane >> 2, t = lane & 3;
        return (g >> 1 == c ? (g * 4 + t) : 4 * 2 * 4 + t) * lane_bytes;
    }
};

// A lane's part of one tile of x, read from shared memory: for any number of tiles of weights.
template <class Block>
struct N1Operand {
    using V = N1Tile<Block>;
    static constexpr int lane_words = V::lane_bytes / 4, sum_words = V::sum_bytes ? V::sum_bytes / 4 : 1;
    uint32_t codes[4][lane_words];
    int sums[sum_words];
    float scale;

    // offsets are N1Tile's operand_offset.
    VB_DEVICE void load(const uint8_t *x, const int offsets[4], int lane) {
#pragma unroll
        for (int s = 0; s < 4; s++) {
            if constexpr (lane_words == 4) {
                const uint4 b = *reinterpret_cast<const uint4 *>(x + offsets[s]);
                codes[s][0] = b.x, codes[s][1] = b.y, codes[s][2] = b.z, codes[s][3] = b.w;
            } else {
                const uint2 b = *reinterpret_cast<const uint2 *>(x + offsets[s]);
                codes[s][0] = b.x, codes[s][1] = b.y;
            }
        }
        const int2 *from = reinterpret_cast<const int2 *>(x + V::sums + (lane & 3) * V::sum_bytes);
#pragma unroll
        for (int i = 0; i < V::sum_bytes / 8; i++) sums[2 * i] = from[i].x, sums[2 * i + 1] = from[i].y;
        scale = *reinterpret_cast<const float *>(x + V::scale);
    }
};

// A lane's part of one tile of weights, read from shared memory.
template <class Block>
struct N1Weights {
    using P = Packed<Block>;
    uint32_t words[2 * P::words];
    uint4 k4[P::k4 ? 2 : 1];  // d, dmin, scales of the rows g and g + 8
    uint32_t sixteens[P::sixteens ? 2 : 1]; // the scales t, t + 4, t + 8, t + 12 of these rows
    uint32_t d[P::k4 || P::e4m3 ? 1 : 2];  // small: of the scale t; k2: {d, dmin}
    uint4 table[1];              // own_table
    uint32_t m[P::mins ? 2 : 1]; // the addend of scale t

    VB_DEVICE void load(const uint8_t *tile, int lane) {
#pragma unroll
        for (int i = 0; i < P::quads; i++) {
            const uint4 v = reinterpret_cast<const uint4 *>(tile + 512 * i)[lane];
            words[4 * i] = v.x, words[4 * i + 1] = v.y, words[4 * i + 2] = v.z, words[4 * i + 3] = v.w;
        }
        if constexpr (P::pair) {
            const uint2 v = reinterpret_cast<const uint2 *>(tile + 512 * P::quads)[lane];
            words[4 * P::quads] = v.x, words[4 * P::quads + 1] = v.y;
        }
        const uint8_t *p = tile + P::code_bytes;
        const int g = lane >> 2;
        if constexpr (P::k4) {
            k4[0] = reinterpret_cast<const uint4 *>(p)[g];
            k4[1] = reinterpret_cast<const uint4 *>(p)[g + 8];
        } else if constexpr (P::sixteens) {
            sixteens[0] = reinterpret_cast<const uint32_t *>(p)[lane];
            sixteens[1] = reinterpret_cast<const uint32_t *>(p)[lane + 32];
            if constexpr (!P::e4m3) {
                const auto *h = reinterpret_cast<const typename P::RowScale *>(p + P::scale_bytes);
                d[0] = h[g], d[1] = h[g + 8];
            }
            if constexpr (P::own_table) table[0] = *reinterpret_cast<const uint4 *>(tile + P::table_at);
        } else {
            const unsigned short *h = reinterpret_cast<const unsigned short *>(p);
            d[0] = h[lane], d[1] = h[lane + 32];
            if constexpr (P::mins) m[0] = h[P::scale_bytes / 2 + lane], m[1] = h[P::scale_bytes / 2 + lane + 32];
        }
    }

    // sum[0], sum[1] += this lane's share of the rows g and g + 8 times x. `by` are the type's summand_words.
    VB_DEVICE void multiply(float sum[2], const N1Operand<Block> &x, const uint4 &by, int lane) const {
        const int t = lane & 3;
        const CodeRows<Block> codes(words, P::own_table ? table[0] : by);
        if constexpr (P::k4) {
            int c[2][4] = {};
#pragma unroll
            for (int s = 0; s < 4; s++) {
                const uint32_t *b = x.codes[s];
                codes.multiply_words(c[0], 2 * s, b[0], b[1]), codes.multiply_words(c[1], 2 * s + 8, b[2], b[3]);
            }
#pragma unroll
            for (int r = 0; r < 2; r++) { // vb_k4_scale for the scales t and t + 4
                const uint32_t a = __byte_perm(k4[r].y, 0, 0x4440 | t), m = __byte_perm(k4[r].z, 0, 0x4440 | t);
                const uint32_t l = __byte_perm(k4[r].w, 0, 0x4440 | t);
                const int s0 = a & 63, s1 = (l & 15) | ((a >> 2) & 0x30), m0 = m & 63,
                          m1 = (l >> 4) | ((m >> 2) & 0x30);
                const int dot0 = c[0][2 * r] * 128 + c[0][2 * r + 1];
                // c[1] counts sixteenths where the codes are nibbles. Of 32 codes of 31 and scales of 63 both dots make
                // 2.04e9.
                const int dot1 =
                    P::bits == 4 ? c[1][2 * r] * 8 + (c[1][2 * r + 1] >> 4) : c[1][2 * r] * 128 + c[1][2 * r + 1];
                const float f = low_half(k4[r].x) * static_cast<float>(s0 * dot0 + s1 * dot1) -
                                high_half(k4[r].x) * static_cast<float>(m0 * x.sums[0] + m1 * x.sums[1]);
                sum[r] = fmaf(f, x.scale, sum[r]);
            }
        } else if constexpr (P::e4m3) {
            int c[4][4] = {};
#pragma unroll
            for (int s = 0; s < 4; s++)
#pragma unroll
                for (int i = 0; i < 4; i++) codes.multiply_word(c[i], s + 4 * i, x.codes[s][i]);
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float total = 0;
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const uint32_t s = i < 3 ? sixteens[r] << (20 - 8 * i) : sixteens[r] >> 4;
                    const float dot = static_cast<float>(128 * c[i][2 * r] + c[i][2 * r + 1]);
                    total = fmaf(P::e4m3_bits(s & 0x07f00000), dot, total);
                }
                sum[r] = fmaf(total * P::e4m3_unit, x.scale, sum[r]);
            }
        } else if constexpr (P::sixteens) {
            int c[4][4] = {};
            if constexpr (!P::k2)
#pragma unroll
                for (int i = 0; i < 4; i++) c[i][0] = c[i][2] = x.sums[2 * i], c[i][1] = c[i][3] = x.sums[2 * i + 1];
#pragma unroll
            for (int s = 0; s < 4; s++)
#pragma unroll
                for (int i = 0; i < 4; i++) codes.multiply_word(c[i], s + 4 * i, x.codes[s][i]);
#pragma unroll
            for (int r = 0; r < 2; r++) {
                int high = 0, low = 0, subtrahend = 0;
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    if (P::nibbles && i == 2) high *= 16, low *= 16; // the others are 16 times their value
                    const int s = P::k2 ? sixteens[r] >> (8 * i) & 15 : static_cast<int8_t>(sixteens[r] >> (8 * i));
                    high += s * c[i][2 * r], low += s * c[i][2 * r + 1];
                    if constexpr (P::k2) subtrahend += static_cast<int>(sixteens[r] >> (8 * i + 4) & 15) * x.sums[i];
                }
                const float both = fmaf(static_cast<float>(high), 128.0f, static_cast<float>(low));
                sum[r] = fmaf(low_half(d[r]) * (P::nibbles ? x.scale * 0.0625f : x.scale), both, sum[r]);
                if constexpr (P::k2) sum[r] -= high_half(d[r]) * x.scale * static_cast<float>(subtrahend);
            }
        } else {
            int c[4] = {0, 0, 0, 0};
            if constexpr (P::zero != 0) c[0] = c[2] = x.sums[0], c[1] = c[3] = x.sums[1];
#pragma unroll
            for (int s = 0; s < 4; s++) codes.multiply_words(c, 2 * s, x.codes[s][0], x.codes[s][1]);
            // the value words 4 to 7 are 16 times their value
            const float unit = P::nibbles && t >= 2 ? x.scale * 0.0625f : x.scale;
#pragma unroll
            for (int r = 0; r < 2; r++)
                sum[r] = fmaf(P::scale_of_bits(d[r]) * unit, static_cast<float>(c[2 * r] * 128 + c[2 * r + 1]), sum[r]);
            if constexpr (P::mins)
#pragma unroll
                for (int r = 0; r < 2; r++)
                    sum[r] = fmaf(half_bits(m[r]) * x.scale, static_cast<float>(x.sums[0]), sum[r]);
        }
    }
};

} // namespace vb
#endif
