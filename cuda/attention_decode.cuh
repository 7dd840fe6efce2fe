// attention_decode.cuh: what the kernels for few query rows share: how the keys of a tile are divided among blocks, and how
// their parts come together.

#ifndef VB_CUDA_ATTENTION_DECODE_CUH
#define VB_CUDA_ATTENTION_DECODE_CUH

#include "attention.cuh"
#include "cluster.cuh"

namespace vb {

constexpr int keys_per_step = 64;
constexpr int most_split_tiles = 512; // with more there is enough to do without splitting, and parts would fill memory

// How the keys of tiles are shared among blocks.
enum Sharing {
    BY_CLUSTER, // grid (cluster, tiles of a sequence, sequences): in turns of a step, and the parts come together at once
    BY_PARTS,   // grid (parts, tiles of a sequence, sequences): the same by way of memory
    PLANNED     // equally many keys a block, whatever the sequences' lengths
};
struct DecodeSplits : AttentionSplits { // a part's slot is its block's number
    Sharing sharing;
    int slots;     // PLANNED: blocks that the keys are to be shared among
    bool prefetch; // what a block reads is known before the kernel before this has ended
};

// What a block computes: of a tile's keys, those from first + i * stride on, a step each, below end.
struct Part {
    unsigned b, kv_head, tile, first_row; // tile: of all sequences and heads
    int rows;
    int first, stride, end;
    int parts, first_block; // of the tile
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

// The part of a block that shares its tile in turns.
template <int TILE_ROWS>
VB_DEVICE Part part_in_turns(const AttentionShape &a) {
    Part part;
    place_tile<TILE_ROWS>(&part, a, blockIdx.z, blockIdx.y);
    part.first = (int)blockIdx.x * keys_per_step;
    part.stride = (int)gridDim.x * keys_per_step;
    part.end = (int)a.kv_len;
    part.parts = (int)gridDim.x;
    part.first_block = int((blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x);
    return part;
}

// Every warp adds up the sequences' lengths, 32 at a time, and finds the block's own keys. Returns false where there is
// nothing for the block to do.
template <int TILE_ROWS>
VB_DEVICE bool plan_part(Part *part, const AttentionShape &a, int slots) {
    const unsigned lane = threadIdx.x % 32, batch = (unsigned)a.batch, tiles_of_sequence = a.tiles * (unsigned)a.kv_heads;
    const auto length = [&](unsigned b) {
        if (b >= batch) return 0;
        const KeyRange keys = keys_of_few(a, b, 0, (int)a.rows);
        return keys.hi - keys.lo;
    };
    int64_t total = 0;
    for (unsigned first = 0; first < batch; first += 32) {
        int64_t keys = length(first + lane);
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) keys += __shfl_xor_sync(all_lanes, keys, offset);
        total += keys;
    }
    const int64_t even = ceil_div<int64_t>(total * tiles_of_sequence, slots);
    const int each = (int)ceil_div<int64_t>(larger<int64_t>(even, 4 * keys_per_step), keys_per_step) * keys_per_step;
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
            const KeyRange all = keys_of_few(a, part->b, part->first_row, part->rows);
            part->first = all.lo + index * each;
            part->end = smaller(part->first + each, all.hi);
            part->stride = keys_per_step;
            part->parts = larger(1, ceil_div(all.hi - all.lo, each)); // a tile may see fewer keys than its sequence
            part->first_block = (int)blockIdx.x - index;
            return index < part->parts;
        }
        block -= __shfl_sync(all_lanes, end, 31);
    }
    return false;
}

// What some keys of a row add up to, relative to their greatest score.
struct RowPart {
    float max, sum;
    float4 out;
};
// The sum of N such, where part(i) gives the i-th.
template <int N, class F>
VB_DEVICE RowPart add_parts(int n, F part) {
    RowPart x[N], all = {Max::identity(), 0.0f, make_float4(0, 0, 0, 0)};
#pragma unroll
    for (int i = 0; i < N; i++)
        if (i < n) {
            x[i] = part(i);
            all.max = Max::combine(all.max, x[i].max);
        }
    const float from = all.max == Max::identity() ? 0.0f : all.max;
#pragma unroll
    for (int i = 0; i < N; i++)
        if (i < n) {
            const float weight = exp2_fast(x[i].max - from);
            all.sum += x[i].sum * weight;
            all.out.x += x[i].out.x * weight, all.out.y += x[i].out.y * weight;
            all.out.z += x[i].out.z * weight, all.out.w += x[i].out.w * weight;
        }
    return all;
}

template <class TQ>
VB_DEVICE void store_part(const AttentionShape &a, const Part &part, int row, int d, const RowPart &x) {
    if (d >= (int)a.dim) return;
    const float scale = x.sum > 0.0f ? 1.0f / x.sum : x.sum; // no key: zeros; NaN stays
    Vec<TQ, 4> y;
    y.at[0] = from_float<TQ>(x.out.x * scale), y.at[1] = from_float<TQ>(x.out.y * scale);
    y.at[2] = from_float<TQ>(x.out.z * scale), y.at[3] = from_float<TQ>(x.out.w * scale);
    *reinterpret_cast<Vec<TQ, 4> *>((TQ *)a.out + query_offset(a, part.b, part.kv_head, part.first_row + row) + d) = y;
}

// Starts bringing bytes, a multiple of 16, from a 16-byte aligned address into the L2.
VB_DEVICE void prefetch_to_l2(const void *from, int bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
}

// The last block of a split tile adds the parts in the workspace up, [block][row of TILE_ROWS][DIMS]. Whole block.
template <int TILE_ROWS, int DIMS, class TQ>
VB_DEVICE void combine_parts(const AttentionShape &a, const DecodeSplits &splits, const Part &part, unsigned *flag) {
    if (!last_arriver(splits.counters + part.tile, (unsigned)part.parts, flag)) return;
    for (int item = threadIdx.x; item < part.rows * (DIMS / 4); item += blockDim.x) {
        const int row = item / (DIMS / 4), d = item % (DIMS / 4) * 4;
        const auto slot = [&](int p) { return (int64_t)(part.first_block + p) * TILE_ROWS + row; };
        RowPart sum = {Max::identity(), 0.0f, make_float4(0, 0, 0, 0)};
        for (int p = 0; p < part.parts; p += 16) {
            const RowPart some = add_parts<16>(part.parts - p, [&](int i) {
                const float2 stats = __ldcg(splits.stats + slot(p + i));
                return RowPart{stats.x, stats.y,
                               __ldcg(reinterpret_cast<const float4 *>(splits.partial + slot(p + i) * DIMS + d))};
            });
            sum = add_parts<2>(2, [&](int i) { return i == 0 ? sum : some; });
        }
        store_part<TQ>(a, part, row, d, sum);
    }
}

// Divides the tiles among blocks, where clusters may have up to `most` of them, and as many blocks as `slots` are at work at
// once; allocates the parts' memory.
inline vb_status plan_decode(DecodeSplits *splits, dim3 *grid, int *cluster, const AttentionShape &shape, int tile_rows, int dims,
                             int most, int slots, vb_stream *stream) {
    const int64_t heads = shape.tiles * shape.kv_heads, tiles = heads * shape.batch;
    const int64_t steps = ceil_div<int64_t>(shape.kv_len, keys_per_step);
    *splits = {};
    splits->slots = slots;
    splits->counters = counters(stream);
    *cluster = 1;
    if (capability(stream) >= 90)
        while (*cluster < steps && *cluster < most && tiles * *cluster * 2 <= 2 * multiprocessors(stream)) *cluster *= 2;
    // Beyond so many steps a block, parts on all multiprocessors are faster than clusters on most of them.
    int64_t parts = 1;
    if (steps > (*cluster > 1 ? 4 : 2) * *cluster && tiles <= most_split_tiles) {
        *cluster = 1;
        parts = larger<int64_t>(1, smaller(steps, slots / tiles));
        splits->sharing = shape.positions && shape.batch > 1 ? PLANNED : BY_PARTS;
    }
    if (heads > 65535 || shape.batch > 65535) {
        if (tiles > most_split_tiles) return VB_UNSUPPORTED;
        splits->sharing = PLANNED;
    }
    *grid = splits->sharing == PLANNED ? dim3((unsigned)(slots + tiles))
                                       : dim3((unsigned)(*cluster * parts), (unsigned)heads, (unsigned)shape.batch);
    if (splits->sharing != BY_CLUSTER) {
        void *memory;
        const int64_t rows = (int64_t)grid->x * grid->y * grid->z * tile_rows;
        VB_TRY(workspace(&memory, rows * (dims * (int64_t)sizeof(float) + (int64_t)sizeof(float2)), stream));
        splits->partial = (float *)memory;
        splits->stats = (float2 *)((float *)memory + rows * dims);
    }
    // Sequences and a window's first key are read from memory that the kernel before may be writing.
    splits->prefetch = capability(stream) >= 90 && splits->sharing != PLANNED && !shape.sequences && shape.window == 0;
    return VB_OK;
}

} // namespace vb
#endif
