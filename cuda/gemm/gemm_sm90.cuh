// gemm_sm90.cuh: Hopper's matrix products of contiguous matrices. choose.h names the product for a call.
#ifndef VB_CUDA_GEMM_SM90_CUH
#define VB_CUDA_GEMM_SM90_CUH

#include "arch/sm90.cuh" // VB_WITH_SM90: of toolkit 12.3; a build without it takes Hopper for a GPU of 8.9 (runtime.cu)
#include "gemm/choose.h"
#include "runtime/common.cuh"

namespace vb {

// How a product is cut up into the tiles of choose_sm90.h.
struct GemmPlan {
    gemm_tile tile;
    int ksplit;     // blocks that share the k of a tile: 1 to 8; of pairs 1 or 2 (16-bit operands), split ones up to 4
    int group_rows; // rows of tiles that are walked through together, column by column, so that L2 serves them
    int turned = 0; // whether C turned is computed, whose rows are columns of B (of split pairs)
};

// Memory in which pairs of tiles of 128 x 128 meet, two that share k.
inline int64_t gemm_meeting_bytes(int64_t m, int64_t n) {
    return gemm_tile_count(gemm_tile_shape_of(TILE_128x128_PAIR), m, n) * 2 * 2 * 128 * 128 * (int64_t)sizeof(float);
}

// The plan that should be fastest. plan_gemm has the products of 16 bits that gemm_sm90_planned names.
GemmPlan plan_gemm(int64_t m, int64_t k, int64_t n, int multiprocessors);
GemmPlan plan_linear(int64_t m, int64_t k, int64_t n, int multiprocessors); // C is of float32
GemmPlan plan_gemm_3xf16(int64_t m, int64_t k, int64_t n, int multiprocessors);

// Contiguous matrices. A product that finds no room for converted operands returns VB_OUT_OF_MEMORY, and enqueues
// nothing.
vb_status gemm_sm90(const vb_matmul_args &x, vb_stream *stream);
vb_status gemm_m64_sm90(const vb_matmul_args &x, vb_stream *stream);
vb_status gemm_3xf16_sm90(const vb_matmul_args &x, vb_stream *stream);

// Any layout. `sums`: memory for the sums of blocks that share k, or null for the stream's workspace.
vb_status matmul_sm90(const vb_matmul_args &x, vb_stream *stream, void *sums = nullptr);
vb_status matmul_3xf16_sm90(const vb_matmul_args &x,
                            vb_stream *stream); // F32 in two parts each, with float32's accuracy
vb_status matmul_1xf16_sm90(const vb_matmul_args &x, vb_stream *stream); // in one, with TF32's

} // namespace vb
#endif
