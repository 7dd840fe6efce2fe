/* Code generated from vibrant.h by internal/backend/generate. DO NOT EDIT. */

/* Every device has a kernel of each of these. */
#define VB_KERNELS(X) \
    X(add) \
    X(mul) \
    X(mul_scalar) \
    X(silu) \
    X(gelu) \
    X(gelu_tanh) \
    X(swiglu) \
    X(glu) \
    X(sigmoid) \
    X(soft_cap) \
    X(copy) \
    X(convert) \
    X(increment_i32) \
    X(softmax_batched) \
    X(rms_norm_batched) \
    X(layer_norm_batched) \
    X(add_rms_norm) \
    X(mul_rows) \
    X(copy_columns) \
    X(argmax) \
    X(top_k) \
    X(matmul_batched) \
    X(matmul_single_row) \
    X(weight_pack) \
    X(linear) \
    X(embedding) \
    X(route) \
    X(expert_linear) \
    X(expert_sum) \
    X(rope) \
    X(kv_write) \
    X(attention) \
    X(causal_conv) \
    X(gated_delta)

/* A device that has no kernel of these leaves their place in its table empty: ops.c composes them. */
#define VB_COMPOSED(X) \
    X(norm_linear) \
    X(norm_swiglu) \
    X(linear_add) \
    X(feed_forward) \
    X(norm_qkv) \
    X(attention_linear_add)
