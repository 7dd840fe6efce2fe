// attention_decode.cuh: how the blocks of attention_decode.cu divide the keys of a tile, and add up its parts.
//
// A tile is up to 16 packed query rows of a key head. Its keys are read in units of 16, a warp each.
// A warp finds its units from the number of keys, and so from positions in device memory alone.
// The size of a launch depends on the GPU alone, so that a captured launch serves a sequence of any length.
//
//   in turns  grid (blocks of a tile, tiles of a sequence, sequences). The blocks of a tile are clusters. Few keys: the
//             first cluster takes them, its blocks send each other their parts, and the other clusters end at once. So
//             few that each warp of a block has a unit at most: the first block takes them, and sends nothing.
//             Many keys: clusters take turns. On Hopper the number of parts is a power of two, and parts meet in pairs,
//             then pairs of pairs; else parts meet in the workspace
//   planned   many sequences of different lengths: each block finds its keys and tile, and all blocks have equally many
//             keys. There are no clusters: a tile has as many parts as it needs

#ifndef VB_CUDA_ATTENTION_DECODE_CUH
#define VB_CUDA_ATTENTION_DECODE_CUH

#include "attention/attention.cuh"
#include "arch/cluster.cuh"

// An exchange of 16 bytes is an instruction of capability 9.0 and toolkit 12.3.
#if CUDART_VERSION >= 12030 && __cplusplus >= 201703L
#define VB_WITH_EXCHANGE 1
#endif

namespace vb {

constexpr int unit_keys = 16;
constexpr int fewest_keys = 64; // that a block is worth having for
constexpr int least_blocks = 2; // times the keys that its warps read at once: a planned part, at least
constexpr int64_t decode_item_bytes = sizeof(float4) + sizeof(float2); // of four dimensions of a part's row

struct DecodePlan {
    bool planned;
    int slots;   // planned: blocks that the keys are to be shared among
    int cluster; // blocks
    bool foretold; // a block's reads follow from the arguments and one position
    float4 *partial; // [slot][row of a tile][dimension / 4]: unnormalized sums
    float2 *stats;   // beside each: the greatest score, in units of log 2, and the sum of exponentials
    unsigned *counters;
    DecodeResults results;
    bool narrow;    // queries and results have 16 bits
    // where parts meet in pairs, of which there are a power of two then: [tile][pair][row][dimension / 2]; or null
    uint4 *meeting;
    float spread; // before Hopper a tile has this times the root of its turns in parts at most
};

// The work of a block: which tile, and with how many other blocks.
struct Part {
    unsigned b, kv_head, tile, first_row; // tile: of all sequences and heads
    int rows;
    KeyRange all;            // keys of the tile
    int first, stride, end;  // this warp's keys: 16 at first + i * stride, below end
    int parts, slot, first_slot; // of the tile, in the workspace
    bool alone;                  // one block has all keys: its cluster's others have none
};

// The keys that any of a tile's tokens sees, by each lane for itself.
VB_DEVICE KeyRange keys_of_few(const AttentionShape &a, unsigned b, unsigned first_row, int rows) {
    const unsigned last = token_of(a, first_row + rows - 1);
    unsigned s = token_of(a, first_row);
    KeyRange all = keys_of(a, b, s);
    while (++s <= last) {
        const KeyRange keys = keys_of(a, b, s);
        all = {smaller(all.lo, keys.lo), larger(all.hi, keys.hi)};
    }
    return {smaller(all.lo, all.hi), all.hi};
}

template <int TILE_ROWS>
VB_DEVICE void place_tile(Part *part, const AttentionShape &a, unsigned b, unsigned tile_of_sequence) {
    part->b = b;
    part->kv_head = a.tiles == 1 ? tile_of_sequence : tile_of_sequence / a.tiles;
    part->tile = b * a.tiles * (unsigned)a.kv_heads + tile_of_sequence;
    part->first_row = (tile_of_sequence - part->kv_head * a.tiles) * TILE_ROWS;
    part->rows = (int)smaller<unsigned>(TILE_ROWS, a.rows - part->first_row);
}

// The first whole unit that has a key of the range.
VB_DEVICE int first_unit(const KeyRange &keys) { return keys.lo & ~(unit_keys - 1); }

// In turns: the tile of a block.
template <int TILE_ROWS>
VB_DEVICE Part tile_in_turns(const AttentionShape &a, int cluster) {
    Part part;
    place_tile<TILE_ROWS>(&part, a, blockIdx.z, blockIdx.y);
    const int clusters = (int)gridDim.x / cluster;
    part.first_slot = int(part.tile) * clusters;
    part.slot = part.first_slot + (int)blockIdx.x / cluster;
    return part;
}

// In turns: the part of these keys for a warp. The warp's first unit does not depend on the number of units.
// Units go to the blocks of a cluster first, then to the warps of a block: a few units spread over many
// multiprocessors. Where a warp of one block has no more than a unit, they stay with this block: no part is sent.
template <int WARPS>
VB_DEVICE void take_turn(Part *part, KeyRange all, const DecodePlan &plan) {
    const int turn = plan.cluster * WARPS * unit_keys, clusters = (int)gridDim.x / plan.cluster,
              index = part->slot - part->first_slot;
    const int rank = (int)blockIdx.x - index * plan.cluster, start = first_unit(all), keys = all.hi - start;
    // Two units a warp take less time than parts that come together by way of memory.
    if (plan.meeting)
        for (part->parts = 1; 2 * part->parts <= clusters && keys > 2 * part->parts * turn;) part->parts *= 2;
    else
        part->parts = keys <= 2 * turn ? 1 : smaller(clusters, ceil_div(keys, turn));
#if __CUDA_ARCH__ < 900
    part->parts = smaller(part->parts, 1 + (int)(plan.spread * sqrtf((float)keys / turn)));
#endif
    part->alone = plan.cluster > 1 && keys <= WARPS * unit_keys;
    const int cluster = part->alone ? 1 : plan.cluster; // blocks that share keys
    part->all = all;
    part->first = start + index * turn + ((int)(threadIdx.x / 32) * cluster + rank) * unit_keys;
    part->stride = part->parts * cluster * WARPS * unit_keys;
    part->end = index < part->parts && rank < cluster ? all.hi : 0;
}

// Every warp adds up the sequences' lengths, 32 at a time, and finds the block's own keys. Returns false where there is
// nothing for the block to do.
template <int TILE_ROWS, int WARPS>
VB_DEVICE bool plan_part(Part *part, const AttentionShape &a, int slots) {
    constexpr int block_keys = WARPS * unit_keys;
    const unsigned lane = threadIdx.x % 32, batch = (unsigned)a.batch,
                   tiles_of_sequence = a.tiles * (unsigned)a.kv_heads;
    const auto length = [&](unsigned b) {
        if (b >= batch) return 0;
        const KeyRange keys = keys_of_few(a, b, 0, (int)a.rows);
        return keys.hi - first_unit(keys);
    };
    int64_t total = 0;
    for (unsigned first = 0; first < batch; first += 32) {
        int64_t keys = length(first + lane);
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) keys += __shfl_xor_sync(all_lanes, keys, offset);
        total += keys;
    }
    const int64_t even = ceil_div<int64_t>(total * tiles_of_sequence, slots);
    const int each = (int)ceil_div<int64_t>(larger<int64_t>(even, least_blocks * block_keys), block_keys) * block_keys;
    unsigned block = blockIdx.x;
    for (unsigned first = 0; first < batch; first += 32) {
        const unsigned b = first + lane, parts = (unsigned)larger(1, ceil_div(length(b), each));
        const unsigned mine = b < batch ? parts * tiles_of_sequence : 0;
        unsigned end = mine; // an inclusive sum
#pragma unroll
        for (int offset = 1; offset < 32; offset *= 2) {
            const unsigned other = __shfl_up_sync(all_lanes, end, offset);
            if (lane >= offset) end += other;
        }
        const unsigned behind = __ballot_sync(all_lanes, block < end);
        if (behind) {
            const int owner = __ffs(behind) - 1;
            block -= __shfl_sync(all_lanes, end - mine, owner);
            const unsigned parts_of_tile = __shfl_sync(all_lanes, parts, owner), tile = block / parts_of_tile;
            const int index = int(block - tile * parts_of_tile);
            place_tile<TILE_ROWS>(part, a, first + owner, tile);
            part->all = keys_of_few(a, part->b, part->first_row, part->rows);
            const int start = first_unit(part->all), from = start + index * each;
            part->first = from + (int)(threadIdx.x / 32) * unit_keys;
            part->end = smaller(from + each, part->all.hi);
            part->stride = block_keys;
            // a tile may see fewer keys than its sequence
            part->parts = larger(1, ceil_div(part->all.hi - start, each));
            part->slot = (int)blockIdx.x;
            part->first_slot = part->slot - index;
            return index < part->parts;
        }
        block -= __shfl_sync(all_lanes, end, 31);
    }
    return false;
}

// The sum of n such: stats(i) is the greatest score and the sum of the i-th, out(i) its outputs.
template <class S, class O>
VB_DEVICE RowPart add_parts(int n, S stats, O out) {
    RowPart all = {Max::identity(), 0.0f, make_float4(0, 0, 0, 0)};
#pragma unroll 8
    for (int i = 0; i < n; i++) all.max = Max::combine(all.max, stats(i).x);
    const float from = all.max == Max::identity() ? 0.0f : all.max;
#pragma unroll 8
    for (int i = 0; i < n; i++) {
        const float2 part = stats(i);
        const float4 x = out(i);
        const float weight = exp2_fast(part.x - from);
        all.sum += part.y * weight;
        all.out.x += x.x * weight, all.out.y += x.y * weight, all.out.z += x.z * weight, all.out.w += x.w * weight;
    }
    return all;
}

// Two parts meet: the first block leaves its part in a slot of zeros. The second block takes the part and leaves zeros.
// Each block needs one access; writing, counting and reading would be three in turn.
// Returns whether this block is the second, and then adds the part that it took.
// A part is never all zeros: a sum of no keys has a maximum of minus infinity.
VB_DEVICE bool meet(uint4 *slot, float2 *out, float2 *stats) {
    const uint4 mine = make_uint4(__float_as_uint(out->x), __float_as_uint(out->y), __float_as_uint(stats->x),
                                  __float_as_uint(stats->y));
    uint4 other = make_uint4(0, 0, 0, 0);
#if defined(VB_WITH_EXCHANGE) && __CUDA_ARCH__ >= 900
    uint64_t low, high;
    asm volatile("{\n"
                 ".reg .b128 mine, other;\n"
                 "mov.b128 mine, {%2, %3};\n"
                 "atom.relaxed.gpu.global.exch.b128 other, [%4], mine;\n"
                 "mov.b128 {%0, %1}, other;\n"
                 "}\n"
                 : "=l"(low), "=l"(high)
                 : "l"((uint64_t)mine.y << 32 | mine.x), "l"((uint64_t)mine.w << 32 | mine.z),
                   "l"(__cvta_generic_to_global(slot))
                 : "memory");
    other = make_uint4((unsigned)low, unsigned(low >> 32), (unsigned)high, unsigned(high >> 32));
#endif
    if ((other.x | other.y | other.z | other.w) == 0) return false;
    *slot = make_uint4(0, 0, 0, 0);
    const float max = Max::combine(stats->x, __uint_as_float(other.z)), from = max == Max::identity() ? 0.0f : max;
    const float weight = exp2_fast(stats->x - from), weight_other = exp2_fast(__uint_as_float(other.z) - from);
    // Each product is rounded, so that the sum does not depend on which block came second.
    const auto add = [&](float x, unsigned y) {
        return __fmul_rn(x, weight) + __fmul_rn(__uint_as_float(y), weight_other);
    };
    *out = make_float2(add(out->x, other.x), add(out->y, other.y));
    *stats = make_float2(max, add(stats->y, other.w));
    return true;
}

// Two neighbours of out, from an even element on; of an operand, in the order of position_of (linear/packed/many.cuh).
template <class TQ>
VB_DEVICE void store_two(const AttentionShape &a, const DecodePlan &plan, int64_t at, float x, float y) {
    const int e = int(at % 16);
    const Vec<half, 2> halves = {{from_float<half>(x), from_float<half>(y)}};
    const Vec<TQ, 2> two = {{from_float<TQ>(x), from_float<TQ>(y)}};
    if (plan.results.operand)
        *reinterpret_cast<Vec<half, 2> *>((half *)a.out + (at - e) + e / 4 * 2 + e / 2 % 2 * 8) = halves;
    else if (sizeof(TQ) == 2 && plan.narrow) *reinterpret_cast<Vec<TQ, 2> *>((TQ *)a.out + at) = two;
    else *reinterpret_cast<float2 *>((float *)a.out + at) = make_float2(x, y);
}
template <class TQ>
VB_DEVICE void store_part(const AttentionShape &a, const DecodePlan &plan, const Part &part, int row, int d,
                          const RowPart &x) {
    if (d >= (int)a.dim) return;
    const float scale = x.sum > 0.0f ? 1.0f / x.sum : x.sum; // no key: zeros; NaN stays
    const int64_t at = query_offset(a, part.b, part.kv_head, part.first_row + row) + d;
    if (plan.results.operand || (sizeof(TQ) == 2 && plan.narrow)) {
        store_two<TQ>(a, plan, at, x.out.x * scale, x.out.y * scale);
        store_two<TQ>(a, plan, at + 2, x.out.z * scale, x.out.w * scale);
        return;
    }
    *reinterpret_cast<float4 *>((float *)a.out + at) =
        make_float4(x.out.x * scale, x.out.y * scale, x.out.z * scale, x.out.w * scale);
}
template <class TQ>
VB_DEVICE void store_part(const AttentionShape &a, const DecodePlan &plan, const Part &part, int row, int d, float2 out,
                          float sum) {
    if (d >= (int)a.dim) return;
    const float scale = sum > 0.0f ? 1.0f / sum : sum;
    store_two<TQ>(a, plan, query_offset(a, part.b, part.kv_head, part.first_row + row) + d, out.x * scale,
                  out.y * scale);
}

// Divides the tiles among blocks of which a multiprocessor is to have `together`. The parts' memory is `memory`, or
// where that is null the stream's workspace.
inline vb_status plan_decode(DecodePlan *plan, dim3 *grid, const AttentionShape &shape, int tile_rows, int dims,
                             int warps, int together, void *memory, vb_stream *stream) {
    const int64_t heads = shape.tiles * shape.kv_heads, tiles = heads * shape.batch,
                  slots = together * multiprocessors(stream);
    *plan = {};
    plan->cluster = 1;
    plan->counters = counters(stream);
    const int64_t windows = shape.causal && shape.window ? shape.window + shape.seq - 1 + unit_keys : shape.kv_len;
    const int64_t rounds = larger<int64_t>(1, ceil_div(smaller(windows, shape.kv_len), (int64_t)fewest_keys));
    int cluster = 1;
    if (capability(stream) >= 90)
        while (cluster < 8 && cluster < rounds && cluster * tiles <= multiprocessors(stream)) cluster *= 2;
    // With positions only the device knows the lengths of sequences. Clusters of four and more blocks finish the
    // longest sequence soonest.
    // A plan, and adding parts up by way of memory, take longer; where no tile would have two parts it is of no use.
    const bool divided = smaller(windows, shape.kv_len) > least_blocks * warps * unit_keys;
    plan->planned =
        (shape.batch > 1 && shape.positions && cluster < 4 && divided) || heads > 65535 || shape.batch > 65535;
    if (tiles > ATTENTION_DECODE_SHARED_TILES) plan->planned = false;
    int64_t parts = 1;
    if (plan->planned) {
        plan->slots = 2 * multiprocessors(stream);
        *grid = dim3((unsigned)(plan->slots + tiles));
        parts = grid->x;
    } else {
        plan->cluster = cluster;
        int64_t clusters = 1;
        if (tiles <= ATTENTION_DECODE_SHARED_TILES)
            clusters =
                larger<int64_t>(1, smaller(ceil_div<int64_t>(rounds, plan->cluster), slots / (tiles * plan->cluster)));
        *grid = dim3((unsigned)(plan->cluster * clusters), (unsigned)heads, (unsigned)shape.batch);
        parts = tiles * clusters;
#ifdef VB_WITH_EXCHANGE
        if (capability(stream) >= 90 && (parts - tiles) * tile_rows * (dims / 2) <= workspace_slots)
            plan->meeting = zero_slots(stream);
#endif
        if (clusters == 1 || plan->meeting) parts = 0;
        // More parts leave each fewer keys, and the last block more to add up.
        plan->spread = 128.0f / sqrtf((float)smaller<int64_t>(tile_rows, shape.rows) * (float)dims);
        // Sequences are read from memory that the kernel before may be writing, unless they are settled.
        plan->foretold = (!shape.sequences || shape.settled) && (shape.seq == 1 || !shape.positions);
    }
    if (parts > 0) {
        const int64_t items = parts * tile_rows * (dims / 4);
        if (!memory) VB_TRY(workspace(&memory, items * decode_item_bytes, stream));
        plan->partial = (float4 *)memory;
        plan->stats = (float2 *)(plan->partial + items);
    }
    return VB_OK;
}

// The most that plan_decode wants for a cache of 16 bits: parts for two blocks a multiprocessor and one a tile.
inline int64_t decode_parts_bytes(const vb_attention_args &a, vb_stream *stream) {
    const int rows = attention_decode_tile_rows(&a);
    const int64_t tiles = smaller<int64_t>(attention_tiles(&a, rows), ATTENTION_DECODE_SHARED_TILES);
    return (2 * multiprocessors(stream) + tiles) * rows * (attention_dims(a.dim) / 4) * decode_item_bytes;
}

} // namespace vb
#endif
