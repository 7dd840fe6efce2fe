// linear.cu: the operations of linear layers: each asks its chooser (choose.h) which kernel runs, and calls its
// launcher.

#include "linear/choose_adapted.h"
#include "linear/linear.cuh"

using namespace vb;

static linear_shape shape_of(const vb_weight &w, int64_t n, const float *x, const float *norm, const float *y,
                             const float *bias) {
    const bool inputs_aligned = aligned16((const char *)w.data, (const char *)x, (const char *)norm);
    return {w.type, w.layout, n, w.rows, w.cols, norm != nullptr, inputs_aligned, aligned16(y), aligned16(bias)};
}

// Whether an adapter's V and U are aligned as packed kernels read them.
static bool reads(const Adapter &a) {
    bool all = true;
    for (const LowRank &of : a.of) all = all && aligned16((const char *)of.v, (const char *)of.u);
    return all;
}

static vb_status run(const linear_choice &c, const LinearArgs &a, const LinearExtra &extra, vb_dtype type,
                     const char *op, vb_stream *stream) {
    chosen(stream, linear_kernel_info(c.kernel), op, type, "n rows cols", a.n, a.rows, a.cols);
    switch (c.kernel) {
    case LINEAR_STORED_N1: return stored_n1(a, type, stream);
    case LINEAR_STORED_N8: return stored_n8(a, type, stream);
    case LINEAR_STORED_N32: return stored_n32(a, type, stream);
    case LINEAR_STORED_N64_SM90: return stored_n64_sm90(a, type, stream);
    case LINEAR_STORED_MANY: return stored_many(a, type, stream);
    case LINEAR_STORED_MANY_SM90:
    case LINEAR_STORED_PADDED_SM90: return stored_many_sm90(a, type, stream);
    case LINEAR_F32_3XTF32: return f32_3xtf32(a, stream);
    case LINEAR_F32_MATMUL: return f32_matmul(a, stream);
    case LINEAR_F32_TILES: return f32_tiles(a, stream);
    case LINEAR_PACKED_N1: return packed_n1(a, extra, type, c.items, stream);
    case LINEAR_PACKED_N4: return packed_n4(a, extra, type, c.items, stream);
    case LINEAR_PACKED_N32: return packed_n32(a, extra, type, c.items, stream);
    case LINEAR_PACKED_N32_SM90:
    case LINEAR_PACKED_MANY:
    case LINEAR_PACKED_MANY_SM90: return packed_many(a, nullptr, extra, {}, type, stream);
    default: return VB_UNSUPPORTED;
    }
}

static vb_status run_swiglu(const linear_choice &c, const SwiGLUArgs &a, vb_stream *stream) {
    switch (c.kernel) {
    case LINEAR_N1_SWIGLU: return packed_n1_swiglu(a, c.items, stream);
    case LINEAR_N4_SWIGLU: return packed_n4_swiglu(a, c.items, stream);
    case LINEAR_N32_SWIGLU: return packed_n32_swiglu(a, c.items, stream);
    case LINEAR_PACKED_N32_SM90:
    case LINEAR_PACKED_MANY:
    case LINEAR_PACKED_MANY_SM90: return packed_many_swiglu(a, c.units, stream);
    default: return VB_UNSUPPORTED;
    }
}

extern "C" {

vb_status vb_cuda_linear(float *y, const float *x, const vb_weight *w, const float *bias, int64_t n,
                         vb_stream *stream) {
    const vb_gpu gpu = gpu_of(stream);
    const linear_shape shape = shape_of(*w, n, x, nullptr, y, bias);
    return run(choose_linear(&shape, &gpu), {y, x, w->data, bias, n, w->rows, w->cols}, {}, known(*w).type, "linear",
               stream);
}

vb_status vb_cuda_norm_linear(float *y, const float *x, const float *norm, float eps, const vb_weight *w,
                              const float *bias, float *, int64_t n, vb_stream *stream) {
    const vb_gpu gpu = gpu_of(stream);
    linear_shape shape = shape_of(*w, n, x, norm, y, bias);
    shape.norm = true;
    return run(choose_fused_linear(&shape, &gpu), {y, x, w->data, bias, n, w->rows, w->cols},
               {true, norm, eps, nullptr}, known(*w).type, "norm_linear", stream);
}

vb_status vb_cuda_linear_add(float *sum, const float *a, const float *x, const vb_weight *w, const float *bias, float *,
                             int64_t n, vb_stream *stream) {
    const vb_gpu gpu = gpu_of(stream);
    const linear_shape shape = shape_of(*w, n, x, nullptr, sum, bias);
    return run(choose_fused_linear(&shape, &gpu), {sum, x, w->data, bias, n, w->rows, w->cols}, {false, nullptr, 0, a},
               known(*w).type, "linear_add", stream);
}

vb_status vb_cuda_norm_swiglu(float *out, const float *x, const float *norm, float eps, const vb_weight *gate,
                              const vb_weight *up, float *, float *, int64_t n, vb_stream *stream) {
    const vb_gpu gpu = gpu_of(stream);
    linear_shape shape = shape_of(*gate, n, x, norm, out, nullptr);
    shape.norm = true;
    const SwiGLUArgs a = {out, x, norm, eps, known(*gate), known(*up), n};
    shape.type = a.gate.type;
    const linear_choice c = choose_norm_swiglu(&shape, a.up.type, up->layout, &gpu);
    chosen(stream, linear_kernel_info(c.kernel), "norm_swiglu", gate->type, "n rows cols", n, gate->rows, gate->cols);
    return run_swiglu(c, a, stream);
}

// Of 1 to 8 rows of x, with an adapter.
static linear_items_choice items_of(const vb_feed_forward_args &a, const vb_gpu &gpu) {
    linear_shape gate = shape_of(a.gate, a.n, a.x, a.norm, a.gated, nullptr);
    gate.norm = true;
    const linear_shape down = shape_of(a.down, a.n, a.gated, nullptr, a.sum, nullptr);
    return choose_adapted_items(&gate, a.up.type, a.up.layout, &down, a.ranks, reads(adapter_of_gated(a)),
                                reads(adapter_of_down(a)), &gpu);
}

// norm_swiglu and linear_add in a row, which elsewhere are operations of their own.
static vb_status feed_forward_of_rows(const vb_feed_forward_args &a, const linear_items_choice &c, vb_stream *stream) {
    chosen(stream, linear_kernel_info(c.gate_up.kernel), "feed_forward", a.gate.type, "n rows cols", a.n, a.gate.rows,
           a.gate.cols);
    VB_TRY(run_swiglu(c.gate_up, {a.gated, a.x, a.norm, a.eps, a.gate, a.up, a.n, adapter_of_gated(a)}, stream));
    const LinearArgs down = {a.sum, a.gated, a.down.data, nullptr, a.n, a.down.rows, a.down.cols};
    const LinearExtra extra = {false, nullptr, 0, a.x, adapter_of_down(a)};
    return c.down.kernel == LINEAR_PACKED_N4 ? packed_n4(down, extra, a.down.type, c.down.items, stream)
                                             : packed_n32(down, extra, a.down.type, c.down.items, stream);
}

// The same of a token. It reads x V where attention_linear_add has left it, and leaves it for norm_qkv.
static vb_status feed_forward_of_token(const vb_feed_forward_args &a, vb_stream *stream) {
    Adapter gated = adapter_of_gated(a), last = adapter_of_down(a);
    const linear_items_choice c = items_of(a, gpu_of(stream));
    chosen(stream, linear_kernel_info(c.gate_up.kernel), "feed_forward", a.gate.type, "n rows cols", a.n, a.gate.rows,
           a.gate.cols);
    if (c.gate_up.kernel == LINEAR_COMPOSED) return VB_UNSUPPORTED;
    if (a.prepared) take_left(&gated, 2, a.gate.cols, left_by_attention, stream);
    LinearExtra extra = {false, nullptr, 0, a.x};
    extra.leaves = leaves_for({(const half *)a.next_q_v, (const half *)a.next_k_v, (const half *)a.next_v_v}, 3,
                              a.next_norm, a.down.rows, a.ranks, left_by_feed_forward, a.next_prepared, stream);
    SwiGLUArgs gate_up = {a.gated, a.x, a.norm, a.eps, a.gate, a.up, 1, gated};
    if (a.down_v) {
        last.parts = (int)ceil_div<int64_t>(a.gate.rows, VB_PACKED_ROWS), last.matrices = 1;
        VB_TRY(workspace((void **)&gate_up.down_sums, last.parts * a.ranks * (int64_t)sizeof(float), stream));
        gate_up.down = last.of[0].v, last.sums = gate_up.down_sums;
    }
    extra.adapter = last;
    VB_TRY(packed_n1_swiglu(gate_up, c.gate_up.items, stream));
    return packed_n1({a.sum, a.gated, a.down.data, nullptr, 1, a.down.rows, a.down.cols}, extra, a.down.type,
                     c.down.items, stream);
}

vb_status vb_cuda_feed_forward(const vb_feed_forward_args *args, vb_stream *stream) {
    const vb_gpu gpu = gpu_of(stream);
    vb_feed_forward_args a = *args;
    a.gate = known(a.gate), a.up = known(a.up), a.down = known(a.down);
    const bool adapted = a.gate_v || a.up_v || a.down_v;
    if ((adapted || a.next_q_v || a.next_k_v || a.next_v_v) && a.n == 1) return feed_forward_of_token(a, stream);
    if (adapted && a.n <= LINEAR_N32_HOPPER) {
        const linear_items_choice items = items_of(a, gpu);
        if (items.gate_up.kernel != LINEAR_COMPOSED) return feed_forward_of_rows(a, items, stream);
    }
    linear_shape shape = shape_of(a.gate, a.n, a.x, a.norm, nullptr, nullptr);
    shape.inputs_aligned = aligned16(a.x, a.norm, a.gated, a.normed, a.next_norm);
    const linear_feed_forward_choice c =
        adapted ? choose_adapted_feed_forward(&shape, a.up.type, a.up.layout, a.down.type, a.down.layout, a.ranks,
                                              reads(adapter_of_gated(a)) && reads(adapter_of_down(a)), &gpu)
                : choose_feed_forward(&shape, a.up.type, a.up.layout, a.down.type, a.down.layout, &gpu);
    chosen(stream, linear_kernel_info(c.kernel), "feed_forward", a.gate.type, "n rows cols", a.n, a.gate.rows,
           a.gate.cols);
    if (c.kernel == LINEAR_COMPOSED) return VB_UNSUPPORTED;
    return packed_many_feed_forward(a, c, stream);
}

vb_status vb_cuda_norm_qkv(const vb_norm_qkv_args *args, vb_stream *stream) {
    const vb_gpu gpu = gpu_of(stream);
    vb_norm_qkv_args a = *args;
    a.wq = known(a.wq), a.wk = known(a.wk), a.wv = known(a.wv);
    const bool adapted = a.q_v || a.k_v || a.v_v;
    const linear_qkv_shape shape = {a.wq.type, a.wk.type, a.wv.type, a.wq.layout, a.wk.layout, a.wv.layout,
                                    a.batch * a.seq, a.wq.cols, a.heads, a.kv_heads, a.dim, a.half, a.table_rows,
                                    a.kv_type, a.q_norm != nullptr, aligned16(a.x, a.norm),
                                    aligned16(a.q, a.cos, a.sin) && aligned16((const char *)a.k, (const char *)a.v),
                                    adapted};
    const Adapter adapter = adapter_of(a);
    const linear_qkv_choice c = adapted ? choose_adapted_qkv(&shape, a.ranks, reads(adapter), &gpu)
                                        : choose_norm_qkv(&shape, &gpu);
    chosen(stream, linear_kernel_info(c.kernel), "norm_qkv", a.wq.type, "n heads kv_heads dim cols", shape.n, a.heads,
           a.kv_heads, a.dim, a.wq.cols);
    switch (c.kernel) {
    case LINEAR_N1_QKV: VB_TRY(packed_n1_qkv(a, c, stream)); break;
    case LINEAR_N4_QKV: VB_TRY(packed_n4_qkv(a, c, stream)); break;
    case LINEAR_N32_QKV: VB_TRY(packed_n32_qkv(a, c, stream)); break;
    case LINEAR_PACKED_N32_SM90:
    case LINEAR_PACKED_MANY:
    case LINEAR_PACKED_MANY_SM90: VB_TRY(packed_many_qkv(a, c, stream)); break;
    default: return VB_UNSUPPORTED;
    }
    return finish_qkv(a, c.rest, stream);
}

} // extern "C"
