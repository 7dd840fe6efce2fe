// gated_delta.cu: the gated delta rule over the tokens of a sequence, in float32 (vb_gated_delta_args has the formula).
//
//   grid     (value heads, sequences, 32 values): columns of a state are independent once q and k are known
//   block    128 threads: 32 columns by 4 parts of the keys; a thread holds PER elements of its column in registers
//   shared   q and k of one token
//   moves    the states once each way, qkv once a block
//   bound    latency: tokens come one after the other

#include "delta/choose.h"
#include "delta/state.cuh"
#include "runtime/common.cuh"

namespace vb {
namespace {

constexpr int delta_threads = 128, columns = DELTA_COLUMNS, parts = delta_threads / columns;

// The sum of the threads of a column, which lie together.
VB_DEVICE float column_sum(float x) { return warp_reduce<Sum, parts>(x); }

template <int PER>
__global__ void __launch_bounds__(delta_threads) gated_delta_kernel(vb_gated_delta_args a) {
    __shared__ float query[parts * PER], key[parts * PER], scratch[32];
    wait_for_previous_kernel();
    release_next_kernel();
    const int dk = (int)a.key_dim, heads = (int)a.value_heads, key_heads = (int)a.key_heads, head = blockIdx.x;
    const int part = threadIdx.x % parts;
    const int64_t dv = a.value_dim, b = blockIdx.y, d = (int64_t)blockIdx.z * columns + threadIdx.x / parts;
    const bool valid = d < dv;
    const int key_head = a.interleaved ? head % key_heads : head / (heads / key_heads);
    const int64_t keys = a.key_heads * a.key_dim, width = 2 * keys + a.value_heads * dv;
    const state_place place = place_of(a, b);
    if (place.skip) return;
    const float *const from = a.state + (place.from * heads + head) * dk * dv + d;
    float *const to = a.state + (place.to * heads + head) * dk * dv + d;
    float state[PER];
#pragma unroll
    for (int j = 0; j < PER; j++)
        state[j] = valid && !place.zero && part + parts * j < dk ? from[(part + parts * j) * dv] : 0.0f;
    const float rate = a.a[head], shift = a.dt[head];
    for (int64_t token = b * a.seq; token < (b + 1) * a.seq; token++) {
        const float *const row = a.qkv + token * width;
        float q_sum = 0.0f, k_sum = 0.0f;
        __syncthreads(); // the token before has been read
        for (int i = threadIdx.x; i < parts * PER; i += delta_threads) {
            const float q = i < dk ? row[(int64_t)key_head * dk + i] : 0.0f,
                        k = i < dk ? row[keys + (int64_t)key_head * dk + i] : 0.0f;
            query[i] = q, key[i] = k;
            q_sum += q * q, k_sum += k * k;
        }
        q_sum = block_reduce<Sum>(q_sum, scratch); // its barriers also show query and key
        k_sum = block_reduce<Sum>(k_sum, scratch);
        const float q_scale = 1.0f / sqrtf((q_sum + a.eps) * (float)dk), k_scale = 1.0f / sqrtf(k_sum + a.eps);
        const float x = a.alpha[token * heads + head] + shift, softplus = x > 20.0f ? x : log1pf(expf(x));
        const float decay = expf(rate * softplus), beta = 1.0f / (1.0f + expf(-a.beta[token * heads + head]));
        float known = 0.0f;
#pragma unroll
        for (int j = 0; j < PER; j++) {
            state[j] *= decay;
            known = fmaf(key[part + parts * j], state[j], known);
        }
        known = column_sum(known) * k_scale;
        const float v = valid ? row[2 * keys + head * dv + d] : 0.0f, delta = beta * (v - known) * k_scale;
        float out = 0.0f;
#pragma unroll
        for (int j = 0; j < PER; j++) {
            state[j] = fmaf(key[part + parts * j], delta, state[j]);
            out = fmaf(query[part + parts * j], state[j], out);
        }
        out = column_sum(out) * q_scale;
        if (valid && part == 0) a.out[(token * heads + head) * dv + d] = out;
    }
#pragma unroll
    for (int j = 0; j < PER; j++)
        if (valid && part + parts * j < dk) to[(part + parts * j) * dv] = state[j];
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" vb_status vb_cuda_gated_delta(const vb_gated_delta_args *args, vb_stream *stream) {
    const vb_gated_delta_args &a = *args;
    const delta_kernel kernel = choose_gated_delta(&a);
    chosen(stream, delta_kernel_info(kernel), "gated_delta", VB_F32, "batch seq value_heads key_dim value_dim", a.batch,
           a.seq, a.value_heads, a.key_dim, a.value_dim);
    const dim3 grid((unsigned)a.value_heads, (unsigned)a.batch, (unsigned)ceil_div<int64_t>(a.value_dim, columns));
    switch (kernel) {
    case DELTA_KEYS_64: return launch_overlapped(stream, grid, delta_threads, 0, gated_delta_kernel<16>, a);
    case DELTA_KEYS_128: return launch_overlapped(stream, grid, delta_threads, 0, gated_delta_kernel<32>, a);
    case DELTA_KEYS_256: return launch_overlapped(stream, grid, delta_threads, 0, gated_delta_kernel<64>, a);
    default: return VB_UNSUPPORTED;
    }
}
