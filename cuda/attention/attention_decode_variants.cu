// attention_decode_variants.cu: attention of few query rows with a variant, over F16 and Q8_0: capped scores (Gemma 2),
// keys in a ring (windows), sinks of several tokens (gpt-oss). The kernel is attention_decode_kernel.cuh.

#include "attention/attention_decode_kernel.cuh"

namespace vb {

vb_status attention_decode_variants(const vb_attention_args &a, const DecodeResults &results, vb_stream *stream) {
    const bool few = a.seq * (a.heads / a.kv_heads) <= 8;
    if (a.kv_type == VB_Q8_0)
        return few ? launch_decode<float, vb_block_q8_0, 1, 8, 6, 4, true>(a, results, stream)
                   : launch_decode<float, vb_block_q8_0, 2, 8, 6, 4, true>(a, results, stream);
    return few ? launch_decode<float, half, 1, 6, 3, 3, true>(a, results, stream)
               : launch_decode<float, half, 2, 6, 3, 3, true>(a, results, stream);
}

} // namespace vb
