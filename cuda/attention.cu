// attention.cu: chooses the attention kernel. attention.cuh says what they share, vibrant.h what they compute.

#include "attention.cuh"

using namespace vb;

extern "C" vb_status vb_cuda_attention(const vb_attention_args *args, vb_stream *stream) {
    const vb_attention_args &a = *args;
    if (a.dim > 256 || a.kv_len > INT32_MAX || a.kv_capacity > INT32_MAX || a.heads > INT32_MAX / a.seq ||
        a.batch > INT32_MAX / a.heads)
        return VB_UNSUPPORTED;
    // Tensor cores multiply 16-bit keys and values; rows must be whole 16-byte vectors. A float32 cache keeps float32
    // arithmetic: models in float32 are compared to four digits.
    const bool tensor_cores = capability(stream) >= 80 && a.kv_type != VB_F32 && a.dim % 8 == 0 &&
                              aligned16(a.out, a.q, a.k, a.v) && a.q_batch_stride % 8 == 0 && a.q_head_stride % 8 == 0 &&
                              a.q_row_stride % 8 == 0;
    if (!tensor_cores) return attention_simt(a, stream);
    // Up to 64 packed rows, the keys are read once and split over the GPU.
    const bool few = a.seq * (a.heads / a.kv_heads) <= 64;
    const vb_status status = few ? attention_decode_sm90(a, stream) : attention_prefill_sm90(a, stream);
    if (status != VB_UNSUPPORTED) return status;
    return few ? attention_decode(a, stream) : attention_prefill(a, stream);
}
