// attention.cuh: the parts common to the attention kernels: how queries are packed into tiles, which keys a row sees,
// and how the parts of a row come together.
//
// The heads of a group share their keys, so the query rows of a (batch, key head) are packed.
// Row i is token i / group of head kv_head * group + i % group. A tile is as many rows as a kernel takes at once.
// Each row has the keys [lo, hi) of its own, and a tile reads the union.

#ifndef VB_CUDA_ATTENTION_CUH
#define VB_CUDA_ATTENTION_CUH

#include "arch/sm90.cuh"
#include "attention/choose.h"
#include "runtime/common.cuh"
#include "runtime/quotient.cuh"

namespace vb {

// Where a kernel's parts go: floats [tile][part][row][dim], then (max, sum) [tile][part][row].
struct AttentionParts {
    int count;      // at most; short sequences have fewer
    float *partial; // unnormalized sums over its keys, relative to its maximum
    float2 *stats;  // its maximum score (in units of log 2) and its sum of exponentials
    unsigned *counters;
};

constexpr float log2_e = 1.4426950408889634f;

struct KeyRange {
    int lo, hi;
};

// The arguments, and quotients that the host computes once. A dozen 64-bit divisions in a kernel cost a decode step a
// tenth of its time.
struct AttentionShape : vb_attention_args {
    unsigned group; // query heads of a key head
    unsigned rows;  // packed rows of a key head
    unsigned tiles; // of them
    int values;     // elements of a value
    Reciprocal by_group, by_chunk; // without chunks quotients are 0
};

inline AttentionShape shape_of(const vb_attention_args &args, int tile_rows) {
    AttentionShape shape;
    static_cast<vb_attention_args &>(shape) = args;
    shape.group = (unsigned)(args.heads / args.kv_heads);
    shape.rows = (unsigned)args.seq * shape.group;
    shape.tiles = ceil_div<unsigned>(shape.rows, (unsigned)tile_rows);
    shape.values = (int)(args.value_dim ? args.value_dim : args.dim);
    shape.ring = attention_wraps(&args);
    shape.by_group = reciprocal_of(shape.group);
    if (args.chunk > 0 && args.chunk <= INT32_MAX) shape.by_chunk = reciprocal_of(args.chunk);
    return shape;
}

// Not from the L1, whose lines may be older than the end of the previous kernel (attention_decode_kernel.cuh).
VB_DEVICE int position_of(const AttentionShape &a, unsigned b, unsigned s) {
    return a.positions ? __ldcg(a.positions + b * a.seq + s) : int(a.offset + s);
}

VB_DEVICE KeyRange keys_at(const AttentionShape &a, int64_t position) {
    KeyRange keys = {0, (int)a.kv_len};
    if (a.causal) {
        keys.hi = (int)larger<int64_t>(0, smaller(position + 1, a.kv_len));
        if (a.window > 0) keys.lo = (int)smaller<int64_t>(keys.hi, larger<int64_t>(0, position + 1 - a.window));
        // Without a division: in line, that made a step's kernel 168 instructions longer, and 0.7 us slower.
        const unsigned chunks = a.by_chunk.quotient((unsigned)position);
        keys.lo = smaller(keys.hi, larger(keys.lo, int(chunks * (unsigned)a.chunk)));
    }
    return keys;
}

VB_DEVICE KeyRange keys_of(const AttentionShape &a, unsigned b, unsigned s) {
    return keys_at(a, a.causal ? position_of(a, b, s) : 0);
}

// The token of packed row i.
VB_DEVICE unsigned token_of(const AttentionShape &a, unsigned i) { return a.seq == 1 ? 0 : a.by_group.quotient(i); }

// The first element of packed row i in q and out.
VB_DEVICE int64_t query_offset(const AttentionShape &a, unsigned b, unsigned kv_head, unsigned i) {
    const unsigned s = token_of(a, i), member = i - s * a.group;
    return b * a.q_batch_stride + (kv_head * a.group + member) * a.q_head_stride + s * a.q_row_stride;
}

// The same in out, where it has rows of another size.
VB_DEVICE int64_t out_offset(const AttentionShape &a, unsigned b, unsigned kv_head, unsigned i) {
    if (a.values == a.dim) return query_offset(a, b, kv_head, i);
    const unsigned s = token_of(a, i), member = i - s * a.group;
    return ((b * a.seq + s) * a.heads + kv_head * a.group + member) * a.values;
}

// The score of no key that packed row i has, in units of log 2; minus infinity without sinks.
VB_DEVICE float sink_of(const AttentionShape &a, unsigned kv_head, unsigned i) {
    return a.sinks ? a.sinks[kv_head * a.group + i - token_of(a, i) * a.group] * log2_e : __uint_as_float(0xff800000u);
}

// cap * tanh(x / cap), x and cap in units of log 2. Of e^-|..| nothing cancels that a weight would show: 1e-5 at a cap
// of 50.
VB_DEVICE float capped(float x, float cap) {
    return cap - __fdividef(2.0f * cap, 1.0f + exp2_fast(x * __fdividef(2.0f * log2_e, cap)));
}

// A row's sum of exponentials relative to `max`, with the exponential of its sink. No key: infinite, so that outputs
// stay zeros.
VB_DEVICE float total_of(const AttentionShape &a, unsigned kv_head, unsigned i, float max, float sum) {
    return a.sinks ? sum + exp2_fast(sink_of(a, kv_head, i) - max) : sum;
}

// The union of the keys of packed rows [first, end), the same in every thread. `shared` holds two ints; whole block.
VB_DEVICE KeyRange keys_of_tile(const AttentionShape &a, unsigned b, unsigned first, unsigned end, int *shared) {
    const unsigned last = (end - 1) / a.group;
    if (threadIdx.x == 0) shared[0] = INT32_MAX, shared[1] = 0;
    __syncthreads();
    for (unsigned s = first / a.group + threadIdx.x; s <= last; s += blockDim.x) {
        const KeyRange keys = keys_of(a, b, s);
        atomicMin(shared, keys.lo);
        atomicMax(shared + 1, keys.hi);
    }
    __syncthreads();
    return {smaller(shared[0], shared[1]), shared[1]};
}

// Cuts keys into parts of whole `step`s for at most `count` blocks; returns how many have any (at least 1).
VB_DEVICE int cut_keys(KeyRange *mine, KeyRange all, int part, int count, int step) {
    const int steps = ceil_div(all.hi - all.lo, step), each = larger(1, ceil_div(steps, count)) * step;
    mine->lo = smaller(all.lo + part * each, all.hi);
    mine->hi = smaller(mine->lo + each, all.hi);
    return larger(1, ceil_div(all.hi - all.lo, each));
}

// The sum over some keys of a row, relative to their greatest score.
struct RowPart {
    float max, sum;
    float4 out;
};
// The sum of n such in memory, eight of which are on their way at once. stats(i) is the greatest score and the sum of
// the i-th, out(i, stats) its outputs.
template <class S, class O>
VB_DEVICE RowPart add_stored_parts(int n, S stats, O out) {
    constexpr int at_once = 8;
    RowPart all = {Max::identity(), 0.0f, make_float4(0, 0, 0, 0)};
#pragma unroll 1
    for (int first = 0; first < n; first += at_once) {
        float2 part[at_once];
        float4 x[at_once];
#pragma unroll
        for (int i = 0; i < at_once; i++)
            part[i] = first + i < n ? stats(first + i) : make_float2(Max::identity(), 0.0f);
#pragma unroll
        for (int i = 0; i < at_once; i++)
            x[i] = first + i < n ? out(first + i, part[i]) : make_float4(0, 0, 0, 0);
        float max = all.max;
#pragma unroll
        for (int i = 0; i < at_once; i++) max = Max::combine(max, part[i].x);
        const float from = max == Max::identity() ? 0.0f : max, keep = exp2_fast(all.max - from);
        all.max = max, all.sum *= keep;
        all.out.x *= keep, all.out.y *= keep, all.out.z *= keep, all.out.w *= keep;
#pragma unroll
        for (int i = 0; i < at_once; i++) {
            const float weight = exp2_fast(part[i].x - from);
            all.sum += part[i].y * weight;
            all.out.x += x[i].x * weight, all.out.y += x[i].y * weight;
            all.out.z += x[i].z * weight, all.out.w += x[i].w * weight;
        }
    }
    return all;
}

// Adds up the parts of a tile and writes `rows` rows of out: vectors of four dimensions from `first` on, `step` apart.
template <class TQ>
VB_DEVICE void add_parts_of_tile(const AttentionShape &a, const AttentionParts &parts, int64_t tile, int tile_rows,
                                 int active, unsigned b, unsigned kv_head, unsigned first_row, int rows,
                                 int dim_stride, int first, int step) {
    const int64_t slot0 = tile * parts.count * tile_rows;
    const int chunks = (a.values + 3) / 4; // partial rows are padded to whole vectors
    for (int item = first; item < rows * chunks; item += step) {
        const int row = item / chunks, d = item % chunks * 4;
        const float sink = sink_of(a, kv_head, first_row + row);
        float max = sink;
        for (int p = 0; p < active; p++) max = fmaxf(max, __ldcg(&parts.stats[slot0 + (int64_t)p * tile_rows + row].x));
        const float base = max == __uint_as_float(0xff800000u) ? 0.0f : max;
        float sum = exp2_fast(sink - base), out[4] = {};
#pragma unroll 4
        for (int p = 0; p < active; p++) {
            const int64_t slot = slot0 + (int64_t)p * tile_rows + row;
            const float2 stats = __ldcg(parts.stats + slot);
            const float4 *const sums = reinterpret_cast<const float4 *>(parts.partial + slot * dim_stride + d);
            // A part without keys has left no sums.
            const float4 part = stats.y != 0.0f ? __ldcg(sums) : make_float4(0, 0, 0, 0);
            const float weight = exp2_fast(stats.x - base);
            sum += stats.y * weight;
            out[0] += part.x * weight, out[1] += part.y * weight, out[2] += part.z * weight, out[3] += part.w * weight;
        }
        const float scale = sum > 0.0f ? 1.0f / sum : sum; // no key: zeros; NaN stays
        TQ *target = (TQ *)a.out + out_offset(a, b, kv_head, first_row + row) + d;
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (d + e < a.values) target[e] = from_float<TQ>(out[e] * scale);
    }
}

// The same of more than eight parts, for which loads one after the other would wait.
template <class TQ>
VB_DEVICE void add_many_parts_of_tile(const AttentionShape &a, const AttentionParts &parts, int64_t tile,
                                      int tile_rows, unsigned b, unsigned kv_head, unsigned first_row, int rows,
                                      int dim_stride, int first, int step) {
    const int chunks = (a.values + 3) / 4;
    for (int item = first; item < rows * chunks; item += step) {
        const int row = item / chunks, d = item % chunks * 4;
        const auto slot = [&](int p) { return (tile * parts.count + p) * tile_rows + row; };
        const RowPart all = add_stored_parts(
            parts.count, [&](int p) { return __ldcg(parts.stats + slot(p)); },
            [&](int p, float2 stats) {
                const float4 *const sums = reinterpret_cast<const float4 *>(parts.partial + slot(p) * dim_stride + d);
                return stats.y != 0.0f ? __ldcg(sums) : make_float4(0, 0, 0, 0);
            });
        const float sink = sink_of(a, kv_head, first_row + row), max = fmaxf(sink, all.max);
        const float base = max == Max::identity() ? 0.0f : max, weight = exp2_fast(all.max - base);
        const float sum = exp2_fast(sink - base) + all.sum * weight, scale = sum > 0.0f ? weight / sum : sum;
        const float out[4] = {all.out.x * scale, all.out.y * scale, all.out.z * scale, all.out.w * scale};
        TQ *const target = (TQ *)a.out + out_offset(a, b, kv_head, first_row + row) + d;
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (d + e < a.values) target[e] = from_float<TQ>(out[e]);
    }
}

// Ends a tile in parts: the last of `blocks` blocks adds the `active` parts up.
template <class TQ>
VB_DEVICE void combine_parts(const AttentionShape &a, const AttentionParts &parts, int64_t tile, int tile_rows,
                              int active, int blocks, unsigned b, unsigned kv_head, unsigned first_row, int rows,
                              int dim_stride, unsigned *flag) {
    if (!last_arriver(parts.counters + tile, (unsigned)blocks, flag)) return;
    add_parts_of_tile<TQ>(a, parts, tile, tile_rows, active, b, kv_head, first_row, rows, dim_stride, threadIdx.x,
                          blockDim.x);
}

constexpr int add_attention_threads = 256;

// Adds up the parts of tile blockIdx.y: a thread has a vector of four dimensions.
template <class TQ, bool MANY>
__global__ void __launch_bounds__(add_attention_threads)
    add_attention_parts_kernel(AttentionShape a, AttentionParts parts, int tile_rows, int dims) {
    wait_for_previous_kernel();
    release_next_kernel();
    const unsigned tile = blockIdx.y, head = tile / a.tiles, first_row = (tile - head * a.tiles) * tile_rows;
    const unsigned b = head / (unsigned)a.kv_heads, kv_head = head - b * (unsigned)a.kv_heads;
    const int rows = (int)smaller<unsigned>(tile_rows, a.rows - first_row);
    const int first = (int)(blockIdx.x * add_attention_threads + threadIdx.x),
              step = (int)gridDim.x * add_attention_threads;
    if (MANY)
        add_many_parts_of_tile<TQ>(a, parts, tile, tile_rows, b, kv_head, first_row, rows, dims, first, step);
    else
        add_parts_of_tile<TQ>(a, parts, tile, tile_rows, parts.count, b, kv_head, first_row, rows, dims, first, step);
}
// Enqueues that addition, if there are parts.
template <class TQ>
vb_status add_attention_parts(const AttentionShape &a, const AttentionParts &parts, int tile_rows, int dims,
                              vb_stream *stream) {
    if (parts.count == 1) return VB_OK;
    const int64_t vectors = smaller<int64_t>(tile_rows, a.rows) * ceil_div(a.values, 4);
    const bool many = parts.count > 8 && compiled_for(stream) < 90; // measured before Hopper alone
    return launch_overlapped(stream,
                             dim3((unsigned)ceil_div<int64_t>(vectors, add_attention_threads),
                                  (unsigned)(a.tiles * a.batch * a.kv_heads)),
                             add_attention_threads, 0,
                             many ? add_attention_parts_kernel<TQ, true> : add_attention_parts_kernel<TQ, false>, a,
                             parts, tile_rows, dims);
}

// The bytes of parts of so many rows.
inline int64_t parts_bytes(int64_t rows, int dim_stride) {
    return rows * (dim_stride * (int64_t)sizeof(float) + (int64_t)sizeof(float2));
}
// As many parts a tile as make `wanted` in all, at most `most`; in `memory`, or where that is null in the workspace.
inline vb_status plan_parts(AttentionParts *parts, int64_t tiles, int tile_rows, int dim_stride, int64_t most,
                             int64_t wanted, vb_stream *stream, void *memory = nullptr) {
    int64_t count = larger<int64_t>(1, smaller(most, wanted / tiles));
    if (tiles > workspace_counters) count = 1;
    parts->count = (int)count;
    parts->counters = counters(stream);
    parts->partial = nullptr;
    parts->stats = nullptr;
    if (count > 1) {
        const int64_t rows = tiles * count * tile_rows;
        if (!memory) VB_TRY(workspace(&memory, parts_bytes(rows, dim_stride), stream));
        parts->partial = (float *)memory;
        parts->stats = (float2 *)((float *)memory + rows * dim_stride);
    }
    return VB_OK;
}

int64_t shared_of_multiprocessor(vb_stream *stream); // bytes that all its blocks have at once (runtime.cu)

// How results of attention_decode leave. `operand`: in F16, for a product with packed weights (linear/packed/many.cuh).
// `flags`: half_flags of them, which become 0, or null.
struct DecodeResults {
    bool operand = false;
    unsigned *flags = nullptr;
};

// Each takes the calls for which choose.h names it.
// `parts`: memory for parts of rows, or null for the stream's workspace.
vb_status attention_decode(const vb_attention_args &args, vb_stream *stream, void *parts = nullptr);
vb_status attention_decode_q8(const vb_attention_args &args, vb_stream *stream);
vb_status attention_decode_f32(const vb_attention_args &args, vb_stream *stream);
vb_status attention_decode_variants(const vb_attention_args &args, const DecodeResults &results, vb_stream *stream);
vb_status attention_prefill(const vb_attention_args &args, vb_stream *stream, void *parts = nullptr);
int64_t attention_prefill_parts_bytes(const vb_attention_args &args, vb_stream *stream); // of that memory
vb_status attention_prefill_whole(const vb_attention_args &args, vb_stream *stream); // not from the stream's workspace
vb_status attention_prefill_sm90(const vb_attention_args &args, vb_stream *stream);
// Over Q8_0, by a kernel for an F16 cache.
vb_status attention_prefill_q8(const vb_attention_args &args,
                               vb_status (*prefill)(const vb_attention_args &, vb_stream *), vb_stream *stream);
// Over copies with whole vectors of 16 bytes.
vb_status attention_padded(const vb_attention_args &a, vb_stream *stream);
vb_status attention_padded_sm90(const vb_attention_args &a, vb_stream *stream);
vb_status attention_padded_decode(const vb_attention_args &a, vb_stream *stream);
vb_status attention_f32(const vb_attention_args &args, vb_stream *stream);
vb_status attention_simt(const vb_attention_args &args, vb_stream *stream);

// Three kernels that leave args.out as the operand of a product with packed weights, [batch * seq][heads * dim] of F16.
// choose_attention_operand says when; linear/packed/many.cuh has the layout.
// They, and attention_decode_variants, set `flags` to 0 (half_flags of them, or null).
vb_status attention_decode_operand(const vb_attention_args &args, unsigned *flags, vb_stream *stream);
vb_status attention_prefill_halves(const vb_attention_args &args, unsigned *flags, vb_stream *stream);
vb_status attention_prefill_operand(const vb_attention_args &args, unsigned *flags, vb_stream *stream);

} // namespace vb
#endif
