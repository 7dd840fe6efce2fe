// matmul_scaled_sm90.cuh: Hopper's products of F32 in any layout, by 16-bit tensor cores.
#ifndef VB_CUDA_MATMUL_SCALED_SM90_CUH
#define VB_CUDA_MATMUL_SCALED_SM90_CUH

#include "runtime/common.cuh"

namespace vb {

// With float32 accuracy, or TF32's where the precision permits it. VB_UNSUPPORTED, having enqueued nothing, where a product
// is too small to repay the conversion of its operands, or a row of a shape that does not suit.
vb_status matmul_scaled_sm90(const vb_matmul_args &x, vb_stream *stream);

} // namespace vb
#endif
