// wgmma_bytes.cuh: Hopper's products of signed bytes, exact in int32, beside those of sm90.cuh.

#ifndef VB_CUDA_WGMMA_BYTES_CUH
#define VB_CUDA_WGMMA_BYTES_CUH

#include "arch/sm90.cuh"

#ifdef VB_SM90A

namespace vb {
namespace sm90 {

template <int N>
VB_DEVICE void settle(int (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+r"(d[i])::"memory");
}

// d[64][N] += A[64][32] B[32][N]. A thread holds parts of d as for the products of 16 bits. A is in registers:
// a[h + 2 * i] has columns 4 * (thread % 4) + 16 * i + {0, 1, 2, 3} of row h. B is K-major.
#define VB_I8(i)                                                                                                       \
    "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3]), "+r"(d[i + 4]), "+r"(d[i + 5]), "+r"(d[i + 6]),        \
        "+r"(d[i + 7])
#define VB_I32(i) VB_I8(i), VB_I8(i + 8), VB_I8(i + 16), VB_I8(i + 24)
#define VB_WGMMA_BYTES_ASM(N, REGS, A, B, KEEP, ...)                                                                   \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k32.s32.s8.s8 {" REGS "}, {" A "}, " B ", " KEEP ";\n"        \
                 : __VA_ARGS__                                                                                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
#define VB_WGMMA_BYTES(N, REGS, A, B, ...)                                                                             \
    template <>                                                                                                        \
    struct WgmmaBytes<N> {                                                                                             \
        static VB_DEVICE void run(int (&d)[N / 2], const unsigned (&a)[4], uint64_t b) {                               \
            VB_WGMMA_BYTES_ASM(N, REGS, A, B, "1", __VA_ARGS__);                                                       \
        }                                                                                                              \
        static VB_DEVICE void start(int (&d)[N / 2], const unsigned (&a)[4], uint64_t b) { /* d = A B */               \
            VB_WGMMA_BYTES_ASM(N, REGS, A, B, "0", __VA_ARGS__);                                                       \
        }                                                                                                              \
    }
template <int N>
struct WgmmaBytes;
VB_WGMMA_BYTES(64, VB_R32, "%32, %33, %34, %35", "%36", VB_I32(0));
VB_WGMMA_BYTES(128, VB_R64, "%64, %65, %66, %67", "%68", VB_I32(0), VB_I32(32));
VB_WGMMA_BYTES(256, VB_R128, "%128, %129, %130, %131", "%132", VB_I32(0), VB_I32(32), VB_I32(64), VB_I32(96));

} // namespace sm90
} // namespace vb

#endif
#endif
