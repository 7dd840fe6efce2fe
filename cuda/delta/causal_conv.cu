// causal_conv.cu: SiLU of a convolution along channels, with the rows before carried in a state (vb_causal_conv_args
// has the formula).
//
//   grid     (256 channels, tokens in runs of 16, sequences); a thread keeps the last rows of its channel in registers
//   shared   none
//   moves    x once and 3 rows more a run, out once; bound by memory bandwidth, in decode by the launch
//
// Runs read the state that another kernel then renews.

#include "delta/choose.h"
#include "delta/state.cuh"
#include "runtime/common.cuh"

namespace vb {
namespace {

constexpr int conv_threads = 256, run = DELTA_RUN, most_taps = 8;

// Row i of a sequence. Rows before the first are the state's, and NULL stands for zeros.
VB_DEVICE float row_at(const vb_causal_conv_args &a, const float *state, const float *x, int64_t i) {
    if (i >= 0) return x[i * a.channels];
    return state ? state[(i + a.taps - 1) * a.channels] : 0.0f;
}

__global__ void __launch_bounds__(conv_threads) causal_conv_kernel(vb_causal_conv_args a) {
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t c = (int64_t)blockIdx.x * conv_threads + threadIdx.x, first = (int64_t)blockIdx.y * run,
                  b = blockIdx.z;
    if (c >= a.channels) return;
    const int taps = (int)a.taps;
    const state_place place = place_of(a, b);
    if (place.skip) return;
    const float *const state = place.zero ? nullptr : a.state + place.from * (taps - 1) * a.channels + c;
    const float *const x = a.x + b * a.seq * a.channels + c;
    // The taps are the last of 8, so that indices are constants; the taps before them have weight 0.
    float weight[most_taps], rows[most_taps];
#pragma unroll
    for (int j = 0; j < most_taps; j++) {
        const int tap = j - (most_taps - taps);
        weight[j] = tap >= 0 ? a.weight[c * taps + tap] : 0.0f;
        rows[j] = tap >= 0 && tap < taps - 1 ? row_at(a, state, x, first + tap - (taps - 1)) : 0.0f;
    }
    const int64_t end = smaller(first + run, a.seq);
    for (int64_t s = first; s < end; s++) {
        rows[most_taps - 1] = x[s * a.channels];
        float sum = 0.0f;
#pragma unroll
        for (int j = 0; j < most_taps; j++)
            if (j >= most_taps - taps) sum = fmaf(weight[j], rows[j], sum);
        a.out[(b * a.seq + s) * a.channels + c] = __fdividef(sum, 1.0f + expf(-sum));
#pragma unroll
        for (int j = 0; j + 1 < most_taps; j++) rows[j] = rows[j + 1];
    }
}

// The newest taps - 1 rows become the state. A thread has a channel of a sequence.
__global__ void __launch_bounds__(conv_threads) renew_state_kernel(vb_causal_conv_args a) {
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t c = (int64_t)blockIdx.x * conv_threads + threadIdx.x, b = blockIdx.y;
    if (c >= a.channels) return;
    const state_place place = place_of(a, b);
    if (place.skip) return;
    const int64_t size = (a.taps - 1) * a.channels;
    const float *const from = place.zero ? nullptr : a.state + place.from * size + c;
    float *const state = a.state + place.to * size + c;
    const float *const x = a.x + b * a.seq * a.channels + c;
    for (int64_t j = 0; j < a.taps - 1; j++) // reads ahead of its writes
        state[j * a.channels] = row_at(a, from, x, a.seq + j - (a.taps - 1));
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" vb_status vb_cuda_causal_conv(const vb_causal_conv_args *args, vb_stream *stream) {
    const vb_causal_conv_args &a = *args;
    const int64_t blocks = ceil_div<int64_t>(a.channels, conv_threads), runs = ceil_div<int64_t>(a.seq, run);
    const delta_kernel kernel = choose_causal_conv(a.batch, a.seq, a.channels);
    chosen(stream, delta_kernel_info(kernel), "causal_conv", VB_F32, "batch seq channels taps", a.batch, a.seq,
           a.channels, a.taps);
    if (kernel == DELTA_NONE) return VB_UNSUPPORTED;
    VB_TRY(launch_overlapped(stream, dim3((unsigned)blocks, (unsigned)runs, (unsigned)a.batch), conv_threads, 0,
                             causal_conv_kernel, a));
    if (a.taps == 1) return VB_OK;
    return launch_overlapped(stream, dim3((unsigned)blocks, (unsigned)a.batch), conv_threads, 0, renew_state_kernel, a);
}
