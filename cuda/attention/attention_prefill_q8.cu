// attention_prefill_q8.cu: attention of many query rows over a cache of Q8_0. A few key heads at a time are converted
// to F16 in the workspace, then multiplied as a cache of F16.
//
//   grid     of the conversion: 256 threads, each 8 elements of a key and of its value
//   moves    reads 1.06 bytes an element of the cache; writes 2 and reads them again: for 512 rows over 32768 keys
//            about a twentieth of the time of the products

#include "attention/attention.cuh"
#include "quant.h"

namespace vb {
namespace {

constexpr int threads = 256;
// of converted heads, which the workspace has from the start; one head may take more
constexpr int64_t most_bytes = 32 << 20;

// to[values][head][keys][dim] <- `heads` heads of batch entry b from kv_head on.
__global__ void __launch_bounds__(threads)
    convert_heads_kernel(vb_attention_args a, int64_t b, int64_t kv_head, int64_t heads, int64_t keys, half *to) {
    wait_for_previous_kernel();
    release_next_kernel();
    const int per_row = int(a.dim / 8);
    const int64_t index = (int64_t)blockIdx.x * threads + threadIdx.x, row = index / per_row, head = row / keys;
    if (head >= heads) return;
    const int d = int(index - row * per_row) * 8;
    const int64_t sequence = a.sequences ? a.sequences[b] : b;
    const int64_t source =
        ((sequence * a.kv_heads + kv_head + head) * a.kv_capacity + row - head * keys) * (a.dim / VB_QK) + d / VB_QK;
#pragma unroll
    for (int values = 0; values < 2; values++) {
        const vb_block_q8_0 *block = (const vb_block_q8_0 *)(values ? a.v : a.k) + source;
        const float scale = to_float(*reinterpret_cast<const half *>(&block->d));
        Vec<half, 8> y;
#pragma unroll
        for (int e = 0; e < 8; e++) y.at[e] = from_float<half>(scale * (float)block->qs[d % VB_QK + e]);
        *reinterpret_cast<Vec<half, 8> *>(to + values * heads * keys * a.dim + row * a.dim + d) = y;
    }
}

} // namespace

vb_status attention_prefill_q8(const vb_attention_args &a, vb_status (*prefill)(const vb_attention_args &, vb_stream *),
                               vb_stream *stream) {
    const int64_t keys = smaller(a.kv_len, a.kv_capacity); // a ring has fewer
    const int64_t head_bytes = 2 * keys * a.dim * (int64_t)sizeof(half), group = a.heads / a.kv_heads;
    const int64_t together = larger<int64_t>(1, smaller(a.kv_heads, most_bytes / head_bytes));
    void *memory;
    VB_TRY(workspace(&memory, together * head_bytes, stream));
    for (int64_t b = 0; b < a.batch; b++)
        for (int64_t head = 0; head < a.kv_heads; head += together) {
            const int64_t heads = smaller(together, a.kv_heads - head);
            const int64_t blocks = ceil_div<int64_t>(heads * keys * (a.dim / 8), threads);
            VB_TRY(launch_overlapped(stream, (unsigned)blocks, threads, 0, convert_heads_kernel, a, b, head, heads,
                                     keys, (half *)memory));
            vb_attention_args part = a;
            const int64_t from = b * a.q_batch_stride + head * group * a.q_head_stride;
            part.q = (const float *)a.q + from;
            part.out = (float *)a.out + from;
            part.k = memory;
            part.v = (const half *)memory + heads * keys * a.dim;
            if (a.positions) part.positions = a.positions + b * a.seq;
            part.sequences = nullptr;
            part.batch = 1, part.heads = heads * group, part.kv_heads = heads;
            part.kv_capacity = keys, part.kv_type = VB_F16;
            VB_TRY(prefill(part, stream));
        }
    return VB_OK;
}

} // namespace vb
