// rounded.cu: all_reduce, out = in[0] + in[1] + ... + add, whose summands cross as numbers of 14 bits.
//
//   shapes   float32, n a multiple of 8, aligned to 16 bytes
//   grid     128 blocks of 512 threads, the same on every rank. A thread rounds 8 neighbours to multiples of 2^-13 of
//            the largest (RoundedWord). It sends 16 bytes to each other rank, and polls for the others' bytes. A rank
//            rounds its own summand too, so that all ranks get the same bits
//   shared   none
//   moves    over the link, each way and peer: 2 n bytes
//   bound    the link. As for small messages there is one crossing and no fence
//
// Sums of rows before a norm also leave the operand of the product after the norm (SumRows), which saves a kernel.
// Where a product has sent its results as words (SentResults), the sum takes all ranks' words, and waits for no more.

#include "collective/rounded.cuh"
#include "runtime/early.cuh"

namespace vb {
namespace {

VB_DEVICE RoundedWord rounded(const float *from) {
    const float4 a = reinterpret_cast<const float4 *>(from)[0], b = reinterpret_cast<const float4 *>(from)[1];
    return RoundedWord::of(a, b);
}

// What is added to word i of the sum, or zeros; asked for before the words of other ranks have come.
struct Addend {
    float4 a = {}, b = {};

    VB_DEVICE Addend(const float *add, int i) {
        if (!add) return;
        const float4 *from = reinterpret_cast<const float4 *>(add + 8 * (int64_t)i);
        a = from[0], b = from[1];
    }
    // Adds it to the ranks' sum, and stores the result.
    VB_DEVICE void store(float *out, int i, float (&sum)[8]) const {
        sum[0] += a.x, sum[1] += a.y, sum[2] += a.z, sum[3] += a.w;
        sum[4] += b.x, sum[5] += b.y, sum[6] += b.z, sum[7] += b.w;
        float4 *to = reinterpret_cast<float4 *>(out + 8 * (int64_t)i);
        to[0] = make_float4(sum[0], sum[1], sum[2], sum[3]), to[1] = make_float4(sum[4], sum[5], sum[6], sum[7]);
    }
};

#ifdef VB_HAS_PACKED_LAYOUT
// A word of the result, by 16 lanes that have 128 columns. Whether it has an exponent.
VB_DEVICE bool leave_half(const SumRows &next, const float (&y)[8], unsigned word) {
    const unsigned lanes = 0xffffu << (threadIdx.x & 16), lane = threadIdx.x % 16, row = word / next.words,
                   at = word - row * next.words;
    const float4 *norm = reinterpret_cast<const float4 *>(next.norm + 8 * at);
    const float4 a = norm[0], b = norm[1];
    float v[8] = {y[0] * a.x, y[1] * a.y, y[2] * a.z, y[3] * a.w, y[4] * b.x, y[5] * b.y, y[6] * b.z, y[7] * b.w};
    float most = 0, squares = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) most = fmaxf(most, fabsf(v[i])), squares += y[i] * y[i];
    int exponent = 0;
    if (__any_sync(lanes, most >= half_limit)) {
#pragma unroll
        for (int o = 8; o > 0; o /= 2) most = fmaxf(most, __shfl_xor_sync(lanes, most, o));
        exponent = (int)half_exponent(__float_as_uint(most));
    }
    const float scale = power_of_two(-exponent);
    uint32_t two[4];
#pragma unroll
    for (int i = 0; i < 4; i++) two[i] = as_word(__floats2half2_rn(v[2 * i] * scale, v[2 * i + 1] * scale));
    // position_of: a word is one half of 16 columns
    half *to = next.x + (int64_t)row * next.words * 8 + at / 2 * 16 + at % 2 * 4;
    *reinterpret_cast<uint2 *>(to) = make_uint2(two[0], two[2]);
    *reinterpret_cast<uint2 *>(to + 8) = make_uint2(two[1], two[3]);
#pragma unroll
    for (int o = 8; o > 0; o /= 2) squares += __shfl_xor_sync(lanes, squares, o);
    if (lane == 0) next.squares[at / 16 * next.stride + row] = squares;
    if (lane < 2) next.exponents[(at / 16 * 2 + lane) * next.stride + row] = (uint8_t)exponent;
    return exponent != 0;
}

#endif

template <bool NEXT>
__global__ void __launch_bounds__(exchange_threads, 2)
    all_reduce_rounded(float *out, const float *in, const float *add, int words, VB_IN_PLACE SumRows next,
                       unsigned first_word, VB_IN_PLACE Mail m) {
    // The next kernel waits too: its blocks could take the room of another rank's on this device.
    wait_for_previous_kernel();
    unsigned *counter = rounded_counters(m) + blockIdx.x;
    const unsigned letter = *counter % 2u;
    const int threads = gridDim.x * blockDim.x, own = blockIdx.x * blockDim.x + threadIdx.x;
    auto send = [&](int first) {
#pragma unroll
        for (int i = first; i < first + rounded_batch * threads; i += threads) {
            if (i >= words) return;
            const RoundedWord word = rounded(in + 8 * (int64_t)i);
            for (int r = 0; r < m.ranks; r++)
                if (r != m.rank) store_word(letter_of(m.box[r], m.ranks, letter, m.rank) + i, word.bits);
        }
    };
    bool uneven = false;
    send(own);
    for (int first = own; first < words; first += rounded_batch * threads) {
        send(first + rounded_batch * threads);
#pragma unroll
        for (int i = first; i < first + rounded_batch * threads; i += threads) {
            if (i >= words) break;
            float sum[8] = {};
            const Addend more(add, i);
            for (int r = 0; r < m.ranks; r++) {
                if (r == m.rank) rounded(in + 8 * (int64_t)i).add_to(sum);
                else {
                    uint4 *from = letter_of(m.box[m.rank], m.ranks, letter, r) + i;
                    take_word(from, load_word(from)).add_to(sum);
                }
            }
            more.store(out, i, sum);
#ifdef VB_HAS_PACKED_LAYOUT
            if constexpr (NEXT) uneven |= leave_half(next, sum, first_word + i);
#endif
        }
    }
    release_next_kernel(); // the words of other ranks are here: their blocks have found room
#ifdef VB_HAS_PACKED_LAYOUT
    if constexpr (NEXT) leave_flags(next, uneven, counter - blockIdx.x + rounded_blocks, first_word);
#endif
    __syncthreads();
    if (threadIdx.x == 0) *counter = letter + 1u;
}

// The same of the words that a product has sent to all ranks (linear/packed/sm90_store.cuh). They arrive whole: the sum
// waits for them, not for the product.
template <bool NEXT>
__global__ void __launch_bounds__(exchange_threads, 2)
    all_reduce_sent(float *out, const float *add, int words, VB_IN_PLACE SumRows next, VB_IN_PLACE Mail m) {
    constexpr int together = 4; // ranks
    unsigned *counter = rounded_counters(m) + blockIdx.x;
    const unsigned letter = *counter % 2u;
    const int threads = gridDim.x * blockDim.x;
    bool uneven = false;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += threads) {
        float sum[8] = {};
        const Addend more(add, i);
        for (int first = 0; first < m.ranks; first += together) {
            uint4 *const from = letter_of(m.box[m.rank], m.ranks, letter, first) + i, word[together];
            const int64_t step = mail_rounded_words(m.ranks);
#pragma unroll
            for (int r = 0; r < together; r++)
                if (first + r < m.ranks) word[r] = load_word(from + r * step);
#pragma unroll
            for (int r = 0; r < together; r++)
                if (first + r < m.ranks) take_word(from + r * step, word[r]).add_to(sum);
        }
        more.store(out, i, sum);
#ifdef VB_HAS_PACKED_LAYOUT
        if constexpr (NEXT) uneven |= leave_half(next, sum, i);
#endif
    }
    release_next_kernel();
    wait_for_previous_kernel(); // which reads the counters, and may read the flags
#ifdef VB_HAS_PACKED_LAYOUT
    if constexpr (NEXT) leave_flags(next, uneven, counter - blockIdx.x + rounded_blocks, 0);
#endif
    __syncthreads();
    if (threadIdx.x == 0) *counter = letter + 1u;
}

} // namespace

// A message that is longer than a letter goes as several.
vb_status exchange_rounded(float *out, const float *in, const float *add, int64_t n, const SumRows &next,
                           const Mail &mail, vb_stream *stream) {
    SentResults &sent = sent_results(stream);
    if (sent.y == in) {
        sent.y = nullptr;
        return launch_overlapped(stream, rounded_blocks, exchange_threads, 0,
                                 next.x ? all_reduce_sent<true> : all_reduce_sent<false>, out, add, (int)(n / 8), next,
                                 mail);
    }
    // of whole groups of 16 words
    const int64_t most = 8 * (mail_rounded_words(mail.ranks) / 16 * 16);
    const auto kernel = next.x ? all_reduce_rounded<true> : all_reduce_rounded<false>;
    for (int64_t at = 0; at < n; at += most)
        VB_TRY(launch_overlapped(stream, rounded_blocks, exchange_threads, 0, kernel, out + at, in + at,
                                 add ? add + at : nullptr, (int)(smaller(most, n - at) / 8), next, (unsigned)(at / 8),
                                 mail));
    return VB_OK;
}

#ifdef VB_HAS_PACKED_LAYOUT
vb_status exchange_sum_of_rows(float *out, const float *in, const vb_sum_of_rows &rows, int rank, const Mail &mail,
                               vb_stream *stream) {
    const int64_t n = rows.n, cols = rows.cols;
    chosen(stream, collective_kernel_info(COLLECTIVE_REDUCE_ROUNDED), "all_reduce", VB_F32, "n cols ranks", n, cols,
           mail.ranks);
    return exchange_rounded(out, in, rows.add[rank], n * cols, next_rows(rows, rank), mail, stream);
}
#endif

} // namespace vb
