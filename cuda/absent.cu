// absent.cu: the launchers of kernels that a toolkit cannot compile, so that files which name them link. Choosers name
// none of these: before toolkit 12.3 no GPU has `hopper`, and in C++14 no weight has a packed layout.

#include "adapter/launchers.cuh"
#include "arch/sm90.cuh"
#include "attention/attention.cuh"
#include "collective/exchange.cuh"
#include "gemm/gemm_sm90.cuh"
#include "moe/expert_many.cuh"
#include "ternary/rounding.cuh"
#include "ternary/w2a8.cuh"

namespace vb {

#ifndef VB_WITH_SM90
vb_status gemm_sm90(const vb_matmul_args &, vb_stream *) { return VB_UNSUPPORTED; }
vb_status gemm_m64_sm90(const vb_matmul_args &, vb_stream *) { return VB_UNSUPPORTED; }
vb_status gemm_3xf16_sm90(const vb_matmul_args &, vb_stream *) { return VB_UNSUPPORTED; }
vb_status matmul_sm90(const vb_matmul_args &, vb_stream *, void *) { return VB_UNSUPPORTED; }
vb_status matmul_3xf16_sm90(const vb_matmul_args &, vb_stream *) { return VB_UNSUPPORTED; }
vb_status matmul_1xf16_sm90(const vb_matmul_args &, vb_stream *) { return VB_UNSUPPORTED; }
vb_status attention_prefill_sm90(const vb_attention_args &, vb_stream *) { return VB_UNSUPPORTED; }
vb_status attention_prefill_operand(const vb_attention_args &, unsigned *, vb_stream *) { return VB_UNSUPPORTED; }
vb_status fused_update_sm90(const vb_fused_update_args &, const adapter_plan &, vb_stream *) { return VB_UNSUPPORTED; }
vb_status fused_update_f32_sm90(const vb_fused_update_args &, const adapter_plan &, vb_stream *) {
    return VB_UNSUPPORTED;
}
vb_status w2a8_sm90(const vb_w2a8_gemv_args &, const ternary_wgmma &, vb_stream *) { return VB_UNSUPPORTED; }
vb_status tmac_sm90(const vb_tmac_matmul_args &, const ternary_wgmma &, vb_stream *) { return VB_UNSUPPORTED; }
vb_status stored_n64_sm90(const LinearArgs &, vb_dtype, vb_stream *) { return VB_UNSUPPORTED; }
vb_status stored_many_sm90(const LinearArgs &, vb_dtype, vb_stream *) { return VB_UNSUPPORTED; }
#ifdef VB_HAS_PACKED_LAYOUT
vb_status expert_product_sm90(vb_dtype, ExpertProduct, int64_t, int64_t, int64_t, vb_stream *) {
    return VB_UNSUPPORTED;
}
#endif
#endif

#ifndef VB_HAS_PACKED_LAYOUT
#define ABSENT(name)                                                                                                   \
    vb_status packed_##name(const LinearArgs &, const LinearExtra &, vb_dtype, const linear_items &, vb_stream *) {    \
        return VB_UNSUPPORTED;                                                                                         \
    }                                                                                                                  \
    vb_status packed_##name##_swiglu(const SwiGLUArgs &, const linear_items &, vb_stream *) { return VB_UNSUPPORTED; } \
    vb_status packed_##name##_qkv(const vb_norm_qkv_args &, const linear_qkv_choice &, vb_stream *) {                  \
        return VB_UNSUPPORTED;                                                                                         \
    }
ABSENT(n1)
ABSENT(n4)
ABSENT(n32)
#undef ABSENT
vb_status packed_many(const LinearArgs &, const half *, const LinearExtra &, const NextNorm &, vb_dtype, vb_stream *) {
    return VB_UNSUPPORTED;
}
vb_status packed_many_swiglu(const SwiGLUArgs &, const linear_units &, vb_stream *) { return VB_UNSUPPORTED; }
vb_status packed_many_feed_forward(const vb_feed_forward_args &, const linear_feed_forward_choice &, vb_stream *) {
    return VB_UNSUPPORTED;
}
vb_status packed_many_qkv(const vb_norm_qkv_args &, const linear_qkv_choice &, vb_stream *) { return VB_UNSUPPORTED; }
vb_status finish_qkv(const vb_norm_qkv_args &, linear_qkv_rest, vb_stream *) { return VB_UNSUPPORTED; }
vb_status expert_feed_forward_n1(const vb_expert_feed_forward_args &, const moe_choice &, vb_stream *) {
    return VB_UNSUPPORTED;
}
vb_status expert_feed_forward_many(const vb_expert_feed_forward_args &, bool, vb_stream *) { return VB_UNSUPPORTED; }
vb_status expert_linear_many(const vb_expert_linear_args &, bool, vb_stream *) { return VB_UNSUPPORTED; }
vb_status exchange_sum_of_products(float *, const vb_sum_of_products &, int, const linear_items &, const Mail &,
                                   vb_stream *) {
    return VB_UNSUPPORTED;
}
vb_status exchange_sum_of_rows(float *, const float *, const vb_sum_of_rows &, int, const Mail &, vb_stream *) {
    return VB_UNSUPPORTED;
}
vb_status exchange_sum_of_columns(float *const *, const float *, const vb_sum_of_rows &, int, const Mail &,
                                  vb_stream *) {
    return VB_UNSUPPORTED;
}
#endif

} // namespace vb

#ifndef VB_HAS_PACKED_LAYOUT
extern "C" {
vb_status vb_cuda_weight_packed_size(int64_t *bytes, const vb_weight *, vb_device *) { return *bytes = 0, VB_OK; }
vb_status vb_cuda_weight_pack(void *, const vb_weight *, vb_stream *) { return VB_UNSUPPORTED; }
}
#endif
