// feed_forward.cu: sum = x + down(silu(gate(h)) * up(h)) with h = rms_norm(x), of a prompt or a step of many sequences; steps of
// fewer are norm_swiglu and linear_add.

#include "linear/linear.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear/packed/packed.cuh"
#endif

using namespace vb;

extern "C" vb_status vb_cuda_feed_forward(const vb_feed_forward_args *a, vb_stream *stream) {
#ifdef VB_HAS_PACKED_LAYOUT
    for (const vb_weight *w : {&a->gate, &a->up, &a->down})
        if (w->layout != VB_PACKED || w->rows > INT32_MAX - packed_rows || w->cols > INT32_MAX) return VB_UNSUPPORTED;
    if (a->n <= most_packed(stream) || a->gate.type != a->up.type || !aligned16(a->x, a->norm, a->gated, a->normed, a->next_norm))
        return VB_UNSUPPORTED;
    return prefill_feed_forward(*a, stream);
#else
    (void)a, (void)stream;
    return VB_UNSUPPORTED;
#endif
}
