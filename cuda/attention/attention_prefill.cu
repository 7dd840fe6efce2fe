// attention_prefill.cu: attention of many query rows over a 16-bit cache, on tensor cores (FlashAttention-2, Dao 2023).
//
//   grid     tiles of 64 or 128 packed query rows, tiles with the most keys first. Where tiles are few, blocks share
//            the keys of each, and a second kernel adds their parts up
//   block    4 warps of 16 or 32 rows each; the block walks its keys in steps of KEYS
//   shared   queries [64 or 128][DIMS], then two stages of keys and values [KEYS][DIMS], 16-bit, swizzled: the next
//            step is copied while this one is multiplied. 80 or 96 KiB for 128 dimensions
//   moves    queries and outputs once, keys and values once a tile (from the cache); 4 FLOPs a query element and key
//   bound    of 16 rows a warp, fragments of keys and values from shared memory, each for two products; of 32 rows
//            issue: a warp's products of mma.sync wait for each other and for the softmax between them
//   measured docs/experiments/2026-11-22-attention.md
//
// A warp keeps its scores in registers: the accumulators of q k^T have the layout of the left factor of the product
// with v. The softmax is online and in float32. Masks are applied only in steps where some row needs them.

#include "attention/attention.cuh"
#include "linear/linear.cuh"
#include "arch/mma.cuh"
#include "arch/sm90.cuh"

namespace vb {
namespace {

constexpr int warps = 4;
constexpr int threads = warps * 32;

// SETS of 16 rows a warp. VARIANTS: scores may be capped, and keys lie in a ring. `operand`: out is the operand of a
// product with packed weights (linear/packed/many.cuh), and `flags` become 0.
template <class TQ, class TKV, int DIMS, int KEYS, int SETS, bool VARIANTS>
__global__ void __launch_bounds__(threads, DIMS <= 128 ? 2 : 1)
    attention_prefill_kernel(AttentionShape a, unsigned heads, AttentionParts parts, bool operand, unsigned *flags) {
#if __CUDA_ARCH__ >= 800
#ifdef VB_SM90A
    if constexpr (!VARIANTS) return __trap(); // launch_prefill
#endif
    constexpr int chunks = DIMS / 8; // of 16 bytes in a row
    constexpr int warp_rows = 16 * SETS, rows_per_tile = warps * warp_rows;
    constexpr unsigned tile_bytes = KEYS * DIMS * 2;
    extern __shared__ __align__(1024) uint4 shared[];
    const unsigned q_tile = shared_address(shared);
    const unsigned k_tiles = q_tile + rows_per_tile * DIMS * 2; // two stages
    const unsigned v_tiles = k_tiles + 2 * tile_bytes;
    __shared__ int range[2];
    wait_for_previous_kernel();
    release_next_kernel();
    if (flags && blockIdx.x == 0 && threadIdx.x < half_flags) flags[threadIdx.x] = 0;
    const float minus_infinity = __uint_as_float(0xff800000u);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
    const unsigned block = blockIdx.x / parts.count, part = blockIdx.x - block * parts.count;
    const unsigned from_last = block / heads, head = block - from_last * heads;
    const unsigned b = head / (unsigned)a.kv_heads, kv_head = head - b * (unsigned)a.kv_heads;
    const unsigned row_tile = a.tiles - 1 - from_last, tile = head * a.tiles + row_tile;
    const unsigned first_row = row_tile * rows_per_tile;
    const int rows = (int)smaller<unsigned>(rows_per_tile, a.rows - first_row), dim = (int)a.dim;
    KeyRange all; // of this part
    const int active =
        cut_keys(&all, keys_of_tile(a, b, first_row, first_row + rows, range), (int)part, parts.count, KEYS);
    if ((int)part >= active) {
        const int64_t first_slot = ((int64_t)tile * parts.count + part) * rows_per_tile;
        for (int row = threadIdx.x; row < rows; row += threads)
            parts.stats[first_slot + row] = make_float2(__uint_as_float(0xff800000u), 0.0f);
        return;
    }

    const int64_t sequence = a.sequences ? a.sequences[b] : b;
    const int64_t cache = (sequence * a.kv_heads + kv_head) * a.kv_capacity * a.dim;
    // A thread copies one chunk of every rows_apart-th row. Chunks past the end are zeros, and are not read.
    constexpr int rows_apart = threads / chunks;
    const int copy_row = threadIdx.x / chunks, copy_chunk = threadIdx.x % chunks;
    const int64_t copy_from = cache + (int64_t)copy_row * dim + copy_chunk * 8;
    const int copy_end = copy_chunk * 8 < dim ? all.hi - copy_row : INT32_MIN;
    // Elements between the place of a key in a ring, and where it were without one.
    const auto around = [&](int key) {
        return (int64_t)(key - (int)((unsigned)key % (unsigned)a.kv_capacity)) * dim;
    };
    const auto copy_tile = [&](unsigned tiles, const void *from, int stage, int base) {
        const TKV *source = (const TKV *)from + copy_from + (int64_t)base * dim;
#pragma unroll
        for (int i = 0; i < KEYS / rows_apart; i++) {
            const int key = base + i * rows_apart;
            copy_async(tiles + stage * tile_bytes + swizzled(i * rows_apart + copy_row, copy_chunk, chunks),
                       source + i * rows_apart * dim - (VARIANTS && a.ring ? around(key + copy_row) : 0),
                       key < copy_end);
        }
    };
    constexpr bool copied = sizeof(TQ) == 2; // queries, without a conversion
    const auto query = [&](int item) { // of which threads have one each, or null
        const int row = item / chunks, chunk = item % chunks;
        return row < rows && chunk * 8 < dim
                   ? (const TQ *)a.q + query_offset(a, b, kv_head, first_row + row) + chunk * 8
                   : nullptr;
    };
    const auto query_place = [](int item) { return swizzled(item / chunks, item % chunks, chunks); };
    if (copied) {
#pragma unroll 4
        for (int item = threadIdx.x; item < rows_per_tile * chunks; item += threads) {
            const TQ *const from = query(item);
            copy_async(q_tile + query_place(item), from ? from : a.q, from != nullptr);
        }
        copy_async_commit();
    }
    copy_tile(k_tiles, a.k, 0, all.lo);
    copy_async_commit();
    copy_tile(v_tiles, a.v, 0, all.lo);
    copy_async_commit();
    if (!copied) {
        constexpr int at_once = 4;
        for (int item = threadIdx.x; item < rows_per_tile * chunks; item += at_once * threads) {
            uint4 eight[at_once];
#pragma unroll
            for (int i = 0; i < at_once; i++) {
                const TQ *const from = query(item + i * threads);
                eight[i] = from ? pack_eight<TKV>(from) : make_uint4(0, 0, 0, 0);
            }
#pragma unroll
            for (int i = 0; i < at_once; i++) shared[query_place(item + i * threads) / 16] = eight[i];
        }
    }
    // Rows g, g + 8, ... of the warp.
    KeyRange seen[2 * SETS];
    int common_lo = all.lo, common_hi = all.hi; // the keys that all rows of the warp see
#pragma unroll
    for (int h = 0; h < 2 * SETS; h++) {
        const int row = warp * warp_rows + g + 8 * h;
        seen[h] = row < rows ? keys_of(a, b, (first_row + row) / a.group) : all;
        common_lo = larger(common_lo, seen[h].lo);
        common_hi = smaller(common_hi, seen[h].hi);
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        common_lo = larger(common_lo, __shfl_xor_sync(all_lanes, common_lo, offset));
        common_hi = smaller(common_hi, __shfl_xor_sync(all_lanes, common_hi, offset));
    }
    if (copied) copy_async_wait<2>();
    __syncthreads();

    // In a tile aligned to its rows, chunk 2i + x of a row lies at the address of chunk x with bits 5.. flipped by i.
    const unsigned q_at = q_tile + swizzled(warp * warp_rows + lane % 16, lane / 16, chunks);
    const unsigned k_at = k_tiles + swizzled(lane / 16 * 8 + lane % 8, lane / 8 % 2, chunks);
    const unsigned v_at = v_tiles + swizzled(lane % 16, lane / 16, chunks);
    // dimensions 16i.. of a set of rows
    const auto load_query = [&](unsigned (&fragment)[4], int i, int set) {
        load_matrices(fragment, (q_at ^ 32 * i) + set * 16 * DIMS * 2);
    };
    constexpr bool roomy = SETS == 1 && DIMS <= 128; // the registers hold the queries
    unsigned held[roomy ? DIMS / 16 : 1][SETS][4];
    if (roomy)
#pragma unroll
        for (int i = 0; i < DIMS / 16; i++)
#pragma unroll
            for (int set = 0; set < SETS; set++) load_query(held[roomy ? i : 0][set], i, set);

    const float cap = a.soft_cap * log2_e;
    const float scale = VARIANTS && cap > 0.0f ? 1.0f : a.scale * log2_e; // capped scores are scaled before
    float max[2 * SETS], sum[2 * SETS];
#pragma unroll
    for (int h = 0; h < 2 * SETS; h++) max[h] = minus_infinity, sum[h] = 0.0f;
    float out[SETS][DIMS / 8][4] = {};
    int stage = 0;
    for (int base = all.lo; base < all.hi; base += KEYS, stage ^= 1) {
        // Groups under way: keys and values of this step. All warps have left the other stage.
        copy_async_wait<1>();
        __syncthreads();
        copy_tile(k_tiles, a.k, stage ^ 1, base + KEYS);
        copy_async_commit();

        float score[SETS][KEYS / 8][4] = {};
        const unsigned k_tile = k_at + stage * tile_bytes, v_tile = v_at + stage * tile_bytes;
#pragma unroll
        for (int i = 0; i < DIMS / 16; i++) {
            unsigned q[SETS][4];
            if (!roomy)
#pragma unroll
                for (int set = 0; set < SETS; set++) load_query(q[set], i, set);
#pragma unroll
            for (int j = 0; j < KEYS / 16; j++) {
                unsigned k[4]; // keys 16j.. and 16j + 8.., each at dimensions 16i.. and 16i + 8..
                load_matrices(k, (k_tile ^ 32 * i) + j * 16 * DIMS * 2);
#pragma unroll
                for (int set = 0; set < SETS; set++) {
                    mma<TKV>(score[set][2 * j], roomy ? held[roomy ? i : 0][set] : q[set], k[0], k[1]);
                    mma<TKV>(score[set][2 * j + 1], roomy ? held[roomy ? i : 0][set] : q[set], k[2], k[3]);
                }
            }
        }
        if (VARIANTS && cap > 0.0f)
#pragma unroll
            for (int i = 0; i < SETS * KEYS / 2; i++) {
                float &s = score[i / (KEYS / 2)][i / 4 % (KEYS / 8)][i % 4];
                s = capped(s * (a.scale * log2_e), cap);
            }
        const bool masked = base < common_lo || base + KEYS > common_hi;
#pragma unroll
        for (int h = 0; h < 2 * SETS; h++) {
            const int set = h / 2, at = h % 2 * 2; // its sums are elements at, at + 1 of four
            float greatest = max[h];
#pragma unroll
            for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    float s = score[set][j][at + e] * scale;
                    const int key = base + 8 * j + 2 * c + e;
                    if (masked && (key < seen[h].lo || key >= seen[h].hi)) s = minus_infinity;
                    score[set][j][at + e] = s;
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
                    score[set][j][at + e] = exp2_fast(score[set][j][at + e] - from);
                    sum[h] += score[set][j][at + e];
                }
            // After the first steps maxima seldom grow.
            if (__any_sync(all_lanes, keep != 1.0f))
#pragma unroll
                for (int i = 0; i < DIMS / 8; i++) out[set][i][at] *= keep, out[set][i][at + 1] *= keep;
        }
        copy_async_wait<1>();
        __syncthreads();
        copy_tile(v_tiles, a.v, stage ^ 1, base + KEYS);
        copy_async_commit();
#pragma unroll
        for (int j = 0; j < KEYS / 16; j++) {
            unsigned weights[SETS][4];
#pragma unroll
            for (int set = 0; set < SETS; set++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    weights[set][e] = pack<TKV>(score[set][2 * j + e / 2][e % 2 * 2],
                                                score[set][2 * j + e / 2][e % 2 * 2 + 1]);
#pragma unroll
            for (int i = 0; i < DIMS / 16; i++) {
                unsigned v[4]; // keys 16j.. and 16j + 8.. at dimensions 16i.., then at 16i + 8..
                load_matrices_transposed(v, (v_tile ^ 32 * i) + j * 16 * DIMS * 2);
#pragma unroll
                for (int set = 0; set < SETS; set++) {
                    mma<TKV>(out[set][2 * i], weights[set], v[0], v[1]);
                    mma<TKV>(out[set][2 * i + 1], weights[set], v[2], v[3]);
                }
            }
        }
    }
#pragma unroll
    for (int h = 0; h < 2 * SETS; h++) {
        const int set = h / 2, at = h % 2 * 2;
        const float all_keys = warp_reduce<Sum, 4>(sum[h]);
        const int row = warp * warp_rows + g + 8 * h;
        if (row >= rows) continue;
        if (parts.count > 1) {
            const int64_t slot = ((int64_t)tile * parts.count + part) * rows_per_tile + row;
            if (c == 0) parts.stats[slot] = make_float2(max[h], all_keys);
#pragma unroll
            for (int i = 0; i < DIMS / 8; i++)
                *reinterpret_cast<float2 *>(parts.partial + slot * DIMS + 8 * i + 2 * c) =
                    make_float2(out[set][i][at], out[set][i][at + 1]);
            continue;
        }
        const float total = total_of(a, kv_head, first_row + row, max[h], all_keys);
        const float norm = total > 0.0f ? 1.0f / total : total; // no key: zeros; NaN stays
        TQ *const target = (TQ *)a.out + query_offset(a, b, kv_head, first_row + row);
#pragma unroll
        for (int i = 0; i < DIMS / 8; i++) {
            if (8 * i >= dim) break;
            if (sizeof(TQ) == sizeof(float) && operand) {
                const int e = i % 2 * 8 + 2 * c; // of 16
                *reinterpret_cast<unsigned *>((half *)a.out + (target - (TQ *)a.out) + 8 * i - i % 2 * 8 + e / 4 * 2 +
                                              e / 2 % 2 * 8) =
                    pack<half>(out[set][i][at] * norm, out[set][i][at + 1] * norm);
                continue;
            }
            Vec<TQ, 2> two;
            two.at[0] = from_float<TQ>(out[set][i][at] * norm), two.at[1] = from_float<TQ>(out[set][i][at + 1] * norm);
            *reinterpret_cast<Vec<TQ, 2> *>(target + 8 * i + 2 * c) = two;
        }
    }
#endif
}

// The results of a call:
//   output           blocks may share keys
//   without parts    blocks share no keys, since the caller uses the stream's workspace
//   operand          the left factor of a product with packed weights
enum Leaves { OUTPUT, OUTPUT_OF_WHOLE, OPERAND };

template <class TQ, class TKV, int DIMS, int KEYS, int SETS, bool VARIANTS = false>
vb_status launch_prefill(const vb_attention_args &a, Leaves what, vb_stream *stream, unsigned *flags = nullptr) {
    constexpr int rows = 16 * warps * SETS;
    const AttentionShape shape = shape_of(a, rows);
    const unsigned heads = (unsigned)(a.batch * a.kv_heads);
    AttentionParts parts;
    const int64_t tiles = (int64_t)shape.tiles * heads;
    const int count = what == OUTPUT ? attention_parts(&a, tiles, rows, KEYS, DIMS,
                                                       (DIMS <= 128 ? 2 : 1) * multiprocessors(stream),
                                                       2.3e-6 * rows * KEYS * DIMS)
                                     : 1;
    VB_TRY(plan_parts(&parts, tiles, rows, DIMS, count, count * tiles, stream));
    VB_TRY(launch_overlapped(stream, (unsigned)(tiles * parts.count), threads, (rows + 4 * KEYS) * DIMS * 2,
                             attention_prefill_kernel<TQ, TKV, DIMS, KEYS, SETS, VARIANTS>, shape, heads, parts,
                             what == OPERAND, flags));
    return add_attention_parts<TQ>(shape, parts, rows, DIMS, stream);
}

// 256 dimensions: 64 + 4 * 32 rows of 512 bytes are 96 KiB, within every GPU's limit since 8.0 (99 KiB).
template <class TQ, class TKV>
vb_status launch_prefill(const vb_attention_args &a, Leaves what, vb_stream *stream, unsigned *flags = nullptr) {
    // On Hopper attention_prefill_sm90.cu takes all plain calls but rare ones, such as those with a scale below 0.
    if (!attention_is_plain(&a) || compiled_for(stream) == 90) {
        if (a.dim <= 64) return launch_prefill<TQ, TKV, 64, 64, 1, true>(a, what, stream, flags);
        if (a.dim <= 128) return launch_prefill<TQ, TKV, 128, 64, 1, true>(a, what, stream, flags);
        return launch_prefill<TQ, TKV, 256, 32, 1, true>(a, what, stream, flags);
    }
    const bool two = attention_prefill_rows(&a, multiprocessors(stream)) == 2 * ATTENTION_PREFILL_ROWS;
    if (a.dim <= 64)
        return two ? launch_prefill<TQ, TKV, 64, 64, 2>(a, what, stream, flags)
                   : launch_prefill<TQ, TKV, 64, 64, 1>(a, what, stream, flags);
    if (a.dim <= 128)
        return two ? launch_prefill<TQ, TKV, 128, 64, 2>(a, what, stream, flags)
                   : launch_prefill<TQ, TKV, 128, 64, 1>(a, what, stream, flags);
    return launch_prefill<TQ, TKV, 256, 32, 1>(a, what, stream, flags);
}

vb_status launch_prefill(const vb_attention_args &a, Leaves what, vb_stream *stream, unsigned *flags = nullptr) {
    if (a.type == VB_F32 && a.kv_type == VB_F16) return launch_prefill<float, half>(a, what, stream, flags);
    if (a.type == VB_F32 && a.kv_type == VB_BF16) return launch_prefill<float, bf16>(a, what, stream, flags);
    if (a.type == VB_F16 && a.kv_type == VB_F16) return launch_prefill<half, half>(a, what, stream, flags);
    return launch_prefill<bf16, bf16>(a, what, stream, flags);
}

} // namespace

vb_status attention_prefill(const vb_attention_args &a, vb_stream *stream) { return launch_prefill(a, OUTPUT, stream); }
vb_status attention_prefill_whole(const vb_attention_args &a, vb_stream *stream) {
    return launch_prefill(a, OUTPUT_OF_WHOLE, stream);
}
vb_status attention_prefill_halves(const vb_attention_args &a, unsigned *flags, vb_stream *stream) {
    return launch_prefill<float, half>(a, OPERAND, stream, flags);
}

} // namespace vb
