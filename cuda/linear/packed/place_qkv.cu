// place_qkv.cu: the rest of norm_qkv after products that leave q, k_new and v_new: norms of heads, rope, and the cache.

#include "linear/linear.cuh"
#include "linear/packed/heads.cuh"
#ifdef VB_HAS_PACKED_LAYOUT

namespace vb {
namespace {

// Rotates x[n][heads][dim].
vb_status rotate(float *x, int64_t heads, const vb_norm_qkv_args &a, vb_stream *stream) {
    const vb_rope_args rope = {sizeof(vb_rope_args), x, x, a.cos, a.sin, a.positions, 1, a.batch * a.seq, heads, 1,
                               a.dim, a.half, a.table_rows, VB_F32, a.mode};
    return vb_cuda_rope(&rope, stream);
}

// The rest after the products in one kernel: q is rotated in place, keys are rotated on their way to the cache, values
// go there.
// Tables rotate whole heads. A thread moves PAIRS pairs of a head, (i, i + half), or of neighbours (interleaved).
// With a.q_norm heads of q and k are normed first: their threads are lanes of one warp then.
//
//   grid     256 threads a block, a part of a token's heads each; positions and tables are read before the products
//            have ended
//   moves    q twice; k and v once in, once out
template <class T, int PAIRS, bool NEOX>
__global__ void __launch_bounds__(256) place_kernel(vb_norm_qkv_args a, unsigned items) {
    const int half = (int)a.half, dim = (int)a.dim, heads = (int)a.heads, kv_heads = (int)a.kv_heads,
              groups = half / PAIRS;
    const unsigned index = blockIdx.x * 256 + threadIdx.x, token = index / (unsigned)((heads + 2 * kv_heads) * groups);
    // of all heads; the first pair
    const int i = (int)(index - token * ((heads + 2 * kv_heads) * groups)), head = i / groups,
              at = (i - head * groups) * PAIRS;
    const bool exists = index < items, query = head < heads, value = head >= heads + kv_heads;
    int64_t sequence = 0;
    int position = -1;
    using F = Vec<float, PAIRS>;
    F cosine, sine;
#pragma unroll
    for (int e = 0; e < PAIRS; e++) cosine.at[e] = sine.at[e] = __uint_as_float(0x7fffffffu); // NaN
    if (exists) {
        const unsigned b = token / (unsigned)a.seq;
        sequence = a.sequences ? a.sequences[b] : b, position = a.positions[token];
        if (!value && position >= 0 && position < a.table_rows) {
            cosine = *reinterpret_cast<const F *>(a.cos + (int64_t)position * half + at);
            sine = *reinterpret_cast<const F *>(a.sin + (int64_t)position * half + at);
        }
    }
    wait_for_previous_kernel();
    release_next_kernel();
    if (!exists) return;
    const int kv_head = value ? head - heads - kv_heads : head - heads, slot = cache_slot(a.capacity, a.ring, position);
    float *const from = query ? a.q + ((int64_t)token * heads + head) * dim
                              : (value ? a.v_new : a.k_new) + ((int64_t)token * kv_heads + kv_head) * dim;
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
        *reinterpret_cast<F *>(from + first) = x, *reinterpret_cast<F *>(from + second) = y;
    } else if (slot >= 0) {
        T *const to = (T *)(value ? a.v : a.k) + ((sequence * kv_heads + kv_head) * a.capacity + slot) * dim;
        using V = Vec<T, PAIRS>;
        V u, v;
#pragma unroll
        for (int e = 0; e < PAIRS; e++) u.at[e] = from_float<T>(x.at[e]), v.at[e] = from_float<T>(y.at[e]);
        *reinterpret_cast<V *>(to + first) = u, *reinterpret_cast<V *>(to + second) = v;
    }
}

bool places_vectors(const vb_norm_qkv_args &a) {
    return a.half % 4 == 0 && aligned16((const char *)a.k, (const char *)a.v) &&
           aligned16(a.q, a.k_new, a.v_new, a.cos, a.sin);
}
// Whether the threads of a head are lanes of one warp.
bool places_norms(const vb_norm_qkv_args &a) {
    const int64_t threads = a.half / 4;
    return places_vectors(a) && threads <= 32 && (threads & (threads - 1)) == 0;
}

template <class T>
vb_status place_as(const vb_norm_qkv_args &a, vb_stream *stream) {
    const bool vectors = places_vectors(a), neox = a.mode == VB_ROPE_NEOX;
    const int64_t items = a.batch * a.seq * (a.heads + 2 * a.kv_heads) * (vectors ? a.half / 4 : a.half);
    const auto kernel = vectors ? (neox ? place_kernel<T, 4, true> : place_kernel<T, 4, false>)
                                : (neox ? place_kernel<T, 1, true> : place_kernel<T, 1, false>);
    return launch_overlapped(stream, (unsigned)ceil_div<int64_t>(items, 256), 256, 0, kernel, a, (unsigned)items);
}

vb_status place(const vb_norm_qkv_args &a, vb_stream *stream) {
    return a.kv_type == VB_F16    ? place_as<half>(a, stream)
           : a.kv_type == VB_BF16 ? place_as<bf16>(a, stream)
                                  : place_as<float>(a, stream);
}

// Moves k_new and v_new to the cache.
vb_status store_keys_and_values(const vb_norm_qkv_args &a, vb_stream *stream) {
    const vb_kv_write_args write = {sizeof(vb_kv_write_args), a.k, a.v, a.k_new, a.v_new, a.positions, a.sequences,
                                    a.batch, a.seq, a.kv_heads, a.dim, a.capacity, a.kv_type, 0, a.ring};
    return vb_cuda_kv_write(&write, stream);
}

} // namespace

vb_status finish_qkv(const vb_norm_qkv_args &a, linear_qkv_rest rest, vb_stream *stream) {
    if (rest == LINEAR_QKV_NOTHING) return VB_OK;
    if (rest == LINEAR_QKV_WRITE) return store_keys_and_values(a, stream);
    if (rest == LINEAR_QKV_PLACE && (!a.q_norm || places_norms(a))) return place(a, stream);
    const int64_t n = a.batch * a.seq;
    if (a.q_norm) VB_TRY(vb_cuda_rms_norm_batched(a.q, a.q, a.q_norm, VB_F32, n * a.heads, a.dim, a.eps, stream));
    if (a.k_norm)
        VB_TRY(vb_cuda_rms_norm_batched(a.k_new, a.k_new, a.k_norm, VB_F32, n * a.kv_heads, a.dim, a.eps, stream));
    if (rest == LINEAR_QKV_PLACE) {
        vb_norm_qkv_args normed = a;
        normed.q_norm = normed.k_norm = nullptr;
        return place(normed, stream);
    }
    VB_TRY(rotate(a.q, a.heads, a, stream));
    VB_TRY(rotate(a.k_new, a.kv_heads, a, stream));
    return store_keys_and_values(a, stream);
}

} // namespace vb
#endif
