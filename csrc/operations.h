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
    X(map) \
    X(reduce) \
    X(cumsum) \
    X(sort) \
    X(index) \
    X(matmul_batched) \
    X(matmul_single_row) \
    X(weight_pack) \
    X(linear) \
    X(embedding) \
    X(fused_update) \
    X(norm_quantize) \
    X(dequantize_rows) \
    X(w2a8_gemv) \
    X(tmac_lut) \
    X(tmac_matmul) \
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
    X(bit_linear) \
    X(rope_kv_write) \
    X(norm_linear) \
    X(norm_swiglu) \
    X(linear_add) \
    X(feed_forward) \
    X(expert_feed_forward) \
    X(norm_route) \
    X(norm_qkv) \
    X(attention_linear_add)

/* X(name, elements of a block, bytes of a block) for each type of data. */
#define VB_DTYPES(X) \
    X(F32, 1, 4) \
    X(F16, 1, 2) \
    X(Q4_0, 32, 18) \
    X(Q4_1, 32, 20) \
    X(Q5_0, 32, 22) \
    X(Q5_1, 32, 24) \
    X(Q8_0, 32, 34) \
    X(Q2_K, 256, 84) \
    X(Q3_K, 256, 110) \
    X(Q4_K, 256, 144) \
    X(Q5_K, 256, 176) \
    X(Q6_K, 256, 210) \
    X(IQ2_XXS, 256, 66) \
    X(IQ2_XS, 256, 74) \
    X(IQ3_XXS, 256, 98) \
    X(IQ1_S, 256, 50) \
    X(IQ4_NL, 32, 18) \
    X(IQ3_S, 256, 110) \
    X(IQ2_S, 256, 82) \
    X(IQ4_XS, 256, 136) \
    X(I8, 1, 1) \
    X(I32, 1, 4) \
    X(IQ1_M, 256, 56) \
    X(BF16, 1, 2) \
    X(TQ1_0, 256, 54) \
    X(TQ2_0, 256, 66) \
    X(MXFP4, 32, 17) \
    X(NVFP4, 64, 36) \
    X(Q1_0, 128, 18) \
    X(Q2_0, 64, 18) \
    X(U8, 1, 1) \
    X(BOOL, 1, 1)
