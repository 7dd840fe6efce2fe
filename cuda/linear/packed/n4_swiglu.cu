// n4_swiglu.cu: out[n][rows] = silu(G h) * (U h) with h = rms_norm(x), 2 to 4 rows of x, packed weights: norm_swiglu of
// a step of sequences as one kernel (n4.cuh).

#include "linear/linear.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear/packed/n4.cuh"
#include "linear/packed/swiglu_out.cuh"

namespace vb {
namespace {

template <class Block, class Update>
__global__ void __launch_bounds__(32 * n4_warps, 2) n4_swiglu_kernel(N4Input in, SwiGLURowsOut<Update> out) {
    n4_product<Block, 2, 1>(in, out, blockIdx.x, gridDim.x);
}

template <class Block, class Update>
vb_status n4_swiglu(const SwiGLUArgs &a, const Update &update, const linear_items &items, vb_stream *stream) {
    using P = Packed<Block>;
    const N4Input in = {a.x, a.norm, true, a.eps, (int)a.n, (int)P::tiles_of(a.gate.cols),
                        ceil_div<int>((int)a.gate.rows, P::rows), items.stages, items.chunk, items.rounds,
                        (int)a.gate.cols};
    return launch_overlapped(stream, items.blocks, 32 * items.warps, items.shared_bytes,
                             n4_swiglu_kernel<Block, Update>, in, swiglu_out<Block>(a, update));
}

template <class Update>
vb_status n4_swiglu(const SwiGLUArgs &a, const Update &update, const linear_items &items, vb_stream *stream) {
    switch (a.gate.type) {
#define X(type, Block, ...) case type: return n4_swiglu<Block>(a, update, items, stream);
        VB_PACKED_TYPES(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
}

} // namespace

vb_status packed_n4_swiglu(const SwiGLUArgs &a, const linear_items &items, vb_stream *stream) {
    if (!changes_rows(a.adapter)) return n4_swiglu(a, NoRowsUpdate(), items, stream);
    RowsUpdate<false> update;
    VB_TRY(project_rows(&update, a.adapter, 2, a.x, true, a.norm, a.eps, a.n, a.gate.cols, stream));
    return n4_swiglu(a, update, items, stream);
}

} // namespace vb
#endif
