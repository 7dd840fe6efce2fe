// wgmma_widths.cuh: Hopper's products of more widths than arch/sm90.cuh has, for tiles that fill the rounds of a grid.
#ifndef VB_CUDA_WGMMA_WIDTHS_CUH
#define VB_CUDA_WGMMA_WIDTHS_CUH

#include "arch/sm90.cuh"

#ifdef VB_SM90A

namespace vb {
namespace sm90 {

#define VB_R72 VB_R64 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define VB_R80 VB_R72 ",%72,%73,%74,%75,%76,%77,%78,%79"
#define VB_R84 VB_R80 ",%80,%81,%82,%83"
#define VB_R104 VB_R96 ",%96,%97,%98,%99,%100,%101,%102,%103"
#define VB_R112 VB_R104 ",%104,%105,%106,%107,%108,%109,%110,%111"
#define VB_R120 VB_R112 ",%112,%113,%114,%115,%116,%117,%118,%119"
#define VB_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define VB_D64 VB_D32(0), VB_D32(32)
#define VB_D96 VB_D64, VB_D32(64)

#define VB_WGMMA_WIDTH(T, NAME, N, REGS, A, B, KEEP, TA, TB, ...)                                                      \
    template <int B_MN, int A_MN>                                                                                      \
    struct Wgmma<T, N, B_MN, A_MN> {                                                                                   \
        static VB_DEVICE void run(float (&d)[N / 2], uint64_t a, uint64_t b, int keep) {                               \
            VB_WGMMA(N, NAME, REGS, A, B, KEEP, TA, TB, __VA_ARGS__);                                                  \
        }                                                                                                              \
    };
#define VB_WGMMA_WIDTHS(T, NAME)                                                                                       \
    VB_WGMMA_WIDTH(T, NAME, 144, VB_R72, "%72", "%73", "%74", "%75", "%76", VB_D64, VB_D8(64))                         \
    VB_WGMMA_WIDTH(T, NAME, 160, VB_R80, "%80", "%81", "%82", "%83", "%84", VB_D64, VB_D8(64), VB_D8(72))              \
    VB_WGMMA_WIDTH(T, NAME, 168, VB_R84, "%84", "%85", "%86", "%87", "%88", VB_D64, VB_D8(64), VB_D8(72), VB_D4(80))   \
    VB_WGMMA_WIDTH(T, NAME, 176, VB_R88, "%88", "%89", "%90", "%91", "%92", VB_D64, VB_D8(64), VB_D8(72), VB_D8(80))   \
    VB_WGMMA_WIDTH(T, NAME, 208, VB_R104, "%104", "%105", "%106", "%107", "%108", VB_D96, VB_D8(96))                   \
    VB_WGMMA_WIDTH(T, NAME, 224, VB_R112, "%112", "%113", "%114", "%115", "%116", VB_D96, VB_D8(96), VB_D8(104))       \
    VB_WGMMA_WIDTH(T, NAME, 240, VB_R120, "%120", "%121", "%122", "%123", "%124", VB_D96, VB_D8(96), VB_D8(104),       \
                   VB_D8(112))
VB_WGMMA_WIDTHS(half, "f16")
VB_WGMMA_WIDTHS(bf16, "bf16")

} // namespace sm90
} // namespace vb

#endif
#endif
