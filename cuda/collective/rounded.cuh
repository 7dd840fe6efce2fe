// rounded.cuh: words of numbers of 14 bits, and their letters (rounded.cu, columns.cu).
#ifndef VB_COLLECTIVE_ROUNDED_CUH
#define VB_COLLECTIVE_ROUNDED_CUH

#include "collective/exchange.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear/packed/half_rows.cuh"
#endif

namespace vb {

// Eight numbers with one exponent. Each number is the upper 14 bits of a half-word. The 2 lower bits of the half-words
// hold the exponent.
// In each half of 8 bytes, which arrives whole, a further bit is set.
struct RoundedWord {
    uint4 bits;

    static VB_DEVICE unsigned spread(unsigned four) { return (four & 3u) | (four & 12u) << 14; }
    static VB_DEVICE unsigned gather(unsigned word) { return (word & 3u) | (word >> 14 & 12u); }

    static VB_DEVICE unsigned magnitude(const float4 &x) {
        return larger(larger(__float_as_uint(x.x) & 0x7fffffffu, __float_as_uint(x.y) & 0x7fffffffu),
                      larger(__float_as_uint(x.z) & 0x7fffffffu, __float_as_uint(x.w) & 0x7fffffffu));
    }
    // Half of a word, the first or the second, where the largest of all eight has this magnitude.
    static VB_DEVICE uint2 half_of(const float4 &x, unsigned largest, bool second) {
        // Numbers below 2^-113 are as good as 0. An infinity or NaN makes all eight
        // NaN.
        const unsigned exponent = larger(14u, largest >> 23);
        const float scale = __uint_as_float((266u - exponent) << 23); // the largest becomes 2^12 to 2^13
        const auto two = [&](float low, float high) {
            return (unsigned)smaller(8191, __float2int_rn(high * scale)) << 18 |
                   ((unsigned)smaller(8191, __float2int_rn(low * scale)) << 2 & 0xfffcu);
        };
        return {two(x.x, x.y) | 1u, two(x.z, x.w) | spread(second ? exponent >> 4 : exponent & 15u)};
    }
    static VB_DEVICE RoundedWord of(const float4 &a, const float4 &b) {
        const unsigned largest = larger(magnitude(a), magnitude(b));
        const uint2 first = half_of(a, largest, false), second = half_of(b, largest, true);
        return {make_uint4(first.x, first.y, second.x, second.y)};
    }
    VB_DEVICE bool whole() const { return bits.x & bits.z & 1u; }
    // Adds the numbers.
    VB_DEVICE void add_to(float (&sum)[8]) const {
        const unsigned word[4] = {bits.x, bits.y, bits.z, bits.w};
        const unsigned exponent = gather(word[1]) | gather(word[3]) << 4;
        const float scale = __uint_as_float(exponent == 255u ? 0x7fffffffu : (exponent - 14u) << 23);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            sum[2 * i] += scale * static_cast<float>((int)(word[i] << 16) >> 16 & ~3);
            sum[2 * i + 1] += scale * static_cast<float>((int)word[i] >> 16 & ~3);
        }
    }
};

VB_DEVICE void store_word(uint4 *to, const uint4 &bits) {
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(bits.x), "r"(bits.y), "r"(bits.z),
                 "r"(bits.w)
                 : "memory");
}

VB_DEVICE uint4 load_word(const uint4 *from) {
    uint4 b;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(b.x), "=r"(b.y), "=r"(b.z), "=r"(b.w)
                 : "l"(from)
                 : "memory");
    return b;
}

// Takes a word out of the mailbox, where `seen` was, and leaves zeros there for
// the exchange after the next.
VB_DEVICE RoundedWord take_word(uint4 *from, const uint4 &seen) {
    RoundedWord word = {seen};
    for (Wait wait; !word.whole(); word.bits = load_word(from)) wait.round();
    store_word(from, make_uint4(0, 0, 0, 0));
    return word;
}

VB_DEVICE uint4 *letter_of(char *box, int ranks, unsigned letter, int from) {
    return reinterpret_cast<uint4 *>(box + mail_rounded_at(ranks) + mail_rounded_counters) +
           (letter * ranks + from) * mail_rounded_words(ranks);
}

// Which letter an exchange has. Kernels of the exchange before have ended.
VB_DEVICE unsigned *rounded_counters(const Mail &m) {
    return reinterpret_cast<unsigned *>(m.box[m.rank] + mail_rounded_at(m.ranks));
}

#ifdef VB_HAS_PACKED_LAYOUT
// Writes the flags of the result, by the last block to come. `ended` counts blocks, and in its upper half blocks with
// exponents. It is 0 between kernels.
VB_DEVICE void leave_flags(const SumRows &next, bool uneven, unsigned *ended, unsigned first_word) {
    const int any = __syncthreads_or(uneven);
    if (threadIdx.x != 0) return;
    const unsigned one = any ? 0x10001u : 1u, all = atomicAdd(ended, one) + one;
    if ((all & 0xffffu) != gridDim.x) return;
    *ended = 0;
    if (first_word == 0 || all >> 16) // of a message in several parts
        *next.uneven = all >> 16;
    if (next.gated) *next.gated = 0;
}

// What the sum of rows leaves on a rank.
inline SumRows next_rows(const vb_sum_of_rows &rows, int rank) {
    const bool attended = rows.from == VB_AFTER_ATTENTION;
    const int64_t n = rows.n, cols = rows.cols;
    float *normed = rows.normed[rank];
    const HalfRows to = normed_rows(normed, n, cols, attended ? attended_flag : layer_flag);
    return {rows.norm[rank],
            to.x,
            to.exponents,
            to.uneven,
            attended ? first_half_flag(normed, n, cols) + gated_flag : nullptr,
            to.squares,
            half_stride(n),
            (unsigned)(cols / 8)};
}
#endif

} // namespace vb
#endif
