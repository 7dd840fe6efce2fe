/* Code generated from vibrant.h by internal/backend/generate. DO NOT EDIT. */
#include "vibrant.h"

struct add_frame {
    int64_t operation;
    void *out;
    const void *a;
    const void *b;
    vb_dtype type;
    int64_t n;
    vb_stream *stream;
};

static vb_status call_add(struct add_frame *f) {
    return vb_add(f->out, f->a, f->b, f->type, f->n, f->stream);
}

struct mul_frame {
    int64_t operation;
    void *out;
    const void *a;
    const void *b;
    vb_dtype type;
    int64_t n;
    vb_stream *stream;
};

static vb_status call_mul(struct mul_frame *f) {
    return vb_mul(f->out, f->a, f->b, f->type, f->n, f->stream);
}

struct mul_scalar_frame {
    int64_t operation;
    void *out;
    const void *a;
    float scalar;
    vb_dtype type;
    int64_t n;
    vb_stream *stream;
};

static vb_status call_mul_scalar(struct mul_scalar_frame *f) {
    return vb_mul_scalar(f->out, f->a, f->scalar, f->type, f->n, f->stream);
}

struct silu_frame {
    int64_t operation;
    void *out;
    const void *a;
    vb_dtype type;
    int64_t n;
    vb_stream *stream;
};

static vb_status call_silu(struct silu_frame *f) {
    return vb_silu(f->out, f->a, f->type, f->n, f->stream);
}

struct gelu_frame {
    int64_t operation;
    void *out;
    const void *a;
    vb_dtype type;
    int64_t n;
    vb_stream *stream;
};

static vb_status call_gelu(struct gelu_frame *f) {
    return vb_gelu(f->out, f->a, f->type, f->n, f->stream);
}

struct gelu_tanh_frame {
    int64_t operation;
    void *out;
    const void *a;
    vb_dtype type;
    int64_t n;
    vb_stream *stream;
};

static vb_status call_gelu_tanh(struct gelu_tanh_frame *f) {
    return vb_gelu_tanh(f->out, f->a, f->type, f->n, f->stream);
}

struct swiglu_frame {
    int64_t operation;
    void *out;
    const void *gate;
    const void *up;
    vb_dtype type;
    int64_t n;
    vb_stream *stream;
};

static vb_status call_swiglu(struct swiglu_frame *f) {
    return vb_swiglu(f->out, f->gate, f->up, f->type, f->n, f->stream);
}

struct glu_frame {
    int64_t operation;
    void *out;
    const void *gate;
    const void *up;
    vb_activation activation;
    float alpha;
    float limit;
    vb_dtype type;
    int64_t n;
    vb_stream *stream;
};

static vb_status call_glu(struct glu_frame *f) {
    return vb_glu(f->out, f->gate, f->up, f->activation, f->alpha, f->limit, f->type, f->n, f->stream);
}

struct sigmoid_frame {
    int64_t operation;
    void *out;
    const void *a;
    vb_dtype type;
    int64_t n;
    vb_stream *stream;
};

static vb_status call_sigmoid(struct sigmoid_frame *f) {
    return vb_sigmoid(f->out, f->a, f->type, f->n, f->stream);
}

struct soft_cap_frame {
    int64_t operation;
    void *out;
    const void *a;
    float cap;
    vb_dtype type;
    int64_t n;
    vb_stream *stream;
};

static vb_status call_soft_cap(struct soft_cap_frame *f) {
    return vb_soft_cap(f->out, f->a, f->cap, f->type, f->n, f->stream);
}

struct copy_frame {
    int64_t operation;
    void *out;
    const void *in;
    vb_dtype type;
    int64_t n;
    vb_stream *stream;
};

static vb_status call_copy(struct copy_frame *f) {
    return vb_copy(f->out, f->in, f->type, f->n, f->stream);
}

struct convert_frame {
    int64_t operation;
    void *out;
    vb_dtype out_type;
    const void *in;
    vb_dtype in_type;
    int64_t n;
    vb_stream *stream;
};

static vb_status call_convert(struct convert_frame *f) {
    return vb_convert(f->out, f->out_type, f->in, f->in_type, f->n, f->stream);
}

struct increment_i32_frame {
    int64_t operation;
    int32_t *x;
    int64_t n;
    vb_stream *stream;
};

static vb_status call_increment_i32(struct increment_i32_frame *f) {
    return vb_increment_i32(f->x, f->n, f->stream);
}

struct softmax_batched_frame {
    int64_t operation;
    void *out;
    const void *in;
    vb_dtype type;
    int64_t rows;
    int64_t cols;
    vb_stream *stream;
};

static vb_status call_softmax_batched(struct softmax_batched_frame *f) {
    return vb_softmax_batched(f->out, f->in, f->type, f->rows, f->cols, f->stream);
}

struct rms_norm_batched_frame {
    int64_t operation;
    void *out;
    const void *in;
    const float *weight;
    vb_dtype type;
    int64_t rows;
    int64_t cols;
    float eps;
    vb_stream *stream;
};

static vb_status call_rms_norm_batched(struct rms_norm_batched_frame *f) {
    return vb_rms_norm_batched(f->out, f->in, f->weight, f->type, f->rows, f->cols, f->eps, f->stream);
}

struct layer_norm_batched_frame {
    int64_t operation;
    void *out;
    const void *in;
    const float *weight;
    const float *bias;
    vb_dtype type;
    int64_t rows;
    int64_t cols;
    float eps;
    vb_stream *stream;
};

static vb_status call_layer_norm_batched(struct layer_norm_batched_frame *f) {
    return vb_layer_norm_batched(f->out, f->in, f->weight, f->bias, f->type, f->rows, f->cols, f->eps, f->stream);
}

struct add_rms_norm_frame {
    int64_t operation;
    void *sum;
    void *out;
    const void *a;
    const void *b;
    const float *weight;
    vb_dtype type;
    int64_t rows;
    int64_t cols;
    float eps;
    vb_stream *stream;
};

static vb_status call_add_rms_norm(struct add_rms_norm_frame *f) {
    return vb_add_rms_norm(f->sum, f->out, f->a, f->b, f->weight, f->type, f->rows, f->cols, f->eps, f->stream);
}

struct mul_rows_frame {
    int64_t operation;
    void *out;
    const void *a;
    const float *factors;
    vb_dtype type;
    int64_t rows;
    int64_t cols;
    vb_stream *stream;
};

static vb_status call_mul_rows(struct mul_rows_frame *f) {
    return vb_mul_rows(f->out, f->a, f->factors, f->type, f->rows, f->cols, f->stream);
}

struct copy_columns_frame {
    int64_t operation;
    void *out;
    int64_t out_cols;
    int64_t out_first;
    const void *in;
    int64_t in_cols;
    int64_t in_first;
    vb_dtype type;
    int64_t rows;
    int64_t cols;
    vb_stream *stream;
};

static vb_status call_copy_columns(struct copy_columns_frame *f) {
    return vb_copy_columns(f->out, f->out_cols, f->out_first, f->in, f->in_cols, f->in_first, f->type, f->rows, f->cols,
                           f->stream);
}

struct argmax_frame {
    int64_t operation;
    int32_t *out;
    const float *in;
    int64_t rows;
    int64_t cols;
    vb_stream *stream;
};

static vb_status call_argmax(struct argmax_frame *f) {
    return vb_argmax(f->out, f->in, f->rows, f->cols, f->stream);
}

struct top_k_frame {
    int64_t operation;
    float *values;
    int32_t *ids;
    const float *in;
    int64_t rows;
    int64_t cols;
    int64_t k;
    vb_stream *stream;
};

static vb_status call_top_k(struct top_k_frame *f) {
    return vb_top_k(f->values, f->ids, f->in, f->rows, f->cols, f->k, f->stream);
}

struct map_frame {
    int64_t operation;
    vb_map_args args;
    vb_stream *stream;
};

static vb_status call_map(struct map_frame *f) {
    return vb_map(&f->args, f->stream);
}

struct reduce_frame {
    int64_t operation;
    vb_reduce_args args;
    vb_stream *stream;
};

static vb_status call_reduce(struct reduce_frame *f) {
    return vb_reduce(&f->args, f->stream);
}

struct cumsum_frame {
    int64_t operation;
    void *out;
    const void *in;
    vb_dtype type;
    int64_t rows;
    int64_t n;
    int64_t cols;
    vb_stream *stream;
};

static vb_status call_cumsum(struct cumsum_frame *f) {
    return vb_cumsum(f->out, f->in, f->type, f->rows, f->n, f->cols, f->stream);
}

struct sort_frame {
    int64_t operation;
    vb_sort_args args;
    vb_stream *stream;
};

static vb_status call_sort(struct sort_frame *f) {
    return vb_sort(&f->args, f->stream);
}

struct index_frame {
    int64_t operation;
    vb_index_args args;
    vb_stream *stream;
};

static vb_status call_index(struct index_frame *f) {
    return vb_index(&f->args, f->stream);
}

struct matmul_batched_frame {
    int64_t operation;
    vb_matmul_args args;
    vb_stream *stream;
};

static vb_status call_matmul_batched(struct matmul_batched_frame *f) {
    return vb_matmul_batched(&f->args, f->stream);
}

struct matmul_single_row_frame {
    int64_t operation;
    void *c;
    const void *a;
    const void *b;
    vb_dtype type;
    int64_t k;
    int64_t n;
    vb_stream *stream;
};

static vb_status call_matmul_single_row(struct matmul_single_row_frame *f) {
    return vb_matmul_single_row(f->c, f->a, f->b, f->type, f->k, f->n, f->stream);
}

struct weight_pack_frame {
    int64_t operation;
    void *out;
    vb_weight w;
    vb_stream *stream;
};

static vb_status call_weight_pack(struct weight_pack_frame *f) {
    return vb_weight_pack(f->out, &f->w, f->stream);
}

struct linear_frame {
    int64_t operation;
    float *y;
    const float *x;
    vb_weight w;
    const float *bias;
    int64_t n;
    vb_stream *stream;
};

static vb_status call_linear(struct linear_frame *f) {
    return vb_linear(f->y, f->x, &f->w, f->bias, f->n, f->stream);
}

struct embedding_frame {
    int64_t operation;
    float *out;
    vb_weight table;
    const int32_t *ids;
    int64_t n;
    vb_stream *stream;
};

static vb_status call_embedding(struct embedding_frame *f) {
    return vb_embedding(f->out, &f->table, f->ids, f->n, f->stream);
}

struct fused_update_frame {
    int64_t operation;
    vb_fused_update_args args;
    vb_stream *stream;
};

static vb_status call_fused_update(struct fused_update_frame *f) {
    return vb_fused_update(&f->args, f->stream);
}

struct norm_quantize_frame {
    int64_t operation;
    vb_norm_quantize_args args;
    vb_stream *stream;
};

static vb_status call_norm_quantize(struct norm_quantize_frame *f) {
    return vb_norm_quantize(&f->args, f->stream);
}

struct dequantize_rows_frame {
    int64_t operation;
    float *out;
    const void *codes;
    const float *scales;
    int64_t rows;
    int64_t cols;
    vb_stream *stream;
};

static vb_status call_dequantize_rows(struct dequantize_rows_frame *f) {
    return vb_dequantize_rows(f->out, f->codes, f->scales, f->rows, f->cols, f->stream);
}

struct w2a8_gemv_frame {
    int64_t operation;
    vb_w2a8_gemv_args args;
    vb_stream *stream;
};

static vb_status call_w2a8_gemv(struct w2a8_gemv_frame *f) {
    return vb_w2a8_gemv(&f->args, f->stream);
}

struct bit_linear_frame {
    int64_t operation;
    vb_bit_linear_args args;
    vb_stream *stream;
};

static vb_status call_bit_linear(struct bit_linear_frame *f) {
    return vb_bit_linear(&f->args, f->stream);
}

struct tmac_lut_frame {
    int64_t operation;
    float *lut;
    const float *activations;
    int64_t k;
    int64_t n;
    vb_stream *stream;
};

static vb_status call_tmac_lut(struct tmac_lut_frame *f) {
    return vb_tmac_lut(f->lut, f->activations, f->k, f->n, f->stream);
}

struct tmac_matmul_frame {
    int64_t operation;
    vb_tmac_matmul_args args;
    vb_stream *stream;
};

static vb_status call_tmac_matmul(struct tmac_matmul_frame *f) {
    return vb_tmac_matmul(&f->args, f->stream);
}

struct route_frame {
    int64_t operation;
    vb_route_args args;
    vb_stream *stream;
};

static vb_status call_route(struct route_frame *f) {
    return vb_route(&f->args, f->stream);
}

struct expert_linear_frame {
    int64_t operation;
    vb_expert_linear_args args;
    vb_stream *stream;
};

static vb_status call_expert_linear(struct expert_linear_frame *f) {
    return vb_expert_linear(&f->args, f->stream);
}

struct expert_sum_frame {
    int64_t operation;
    float *out;
    const float *add;
    const float *y;
    const float *weights;
    int64_t n;
    int64_t k;
    int64_t cols;
    vb_stream *stream;
};

static vb_status call_expert_sum(struct expert_sum_frame *f) {
    return vb_expert_sum(f->out, f->add, f->y, f->weights, f->n, f->k, f->cols, f->stream);
}

struct rope_frame {
    int64_t operation;
    vb_rope_args args;
    vb_stream *stream;
};

static vb_status call_rope(struct rope_frame *f) {
    return vb_rope(&f->args, f->stream);
}

struct kv_write_frame {
    int64_t operation;
    vb_kv_write_args args;
    vb_stream *stream;
};

static vb_status call_kv_write(struct kv_write_frame *f) {
    return vb_kv_write(&f->args, f->stream);
}

struct rope_kv_write_frame {
    int64_t operation;
    vb_rope_kv_write_args args;
    vb_stream *stream;
};

static vb_status call_rope_kv_write(struct rope_kv_write_frame *f) {
    return vb_rope_kv_write(&f->args, f->stream);
}

struct attention_frame {
    int64_t operation;
    vb_attention_args args;
    vb_stream *stream;
};

static vb_status call_attention(struct attention_frame *f) {
    return vb_attention(&f->args, f->stream);
}

struct causal_conv_frame {
    int64_t operation;
    vb_causal_conv_args args;
    vb_stream *stream;
};

static vb_status call_causal_conv(struct causal_conv_frame *f) {
    return vb_causal_conv(&f->args, f->stream);
}

struct gated_delta_frame {
    int64_t operation;
    vb_gated_delta_args args;
    vb_stream *stream;
};

static vb_status call_gated_delta(struct gated_delta_frame *f) {
    return vb_gated_delta(&f->args, f->stream);
}

struct norm_linear_frame {
    int64_t operation;
    float *y;
    const float *x;
    const float *norm;
    float eps;
    vb_weight w;
    const float *bias;
    float *normed;
    int64_t n;
    vb_stream *stream;
};

static vb_status call_norm_linear(struct norm_linear_frame *f) {
    return vb_norm_linear(f->y, f->x, f->norm, f->eps, &f->w, f->bias, f->normed, f->n, f->stream);
}

struct norm_swiglu_frame {
    int64_t operation;
    float *out;
    const float *x;
    const float *norm;
    float eps;
    vb_weight gate;
    vb_weight up;
    float *normed;
    float *product;
    int64_t n;
    vb_stream *stream;
};

static vb_status call_norm_swiglu(struct norm_swiglu_frame *f) {
    return vb_norm_swiglu(f->out, f->x, f->norm, f->eps, &f->gate, &f->up, f->normed, f->product, f->n, f->stream);
}

struct linear_add_frame {
    int64_t operation;
    float *sum;
    const float *a;
    const float *x;
    vb_weight w;
    const float *bias;
    float *product;
    int64_t n;
    vb_stream *stream;
};

static vb_status call_linear_add(struct linear_add_frame *f) {
    return vb_linear_add(f->sum, f->a, f->x, &f->w, f->bias, f->product, f->n, f->stream);
}

struct feed_forward_frame {
    int64_t operation;
    vb_feed_forward_args args;
    int next_prepared;
    vb_stream *stream;
};

static vb_status call_feed_forward(struct feed_forward_frame *f) {
    f->args.next_prepared = &f->next_prepared;
    return vb_feed_forward(&f->args, f->stream);
}

struct expert_feed_forward_frame {
    int64_t operation;
    vb_expert_feed_forward_args args;
    vb_stream *stream;
};

static vb_status call_expert_feed_forward(struct expert_feed_forward_frame *f) {
    return vb_expert_feed_forward(&f->args, f->stream);
}

struct norm_route_frame {
    int64_t operation;
    vb_norm_route_args args;
    vb_stream *stream;
};

static vb_status call_norm_route(struct norm_route_frame *f) {
    return vb_norm_route(&f->args, f->stream);
}

struct norm_qkv_frame {
    int64_t operation;
    vb_norm_qkv_args args;
    vb_stream *stream;
};

static vb_status call_norm_qkv(struct norm_qkv_frame *f) {
    return vb_norm_qkv(&f->args, f->stream);
}

struct attention_linear_add_frame {
    int64_t operation;
    float *sum;
    const float *a;
    vb_attention_args attention;
    vb_weight w;
    const float *bias;
    vb_update_args update;
    float *product;
    const float *next_norm;
    float *normed;
    int next_prepared;
    vb_stream *stream;
};

static vb_status call_attention_linear_add(struct attention_linear_add_frame *f) {
    return vb_attention_linear_add(f->sum, f->a, &f->attention, &f->w, f->bias, &f->update, f->product, f->next_norm,
                                   f->normed, &f->next_prepared, f->stream);
}

vb_status vb_call(void *frame) {
    if (!frame) return VB_INVALID_ARGUMENT;
    switch (*(const int64_t *)frame) {
    case 0: return call_add(frame);
    case 1: return call_mul(frame);
    case 2: return call_mul_scalar(frame);
    case 3: return call_silu(frame);
    case 4: return call_gelu(frame);
    case 5: return call_gelu_tanh(frame);
    case 6: return call_swiglu(frame);
    case 7: return call_glu(frame);
    case 8: return call_sigmoid(frame);
    case 9: return call_soft_cap(frame);
    case 10: return call_copy(frame);
    case 11: return call_convert(frame);
    case 12: return call_increment_i32(frame);
    case 13: return call_softmax_batched(frame);
    case 14: return call_rms_norm_batched(frame);
    case 15: return call_layer_norm_batched(frame);
    case 16: return call_add_rms_norm(frame);
    case 17: return call_mul_rows(frame);
    case 18: return call_copy_columns(frame);
    case 19: return call_argmax(frame);
    case 20: return call_top_k(frame);
    case 21: return call_map(frame);
    case 22: return call_reduce(frame);
    case 23: return call_cumsum(frame);
    case 24: return call_sort(frame);
    case 25: return call_index(frame);
    case 26: return call_matmul_batched(frame);
    case 27: return call_matmul_single_row(frame);
    case 28: return call_weight_pack(frame);
    case 29: return call_linear(frame);
    case 30: return call_embedding(frame);
    case 31: return call_fused_update(frame);
    case 32: return call_norm_quantize(frame);
    case 33: return call_dequantize_rows(frame);
    case 34: return call_w2a8_gemv(frame);
    case 35: return call_bit_linear(frame);
    case 36: return call_tmac_lut(frame);
    case 37: return call_tmac_matmul(frame);
    case 38: return call_route(frame);
    case 39: return call_expert_linear(frame);
    case 40: return call_expert_sum(frame);
    case 41: return call_rope(frame);
    case 42: return call_kv_write(frame);
    case 43: return call_rope_kv_write(frame);
    case 44: return call_attention(frame);
    case 45: return call_causal_conv(frame);
    case 46: return call_gated_delta(frame);
    case 47: return call_norm_linear(frame);
    case 48: return call_norm_swiglu(frame);
    case 49: return call_linear_add(frame);
    case 50: return call_feed_forward(frame);
    case 51: return call_expert_feed_forward(frame);
    case 52: return call_norm_route(frame);
    case 53: return call_norm_qkv(frame);
    case 54: return call_attention_linear_add(frame);
    }
    return VB_INVALID_ARGUMENT;
}

int64_t vb_call_abi(void) { return INT64_C(7147470196127032268); }
