// linear_step.cuh: what linear_prefill.cu asks of linear_step.cu.
#ifndef VB_LINEAR_STEP_CUH
#define VB_LINEAR_STEP_CUH

#include "linear/packed/linear_prefill.cuh"

namespace vb {

constexpr int step_tokens = 32; // at most

// The blocks of a cluster that share the columns of `prefill_rows` rows of W, 1, 2, 4 or 8.
int step_cluster(int64_t rows, int64_t k_tiles, int multiprocessors);

// The products of up to step_tokens rows of x[product.n][cols], in F16 in the order of position_of, on Hopper. product.cluster is
// step_cluster's.
template <class Block, bool SWIGLU>
vb_status step_product(const half *x, int64_t cols, const Product &product, vb_stream *stream);

} // namespace vb
#endif
