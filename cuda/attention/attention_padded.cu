// attention_padded.cu: attention over a cache of 16 bits whose heads do not begin at multiples of 16 bytes.
// Queries, keys and values are copied to aligned rows in the workspace, with zeros after them (runtime/pad.cuh).
// A kernel for prompts takes the copies, or of few rows attention_decode.
//
//   moves    4 bytes an element of q, k, v and out, beside the attention itself
//   bound    memory

#include "attention/attention_decode.cuh"
#include "runtime/pad.cuh"

namespace vb {

namespace {

// attention(padded, memory) attends to the copies, with so many bytes of memory.
template <class F>
vb_status attend_to_copies(const vb_attention_args &a, int64_t bytes, vb_stream *stream, F attention) {
    vb_attention_args padded = attention_padded_args(&a);
    const PaddedRows queries = {a.batch, a.heads, a.seq, a.dim, a.q_batch_stride, a.q_head_stride, a.q_row_stride};
    const PaddedRows keys = {
        a.batch, a.kv_heads, a.kv_len, a.dim, a.kv_heads * a.kv_capacity * a.dim, a.kv_capacity * a.dim, a.dim};
    void *memory;
    VB_TRY(workspace(&memory, 2 * (queries.bytes() + keys.bytes()) + bytes, stream));
    Piece *const q = (Piece *)memory, *const out = q + queries.pieces(), *const k = out + queries.pieces(),
                 *const v = k + keys.pieces();
    padded.q = q, padded.out = out, padded.k = k, padded.v = v;
    VB_TRY(pad_rows<false>(stream, PadCopy(q, a.q, queries), PadCopy(k, a.k, keys), PadCopy(v, a.v, keys)));
    VB_TRY(attention(padded, v + keys.pieces()));
    return pad_rows<true>(stream, PadCopy(out, a.out, queries));
}

} // namespace

vb_status attention_padded(const vb_attention_args &a, vb_stream *stream) {
    return attend_to_copies(a, attention_prefill_parts_bytes(attention_padded_args(&a), stream), stream,
                            [&](const vb_attention_args &padded, void *memory) {
                                return attention_prefill(padded, stream, memory);
                            });
}

vb_status attention_padded_sm90(const vb_attention_args &a, vb_stream *stream) {
    return attend_to_copies(a, 0, stream, [&](const vb_attention_args &padded, void *) {
        return attention_prefill_sm90(padded, stream);
    });
}

vb_status attention_padded_decode(const vb_attention_args &a, vb_stream *stream) {
    return attend_to_copies(a, decode_parts_bytes(a, stream), stream,
                            [&](const vb_attention_args &padded, void *memory) {
                                return attention_decode(padded, stream, memory);
                            });
}

} // namespace vb
