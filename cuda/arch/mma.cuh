// mma.cuh: tensor core products of 16-bit matrices, mma.sync m16n8k16 with float32 accumulators (capability 8.0).
//
// Fragments of a warp, with g = lane / 4 and c = lane % 4 (PTX ISA, "Matrix Fragments for mma.m16n8k16"):
//   A [16][16]  a[0] = (g, 2c..2c+1)  a[1] = (g+8, 2c..)  a[2] = (g, 2c+8..)  a[3] = (g+8, 2c+8..)
//   B [16][8]   b[0] = (2c..2c+1, g)  b[1] = (2c+8..2c+9, g)
//   C [16][8]   c[0], c[1] = (g, 2c..2c+1)  c[2], c[3] = (g+8, 2c..2c+1)

#ifndef VB_CUDA_MMA_CUH
#define VB_CUDA_MMA_CUH

#include "runtime/common.cuh"

namespace vb {

// c += a b
template <class T>
VB_DEVICE void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1);
template <>
VB_DEVICE void mma<half>(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}
template <>
VB_DEVICE void mma<bf16>(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

// Four 8x8 matrices of 16-bit elements; lane l gives the shared address of row l % 8 of matrix l / 8 (16 bytes).
// Register i of a lane holds elements (g, 2c..2c+1) of matrix i; transposed, (2c..2c+1, g).
VB_DEVICE void load_matrices(unsigned (&r)[4], unsigned row) {
#if __CUDA_ARCH__ >= 750
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row));
#endif
}
VB_DEVICE void load_matrices_transposed(unsigned (&r)[4], unsigned row) {
#if __CUDA_ARCH__ >= 750
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row));
#endif
}

// Two floats as 16-bit elements, `low` in the lower half.
template <class T>
VB_DEVICE unsigned pack(float low, float high);
template <>
VB_DEVICE unsigned pack<half>(float low, float high) {
    const half2 two = __floats2half2_rn(low, high);
    return *reinterpret_cast<const unsigned *>(&two);
}
template <>
VB_DEVICE unsigned pack<bf16>(float low, float high) {
#if __CUDA_ARCH__ >= 800
    unsigned two;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
    return two;
#else
    return from_float<bf16>(low).bits | (unsigned)from_float<bf16>(high).bits << 16;
#endif
}

// Lane t of a quad gets word t of all four lanes; the word of lane i comes to place i. The words are transposed as a 4
// x 4 matrix, in blocks of 1, then of 2.
VB_DEVICE void transpose_quad(unsigned (&w)[4]) {
    const int quad = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const unsigned other = __shfl_xor_sync(all_lanes, quad & 1 ? w[i] : w[i + 1], 1);
        if (quad & 1) w[i] = other;
        else w[i + 1] = other;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const unsigned other = __shfl_xor_sync(all_lanes, quad & 2 ? w[i] : w[i + 2], 2);
        if (quad & 2) w[i] = other;
        else w[i + 2] = other;
    }
}

// Eight elements, aligned to 16 bytes, as four registers of two 16-bit ones.
template <class To, class T>
VB_DEVICE uint4 pack_eight(const T *x) {
    return *reinterpret_cast<const uint4 *>(x);
}
template <class To>
VB_DEVICE uint4 pack_eight(const float *x) {
    const float4 a = reinterpret_cast<const float4 *>(x)[0], b = reinterpret_cast<const float4 *>(x)[1];
    return make_uint4(pack<To>(a.x, a.y), pack<To>(a.z, a.w), pack<To>(b.x, b.y), pack<To>(b.z, b.w));
}

// The byte offset of 16-byte chunk `chunk` of row `row` in a tile. `chunks` is the chunks a row: a power of two, at
// least 8.
// Chunks are permuted so that the 8 rows of a matrix lie in different banks.
VB_DEVICE int swizzled(int row, int chunk, int chunks) { return (row * chunks + (chunk ^ (row & 7))) * 16; }

// The transposed 8x8 matrix of 16-bit elements: a lane has (g, 2c..2c+1) of either.
VB_DEVICE unsigned transposed(unsigned x) {
#if __CUDA_ARCH__ >= 750
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(x));
#endif
    return x;
}

} // namespace vb
#endif
