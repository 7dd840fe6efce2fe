#include "common.cuh"

extern "C" vb_status vb_cuda_embedding(float *, const vb_weight *, const int32_t *, int64_t, vb_stream *) {
    return VB_UNSUPPORTED;
}
