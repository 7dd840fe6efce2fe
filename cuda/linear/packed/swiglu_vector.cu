// swiglu_vector.cu: out[rows] = silu(G h) * (U h) with h = rms_norm(x), one row of x, packed weights: norm_swiglu of a token
// as one kernel (vector_product.cuh). An item is a row of tiles of the gate and the same of the up projection.

#include "linear/linear.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear/packed/vector_product.cuh"

namespace vb {
namespace {

struct SwiGLUOut {
    static constexpr bool norm = true, late = true;
    const uint8_t *gate, *up;
    float *out;
    int64_t row_bytes; // of a row of tiles
    int rows;
    struct Ahead {};

    VB_DEVICE const uint8_t *tiles(int item, int part) const { return (part ? up : gate) + item * row_bytes; }
    VB_DEVICE void prepare(Ahead *, int, int) const {}
    VB_DEVICE void fetch(Ahead *, int, int) const {}
    VB_DEVICE void fetch_more(Ahead *, int, int) const {}
    VB_DEVICE void store(const Ahead &, int item, int lane, float sum) const {
        const float other = __shfl_xor_sync(all_lanes, sum, 16);
        const int row = item * packed_rows + lane;
        if (lane < 16 && row < rows) out[row] = swiglu(sum, other);
    }
};

template <class Block>
__global__ void __launch_bounds__(32 * vector_warps, 2) swiglu_vector_kernel(VectorInput in, SwiGLUOut out) {
    vector_product<Block, 2>(in, out, blockIdx.x, gridDim.x);
}

template <class Block>
vb_status swiglu_vector(VectorInput in, SwiGLUOut out, int64_t cols, vb_stream *stream) {
    using P = Packed<Block>;
    in.tiles = (int)(cols / P::depth);
    in.items = ceil_div<int>(out.rows, P::rows);
    out.row_bytes = (int64_t)in.tiles * P::tile_bytes;
    VectorPlan plan;
    VB_TRY((plan_vector_product<Block, 2>(&plan, in.tiles, in.items, stream)));
    in.stages = plan.stages, in.chunk = plan.chunk;
    const int64_t weight_bytes = 2 * in.items * out.row_bytes;
    const int early = weight_bytes > 16 << 20 ? 4 : 1; // what vector_product.cuh says of late stages
    in.patient = weight_bytes <= 32 << 20 && in.items > plan.blocks; // a longer kernel leaves no room for the next one anyway
    if (capability(stream) >= 90) in.late = larger(0, plan.stages - early); // others count groups of copies, in order
    return launch_overlapped(stream, plan.blocks, 32 * plan.warps, plan.shared_bytes, swiglu_vector_kernel<Block>, in, out);
}

} // namespace
} // namespace vb
#endif

using namespace vb;

extern "C" vb_status vb_cuda_norm_swiglu(float *out, const float *x, const float *norm, float eps, const vb_weight *gate,
                                         const vb_weight *up, float *, float *, int64_t n, vb_stream *stream) {
#ifdef VB_HAS_PACKED_LAYOUT
    if (n > 1) return packed_norm_swiglu(out, x, norm, eps, *gate, *up, n, stream);
    if (gate->layout != VB_PACKED || up->layout != VB_PACKED || gate->type != up->type || !aligned16(x, norm) ||
        gate->rows > INT32_MAX - packed_rows || gate->cols > INT32_MAX)
        return VB_UNSUPPORTED;
    const VectorInput in = {x, norm, eps, 0, 0, 0, 0, 0, false};
    const SwiGLUOut to = {(const uint8_t *)gate->data, (const uint8_t *)up->data, out, 0, (int)gate->rows};
    switch (gate->type) {
#define X(type, Block) case type: return swiglu_vector<Block>(in, to, gate->cols, stream);
        VB_PACKED_TYPES(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
#else
    return VB_UNSUPPORTED;
#endif
}
