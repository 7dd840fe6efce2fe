// packed.cuh: the layout VB_PACKED of quantized weights on CUDA. formats.h has the numbers of each type.
//
// The matrix is cut into tiles of 16 rows by `depth` columns, stored row of tiles by row of tiles. Rows are padded to
// whole tiles with zeros. A warp multiplies a tile by instructions of shape 16 x 8 x 32 (or x 16), whose operand A
// gives lane (g = lane / 4, t = lane % 4) the rows g and g + 8. Lane by lane a tile holds, for 16-byte loads:
//   codes    The four neighbours 16 v + 4 t + (0..3) of a row are the bytes of "value word" v. Value words share stored
//            words, in bits that bytes can spare. 2 bits: four words in one. 4 bits: words i and i + half, a nibble
//            each, or of tables a half of the stored word each. 5 bits: eight in five, the last three spread over the
//            upper three bits. 6 bits: four in three, the last spread over the upper two. A lane's words are of row g,
//            then of row g + 8; words 4c..4c+3 of all lanes lie together, a last odd pair likewise.
//   scales   Row after row. K4: the 16 bytes d, dmin, scales[12] as stored. K2 and K6: 16 scales as a 4 x 4 matrix
//            transposed (scale 4 i + t is byte 4 t + i, so that a lane may need one word only), and after all rows the
//            d, of K2 {d, dmin} (the upper half of its bytes are minima). E4M3: likewise, without a d. HALF, BF16: four
//            a row, HALF_MIN also four m.
//   table    of VB_CODES_TABLE: the four words of LookUp that look_up takes
#ifndef VB_LINEAR_PACKED_CUH
#define VB_LINEAR_PACKED_CUH

#include "linear/packed/formats.h"
#include "linear/quant.cuh"
#include "runtime/power_of_two.cuh"

#include <type_traits>

namespace vb {

constexpr int packed_rows = VB_PACKED_ROWS;

// The numbers of a type's layout (formats.h), by its block.
template <class Block>
struct PackedFormat;
#define X(type, block, ...)                                              \
    template <>                                                          \
    struct PackedFormat<block> {                                         \
        static constexpr vb_packed_format value = vb_packed_format_of(type); \
    };
VB_PACKED_TYPES(X)
#undef X

// A table of 16 values that two byte permutations look up. A permutation takes the lower three bits of a nibble as a
// place.
// It gives the byte of this place, or, where the fourth bit is set, the byte's sign eight times.
// A nibble looks up first, and with all bits turned second: one gives a byte, the other a sign. The nibbles i and i + 8
// are a pair: they look up first[i] and second[7 - i].
// The value is the exclusive or of both, if the values of a pair are both negative or both not: codes get places in
// such pairs. With other bytes, summands, the value is the sum of both, which matrix instructions add up by themselves.
struct LookUp {
    uint8_t first[8], second[8];
    uint8_t place[16]; // of a file's codes

    // The signs of numbers make the pairs. bytes are looked up; their upper bits are these signs, or all turned.
    __host__ __device__ constexpr LookUp(const int8_t (&signs)[16], const uint8_t (&bytes)[16])
        : first{}, second{}, place{} {
        int places = 0;
        for (int negative = 0; negative < 2; negative++) {
            int last = -1;
            for (int c = 0; c < 16; c++) {
                if ((signs[c] < 0) != (negative != 0)) continue;
                int same = -1; // an earlier code of this value
                for (int e = 0; e < c; e++)
                    if (signs[e] == signs[c]) same = e;
                if (same >= 0) {
                    place[c] = place[same];
                    continue;
                }
                if (last < 0) {
                    last = places;
                    place[c] = (uint8_t)places++;
                    put(place[c], bytes[c]), put(place[c] + 8, bytes[c]);
                } else {
                    place[c] = (uint8_t)(last + 8), last = -1;
                    put(place[c], bytes[c]);
                }
            }
        }
    }
    __host__ __device__ constexpr void put(int at, uint8_t byte) {
        if (at < 8) first[at] = byte;
        else second[15 - at] = byte & 0x80 ? (uint8_t)~byte : byte;
    }
    // The same table by summands. Of a negative pair the sign that one permutation gives, -1, is taken from the other's
    // byte; where that byte is then 0, it gives no sign.
    __host__ __device__ constexpr LookUp summands() const {
        LookUp sums = *this;
        for (int i = 0; i < 8; i++) {
            uint8_t &a = sums.first[i], &b = sums.second[7 - i];
            if (!(a & 0x80)) continue;
            b = (uint8_t)~b;
            if (a == 0xff) a = 0;
            else if (b == 0xff) b = 0;
            else a++, b++;
        }
        return sums;
    }
    __host__ __device__ constexpr uint64_t places() const { // a nibble each
        uint64_t all = 0;
        for (int c = 0; c < 16; c++) all |= (uint64_t)place[c] << (4 * c);
        return all;
    }
    __host__ __device__ constexpr uint32_t word(bool upper, bool seconds) const {
        const uint8_t *const b = (seconds ? second : first) + 4 * upper;
        return b[0] | b[1] << 8 | b[2] << 16 | (uint32_t)b[3] << 24;
    }
};
// The values plus `more`.
__host__ __device__ constexpr LookUp table_of(const int8_t (&values)[16], int more) {
    uint8_t bytes[16] = {};
    for (int c = 0; c < 16; c++) bytes[c] = (uint8_t)(values[c] + more);
    return LookUp(values, bytes);
}
constexpr int8_t table_values[2][16] = {VB_IQ4NL_VALUES, VB_MXFP4_VALUES};
__host__ __device__ constexpr LookUp table_plus(int table, int more) { return table_of(table_values[table], more); }
// The upper bytes of MXFP4's values as F16, whose lower bytes are 0.
constexpr uint8_t mxfp4_halves[16] = {0x00, 0x3c, 0x40, 0x42, 0x44, 0x46, 0x48, 0x4a,
                                      0x00, 0xbc, 0xc0, 0xc2, 0xc4, 0xc6, 0xc8, 0xca};

// __byte_perm with signs, which that leaves out.
VB_DEVICE uint32_t permute(uint32_t low, uint32_t high, uint32_t selector) {
    uint32_t v;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(v) : "r"(low), "r"(high), "r"(selector));
    return v;
}

// w >> 16 and ~w >> 16 in their lower halves, by the units of products: permutations keep those of logic busy.
VB_DEVICE uint32_t upper_half(uint32_t w) {
    uint32_t v;
    asm("dp2a.lo.u32.u32 %0, %1, %2, %3;" : "=r"(v) : "r"(w), "r"(0x0100), "r"(0));
    return v;
}
VB_DEVICE uint32_t turned_upper_half(uint32_t w) {
    uint32_t v;
    asm("dp2a.lo.u32.s32 %0, %1, %2, %3;" : "=r"(v) : "r"(w), "r"(0xff00), "r"(-1));
    return v;
}
VB_DEVICE uint32_t turned_lower_half(uint32_t w) {
    uint32_t v;
    asm("dp2a.lo.u32.s32 %0, %1, %2, %3;" : "=r"(v) : "r"(w), "r"(0x00ff), "r"(-1));
    return v;
}

template <class Block>
struct Packed {
    static constexpr vb_packed_format format = PackedFormat<Block>::value;
    static constexpr int bits = format.bits, zero = format.zero;
    static constexpr bool mins = format.scales == VB_SCALES_HALF_MIN;       // a scale and an addend for 32 elements
    static constexpr bool powers = format.scales == VB_SCALES_BF16;         // a power of two for 32 elements
    static constexpr bool small = format.scales == VB_SCALES_HALF || powers || mins; // scales for 32 elements
    static constexpr bool k2 = format.scales == VB_SCALES_K2, k4 = format.scales == VB_SCALES_K4;
    static constexpr bool k6 = format.scales == VB_SCALES_K6, e4m3 = format.scales == VB_SCALES_E4M3;
    static constexpr bool sixteens = k2 || k6 || e4m3; // scales for 16 elements
    static constexpr bool ragged = small || e4m3;      // the last tile of a row may lack columns
    static constexpr bool table = format.codes != VB_CODES_NUMBERS, own_table = format.codes == VB_CODES_TABLE;
    static constexpr bool floats = format.codes == VB_CODES_MXFP4; // whose values may be read as F16 at once
    static constexpr bool is_signed = bits == 8 || (table && zero == 0); // value words have signed bytes
    static constexpr bool nibbles = bits == 4 && !table;  // which are multiplied in place
    static constexpr int rows = packed_rows, depth = format.depth;
    static constexpr int values = depth / 16;        // value words of one row, for one lane
    static constexpr int words = values * bits / 8;  // stored words of one row, for one lane
    static constexpr int quads = 2 * words / 4;      // 16-byte loads of codes a lane;
    static constexpr bool pair = 2 * words % 4 != 0; // and an 8-byte one?
    static constexpr int code_bytes = format.code_bytes, scale_bytes = format.scale_bytes,
                         tile_bytes = format.tile_bytes;
    static constexpr int table_at = tile_bytes - format.table_bytes;
    static_assert(code_bytes == 2 * words * 4 * 32, "a tile's words");
    using RowScale = std::conditional_t<k2, uint32_t, uint16_t>; // of k2: {d, dmin}; of k6: d

    // The number that the scale of 32 elements stands for, in the low bits of a word.
    static VB_DEVICE float scale_of_bits(uint32_t bits) {
        return powers ? __uint_as_float(bits << 16) : half_bits(bits & 0xffff);
    }

    // The scale of E4M3 that lies in bits 20..26 of a word whose other bits are 0, divided by e4m3_unit: a float of the
    // same exponent and digits, which are subnormal alike.
    static constexpr float e4m3_unit = 0x1p119f;
    static VB_DEVICE float e4m3_bits(uint32_t bits) { return __uint_as_float(bits); }
    static constexpr float e4m3_half_unit = 128; // the same for halves of the seven bits 7..13

    // Where the scale of group i (0..15) lies in the 16 bytes of a row of Q6_K; its own inverse.
    static __host__ __device__ constexpr int q6_scale_byte(int i) { return (i & 3) * 4 + (i >> 2); }

    // Byte offset in the tile of stored word i (0 .. 2 * words - 1) of a lane.
    static __host__ __device__ __forceinline__ int word_offset(int lane, int i) {
        return i < 4 * quads ? (i >> 2) * 512 + lane * 16 + (i & 3) * 4 : quads * 512 + lane * 8 + (i & 1) * 4;
    }

    // v[0..values-1] = the value words of the stored words w[0..words-1] of one row. own_table: by the tile's table.
    static VB_DEVICE void unpack(uint32_t v[values], const uint32_t w[words], const uint4 &tiles_table) {
        if constexpr (bits == 8) {
#pragma unroll
            for (int i = 0; i < words; i++) v[i] = w[i];
        } else if constexpr (table) {
            look_up_all<0>(v, w, tiles_table);
        } else if constexpr (bits == 2) {
#pragma unroll
            for (int i = 0; i < values; i++) v[i] = (w[i % words] >> (2 * (i / words))) & 0x03030303;
        } else if constexpr (bits == 4) {
#pragma unroll
            for (int i = 0; i < words; i++) v[i] = w[i] & 0x0f0f0f0f, v[i + words] = (w[i] >> 4) & 0x0f0f0f0f;
        } else if constexpr (bits == 5) {
#pragma unroll
            for (int a = 0; a < values / 8; a++) {
                const uint32_t *s = w + 5 * a;
#pragma unroll
                for (int i = 0; i < 5; i++) v[8 * a + i] = s[i] & 0x1f1f1f1f;
                v[8 * a + 5] = ((s[0] >> 3) & 0x1c1c1c1c) | ((s[1] >> 6) & 0x03030303);
                v[8 * a + 6] = ((s[2] >> 3) & 0x1c1c1c1c) | ((s[3] >> 6) & 0x03030303);
                v[8 * a + 7] = ((s[4] >> 3) & 0x1c1c1c1c) | ((s[1] >> 4) & 0x02020202) | ((s[3] >> 5) & 0x01010101);
            }
        } else {
#pragma unroll
            for (int a = 0; a < values / 4; a++) {
                const uint32_t *s = w + 3 * a;
#pragma unroll
                for (int i = 0; i < 3; i++) v[4 * a + i] = s[i] & 0x3f3f3f3f;
                v[4 * a + 3] = ((s[0] >> 2) & 0x30303030) | ((s[1] >> 4) & 0x0c0c0c0c) | ((s[2] >> 6) & 0x03030303);
            }
        }
    }

    // unpack, signed bytes + 128.
    static VB_DEVICE void unpack_raised(uint32_t v[values], const uint32_t w[words], const uint4 &tiles_table) {
        if constexpr (is_signed && table) {
            look_up_all<128>(v, w, tiles_table);
        } else {
            unpack(v, w, tiles_table);
#pragma unroll
            for (int i = 0; i < values; i++)
                if constexpr (is_signed) v[i] ^= 0x80808080;
        }
    }

    // unpack_raised of a table, for kernels where permutations keep the units of logic busy: the units of products move
    // the codes.
    static VB_DEVICE void unpack_raised_by_products(uint32_t v[values], const uint32_t w[words],
                                                    const uint4 &tiles_table) {
        static_assert(table, "codes of a table");
        constexpr int more = is_signed ? 128 : 0;
#pragma unroll
        for (int i = 0; i < words; i++) {
            v[i] = look_up<more>(w[i], turned_lower_half(w[i]), tiles_table);
            v[i + words] = look_up<more>(upper_half(w[i]), turned_upper_half(w[i]), tiles_table);
        }
    }

    // Four values of a table plus MORE, by the codes in the lower half of a word, and by the same codes with all bits
    // turned.
    template <int MORE>
    static VB_DEVICE uint32_t look_up(uint32_t codes, uint32_t turned, const uint4 &tiles_table) {
        if constexpr (own_table)
            return permute(tiles_table.x, tiles_table.y, codes) ^ permute(tiles_table.z, tiles_table.w, turned);
        else {
            constexpr LookUp t = table_plus(format.codes - 1, zero + MORE);
            constexpr uint32_t a0 = t.word(false, false), a1 = t.word(true, false), b0 = t.word(false, true),
                               b1 = t.word(true, true);
            return permute(a0, a1, codes) ^ permute(b0, b1, turned);
        }
    }
    template <int MORE>
    static VB_DEVICE void look_up_all(uint32_t v[values], const uint32_t w[words], const uint4 &tiles_table) {
#pragma unroll
        for (int i = 0; i < words; i++) {
            const uint32_t turned = ~w[i];
            v[i] = look_up<MORE>(w[i], turned, tiles_table);
            v[i + words] = look_up<MORE>(w[i] >> 16, turned >> 16, tiles_table);
        }
    }
    // Value words as sums of so many words each, whose products are added up: summand_words and unpack_summands, by
    // the summands of the type's table in registers or by the tile's table, which has no negative bytes.
    static constexpr int summands = table ? 2 : 1;
    static VB_DEVICE uint4 summand_words() {
        if constexpr (!table || own_table) return uint4();
        else {
            constexpr LookUp t = table_plus(format.codes - 1, zero).summands();
            // Lane 0's. A constant, or what all lanes compute, would be moved to a register before each permutation.
            const auto keep = [](uint32_t word) { return __shfl_sync(all_lanes, word + threadIdx.x % 32, 0); };
            return make_uint4(keep(t.word(false, false)), keep(t.word(true, false)), keep(t.word(false, true)),
                              keep(t.word(true, true)));
        }
    }
    static VB_DEVICE void unpack_summands(uint32_t (&v)[summands][values], const uint32_t w[words], const uint4 &by) {
        if constexpr (nibbles) unpack_nibbles(v[0], w);
        else if constexpr (!table) unpack(v[0], w, by);
        else
#pragma unroll
            for (int i = 0; i < words; i++) {
                v[0][i] = permute(by.x, by.y, w[i]), v[1][i] = permute(by.z, by.w, turned_lower_half(w[i]));
                v[0][i + words] = permute(by.x, by.y, upper_half(w[i]));
                v[1][i + words] = permute(by.z, by.w, turned_upper_half(w[i]));
            }
    }

    // The upper bytes of four values of MXFP4 as F16, by look_up's codes.
    static VB_DEVICE uint32_t half_bytes(uint32_t codes, uint32_t turned) {
        constexpr LookUp t = LookUp(table_values[1], mxfp4_halves);
        constexpr uint32_t a0 = t.word(false, false), a1 = t.word(true, false), b0 = t.word(false, true),
                           b1 = t.word(true, true);
        return permute(a0, a1, codes) ^ permute(b0, b1, turned);
    }

    // The same for 4 bits without the shifts: v[words..] are 16 times the value words.
    static VB_DEVICE void unpack_nibbles(uint32_t v[values], const uint32_t w[words]) {
        static_assert(nibbles, "codes of four bits");
#pragma unroll
        for (int i = 0; i < words; i++) v[i] = w[i] & 0x0f0f0f0f, v[i + words] = w[i] & 0xf0f0f0f0;
    }

    // The inverse, one byte: byte b of stored word i of a row whose value word v has the bytes code_at(v, b). Codes of
    // own_table are places already.
    template <class Code> static VB_DEVICE uint32_t pack_byte(int i, int b, Code code_at) {
        const auto code = [&](int v) { return code_at(v, b); };
        if constexpr (table) {
            const auto place = [&](int n) {
                const int code = code_at(i + b / 2 * words, n);
                if constexpr (own_table) return (uint32_t)code;
                else {
                    constexpr uint64_t places = table_plus(own_table ? 0 : format.codes - 1, 0).places();
                    return (uint32_t)(places >> (4 * code)) & 15;
                }
            };
            return place(b % 2 * 2) | place(b % 2 * 2 + 1) << 4;
        } else if constexpr (bits == 8) return code(i) & 255;
        else if constexpr (bits == 2)
            return code(i) | code(i + words) << 2 | code(i + 2 * words) << 4 | code(i + 3 * words) << 6;
        else if constexpr (bits == 4) return code(i) | code(i + words) << 4;
        else if constexpr (bits == 5) {
            const int a = i / 5 * 8, j = i % 5;
            const int v5 = code(a + 5), v6 = code(a + 6), v7 = code(a + 7);
            const int top = j == 0   ? v5 >> 2
                            : j == 1 ? (v5 & 3) << 1 | ((v7 >> 1) & 1)
                            : j == 2 ? v6 >> 2
                            : j == 3 ? (v6 & 3) << 1 | (v7 & 1)
                                     : v7 >> 2;
            return code(a + j) | top << 5;
        } else {
            const int a = i / 3 * 4, j = i % 3;
            return code(a + j) | ((code(a + 3) >> (4 - 2 * j)) & 3) << 6;
        }
    }

    // The code of element k (0 .. depth - 1) of row r (0..15) of a tile, through the table: for reading single
    // elements.
    static VB_DEVICE int code(const uint8_t *tile, int r, int k) {
        const int lane = (r & 7) * 4 + ((k >> 2) & 3), v = k >> 4;
        if constexpr (table) {
            const uint8_t two = tile[word_offset(lane, (r >> 3) * words + v % words) + v / words * 2 + (k & 3) / 2];
            uint4 own = uint4();
            if constexpr (own_table) own = *reinterpret_cast<const uint4 *>(tile + table_at);
            const uint32_t nibble = k & 1 ? two >> 4 : two & 15, value = look_up<0>(nibble, ~nibble, own) & 255;
            return is_signed ? static_cast<int8_t>(value) : value;
        }
        const uint8_t *byte = tile + (k & 3);
        auto at = [&](int i) { return static_cast<int>(byte[word_offset(lane, (r >> 3) * words + i)]); };
        if constexpr (bits == 8) return static_cast<int8_t>(at(v));
        else if constexpr (bits == 2) return at(v % words) >> (2 * (v / words)) & 3;
        else if constexpr (bits == 4) {
            return v < words ? at(v) & 15 : at(v - words) >> 4;
        } else if constexpr (bits == 5) {
            const int a = v / 8 * 5, j = v % 8;
            if (j < 5) return at(a + j) & 31;
            if (j == 5) return (at(a) >> 3 & 0x1c) | at(a + 1) >> 6;
            if (j == 6) return (at(a + 2) >> 3 & 0x1c) | at(a + 3) >> 6;
            return (at(a + 4) >> 3 & 0x1c) | (at(a + 1) >> 4 & 2) | (at(a + 3) >> 5 & 1);
        } else {
            const int a = v / 4 * 3, j = v % 4;
            if (j < 3) return at(a + j) & 63;
            return (at(a) >> 2 & 0x30) | (at(a + 1) >> 4 & 0x0c) | at(a + 2) >> 6;
        }
    }

    // The value is scale * code + offset: both for element k of row r of a tile.
    static VB_DEVICE void scale_of(const uint8_t *tile, int r, int k, float *scale, float *offset) {
        const uint8_t *p = tile + code_bytes;
        if constexpr (small) {
            *scale = scale_of_bits(reinterpret_cast<const vb_half *>(p)[r * (depth / VB_QK) + k / VB_QK]);
            *offset = mins ? half_bits(reinterpret_cast<const vb_half *>(
                                 p + (mins ? scale_bytes : 0))[r * (depth / VB_QK) + k / VB_QK])
                           : -zero * *scale;
        } else if constexpr (k4) {
            const vb_half *d = reinterpret_cast<const vb_half *>(p + 16 * r);
            int s, m;
            vb_k4_scale(p + 16 * r + 4, k >> 5, &s, &m);
            *scale = half_bits(d[0]) * s;
            *offset = -half_bits(d[1]) * m;
        } else if constexpr (k2) {
            const int s = p[16 * r + q6_scale_byte(k >> 4)];
            const vb_half *d = reinterpret_cast<const vb_half *>(p + scale_bytes) + 2 * r;
            *scale = half_bits(d[0]) * (s & 15);
            *offset = -half_bits(d[1]) * (s >> 4);
        } else if constexpr (e4m3) {
            *scale = vb_ue4m3(p[16 * r + q6_scale_byte(k >> 4)]), *offset = 0;
        } else {
            const int8_t s = static_cast<int8_t>(p[16 * r + q6_scale_byte(k >> 4)]);
            *scale = half_bits(reinterpret_cast<const vb_half *>(p + scale_bytes)[r]) * s;
            *offset = -zero * *scale;
        }
    }

    // Tiles of a row. The last tile may be a part where rows are ragged: its other columns are zeros.
    static __host__ __device__ __forceinline__ int64_t tiles_of(int64_t cols) { return (cols + depth - 1) / depth; }
    static __host__ __device__ __forceinline__ int64_t tile_index(int64_t row, int64_t k, int64_t cols) {
        return row / rows * tiles_of(cols) + k / depth;
    }
};

// Weights are read once: they should not displace repeated reads from L1.
VB_DEVICE uint4 load_once(const uint4 *p) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}
VB_DEVICE uint2 load_once(const uint2 *p) {
    uint2 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
    return v;
}

// vb_k4_scale of a row, four at a time. Of its 16 bytes of scales, {d, dmin} and twelve packed bytes, it makes four
// words: the bytes of scales 0..3, 4..7, mins 0..3, 4..7.
VB_DEVICE void k4_scales(uint32_t bytes[4], uint4 s) {
    bytes[0] = s.y & 0x3f3f3f3f, bytes[1] = (s.w & 0x0f0f0f0f) | ((s.y >> 2) & 0x30303030);
    bytes[2] = s.z & 0x3f3f3f3f, bytes[3] = ((s.w >> 4) & 0x0f0f0f0f) | ((s.z >> 2) & 0x30303030);
}

// A lane's part of one tile, as stored: the rows g and g + 8.
template <class Block>
struct LaneTile {
    using P = Packed<Block>;
    uint32_t words[2 * P::words];  // codes of row g, then of row g + 8
    // 16 bytes of each row; small: four d of row g, four of row g + 8; the addends alike
    uint4 scales[P::small && !P::mins ? 1 : 2];
    uint32_t d[P::k2 || P::k6 ? 2 : 1]; // K2: {d, dmin}
    uint4 table[P::own_table ? 2 : 1];  // of either row

    // From global memory (GLOBAL), or from a tile in shared memory.
    template <bool GLOBAL>
    VB_DEVICE void load(const uint8_t *tile, int lane) {
        const auto four = [](const void *p, int i) {
            return GLOBAL ? load_once(static_cast<const uint4 *>(p) + i) : static_cast<const uint4 *>(p)[i];
        };
        const auto two = [](const void *p, int i) {
            return GLOBAL ? load_once(static_cast<const uint2 *>(p) + i) : static_cast<const uint2 *>(p)[i];
        };
#pragma unroll
        for (int i = 0; i < P::quads; i++) {
            const uint4 v = four(tile + 512 * i, lane);
            words[4 * i] = v.x, words[4 * i + 1] = v.y, words[4 * i + 2] = v.z, words[4 * i + 3] = v.w;
        }
        if constexpr (P::pair) {
            const uint2 v = two(tile + 512 * P::quads, lane);
            words[4 * P::quads] = v.x, words[4 * P::quads + 1] = v.y;
        }
        const uint8_t *p = tile + P::code_bytes;
        const int g = lane >> 2;
        if constexpr (P::small) {
            const uint2 a = two(p, g), b = two(p, g + 8);
            scales[0] = make_uint4(a.x, a.y, b.x, b.y);
            if constexpr (P::mins) {
                const uint2 c = two(p + P::scale_bytes, g), d = two(p + P::scale_bytes, g + 8);
                scales[1] = make_uint4(c.x, c.y, d.x, d.y);
            }
        } else {
            scales[0] = four(p, g);
            scales[1] = four(p, g + 8);
        }
        if constexpr (P::own_table) table[0] = table[1] = four(tile + P::table_at, 0);
        if constexpr (P::k2 || P::k6) {
            const auto *h = reinterpret_cast<const typename P::RowScale *>(p + P::scale_bytes);
            d[0] = GLOBAL ? __ldg(h + g) : h[g], d[1] = GLOBAL ? __ldg(h + g + 8) : h[g + 8];
        }
    }
};

template <class Block>
VB_DEVICE void unpack_rows(uint32_t (&v)[2][Packed<Block>::values], const LaneTile<Block> &w) {
    using P = Packed<Block>;
#pragma unroll
    for (int r = 0; r < 2; r++) P::unpack(v[r], w.words + r * P::words, w.table[P::own_table ? r : 0]);
}
template <class Block>
VB_DEVICE void unpack_rows_raised(uint32_t (&v)[2][Packed<Block>::values], const LaneTile<Block> &w) {
    using P = Packed<Block>;
#pragma unroll
    for (int r = 0; r < 2; r++) P::unpack_raised(v[r], w.words + r * P::words, w.table[P::own_table ? r : 0]);
}

VB_DEVICE float low_half(uint32_t v) { return half_bits(v & 0xffff); }
VB_DEVICE float high_half(uint32_t v) { return half_bits(v >> 16); }

// Operand A of the subtrahend, of a row's sixteen scales s: 2 t, 2 t + 1 and 2 t + 8, 2 t + 9 as halves. K2: the minima
// as subnormal halves.
template <class Block>
VB_DEVICE void sixteens_operand(uint32_t &low, uint32_t &high, uint4 s, int t) {
    const uint32_t four = __byte_perm(t & 1 ? s.z : s.x, t & 1 ? s.w : s.y, t & 2 ? 0x7351 : 0x6240);
    if constexpr (Packed<Block>::k2) {
        const uint32_t minima = four >> 4 & 0x0f0f0f0f;
        low = __byte_perm(minima, 0, 0x4140), high = __byte_perm(minima, 0, 0x4342);
    } else {
        const auto number = [](uint32_t two) {
            const __half2 v = __hsub2(*reinterpret_cast<const __half2 *>(&two), __float2half2_rn(1152.0f));
            return *reinterpret_cast<const uint32_t *>(&v);
        };
        const uint32_t raised = four ^ 0x80808080; // + 128
        low = number(__byte_perm(raised, 0x64646464, 0x4140)), high = number(__byte_perm(raised, 0x64646464, 0x4342));
    }
}

// ---- x as bytes -----------------------------------------------------------------------------------------------------

// x = scale * (128 * high + low), high in -127..127, low in -64..63: 15 bits, for one tile's depth of elements.
struct Quantization {
    float scale, inverse;
};

// The scale for the greatest magnitude: as an integer, NaN is the greatest.
VB_DEVICE uint32_t greatest_bits(float4 x) {
    return larger(larger(__float_as_uint(fabsf(x.x)), __float_as_uint(fabsf(x.y))),
                  larger(__float_as_uint(fabsf(x.z)), __float_as_uint(fabsf(x.w))));
}
VB_DEVICE uint32_t warp_most(uint32_t x) {
#if __CUDA_ARCH__ >= 800
    return __reduce_max_sync(all_lanes, x);
#else
#pragma unroll
    for (int o = 16; o; o >>= 1) x = larger(x, __shfl_xor_sync(all_lanes, x, o));
    return x;
#endif
}

// From the greatest magnitude of a warp's elements. A NaN among them makes the scale NaN; below 8e-31, where the
// inverse could overflow, all is zero.
template <int COUNT>
VB_DEVICE Quantization quantization_of(const float4 (&v)[COUNT]) {
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < COUNT; i++) most = larger(most, greatest_bits(v[i]));
    const float amax = __uint_as_float(warp_most(most));
    return {amax <= 8e-31f ? 0.0f : amax * (1.0f / 16256.0f), amax > 8e-31f ? __fdividef(16256.0f, amax) : 0.0f};
}

// The sum of four signed bytes.
VB_DEVICE int sum_of_bytes(uint32_t bytes) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 610
    return __dp4a(static_cast<int>(bytes), 0x01010101, 0);
#else
    int sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) sum += static_cast<signed char>(bytes >> (8 * i));
    return sum;
#endif
}

// Four elements as bytes, and their sums.
struct QuantizedWord {
    uint32_t high, low;
    int high_sum, low_sum;
};
// Adding 1.5 * 2^23 leaves an integer in a float's low bits; 64 more, and bits 0..6 are low + 64 and bits 7..14 high.
VB_DEVICE QuantizedWord quantize_word(float4 v, float inverse) {
    const float magic = 12582912.0f + 64.0f;
    const uint32_t q[4] = {
        __float_as_uint(fmaf(v.x, inverse, magic)) << 1, __float_as_uint(fmaf(v.y, inverse, magic)) << 1,
        __float_as_uint(fmaf(v.z, inverse, magic)) << 1, __float_as_uint(fmaf(v.w, inverse, magic)) << 1};
    const uint32_t first = __byte_perm(q[0], q[1], 0x4051), second = __byte_perm(q[2], q[3], 0x4051);
    QuantizedWord word;
    word.high = __byte_perm(first, second, 0x5410);
    // 7 bits, whose sign is extended to 8
    const uint32_t low = (__byte_perm(first, second, 0x7632) >> 1) ^ 0x40404040u;
    word.low = low | (low & 0x40404040u) << 1;
    word.high_sum = sum_of_bytes(word.high);
    word.low_sum = sum_of_bytes(word.low);
    return word;
}
// Adds the sums over groups of `lanes` neighbours, both in one register: they stay below 2^15.
VB_DEVICE void add_sums(QuantizedWord &word, int lanes) {
    int both = (word.high_sum << 16) + word.low_sum;
#pragma unroll
    for (int o = 1; o < lanes; o <<= 1) both += __shfl_xor_sync(all_lanes, both, o);
    word.low_sum = static_cast<short>(both);
    word.high_sum = (both - word.low_sum) >> 16;
}

// ---- results --------------------------------------------------------------------------------------------------------

VB_DEVICE float swiglu(float gate, float up) { return __fdividef(gate, 1.0f + __expf(-gate)) * up; }

// ---- single elements ------------------------------------------------------------------------------------------------

// dequantize8 (quant.cuh) of the packed layout: elements k..k+7 of a row.
template <class Block>
VB_DEVICE void dequantize8_packed(float out[8], const void *data, int64_t row, int64_t k, int64_t cols) {
    using P = Packed<Block>;
    const uint8_t *tile = static_cast<const uint8_t *>(data) + P::tile_index(row, k, cols) * P::tile_bytes;
    const int r = static_cast<int>(row % P::rows), e = static_cast<int>(k % P::depth);
    float scale, offset;
    P::scale_of(tile, r, e, &scale, &offset);
#pragma unroll
    for (int i = 0; i < 8; i++) out[i] = fmaf(scale, static_cast<float>(P::code(tile, r, e + i)), offset);
}

} // namespace vb
#endif
