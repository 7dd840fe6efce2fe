// rounding.cuh: columns of floats that a warp rounds for int8 tensor cores, 256 elements at a time (9.0).
//
// A column h is rounded to 15 bits and a sign in two planes of int8, h = (256 high + low) step, with a step for the
// greatest of the 256 elements. So no block waits for the greatest element of a whole column. A lane has eight elements
// of each column; which ones, the order of the codes says: element(i) is the place of the lane's element i.
#ifndef VB_CUDA_TERNARY_ROUNDING_CUH
#define VB_CUDA_TERNARY_ROUNDING_CUH

#include "runtime/common.cuh"
#include "ternary/choose.h"

namespace vb {

constexpr int most_code = 127 * 257, low_codes = 256; // of both planes, of the low one

// Four bytes of codes of each plane from elements 0 to 3, and from 4 to 7. total: the sum of the lane's
// 256 high + low.
struct RoundedColumn {
    unsigned high[2], low[2];
    int total;
    float step;
};

// COUNT neighbouring columns. Those that do not exist are 0.
template <int COUNT>
struct FloatColumns {
    float h[8][COUNT];

    // From element `first` and column `column` on.
    template <class Element>
    VB_DEVICE void read(const vb_tmac_matmul_args &a, int64_t first, int64_t column, const Element &element) {
        const bool vectors = a.n % COUNT == 0 && reinterpret_cast<uintptr_t>(a.activations) % (4 * COUNT) == 0;
        const float *const from = a.activations + (first + element(0)) * a.n + column;
        const int64_t left = a.k - first - element(0), live = a.n - column;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int k = element(i) - element(0);
            const float *const at = from + k * a.n;
#pragma unroll
            for (int c = 0; c < COUNT; c++) h[i][c] = 0.0f;
            if (k >= left || live <= 0) continue;
            if (COUNT == 4 && vectors) {
                const float4 v = *reinterpret_cast<const float4 *>(at);
                h[i][0] = v.x, h[i][1 % COUNT] = v.y, h[i][2 % COUNT] = v.z, h[i][3 % COUNT] = v.w;
            } else {
#pragma unroll
                for (int c = 0; c < COUNT; c++)
                    if (c < live) h[i][c] = at[c];
            }
        }
    }
    // Times the weights of the norm; squares: of the 256 elements before it, in all lanes.
    template <class Element>
    VB_DEVICE void weigh(const vb_tmac_matmul_args &a, int64_t first, const Element &element, float (&squares)[COUNT]) {
#pragma unroll
        for (int c = 0; c < COUNT; c++) squares[c] = 0.0f;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int64_t k = first + element(i);
            const float norm = a.norm && k < a.k ? a.norm[k] : 1.0f;
#pragma unroll
            for (int c = 0; c < COUNT; c++) {
                squares[c] = fmaf(h[i][c], h[i][c], squares[c]);
                h[i][c] *= norm;
            }
        }
#pragma unroll
        for (int c = 0; c < COUNT; c++)
#pragma unroll
            for (int offset = 16; offset > 0; offset /= 2)
                squares[c] += __shfl_xor_sync(all_lanes, squares[c], offset);
    }
    VB_DEVICE RoundedColumn round(int c) const {
        unsigned bits = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const unsigned size = __float_as_uint(h[i][c]) & 0x7fffffffu; // NaN is above infinity
            bits = bits > size ? bits : size;
        }
        float most = 0.0f;
#if __CUDA_ARCH__ >= 900
        most = __uint_as_float(__reduce_max_sync(all_lanes, bits));
#endif
        constexpr float less = 1.0f / 256; // __fdividef gives 0 for divisors beyond 2^126
        const float scale = __fdividef(most_code * less, Max::combine(most, 7.9e-31f) * less);
        constexpr float round = 12582912.0f; // 1.5 times 2^23 leaves no bits below 1: the code is the lowest 16
        unsigned both[8], carried[8], total = 0; // a low byte above 127 is below 0, and the high one is one more
#pragma unroll
        for (int i = 0; i < 8; i++) {
            both[i] = __float_as_uint(fmaf(h[i][c], scale, round));
            carried[i] = both[i] + 128;
            total += both[i] - 0x4b400000u;
        }
        const auto joined = [](const unsigned *v, int at) {
            return __byte_perm(__byte_perm(v[0], v[1], 0x0040 + 0x11 * at),
                               __byte_perm(v[2], v[3], 0x0040 + 0x11 * at), 0x5410);
        };
        return {{joined(carried, 1), joined(carried + 4, 1)},
                {joined(both, 0), joined(both + 4, 0)},
                int(total),
                scale > 0.0f ? most * (1.0f / most_code) : nanf("")}; // of infinite floats
    }
};

vb_status tmac_sm90(const vb_tmac_matmul_args &a, const ternary_wgmma &c, vb_stream *stream); // tmac_sm90.cu

} // namespace vb
#endif
