// scaling.cuh: float32 numbers as sums of F16 numbers (Ootomo & Yokota 2022). A power of two puts the greatest
// magnitude of a row into [2^14, 2^15); the products with it are split into parts.
#ifndef VB_CUDA_SCALING_CUH
#define VB_CUDA_SCALING_CUH

#include "runtime/power_of_two.cuh"

namespace vb {

// Magnitudes compare as the bits of their floats do; infinity and NaN are the greatest.
constexpr unsigned infinity_bits = 0x7f800000u;
VB_DEVICE unsigned magnitude(float x) { return __float_as_uint(x) & 0x7fffffffu; }
VB_DEVICE unsigned greatest_magnitude(float4 x) {
    return max(max(magnitude(x.x), magnitude(x.y)), max(magnitude(x.z), magnitude(x.w)));
}

// By how much to raise the exponent so that a magnitude with these bits lands in [2^14, 2^15): -113..163; 0 of zero,
// infinity, NaN.
VB_DEVICE int raise_of(unsigned bits) {
    if (bits == 0 || bits >= infinity_bits) return 0;
    return 14 - (bits >> 23 ? int(bits >> 23) - 127 : -118 - __clz(bits)); // subnormals: leading zeros count
}

// x * 2^raised, rounded to a high part, and the remainder rounded to a low part. Two factors, since 2^raised alone may
// not be a float.
struct Raise {
    float first, second;
    Raise() = default;
    VB_DEVICE explicit Raise(int raised) : first(power_of_two(raised / 2)), second(power_of_two(raised - raised / 2)) {}
    VB_DEVICE half high(float x) const { return __float2half_rn(x * first * second); }
    VB_DEVICE half low(float x, half high) const { return __float2half_rn(x * first * second - __half2float(high)); }
};

// The two factors that take a raise back; NaN where the largest is infinity or NaN. They are combined crosswise: where
// these leave the range of float32 the result does so too.
VB_DEVICE float2 scale_of(unsigned largest) {
    if (largest >= infinity_bits) return make_float2(__int_as_float(0x7fffffff), 1.0f);
    const int raised = raise_of(largest);
    return make_float2(power_of_two(-(raised / 2)), power_of_two(-(raised - raised / 2)));
}
VB_DEVICE float scale_back(float sum, float2 row, float2 column) {
    return sum * (row.x * column.x) * (row.y * column.y);
}
// Whether the row or the column holds Inf or NaN, so that its parts say nothing.
VB_DEVICE bool not_finite(float2 row, float2 column) {
    const float scale = row.x * column.x;
    return scale != scale;
}

// Elements of a row with `left` remaining, zeros beyond; `vectors` where four elements may be read together.
VB_DEVICE float4 load_four(const float *from, int left, bool vectors) {
    if (vectors && left >= 4) return *reinterpret_cast<const float4 *>(from);
    return make_float4(left > 0 ? from[0] : 0.0f, left > 1 ? from[1] : 0.0f, left > 2 ? from[2] : 0.0f,
                       left > 3 ? from[3] : 0.0f);
}

} // namespace vb
#endif
