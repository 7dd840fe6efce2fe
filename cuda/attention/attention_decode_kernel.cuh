// attention_decode_kernel.cuh: attention of few query rows a key head, on tensor cores, for the cache of a Unit.
//
//   grid     attention_decode.cuh; about a block an SM (two over Q8_0), whatever the length. Blocks of short sequences
//            end at once
//   block    8 warps (4 of more than 128 dimensions, and over Q8_0 and F32) of 16 keys each; they meet at the end
//   cluster  on Hopper up to 8 blocks, which send each other their parts
//   shared   each warp's ring of keys, values, keys, ... of 16 positions, 4 KiB a slot of 128 dimensions in 16 bits;
//            the messages of the cluster
//   moves    the keys and values once a tile; the parts of rows, small beside them
//   bound    memory bandwidth; short sequences by latency: one load, its products, two combinations. Little work hides
//            an instruction, so instructions are few
//   measured docs/experiments/2026-11-22-attention.md, 2026-11-29-steps.md

#ifndef VB_CUDA_ATTENTION_DECODE_KERNEL_CUH
#define VB_CUDA_ATTENTION_DECODE_KERNEL_CUH

#include "attention/attention_units.cuh"
#include "linear/linear.cuh"

// A block takes no more than half of an SM's shared memory, so that the next kernel's blocks find room beside it.
// Where keys are settled (vibrant.h) a block fills its rings while the kernel before it still runs.
// Positions are read early for the same purpose, and without a plan again when the kernel before has ended.

namespace vb {

// Every fourth eight elements of a row of queries as they lie in memory, from `x` on: floats, or 16 bits in the first
// four words of each eight. Zeros from element `end` on. They come through L1: the warps of a block read the same rows.
template <int N>
VB_DEVICE void load_queries(Vec<float, 8> (&y)[N], const char *x, bool narrow, int end) {
#pragma unroll
    for (int i = 0; i < N; i++) y[i] = Vec<float, 8>();
#pragma unroll
    for (int i = 0; i < N; i++)
        if (narrow && 32 * i < end) reinterpret_cast<float4 *>(y + i)[0] = ((const float4 *)x)[4 * i];
#pragma unroll
    for (int i = 0; i < N; i++)
        if (!narrow && 32 * i < end) {
            reinterpret_cast<float4 *>(y + i)[0] = ((const float4 *)x)[8 * i];
            reinterpret_cast<float4 *>(y + i)[1] = ((const float4 *)x)[8 * i + 1];
        }
}

// The same as a unit multiplies them: two 16-bit numbers a register, or floats.
template <class Product>
struct Queries {
    using type = uint4;
    static VB_DEVICE uint4 of(const Vec<float, 8> &x, bool narrow) {
        if (narrow) return *reinterpret_cast<const uint4 *>(&x);
        return make_uint4(pack<Product>(x.at[0], x.at[1]), pack<Product>(x.at[2], x.at[3]),
                          pack<Product>(x.at[4], x.at[5]), pack<Product>(x.at[6], x.at[7]));
    }
};
template <>
struct Queries<float> {
    using type = Vec<float, 8>;
    static VB_DEVICE const type &of(const type &x, bool) { return x; }
};

// The messages between the blocks of a cluster: one block sums up 4 dimensions of a row.
template <int ITEMS>
struct Inbox {
    float4 out[ITEMS]; // [sender][item of the block]
    float2 stats[ITEMS];
};

// VARIANTS: scores may be capped, keys may lie in a ring of whole units, several tokens may have sinks. Where
// Unit::whole, other kernels have DIMS dimensions, no fewer. TQ: queries and results are F32 or, where plan.narrow, TQ.
template <class TQ, class TKV, int DIMS, int NT, int SLOTS, bool PLANNED, bool VARIANTS>
__global__ void __launch_bounds__(Unit<TKV, DIMS>::warps * 32, NT * DIMS * Unit<TKV, DIMS>::warps <= 1024 ? 2 : 1)
    attention_decode_kernel(AttentionShape a, DecodePlan plan) {
#if __CUDA_ARCH__ >= 800
    using Units = Unit<TKV, DIMS>;
    using Product = typename Units::Product;
    constexpr int warps = Units::warps, threads = warps * 32, slots = ATTENTION_DECODE_SLOTS(SLOTS, __CUDA_ARCH__ / 10);
    constexpr int tile_rows = 8 * NT, row_items = DIMS / 4, tile_items = tile_rows * row_items;
    constexpr int out_stride = DIMS + 4; // rows in different banks
    constexpr int ring_bytes = larger(slots * Units::bytes, tile_rows * out_stride * 4);
#if __CUDA_ARCH__ >= 900
    constexpr bool overlapped = true; // the kernel may begin before the kernel before has ended
#else
    constexpr bool overlapped = false;
#endif
    extern __shared__ __align__(128) char shared[];
    Inbox<tile_items> *const inbox = reinterpret_cast<Inbox<tile_items> *>(shared + warps * ring_bytes);
    __shared__ float2 warp_stats[warps][tile_rows];
    __shared__ __align__(8) uint64_t mailbox;
    __shared__ unsigned flag;
    const float minus_infinity = __uint_as_float(0xff800000u);
    int thread = threadIdx.x;
    asm volatile("" : "+r"(thread)); // stays in a register: it is often read anew
    const int warp = thread / 32, lane = thread % 32, g = lane / 4, c = lane % 4;
    const int dim = Units::whole && !VARIANTS ? DIMS : (int)a.dim;
    const int row_bytes = Units::row_bytes(dim), cluster = PLANNED ? 1 : plan.cluster;

    // Before the kernel before this one has ended: reads the arguments, and the keys that it does not write, as
    // positions foretell.
    Part part = PLANNED ? Part() : tile_in_turns<tile_rows>(a, cluster);
    if (cluster > 1) {
        mailbox_init(&mailbox, part.rows * row_items * (int)(sizeof(float4) + sizeof(float2)), threadIdx.x == 0);
        cluster_arrive();
    }
    // Items that a block of the cluster adds up, and their reciprocal times 2^20: divisions are done now.
    const int cluster_items = part.rows * row_items / (PLANNED ? 1 : cluster);
    unsigned by_items = PLANNED ? 0 : ((1u << 20) + cluster_items - 1) / cluster_items;
    asm volatile("" : "+r"(by_items));
    const bool narrow = sizeof(TQ) == 2 && plan.narrow;
    const char *k_cache = nullptr, *v_cache = nullptr, *q_rows[NT]; // row g of each eight, from dimension 8c on
    const auto find_rows = [&] {
        const int64_t sequence = a.sequences ? a.sequences[part.b] : part.b;
        const int64_t from = (sequence * a.kv_heads + part.kv_head) * a.kv_capacity * row_bytes;
        k_cache = (const char *)a.k + from, v_cache = (const char *)a.v + from;
#pragma unroll
        for (int t = 0; t < NT; t++) {
            const int row = 8 * t + g;
            const int64_t first = row < part.rows ? query_offset(a, part.b, part.kv_head, part.first_row + row) : 0;
            q_rows[t] = (const char *)a.q + (first + 8 * c) * (narrow ? 2 : 4);
        }
    };

    // The warp's ring of keys, values, keys, ...: the slot that is loaded next is also the slot that is read next.
    const int ring = warp * ring_bytes;
    int slot = ring, next = 0, filled = 0;
    const auto load = [&](bool values) { // one group of copies, also where there is nothing left
        const int row = VARIANTS && a.ring ? (int)((unsigned)next % (unsigned)a.kv_capacity) : next,
                  rows = smaller(unit_keys, (int)a.kv_capacity - row); // also rows that nobody sees: less code runs
        if (next < part.end)
            Units::copy(shared_address(shared) + slot, (values ? v_cache : k_cache) + (int64_t)row * row_bytes, rows,
                        dim, lane);
        copy_async_commit();
        if (values) next += part.stride;
    };
    const auto advance = [&] { slot = slot == ring + (slots - 1) * Units::bytes ? ring : slot + Units::bytes; };
    const auto fill = [&](int below) { // as far as units end below a key
#pragma unroll 1
        for (; filled < slots; filled++) {
            if (next > below - unit_keys) break;
            load(filled % 2);
            advance();
        }
    };

    // A token's position was in most cases written long before. The kernel reads the position early, trusts it, and
    // reads it again when the kernel before this one has ended.
    // Both readings are compared at the end, so that no warp waits for the second.
    int foretold = 0, settled = 0; // keys below it may be read early
    const bool planned_early = PLANNED && a.settled && a.causal && a.seq == 1;
    const bool early = planned_early || (!PLANNED && plan.foretold);
    part.first = part.stride = part.end = 0, part.alone = false;
    if (planned_early) {
        if (!plan_part<tile_rows, warps>(&part, a, plan.slots)) return;
        settled = part.all.hi - 1; // all keys but the token's own
    }
    if (!PLANNED && plan.foretold) {
        if (a.seq == 1) foretold = position_of(a, part.b, 0);
        take_turn<warps>(&part, a.seq == 1 ? keys_at(a, foretold) : keys_of_few(a, part.b, part.first_row, part.rows),
                         plan);
        if (a.settled) settled = a.seq == 1 ? foretold : (int)a.offset;
    }
    if (early) find_rows();
    // A warp whose first unit has the token's own key asks for the unit early as well, and then for that row again.
    bool fresh = overlapped && sizeof(TKV) == 2 && !PLANNED && early && a.settled && a.seq == 1 &&
                 part.first <= foretold && foretold < smaller(part.end, part.first + unit_keys);
    const int rank = cluster > 1 ? cluster_rank() : 0;

    // Pass 0 is before the kernel before this one has ended, and asks for settled keys. Pass 2 follows where the
    // position was not as foretold. They share code: copies of it would take time to fetch.
    int position = 0;
#pragma unroll 1
    for (int pass = overlapped && early ? 0 : 1;; pass++) {
        asm volatile("" : "+r"(pass)); // unknown to the compiler
        if (pass == 1) {
            if (cluster > 1) cluster_wait(); // the others have begun, and their mailboxes stand
            if (fresh) copy_async_wait<0>(), __syncwarp();
            wait_for_previous_kernel();
            release_next_kernel();
            if (plan.results.flags && (blockIdx.x | blockIdx.y | blockIdx.z) == 0 && threadIdx.x < half_flags)
                plan.results.flags[threadIdx.x] = 0;
            if (PLANNED && !planned_early) {
                if (!plan_part<tile_rows, warps>(&part, a, plan.slots)) return;
                find_rows();
            } else if (!PLANNED && !plan.foretold) {
                find_rows();
                take_turn<warps>(&part, keys_of_few(a, part.b, part.first_row, part.rows), plan);
            } else if (!PLANNED && a.seq == 1) {
                position = position_of(a, part.b, 0);
            }
        }
        if (filled == 0) next = part.first;
        const bool masked = a.seq > 1; // some row may see less than the tile
        const float scale = a.scale * log2_e, cap = a.soft_cap * log2_e;
        float max[NT][2], sum[NT][2], out[DIMS / 16][NT][4];
        typename Queries<Product>::type q[NT][DIMS / 32];
        fill(pass || fresh ? INT32_MAX : settled);
        if (pass == 0) continue;
        Vec<float, 8> queries[NT][DIMS / 32]; // as they are: their conversion would wait for them
#pragma unroll
        for (int t = 0; t < NT; t++) load_queries(queries[t], q_rows[t], narrow, dim - 8 * c);
        if constexpr (sizeof(TKV) == 2)
            if (fresh) {
                const int64_t at = VARIANTS && a.ring ? (int)((unsigned)foretold % (unsigned)a.kv_capacity) : foretold;
                Units::copy_row(shared_address(shared) + ring, shared_address(shared) + ring + Units::bytes,
                                foretold - part.first, k_cache + at * row_bytes, v_cache + at * row_bytes, dim, lane);
                copy_async_commit();
            }
        const KeyRange all = part.all;
        KeyRange seen[NT][2];
#pragma unroll
        for (int t = 0; t < NT; t++) {
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
        asm volatile("" ::: "memory"); // what is above needs no queries
        if (fresh) copy_async_wait<0>();
#pragma unroll
        for (int t = 0; t < NT; t++)
#pragma unroll
            for (int i = 0; i < DIMS / 32; i++) q[t][i] = Queries<Product>::of(queries[t][i], narrow);
        for (int base = part.first; base < part.end; base += part.stride) {
            copy_async_wait<slots - 1>();
            __syncwarp();
            float score[NT][4] = {};
            Units::template multiply_keys<NT>(score, shared, slot, q, dim, lane);
            __syncwarp();
            load(slots % 2 == 1);
            advance();
            const bool partial = base < all.lo || base + unit_keys > all.hi;
            float keep[NT][2];
            bool same = true;
#pragma unroll
            for (int t = 0; t < NT; t++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    float x = score[t][e] * scale, y = score[t][2 + e] * scale;
                    if (VARIANTS && cap > 0.0f) x = capped(x, cap), y = capped(y, cap);
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
            if (base != part.first && !__all_sync(all_lanes, same))
#pragma unroll
                for (int i = 0; i < DIMS / 16; i++)
#pragma unroll
                    for (int t = 0; t < NT; t++)
#pragma unroll
                        for (int e = 0; e < 4; e++) out[i][t][e] *= keep[t][e % 2];
            copy_async_wait<slots - 1>();
            __syncwarp();
            Units::template multiply_values<NT>(out, shared, slot, score, dim, lane, partial, base, all);
            __syncwarp();
            load(slots % 2 == 0);
            advance();
        }
        copy_async_wait<0>();
        __syncwarp();
        if (position != foretold) {
            take_turn<warps>(&part, keys_at(a, position), plan);
            foretold = position, slot = ring, filled = 0, fresh = false;
            continue;
        }
        const int senders = part.alone ? 1 : cluster; // of parts
        if (part.slot - part.first_slot >= part.parts || rank >= senders) return;
        // One warp adds the sink, a key whose value is zero. Earlier, the sink would make the weights of keys halves
        // below 6e-5.
        if (__builtin_expect(a.sinks && part.first == first_unit(part.all), false)) {
#pragma unroll
            for (int t = 0; t < NT; t++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    const int row = 8 * t + 2 * c + e;
                    const float sink =
                        row < part.rows ? sink_of(a, part.kv_head, part.first_row + row) : minus_infinity;
                    const float greatest = Max::combine(max[t][e], sink),
                                from = greatest == minus_infinity ? 0.0f : greatest, keep = exp2_fast(max[t][e] - from);
                    sum[t][e] = sum[t][e] * keep + (g == 0 ? exp2_fast(sink - from) : 0.0f);
                    max[t][e] = greatest;
#pragma unroll
                    for (int i = 0; i < DIMS / 16; i++) out[i][t][e] *= keep, out[i][t][2 + e] *= keep;
                }
        }

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
        const int mine = senders > 1 ? cluster_items : part.rows * row_items;
        for (int item = thread; item < part.rows * row_items; item += threads) {
            const int row = item / row_items, d = item % row_items * 4;
            const RowPart x = add_parts(
                warps, [&](int w) { return warp_stats[w][row]; },
                [&](int w) {
                    return *reinterpret_cast<const float4 *>(shared + w * ring_bytes + (row * out_stride + d) * 4);
                });
            if (senders > 1) {
                const int to = (int)((unsigned)item * by_items >> 20), at = rank * mine + item - to * mine;
                const unsigned box = cluster_address(&mailbox, to);
                send4(cluster_address(&inbox->out[at], to), box, x.out);
                send2(cluster_address(&inbox->stats[at], to), box, make_float2(x.max, x.sum));
            } else if (part.parts == 1) {
                store_part<TQ>(a, plan, part, row, d, x);
            } else { // for the same thread
                inbox->out[item] = x.out;
                inbox->stats[item] = make_float2(x.max, x.sum);
            }
        }
        if (senders > 1) mailbox_wait(&mailbox);
        else if (part.parts == 1) return;
        const auto whole = [&](int item) { // the sum over the cluster's keys
            return add_parts(
                senders, [&](int r) { return inbox->stats[r * mine + item]; },
                [&](int r) { return inbox->out[r * mine + item]; });
        };
        const auto row_of = [&](int item) { return (rank * mine + item) / row_items; };
        const auto dimension_of = [&](int item) { return (rank * mine + item) % row_items * 4; };
        if (part.parts == 1) {
            for (int item = thread; item < mine; item += threads)
                store_part<TQ>(a, plan, part, row_of(item), dimension_of(item), whole(item));
            return;
        }
        if (!PLANNED && plan.meeting) { // in pairs, pairs of pairs, ...: two dimensions a thread
            const int64_t pairs = (int)gridDim.x / cluster - 1, slots_of_pair = 2 * tile_items;
            uint4 *const slots = plan.meeting + (part.tile * pairs * tile_items + rank * mine) * 2;
            for (int i = thread; i < 2 * mine; i += threads) {
                const RowPart x = whole(i / 2);
                float2 out = i % 2 ? make_float2(x.out.z, x.out.w) : make_float2(x.out.x, x.out.y),
                       stats = make_float2(x.max, x.sum);
                bool second = true;
                int index = part.slot - part.first_slot, first_pair = 0;
                for (int left = part.parts; second && left > 1; left /= 2) {
                    index /= 2;
                    second = meet(slots + (first_pair + index) * slots_of_pair + i, &out, &stats);
                    first_pair += left / 2;
                }
                if (second) store_part<TQ>(a, plan, part, row_of(i / 2), dimension_of(i / 2) + i % 2 * 2, out, stats.y);
            }
            return;
        }
        const auto place = [&](int slot, int item) { return (int64_t)slot * tile_items + rank * mine + item; };
        for (int item = thread; item < mine; item += threads) {
            const RowPart x = whole(item);
            plan.partial[place(part.slot, item)] = x.out;
            plan.stats[place(part.slot, item)] = make_float2(x.max, x.sum);
        }
        // The last of the blocks that have parts of these items adds them up.
        if (!last_arriver(plan.counters + part.tile * cluster + rank, (unsigned)part.parts, &flag)) return;
#if __CUDA_ARCH__ < 900 // measured there alone
        if (part.parts > 8) {
            for (int item = thread; item < mine; item += threads)
                store_part<TQ>(
                    a, plan, part, row_of(item), dimension_of(item),
                    add_stored_parts(
                        part.parts, [&](int p) { return __ldcg(plan.stats + place(part.first_slot + p, item)); },
                        [&](int p, float2) { return __ldcg(plan.partial + place(part.first_slot + p, item)); }));
            return;
        }
#endif
        for (int item = thread; item < mine; item += threads)
            store_part<TQ>(
                a, plan, part, row_of(item), dimension_of(item),
                add_parts(
                    part.parts, [&](int p) { return __ldcg(plan.stats + place(part.first_slot + p, item)); },
                    [&](int p) { return __ldcg(plan.partial + place(part.first_slot + p, item)); }));
        return;
    }
#endif
}

template <class TQ, class TKV, int DIMS, int NT, int SLOTS, bool VARIANTS>
vb_status launch_dims(const vb_attention_args &a, const DecodeResults &results, vb_stream *stream,
                      void *parts = nullptr) {
    using Units = Unit<TKV, DIMS>;
    constexpr int tile_rows = 8 * NT, threads = Units::warps * 32;
    const AttentionShape shape = shape_of(a, tile_rows);
    DecodePlan plan;
    dim3 grid;
    VB_TRY(plan_decode(&plan, &grid, shape, tile_rows, DIMS, Units::warps, Units::together, parts, stream));
    plan.results = results, plan.narrow = a.type != VB_F32;
    // The size of the ring follows the GPU that the kernel was compiled for, whatever VIBRANT_CUDA_CAPABILITY says.
    const int64_t shared_bytes = attention_decode_bytes(
        Units::warps, Units::bytes, ATTENTION_DECODE_SLOTS(SLOTS, compiled_for(stream)), DIMS, tile_rows);
    return plan.planned ? launch_overlapped(stream, grid, threads, shared_bytes,
                                            attention_decode_kernel<TQ, TKV, DIMS, NT, SLOTS, true, VARIANTS>, shape,
                                            plan)
                        : launch_cluster(stream, plan.cluster, grid, threads, shared_bytes,
                                         attention_decode_kernel<TQ, TKV, DIMS, NT, SLOTS, false, VARIANTS>, shape,
                                         plan);
}

template <class TQ, class TKV, int NT, int S64, int S128, int S256, bool VARIANTS = false>
vb_status launch_decode(const vb_attention_args &a, const DecodeResults &results, vb_stream *stream,
                        void *parts = nullptr) {
    if (a.dim <= 64) return launch_dims<TQ, TKV, 64, NT, S64, VARIANTS>(a, results, stream, parts);
    // Two slots of 16 bits in flight move long sequences faster than three; three move short sequences faster.
    constexpr int of_long = NT == 1 && S128 == 3 && !VARIANTS ? 2 : S128;
    if (a.dim <= 128 && a.kv_len > 16384)
        return launch_dims<TQ, TKV, 128, NT, of_long, VARIANTS>(a, results, stream, parts);
    if (a.dim <= 128) return launch_dims<TQ, TKV, 128, NT, S128, VARIANTS>(a, results, stream, parts);
    return launch_dims<TQ, TKV, 256, NT, S256, VARIANTS>(a, results, stream, parts);
}

} // namespace vb
#endif
