// power_of_two.cuh: scales that are powers of two, so that a product with a scale is exact.
#ifndef VB_CUDA_POWER_OF_TWO_CUH
#define VB_CUDA_POWER_OF_TWO_CUH

#include "runtime/common.cuh"

namespace vb {

// 2^exponent, for -126..127.
VB_DEVICE float power_of_two(int exponent) { return __int_as_float((exponent + 127) << 23); }

// The power of two that brings a row's greatest magnitude to [2^13, 2^14), so that the row fits F16. It is 1 for zero,
// Inf and NaN.
// It is at most 2^120, so that 1 / (64 * scale) is a normal number of any row: packed weights are raised by 64.
VB_DEVICE float power_of_two_scale(float most) {
    if (!(most > 0.0f) || !(most < 3.0e38f)) return 1.0f;
    return power_of_two(smaller(13 - (int(__float_as_uint(most) >> 23) - 127), 120));
}

} // namespace vb
#endif
