// route.cu: the k experts of each row of logits and their weights (vb_route_args).
//
//   grid     a warp a row, 4 a block
//   shared   8 * experts bytes a warp: the experts' keys (order_key.cuh); 0 for experts that may not be chosen
//   moves    4 * experts bytes a row
//   bound    the latency of k reductions

#include "moe/choose.h"
#include "moe/route.cuh"

namespace vb {
namespace {

constexpr int warps = MOE_ROUTE_ROWS;

__global__ void __launch_bounds__(32 * warps) route_kernel(vb_route_args a) {
    extern __shared__ Key shared_keys[];
    wait_for_previous_kernel();
    release_next_kernel();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t row = (int64_t)blockIdx.x * warps + warp;
    if (row < a.n)
        route_row(a, a.ids + row * a.k, a.weights + row * a.k, a.logits + row * a.experts,
                  shared_keys + warp * a.experts, lane);
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" vb_status vb_cuda_route(const vb_route_args *args, vb_stream *stream) {
    const moe_kernel kernel = choose_route(args->n);
    chosen(stream, moe_kernel_info(kernel), "route", VB_F32, "n experts k", args->n, args->experts, args->k);
    if (kernel == MOE_NONE) return VB_UNSUPPORTED;
    return launch_overlapped(stream, (unsigned)ceil_div<int64_t>(args->n, warps), 32 * warps,
                             warps * args->experts * (int64_t)sizeof(Key), route_kernel, *args);
}
