// w2a8_mma.cu: out = X W^T for more than four rows of int8 activations, by int8 tensor cores (vb_w2a8_gemv).
//
//   grid     a block has 16, 32 or 64 rows of X, and 16 or 32 of W; its eight warps share the elements
//   shared   8 or 16 KiB of sums, which the warps add up
//   moves    n k / 4 bytes of weights for each 16, 32 or 64 rows of X, m k bytes of X for each block's rows of W
//   bound    16 rows: the weights; more: the instructions that make bytes of codes, and X from the L2
// Tried and measured: docs/experiments/2026-11-29-w2a8-rows.md.
//
// The order of a sum is free. Lane c of a row takes a whole piece of 16 bytes of W, and 16 bytes of X for each word.
// Both are then operands of an instruction as they are.
// A code counts one too many, so the sum of X is subtracted: a last tile of ones gives the sums.

#include "arch/sm90.cuh"
#include "arch/streaming.cuh"
#include "ternary/w2a8.cuh"

namespace vb {
namespace {

constexpr int warps = 8;

// c += a b^T for 16 x 32 and 8 x 32 bytes, signed.
VB_DEVICE void mma_s8(int (&c)[4], const int (&a)[4], unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#elif __CUDA_ARCH__ >= 750
#pragma unroll
    for (int i = 0; i < 4; i++) // upper and lower rows by the first and second half of the elements
        asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
                     : "+r"(c[i % 2 * 2]), "+r"(c[i % 2 * 2 + 1])
                     : "r"(a[i]), "r"(i < 2 ? b0 : b1));
#endif
}

// TM tiles of 16 rows of X, TN of 8 rows of W.
template <int TM, int TN>
__global__ void __launch_bounds__(32 * warps) w2a8_mma_kernel(vb_w2a8_gemv_args a) {
#ifdef VB_SM90A
    if (TM > 2) return; // w2a8_sm90.cu has more rows
#endif
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, c = lane % 4,
        pieces = int(a.row_bytes / 16);
    const int64_t m0 = (int64_t)blockIdx.y * 16 * TM;
    const int64_t n0 = (int64_t)blockIdx.x * 8 * TN;
    const uint4 *rows[TN];
#pragma unroll
    for (int t = 0; t < TN; t++)
        rows[t] = row_of(a, n0 + 8 * t + g);
    wait_for_previous_kernel();
    release_next_kernel();
    int sums[TM][TN][4] = {}, totals[TM][4] = {};
    const signed char *const x = static_cast<const signed char *>(a.activations);
    for (int base = 4 * warp; base < pieces; base += 4 * warps) {
        const int p = base + c;
        uint4 w[TN];
#pragma unroll
        for (int t = 0; t < TN; t++) w[t] = p < pieces ? load_once(rows[t] + p) : make_uint4(0, 0, 0, 0);
        const PieceElements e = elements_of(smaller(p, pieces - 1), pieces);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int64_t at = e.first + j * e.step;
            const bool live = p < pieces && at < a.k;
#pragma unroll
            for (int i = 0; i < TM; i++) {
                int4 v[2];
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int64_t row = m0 + 16 * i + 8 * h + g;
                    v[h] = make_int4(0, 0, 0, 0);
                    if (live && row < a.m) v[h] = *reinterpret_cast<const int4 *>(x + row * a.k + at);
                }
                const int low[4] = {v[0].x, v[1].x, v[0].y, v[1].y}, high[4] = {v[0].z, v[1].z, v[0].w, v[1].w};
                mma_s8(totals[i], low, 0x01010101u, 0x01010101u);
                mma_s8(totals[i], high, 0x01010101u, 0x01010101u);
#pragma unroll
                for (int t = 0; t < TN; t++) {
                    const unsigned word = j == 0 ? w[t].x : j == 1 ? w[t].y : j == 2 ? w[t].z : w[t].w,
                        mask = 0x03030303u;
                    mma_s8(sums[i][t], low, word & mask, word >> 2 & mask);
                    mma_s8(sums[i][t], high, word >> 4 & mask, word >> 6 & mask);
                }
            }
        }
    }
    __shared__ int parts[warps][TN * 4][32]; // of a tile of rows of X
#pragma unroll
    for (int i = 0; i < TM; i++) {
        if (i > 0) __syncthreads();
#pragma unroll
        for (int t = 0; t < TN; t++)
#pragma unroll
            for (int s = 0; s < 4; s++) parts[warp][t * 4 + s][lane] = sums[i][t][s] - totals[i][s];
        __syncthreads();
        // A warp adds up one register of all warps.
        for (int r = warp; r < TN * 4; r += warps) {
            int sum = 0;
#pragma unroll
            for (int o = 0; o < warps; o++) sum += parts[o][r][lane];
            const int t = r / 4, s = r % 4;
            const int64_t row = m0 + 16 * i + 8 * (s / 2) + g, col = n0 + 8 * t + 2 * c + s % 2;
            if (row < a.m && col < a.n) store_sum(a, row, col, sum);
        }
    }
}

template <int TM, int TN>
vb_status mma(const vb_w2a8_gemv_args &a, vb_stream *stream) {
    const int64_t rows = ceil_div<int64_t>(a.m, 16 * TM), cols = ceil_div<int64_t>(a.n, 8 * TN);
    for (int64_t first = 0; first < rows; first += 65535) { // a grid's y
        vb_w2a8_gemv_args part = a;
        const int64_t skip = first * 16 * TM;
        part.m = smaller(a.m - skip, (int64_t)65535 * 16 * TM);
        part.activations = static_cast<const char *>(a.activations) + skip * a.k;
        part.out = static_cast<char *>(a.out) + skip * a.n * (a.out_type == VB_F32 || a.out_type == VB_I32 ? 4 : 2);
        if (a.activation_scales) part.activation_scales = a.activation_scales + skip;
        if (a.add) part.add = a.add + skip * a.n;
        const dim3 grid((unsigned)cols, (unsigned)smaller(rows - first, (int64_t)65535));
        VB_TRY(launch_overlapped(stream, grid, 32 * warps, 0, w2a8_mma_kernel<TM, TN>, part));
    }
    return VB_OK;
}

} // namespace

vb_status w2a8_mma(const vb_w2a8_gemv_args &a, ternary_kernel kernel, vb_stream *stream) {
    switch (kernel) {
    case TERNARY_MMA_16: return mma<1, 2>(a, stream);
    case TERNARY_MMA_32: return mma<2, 4>(a, stream);
    default: return mma<4, 4>(a, stream);
    }
}

} // namespace vb
