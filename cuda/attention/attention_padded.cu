// attention_padded.cu: attention over a cache of 16 bits whose heads do not begin at multiples of 16 bytes.
// Queries, keys and values are copied to aligned rows in the workspace, with zeros after them (runtime/pad.cuh).
// A kernel for prompts takes the copies.
//
//   moves    4 bytes an element of q, k, v and out, beside the attention itself
//   bound    memory

#include "attention/attention.cuh"
#include "runtime/pad.cuh"

namespace vb {

vb_status attention_padded(const vb_attention_args &a, vb_status (*prefill)(const vb_attention_args &, vb_stream *),
                           vb_stream *stream) {
    vb_attention_args padded = attention_padded_args(&a);
    const PaddedRows queries = {a.batch, a.heads, a.seq, a.dim, a.q_batch_stride, a.q_head_stride, a.q_row_stride};
    const PaddedRows keys = {
        a.batch, a.kv_heads, a.kv_len, a.dim, a.kv_heads * a.kv_capacity * a.dim, a.kv_capacity * a.dim, a.dim};
    void *memory;
    VB_TRY(workspace(&memory, 2 * (queries.bytes() + keys.bytes()), stream));
    Piece *const q = (Piece *)memory, *const out = q + queries.pieces(), *const k = out + queries.pieces(),
                 *const v = k + keys.pieces();
    padded.q = q, padded.out = out, padded.k = k, padded.v = v;
    VB_TRY(pad_rows<false>(stream, PadCopy(q, a.q, queries), PadCopy(k, a.k, keys), PadCopy(v, a.v, keys)));
    VB_TRY(prefill(padded, stream));
    return pad_rows<true>(stream, PadCopy(out, a.out, queries));
}

} // namespace vb
