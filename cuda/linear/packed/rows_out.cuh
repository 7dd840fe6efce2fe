// rows_out.cuh: the `Out` of linear for 2 to 32 rows of x (n4.cu, n32.cu): bias, addition, an adapter's change, and the
// rows of y.
#ifndef VB_LINEAR_ROWS_OUT_CUH
#define VB_LINEAR_ROWS_OUT_CUH

#include "linear/linear.cuh"
#include "linear/packed/packed.cuh"
#include "linear/packed/rows_update.cuh"

namespace vb {

template <int PARTS, class Update = NoRowsUpdate>
struct RowsOut {
    const uint8_t *w;
    float *y;
    const float *bias, *add; // or null; add may be y
    int64_t row_bytes;       // of a row of tiles
    int n, rows, tile_rows;
    Update update;
    struct Ahead {
        float value[PARTS];
        typename Update::Ahead update[PARTS];
    };
    VB_DEVICE int row_of(int item, int part, int row) const { return (item * PARTS + part) * packed_rows + row; }
    // the last item may have one part: its other is not stored
    VB_DEVICE const uint8_t *tiles(int item, int part) const {
        return w + smaller(item * PARTS + part, tile_rows - 1) * row_bytes;
    }
    VB_DEVICE void fetch(Ahead *ahead, int item, int token, int row) const {
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
            const int r = row_of(item, p, row);
            ahead->value[p] = r < rows ? (bias ? bias[r] : 0.0f) + (add ? add[(int64_t)token * rows + r] : 0.0f) : 0.0f;
            if constexpr (Update::late) update.fetch(&ahead->update[p], 0, smaller(r, rows - 1));
        }
    }
    VB_DEVICE void fetch_more(Ahead *ahead, int item, int token, int row) const {
        if constexpr (Update::active && !Update::late)
#pragma unroll
            for (int p = 0; p < PARTS; p++) {
                const int r = row_of(item, p, row);
                if (r < rows) ahead->value[p] += update.of({}, 0, token, r);
            }
    }
    VB_DEVICE void store(const Ahead &ahead, int item, int token, int row, const float (&sums)[PARTS]) const {
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
            const int r = row_of(item, p, row);
            if (token >= n || r >= rows) continue;
            float sum = sums[p] + ahead.value[p];
            if constexpr (Update::late) sum += update.of(ahead.update[p], 0, token, r);
            y[(int64_t)token * rows + r] = sum;
        }
    }
};

template <class Block, int PARTS, class Update = NoRowsUpdate>
RowsOut<PARTS, Update> rows_out(const LinearArgs &a, const LinearExtra &extra, const Update &update = {}) {
    using P = Packed<Block>;
    return {(const uint8_t *)a.w, a.y, a.bias, extra.add, P::tiles_of(a.cols) * P::tile_bytes, (int)a.n, (int)a.rows,
            (int)ceil_div<int64_t>(a.rows, P::rows), update};
}

} // namespace vb
#endif
