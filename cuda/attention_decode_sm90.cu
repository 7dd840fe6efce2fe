// attention_decode_sm90.cu: attention of few query rows a key head over a 16-bit cache on Hopper.
//
//   grid     a tile is up to 64 packed query rows of a key head; its keys are divided among blocks as attention_decode.cuh
//            says: a cluster's for short sequences, all multiprocessors for long ones
//   block    one warpgroup that multiplies and one warp that copies keys and values by TMA, 64 at a time
//   shared   queries [64][DIMS], a ring of `stages` keys and values [64][DIMS], 16-bit, swizzled; a cluster's messages
//   moves    the keys and values once; the parts of split rows, small beside them
//   bound    memory bandwidth; short sequences by latency: one load, its products, the combination
//   measured H200, BF16, 32/8 heads of 128, scripts/bench_dense.py: 5.8, 11.4, 40.7 us for 1024, 4096, 32768 keys; PyTorch
//            2.11 SDPA 8.0, 11.9, 40.1 in the same run. F32 over F16, 16/2 heads: 4.0 us for 300 keys
//
// With one token the products of wgmma are mostly padding, and cheap all the same: what a multiprocessor is short of are
// instructions between loads, and here no thread loads anything. While the kernel before this one still runs, a block asks
// for its keys and values to come into the L2. That reads nothing, so it needs no order: what is written later is written
// to the L2.

#include "attention_decode.cuh"
#include "mma.cuh"
#include "sm90.cuh"

namespace vb {

#ifdef VB_WITH_SM90

namespace {

constexpr int rows_per_tile = 64;
constexpr int KEYS = keys_per_step;
constexpr int threads = 128 + 32;
constexpr int most_stages = 4;

template <int DIMS>
struct DecodeTile {
    static constexpr int q_bytes = rows_per_tile * DIMS * 2, tile_bytes = KEYS * DIMS * 2;
    static constexpr int column_blocks = DIMS / 8; // of a row's outputs: what a thread holds two of is one message
};

#ifdef VB_SM90A

template <class TKV, class TQ>
VB_DEVICE uint4 query8(const TQ *x) {
    return *reinterpret_cast<const uint4 *>(x);
}
template <class TKV>
VB_DEVICE uint4 query8(const float *x) {
    const float4 a = reinterpret_cast<const float4 *>(x)[0], b = reinterpret_cast<const float4 *>(x)[1];
    return make_uint4(pack<TKV>(a.x, a.y), pack<TKV>(a.z, a.w), pack<TKV>(b.x, b.y), pack<TKV>(b.z, b.w));
}

#endif

template <class TQ, class TKV, int DIMS>
__global__ void __launch_bounds__(threads, 1)
    attention_decode_sm90_kernel(const __grid_constant__ CUtensorMap k_map, const __grid_constant__ CUtensorMap v_map,
                                 const AttentionShape a, const DecodeSplits splits, int stages) {
#ifdef VB_SM90A
    using Tile = DecodeTile<DIMS>;
    extern __shared__ char shared[];
    __shared__ uint64_t k_full[most_stages], v_full[most_stages], empty[most_stages], mailbox;
    __shared__ unsigned flag;
    char *const queries = shared + (sm90::swizzle_bytes - shared_address(shared) % sm90::swizzle_bytes) % sm90::swizzle_bytes;
    char *const ring = queries + Tile::q_bytes; // keys and values of a stage
    const int warp = __shfl_sync(all_lanes, threadIdx.x / 32, 0), lane = threadIdx.x % 32, dim = (int)a.dim;
    const int cluster = splits.sharing == BY_CLUSTER ? (int)gridDim.x : 1;

    // Before the kernel before this one has ended: whatever follows from the arguments alone.
    const Part part = part_in_turns<rows_per_tile>(a);
    const int columns = Tile::column_blocks / cluster * 8; // of a row, which this block adds up for its cluster
    float *const inbox = reinterpret_cast<float *>(ring + 2 * stages * Tile::tile_bytes); // [sender][row][columns]
    float2 *const inbox_stats = reinterpret_cast<float2 *>(inbox + cluster * part.rows * columns); // [sender][row]
    if (threadIdx.x == 128) {
        for (int s = 0; s < stages; s++) {
            sm90::barrier_init(&k_full[s], 1);
            sm90::barrier_init(&v_full[s], 1);
            sm90::barrier_init(&empty[s], 4); // one arrival a warp
        }
        sm90::barrier_init_fence();
        if (cluster > 1) mailbox_init(&mailbox, cluster * part.rows * (columns * 4 + 8));
        sm90::prefetch_map(&k_map);
        sm90::prefetch_map(&v_map);
    }
    if (warp < 4) // rows that are no queries
        for (int item = threadIdx.x; item < Tile::q_bytes / 16; item += 128)
            reinterpret_cast<uint4 *>(queries)[item] = make_uint4(0, 0, 0, 0);
    if (splits.prefetch && warp == 4) {
        const int64_t row = (part.b * a.kv_heads + part.kv_head) * a.kv_capacity;
        const int key = part.first + lane * part.stride, bytes = smaller(KEYS, part.end - key) * dim * (int)sizeof(TKV);
        if (lane < 4 && bytes > 0) {
            prefetch_to_l2((const TKV *)a.k + (row + key) * dim, bytes);
            prefetch_to_l2((const TKV *)a.v + (row + key) * dim, bytes);
        }
    }
    __syncthreads();
    if (cluster > 1) {
        cluster_arrive();
        cluster_wait(); // the others have begun, and their mailboxes stand
    }
    wait_for_previous_kernel();
    release_next_kernel();

    const int rows = part.rows;
    // The keys that are seen depend on positions; without a window the first step may be loaded before they are known. What
    // lies past them up to kv_len may be anything.
    const bool at_once = a.window == 0;
    const unsigned first_token = token_of(a, part.first_row), last_token = token_of(a, part.first_row + rows - 1);
    const auto visible = [&] { // by any row, in every lane of the warp
        if (a.seq == 1) return keys_of(a, part.b, 0);
        KeyRange all = {INT32_MAX, 0};
        for (unsigned s = first_token + lane; s <= last_token; s += 32) {
            const KeyRange keys = keys_of(a, part.b, s);
            all = {smaller(all.lo, keys.lo), larger(all.hi, keys.hi)};
        }
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) {
            all.lo = smaller(all.lo, __shfl_xor_sync(all_lanes, all.lo, offset));
            all.hi = larger(all.hi, __shfl_xor_sync(all_lanes, all.hi, offset));
        }
        return KeyRange{smaller(all.lo, all.hi), all.hi};
    };

    if (warp == 4) {
        const int outer = int((a.sequences ? a.sequences[part.b] : part.b) * a.kv_heads + part.kv_head);
        int stage = 0;
        unsigned phase = 1;
        const auto load = [&](int key) {
            if (lane == 0) {
                char *const k = ring + 2 * stage * Tile::tile_bytes, *const v = k + Tile::tile_bytes;
                sm90::barrier_wait(&empty[stage], phase);
                sm90::barrier_expect(&k_full[stage], Tile::tile_bytes);
#pragma unroll
                for (int i = 0; i < DIMS / 64; i++)
                    sm90::copy_box(k + i * KEYS * sm90::row_bytes, &k_map, &k_full[stage], 64 * i, key, outer);
                sm90::barrier_expect(&v_full[stage], Tile::tile_bytes);
#pragma unroll
                for (int i = 0; i < DIMS / 64; i++)
                    sm90::copy_box(v + i * KEYS * sm90::row_bytes, &v_map, &v_full[stage], 64 * i, key, outer);
            }
            if (++stage == stages) stage = 0, phase ^= 1;
        };
        if (at_once && part.first < part.end) load(part.first);
        const KeyRange all = visible();
        for (int key = part.first + (at_once ? part.stride : all.lo); key < all.hi; key += part.stride) load(key);
        __syncwarp();
    } else {
        using Scores = sm90::Wgmma<TKV, KEYS, 0>;
        using Outputs = sm90::WgmmaRegisters<TKV, DIMS, 1>;
        const float minus_infinity = __uint_as_float(0xff800000u), scale = a.scale * log2_e;
        const int g = lane / 4, c = lane % 4;
        constexpr int chunks = DIMS / 8;
        for (int item = threadIdx.x; item < rows * chunks; item += 128) {
            const int row = item / chunks, chunk = item % chunks;
            if (chunk * 8 < dim)
                *reinterpret_cast<uint4 *>(queries + chunk / 8 * rows_per_tile * sm90::row_bytes + swizzled(row, chunk % 8, 8)) =
                    query8<TKV>((const TQ *)a.q + query_offset(a, part.b, part.kv_head, part.first_row + row) + chunk * 8);
        }
        const KeyRange all = visible();
        const int first = part.first + (at_once ? 0 : all.lo);
        KeyRange seen[2] = {all, all}; // rows g and g + 8 of the warp
        if (a.seq > 1)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int row = warp * 16 + g + 8 * h;
                if (row < rows) seen[h] = keys_of(a, part.b, token_of(a, part.first_row + row));
            }
        sm90::shared_writes_fence();
        sm90::group_sync(1, 128);

        const bool busy = warp * 16 < rows; // the other warps' rows are padding
        const uint64_t q_operand = sm90::describe(queries, 0);
        float score[KEYS / 2], out[DIMS / 2];
        unsigned weights[KEYS / 16][4] = {};
        float max[2] = {minus_infinity, minus_infinity}, sum[2] = {0.0f, 0.0f};
#pragma unroll
        for (int i = 0; i < DIMS / 2; i++) out[i] = 0.0f;
        int stage = 0, v_stage = 0;
        unsigned phase = 0, v_phase = 0;
        const auto multiply_keys = [&] {
            const uint64_t k = sm90::describe(ring + 2 * stage * Tile::tile_bytes, 0);
            // In the descriptor's units of 16 bytes: 16 dimensions are 2, a block of 64 dimensions all of its rows.
#pragma unroll
            for (int i = 0; i < DIMS / 16; i++)
                Scores::run(score, q_operand + i / 4 * (rows_per_tile * sm90::row_bytes / 16) + i % 4 * 2,
                            k + i / 4 * (KEYS * sm90::row_bytes / 16) + i % 4 * 2, i > 0);
            sm90::wgmma_commit();
            if (++stage == stages) stage = 0, phase ^= 1;
        };
        const auto multiply_values = [&] {
            const uint64_t v = sm90::describe(ring + (2 * v_stage + 1) * Tile::tile_bytes, KEYS * sm90::row_bytes);
#pragma unroll
            for (int i = 0; i < KEYS / 16; i++) Outputs::run(out, weights[i], v + i * 16 * sm90::row_bytes / 16);
            sm90::wgmma_commit();
        };
        const auto release_values = [&] {
            if (lane == 0) sm90::barrier_arrive(&empty[v_stage]);
            if (++v_stage == stages) v_stage = 0, v_phase ^= 1;
        };
        float keep[2] = {1.0f, 1.0f};
        const auto soften = [&](int base) {
            if (!busy) return;
            if (a.seq > 1 || base + KEYS > all.hi) {
#pragma unroll
                for (int i = 0; i < KEYS / 2; i++) {
                    const int key = base + i / 4 * 8 + 2 * c + i % 2, h = i / 2 % 2;
                    if (key < seen[h].lo || key >= seen[h].hi) score[i] = minus_infinity;
                }
            }
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float greatest = minus_infinity;
#pragma unroll
                for (int i = 2 * h; i < KEYS / 2; i += 4) greatest = Max::combine(greatest, Max::combine(score[i], score[i + 1]));
                greatest = Max::combine(greatest, __shfl_xor_sync(all_lanes, greatest, 1));
                greatest = Max::combine(greatest, __shfl_xor_sync(all_lanes, greatest, 2)) * scale;
                keep[h] = 1.0f;
                if (!(greatest <= max[h] + 8.0f)) { // as attention_prefill_sm90.cu says; NaN too
                    keep[h] = exp2_fast(max[h] - greatest);
                    max[h] = greatest;
                }
                const float from = max[h] == minus_infinity ? 0.0f : max[h];
                float total = 0.0f;
#pragma unroll
                for (int i = 2 * h; i < KEYS / 2; i += 4) {
                    score[i] = exp2_fast(fmaf(score[i], scale, -from));
                    score[i + 1] = exp2_fast(fmaf(score[i + 1], scale, -from));
                    total += score[i] + score[i + 1];
                }
                sum[h] = sum[h] * keep[h] + total;
            }
        };
        const auto pack_weights = [&] {
            if (!busy) return;
#pragma unroll
            for (int i = 0; i < KEYS / 16; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) weights[i][j] = pack<TKV>(score[8 * i + 2 * j], score[8 * i + 2 * j + 1]);
        };
        // Waits for the values of the keys from `base` on. Those past the last key that is seen may be NaN, which a weight of 0
        // does not cancel; those past kv_len are zeros.
        const auto await_values = [&](int base) {
            sm90::barrier_wait(&v_full[v_stage], v_phase);
            const int valid = all.hi - base;
            if (valid >= KEYS || all.hi == (int)a.kv_len) return;
            char *const v = ring + (2 * v_stage + 1) * Tile::tile_bytes;
            for (int item = threadIdx.x; item < (KEYS - valid) * chunks; item += 128) {
                const int row = valid + item / chunks, chunk = item % chunks;
                *reinterpret_cast<uint4 *>(v + (chunk / 8 * KEYS + row) * sm90::row_bytes + chunk % 8 * 16) =
                    make_uint4(0, 0, 0, 0);
            }
            sm90::shared_writes_fence();
            sm90::group_sync(1, 128);
        };

        if (first < all.hi) {
            sm90::barrier_wait(&k_full[stage], phase);
            sm90::wgmma_fence();
            multiply_keys();
            sm90::wgmma_wait<0>();
            sm90::settle(score);
            soften(first);
            pack_weights();
            int base = first;
            for (; base + part.stride < all.hi; base += part.stride) {
                sm90::barrier_wait(&k_full[stage], phase);
                await_values(base);
                sm90::wgmma_fence();
                multiply_keys();
                multiply_values();
                sm90::wgmma_wait<1>();
                sm90::settle(score);
                soften(base + part.stride);
                sm90::wgmma_wait<0>();
                sm90::settle(out);
                sm90::settle(weights);
                release_values();
                if (__any_sync(all_lanes, keep[0] != 1.0f || keep[1] != 1.0f)) {
#pragma unroll
                    for (int i = 0; i < DIMS / 2; i++) out[i] *= keep[i / 2 % 2];
                }
                pack_weights();
            }
            await_values(base);
            sm90::wgmma_fence();
            multiply_values();
            sm90::wgmma_wait<0>();
            sm90::settle(out);
        } else if (at_once && part.first < part.end) { // what was loaded in vain must have landed
            sm90::barrier_wait(&k_full[0], 0);
            sm90::barrier_wait(&v_full[0], 0);
        }

        // A thread has the columns 8 j + 2 c + {0, 1} of its rows.
        const int rank = cluster > 1 ? (int)sm90::cluster_rank() : 0;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float total = warp_reduce<Sum, 4>(sum[h]);
            const int row = warp * 16 + g + 8 * h;
            if (row >= rows) continue;
            if (cluster > 1) {
                for (int to = c; to < cluster; to += 4)
                    send2(cluster_address(&inbox_stats[rank * rows + row], to), cluster_address(&mailbox, to),
                          make_float2(max[h], total));
#pragma unroll
                for (int j = 0; j < DIMS / 8; j++) {
                    const int to = 8 * j / columns, at = (rank * rows + row) * columns + 8 * j - to * columns + 2 * c;
                    send2(cluster_address(inbox + at, to), cluster_address(&mailbox, to),
                          make_float2(out[4 * j + 2 * h], out[4 * j + 2 * h + 1]));
                }
            } else if (part.parts > 1) {
                const int64_t slot = (int64_t)(part.first_block + (int)blockIdx.x) * rows_per_tile + row;
#pragma unroll
                for (int j = 0; j < DIMS / 8; j++)
                    *reinterpret_cast<float2 *>(splits.partial + slot * DIMS + 8 * j + 2 * c) =
                        make_float2(out[4 * j + 2 * h], out[4 * j + 2 * h + 1]);
                if (c == 0) splits.stats[slot] = make_float2(max[h], total);
            } else {
                const float norm = total > 0.0f ? 1.0f / total : total; // no key: zeros; NaN stays
                TQ *const target = (TQ *)a.out + query_offset(a, part.b, part.kv_head, part.first_row + row);
#pragma unroll
                for (int j = 0; j < DIMS / 8; j++) {
                    if (8 * j >= dim) break;
                    Vec<TQ, 2> two;
                    two.at[0] = from_float<TQ>(out[4 * j + 2 * h] * norm);
                    two.at[1] = from_float<TQ>(out[4 * j + 2 * h + 1] * norm);
                    *reinterpret_cast<Vec<TQ, 2> *>(target + 8 * j + 2 * c) = two;
                }
            }
        }
        if (cluster > 1) {
            mailbox_wait(&mailbox);
            for (int item = threadIdx.x; item < rows * (columns / 4); item += 128) {
                const int row = item / (columns / 4), at = item % (columns / 4) * 4;
                store_part<TQ>(a, part, row, rank * columns + at, add_parts<16>(cluster, [&](int r) {
                                   const float2 stats = inbox_stats[r * rows + row];
                                   return RowPart{stats.x, stats.y,
                                                  *reinterpret_cast<const float4 *>(inbox + (r * rows + row) * columns + at)};
                               }));
            }
        }
    }
    if (cluster == 1 && part.parts > 1) combine_parts<rows_per_tile, DIMS, TQ>(a, splits, part, &flag);
#endif
}

template <class TQ, class TKV, int DIMS>
vb_status launch_decode(const vb_attention_args &a, vb_stream *stream) {
    using Tile = DecodeTile<DIMS>;
    const AttentionShape shape = shape_of(a, rows_per_tile);
    DecodeSplits splits;
    dim3 grid;
    int cluster;
    // More than a few clusters of 16 find no room at once, and messages of many rows would take too much shared memory.
    const int most = shape.rows > 16 ? 1 : a.batch * a.kv_heads <= 4 ? smaller(16, Tile::column_blocks) : 8;
    VB_TRY(plan_decode(&splits, &grid, &cluster, shape, rows_per_tile, DIMS, most, multiprocessors(stream), stream));
    if (splits.sharing == PLANNED) return VB_UNSUPPORTED; // what that needs are many small blocks: attention_decode.cu
    // From a copy's start to its stage's release it takes about 3 us under load: four stages of 32 KiB keep pace with memory.
    const int64_t steps = ceil_div<int64_t>(a.kv_len, keys_per_step * (int64_t)grid.x);
    const int stages = (int)smaller<int64_t>(steps, DIMS <= 128 ? most_stages : cluster > 1 ? 2 : 3);
    const int64_t shared_bytes = sm90::swizzle_bytes + Tile::q_bytes + 2 * stages * Tile::tile_bytes +
                                 (cluster > 1 ? (int64_t)smaller<unsigned>(shape.rows, rows_per_tile) * (DIMS * 4 + cluster * 8) : 0);
    const int64_t sizes[3] = {a.dim, a.kv_len, a.sequences ? INT32_MAX : a.batch * a.kv_heads};
    const int64_t strides[2] = {a.dim, a.kv_capacity * a.dim};
    CUtensorMap k_map, v_map;
    VB_TRY(sm90::tensor_map(&k_map, a.k, a.kv_type, sizes, strides, KEYS, stream));
    VB_TRY(sm90::tensor_map(&v_map, a.v, a.kv_type, sizes, strides, KEYS, stream));
    return launch_cluster(stream, cluster, grid, threads, shared_bytes, attention_decode_sm90_kernel<TQ, TKV, DIMS>, k_map,
                          v_map, shape, splits, stages);
}

template <class TQ, class TKV>
vb_status launch_decode(const vb_attention_args &a, vb_stream *stream) {
    if (a.dim <= 64) return launch_decode<TQ, TKV, 64>(a, stream);
    if (a.dim <= 128) return launch_decode<TQ, TKV, 128>(a, stream);
    return launch_decode<TQ, TKV, 256>(a, stream);
}

} // namespace

vb_status attention_decode_sm90(const vb_attention_args &a, vb_stream *stream) {
    if (capability(stream) != 90 || !(a.scale > 0.0f) || a.kv_len == 0 || a.kv_capacity * a.dim >= (int64_t)1 << 38)
        return VB_UNSUPPORTED;
    if (a.type == VB_F32 && a.kv_type == VB_F16) return launch_decode<float, half>(a, stream);
    if (a.type == VB_F32 && a.kv_type == VB_BF16) return launch_decode<float, bf16>(a, stream);
    if (a.type == VB_F16 && a.kv_type == VB_F16) return launch_decode<half, half>(a, stream);
    if (a.type == VB_BF16 && a.kv_type == VB_BF16) return launch_decode<bf16, bf16>(a, stream);
    return VB_UNSUPPORTED;
}

#else

vb_status attention_decode_sm90(const vb_attention_args &, vb_stream *) { return VB_UNSUPPORTED; }

#endif

} // namespace vb
