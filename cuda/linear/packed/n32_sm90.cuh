// n32_sm90.cuh: the functions of n32_sm90.cu for many.cu.
#ifndef VB_LINEAR_N32_SM90_CUH
#define VB_LINEAR_N32_SM90_CUH

#include "linear/packed/many.cuh"

namespace vb {

// The products of up to `tokens` rows of x[product.n][cols], 16 or 32, in F16 in the order of position_of, on Hopper.
// product.cluster is step_cluster's.
template <class Block>
vb_status n32_sm90_product(const half *x, int64_t cols, const Product &product, int tokens, vb_stream *stream);

} // namespace vb
#endif
