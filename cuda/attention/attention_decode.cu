// attention_decode.cu: attention of few query rows over a 16-bit cache (attention_decode_kernel.cuh).

#include "attention/attention_decode_kernel.cuh"

namespace vb {
namespace {

// Slots for 64, 128 and 256 dimensions: 96 KiB a block, so that an SM has room for the next kernel's slots.
template <class T>
vb_status decode(const vb_attention_args &a, vb_stream *stream, void *parts, const DecodeResults &results = {}) {
    if (a.seq * (a.heads / a.kv_heads) <= 8) return launch_decode<T, T, 1, 6, 3, 3>(a, results, stream, parts);
    return launch_decode<T, T, 2, 6, 3, 3>(a, results, stream, parts);
}

} // namespace

vb_status attention_decode(const vb_attention_args &a, vb_stream *stream, void *parts) {
    return a.kv_type == VB_F16 ? decode<half>(a, stream, parts) : decode<bf16>(a, stream, parts);
}

vb_status attention_decode_operand(const vb_attention_args &a, unsigned *flags, vb_stream *stream) {
    return decode<half>(a, stream, nullptr, {true, flags});
}

} // namespace vb
