// n1.cuh: the kernel of a token: 16 or 32 results at a time of W x for packed weights and one row of x, with the
// RMS norm before it and whatever follows it (`Out`) in the same kernel. n1_tile.cuh tells the arithmetic of a tile.
//
// An item is PARTS (1 or 2) rows of tiles: gate and up, or the two halves that RoPE rotates, or simply neighbours. The warps
// of a block share an item: warp w multiplies the tiles w, w + warps, ... of it, those of both parts by one loaded tile of
// x. It quantizes just those tiles of x, for itself, so that no barrier precedes the products. One barrier a chunk of items
// adds up the warps: warp i then adds up item i of the chunk and calls Out, while the others go on with the next chunk.
//
// Long rows (down) are split between the two blocks of a cluster, each of which loads and quantizes half of x; the sums of an
// item go by message to the one that finishes it, and are added in the order of the ranks.
//
// rms_norm(x) needs no pass of its own: W (x * norm) is multiplied, each warp squares the x that it quantizes anyway, and the
// factor 1 / sqrt(mean x^2 + eps) is applied to the sums.
//
// norm_swiglu follows the shortest kernel: its blocks begin when x is nearly there. So they ask for a part of their rings before x
// only, and for the rest behind it; the whole ring took 2,000 cycles to ask for, and x 3,000 to come by behind it. It also lets down begin
// only when its own first item is multiplied.
//
// What costs is the way from the end of one kernel to the end of the next. So a block uses about half of a
// multiprocessor: the next kernel's blocks start beside it, as soon as x has been asked for, and fill their rings of tiles
// before this kernel has ended, for weights depend on nothing. Then only x is waited for.
//
// Measured on an H200, tokens/s of a token's graph at 100 positions, Q4_K_M, where no unit is said:
//   0.5B 2,220; 1.5B 1,430; 3B 967; 7B 655 (by these sizes of shared memory, before the last change of the planning).
//   Chains of one kernel: 0.5B (Q5_0) norm_qkv 2.6, output 2.0, norm_swiglu 3.9, down 3.3 us; 3B (Q4_K) 3.4, 2.7, 8.4, 6.7,
//   where memory alone takes 0.7, 0.6, 6.0, 3.7; 7B, long kernels of 140 KiB, 5.3, 3.9, 19.0, 14.1 of 2.3, 1.7, 18.2, 11.2
//   neighbours: output and norm_swiglu of the 7B took 33 us where two blocks of a kernel fit on one multiprocessor beside none,
//   25 where the output's took 113 KiB so that they did not, 23 with long kernels of 140; the model 547, 569 and 668
//   warps: 16 of 64 registers, one tile at a time, took 190 instructions a tile instead of 150, with less to do while they
//   waited (a scheduler issued in 43 cycles of 100), and x twice, in rings of 64 KiB: 3B 789, 7B 523
//   rings: 140 KiB for long kernels and 84 for short ones is 2 % better for the 7B and 6 % worse for the 3B than 118 and 106. So it goes by
//   bytes: us a layer without attention, 7B with 118 KiB for its long kernels 45.3, 126 44.3, 140 43.9, 154 43.9, 160 44.4; 3B with 118 for
//   down's 18 MB of Q6_K 22.5, with 106 22.2. down of the 7B alone (Q6_K) 17.1 us with 118, 16.5 with 140, 16.4 with 200
//   when norm_swiglu lets the next kernel begin, in the same measure: with x asked for, and with its first item done: 3B 22.2, 21.6; 1.5B
//   19.1, 18.4; 0.5B 14.0, 13.7. One item before its end 20.4 in the 1.5B. 7B, where nothing fits beside it, 45.8, two items before its end 46.5
//   split: 3B 891 with two blocks, 853 without; four blocks gain 2 % more in the 3B and lose 9 % in the 7B; splitting the
//   output too changes nothing
//   the L2: output and norm_swiglu of the 3B take 9.8 us instead of 11.4 where the same 28 MB are read again and again: about
//   what bringing them there ahead of time could gain
//   a kernel that waits already goes on 0.2 us after the one before it; a step that loads, adds up and stores 1024 floats
//   takes 0.85 us from kernel to kernel, and 1.23 us between barriers of all blocks in one persistent kernel
//   slower: all layers as one persistent kernel. A block an SM: a warp that fetched the tiles of the whole token, in order, to
//   rings of three tiles for each of 16 warps (162 KiB); x, q, k, v and h passed on as values that are their own flags, without
//   barriers of all blocks. us a layer, graphs at 100 positions without the vocabulary, these kernels first: 0.5B 17.3 and
//   16.9, 1.5B 23.1 and 24.5, 3B 26.4 and 30.7, 7B 48.8 and 60.3; a layer of a 256-wide model 15.2 and 12.7. The reasons:
//     messages wait behind weights. One step in which every block hears 2048 floats and tells 16 takes 1,360 cycles by itself,
//     3,350 while 36 KiB of tiles are on their way to each SM (3.8 TB/s, by a clock of 1.98 GHz), 6,600 with 72 and 12,900 with
//     144; of 11008 floats 2,880, and 5,980 with 36 KiB. What is fetched early to hide the steps makes them longer: with 8
//     tiles a warp asked for in the L2 ahead instead of 2 the 3B took 47 us a layer instead of 37
//     it was not the memory: with the weights of one layer for all, which the L2 nearly holds, 31.5 us (these kernels 26.3). Of
//     a block's cycles, in one traced run, two fifths waited for messages, a quarter multiplied, a fifth quantized: 2,000 for
//     one tile a warp
//     code: a loop over one inlined product 30.7, the same product called as a function 37.6. 17 warps have 96 registers each,
//     which spilled; 16 warps of 128 were not measured
//     polls: of all that a lane misses at once; 64 ns of sleep between them changes nothing, one lane that polls for its warp
//     makes 31.9 of 30.7
//   the way of a layer: cycles (1.98 GHz) from when the kernel before has ended, in a traced graph (3 % slower), medians of warps;
//   in brackets the slowest hundredth. From there to the next kernel's wait 800 to 1,900, attention with both handovers 9,500
//                       begins  asked for tiles  x there  is bytes  first tile  first item  all products  stored
//       3B norm_qkv      -6056            -2887      631      1353        2086        3336          3439   4435 (5588)
//          output        -5977            -4783      519      1052        1378        2340          2528   3150 (3674)
//          norm_swiglu   -2072              -24     3662      4797        5313        6640         12854        (17828)
//          down          -6672             -882      507      2041        2617        6026          6138   7697 (10364)
//       0.5B norm_qkv    -3514            -1080      598      1253        2226        3359          3483   4223 (5078)
//          output        -5308            -4153      563       987        1335        1967          2049   2990 (3481)
//          norm_swiglu   -2525              -21     2187      2786        3547        4464          5761   6440 (7286)
//          down          -4075            -2070      479      2068        2849        4443          4538   5040 (6168)
//     the slowest blocks end a step: of norm_swiglu and down they take 5,000 and 2,700 cycles more than most
//     no single stage is what is waited for: without any products a layer of the 3B takes 23.5 us instead of 26.4, with all tiles
//     from the L2 25.2; making x bytes up to 500 cycles sooner and asking for tiles 1,400 sooner made none shorter
//   late stages: us a layer of the 3B, 0.5B, 1.5B, 7B where norm_swiglu fills all stages before x 26.4, 17.9, 23.2, 49.5; one 26.3,
//   17.2, 22.7, 50.1; two 26.2, 17.3, 22.8, 49.8; three 25.9, 17.5, 22.9, 49.4; four 25.9, 17.7, 22.9, 49.0; six 26.5, 17.9, 23.2, 49.3
//   slower, in the same order, where these kernels without late stages took 26.4, 17.9, 23.2, 49.2:
//     several tiles of x made bytes side by side, without branches, and squares added up after the products: 26.8, 19.2, 23.4, 49.7.
//     What follows has this too:
//     a bulk copy for the tiles of all warps, not one for each, whose instructions are 64 of a tile's 163: stages of two tiles a
//     warp, filled again when all have read them, 28.5, 19.1, 23.9, 55.2; of one, which each warp fills again, 28.0, 19.0, 24.5, 52.2 (both
//     with the turns that follow)
//     rings filled by as many lanes at once: 27.5, 19.9, 24.2, 50.5; besides one warp in turn adds up an item while the others go
//     on: 27.3, 20.0, 24.6, 50.1; and norm_swiglu asks for four tiles before x and for the rest after it: 26.8, 19.6, 23.3, 49.6;
//     or clusters of four for down: 30.6 in the 3B
//     output lets norm_swiglu begin before it waits itself: with stages of one tile 28.7 instead of 28.0, 18.8 of 19.0, 25.2 of 24.5,
//     54.1 of 52.3; with no more than two of these stages on the way 28.2 in the 3B
//     norm_qkv brings what norm_swiglu's rings cannot hold to the L2: with stages of two tiles 29.8 instead of 28.5
//     attention of up to 128 keys by one block, without messages: 3.56 us instead of 3.64 in the 0.5B, the same in the 3B
//   no faster, or not enough: long rows of tiles in order of columns. A cluster of two took a range of pairs of rows of tiles, to a tile as
//   long as any other's (what two clusters had of a row met by an exchange in memory), cut into even runs for its warps, column by
//   column, so that a warp quantized one tile of x only before its first product. us of down alone: 7B Q6_K 16.5, Q4_K 11.7 (these kernels
//   16.5, 11.9), 3B 6.7 and 5.7 (8.0, 6.1), but tokens/s of the 3B 986 (990), of the 7B 674 (671). norm_swiglu so: 7B 19.6 us (19.0), tokens/s of
//   the 1.5B 1,459 (1,463), of the 0.5B 2,214 (2,194). What it showed of down of the 7B, in another state of it, 17.5 us: 15.9
//   without multiplying, 15.6 without waiting for the kernel before, 14.8 without both, and 14.1, 93 % of a copy, without waiting, but
//   beside the kernel before: what is missing is the way from one kernel's last tile to the next one's first, not the memory. Besides:
//     stages of two tiles with one barrier 16.9, of one 17.6; tiles in order of memory instead of columns 17.1 of 17.5
//     two tiles a warp ahead of the rings to the L2 17.7 of 16.9, four 18.9; one lane elected in hardware for the copies: the same
//     clusters of four: no more than 30 are on an H200 at once, of eight 15. 32, which divide these models' rows evenly, made
//     two waves: 26 us of 17
//   slower: starting the next kernel before x is asked for; a first pass over no data to have the instructions at hand; a
//   second item for some blocks of norm_qkv instead of 144 blocks (7B 630); long and short kernels in turn (7B 558)
//
//   grid     a block for each multiprocessor, or item if there are fewer; up to 8 warps of at most 128 registers
//   shared   the rings, x as bytes (2.5 an element), 1 KiB of partial sums for each item and part of two chunks
//   moves    the weights once; x once a block, from L2
//   bound    memory bandwidth; below a few MB the latency of x: load, quantize, multiply, add up, store
#ifndef VB_VECTOR_PRODUCT_CUH
#define VB_VECTOR_PRODUCT_CUH

#include "arch/cluster.cuh"
#include "linear/linear.cuh"
#include "linear/packed/n1_tile.cuh"
#include "linear/packed/tile_ring.cuh"

namespace vb {

struct N1Input {
    const float *x;    // [tiles * depth]
    const float *norm; // [tiles * depth], or null for ones; only where Out::norm
    float eps;
    int tiles, items;  // of a row of tiles; of all blocks
    int stages, chunk; // of a warp's ring; items between two barriers
    int late;          // of the stages: those that are filled for the first time once x has been asked for
    bool patient;      // the next kernel may begin once the first item is multiplied, instead of once x has been asked for
};

constexpr int n1_warps = LINEAR_WARPS; // at most

// One block's share of the items. Out has
//   norm                            whether the product is with rms_norm(x)
//   late                            whether in.late stages are filled behind x, and in.patient is heard
//   tiles(item, part)               where that row of tiles begins
//   Ahead                           what is fetched for an item while it is computed, by one warp:
//   prepare(&ahead, item, lane)     what depends on no other kernel
//   fetch(&ahead, item, lane)       what does, before the warp reads x
//   fetch_more(&ahead, item, lane)  after that: what needs the values of the first
//   store(ahead, item, lane, sum)   by the same warp; lane has the sum of row lane % 16 of part lane / 16 % PARTS
// Items index, index + count, ... are this block's, or its cluster's: each of KSPLIT blocks then multiplies a range of the
// tiles of every row, and finishes every KSPLIT-th item.
template <class Block, int PARTS, int KSPLIT = 1, class Out>
VB_DEVICE void n1_product(const N1Input &in, const Out &out, int index, int count) {
#if defined(VB_HAS_MMA)
    static_assert(KSPLIT == 1 || !Out::norm, "each block sees a part of x only");
    using P = Packed<Block>;
    using V = N1Tile<Block>;
    constexpr int quads = P::depth / 128;               // 16-byte loads of x a lane and tile
    constexpr int group = (Out::norm ? 4 : 8) / quads; // tiles of x loaded at once
    constexpr int results = 16 * PARTS; // of an item
    extern __shared__ __align__(128) uint8_t shared[];
    const int lane = threadIdx.x % 32, warp = __shfl_sync(all_lanes, threadIdx.x / 32, 0), warps = blockDim.x / 32;
    const int rank = KSPLIT > 1 ? cluster_rank() : 0, begin = in.tiles * rank / KSPLIT, stages = in.stages;
    const int tiles = in.tiles * (rank + 1) / KSPLIT - begin; // of a row, this block's
    uint8_t *activations = shared + warps * stages * P::tile_bytes; // tile j of warp w: slot j * warps + w
    const int slots = ceil_div(ceil_div(in.tiles, KSPLIT), warps) * warps;
    float *partial = reinterpret_cast<float *>(activations + slots * V::bytes); // [2][chunk][n1_warps][results]
    float *squares = partial + 2 * in.chunk * n1_warps * results;            // [n1_warps]
    uint64_t *barriers = reinterpret_cast<uint64_t *>(squares + n1_warps);
    uint64_t *mailboxes = barriers + warps * stages;                              // [n1_warps]
    float *inbox = reinterpret_cast<float *>(mailboxes + n1_warps);           // [n1_warps][KSPLIT][results]

    TileRing<P::tile_bytes> ring;
    ring.start(shared + warp * stages * P::tile_bytes, barriers + warp * stages, stages, lane);
    // The next tile to fetch.
    int ahead_item = index, ahead_tile = warp, ahead_part = 0;
    const uint8_t *ahead_row[PARTS] = {};
    auto find_rows = [&] {
        if (ahead_item < in.items)
#pragma unroll
            for (int p = 0; p < PARTS; p++) ahead_row[p] = out.tiles(ahead_item, p) + (begin + warp) * P::tile_bytes;
    };
    find_rows();
    auto address = [&] {
        return (PARTS > 1 && ahead_part ? ahead_row[PARTS - 1] : ahead_row[0]) + (ahead_tile - warp) * P::tile_bytes;
    };
    auto advance = [&] {
        if (PARTS > 1 && (ahead_part ^= 1)) return;
        ahead_tile += warps;
        if (ahead_tile >= tiles) ahead_tile = warp, ahead_item += count, find_rows();
    };
    const bool has_tiles = warp < tiles;
    int filled = 0;
    auto fill = [&](int below) {
#pragma unroll 1
        for (; filled < below; filled++, advance()) ring.fetch(filled, address(), has_tiles && ahead_item < in.items, lane);
    };
    if constexpr (Out::late) fill(stages - in.late);
    else for (; filled < stages; filled++, advance()) ring.fetch(filled, address(), has_tiles && ahead_item < in.items, lane);
    auto next = [&](N1Weights<Block> &weights) {
        weights.load(ring.wait(), lane);
        ring.refill(address(), ahead_item < in.items, lane);
        advance();
    };
    // Sums always run over all of n1_warps, so that their loads do not wait for each other: missing warps are zeros.
    if (warps < n1_warps) {
        const int missing = results * (n1_warps - warps);
        for (int i = threadIdx.x; i < 2 * in.chunk * missing; i += blockDim.x) {
            const int of = i / missing;
            partial[(of * n1_warps + warps) * results + i - of * missing] = 0.0f;
        }
        if (Out::norm && (int)threadIdx.x < n1_warps - warps) squares[warps + threadIdx.x] = 0.0f;
    }
    typename Out::Ahead ahead;
    // What this warp adds up: item `warp` of a chunk, or of those that this block finishes for its cluster.
    const int own_item = index + (KSPLIT > 1 ? warp * KSPLIT + rank : warp) * count;
    const bool adds = own_item < in.items && (KSPLIT > 1 || warp < in.chunk);
    if (KSPLIT > 1) {
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
                v[t][i] = k + t * warps < tiles
                              ? reinterpret_cast<const float4 *>(from + (begin + k + t * warps) * P::depth)[32 * i + lane]
                              : make_float4(0, 0, 0, 0);
    };
    const bool weighted = Out::norm && in.norm;
    float4 norm[group][quads];
    if (weighted) load(norm, in.norm, warp);
    if (adds) out.prepare(&ahead, own_item, lane);
    if (KSPLIT > 1) cluster_wait(); // all mailboxes stand
    wait_for_previous_kernel();
    if (adds) out.fetch(&ahead, own_item, lane);
    float square = 0;
    uint8_t *slot = activations + warp * V::bytes;
    for (int k = warp; k < tiles; k += group * warps) {
        float4 v[group][quads];
        load(v, in.x, k);
        if (k == warp) {
            if constexpr (Out::late) fill(stages);
            if (!Out::late || !in.patient) release_next_kernel(); // not before x is on its way: the next kernel's weights would delay it
        }
        if (weighted && k != warp) load(norm, in.norm, k);
#pragma unroll
        for (int t = 0; t < group; t++) {
            if (k + t * warps >= tiles) break;
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

    const int g = lane / 4, t = lane % 4;
    float *sums = partial; // of the chunk
    for (int first = index; first < in.items; first += in.chunk * count) {
        const int mine = first + warp * count, end = smaller(in.items, first + in.chunk * count);
        const bool adds_mine = warp < in.chunk && mine < end;
        if (KSPLIT == 1 && adds_mine && first != index)
            out.prepare(&ahead, mine, lane), out.fetch(&ahead, mine, lane), out.fetch_more(&ahead, mine, lane);
        float *to = sums + warp * results;
        for (int item = first; item < end; item += count, to += n1_warps * results) {
            if (Out::late && in.patient && item == index + count) release_next_kernel();
            float sum[2 * PARTS] = {}; // of the rows g, g + 8 of each part
            const uint8_t *x = activations + warp * V::bytes;
            const int step = warps * V::bytes;
            // Two tiles at a time, for a warp to have something to do while it waits: of both parts, or of one row.
            if constexpr (PARTS == 2) {
                for (int k = warp; k < tiles; k += warps, x += step) {
                    N1Weights<Block> a, b;
                    N1Operand<Block> operand;
                    next(a), next(b);
                    operand.load(x, offsets, lane);
                    a.multiply(sum, operand, lane), b.multiply(sum + 2, operand, lane);
                }
            } else {
                int k = warp;
                for (; k + warps < tiles; k += 2 * warps, x += 2 * step) {
                    N1Weights<Block> a, b;
                    N1Operand<Block> operand, second;
                    next(a), next(b);
                    operand.load(x, offsets, lane), second.load(x + step, offsets, lane);
                    a.multiply(sum, operand, lane), b.multiply(sum, second, lane);
                }
                if (k < tiles) {
                    N1Weights<Block> a;
                    N1Operand<Block> operand;
                    next(a);
                    operand.load(x, offsets, lane);
                    a.multiply(sum, operand, lane);
                }
            }
            // Adds up four lanes: lane t of them gets row g + 8 (t & 1) of part t / 2.
            float pair[PARTS];
#pragma unroll
            for (int p = 0; p < PARTS; p++)
                pair[p] = (t & 1 ? sum[2 * p + 1] : sum[2 * p]) +
                          __shfl_xor_sync(all_lanes, t & 1 ? sum[2 * p] : sum[2 * p + 1], 1);
            const bool upper = PARTS == 2 && t & 2; // which part this lane keeps
            const float other = __shfl_xor_sync(all_lanes, upper ? pair[0] : pair[PARTS - 1], 2);
            if (PARTS == 2 || t < 2) to[16 * upper + 8 * (t & 1) + g] = (upper ? pair[PARTS - 1] : pair[0]) + other;
        }
        __syncthreads();
        if (adds_mine) {
            const float *from = sums + warp * n1_warps * results + lane;
            float total = 0;
#pragma unroll
            for (int i = 0; i < n1_warps * results / 32; i++) total += from[32 * i];
            if (PARTS == 1) total += __shfl_xor_sync(all_lanes, total, 16);
            if constexpr (Out::norm) {
                float mean = 0;
#pragma unroll
                for (int w = 0; w < n1_warps; w++) mean += squares[w];
                total *= rsqrtf(mean / static_cast<float>(tiles * P::depth) + in.eps);
            }
            if constexpr (KSPLIT == 1) {
                out.store(ahead, mine, lane, total);
            } else if (lane < results) {
                const int nth = (mine - index) / count, owner = nth % KSPLIT, of = nth / KSPLIT;
                send(cluster_address(inbox + (of * KSPLIT + rank) * results + lane, owner),
                     cluster_address(mailboxes + of, owner), total);
            }
        }
        sums = sums == partial ? partial + in.chunk * n1_warps * results : partial;
    }
    if constexpr (KSPLIT > 1) {
        if (adds) {
            mailbox_wait(mailboxes + warp);
            float total = 0;
#pragma unroll
            for (int r = 0; r < KSPLIT; r++) total += inbox[(warp * KSPLIT + r) * results + lane % results];
            out.store(ahead, own_item, lane, total);
        }
    }
#endif
}

} // namespace vb
#endif
