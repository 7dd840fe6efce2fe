// packed_qkv.cu: what attention reads of 2 to 32 tokens, q = rope(Wq h + bq) and, in the cache, k = rope(Wk h + bk) and
// v = Wv h + bv with h = rms_norm(x), packed weights: norm_qkv of a step of sequences as one kernel after that of the
// activations (packed_product.cuh).
//
// Items are those of qkv_vector.cu: two rows of tiles of a head that rotate with each other (NEOX, rows i and i + half), or
// neighbours (interleaved pairs, and values, which are not rotated). The first blocks take q and k, the others v, whose weights
// may be of another type.

#include "linear.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "packed_product.cuh"

namespace vb {
namespace {

struct PackedQKVOut {
    vb_norm_qkv_args a;
    int64_t row_bytes;          // of a row of tiles
    int n, head_items, q_items; // rows of x; items of a head; of all heads of q, which come first
    bool values;                // v instead of q and k
    struct Ahead {
        int position, sequence;
    };

    VB_DEVICE bool is_q(int item) const { return !values && item < q_items; }
    // The row of the matrix that row `row` of a part of an item is.
    VB_DEVICE int row_of(int item, int part, int row) const {
        if (!values && !is_q(item)) item -= q_items;
        if (values || a.mode == VB_ROPE_INTERLEAVED) return (2 * item + part) * packed_rows + row;
        const int head = item / head_items;
        return (head * 2 * head_items + part * head_items + (item - head * head_items)) * packed_rows + row;
    }
    VB_DEVICE const uint8_t *tiles(int item, int part) const {
        const void *w = values ? a.wv.data : is_q(item) ? a.wq.data : a.wk.data;
        return static_cast<const uint8_t *>(w) + row_of(item, part, 0) / packed_rows * row_bytes;
    }
    VB_DEVICE void fetch(Ahead *ahead, int, int token, int) const {
        const int b = token / (int)a.seq;
        ahead->position = a.positions[token];
        ahead->sequence = a.sequences ? a.sequences[b] : b;
    }
    // Rotates the pair (u, v) of a row by the row's place in its head.
    VB_DEVICE void rotate(float *u, float *v, int position, int place) const {
        const int half = (int)a.half;
        const bool known = position >= 0 && position < a.table_rows;
        const int64_t at = (int64_t)position * half + (a.mode == VB_ROPE_INTERLEAVED ? place / 2 : place < half ? place : place - half);
        const float cosine = known ? a.cos[at] : __uint_as_float(0x7fffffffu), sine = known ? a.sin[at] : __uint_as_float(0x7fffffffu);
        const float x = *u;
        *u = x * cosine - *v * sine, *v = x * sine + *v * cosine;
    }
    VB_DEVICE void store(const Ahead &ahead, int item, int token, int row, const float (&sums)[2]) const {
        const float *bias = values ? a.bv : is_q(item) ? a.bq : a.bk;
        const int dim = (int)a.dim, rows[2] = {row_of(item, 0, row), row_of(item, 1, row)};
        float x[2] = {sums[0] + (bias ? bias[rows[0]] : 0.0f), sums[1] + (bias ? bias[rows[1]] : 0.0f)};
        if (!values && a.mode == VB_ROPE_INTERLEAVED) {
#pragma unroll
            for (int p = 0; p < 2; p++) {
                float other = __shfl_xor_sync(all_lanes, x[p], 1);
                if (token >= n) continue;
                if (row & 1) rotate(&other, &x[p], ahead.position, rows[p] % dim);
                else rotate(&x[p], &other, ahead.position, rows[p] % dim);
            }
        } else if (!values && token < n) {
            rotate(&x[0], &x[1], ahead.position, rows[0] % dim);
        }
        if (token >= n) return;
#pragma unroll
        for (int p = 0; p < 2; p++) {
            if (is_q(item)) a.q[token * a.wq.rows + rows[p]] = x[p];
            else if (a.kv_type == VB_Q8_0) (values ? a.v_new : a.k_new)[token * a.wk.rows + rows[p]] = x[p]; // kv_write makes blocks of it
            else if (ahead.position >= 0 && ahead.position < a.capacity) {
                const int head = rows[p] / dim;
                const int64_t at = ((ahead.sequence * a.kv_heads + head) * a.capacity + ahead.position) * dim + rows[p] - head * dim;
                void *cache = values ? a.v : a.k;
                if (a.kv_type == VB_F16) static_cast<half *>(cache)[at] = from_float<half>(x[p]);
                else static_cast<float *>(cache)[at] = x[p];
            }
        }
    }
};

// Blocks 0 .. first_blocks - 1 compute `first` from weights of type A, the others `second` from weights of type B.
template <class A, class B, int TOKENS>
__global__ void __launch_bounds__(32 * PackedMemory<A, TOKENS, 2>::most_warps, 1)
    packed_qkv_kernel(PackedInput in, PackedQKVOut first, PackedQKVOut second, int first_blocks, int second_items, int second_stages) {
    if ((int)blockIdx.x < first_blocks) {
        packed_product<A, TOKENS, 2>(in, first, blockIdx.x, first_blocks);
    } else {
        in.items = second_items, in.stages = second_stages;
        packed_product<B, TOKENS, 2>(in, second, blockIdx.x - first_blocks, gridDim.x - first_blocks);
    }
}

// q and k from weights of type A and v from such of type B.
template <class A, class B>
vb_status packed_qkv(const vb_norm_qkv_args &a, vb_stream *stream) {
    using P = Packed<A>;
    static_assert(P::depth == Packed<B>::depth, "one tiling of x");
    return with_tokens(a.batch * a.seq, a.wq.rows, [&](auto tokens) {
        constexpr int most = decltype(tokens)::value;
        const int n = (int)(a.batch * a.seq), tiles = (int)(a.wq.cols / P::depth), head_items = (int)(a.dim / (2 * packed_rows));
        const int q_items = head_items * (int)a.heads, kv_items = head_items * (int)a.kv_heads;
        PackedQKVOut first = {a, (int64_t)tiles * P::tile_bytes, n, head_items, q_items, false};
        PackedQKVOut second = first;
        second.row_bytes = (int64_t)tiles * Packed<B>::tile_bytes, second.values = true;
        PackedPlan qk, v;
        VB_TRY((plan_packed_product<A, most, 2>(&qk, tiles, q_items + kv_items, stream)));
        VB_TRY((plan_packed_product<B, most, 2>(&v, tiles, kv_items, stream)));
        // All blocks have the same warps: as many as the plan of fewer, whose ring and sums then fit in both.
        const int warps = smaller(qk.warps, v.warps);
        uint8_t *x;
        VB_TRY(packed_activations(&x, a.x, a.norm, true, n, a.wq.cols, P::depth, most, stream));
        const PackedInput in = {x, n, tiles, q_items + kv_items, qk.stages, true, a.eps};
        const int64_t shared = larger(PackedMemory<A, most, 2>::bytes(warps, qk.stages), PackedMemory<B, most, 2>::bytes(warps, v.stages));
        return launch_overlapped(stream, qk.blocks + v.blocks, 32 * warps, shared, packed_qkv_kernel<A, B, most>, in, first, second,
                                 qk.blocks, kv_items, v.stages);
    });
}

// Rotates x[n][heads][dim].
vb_status rotate(float *x, int64_t heads, const vb_norm_qkv_args &a, vb_stream *stream) {
    const vb_rope_args rope = {x, x, a.cos, a.sin, a.positions, 1, a.batch * a.seq, heads, 1, a.dim, a.half, a.table_rows, VB_F32, a.mode};
    return vb_cuda_rope(&rope, stream);
}

// What is left to do after the products of a prompt in one kernel: q is rotated in place, keys are rotated on their way to the cache,
// values go there. Tables rotate whole heads. A thread moves PAIRS pairs of a head, (i, i + half), or of neighbours (interleaved).
//
//   grid     a token a block of 256 threads
//   moves    q twice; k and v once in, once out
template <class T, int PAIRS, bool NEOX>
__global__ void __launch_bounds__(256) place_kernel(vb_norm_qkv_args a) {
    wait_for_previous_kernel();
    release_next_kernel();
    const int token = blockIdx.x, half = (int)a.half, dim = (int)a.dim, heads = (int)a.heads, kv_heads = (int)a.kv_heads;
    const int64_t b = token / a.seq, sequence = a.sequences ? a.sequences[b] : b, position = a.positions[token];
    const bool known = position >= 0 && position < a.table_rows, kept = position >= 0 && position < a.capacity;
    const int groups = half / PAIRS;
    using F = Vec<float, PAIRS>;
    for (int i = threadIdx.x; i < (heads + 2 * kv_heads) * groups; i += 256) {
        const int head = i / groups, at = (i - head * groups) * PAIRS; // of all heads; the first pair
        const bool query = head < heads, value = head >= heads + kv_heads;
        const int kv_head = value ? head - heads - kv_heads : head - heads;
        float *const from = query ? a.q + ((int64_t)token * heads + head) * dim
                                  : (value ? a.v_new : a.k_new) + ((int64_t)token * kv_heads + kv_head) * dim;
        const int first = NEOX ? at : 2 * at, second = NEOX ? half + at : 2 * at + PAIRS; // two vectors of a head
        F x = *reinterpret_cast<const F *>(from + first), y = *reinterpret_cast<const F *>(from + second);
        if (!value) {
            F cosine, sine;
#pragma unroll
            for (int e = 0; e < PAIRS; e++) cosine.at[e] = sine.at[e] = __uint_as_float(0x7fffffffu); // NaN
            if (known) {
                cosine = *reinterpret_cast<const F *>(a.cos + position * half + at);
                sine = *reinterpret_cast<const F *>(a.sin + position * half + at);
            }
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
        } else if (kept) {
            T *const to = (T *)(value ? a.v : a.k) + ((sequence * kv_heads + kv_head) * a.capacity + position) * dim;
            using V = Vec<T, PAIRS>;
            V u, v;
#pragma unroll
            for (int e = 0; e < PAIRS; e++) u.at[e] = from_float<T>(x.at[e]), v.at[e] = from_float<T>(y.at[e]);
            *reinterpret_cast<V *>(to + first) = u, *reinterpret_cast<V *>(to + second) = v;
        }
    }
}

template <class T>
vb_status place(const vb_norm_qkv_args &a, vb_stream *stream) {
    const unsigned n = (unsigned)(a.batch * a.seq);
    const bool vectors = a.half % 4 == 0 && aligned16((const char *)a.k, (const char *)a.v) && aligned16(a.q, a.k_new, a.v_new, a.cos, a.sin);
    const bool neox = a.mode == VB_ROPE_NEOX;
    if (vectors) return launch_overlapped(stream, n, 256, 0, neox ? place_kernel<T, 4, true> : place_kernel<T, 4, false>, a);
    return launch_overlapped(stream, n, 256, 0, neox ? place_kernel<T, 1, true> : place_kernel<T, 1, false>, a);
}

// What was left in k_new and v_new, to the cache.
vb_status store_keys_and_values(const vb_norm_qkv_args &a, vb_stream *stream) {
    const vb_kv_write_args write = {a.k, a.v, a.k_new, a.v_new, a.positions, a.sequences, a.batch, a.seq, a.kv_heads, a.dim, a.capacity, a.kv_type};
    return vb_cuda_kv_write(&write, stream);
}

// The one kernel, and what it leaves to do with a cache of Q8_0, whose blocks have elements of two rows of tiles.
vb_status step_qkv(const vb_norm_qkv_args &a, vb_stream *stream) {
    const vb_dtype type = a.wq.type, values = a.wv.type;
    // Norms of heads need whole heads, which are spread over items; so do tables that rotate a part of a head only.
    if (a.q_norm || a.dim % (2 * packed_rows) != 0 || 2 * a.half != a.dim) return VB_UNSUPPORTED;
    vb_status status = VB_UNSUPPORTED;
    if (type == VB_Q4_K && values == VB_Q6_K) status = packed_qkv<vb_block_q4_k, vb_block_q6_k>(a, stream);
    else if (type == VB_Q5_K && values == VB_Q6_K) status = packed_qkv<vb_block_q5_k, vb_block_q6_k>(a, stream);
    else if (type == VB_Q5_0 && values == VB_Q8_0) status = packed_qkv<vb_block_q5_0, vb_block_q8_0>(a, stream);
    else if (type == values)
        switch (type) {
#define X(type, Block) case type: status = packed_qkv<Block, Block>(a, stream); break;
            VB_PACKED_TYPES(X)
#undef X
        default: break;
        }
    return status == VB_OK && a.kv_type == VB_Q8_0 ? store_keys_and_values(a, stream) : status;
}

} // namespace

vb_status packed_norm_qkv(const vb_norm_qkv_args &a, vb_stream *stream) {
    if (a.wq.layout != VB_PACKED || a.wk.layout != VB_PACKED || a.wv.layout != VB_PACKED || a.wk.type != a.wq.type || !aligned16(a.x, a.norm) ||
        a.wq.rows + a.wk.rows > INT32_MAX || a.wq.cols > INT32_MAX)
        return VB_UNSUPPORTED;
    const vb_status status = step_qkv(a, stream);
    if (status != VB_UNSUPPORTED) return status;
    VB_TRY(prefill_norm_qkv(a, stream));
    const int64_t n = a.batch * a.seq;
    if (a.q_norm) VB_TRY(vb_cuda_rms_norm_batched(a.q, a.q, a.q_norm, VB_F32, n * a.heads, a.dim, a.eps, stream));
    if (a.k_norm) VB_TRY(vb_cuda_rms_norm_batched(a.k_new, a.k_new, a.k_norm, VB_F32, n * a.kv_heads, a.dim, a.eps, stream));
    if (2 * a.half == a.dim && a.kv_type == VB_F16) return place<half>(a, stream);
    if (2 * a.half == a.dim && a.kv_type == VB_F32) return place<float>(a, stream);
    VB_TRY(rotate(a.q, a.heads, a, stream));
    VB_TRY(rotate(a.k_new, a.kv_heads, a, stream));
    return store_keys_and_values(a, stream);
}

} // namespace vb
#endif
