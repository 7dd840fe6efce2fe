// expert_sort.cu: choices by their experts, a counting sort, and the tiles of choices for products.
//
//   grid     one block of 1024 threads
//   shared   32 KiB: for each expert its choices, and the place of its next choice
//   bound    latency of a few barriers, and of atomics where many choices name one expert

#include "moe/moe.cuh"

namespace vb {
namespace {

constexpr int tile_choices = MOE_TILE_CHOICES, most_experts = MOE_MOST_EXPERTS, sort_threads = 1024;

// One block: order[] = the choices by expert (a counting sort), tiles[] = their tiles. ids of no expert come last.
__global__ void __launch_bounds__(sort_threads)
    sort_choices_kernel(int *order, ExpertTile *tiles, int tile_slots, const int32_t *ids, int choices, int experts) {
    __shared__ int count[most_experts + 1], next[most_experts + 1]; // choices of an expert; the place of its next one
    __shared__ int tiles_made;
    wait_for_previous_kernel();
    release_next_kernel();
    const int t = threadIdx.x;
    const auto bucket = [&](int i) { return ids[i] < 0 || ids[i] >= experts ? experts : ids[i]; };
    for (int e = t; e <= experts; e += sort_threads) count[e] = 0;
    __syncthreads();
    for (int i = t; i < choices; i += sort_threads) atomicAdd(count + bucket(i), 1);
    __syncthreads();
    if (t < 32) { // sums over the experts before each expert, 32 at a time
        int places = 0, made = 0;
        for (int e0 = 0; e0 <= experts; e0 += 32) {
            const int e = e0 + t, mine = e <= experts ? count[e] : 0, mine_tiles = ceil_div(mine, tile_choices);
            int end = mine, tile_end = mine_tiles;
#pragma unroll
            for (int offset = 1; offset < 32; offset *= 2) {
                const int other = __shfl_up_sync(all_lanes, end, offset),
                          other_tiles = __shfl_up_sync(all_lanes, tile_end, offset);
                if (t >= offset) end += other, tile_end += other_tiles;
            }
            if (e <= experts) next[e] = places + end - mine;
            for (int i = 0; i < mine_tiles; i++)
                tiles[made + tile_end - mine_tiles + i] = {e, places + end - mine + i * tile_choices,
                                                           smaller(tile_choices, mine - i * tile_choices)};
            places += __shfl_sync(all_lanes, end, 31), made += __shfl_sync(all_lanes, tile_end, 31);
        }
        if (t == 0) tiles_made = made;
    }
    __syncthreads();
    for (int i = tiles_made + t; i < tile_slots; i += sort_threads) tiles[i] = {0, 0, 0};
    // equal experts in any order
    for (int i = t; i < choices; i += sort_threads) order[atomicAdd(next + bucket(i), 1)] = i;
}

} // namespace

vb_status sort_choices(SortedChoices *to, void *memory, const int32_t *ids, int64_t choices, int64_t experts,
                       vb_stream *stream) {
    const int64_t slots = moe_tile_slots(choices, experts);
    to->order = (int *)memory, to->tiles = (ExpertTile *)(to->order + choices);
    return launch_overlapped(stream, 1, sort_threads, 0, sort_choices_kernel, to->order, to->tiles, (int)slots, ids,
                             (int)choices, (int)experts);
}

} // namespace vb
