// attention_decode.cu: attention of few query rows over a 16-bit cache (attention_decode_kernel.cuh).

#include "attention/attention_decode_kernel.cuh"

namespace vb {
namespace {

// Slots for 64, 128 and 256 dimensions: 96 KiB a block, so that an SM has room for the next kernel's slots.
template <class TQ, class TKV>
vb_status decode(const vb_attention_args &a, vb_stream *stream, void *parts, bool operand = false) {
    if (a.seq * (a.heads / a.kv_heads) <= 8) return launch_decode<TQ, TKV, 1, 6, 3, 3>(a, operand, stream, parts);
    return launch_decode<TQ, TKV, 2, 6, 3, 3>(a, operand, stream, parts);
}

} // namespace

vb_status attention_decode(const vb_attention_args &a, vb_stream *stream, void *parts) {
    if (a.type == VB_F32 && a.kv_type == VB_F16) return decode<float, half>(a, stream, parts);
    if (a.type == VB_F32 && a.kv_type == VB_BF16) return decode<float, bf16>(a, stream, parts);
    if (a.type == VB_F16 && a.kv_type == VB_F16) return decode<half, half>(a, stream, parts);
    return decode<bf16, bf16>(a, stream, parts);
}

vb_status attention_decode_operand(const vb_attention_args &a, vb_stream *stream) {
    return decode<float, half>(a, stream, nullptr, true);
}

} // namespace vb
