// glu.cuh: the gated linear units of vb_activation, one value at a time.
#ifndef VB_ROWS_GLU_CUH
#define VB_ROWS_GLU_CUH

#include "rows/map.cuh"

namespace vb {
namespace {

// f(gate) * up for an activation f of one value.
template <class F>
struct GluOp {
    VB_DEVICE float operator()(float gate, float up) const { return F()(gate, 0.0f) * up; }
};
struct ReluSquaredGluOp {
    VB_DEVICE float operator()(float gate, float up) const { return (gate < 0.0f ? 0.0f : gate * gate) * up; }
};
// Comparisons that NaN fails keep it, where fminf would drop it.
struct ClampedSiluGluOp {
    float alpha, limit;
    VB_DEVICE float operator()(float gate, float up) const {
        const float g = gate > limit ? limit : gate, low = up < -limit ? -limit : up, u = low > limit ? limit : low;
        return (u + 1.0f) * __fdividef(g, 1.0f + expf(-alpha * g));
    }
};

// An activation that is known when the kernel runs: for results, not for inner loops.
struct AnyGlu {
    vb_activation activation;
    float alpha, limit;
    VB_DEVICE float operator()(float gate, float up) const {
        switch (activation) {
        case VB_SILU: return SwigluOp()(gate, up);
        case VB_GELU: return GluOp<GeluOp>()(gate, up);
        case VB_GELU_TANH: return GluOp<GeluTanhOp>()(gate, up);
        case VB_RELU_SQUARED: return ReluSquaredGluOp()(gate, up);
        default: return ClampedSiluGluOp{alpha, limit}(gate, up);
        }
    }
};

} // namespace
} // namespace vb
#endif
