#include "common.cuh"

extern "C" vb_status vb_cuda_convert(void *, vb_dtype, const void *, vb_dtype, int64_t, vb_stream *) {
    return VB_UNSUPPORTED;
}
