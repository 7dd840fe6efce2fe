// attention_decode_q8.cu: attention of few query rows over a cache of Q8_0 (attention_decode_kernel.cuh).

#include "attention/attention_decode_kernel.cuh"

namespace vb {

vb_status attention_decode_q8(const vb_attention_args &a, vb_stream *stream) {
    if (a.seq * (a.heads / a.kv_heads) <= 8) return launch_decode<float, vb_block_q8_0, 1, 8, 6, 4>(a, {}, stream);
    return launch_decode<float, vb_block_q8_0, 2, 8, 6, 4>(a, {}, stream);
}

} // namespace vb
