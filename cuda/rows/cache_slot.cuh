// cache_slot.cuh: where a cache of keys and values keeps a position.
#ifndef VB_CUDA_CACHE_SLOT_CUH
#define VB_CUDA_CACHE_SLOT_CUH

#include "runtime/common.cuh"

namespace vb {

// The slot of a position, -1 where the cache does not keep the position.
VB_DEVICE int cache_slot(int64_t capacity, bool ring, int position) {
    if (position < capacity) return larger(position, -1);
    return ring ? (int)((unsigned)position % (unsigned)capacity) : -1;
}

} // namespace vb
#endif
