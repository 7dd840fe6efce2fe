// rope_kv_write.cu: what lies between the products of a layer and its attention (vb_rope_kv_write): queries and keys
// are rotated, keys and values go to the cache. Tables rotate whole heads, and the cache holds F32, F16 or BF16.
//
//   grid     256 threads a block, a part of a token's heads each. A thread moves PAIRS pairs of a head, (i, i + half),
//            or of neighbours (interleaved). Where heads are normed, their threads are lanes of one warp
//   moves    q, k and v once in, once out
//   bound    latency in decode

#include "rows/cache_slot.cuh"
#include "rows/choose.h"

namespace vb {
namespace {

constexpr int placing_threads = 256;

template <class T, int PAIRS, bool NEOX>
__global__ void __launch_bounds__(placing_threads) rope_kv_write_kernel(vb_rope_kv_write_args a, unsigned items) {
    const int half = (int)a.half, dim = (int)a.dim, heads = (int)a.heads, kv_heads = (int)a.kv_heads,
              groups = half / PAIRS;
    const unsigned per_token = (heads + 2 * kv_heads) * groups, index = blockIdx.x * placing_threads + threadIdx.x,
                   token = index / per_token;
    // of all heads; the first pair
    const int i = (int)(index - token * per_token), head = i / groups, at = (i - head * groups) * PAIRS;
    const bool exists = index < items, query = head < heads, value = head >= heads + kv_heads;
    int64_t sequence = 0;
    int position = -1;
    using F = Vec<float, PAIRS>;
    F cosine, sine;
#pragma unroll
    for (int e = 0; e < PAIRS; e++) cosine.at[e] = sine.at[e] = __uint_as_float(0x7fffffffu); // NaN
    const auto read = [&] {
        if (!exists) return;
        const unsigned b = token / (unsigned)a.seq;
        sequence = a.sequences ? a.sequences[b] : b, position = a.positions[token];
        if (!value && position >= 0 && position < a.table_rows) {
            cosine = *reinterpret_cast<const F *>(a.cos + (int64_t)position * half + at);
            sine = *reinterpret_cast<const F *>(a.sin + (int64_t)position * half + at);
        }
    };
    if (a.settled) read();
    wait_for_previous_kernel();
    release_next_kernel();
    if (!a.settled) read();
    if (!exists) return;
    const int kv_head = value ? head - heads - kv_heads : head - heads, slot = cache_slot(a.capacity, a.ring, position);
    const int64_t query_at = ((int64_t)token * heads + head) * dim,
                  row_at = ((int64_t)token * kv_heads + kv_head) * dim;
    const float *const from = query ? a.q_in + query_at : (value ? a.v_new : a.k_new) + row_at;
    const int first = NEOX ? at : 2 * at, second = NEOX ? half + at : 2 * at + PAIRS; // two vectors of a head
    F x = *reinterpret_cast<const F *>(from + first), y = *reinterpret_cast<const F *>(from + second);
    if (a.q_norm && !value) {
        const float *const norm = query ? a.q_norm : a.k_norm;
        const unsigned lane = threadIdx.x % 32, first_lane = lane & ~(groups - 1u);
        const unsigned members = groups < 32 ? ((1u << groups) - 1) << first_lane : all_lanes;
        float squares = 0.0f;
#pragma unroll
        for (int e = 0; e < PAIRS; e++) squares += x.at[e] * x.at[e] + y.at[e] * y.at[e];
        for (int offset = 1; offset < groups; offset *= 2) squares += __shfl_xor_sync(members, squares, offset);
        const float scale = 1.0f / sqrtf(squares / (float)dim + a.eps);
#pragma unroll
        for (int e = 0; e < PAIRS; e++)
            x.at[e] *= scale * norm[first + e], y.at[e] *= scale * norm[second + e];
    }
    if (!value) {
        float flat[2 * PAIRS];
#pragma unroll
        for (int e = 0; e < PAIRS; e++) flat[e] = x.at[e], flat[PAIRS + e] = y.at[e];
#pragma unroll
        for (int e = 0; e < PAIRS; e++) {
            float &u = flat[NEOX ? e : 2 * e], &v = flat[NEOX ? PAIRS + e : 2 * e + 1];
            const float old = u;
            u = old * cosine.at[e] - v * sine.at[e], v = old * sine.at[e] + v * cosine.at[e];
        }
#pragma unroll
        for (int e = 0; e < PAIRS; e++) x.at[e] = flat[e], y.at[e] = flat[PAIRS + e];
    }
    if (query) {
        *reinterpret_cast<F *>(a.q + query_at + first) = x, *reinterpret_cast<F *>(a.q + query_at + second) = y;
    } else if (slot >= 0) {
        T *const to = (T *)(value ? a.v : a.k) + ((sequence * kv_heads + kv_head) * a.capacity + slot) * dim;
        using V = Vec<T, PAIRS>;
        V u, v;
#pragma unroll
        for (int e = 0; e < PAIRS; e++) u.at[e] = from_float<T>(x.at[e]), v.at[e] = from_float<T>(y.at[e]);
        *reinterpret_cast<V *>(to + first) = u, *reinterpret_cast<V *>(to + second) = v;
    }
}

template <class T>
vb_status launch_as(const vb_rope_kv_write_args &a, bool vectors, vb_stream *stream) {
    const bool neox = a.mode == VB_ROPE_NEOX;
    const int64_t items = a.batch * a.seq * (a.heads + 2 * a.kv_heads) * (vectors ? a.half / 4 : a.half);
    const auto kernel = vectors ? (neox ? rope_kv_write_kernel<T, 4, true> : rope_kv_write_kernel<T, 4, false>)
                                : (neox ? rope_kv_write_kernel<T, 1, true> : rope_kv_write_kernel<T, 1, false>);
    return launch_overlapped(stream, (unsigned)ceil_div<int64_t>(items, placing_threads), placing_threads, 0, kernel, a,
                             (unsigned)items);
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" vb_status vb_cuda_rope_kv_write(const vb_rope_kv_write_args *args, vb_stream *stream) {
    const vb_rope_kv_write_args &a = *args;
    const rows_kernel kernel = choose_rope_kv_write(&a);
    if (kernel == ROWS_NONE) return VB_UNSUPPORTED;
    chosen(stream, rows_kernel_info(kernel), "rope_kv_write", a.kv_type, "batch seq heads kv_heads dim", a.batch, a.seq,
           a.heads, a.kv_heads, a.dim);
    return with_float_type(a.kv_type, [&](auto zero) {
        return launch_as<decltype(zero)>(a, kernel == ROWS_ROPE_KV_WRITE_VECTORS, stream);
    });
}
