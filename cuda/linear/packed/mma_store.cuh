// mma_store.cuh: how results of many_mma.cuh leave as the operand of another product, in F16 (HalfRows).
//
// Four warps, a group, have 128 rows of W by 64 rows of x. A warp has 32 rows, or 16 of gate and the same 16 of up.
// The sums c of a row of tiles are as mma leaves them: of a lane (g = lane / 4, t = lane % 4) the rows g, g + 8 of
// the tokens 8 j + 2 t, 8 j + 2 t + 1 in c[4 j..4 j + 3].
#ifndef VB_LINEAR_MMA_STORE_CUH
#define VB_LINEAR_MMA_STORE_CUH

#include "arch/mma.cuh"
#include "linear/packed/many.cuh"

namespace vb {

constexpr int group_tokens = 64, group_warps = group_threads / 32;

// A group's part of shared memory.
struct GroupRows {
    unsigned most[group_tokens]; // bits of a token's greatest magnitude
    float squares[group_warps][group_tokens];
};

// Divides values that are too great for F16 by a power of two of their token, and returns the exponent for the token
// of this thread's number.
template <int TILES>
VB_DEVICE unsigned even_group(float (&c)[TILES][32], GroupRows &rows, unsigned *uneven) {
    float greatest = 0;
#pragma unroll
    for (int i = 0; i < TILES * 32; i++) greatest = fmaxf(greatest, fabsf(c[i / 32][i % 32]));
    if (!any_at<group_threads>(1 + group_of_thread(), greatest >= half_limit)) return 0;
    const int thread = threadIdx.x % group_threads;
    const auto token_of = [&](int i) { return i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2; };
    if (thread < group_tokens) rows.most[thread] = 0;
    if (thread == 0) *uneven = 1;
    group_sync();
#pragma unroll
    for (int i = 0; i < TILES * 32; i++)
        atomicMax(rows.most + token_of(i % 32), __float_as_uint(fabsf(c[i / 32][i % 32])));
    group_sync();
#pragma unroll
    for (int i = 0; i < TILES * 32; i++)
        c[i / 32][i % 32] *= power_of_two(-(int)half_exponent(rows.most[token_of(i % 32)]));
    return half_exponent(rows.most[thread % group_tokens]);
}

// Writes a row of tiles at 64 tokens to the 16 columns of F16 rows that begin at `to`; `tokens` of them exist.
VB_DEVICE void write_tile(half *to, int64_t cols, const float (&c)[32], int tokens) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const bool upper = t & 2;
#pragma unroll
    for (int j = 0; j < group_tokens / 8; j++) { // the lane gets elements 2 t, 2 t + 1 and 2 t + 8, 2 t + 9 of token g
        const uint32_t low = transposed(as_word(__floats2half2_rn(c[4 * j], c[4 * j + 1])));
        const uint32_t high = transposed(as_word(__floats2half2_rn(c[4 * j + 2], c[4 * j + 3])));
        const uint32_t other = __shfl_xor_sync(all_lanes, upper ? low : high, 2);
        if (8 * j + g < tokens) // four neighbours from position_of(2 t), upper: position_of(2 t) + 2 on
            *reinterpret_cast<uint2 *>(to + (8 * j + g) * cols + t % 2 * 8 + t / 2 * 4) =
                upper ? make_uint2(other, high) : make_uint2(low, other);
    }
}

// silu(gate) * up to product.to.
VB_DEVICE void store_gated_halves(const Product &p, const Unit &unit, const float (&gate)[32], const float (&up)[32],
                                  const float *inverse, int64_t token0, GroupRows &rows) {
    const int thread = threadIdx.x % group_threads, tokens = (int)smaller<int64_t>(group_tokens, p.n - token0);
    const int64_t cols = p.matrices[0].rows;
    float h[1][32];
#pragma unroll
    for (int i = 0; i < 32; i++) {
        const float scale = inverse[i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2];
        h[0][i] = swiglu(gate[i] * scale, up[i] * scale);
    }
    const unsigned exponent = even_group(h, rows, p.to.uneven);
    if (thread < tokens) p.to.exponents[unit.rows * half_stride(p.n) + token0 + thread] = (uint8_t)exponent;
    const int64_t col0 = (int64_t)unit.rows * half_group + thread / 32 * packed_rows;
    write_tile(p.to.x + token0 * cols + col0, cols, h[0], tokens);
}

// Results, which are in memory already, times the norm that reads them next, to product.to; and their squares' sums.
VB_DEVICE void store_normed(const Product &p, const Unit &unit, float (&y)[2][32], int64_t token0, GroupRows &rows) {
    const int thread = threadIdx.x % group_threads, g = thread % 32 / 4, t = thread % 4, warp = thread / 32;
    const int tokens = (int)smaller<int64_t>(group_tokens, p.n - token0);
    const int64_t cols = p.matrices[0].rows, row0 = (int64_t)unit.rows * unit_rows + 2 * packed_rows * warp;
#pragma unroll
    for (int i = 0; i < group_tokens / 4; i++) { // tokens of a lane
        const int at = i / 2 * 4 + i % 2;
        float squares = 0;
#pragma unroll
        for (int r = 0; r < 2; r++) squares += y[r][at] * y[r][at] + y[r][at + 2] * y[r][at + 2];
#pragma unroll
        for (int lanes = 4; lanes < 32; lanes *= 2) squares += __shfl_xor_sync(all_lanes, squares, lanes);
        if (g == 0) rows.squares[warp][i / 2 * 8 + 2 * t + i % 2] = squares;
    }
    float norm[2][2];
#pragma unroll
    for (int r = 0; r < 4; r++) norm[r / 2][r % 2] = p.to_norm ? p.to_norm[row0 + r * 8 + g] : 1.0f;
#pragma unroll
    for (int i = 0; i < 64; i++) y[i / 32][i % 32] *= norm[i / 32][i % 4 / 2];
    const unsigned exponent = even_group(y, rows, p.to.uneven); // its barrier is one for the squares too
    const int64_t stride = half_stride(p.n);
    if (thread < tokens) {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < group_warps; w++) sum += rows.squares[w][thread];
        p.to.squares[unit.rows * stride + token0 + thread] = sum;
#pragma unroll
        for (int half_of = 0; half_of < 2; half_of++)
            p.to.exponents[(2 * unit.rows + half_of) * stride + token0 + thread] = (uint8_t)exponent;
    }
#pragma unroll
    for (int r = 0; r < 2; r++)
        write_tile(p.to.x + token0 * cols + row0 + r * packed_rows, cols, y[r], tokens);
}

} // namespace vb
#endif
