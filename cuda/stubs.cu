#include "common.cuh"

extern "C" {
vb_status vb_cuda_matmul(void *, const void *, const void *, vb_dtype, int64_t, int64_t, int64_t, vb_stream *) { return VB_UNSUPPORTED; }
vb_status vb_cuda_matmul_single_row(void *, const void *, const void *, vb_dtype, int64_t, int64_t, vb_stream *) { return VB_UNSUPPORTED; }
}
