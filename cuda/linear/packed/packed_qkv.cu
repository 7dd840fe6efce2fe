// packed_qkv.cu: what attention reads of 2 to 32 tokens (16 on Hopper), q = rope(Wq h + bq) and, in the cache, k = rope(Wk h + bk) and
// v = Wv h + bv with h = rms_norm(x), packed weights: norm_qkv of a step of sequences as one kernel (few_product.cuh), of 5 and more
// after that of the activations (packed_product.cuh).
//
// Items are those of qkv_vector.cu: two rows of tiles of a head that rotate with each other (NEOX, rows i and i + half), or
// neighbours (interleaved pairs, and values, which are not rotated). The first blocks take q and k, the others v, whose weights
// may be of another type.

#include "linear/linear.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear/packed/few_product.cuh"

namespace vb {
namespace {

struct PackedQKVOut {
    vb_norm_qkv_args a;
    int64_t row_bytes;          // of a row of tiles
    int n, head_items, q_items; // rows of x; items of a head; of all heads of q, which come first
    int inverse;                // 2^16 / head_items, rounded up
    bool values;                // v instead of q and k
    bool raw;                   // products only, to q, k_new and v_new
    struct Ahead {
        int position, sequence;
        float bias[2], cosine[2], sine[2]; // of each part
    };
    struct Place {
        int head, first, step; // an item's head, of q or k or v; where its part 0 lies there, and how much further part 1
    };

    VB_DEVICE bool is_q(int item) const { return !values && item < q_items; }
    VB_DEVICE Place place_of(int item) const {
        if (!values && !is_q(item)) item -= q_items;
        const int head = item * inverse >> 16, nth = item - head * head_items;
        const bool apart = !values && !raw && a.mode == VB_ROPE_NEOX;
        return {head, (apart ? 1 : 2) * packed_rows * nth, (apart ? head_items : 1) * packed_rows};
    }
    VB_DEVICE const uint8_t *tiles(int item, int part) const {
        const void *w = values ? a.wv.data : is_q(item) ? a.wq.data : a.wk.data;
        const Place place = place_of(item);
        return static_cast<const uint8_t *>(w) + (place.head * (int)a.dim + place.first + part * place.step) / packed_rows * row_bytes;
    }
    VB_DEVICE void fetch(Ahead *ahead, int item, int token, int row) const {
        const float *bias = values ? a.bv : is_q(item) ? a.bq : a.bk;
        const Place place = place_of(item);
        const int b = a.seq == 1 ? token : token / (int)a.seq;
        ahead->position = a.positions[token];
        ahead->sequence = a.sequences ? a.sequences[b] : b;
#pragma unroll
        for (int p = 0; p < 2; p++) ahead->bias[p] = bias ? bias[place.head * (int)a.dim + place.first + p * place.step + row] : 0.0f;
    }
    VB_DEVICE void fetch_more(Ahead *ahead, int item, int, int row) const {
        if (values || raw) return;
        const int position = ahead->position, first = place_of(item).first + row;
        const bool known = position >= 0 && position < a.table_rows;
#pragma unroll
        for (int p = 0; p < 2; p++) {
            const int64_t at = (int64_t)position * a.half + (a.mode == VB_ROPE_NEOX ? first : (first + p * packed_rows) / 2);
            ahead->cosine[p] = known ? a.cos[at] : __uint_as_float(0x7fffffffu); // NaN
            ahead->sine[p] = known ? a.sin[at] : __uint_as_float(0x7fffffffu);
        }
    }
    VB_DEVICE void store(const Ahead &ahead, int item, int token, int row, const float (&sums)[2]) const {
        float x[2] = {sums[0] + ahead.bias[0], sums[1] + ahead.bias[1]};
        if (!values && !raw) {
            const bool interleaved = a.mode == VB_ROPE_INTERLEAVED;
            const float y[2] = {__shfl_xor_sync(all_lanes, x[0], 1), __shfl_xor_sync(all_lanes, x[1], 1)};
            const float other[2] = {interleaved ? y[0] : x[1], interleaved ? y[1] : x[0]};
#pragma unroll
            for (int p = 0; p < 2; p++) {
                const bool second = interleaved ? row & 1 : p; // of its pair
                x[p] = second ? other[p] * ahead.sine[p] + x[p] * ahead.cosine[p] : x[p] * ahead.cosine[p] - other[p] * ahead.sine[p];
            }
        }
        if (token >= n) return;
        const Place place = place_of(item);
        const int dim = (int)a.dim, at = place.first + row;
        if (is_q(item) || raw || a.kv_type == VB_Q8_0) { // kv_write makes blocks of Q8_0
            float *to = is_q(item) ? a.q + token * a.wq.rows : (values ? a.v_new : a.k_new) + token * a.wk.rows;
#pragma unroll
            for (int p = 0; p < 2; p++) to[place.head * dim + at + p * place.step] = x[p];
            return;
        }
        if (ahead.position < 0 || ahead.position >= a.capacity) return;
        const int64_t to = ((ahead.sequence * a.kv_heads + place.head) * a.capacity + ahead.position) * dim + at;
        void *cache = values ? a.v : a.k;
#pragma unroll
        for (int p = 0; p < 2; p++) {
            if (a.kv_type == VB_F16) static_cast<half *>(cache)[to + p * place.step] = from_float<half>(x[p]);
            else static_cast<float *>(cache)[to + p * place.step] = x[p];
        }
    }
};

template <class A, class B>
struct SameType {
    static constexpr bool value = false;
};
template <class A>
struct SameType<A, A> {
    static constexpr bool value = true;
};

// Blocks 0 .. first_blocks - 1 compute q and k from weights of type A, the others v from weights of type B.
template <class A, class B, int TOKENS>
__global__ void __launch_bounds__(32 * PackedMemory<A, TOKENS, 2>::most_warps, 1)
    packed_qkv_kernel(PackedInput in, PackedQKVOut out, int first_blocks, int v_items, int v_stages, int64_t v_row_bytes) {
    out.values = (int)blockIdx.x >= first_blocks;
    if (out.values) in.items = v_items, in.stages = v_stages, out.row_bytes = v_row_bytes;
    const int index = blockIdx.x - (out.values ? first_blocks : 0), count = out.values ? gridDim.x - first_blocks : first_blocks;
    if (SameType<A, B>::value || !out.values) packed_product<A, TOKENS, 2>(in, out, index, count);
    else packed_product<B, TOKENS, 2>(in, out, index, count);
}

template <class A, class B>
__global__ void __launch_bounds__(32 * few_warps, 2)
    few_qkv_kernel(FewInput in, FewInput v, PackedQKVOut out, int first_blocks, int64_t v_row_bytes) {
    out.values = (int)blockIdx.x >= first_blocks;
    if (out.values) in = v, out.row_bytes = v_row_bytes;
    const int index = blockIdx.x - (out.values ? first_blocks : 0), count = out.values ? gridDim.x - first_blocks : first_blocks;
    if (SameType<A, B>::value || !out.values) few_product<A, 2, 1>(in, out, index, count);
    else few_product<B, 2, 1>(in, out, index, count);
}

template <class A, class B>
vb_status few_qkv(const PackedQKVOut &out, int tiles, int q_items, int kv_items, int64_t v_row_bytes, vb_stream *stream) {
    FewInput qk = {out.a.x, out.a.norm, true, out.a.eps, out.n, tiles, q_items + kv_items, 0, 0, 0}, v = qk;
    v.items = kv_items;
    FewPlan plan, of_v;
    VB_TRY((plan_few_product<A, 2, 1>(&plan, &qk, stream)));
    VB_TRY((plan_few_product<B, 2, 1>(&of_v, &v, stream)));
    return launch_overlapped(stream, plan.blocks + of_v.blocks, 32 * plan.warps, larger(plan.shared_bytes, of_v.shared_bytes),
                             few_qkv_kernel<A, B>, qk, v, out, plan.blocks, v_row_bytes);
}

// q and k from weights of type A and v from such of type B.
template <class A, class B>
vb_status packed_qkv(const vb_norm_qkv_args &a, bool raw, vb_stream *stream) {
    using P = Packed<A>;
    static_assert(P::depth == Packed<B>::depth, "one tiling of x");
    const int n = (int)(a.batch * a.seq), tiles = (int)(a.wq.cols / P::depth), head_items = (int)(a.dim / (2 * packed_rows));
    const int q_items = head_items * (int)a.heads, kv_items = head_items * (int)a.kv_heads;
    const PackedQKVOut out = {a, (int64_t)tiles * P::tile_bytes, n, head_items, q_items, (65535 + head_items) / head_items, false, raw};
    if ((int64_t)q_items * head_items > 32767) return VB_UNSUPPORTED; // of items times the inverse
    const int64_t v_row_bytes = (int64_t)tiles * Packed<B>::tile_bytes;
    const vb_status status = few_qkv<A, B>(out, tiles, q_items, kv_items, v_row_bytes, stream);
    if (status != VB_UNSUPPORTED) return status;
    return with_tokens(n, a.wq.rows, stream, [&](auto tokens) {
        constexpr int most = decltype(tokens)::value;
        PackedPlan qk, v;
        VB_TRY((plan_packed_product<A, most, 2>(&qk, tiles, q_items + kv_items, stream)));
        VB_TRY((plan_packed_product<B, most, 2>(&v, tiles, kv_items, stream)));
        // All blocks have the same warps: as many as the plan of fewer, whose ring and sums then fit in both.
        const int warps = smaller(qk.warps, v.warps);
        uint8_t *x;
        VB_TRY(packed_activations(&x, a.x, a.norm, true, n, a.wq.cols, P::depth, most, stream));
        const PackedInput in = {x, n, tiles, q_items + kv_items, qk.stages, true, a.eps};
        const int64_t shared = larger(PackedMemory<A, most, 2>::bytes(warps, qk.stages), PackedMemory<B, most, 2>::bytes(warps, v.stages));
        return launch_overlapped(stream, qk.blocks + v.blocks, 32 * warps, shared, packed_qkv_kernel<A, B, most>, in, out, qk.blocks,
                                 kv_items, v.stages, v_row_bytes);
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
//   grid     256 threads a block, a part of a token's heads each; positions and tables are read before the products have ended
//   moves    q twice; k and v once in, once out
template <class T, int PAIRS, bool NEOX>
__global__ void __launch_bounds__(256) place_kernel(vb_norm_qkv_args a, unsigned items) {
    const int half = (int)a.half, dim = (int)a.dim, heads = (int)a.heads, kv_heads = (int)a.kv_heads, groups = half / PAIRS;
    const unsigned index = blockIdx.x * 256 + threadIdx.x, token = index / (unsigned)((heads + 2 * kv_heads) * groups);
    const int i = (int)(index - token * ((heads + 2 * kv_heads) * groups)), head = i / groups, at = (i - head * groups) * PAIRS; // of all heads; the first pair
    const bool exists = index < items, query = head < heads, value = head >= heads + kv_heads;
    int64_t sequence = 0, position = -1;
    using F = Vec<float, PAIRS>;
    F cosine, sine;
#pragma unroll
    for (int e = 0; e < PAIRS; e++) cosine.at[e] = sine.at[e] = __uint_as_float(0x7fffffffu); // NaN
    if (exists) {
        const unsigned b = token / (unsigned)a.seq;
        sequence = a.sequences ? a.sequences[b] : b, position = a.positions[token];
        if (!value && position >= 0 && position < a.table_rows) {
            cosine = *reinterpret_cast<const F *>(a.cos + position * half + at);
            sine = *reinterpret_cast<const F *>(a.sin + position * half + at);
        }
    }
    wait_for_previous_kernel();
    release_next_kernel();
    if (!exists) return;
    const int kv_head = value ? head - heads - kv_heads : head - heads;
    float *const from = query ? a.q + ((int64_t)token * heads + head) * dim
                              : (value ? a.v_new : a.k_new) + ((int64_t)token * kv_heads + kv_head) * dim;
    const int first = NEOX ? at : 2 * at, second = NEOX ? half + at : 2 * at + PAIRS; // two vectors of a head
    F x = *reinterpret_cast<const F *>(from + first), y = *reinterpret_cast<const F *>(from + second);
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
    } else if (position >= 0 && position < a.capacity) {
        T *const to = (T *)(value ? a.v : a.k) + ((sequence * kv_heads + kv_head) * a.capacity + position) * dim;
        using V = Vec<T, PAIRS>;
        V u, v;
#pragma unroll
        for (int e = 0; e < PAIRS; e++) u.at[e] = from_float<T>(x.at[e]), v.at[e] = from_float<T>(y.at[e]);
        *reinterpret_cast<V *>(to + first) = u, *reinterpret_cast<V *>(to + second) = v;
    }
}

template <class T>
vb_status place(const vb_norm_qkv_args &a, vb_stream *stream) {
    const bool vectors = a.half % 4 == 0 && aligned16((const char *)a.k, (const char *)a.v) && aligned16(a.q, a.k_new, a.v_new, a.cos, a.sin);
    const bool neox = a.mode == VB_ROPE_NEOX;
    const int64_t items = a.batch * a.seq * (a.heads + 2 * a.kv_heads) * (vectors ? a.half / 4 : a.half);
    if (items > INT32_MAX) return VB_UNSUPPORTED;
    const auto kernel = vectors ? (neox ? place_kernel<T, 4, true> : place_kernel<T, 4, false>)
                                : (neox ? place_kernel<T, 1, true> : place_kernel<T, 1, false>);
    return launch_overlapped(stream, (unsigned)ceil_div<int64_t>(items, 256), 256, 0, kernel, a, (unsigned)items);
}

// What was left in k_new and v_new, to the cache.
vb_status store_keys_and_values(const vb_norm_qkv_args &a, vb_stream *stream) {
    const vb_kv_write_args write = {a.k, a.v, a.k_new, a.v_new, a.positions, a.sequences, a.batch, a.seq, a.kv_heads, a.dim, a.capacity, a.kv_type};
    return vb_cuda_kv_write(&write, stream);
}

// The one kernel.
vb_status step_qkv(const vb_norm_qkv_args &a, bool raw, vb_stream *stream) {
    const vb_dtype type = a.wq.type, values = a.wv.type;
    if (a.dim % (2 * packed_rows) != 0) return VB_UNSUPPORTED;
    if (type == VB_Q4_K && values == VB_Q6_K) return packed_qkv<vb_block_q4_k, vb_block_q6_k>(a, raw, stream);
    if (type == VB_Q5_K && values == VB_Q6_K) return packed_qkv<vb_block_q5_k, vb_block_q6_k>(a, raw, stream);
    if (type == VB_Q5_0 && values == VB_Q8_0) return packed_qkv<vb_block_q5_0, vb_block_q8_0>(a, raw, stream);
    if (type != values) return VB_UNSUPPORTED;
    switch (type) {
#define X(type, Block) case type: return packed_qkv<Block, Block>(a, raw, stream);
        VB_PACKED_TYPES(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
}

} // namespace

vb_status packed_norm_qkv(const vb_norm_qkv_args &a, vb_stream *stream) {
    if (a.wq.layout != VB_PACKED || a.wk.layout != VB_PACKED || a.wv.layout != VB_PACKED || a.wk.type != a.wq.type || !aligned16(a.x, a.norm) ||
        a.wq.rows + a.wk.rows > INT32_MAX || a.wq.cols > INT32_MAX)
        return VB_UNSUPPORTED;
    // Norms of heads need whole heads, which are spread over items; so do tables that rotate a part of a head only.
    const bool raw = a.q_norm || 2 * a.half != a.dim;
    const vb_status status = step_qkv(a, raw, stream);
    if (status == VB_OK && !raw) return a.kv_type == VB_Q8_0 ? store_keys_and_values(a, stream) : VB_OK; // blocks have elements of two items
    bool placed = false;
    if (status == VB_UNSUPPORTED) VB_TRY(prefill_norm_qkv(a, &placed, stream));
    else VB_TRY(status);
    if (placed) return VB_OK;
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
