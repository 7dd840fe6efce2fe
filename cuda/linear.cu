#include "common.cuh"

extern "C" {
vb_status vb_cuda_weight_packed_size(int64_t *bytes, const vb_weight *, vb_device *) { return *bytes = 0, VB_OK; }
vb_status vb_cuda_weight_pack(void *, const vb_weight *, vb_stream *) { return VB_UNSUPPORTED; }
vb_status vb_cuda_linear(float *, const float *, const vb_weight *, const float *, int64_t, vb_stream *) {
    return VB_UNSUPPORTED;
}
}
