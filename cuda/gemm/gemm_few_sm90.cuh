// gemm_few_sm90.cuh: Hopper's product of few rows with a matrix of 16 bits, for the launchers that choose among kernels.
#ifndef VB_CUDA_GEMM_FEW_SM90_CUH
#define VB_CUDA_GEMM_FEW_SM90_CUH

#include "runtime/common.cuh"

namespace vb {

// Whether that is faster than the tiles of gemm_sm90.cu. Where k has to be shared, more than 32 rows of sums take too long to exchange.
bool gemm_few_suits(int64_t m, int64_t n, int64_t k, int multiprocessors);

// y[m][n] = x[m][k] W, all of one 16-bit type, W stored [n][k] where transposed, else [k][n]; m up to 64, k and n multiples of 8; else
// VB_UNSUPPORTED with nothing enqueued.
vb_status gemm_few_sm90(void *y, const void *x, const void *w, vb_dtype type, int64_t m, int64_t k, int64_t n, bool transposed,
                        vb_stream *stream);

} // namespace vb
#endif
