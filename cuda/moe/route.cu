// route.cu: the k experts of each row of logits and their weights (vb_route_args).
//
//   grid     a warp a row, 4 a block
//   shared   8 * experts bytes a warp: the experts' keys (order_key.cuh); 0 for those that may not be chosen
//   moves    4 * experts bytes a row; bound by the latency of k reductions

#include "moe/choose.h"
#include "rows/order_key.cuh"

namespace vb {
namespace {

constexpr int warps = 4;

VB_DEVICE Key greatest_key(Key key) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) key = larger(key, __shfl_xor_sync(all_lanes, key, offset));
    return key;
}

// The value that a key was made of, but for -0 and the payload of NaN.
VB_DEVICE float value_of(Key key) {
    const unsigned bits = unsigned(key >> 32);
    return __uint_as_float(bits ^ (bits >> 31 ? 0x80000000u : 0xffffffffu));
}

// The score of each expert before it is divided by `sum`, as the contract's gating says.
VB_DEVICE float score_of(const vb_route_args &a, float logit, float max) {
    return a.gating == VB_GATING_SIGMOID ? 1.0f / (1.0f + expf(-logit)) : expf(logit - max);
}

// Clears the keys of all groups but the best.
VB_DEVICE void leave_groups(const vb_route_args &a, Key *keys, int lane) {
    const int groups = (int)a.groups, size = (int)a.experts / groups;
    // A lane keeps the score of each 32nd group in a bit mask of used ones: at most 1024 groups.
    unsigned used = 0;
    const auto group_score = [&](int g) {
        Key best = 0, second = 0;
        for (int e = g * size; e < (g + 1) * size; e++) {
            const Key key = keys[e];
            second = larger(second, smaller(best, key));
            best = larger(best, key);
        }
        return a.group_by_best || size == 1 ? value_of(best) : value_of(best) + value_of(second);
    };
    for (int i = 0; i < (int)a.groups_used; i++) {
        Key best = 0;
        for (int g = lane; g < groups; g += 32)
            if (!(used >> (g / 32) & 1)) best = larger(best, key_of(group_score(g), g));
        const int chosen = index_of(greatest_key(best));
        if (chosen % 32 == lane) used |= 1u << (chosen / 32);
    }
    __syncwarp();
    for (int g = lane; g < groups; g += 32)
        if (!(used >> (g / 32) & 1))
            for (int e = g * size; e < (g + 1) * size; e++) keys[e] = 0;
    __syncwarp();
}

__global__ void __launch_bounds__(32 * warps) route_kernel(vb_route_args a) {
    extern __shared__ Key shared_keys[];
    wait_for_previous_kernel();
    release_next_kernel();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, experts = (int)a.experts, k = (int)a.k;
    const int64_t row = (int64_t)blockIdx.x * warps + warp;
    if (row >= a.n) return;
    const float *logits = a.logits + row * experts;
    Key *const keys = shared_keys + warp * experts;
    float max = Max::identity(), sum = 0.0f;
    for (int e = lane; e < experts; e += 32) max = Max::combine(max, logits[e]);
    max = warp_reduce<Max>(max);
    for (int e = lane; e < experts; e += 32) sum += score_of(a, logits[e], max);
    sum = warp_reduce<Sum>(sum);
    const float share = a.gating == VB_GATING_SOFTMAX ? 1.0f / sum : 1.0f;
    for (int e = lane; e < experts; e += 32) {
        // Scores rise with logits, which have no ties that rounding made.
        float value = logits[e];
        if (a.bias || a.groups) value = score_of(a, value, max) * share + (a.bias ? a.bias[e] : 0.0f);
        keys[e] = key_of(value, e);
    }
    __syncwarp();
    if (a.groups > 0) leave_groups(a, keys, lane);
    float chosen = 0.0f;
    for (int j = 0; j < k; j++) {
        Key best = 0;
        for (int e = lane; e < experts; e += 32) best = larger(best, keys[e]);
        const int id = index_of(greatest_key(best));
        const float score = score_of(a, logits[id], max) * share;
        chosen += score;
        __syncwarp();
        if (id % 32 == lane) keys[id] = 0;
        if (lane == 0) a.ids[row * k + j] = id, a.weights[row * k + j] = score;
        __syncwarp();
    }
    const bool divided = a.normalized || a.gating == VB_GATING_SOFTMAX_CHOSEN;
    const float factor = divided && chosen != 0.0f ? a.scale / chosen : a.scale;
    for (int j = lane; j < k; j += 32) a.weights[row * k + j] *= factor; // written by lane 0 before the barrier above
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" vb_status vb_cuda_route(const vb_route_args *args, vb_stream *stream) {
    const int64_t blocks = ceil_div<int64_t>(args->n, warps);
    if (blocks > INT32_MAX) return VB_UNSUPPORTED;
    chosen(stream, moe_kernel_info(MOE_ROUTE), "route", VB_F32, "n experts k", args->n, args->experts, args->k);
    return launch_overlapped(stream, (unsigned)blocks, 32 * warps, warps * args->experts * (int64_t)sizeof(Key),
                             route_kernel, *args);
}
