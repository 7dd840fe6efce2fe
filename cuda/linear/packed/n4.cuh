// n4.cuh: 16 or 32 rows of packed W at a time by 2 to 4 rows of x, with the RMS norm before and an `Out` after it in
// the same kernel. n4_tile.cuh has the arithmetic of a tile, and n1.cuh the shape.
//
// The warps of a block share an item and split its tiles; each warp quantizes x, of all rows, for its own tiles alone.
// Long rows: each of the two blocks of a cluster finishes two rows of x, with sums that the other block sends.
// Each piece of code stands here once, for instructions come from memory too: unrolled over four rows of x norm_qkv
// took twice as long.
//
//   grid     a block for each multiprocessor, or item if there are fewer; up to 8 warps of at most 128 registers
//            rows of few tiles: groups of warps, each as such a block (choose_groups.h)
//   shared   the rings, x as bytes (10 an element), sums of each warp of two chunks
//   moves    the weights once; x once a block, from L2
//   bound    latency and instructions: to load and quantize x takes about 0.5 us a warp, tile and two rows
//   measured docs/experiments/2026-11-22-packed-steps.md
#ifndef VB_LINEAR_N4_CUH
#define VB_LINEAR_N4_CUH

#include "arch/cluster.cuh"
#include "arch/group_sync.cuh"
#include "linear/linear.cuh"
#include "linear/packed/n4_tile.cuh"
#include "linear/packed/tile_ring.cuh"

namespace vb {

struct N4Input {
    const float *x;    // [n][cols]
    const float *norm; // [cols], or null for ones
    bool with_norm;    // the product is with rms_norm(x); not in clusters
    float eps;
    int n, tiles, items;       // rows of x; tiles of a row; items of all blocks
    int stages, chunk, rounds; // of a warp's ring; items between two barriers; items of a block or cluster
    int cols;                  // of x: whole tiles, unless rows are ragged
    int group_bytes = 0;       // of shared memory of a group of warps
};

constexpr int n4_warps = LINEAR_WARPS; // at most

// The share of a block, or of a cluster of KSPLIT blocks, in the items: index, index + count, .... n32.cuh describes
// Out.
// TWO: of two rows of x (n4_tile.cuh). GROUPED: the block's threads with the same y are such a block.
template <class Block, int PARTS, int KSPLIT, bool TWO = false, bool GROUPED = false, class Out>
VB_DEVICE void n4_product(const N4Input &in, const Out &out, int index, int count) {
#if defined(VB_HAS_MMA)
#if __CUDA_ARCH__ < 900
    if constexpr (GROUPED || decltype(Out::update)::active) return __trap(); // linear_groups, linear_rows_adapt
#endif
    using P = Packed<Block>;
    static_assert(KSPLIT <= 2, "a block finishes two rows of x");
    static_assert(KSPLIT == 1 || !GROUPED, "clusters are of blocks");
    using X = N4Tile<Block>;
    constexpr int results = 16 * PARTS, stride = results + 8; // of a row of x and item; without conflicts of banks
    constexpr int quads = P::depth / 128;
    extern __shared__ __align__(128) uint8_t all_shared[];
    uint8_t *const shared = GROUPED ? all_shared + threadIdx.y * in.group_bytes : all_shared;
    const int lane = threadIdx.x % 32, warp = __shfl_sync(all_lanes, threadIdx.x / 32, 0), warps = blockDim.x / 32;
    const int rank = KSPLIT > 1 ? cluster_rank() : 0, stages = in.stages, n = TWO ? 2 : in.n;
    // of a row, this block's
    const int begin = in.tiles * rank / KSPLIT, tiles = in.tiles * (rank + 1) / KSPLIT - begin;
    uint8_t *activations = shared + warps * stages * P::tile_bytes;
    float *partial = reinterpret_cast<float *>(activations + ceil_div(in.tiles, KSPLIT) * X::bytes);
    // partial: [2][chunk][warps][n][stride]; [n4_warps][n4_rows]
    float *squares = partial + 2 * in.chunk * warps * n * stride;
    uint64_t *barriers = reinterpret_cast<uint64_t *>(squares + n4_warps * n4_rows);
    uint64_t *mailboxes = barriers + warps * stages;                 // [rounds]
    float *inbox = reinterpret_cast<float *>(mailboxes + in.rounds); // [rounds][KSPLIT][2][16][PARTS]

    // The ring holds whole pairs of tiles, where there are two parts. The tiles to fetch next, after advance():
    TileRing<P::tile_bytes, true> ring;
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

    // After the products a warp finishes the 16 rows of an item for two rows of x: item `of` of a chunk.
    const int pairs = (n + 1) / 2, of = warp / pairs, pair = warp - of * pairs, row = lane % 16,
              token = 2 * pair + lane / 16;
    // In a cluster, these are sums of a part of the tiles. Block `pair` adds them up, each warp item `warp` of the
    // block.
    const int own_item = index + warp * count, own_token = KSPLIT > 1 ? 2 * rank + lane / 16 : token;
    const bool adds_own = KSPLIT > 1 && rank < pairs && own_item < in.items;
    typename Out::Ahead fetched;
    if constexpr (KSPLIT > 1) {
        const int rows = larger(0, smaller(2, n - 2 * rank)); // that this block finishes
        mailbox_init(mailboxes + warp, KSPLIT * rows * results * (int)sizeof(float), adds_own && lane == 0);
        cluster_arrive();
        cluster_wait(); // all mailboxes stand
    }
    if (lane < n4_rows) squares[warp * n4_rows + lane] = 0;
    __syncwarp();

    // Whether this lane's columns exist in part i of a tile of this block.
    const auto exists = [&](int k, int i) {
        return k < tiles && (!P::ragged || (begin + k) * P::depth + 128 * i + 4 * lane < in.cols);
    };
    const int64_t row_stride = P::ragged ? in.cols : in.tiles * P::depth;
    constexpr int group = 2 / quads; // tiles of x at a time, k, k + warps ..
    float4 norm[group][quads];
    auto load_norm = [&](int k) {
        if (in.norm)
#pragma unroll
            for (int j = 0; j < group; j++)
#pragma unroll
                for (int i = 0; i < quads; i++)
                    norm[j][i] = exists(k + j * warps, i) ? reinterpret_cast<const float4 *>(
                                                             in.norm + (k + j * warps) * P::depth)[32 * i + lane]
                                                       : make_float4(0, 0, 0, 0);
    };
    load_norm(warp);
    const uint4 by = P::summand_words();
    float *sums = partial; // of the chunk
#pragma unroll 1
    for (int first = index, nth = 0; first < in.items; first += in.chunk * count, nth += in.chunk) {
        const int mine = first + of * count, end = smaller(in.items, first + in.chunk * count);
        const bool adds = of < in.chunk && mine < end, finishes = KSPLIT > 1 ? adds_own && first == index : adds;
        if (first == index) wait_for_previous_kernel();
        if (finishes && own_token < n) out.fetch(&fetched, KSPLIT > 1 ? own_item : mine, own_token, row);
        if (first == index) {
            // This warp's tiles of x, two rows at a time, while the next two are on the way: 4 elements of each 128 a
            // lane.
            float4 v[2][group][quads], next[2][group][quads];
            int next_tile = warp, next_token = 0;
            auto load = [&] {
                if (next_tile >= tiles) return;
                const float *first = in.x + next_token * row_stride + (begin + next_tile) * P::depth;
                // of an odd number the last row is its own pair
                const int other = next_token + 1 < n ? (int)(row_stride / 4) : 0;
#pragma unroll
                for (int j = 0; j < group; j++) {
                    const float4 *from = reinterpret_cast<const float4 *>(first + j * warps * P::depth) + lane;
#pragma unroll
                    for (int i = 0; i < quads; i++) {
                        if (exists(next_tile + j * warps, i))
                            next[0][j][i] = from[32 * i], next[1][j][i] = from[32 * i + other];
                        else next[0][j][i] = next[1][j][i] = make_float4(0, 0, 0, 0);
                    }
                }
                if ((next_token += 2) >= n) next_token = 0, next_tile += group * warps;
            };
            load();
#pragma unroll 1
            for (int k = warp, t = 0; k < tiles;) {
#pragma unroll
                for (int j = 0; j < group; j++)
#pragma unroll
                    for (int i = 0; i < quads; i++) v[0][j][i] = next[0][j][i], v[1][j][i] = next[1][j][i];
                load();
                // not before x is on its way: the next kernel's weights would delay it
                if (k == warp && t == 0) release_next_kernel();
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    const int to = smaller(t + r, n - 1);
                    if (in.with_norm) {
                        float square = 0;
#pragma unroll
                        for (int j = 0; j < group; j++)
#pragma unroll
                            for (int i = 0; i < quads; i++) {
                                float4 &e = v[r][j][i];
                                const float4 by = norm[j][i];
                                square = fmaf(e.x, e.x, fmaf(e.y, e.y, fmaf(e.z, e.z, fmaf(e.w, e.w, square))));
                                if (in.norm) e.x *= by.x, e.y *= by.y, e.z *= by.z, e.w *= by.w;
                            }
                        square = warp_reduce<Sum>(square);
                        if (lane == 0 && t + r < n) squares[warp * n4_rows + to] += square;
                    }
#pragma unroll
                    for (int j = 0; j < group; j++)
                        if (k + j * warps < tiles)
                            X::template quantize<TWO>(activations + (k + j * warps) * X::bytes, v[r][j], to, lane);
                }
                if ((t += 2) >= n) t = 0, k += group * warps, load_norm(k);
            }
            __syncwarp();
        }
        if (finishes && own_token < n) out.fetch_more(&fetched, KSPLIT > 1 ? own_item : mine, own_token, row);

        float *to = sums + warp * n * stride + lane / 4;
#pragma unroll 1
        for (int item = first; item < end; item += count, to += warps * n * stride) {
            float sum[PARTS][2] = {};
#pragma unroll 1
            for (int k = warp; k < tiles; k += warps) {
                constexpr bool in_turn = P::table && P::sixteens; // two tiles at once would spill
                LaneTile<Block> w[PARTS];
                const bool exists = advance();
#pragma unroll
                for (int p = 0; p < PARTS; p++) {
                    w[p].template load<false>(ring.wait(), lane);
                    ring.refill(ahead[p], exists, lane);
                    if constexpr (in_turn) n4_multiply<Block, TWO>(sum[p], w[p], activations + k * X::bytes, by, lane);
                }
                if constexpr (!in_turn)
#pragma unroll
                    for (int p = 0; p < PARTS; p++)
                        n4_multiply<Block, TWO>(sum[p], w[p], activations + k * X::bytes, by, lane);
            }
            if constexpr (TWO)
#pragma unroll
                for (int p = 0; p < PARTS; p++)
#pragma unroll
                    for (int r = 0; r < 2; r++) sum[p][r] += __shfl_xor_sync(all_lanes, sum[p][r], 2);
            if (lane % 4 < n)
#pragma unroll
                for (int p = 0; p < PARTS; p++)
#pragma unroll
                    for (int r = 0; r < 2; r++) to[lane % 4 * stride + 16 * p + 8 * r] = sum[p][r];
        }
        if constexpr (GROUPED) group_sync(1 + threadIdx.y, blockDim.x);
        else __syncthreads();
        if (adds) {
            const int at = smaller(token, n - 1); // of an odd number
            const float *from = sums + (of * warps * n + at) * stride + row;
            float total[PARTS] = {}, mean = 0;
#pragma unroll
            for (int w = 0; w < n4_warps; w++)
                if (w < warps) {
#pragma unroll
                    for (int p = 0; p < PARTS; p++) total[p] += from[w * n * stride + 16 * p];
                    mean += squares[w * n4_rows + at];
                }
            if (KSPLIT == 1 && in.with_norm) {
                const float factor =
                    rsqrtf(__fdividef(mean, static_cast<float>(P::ragged ? in.cols : tiles * P::depth)) + in.eps);
#pragma unroll
                for (int p = 0; p < PARTS; p++) total[p] *= factor;
            }
            if constexpr (KSPLIT == 1) {
                out.store(fetched, mine, token, row, total);
            } else if (token < n) {
                float *there = inbox + ((((nth + of) * KSPLIT + rank) * 2 + lane / 16) * 16 + row) * PARTS;
                const unsigned address = cluster_address(there, pair),
                               mailbox = cluster_address(mailboxes + nth + of, pair);
                if constexpr (PARTS == 2) send2(address, mailbox, make_float2(total[0], total[1]));
                else send(address, mailbox, total[0]);
            }
        }
        sums = sums == partial ? partial + in.chunk * warps * n * stride : partial;
    }
    if constexpr (KSPLIT > 1) {
        if (adds_own) {
            mailbox_wait(mailboxes + warp);
            float total[PARTS] = {};
#pragma unroll
            for (int r = 0; r < KSPLIT; r++)
#pragma unroll
                for (int p = 0; p < PARTS; p++)
                    total[p] += inbox[(((warp * KSPLIT + r) * 2 + lane / 16) * 16 + row) * PARTS + p];
            out.store(fetched, own_item, own_token, row, total);
        }
    }
#endif
}

} // namespace vb
#endif
