// attention.cu: the entry of attention, which launches the kernel that choose.h names.
// attention.cuh has the parts common to the kernels; vibrant.h has the formula.

#include "attention/attention.cuh"

using namespace vb;

static vb_status run(attention_kernel kernel, const vb_attention_args &a, vb_stream *stream) {
    switch (kernel) {
    case ATTENTION_DECODE: return attention_decode(a, stream);
    case ATTENTION_DECODE_Q8: return attention_decode_q8(a, stream);
    case ATTENTION_DECODE_F32: return attention_decode_f32(a, stream);
    case ATTENTION_DECODE_VARIANTS: return attention_decode_variants(a, {}, stream);
    case ATTENTION_PREFILL_SM90: return attention_prefill_sm90(a, stream);
    case ATTENTION_PADDED_SM90: return attention_padded_sm90(a, stream);
    case ATTENTION_PREFILL_Q8_SM90: return attention_prefill_q8(a, attention_prefill_sm90, stream);
    case ATTENTION_PADDED_DECODE: return attention_padded_decode(a, stream);
    case ATTENTION_PADDED: return attention_padded(a, stream);
    case ATTENTION_PREFILL: return attention_prefill(a, stream);
    case ATTENTION_PREFILL_Q8: return attention_prefill_q8(a, attention_prefill_whole, stream);
    case ATTENTION_F32: return attention_f32(a, stream);
    case ATTENTION_SIMT: return attention_simt(a, stream);
    default: return VB_UNSUPPORTED;
    }
}

extern "C" vb_status vb_cuda_attention(const vb_attention_args *args, vb_stream *stream) {
    const vb_attention_args &a = *args;
    const attention_kernel kernel = choose_attention(&a, &gpu_of(stream));
    chosen(stream, attention_kernel_info(kernel), "attention", a.kv_type, "batch seq heads kv_heads dim kv_len causal",
           a.batch, a.seq, a.heads, a.kv_heads, a.dim, a.kv_len, a.causal);
    const vb_status status = run(kernel, a, stream);
    const bool padded = kernel == ATTENTION_PADDED || kernel == ATTENTION_PADDED_SM90 ||
                        kernel == ATTENTION_PADDED_DECODE;
    return padded && status == VB_OUT_OF_MEMORY ? attention_simt(a, stream) : status;
}
