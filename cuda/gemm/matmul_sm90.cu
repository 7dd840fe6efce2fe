// matmul_sm90.cu: Hopper's products of F16 and BF16 in any layout (the kernel is in matmul_sm90.cuh).
//
// Bytes: 2 (m k + k n + m n) a matrix; FLOPs 2 m n k. Bound by the tensor cores from about 1024^3.

#include "gemm/gemm_sm90.cuh"
#include "gemm/matmul_sm90.cuh"

namespace vb {

#ifdef VB_WITH_SM90

namespace {

template <class T>
vb_status matmul_16bit(const vb_matmul_args &x, void *sums, vb_stream *stream) {
    using namespace strided;
    const matmul_sm90_plan plan = matmul_sm90_plan_of(&x, multiprocessors(stream));
    Problem<T> p = {};
    describe(p, x);
    p.steps = (int)ceil_div<int64_t>(x.k, product_depth), p.pair = plan.pair;
    if (plan.meet) {
        const vb_status room =
            sums ? VB_OK
                 : workspace(&sums, matmul_sm90_meeting_bytes(&x, &plan, multiprocessors(stream)), stream);
        if (room == VB_OK) {
            p.meeting = (float *)sums, p.arrived = counters(stream), p.parts.count = plan.parts;
            p.whole = (int)matmul_sm90_whole(&x, &plan, multiprocessors(stream));
        } else if (room != VB_OUT_OF_MEMORY) { // else the parts stay together
            return room;
        }
    } else {
        VB_TRY(plan_k_parts(&p.parts, plan.parts, x, stream, sums));
    }
    const Operand a = {x.a,        x.a_transposed ? x.k : x.m, x.a_transposed ? x.m : x.k,
                       x.a_stride, x.a_batch_stride,           p.a_shared ? 1 : x.batch};
    const Operand b = {x.b,        x.b_transposed ? x.n : x.k, x.b_transposed ? x.k : x.n,
                       x.b_stride, x.b_batch_stride,           p.b_shared ? 1 : x.batch};
    VB_TRY(with_layouts(x, [&](auto a_t, auto b_t) {
        constexpr bool A_MN = decltype(a_t)::value, B_MN = !decltype(b_t)::value;
        if (plan.tile_n == 192) return launch_matmul<T, T, 192, A_MN, B_MN, 0>(a, b, x.type, p, stream);
        return plan.tile_n == 256 ? launch_matmul<T, T, 256, A_MN, B_MN, 0>(a, b, x.type, p, stream)
                                  : launch_matmul<T, T, 128, A_MN, B_MN, 0>(a, b, x.type, p, stream, plan.blocks);
    }));
    return plan.meet ? VB_OK : add_parts<T>(x, p.parts, PlainSum(), stream);
}

} // namespace

vb_status matmul_sm90(const vb_matmul_args &x, vb_stream *stream, void *sums) {
    return x.type == VB_F16 ? matmul_16bit<half>(x, sums, stream) : matmul_16bit<bf16>(x, sums, stream);
}

#endif

} // namespace vb
