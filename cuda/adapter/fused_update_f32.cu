// fused_update_f32.cu: the update of an adapter on tensor cores, for x of F32: see fused_update.cuh.

#include "adapter/fused_update.cuh"
#include "adapter/launchers.cuh"

namespace vb {

vb_status fused_update_f32(const vb_fused_update_args &a, const adapter_plan &plan, vb_stream *stream) {
    return a.weight_type == VB_F32 ? update_tiles<float, float>(a, plan, stream)
                                   : update_tiles<float, half>(a, plan, stream);
}

} // namespace vb
