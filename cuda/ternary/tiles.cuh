// tiles.cuh: tiles of 16 rows of two-bit weights on int8 tensor cores (8.0), for products with up to 8 columns.
//
// A lane holds a piece of 16 bytes of row lane / 4, and a piece of row 8 + lane / 4. A word has 16 codes.
// A word under four masks is four operands, worth 1, 4, 16 and 64 times their codes.
// Each mask has sums of its own, which are divided at the end (exact).
// The order of k is free, so that x comes in the order of the codes. The lanes 4 c to 4 c + 3 hold column c.
#ifndef VB_CUDA_TERNARY_TILES_CUH
#define VB_CUDA_TERNARY_TILES_CUH

#include "runtime/common.cuh"

namespace vb {

// sums += a x for 16 rows and 32 elements of unsigned a, signed x of 8 columns.
VB_DEVICE void mma_u8s8(int (&sums)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, int x0, int x1) {
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(x0), "r"(x1));
#endif
}

VB_DEVICE int word_of(const int4 &v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

// The sums of 16 rows by 8 columns, of codes 0 to 3.
struct RowTile {
    int masked[4][4];

    // The pieces of both rows times the elements of x that belong to each of their words.
    VB_DEVICE void add(const uint4 &w, const uint4 &w8, const int4 (&x)[4]) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const unsigned mask = 0x03030303u << (2 * i);
            mma_u8s8(masked[i], w.x & mask, w8.x & mask, w.y & mask, w8.y & mask, word_of(x[0], i), word_of(x[1], i));
            mma_u8s8(masked[i], w.z & mask, w8.z & mask, w.w & mask, w8.w & mask, word_of(x[2], i), word_of(x[3], i));
        }
    }

    // The sum of row lane / 4, or (half 1) 8 more, and column 2 (lane % 4) + odd.
    VB_DEVICE int sum(int half, int odd) const {
        const int i = 2 * half + odd;
        return masked[0][i] + (masked[1][i] >> 2) + (masked[2][i] >> 4) + (masked[3][i] >> 6);
    }
};

} // namespace vb
#endif
