// attention_decode_f32.cu: attention of few query rows over a float32 cache with float32's accuracy, also with capped
// scores, rings and sinks of several tokens (attention_decode_kernel.cuh).
//
// Units are as those of 16 bits (attention_units.cuh). A product is three of TF32 (gemm/tf32_parts.cuh).

#include "attention/attention_decode_kernel.cuh"
#include "gemm/tf32_parts.cuh"

namespace vb {

// In shared memory a row has DIMS / 4 chunks of 16 bytes, permuted against bank conflicts: a quarter-warp reads four
// even chunks of two neighbouring rows of keys, and two neighbouring chunks of four rows of values.
template <int DIMS>
struct Unit<float, DIMS> : StoreFours<DIMS> {
    using Product = float;
    static constexpr int warps = ATTENTION_DECODE_F32_WARPS(DIMS), together = 1;
    static constexpr bool whole = false;
    static constexpr int chunks = DIMS / 4, bytes = unit_keys * DIMS * 4;
    static constexpr float slack = 8.0f;

    static VB_DEVICE int row_bytes(int dim) { return 4 * dim; }
    static VB_DEVICE constexpr int turned(int row) { return (row & 1) * 5 | (row & 2); }
    static VB_DEVICE int place(int row, int chunk) { return (row * chunks + (chunk ^ turned(row))) * 16; }
    static VB_DEVICE float4 chunk_at(const char *shared, int unit, int row, int chunk) {
        return *reinterpret_cast<const float4 *>(shared + unit + place(row, chunk));
    }
    // Copies `rows` rows; the others are zeros.
    static VB_DEVICE void copy(unsigned to, const char *from, int rows, int dim, int lane) {
#pragma unroll
        for (int i = 0; i < unit_keys * chunks / 32; i++) {
            const int row = (i * 32 + lane) / chunks, chunk = (i * 32 + lane) % chunks;
            copy_async(to + place(row, chunk), from + (int64_t)row * 4 * dim + chunk * 16,
                       row < rows && chunk * 4 < dim);
        }
    }
    // sums[0] += a b of the high parts; sums[1] += the products with low parts.
    static VB_DEVICE void multiply(float (&sums)[2][4], const float (&a)[4], float b0, float b1) {
        unsigned high[4], low[4], high_b[2], low_b[2];
#pragma unroll
        for (int e = 0; e < 4; e++) cut_tf32(a[e], high[e], low[e]);
        cut_tf32(b0, high_b[0], low_b[0]);
        cut_tf32(b1, high_b[1], low_b[1]);
        mma_tf32(sums[1], low, high_b[0], high_b[1]);
        mma_tf32(sums[1], high, low_b[0], low_b[1]);
        mma_tf32(sums[0], high, high_b[0], high_b[1]);
    }
    // A lane has eight neighbouring dimensions of each 32 of its keys and its query row: indices t and t + 4 of four
    // products. Tensor cores add sums of up to 32 products; registers add these sums up.
    template <int NT>
    static VB_DEVICE void multiply_keys(float (&score)[NT][4], const char *shared, int keys,
                                        const Vec<float, 8> (&q)[NT][DIMS / 32], int dim, int lane) {
        const int g = lane / 4, c = lane % 4;
#pragma unroll
        for (int i = 0; i < DIMS / 32; i++) {
            if (32 * i >= dim) break;
            float sums[NT][2][4] = {};
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const float4 x = chunk_at(shared, keys, g, 8 * i + 2 * c + h),
                             y = chunk_at(shared, keys, g + 8, 8 * i + 2 * c + h);
                const float first[4] = {x.x, y.x, x.y, y.y}, second[4] = {x.z, y.z, x.w, y.w};
#pragma unroll
                for (int t = 0; t < NT; t++) {
                    multiply(sums[t], first, q[t][i].at[4 * h], q[t][i].at[4 * h + 1]);
                    multiply(sums[t], second, q[t][i].at[4 * h + 2], q[t][i].at[4 * h + 3]);
                }
            }
#pragma unroll
            for (int t = 0; t < NT; t++)
#pragma unroll
                for (int e = 0; e < 4; e++) score[t][e] += sums[t][0][e] + sums[t][1][e];
        }
    }
    // The weights of keys c and c + 4 (second: c + 8 and c + 12) for row g, from the lanes that have their scores.
    static VB_DEVICE float weight_of(const float (&weight)[4], int key, int second, int lane) {
        const int g = lane / 4, from = 4 * key + g / 2;
        const float even = __shfl_sync(all_lanes, weight[2 * second], from),
                    odd = __shfl_sync(all_lanes, weight[2 * second + 1], from);
        return g % 2 ? odd : even;
    }
    // Where `partial`, the values of unseen keys from `base` on may be anything, which a weight of 0 does not cancel.
    template <int NT>
    static VB_DEVICE void multiply_values(float (&out)[DIMS / 16][NT][4], const char *shared, int values,
                                          const float (&weight)[NT][4], int dim, int lane, bool partial, int base,
                                          const KeyRange &all) {
        const int g = lane / 4, c = lane % 4;
        float b[NT][4]; // of keys c, c + 4, c + 8, c + 12
        bool seen[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int key = base + c + 4 * j;
            seen[j] = !partial || (key >= all.lo && key < all.hi);
#pragma unroll
            for (int t = 0; t < NT; t++) b[t][j] = weight_of(weight[t], j % 2 * 4 + c, j / 2, lane);
        }
#pragma unroll
        for (int i = 0; i < DIMS / 32; i++) {
            if (32 * i >= dim) break;
            float sums[2][NT][2][4] = {};
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float4 x = chunk_at(shared, values, 8 * h + c, 8 * i + g),
                       y = chunk_at(shared, values, 8 * h + c + 4, 8 * i + g);
                if (!seen[2 * h]) x = make_float4(0, 0, 0, 0);
                if (!seen[2 * h + 1]) y = make_float4(0, 0, 0, 0);
                const float first[4] = {x.x, x.y, y.x, y.y}, second[4] = {x.z, x.w, y.z, y.w};
#pragma unroll
                for (int t = 0; t < NT; t++) {
                    multiply(sums[0][t], first, b[t][2 * h], b[t][2 * h + 1]);
                    multiply(sums[1][t], second, b[t][2 * h], b[t][2 * h + 1]);
                }
            }
#pragma unroll
            for (int s = 0; s < 2; s++)
#pragma unroll
                for (int t = 0; t < NT; t++)
#pragma unroll
                    for (int e = 0; e < 4; e++) out[2 * i + s][t][e] += sums[s][t][0][e] + sums[s][t][1][e];
        }
    }
};

vb_status attention_decode_f32(const vb_attention_args &a, vb_stream *stream) {
    if (a.dim > 128) return launch_dims<float, float, 256, 1, 3, true>(a, {}, stream);
    if (attention_decode_tile_rows(&a) == 8)
        return a.dim <= 64 ? launch_dims<float, float, 64, 1, 6, true>(a, {}, stream)
                           : launch_dims<float, float, 128, 1, 3, true>(a, {}, stream);
    return a.dim <= 64 ? launch_dims<float, float, 64, 2, 6, true>(a, {}, stream)
                       : launch_dims<float, float, 128, 2, 3, true>(a, {}, stream);
}

} // namespace vb
