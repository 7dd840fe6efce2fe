// attention_prefill.cu: attention of many query rows over a 16-bit cache, on tensor cores (FlashAttention-2, Dao 2023).
//
//   grid     tiles of 64 packed query rows, those with the most keys first
//   block    4 warps of 16 rows each; the block walks its keys in steps of KEYS
//   shared   queries [64][DIMS], then two stages of keys and values [KEYS][DIMS], 16-bit, swizzled: the next step is
//            copied while this one is multiplied. 80 KiB for 128 dimensions, so two blocks an SM
//   moves    queries and outputs once, keys and values once a tile (from the cache); 4 FLOPs a query element and key
//   bound    issue of instructions: a warp's products of mma.sync wait for each other and for the softmax between them
//   measured docs/experiments/2026-11-22-attention.md
//
// A warp keeps its scores in registers: the accumulators of q k^T have the layout that the left factor of the product
// with v needs. The softmax is online and in float32; masks are applied only in steps where some row needs them.

#include "attention/attention.cuh"
#include "arch/mma.cuh"

namespace vb {
namespace {

constexpr int warps = 4;
constexpr int threads = warps * 32;
constexpr int rows_per_tile = warps * 16;

template <class TQ, class TKV, int DIMS, int KEYS>
__global__ void __launch_bounds__(threads, DIMS <= 128 ? 2 : 1)
    attention_prefill_kernel(AttentionShape a, unsigned heads) {
#if __CUDA_ARCH__ >= 800
    constexpr int chunks = DIMS / 8; // of 16 bytes in a row
    constexpr unsigned tile_bytes = KEYS * DIMS * 2;
    extern __shared__ __align__(1024) uint4 shared[];
    const unsigned q_tile = shared_address(shared);
    const unsigned k_tiles = q_tile + rows_per_tile * DIMS * 2; // two stages
    const unsigned v_tiles = k_tiles + 2 * tile_bytes;
    __shared__ int range[2];
    wait_for_previous_kernel();
    release_next_kernel();
    const float minus_infinity = __uint_as_float(0xff800000u);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
    const unsigned from_last = blockIdx.x / heads, head = blockIdx.x - from_last * heads;
    const unsigned b = head / (unsigned)a.kv_heads, kv_head = head - b * (unsigned)a.kv_heads;
    const unsigned first_row = (a.tiles - 1 - from_last) * rows_per_tile;
    const int rows = (int)smaller<unsigned>(rows_per_tile, a.rows - first_row), dim = (int)a.dim;
    const KeyRange all = keys_of_tile(a, b, first_row, first_row + rows, range);

    const int64_t sequence = a.sequences ? a.sequences[b] : b;
    const int64_t cache = (sequence * a.kv_heads + kv_head) * a.kv_capacity * a.dim;
    // A thread copies one chunk of every rows_apart-th row. Chunks past the end are zeros, and are not read.
    constexpr int rows_apart = threads / chunks;
    const int copy_row = threadIdx.x / chunks, copy_chunk = threadIdx.x % chunks;
    const int64_t copy_from = cache + (int64_t)copy_row * dim + copy_chunk * 8;
    const int copy_end = copy_chunk * 8 < dim ? all.hi - copy_row : INT32_MIN;
    const auto copy_tile = [&](unsigned tiles, const void *from, int stage, int base) {
        const TKV *source = (const TKV *)from + copy_from + (int64_t)base * dim;
#pragma unroll
        for (int i = 0; i < KEYS / rows_apart; i++)
            copy_async(tiles + stage * tile_bytes + swizzled(i * rows_apart + copy_row, copy_chunk, chunks),
                       source + i * rows_apart * dim, base + i * rows_apart < copy_end);
    };
    copy_tile(k_tiles, a.k, 0, all.lo);
    copy_async_commit();
    copy_tile(v_tiles, a.v, 0, all.lo);
    copy_async_commit();

    for (int item = threadIdx.x; item < rows_per_tile * chunks; item += threads) {
        const int row = item / chunks, chunk = item % chunks;
        shared[swizzled(row, chunk, chunks) / 16] =
            row < rows && chunk * 8 < dim
                ? pack_eight<TKV>((const TQ *)a.q + query_offset(a, b, kv_head, first_row + row) + chunk * 8)
                : make_uint4(0, 0, 0, 0);
    }
    // Rows g and g + 8 of the warp.
    KeyRange seen[2];
    int common_lo = all.lo, common_hi = all.hi; // the keys that all 16 rows of the warp see
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int row = warp * 16 + g + 8 * h;
        seen[h] = row < rows ? keys_of(a, b, (first_row + row) / a.group) : all;
        common_lo = larger(common_lo, seen[h].lo);
        common_hi = smaller(common_hi, seen[h].hi);
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        common_lo = larger(common_lo, __shfl_xor_sync(all_lanes, common_lo, offset));
        common_hi = smaller(common_hi, __shfl_xor_sync(all_lanes, common_hi, offset));
    }
    __syncthreads();

    // In a tile aligned to its rows, chunk 2i + x of a row lies at the address of chunk x with bits 5.. flipped by i.
    const unsigned q_at = q_tile + swizzled(warp * 16 + lane % 16, lane / 16, chunks);
    const unsigned k_at = k_tiles + swizzled(lane / 16 * 8 + lane % 8, lane / 8 % 2, chunks);
    const unsigned v_at = v_tiles + swizzled(lane % 16, lane / 16, chunks);
    // dimensions 16i..
    const auto load_query = [&](unsigned (&fragment)[4], int i) { load_matrices(fragment, q_at ^ 32 * i); };
    constexpr bool roomy = DIMS <= 128; // the registers hold the queries
    unsigned held[roomy ? DIMS / 16 : 1][4];
    if (roomy)
#pragma unroll
        for (int i = 0; i < DIMS / 16; i++) load_query(held[roomy ? i : 0], i);

    const float scale = a.scale * log2_e;
    float max[2] = {minus_infinity, minus_infinity}, sum[2] = {0.0f, 0.0f};
    float out[DIMS / 8][4] = {};
    int stage = 0;
    for (int base = all.lo; base < all.hi; base += KEYS, stage ^= 1) {
        // Groups under way: keys and values of this step. All warps have left the other stage.
        copy_async_wait<1>();
        __syncthreads();
        copy_tile(k_tiles, a.k, stage ^ 1, base + KEYS);
        copy_async_commit();

        float score[KEYS / 8][4] = {};
        const unsigned k_tile = k_at + stage * tile_bytes, v_tile = v_at + stage * tile_bytes;
#pragma unroll
        for (int i = 0; i < DIMS / 16; i++) {
            unsigned q[4];
            if (!roomy) load_query(q, i);
#pragma unroll
            for (int j = 0; j < KEYS / 16; j++) {
                unsigned k[4]; // keys 16j.. and 16j + 8.., each at dimensions 16i.. and 16i + 8..
                load_matrices(k, (k_tile ^ 32 * i) + j * 16 * DIMS * 2);
                mma<TKV>(score[2 * j], roomy ? held[roomy ? i : 0] : q, k[0], k[1]);
                mma<TKV>(score[2 * j + 1], roomy ? held[roomy ? i : 0] : q, k[2], k[3]);
            }
        }
        const bool masked = base < common_lo || base + KEYS > common_hi;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float greatest = max[h];
#pragma unroll
            for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    float s = score[j][2 * h + e] * scale;
                    const int key = base + 8 * j + 2 * c + e;
                    if (masked && (key < seen[h].lo || key >= seen[h].hi)) s = minus_infinity;
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
            for (int j = 0; j < KEYS / 8; j++)
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
        copy_async_wait<1>();
        __syncthreads();
        copy_tile(v_tiles, a.v, stage ^ 1, base + KEYS);
        copy_async_commit();
#pragma unroll
        for (int j = 0; j < KEYS / 16; j++) {
            const unsigned weights[4] = {pack<TKV>(score[2 * j][0], score[2 * j][1]),
                                         pack<TKV>(score[2 * j][2], score[2 * j][3]),
                                         pack<TKV>(score[2 * j + 1][0], score[2 * j + 1][1]),
                                         pack<TKV>(score[2 * j + 1][2], score[2 * j + 1][3])};
#pragma unroll
            for (int i = 0; i < DIMS / 16; i++) {
                unsigned v[4]; // keys 16j.. and 16j + 8.. at dimensions 16i.., then at 16i + 8..
                load_matrices_transposed(v, (v_tile ^ 32 * i) + j * 16 * DIMS * 2);
                mma<TKV>(out[2 * i], weights, v[0], v[1]);
                mma<TKV>(out[2 * i + 1], weights, v[2], v[3]);
            }
        }
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float part = warp_reduce<Sum, 4>(sum[h]);
        const int row = warp * 16 + g + 8 * h;
        if (row >= rows) continue;
        const float total = total_of(a, kv_head, first_row + row, max[h], part);
        const float norm = total > 0.0f ? 1.0f / total : total; // no key: zeros; NaN stays
        TQ *const target = (TQ *)a.out + query_offset(a, b, kv_head, first_row + row);
#pragma unroll
        for (int i = 0; i < DIMS / 8; i++) {
            if (8 * i >= dim) break;
            Vec<TQ, 2> two;
            two.at[0] = from_float<TQ>(out[i][2 * h] * norm), two.at[1] = from_float<TQ>(out[i][2 * h + 1] * norm);
            *reinterpret_cast<Vec<TQ, 2> *>(target + 8 * i + 2 * c) = two;
        }
    }
#endif
}

template <class TQ, class TKV, int DIMS, int KEYS>
vb_status launch_prefill(const vb_attention_args &a, vb_stream *stream) {
    const AttentionShape shape = shape_of(a, rows_per_tile);
    const unsigned heads = (unsigned)(a.batch * a.kv_heads);
    return launch_overlapped(stream, shape.tiles * heads, threads, (rows_per_tile + 4 * KEYS) * DIMS * 2,
                             attention_prefill_kernel<TQ, TKV, DIMS, KEYS>, shape, heads);
}

// 256 dimensions: 64 + 4 * 32 rows of 512 bytes are 96 KiB, within every GPU's limit since 8.0 (99 KiB).
template <class TQ, class TKV>
vb_status launch_prefill(const vb_attention_args &a, vb_stream *stream) {
    if (a.dim <= 64) return launch_prefill<TQ, TKV, 64, 64>(a, stream);
    if (a.dim <= 128) return launch_prefill<TQ, TKV, 128, 64>(a, stream);
    return launch_prefill<TQ, TKV, 256, 32>(a, stream);
}

} // namespace

vb_status attention_prefill(const vb_attention_args &a, vb_stream *stream) {
    if (a.type == VB_F32 && a.kv_type == VB_F16) return launch_prefill<float, half>(a, stream);
    if (a.type == VB_F32 && a.kv_type == VB_BF16) return launch_prefill<float, bf16>(a, stream);
    if (a.type == VB_F16 && a.kv_type == VB_F16) return launch_prefill<half, half>(a, stream);
    return launch_prefill<bf16, bf16>(a, stream);
}

} // namespace vb
