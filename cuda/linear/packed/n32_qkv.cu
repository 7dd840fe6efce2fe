// n32_qkv.cu: norm_qkv of 5 to 32 tokens, on Hopper 5 to 8, after the kernel that prepares x (n32.cuh), packed
// weights:
// q = rope(Wq h + bq), and in the cache k = rope(Wk h + bk) and v = Wv h + bv, with h = rms_norm(x).

#include "linear/linear.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear/packed/n32.cuh"
#include "linear/packed/qkv_out.cuh"

namespace vb {
namespace {

// Blocks 0 .. first_blocks - 1 compute q and k from weights of type A, the others v from weights of type B.
template <class A, class B, int TOKENS, class Update>
__global__ void __launch_bounds__(32 * N32Memory<TOKENS, 2>::most_warps, 1)
    n32_qkv_kernel(N32Input in, QKVRowsOut<Update> out, int first_blocks, int v_items, int v_stages,
                   int64_t v_row_bytes) {
    out.values = (int)blockIdx.x >= first_blocks;
    if (out.values) in.items = v_items, in.stages = v_stages, out.row_bytes = v_row_bytes;
    const int index = blockIdx.x - (out.values ? first_blocks : 0),
              count = out.values ? gridDim.x - first_blocks : first_blocks;
    if (SameType<A, B>::value || !out.values) n32_product<A, TOKENS, 2>(in, out, index, count);
    else n32_product<B, TOKENS, 2>(in, out, index, count);
}

// q and k from weights of type A and v from such of type B.
template <class A, class B, int TOKENS>
vb_status n32_qkv(const vb_norm_qkv_args &a, const linear_qkv_choice &c, vb_stream *stream) {
    using P = Packed<A>;
    static_assert(P::depth == Packed<B>::depth, "one tiling of x");
    return with_late_update<TOKENS>(
        adapter_of(a), 3, a.x, true, a.norm, a.eps, a.batch * a.seq, a.wq.cols, stream,
        [&](const auto &update, const RowsProjection *h) {
            const auto out = qkv_out<A>(a, c, update);
            const int tiles = (int)P::tiles_of(a.wq.cols), kv_items = out.head_items * (int)a.kv_heads;
            uint8_t *x;
            VB_TRY(n32_x(&x, a.x, a.norm, true, out.n, a.wq.cols, P::depth, TOKENS, h, stream));
            const N32Input in = {x, out.n, tiles, out.q_items + kv_items, c.qk.stages, true, a.eps, (int)a.wq.cols};
            return launch_cached(stream, c.qk.blocks + c.v.blocks, 32 * c.qk.warps,
                                 larger(c.qk.shared_bytes, c.v.shared_bytes),
                                 n32_qkv_kernel<A, B, TOKENS, std::decay_t<decltype(update)>>, in, out, c.qk.blocks,
                                 kv_items, c.v.stages, (int64_t)tiles * Packed<B>::tile_bytes);
        });
}

} // namespace

vb_status packed_n32_qkv(const vb_norm_qkv_args &a, const linear_qkv_choice &c, vb_stream *stream) {
    return with_tokens(c.qk, [&](auto tokens) {
        return with_mixture(a, [&](auto qk, auto v) {
            return n32_qkv<decltype(qk), decltype(v), decltype(tokens)::value>(a, c, stream);
        });
    });
}

} // namespace vb
#endif
