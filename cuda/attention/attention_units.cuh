// attention_units.cuh: 16 keys and 16 values of a cache of 16-bit numbers or Q8_0, for attention_decode.cu. They are
// copied into a warp's shared memory, and from there into fragments of mma.sync.
//
// Scores are S^T = K Q^T, [16 keys][8 rows]; then O^T = V^T P^T, [16 dimensions][8 rows] a product. So keys fill the
// tall side of a product, and eight query rows, a group of heads, its short side.
// The contracted index of a product may be permuted if it is in both factors. A lane loads 16 contiguous bytes of a
// key, 8 dimensions, and takes them as the k indices of its fragment. Queries are loaded the same way.
// The instruction movmatrix transposes P^T into place.
//
// With g = lane / 4 and c = lane % 4: a lane has scores of keys g and g + 8 for rows 2c and 2c + 1 of each eight.
// It has outputs of two dimensions a product for the same rows; Unit::store has the dimensions.

#ifndef VB_CUDA_ATTENTION_UNITS_CUH
#define VB_CUDA_ATTENTION_UNITS_CUH

#include "attention/attention_decode.cuh"
#include "arch/mma.cuh"
#include "quant.h"

namespace vb {

// Which of 16 keys from `base` on are seen, as masks of the pairs 2c.. and 2c + 8.. that a lane multiplies.
VB_DEVICE unsigned mask_pair(int key, const KeyRange &all) {
    return (key >= all.lo && key < all.hi ? 0xffffu : 0u) | (key + 1 >= all.lo && key + 1 < all.hi ? 0xffff0000u : 0u);
}

// ---- 16-bit numbers -------------------------------------------------------------------------------------------------
// In shared memory a row has DIMS / 8 chunks of 16 bytes, permuted against bank conflicts.
// The two rows of a quarter-warp's loads of keys lie in different banks, and so do the eight rows of a matrix of
// values.
// Units begin at multiples of 128 bytes. So an unrolled loop flips a few bits of an address to reach a chunk.
template <class TKV, int DIMS>
struct Unit {
    using Product = TKV;
    static constexpr int warps = DIMS > 128 ? 4 : 8, together = 1; // of a block, blocks that an SM is to have
    static constexpr bool whole = false; // whether plain attention is of DIMS dimensions, no fewer
    static constexpr int chunks = DIMS / 8, bytes = unit_keys * DIMS * 2;
    // by which weights may exceed 1, in units of log 2, before outputs are rescaled
    static constexpr float slack = 8.0f;

    static VB_DEVICE int row_bytes(int dim) { return 2 * dim; }
    static VB_DEVICE constexpr int turned(int row) { return (row & 1) << 2 | (row & 2) | (row >> 2 & 1); }
    static VB_DEVICE int place(int row, int chunk) { return (row * chunks + (chunk ^ turned(row))) * 16; }
    // Copies `rows` rows; the others are zeros.
    static VB_DEVICE void copy(unsigned to, const char *from, int rows, int dim, int lane) {
        // a power of two: rows of the loop and of the lane have no bit in common
        constexpr int rows_together = 32 / chunks;
        if (rows == unit_keys && dim == DIMS) {
            const unsigned at = to + place(lane / chunks, lane % chunks);
            from += lane * 16;
#pragma unroll
            for (int i = 0; i < unit_keys / rows_together; i++)
                copy_async((at ^ turned(i * rows_together) * 16) + i * 512, from + i * 512);
        } else {
#pragma unroll 1
            for (int item = lane; item < unit_keys * chunks; item += 32) {
                const int row = item / chunks, chunk = item % chunks;
                copy_async(to + place(row, chunk), from + row * 2 * dim + chunk * 16, row < rows && chunk * 8 < dim);
            }
        }
    }
    // Copies a key and a value to a row of units that are there.
    static VB_DEVICE void copy_row(unsigned keys, unsigned values, int row, const char *key, const char *value, int dim,
                                   int lane) {
#pragma unroll
        for (int first = 0; first < 2 * chunks; first += 32) {
            const int chunk = (first + lane) % chunks;
            const bool second = first + lane >= chunks;
            if (2 * chunks >= 32 || lane < 2 * chunks)
                copy_async((second ? values : keys) + place(row, chunk), (second ? value : key) + chunk * 16,
                           chunk * 8 < dim);
        }
    }
    template <int NT>
    static VB_DEVICE void multiply_keys(float (&score)[NT][4], const char *shared, int keys,
                                        const uint4 (&q)[NT][DIMS / 32], int, int lane) {
        const int at = keys + place(lane / 4, lane % 4);
        float second[NT][4] = {}; // two sums of products each: half the chain of dependent ones
#pragma unroll
        for (int i = 0; i < DIMS / 32; i++) {
            const char *const row = shared + (at ^ (i & 1) * 64) + i / 2 * 128;
            const uint4 x = *reinterpret_cast<const uint4 *>(row),
                        y = *reinterpret_cast<const uint4 *>(row + 8 * chunks * 16);
            const unsigned low[4] = {x.x, y.x, x.y, y.y}, high[4] = {x.z, y.z, x.w, y.w};
#pragma unroll
            for (int t = 0; t < NT; t++) {
                mma<TKV>(score[t], low, q[t][i].x, q[t][i].y);
                mma<TKV>(second[t], high, q[t][i].z, q[t][i].w);
            }
        }
#pragma unroll
        for (int t = 0; t < NT; t++)
#pragma unroll
            for (int e = 0; e < 4; e++) score[t][e] += second[t][e];
    }
    // Where `partial`, the values of unseen keys from `base` on may be anything, which a weight of 0 does not cancel.
    template <int NT>
    static VB_DEVICE void multiply_values(float (&out)[DIMS / 16][NT][4], const char *shared, int values,
                                          const float (&weight)[NT][4], int, int lane, bool partial, int base,
                                          const KeyRange &all) {
        unsigned b[NT][2];
#pragma unroll
        for (int t = 0; t < NT; t++) {
            b[t][0] = transposed(pack<TKV>(weight[t][0], weight[t][1]));
            b[t][1] = transposed(pack<TKV>(weight[t][2], weight[t][3]));
        }
        unsigned first = 0xffffffffu, second = first;
        if (partial) {
            const int key = base + 2 * (lane % 4);
            first = mask_pair(key, all), second = mask_pair(key + 8, all);
        }
        const unsigned at = shared_address(shared) + values + place(lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
        for (int i = 0; i < DIMS / 16; i++) {
            unsigned v[4]; // dimensions 16i.. and 16i + 8.. of keys 0.., then of keys 8..
            load_matrices_transposed(v, (at ^ (i & 3) * 32) + i / 4 * 128);
            if (partial) v[0] &= first, v[1] &= first, v[2] &= second, v[3] &= second;
#pragma unroll
            for (int t = 0; t < NT; t++) mma<TKV>(out[i][t], v, b[t][0], b[t][1]);
        }
    }
    // Writes the outputs of a warp to [row][stride].
    template <int NT>
    static VB_DEVICE void store(float *to, int stride, const float (&out)[DIMS / 16][NT][4], int lane) {
        const int g = lane / 4, c = lane % 4;
#pragma unroll
        for (int t = 0; t < NT; t++)
#pragma unroll
            for (int i = 0; i < DIMS / 16; i++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    to[(8 * t + 2 * c + e % 2) * stride + 16 * i + g + e / 2 * 8] = out[i][t][e];
    }
};

// ---- Q8_0 -----------------------------------------------------------------------------------------------------------
// Rows of blocks as the cache has them, 2176 bytes for 16 rows of 128. Products are of whole numbers, exact in F16.
// Scores are scaled by their key's blocks afterwards, weights by their value's blocks before.
// bytes8, bytes4: the 8 or 4 bytes at an even offset from an aligned address. The bytes beyond may be another warp's,
// and are not read.
VB_DEVICE uint2 bytes8(const char *from, int offset) {
    const unsigned *words = reinterpret_cast<const unsigned *>(from + (offset & ~3));
    const unsigned odd = (unsigned)offset >> 1 & 1, shift = 16 * odd, middle = words[1];
    return make_uint2(__funnelshift_r(words[0], middle, shift), __funnelshift_r(middle, words[1 + odd], shift));
}
VB_DEVICE unsigned bytes4(const char *from, int offset) {
    const unsigned *words = reinterpret_cast<const unsigned *>(from + (offset & ~3));
    const unsigned odd = (unsigned)offset >> 1 & 1;
    return __funnelshift_r(words[0], words[odd], 16 * odd);
}
// Two bytes, b + 128 each, as halves b: 0x6400 + u is 1024 + u.
template <int PICK>
VB_DEVICE unsigned halves_of(unsigned biased) {
    const unsigned u = __byte_perm(biased, 0x64646464u, PICK);
    const half2 x = __hsub2(*reinterpret_cast<const half2 *>(&u), __float2half2_rn(1152.0f));
    return *reinterpret_cast<const unsigned *>(&x);
}
VB_DEVICE float scale_of(const char *block) { return to_float(*reinterpret_cast<const half *>(block)); }

// Writes the outputs of a warp to [row][stride]: a lane has dimensions 4g.. of each 32.
template <int DIMS>
struct StoreFours {
    template <int NT>
    static VB_DEVICE void store(float *to, int stride, const float (&out)[DIMS / 16][NT][4], int lane) {
        const int g = lane / 4, c = lane % 4;
#pragma unroll
        for (int t = 0; t < NT; t++)
#pragma unroll
            for (int i = 0; i < DIMS / 32; i++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    *reinterpret_cast<float4 *>(to + (8 * t + 2 * c + e) * stride + 32 * i + 4 * g) = make_float4(
                        out[2 * i][t][e], out[2 * i][t][2 + e], out[2 * i + 1][t][e], out[2 * i + 1][t][2 + e]);
    }
};

template <int DIMS>
struct Unit<vb_block_q8_0, DIMS> : StoreFours<DIMS> {
    using Product = half;
    // Instructions take the time: smaller blocks share the SMs more evenly. A block of 8 warps an SM was slower by a
    // fifth.
    static constexpr int warps = 4, together = 2;
    static constexpr bool whole = true; // known places of bytes are a third of a unit's instructions
    static constexpr int block_bytes = (int)sizeof(vb_block_q8_0), bytes = unit_keys * (DIMS / 32) * block_bytes;
    static constexpr float slack = 0.0f; // weights times the greatest scale are halves

    static VB_DEVICE int row_bytes(int dim) { return dim / 32 * block_bytes; }
    // How far an even offset, which follows whole rows, lies behind a multiple of 4.
    static VB_DEVICE int rest_of(int at, int dim) { return DIMS % 64 == 0 && dim == DIMS ? 0 : at & 2; }
    static VB_DEVICE void copy(unsigned to, const char *from, int rows, int dim, int lane) {
        const int end = rows * row_bytes(dim); // past it to the next multiple of 16 lies the cache too
#pragma unroll
        for (int i = 0; i < (bytes + 511) / 512; i++) {
            const int at = (i * 32 + lane) * 16;
            if (at < end) copy_async(to + at, from + at);
        }
    }
    template <int NT>
    static VB_DEVICE void multiply_keys(float (&score)[NT][4], const char *shared, int keys,
                                        const uint4 (&q)[NT][DIMS / 32], int dim, int lane) {
        const int g = lane / 4, c = lane % 4, row = row_bytes(dim);
        const int at = keys + g * row, rest = rest_of(at, dim);
        const char *const codes = shared + (at - rest + 8 * c);
#pragma unroll
        for (int i = 0; i < DIMS / 32; i++) {
            if (32 * i >= dim) break;
            const int x = at + i * block_bytes, y = x + 8 * row, block = rest + i * block_bytes + 2;
            const uint2 p = bytes8(codes, block), s = bytes8(codes, block + 8 * row);
            const unsigned px = p.x ^ 0x80808080u, py = p.y ^ 0x80808080u, sx = s.x ^ 0x80808080u,
                           sy = s.y ^ 0x80808080u;
            const unsigned low[4] = {halves_of<0x4140>(px), halves_of<0x4140>(sx), halves_of<0x4342>(px),
                                     halves_of<0x4342>(sx)};
            const unsigned high[4] = {halves_of<0x4140>(py), halves_of<0x4140>(sy), halves_of<0x4342>(py),
                                      halves_of<0x4342>(sy)};
            const float x_scale = scale_of(shared + x), y_scale = scale_of(shared + y);
#pragma unroll
            for (int t = 0; t < NT; t++) {
                float sum[4] = {};
                mma<half>(sum, low, q[t][i].x, q[t][i].y);
                mma<half>(sum, high, q[t][i].z, q[t][i].w);
                score[t][0] = fmaf(sum[0], x_scale, score[t][0]), score[t][1] = fmaf(sum[1], x_scale, score[t][1]);
                score[t][2] = fmaf(sum[2], y_scale, score[t][2]), score[t][3] = fmaf(sum[3], y_scale, score[t][3]);
            }
        }
    }
    template <int NT>
    static VB_DEVICE void multiply_values(float (&out)[DIMS / 16][NT][4], const char *shared, int values,
                                          const float (&weight)[NT][4], int dim, int lane, bool, int base,
                                          const KeyRange &all) {
        const int g = lane / 4, c = lane % 4, row = row_bytes(dim);
        const bool first = base + g >= all.lo && base + g < all.hi,
                   second = base + g + 8 >= all.lo && base + g + 8 < all.hi;
        const int at = values + 2 * c * row, rest = rest_of(at, dim);
        const char *const codes = shared + (at - rest + 4 * g);
#pragma unroll
        for (int i = 0; i < DIMS / 32; i++) {
            if (32 * i >= dim) break;
            const char *const block = shared + values + i * block_bytes;
            const float x_scale = first ? scale_of(block + g * row) : 0.0f,
                        y_scale = second ? scale_of(block + (g + 8) * row) : 0.0f;
            // Dimensions 4g.. of keys 2c, 2c + 1, 2c + 8, 2c + 9; in each register two keys.
            const int of = rest + i * block_bytes + 2;
            const unsigned k0 = bytes4(codes, of) ^ 0x80808080u, k1 = bytes4(codes, of + row) ^ 0x80808080u;
            const unsigned k8 = bytes4(codes, of + 8 * row) ^ 0x80808080u,
                           k9 = bytes4(codes, of + 9 * row) ^ 0x80808080u;
            const unsigned low = __byte_perm(k0, k1, 0x5140), high = __byte_perm(k0, k1, 0x7362);
            const unsigned low8 = __byte_perm(k8, k9, 0x5140), high8 = __byte_perm(k8, k9, 0x7362);
            const unsigned x[4] = {halves_of<0x4140>(low), halves_of<0x4342>(low), halves_of<0x4140>(low8),
                                   halves_of<0x4342>(low8)};
            const unsigned y[4] = {halves_of<0x4140>(high), halves_of<0x4342>(high), halves_of<0x4140>(high8),
                                   halves_of<0x4342>(high8)};
#pragma unroll
            for (int t = 0; t < NT; t++) {
                const unsigned b0 = transposed(pack<half>(weight[t][0] * x_scale, weight[t][1] * x_scale));
                const unsigned b1 = transposed(pack<half>(weight[t][2] * y_scale, weight[t][3] * y_scale));
                mma<half>(out[2 * i][t], x, b0, b1);
                mma<half>(out[2 * i + 1][t], y, b0, b1);
            }
        }
    }
};

} // namespace vb
#endif
