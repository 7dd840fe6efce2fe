// expert_many_sm90.cu: the products of expert_many.cu on Hopper, in the manner of linear/packed/n32_sm90.cu.
//
// Weights are dequantized into registers, operand A of wgmma.
// Rows of x are operand B, and four warps read them together.
// Rows of x lie in the order of sorted choices, so that the rows of a tile are a box of TMA.
// The next expert's rows in the box are computed and not stored. Each warp has a ring of tiles of weights.
// The warps take turns to fetch 64 columns of x.
//
//   unit     128 rows of W (64 of the gate and 64 of up, a warp's 16 of each in turn) x 64 sorted choices of one expert
//   grid     (units of an expert, tiles of choices): as many tiles as there may be; tiles without choices end at once
//   block    8 warps of 16 rows of W each, two blocks a multiprocessor
//   shared   32 KiB of x, then of sums; rings of 53 to 78 KiB
//   moves    the weights of the chosen experts once for each 64 of their choices; rows of x from L2
//   bound    the dequantization; memory

#include "moe/expert_many.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear/packed/sm90_stage.cuh"
#include "linear/packed/sm90_store.cuh"
#include "linear/packed/tile_ring.cuh"

namespace vb {

#ifdef VB_WITH_SM90

namespace {

// The shared memory of a block.
template <class Block>
struct ExpertShape {
    using P = Packed<Block>;
    static constexpr int tokens = MOE_TILE_CHOICES, boxes = 1, columns = sm90::tile_width; // of x in a stage
    static constexpr int box_bytes = tokens * sm90::row_bytes, stage_bytes = box_bytes;
    static constexpr int x_stages = 4, ahead = x_stages - 1; // that are fetched before they are read
    static constexpr int rings = x_stages * stage_bytes;     // where they begin
    static constexpr int most = 112 << 10;                   // of which a multiprocessor has room for two
    static constexpr int stages = smaller(6, (most - 2048 - rings) / (unit_warps * (P::tile_bytes + 8)));
    static constexpr int barriers = rings + unit_warps * stages * P::tile_bytes;
    static constexpr int shared = barriers + (2 * x_stages + unit_warps * stages) * 8;
    static_assert(stages >= 2 && shared <= most - 1024, "two blocks");
    static_assert(tokens * choice_sums * 4 <= barriers, "room for sums");
    static_assert(x_stages % (P::depth / columns) == 0, "a tile's stages are known to the compiler");
};

template <class Block>
__global__ void __launch_bounds__(unit_threads, 2)
    expert_many_sm90_kernel(VB_IN_PLACE CUtensorMap x, VB_IN_PLACE ExpertProduct p) {
#ifdef VB_SM90A
    using P = Packed<Block>;
    using S = ExpertShape<Block>;
    constexpr int stages_a_tile = P::depth / S::columns, turns = S::x_stages / stages_a_tile;
    extern __shared__ __align__(1024) uint8_t shared[];
    __shared__ int place[S::tokens];     // the choices of the tile
    __shared__ float inverse[S::tokens]; // of their rows of x
    uint64_t *const full = reinterpret_cast<uint64_t *>(shared + S::barriers), *const empty = full + S::x_stages;
    uint64_t *const arrived = empty + S::x_stages;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    TileRing<P::tile_bytes> ring;
    ring.start(shared + S::rings + warp * S::stages * P::tile_bytes, arrived + warp * S::stages, S::stages, lane);
    if (threadIdx.x == 0) {
        sm90::prefetch_map(&x);
        for (int s = 0; s < S::x_stages; s++)
            sm90::barrier_init(full + s, 1), sm90::barrier_init(empty + s, unit_warps);
        sm90::barrier_init_fence();
    }
    wait_for_previous_kernel();
    release_next_kernel();
    const ExpertTile choices = p.sorted.tiles[blockIdx.y];
    if (choices.count == 0) return;
    const bool gated = p.up != nullptr, known = choices.expert < p.experts;
    const int unit = gated ? unit_rows / 2 : unit_rows, row0 = (int)blockIdx.x * unit; // results of a unit
    const int tile_row = smaller(row0 / packed_rows + (gated ? warp / 2 : warp), p.tile_rows - 1);
    const uint8_t *tile = (gated && warp % 2 ? p.up : p.w) +
                          ((int64_t)choices.expert * p.tile_rows + tile_row) * p.k_tiles * P::tile_bytes;
    for (int s = 0; s < S::stages; s++, tile += P::tile_bytes) ring.fetch(s, tile, known && s < p.k_tiles, lane);
    if (threadIdx.x < S::tokens) {
        const int at = choices.first + smaller<int>(threadIdx.x, choices.count - 1);
        place[threadIdx.x] = p.sorted.order[at];
        inverse[threadIdx.x] = p.x.inverse[at];
    }
    __syncthreads();
    if (!known) {
        store_no_choices(p, choices, row0, unit, place);
        return;
    }
    const int count = p.k_tiles * stages_a_tile;
    const auto fetch = [&](int i) { // stage i of x, by one thread
        uint64_t *const barrier = full + i % S::x_stages;
        sm90::barrier_expect(barrier, S::stage_bytes);
        sm90::copy_box(shared + i % S::x_stages * S::stage_bytes, &x, barrier, i * S::columns, choices.first);
    };
    if (threadIdx.x == 0)
        for (int i = 0; i < smaller(S::ahead, count); i++) fetch(i);

    float c[S::tokens / 2] = {};
    sm90::settle(c); // zeros are in their registers
    uint32_t a[2][batch_of<S, Block>][4];
    // The descriptor's lower half, the same for all lanes: made once, in few registers.
    const unsigned low = __shfl_sync(all_lanes, (unsigned)sm90::describe(shared, 0), 0);
    for (int k = 0; k < p.k_tiles; k++) {
        LaneTile<Block> stored;
        stored.template load<false>(ring.wait(), lane);
        ring.refill(tile, k + S::stages < p.k_tiles, lane);
        tile += P::tile_bytes;
        ManyTile<Block> work;
        work.unpack(stored);
        const int turn = k % turns;
        const unsigned phase = k / turns % 2;
#pragma unroll
        for (int part = 0; part < stages_a_tile; part++) {
            const int stage = turn * stages_a_tile + part, before = (stage + S::x_stages - 1) % S::x_stages,
                      i = k * stages_a_tile + part;
            const uint64_t operand = (uint64_t)(unsigned)(sm90::describe(shared, 0) >> 32) << 32 |
                                     (low + (unsigned)stage * (S::stage_bytes / 16));
            multiply_stage<S>(
                c, a, work, part, operand, [&] { sm90::barrier_wait(full + stage, phase); },
                [&] {
                    if (lane > 0) return;
                    if (i > 0) sm90::barrier_arrive(empty + before);
                    const int next = i + S::ahead; // lies in the stage before this one
                    if (next % unit_warps != warp || next >= count) return;
                    if (next >= S::x_stages) sm90::barrier_wait(empty + before, next / S::x_stages % 2 ^ 1);
                    fetch(next);
                });
        }
    }
    sm90::wgmma_wait<0>();
    sm90::settle(c);
    float *const sums = reinterpret_cast<float *>(shared);
    __syncthreads(); // all have read the memory of the sums
    static_assert(choice_sums == sum_width, "what share_sums writes");
    share_sums<S::tokens>(sums, c, warp, lane);
    __syncthreads();
    store_choices(p, choices, row0, sums, inverse, place);
#endif
}

template <class Block>
vb_status expert_product(ExpertProduct p, int64_t choices, int64_t cols, int64_t slots, vb_stream *stream) {
    CUtensorMap map;
    VB_TRY(sm90::tensor_map(&map, p.x.x, VB_F16, p.x.stride, choices, p.x.stride, MOE_TILE_CHOICES, stream));
    p.k_tiles = (int)Packed<Block>::tiles_of(cols);
    const int unit = p.up ? unit_rows / 2 : unit_rows;
    return launch_overlapped(stream, dim3((unsigned)ceil_div(p.rows, unit), (unsigned)slots), unit_threads,
                             ExpertShape<Block>::shared, expert_many_sm90_kernel<Block>, map, p);
}

} // namespace

vb_status expert_product_sm90(vb_dtype type, ExpertProduct p, int64_t choices, int64_t cols, int64_t slots,
                              vb_stream *stream) {
    switch (vb_packed_as(type)) {
#define X(type, Block, ...) case type: return expert_product<Block>(p, choices, cols, slots, stream);
        VB_PACKED_TYPES(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
}

#endif

} // namespace vb
#endif
