// kv.cu: kv_write, new keys and values into the cache.
//
//   k, v[sequence][kv_head][capacity][dim] <- k_in, v_in[batch][seq][kv_heads][dim] (F32), row (b, s) at its position
//
//   grid     256 threads; a thread moves WIDTH elements of a key and of its value, of Q8_0 four, of which eight make a block
//   shared   none
//   moves    batch * seq * kv_heads * dim * (8 + 2 * sizeof(T)) bytes; bound by memory bandwidth, in decode by the launch

#include "runtime/common.cuh"
#include "quant.h"

namespace vb {
namespace {

constexpr int threads = 256;

template <class T, int WIDTH>
__global__ void __launch_bounds__(threads) kv_write_kernel(vb_kv_write_args a) {
    wait_for_previous_kernel();
    release_next_kernel();
    const int per_row = int(a.dim / WIDTH);
    const int64_t index = (int64_t)blockIdx.x * threads + threadIdx.x;
    const int64_t row = index / per_row; // (b, s, head)
    const int64_t token = row / a.kv_heads, b = token / a.seq;
    if (b >= a.batch) return;
    const int64_t position = a.positions[token];
    if (position < 0 || position >= a.capacity) return;
    const int64_t sequence = a.sequences ? a.sequences[b] : b;
    const int64_t head = row - token * a.kv_heads, at = (index - row * per_row) * WIDTH;
    const int64_t target = ((sequence * a.kv_heads + head) * a.capacity + position) * a.dim + at;
    using F = Vec<float, WIDTH>;
    using V = Vec<T, WIDTH>;
    const F key = *reinterpret_cast<const F *>(a.k_in + row * a.dim + at);
    const F value = *reinterpret_cast<const F *>(a.v_in + row * a.dim + at);
    V k, v;
#pragma unroll
    for (int e = 0; e < WIDTH; e++) k.at[e] = from_float<T>(key.at[e]), v.at[e] = from_float<T>(value.at[e]);
    *reinterpret_cast<V *>((T *)a.k + target) = k;
    *reinterpret_cast<V *>((T *)a.v + target) = v;
}

// Quantizes 4 elements, from `at` on, of a block whose greatest size is known, as ggml does: d = greatest / 127, q = round(x / d),
// halves away from 0. A NaN makes all of its block NaN.
VB_DEVICE void store_some(vb_block_q8_0 *block, int at, const float (&x)[4], float greatest) {
    const float d = greatest / 127.0f, inverse = d != 0.0f ? 1.0f / d : 0.0f;
    if (at == 0) *reinterpret_cast<half *>(&block->d) = from_float<half>(d);
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
        Vec<int8_t, 2> two;
        two.at[0] = (int8_t)roundf(x[e] * inverse), two.at[1] = (int8_t)roundf(x[e + 1] * inverse);
        *reinterpret_cast<Vec<int8_t, 2> *>(block->qs + at + e) = two;
    }
}

__global__ void __launch_bounds__(threads) kv_write_q8_kernel(vb_kv_write_args a) {
    wait_for_previous_kernel();
    release_next_kernel();
    const int per_row = int(a.dim / 4);
    const int64_t index = (int64_t)blockIdx.x * threads + threadIdx.x;
    const int64_t row = index / per_row; // (b, s, head); the threads of a block have one
    const int64_t token = row / a.kv_heads, b = token / a.seq;
    const int at = int(index - row * per_row) * 4;
    const int64_t position = b < a.batch ? a.positions[token] : -1;
    const bool valid = position >= 0 && position < a.capacity;
    const int64_t sequence = valid && a.sequences ? a.sequences[b] : b, head = row - token * a.kv_heads;
    const int64_t target = ((sequence * a.kv_heads + head) * a.capacity + position) * (a.dim / VB_QK) + at / VB_QK;
#pragma unroll
    for (int values = 0; values < 2; values++) {
        float x[4] = {};
        const float *in = values ? a.v_in : a.k_in;
        if (valid)
#pragma unroll
            for (int e = 0; e < 4; e++) x[e] = in[row * a.dim + at + e];
        float greatest = Max::combine(Max::combine(fabsf(x[0]), fabsf(x[1])), Max::combine(fabsf(x[2]), fabsf(x[3])));
        greatest = warp_reduce<Max, 8>(greatest);
        if (valid) store_some((vb_block_q8_0 *)(values ? a.v : a.k) + target, at % VB_QK, x, greatest);
    }
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" vb_status vb_cuda_kv_write(const vb_kv_write_args *args, vb_stream *stream) {
    const vb_kv_write_args &a = *args;
    if (a.dim > INT32_MAX) return VB_UNSUPPORTED;
    if (a.type == VB_Q8_0) {
        const int64_t blocks = ceil_div<int64_t>(a.batch * a.seq * a.kv_heads * (a.dim / 4), threads);
        if (blocks > 0x7fffffff) return VB_UNSUPPORTED;
        return launch_overlapped(stream, (unsigned)blocks, threads, 0, kv_write_q8_kernel, a);
    }
    const bool vectors = aligned16(a.k, a.v, a.k_in, a.v_in) && a.dim % 4 == 0;
    const int64_t blocks = ceil_div<int64_t>(a.batch * a.seq * a.kv_heads * (a.dim / (vectors ? 4 : 1)), threads);
    if (blocks > 0x7fffffff) return VB_UNSUPPORTED;
    return with_float_type(a.type, [&](auto zero) {
        using T = decltype(zero);
        return launch_overlapped(stream, (unsigned)blocks, threads, 0,
                                 vectors ? kv_write_kernel<T, 4> : kv_write_kernel<T, 1>, a);
    });
}
