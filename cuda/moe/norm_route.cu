// norm_route.cu: the experts of a few tokens in one kernel: the RMS norm, the router's logits and the choice.
//
//   grid     a cluster of 16 blocks of 512 threads a token; a block has a part of the experts, a thread its columns
//   shared   96 or 64 KiB of the router; sums of each warp; of the first block the logits and their keys (route.cuh)
//   moves    the router once a token; 12 or 8 vectors a thread are there before the kernel before has ended
//   bound    the latency of x, one reduction, one message and the choice. Registers are few, so that the block begins
//            beside the last block of the kernel before

#include "moe/choose.h"
#include "moe/route.cuh"
#include "arch/cluster.cuh"

namespace vb {
namespace {

// Brings 128 bytes to the L2.
VB_DEVICE void prefetch_l2(const void *at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

constexpr int cluster = MOE_ROUTE_CLUSTER, warps = MOE_ROUTE_WARPS, threads = 32 * warps;

template <int CHUNKS, int STAGES> // of 512 vectors that a row has
__global__ void __launch_bounds__(threads, 2)
    norm_route_kernel(VB_IN_PLACE vb_norm_route_args a, VB_IN_PLACE vb_route_args route) {
    constexpr int group = MOE_ROUTE_VECTORS / CHUNKS; // experts of a stage
    constexpr int halvings = CHUNKS == 1 ? 2 : CHUNKS == 2 ? 1 : 0;
    extern __shared__ __align__(16) float4 stage[]; // [STAGES][group][CHUNKS][threads], of a thread each
    Key *const keys = reinterpret_cast<Key *>(stage + STAGES * MOE_ROUTE_VECTORS * threads); // [experts]
    const int cols = (int)a.router.cols, experts = (int)a.router.rows, fours = cols / 4;
    const int share = ceil_div(experts, cluster);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, rank = cluster_rank();
    uint64_t *const mailbox = reinterpret_cast<uint64_t *>(keys + experts);
    float *const logits = reinterpret_cast<float *>(mailbox + 1), *const squares = logits + experts,
                 *const sums = squares + warps; // [warps][share]
    const bool few = few_experts(route);
    unsigned *const orders = reinterpret_cast<unsigned *>(keys); // of few experts, in place of logits and keys
    const int begin = rank * share, own = larger(0, smaller(share, experts - begin));
    const float4 *const router = static_cast<const float4 *>(a.router.data) + (int64_t)begin * fours;
    const int64_t token = blockIdx.y;
    const auto vector = [&](const float4 *row, int c) {
        const int i = c * threads + threadIdx.x;
        return i < fours ? __ldg(row + i) : make_float4(0, 0, 0, 0);
    };
    const auto dot = [](float4 v, float4 w, float sum) {
        return fmaf(v.x, w.x, fmaf(v.y, w.y, fmaf(v.z, w.z, fmaf(v.w, w.w, sum))));
    };

    if (warp == 0) mailbox_init(mailbox, experts * (int)sizeof(float), rank == 0 && lane == 0);
    cluster_arrive();
    float4 v[CHUNKS];
    // The vectors of experts first.. come to stage s; zeros beyond the last.
    const auto fetch = [&](int first, int s) {
#pragma unroll
        for (int e = 0; e < group; e++)
#pragma unroll
            for (int c = 0; c < CHUNKS; c++) {
                const int i = c * threads + threadIdx.x;
                const bool inside = first + e < own && i < fours;
                copy_async(shared_address(stage + ((s * group + e) * CHUNKS + c) * threads + threadIdx.x),
                           router + (inside ? (first + e) * fours + i : 0), inside);
            }
        copy_async_commit();
    };
#pragma unroll 1
    for (int s = 0; s < STAGES; s++) fetch(s * group, s);
    for (int i = STAGES * group * fours + 8 * threadIdx.x; i < own * fours; i += 8 * threads) prefetch_l2(router + i);
    const float bias = a.router_bias && (int)threadIdx.x < own ? a.router_bias[begin + threadIdx.x] : 0.0f;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
        v[c] = a.norm ? vector(reinterpret_cast<const float4 *>(a.norm), c) : make_float4(1, 1, 1, 1);
    cluster_wait(); // the mailbox stands
    wait_for_previous_kernel();

    float square = 0;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        const int i = c * threads + threadIdx.x;
        const float4 x = i < fours ? reinterpret_cast<const float4 *>(a.x + token * cols)[i] : make_float4(0, 0, 0, 0);
        square = dot(x, x, square);
        v[c] = make_float4(x.x * v[c].x, x.y * v[c].y, x.z * v[c].z, x.w * v[c].w);
    }
    release_next_kernel();
#pragma unroll 1
    for (int first = 0, s = 0; first < own; first += group, s = s + 1 == STAGES ? 0 : s + 1) {
        copy_async_wait<STAGES - 1>();
        float sum[group] = {};
#pragma unroll
        for (int e = 0; e < group; e++)
#pragma unroll
            for (int c = 0; c < CHUNKS; c++)
                sum[e] = dot(v[c], stage[((s * group + e) * CHUNKS + c) * threads + threadIdx.x], sum[e]);
        fetch(first + STAGES * group, s);
        // Halves of the lanes keep halves of the experts, until a lane has one.
#pragma unroll
        for (int step = 0; step < halvings; step++) {
            const int half = group >> (step + 1), offset = 16 >> step;
            const bool upper = lane & offset;
#pragma unroll
            for (int e = 0; e < half; e++) {
                const float other = __shfl_xor_sync(all_lanes, upper ? sum[e] : sum[e + half], offset);
                sum[e] = (upper ? sum[e + half] : sum[e]) + other;
            }
        }
#pragma unroll
        for (int offset = 16 >> halvings; offset > 0; offset /= 2) sum[0] += __shfl_xor_sync(all_lanes, sum[0], offset);
        const int e = first + lane / (32 / group);
        if (lane % (32 / group) == 0 && e < own) sums[warp * share + e] = sum[0];
    }
    square = warp_reduce<Sum>(square);
    if (lane == 0) squares[warp] = square;
    __syncthreads();
    float mean = 0;
#pragma unroll
    for (int w = 0; w < warps; w++) mean += squares[w];
    const float factor = rsqrtf(mean / (float)cols + a.eps);
    if ((int)threadIdx.x < own) {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < warps; w++) sum += sums[w * share + threadIdx.x];
        const float logit = fmaf(sum, factor, bias);
        if (few) send(cluster_address(orders + begin + threadIdx.x, 0), cluster_address(mailbox, 0),
                      __uint_as_float(order_of(logit)));
        else send(cluster_address(logits + begin + threadIdx.x, 0), cluster_address(mailbox, 0), logit);
    }
    if ((int)threadIdx.x / (threads / cluster) == rank)
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            const int i = c * threads + threadIdx.x;
            if (i < fours)
                reinterpret_cast<float4 *>(a.normed + token * cols)[i] =
                    make_float4(v[c].x * factor, v[c].y * factor, v[c].z * factor, v[c].w * factor);
        }
    if (rank > 0 || warp >= (few ? ceil_div(experts, 32) : 1)) return;
    mailbox_wait(mailbox);
    int32_t *const ids = a.ids + token * a.k;
    float *const weights = a.weights + token * a.k;
    if (!few) return route_row(route, ids, weights, logits, keys, lane);
    const Expert expert = choose_few(orders, reinterpret_cast<int *>(logits), experts, (int)a.k, route.gating,
                                     route.normalized != 0, route.scale);
    if (warp == 0 && lane < a.k) ids[lane] = expert.id, weights[lane] = expert.weight;
}

template <int STAGES>
vb_status launch(const vb_norm_route_args &a, const vb_route_args &route, vb_stream *stream) {
    const int64_t chunks = ceil_div<int64_t>(a.router.cols / 4, threads);
    return launch_cluster(stream, cluster, dim3(cluster, (unsigned)a.n), threads, moe_norm_route_shared(&a, STAGES),
                          chunks == 1   ? norm_route_kernel<1, STAGES>
                          : chunks == 2 ? norm_route_kernel<2, STAGES>
                                        : norm_route_kernel<4, STAGES>,
                          a, route);
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" vb_status vb_cuda_norm_route(const vb_norm_route_args *args, vb_stream *stream) {
    const vb_norm_route_args &a = *args;
    const vb_gpu gpu = gpu_of(stream);
    const bool aligned = aligned16(a.x, a.norm, a.normed, (const float *)a.router.data);
    const moe_kernel kernel = choose_norm_route(&a, aligned, &gpu);
    chosen(stream, moe_kernel_info(kernel), "norm_route", a.router.type, "n experts k cols", a.n, a.router.rows, a.k,
           a.router.cols);
    if (kernel == MOE_COMPOSED) return VB_UNSUPPORTED;
    vb_route_args route = {};
    route.bias = a.bias, route.n = a.n, route.experts = a.router.rows, route.k = a.k;
    route.groups = a.groups, route.groups_used = a.groups_used, route.scale = a.scale, route.gating = a.gating;
    route.normalized = a.normalized, route.group_by_best = a.group_by_best;
    const int stages = moe_norm_route_stages(&a, &gpu);
    return stages == 3 ? launch<3>(a, route, stream) : launch<2>(a, route, stream);
}
