// factors.cuh: what kernels of an adapter's update share: the order of steps, and factors of F32 in two BF16 parts.
#ifndef VB_CUDA_ADAPTER_FACTORS_CUH
#define VB_CUDA_ADAPTER_FACTORS_CUH

#include "arch/mma.cuh"

namespace vb {

// Of `count` steps from `first` on, the nth of a block that begins at another place than its neighbours.
VB_DEVICE int step_in_turn(int first, int count, int nth, int block) {
    return first + (nth + block % count) % count;
}

// Two numbers as pairs of BF16, and the rests.
VB_DEVICE void split_pair(float a, float b, unsigned &high, unsigned &low) {
    high = pack<bf16>(a, b);
    low = pack<bf16>(a - __uint_as_float(high << 16), b - __uint_as_float(high & 0xffff0000u));
}

} // namespace vb
#endif
