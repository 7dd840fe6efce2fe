/* ops.c: every operation of vibrant.h: its arguments are checked here, once for all devices, then the device's kernel is
 * called. The order of the checks: sizes, an empty call is done, types, pointers. */
#include <stdbool.h>
#include <stddef.h>

#include "kernels.h"

#define REQUIRE(condition) \
    do { \
        if (!(condition)) return VB_INVALID_ARGUMENT; \
    } while (0)

#define RUN(op, ...) stream->device->backend->op(__VA_ARGS__)

/* Runs the device's kernel of an operation of VB_COMPOSED and returns; goes on where the device has none for these arguments. */
#define RUN_OR_COMPOSE(op, ...) \
    do { \
        const vb_status ran_ = stream->device->backend->op ? RUN(op, __VA_ARGS__) : VB_UNSUPPORTED; \
        if (ran_ != VB_UNSUPPORTED) return ran_; \
    } while (0)

/* *count = the product of n sizes, 0 if one is 0. False if one is negative or a tensor of so many elements of up to four
 * bytes would have more than 2^63 - 1 bytes. */
static bool elements(int64_t *count, int n, const int64_t *sizes) {
    int64_t product = 1;
    bool empty = false;
    for (int i = 0; i < n; i++) {
        if (sizes[i] < 0) return false;
        empty |= sizes[i] == 0;
    }
    *count = 0;
    if (empty) return true;
    for (int i = 0; i < n; i++)
        if (__builtin_mul_overflow(product, sizes[i], &product)) return false;
    *count = product;
    return product <= INT64_MAX / 4;
}

#define ELEMENTS(count, ...) \
    elements(count, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]){__VA_ARGS__})

static bool is_float(vb_dtype type) { return type == VB_F32 || type == VB_F16 || type == VB_BF16; }
/* Of a key-value cache: blocks of Q8_0 lie along a head. */
static bool is_cache(vb_dtype type, int64_t dim) { return is_float(type) || (type == VB_Q8_0 && dim % vb_dtype_block_size(type) == 0); }

/* ---- element-wise ---------------------------------------------------------------------------------------------------- */

#define CHECK_ELEMENTWISE(pointers) \
    int64_t count; \
    REQUIRE(ELEMENTS(&count, n)); \
    if (count == 0) return VB_OK; \
    REQUIRE(is_float(type) && (pointers) && stream)

vb_status vb_add(void *out, const void *a, const void *b, vb_dtype type, int64_t n, vb_stream *stream) {
    CHECK_ELEMENTWISE(out && a && b);
    return RUN(add, out, a, b, type, n, stream);
}

vb_status vb_mul(void *out, const void *a, const void *b, vb_dtype type, int64_t n, vb_stream *stream) {
    CHECK_ELEMENTWISE(out && a && b);
    return RUN(mul, out, a, b, type, n, stream);
}

vb_status vb_mul_scalar(void *out, const void *a, float scalar, vb_dtype type, int64_t n, vb_stream *stream) {
    CHECK_ELEMENTWISE(out && a);
    return RUN(mul_scalar, out, a, scalar, type, n, stream);
}

vb_status vb_silu(void *out, const void *a, vb_dtype type, int64_t n, vb_stream *stream) {
    CHECK_ELEMENTWISE(out && a);
    return RUN(silu, out, a, type, n, stream);
}

vb_status vb_gelu(void *out, const void *a, vb_dtype type, int64_t n, vb_stream *stream) {
    CHECK_ELEMENTWISE(out && a);
    return RUN(gelu, out, a, type, n, stream);
}

vb_status vb_gelu_tanh(void *out, const void *a, vb_dtype type, int64_t n, vb_stream *stream) {
    CHECK_ELEMENTWISE(out && a);
    return RUN(gelu_tanh, out, a, type, n, stream);
}

vb_status vb_swiglu(void *out, const void *gate, const void *up, vb_dtype type, int64_t n, vb_stream *stream) {
    CHECK_ELEMENTWISE(out && gate && up);
    return RUN(swiglu, out, gate, up, type, n, stream);
}

vb_status vb_glu(void *out, const void *gate, const void *up, vb_activation activation, float alpha, float limit, vb_dtype type,
                 int64_t n, vb_stream *stream) {
    CHECK_ELEMENTWISE(out && gate && up);
    REQUIRE(activation >= VB_SILU && activation <= VB_CLAMPED_SILU && (activation != VB_CLAMPED_SILU || limit >= 0));
    return RUN(glu, out, gate, up, activation, alpha, limit, type, n, stream);
}

vb_status vb_sigmoid(void *out, const void *a, vb_dtype type, int64_t n, vb_stream *stream) {
    CHECK_ELEMENTWISE(out && a);
    return RUN(sigmoid, out, a, type, n, stream);
}

vb_status vb_soft_cap(void *out, const void *a, float cap, vb_dtype type, int64_t n, vb_stream *stream) {
    CHECK_ELEMENTWISE(out && a);
    REQUIRE(cap > 0);
    return RUN(soft_cap, out, a, cap, type, n, stream);
}

vb_status vb_copy(void *out, const void *in, vb_dtype type, int64_t n, vb_stream *stream) {
    int64_t count, block = vb_dtype_block_size(type);
    REQUIRE(ELEMENTS(&count, n));
    if (count == 0) return VB_OK;
    REQUIRE(block > 0 && n % block == 0 && out && in && stream);
    return RUN(copy, out, in, type, n, stream);
}

vb_status vb_convert(void *out, vb_dtype out_type, const void *in, vb_dtype in_type, int64_t n, vb_stream *stream) {
    int64_t count, block = vb_dtype_block_size(in_type);
    REQUIRE(ELEMENTS(&count, n));
    if (count == 0) return VB_OK;
    REQUIRE(is_float(out_type) && block > 0 && (out_type == VB_F32 || is_float(in_type)));
    REQUIRE(n % block == 0 && out && in && stream);
    return RUN(convert, out, out_type, in, in_type, n, stream);
}

vb_status vb_increment_i32(int32_t *x, int64_t n, vb_stream *stream) {
    int64_t count;
    REQUIRE(ELEMENTS(&count, n));
    if (count == 0) return VB_OK;
    REQUIRE(x && stream);
    return RUN(increment_i32, x, n, stream);
}

/* ---- rows -------------------------------------------------------------------------------------------------------------- */

#define CHECK_ROWS(pointers) \
    int64_t count; \
    REQUIRE(ELEMENTS(&count, rows, cols)); \
    if (count == 0) return VB_OK; \
    REQUIRE(is_float(type) && (pointers) && stream)

vb_status vb_softmax_batched(void *out, const void *in, vb_dtype type, int64_t rows, int64_t cols, vb_stream *stream) {
    CHECK_ROWS(out && in);
    return RUN(softmax_batched, out, in, type, rows, cols, stream);
}

vb_status vb_softmax(void *out, const void *in, vb_dtype type, int64_t n, vb_stream *stream) {
    return vb_softmax_batched(out, in, type, 1, n, stream);
}

vb_status vb_rms_norm_batched(void *out, const void *in, const float *weight, vb_dtype type, int64_t rows, int64_t cols,
                              float eps, vb_stream *stream) {
    CHECK_ROWS(out && in);
    return RUN(rms_norm_batched, out, in, weight, type, rows, cols, eps, stream);
}

vb_status vb_rms_norm(void *out, const void *in, const float *weight, vb_dtype type, int64_t n, float eps,
                      vb_stream *stream) {
    return vb_rms_norm_batched(out, in, weight, type, 1, n, eps, stream);
}

vb_status vb_layer_norm_batched(void *out, const void *in, const float *weight, const float *bias, vb_dtype type,
                                int64_t rows, int64_t cols, float eps, vb_stream *stream) {
    CHECK_ROWS(out && in);
    return RUN(layer_norm_batched, out, in, weight, bias, type, rows, cols, eps, stream);
}

vb_status vb_layer_norm(void *out, const void *in, const float *weight, const float *bias, vb_dtype type, int64_t n,
                        float eps, vb_stream *stream) {
    return vb_layer_norm_batched(out, in, weight, bias, type, 1, n, eps, stream);
}

vb_status vb_add_rms_norm(void *sum, void *out, const void *a, const void *b, const float *weight, vb_dtype type,
                          int64_t rows, int64_t cols, float eps, vb_stream *stream) {
    CHECK_ROWS(sum && out && a && b);
    return RUN(add_rms_norm, sum, out, a, b, weight, type, rows, cols, eps, stream);
}

vb_status vb_mul_rows(void *out, const void *a, const float *s, vb_dtype type, int64_t rows, int64_t cols, vb_stream *stream) {
    CHECK_ROWS(out && a && s);
    return RUN(mul_rows, out, a, s, type, rows, cols, stream);
}

vb_status vb_copy_columns(void *out, int64_t out_cols, int64_t out_first, const void *in, int64_t in_cols, int64_t in_first,
                          vb_dtype type, int64_t rows, int64_t cols, vb_stream *stream) {
    int64_t count;
    REQUIRE(cols >= 0 && out_first >= 0 && in_first >= 0 && cols <= out_cols - out_first && cols <= in_cols - in_first);
    REQUIRE(ELEMENTS(&count, rows, out_cols) && ELEMENTS(&count, rows, in_cols));
    if (rows == 0 || cols == 0) return VB_OK;
    REQUIRE((is_float(type) || type == VB_I32) && out && in && stream);
    return RUN(copy_columns, out, out_cols, out_first, in, in_cols, in_first, type, rows, cols, stream);
}

vb_status vb_argmax(int32_t *out, const float *in, int64_t rows, int64_t cols, vb_stream *stream) {
    int64_t count;
    REQUIRE(ELEMENTS(&count, rows, cols));
    if (rows == 0) return VB_OK;
    REQUIRE(cols > 0 && cols <= INT32_MAX && out && in && stream);
    return RUN(argmax, out, in, rows, cols, stream);
}

vb_status vb_top_k(float *values, int32_t *ids, const float *in, int64_t rows, int64_t cols, int64_t k,
                   vb_stream *stream) {
    int64_t count;
    REQUIRE(k >= 0 && k <= cols && ELEMENTS(&count, rows, cols));
    if (rows == 0 || k == 0) return VB_OK;
    REQUIRE(cols <= INT32_MAX && values && ids && in && stream);
    return RUN(top_k, values, ids, in, rows, cols, k, stream);
}

/* ---- matrices ---------------------------------------------------------------------------------------------------------- */

/* The elements that `batch` matrices of [rows][cols] reach over. */
static bool extent(int64_t *count, int64_t batch, int64_t batch_stride, int64_t rows, int64_t cols, int64_t stride) {
    int64_t within, between;
    if (rows == 0 || cols == 0) return *count = 0, true;
    if (stride < cols || batch_stride < 0 || !ELEMENTS(&within, rows, stride) || !ELEMENTS(&between, batch, batch_stride)) return false;
    return ELEMENTS(count, 1, within + between);
}

/* k = 0 is an empty sum, not an empty result: the output becomes zeros. */
vb_status vb_matmul_batched(const vb_matmul_args *args, vb_stream *stream) {
    REQUIRE(args);
    vb_matmul_args x = *args;
    int64_t size, work, reach;
    REQUIRE(ELEMENTS(&size, x.batch, x.m, x.n) && ELEMENTS(&work, x.batch, x.m, x.k, x.n));
    REQUIRE(ELEMENTS(&work, x.m, x.k) && ELEMENTS(&work, x.k, x.n));
    if (size == 0) return VB_OK;
    REQUIRE(is_float(x.type) && x.precision >= VB_PRECISION_FLOAT32 && x.precision <= VB_PRECISION_TF32);
    REQUIRE(extent(&reach, x.batch, x.c_batch_stride, x.m, x.n, x.c_stride));
    REQUIRE(extent(&reach, x.batch, x.a_batch_stride, x.a_transposed ? x.k : x.m, x.a_transposed ? x.m : x.k, x.a_stride));
    REQUIRE(extent(&reach, x.batch, x.b_batch_stride, x.b_transposed ? x.n : x.k, x.b_transposed ? x.k : x.n, x.b_stride));
    /* Matrices of C lie one after the other, or their rows are interleaved. */
    REQUIRE(x.batch == 1 || x.c_batch_stride >= (x.m - 1) * x.c_stride + x.n || x.c_stride >= (x.batch - 1) * x.c_batch_stride + x.n);
    REQUIRE(x.c && stream && (x.k == 0 || (x.a && x.b)));
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
    vb_matmul_args args = {.c = c, .a = a, .b = b, .m = m, .k = k, .n = n, .batch = 1, .a_stride = k, .b_stride = n,
                           .c_stride = n, .type = type};
    return vb_matmul_batched(&args, stream);
}

vb_status vb_matmul_single_row(void *c, const void *a, const void *b, vb_dtype type, int64_t k, int64_t n,
                               vb_stream *stream) {
    int64_t inner;
    REQUIRE(n >= 0 && n <= INT64_MAX / 4 && k >= 0 && ELEMENTS(&inner, k, n));
    if (n == 0) return VB_OK;
    REQUIRE(is_float(type) && c && stream && (k == 0 || (a && b)));
    return RUN(matmul_single_row, c, a, b, type, k, n, stream);
}

/* The shape, type and layout of a weight make sense; its data is not looked at. */
static bool valid_weight(const vb_weight *w) {
    if (!w || w->type == VB_I32 || (w->layout != VB_STORED && w->layout != VB_PACKED)) return false;
    int64_t count, block = vb_dtype_block_size(w->type);
    return block > 0 && ELEMENTS(&count, w->rows, w->cols) && w->cols % block == 0;
}

vb_status vb_weight_packed_size(int64_t *bytes, const vb_weight *w, vb_device *device) {
    REQUIRE(bytes);
    *bytes = 0;
    REQUIRE(valid_weight(w) && w->layout == VB_STORED && device);
    if (w->rows == 0 || w->cols == 0) return VB_OK;
    return device->backend->weight_packed_size(bytes, w, device);
}

vb_status vb_weight_pack(void *out, const vb_weight *w, vb_stream *stream) {
    REQUIRE(valid_weight(w) && w->layout == VB_STORED);
    if (w->rows == 0 || w->cols == 0) return VB_OK;
    REQUIRE(out && w->data && stream);
    return RUN(weight_pack, out, w, stream);
}

vb_status vb_linear(float *y, const float *x, const vb_weight *w, const float *bias, int64_t n, vb_stream *stream) {
    int64_t size, inner;
    REQUIRE(valid_weight(w) && ELEMENTS(&size, n, w->rows) && ELEMENTS(&inner, n, w->cols));
    if (size == 0) return VB_OK;
    REQUIRE(y && stream && (w->cols == 0 || (x && w->data)));
    return RUN(linear, y, x, w, bias, n, stream);
}

vb_status vb_embedding(float *out, const vb_weight *table, const int32_t *ids, int64_t n, vb_stream *stream) {
    int64_t size;
    REQUIRE(valid_weight(table) && ELEMENTS(&size, n, table->cols));
    if (size == 0) return VB_OK;
    REQUIRE(out && ids && table->data && stream);
    return RUN(embedding, out, table, ids, n, stream);
}

/* ---- mixtures of experts ------------------------------------------------------------------------------------------------ */

vb_status vb_route(const vb_route_args *args, vb_stream *stream) {
    REQUIRE(args);
    const vb_route_args *a = args;
    int64_t size;
    REQUIRE(ELEMENTS(&size, a->n, a->experts) && a->k >= 0 && a->k <= a->experts && a->groups >= 0);
    REQUIRE(a->groups == 0 || (a->experts % a->groups == 0 && a->groups_used > 0 && a->groups_used <= a->groups &&
                               a->k <= a->experts / a->groups * a->groups_used));
    if (size == 0 || a->k == 0) return VB_OK;
    REQUIRE(a->gating >= VB_GATING_SOFTMAX && a->gating <= VB_GATING_SIGMOID && a->ids && a->weights && a->logits && stream);
    return a->experts > 1024 ? VB_UNSUPPORTED : RUN(route, args, stream);
}

vb_status vb_expert_linear(const vb_expert_linear_args *args, vb_stream *stream) {
    REQUIRE(args);
    const vb_expert_linear_args *a = args;
    int64_t size, weights, inner;
    REQUIRE(valid_weight(&a->w) && ELEMENTS(&size, a->n, a->k, a->w.rows) && ELEMENTS(&inner, a->n, a->k, a->w.cols));
    REQUIRE(ELEMENTS(&weights, a->experts, a->w.rows, a->w.cols) && a->w.layout == VB_STORED);
    if (size == 0) return VB_OK;
    REQUIRE(a->y && a->ids && stream && (inner == 0 || a->x) && (weights == 0 || a->w.data));
    return RUN(expert_linear, args, stream);
}

vb_status vb_expert_sum(float *out, const float *add, const float *y, const float *weights, int64_t n, int64_t k, int64_t cols,
                        vb_stream *stream) {
    int64_t size, inner;
    REQUIRE(ELEMENTS(&size, n, cols) && ELEMENTS(&inner, n, k, cols));
    if (size == 0) return VB_OK;
    REQUIRE(out && stream && (k == 0 || y));
    return RUN(expert_sum, out, add, y, weights, n, k, cols, stream);
}

/* ---- transformers ------------------------------------------------------------------------------------------------------- */

vb_status vb_rope(const vb_rope_args *args, vb_stream *stream) {
    REQUIRE(args);
    const vb_rope_args *a = args;
    int64_t size, table, stride;
    REQUIRE(ELEMENTS(&size, a->batch, a->heads, a->seq, a->dim) && ELEMENTS(&table, a->table_rows, a->half));
    REQUIRE(ELEMENTS(&stride, a->batch, a->position_stride) && a->half <= a->dim / 2);
    if (size == 0) return VB_OK;
    REQUIRE(is_float(a->type) && (a->mode == VB_ROPE_INTERLEAVED || a->mode == VB_ROPE_NEOX));
    REQUIRE(a->out && a->in && stream && (a->half == 0 || (a->cos && a->sin)));
    return RUN(rope, args, stream);
}

vb_status vb_kv_write(const vb_kv_write_args *args, vb_stream *stream) {
    REQUIRE(args);
    const vb_kv_write_args *a = args;
    int64_t size, cache;
    REQUIRE(ELEMENTS(&size, a->batch, a->seq, a->kv_heads, a->dim) && ELEMENTS(&cache, a->kv_heads, a->capacity, a->dim));
    REQUIRE(ELEMENTS(&cache, a->batch, a->seq, a->kv_heads, a->value_dim) && ELEMENTS(&cache, a->kv_heads, a->capacity, a->value_dim));
    if (size == 0) return VB_OK;
    REQUIRE(is_cache(a->type, a->dim) && is_cache(a->type, a->value_dim) && a->k && a->k_in && a->positions && stream);
    REQUIRE(!a->v == !a->v_in && (!a->ring || a->seq <= a->capacity));
    if (a->type == VB_BF16) return VB_UNSUPPORTED;
    return RUN(kv_write, args, stream);
}

/* The widest rows of keys and values: latent attention's. */
enum { MOST_HEAD_DIM = 576 };

/* *size = the elements of q. Without positions, causal rows must lie below kv_len: offset + seq <= kv_len. */
static vb_status check_attention(int64_t *size, const vb_attention_args *a, vb_stream *stream) {
    int64_t cache, stride;
    REQUIRE(ELEMENTS(size, a->batch, a->seq, a->heads, a->value_dim) && ELEMENTS(&cache, a->kv_heads, a->kv_capacity, a->value_dim));
    REQUIRE(ELEMENTS(size, a->batch, a->seq, a->heads, a->dim));
    REQUIRE(ELEMENTS(&cache, a->kv_heads, a->kv_capacity, a->dim));
    REQUIRE(ELEMENTS(&stride, a->batch, a->q_batch_stride) && ELEMENTS(&stride, a->heads, a->q_head_stride));
    REQUIRE(ELEMENTS(&stride, a->seq, a->q_row_stride));
    if (*size == 0) return VB_OK;
    REQUIRE(is_float(a->type) && is_cache(a->kv_type, a->dim) && a->kv_heads > 0 && a->heads % a->kv_heads == 0);
    REQUIRE(is_cache(a->kv_type, a->value_dim) && (a->v || (a->value_dim > 0 && a->value_dim <= a->dim) || a->kv_len == 0));
    REQUIRE(a->kv_len >= 0 && (a->ring || a->kv_len <= a->kv_capacity) && a->offset >= 0 && a->window >= 0 && a->chunk >= 0);
    REQUIRE(!a->ring || (a->causal && a->window > 0 && a->window <= a->kv_capacity && a->seq - 1 <= a->kv_capacity - a->window));
    REQUIRE((!a->chunk || a->causal) && a->soft_cap >= 0);
    REQUIRE(!a->causal || a->positions || (a->offset <= a->kv_len && a->seq <= a->kv_len - a->offset));
    REQUIRE(a->out && a->q && stream && (a->kv_len == 0 || a->k));
    return a->dim > MOST_HEAD_DIM || a->value_dim > MOST_HEAD_DIM || (a->type != VB_F32 && a->kv_type != a->type) ? VB_UNSUPPORTED : VB_OK;
}

vb_status vb_attention(const vb_attention_args *args, vb_stream *stream) {
    REQUIRE(args);
    int64_t size;
    const vb_status status = check_attention(&size, args, stream);
    return status != VB_OK || size == 0 ? status : RUN(attention, args, stream);
}

/* ---- recurrences ----------------------------------------------------------------------------------------------------------- */

vb_status vb_causal_conv(const vb_causal_conv_args *args, vb_stream *stream) {
    REQUIRE(args);
    const vb_causal_conv_args *a = args;
    int64_t size, inner;
    REQUIRE(a->taps >= 1 && ELEMENTS(&size, a->batch, a->seq, a->channels) && ELEMENTS(&inner, a->batch, a->taps, a->channels));
    if (size == 0) return VB_OK;
    REQUIRE(a->out && a->x && a->weight && (a->state || a->taps == 1) && stream);
    return a->taps > 8 ? VB_UNSUPPORTED : RUN(causal_conv, args, stream);
}

vb_status vb_gated_delta(const vb_gated_delta_args *args, vb_stream *stream) {
    REQUIRE(args);
    const vb_gated_delta_args *a = args;
    int64_t size, keys, state, work;
    REQUIRE(ELEMENTS(&size, a->batch, a->seq, a->value_heads, a->value_dim) && ELEMENTS(&keys, a->batch, a->seq, a->key_heads, a->key_dim));
    REQUIRE(ELEMENTS(&state, a->batch, a->value_heads, a->key_dim, a->value_dim) && keys <= INT64_MAX / 16 && size <= INT64_MAX / 16);
    REQUIRE(ELEMENTS(&work, a->key_heads, a->key_dim) && ELEMENTS(&work, a->batch, a->seq, a->value_heads));
    if (size == 0) return VB_OK;
    REQUIRE(keys > 0 && a->value_heads % a->key_heads == 0 && a->out && a->state && a->qkv && a->alpha && a->beta && a->a && a->dt && stream);
    return a->key_dim > 256 ? VB_UNSUPPORTED : RUN(gated_delta, args, stream);
}

/* ---- fused: one kernel where the device has it, else the operations of the formula ------------------------------------- */

vb_status vb_norm_linear(float *y, const float *x, const float *norm, float eps, const vb_weight *w, const float *bias,
                         float *normed, int64_t n, vb_stream *stream) {
    int64_t size, inner;
    REQUIRE(valid_weight(w) && ELEMENTS(&size, n, w->rows) && ELEMENTS(&inner, n, w->cols));
    if (size == 0) return VB_OK;
    REQUIRE(y && stream && (w->cols == 0 || (x && w->data && normed)));
    RUN_OR_COMPOSE(norm_linear, y, x, norm, eps, w, bias, normed, n, stream);
    vb_status status = vb_rms_norm_batched(normed, x, norm, VB_F32, n, w->cols, eps, stream);
    return status == VB_OK ? vb_linear(y, normed, w, bias, n, stream) : status;
}

vb_status vb_norm_swiglu(float *out, const float *x, const float *norm, float eps, const vb_weight *gate,
                         const vb_weight *up, float *normed, float *product, int64_t n, vb_stream *stream) {
    int64_t size, inner;
    REQUIRE(valid_weight(gate) && valid_weight(up) && gate->rows == up->rows && gate->cols == up->cols);
    REQUIRE(ELEMENTS(&size, n, gate->rows) && ELEMENTS(&inner, n, gate->cols));
    if (size == 0) return VB_OK;
    REQUIRE(out && product && stream && (gate->cols == 0 || (x && gate->data && up->data && normed)));
    RUN_OR_COMPOSE(norm_swiglu, out, x, norm, eps, gate, up, normed, product, n, stream);
    vb_status status = vb_rms_norm_batched(normed, x, norm, VB_F32, n, gate->cols, eps, stream);
    if (status == VB_OK) status = vb_linear(out, normed, gate, NULL, n, stream);
    if (status == VB_OK) status = vb_linear(product, normed, up, NULL, n, stream);
    return status == VB_OK ? vb_swiglu(out, out, product, VB_F32, size, stream) : status;
}

vb_status vb_linear_add(float *sum, const float *a, const float *x, const vb_weight *w, const float *bias, float *product,
                        int64_t n, vb_stream *stream) {
    int64_t size, inner;
    REQUIRE(valid_weight(w) && ELEMENTS(&size, n, w->rows) && ELEMENTS(&inner, n, w->cols));
    if (size == 0) return VB_OK;
    REQUIRE(sum && a && product && stream && (w->cols == 0 || (x && w->data)));
    RUN_OR_COMPOSE(linear_add, sum, a, x, w, bias, product, n, stream);
    vb_status status = vb_linear(product, x, w, bias, n, stream);
    return status == VB_OK ? vb_add(sum, a, product, VB_F32, size, stream) : status;
}

vb_status vb_feed_forward(const vb_feed_forward_args *args, vb_stream *stream) {
    REQUIRE(args);
    const vb_feed_forward_args *a = args;
    if (a->next_prepared) *a->next_prepared = 0;
    int64_t size, inner;
    REQUIRE(valid_weight(&a->gate) && valid_weight(&a->up) && valid_weight(&a->down));
    REQUIRE(a->gate.rows == a->up.rows && a->gate.cols == a->up.cols && a->down.rows == a->gate.cols && a->down.cols == a->gate.rows);
    REQUIRE(ELEMENTS(&size, a->n, a->gate.cols) && ELEMENTS(&inner, a->n, a->gate.rows));
    if (size == 0) return VB_OK;
    REQUIRE(a->sum && a->x && a->normed && stream);
    REQUIRE(a->gate.rows == 0 || (a->gate.data && a->up.data && a->down.data && a->gated && a->product));
    RUN_OR_COMPOSE(feed_forward, args, stream);
    vb_status status = vb_norm_swiglu(a->gated, a->x, a->norm, a->eps, &a->gate, &a->up, a->normed, a->product, a->n, stream);
    return status == VB_OK ? vb_linear_add(a->sum, a->x, a->gated, &a->down, NULL, a->normed, a->n, stream) : status;
}

vb_status vb_attention_linear_add(float *sum, const float *a, const vb_attention_args *attention, const vb_weight *w, const float *bias,
                                  float *product, const float *next_norm, float *normed, int *next_prepared, vb_stream *stream) {
    if (next_prepared) *next_prepared = 0;
    REQUIRE(attention && valid_weight(w) && (!next_norm || (normed && next_prepared)));
    const vb_attention_args *q = attention;
    int64_t n, row, attended, size;
    const int64_t values = q->value_dim ? q->value_dim : q->dim;
    REQUIRE(ELEMENTS(&n, q->batch, q->seq) && ELEMENTS(&row, q->heads, q->dim) && ELEMENTS(&attended, q->batch, q->seq, q->heads, q->dim));
    REQUIRE(ELEMENTS(&size, q->heads, values) && w->cols == size && ELEMENTS(&size, n, w->rows));
    if (size == 0) return VB_OK;
    if (attended > 0) {
        REQUIRE(q->type == VB_F32 && q->q_head_stride == q->dim && q->q_row_stride == row && q->q_batch_stride == q->seq * row);
        const vb_status status = check_attention(&attended, q, stream);
        if (status != VB_OK) return status;
    }
    REQUIRE(sum && a && product && stream && (row == 0 || w->data));
    RUN_OR_COMPOSE(attention_linear_add, sum, a, q, w, bias, product, next_norm, normed, next_prepared, stream);
    vb_status status = vb_attention(q, stream);
    return status == VB_OK ? vb_linear_add(sum, a, (const float *)q->out, w, bias, product, n, stream) : status;
}

/* Norms each head of x[n][heads][dim] where there is a weight, and rotates. */
static vb_status rotate(float *x, const float *norm, int64_t heads, const vb_norm_qkv_args *a, vb_stream *stream) {
    const int64_t n = a->batch * a->seq;
    vb_status status = norm ? vb_rms_norm_batched(x, x, norm, VB_F32, n * heads, a->dim, a->eps, stream) : VB_OK;
    if (status != VB_OK) return status;
    const vb_rope_args rope = {x, x, a->cos, a->sin, a->positions, 1, n, heads, 1, a->dim, a->half, a->table_rows, VB_F32, a->mode};
    return vb_rope(&rope, stream);
}

vb_status vb_norm_qkv(const vb_norm_qkv_args *args, vb_stream *stream) {
    REQUIRE(args);
    const vb_norm_qkv_args *a = args;
    int64_t q_size, kv_size, q_rows, kv_rows, inner, cache, table;
    REQUIRE(valid_weight(&a->wq) && valid_weight(&a->wk) && valid_weight(&a->wv));
    REQUIRE(a->wk.cols == a->wq.cols && a->wv.cols == a->wq.cols && a->half <= a->dim / 2);
    REQUIRE(ELEMENTS(&q_rows, a->heads, a->dim) && ELEMENTS(&kv_rows, a->kv_heads, a->dim));
    REQUIRE(a->wq.rows == q_rows && a->wk.rows == kv_rows && a->wv.rows == kv_rows);
    REQUIRE(ELEMENTS(&q_size, a->batch, a->seq, q_rows) && ELEMENTS(&kv_size, a->batch, a->seq, kv_rows));
    REQUIRE(ELEMENTS(&inner, a->batch, a->seq, a->wq.cols) && ELEMENTS(&table, a->table_rows, a->half));
    REQUIRE(ELEMENTS(&cache, a->kv_heads, a->capacity, a->dim) && !a->q_norm == !a->k_norm);
    if (q_size == 0 && kv_size == 0) return VB_OK;
    REQUIRE(q_size > 0 && kv_size > 0 && is_cache(a->kv_type, a->dim) && (a->mode == VB_ROPE_INTERLEAVED || a->mode == VB_ROPE_NEOX));
    REQUIRE(a->q && a->k && a->v && a->positions && a->k_new && a->v_new && stream && (a->half == 0 || (a->cos && a->sin)));
    REQUIRE(a->wq.cols == 0 || (a->x && a->normed && a->wq.data && a->wk.data && a->wv.data));
    if (a->kv_type == VB_BF16) return VB_UNSUPPORTED;
    if (!a->ring) RUN_OR_COMPOSE(norm_qkv, args, stream);
    const int64_t n = a->batch * a->seq;
    vb_status status = vb_rms_norm_batched(a->normed, a->x, a->norm, VB_F32, n, a->wq.cols, a->eps, stream);
    if (status == VB_OK) status = vb_linear(a->q, a->normed, &a->wq, a->bq, n, stream);
    if (status == VB_OK) status = vb_linear(a->k_new, a->normed, &a->wk, a->bk, n, stream);
    if (status == VB_OK) status = vb_linear(a->v_new, a->normed, &a->wv, a->bv, n, stream);
    if (status == VB_OK) status = rotate(a->q, a->q_norm, a->heads, a, stream);
    if (status == VB_OK) status = rotate(a->k_new, a->k_norm, a->kv_heads, a, stream);
    if (status != VB_OK) return status;
    const vb_kv_write_args write = {a->k, a->v, a->k_new, a->v_new, a->positions, a->sequences,
                                    a->batch, a->seq, a->kv_heads, a->dim, a->capacity, a->kv_type, 0, a->ring};
    return vb_kv_write(&write, stream);
}
