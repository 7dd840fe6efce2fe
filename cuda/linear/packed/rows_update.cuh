// rows_update.cuh: an adapter's change of products with 2 to 4 rows of x: U h, with h = (x V) * codes by a small kernel
// before (project_rows.cu). The `Out` of n4.cuh adds it to what it adds to a result anyway.
#ifndef VB_LINEAR_ROWS_UPDATE_CUH
#define VB_LINEAR_ROWS_UPDATE_CUH

#include "linear/linear.cuh"

namespace vb {

struct NoRowsUpdate {
    static constexpr bool active = false;
};

struct RowsUpdate {
    static constexpr bool active = true;
    const float *h;                      // [n][matrices][ranks]
    const half *first, *second, *third;  // U of each matrix, [rows][ranks], or null: nothing is added
    int ranks, matrices;

    // The change of row `row` of a matrix for row `token` of x, after the wait for the kernel before.
    VB_DEVICE float of(int matrix, int token, int row) const {
        // an index would have the parameters copied to memory
        const half *const u = matrix == 0 ? first : matrix == 1 ? second : third;
        if (!u) return 0;
        const float4 *from = reinterpret_cast<const float4 *>(h + (token * matrices + matrix) * ranks);
        const uint4 *by = reinterpret_cast<const uint4 *>(u + (int64_t)row * ranks);
        float sum = 0;
#pragma unroll 1
        for (int group = 0; group < ranks / 8; group++, from += 2, by++) {
            const uint4 words = __ldg(by);
            const float4 low = from[0], high = from[1];
            const auto two = [](uint32_t word) { return __half22float2(*reinterpret_cast<const __half2 *>(&word)); };
            const float2 a = two(words.x), b = two(words.y), c = two(words.z), d = two(words.w);
            sum = fmaf(low.x, a.x, fmaf(low.y, a.y, fmaf(low.z, b.x, fmaf(low.w, b.y, sum))));
            sum = fmaf(high.x, c.x, fmaf(high.y, c.y, fmaf(high.z, d.x, fmaf(high.w, d.y, sum))));
        }
        return sum;
    }
};

inline bool changes_rows(const Adapter &a) { return a.of[0].v || a.of[1].v || a.of[2].v; }

// Computes h for `count` matrices that share x [n][cols], or its RMS norm where with_norm; `norm` may be null, for ones
// (project_rows.cu).
vb_status project_rows(RowsUpdate *update, const Adapter &adapter, int count, const float *x, bool with_norm,
                       const float *norm, float eps, int64_t n, int64_t cols, vb_stream *stream);

} // namespace vb
#endif
