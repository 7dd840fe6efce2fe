// gemm_sm90.cuh: Hopper's matrix products, for the launchers that choose among kernels (capability 9.0 only). Each returns
// VB_UNSUPPORTED, having enqueued nothing, where a size does not suit it.
#ifndef VB_CUDA_GEMM_SM90_CUH
#define VB_CUDA_GEMM_SM90_CUH

#include "runtime/common.cuh"

// What the kernels are made of came with toolkit 12.3; without it these functions return VB_UNSUPPORTED.
#if !defined(__CUDACC_RTC__) && CUDART_VERSION >= 12030
#define VB_WITH_SM90 1
#endif

namespace vb {

// How a product is cut up. A tile is what one block computes at a time. In a pair, two blocks of a cluster compute tiles
// one above the other and load half of B each, for both.
enum GemmTile {
    TILE_128x256_PAIR,
    TILE_128x256,
    TILE_128x192_PAIR,
    TILE_128x128_PAIR,
    TILE_128x128,
    TILE_128x64,
    TILE_64x256,
    TILE_64x128,
    GEMM_TILES
};
struct GemmPlan {
    GemmTile tile;
    int splits;     // blocks that share the k of a tile: 1 to 8; of pairs 1 or 2 (16-bit operands)
    int group_rows; // rows of tiles that are walked through together, column by column, so that L2 serves them
};

// The plan that should be fastest, by a model of a multiprocessor's time.
GemmPlan plan_gemm(int64_t m, int64_t k, int64_t n, int multiprocessors);
GemmPlan plan_gemm_split(int64_t m, int64_t k, int64_t n, int multiprocessors);

// C[m][n] = A[m][k] B, B stored [k][n], or [n][k] where b_transposed; type F16 or BF16; k and n multiples of 8.
vb_status gemm_sm90(void *c, const void *a, const void *b, vb_dtype type, int64_t m, int64_t k, int64_t n, bool b_transposed,
                    const GemmPlan &plan, vb_stream *stream);

// C[m][n] = A[m][k] B[k][n] in F32, with float32 accuracy.
vb_status gemm_split_sm90(float *c, const float *a, const float *b, int64_t m, int64_t k, int64_t n, const GemmPlan &plan,
                          vb_stream *stream);

} // namespace vb
#endif
