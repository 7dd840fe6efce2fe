// tf32_parts.cuh: float32 numbers as sums of two TF32 numbers of 11 bits. Three of the four products of such numbers
// are summed, the smallest first (3xTF32: NVIDIA CUTLASS, example 27; Ootomo & Yokota 2022).
//
// The tensor core truncates its sums. So few products are added in the tensor core, and the rest in registers.
// Elements are raised by 2^13 before they are split, so that the low parts of subnormal elements are TF32 numbers too.
// The two parts of an Inf do not sum to Inf. So an element of C that is Inf or NaN is computed again in plain float32
// arithmetic, and IEEE 754's results stand.

#ifndef VB_CUDA_TF32_PARTS_CUH
#define VB_CUDA_TF32_PARTS_CUH

#include "runtime/common.cuh"

namespace vb {

// c += a b with TF32 operands, m16n8k8: a[0] = (g, t), a[1] = (g+8, t), a[2] = (g, t+4), a[3] = (g+8, t+4), b0 = (t,
// g), b1 = (t+4, g), c = {(g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1)}.
VB_DEVICE void mma_tf32(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

// c = a b, the same without the move of zeros to the sum.
VB_DEVICE void mma_tf32_first(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
        : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
#endif
}

constexpr float raised = 8192.0f, lowered = 1.0f / (raised * raised); // of an element, of a sum

// x raised = high + low to 23 bits. Hardware ignores the 13 lowest bits of a TF32 operand; adding 0x1000 makes that a
// rounding of high. Low has 12 bits and either sign, of which the last is cut off.
VB_DEVICE void split_tf32(float x, unsigned &high, unsigned &low) {
    x *= raised;
    high = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
    low = __float_as_uint(x - __uint_as_float(high));
}

// The same with less work, of a number that is not raised. Hardware ignores the 13 lowest bits of a TF32 operand, which
// cuts off high. The sum is within 2^-21 of x: an exponential makes more of the last bit of its argument.
VB_DEVICE void cut_tf32(float x, unsigned &high, unsigned &low) {
    high = __float_as_uint(x) & 0xffffe000u;
    low = __float_as_uint(x - __uint_as_float(high));
}

VB_DEVICE bool finite_sum(float sum) { return fabsf(sum) <= 3.402823466e38f; }

} // namespace vb
#endif
