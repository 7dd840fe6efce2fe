// linear_packed.cuh: y[n][rows] = x[n][cols] W^T + bias for two to sixteen rows of x, W in the packed layout.
//
// Bound by the bytes of W, which are read once whatever n is. One warp multiplies one tile (packed.cuh) at a time by
// integer tensor-core instructions: operand A are the codes of 16 rows of W, operand B is x, quantized by tiles of
// `depth` elements to 15 bits, x = scale * (128 * high + low), with high and low as two of the eight columns of B. So four
// rows of x are one "group" of columns, lane t ends up with column t of its two rows, and the error of x is 2^-15 of the
// greatest element near it: the result is float32's to about 1e-4, far below what 8-bit activations give. Offsets of the
// codes enter as the initial value of the accumulator (-zero * sum of x), minima of Q4_K and Q5_K by dp2a of the mins with
// the sums of x: both exact in integers.
#ifndef VB_LINEAR_PACKED_CUH
#define VB_LINEAR_PACKED_CUH

#include "packed.cuh"
#include "tensor_core.cuh"

namespace vb {

// x of one tile, n rows of it, as bytes:
//   codes  [n][depth / 64][high, low][t][4 value words]   (16 bytes a lane)
//   sums   [n][sum_bytes]: k4: int16 high[8], low[8] of 32 elements; zero != 0: {-zero * high, -zero * low} of each scale
//   scale  [n] float, padded to 16 bytes
template <class Block>
struct ActivationTile {
    using P = Packed<Block>;
    static constexpr int code_bytes = 2 * P::depth;
    static constexpr int sum_bytes = P::k4 ? 32 : P::zero ? 8 * (P::small ? P::depth / 32 : P::depth / 16) : 0;
    static __host__ __device__ __forceinline__ int bytes(int n) {
        return n * (code_bytes + sum_bytes) + ((4 * n + 15) & ~15);
    }

    // One warp quantizes row c of x[n][depth], rows `stride` elements apart.
    static VB_DEVICE void quantize_row(uint8_t *out, const float *x, int64_t stride, int c, int n, int lane) {
        constexpr int parts = P::depth / 128; // 4 elements of each 128 a lane
        float4 v[parts];
#pragma unroll
        for (int i = 0; i < parts; i++) v[i] = reinterpret_cast<const float4 *>(x + c * stride)[32 * i + lane];
        const Quantization q = quantization_of(v);
        if (lane == 0) reinterpret_cast<float *>(out + n * (code_bytes + sum_bytes))[c] = q.scale;
        uint8_t *codes = out + c * code_bytes, *sums = out + n * code_bytes + c * sum_bytes;
#pragma unroll
        for (int i = 0; i < parts; i++) {
            QuantizedWord w = quantize_word(v[i], q.inverse);
            const int word = 32 * i + lane, value = word >> 2, t = word & 3;
            uint32_t *place = reinterpret_cast<uint32_t *>(codes + (value >> 2) * 128 + t * 16 + (value & 3) * 4);
            place[0] = w.high, place[16] = w.low;
            if constexpr (sum_bytes != 0) {
                constexpr int lanes = P::k6 ? 4 : 8; // that share a scale
                add_sums(w, lanes);
                const int s = word / lanes;
                if (lane % lanes != 0) continue;
                if constexpr (P::k4) {
                    reinterpret_cast<int16_t *>(sums)[s] = w.high_sum;
                    reinterpret_cast<int16_t *>(sums)[8 + s] = w.low_sum;
                } else
                    reinterpret_cast<int2 *>(sums)[s] = make_int2(-P::zero * w.high_sum, -P::zero * w.low_sum);
            }
        }
    }
};

// What one lane multiplies of one tile of weights.
template <class Block>
struct WeightTile {
    using P = Packed<Block>;
    uint32_t words[2 * P::words];
    uint4 scales[P::small ? 1 : 2]; // small: four d of row g, four of row g + 8; else 16 bytes of each row
    uint32_t d[P::k6 ? 2 : 1];

    VB_DEVICE void load(const uint8_t *tile, int lane) {
        load_codes<Block>(words, tile, lane);
        const uint8_t *p = tile + P::code_bytes;
        const int g = lane >> 2;
        if constexpr (P::small) {
            const uint2 a = load_once(reinterpret_cast<const uint2 *>(p) + g);
            const uint2 b = load_once(reinterpret_cast<const uint2 *>(p) + g + 8);
            scales[0] = make_uint4(a.x, a.y, b.x, b.y);
        } else {
            scales[0] = load_once(reinterpret_cast<const uint4 *>(p) + g);
            scales[1] = load_once(reinterpret_cast<const uint4 *>(p) + g + 8);
        }
        if constexpr (P::k6) {
            const unsigned short *h = reinterpret_cast<const unsigned short *>(p + P::scale_bytes);
            d[0] = __ldg(h + g), d[1] = __ldg(h + g + 8);
        }
    }
};

// sum[2 * q], sum[2 * q + 1] += rows g and g + 8 of the tile times column t of group q.
template <class Block, int groups>
VB_DEVICE void multiply_tile(float sum[2 * groups], const WeightTile<Block> &w, const uint8_t *x,
                                                     int n, int lane) {
    using P = Packed<Block>;
    using A = ActivationTile<Block>;
    const int g = lane >> 2, t = lane & 3;
    uint32_t v[2][P::values];
    P::unpack(v[0], w.words);
    P::unpack(v[1], w.words + P::words);
#pragma unroll
    for (int q = 0; q < groups; q++) {
        // Columns past n read another one's data; nobody reads their result.
        const int b_column = min(4 * q + (g >> 1), n - 1), c_column = min(4 * q + t, n - 1);
        const uint4 *codes = reinterpret_cast<const uint4 *>(x + b_column * A::code_bytes + (g & 1) * 64 + t * 16);
        const uint8_t *sums = x + n * A::code_bytes + c_column * A::sum_bytes;
        const float scale = reinterpret_cast<const float *>(x + n * (A::code_bytes + A::sum_bytes))[c_column];
        if constexpr (P::small) {
            float f[2] = {0, 0};
#pragma unroll
            for (int p = 0; p < P::values / 4; p++) {
                const uint4 b4 = codes[8 * p];
                const uint32_t b[4] = {b4.x, b4.y, b4.z, b4.w};
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int j = 2 * p + h;
                    int c[4] = {0, 0, 0, 0};
                    if constexpr (P::zero != 0) {
                        const int2 s = reinterpret_cast<const int2 *>(sums)[j];
                        c[0] = c[2] = s.x, c[1] = c[3] = s.y;
                    }
                    mma_16x8x32<P::bits == 8>(c, v[0][2 * j], v[1][2 * j], v[0][2 * j + 1], v[1][2 * j + 1], b[2 * h],
                                              b[2 * h + 1]);
                    const uint32_t d0 = p ? w.scales[0].y : w.scales[0].x, d1 = p ? w.scales[0].w : w.scales[0].z;
                    f[0] = fmaf(h ? high_half(d0) : low_half(d0), static_cast<float>(c[0] * 128 + c[1]), f[0]);
                    f[1] = fmaf(h ? high_half(d1) : low_half(d1), static_cast<float>(c[2] * 128 + c[3]), f[1]);
                }
            }
            sum[2 * q] = fmaf(f[0], scale, sum[2 * q]);
            sum[2 * q + 1] = fmaf(f[1], scale, sum[2 * q + 1]);
        } else if constexpr (P::k4) {
            int total[4] = {0, 0, 0, 0};
            uint32_t sc[2][2], mn[2][2];
#pragma unroll
            for (int r = 0; r < 2; r++) { // vb_k4_scale, four at a time
                const uint4 s = w.scales[r];
                sc[r][0] = s.y & 0x3f3f3f3f, sc[r][1] = (s.w & 0x0f0f0f0f) | ((s.y >> 2) & 0x30303030);
                mn[r][0] = s.z & 0x3f3f3f3f, mn[r][1] = ((s.w >> 4) & 0x0f0f0f0f) | ((s.z >> 2) & 0x30303030);
            }
#pragma unroll
            for (int p = 0; p < P::values / 4; p++) {
                const uint4 b4 = codes[8 * p];
                const uint32_t b[4] = {b4.x, b4.y, b4.z, b4.w};
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int j = 2 * p + h;
                    int c[4] = {0, 0, 0, 0};
                    mma_16x8x32<false>(c, v[0][2 * j], v[1][2 * j], v[0][2 * j + 1], v[1][2 * j + 1], b[2 * h],
                                       b[2 * h + 1]);
                    const int s0 = __byte_perm(sc[0][j >> 2], 0, 0x4440 + (j & 3));
                    const int s1 = __byte_perm(sc[1][j >> 2], 0, 0x4440 + (j & 3));
                    total[0] += s0 * c[0], total[1] += s0 * c[1], total[2] += s1 * c[2], total[3] += s1 * c[3];
                }
            }
            const uint4 high = reinterpret_cast<const uint4 *>(sums)[0], low = reinterpret_cast<const uint4 *>(sums)[1];
#pragma unroll
            for (int r = 0; r < 2; r++) {
                int mh = 0, ml = 0;
                mh = __dp2a_lo(static_cast<int>(high.x), static_cast<int>(mn[r][0]), mh);
                ml = __dp2a_lo(static_cast<int>(low.x), static_cast<int>(mn[r][0]), ml);
                mh = __dp2a_hi(static_cast<int>(high.y), static_cast<int>(mn[r][0]), mh);
                ml = __dp2a_hi(static_cast<int>(low.y), static_cast<int>(mn[r][0]), ml);
                mh = __dp2a_lo(static_cast<int>(high.z), static_cast<int>(mn[r][1]), mh);
                ml = __dp2a_lo(static_cast<int>(low.z), static_cast<int>(mn[r][1]), ml);
                mh = __dp2a_hi(static_cast<int>(high.w), static_cast<int>(mn[r][1]), mh);
                ml = __dp2a_hi(static_cast<int>(low.w), static_cast<int>(mn[r][1]), ml);
                const float dot = fmaf(static_cast<float>(total[2 * r]), 128.0f, static_cast<float>(total[2 * r + 1]));
                const float f = low_half(w.scales[r].x) * dot -
                                high_half(w.scales[r].x) * static_cast<float>(mh * 128 + ml);
                sum[2 * q + r] = fmaf(f, scale, sum[2 * q + r]);
            }
        } else { // Q6_K
            int total[4] = {0, 0, 0, 0};
            const uint32_t sc[2][4] = {{w.scales[0].x, w.scales[0].y, w.scales[0].z, w.scales[0].w},
                                       {w.scales[1].x, w.scales[1].y, w.scales[1].z, w.scales[1].w}};
#pragma unroll
            for (int p = 0; p < P::values / 4; p++) {
                const uint4 b4 = codes[8 * p];
                const uint32_t b[4] = {b4.x, b4.y, b4.z, b4.w};
#pragma unroll
                for (int h = 0; h < 4; h++) {
                    const int2 s = reinterpret_cast<const int2 *>(sums)[4 * p + h];
                    int c[4] = {s.x, s.y, s.x, s.y};
                    mma_16x8x16(c, v[0][4 * p + h], v[1][4 * p + h], b[h]);
                    const int s0 = static_cast<int8_t>(sc[0][h] >> (8 * p)); // q6_scale_byte(4 p + h)
                    const int s1 = static_cast<int8_t>(sc[1][h] >> (8 * p));
                    total[0] += s0 * c[0], total[1] += s0 * c[1], total[2] += s1 * c[2], total[3] += s1 * c[3];
                }
            }
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const float dot = fmaf(static_cast<float>(total[2 * r]), 128.0f, static_cast<float>(total[2 * r + 1]));
                sum[2 * q + r] = fmaf(half_bits(w.d[r]) * scale, dot, sum[2 * q + r]);
            }
        }
    }
}

} // namespace vb
#endif
