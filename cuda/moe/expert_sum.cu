// expert_sum.cu: out[i] = add[i] + the sum over j of weights[i][j] * y[i][j], in float32, j in ascending order.
//
//   grid     256 threads, WIDTH neighbours of a row a thread: 4 where rows are whole vectors
//   shared   none
//   moves    n * cols * (k + 2) * 4 bytes; bound by memory bandwidth, in decode by the launch

#include "moe/choose.h"
#include "runtime/common.cuh"

namespace vb {
namespace {

constexpr int threads = MOE_SUM_THREADS;

template <int WIDTH>
__global__ void __launch_bounds__(threads)
    expert_sum_kernel(float *out, const float *add, const float *y, const float *weights, int64_t n, int64_t k,
                      int64_t per_row) {
    using V = Vec<float, WIDTH>;
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t i = (int64_t)blockIdx.x * threads + threadIdx.x, row = i / per_row;
    if (row >= n) return;
    V sum = {};
    if (add) sum = reinterpret_cast<const V *>(add)[i];
#pragma unroll 4
    for (int64_t j = 0; j < k; j++) {
        const V x = reinterpret_cast<const V *>(y)[(row * k + j) * per_row + i - row * per_row];
        const float weight = weights ? weights[row * k + j] : 1.0f;
#pragma unroll
        for (int e = 0; e < WIDTH; e++) sum.at[e] += weight * x.at[e];
    }
    reinterpret_cast<V *>(out)[i] = sum;
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" vb_status vb_cuda_expert_sum(float *out, const float *add, const float *y, const float *weights, int64_t n,
                                        int64_t k, int64_t cols, vb_stream *stream) {
    const moe_kernel kernel = choose_expert_sum(aligned16(out, add, y), n, cols);
    const bool vectors = kernel == MOE_SUM_VECTORS;
    const int64_t per_row = vectors ? cols / 4 : cols, blocks = ceil_div<int64_t>(n * per_row, threads);
    chosen(stream, moe_kernel_info(kernel), "expert_sum", VB_F32, "n k cols", n, k, cols);
    if (kernel == MOE_NONE) return VB_UNSUPPORTED;
    return launch_overlapped(stream, (unsigned)blocks, threads, 0,
                             vectors ? expert_sum_kernel<4> : expert_sum_kernel<1>, out, add, y, weights, n, k,
                             per_row);
}
