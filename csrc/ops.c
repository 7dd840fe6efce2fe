/* ops.c: the operations of vibrant.h: arguments are checked here, once for all devices, then the device's kernel is
 * called. The order of the checks: sizes, an empty call is done, types, pointers. Families have files of their own:
 * ops_fused.c, ops_experts.c, ops_strided.c, ops_ternary.c. */
#include "checks.h"

#define FLOATS "type: neither F32, F16 nor BF16"

/* ---- element-wise ------------------------------------------------------------------------------------------------ */

#define CHECK_ELEMENTWISE() \
    int64_t count; \
    REQUIRE_SIZES(&count, n); \
    if (count == 0) return VB_OK; \
    NOT_NULL(stream); \
    REQUIRE(vb_is_float(type), FLOATS)

vb_status vb_add(void *out, const void *a, const void *b, vb_dtype type, int64_t n, vb_stream *stream) {
    CHECK_ELEMENTWISE();
    NOT_NULL(out); NOT_NULL(a); NOT_NULL(b);
    return RUN(add, out, a, b, type, n, stream);
}

vb_status vb_mul(void *out, const void *a, const void *b, vb_dtype type, int64_t n, vb_stream *stream) {
    CHECK_ELEMENTWISE();
    NOT_NULL(out); NOT_NULL(a); NOT_NULL(b);
    return RUN(mul, out, a, b, type, n, stream);
}

vb_status vb_mul_scalar(void *out, const void *a, float scalar, vb_dtype type, int64_t n, vb_stream *stream) {
    CHECK_ELEMENTWISE();
    NOT_NULL(out); NOT_NULL(a);
    return RUN(mul_scalar, out, a, scalar, type, n, stream);
}

vb_status vb_silu(void *out, const void *a, vb_dtype type, int64_t n, vb_stream *stream) {
    CHECK_ELEMENTWISE();
    NOT_NULL(out); NOT_NULL(a);
    return RUN(silu, out, a, type, n, stream);
}

vb_status vb_gelu(void *out, const void *a, vb_dtype type, int64_t n, vb_stream *stream) {
    CHECK_ELEMENTWISE();
    NOT_NULL(out); NOT_NULL(a);
    return RUN(gelu, out, a, type, n, stream);
}

vb_status vb_gelu_tanh(void *out, const void *a, vb_dtype type, int64_t n, vb_stream *stream) {
    CHECK_ELEMENTWISE();
    NOT_NULL(out); NOT_NULL(a);
    return RUN(gelu_tanh, out, a, type, n, stream);
}

vb_status vb_swiglu(void *out, const void *gate, const void *up, vb_dtype type, int64_t n, vb_stream *stream) {
    CHECK_ELEMENTWISE();
    NOT_NULL(out); NOT_NULL(gate); NOT_NULL(up);
    return RUN(swiglu, out, gate, up, type, n, stream);
}

vb_status vb_glu(void *out, const void *gate, const void *up, vb_activation activation, float alpha, float limit,
                 vb_dtype type, int64_t n, vb_stream *stream) {
    CHECK_ELEMENTWISE();
    NOT_NULL(out); NOT_NULL(gate); NOT_NULL(up);
    REQUIRE(activation >= VB_SILU && activation <= VB_CLAMPED_SILU, "activation: none of vb_activation");
    REQUIRE(activation != VB_CLAMPED_SILU || limit >= 0, "limit: negative, or no number");
    return RUN(glu, out, gate, up, activation, alpha, limit, type, n, stream);
}

vb_status vb_sigmoid(void *out, const void *a, vb_dtype type, int64_t n, vb_stream *stream) {
    CHECK_ELEMENTWISE();
    NOT_NULL(out); NOT_NULL(a);
    return RUN(sigmoid, out, a, type, n, stream);
}

vb_status vb_soft_cap(void *out, const void *a, float cap, vb_dtype type, int64_t n, vb_stream *stream) {
    CHECK_ELEMENTWISE();
    NOT_NULL(out); NOT_NULL(a);
    REQUIRE(cap > 0, "cap: not above 0");
    return RUN(soft_cap, out, a, cap, type, n, stream);
}

vb_status vb_copy(void *out, const void *in, vb_dtype type, int64_t n, vb_stream *stream) {
    int64_t count, block = vb_dtype_block_size(type);
    REQUIRE_SIZES(&count, n);
    if (count == 0) return VB_OK;
    REQUIRE(block > 0, "type: none of vb_dtype");
    REQUIRE(n % block == 0, "n: no multiple of the type's block size");
    NOT_NULL(out); NOT_NULL(in); NOT_NULL(stream);
    return RUN(copy, out, in, type, n, stream);
}

vb_status vb_convert(void *out, vb_dtype out_type, const void *in, vb_dtype in_type, int64_t n, vb_stream *stream) {
    const bool quantized = out_type == VB_Q4_0 || out_type == VB_Q8_0 || out_type == VB_Q4_K || out_type == VB_Q6_K;
    int64_t count, block = vb_dtype_block_size(quantized ? out_type : in_type);
    REQUIRE_SIZES(&count, n);
    if (count == 0) return VB_OK;
    REQUIRE(vb_is_float(out_type) || quantized, "out_type: neither F32, F16, BF16, Q4_0, Q8_0, Q4_K nor Q6_K");
    REQUIRE(block > 0 && in_type != VB_U8 && in_type != VB_BOOL, "in_type: none of vb_dtype, or U8 or BOOL");
    REQUIRE(!quantized || in_type == VB_F32, "in_type: blocks are made of F32 alone");
    REQUIRE(out_type == VB_F32 || vb_is_float(in_type), "out_type: blocks and integers become F32 alone");
    REQUIRE(n % block == 0, "n: no multiple of the block size");
    NOT_NULL(out); NOT_NULL(in); NOT_NULL(stream);
    return RUN(convert, out, out_type, in, in_type, n, stream);
}

vb_status vb_increment_i32(int32_t *x, int64_t n, vb_stream *stream) {
    int64_t count;
    REQUIRE_SIZES(&count, n);
    if (count == 0) return VB_OK;
    NOT_NULL(x); NOT_NULL(stream);
    return RUN(increment_i32, x, n, stream);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

#define CHECK_ROWS() \
    int64_t count; \
    REQUIRE_SIZES(&count, rows, cols); \
    if (count == 0) return VB_OK; \
    NOT_NULL(stream); \
    REQUIRE(vb_is_float(type), FLOATS)

vb_status vb_softmax_batched(void *out, const void *in, vb_dtype type, int64_t rows, int64_t cols, vb_stream *stream) {
    CHECK_ROWS();
    NOT_NULL(out); NOT_NULL(in);
    return RUN(softmax_batched, out, in, type, rows, cols, stream);
}

vb_status vb_softmax(void *out, const void *in, vb_dtype type, int64_t n, vb_stream *stream) {
    return vb_softmax_batched(out, in, type, 1, n, stream);
}

vb_status vb_rms_norm_batched(void *out, const void *in, const float *weight, vb_dtype type, int64_t rows, int64_t cols,
                              float eps, vb_stream *stream) {
    CHECK_ROWS();
    NOT_NULL(out); NOT_NULL(in);
    return RUN(rms_norm_batched, out, in, weight, type, rows, cols, eps, stream);
}

vb_status vb_rms_norm(void *out, const void *in, const float *weight, vb_dtype type, int64_t n, float eps,
                      vb_stream *stream) {
    return vb_rms_norm_batched(out, in, weight, type, 1, n, eps, stream);
}

vb_status vb_layer_norm_batched(void *out, const void *in, const float *weight, const float *bias, vb_dtype type,
                                int64_t rows, int64_t cols, float eps, vb_stream *stream) {
    CHECK_ROWS();
    NOT_NULL(out); NOT_NULL(in);
    return RUN(layer_norm_batched, out, in, weight, bias, type, rows, cols, eps, stream);
}

vb_status vb_layer_norm(void *out, const void *in, const float *weight, const float *bias, vb_dtype type, int64_t n,
                        float eps, vb_stream *stream) {
    return vb_layer_norm_batched(out, in, weight, bias, type, 1, n, eps, stream);
}

vb_status vb_add_rms_norm(void *sum, void *out, const void *a, const void *b, const float *weight, vb_dtype type,
                          int64_t rows, int64_t cols, float eps, vb_stream *stream) {
    CHECK_ROWS();
    NOT_NULL(sum); NOT_NULL(out); NOT_NULL(a); NOT_NULL(b);
    return RUN(add_rms_norm, sum, out, a, b, weight, type, rows, cols, eps, stream);
}

vb_status vb_mul_rows(void *out, const void *a, const float *factors, vb_dtype type, int64_t rows, int64_t cols,
                      vb_stream *stream) {
    CHECK_ROWS();
    NOT_NULL(out); NOT_NULL(a); NOT_NULL(factors);
    return RUN(mul_rows, out, a, factors, type, rows, cols, stream);
}

vb_status vb_copy_columns(void *out, int64_t out_cols, int64_t out_first, const void *in, int64_t in_cols,
                          int64_t in_first, vb_dtype type, int64_t rows, int64_t cols, vb_stream *stream) {
    int64_t count;
    REQUIRE(cols >= 0, "cols: negative");
    REQUIRE_SIZES(&count, rows, out_cols);
    REQUIRE_SIZES(&count, rows, in_cols);
    REQUIRE(out_first >= 0 && cols <= out_cols - out_first, "out_first: the columns do not lie in rows of out_cols");
    REQUIRE(in_first >= 0 && cols <= in_cols - in_first, "in_first: the columns do not lie in rows of in_cols");
    if (rows == 0 || cols == 0) return VB_OK;
    REQUIRE(vb_is_float(type) || type == VB_I32, "type: neither F32, F16, BF16 nor I32");
    NOT_NULL(out); NOT_NULL(in); NOT_NULL(stream);
    return RUN(copy_columns, out, out_cols, out_first, in, in_cols, in_first, type, rows, cols, stream);
}

vb_status vb_argmax(int32_t *out, const float *in, int64_t rows, int64_t cols, vb_stream *stream) {
    int64_t count;
    REQUIRE_SIZES(&count, rows, cols);
    if (rows == 0) return VB_OK;
    REQUIRE(cols > 0 && cols <= INT32_MAX, "cols: 0, or no index fits I32");
    NOT_NULL(out); NOT_NULL(in); NOT_NULL(stream);
    return RUN(argmax, out, in, rows, cols, stream);
}

vb_status vb_top_k(float *values, int32_t *ids, const float *in, int64_t rows, int64_t cols, int64_t k,
                   vb_stream *stream) {
    int64_t count;
    REQUIRE_SIZES(&count, rows, cols);
    REQUIRE(k >= 0 && k <= cols, "k: negative, or more than cols");
    if (rows == 0 || k == 0) return VB_OK;
    REQUIRE(cols <= INT32_MAX, "cols: no index fits I32");
    NOT_NULL(values); NOT_NULL(ids); NOT_NULL(in); NOT_NULL(stream);
    return RUN(top_k, values, ids, in, rows, cols, k, stream);
}

/* ---- matrices ---------------------------------------------------------------------------------------------------- */

/* An operand of a product: `batch` matrices of [rows][cols]. */
typedef struct matrices {
    const char *data;
    int64_t batch, batch_stride, rows, stride, cols, element;
} matrices;

/* The strides reach over the rows, and over no more memory than there can be. */
static bool strides_fit(const matrices *m) {
    int64_t within, between, all;
    return m->stride >= (m->rows > 0 ? m->cols : 0) && m->batch_stride >= 0 && ELEMENTS(&within, m->rows, m->stride) &&
           ELEMENTS(&between, m->batch, m->batch_stride) && ELEMENTS(&all, 1, within + between);
}

/* Whether operands share memory. Where their rows lie equally far apart, one may have the columns beside the other's;
 * else neither may begin before the other's end. */
static bool overlap(const matrices *c, const matrices *x) {
    const int64_t c_end = (c->batch - 1) * c->batch_stride + (c->rows - 1) * c->stride + c->cols;
    const int64_t x_end = (x->batch - 1) * x->batch_stride + (x->rows - 1) * x->stride + x->cols;
    const int64_t apart = (int64_t)((uintptr_t)x->data - (uintptr_t)c->data);
    if (x->rows == 0 || x->cols == 0 || apart >= c_end * c->element || -apart >= x_end * x->element) return false;
    if (c->stride != x->stride || c->batch_stride % c->stride != 0 || x->batch_stride % c->stride != 0) return true;
    const int64_t row = c->stride * c->element, column = (apart % row + row) % row;
    return column < c->cols * c->element || column + x->cols * x->element > row;
}

/* k = 0 is an empty sum, not an empty result: the output becomes zeros. */
vb_status vb_matmul_batched(const vb_matmul_args *args, vb_stream *stream) {
    TAKE(vb_matmul_args, x, args);
    int64_t size, work;
    REQUIRE(ELEMENTS(&size, x.batch, x.m, x.n), "batch, m, n: negative, or their product is too large");
    REQUIRE(ELEMENTS(&work, x.batch, x.m, x.k, x.n) && ELEMENTS(&work, x.m, x.k) && ELEMENTS(&work, x.k, x.n),
            "k: negative, or a product with it is too large");
    if (size == 0) return VB_OK;
    NOT_NULL(stream);
    REQUIRE(vb_is_float(x.type), FLOATS);
    REQUIRE(x.precision >= VB_PRECISION_FLOAT32 && x.precision <= VB_PRECISION_TF32, "precision: none of vb_precision");
    REQUIRE(x.c, "c: null");
    REQUIRE(x.k == 0 || x.a, "a: null");
    REQUIRE(x.k == 0 || x.b, "b: null");
    if (x.k == 0) { /* nothing is read: kernels get addresses and strides to compute with all the same */
        REQUIRE(x.a_stride >= 0 && x.a_batch_stride >= 0, "a_stride, a_batch_stride: negative");
        REQUIRE(x.b_stride >= 0 && x.b_batch_stride >= 0, "b_stride, b_batch_stride: negative");
        x.a = x.b = x.c;
        x.a_stride = x.a_transposed ? x.m : 0;
        x.b_stride = x.b_transposed ? 0 : x.n;
        x.a_batch_stride = x.b_batch_stride = 0;
    }
    const int64_t element = vb_dtype_block_bytes(x.type);
    matrices a = {x.a, x.batch, x.a_batch_stride, x.m, x.a_stride, x.k, element};
    matrices b = {x.b, x.batch, x.b_batch_stride, x.k, x.b_stride, x.n, element};
    const matrices c = {x.c, x.batch, x.c_batch_stride, x.m, x.c_stride, x.n, element};
    if (x.a_transposed) a.rows = x.k, a.cols = x.m;
    if (x.b_transposed) b.rows = x.n, b.cols = x.k;
    REQUIRE(strides_fit(&a), "a_stride, a_batch_stride: rows overlap, or reach too far");
    REQUIRE(strides_fit(&b), "b_stride, b_batch_stride: rows overlap, or reach too far");
    REQUIRE(strides_fit(&c), "c_stride, c_batch_stride: rows overlap, or reach too far");
    /* Matrices of C lie one after the other, or their rows are interleaved. */
    REQUIRE(x.batch == 1 || x.c_batch_stride >= (x.m - 1) * x.c_stride + x.n ||
                (x.c_batch_stride >= x.n && x.c_stride >= (x.batch - 1) * x.c_batch_stride + x.n),
            "c_batch_stride: matrices of c overlap each other");
    REQUIRE(x.k == 0 || !overlap(&c, &a), "c: overlaps a");
    REQUIRE(x.k == 0 || !overlap(&c, &b), "c: overlaps b");
    if (x.batch > 1 && x.b_batch_stride == 0 && !x.a_transposed && x.a_batch_stride == x.m * x.a_stride &&
        x.c_batch_stride == x.m * x.c_stride) { /* one B for all: the matrices of A are one tall one */
        x.m *= x.batch;
        x.batch = 1;
    }
    if (x.batch == 1) x.a_batch_stride = x.b_batch_stride = x.c_batch_stride = 0;
    if (x.m == 1 && x.a_stride == 1 && x.a_transposed) { /* a column without gaps is a row */
        x.a_transposed = 0;
        x.a_stride = x.k;
    }
    if (x.m == 1 && x.batch == 1 && !x.a_transposed && !x.b_transposed && x.b_stride == x.n)
        return RUN(matmul_single_row, x.c, x.a, x.b, x.type, x.k, x.n, stream);
    return RUN(matmul_batched, &x, stream);
}

vb_status vb_matmul(void *c, const void *a, const void *b, vb_dtype type, int64_t m, int64_t k, int64_t n,
                    vb_stream *stream) {
    return vb_matmul_batched(&VB_ARGS(vb_matmul_args, .c = c, .a = a, .b = b, .m = m, .k = k, .n = n, .batch = 1,
                                      .a_stride = k, .b_stride = n, .c_stride = n, .type = type),
                             stream);
}

vb_status vb_matmul_single_row(void *c, const void *a, const void *b, vb_dtype type, int64_t k, int64_t n,
                               vb_stream *stream) {
    int64_t inner;
    REQUIRE(n >= 0 && n <= INT64_MAX / 4, "n: negative, or too large");
    REQUIRE_SIZES(&inner, k, n);
    if (n == 0) return VB_OK;
    NOT_NULL(stream); NOT_NULL(c);
    REQUIRE(vb_is_float(type), FLOATS);
    REQUIRE(k == 0 || a, "a: null");
    REQUIRE(k == 0 || b, "b: null");
    const int64_t element = vb_dtype_block_bytes(type);
    const matrices out = {c, 1, 0, 1, n, n, element}, row = {a, 1, 0, 1, k, k, element},
                   matrix = {b, 1, 0, k, n, n, element};
    REQUIRE(k == 0 || !overlap(&out, &row), "c: overlaps a");
    REQUIRE(k == 0 || !overlap(&out, &matrix), "c: overlaps b");
    return RUN(matmul_single_row, c, a, b, type, k, n, stream);
}

vb_status vb_weight_packed_size(int64_t *bytes, const vb_weight *w, vb_device *device) {
    vb_stream *const stream = NULL; /* with which a reason could be left */
    NOT_NULL(bytes);
    *bytes = 0;
    REQUIRE_WEIGHT(w, "w");
    REQUIRE(w->layout == VB_STORED, "w->layout: not VB_STORED");
    NOT_NULL(device);
    if (w->rows == 0 || w->cols == 0) return VB_OK;
    return device->backend->weight_packed_size(bytes, w, device);
}

vb_status vb_weight_pack(void *out, const vb_weight *w, vb_stream *stream) {
    REQUIRE_WEIGHT(w, "w");
    REQUIRE(w->layout == VB_STORED, "w->layout: not VB_STORED");
    if (w->rows == 0 || w->cols == 0) return VB_OK;
    NOT_NULL(out); NOT_NULL(w->data); NOT_NULL(stream);
    return RUN(weight_pack, out, w, stream);
}

vb_status vb_linear(float *y, const float *x, const vb_weight *w, const float *bias, int64_t n, vb_stream *stream) {
    int64_t size, inner;
    REQUIRE_WEIGHT(w, "w");
    REQUIRE_SIZES(&size, n, w->rows);
    REQUIRE_SIZES(&inner, n, w->cols);
    if (size == 0) return VB_OK;
    NOT_NULL(y); NOT_NULL(stream);
    REQUIRE(w->cols == 0 || x, "x: null");
    REQUIRE(w->cols == 0 || w->data, "w->data: null");
    const matrices out = {(const char *)y, 1, 0, n, w->rows, w->rows, 4},
                   in = {(const char *)x, 1, 0, n, w->cols, w->cols, 4};
    REQUIRE(!overlap(&out, &in), "y: overlaps x");
    return RUN(linear, y, x, w, bias, n, stream);
}

vb_status vb_embedding(float *out, const vb_weight *table, const int32_t *ids, int64_t n, vb_stream *stream) {
    int64_t size;
    REQUIRE_WEIGHT(table, "table");
    REQUIRE_SIZES(&size, n, table->cols);
    if (size == 0) return VB_OK;
    NOT_NULL(out); NOT_NULL(ids); NOT_NULL(table->data); NOT_NULL(stream);
    return RUN(embedding, out, table, ids, n, stream);
}

/* ---- adapters ---------------------------------------------------------------------------------------------------- */

/* r = 0 is an empty sum, not an empty result; k = 0 alike. */
vb_status vb_fused_update(const vb_fused_update_args *args, vb_stream *stream) {
    TAKE(vb_fused_update_args, a, args);
    int64_t size, inner, v, u, codes;
    REQUIRE(ELEMENTS(&size, a.m, a.n) && ELEMENTS(&inner, a.m, a.k),
            "m, k, n: negative, or a product of them is too large");
    REQUIRE(ELEMENTS(&v, a.k, a.r) && ELEMENTS(&u, a.n, a.r), "r: negative, or too large beside k or n");
    REQUIRE(a.codes_stride == 0 || a.codes_stride >= a.r, "codes_stride: rows of codes overlap");
    REQUIRE(ELEMENTS(&codes, a.m, a.codes_stride), "codes_stride: too large");
    if (size == 0) return VB_OK;
    NOT_NULL(stream);
    REQUIRE(vb_is_float(a.type), FLOATS);
    REQUIRE(a.weight_type == a.type || (a.type == VB_F32 && a.weight_type == VB_F16),
            "weight_type: not type, nor F16 beside F32");
    REQUIRE(a.out, "out: null");
    REQUIRE(inner == 0 || a.x, "x: null");
    REQUIRE(v == 0 || a.v, "v: null");
    REQUIRE(u == 0 || a.u, "u: null");
    const int64_t element = vb_dtype_block_bytes(a.type);
    const matrices out = {a.out, 1, 0, a.m, a.n, a.n, element}, x = {a.x, 1, 0, a.m, a.k, a.k, element};
    REQUIRE(inner == 0 || !overlap(&out, &x), "out: overlaps x");
    return a.r > MOST_RANKS ? VB_UNSUPPORTED : RUN(fused_update, &a, stream);
}

/* ---- transformers ------------------------------------------------------------------------------------------------ */

vb_status vb_rope(const vb_rope_args *args, vb_stream *stream) {
    TAKE(vb_rope_args, a, args);
    int64_t size, table, stride;
    REQUIRE(ELEMENTS(&size, a.batch, a.heads, a.seq, a.dim),
            "batch, heads, seq, dim: negative, or their product is too large");
    REQUIRE(ELEMENTS(&table, a.table_rows, a.half), "table_rows, half: negative, or their product is too large");
    REQUIRE(ELEMENTS(&stride, a.batch, a.position_stride), "position_stride: negative, or too large");
    REQUIRE(a.half <= a.dim / 2, "half: more than half of dim");
    if (size == 0) return VB_OK;
    NOT_NULL(stream);
    REQUIRE(vb_is_float(a.type), FLOATS);
    REQUIRE(a.mode == VB_ROPE_INTERLEAVED || a.mode == VB_ROPE_NEOX, ROPE_MODES);
    REQUIRE(a.out, "out: null");
    REQUIRE(a.in, "in: null");
    REQUIRE(a.half == 0 || (a.cos && a.sin), "cos, sin: null");
    return RUN(rope, &a, stream);
}

vb_status vb_kv_write(const vb_kv_write_args *args, vb_stream *stream) {
    TAKE(vb_kv_write_args, a, args);
    int64_t size, cache;
    REQUIRE(ELEMENTS(&size, a.batch, a.seq, a.kv_heads, a.dim),
            "batch, seq, kv_heads, dim: negative, or their product is too large");
    REQUIRE(ELEMENTS(&cache, a.kv_heads, a.capacity, a.dim), "capacity: negative, or too large");
    REQUIRE(ELEMENTS(&cache, a.batch, a.seq, a.kv_heads, a.value_dim) &&
                ELEMENTS(&cache, a.kv_heads, a.capacity, a.value_dim),
            "value_dim: negative, or too large");
    REQUIRE(a.dim > 0 || a.value_dim == 0, "dim: 0 beside values of value_dim elements");
    if (size == 0) return VB_OK;
    NOT_NULL(stream);
    REQUIRE(is_cache(a.type, a.dim) && is_cache(a.type, a.value_dim), "type: " CACHES);
    REQUIRE(a.k, "k: null");
    REQUIRE(a.k_in, "k_in: null");
    REQUIRE(!a.v == !a.v_in, "v, v_in: one without the other");
    REQUIRE(!a.ring || a.seq <= a.capacity, "seq: more rows than the ring has slots");
    REQUIRE(a.positions, "positions: null");
    return RUN(kv_write, &a, stream);
}

/* The widest rows of keys and values: latent attention's. */
enum { MOST_HEAD_DIM = 576 };

vb_status vb_check_attention(int64_t *size, const vb_attention_args *a, vb_stream *stream) {
    int64_t cache, stride;
    REQUIRE(ELEMENTS(size, a->batch, a->seq, a->heads, a->dim),
            "batch, seq, heads, dim: negative, or their product is too large");
    REQUIRE(ELEMENTS(&cache, a->kv_heads, a->kv_capacity, a->dim),
            "kv_heads, kv_capacity: negative, or their product is too large");
    REQUIRE(ELEMENTS(&cache, a->batch, a->seq, a->heads, a->value_dim) &&
                ELEMENTS(&cache, a->kv_heads, a->kv_capacity, a->value_dim),
            "value_dim: negative, or too large");
    REQUIRE(ELEMENTS(&stride, a->batch, a->q_batch_stride), "q_batch_stride: negative, or too large");
    REQUIRE(ELEMENTS(&stride, a->heads, a->q_head_stride), "q_head_stride: negative, or too large");
    REQUIRE(ELEMENTS(&stride, a->seq, a->q_row_stride), "q_row_stride: negative, or too large");
    if (*size == 0) return VB_OK;
    NOT_NULL(stream);
    REQUIRE(vb_is_float(a->type), FLOATS);
    REQUIRE(is_cache(a->kv_type, a->dim) && is_cache(a->kv_type, a->value_dim), "kv_type: " CACHES);
    REQUIRE(a->kv_heads > 0 && a->heads % a->kv_heads == 0, "heads: no multiple of kv_heads");
    REQUIRE(a->kv_len >= 0 && (a->ring || a->kv_len <= a->kv_capacity), "kv_len: negative, or more than kv_capacity");
    REQUIRE(a->offset >= 0, "offset: negative");
    REQUIRE(a->window >= 0, "window: negative");
    REQUIRE(a->chunk >= 0 && (!a->chunk || a->causal), "chunk: negative, or not causal");
    REQUIRE(a->soft_cap >= 0, "soft_cap: negative, or no number");
    REQUIRE(!a->ring ||
                (a->causal && a->window > 0 && a->window <= a->kv_capacity && a->seq - 1 <= a->kv_capacity - a->window),
            "ring: not causal, or kv_capacity holds no window + seq - 1 rows");
    REQUIRE(!a->causal || a->positions || (a->offset <= a->kv_len && a->seq <= a->kv_len - a->offset),
            "offset: rows beyond kv_len");
    REQUIRE(a->out, "out: null");
    REQUIRE(a->q, "q: null");
    REQUIRE(a->kv_len == 0 || a->k, "k: null");
    REQUIRE(a->kv_len == 0 || a->v || (a->value_dim > 0 && a->value_dim <= a->dim),
            "v: null, and value_dim not within dim");
    const bool large = a->dim > MOST_HEAD_DIM || a->value_dim > MOST_HEAD_DIM;
    return large || (a->type != VB_F32 && a->kv_type != a->type) ? VB_UNSUPPORTED : VB_OK;
}

vb_status vb_attention(const vb_attention_args *args, vb_stream *stream) {
    TAKE(vb_attention_args, a, args);
    int64_t size;
    const vb_status status = vb_check_attention(&size, &a, stream);
    return status != VB_OK || size == 0 ? status : RUN(attention, &a, stream);
}

/* ---- recurrences ------------------------------------------------------------------------------------------------- */

#define SLOTS_FIT(a) ((a).slots >= 0 && (a).slots <= INT32_MAX && ((a).slots <= 1 || (a).positions))

vb_status vb_causal_conv(const vb_causal_conv_args *args, vb_stream *stream) {
    TAKE(vb_causal_conv_args, a, args);
    int64_t size, inner;
    REQUIRE(a.taps >= 1, "taps: less than 1");
    REQUIRE(ELEMENTS(&size, a.batch, a.seq, a.channels),
            "batch, seq, channels: negative, or their product is too large");
    REQUIRE(ELEMENTS(&inner, a.batch, a.taps, a.channels), "taps: too large");
    REQUIRE(SLOTS_FIT(a), "slots: negative, too large, or more than 1 without positions");
    if (size == 0) return VB_OK;
    NOT_NULL(stream);
    REQUIRE(a.out && a.x && a.weight, "out, x, weight: null");
    REQUIRE(a.state || a.taps == 1, "state: null");
    return a.taps > 8 ? VB_UNSUPPORTED : RUN(causal_conv, &a, stream);
}

vb_status vb_gated_delta(const vb_gated_delta_args *args, vb_stream *stream) {
    TAKE(vb_gated_delta_args, a, args);
    int64_t size, keys, state, work;
    REQUIRE(ELEMENTS(&size, a.batch, a.seq, a.value_heads, a.value_dim) && size <= INT64_MAX / 16,
            "batch, seq, value_heads, value_dim: negative, or their product is too large");
    REQUIRE(ELEMENTS(&keys, a.batch, a.seq, a.key_heads, a.key_dim) && keys <= INT64_MAX / 16 &&
                ELEMENTS(&work, a.key_heads, a.key_dim),
            "key_heads, key_dim: negative, or their product is too large");
    REQUIRE(ELEMENTS(&state, a.batch, a.value_heads, a.key_dim, a.value_dim) &&
                ELEMENTS(&work, a.batch, a.seq, a.value_heads),
            "value_heads, value_dim: too large");
    REQUIRE(SLOTS_FIT(a), "slots: negative, too large, or more than 1 without positions");
    if (size == 0) return VB_OK;
    NOT_NULL(stream);
    REQUIRE(keys > 0 && a.value_heads % a.key_heads == 0, "value_heads: no multiple of key_heads, or no keys");
    REQUIRE(a.out && a.state && a.qkv, "out, state, qkv: null");
    REQUIRE(a.alpha && a.beta && a.a && a.dt, "alpha, beta, a, dt: null");
    return a.key_dim > 256 ? VB_UNSUPPORTED : RUN(gated_delta, &a, stream);
}
