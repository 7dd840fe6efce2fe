// contiguous.cuh: the kernels of one step on contiguous arrays of one type. A step of floats has a kernel of its own;
// steps of bytes share a kernel, and so do random numbers and copies.
#ifndef VB_CUDA_STRIDED_CONTIGUOUS_CUH
#define VB_CUDA_STRIDED_CONTIGUOUS_CUH

#include "runtime/common.cuh"

namespace vb {

// The arguments are those for which choose_strided_map says STRIDED_CONTIGUOUS.
vb_status map_contiguous(const vb_map_args &args, const vb_step &step, vb_stream *stream);
// The same for STRIDED_BYTES.
vb_status map_bytes(const vb_map_args &args, const vb_step &step, vb_stream *stream);
// The same for STRIDED_RANDOM.
vb_status map_random(const vb_map_args &args, const vb_step &step, vb_stream *stream);
// The same for STRIDED_TRANSPOSE.
vb_status copy_transposed(const vb_map_args &args, vb_stream *stream);

} // namespace vb
#endif
