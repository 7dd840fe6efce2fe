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

// i / by for any i < 2^31, by one instruction more (Granlund & Montgomery 1994). Without a number quotients are 0.
struct Reciprocal {
    unsigned factor = 0, shift = 0;
    VB_DEVICE unsigned quotient(unsigned i) const { return __umulhi(2 * i, factor) >> shift; }
};
inline Reciprocal reciprocal_of(int64_t by) {
    Reciprocal r;
    while ((int64_t)1 << r.shift < by) r.shift++;
    r.factor = (unsigned)(((uint64_t)1 << (31 + r.shift)) / (uint64_t)by + 1);
    return r;
}

} // namespace vb
#endif
