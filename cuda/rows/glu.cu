// glu.cu: out[i] = activation(gate[i], up[i]), the gated linear units of vb_activation (map.cuh has the kernel and its
// bounds).

#include "rows/glu.cuh"

using namespace vb;

extern "C" vb_status vb_cuda_glu(void *out, const void *gate, const void *up, vb_activation activation, float alpha,
                                 float limit, vb_dtype type, int64_t n, vb_stream *stream) {
    switch (activation) {
    case VB_SILU: return map<2>("glu", out, gate, up, type, n, SwigluOp(), stream);
    case VB_GELU: return map<2>("glu", out, gate, up, type, n, GluOp<GeluOp>(), stream);
    case VB_GELU_TANH: return map<2>("glu", out, gate, up, type, n, GluOp<GeluTanhOp>(), stream);
    case VB_RELU_SQUARED: return map<2>("glu", out, gate, up, type, n, ReluSquaredGluOp(), stream);
    default: return map<2>("glu", out, gate, up, type, n, ClampedSiluGluOp{alpha, limit}, stream);
    }
}
