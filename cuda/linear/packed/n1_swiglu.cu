// n1_swiglu.cu: out[rows] = silu(G h) * (U h) with h = rms_norm(x), one row of x, packed weights: norm_swiglu of a
// token as one kernel (n1.cuh). An item is a row of tiles of the gate and the same row of the up projection.

#include "linear/linear.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear/packed/n1.cuh"

namespace vb {
namespace {

template <class Update>
struct SwiGLUOut {
    static constexpr bool norm = true, late = true, joined = false;
    const uint8_t *gate, *up;
    float *out;
    int64_t row_bytes; // of a row of tiles
    int rows;
    Update update;
    N1Leaves<1> leaves; // for down, with an update
    struct Plain {};
    using Ahead = typename std::conditional<Update::active, N1Leaves<1>::Ahead<16>, Plain>::type;

    VB_DEVICE const uint8_t *tiles(int item, int part) const { return (part ? up : gate) + item * row_bytes; }
    VB_DEVICE int matrix(int, int lane) const { return lane / 16; }
    VB_DEVICE int row(int item, int lane) const { return item * packed_rows + lane % 16; }
    VB_DEVICE int rows_of(int) const { return rows; }
    VB_DEVICE void prepare(Ahead *ahead, int item, int lane) const {
        if constexpr (Update::active) leaves.prepare<16>(ahead, row(item, 0), lane);
    }
    VB_DEVICE void fetch(Ahead *, int, int) const {}
    VB_DEVICE void fetch_more(Ahead *, int, int) const {}
    VB_DEVICE void store(const Ahead &ahead, int item, int lane, float sum) const {
        const float other = __shfl_xor_sync(all_lanes, sum, 16);
        const int row = this->row(item, lane);
        const float gated = lane < 16 ? swiglu(sum, other) : swiglu(other, sum);
        if (lane < 16 && row < rows) out[row] = gated;
        if constexpr (Update::active) leaves.leave<16>(ahead, this->row(item, 0), gated, lane);
    }
};

template <class Block, class Update>
__global__ void __launch_bounds__(32 * n1_warps, 2) n1_swiglu_kernel(N1Input in, SwiGLUOut<Update> out) {
    n1_product<Block, 2>(in, out, blockIdx.x, gridDim.x);
}

template <class Block, class Update>
vb_status n1_swiglu(const SwiGLUArgs &a, const linear_items &items, const Update &update, vb_stream *stream) {
    using P = Packed<Block>;
    const int tiles = (int)P::tiles_of(a.gate.cols), count = ceil_div<int>((int)a.gate.rows, P::rows);
    const SwiGLUOut<Update> out = {(const uint8_t *)a.gate.data, (const uint8_t *)a.up.data, a.out,
                                   (int64_t)tiles * P::tile_bytes, (int)a.gate.rows, update,
                                   {{a.down}, nullptr, a.down_sums, (int)a.gate.rows, a.adapter.ranks / 8, 1}};
    N1Input in = {a.x, a.norm, a.eps, tiles, count, items.stages, items.chunk, 0, false, (int)a.gate.cols};
    const int64_t weight_bytes = 2 * in.items * out.row_bytes;
    const int early = weight_bytes > 16 << 20 ? 4 : 1; // late stages: n1.cuh
    // a longer kernel leaves no room for the next one anyway
    in.patient = weight_bytes <= 32 << 20 && in.items > items.blocks;
    if (capability(stream) >= 90) in.late = larger(0, items.stages - early); // others count groups of copies, in order
    const int64_t bytes =
        linear_n1_adapted_shared(P::format, a.gate.cols, &items, Update::active ? 2 : 0, a.adapter.ranks);
    return launch_overlapped(stream, items.blocks, 32 * items.warps, bytes,
                             n1_swiglu_kernel<Block, Update>, in, out);
}

} // namespace

vb_status packed_n1_swiglu(const SwiGLUArgs &a, const linear_items &items, vb_stream *stream) {
    const bool changed = a.adapter.of[0].v || a.adapter.of[1].v, updated = changed || a.down_sums;
    Adapter adapter = a.adapter;
    if (changed && !adapter.sums)
        VB_TRY(packed_project_n1(&adapter, 2, a.x, a.norm, a.gate.cols, left_by_attention, stream));
    const N1Update<2> update = n1_update<2>(adapter, 0, 2, items.warps);
    switch (a.gate.type) {
#define X(type, Block, ...)                                                 \
    case type:                                                              \
        return updated ? n1_swiglu<Block>(a, items, update, stream)         \
                       : n1_swiglu<Block>(a, items, NoUpdate(), stream);
        VB_PACKED_TYPES(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
}

} // namespace vb
#endif
