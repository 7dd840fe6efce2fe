// tile_ring.cuh: a warp's ring of packed tiles in shared memory.
#ifndef VB_LINEAR_TILE_RING_CUH
#define VB_LINEAR_TILE_RING_CUH

#include "arch/barrier.cuh"
#include "linear/choose.h"
#include "runtime/common.cuh"

namespace vb {

// A warp's ring of tiles in shared memory, `stages` of which are on the way or waiting to be read. On Hopper and later
// one lane starts a bulk copy for a tile; before, all lanes copy 16 bytes at a time, and there are at most
// LINEAR_RING_MOST stages.
// LEAVES_FIRST: the L2 gives up the tiles before anything else. A token reads its weights once, and two layers of them
// are more than the L2 holds, where the instructions of all kernels of a layer are to be found again.
// A stage may hold fewer bytes than it has place for, on Hopper and later.
template <int BYTES, bool LEAVES_FIRST = false>
struct TileRing {
    // createpolicy.fractional.L2::evict_first.b64 of all of the tile
    static constexpr uint64_t evict_first = 0x12f0000000000000;
    uint8_t *tiles;    // [stages][BYTES]
    uint64_t *arrived; // [stages] barriers
    int stages, place;
    uint32_t phase;

    VB_DEVICE void start(uint8_t *memory, uint64_t *barriers, int count, int lane) {
        tiles = memory, arrived = barriers, stages = count, place = 0, phase = 0;
#if __CUDA_ARCH__ >= 900
        if (lane == 0) {
            for (int i = 0; i < stages; i++) barrier_init(arrived + i, 1);
            barrier_init_fence();
        }
        __syncwarp();
#endif
        (void)lane;
    }
    // Starts to copy a tile to stage `at`, if the tile exists.
    VB_DEVICE void fetch(int at, const uint8_t *tile, bool exists, int lane, int bytes = BYTES) {
#if __CUDA_ARCH__ >= 900
        if (lane == 0 && exists) {
            const unsigned barrier = shared_address(arrived + at);
            barrier_expect(arrived + at, bytes);
            if constexpr (LEAVES_FIRST)
                asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                             "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(tiles + at * BYTES)),
                             "l"(tile), "r"(bytes), "r"(barrier), "l"(evict_first)
                             : "memory");
            else
                asm volatile(
                    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                        shared_address(tiles + at * BYTES)),
                    "l"(tile), "r"(bytes), "r"(barrier)
                    : "memory");
        }
#else
        if (exists) {
            const unsigned to = shared_address(tiles + at * BYTES) + 16 * lane;
#pragma unroll
            for (int i = 0; i < BYTES; i += 512)
                if (i + 512 <= BYTES || i + 16 * lane < BYTES) copy_async(to + i, tile + i + 16 * lane);
        }
        copy_async_commit();
#endif
    }
    // Waits for the oldest tile; all lanes may then read it.
    VB_DEVICE const uint8_t *wait() {
#if __CUDA_ARCH__ >= 900
        barrier_wait(arrived + place, phase);
#else
        static_assert(LINEAR_RING_MOST == 8, "a case each");
        switch (stages) { // copies behind the oldest may be under way
        case 1: copy_async_wait<0>(); break;
        case 2: copy_async_wait<1>(); break;
        case 3: copy_async_wait<2>(); break;
        case 4: copy_async_wait<3>(); break;
        case 5: copy_async_wait<4>(); break;
        case 6: copy_async_wait<5>(); break;
        case 7: copy_async_wait<6>(); break;
        default: copy_async_wait<7>(); break;
        }
        __syncwarp();
#endif
        return tiles + place * BYTES;
    }
    // Gives the oldest tile's stage, which every lane has read, to the next tile. Loads may still be under way, behind
    // loads from memory that miss, and a bulk copy does not wait for them: the fence does.
    VB_DEVICE void refill(const uint8_t *tile, bool exists, int lane, int bytes = BYTES) {
        __syncwarp();
#if __CUDA_ARCH__ >= 900
        if (lane == 0 && exists) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
        fetch(place, tile, exists, lane, bytes);
        if (++place == stages) place = 0, phase ^= 1;
    }
};

} // namespace vb
#endif
