// linear_prefill.cuh: operand A of the 16-bit tensor-core instructions, made in registers from packed weights.
//
// A value word of the packed layout (packed.cuh) holds the codes of four neighbours k = 16 v + 4 t + (0..3) of a row. The
// instruction for the 16 elements of v wants of lane t the positions 2t, 2t + 1 and 8 + 2t, 9 + 2t: any order of k will do
// as long as x has the same, so x is laid out with its elements permuted (element_at) and a value word becomes the lane's
// two registers as it is: no shuffles, no shared memory for weights.
//
// Values are multiplied by 64 on the way to F16, so that products of small scales stay normal numbers; |w| must stay below
// 1023, and what is smaller than 2^-20 loses digits, both far outside of trained weights.
#ifndef VB_LINEAR_PREFILL_CUH
#define VB_LINEAR_PREFILL_CUH

#include "packed.cuh"
#include "tensor_core.cuh"

namespace vb {

constexpr float prefill_unit = 64.0f;

// The element of 16 that stands at position p of an instruction's k.
__host__ __device__ constexpr int element_at(int p) { return (p % 8) / 2 * 4 + p / 8 * 2 + p % 2; }

VB_DEVICE __half2 as_half2(uint32_t v) { return *reinterpret_cast<__half2 *>(&v); }
VB_DEVICE uint32_t as_word(__half2 v) { return *reinterpret_cast<uint32_t *>(&v); }
VB_DEVICE __half2 splat(float v) { return __half2half2(__float2half_rn(v)); }

// A LaneTile, unpacked: value words as bytes, and the scales in a form that costs little to apply.
template <class Block>
struct PrefillTile {
    using P = Packed<Block>;
    uint32_t v[2][P::values];
    uint32_t scales[2][P::small ? 2 : P::k4 ? 4 : 4]; // small: four halves; k4: sc[0..3], sc[4..7], min[0..3], min[4..7]
    __half2 d[2];                                     // k4: {d, -dmin}; k6: d of both rows; all times 64

    VB_DEVICE void unpack(const LaneTile<Block> &w) {
        P::unpack(v[0], w.words);
        P::unpack(v[1], w.words + P::words);
        if constexpr (P::bits == 8) {
#pragma unroll
            for (int i = 0; i < P::values; i++) v[0][i] ^= 0x80808080, v[1][i] ^= 0x80808080; // q + 128
        }
        if constexpr (P::small) {
            scales[0][0] = w.scales[0].x, scales[0][1] = w.scales[0].y, scales[1][0] = w.scales[0].z, scales[1][1] = w.scales[0].w;
        } else if constexpr (P::k4) {
#pragma unroll
            for (int r = 0; r < 2; r++) { // vb_k4_scale, four at a time
                const uint4 s = w.scales[r];
                scales[r][0] = s.y & 0x3f3f3f3f, scales[r][1] = (s.w & 0x0f0f0f0f) | ((s.y >> 2) & 0x30303030);
                scales[r][2] = s.z & 0x3f3f3f3f, scales[r][3] = ((s.w >> 4) & 0x0f0f0f0f) | ((s.z >> 2) & 0x30303030);
                d[r] = __hmul2(as_half2(s.x), __floats2half2_rn(prefill_unit, -prefill_unit));
            }
        } else {
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const uint4 s = w.scales[r]; // q6_scale_byte: word h, byte p is the scale of 4 p + h; + 128
                scales[r][0] = s.x ^ 0x80808080, scales[r][1] = s.y ^ 0x80808080;
                scales[r][2] = s.z ^ 0x80808080, scales[r][3] = s.w ^ 0x80808080;
            }
            d[0] = d[1] = __hmul2(as_half2(w.d[0] | w.d[1] << 16), splat(prefill_unit));
        }
    }

    // a[0..3] = operand A for value word i, which is a constant after unrolling.
    VB_DEVICE void fragment(uint32_t a[4], int i) const {
        __half2 scale[2], offset[2];
        if constexpr (P::small) {
#pragma unroll
            for (int r = 0; r < 2; r++)
                scale[r] = __hmul2(as_half2(__byte_perm(scales[r][i >> 2], 0, i & 2 ? 0x3232 : 0x1010)), splat(prefill_unit));
        } else if constexpr (P::k4) {
            const int s = i >> 1; // of 8
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const uint32_t bytes = __byte_perm(scales[r][s >> 2], scales[r][2 + (s >> 2)], 0x0400 + (s & 3) * 0x0101);
                const __half2 both = __hmul2(__hsub2(as_half2((bytes & 0x00ff00ff) | 0x64006400), splat(1024.0f)), d[r]);
                scale[r] = __low2half2(both), offset[r] = __high2half2(both);
            }
        } else {
            const uint32_t bytes = __byte_perm(scales[0][i & 3], scales[1][i & 3], 0x0400 + (i >> 2) * 0x0101);
            const __half2 both = __hmul2(__hsub2(as_half2((bytes & 0x00ff00ff) | 0x64006400), splat(1152.0f)), d[0]);
            scale[0] = __low2half2(both), scale[1] = __high2half2(both);
        }
        constexpr float zero = 1024 + (P::bits == 8 ? 128 : P::zero);
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int h = 0; h < 2; h++) { // bytes 0, 1 and 2, 3, as 1024 + code
                const __half2 q = __hsub2(as_half2(__byte_perm(v[r][i], 0x64646464, h ? 0x4342 : 0x4140)), splat(zero));
                a[2 * h + r] = as_word(P::k4 ? __hfma2(q, scale[r], offset[r]) : __hmul2(q, scale[r]));
            }
    }
};

} // namespace vb
#endif
