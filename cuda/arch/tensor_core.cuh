// tensor_core.cuh: the matrix instructions that the linear layers use, one shape each, for sm_75 and up.
//
// Fragments, for lane (g = lane / 4, t = lane % 4) (PTX ISA, "Matrix fragments"):
//   A  the rows g and g + 8
//   B  the column g
//   C  the rows g and g + 8 of the columns 2t and 2t + 1: c = {[g][2t], [g][2t+1], [g+8][2t], [g+8][2t+1]}
#ifndef VB_TENSOR_CORE_CUH
#define VB_TENSOR_CORE_CUH

#include "runtime/common.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 750
#define VB_HAS_MMA 1
#endif
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define VB_HAS_MMA_BF16 1
#endif

namespace vb {

// C += A B, 16 x 8 x 32 of bytes; A unsigned or signed, B signed. a[0..3] = A's bytes k = 4t.. of the rows g, g + 8,
// then k = 16 + 4t.. of the same; b0, b1 = B's bytes k = 4t.. and 16 + 4t..
template <bool a_signed>
VB_DEVICE void mma_16x8x32(int c[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                   uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 800
    if constexpr (a_signed)
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    else
        asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#elif __CUDA_ARCH__ >= 750
    const uint32_t a[4] = {a0, a1, a2, a3}, b[2] = {b0, b1};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int *d = c + 2 * (i & 1);
        if constexpr (a_signed)
            asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
                : "+r"(d[0]), "+r"(d[1]) : "r"(a[i]), "r"(b[i >> 1]));
        else
            asm("mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
                : "+r"(d[0]), "+r"(d[1]) : "r"(a[i]), "r"(b[i >> 1]));
    }
#endif
}

// The same, 16 x 8 x 16 with A unsigned: a0, a1 = bytes k = 4t.. of the rows g, g + 8.
template <bool a_signed = false>
VB_DEVICE void mma_16x8x16(int c[4], uint32_t a0, uint32_t a1, uint32_t b0) {
#if __CUDA_ARCH__ >= 800
    if constexpr (a_signed)
        asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "r"(a0), "r"(a1), "r"(b0));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "r"(a0), "r"(a1), "r"(b0));
#elif __CUDA_ARCH__ >= 750
    const uint32_t a[2] = {a0, a1};
#pragma unroll
    for (int r = 0; r < 2; r++)
        if constexpr (a_signed)
            asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
                : "+r"(c[2 * r]), "+r"(c[2 * r + 1]) : "r"(a[r]), "r"(b0));
        else
            asm("mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
                : "+r"(c[2 * r]), "+r"(c[2 * r + 1]) : "r"(a[r]), "r"(b0));
#endif
}

// C += A B, 16 x 8 x 16 of 16-bit floats, accumulated in float32. b0 and b1 are the pairs of B at k = 2t.. and 8 +
// 2t...
// a[0..3] are pairs of A: k = 2t, 2t + 1 of the rows g, g + 8, then k = 8 + 2t, 9 + 2t of both rows.
VB_DEVICE void mma_16x8x16(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1, half) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#elif __CUDA_ARCH__ >= 750
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(b0));
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[2]), "r"(a[3]), "r"(b1));
#endif
}
VB_DEVICE void mma_16x8x16(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1,
                                                   bf16) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

// C += A B, 16 x 8 x 8 of TF32, accumulated in float32. a[0..3] = A's k = t of the rows g, g + 8, then k = 4 + t of the
// same; b0, b1 = B's k = t and 4 + t.
VB_DEVICE void mma_16x8x8_tf32(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

} // namespace vb
#endif
