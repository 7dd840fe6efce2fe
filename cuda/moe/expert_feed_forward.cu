// expert_feed_forward.cu: the operation, which asks its chooser (choose.h) which kernel runs.

#include "moe/moe.cuh"

using namespace vb;

extern "C" vb_status vb_cuda_expert_feed_forward(const vb_expert_feed_forward_args *args, vb_stream *stream) {
    const vb_expert_feed_forward_args &a = *args;
    const vb_gpu gpu = gpu_of(stream);
    const moe_choice choice = choose_expert_feed_forward(&a, aligned16(a.x, a.gated, a.add), &gpu);
    chosen(stream, moe_kernel_info(choice.kernel), "expert_feed_forward", a.gate.type, "n k experts rows cols", a.n,
           a.k, a.experts, a.gate.rows, a.gate.cols);
    switch (choice.kernel) {
    case MOE_EXPERT_N1: return expert_feed_forward_n1(a, choice, stream);
    case MOE_EXPERT_MANY: return expert_feed_forward_many(a, false, stream);
    case MOE_EXPERT_MANY_SM90: return expert_feed_forward_many(a, true, stream);
    default: return VB_UNSUPPORTED;
    }
}
