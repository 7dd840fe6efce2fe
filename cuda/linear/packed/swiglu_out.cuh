// swiglu_out.cuh: the `Out` of norm_swiglu for 2 to 32 rows of x (n4_swiglu.cu, n32_swiglu.cu): silu(gate) * up. An
// item is a row of tiles of the gate and the same row of the up projection.
#ifndef VB_LINEAR_SWIGLU_OUT_CUH
#define VB_LINEAR_SWIGLU_OUT_CUH

#include "linear/linear.cuh"
#include "linear/packed/packed.cuh"
#include "linear/packed/rows_update.cuh"

namespace vb {

template <class Update = NoRowsUpdate>
struct SwiGLURowsOut {
    const uint8_t *gate, *up;
    float *out;
    int64_t row_bytes; // of a row of tiles
    int n, rows;
    Update update;
    struct Ahead {
        float gate, up; // an adapter's change of each, where there is one
        typename Update::Ahead of_gate, of_up;
    };

    VB_DEVICE const uint8_t *tiles(int item, int part) const { return (part ? up : gate) + item * row_bytes; }
    VB_DEVICE void fetch(Ahead *ahead, int item, int, int row) const {
        if constexpr (Update::late) {
            const int r = smaller(item * packed_rows + row, rows - 1);
            update.fetch(&ahead->of_gate, 0, r), update.fetch(&ahead->of_up, 1, r);
        }
    }
    VB_DEVICE void fetch_more(Ahead *ahead, int item, int token, int row) const {
        if constexpr (Update::active && !Update::late) {
            const int r = item * packed_rows + row;
            ahead->gate = r < rows ? update.of({}, 0, token, r) : 0.0f;
            ahead->up = r < rows ? update.of({}, 1, token, r) : 0.0f;
        }
    }
    VB_DEVICE void store(const Ahead &ahead, int item, int token, int row, const float (&sums)[2]) const {
        const int r = item * packed_rows + row;
        const bool exists = token < n && r < rows;
        float *const to = out + (int64_t)token * rows + r;
        if constexpr (Update::late) {
            if (exists)
                *to = swiglu(sums[0] + update.of(ahead.of_gate, 0, token, r),
                             sums[1] + update.of(ahead.of_up, 1, token, r));
        } else if constexpr (Update::active) {
            if (exists) *to = swiglu(sums[0] + ahead.gate, sums[1] + ahead.up);
        } else if (exists) {
            *to = swiglu(sums[0], sums[1]);
        }
    }
};

template <class Block, class Update = NoRowsUpdate>
SwiGLURowsOut<Update> swiglu_out(const SwiGLUArgs &a, const Update &update = {}) {
    using P = Packed<Block>;
    return {(const uint8_t *)a.gate.data, (const uint8_t *)a.up.data, a.out, P::tiles_of(a.gate.cols) * P::tile_bytes,
            (int)a.n, (int)a.gate.rows, update};
}

} // namespace vb
#endif
