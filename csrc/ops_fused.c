/* ops_fused.c: the steps of a transformer's layer between its attention. Arguments are checked here as in ops.c. A
 * device runs an operation as one kernel where it has one, else as the operations of the formula. */
#include "checks.h"

vb_status vb_norm_linear(float *y, const float *x, const float *norm, float eps, const vb_weight *w, const float *bias,
                         float *normed, int64_t n, vb_stream *stream) {
    int64_t size, inner;
    REQUIRE_WEIGHT(w, "w");
    REQUIRE_SIZES(&size, n, w->rows);
    REQUIRE_SIZES(&inner, n, w->cols);
    if (size == 0) return VB_OK;
    NOT_NULL(y); NOT_NULL(stream);
    REQUIRE(w->cols == 0 || (x && w->data && normed), "x, w->data, normed: null");
    RUN_OR_COMPOSE(norm_linear, y, x, norm, eps, w, bias, normed, n, stream);
    vb_status status = vb_rms_norm_batched(normed, x, norm, VB_F32, n, w->cols, eps, stream);
    return status == VB_OK ? vb_linear(y, normed, w, bias, n, stream) : status;
}

vb_status vb_norm_swiglu(float *out, const float *x, const float *norm, float eps, const vb_weight *gate,
                         const vb_weight *up, float *normed, float *product, int64_t n, vb_stream *stream) {
    int64_t size, inner;
    REQUIRE_WEIGHT(gate, "gate");
    REQUIRE_WEIGHT(up, "up");
    REQUIRE(gate->rows == up->rows && gate->cols == up->cols, "up: not of gate's shape");
    REQUIRE_SIZES(&size, n, gate->rows);
    REQUIRE_SIZES(&inner, n, gate->cols);
    if (size == 0) return VB_OK;
    NOT_NULL(out); NOT_NULL(product); NOT_NULL(stream);
    REQUIRE(gate->cols == 0 || (x && gate->data && up->data && normed), "x, gate->data, up->data, normed: null");
    RUN_OR_COMPOSE(norm_swiglu, out, x, norm, eps, gate, up, normed, product, n, stream);
    vb_status status = vb_rms_norm_batched(normed, x, norm, VB_F32, n, gate->cols, eps, stream);
    if (status == VB_OK) status = vb_linear(out, normed, gate, NULL, n, stream);
    if (status == VB_OK) status = vb_linear(product, normed, up, NULL, n, stream);
    return status == VB_OK ? vb_swiglu(out, out, product, VB_F32, size, stream) : status;
}

vb_status vb_linear_add(float *sum, const float *a, const float *x, const vb_weight *w, const float *bias,
                        float *product, int64_t n, vb_stream *stream) {
    int64_t size, inner;
    REQUIRE_WEIGHT(w, "w");
    REQUIRE_SIZES(&size, n, w->rows);
    REQUIRE_SIZES(&inner, n, w->cols);
    if (size == 0) return VB_OK;
    NOT_NULL(sum); NOT_NULL(a); NOT_NULL(product); NOT_NULL(stream);
    REQUIRE(w->cols == 0 || (x && w->data), "x, w->data: null");
    RUN_OR_COMPOSE(linear_add, sum, a, x, w, bias, product, n, stream);
    vb_status status = vb_linear(product, x, w, bias, n, stream);
    return status == VB_OK ? vb_add(sum, a, product, VB_F32, size, stream) : status;
}

/* The change of a product by an adapter makes sense; `name` is a literal. */
#define REQUIRE_UPDATE(v, u, ranks, name) \
    do { \
        REQUIRE(!(v) == !(u), name "_v, " name "_u: one without the other"); \
        REQUIRE(!(v) || (ranks) > 0, name "_v: not NULL, without ranks"); \
    } while (0)
#define REQUIRE_CODES(n, a) \
    do { \
        int64_t codes_; \
        REQUIRE((a).ranks >= 0 && (a).ranks <= MOST_RANKS, "ranks: negative, or more than 256"); \
        REQUIRE((a).codes_stride == 0 || (a).codes_stride >= (a).ranks, "codes_stride: rows of codes overlap"); \
        REQUIRE(ELEMENTS(&codes_, n, (a).codes_stride), "codes_stride: too large"); \
    } while (0)

/* y[n][rows] += ((x v^T) * codes) u^T, where there is an adapter. */
static vb_status add_update(float *y, const float *x, const void *v, const void *u, const float *codes, int64_t stride,
                            int64_t ranks, int64_t n, const vb_weight *w, vb_stream *stream) {
    if (!v) return VB_OK;
    return vb_fused_update(&VB_ARGS(vb_fused_update_args, .out = y, .add = y, .x = x, .v = v, .codes = codes, .u = u,
                                    .m = n, .k = w->cols, .n = w->rows, .r = ranks, .codes_stride = stride, .scale = 1,
                                    .type = VB_F32, .weight_type = VB_F16, .v_transposed = 1),
                           stream);
}

vb_status vb_feed_forward(const vb_feed_forward_args *args, vb_stream *stream) {
    TAKE(vb_feed_forward_args, a, args);
    if (a.next_prepared) *a.next_prepared = 0;
    int64_t size, inner;
    REQUIRE_WEIGHT(&a.gate, "gate");
    REQUIRE_WEIGHT(&a.up, "up");
    REQUIRE_WEIGHT(&a.down, "down");
    REQUIRE(a.gate.rows == a.up.rows && a.gate.cols == a.up.cols, "up: not of gate's shape");
    REQUIRE(a.down.rows == a.gate.cols && a.down.cols == a.gate.rows, "down: not of gate's shape transposed");
    REQUIRE(ELEMENTS(&size, a.n, a.gate.cols) && ELEMENTS(&inner, a.n, a.gate.rows), "n: negative, or too large");
    REQUIRE_CODES(a.n, a);
    REQUIRE_UPDATE(a.gate_v, a.gate_u, a.ranks, "gate");
    REQUIRE_UPDATE(a.up_v, a.up_u, a.ranks, "up");
    REQUIRE_UPDATE(a.down_v, a.down_u, a.ranks, "down");
    REQUIRE(a.ranks > 0 || (!a.next_q_v && !a.next_k_v && !a.next_v_v), "next_q_v, next_k_v, next_v_v: without ranks");
    if (size == 0) return VB_OK;
    NOT_NULL(stream);
    REQUIRE(a.sum && (a.x || a.prepared) && a.normed, "sum, x, normed: null");
    REQUIRE(a.gate.rows == 0 || (a.gate.data && a.up.data && a.down.data), "gate, up, down: null data");
    REQUIRE(a.gate.rows == 0 || (a.gated && a.product), "gated, product: null");
    RUN_OR_COMPOSE(feed_forward, &a, stream);
    if (!a.x) return VB_UNSUPPORTED;
    vb_status status;
    if (!a.gate_v && !a.up_v) {
        status = vb_norm_swiglu(a.gated, a.x, a.norm, a.eps, &a.gate, &a.up, a.normed, a.product, a.n, stream);
    } else {
        status = vb_rms_norm_batched(a.normed, a.x, a.norm, VB_F32, a.n, a.gate.cols, a.eps, stream);
        if (status == VB_OK) status = vb_linear(a.gated, a.normed, &a.gate, NULL, a.n, stream);
        if (status == VB_OK) status = vb_linear(a.product, a.normed, &a.up, NULL, a.n, stream);
        if (status == VB_OK)
            status = add_update(a.gated, a.normed, a.gate_v, a.gate_u, a.codes, a.codes_stride, a.ranks, a.n, &a.gate,
                            stream);
        if (status == VB_OK)
            status =
                add_update(a.product, a.normed, a.up_v, a.up_u, a.codes, a.codes_stride, a.ranks, a.n, &a.up, stream);
        if (status == VB_OK) status = vb_swiglu(a.gated, a.gated, a.product, VB_F32, inner, stream);
    }
    if (status == VB_OK) status = vb_linear_add(a.sum, a.x, a.gated, &a.down, NULL, a.normed, a.n, stream);
    if (status != VB_OK) return status;
    return add_update(a.sum, a.gated, a.down_v, a.down_u, a.codes, a.codes_stride, a.ranks, a.n, &a.down, stream);
}

vb_status vb_attention_linear_add(float *sum, const float *a, const vb_attention_args *attention, const vb_weight *w,
                                  const float *bias, const vb_update_args *update, float *product,
                                  const float *next_norm, float *normed, int *next_prepared, vb_stream *stream) {
    if (next_prepared) *next_prepared = 0;
    TAKE(vb_attention_args, q, attention);
    REQUIRE_WEIGHT(w, "w");
    vb_update_args u = VB_ARGS(vb_update_args, .v = NULL);
    if (update) REQUIRE(take(&u, sizeof u, update), "update->size: not sizeof(vb_update_args)");
    REQUIRE_UPDATE(u.v, u.u, u.ranks, "update");
    REQUIRE(u.ranks > 0 || (!u.next_gate_v && !u.next_up_v), "update->next_gate_v, next_up_v: without ranks");
    REQUIRE(!next_norm || (normed && next_prepared), "normed, next_prepared: null beside next_norm");
    int64_t n, row, attended, size;
    REQUIRE(ELEMENTS(&n, q.batch, q.seq) && ELEMENTS(&row, q.heads, q.dim) &&
                ELEMENTS(&attended, q.batch, q.seq, q.heads, q.dim),
            "attention: batch, seq, heads, dim: negative, or their product is too large");
    REQUIRE(ELEMENTS(&size, q.heads, q.value_dim ? q.value_dim : q.dim) && w->cols == size,
            "w->cols: not heads times the values' size");
    REQUIRE_SIZES(&size, n, w->rows);
    REQUIRE_CODES(n, u);
    REQUIRE(!u.v || (u.n == n && u.rows == w->rows && u.cols == w->cols), "update->n, rows, cols: not the product's");
    if (size == 0) return VB_OK;
    if (attended > 0) {
        REQUIRE(q.type == VB_F32, "attention->type: not F32");
        REQUIRE(q.q_head_stride == q.dim && q.q_row_stride == row && q.q_batch_stride == q.seq * row,
                "attention: strides leave gaps");
        const vb_status status = vb_check_attention(&attended, &q, stream);
        if (status != VB_OK) return status;
    }
    NOT_NULL(sum); NOT_NULL(product); NOT_NULL(stream);
    REQUIRE(row == 0 || w->data, "w->data: null");
    RUN_OR_COMPOSE(attention_linear_add, sum, a, &q, w, bias, &u, product, next_norm, normed, next_prepared, stream);
    vb_status status = vb_attention(&q, stream);
    if (status == VB_OK)
        status = a ? vb_linear_add(sum, a, q.out, w, bias, product, n, stream)
                   : vb_linear(sum, q.out, w, bias, n, stream);
    return status == VB_OK ? add_update(sum, q.out, u.v, u.u, u.codes, u.codes_stride, u.ranks, n, w, stream) : status;
}

/* Norms each head of in[n][heads][dim] where there is a weight, and rotates. */
static vb_status rotate(float *x, const float *in, const float *norm, int64_t heads, const vb_rope_kv_write_args *a,
                        vb_stream *stream) {
    const int64_t n = a->batch * a->seq;
    vb_status status = norm ? vb_rms_norm_batched(x, in, norm, VB_F32, n * heads, a->dim, a->eps, stream) : VB_OK;
    if (status != VB_OK) return status;
    return vb_rope(&VB_ARGS(vb_rope_args, .out = x, .in = norm ? x : in, .cos = a->cos, .sin = a->sin,
                            .positions = a->positions, .position_stride = 1, .batch = n, .heads = heads, .seq = 1,
                            .dim = a->dim, .half = a->half, .table_rows = a->table_rows, .type = VB_F32,
                            .mode = a->mode), stream);
}

vb_status vb_rope_kv_write(const vb_rope_kv_write_args *args, vb_stream *stream) {
    TAKE(vb_rope_kv_write_args, a, args);
    int64_t n, q_size, kv_size, cache, table;
    REQUIRE(a.half <= a.dim / 2, "half: more than half of dim");
    REQUIRE(ELEMENTS(&n, a.batch, a.seq) && ELEMENTS(&q_size, n, a.heads, a.dim) &&
                ELEMENTS(&kv_size, n, a.kv_heads, a.dim),
            "batch, seq, heads, kv_heads, dim: negative, or their product is too large");
    REQUIRE(ELEMENTS(&table, a.table_rows, a.half), "table_rows, half: negative, or their product is too large");
    REQUIRE(ELEMENTS(&cache, a.kv_heads, a.capacity, a.dim), "capacity: negative, or too large");
    REQUIRE(!a.q_norm == !a.k_norm, "q_norm, k_norm: one without the other");
    if (q_size == 0 && kv_size == 0) return VB_OK;
    NOT_NULL(stream);
    REQUIRE(q_size > 0 && kv_size > 0, "heads, kv_heads: 0");
    REQUIRE(is_cache(a.kv_type, a.dim), "kv_type: " CACHES);
    REQUIRE(a.mode == VB_ROPE_INTERLEAVED || a.mode == VB_ROPE_NEOX, ROPE_MODES);
    REQUIRE(a.q && a.q_in, "q, q_in: null");
    REQUIRE(a.k && a.v, "k, v: null");
    REQUIRE(a.k_new && a.v_new, "k_new, v_new: null");
    REQUIRE(a.positions, "positions: null");
    REQUIRE(a.half == 0 || (a.cos && a.sin), "cos, sin: null");
    RUN_OR_COMPOSE(rope_kv_write, &a, stream);
    vb_status status = rotate(a.q, a.q_in, a.q_norm, a.heads, &a, stream);
    if (status == VB_OK) status = rotate(a.k_new, a.k_new, a.k_norm, a.kv_heads, &a, stream);
    if (status != VB_OK) return status;
    return vb_kv_write(&VB_ARGS(vb_kv_write_args, .k = a.k, .v = a.v, .k_in = a.k_new, .v_in = a.v_new,
                                .positions = a.positions, .sequences = a.sequences, .batch = a.batch, .seq = a.seq,
                                .kv_heads = a.kv_heads, .dim = a.dim, .capacity = a.capacity, .type = a.kv_type,
                                .ring = a.ring),
                       stream);
}

vb_status vb_norm_qkv(const vb_norm_qkv_args *args, vb_stream *stream) {
    TAKE(vb_norm_qkv_args, a, args);
    int64_t n, q_size, kv_size, q_rows, kv_rows, inner, cache, table;
    REQUIRE_WEIGHT(&a.wq, "wq");
    REQUIRE_WEIGHT(&a.wk, "wk");
    REQUIRE_WEIGHT(&a.wv, "wv");
    REQUIRE(a.wk.cols == a.wq.cols, "wk.cols: not wq's");
    REQUIRE(a.wv.cols == a.wq.cols, "wv.cols: not wq's");
    REQUIRE(a.half <= a.dim / 2, "half: more than half of dim");
    REQUIRE(ELEMENTS(&q_rows, a.heads, a.dim) && a.wq.rows == q_rows, "wq.rows: not heads * dim");
    REQUIRE(ELEMENTS(&kv_rows, a.kv_heads, a.dim) && a.wk.rows == kv_rows, "wk.rows: not kv_heads * dim");
    REQUIRE(a.wv.rows == kv_rows, "wv.rows: not kv_heads * dim");
    REQUIRE(ELEMENTS(&n, a.batch, a.seq) && ELEMENTS(&q_size, n, q_rows) && ELEMENTS(&kv_size, n, kv_rows) &&
                ELEMENTS(&inner, n, a.wq.cols),
            "batch, seq: negative, or their product is too large");
    REQUIRE(ELEMENTS(&table, a.table_rows, a.half), "table_rows, half: negative, or their product is too large");
    REQUIRE(ELEMENTS(&cache, a.kv_heads, a.capacity, a.dim), "capacity: negative, or too large");
    REQUIRE(!a.q_norm == !a.k_norm, "q_norm, k_norm: one without the other");
    REQUIRE_CODES(n, a);
    REQUIRE_UPDATE(a.q_v, a.q_u, a.ranks, "q");
    REQUIRE_UPDATE(a.k_v, a.k_u, a.ranks, "k");
    REQUIRE_UPDATE(a.v_v, a.v_u, a.ranks, "v");
    if (q_size == 0 && kv_size == 0) return VB_OK;
    NOT_NULL(stream);
    REQUIRE(q_size > 0 && kv_size > 0, "heads, kv_heads: 0");
    REQUIRE(is_cache(a.kv_type, a.dim), "kv_type: " CACHES);
    REQUIRE(a.mode == VB_ROPE_INTERLEAVED || a.mode == VB_ROPE_NEOX, ROPE_MODES);
    REQUIRE(a.q && a.k && a.v, "q, k, v: null");
    REQUIRE(a.positions, "positions: null");
    REQUIRE(a.k_new && a.v_new, "k_new, v_new: null");
    REQUIRE(a.half == 0 || (a.cos && a.sin), "cos, sin: null");
    REQUIRE(a.wq.cols == 0 || (a.x && a.normed), "x, normed: null");
    REQUIRE(a.wq.cols == 0 || (a.wq.data && a.wk.data && a.wv.data), "wq, wk, wv: null data");
    RUN_OR_COMPOSE(norm_qkv, &a, stream);
    vb_status status = vb_rms_norm_batched(a.normed, a.x, a.norm, VB_F32, n, a.wq.cols, a.eps, stream);
    if (status == VB_OK) status = vb_linear(a.q, a.normed, &a.wq, a.bq, n, stream);
    if (status == VB_OK) status = vb_linear(a.k_new, a.normed, &a.wk, a.bk, n, stream);
    if (status == VB_OK) status = vb_linear(a.v_new, a.normed, &a.wv, a.bv, n, stream);
    const int64_t stride = a.codes_stride, r = a.ranks;
    if (status == VB_OK) status = add_update(a.q, a.normed, a.q_v, a.q_u, a.codes, stride, r, n, &a.wq, stream);
    if (status == VB_OK) status = add_update(a.k_new, a.normed, a.k_v, a.k_u, a.codes, stride, r, n, &a.wk, stream);
    if (status == VB_OK) status = add_update(a.v_new, a.normed, a.v_v, a.v_u, a.codes, stride, r, n, &a.wv, stream);
    if (status != VB_OK) return status;
    return vb_rope_kv_write(&VB_ARGS(vb_rope_kv_write_args, .q = a.q, .q_in = a.q, .k = a.k, .v = a.v,
                                     .k_new = a.k_new, .v_new = a.v_new, .q_norm = a.q_norm, .k_norm = a.k_norm,
                                     .cos = a.cos, .sin = a.sin, .positions = a.positions, .sequences = a.sequences,
                                     .batch = a.batch, .seq = a.seq, .heads = a.heads, .kv_heads = a.kv_heads,
                                     .dim = a.dim, .half = a.half, .table_rows = a.table_rows, .capacity = a.capacity,
                                     .eps = a.eps, .kv_type = a.kv_type, .mode = a.mode, .ring = a.ring),
                            stream);
}
