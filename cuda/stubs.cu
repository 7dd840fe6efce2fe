#include "common.cuh"

extern "C" {
vb_status vb_cuda_softmax_batched(void *, const void *, vb_dtype, int64_t, int64_t, vb_stream *) { return VB_UNSUPPORTED; }
vb_status vb_cuda_rms_norm_batched(void *, const void *, const float *, vb_dtype, int64_t, int64_t, float, vb_stream *) { return VB_UNSUPPORTED; }
vb_status vb_cuda_add_rms_norm(void *, void *, const void *, const void *, const float *, vb_dtype, int64_t, int64_t, float, vb_stream *) { return VB_UNSUPPORTED; }
vb_status vb_cuda_argmax(int32_t *, const float *, int64_t, int64_t, vb_stream *) { return VB_UNSUPPORTED; }
vb_status vb_cuda_top_k(float *, int32_t *, const float *, int64_t, int64_t, int64_t, vb_stream *) { return VB_UNSUPPORTED; }
vb_status vb_cuda_matmul(void *, const void *, const void *, vb_dtype, int64_t, int64_t, int64_t, vb_stream *) { return VB_UNSUPPORTED; }
vb_status vb_cuda_matmul_single_row(void *, const void *, const void *, vb_dtype, int64_t, int64_t, vb_stream *) { return VB_UNSUPPORTED; }
vb_status vb_cuda_rope(const vb_rope_args *, vb_stream *) { return VB_UNSUPPORTED; }
vb_status vb_cuda_kv_write(const vb_kv_write_args *, vb_stream *) { return VB_UNSUPPORTED; }
vb_status vb_cuda_attention(const vb_attention_args *, vb_stream *) { return VB_UNSUPPORTED; }
}
