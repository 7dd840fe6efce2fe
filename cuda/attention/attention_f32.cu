// attention_f32.cu: attention of many query rows over a float32 cache, on tensor cores with float32's accuracy
// (gemm/tf32_parts.cuh); heads of any size up to 256 and any alignment (FlashAttention-2, Dao 2023).
//
//   grid     tiles of 16 packed query rows a warp, tiles with the most keys first; parts of their keys
//   block    4 warps, of more than 192 dimensions 8; the block walks its keys in steps of KEYS. Of few tiles and keys
//            twice as many warps: two share the rows of a tile, and each has half of every step
//   shared   queries [16 * WARPS][DIMS + 4], two stages of keys and values [KEYS][DIMS + 4] (101 KiB for 128 dims,
//            199 for 256); small instances one, of which values are copied while scores are computed, then keys
//   moves    queries and outputs once, keys and values once a tile (from the cache); 12 FLOPs a query element and key
//   bound    tensor cores and the splitting of numbers
//   measured docs/experiments/2026-11-22-shapes.md
//
// A warp keeps its scores in registers. The accumulators of q k^T are the left factor of the product with v if keys 2t
// and 2t + 1 of each eight are called t and t + 4. The softmax is online and in float32.
// Tensor cores add sums of up to 32 products; registers add these sums up.

#include "arch/sm90.cuh"
#include "arch/unaligned.cuh"
#include "attention/attention.cuh"
#include "gemm/tf32_parts.cuh"

namespace vb {
namespace {

// c[i] += a b[i] of numbers in two parts each. A product waits for the product before it with the same sum.
// So each of the three products has a sum of its own.
template <int N>
struct Sums {
    float high[N][4] = {}, left[N][4] = {}, right[N][4] = {};

    VB_DEVICE void add(const unsigned (&high_a)[4], const unsigned (&low_a)[4], const unsigned (&high_b)[N][2],
                       const unsigned (&low_b)[N][2]) {
#pragma unroll
        for (int i = 0; i < N; i++) mma_tf32(left[i], low_a, high_b[i][0], high_b[i][1]);
#pragma unroll
        for (int i = 0; i < N; i++) mma_tf32(right[i], high_a, low_b[i][0], low_b[i][1]);
#pragma unroll
        for (int i = 0; i < N; i++) mma_tf32(high[i], high_a, high_b[i][0], high_b[i][1]);
    }
    VB_DEVICE float at(int i, int e) const { return high[i][e] + (left[i][e] + right[i][e]); }
};

// A tile of rows of `dim` floats one after the other, which begin anywhere. A row is copied by aligned vectors.
// So its first element lies up to three floats into its row of the tile, equally far in rows four apart.
template <int DIMS, int KEYS, int THREADS>
struct CacheTile {
    static constexpr int width = DIMS + 4, chunks = width / 4;
    const float *rows;
    int dim;

    VB_DEVICE int before(int row) const { return (int)((uintptr_t)(rows + (int64_t)row * dim) / 4 % 4); }
    // Rows `first`.. below `end`; zeros for the rest of the tile, as far as products reach.
    VB_DEVICE void copy(float *to, int first, int end) const {
        const float *const aligned = rows - before(0);
        const int used = (dim + 7) / 8 * 8 + 3; // products reach eight whole dimensions
#pragma unroll 4
        for (int item = threadIdx.x; item < KEYS * chunks; item += THREADS) {
            const int row = item / chunks, column = item % chunks * 4;
            if (column >= used) continue;
            const int late = before(first + row), left = first + row < end ? late + dim - column : 0;
            const int bytes = larger(0, smaller(4, left)) * 4;
            copy_async_part(shared_address(to + row * width + column),
                            bytes ? rows + (int64_t)(first + row) * dim - late + column : aligned, bytes);
        }
    }
};

// SHARES warps have the same rows, and KEYS / SHARES keys of each step. Code for Hopper, whose shared memory holds the
// others, leaves out small tiles.
template <int DIMS, bool SMALL, int WARPS, int SHARES>
__global__ void __launch_bounds__(WARPS * SHARES * 32, ATTENTION_F32_PLACES(DIMS, SHARES))
    attention_f32_kernel(AttentionShape a, unsigned heads, AttentionParts parts) {
#if __CUDA_ARCH__ >= 800
#ifdef VB_SM90A
    if (SMALL) return __trap();
#endif
    constexpr int KEYS = ATTENTION_F32_KEYS(DIMS), threads = WARPS * SHARES * 32, own = KEYS / SHARES;
    using Cache = CacheTile<DIMS, KEYS, threads>;
    constexpr int rows_per_tile = WARPS * 16, width = Cache::width, tile_floats = KEYS * width;
    static_assert(own % 8 == 0, "whole fragments");
    extern __shared__ __align__(16) float shared[];
    float *const queries = shared, *const stages = shared + rows_per_tile * width;
    __shared__ int range[2];
    wait_for_previous_kernel();
    release_next_kernel();
    const float minus_infinity = __uint_as_float(0xff800000u);
    const int warp = threadIdx.x / 32 % WARPS, share = SHARES > 1 ? threadIdx.x / 32 / WARPS : 0;
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const unsigned block = blockIdx.x / parts.count, part = blockIdx.x - block * parts.count;
    const unsigned from_last = block / heads, head = block - from_last * heads;
    const unsigned b = head / (unsigned)a.kv_heads, kv_head = head - b * (unsigned)a.kv_heads;
    const unsigned row_tile = a.tiles - 1 - from_last, tile = head * a.tiles + row_tile;
    const unsigned first_row = row_tile * rows_per_tile;
    const int rows = (int)smaller<unsigned>(rows_per_tile, a.rows - first_row), dim = (int)a.dim;
    const KeyRange all = keys_of_tile(a, b, first_row, first_row + rows, range);
    KeyRange mine;
    const int active = cut_keys(&mine, all, (int)part, parts.count, KEYS);
    const int64_t first_slot = ((int64_t)tile * parts.count + part) * rows_per_tile;
    if ((int)part >= active) {
        for (int row = threadIdx.x; row < rows; row += threads)
            parts.stats[first_slot + row] = make_float2(minus_infinity, 0.0f);
        return;
    }

    const int64_t sequence = a.sequences ? a.sequences[b] : b;
    const int64_t cache = (sequence * a.kv_heads + kv_head) * a.kv_capacity * a.dim + (int64_t)mine.lo * a.dim;
    const Cache keys = {(const float *)a.k + cache, dim}, values = {(const float *)a.v + cache, dim};
    const int count = mine.hi - mine.lo;
    const auto copy_step = [&](int stage, int first) {
        keys.copy(stages + stage * 2 * tile_floats, first, count);
        values.copy(stages + (stage * 2 + 1) * tile_floats, first, count);
    };
    if (SMALL) keys.copy(stages, 0, count);
    else copy_step(0, 0);
#pragma unroll 4
    for (int i = share; i < 16; i += SHARES) { // a warp its own rows; nobody reads results of rows past the last
        const int row = warp * 16 + i;
        if (row >= rows) break;
        const float *const from = (const float *)a.q + query_offset(a, b, kv_head, first_row + row);
        const unsigned to = shared_address(queries + row * width);
        if (dim % 4 == 0 && (uintptr_t)from % 16 == 0) {
            for (int d = lane * 4; d < DIMS; d += 128)
                copy_async_part(to + d * 4, d < dim ? from + d : from, d < dim ? 16 : 0);
        } else {
#pragma unroll
            for (int d = lane; d < DIMS; d += 32) copy_async_word(to + d * 4, d < dim ? from + d : from, d < dim);
        }
    }
    copy_async_commit();
    // Rows g and g + 8 of the warp.
    KeyRange seen[2];
    int common_lo = mine.lo, common_hi = mine.hi; // the keys that all 16 rows of the warp see
    int some_lo = mine.hi, some_hi = mine.lo;     // the keys that any of them sees
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int row = warp * 16 + g + 8 * h;
        seen[h] = row < rows ? keys_of(a, b, token_of(a, first_row + row)) : mine;
        common_lo = larger(common_lo, seen[h].lo);
        common_hi = smaller(common_hi, seen[h].hi);
        if (row < rows) some_lo = smaller(some_lo, seen[h].lo), some_hi = larger(some_hi, seen[h].hi);
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        common_lo = larger(common_lo, __shfl_xor_sync(all_lanes, common_lo, offset));
        common_hi = smaller(common_hi, __shfl_xor_sync(all_lanes, common_hi, offset));
        some_lo = smaller(some_lo, __shfl_xor_sync(all_lanes, some_lo, offset));
        some_hi = larger(some_hi, __shfl_xor_sync(all_lanes, some_hi, offset));
    }
    // This lane's rows of the tiles: keys g of each eight, values of keys 2t and 2t + 1.
    const float *const query = queries + (warp * 16 + g) * width + t;
    const int key_at = g * width + keys.before(g) + t;
    const int value_at[2] = {2 * t * width + values.before(2 * t) + g,
                             (2 * t + 1) * width + values.before(2 * t + 1) + g};
    const float scale = a.scale * log2_e;
    float max[2] = {minus_infinity, minus_infinity}, sum[2] = {0.0f, 0.0f};
    float out[DIMS / 8][4] = {};
    int stage = 0;
    for (int first = 0; first < count; first += KEYS, stage ^= 1) {
        copy_async_wait<0>();
        __syncthreads(); // all have left the other stage
        if (SMALL) {
            values.copy(stages + tile_floats, first, count);
            copy_async_commit();
        } else if (first + KEYS < count) {
            copy_step(stage ^ 1, first + KEYS);
            copy_async_commit();
        }
        const int base = mine.lo + first + share * own, at = SMALL ? 0 : stage * 2;
        const bool unseen = base >= some_hi || base + own <= some_lo; // of the whole warp
        if (!SMALL && unseen) continue;
        const float *const key_tile = stages + at * tile_floats + share * own * width + key_at;
        const float *const value_tile = stages + (at + 1) * tile_floats + share * own * width;

        float score[own / 8][4] = {};
#pragma unroll
        for (int d0 = 0; d0 < DIMS; d0 += 32) {
            if (d0 >= dim || (SMALL && unseen)) break;
            Sums<own / 8> some;
            const auto add_eight = [&](int d) {
                unsigned high_q[4], low_q[4];
#pragma unroll
                for (int e = 0; e < 4; e++)
                    cut_tf32(query[e % 2 * 8 * width + d + e / 2 * 4], high_q[e], low_q[e]);
                unsigned high[own / 8][2], low[own / 8][2];
#pragma unroll
                for (int j = 0; j < own / 8; j++)
#pragma unroll
                    for (int e = 0; e < 2; e++) cut_tf32(key_tile[j * 8 * width + d + e * 4], high[j][e], low[j][e]);
                some.add(high_q, low_q, high, low);
            };
            if (d0 + 24 < dim) { // without branches, behind which the next loads would wait
#pragma unroll
                for (int d = d0; d < d0 + 32; d += 8) add_eight(d);
            } else {
#pragma unroll 1
                for (int d = d0; d < dim; d += 8) add_eight(d);
            }
#pragma unroll
            for (int j = 0; j < own / 8; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) score[j][e] += some.at(j, e);
        }
        if (SMALL) {
            copy_async_wait<0>();
            __syncthreads(); // the values are there, and all have left the keys
            if (first + KEYS < count) {
                keys.copy(stages, first + KEYS, count);
                copy_async_commit();
            }
            if (unseen) continue;
        }
        const bool masked = base < common_lo || base + own > common_hi;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float greatest = max[h];
#pragma unroll
            for (int j = 0; j < own / 8; j++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    float s = score[j][2 * h + e] * scale;
                    const int key = base + 8 * j + 2 * t + e;
                    if (masked && (key < seen[h].lo || key >= seen[h].hi || key >= mine.hi)) s = minus_infinity;
                    score[j][2 * h + e] = s;
                    greatest = Max::combine(greatest, s);
                }
            greatest = Max::combine(greatest, __shfl_xor_sync(all_lanes, greatest, 1));
            greatest = Max::combine(greatest, __shfl_xor_sync(all_lanes, greatest, 2));
            const float from = greatest == minus_infinity ? 0.0f : greatest;
            const float keep = exp2_fast(max[h] - from);
            max[h] = greatest;
            sum[h] *= keep;
#pragma unroll
            for (int j = 0; j < own / 8; j++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    score[j][2 * h + e] = exp2_fast(score[j][2 * h + e] - from);
                    sum[h] += score[j][2 * h + e];
                }
            // After the first steps maxima seldom grow.
            if (__any_sync(all_lanes, keep != 1.0f))
#pragma unroll
                for (int i = 0; i < DIMS / 8; i++) out[i][2 * h] *= keep, out[i][2 * h + 1] *= keep;
        }
        unsigned high_w[own / 8][4], low_w[own / 8][4];
#pragma unroll
        for (int j = 0; j < own / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) // rows g and g + 8 of key 2t, then of 2t + 1
                cut_tf32(score[j][e % 2 * 2 + e / 2], high_w[j][e], low_w[j][e]);
#pragma unroll
        for (int i = 0; i < DIMS / 8; i += 4) {
            if (8 * i >= dim) break;
            Sums<4> some;
#pragma unroll
            for (int j = 0; j < own / 8; j++) {
                unsigned high[4][2], low[4][2];
#pragma unroll
                for (int u = 0; u < 4; u++)
#pragma unroll
                    for (int e = 0; e < 2; e++)
                        cut_tf32(value_tile[j * 8 * width + value_at[e] + 8 * (i + u)], high[u][e], low[u][e]);
                some.add(high_w[j], low_w[j], high, low);
            }
#pragma unroll
            for (int u = 0; u < 4; u++)
#pragma unroll
                for (int e = 0; e < 4; e++) out[i + u][e] += some.at(u, e);
        }
    }
    if (SHARES > 1) { // the first of them gets the sums of the others
        constexpr int numbers = DIMS / 2 + 4; // of a thread
        static_assert((SHARES - 1) * WARPS * numbers * 32 <= rows_per_tile * width + (SMALL ? 2 : 4) * tile_floats,
                      "room for the others");
        float *const others = shared + warp * numbers * 32 + lane; // [share][warp][number][lane]
        copy_async_wait<0>();
        __syncthreads(); // all have left queries, keys and values
        if (share > 0) {
            float *const other = others + (share - 1) * WARPS * numbers * 32;
#pragma unroll
            for (int h = 0; h < 2; h++) other[h * 32] = max[h], other[(2 + h) * 32] = sum[h];
#pragma unroll
            for (int i = 0; i < DIMS / 8; i++)
#pragma unroll
                for (int e = 0; e < 4; e++) other[(4 + 4 * i + e) * 32] = out[i][e];
        }
        __syncthreads();
        if (share > 0) return;
#pragma unroll
        for (int next = 0; next < 2 * (SHARES - 1); next++) {
            const int h = next % 2;
            const float *const other = others + next / 2 * WARPS * numbers * 32;
            const float its = other[h * 32], greatest = Max::combine(max[h], its),
                        from = greatest == minus_infinity ? 0.0f : greatest, keep = exp2_fast(max[h] - from),
                        take = exp2_fast(its - from);
            max[h] = greatest, sum[h] = sum[h] * keep + other[(2 + h) * 32] * take;
#pragma unroll
            for (int i = 0; i < DIMS / 8; i++)
#pragma unroll
                for (int e = 2 * h; e < 2 * h + 2; e++)
                    out[i][e] = out[i][e] * keep + other[(4 + 4 * i + e) * 32] * take;
        }
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float all_keys = warp_reduce<Sum, 4>(sum[h]);
        const int row = warp * 16 + g + 8 * h;
        if (row >= rows) continue;
        const int64_t slot = first_slot + row;
        const float total = total_of(a, kv_head, first_row + row, max[h], all_keys);
        // No key: zeros; NaN stays.
        const float norm = parts.count > 1 ? 1.0f : total > 0.0f ? 1.0f / total : total;
        float *const target = parts.count > 1 ? parts.partial + slot * DIMS
                                         : (float *)a.out + query_offset(a, b, kv_head, first_row + row);
        if (parts.count > 1 && t == 0) parts.stats[slot] = make_float2(max[h], all_keys);
#pragma unroll
        for (int i = 0; i < DIMS / 8; i++) {
            if (8 * i + 2 * t < dim) target[8 * i + 2 * t] = out[i][2 * h] * norm;
            if (8 * i + 2 * t + 1 < dim) target[8 * i + 2 * t + 1] = out[i][2 * h + 1] * norm;
        }
    }
#endif
}

template <int DIMS, bool SMALL, int WARPS, int SHARES>
vb_status launch_f32(const vb_attention_args &a, vb_stream *stream) {
    constexpr int keys = ATTENTION_F32_KEYS(DIMS), tile_rows = WARPS * 16;
    constexpr int bytes = (tile_rows + (SMALL ? 2 : 4) * keys) * (DIMS + 4) * (int)sizeof(float);
    const AttentionShape shape = shape_of(a, tile_rows);
    const unsigned heads = (unsigned)(a.batch * a.kv_heads);
    const int64_t tiles = (int64_t)shape.tiles * heads;
    const int64_t places = attention_f32_places(DIMS, SHARES, shared_of_multiprocessor(stream), &gpu_of(stream));
    const int count = attention_parts(&a, tiles, tile_rows, keys, DIMS, places, 1.5e-5 * tile_rows * keys * DIMS);
    AttentionParts parts;
    VB_TRY(plan_parts(&parts, tiles, tile_rows, DIMS, count, count * tiles, stream));
    VB_TRY(launch_overlapped(stream, shape.tiles * heads * (unsigned)parts.count, WARPS * SHARES * 32, bytes,
                             attention_f32_kernel<DIMS, SMALL, WARPS, SHARES>, shape, heads, parts));
    return add_attention_parts<float>(shape, parts, tile_rows, DIMS, stream);
}

template <int DIMS>
vb_status run_f32(const vb_attention_args &a, vb_stream *stream) {
    constexpr int warps = ATTENTION_F32_WARPS(DIMS, 0), few = ATTENTION_F32_WARPS(DIMS, 1);
    constexpr bool has_small = DIMS == 128 || DIMS == 256, shared = DIMS <= ATTENTION_F32_SHARED_DIMS;
    const int shares = attention_f32_shares(&a, multiprocessors(stream));
    if (attention_f32_small(DIMS, &gpu_of(stream)))
        return shared && shares > 1 ? launch_f32<DIMS, has_small, few, shared ? 2 : 1>(a, stream)
                                    : launch_f32<DIMS, has_small, few, 1>(a, stream);
    if (shared && shares == 4) return launch_f32<DIMS, false, shared ? warps / 2 : warps, shared ? 4 : 1>(a, stream);
    if (shared && shares == 2) return launch_f32<DIMS, false, warps, shared ? 2 : 1>(a, stream);
    return launch_f32<DIMS, false, warps, 1>(a, stream);
}

} // namespace

vb_status attention_f32(const vb_attention_args &a, vb_stream *stream) {
    switch (attention_f32_dims(a.dim)) {
    case 64: return run_f32<64>(a, stream);
    case 96: return run_f32<96>(a, stream);
    case 128: return run_f32<128>(a, stream);
    case 192: return run_f32<192>(a, stream);
    default: return run_f32<256>(a, stream);
    }
}

} // namespace vb
