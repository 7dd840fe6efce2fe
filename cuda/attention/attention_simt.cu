// attention_simt.cu: attention in float32 arithmetic, for odd sizes, GPUs before 8.0, and variants of
// some models: capped scores, sinks, chunks, rings, values of another size than keys.
//
//   grid     tiles * parts; a tile is ROWS packed query rows, a part a range of keys
//   block    128 threads in groups of LANES, which take a key at a time. A lane holds DIMS / LANES elements of the key,
//            the value and ROWS outputs in registers, and a running maximum and sum of its own (online softmax,
//            Milakov & Gimelshein 2018); groups, warps and parts come together at the end
//   shared   ROWS * DIMS floats of queries, 4 * ROWS * DIMS of the warps' outputs
//   moves    the keys and values once a tile, 4 * ROWS FLOPs an element
//   bound    few tiles: memory bandwidth; many: the fp32 units and the cache's bandwidth

#include "attention/attention.cuh"
#include "quant.h"

namespace vb {
namespace {

constexpr int threads = 128;
constexpr int warps = threads / 32;

// Elements of a row at d.. of which `left` exist; zeros for the rest.
template <class T>
VB_DEVICE void load4(float (&x)[4], const T *row, int d, int left, bool vectors) {
    if (vectors && left >= 4) {
        const Vec<T, 4> four = *reinterpret_cast<const Vec<T, 4> *>(row + d);
#pragma unroll
        for (int e = 0; e < 4; e++) x[e] = to_float(four.at[e]);
    } else {
#pragma unroll
        for (int e = 0; e < 4; e++) x[e] = e < left ? to_float(row[d + e]) : 0.0f;
    }
}

VB_DEVICE void load4(float (&x)[4], const vb_block_q8_0 *row, int d, int left, bool) { // dim is a multiple of 32
    const vb_block_q8_0 *const block = row + d / VB_QK;
#pragma unroll
    for (int e = 0; e < 4; e++)
        x[e] = left > 0 ? to_float(*reinterpret_cast<const half *>(&block->d)) * (float)block->qs[d % VB_QK + e] : 0.0f;
}

// Elements of a row as TKV stores them.
template <class TKV>
VB_DEVICE int row_length(int dim) {
    return dim;
}
template <>
VB_DEVICE int row_length<vb_block_q8_0>(int dim) {
    return dim / VB_QK;
}

template <class TQ, class TKV, int DIMS, int ROWS, int LANES>
__global__ void __launch_bounds__(threads)
    attention_simt_kernel(AttentionShape a, AttentionParts parts, bool vectors) {
    constexpr int per_lane = DIMS / LANES, vectors_per_lane = per_lane / 4, keys_per_step = threads / LANES;
    __shared__ __align__(16) float query[ROWS * DIMS]; // read four at a time
    __shared__ float warp_out[warps * ROWS * DIMS];
    __shared__ float2 warp_stats[warps][ROWS];
    __shared__ int range[2];
    __shared__ unsigned flag;
    wait_for_previous_kernel();
    release_next_kernel();
    const float minus_infinity = __uint_as_float(0xff800000u);
    const unsigned tile = blockIdx.x / parts.count, head = tile / a.tiles, b = head / (unsigned)a.kv_heads;
    const unsigned kv_head = head - b * (unsigned)a.kv_heads, first_row = (tile - head * a.tiles) * ROWS;
    const int part = int(blockIdx.x - tile * parts.count);
    const int rows = (int)smaller<unsigned>(ROWS, a.rows - first_row);
    const KeyRange all = keys_of_tile(a, b, first_row, first_row + rows, range);
    KeyRange mine;
    const int active = cut_keys(&mine, all, part, parts.count, keys_per_step);
    if (part >= active) return;

    for (int i = threadIdx.x; i < ROWS * DIMS; i += threads) {
        const int row = i / DIMS, d = i % DIMS;
        query[i] =
            row < rows && d < a.dim
                ? to_float(((const TQ *)a.q)[query_offset(a, b, kv_head, first_row + row) + d]) * (a.scale * log2_e)
                : 0.0f;
    }
    __syncthreads();

    KeyRange seen[ROWS];
    float max[ROWS], sum[ROWS], out[ROWS][per_lane];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        seen[r] = r < rows ? keys_of(a, b, token_of(a, first_row + r)) : KeyRange{0, 0};
        max[r] = minus_infinity;
        sum[r] = 0.0f;
#pragma unroll
        for (int e = 0; e < per_lane; e++) out[r][e] = 0.0f;
    }
    const int64_t sequence = a.sequences ? a.sequences[b] : b;
    const int dim = (int)a.dim, values = a.values, k_size = row_length<TKV>(dim), v_size = row_length<TKV>(values);
    const int64_t cache = (sequence * a.kv_heads + kv_head) * a.kv_capacity;
    const float cap = a.soft_cap * log2_e;
    const int lane = threadIdx.x % LANES;
    for (int base = mine.lo; base < mine.hi; base += keys_per_step) {
        const int key = base + threadIdx.x / LANES;
        const bool valid = key < mine.hi;
        const int64_t slot = cache + (a.ring ? key % (int)a.kv_capacity : key);
        const TKV *k_row = (const TKV *)a.k + slot * k_size, *v_row = a.v ? (const TKV *)a.v + slot * v_size : k_row;
        float k[vectors_per_lane][4], v[vectors_per_lane][4];
#pragma unroll
        for (int j = 0; j < vectors_per_lane; j++) {
            const int d = (j * LANES + lane) * 4;
            load4(k[j], k_row, d, valid ? dim - d : 0, vectors);
            load4(v[j], v_row, d, valid ? values - d : 0, vectors);
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            float score = 0.0f;
#pragma unroll
            for (int j = 0; j < vectors_per_lane; j++) {
                const float4 q = reinterpret_cast<const float4 *>(query + r * DIMS)[j * LANES + lane];
                score += q.x * k[j][0] + q.y * k[j][1] + q.z * k[j][2] + q.w * k[j][3];
            }
            score = warp_reduce<Sum, LANES>(score);
            if (cap > 0.0f) score = cap * tanhf(score / cap);
            if (valid && key >= seen[r].lo && key < seen[r].hi) {
                const float greater = Max::combine(max[r], score);
                const float from = greater == minus_infinity ? 0.0f : greater;
                const float keep = exp2_fast(max[r] - from), weight = exp2_fast(score - from);
                max[r] = greater;
                sum[r] = sum[r] * keep + weight;
#pragma unroll
                for (int j = 0; j < vectors_per_lane; j++)
#pragma unroll
                    for (int e = 0; e < 4; e++) out[r][j * 4 + e] = out[r][j * 4 + e] * keep + weight * v[j][e];
            }
        }
    }

    // The keys of a warp, then the four warps.
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float all_max = max[r];
#pragma unroll
        for (int offset = LANES; offset < 32; offset *= 2)
            all_max = Max::combine(all_max, __shfl_xor_sync(all_lanes, all_max, offset));
        const float scale = exp2_fast(max[r] - (all_max == minus_infinity ? 0.0f : all_max));
        sum[r] *= scale;
#pragma unroll
        for (int offset = LANES; offset < 32; offset *= 2) sum[r] += __shfl_xor_sync(all_lanes, sum[r], offset);
        const int warp = threadIdx.x / 32;
        if (threadIdx.x % 32 == 0) warp_stats[warp][r] = make_float2(all_max, sum[r]);
#pragma unroll
        for (int e = 0; e < per_lane; e++) {
            float x = out[r][e] * scale;
#pragma unroll
            for (int offset = LANES; offset < 32; offset *= 2) x += __shfl_xor_sync(all_lanes, x, offset);
            if (threadIdx.x % 32 < LANES)
                warp_out[(warp * ROWS + r) * DIMS + (e / 4 * LANES + lane) * 4 + e % 4] = x;
        }
    }
    __syncthreads();
    const int64_t slot = ((int64_t)tile * parts.count + part) * ROWS;
    for (int i = threadIdx.x; i < rows * DIMS; i += threads) {
        const int row = i / DIMS, d = i % DIMS;
        float block_max = minus_infinity, block_sum = 0.0f, x = 0.0f;
#pragma unroll
        for (int w = 0; w < warps; w++) block_max = Max::combine(block_max, warp_stats[w][row].x);
        const float base = block_max == minus_infinity ? 0.0f : block_max;
#pragma unroll
        for (int w = 0; w < warps; w++) {
            const float weight = exp2_fast(warp_stats[w][row].x - base);
            block_sum += warp_stats[w][row].y * weight;
            x += warp_out[(w * ROWS + row) * DIMS + d] * weight;
        }
        if (active > 1) { // sinks are added with the parts
            parts.partial[(slot + row) * DIMS + d] = x;
            if (d == 0) parts.stats[slot + row] = make_float2(block_max, block_sum);
        } else if (d < values) {
            const float sink = sink_of(a, kv_head, first_row + row), greatest = fmaxf(base, sink),
                        weight = exp2_fast(base - greatest);
            const float all = a.sinks ? block_sum * weight + exp2_fast(sink - greatest) : block_sum;
            ((TQ *)a.out)[out_offset(a, b, kv_head, first_row + row) + d] =
                from_float<TQ>(a.sinks ? x * weight / all : x * (all > 0.0f ? 1.0f / all : all));
        }
    }
    if (active > 1)
        combine_parts<TQ>(a, parts, tile, ROWS, active, active, b, kv_head, first_row, rows, DIMS, &flag);
}

template <class TQ, class TKV, int DIMS, int ROWS, int LANES = 8>
vb_status launch_simt(const vb_attention_args &a, vb_stream *stream) {
    const AttentionShape shape = shape_of(a, ROWS);
    const int64_t tiles = shape.tiles * a.batch * a.kv_heads;
    AttentionParts parts;
    VB_TRY(plan_parts(&parts, tiles, ROWS, DIMS, ceil_div<int64_t>(a.kv_len, 4 * (threads / LANES)),
                       4 * multiprocessors(stream), stream));
    const bool vectors = a.dim % 4 == 0 && shape.values % 4 == 0 && aligned16(a.k, a.v);
    return launch_overlapped(stream, (unsigned)(tiles * parts.count), threads, 0,
                             attention_simt_kernel<TQ, TKV, DIMS, ROWS, LANES>, shape, parts, vectors);
}

template <class TQ, class TKV>
vb_status launch_simt(const vb_attention_args &a, vb_stream *stream) {
    switch (attention_widest(&a)) { // attention_simt_rows
    case 64: return launch_simt<TQ, TKV, 64, 8>(a, stream);
    case 128: return launch_simt<TQ, TKV, 128, 4>(a, stream);
    case 256: return launch_simt<TQ, TKV, 256, 2>(a, stream);
    default: return launch_simt<TQ, TKV, 576, 2, 16>(a, stream);
    }
}

} // namespace

vb_status attention_simt(const vb_attention_args &a, vb_stream *stream) {
    if (a.type == VB_F32 && a.kv_type == VB_F32) return launch_simt<float, float>(a, stream);
    if (a.type == VB_F32 && a.kv_type == VB_F16) return launch_simt<float, half>(a, stream);
    if (a.type == VB_F32 && a.kv_type == VB_BF16) return launch_simt<float, bf16>(a, stream);
    if (a.type == VB_F32 && a.kv_type == VB_Q8_0) return launch_simt<float, vb_block_q8_0>(a, stream);
    if (a.type == VB_F16 && a.kv_type == VB_F16) return launch_simt<half, half>(a, stream);
    return launch_simt<bf16, bf16>(a, stream);
}

} // namespace vb
