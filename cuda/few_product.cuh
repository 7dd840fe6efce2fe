// few_product.cuh: the kernel of a step of 2 to 4 sequences: 16 or 32 rows of W at a time by few rows of x, packed weights, with the
// RMS norm before it and whatever follows it (`Out`) in the same kernel. packed_few.cuh tells the arithmetic of a tile.
//
// It is the kernel of one row (vector_product.cuh), which tells its shape: warps share an item and split its tiles, each quantizes
// just those tiles of x, of all rows, that it multiplies, so that no barrier precedes the products; one barrier a chunk of items adds
// up the warps. Long rows are split among the blocks of a cluster, which send their sums to the block that finishes them: pairs of
// rows of x in turn.
//
// Each piece of code stands here once: instructions come from memory too. Unrolled over four rows of x and with three places that
// finish a result, norm_qkv had 4,900 of them a type and took 8.3 us instead of the 4.0 of one row, waiting for instructions.
//
//   grid     a block for each multiprocessor, or item if there are fewer; up to 8 warps of at most 128 registers
//   shared   the rings, x as bytes (10 or 20 an element), sums of each warp of two chunks
//   moves    the weights once; x once a block, from L2
#ifndef VB_FEW_PRODUCT_CUH
#define VB_FEW_PRODUCT_CUH

#include "packed_few.cuh"
#include "packed_product.cuh"
#include "vector_product.cuh"

namespace vb {

constexpr int most_few = 4; // rows of x; of 8 it takes 52 us a layer of the 3B, packed_product.cuh 44

struct FewInput {
    const float *x;    // [n][tiles * depth]
    const float *norm; // [tiles * depth], or null for ones
    bool with_norm;    // the product is with rms_norm(x); not in clusters
    float eps;
    int n, tiles, items;       // rows of x; tiles of a row; items of all blocks
    int stages, chunk, rounds; // of a warp's ring; items between two barriers; items of a block or cluster
};

// The shared memory of a block.
constexpr int few_warps = 8; // at most
template <class Block, int ROWS, int PARTS, int SPLIT>
struct FewMemory {
    using X = FewTile<Block, ROWS>;
    static constexpr int tile_bytes = Packed<Block>::tile_bytes;
    static constexpr int results = 16 * PARTS, stride = results + 8; // of a row of x and item; without conflicts of banks
    static constexpr int own_pairs = larger(1, ROWS / 2 / SPLIT); // of rows of x, which a block of a cluster finishes, at most
    static __host__ __device__ int64_t bytes(int n, int tiles, int warps, int stages, int chunk, int rounds) {
        return (int64_t)warps * stages * (tile_bytes + 8) + (int64_t)tiles * X::bytes +
               (2 * chunk * warps * n * stride + few_warps * ROWS) * (int64_t)sizeof(float) +
               (SPLIT > 1 ? rounds * (8 + SPLIT * 2 * own_pairs * results * (int64_t)sizeof(float)) : 0);
    }
};

// One block's share of the items: index, index + count, ..., or its cluster's of SPLIT blocks. Out is that of packed_product.cuh.
template <class Block, int ROWS, int PARTS, int SPLIT, class Out>
VB_DEVICE void few_product(const FewInput &in, const Out &out, int index, int count) {
#if defined(VB_HAS_MMA)
    using P = Packed<Block>;
    using X = FewTile<Block, ROWS>;
    using M = FewMemory<Block, ROWS, PARTS, SPLIT>;
    constexpr int quads = P::depth / 128;
    extern __shared__ __align__(128) uint8_t shared[];
    const int lane = threadIdx.x % 32, warp = __shfl_sync(all_lanes, threadIdx.x / 32, 0), warps = blockDim.x / 32;
    const int rank = SPLIT > 1 ? cluster_rank() : 0, stages = in.stages, n = in.n;
    const int begin = in.tiles * rank / SPLIT, tiles = in.tiles * (rank + 1) / SPLIT - begin; // of a row, this block's
    uint8_t *activations = shared + warps * stages * P::tile_bytes;
    float *partial = reinterpret_cast<float *>(activations + ceil_div(in.tiles, SPLIT) * X::bytes);
    float *squares = partial + 2 * in.chunk * warps * n * M::stride; // partial: [2][chunk][warps][n][stride]; [few_warps][ROWS]
    uint64_t *barriers = reinterpret_cast<uint64_t *>(squares + few_warps * ROWS);
    uint64_t *mailboxes = barriers + warps * stages;                 // [rounds]
    float *inbox = reinterpret_cast<float *>(mailboxes + in.rounds); // [rounds][SPLIT][2 * own_pairs][16][PARTS]

    // The ring holds whole pairs of tiles, where there are two parts. The tiles to fetch next, after advance():
    TileRing<P::tile_bytes> ring;
    ring.start(shared + warp * stages * P::tile_bytes, barriers + warp * stages, stages, lane);
    int ahead_item = index - count, ahead_tile = tiles;
    const uint8_t *ahead[PARTS] = {};
    auto advance = [&] { // returns whether there are any
        ahead_tile += warps;
#pragma unroll
        for (int p = 0; p < PARTS; p++) ahead[p] += warps * P::tile_bytes;
        if (ahead_tile >= tiles) {
            ahead_tile = warp, ahead_item += count;
            if (ahead_item < in.items)
#pragma unroll
                for (int p = 0; p < PARTS; p++) ahead[p] = out.tiles(ahead_item, p) + (begin + warp) * P::tile_bytes;
        }
        return warp < tiles && ahead_item < in.items;
    };
#pragma unroll 1
    for (int s = 0; s < stages; s += PARTS) {
        const bool exists = advance();
#pragma unroll
        for (int p = 0; p < PARTS; p++) ring.fetch(s + p, ahead[p], exists, lane);
    }

    // After the products a warp finishes the 16 rows of an item for two rows of x: those of item `of` of a chunk.
    const int pairs = (n + 1) / 2, of = warp / pairs, pair = warp - of * pairs, row = lane % 16, token = 2 * pair + lane / 16;
    // In a cluster, these are sums of a part of the tiles, which block `pair` % SPLIT adds up: of round `round`, this warp.
    const int round = warp / M::own_pairs, own_pair = warp % M::own_pairs, own_item = index + round * count;
    const int own_token = SPLIT > 1 ? 2 * (rank + own_pair * SPLIT) + lane / 16 : token;
    const bool adds_own = SPLIT > 1 && rank + own_pair * SPLIT < pairs && own_item < in.items;
    typename Out::Ahead fetched;
    if constexpr (SPLIT > 1) {
        int rows = 0; // that this block finishes
        for (int p = rank; p < pairs; p += SPLIT) rows += smaller(2, n - 2 * p);
        for (int r = warp; index + r * count < in.items; r += warps)
            mailbox_init(mailboxes + r, SPLIT * rows * M::results * (int)sizeof(float), lane == 0);
        cluster_arrive();
        cluster_wait(); // all mailboxes stand
    }
    if (lane < ROWS) squares[warp * ROWS + lane] = 0;
    __syncwarp();

    float *sums = partial; // of the chunk
#pragma unroll 1
    for (int first = index, nth = 0; first < in.items; first += in.chunk * count, nth += in.chunk) {
        const int mine = first + of * count, end = smaller(in.items, first + in.chunk * count);
        const bool adds = of < in.chunk && mine < end, finishes = SPLIT > 1 ? adds_own && first == index : adds;
        if (first == index) wait_for_previous_kernel();
        if (finishes && own_token < n) out.fetch(&fetched, SPLIT > 1 ? own_item : mine, own_token, row);
        if (first == index) {
            // This warp's tiles of x, two rows at a time, of which the next two are on the way: 4 elements of each 128 a lane.
            float4 v[2][quads], next[2][quads], norm[quads];
            int next_tile = warp, next_token = 0;
            auto load = [&] {
                if (next_tile >= tiles) return;
                const float4 *from = reinterpret_cast<const float4 *>(in.x + ((int64_t)next_token * in.tiles + begin + next_tile) * P::depth) + lane;
                const int other = next_token + 1 < n ? in.tiles * (P::depth / 4) : 0; // of an odd number the last row is its own pair
#pragma unroll
                for (int i = 0; i < quads; i++) next[0][i] = from[32 * i], next[1][i] = from[32 * i + other];
                if ((next_token += 2) >= n) next_token = 0, next_tile += warps;
            };
            load();
#pragma unroll 1
            for (int k = warp, t = 0; k < tiles;) {
                if (in.norm && t == 0)
#pragma unroll
                    for (int i = 0; i < quads; i++) norm[i] = reinterpret_cast<const float4 *>(in.norm + k * P::depth)[32 * i + lane];
#pragma unroll
                for (int i = 0; i < quads; i++) v[0][i] = next[0][i], v[1][i] = next[1][i];
                load();
                if (k == warp && t == 0) release_next_kernel(); // not before x is on its way: the next kernel's weights would delay it
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    const int to = smaller(t + r, n - 1);
                    if (in.with_norm) {
                        float square = 0;
#pragma unroll
                        for (int i = 0; i < quads; i++) {
                            float4 &e = v[r][i];
                            square = fmaf(e.x, e.x, fmaf(e.y, e.y, fmaf(e.z, e.z, fmaf(e.w, e.w, square))));
                            if (in.norm) e.x *= norm[i].x, e.y *= norm[i].y, e.z *= norm[i].z, e.w *= norm[i].w;
                        }
                        square = warp_reduce<Sum>(square);
                        if (lane == 0 && t + r < n) squares[warp * ROWS + to] += square;
                    }
                    X::quantize(activations + k * X::bytes, v[r], to, lane);
                }
                if ((t += 2) >= n) t = 0, k += warps;
            }
            __syncwarp();
        }
        if (finishes && own_token < n) out.fetch_more(&fetched, SPLIT > 1 ? own_item : mine, own_token, row);

        float *to = sums + warp * n * M::stride + lane / 4;
#pragma unroll 1
        for (int item = first; item < end; item += count, to += warps * n * M::stride) {
            float sum[PARTS][ROWS / 4][2] = {};
#pragma unroll 1
            for (int k = warp; k < tiles; k += warps) {
                LaneTile<Block> w[PARTS];
                const bool exists = advance();
#pragma unroll
                for (int p = 0; p < PARTS; p++) {
                    w[p].template load<false>(ring.wait(), lane);
                    ring.refill(ahead[p], exists, lane);
                    if (ROWS > 4) multiply_few<ROWS>(sum[p], w[p], activations + k * X::bytes, lane); // one at a time, by registers
                }
                if (ROWS == 4)
#pragma unroll
                    for (int p = 0; p < PARTS; p++) multiply_few<ROWS>(sum[p], w[p], activations + k * X::bytes, lane);
            }
#pragma unroll
            for (int j = 0; j < ROWS / 4; j++)
                if (4 * j + lane % 4 < n)
#pragma unroll
                    for (int p = 0; p < PARTS; p++)
#pragma unroll
                        for (int r = 0; r < 2; r++) to[(4 * j + lane % 4) * M::stride + 16 * p + 8 * r] = sum[p][j][r];
        }
        __syncthreads();
        if (adds) {
            const int at = smaller(token, n - 1); // of an odd number
            const float *from = sums + (of * warps * n + at) * M::stride + row;
            float total[PARTS] = {}, mean = 0;
#pragma unroll
            for (int w = 0; w < few_warps; w++)
                if (w < warps) {
#pragma unroll
                    for (int p = 0; p < PARTS; p++) total[p] += from[w * n * M::stride + 16 * p];
                    mean += squares[w * ROWS + at];
                }
            if (SPLIT == 1 && in.with_norm) {
                const float factor = rsqrtf(__fdividef(mean, static_cast<float>(tiles * P::depth)) + in.eps);
#pragma unroll
                for (int p = 0; p < PARTS; p++) total[p] *= factor;
            }
            if constexpr (SPLIT == 1) {
                out.store(fetched, mine, token, row, total);
            } else if (token < n) {
                const int to_block = pair % SPLIT, place = pair / SPLIT * 2 + lane / 16;
                float *there = inbox + ((((nth + of) * SPLIT + rank) * 2 * M::own_pairs + place) * 16 + row) * PARTS;
                const unsigned address = cluster_address(there, to_block), mailbox = cluster_address(mailboxes + nth + of, to_block);
                if constexpr (PARTS == 2) send2(address, mailbox, make_float2(total[0], total[1]));
                else send(address, mailbox, total[0]);
            }
        }
        sums = sums == partial ? partial + in.chunk * warps * n * M::stride : partial;
    }
    if constexpr (SPLIT > 1) {
        if (adds_own) {
            mailbox_wait(mailboxes + round);
            float total[PARTS] = {};
#pragma unroll
            for (int r = 0; r < SPLIT; r++)
#pragma unroll
                for (int p = 0; p < PARTS; p++)
                    total[p] += inbox[((((round * SPLIT + r) * M::own_pairs + own_pair) * 2 + lane / 16) * 16 + row) * PARTS + p];
            out.store(fetched, own_item, own_token, row, total);
        }
    }
#endif
}

// ---- host side ----------------------------------------------------------------------------------------------------------

struct FewPlan {
    int warps, blocks; // of a block; of the grid
    int64_t shared_bytes;
};

// Plans blocks for in->items, SPLIT of which share the tiles of a row, and fills in the rest of `in`; VB_UNSUPPORTED where x does
// not fit in shared memory, or a cluster would have more items than its warps finish.
template <class Block, int ROWS, int PARTS, int SPLIT>
vb_status plan_few_product(FewPlan *plan, FewInput *in, vb_stream *stream) {
    using M = FewMemory<Block, ROWS, PARTS, SPLIT>;
    const bool bulk = capability(stream) >= 90;
    const int64_t most = shared_limit(stream);
    const int64_t granted = bulk ? granted_shared((int64_t)in->items * PARTS * in->tiles * M::tile_bytes, most) : most;
    const int sms = multiprocessors(stream), tiles = ceil_div(in->tiles, SPLIT), each = ceil_div(tiles, few_warps);
    // Of the multiprocessors of a group that share clusters some are left over: of 132, 128 make clusters of four.
    const int clusters = smaller(in->items, SPLIT > 2 ? sms / 8 * 8 / SPLIT : sms / SPLIT), pairs = (in->n + 1) / 2;
    plan->warps = larger(pairs, ceil_div(tiles, each));
    in->rounds = ceil_div(in->items, clusters);
    if (SPLIT > 1 && in->rounds * M::own_pairs > plan->warps) return VB_UNSUPPORTED;
    in->chunk = larger(1, smaller(smaller(in->rounds, plan->warps / pairs), smaller(4 / each, most_few / in->n)));
    in->stages = bulk ? smaller(PARTS * each * in->rounds, 12) : ceil_div((int)TileRing<M::tile_bytes>::old_stages, PARTS) * PARTS;
    const auto bytes = [&] { return M::bytes(in->n, tiles, plan->warps, in->stages, in->chunk, in->rounds); };
    while (bulk && in->stages > 2 * PARTS && bytes() > granted) in->stages -= PARTS;
    while (bulk && in->stages > PARTS && bytes() > most) in->stages -= PARTS;
    if (bytes() > most) return VB_UNSUPPORTED;
    plan->shared_bytes = bulk ? larger(bytes(), granted) : bytes();
    const int64_t resident = bulk ? 1 : larger<int64_t>(1, smaller<int64_t>(2, most / (plan->shared_bytes + 1024)));
    plan->blocks = (int)smaller<int64_t>(in->items, clusters * resident) * SPLIT;
    return VB_OK;
}

// Calls f(constant) with the rows of x, rounded up, that a kernel has been made for; VB_UNSUPPORTED for more.
template <class F>
vb_status with_few_rows(int64_t n, F f) {
    if (n > most_few) return VB_UNSUPPORTED;
    return n <= 4 ? f(Tokens<4>()) : f(Tokens<8>());
}

} // namespace vb
#endif
