// rows_update.cuh: an adapter's change of products with 2 to 8 rows of x: U h, with h = (x V) * codes by a small
// kernel before (project_rows.cuh). The `Out` of n4.cuh and n32.cuh adds it to what it adds to a result anyway.
#ifndef VB_LINEAR_ROWS_UPDATE_CUH
#define VB_LINEAR_ROWS_UPDATE_CUH

#include "linear/linear.cuh"

namespace vb {

struct NoRowsUpdate {
    static constexpr bool active = false, late = false;
    struct Ahead {};
};

// LATE: U h is added where a result is stored, with a part of U that has been fetched before its product. Else it is
// fetched whole: blocks of few items gain nothing from it, and their kernels have no registers for it.
template <bool LATE>
struct RowsUpdate {
    static constexpr bool active = true, late = LATE;
    struct Ahead {
        uint4 u; // of the first eight ranks
    };
    const float *h;                      // [n][matrices][ranks]
    const half *first, *second, *third;  // U of each matrix, [rows][ranks], or null: nothing is added
    int ranks, matrices;

    VB_DEVICE const uint4 *row_of(int matrix, int row) const {
        // an index would have the parameters copied to memory
        const half *const u = matrix == 0 ? first : matrix == 1 ? second : third;
        return u ? reinterpret_cast<const uint4 *>(u + (int64_t)row * ranks) : nullptr;
    }
    VB_DEVICE void fetch(Ahead *ahead, int matrix, int row) const {
        const uint4 *const by = row_of(matrix, row);
        ahead->u = by ? __ldg(by) : make_uint4(0, 0, 0, 0);
    }
    // The change of row `row` of a matrix for row `token` of x, after the wait for the kernel before.
    VB_DEVICE float of(const Ahead &ahead, int matrix, int token, int row) const {
        const uint4 *by = row_of(matrix, row);
        if (!by) return 0;
        const float4 *from = reinterpret_cast<const float4 *>(h + (token * matrices + matrix) * ranks);
        float sum = 0;
#pragma unroll 1
        for (int group = 0; group < ranks / 8; group++, from += 2, by++) {
            const uint4 words = LATE && group == 0 ? ahead.u : __ldg(by);
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

// What h of `count` matrices is made from, that share x [n][cols], or its RMS norm where with_norm.
struct RowsProjection {
    float *h;
    const float *x, *norm; // norm: null for ones
    const half *v[3];      // null: h stays as it is
    const float *codes;    // null for ones
    int64_t codes_stride;
    int n, cols, groups, matrices;
    bool with_norm;
    float eps;
};

template <bool LATE>
vb_status plan_rows_update(RowsUpdate<LATE> *update, RowsProjection *projection, const Adapter &a, int count,
                           const float *x, bool with_norm, const float *norm, float eps, int64_t n, int64_t cols,
                           vb_stream *stream) {
    static_assert(LINEAR_N32_HOPPER * 3 * LINEAR_ADAPTED_RANKS <= LINEAR_LEFT_SUMS, "in the place of sums of one row");
    float *const h = left_at(left_by_feed_forward, stream); // the workspace is the products'
    if (!h) return VB_OUT_OF_MEMORY;
    const auto u = [&](int matrix) { return a.of[matrix].v ? a.of[matrix].u : nullptr; };
    *update = {h, u(0), u(1), u(2), a.ranks, count};
    *projection = {h, x, norm, {a.of[0].v, a.of[1].v, a.of[2].v}, a.codes, a.codes_stride, (int)n, (int)cols,
                   a.ranks / 8, count, with_norm, eps};
    return VB_OK;
}

// Computes h by a kernel of its own (project_rows.cu).
vb_status project_rows(RowsUpdate<false> *update, const Adapter &adapter, int count, const float *x, bool with_norm,
                       const float *norm, float eps, int64_t n, int64_t cols, vb_stream *stream);

} // namespace vb
#endif
