// n4_qkv.cu: norm_qkv of 2 to 4 tokens as one kernel (n4.cuh), packed weights: q = rope(Wq h + bq), and in the cache
// k = rope(Wk h + bk) and v = Wv h + bv, with h = rms_norm(x).

#include "linear/linear.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear/packed/n4.cuh"
#include "linear/packed/qkv_out.cuh"

namespace vb {
namespace {

template <class A, class B, class Update>
__global__ void __launch_bounds__(32 * n4_warps, 2)
    n4_qkv_kernel(N4Input in, N4Input v, QKVRowsOut<Update> out, int first_blocks, int64_t v_row_bytes) {
    out.values = (int)blockIdx.x >= first_blocks;
    if (out.values) in = v, out.row_bytes = v_row_bytes;
    const int index = blockIdx.x - (out.values ? first_blocks : 0),
              count = out.values ? gridDim.x - first_blocks : first_blocks;
    if (SameType<A, B>::value || !out.values) n4_product<A, 2, 1>(in, out, index, count);
    else n4_product<B, 2, 1>(in, out, index, count);
}

// q and k from weights of type A and v from such of type B.
template <class A, class B, class Update>
vb_status n4_qkv(const vb_norm_qkv_args &a, const linear_qkv_choice &c, const Update &update, vb_stream *stream) {
    static_assert(Packed<A>::depth == Packed<B>::depth, "one tiling of x");
    const QKVRowsOut<Update> out = qkv_out<A>(a, c, update);
    const int tiles = (int)Packed<A>::tiles_of(a.wq.cols), kv_items = out.head_items * (int)a.kv_heads;
    const auto input = [&](int count, const linear_items &items) {
        return N4Input{a.x, a.norm, true, a.eps, out.n, tiles, count, items.stages, items.chunk, items.rounds,
                       (int)a.wq.cols};
    };
    return launch_overlapped(stream, c.qk.blocks + c.v.blocks, 32 * c.qk.warps,
                             larger(c.qk.shared_bytes, c.v.shared_bytes), n4_qkv_kernel<A, B, Update>,
                             input(out.q_items + kv_items, c.qk), input(kv_items, c.v), out, c.qk.blocks,
                             (int64_t)tiles * Packed<B>::tile_bytes);
}

template <class Update>
vb_status n4_qkv(const vb_norm_qkv_args &a, const linear_qkv_choice &c, const Update &update, vb_stream *stream) {
    return with_mixture(a, [&](auto qk, auto v) { return n4_qkv<decltype(qk), decltype(v)>(a, c, update, stream); });
}

} // namespace

vb_status packed_n4_qkv(const vb_norm_qkv_args &a, const linear_qkv_choice &c, vb_stream *stream) {
    const Adapter adapter = adapter_of(a);
    if (!changes_rows(adapter)) return n4_qkv(a, c, NoRowsUpdate(), stream);
    RowsUpdate<false> update;
    VB_TRY(project_rows(&update, adapter, 3, a.x, true, a.norm, a.eps, a.batch * a.seq, a.wq.cols, stream));
    return n4_qkv(a, c, update, stream);
}

} // namespace vb
#endif
