// vector_product.cuh: the kernel of a token: 16 or 32 results at a time of W x for packed weights and one row of x, with the
// RMS norm before it and whatever follows it (`Out`) in the same kernel. linear_vector.cuh tells the arithmetic of a tile.
//
// An item is PARTS (1 or 2) rows of tiles: gate and up, or the two halves that RoPE rotates, or simply neighbours. The warps
// of a block share an item: warp w has the part w % PARTS and of its tiles each (warps / PARTS)-th. It quantizes just those
// parts of x, for itself, so that no barrier precedes the products. One barrier a chunk of items adds up the warps: warp i
// then adds up item i of the chunk and calls Out, while the others go on with the next chunk.
//
// rms_norm(x) needs no pass of its own: W (x * norm) is multiplied, each warp squares the x that it quantizes anyway, and the
// factor 1 / sqrt(mean x^2 + eps) is applied to the sums.
//
// What costs is the way from the end of one kernel to the end of the next. So a block uses less than half of a
// multiprocessor: the next kernel's blocks start beside it, as soon as x has been asked for, and fill their rings of tiles
// before this kernel has ended, for weights depend on nothing. Then only x is waited for.
//
// Measured on an H200, chains of one kernel in a graph:
//   a kernel that waits already goes on 0.2 us after the one before it; a step that loads, adds up and stores 1024 floats
//   takes 0.85 us from kernel to kernel, and 1.23 us between barriers of all blocks in one persistent kernel
//   0.5B (Q5_0): norm_qkv 3.1, linear_add 2.2 (output), norm_swiglu 4.1 us; 3B (Q4_K): 4.6, 3.0, 10.7 us, where memory
//   alone would take 0.7, 0.5, 5.5: from the end of one kernel to the first products of the next, memory idles
//   slower: starting the next kernel before x is asked for, and a first pass over no data to have the instructions at hand
//
//   grid     a block for each multiprocessor, or item if there are fewer; up to 16 warps of at most 64 registers
//   shared   the rings, x as bytes (2.6 an element and part), 1 KiB of partial sums for each item of two chunks; at most
//            half of what there is
//   moves    the weights once; x once a block, from L2
//   bound    memory bandwidth; below a few MB the latency of x: load, quantize, multiply, add up, store
#ifndef VB_VECTOR_PRODUCT_CUH
#define VB_VECTOR_PRODUCT_CUH

#include "linear_vector.cuh"

namespace vb {

struct VectorInput {
    const float *x;    // [tiles * depth]
    const float *norm; // [tiles * depth], or null for ones; only where Out::norm
    float eps;
    int tiles, items;  // of a row of tiles; of all blocks
    int stages, chunk; // of a warp's ring; items between two barriers
};

// The shared memory of a block: rings, x, partial sums, sums of squares, barriers of the rings.
constexpr int vector_warps = 16; // at most
template <class Block, int PARTS>
struct VectorMemory {
    using V = VectorTile<Block>;
    static constexpr int tile_bytes = Packed<Block>::tile_bytes;
    static __host__ __device__ int slots(int tiles, int warps) { return ceil_div(tiles, warps / PARTS) * warps; }
    static __host__ __device__ int64_t bytes(int tiles, int warps, int stages, int chunk) {
        return (int64_t)warps * stages * (tile_bytes + 8) + (int64_t)slots(tiles, warps) * V::bytes +
               (2 * chunk * 16 + 1) * vector_warps * (int64_t)sizeof(float);
    }
};

// One block's share of the items: block `index` of `count`. Out has
//   norm                            whether the product is with rms_norm(x)
//   tiles(item, part)               where that row of tiles begins
//   Ahead                           what is fetched for an item while it is computed, by one warp:
//   prepare(&ahead, item, lane)     what depends on no other kernel
//   fetch(&ahead, item, lane)       what does, before the warp reads x
//   fetch_more(&ahead, item, lane)  after that: what needs the values of the first
//   store(ahead, item, lane, sum)   by the same warp; lane has the sum of row lane % 16 of part lane / 16 % PARTS
template <class Block, int PARTS, class Out>
VB_DEVICE void vector_product(const VectorInput &in, const Out &out, int index, int count) {
#if defined(VB_HAS_MMA)
    using P = Packed<Block>;
    using V = VectorTile<Block>;
    using M = VectorMemory<Block, PARTS>;
    constexpr int quads = P::depth / 128, group = 4 / quads; // 16-byte loads a lane; tiles of x loaded at once
    extern __shared__ __align__(128) uint8_t shared[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int part = warp % PARTS, first = warp / PARTS, step = warps / PARTS, tiles = in.tiles, stages = in.stages;
    uint8_t *activations = shared + warps * stages * P::tile_bytes; // tile j of warp w: slot j * warps + w
    float *partial = reinterpret_cast<float *>(activations + M::slots(tiles, warps) * V::bytes); // [2][chunk][warps][16]
    float *squares = partial + 2 * in.chunk * vector_warps * 16;                                  // [warps]
    uint64_t *barriers = reinterpret_cast<uint64_t *>(squares + vector_warps);

    TileRing<P::tile_bytes> ring;
    ring.start(shared + warp * stages * P::tile_bytes, barriers + warp * stages, stages, lane);
    int ahead_item = index, ahead_tile = first; // the next tile to fetch
    auto address = [&] { return out.tiles(ahead_item, part) + ahead_tile * P::tile_bytes; };
    auto advance = [&] {
        ahead_tile += step;
        if (ahead_tile >= tiles) ahead_tile = first, ahead_item += count;
    };
    for (int s = 0; s < stages; s++, advance()) ring.fetch(s, address(), ahead_item < in.items, lane);
    // Sums always run over 16 warps, so that their loads do not wait for each other: those that are missing are zeros.
    if (warps < vector_warps) {
        for (int i = threadIdx.x; i < 2 * in.chunk * 16 * (vector_warps - warps); i += blockDim.x) {
            const int of = i / (16 * (vector_warps - warps)), rest = i - of * 16 * (vector_warps - warps);
            partial[(of * vector_warps + warps) * 16 + rest] = 0.0f;
        }
        if (Out::norm && (int)threadIdx.x < vector_warps - warps) squares[warps + threadIdx.x] = 0.0f;
    }
    int offsets[4];
#pragma unroll
    for (int c = 0; c < 4; c++) offsets[c] = V::operand_offset(lane, c);
    // A group of this warp's tiles, from tile k on: 4 elements of each 128 a lane; zeros beyond the last.
    auto load = [&](float4 (&v)[group][quads], const float *from, int k) {
#pragma unroll
        for (int t = 0; t < group; t++)
#pragma unroll
            for (int i = 0; i < quads; i++)
                v[t][i] = k + t * step < tiles ? reinterpret_cast<const float4 *>(from + (k + t * step) * P::depth)[32 * i + lane]
                                               : make_float4(0, 0, 0, 0);
    };
    const bool weighted = Out::norm && in.norm;
    float4 norm[group][quads];
    if (weighted) load(norm, in.norm, first);
    typename Out::Ahead ahead;
    const int own_item = index + warp * count; // what this warp adds up of the first chunk
    const bool adds = warp < in.chunk && own_item < in.items;
    if (adds) out.prepare(&ahead, own_item, lane);
    wait_for_previous_kernel();
    if (adds) out.fetch(&ahead, own_item, lane);
    float square = 0;
    uint8_t *slot = activations + warp * V::bytes;
    for (int k = first; k < tiles; k += group * step) {
        float4 v[group][quads];
        load(v, in.x, k);
        if (k == first) release_next_kernel(); // not before x is on its way: the next kernel's weights would delay it
        if (weighted && k != first) load(norm, in.norm, k);
#pragma unroll
        for (int t = 0; t < group; t++) {
            if (k + t * step >= tiles) break;
            if constexpr (Out::norm) {
#pragma unroll
                for (int i = 0; i < quads; i++) {
                    float4 &e = v[t][i];
                    square = fmaf(e.x, e.x, fmaf(e.y, e.y, fmaf(e.z, e.z, fmaf(e.w, e.w, square))));
                    if (weighted) {
                        const float4 f = norm[t][i];
                        e.x *= f.x, e.y *= f.y, e.z *= f.z, e.w *= f.w;
                    }
                }
            }
            V::quantize(slot, v[t], lane);
            slot += warps * V::bytes;
        }
    }
    if constexpr (Out::norm) {
        square = warp_reduce<Sum>(square);
        if (lane == 0) squares[warp] = square;
    }
    if (adds) out.fetch_more(&ahead, own_item, lane);
    __syncwarp();

    float *sums = partial; // of the chunk
    for (int begin = index; begin < in.items; begin += in.chunk * count) {
        const int mine = begin + warp * count, end = smaller(in.items, begin + in.chunk * count);
        if (warp < in.chunk && mine < end && begin != index)
            out.prepare(&ahead, mine, lane), out.fetch(&ahead, mine, lane), out.fetch_more(&ahead, mine, lane);
        float *to = sums + warp * 16;
        for (int item = begin; item < end; item += count, to += vector_warps * 16) {
            float sum[2] = {0, 0};
            const uint8_t *x = activations + warp * V::bytes;
            for (int k = first; k < tiles; k += step, advance(), x += warps * V::bytes) {
                VectorWeights<Block> weights;
                weights.load(ring.wait(), lane);
                ring.refill(address(), ahead_item < in.items, lane);
                weights.multiply(sum, x, offsets, lane);
            }
#pragma unroll
            for (int r = 0; r < 2; r++) {
                sum[r] += __shfl_xor_sync(all_lanes, sum[r], 1);
                sum[r] += __shfl_xor_sync(all_lanes, sum[r], 2);
            }
            if (lane % 4 == 0) to[lane / 4] = sum[0], to[lane / 4 + 8] = sum[1];
        }
        __syncthreads();
        if (warp < in.chunk && mine < end) { // half of the lanes add up every other warp: with two parts, those of its part
            const float *from = sums + (warp * vector_warps + lane / 16) * 16 + lane % 16;
            float total = 0, mean = 0;
#pragma unroll
            for (int v = 0; v < vector_warps / 2; v++) {
                total += from[2 * v * 16];
                if constexpr (Out::norm) mean += squares[2 * v + lane / 16];
            }
            if constexpr (PARTS == 1) {
                total += __shfl_xor_sync(all_lanes, total, 16);
                if constexpr (Out::norm) mean += __shfl_xor_sync(all_lanes, mean, 16);
            }
            if constexpr (Out::norm) total *= rsqrtf(mean / static_cast<float>(tiles * P::depth) + in.eps);
            out.store(ahead, mine, lane, total);
        }
        sums = sums == partial ? partial + in.chunk * vector_warps * 16 : partial;
    }
#endif
}

// ---- host side ----------------------------------------------------------------------------------------------------------

struct VectorPlan {
    int warps, stages, chunk, blocks; // of a block; of a ring; items between barriers; of the grid
    int64_t shared_bytes;
};

// Plans blocks for that many items; VB_UNSUPPORTED where x does not fit in shared memory.
template <class Block, int PARTS>
vb_status plan_vector_product(VectorPlan *plan, int tiles, int64_t items, vb_stream *stream) {
    using M = VectorMemory<Block, PARTS>;
    const bool bulk = capability(stream) >= 90;
    const int most = (bulk ? vector_warps : 8) / PARTS, sms = multiprocessors(stream);
    const int each = ceil_div(tiles, most), step = ceil_div(tiles, each); // tiles a warp and item
    plan->warps = step * PARTS;
    // Half of a multiprocessor's 228 KiB, for the next kernel to start beside this one; the driver takes 1 KiB of a block.
    const int64_t limit = bulk ? (114 << 10) - 1024 : shared_limit(stream), rounds = ceil_div<int64_t>(items, sms);
    plan->chunk = (int)smaller<int64_t>(smaller<int64_t>(rounds, plan->warps), larger(1, 4 / each));
    plan->stages = bulk ? (int)smaller<int64_t>(each * rounds, 8) : TileRing<M::tile_bytes>::old_stages;
    while (bulk && plan->stages > 1 && M::bytes(tiles, plan->warps, plan->stages, plan->chunk) > limit) plan->stages--;
    plan->shared_bytes = M::bytes(tiles, plan->warps, plan->stages, plan->chunk);
    if (plan->shared_bytes > limit) return VB_UNSUPPORTED;
    const int64_t resident = bulk ? 1 : larger<int64_t>(1, smaller<int64_t>(3, limit / (plan->shared_bytes + 1024)));
    plan->blocks = (int)smaller<int64_t>(items, sms * resident);
    return VB_OK;
}

} // namespace vb
#endif
