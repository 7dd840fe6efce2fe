// expert_many.cuh: the operands of products of many tokens with packed experts, and how the sums of a unit are finished
// (expert_many.cu, expert_many_sm90.cu).
#ifndef VB_MOE_EXPERT_MANY_CUH
#define VB_MOE_EXPERT_MANY_CUH

#include "moe/moe.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear/packed/many.cuh"
#include "rows/glu.cuh"

namespace vb {

// Rows as the product reads them.
struct Halves {
    half *x;
    float *inverse;
    int64_t n, stride;
};

struct ExpertProduct {
    Halves x;               // Hopper: of each choice, in sorted order
    int share;              // choices with one row of x
    const uint8_t *w, *up;  // of the first expert; up: null, or the results are activation(w x, up x)
    const float *w_bias, *up_bias; // [experts][rows], or null
    float *y;               // [choices][rows]
    bool in_order;          // y is of sorted choices
    SortedChoices sorted;
    int rows, tile_rows, k_tiles; // of an expert
    int experts;
    AnyGlu activation;
};

constexpr int choice_sums = unit_rows + 4; // of a choice's sums in shared memory: no bank conflicts

// Writes the results of a unit, rows row0.. of a tile of choices: `sums`[choice][choice_sums] in shared memory, times
// inverse[choice]. place: the choices of the tile.
VB_DEVICE void store_choices(const ExpertProduct &p, const ExpertTile &tile, int row0, const float *sums,
                             const float *inverse, const int *place) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const bool gated = p.up != nullptr;
    for (int choice = warp; choice < tile.count; choice += unit_warps) {
        const float *const from = sums + choice * choice_sums;
        const float scale = inverse[choice];
        float *const y = p.y + (int64_t)(p.in_order ? tile.first + choice : place[choice]) * p.rows + row0;
        const int64_t bias = (int64_t)tile.expert * p.rows + row0;
        if (gated) { // a warp's 16 of each in turn
#pragma unroll
            for (int r = lane; r < unit_rows / 2; r += 32) {
                const int at = r / packed_rows * 2 * packed_rows + r % packed_rows;
                if (row0 + r < p.rows)
                    y[r] = p.activation(fmaf(from[at], scale, p.w_bias ? p.w_bias[bias + r] : 0.0f),
                                        fmaf(from[at + packed_rows], scale, p.up_bias ? p.up_bias[bias + r] : 0.0f));
            }
        } else {
#pragma unroll
            for (int r = lane; r < unit_rows; r += 32)
                if (row0 + r < p.rows) y[r] = fmaf(from[r], scale, p.w_bias ? p.w_bias[bias + r] : 0.0f);
        }
    }
}

// The same of a tile of ids of no expert: NaN.
VB_DEVICE void store_no_choices(const ExpertProduct &p, const ExpertTile &tile, int row0, int unit, const int *place) {
    for (int i = threadIdx.x; i < tile.count * unit; i += unit_threads) {
        const int choice = i / unit, row = row0 + i % unit;
        if (row < p.rows)
            p.y[(int64_t)(p.in_order ? tile.first + choice : place[choice]) * p.rows + row] = not_a_number();
    }
}

// y by Hopper's instructions; `slots` tiles of choices at most.
vb_status expert_product_sm90(vb_dtype type, ExpertProduct p, int64_t choices, int64_t cols, int64_t slots,
                              vb_stream *stream);

} // namespace vb
#endif
#endif
