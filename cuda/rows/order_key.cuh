// order_key.cuh: keys by which values are compared with their indices.
//
// A key of 64 bits has the bits of a value above the complement of the value's index. The bits are mapped so that
// unsigned order is the order of the values: NaN is greatest, and -0 is equal to 0.
// Keys are unique and above 0. The greatest key is the greatest value, and of equal values the lowest index.
// So any tree of comparisons gives the same result.

#ifndef VB_CUDA_ORDER_KEY_CUH
#define VB_CUDA_ORDER_KEY_CUH

#include "runtime/common.cuh"

namespace vb {

using Key = unsigned long long;

VB_DEVICE unsigned order_of(float value) {
    const unsigned bits = __float_as_uint(value == 0.0f ? 0.0f : value);
    return value != value ? 0xffffffffu : bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
}
VB_DEVICE Key key_of(float value, int64_t index) {
    return (Key)order_of(value) << 32 | (0xffffffffu - (unsigned)index);
}
VB_DEVICE int32_t index_of(Key key) { return (int32_t)(0xffffffffu - (unsigned)key); }

} // namespace vb
#endif
