// n32_sm90.cu: the products of many.cu for up to 32 rows of x on Hopper, by code for 16 or 32: a step of sequences.
//
// The arithmetic is a prompt's: weights are dequantized into registers, operand A of wgmma. x is operand B, and four
// warps read it together. Each warp has a ring of tiles of weights, filled before the kernel before has ended, and two
// blocks fit on a multiprocessor: so memory and instructions are busy. The warps take turns to fetch x of a tile, as a
// warp for x alone would leave each thread 96 registers instead of 128. The blocks of a cluster share the columns; of
// many units the last ones have shares, so that no multiprocessor works twice as long as the others.
//
//   grid     a block for 128 rows of W, or a cluster, or shares; 8 warps of 16 rows each
//   shared   12 to 48 KiB of x, then of sums; rings of 53 to 87 KiB
//   moves    the weights once; x once a block, from L2
//   bound    a warp's instructions, 330 a tile of Q4_K (folded_tile.cuh)
//   measured docs/experiments/2026-11-22-packed-steps.md
#include "linear/linear.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear/packed/folded_tile.cuh"
#include "linear/packed/sm90_stage.cuh"
#include "linear/packed/sm90_store.cuh"
#include "linear/packed/n32_sm90.cuh"
#include "linear/packed/tile_ring.cuh"

namespace vb {

#ifdef VB_WITH_SM90

namespace {

// The shared memory of a block.
template <class Block, int TOKENS>
struct N32Sm90Shape {
    using P = Packed<Block>;
    static constexpr int tokens = TOKENS, columns = P::depth, boxes = columns / sm90::tile_width; // of x in a stage
    static constexpr int box_bytes = tokens * sm90::row_bytes, stage_bytes = boxes * box_bytes;
    static constexpr int x_stages = 3, ahead = x_stages - 1; // that are fetched before they are read
    static constexpr int rings = x_stages * stage_bytes;     // where they begin
    static constexpr int most = 112 << 10;                   // of which a multiprocessor has room for two
    static constexpr int stages = smaller(6, (most - 1024 - rings) / (unit_warps * (P::tile_bytes + 8)));
    static constexpr int inverse = rings + unit_warps * stages * P::tile_bytes, places = inverse + TOKENS * 4;
    static constexpr int barriers = places + TOKENS * 8;
    static constexpr int shared = barriers + (2 * x_stages + unit_warps * stages) * 8;
    static_assert(stages >= 2 && shared <= most, "two blocks");
};

#ifdef VB_SM90A

// The sums that a tile's products are added to: all, or the tile's where tiles fold.
template <int COUNT>
VB_DEVICE float (&sums_of(float (&all)[COUNT], float (&)[1]))[COUNT] { return all; }
template <int COUNT>
VB_DEVICE float (&sums_of(float (&)[COUNT], float (&of_tile)[COUNT]))[COUNT] { return of_tile; }

// Adds sums, bias and the addend, which is asked for before the sums meet: a warp writes 128 neighbours of a token.
template <int TOKENS, class Exchange>
VB_DEVICE void finish_rows(const Product &p, const Unit &unit, const float *sums, const float *inverse, int cluster,
                           int rank, const Exchange &exchange) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int tile_row = unit.rows * unit_warps + lane / 4;
    const bool exists = tile_row < p.tile_rows;
    if (!exists) tile_row = 0;
    const Matrix &m = p.find<false>(tile_row);
    const FourResults results(p, unit, m, tile_row, lane);
    const int begin = p.shares.of(TOKENS * rank) + warp,
              end = (int)smaller<int64_t>(p.shares.of(TOKENS * (rank + 1)), p.n);
    const auto addend = [&](int token) { return p.add && exists ? results.rows.load(p.add, token) : float4(); };
    float4 added[1] = {begin < end ? addend(begin) : float4()};
    exchange();
    if (!exists) return;
#pragma unroll 1
    for (int token = begin; token < end; token += unit_warps) {
        if (token > begin) added[0] = addend(token);
        float4 sum[1] = {sum_of_cluster<float4>(sums + token * sum_width + 4 * lane, cluster)};
        results.store(sum, inverse + token, added, token, unit_warps, end);
    }
}

// silu(gate) * up: a warp writes the 64 neighbours of two tokens. Even warps have gate, odd ones up.
template <int TOKENS>
VB_DEVICE void finish_swiglu(const Product &p, const Unit &unit, const float *sums, const float *inverse, int cluster,
                             int rank) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, four = lane % 16;
    const int64_t row = (int64_t)unit.rows * half_group + 4 * four, cols = p.matrices[0].rows;
    const FourRows rows(p.matrices[0], row, nullptr);
    const int end = (int)smaller<int64_t>(p.shares.of(TOKENS * (rank + 1)), p.n);
#pragma unroll 1
    for (int first = p.shares.of(TOKENS * rank) + 2 * warp; first < end; first += 2 * unit_warps) {
        const int token = first + lane / 16;
        const bool exists = token < end && row < cols;
        const float *const at =
            sums + smaller(token, TOKENS - 1) * sum_width + four / 4 * 2 * packed_rows + four % 4 * 4;
        const float4 gate = sum_of_cluster<float4>(at, cluster), up = sum_of_cluster<float4>(at + packed_rows, cluster);
        const float scale = inverse[smaller(token, TOKENS - 1)];
        float4 y = {swiglu(gate.x * scale, up.x * scale), swiglu(gate.y * scale, up.y * scale),
                    swiglu(gate.z * scale, up.z * scale), swiglu(gate.w * scale, up.w * scale)};
        if (!p.to.x) {
            if (exists) rows.store(y, token);
            continue;
        }
        const float most = fmaxf(fmaxf(fabsf(y.x), fabsf(y.y)), fmaxf(fabsf(y.z), fabsf(y.w)));
        int exponent = 0;
        if (__any_sync(all_lanes, exists && most >= half_limit)) {
            exponent = (int)half_exponent(__float_as_uint(warp_reduce<Max, 16>(most)));
            if (exists && four == 0 && exponent > 0) *p.to.uneven = 1;
        }
        if (exists && four == 0) p.to.exponents[unit.rows * half_stride(p.n) + token] = (uint8_t)exponent;
        write_halves(p.to.x + token * cols + row / 16 * 16, y, power_of_two(-exponent), exists);
    }
}

#endif

template <class Block, int TOKENS>
__global__ void __launch_bounds__(unit_threads, 2)
    n32_sm90_kernel(VB_IN_PLACE CUtensorMap x, VB_IN_PLACE Product product) {
#ifdef VB_SM90A
    using P = Packed<Block>;
    using S = N32Sm90Shape<Block, TOKENS>;
    extern __shared__ __align__(1024) uint8_t shared[];
    uint64_t *const full = reinterpret_cast<uint64_t *>(shared + S::barriers), *const empty = full + S::x_stages;
    uint64_t *const arrived = empty + S::x_stages;
    float *const inverse = reinterpret_cast<float *>(shared + S::inverse);
    int2 *const places = reinterpret_cast<int2 *>(shared + S::places); // of heads
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, cluster = product.cluster;
    const int rank = cluster > 1 ? sm90::cluster_rank() : 0;
    const Unit unit = Unit::of(product, product.shares.of(blockIdx.x), rank);
    const int count = unit.k1 - unit.k0;

    TileRing<P::tile_bytes> ring;
    ring.start(shared + S::rings + warp * S::stages * P::tile_bytes, arrived + warp * S::stages, S::stages, lane);
    const uint8_t *tile =
        product.gated ? first_tile<Block, true>(product, unit, warp) : first_tile<Block, false>(product, unit, warp);
#pragma unroll 1
    for (int s = 0; s < S::stages; s++, tile += P::tile_bytes) ring.fetch(s, tile, s < count, lane);
    if (threadIdx.x == 0) {
        sm90::prefetch_map(&x);
        for (int s = 0; s < S::x_stages; s++)
            sm90::barrier_init(full + s, 1), sm90::barrier_init(empty + s, unit_warps);
        sm90::barrier_init_fence();
    }
    __syncthreads();
    if (!product.beside) wait_for_previous_kernel();
    release_next_kernel();

    const auto fetch = [&](int k) { // x of a tile, by one thread
        uint64_t *const barrier = full + k % S::x_stages;
        sm90::barrier_expect(barrier, S::stage_bytes);
#pragma unroll
        for (int box = 0; box < S::boxes; box++)
            sm90::copy_box(shared + k % S::x_stages * S::stage_bytes + box * S::box_bytes, &x, barrier,
                           (unit.k0 + k) * S::columns + box * sm90::tile_width, 0);
    };
    if (threadIdx.x == 0)
#pragma unroll 1
        for (int k = 0; k < smaller(S::ahead, count); k++) fetch(k);
    const bool uneven = product.uneven();
    if (warp == unit_warps - 1) load_inverse<TOKENS>(inverse, product, 0, uneven, lane, 32);
    if (product.heads.positions && warp == 0 && lane < smaller<int64_t>(TOKENS, product.n))
        places[lane] = product.heads.place(lane);
    float c[TOKENS / 2] = {}, of_tile[folds<Block> ? TOKENS / 2 : 1] = {}, factor[2] = {};
    sm90::settle(c); // zeros are in their registers
    const auto fold = [&] { // adds the sums of a tile to those of the tiles before
        if constexpr (folds<Block>) {
            sm90::settle(of_tile);
#pragma unroll
            for (int i = 0; i < TOKENS / 2; i++) c[i] = fmaf(factor[i / 2 % 2], of_tile[i], c[i]);
        }
    };
    uint32_t a[2][batch_of<S, Block>][4];
    const auto multiply = [&](const auto &await) {
#pragma unroll 1
        for (int k = 0; k < count; k++) {
            LaneTile<Block> stored;
            stored.template load<false>(ring.wait(), lane);
            ring.refill(tile, k + S::stages < count, lane);
            tile += P::tile_bytes;
            std::conditional_t<folds<Block>, FoldedTile<Block>, ManyTile<Block>> work;
            work.unpack(stored);
            const int stage = k % S::x_stages;
            // The descriptor's lower half, the same for all lanes: made once, in few registers.
            const unsigned low =
                __shfl_sync(all_lanes, (unsigned)sm90::describe(shared + stage * S::stage_bytes, 0), 0);
            const uint64_t operand = (uint64_t)(unsigned)(sm90::describe(shared, 0) >> 32) << 32 | low;
            multiply_stage<S, Block>(
                sums_of(c, of_tile), a, work, 0, operand,
                [&] {
                    await(k);
                    if constexpr (folds<Block>) factor[0] = work.factor[0], factor[1] = work.factor[1];
                },
                [&] {
                    if (lane > 0) return;
                    if (k > 0) sm90::barrier_arrive(empty + (k - 1) % S::x_stages);
                    const int next = k + S::ahead;
                    if (next % unit_warps != warp || next >= count) return;
                    if (next >= S::x_stages) sm90::barrier_wait(empty + next % S::x_stages, next / S::x_stages % 2 ^ 1);
                    fetch(next);
                });
            fold();
        }
    };
    const auto meet = [] { group_sync<1, unit_threads>(); };
    const auto await_x = [&](int k) { sm90::barrier_wait(full + k % S::x_stages, k / S::x_stages % 2); };
    if (!uneven) {
        multiply(await_x);
    } else { // hardly ever: a loop of its own, for any more registers make the other one slower
        const int exponents[1] = {threadIdx.x < product.n ? row_exponent(product, threadIdx.x) : 0};
        multiply([&](int k) {
            await_x(k);
            even_out<S, unit_threads>(product, shared + k % S::x_stages * S::stage_bytes, (unit.k0 + k) * S::boxes, 0,
                                      exponents, threadIdx.x);
            sm90::shared_writes_fence();
            meet();
        });
    }
    sm90::wgmma_wait<0>();
    sm90::settle(c);
    int tile_row = unit.rows * unit_warps + warp;
    if (product.h && unit.share == 0 && tile_row < product.tile_rows) {
        if (product.late) wait_for_previous_kernel();
        const Matrix &m = product.gated ? product.find<true>(tile_row) : product.find<false>(tile_row);
        const int64_t row = (int64_t)tile_row * packed_rows + lane / 4;
        add_update<TOKENS, false>(product, c, {&m, row}, {&m, row + 8}, 0);
    }

    meet(); // all have read the memory of the sums
    if (unit.nth < 0 || add_shares<TOKENS, unit_threads, true>(product, unit, c)) { // else another block has the sums
        float *const sums = reinterpret_cast<float *>(shared);
        const auto exchange = [&] {
            share_sums<TOKENS>(sums, c, warp, lane);
            if (cluster > 1) sm90::cluster_sync();
            else meet();
        };
        if (product.heads.positions) {
            const int end = (int)smaller<int64_t>(product.shares.of(TOKENS * (rank + 1)), product.n);
            StoreHeads<TOKENS> heads(product, unit, places, product.shares.of(TOKENS * rank) + warp, end);
            exchange();
            heads.run(sums, inverse);
        } else if (product.gated) {
            exchange();
            finish_swiglu<TOKENS>(product, unit, sums, inverse, cluster, rank);
        } else {
            finish_rows<TOKENS>(product, unit, sums, inverse, cluster, rank, exchange);
        }
    }
    if (cluster > 1) sm90::cluster_end(); // others may still read this block's sums
    if (product.beside) wait_for_previous_kernel();
#endif
}

} // namespace

template <class Block>
vb_status n32_sm90_product(const half *x, int64_t cols, const Product &product, int tokens, vb_stream *stream) {
    CUtensorMap map;
    VB_TRY(sm90::tensor_map(&map, x, VB_F16, cols, product.n, cols, tokens, stream));
    const auto run = [&](int shared, auto kernel) {
        return launch_cluster(stream, product.cluster, product.units * product.cluster, unit_threads, shared, kernel,
                              map, product);
    };
    return tokens == LINEAR_N16 ? run(N32Sm90Shape<Block, LINEAR_N16>::shared, n32_sm90_kernel<Block, LINEAR_N16>)
                                : run(N32Sm90Shape<Block, LINEAR_N32>::shared, n32_sm90_kernel<Block, LINEAR_N32>);
}

#define X(type, Block, ...) \
    template vb_status n32_sm90_product<Block>(const half *, int64_t, const Product &, int, vb_stream *);
VB_PACKED_TYPES(X)
#undef X

#endif // VB_WITH_SM90

} // namespace vb
#endif
