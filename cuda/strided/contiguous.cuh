// contiguous.cuh: kernels of single steps, on arrays of one type: of floats one each, of bytes one for all, and copies.
#ifndef VB_CUDA_STRIDED_CONTIGUOUS_CUH
#define VB_CUDA_STRIDED_CONTIGUOUS_CUH

#include "runtime/common.cuh"

namespace vb {

// The arguments are those that choose_strided_map has for STRIDED_CONTIGUOUS.
vb_status map_contiguous(const vb_map_args &args, const vb_step &step, vb_stream *stream);
// The same for STRIDED_BYTES.
vb_status map_bytes(const vb_map_args &args, const vb_step &step, vb_stream *stream);
// The same for STRIDED_TRANSPOSE.
vb_status copy_transposed(const vb_map_args &args, vb_stream *stream);

} // namespace vb
#endif
