// w2a8_any.cu: out = W x for weights of any layout and k, and any alignment (vb_w2a8_gemv).
//
//   grid     a warp a row of weights, eight warps a block; up to four rows of x at a time
//   shared   none
//   moves    n k / 4 bytes of weights by words of 4 bytes or single bytes; bound by the number of loads

#include "ternary/w2a8.cuh"

namespace vb {
namespace {

constexpr int any_warps = 8;

// The four codes of a byte as four bytes.
VB_DEVICE unsigned spread(unsigned byte) {
    const unsigned pairs = byte | byte << 12;
    return (pairs | pairs << 6) & 0x03030303u;
}

// Four elements of x from k = at on.
VB_DEVICE int four(const signed char *x, int64_t at, int64_t k, bool aligned) {
    if (at >= k) return 0;
    if (aligned) return *reinterpret_cast<const int *>(x + at);
    unsigned v = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) v |= unsigned((unsigned char)x[at + i]) << (8 * i);
    return int(v);
}

// Words of 16 codes (WORDS), or bytes of 4.
template <int M, bool WORDS, bool DP4A>
__global__ void __launch_bounds__(32 * any_warps) w2a8_any_kernel(vb_w2a8_gemv_args a, int64_t row0) {
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t row = (int64_t)blockIdx.x * any_warps + threadIdx.x / 32;
    if (row >= a.n) return;
    const int lane = threadIdx.x % 32, pieces = int(a.row_bytes / 16);
    const bool interleaved = a.layout == VB_INT2_INTERLEAVED;
    const unsigned char *const w = static_cast<const unsigned char *>(a.weights) + row * a.row_bytes;
    const signed char *const x = static_cast<const signed char *>(a.activations) + row0 * a.k;
    const bool aligned = WORDS || reinterpret_cast<uintptr_t>(x) % 4 == 0;
    int sums[M] = {};
    for (int64_t i = lane; i < a.row_bytes / (WORDS ? 4 : 1); i += 32) {
        const int64_t byte = WORDS ? 4 * i : i;
        int64_t first = byte * 4; // the element of the first code, where they lie in rows
        if (interleaved) {
            const PieceElements e = elements_of(int(byte / 16), pieces);
            first = e.first + byte % 16 / 4 * e.step;
        }
        const unsigned word = WORDS ? *reinterpret_cast<const unsigned *>(w + byte) : w[byte];
#pragma unroll
        for (int s = 0; s < 4; s++) {
            // Interleaved, slot s of a word, or of byte b, has the elements 4 s.. of the word; in rows, byte s of a
            // word has four.
            if (!WORDS && !interleaved && s > 0) break;
            const unsigned codes = interleaved ? word >> (2 * s) & (WORDS ? 0x03030303u : 3u)
                : spread(WORDS ? word >> (8 * s) & 255 : word);
#pragma unroll
            for (int m = 0; m < M; m++) {
                int v = four(x + m * a.k, first + 4 * s, a.k, aligned);
                unsigned ones = 0x01010101u;
                if (!WORDS && interleaved) v = v >> (8 * (byte % 4)) & 255, ones = 1;
                int product = 0, total = 0;
                dot4<DP4A>(product, codes, v);
                dot4<DP4A>(total, ones, v);
                sums[m] += product - total;
            }
        }
    }
#pragma unroll
    for (int m = 0; m < M; m++) {
        int sum = sums[m];
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(all_lanes, sum, offset);
        if (lane == 0) store_sum(a, row0 + m, row, sum);
    }
}

template <bool WORDS, bool DP4A>
vb_status any(const vb_w2a8_gemv_args &a, vb_stream *stream) {
    const unsigned blocks = (unsigned)ceil_div<int64_t>(a.n, any_warps);
    int64_t row = 0;
    for (; a.m - row >= 4; row += 4)
        VB_TRY(launch_overlapped(stream, blocks, 32 * any_warps, 0, w2a8_any_kernel<4, WORDS, DP4A>, a, row));
    for (; row < a.m; row++)
        VB_TRY(launch_overlapped(stream, blocks, 32 * any_warps, 0, w2a8_any_kernel<1, WORDS, DP4A>, a, row));
    return VB_OK;
}

} // namespace

vb_status w2a8_any(const vb_w2a8_gemv_args &a, bool words, vb_stream *stream) {
    if (words) return a.without_dp4a ? any<true, false>(a, stream) : any<true, true>(a, stream);
    return a.without_dp4a ? any<false, false>(a, stream) : any<false, true>(a, stream);
}

} // namespace vb
