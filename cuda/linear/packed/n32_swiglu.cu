// n32_swiglu.cu: out[n][rows] = silu(G h) * (U h) with h = rms_norm(x), 5 to 32 rows of x, on Hopper 5 to 8, packed
// weights: norm_swiglu of a step of sequences after the kernel that prepares x (n32.cuh).

#include "linear/linear.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear/packed/n32.cuh"
#include "linear/packed/swiglu_out.cuh"

namespace vb {
namespace {

template <class Block, int TOKENS, class Update>
__global__ void __launch_bounds__(32 * N32Memory<TOKENS, 2>::most_warps, 1)
    n32_swiglu_kernel(N32Input in, SwiGLURowsOut<Update> out) {
    n32_product<Block, TOKENS, 2>(in, out, blockIdx.x, gridDim.x);
}

template <class Block, int TOKENS>
vb_status n32_swiglu(const SwiGLUArgs &a, const linear_items &items, vb_stream *stream) {
    using P = Packed<Block>;
    return with_late_update<TOKENS>(
        a.adapter, 2, a.x, true, a.norm, a.eps, a.n, a.gate.cols, stream,
        [&](const auto &update, const RowsProjection *h) {
            uint8_t *x;
            VB_TRY(n32_x(&x, a.x, a.norm, true, a.n, a.gate.cols, P::depth, TOKENS, h, stream));
            const N32Input in = {x, (int)a.n, (int)P::tiles_of(a.gate.cols), ceil_div<int>((int)a.gate.rows, P::rows),
                                 items.stages, true, a.eps, (int)a.gate.cols};
            return launch_cached(stream, items.blocks, 32 * items.warps, items.shared_bytes,
                                 n32_swiglu_kernel<Block, TOKENS, std::decay_t<decltype(update)>>, in,
                                 swiglu_out<Block>(a, update));
        });
}

} // namespace

vb_status packed_n32_swiglu(const SwiGLUArgs &a, const linear_items &items, vb_stream *stream) {
    return with_tokens(items, [&](auto tokens) {
        constexpr int most = decltype(tokens)::value;
        switch (a.gate.type) {
#define X(type, Block, ...) case type: return n32_swiglu<Block, most>(a, items, stream);
            VB_PACKED_TYPES(X)
#undef X
        default: return VB_UNSUPPORTED;
        }
    });
}

} // namespace vb
#endif
