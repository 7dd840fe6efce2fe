// group_sync.cuh: barriers of a part of a block's threads (every capability). A block has 16 of them by number;
// __syncthreads() is number 0. `threads` is a multiple of 32 and the same for all that use a number.

#ifndef VB_CUDA_GROUP_SYNC_CUH
#define VB_CUDA_GROUP_SYNC_CUH

#include "runtime/common.cuh"

namespace vb {

// Waits for the other threads of a group of `threads` threads that use barrier `id` (1..15).
VB_DEVICE void group_sync(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
// The same for a barrier that the compiler knows.
template <int ID, int THREADS>
VB_DEVICE void group_sync() {
    asm volatile("bar.sync %0, %1;" ::"n"(ID), "n"(THREADS) : "memory");
}
// Counts as one of the group's threads without waiting.
VB_DEVICE void group_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

} // namespace vb

#endif
