// attention.cu: chooses the attention kernel. attention.cuh says what they share, vibrant.h what they compute.

#include "attention/attention.cuh"

using namespace vb;

static vb_status choose(const vb_attention_args &a, vb_stream *stream) {
    if (!suits_tensor_cores(a, stream)) return VB_UNSUPPORTED;
    // Of few packed rows, the keys are read once and split over the GPU.
    if (!has_many_rows(a)) {
        const vb_status status = attention_decode(a, stream);
        if (status != VB_UNSUPPORTED) return status;
    }
    if (a.kv_type == VB_Q8_0) return attention_prefill_q8(a, stream);
    const vb_status status = attention_prefill_sm90(a, stream);
    return status == VB_UNSUPPORTED ? attention_prefill(a, stream) : status;
}

extern "C" vb_status vb_cuda_attention(const vb_attention_args *args, vb_stream *stream) {
    const vb_attention_args &a = *args;
    if (!fits_counters(a)) return VB_UNSUPPORTED;
    const vb_status status = choose(a, stream);
    return status == VB_UNSUPPORTED ? attention_simt(a, stream) : status;
}
