// attention_decode_kernel.cuh: attention of few query rows a key head, on tensor cores, for whichever cache a Unit reads.
//
//   grid     attention_decode.cuh; about a block an SM, whatever the length: blocks of short sequences end at once
//   block    4 warps, which work on 16 keys each, on their own until the end
//   cluster  on Hopper up to 8 blocks, which send each other their parts
//   shared   each warp's ring of STAGES units, 8 KiB a unit of 128 dimensions in 16 bits; what the cluster sends
//   moves    the keys and values once a tile; the parts of split rows, small beside them
//   bound    memory bandwidth; short sequences by latency: one load, its products, two combinations. With one warp a scheduler
//            nothing hides an instruction, so they are few: with three times as many 32768 keys took 60 us instead of 41
//   measured H200, graph replays, inputs rotated past the L2. BF16, 32/8 heads of 128: 3.8, 4.9, 10.7, 41.4 us for 512, 1024,
//            4096, 32768 keys; PyTorch 2.11 SDPA 8.6, 7.8, 12.5, 44.1 in the same run. F32 over F16, 16/2 heads, launched for
//            32768: 4.6, 5.2, 6.5, 16.7 us for 128, 600, 2000, 32700 keys. Clusters of 16 take 9.4 us for 4096 keys and 43.9
//            for 32768; eight warps a block with one stage 4.4, 11.4, 42.0 for 1024, 4096, 32768
//
// A block takes no more than half of an SM's shared memory, so that the next kernel's blocks find room beside it: while the
// kernel before this one still runs, a block asks for its first keys and values to come into the L2. That reads nothing, so
// it needs no order: what is written later is written to the L2. Positions are read early for the same purpose, and again
// when the kernel before has ended.

#ifndef VB_CUDA_ATTENTION_DECODE_KERNEL_CUH
#define VB_CUDA_ATTENTION_DECODE_KERNEL_CUH

#include "attention_units.cuh"

namespace vb {

constexpr int units_ahead = 4; // of what is being copied, in the L2

// 8 elements of queries, zeros unless valid, and the same as four registers of two.
template <class TQ>
VB_DEVICE Vec<TQ, 8> load8(const TQ *x, bool valid) {
    Vec<TQ, 8> y = {};
    if (valid) {
        using Words = Vec<TQ, 16 / sizeof(TQ)>;
#pragma unroll
        for (int i = 0; i < 8 / Words::size; i++) reinterpret_cast<Words *>(&y)[i] = reinterpret_cast<const Words *>(x)[i];
    }
    return y;
}
template <class T>
VB_DEVICE uint4 pack8(const Vec<T, 8> &x) {
    return *reinterpret_cast<const uint4 *>(&x);
}
template <class T>
VB_DEVICE uint4 pack8(const Vec<float, 8> &x) {
    return make_uint4(pack<T>(x.at[0], x.at[1]), pack<T>(x.at[2], x.at[3]), pack<T>(x.at[4], x.at[5]), pack<T>(x.at[6], x.at[7]));
}

// What the blocks of a cluster send each other: a row's 4 dimensions are summed up by one of them.
template <int ITEMS>
struct Inbox {
    float4 out[ITEMS]; // [sender][item of the block]
    float2 stats[ITEMS];
};

template <class TQ, class TKV, int DIMS, int NT, int STAGES, bool PLANNED>
__global__ void __launch_bounds__(decode_threads, NT * DIMS <= 256 ? 2 : 1)
    attention_decode_kernel(AttentionShape a, DecodePlan plan) {
#if __CUDA_ARCH__ >= 800
    using Units = Unit<TKV, DIMS>;
    using Product = typename Units::Product;
    constexpr int tile_rows = 8 * NT, row_items = DIMS / 4, tile_items = tile_rows * row_items;
    constexpr int out_stride = DIMS + 4; // rows in different banks
    constexpr int stage_bytes = 2 * Units::bytes, ring_bytes = larger(STAGES * stage_bytes, tile_rows * out_stride * 4);
    extern __shared__ __align__(128) char shared[];
    Inbox<tile_items> *const inbox = reinterpret_cast<Inbox<tile_items> *>(shared + decode_warps * ring_bytes);
    __shared__ float2 warp_stats[decode_warps][tile_rows];
    __shared__ __align__(8) uint64_t mailbox;
    __shared__ unsigned flag;
    const float minus_infinity = __uint_as_float(0xff800000u);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, c = lane % 4, dim = (int)a.dim;
    const int row_bytes = Units::row_bytes(dim), cluster = PLANNED ? 1 : plan.cluster;

    // Before the kernel before this one has ended: whatever follows from the arguments, and what positions foretell.
    Part part = PLANNED ? Part() : tile_in_turns<tile_rows>(a, cluster);
    if (cluster > 1) {
        if (threadIdx.x == 0)
            mailbox_init(&mailbox, part.rows * row_items * (int)(sizeof(float4) + sizeof(float2)));
        cluster_arrive();
    }
    const char *k_cache = nullptr, *v_cache = nullptr;
    const auto find_cache = [&] {
        const int64_t sequence = a.sequences ? a.sequences[part.b] : part.b;
        const int64_t from = (sequence * a.kv_heads + part.kv_head) * a.kv_capacity * row_bytes;
        k_cache = (const char *)a.k + from, v_cache = (const char *)a.v + from;
    };
    // A token's position was in most cases written long before. It is read early, believed, and read again when the kernel
    // before this one has ended; what it tells is compared at the end, so that nobody waits for it.
    int foretold = 0;
    part.first = part.stride = part.end = 0;
    if (!PLANNED && plan.foretold) {
        find_cache();
        if (a.seq == 1) foretold = position_of(a, part.b, 0);
        take_turn(&part, a.seq == 1 ? keys_at(a, foretold) : keys_of_few(a, part.b, part.first_row, part.rows), cluster);
        const int key = part.first + lane / 2 * part.stride, rows = smaller(unit_keys, part.end - key);
        if (lane < 2 * units_ahead && rows > 0)
            prefetch_to_l2((lane % 2 ? v_cache : k_cache) + (int64_t)key * row_bytes, rows * row_bytes & ~15);
    }
    if (cluster > 1) cluster_wait(); // the others have begun, and their mailboxes stand
    wait_for_previous_kernel();
    release_next_kernel();
    int position = 0;
    if (PLANNED) {
        if (!plan_part<tile_rows>(&part, a, plan.slots)) return;
        find_cache();
    } else if (!plan.foretold) {
        find_cache();
        take_turn(&part, keys_of_few(a, part.b, part.first_row, part.rows), cluster);
    } else if (a.seq == 1) {
        position = position_of(a, part.b, 0);
    }

    Vec<TQ, 8> queries[NT][DIMS / 32]; // row g of each eight, as they are: their conversion would wait for them
#pragma unroll
    for (int t = 0; t < NT; t++) {
        const int row = 8 * t + g;
        const TQ *source = (const TQ *)a.q + (row < part.rows ? query_offset(a, part.b, part.kv_head, part.first_row + row) : 0);
#pragma unroll
        for (int i = 0; i < DIMS / 32; i++)
            queries[t][i] = load8(source + 32 * i + 8 * c, row < part.rows && 32 * i + 8 * c < dim);
    }

    // Copies the warp's next unit, if there is one; two groups of copies in any case.
    const int ring = warp * ring_bytes;
    int next = 0, next_stage = 0;
    const auto load = [&] {
        const int rows = smaller(unit_keys, part.end - next);
        const unsigned to = shared_address(shared) + ring + next_stage * stage_bytes;
        const int64_t from = (int64_t)next * row_bytes;
        if (rows > 0) Units::copy(to, k_cache + from, rows, dim, lane);
        copy_async_commit();
        if (rows > 0) Units::copy(to + Units::bytes, v_cache + from, rows, dim, lane);
        copy_async_commit();
        next += part.stride;
        if (++next_stage == STAGES) next_stage = 0;
    };
    const bool masked = a.seq > 1; // some row may see less than the tile
    const float scale = a.scale * log2_e;
    float max[NT][2], sum[NT][2], out[DIMS / 16][NT][4];
    for (;; foretold = position) {
        next = part.first, next_stage = 0;
#pragma unroll 1
        for (int n = 0; n < STAGES; n++) load();
        const KeyRange all = part.all;
        KeyRange seen[NT][2];
        uint4 q[NT][DIMS / 32];
#pragma unroll
        for (int t = 0; t < NT; t++) {
#pragma unroll
            for (int i = 0; i < DIMS / 32; i++) q[t][i] = pack8<Product>(queries[t][i]);
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int row = 8 * t + 2 * c + e;
                seen[t][e] = all;
                if (masked && row < part.rows) seen[t][e] = keys_of(a, part.b, token_of(a, part.first_row + row));
                max[t][e] = minus_infinity, sum[t][e] = 0.0f;
            }
#pragma unroll
            for (int i = 0; i < DIMS / 16; i++) out[i][t][0] = out[i][t][1] = out[i][t][2] = out[i][t][3] = 0.0f;
        }
        int keys = ring;
        for (int base = part.first; base < part.end; base += part.stride) {
            copy_async_wait<2 * STAGES - 1>();
            __syncwarp();
            float score[NT][4] = {};
            Units::template multiply_keys<NT>(score, shared, keys, q, dim, lane);
            const bool partial = base < all.lo || base + unit_keys > all.hi;
            float keep[NT][2];
            bool same = true;
#pragma unroll
            for (int t = 0; t < NT; t++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    float x = score[t][e] * scale, y = score[t][2 + e] * scale;
                    if (partial || masked) {
                        if (base + g < seen[t][e].lo || base + g >= seen[t][e].hi) x = minus_infinity;
                        if (base + g + 8 < seen[t][e].lo || base + g + 8 >= seen[t][e].hi) y = minus_infinity;
                    }
                    float greatest = Max::combine(x, y);
#pragma unroll
                    for (int offset = 4; offset < 32; offset *= 2)
                        greatest = Max::combine(greatest, __shfl_xor_sync(all_lanes, greatest, offset));
                    keep[t][e] = 1.0f;
                    if (!(greatest <= max[t][e] + Units::slack)) { // as attention_prefill_sm90.cu says; NaN too
                        keep[t][e] = exp2_fast(max[t][e] - greatest);
                        max[t][e] = greatest;
                        same = false;
                    }
                    const float from = max[t][e] == minus_infinity ? 0.0f : max[t][e];
                    score[t][e] = exp2_fast(x - from), score[t][2 + e] = exp2_fast(y - from);
                    sum[t][e] = sum[t][e] * keep[t][e] + (score[t][e] + score[t][2 + e]);
                }
            if (!__all_sync(all_lanes, same))
#pragma unroll
                for (int i = 0; i < DIMS / 16; i++)
#pragma unroll
                    for (int t = 0; t < NT; t++)
#pragma unroll
                        for (int e = 0; e < 4; e++) out[i][t][e] *= keep[t][e % 2];
            copy_async_wait<2 * STAGES - 2>();
            __syncwarp();
            Units::template multiply_values<NT>(out, shared, keys + Units::bytes, score, dim, lane, partial, base, all);
            __syncwarp();
            keys = ring + (next_stage == STAGES - 1 ? 0 : (next_stage + 1) * stage_bytes); // what is copied now comes last
            load();
        }
        copy_async_wait<0>();
        __syncwarp();
        if (position == foretold) break;
        take_turn(&part, keys_at(a, position), cluster);
    }
    if (part.slot - part.first_slot >= part.parts) return;

    // The warps' parts come together: each thread then sums vectors of 4 dimensions.
    Units::template store<NT>(reinterpret_cast<float *>(shared + ring), out_stride, out, lane);
#pragma unroll
    for (int t = 0; t < NT; t++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float total = sum[t][e];
#pragma unroll
            for (int offset = 4; offset < 32; offset *= 2) total += __shfl_xor_sync(all_lanes, total, offset);
            if (g == 0) warp_stats[warp][8 * t + 2 * c + e] = make_float2(max[t][e], total);
        }
    __syncthreads();
    // This block gets the parts of `mine` items from each of its cluster, itself among them.
    const int rank = cluster > 1 ? cluster_rank() : 0, mine = part.rows * row_items / cluster;
    for (int item = threadIdx.x; item < part.rows * row_items; item += decode_threads) {
        const int row = item / row_items, d = item % row_items * 4;
        const RowPart x = add_parts(
            decode_warps, [&](int w) { return warp_stats[w][row]; },
            [&](int w) { return *reinterpret_cast<const float4 *>(shared + w * ring_bytes + (row * out_stride + d) * 4); });
        if (cluster > 1) {
            const int to = item / mine, at = rank * mine + item - to * mine;
            const unsigned box = cluster_address(&mailbox, to);
            send4(cluster_address(&inbox->out[at], to), box, x.out);
            send2(cluster_address(&inbox->stats[at], to), box, make_float2(x.max, x.sum));
        } else { // for the same thread
            inbox->out[item] = x.out;
            inbox->stats[item] = make_float2(x.max, x.sum);
        }
    }
    if (cluster > 1) mailbox_wait(&mailbox);
    const auto place = [&](int slot, int item) { return (int64_t)slot * tile_items + rank * mine + item; };
    const auto store = [&](int item, const RowPart &x) {
        store_part<TQ>(a, part, (rank * mine + item) / row_items, (rank * mine + item) % row_items * 4, x);
    };
    for (int item = threadIdx.x; item < mine; item += decode_threads) {
        const RowPart x = add_parts(
            cluster, [&](int r) { return inbox->stats[r * mine + item]; }, [&](int r) { return inbox->out[r * mine + item]; });
        if (part.parts == 1) {
            store(item, x);
        } else {
            plan.partial[place(part.slot, item)] = x.out;
            plan.stats[place(part.slot, item)] = make_float2(x.max, x.sum);
        }
    }
    if (part.parts == 1) return;
    // The last of the blocks that have parts of these items adds them up.
    if (!last_arriver(plan.counters + part.tile * cluster + rank, (unsigned)part.parts, &flag)) return;
    for (int item = threadIdx.x; item < mine; item += decode_threads)
        store(item, add_parts(
                        part.parts, [&](int p) { return __ldcg(plan.stats + place(part.first_slot + p, item)); },
                        [&](int p) { return __ldcg(plan.partial + place(part.first_slot + p, item)); }));
#endif
}

template <class TQ, class TKV, int DIMS, int NT, int STAGES>
vb_status launch_decode(const vb_attention_args &a, int together, vb_stream *stream) {
    constexpr int tile_rows = 8 * NT;
    const AttentionShape shape = shape_of(a, tile_rows);
    DecodePlan plan;
    dim3 grid;
    VB_TRY(plan_decode(&plan, &grid, shape, tile_rows, DIMS, together, stream));
    const int64_t ring_bytes = larger<int64_t>(STAGES * 2 * Unit<TKV, DIMS>::bytes, tile_rows * (DIMS + 4) * 4);
    const int64_t shared_bytes = decode_warps * ring_bytes + (int64_t)sizeof(Inbox<tile_rows * DIMS / 4>);
    return plan.planned ? launch_overlapped(stream, grid, decode_threads, shared_bytes,
                                            attention_decode_kernel<TQ, TKV, DIMS, NT, STAGES, true>, shape, plan)
                        : launch_cluster(stream, plan.cluster, grid, decode_threads, shared_bytes,
                                         attention_decode_kernel<TQ, TKV, DIMS, NT, STAGES, false>, shape, plan);
}

template <class TQ, class TKV, int NT, int S64, int S128, int S256>
vb_status launch_decode(const vb_attention_args &a, int together, vb_stream *stream) {
    if (a.dim <= 64) return launch_decode<TQ, TKV, 64, NT, S64>(a, together, stream);
    if (a.dim <= 128) return launch_decode<TQ, TKV, 128, NT, S128>(a, together, stream);
    return launch_decode<TQ, TKV, 256, NT, S256>(a, together, stream);
}

} // namespace vb
#endif
