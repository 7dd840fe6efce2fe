// fused_update_half.cu: the update of an adapter on tensor cores, for x of F16 and BF16: see fused_update.cuh.

#include "adapter/fused_update.cuh"
#include "adapter/launchers.cuh"

namespace vb {

vb_status fused_update_half(const vb_fused_update_args &a, const adapter_plan &plan, vb_stream *stream) {
    return a.type == VB_F16 ? update_tiles<half, half>(a, plan, stream) : update_tiles<bf16, bf16>(a, plan, stream);
}

} // namespace vb
