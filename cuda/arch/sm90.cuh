// sm90.cuh: the instructions of Hopper's matrix pipeline (PTX ISA 8.0 and later, target sm_90a alone).
//
//   TMA       bulk tensor copies into swizzled shared memory
//   barriers  complete when copies have arrived (barrier.cuh)
//   wgmma     matrix products of warpgroups
//
// Shared tiles are 64 elements of 16 bits (128 bytes) wide, 1024-byte aligned, with the 128-byte swizzle of TMA.
// A tile is "K-major" where its 128-byte rows run along K, "MN-major" where they run along M or N; wgmma reads both.
#ifndef VB_CUDA_SM90_CUH
#define VB_CUDA_SM90_CUH

#include "arch/barrier.cuh"
#include "arch/group_sync.cuh"
#include "runtime/common.cuh"

// The types and functions of TMA came with toolkit 12.3. Before 12.3 launchers return VB_UNSUPPORTED.
#if CUDART_VERSION >= 12030 && __cplusplus >= 201703L
#define VB_WITH_SM90 1
#endif

#ifdef VB_WITH_SM90

#include <cudaTypedefs.h>

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define VB_SM90A 1
#endif

namespace vb {
namespace sm90 {

constexpr int tile_width = 64;       // elements in a row of a swizzled tile
constexpr int row_bytes = 128;       // of such a row
constexpr int swizzle_bytes = 1024;  // eight rows: the period of the swizzle, and the alignment of a tile

#ifdef VB_SM90A

using vb::barrier_arrive;
using vb::barrier_expect;
using vb::barrier_init;
using vb::barrier_init_fence;
using vb::barrier_wait;

// ---- clusters ------------------------------------------------------------------------------------------------------

VB_DEVICE unsigned cluster_rank() {
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
// All threads of the cluster that have not ended meet. Their earlier writes to shared memory are visible to all.
VB_DEVICE void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
// The same where nothing is written for others: writes to other GPUs, or to memory, are not waited for.
VB_DEVICE void cluster_end() {
    asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;" ::: "memory");
}
// The address of the same variable in the shared memory of another block of the cluster.
VB_DEVICE unsigned remote_address(const void *pointer, unsigned rank) {
    unsigned remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(pointer)), "r"(rank));
    return remote;
}
VB_DEVICE float4 load_remote(unsigned address, float4 = {}) {
    float4 x;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(address)
                 : "memory");
    return x;
}
VB_DEVICE float2 load_remote(unsigned address, float2) {
    float2 x;
    asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(address) : "memory");
    return x;
}
VB_DEVICE unsigned load_remote_word(unsigned address) {
    unsigned x;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
    return x;
}
// Orders no ordinary memory accesses between blocks; .release.cluster would, by a fence of hundreds of cycles.
// For stages that only the copy engine writes and only wgmma reads.
VB_DEVICE void barrier_arrive_remote(uint64_t *barrier, unsigned rank) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(remote_address(barrier, rank))
                 : "memory");
}

// Makes this thread's ordinary writes to shared memory visible to wgmma and to bulk copies, after the next barrier.
VB_DEVICE void shared_writes_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Four 8 x 8 matrices of 16 bits, whose columns become rows of 16 bytes. Lanes 8 i..8 i + 7 give the addresses of
// matrix i.
// Of each matrix a lane has columns 2 (lane % 4), + 1 of row lane / 4, as in an accumulator.
VB_DEVICE void store_transposed(void *row, unsigned a, unsigned b, unsigned c, unsigned d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
                 "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}

// ---- bulk tensor copies --------------------------------------------------------------------------------------------

// Box at (inner, outer) of a two-dimensional tensor into shared memory; zeros outside the tensor.
VB_DEVICE void copy_box(void *shared, const CUtensorMap *map, uint64_t *barrier, int inner, int outer) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
            shared_address(shared)),
        "l"((uint64_t)map), "r"(shared_address(barrier)), "r"(inner), "r"(outer)
        : "memory");
}
// Which lines the L2 gives up first: `leaves_first` for what is read or written once, `leaves_last` for what all blocks
// read. NoHint leaves the choice to the L2.
struct Hint {
    uint64_t policy;
};
struct NoHint {};
VB_DEVICE Hint leaves_first() {
    Hint hint;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(hint.policy));
    return hint;
}
VB_DEVICE Hint leaves_last() {
    Hint hint;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(hint.policy));
    return hint;
}
VB_DEVICE void copy_box(void *shared, const CUtensorMap *map, uint64_t *barrier, int inner, int outer, NoHint) {
    copy_box(shared, map, barrier, inner, outer);
}
VB_DEVICE void copy_box(void *shared, const CUtensorMap *map, uint64_t *barrier, int inner, int outer, Hint hint) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(shared)),
                 "l"((uint64_t)map), "r"(shared_address(barrier)), "r"(inner), "r"(outer), "l"(hint.policy)
                 : "memory");
}
// Box at (inner, middle, outer) of a three-dimensional tensor.
VB_DEVICE void copy_box(void *shared, const CUtensorMap *map, uint64_t *barrier, int inner, int middle, int outer) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::
            "r"(shared_address(shared)),
        "l"((uint64_t)map), "r"(shared_address(barrier)), "r"(inner), "r"(middle), "r"(outer)
        : "memory");
}
// The same of a five-dimensional tensor; coordinates from the innermost on.
VB_DEVICE void copy_box(void *shared, const CUtensorMap *map, uint64_t *barrier, const int (&at)[5]) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, "
                 "%6, %7}], [%2];" ::"r"(shared_address(shared)),
                 "l"((uint64_t)map), "r"(shared_address(barrier)), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]),
                 "r"(at[4])
                 : "memory");
}
// A two-dimensional box into the shared memory of every block of the cluster whose bit is set in `blocks`.
// Each block's barrier counts the bytes. It lies at the same place as this block's barrier.
VB_DEVICE void copy_box_multicast(void *shared, const CUtensorMap *map, uint64_t *barrier, int inner, int outer,
                                  unsigned short blocks) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, "
        "{%3, %4}], [%2], %5;" ::"r"(shared_address(shared)),
        "l"((uint64_t)map), "r"(shared_address(barrier)), "r"(inner), "r"(outer), "h"(blocks)
        : "memory");
}
VB_DEVICE void copy_box_multicast(void *shared, const CUtensorMap *map, uint64_t *barrier, int inner, int outer,
                                  unsigned short blocks, NoHint) {
    copy_box_multicast(shared, map, barrier, inner, outer, blocks);
}
VB_DEVICE void copy_box_multicast(void *shared, const CUtensorMap *map, uint64_t *barrier, int inner, int outer,
                                  unsigned short blocks, Hint hint) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
                 ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5, %6;" ::"r"(shared_address(shared)),
                 "l"((uint64_t)map), "r"(shared_address(barrier)), "r"(inner), "r"(outer), "h"(blocks), "l"(hint.policy)
                 : "memory");
}
// The same of a three-dimensional tensor.
VB_DEVICE void copy_box_multicast(void *shared, const CUtensorMap *map, uint64_t *barrier, int inner, int middle,
                                  int outer, unsigned short blocks) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, "
        "{%3, %4, %5}], [%2], %6;" ::"r"(shared_address(shared)),
        "l"((uint64_t)map), "r"(shared_address(barrier)), "r"(inner), "r"(middle), "r"(outer), "h"(blocks)
        : "memory");
}
VB_DEVICE void prefetch_map(const CUtensorMap *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"((uint64_t)map) : "memory");
}

// ---- warpgroup products --------------------------------------------------------------------------------------------

// Describes a tile in shared memory. `leading` is the distance between neighbouring 64-element blocks of an MN-major
// tile (unused for K-major ones); eight rows lie 1024 bytes apart in both.
VB_DEVICE uint64_t describe(const void *tile, int leading) {
    const uint64_t address = shared_address(tile);
    return (address & 0x3ffff) >> 4 | (uint64_t)(leading >> 4) << 16 | (uint64_t)(swizzle_bytes >> 4) << 32 |
           1ull << 62;
}

VB_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
VB_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING>
VB_DEVICE void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// Keeps accesses to registers that products in flight use from moving above the wait that precedes this.
template <int N>
VB_DEVICE void settle(float (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}
template <int N>
VB_DEVICE void settle(unsigned (&a)[N][4]) {
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) asm volatile("" : "+r"(a[i][j])::"memory");
}

template <int REGISTERS>
VB_DEVICE void registers_grow() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS>
VB_DEVICE void registers_shrink() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// d[64][N] = keep * d + A[64][16] B[16][N], accumulated in float32; A and B are K-major unless A_MN, B_MN.
// A thread holds parts of row (thread / 4 % 8 + 16 * warp + 8 * h).
// Element d[4 * j + 2 * h + {0, 1}] is column 8 * j + 2 * (thread % 4) + {0, 1} of the row.
#define VB_D8(i)                                                                                                       \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]),        \
        "+f"(d[i + 7])
#define VB_D32(i) VB_D8(i), VB_D8(i + 8), VB_D8(i + 16), VB_D8(i + 24)
#define VB_R8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define VB_R16 VB_R8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define VB_R32                                                                                                         \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%"  \
    "30,%31"
#define VB_R64                                                                                                         \
    VB_R32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57," \
           "%58,%59,%60,%61,%62,%63"
#define VB_R88                                                                                                         \
    VB_R64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87"
#define VB_R96                                                                                                         \
    VB_R64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89," \
           "%90,%91,%92,%93,%94,%95"
#define VB_R128                                                                                                        \
    VB_R96 ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%"   \
           "117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"

#define VB_WGMMA(N, TYPE, REGS, A, B, KEEP, TA, TB, ...)                                                               \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " KEEP ", 0;\n"                                                     \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" REGS "}, " A ", " B              \
                 ", p, 1, 1, " TA ", " TB ";\n}\n"                                                                     \
                 : __VA_ARGS__                                                                                         \
                 : "l"(a), "l"(b), "r"(keep), "n"(A_MN), "n"(B_MN))

template <class T, int N, int B_MN, int A_MN = 0>
struct Wgmma;

#define VB_WGMMA_TYPE(T, NAME)                                                                                         \
    template <int B_MN, int A_MN>                                                                                      \
    struct Wgmma<T, 16, B_MN, A_MN> {                                                                                  \
        static VB_DEVICE void run(float (&d)[8], uint64_t a, uint64_t b, int keep) {                                   \
            VB_WGMMA(16, NAME, VB_R8, "%8", "%9", "%10", "%11", "%12", VB_D8(0));                                      \
        }                                                                                                              \
    };                                                                                                                 \
    template <int B_MN, int A_MN>                                                                                      \
    struct Wgmma<T, 32, B_MN, A_MN> {                                                                                  \
        static VB_DEVICE void run(float (&d)[16], uint64_t a, uint64_t b, int keep) {                                  \
            VB_WGMMA(32, NAME, VB_R16, "%16", "%17", "%18", "%19", "%20", VB_D8(0), VB_D8(8));                         \
        }                                                                                                              \
    };                                                                                                                 \
    template <int B_MN, int A_MN>                                                                                      \
    struct Wgmma<T, 64, B_MN, A_MN> {                                                                                  \
        static VB_DEVICE void run(float (&d)[32], uint64_t a, uint64_t b, int keep) {                                  \
            VB_WGMMA(64, NAME, VB_R32, "%32", "%33", "%34", "%35", "%36", VB_D32(0));                                  \
        }                                                                                                              \
    };                                                                                                                 \
    template <int B_MN, int A_MN>                                                                                      \
    struct Wgmma<T, 128, B_MN, A_MN> {                                                                                 \
        static VB_DEVICE void run(float (&d)[64], uint64_t a, uint64_t b, int keep) {                                  \
            VB_WGMMA(128, NAME, VB_R64, "%64", "%65", "%66", "%67", "%68", VB_D32(0), VB_D32(32));                     \
        }                                                                                                              \
    };                                                                                                                 \
    template <int B_MN, int A_MN>                                                                                      \
    struct Wgmma<T, 192, B_MN, A_MN> {                                                                                 \
        static VB_DEVICE void run(float (&d)[96], uint64_t a, uint64_t b, int keep) {                                  \
            VB_WGMMA(192, NAME, VB_R96, "%96", "%97", "%98", "%99", "%100", VB_D32(0), VB_D32(32), VB_D32(64));        \
        }                                                                                                              \
    };                                                                                                                 \
    template <int B_MN, int A_MN>                                                                                      \
    struct Wgmma<T, 256, B_MN, A_MN> {                                                                                 \
        static VB_DEVICE void run(float (&d)[128], uint64_t a, uint64_t b, int keep) {                                 \
            VB_WGMMA(256, NAME, VB_R128, "%128", "%129", "%130", "%131", "%132", VB_D32(0), VB_D32(32), VB_D32(64),    \
                     VB_D32(96));                                                                                      \
        }                                                                                                              \
    };
VB_WGMMA_TYPE(half, "f16")
VB_WGMMA_TYPE(bf16, "bf16")

// d[64][N] += A[64][16] B[16][N] with A in registers. Register a[h + 2 * i] holds the row above, columns 2 * (thread %
// 4) + 8 * i + {0, 1}.
// So the sums of a product, packed in pairs, are the left factor of the next: columns 16 * i.. are d[8 * i] on.
#define VB_WGMMA_A(N, TYPE, REGS, A, B, TB, ...)                                                                       \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" REGS "}, {" A "}, " B            \
                 ", 1, 1, 1, " TB ";"                                                                                  \
                 : __VA_ARGS__                                                                                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(B_MN))
#define VB_WGMMA_A_KEEP(N, TYPE, REGS, A, B, KEEP, TB, ...) /* d = keep * d + A B: a first product needs no zeros */   \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " KEEP ", 0;\n"                                                     \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" REGS "}, {" A "}, " B            \
                 ", p, 1, 1, " TB ";\n}\n"                                                                             \
                 : __VA_ARGS__                                                                                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(B_MN), "r"(keep))

template <class T, int N, int B_MN>
struct WgmmaRegisters;

#define VB_WGMMA_A_TYPE(T, NAME)                                                                                       \
    template <int B_MN>                                                                                                \
    struct WgmmaRegisters<T, 16, B_MN> {                                                                               \
        static VB_DEVICE void run(float (&d)[8], const unsigned (&a)[4], uint64_t b) {                                 \
            VB_WGMMA_A(16, NAME, VB_R8, "%8, %9, %10, %11", "%12", "%13", VB_D8(0));                                   \
        }                                                                                                              \
        static VB_DEVICE void run(float (&d)[8], const unsigned (&a)[4], uint64_t b, int keep) {                       \
            VB_WGMMA_A_KEEP(16, NAME, VB_R8, "%8, %9, %10, %11", "%12", "%14", "%13", VB_D8(0));                       \
        }                                                                                                              \
    };                                                                                                                 \
    template <int B_MN>                                                                                                \
    struct WgmmaRegisters<T, 32, B_MN> {                                                                               \
        static VB_DEVICE void run(float (&d)[16], const unsigned (&a)[4], uint64_t b) {                                \
            VB_WGMMA_A(32, NAME, VB_R16, "%16, %17, %18, %19", "%20", "%21", VB_D8(0), VB_D8(8));                      \
        }                                                                                                              \
        static VB_DEVICE void run(float (&d)[16], const unsigned (&a)[4], uint64_t b, int keep) {                      \
            VB_WGMMA_A_KEEP(32, NAME, VB_R16, "%16, %17, %18, %19", "%20", "%22", "%21", VB_D8(0), VB_D8(8));          \
        }                                                                                                              \
    };                                                                                                                 \
    template <int B_MN>                                                                                                \
    struct WgmmaRegisters<T, 64, B_MN> {                                                                               \
        static VB_DEVICE void run(float (&d)[32], const unsigned (&a)[4], uint64_t b) {                                \
            VB_WGMMA_A(64, NAME, VB_R32, "%32, %33, %34, %35", "%36", "%37", VB_D32(0));                               \
        }                                                                                                              \
    };                                                                                                                 \
    template <int B_MN>                                                                                                \
    struct WgmmaRegisters<T, 128, B_MN> {                                                                              \
        static VB_DEVICE void run(float (&d)[64], const unsigned (&a)[4], uint64_t b) {                                \
            VB_WGMMA_A(128, NAME, VB_R64, "%64, %65, %66, %67", "%68", "%69", VB_D32(0), VB_D32(32));                  \
        }                                                                                                              \
        static VB_DEVICE void run(float (&d)[64], const unsigned (&a)[4], uint64_t b, int keep) {                      \
            VB_WGMMA_A_KEEP(128, NAME, VB_R64, "%64, %65, %66, %67", "%68", "%70", "%69", VB_D32(0), VB_D32(32));      \
        }                                                                                                              \
    };                                                                                                                 \
    template <int B_MN>                                                                                                \
    struct WgmmaRegisters<T, 176, B_MN> {                                                                              \
        static VB_DEVICE void run(float (&d)[88], const unsigned (&a)[4], uint64_t b) {                                \
            VB_WGMMA_A(176, NAME, VB_R88, "%88, %89, %90, %91", "%92", "%93", VB_D32(0), VB_D32(32), VB_D8(64),        \
                       VB_D8(72), VB_D8(80));                                                                          \
        }                                                                                                              \
    };                                                                                                                 \
    template <int B_MN>                                                                                                \
    struct WgmmaRegisters<T, 256, B_MN> {                                                                              \
        static VB_DEVICE void run(float (&d)[128], const unsigned (&a)[4], uint64_t b) {                               \
            VB_WGMMA_A(256, NAME, VB_R128, "%128, %129, %130, %131", "%132", "%133", VB_D32(0), VB_D32(32),            \
                       VB_D32(64), VB_D32(96));                                                                        \
        }                                                                                                              \
    };
VB_WGMMA_A_TYPE(half, "f16")
VB_WGMMA_A_TYPE(bf16, "bf16")

#endif // VB_SM90A

// ---- host side -----------------------------------------------------------------------------------------------------

#ifndef __CUDACC_RTC__

// Describes a row-major tensor of 16-bit elements. `sizes` begins with the innermost dimension.
// `strides` holds, for each further dimension, the elements from one index to the next (multiples of 8).
// Boxes of [box][64] of the inner two dimensions are copied with the 128-byte swizzle.
// The driver's function is found through the runtime: there is no library of the driver to link with.
// The function needs a current context, and a thread that has launched nothing yet lacks one.
template <int RANK>
inline vb_status tensor_map(CUtensorMap *map, const void *data, vb_dtype type, const int64_t (&sizes)[RANK],
                            const int64_t (&strides)[RANK - 1], int box, vb_stream *stream, int planes = 1) {
    VB_TRY(make_current(stream->device));
    static PFN_cuTensorMapEncodeTiled_v12000 encode = [] {
        void *function = nullptr;
        cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
        const cudaError_t error =
            cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
#else // of the driver's newest version, which is the first one still
        const cudaError_t error =
            cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found);
#endif
        if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) function = nullptr;
        return (PFN_cuTensorMapEncodeTiled_v12000)function;
    }();
    if (!encode) return VB_INTERNAL; // a driver before 12.0, with which this toolkit's runtime does not start
    cuuint64_t extents[RANK], bytes[RANK - 1];
    cuuint32_t boxes[RANK], steps[RANK];
    for (int i = 0; i < RANK; i++) {
        extents[i] = (cuuint64_t)sizes[i];
        if (i > 0) bytes[i - 1] = (cuuint64_t)strides[i - 1] * 2;
        boxes[i] = (cuuint32_t)(i == 0 ? tile_width : i == 1 ? box : i == 2 ? planes : 1);
        steps[i] = 1;
    }
    const CUresult error =
        encode(map, type == VB_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, RANK,
               const_cast<void *>(data), extents, bytes, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
               CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (error == CUDA_SUCCESS) return VB_OK;
    note_driver_error(stream->device, (int)error);
    return VB_INTERNAL;
}
inline vb_status tensor_map(CUtensorMap *map, const void *data, vb_dtype type, int64_t inner, int64_t outer,
                            int64_t stride, int box, vb_stream *stream) {
    return tensor_map<2>(map, data, type, {inner, outer}, {stride}, box, stream);
}

#else // NVRTC: as the launchers of common.cuh

template <int RANK>
VB_DEVICE vb_status tensor_map(CUtensorMap *, const void *, vb_dtype, const int64_t (&)[RANK],
                               const int64_t (&)[RANK - 1], int, vb_stream *, int = 1) {
    return VB_OK;
}
VB_DEVICE vb_status tensor_map(CUtensorMap *, const void *, vb_dtype, int64_t, int64_t, int64_t, int, vb_stream *) {
    return VB_OK;
}

#endif

} // namespace sm90
} // namespace vb

#endif // VB_WITH_SM90
#endif
