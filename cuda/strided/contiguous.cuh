// contiguous.cuh: a kernel of its own for each step of floats, on arrays of one type without gaps.
#ifndef VB_CUDA_STRIDED_CONTIGUOUS_CUH
#define VB_CUDA_STRIDED_CONTIGUOUS_CUH

#include "runtime/common.cuh"

namespace vb {

// The arguments are those that choose_strided_map has for STRIDED_CONTIGUOUS.
vb_status map_contiguous(const vb_map_args &args, const vb_step &step, vb_stream *stream);

} // namespace vb
#endif
