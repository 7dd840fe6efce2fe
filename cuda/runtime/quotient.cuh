// quotient.cuh: quotients by a number that the host knows, by a product: a division is 20 instructions.
#ifndef VB_CUDA_QUOTIENT_CUH
#define VB_CUDA_QUOTIENT_CUH

#include "runtime/common.cuh"

namespace vb {

// i / by for i * by < 2^32.
struct Quotient {
    int by;
    uint32_t inverse;
    explicit Quotient(int by) : by(by), inverse((uint32_t)(((uint64_t)1 << 32) / by + 1)) {}
    VB_DEVICE int of(int i) const { return by == 1 ? i : (int)__umulhi((unsigned)i, inverse); }
};

} // namespace vb
#endif
