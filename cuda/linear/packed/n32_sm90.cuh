// n32_sm90.cuh: the functions of n32_sm90.cu for many.cu.
#ifndef VB_LINEAR_N32_SM90_CUH
#define VB_LINEAR_N32_SM90_CUH

#include "linear/packed/many.cuh"

namespace vb {

constexpr int n32_tokens = LINEAR_N32;

// The products of up to n32_tokens rows of x[product.n][cols], in F16 in the order of position_of, on Hopper.
// product.cluster is step_cluster's.
template <class Block>
vb_status n32_sm90_product(const half *x, int64_t cols, const Product &product, vb_stream *stream);

} // namespace vb
#endif
