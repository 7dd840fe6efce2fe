// packed_swiglu.cu: out[n][rows] = silu(G h) * (U h) with h = rms_norm(x), 2 to 16 rows of x (to 32 of few columns before Hopper),
// packed weights: norm_swiglu of a step of sequences as one kernel (few_product.cuh), of 5 and more after that of the activations
// (packed_product.cuh). An item is a row of tiles of the gate and the same of the up projection.

#include "linear/linear.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear/packed/few_product.cuh"

namespace vb {
namespace {

struct PackedSwiGLUOut {
    const uint8_t *gate, *up;
    float *out;
    int64_t row_bytes; // of a row of tiles
    int n, rows;
    struct Ahead {};

    VB_DEVICE const uint8_t *tiles(int item, int part) const { return (part ? up : gate) + item * row_bytes; }
    VB_DEVICE void fetch(Ahead *, int, int, int) const {}
    VB_DEVICE void fetch_more(Ahead *, int, int, int) const {}
    VB_DEVICE void store(const Ahead &, int item, int token, int row, const float (&sums)[2]) const {
        const int r = item * packed_rows + row;
        if (token < n && r < rows) out[(int64_t)token * rows + r] = swiglu(sums[0], sums[1]);
    }
};

template <class Block, int TOKENS>
__global__ void __launch_bounds__(32 * PackedMemory<Block, TOKENS, 2>::most_warps, 1)
    packed_swiglu_kernel(PackedInput in, PackedSwiGLUOut out) {
    packed_product<Block, TOKENS, 2>(in, out, blockIdx.x, gridDim.x);
}

template <class Block>
__global__ void __launch_bounds__(32 * few_warps, 2) few_swiglu_kernel(FewInput in, PackedSwiGLUOut out) {
    few_product<Block, 2, 1>(in, out, blockIdx.x, gridDim.x);
}

template <class Block>
vb_status few_swiglu(const PackedSwiGLUOut &out, const float *x, const float *norm, float eps, int tiles, vb_stream *stream) {
    FewInput in = {x, norm, true, eps, out.n, tiles, ceil_div<int>(out.rows, packed_rows), 0, 0, 0};
    FewPlan plan;
    VB_TRY((plan_few_product<Block, 2, 1>(&plan, &in, stream)));
    return launch_overlapped(stream, plan.blocks, 32 * plan.warps, plan.shared_bytes, few_swiglu_kernel<Block>, in, out);
}

template <class Block>
vb_status packed_swiglu(PackedSwiGLUOut out, const float *x, const float *norm, float eps, int64_t cols, vb_stream *stream) {
    using P = Packed<Block>;
    const int tiles = (int)(cols / P::depth);
    out.row_bytes = (int64_t)tiles * P::tile_bytes;
    const vb_status status = few_swiglu<Block>(out, x, norm, eps, tiles, stream);
    if (status != VB_UNSUPPORTED) return status;
    return with_tokens(out.n, out.rows, stream, [&](auto tokens) {
        constexpr int most = decltype(tokens)::value;
        PackedInput in = {nullptr, out.n, tiles, ceil_div<int>(out.rows, P::rows), 0, true, eps};
        PackedPlan plan;
        VB_TRY((plan_packed_product<Block, most, 2>(&plan, in.tiles, in.items, stream)));
        in.stages = plan.stages;
        uint8_t *activations;
        VB_TRY(packed_activations(&activations, x, norm, true, out.n, cols, P::depth, most, stream));
        in.x = activations;
        return launch_overlapped(stream, plan.blocks, 32 * plan.warps, plan.shared_bytes, packed_swiglu_kernel<Block, most>, in, out);
    });
}

} // namespace

vb_status packed_norm_swiglu(float *out, const float *x, const float *norm, float eps, const vb_weight &gate, const vb_weight &up,
                             int64_t n, vb_stream *stream) {
    if (gate.layout != VB_PACKED || up.layout != VB_PACKED || gate.type != up.type || !aligned16(x, norm) ||
        gate.rows > INT32_MAX - packed_rows || gate.cols > INT32_MAX)
        return VB_UNSUPPORTED;
    const PackedSwiGLUOut to = {(const uint8_t *)gate.data, (const uint8_t *)up.data, out, 0, (int)n, (int)gate.rows};
    vb_status status = VB_UNSUPPORTED;
    switch (gate.type) {
#define X(type, Block) case type: status = packed_swiglu<Block>(to, x, norm, eps, gate.cols, stream); break;
        VB_PACKED_TYPES(X)
#undef X
    default: break;
    }
    return status == VB_UNSUPPORTED ? prefill_norm_swiglu(out, x, {true, norm, eps, nullptr}, gate, up, n, stream) : status;
}

} // namespace vb
#endif
