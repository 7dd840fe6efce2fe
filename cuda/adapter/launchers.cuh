// launchers.cuh: the ways to compute an adapter's update, one file each.

#ifndef VB_CUDA_ADAPTER_LAUNCHERS_CUH
#define VB_CUDA_ADAPTER_LAUNCHERS_CUH

#include "adapter/choose.h"
#include "runtime/common.cuh"

namespace vb {

vb_status fused_update_half(const vb_fused_update_args &a, const adapter_plan &plan, vb_stream *stream);
vb_status fused_update_stream(const vb_fused_update_args &a, const adapter_plan &plan, vb_stream *stream);
vb_status fused_update_sm90(const vb_fused_update_args &a, const adapter_plan &plan, vb_stream *stream);
vb_status fused_update_f32_sm90(const vb_fused_update_args &a, const adapter_plan &plan, vb_stream *stream);
vb_status fused_update_cluster(const vb_fused_update_args &a, const adapter_plan &plan, vb_stream *stream);
vb_status fused_update_tiled(const vb_fused_update_args &a, const adapter_plan &plan, vb_stream *stream);
vb_status fused_update_f32(const vb_fused_update_args &a, const adapter_plan &plan, vb_stream *stream);

} // namespace vb
#endif
