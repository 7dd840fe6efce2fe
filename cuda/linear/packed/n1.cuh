// n1.cuh: 16 or 32 results at a time of W x for packed weights and one row of x, with the RMS norm before and an `Out`
// after it in the same kernel. n1_tile.cuh has the arithmetic of a tile.
//
// An item is PARTS rows of tiles: gate and up, the two halves that RoPE rotates, or neighbours. The warps of a block
// share an item. Warp w multiplies its tiles w, w + warps, ..., and quantizes x for them alone, so that no barrier
// precedes the products. One barrier a chunk of items adds up the warps. KSPLIT blocks share long rows: in a cluster
// they send sums to the block that finishes an item; before Hopper the last block adds up sums in the workspace.
// W (x * norm) is multiplied; 1 / sqrt(mean x^2 + eps) is applied to the sums. A step's kernels start cold, so that the
// first pass through any code waits for it: on Hopper x is quantized, and W multiplied, at one place each.
//   grid     a block for each multiprocessor, or item if there are fewer; up to 8 warps of at most 128 registers
//            rows of few tiles: groups of warps, each as such a block (choose_groups.h)
//   shared   the rings, x as bytes (2.5 an element), 1 KiB of partial sums for each item and part of two chunks
//   moves    the weights once; x once a block, from L2
//   bound    memory bandwidth; below a few MB the time between kernels. So a block leaves room for a block of the next
//            kernel, which fills its rings meanwhile (docs/experiments/2026-11-22-packed-n1.md)
#ifndef VB_LINEAR_N1_CUH
#define VB_LINEAR_N1_CUH

#include "arch/cluster.cuh"
#include "arch/group_sync.cuh"
#include "linear/linear.cuh"
#include "linear/packed/n1_tile.cuh"
#include "linear/packed/n1_update.cuh"
#include "linear/packed/tile_ring.cuh"

namespace vb {

struct N1Input {
    const float *x;    // [cols]
    const float *norm; // [cols], or null for ones; only where Out::norm
    float eps;
    int tiles, items;  // of a row of tiles; of all blocks
    int stages, chunk; // of a warp's ring; items between two barriers
    // norm_swiglu follows the shortest kernel: its blocks begin when x is nearly there.
    // A whole ring that is asked for first would hold x up for 3,000 cycles.
    int late;     // stages that are first filled once x has been asked for
    bool patient; // the next kernel may begin once the first item is multiplied, instead of once x has been asked for
    int cols;     // of x: whole tiles, unless rows are ragged
    // where blocks share columns without a cluster: [item][KSPLIT][results], and a counter an item, 0 between kernels
    float *partial = nullptr;
    unsigned *arrived = nullptr;
    int group_bytes = 0; // of shared memory of a group of warps
};

constexpr int n1_warps = LINEAR_WARPS; // at most

struct TilesAreKnown {
    VB_DEVICE void ask() const {}
    VB_DEVICE void operator()() const {}
};

// Adds up the sums of an item of blocks without a cluster, by a warp of each block. Returns whether this warp is the
// last, and has the sum in `total`.
template <int KSPLIT, int RESULTS>
VB_DEVICE bool n1_add_blocks(const N1Input &in, int item, int rank, int lane, float &total) {
    float *const sums = in.partial + (int64_t)item * KSPLIT * RESULTS + lane % RESULTS;
    if (lane < RESULTS) __stcg(sums + rank * RESULTS, total);
    __threadfence();
    __syncwarp();
    unsigned before = 0;
    if (lane == 0) {
        before = atomicAdd(in.arrived + item, 1);
        if (before == KSPLIT - 1) in.arrived[item] = 0;
    }
    if (__shfl_sync(all_lanes, before, 0) != KSPLIT - 1) return false;
    __threadfence();
    total = 0;
#pragma unroll
    for (int r = 0; r < KSPLIT; r++) total += __ldcg(sums + r * RESULTS);
    return true;
}

// Stores a warp's sums over its tiles: lane (g, t) has parts of those of the rows g, g + 8 of each part of an item. Of
// the four lanes t adds up row g + 8 (t & 1) of part t / 2.
template <int PARTS>
VB_DEVICE void n1_store_sums(float *to, const float (&sum)[2 * PARTS], int lane) {
    const int g = lane / 4, t = lane % 4;
    float pair[PARTS];
#pragma unroll
    for (int p = 0; p < PARTS; p++)
        pair[p] = (t & 1 ? sum[2 * p + 1] : sum[2 * p]) +
                  __shfl_xor_sync(all_lanes, t & 1 ? sum[2 * p] : sum[2 * p + 1], 1);
    const bool upper = PARTS == 2 && t & 2; // which part this lane keeps
    const float other = __shfl_xor_sync(all_lanes, upper ? pair[0] : pair[PARTS - 1], 2);
    if (PARTS == 2 || t < 2) to[16 * upper + 8 * (t & 1) + g] = (upper ? pair[PARTS - 1] : pair[0]) + other;
}

// One block's share of the items. Out has
//   norm                            whether the product is with rms_norm(x)
//   late                            whether in.late stages are filled behind x, and in.patient is heard
//   joined                          whether a row is the rows of several matrices side by side, each in whole tiles
//   tiles(item, part)               where the row of tiles begins; where joined:
//   tile(item, tile)                where the tile lies, of one part
//   read(in, tile, k, inside)       elements k.. of the tile of x; zeros where not inside
//   weigh(x, tile)                  what is multiplied, of elements that were read: behind the loads of all tiles
//   Ahead                           the data that one warp fetches for an item while it is computed:
//   prepare(&ahead, item, lane)     data that depend on no other kernel
//   fetch(&ahead, item, lane)       data of other kernels, before the warp reads x
//   fetch_more(&ahead, item, lane)  after fetch: data that need its values
//   store(ahead, item, lane, sum)   by the same warp; lane has the sum of row lane % 16 of part lane / 16 % PARTS
//   update                          NoUpdate, or N1Update for an adapter; then also
//   matrix(item, lane), row(item, lane), rows_of(matrix)   the matrix and place of the item's rows
// locate() is called before anything that tells where tiles lie is used, when the first part of x is on its way;
// locate.ask() before x is asked for.
// Items index, index + count, ... belong to this block or its cluster. Each of the KSPLIT blocks of a cluster
// multiplies a range of the tiles of every row, and finishes every KSPLIT-th item. Without a cluster the last block
// finishes an item.
// GROUPED: the block's threads with the same y are such a block.
template <class Block, int PARTS, int KSPLIT = 1, bool GROUPED = false, class Out, class Locate = TilesAreKnown>
VB_DEVICE void n1_product(const N1Input &in, const Out &out, int index, int count, const Locate &locate = {}) {
#if defined(VB_HAS_MMA)
#if __CUDA_ARCH__ < 900
    if constexpr (decltype(Out::update)::active) return; // linear_n1_adapts
#endif
    static_assert(KSPLIT == 1 || !Out::norm, "each block sees a part of x only");
    static_assert(PARTS == 1 || !Out::joined, "tiles have no part");
    static_assert(KSPLIT == 1 || !GROUPED, "clusters are of blocks");
    using P = Packed<Block>;
    using V = N1Tile<Block>;
    constexpr int quads = P::depth / 128;               // 16-byte loads of x a lane and tile
    constexpr int results = 16 * PARTS; // of an item
    constexpr bool updated = decltype(Out::update)::active;
    constexpr int item_matrices = decltype(Out::update)::item_matrices;
    constexpr bool itself = !Out::norm && KSPLIT == 1;    // multiplies x by V where no kernel has
    // whether another kernel tells where tiles lie; x comes from this kernel too, and would wait behind the tiles
    constexpr bool located = !std::is_same<Locate, TilesAreKnown>::value;
    // tiles of x loaded at once, as registers are left; beside V one, as instructions are fetched behind weights; few
    // before the tiles are located
    constexpr int group = updated && itself ? 1 : (Out::norm || located ? 4 : 8) / quads;
    extern __shared__ __align__(128) uint8_t all_shared[];
    uint8_t *const shared = GROUPED ? all_shared + threadIdx.y * in.group_bytes : all_shared;
    const int lane = threadIdx.x % 32, warp = __shfl_sync(all_lanes, threadIdx.x / 32, 0), warps = blockDim.x / 32;
#if __CUDA_ARCH__ >= 900
    constexpr bool x_first = located, short_code = true;
    const bool mailed = KSPLIT > 1 && (updated || !in.partial);
#else
    constexpr bool x_first = true; // nothing is fetched before x is there: the rings would only hold it up
    constexpr bool short_code = false; // two tiles at a time
    constexpr bool mailed = false;
#endif
    const int rank = KSPLIT > 1 ? blockIdx.x % KSPLIT : 0, begin = in.tiles * rank / KSPLIT, stages = in.stages;
    const int tiles = in.tiles * (rank + 1) / KSPLIT - begin; // of a row, this block's
    uint8_t *activations = shared + warps * stages * P::tile_bytes; // tile j of warp w: slot j * warps + w
    const int slots = ceil_div(ceil_div(in.tiles, KSPLIT), warps) * warps;
    float *partial = reinterpret_cast<float *>(activations + slots * V::bytes); // [2][chunk][n1_warps][results]
    float *squares = partial + 2 * in.chunk * n1_warps * results;            // [n1_warps]
    uint64_t *barriers = reinterpret_cast<uint64_t *>(squares + n1_warps);
    uint64_t *mailboxes = barriers + warps * stages;                              // [n1_warps]
    float *inbox = reinterpret_cast<float *>(mailboxes + n1_warps);           // [n1_warps][KSPLIT][results]

    TileRing<P::tile_bytes, true> ring;
    ring.start(shared + warp * stages * P::tile_bytes, barriers + warp * stages, stages, lane);
    // The next tile to fetch.
    int ahead_item = index, ahead_tile = warp, ahead_part = 0;
    const uint8_t *ahead_row[PARTS] = {};
    auto find_rows = [&] {
        if constexpr (!Out::joined) {
            if (ahead_item >= in.items) return;
#pragma unroll
            for (int p = 0; p < PARTS; p++) ahead_row[p] = out.tiles(ahead_item, p) + (begin + warp) * P::tile_bytes;
        }
    };
    if constexpr (!located) find_rows();
    auto address = [&] {
        if constexpr (Out::joined) return out.tile(ahead_item, begin + ahead_tile);
        else
            return (PARTS > 1 && ahead_part ? ahead_row[PARTS - 1] : ahead_row[0]) +
                   (ahead_tile - warp) * P::tile_bytes;
    };
    auto advance = [&] {
        if (PARTS > 1 && (ahead_part ^= 1)) return;
        ahead_tile += warps;
        if (ahead_tile >= tiles) ahead_tile = warp, ahead_item += count, find_rows();
    };
    static_assert(!located || KSPLIT == 1, "each warp has a tile");
    const bool has_tiles = located || warp < tiles;
    int filled = 0;
    auto fill = [&](int below) {
#pragma unroll 1
        for (; filled < below; filled++, advance())
            ring.fetch(filled, address(), has_tiles && ahead_item < in.items, lane);
    };
    typename Out::Ahead ahead;
    // The item that this warp adds up: item `warp` of a chunk, or of the items that this block finishes for its
    // cluster.
    const int own_item = index + (mailed ? warp * KSPLIT + rank : warp) * count;
    // With an update the warps have the items of all chunks in turn, and fetch the first of each before the products.
    constexpr bool owns = updated && KSPLIT == 1;
    const bool adds = own_item < in.items && (mailed || owns || warp < in.chunk);
    // What an adapter needs: V x as the block has it, and the rows of U and codes of the item that this warp adds up.
    // An instruction that the multiprocessor does not hold comes behind the weights that are on their way. So kernels
    // that begin early find all this before they ask for weights, and others while they wait for x or once they have x.
    constexpr bool begins_early = updated && !Out::late && KSPLIT == 1;
    float *const projected = KSPLIT > 1 ? inbox + n1_warps * KSPLIT * results : reinterpret_cast<float *>(mailboxes);
    [[maybe_unused]] auto projection = [&] {
        if constexpr (updated) {
            const int parts = out.update.parts, from = parts * rank / KSPLIT, to = parts * (rank + 1) / KSPLIT;
            return N1Projection<quads, item_matrices, itself>{
                out.update, projected, 0, 0, warp, warps, begin, tiles, lane, in.cols, from, to};
        } else return 0;
    }();
    [[maybe_unused]] uint4 u = {};
    [[maybe_unused]] float code = 1;
    [[maybe_unused]] auto prepare_update = [&] {
        if constexpr (updated) {
            const int last = index + (in.items - 1 - index) / count * count; // of the block's items
            projection.first = index < in.items ? out.matrix(index, 0) : 0;
            projection.start(index < in.items ? out.matrix(last, 31) : projection.first);
            const int mine = index + warp * count; // the first item that the warp adds up
            if ((owns || warp < in.chunk) && mine < in.items) u = load_update(out, mine, 0, lane);
            if (adds) out.prepare(&ahead, own_item, lane);
        }
    };
    [[maybe_unused]] auto fetch_update = [&] {
        if constexpr (updated) code = load_code(out.update, 0, lane), projection.fetch_parts();
    };
    [[maybe_unused]] auto ask_for_update = [&] {
        prepare_update();
        if (adds) out.fetch(&ahead, own_item, lane);
        fetch_update();
    };
    if constexpr (begins_early) prepare_update();
    if constexpr (Out::joined)
        if (adds) out.prepare(&ahead, own_item, lane); // would come behind the tiles
    if constexpr (Out::late && !x_first) fill(stages - in.late);
    else if constexpr (!x_first)
#pragma unroll 1
        for (; filled < stages; filled++, advance())
            ring.fetch(filled, address(), has_tiles && ahead_item < in.items, lane);
    auto next = [&](N1Weights<Block> &weights) {
        weights.load(ring.wait(), lane);
        ring.refill(address(), ahead_item < in.items, lane);
        advance();
    };
    // Sums always run over all of n1_warps, so that their loads do not wait for each other: missing warps are zeros.
    if (warps < n1_warps) {
#pragma unroll 1
        for (int of = warp; of < 2 * in.chunk; of += warps)
#pragma unroll 1
            for (int i = warps * results + lane; i < n1_warps * results; i += 32)
                partial[of * n1_warps * results + i] = 0.0f;
        if (Out::norm && (int)threadIdx.x < n1_warps - warps) squares[warps + threadIdx.x] = 0.0f;
    }
    if (mailed) {
        mailbox_init(mailboxes + warp, KSPLIT * results * (int)sizeof(float), adds && lane == 0);
        cluster_arrive();
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
                if constexpr (Out::joined)
                    v[t][i] = out.read(in, begin + k + t * warps, 128 * i + 4 * lane, k + t * warps < tiles);
                else
                    v[t][i] =
                        k + t * warps < tiles &&
                                (!P::ragged || (begin + k + t * warps) * P::depth + 128 * i + 4 * lane < in.cols)
                            ? reinterpret_cast<const float4 *>(from + (begin + k + t * warps) * P::depth)[32 * i + lane]
                            : make_float4(0, 0, 0, 0);
    };
    const bool weighted = Out::norm && in.norm;
    float4 norm[group][quads];
    if (weighted) load(norm, in.norm, warp);
    if (!updated && !Out::joined && adds) out.prepare(&ahead, own_item, lane);
    if (mailed) cluster_wait(); // all mailboxes stand
    wait_for_previous_kernel();
    locate.ask();
    if ((!updated || begins_early) && adds) out.fetch(&ahead, own_item, lane);
    if constexpr (begins_early) fetch_update();
    float square = 0;
    uint8_t *slot = activations + warp * V::bytes;
    for (int k = warp; k < tiles; k += group * warps) {
        float4 v[group][quads];
        load(v, in.x, k);
        if (k == warp) {
            if constexpr (located) {
                locate(), find_rows();
                if (adds) out.fetch_more(&ahead, own_item, lane); // would come behind the tiles
            }
            if constexpr (Out::late || x_first) fill(stages);
            // not before x is on its way: the next kernel's weights would delay it
            if (!Out::late || !in.patient) release_next_kernel();
            if constexpr (updated && !begins_early && !Out::late) ask_for_update();
        }
        if (weighted && k != warp) load(norm, in.norm, k);
#pragma unroll(short_code ? 1 : group)
        for (int t = 0; t < group && k + t * warps < tiles; t++) { // the next tile moves to place 0
            if constexpr (Out::joined) out.weigh(v[0], begin + k + t * warps);
            if constexpr (Out::norm) {
#pragma unroll
                for (int i = 0; i < quads; i++) {
                    float4 &e = v[0][i];
                    square = fmaf(e.x, e.x, fmaf(e.y, e.y, fmaf(e.z, e.z, fmaf(e.w, e.w, square))));
                    if (weighted) {
                        const float4 f = norm[0][i];
                        e.x *= f.x, e.y *= f.y, e.z *= f.z, e.w *= f.w;
                    }
                }
            }
            if constexpr (updated && itself) projection.multiply(v[0], k + t * warps);
            V::quantize(slot, v[0], lane);
            slot += warps * V::bytes;
#pragma unroll
            for (int after = 1; after < group; after++)
#pragma unroll
                for (int i = 0; i < quads; i++) {
                    v[after - 1][i] = v[after][i];
                    if (Out::norm) norm[after - 1][i] = norm[after][i];
                }
        }
    }
    if constexpr (Out::norm) {
        square = warp_reduce<Sum>(square);
        if (lane == 0) squares[warp] = square;
    }
    if constexpr (updated && Out::late) ask_for_update(); // heard behind the first products: sooner it would hold x up
    if (!located && adds) out.fetch_more(&ahead, own_item, lane);
    if constexpr (updated && !Out::late) projection.add_parts();
    __syncwarp();

    const uint4 by = P::summand_words();
    float *sums = partial; // of the chunk
    int turn = warp;       // the place in the chunk of the item that this warp adds up
#pragma unroll 1
    for (int first = index; first < in.items; first += in.chunk * count) {
        const int mine = first + turn * count, end = smaller(in.items, first + in.chunk * count);
        const bool adds_mine = turn < in.chunk && mine < end, anew = owns ? mine != own_item : first != index;
        if (!mailed && adds_mine && anew)
            out.prepare(&ahead, mine, lane), out.fetch(&ahead, mine, lane), out.fetch_more(&ahead, mine, lane);
        if constexpr (updated)
            if (adds_mine && anew) u = load_update(out, mine, 0, lane);
        float *to = sums + warp * results;
#pragma unroll 1
        for (int item = first; item < end; item += count, to += n1_warps * results) {
            if (Out::late && in.patient && item == index + count) release_next_kernel();
            float sum[2 * PARTS] = {}; // of the rows g, g + 8 of each part
            const uint8_t *x = activations + warp * V::bytes;
#pragma unroll(short_code || PARTS > 1 ? 1 : 2)
            for (int k = warp; k < tiles; k += warps, x += warps * V::bytes) {
                N1Operand<Block> operand;
                operand.load(x, offsets, lane);
#pragma unroll(short_code ? 1 : PARTS)
                for (int part = 0; part < PARTS; part++) { // the next part's sums move to place 0
                    N1Weights<Block> weights;
                    next(weights);
                    weights.multiply(sum, operand, by, lane);
                    const float first = sum[0], second = sum[1];
                    sum[0] = sum[2 * PARTS - 2], sum[1] = sum[2 * PARTS - 1];
                    sum[2 * PARTS - 2] = first, sum[2 * PARTS - 1] = second;
                }
            }
            n1_store_sums<PARTS>(to, sum, lane);
        }
        if constexpr (updated && Out::late)
            if (first == index) projection.add_parts();
        if constexpr (GROUPED) group_sync(1 + threadIdx.y, blockDim.x);
        else __syncthreads();
        if (adds_mine) {
            const float *from = sums + turn * n1_warps * results + lane;
            float total = 0;
#pragma unroll
            for (int i = 0; i < n1_warps * results / 32; i++) total += from[32 * i];
            if (PARTS == 1) total += __shfl_xor_sync(all_lanes, total, 16);
            if constexpr (updated) total += update_of(out, mine, projected, u, code, lane);
            if constexpr (Out::norm) {
                float mean = 0;
#pragma unroll
                for (int w = 0; w < n1_warps; w++) mean += squares[w];
                total *= rsqrtf(mean / static_cast<float>(P::ragged ? in.cols : tiles * P::depth) + in.eps);
            }
            if constexpr (KSPLIT == 1) {
                out.store(ahead, mine, lane, total);
            } else if (!mailed) {
                if (n1_add_blocks<KSPLIT, results>(in, mine, rank, lane, total)) out.store(ahead, mine, lane, total);
            } else if (lane < results) {
                const int nth = (mine - index) / count, owner = nth % KSPLIT, of = nth / KSPLIT;
                send(cluster_address(inbox + (of * KSPLIT + rank) * results + lane, owner),
                     cluster_address(mailboxes + of, owner), total);
            }
        }
        sums = sums == partial ? partial + in.chunk * n1_warps * results : partial;
        if (owns && (turn -= in.chunk) < 0) turn += warps;
    }
    if constexpr (KSPLIT > 1) {
        if (mailed && adds) {
            float total = 0;
            mailbox_wait(mailboxes + warp);
#pragma unroll
            for (int r = 0; r < KSPLIT; r++) total += inbox[(warp * KSPLIT + r) * results + lane % results];
            out.store(ahead, own_item, lane, total);
        }
    }
#endif
}

} // namespace vb
#endif
