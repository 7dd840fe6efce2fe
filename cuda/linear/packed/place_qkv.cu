// place_qkv.cu: the rest of norm_qkv after products that leave q, k_new and v_new: norms of heads, rope, and the cache.

#include "linear/linear.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "rows/choose.h"

namespace vb {
namespace {

// Rotates x[n][heads][dim].
vb_status rotate(float *x, int64_t heads, const vb_norm_qkv_args &a, vb_stream *stream) {
    const vb_rope_args rope = {sizeof(vb_rope_args), x, x, a.cos, a.sin, a.positions, 1, a.batch * a.seq, heads, 1,
                               a.dim, a.half, a.table_rows, VB_F32, a.mode};
    return vb_cuda_rope(&rope, stream);
}

// One kernel that rotates whole heads and moves keys and values to the cache.
vb_rope_kv_write_args placing(const vb_norm_qkv_args &a) {
    vb_rope_kv_write_args p = {};
    p.size = sizeof p;
    p.q = a.q, p.q_in = a.q, p.k = a.k, p.v = a.v, p.k_new = a.k_new, p.v_new = a.v_new;
    p.q_norm = a.q_norm, p.k_norm = a.k_norm, p.cos = a.cos, p.sin = a.sin;
    p.positions = a.positions, p.sequences = a.sequences, p.batch = a.batch, p.seq = a.seq;
    p.heads = a.heads, p.kv_heads = a.kv_heads, p.dim = a.dim, p.half = a.half, p.table_rows = a.table_rows;
    p.capacity = a.capacity, p.eps = a.eps, p.kv_type = a.kv_type, p.mode = a.mode, p.ring = a.ring, p.settled = 1;
    return p;
}

// Moves k_new and v_new to the cache.
vb_status store_keys_and_values(const vb_norm_qkv_args &a, vb_stream *stream) {
    const vb_kv_write_args write = {sizeof(vb_kv_write_args), a.k, a.v, a.k_new, a.v_new, a.positions, a.sequences,
                                    a.batch, a.seq, a.kv_heads, a.dim, a.capacity, a.kv_type, 0, a.ring};
    return vb_cuda_kv_write(&write, stream);
}

} // namespace

vb_status finish_qkv(const vb_norm_qkv_args &a, linear_qkv_rest rest, vb_stream *stream) {
    if (rest == LINEAR_QKV_NOTHING) return VB_OK;
    if (rest == LINEAR_QKV_WRITE) return store_keys_and_values(a, stream);
    if (rest == LINEAR_QKV_PLACE) {
        const vb_rope_kv_write_args all = placing(a); // with the norms
        if (choose_rope_kv_write(&all) != ROWS_NONE) return vb_cuda_rope_kv_write(&all, stream);
    }
    const int64_t n = a.batch * a.seq;
    if (a.q_norm) VB_TRY(vb_cuda_rms_norm_batched(a.q, a.q, a.q_norm, VB_F32, n * a.heads, a.dim, a.eps, stream));
    if (a.k_norm)
        VB_TRY(vb_cuda_rms_norm_batched(a.k_new, a.k_new, a.k_norm, VB_F32, n * a.kv_heads, a.dim, a.eps, stream));
    if (rest == LINEAR_QKV_PLACE) {
        vb_norm_qkv_args normed = a;
        normed.q_norm = normed.k_norm = nullptr;
        const vb_rope_kv_write_args rest_of_it = placing(normed);
        return vb_cuda_rope_kv_write(&rest_of_it, stream);
    }
    VB_TRY(rotate(a.q, a.heads, a, stream));
    VB_TRY(rotate(a.k_new, a.kv_heads, a, stream));
    return store_keys_and_values(a, stream);
}

} // namespace vb
#endif
