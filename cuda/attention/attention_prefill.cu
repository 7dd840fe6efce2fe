// attention_prefill.cu: attention of many query rows over a 16-bit cache, on tensor cores (FlashAttention-2, Dao 2023).
//
//   grid     tiles of 64 or 128 packed query rows, tiles with the most keys first. Where tiles are few, blocks share
//            the keys of each, and a second kernel adds their parts up
//   block    4 warps of 16 or 32 rows each; the block walks its keys in steps of 64 or 32
//   shared   queries, then two stages of keys and values, 16-bit, in panels of 64 dimensions, swizzled: the next step
//            is copied while this one is multiplied. At most 96 KiB (256 dimensions), 48 for 64
//   moves    queries and outputs once, keys and values once a tile (from the cache); 4 FLOPs a query element and key
//   bound    of 16 rows a warp, fragments of keys and values from shared memory, each for two products; of 32 rows
//            issue: a warp's products of mma.sync wait for each other and for the softmax between them
//   measured docs/experiments/2026-11-28-portable.md
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

// The shape of a block's tile. Rows in shared memory are whole panels of 64 dimensions.
template <int DIMS, int SETS>
struct PrefillTile {
    static constexpr int warp_rows = 16 * SETS, rows = warps * warp_rows;
    static constexpr int keys = DIMS <= 64 || (DIMS <= 128 && SETS == 1) ? 64 : 32; // of a step
    static constexpr int panels = (DIMS + 63) / 64, row_bytes = 128 * panels;
    static constexpr int stage_bytes = keys * row_bytes; // of keys, or of values
    static constexpr int shared_bytes = rows * row_bytes + 4 * stage_bytes;
};

// SETS of 16 rows a warp. VARIANTS: scores may be capped or scaled by a number below 0, and keys lie in a ring.
// `operand`: out is the operand of a product with packed weights (linear/packed/many.cuh), and `flags` become 0.
template <class TQ, class TKV, int DIMS, int SETS, bool VARIANTS>
__global__ void __launch_bounds__(threads, 2)
    attention_prefill_kernel(AttentionShape a, unsigned heads, AttentionParts parts, bool operand, unsigned *flags) {
#if __CUDA_ARCH__ >= 800
#ifdef VB_SM90A
    if constexpr (!VARIANTS) return __trap(); // launch_prefill
#endif
    using Tile = PrefillTile<DIMS, SETS>;
    constexpr int KEYS = Tile::keys, warp_rows = Tile::warp_rows, row_bytes = Tile::row_bytes;
    constexpr int stage_bytes = Tile::stage_bytes;
    constexpr bool copied = sizeof(TQ) == 2; // queries, without a conversion
    extern __shared__ __align__(1024) uint4 shared[];
    __shared__ int range[2];
    __shared__ KeyRange seen[Tile::rows]; // by each row
    wait_for_previous_kernel();
    release_next_kernel();
    if (flags && blockIdx.x == 0 && threadIdx.x < half_flags) flags[threadIdx.x] = 0;
    const float minus_infinity = __uint_as_float(0xff800000u);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
    const unsigned block = blockIdx.x / parts.count, part = blockIdx.x - block * parts.count;
    const unsigned from_last = block / heads, head = block - from_last * heads;
    const unsigned b = head / (unsigned)a.kv_heads, kv_head = head - b * (unsigned)a.kv_heads;
    const unsigned row_tile = a.tiles - 1 - from_last, tile = head * a.tiles + row_tile;
    const unsigned first_row = row_tile * Tile::rows;
    const int rows = (int)smaller<unsigned>(Tile::rows, a.rows - first_row), dim = (int)a.dim;
    KeyRange all = {0, (int)a.kv_len};
    if (a.causal && a.positions) {
        all = keys_of_tile(a, b, first_row, first_row + rows, range);
    } else if (a.causal) { // later rows see later keys
        all.lo = keys_of(a, b, token_of(a, first_row)).lo;
        all.hi = keys_of(a, b, token_of(a, first_row + rows - 1)).hi;
    }
    const int active = cut_keys(&all, all, (int)part, parts.count, KEYS);
    if ((int)part >= active) {
        const int64_t first_slot = ((int64_t)tile * parts.count + part) * Tile::rows;
        for (int row = threadIdx.x; row < rows; row += threads)
            parts.stats[first_slot + row] = make_float2(minus_infinity, 0.0f);
        return;
    }

    const unsigned q_tile = shared_address(shared);
    const unsigned k_tiles = q_tile + Tile::rows * row_bytes, v_tiles = k_tiles + 2 * stage_bytes; // two stages each
    // A thread copies a chunk of 16 bytes of each panel of every rows_apart-th row. Chunks past the end are zeros, and
    // are not read.
    constexpr int rows_apart = threads / 8;
    const int copy_row = threadIdx.x / 8, copy_chunk = threadIdx.x % 8;
    const unsigned copy_to = copy_row * row_bytes + (copy_chunk ^ (copy_row & 7)) * 16;
    const int64_t sequence = a.sequences ? a.sequences[b] : b;
    const int64_t copy_from =
        ((sequence * a.kv_heads + kv_head) * a.kv_capacity + copy_row) * dim + copy_chunk * 8;
    // Elements between the place of a key in a ring, and where it were without one.
    const auto around = [&](int key) {
        return (int64_t)(key - (int)((unsigned)key % (unsigned)a.kv_capacity)) * dim;
    };
    const auto copy_tile = [&](unsigned to, const void *from, int base) {
        const TKV *const source = (const TKV *)from + copy_from + (int64_t)base * dim;
#pragma unroll
        for (int i = 0; i < KEYS / rows_apart; i++) {
            const int key = base + i * rows_apart + copy_row;
            const TKV *const row = source + i * rows_apart * dim - (VARIANTS && a.ring ? around(key) : 0);
#pragma unroll
            for (int p = 0; p < Tile::panels; p++)
                if (64 * p + 32 < DIMS || copy_chunk < 4)
                    copy_async(to + copy_to + i * rows_apart * row_bytes + p * 128, row + 64 * p,
                               key < all.hi && 64 * p + copy_chunk * 8 < dim);
        }
    };
    // A warp copies, and then reads, its own rows of queries.
    const unsigned own_rows = q_tile + warp * warp_rows * row_bytes;
    constexpr int chunks = DIMS / 8;
    const auto chunk_at = [](int row, int chunk) { // of 16 bytes
        return row * row_bytes + (chunk / 8 * 8 + (chunk % 8 ^ (row & 7))) * 16;
    };
    // A lane finds the place of one of these rows in q and out, and the warp asks it for that.
    const bool owned = lane < warp_rows && warp * warp_rows + lane < rows;
    const long long own_offset = owned ? query_offset(a, b, kv_head, first_row + warp * warp_rows + lane) : 0;
    const auto offset_of = [&](int row) { return __shfl_sync(all_lanes, own_offset, row); };
    // Of few rows of many dimensions keys come first, and warps without rows copy none: measured for these alone.
    constexpr bool wide = DIMS > 192;
    const int here = smaller(warp_rows, rows - warp * warp_rows); // rows of the warp
    if (wide) copy_tile(k_tiles, a.k, all.lo);
    if (copied) {
#pragma unroll 4
        for (int item = lane; item < warp_rows * chunks; item += 32) {
            const int row = item / chunks, chunk = item % chunks;
            if (wide && here <= 0) break;
            copy_async(own_rows + chunk_at(row, chunk), (const TQ *)a.q + offset_of(row) + chunk * 8,
                       row < here && chunk * 8 < dim);
        }
        copy_async_commit();
    }
    if (!wide) copy_tile(k_tiles, a.k, all.lo);
    copy_tile(v_tiles, a.v, all.lo);
    copy_async_commit();
    if (!copied) {
        constexpr int at_once = 4;
        for (int item = lane; item < warp_rows * chunks; item += at_once * 32) {
            uint4 eight[at_once];
#pragma unroll
            for (int i = 0; i < at_once; i++) {
                const int row = (item + i * 32) / chunks, chunk = (item + i * 32) % chunks;
                const TQ *const from = (const TQ *)a.q + offset_of(row) + chunk * 8;
                eight[i] = warp * warp_rows + row < rows && row < warp_rows && chunk * 8 < dim
                               ? pack_eight<TKV>(from)
                               : make_uint4(0, 0, 0, 0);
            }
#pragma unroll
            for (int i = 0; i < at_once; i++) {
                const int row = (item + i * 32) / chunks, chunk = (item + i * 32) % chunks;
                if (row < warp_rows) shared[(warp * warp_rows * row_bytes + chunk_at(row, chunk)) / 16] = eight[i];
            }
        }
    }
    // The keys that all rows of the warp see, and those that any of them sees.
    KeyRange common = all, any = all;
    if (warp * warp_rows >= rows) any.hi = 0;
    if (a.causal) {
        const int row = warp * warp_rows + lane;
        KeyRange mine = {INT32_MAX, 0};
        if (owned) mine = seen[row] = keys_of(a, b, token_of(a, first_row + row));
        any = mine;
        if (mine.lo == INT32_MAX) mine = all;
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) {
            any.lo = smaller(any.lo, __shfl_xor_sync(all_lanes, any.lo, offset));
            any.hi = larger(any.hi, __shfl_xor_sync(all_lanes, any.hi, offset));
            mine.lo = larger(mine.lo, __shfl_xor_sync(all_lanes, mine.lo, offset));
            mine.hi = smaller(mine.hi, __shfl_xor_sync(all_lanes, mine.hi, offset));
        }
        common.lo = larger(all.lo, mine.lo), common.hi = smaller(all.hi, mine.hi);
    }

    // Chunk 2i + x of a row lies where chunk x of panel i / 4 does, with bits 5 and 6 flipped by i % 4.
    const auto of_step = [](unsigned at, int i) { return (at ^ i % 4 * 32) + i / 4 * 128; };
    const unsigned q_at = own_rows + chunk_at(lane % 16, lane / 16);
    const unsigned k_at = k_tiles + chunk_at(lane / 16 * 8 + lane % 8, lane / 8 % 2);
    const unsigned v_at = v_tiles + chunk_at(lane % 16, lane / 16);
    constexpr bool roomy = SETS == 1 || DIMS <= 64; // the registers hold the queries
    unsigned held[roomy ? DIMS / 16 : 1][SETS][4];
    if (copied) copy_async_wait<1>();
    __syncwarp();
    if (roomy)
#pragma unroll
        for (int i = 0; i < DIMS / 16; i++)
#pragma unroll
            for (int set = 0; set < SETS; set++)
                load_matrices(held[roomy ? i : 0][set], of_step(q_at, i) + set * 16 * row_bytes);

    const float cap = a.soft_cap * log2_e;
    const bool scaled_before = VARIANTS && (cap > 0.0f || !(a.scale > 0.0f));
    const float scale = scaled_before ? 1.0f : a.scale * log2_e;
    float max[2 * SETS], sum[2 * SETS];
#pragma unroll
    for (int h = 0; h < 2 * SETS; h++) max[h] = minus_infinity, sum[h] = 0.0f;
    float out[SETS][DIMS / 8][4] = {};
    unsigned stage = 0;
    for (int base = all.lo; base < all.hi; base += KEYS, stage ^= stage_bytes) {
        copy_async_wait<0>();
        __syncthreads(); // keys and values of this step are there, and all warps have left the other stage
        if (base + KEYS < all.hi) {
            copy_tile(k_tiles + (stage ^ stage_bytes), a.k, base + KEYS);
            copy_tile(v_tiles + (stage ^ stage_bytes), a.v, base + KEYS);
            copy_async_commit();
        }
        if (base >= any.hi || base + KEYS <= any.lo) continue;
        float score[SETS][KEYS / 8][4] = {};
#pragma unroll
        for (int i = 0; i < DIMS / 16; i++) {
            unsigned q[SETS][4];
            if (!roomy)
#pragma unroll
                for (int set = 0; set < SETS; set++)
                    load_matrices(q[set], of_step(q_at, i) + set * 16 * row_bytes);
#pragma unroll
            for (int j = 0; j < KEYS / 16; j++) {
                unsigned k[4]; // keys 16j.. and 16j + 8.., each at dimensions 16i.. and 16i + 8..
                load_matrices(k, of_step(k_at + stage, i) + j * 16 * row_bytes);
#pragma unroll
                for (int set = 0; set < SETS; set++) {
                    mma<TKV>(score[set][2 * j], roomy ? held[roomy ? i : 0][set] : q[set], k[0], k[1]);
                    mma<TKV>(score[set][2 * j + 1], roomy ? held[roomy ? i : 0][set] : q[set], k[2], k[3]);
                }
            }
        }
        if (scaled_before)
#pragma unroll
            for (int i = 0; i < SETS * KEYS / 2; i++) {
                float &s = score[i / (KEYS / 2)][i / 4 % (KEYS / 8)][i % 4];
                s *= a.scale * log2_e;
                if (cap > 0.0f) s = capped(s, cap);
            }
        if (base < common.lo || base + KEYS > common.hi) { // some row does not see some key
#pragma unroll
            for (int h = 0; h < 2 * SETS; h++) {
                const int row = warp * warp_rows + g + 8 * h;
                const KeyRange keys = a.causal && row < rows ? seen[row] : all;
#pragma unroll
                for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        const int key = base + 8 * j + 2 * c + e;
                        if (key < keys.lo || key >= keys.hi) score[h / 2][j][h % 2 * 2 + e] = minus_infinity;
                    }
            }
        }
        // Maxima follow only scores that exceed them by a factor of 2^8: then outputs are seldom scaled anew.
        constexpr float slack = 8.0f;
        float keep[2 * SETS];
        bool same = true;
#pragma unroll
        for (int h = 0; h < 2 * SETS; h++) {
            const int set = h / 2, at = h % 2 * 2; // its sums are elements at, at + 1 of four
            float greatest = score[set][0][at];
#pragma unroll
            for (int j = 0; j < KEYS / 8; j++) {
                greatest = Max::combine(greatest, score[set][j][at]);
                greatest = Max::combine(greatest, score[set][j][at + 1]);
            }
            greatest = Max::combine(greatest, __shfl_xor_sync(all_lanes, greatest, 1));
            greatest = Max::combine(greatest, __shfl_xor_sync(all_lanes, greatest, 2)) * scale;
            keep[h] = 1.0f;
            if (!(greatest <= max[h] + slack)) { // also NaN
                keep[h] = exp2_fast(max[h] - greatest);
                max[h] = greatest;
                same = false;
            }
            const float from = max[h] == minus_infinity ? 0.0f : max[h];
            float added[2] = {};
#pragma unroll
            for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    score[set][j][at + e] = exp2_fast(fmaf(score[set][j][at + e], scale, -from));
                    added[e] += score[set][j][at + e];
                }
            sum[h] = sum[h] * keep[h] + (added[0] + added[1]);
        }
        if (!__all_sync(all_lanes, same))
#pragma unroll
            for (int set = 0; set < SETS; set++)
#pragma unroll
                for (int i = 0; i < DIMS / 8; i++)
#pragma unroll
                    for (int e = 0; e < 4; e++) out[set][i][e] *= keep[2 * set + e / 2];
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
                load_matrices_transposed(v, of_step(v_at + stage, i) + j * 16 * row_bytes);
#pragma unroll
                for (int set = 0; set < SETS; set++) {
                    mma<TKV>(out[set][2 * i], weights[set], v[0], v[1]);
                    mma<TKV>(out[set][2 * i + 1], weights[set], v[2], v[3]);
                }
            }
        }
    }
    const bool direct = sizeof(TQ) == sizeof(float) || parts.count > 1; // else through the places of the queries
#pragma unroll
    for (int h = 0; h < 2 * SETS; h++) {
        const int set = h / 2, at = h % 2 * 2;
        const float all_keys = warp_reduce<Sum, 4>(sum[h]);
        const int own = g + 8 * h, row = warp * warp_rows + own;
        TQ *const target = (TQ *)a.out + offset_of(own);
        if (row >= rows) continue;
        if (parts.count > 1) {
            const int64_t slot = ((int64_t)tile * parts.count + part) * Tile::rows + row;
            if (c == 0) parts.stats[slot] = make_float2(max[h], all_keys);
#pragma unroll
            for (int i = 0; i < DIMS / 8; i++)
                *reinterpret_cast<float2 *>(parts.partial + slot * DIMS + 8 * i + 2 * c) =
                    make_float2(out[set][i][at], out[set][i][at + 1]);
            continue;
        }
        const float total = total_of(a, kv_head, first_row + row, max[h], all_keys);
        const float norm = total > 0.0f ? 1.0f / total : total; // no key: zeros; NaN stays
#pragma unroll
        for (int i = 0; i < DIMS / 8; i++) {
            if (!direct) {
                reinterpret_cast<unsigned *>(shared)[(warp * warp_rows * row_bytes + chunk_at(own, i)) / 4 + c] =
                    pack<TKV>(out[set][i][at] * norm, out[set][i][at + 1] * norm);
                continue;
            }
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
    if (direct) return;
    __syncwarp();
#pragma unroll 4
    for (int item = lane; item < warp_rows * chunks; item += 32) {
        const int row = item / chunks, chunk = item % chunks;
        if (wide && (item - lane) / chunks >= here) break;
        TQ *const target = (TQ *)a.out + offset_of(row) + chunk * 8;
        if (row < here && chunk * 8 < dim)
            *reinterpret_cast<uint4 *>(target) = shared[(warp * warp_rows * row_bytes + chunk_at(row, chunk)) / 16];
    }
#endif
}

// The results of a call:
//   output           blocks may share keys
//   without parts    blocks share no keys, since the caller uses the stream's workspace
//   operand          the left factor of a product with packed weights
enum Leaves { OUTPUT, OUTPUT_OF_WHOLE, OPERAND };

// Calls f(dimensions, sets, variants) with the constants of the instance that takes a call.
template <class F>
auto with_instance(const vb_attention_args &a, vb_stream *stream, F f) {
    const Constant<0> plain;
    const Constant<1> one, variants;
    const Constant<2> two;
    // On Hopper attention_prefill_sm90.cu takes all plain calls but rare ones, such as those with a scale below 0.
    if (!attention_is_plain(&a) || !(a.scale > 0.0f) || compiled_for(stream) == 90) {
        if (a.dim <= 64) return f(Constant<64>(), one, variants);
        if (a.dim <= 128) return f(Constant<128>(), one, variants);
        return f(Constant<256>(), one, variants);
    }
    const bool twice = attention_prefill_rows(&a, multiprocessors(stream)) == 2 * ATTENTION_PREFILL_ROWS;
    if (a.dim <= 32) return twice ? f(Constant<32>(), two, plain) : f(Constant<32>(), one, plain);
    if (a.dim <= 64) return twice ? f(Constant<64>(), two, plain) : f(Constant<64>(), one, plain);
    if (a.dim <= 96) return twice ? f(Constant<96>(), two, plain) : f(Constant<96>(), one, plain);
    if (a.dim <= 128) return twice ? f(Constant<128>(), two, plain) : f(Constant<128>(), one, plain);
    if (a.dim <= 160) return f(Constant<160>(), one, plain);
    if (a.dim <= 192) return f(Constant<192>(), one, plain);
    return f(Constant<256>(), one, plain);
}

template <class Tile>
int parts_of(const vb_attention_args &a, int dims, vb_stream *stream) {
    return attention_parts(&a, attention_tiles(&a, Tile::rows), Tile::rows, Tile::keys, dims,
                           2 * multiprocessors(stream), 2.3e-6 * Tile::rows * Tile::keys * dims);
}

template <class TQ, class TKV>
vb_status launch_prefill(const vb_attention_args &a, Leaves what, vb_stream *stream, unsigned *flags = nullptr,
                         void *memory = nullptr) {
    return with_instance(a, stream, [&](auto dims, auto sets, auto variants) {
        constexpr int DIMS = decltype(dims)::value, SETS = decltype(sets)::value;
        using Tile = PrefillTile<DIMS, SETS>;
        const AttentionShape shape = shape_of(a, Tile::rows);
        const unsigned heads = (unsigned)(a.batch * a.kv_heads);
        const int64_t tiles = (int64_t)shape.tiles * heads;
        const int count = what == OUTPUT ? parts_of<Tile>(a, DIMS, stream) : 1;
        AttentionParts parts;
        VB_TRY(plan_parts(&parts, tiles, Tile::rows, DIMS, count, count * tiles, stream, memory));
        VB_TRY(launch_overlapped(stream, (unsigned)(tiles * parts.count), threads, Tile::shared_bytes,
                                 attention_prefill_kernel<TQ, TKV, DIMS, SETS, decltype(variants)::value != 0>, shape,
                                 heads, parts, what == OPERAND, flags));
        return add_attention_parts<TQ>(shape, parts, Tile::rows, DIMS, stream);
    });
}

vb_status launch_prefill(const vb_attention_args &a, Leaves what, vb_stream *stream, void *memory = nullptr) {
    if (a.type == VB_F32 && a.kv_type == VB_F16) return launch_prefill<float, half>(a, what, stream, nullptr, memory);
    if (a.type == VB_F32 && a.kv_type == VB_BF16) return launch_prefill<float, bf16>(a, what, stream, nullptr, memory);
    if (a.type == VB_F16 && a.kv_type == VB_F16) return launch_prefill<half, half>(a, what, stream, nullptr, memory);
    return launch_prefill<bf16, bf16>(a, what, stream, nullptr, memory);
}

} // namespace

vb_status attention_prefill(const vb_attention_args &a, vb_stream *stream, void *parts) {
    return launch_prefill(a, OUTPUT, stream, parts);
}
int64_t attention_prefill_parts_bytes(const vb_attention_args &a, vb_stream *stream) {
    return with_instance(a, stream, [&](auto dims, auto sets, auto) {
        constexpr int DIMS = decltype(dims)::value;
        using Tile = PrefillTile<DIMS, decltype(sets)::value>;
        const int count = parts_of<Tile>(a, DIMS, stream);
        return count > 1 ? parts_bytes(attention_tiles(&a, Tile::rows) * count * Tile::rows, DIMS) : 0;
    });
}
vb_status attention_prefill_whole(const vb_attention_args &a, vb_stream *stream) {
    return launch_prefill(a, OUTPUT_OF_WHOLE, stream);
}
vb_status attention_prefill_halves(const vb_attention_args &a, unsigned *flags, vb_stream *stream) {
    return launch_prefill<float, half>(a, OPERAND, stream, flags);
}

} // namespace vb
