// kv.cu: kv_write, new keys and values into the cache.
//
//   k, v[sequence][kv_head][capacity][dim] <- k_in, v_in[batch][seq][kv_heads][dim] (F32), row (b, s) at its position
//
//   grid     256 threads; a thread moves WIDTH elements of a key and of its value (in a ring, to position % capacity),
//            of Q8_0 four, of which eight make a block
//   shared   none
//   moves    batch * seq * kv_heads * dim * (8 + 2 * sizeof(T)) bytes; bound by memory bandwidth, in decode by the
//            launch

#include "rows/choose.h"
#include "runtime/common.cuh"
#include "quant.h"

namespace vb {
namespace {

constexpr int kv_threads = 256;

// Where rows of (b, s, head) go; false where they go nowhere.
VB_DEVICE bool slot_of(const vb_kv_write_args &a, int64_t row, int64_t *slot) {
    const int64_t token = row / a.kv_heads, b = token / a.seq;
    if (b >= a.batch) return false;
    const int64_t position = a.positions[token], sequence = a.sequences ? a.sequences[b] : b;
    if (position < 0 || (position >= a.capacity && !a.ring)) return false;
    *slot =
        (sequence * a.kv_heads + row - token * a.kv_heads) * a.capacity + (a.ring ? position % a.capacity : position);
    return true;
}

template <class T, int WIDTH>
VB_DEVICE void store_row(void *cache, int64_t slot, const float *in, int64_t row, int64_t dim, int64_t at) {
    if (!cache || at >= dim) return;
    const Vec<float, WIDTH> x = *reinterpret_cast<const Vec<float, WIDTH> *>(in + row * dim + at);
    Vec<T, WIDTH> y;
#pragma unroll
    for (int e = 0; e < WIDTH; e++) y.at[e] = from_float<T>(x.at[e]);
    *reinterpret_cast<Vec<T, WIDTH> *>((T *)cache + slot * dim + at) = y;
}

// per_row: the threads of a row, enough for the longer of key and value.
template <class T, int WIDTH>
__global__ void __launch_bounds__(kv_threads) kv_write_kernel(vb_kv_write_args a, int per_row) {
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t index = (int64_t)blockIdx.x * kv_threads + threadIdx.x, row = index / per_row,
                  at = (index - row * per_row) * WIDTH;
    int64_t slot;
    if (!slot_of(a, row, &slot)) return;
    store_row<T, WIDTH>(a.k, slot, a.k_in, row, a.dim, at);
    store_row<T, WIDTH>(a.v, slot, a.v_in, row, a.value_dim, at);
}

// Quantizes 4 elements, from `at` on, of a block whose greatest size is known, as ggml does.
// d = greatest / 127, q = round(x / d), halves away from 0. A NaN makes all of its block NaN.
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

__global__ void __launch_bounds__(kv_threads) kv_write_q8_kernel(vb_kv_write_args a, int per_row) {
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t index = (int64_t)blockIdx.x * kv_threads + threadIdx.x, row = index / per_row;
    const int at = int(index - row * per_row) * 4;
    int64_t slot = 0;
    const bool exists = slot_of(a, row, &slot);
#pragma unroll
    for (int values = 0; values < 2; values++) {
        float x[4] = {};
        const float *in = values ? a.v_in : a.k_in;
        vb_block_q8_0 *const cache = (vb_block_q8_0 *)(values ? a.v : a.k);
        const int64_t dim = values ? a.value_dim : a.dim;
        const bool valid = exists && cache && at < dim; // alike in the threads of a block of elements
        if (valid)
#pragma unroll
            for (int e = 0; e < 4; e++) x[e] = in[row * dim + at + e];
        float greatest = Max::combine(Max::combine(fabsf(x[0]), fabsf(x[1])), Max::combine(fabsf(x[2]), fabsf(x[3])));
        greatest = warp_reduce<Max, 8>(greatest);
        if (valid) store_some(cache + slot * (dim / VB_QK) + at / VB_QK, at % VB_QK, x, greatest);
    }
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" vb_status vb_cuda_kv_write(const vb_kv_write_args *args, vb_stream *stream) {
    vb_kv_write_args a = *args;
    if (a.value_dim == 0) a.value_dim = a.dim;
    const rows_kernel kernel = choose_kv_write(&a);
    chosen(stream, rows_kernel_info(kernel), "kv_write", a.type, "batch seq kv_heads dim value_dim", a.batch, a.seq,
           a.kv_heads, a.dim, a.value_dim);
    if (kernel == ROWS_NONE) return VB_UNSUPPORTED;
    const int64_t per_row = kv_write_threads(&a, kernel != ROWS_KV_WRITE_ELEMENTS);
    const int64_t blocks = ceil_div<int64_t>(a.batch * a.seq * a.kv_heads * per_row, kv_threads);
    if (kernel == ROWS_KV_WRITE_Q8)
        return launch_overlapped(stream, (unsigned)blocks, kv_threads, 0, kv_write_q8_kernel, a, (int)per_row);
    const bool vectors = kernel == ROWS_KV_WRITE_VECTORS;
    return with_float_type(a.type, [&](auto zero) {
        using T = decltype(zero);
        return launch_overlapped(stream, (unsigned)blocks, kv_threads, 0,
                                 vectors ? kv_write_kernel<T, 4> : kv_write_kernel<T, 1>, a, (int)per_row);
    });
}
