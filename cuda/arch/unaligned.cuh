// unaligned.cuh: numbers that do not begin, or end, at a multiple of 16 bytes.

#ifndef VB_CUDA_UNALIGNED_CUH
#define VB_CUDA_UNALIGNED_CUH

#include "runtime/common.cuh"

namespace vb {

// The first `bytes` of 16 from global memory to a shared address, then zeros; nothing is read where there are none.
VB_DEVICE void copy_async_part(unsigned shared, const void *global, int bytes) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(bytes));
#endif
}

// One float, or zero.
VB_DEVICE void copy_async_word(unsigned shared, const void *global, bool valid) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(global), "r"(valid ? 4 : 0));
#endif
}

// 16 bytes that begin `shift` bytes, an even number below 16, into two vectors.
VB_DEVICE uint4 bytes_from(uint4 low, uint4 high, unsigned shift) {
    unsigned w[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 6; i++) w[i] = shift & 8 ? w[i + 2] : w[i];
#pragma unroll
    for (int i = 0; i < 5; i++) w[i] = shift & 4 ? w[i + 1] : w[i];
    const unsigned bits = (shift & 2) * 8;
    return make_uint4(__funnelshift_r(w[0], w[1], bits), __funnelshift_r(w[1], w[2], bits),
                      __funnelshift_r(w[2], w[3], bits), __funnelshift_r(w[3], w[4], bits));
}

// The first `count` of eight 16-bit elements, then zeros.
VB_DEVICE uint4 first_elements(uint4 eight, int count) {
    unsigned w[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
    for (int i = 0; i < 4; i++) w[i] &= count >= 2 * i + 2 ? 0xffffffffu : count == 2 * i + 1 ? 0xffffu : 0;
    return make_uint4(w[0], w[1], w[2], w[3]);
}

} // namespace vb
#endif
