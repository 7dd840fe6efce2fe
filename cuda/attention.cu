// attention.cu: chooses the attention kernel. attention.cuh says what they share, vibrant.h what they compute.

#include "attention.cuh"

using namespace vb;

static vb_status choose(const vb_attention_args &a, vb_stream *stream) {
    // Tensor cores multiply 16-bit numbers and those of Q8_0; rows must be whole 16-byte vectors. A float32 cache keeps
    // float32 arithmetic: models in float32 are compared to four digits.
    const bool tensor_cores = capability(stream) >= 80 && a.kv_type != VB_F32 && a.dim % 8 == 0 &&
                              aligned16(a.out, a.q, a.k, a.v) && a.q_batch_stride % 8 == 0 && a.q_head_stride % 8 == 0 &&
                              a.q_row_stride % 8 == 0;
    if (!tensor_cores) return VB_UNSUPPORTED;
    // Up to 64 packed rows, the keys are read once and split over the GPU.
    if (a.seq * (a.heads / a.kv_heads) <= 64) {
        const vb_status status = attention_decode(a, stream);
        if (status != VB_UNSUPPORTED) return status;
    }
    if (a.kv_type == VB_Q8_0) return attention_prefill_q8(a, stream);
    const vb_status status = attention_prefill_sm90(a, stream);
    return status == VB_UNSUPPORTED ? attention_prefill(a, stream) : status;
}

extern "C" vb_status vb_cuda_attention(const vb_attention_args *args, vb_stream *stream) {
    const vb_attention_args &a = *args;
    if (a.dim > 256 || a.kv_len > INT32_MAX || a.kv_capacity > INT32_MAX || a.heads > INT32_MAX / a.seq ||
        a.batch > INT32_MAX / a.heads)
        return VB_UNSUPPORTED;
    const vb_status status = choose(a, stream);
    return status == VB_UNSUPPORTED ? attention_simt(a, stream) : status;
}
