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
    static constexpr int matrices = 2;
    struct Ahead {};

    VB_DEVICE const uint8_t *tiles(int item, int part) const { return (part ? up : gate) + item * row_bytes; }
    VB_DEVICE int matrix(int, int lane) const { return lane / 16; }
    VB_DEVICE int row(int item, int lane) const { return item * packed_rows + lane % 16; }
    VB_DEVICE int rows_of(int) const { return rows; }
    VB_DEVICE void prepare(Ahead *, int, int) const {}
    VB_DEVICE void fetch(Ahead *, int, int) const {}
    VB_DEVICE void fetch_more(Ahead *, int, int) const {}
    VB_DEVICE void store(const Ahead &, int item, int lane, float sum) const {
        const float other = __shfl_xor_sync(all_lanes, sum, 16);
        const int row = item * packed_rows + lane;
        if (lane < 16 && row < rows) out[row] = swiglu(sum, other);
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
                                   (int64_t)tiles * P::tile_bytes, (int)a.gate.rows, update};
    N1Input in = {a.x, a.norm, a.eps, tiles, count, items.stages, items.chunk, 0, false, (int)a.gate.cols};
    const int64_t weight_bytes = 2 * in.items * out.row_bytes;
    const int early = weight_bytes > 16 << 20 ? 4 : 1; // late stages: n1.cuh
    // a longer kernel leaves no room for the next one anyway
    in.patient = weight_bytes <= 32 << 20 && in.items > items.blocks;
    if (capability(stream) >= 90) in.late = larger(0, items.stages - early); // others count groups of copies, in order
    return launch_overlapped(stream, items.blocks, 32 * items.warps, items.shared_bytes,
                             n1_swiglu_kernel<Block, Update>, in, out);
}

} // namespace

vb_status packed_n1_swiglu(const SwiGLUArgs &a, const linear_items &items, vb_stream *stream) {
    const bool updated = a.adapter.of[0].v || a.adapter.of[1].v;
    const N1Update update = n1_update(a.adapter, 0, 2, 0, stream);
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
