// attention_padded.cu: attention over a cache of 16 bits whose heads do not begin at multiples of 16 bytes: queries,
// keys and values are copied into the workspace with rows that do, zeros after them, and a kernel for prompts takes the
// copies.
//
//   grid     of a copy: a thread for each 16 bytes of the padded rows
//   block    256 threads
//   moves    4 bytes an element of q, k, v and out, beside what attention moves
//   bound    memory

#include "attention/attention.cuh"

namespace vb {
namespace {

constexpr int threads = 256;
using Piece = Vec<unsigned short, 8>;

// Rows [batch][heads][rows] of `dim` elements somewhere, and of `pieces` pieces in the copy.
struct Rows {
    int64_t batch, heads, rows, batch_stride, head_stride, row_stride;
    int dim, pieces;

    int64_t all() const { return batch * heads * rows * pieces; }
    int64_t bytes() const { return all() * (int64_t)sizeof(Piece); }
};

template <bool BACK>
__global__ void __launch_bounds__(threads) pad_heads_kernel(Piece *copy, unsigned short *matrix, Rows r) {
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t i = (int64_t)blockIdx.x * threads + threadIdx.x, row = i / r.pieces, head = row / r.rows;
    if (head >= r.batch * r.heads) return;
    const int64_t b = head / r.heads;
    const int first = int(i - row * r.pieces) * 8;
    unsigned short *const at = matrix + b * r.batch_stride + (head - b * r.heads) * r.head_stride +
                               (row - head * r.rows) * r.row_stride + first;
    Piece piece;
    if (BACK) piece = copy[i];
#pragma unroll
    for (int e = 0; e < 8; e++) {
        if (!BACK) piece.at[e] = first + e < r.dim ? at[e] : (unsigned short)0;
        else if (first + e < r.dim) at[e] = piece.at[e];
    }
    if (!BACK) copy[i] = piece;
}

template <bool BACK>
vb_status pad(Piece *copy, const void *matrix, const Rows &r, vb_stream *stream) {
    return launch_overlapped(stream, (unsigned)ceil_div<int64_t>(r.all(), threads), threads, 0, pad_heads_kernel<BACK>,
                             copy, (unsigned short *)matrix, r);
}

} // namespace

vb_status attention_padded(const vb_attention_args &a, vb_status (*prefill)(const vb_attention_args &, vb_stream *),
                           vb_stream *stream) {
    vb_attention_args padded = attention_padded_args(&a);
    const int pieces = (int)padded.dim / 8;
    const Rows queries = {a.batch,         a.heads,        a.seq,      a.q_batch_stride,
                          a.q_head_stride, a.q_row_stride, (int)a.dim, pieces};
    const Rows keys = {a.batch, a.kv_heads, a.kv_len, a.kv_heads * a.kv_capacity * a.dim, a.kv_capacity * a.dim, a.dim,
                       (int)a.dim, pieces};
    void *memory;
    VB_TRY(workspace(&memory, 2 * (queries.bytes() + keys.bytes()), stream));
    Piece *const q = (Piece *)memory, *const out = q + queries.all(), *const k = out + queries.all(),
                 *const v = k + keys.all();
    padded.q = q, padded.out = out, padded.k = k, padded.v = v;
    VB_TRY(pad<false>(q, a.q, queries, stream));
    VB_TRY(pad<false>(k, a.k, keys, stream));
    VB_TRY(pad<false>(v, a.v, keys, stream));
    VB_TRY(prefill(padded, stream));
    return pad<true>(out, a.out, queries, stream);
}

} // namespace vb
