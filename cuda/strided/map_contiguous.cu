// map_contiguous.cu: one step of floats, on arrays of one type without gaps: rows/map.cuh with the steps of
// expressions. Comparisons write truths. Grid, moves and bound are those of rows/elementwise.cu.

#include "strided/contiguous.cuh"
#include "strided/steps.cuh"
#include "strided/choose.h"

namespace vb {
namespace {

template <int OP>
VB_DEVICE float step_of(float a, float b) {
    unsigned x[1] = {__float_as_uint(a)}, y[1] = {__float_as_uint(b)};
    perform<1>(OP, x, y, y, [](int) { return 0u; });
    return OP >= VB_ELEMENT_EQ && OP <= VB_ELEMENT_LE ? (float)x[0] : __uint_as_float(x[0]);
}

template <int OP>
struct StepOp {
    VB_DEVICE float operator()(float a, float b) const { return step_of<OP>(a, b); }
};
template <int OP>
struct StepConstantOp {
    float constant;
    VB_DEVICE float operator()(float a, float) const { return step_of<OP>(a, constant); }
};
template <int OP>
struct ConstantStepOp {
    float constant;
    VB_DEVICE float operator()(float a, float) const { return step_of<OP>(constant, a); }
};

} // namespace

vb_status map_contiguous(const vb_map_args &args, const vb_step &step, vb_stream *stream) {
    const int64_t n = args.sizes[0];
    const int inputs = (int)args.inputs;
    const vb_dtype type = args.in[step.a < inputs ? step.a : step.b].type;
    const auto data = [&](int32_t value) { return args.in[value].data; };
    const auto constant = [&](int32_t value) {
        union {
            int32_t bits;
            float number;
        } c;
        c.bits = args.program[value - inputs].a;
        return c.number;
    };
#define UNARY(OP)                                                                                                      \
    case OP: return map<1>("map", args.out.data, data(step.a), data(step.a), type, n, StepOp<OP>(), stream);
#define ON_TWO(OP, TRUTHS)                                                                                             \
    case OP:                                                                                                           \
        if (step.a >= inputs)                                                                                          \
            return map<1, TRUTHS>("map", args.out.data, data(step.b), data(step.b), type, n,                           \
                                  ConstantStepOp<OP>{constant(step.a)}, stream);                                       \
        if (step.b >= inputs)                                                                                          \
            return map<1, TRUTHS>("map", args.out.data, data(step.a), data(step.a), type, n,                           \
                                  StepConstantOp<OP>{constant(step.b)}, stream);                                       \
        return map<2, TRUTHS>("map", args.out.data, data(step.a), data(step.b), type, n, StepOp<OP>(), stream);
#define BINARY(OP) ON_TWO(OP, false)
#define COMPARISON(OP) ON_TWO(OP, true)
    switch (step.op) {
        BINARY(VB_ELEMENT_ADD)
        BINARY(VB_ELEMENT_SUB)
        BINARY(VB_ELEMENT_MUL)
        BINARY(VB_ELEMENT_DIV)
        BINARY(VB_ELEMENT_MIN)
        BINARY(VB_ELEMENT_MAX)
        BINARY(VB_ELEMENT_POW)
        COMPARISON(VB_ELEMENT_EQ)
        COMPARISON(VB_ELEMENT_NE)
        COMPARISON(VB_ELEMENT_LT)
        COMPARISON(VB_ELEMENT_LE)
        UNARY(VB_ELEMENT_NEG)
        UNARY(VB_ELEMENT_ABS)
        UNARY(VB_ELEMENT_EXP)
        UNARY(VB_ELEMENT_LOG)
        UNARY(VB_ELEMENT_SQRT)
        UNARY(VB_ELEMENT_RSQRT)
        UNARY(VB_ELEMENT_SIN)
        UNARY(VB_ELEMENT_COS)
        UNARY(VB_ELEMENT_TANH)
        UNARY(VB_ELEMENT_SIGMOID)
        UNARY(VB_ELEMENT_SILU)
        UNARY(VB_ELEMENT_GELU)
        UNARY(VB_ELEMENT_GELU_TANH)
        UNARY(VB_ELEMENT_FLOOR)
        UNARY(VB_ELEMENT_CEIL)
        UNARY(VB_ELEMENT_ROUND)
    default: return VB_UNSUPPORTED;
    }
}

} // namespace vb
