// qkv_out.cuh: the `Out` of norm_qkv for 2 to 32 rows of x (n4_qkv.cu, n32_qkv.cu): rope, q, and keys and values to the
// cache. Items are as in n1_qkv.cu: two rows of tiles of a head that rotate with each other (NEOX, rows i and i +
// half), or are neighbours (interleaved pairs, and values, which are not rotated). The first blocks take q and k, the
// others v, whose weights may be of another type.
#ifndef VB_LINEAR_QKV_OUT_CUH
#define VB_LINEAR_QKV_OUT_CUH

#include "linear/linear.cuh"
#include "linear/packed/heads.cuh"
#include "linear/packed/packed.cuh"
#include "linear/packed/rows_update.cuh"

namespace vb {

template <class Update = NoRowsUpdate>
struct QKVRowsOut {
    vb_norm_qkv_args a;
    int64_t row_bytes;          // of a row of tiles
    int n, head_items, q_items; // rows of x; items of a head; of all heads of q, which come first
    int inverse;                // 2^16 / head_items, rounded up
    bool values;                // v instead of q and k
    bool raw;                   // products only, to q, k_new and v_new
    Update update;
    struct Ahead {
        int position, sequence;
        float bias[2], cosine[2], sine[2]; // of each part; with the bias an adapter's change
        typename Update::Ahead update[2];
    };
    struct Place {
        // an item's head, of q or k or v; where its part 0 lies there, and how much further part 1
        int head, first, step;
    };

    VB_DEVICE bool is_q(int item) const { return !values && item < q_items; }
    VB_DEVICE Place place_of(int item) const {
        if (!values && !is_q(item)) item -= q_items;
        const int head = item * inverse >> 16, nth = item - head * head_items;
        const bool apart = !values && !raw && a.mode == VB_ROPE_NEOX;
        return {head, (apart ? 1 : 2) * packed_rows * nth, (apart ? head_items : 1) * packed_rows};
    }
    // Of an adapter: which matrix, and the row of the matrix that a lane has of a part.
    VB_DEVICE int matrix_of(int item) const { return values ? 2 : is_q(item) ? 0 : 1; }
    VB_DEVICE int row_of(const Place &place, int part, int row) const {
        return place.head * (int)a.dim + place.first + part * place.step + row;
    }
    VB_DEVICE const uint8_t *tiles(int item, int part) const {
        const void *w = values ? a.wv.data : is_q(item) ? a.wq.data : a.wk.data;
        const Place place = place_of(item);
        return static_cast<const uint8_t *>(w) +
               (place.head * (int)a.dim + place.first + part * place.step) / packed_rows * row_bytes;
    }
    VB_DEVICE void fetch(Ahead *ahead, int item, int token, int row) const {
        const float *bias = values ? a.bv : is_q(item) ? a.bq : a.bk;
        const Place place = place_of(item);
        const int b = a.seq == 1 ? token : token / (int)a.seq;
        ahead->position = a.positions[token];
        ahead->sequence = a.sequences ? a.sequences[b] : b;
#pragma unroll
        for (int p = 0; p < 2; p++)
            ahead->bias[p] = bias ? bias[place.head * (int)a.dim + place.first + p * place.step + row] : 0.0f;
        if constexpr (Update::late)
#pragma unroll
            for (int p = 0; p < 2; p++) update.fetch(&ahead->update[p], matrix_of(item), row_of(place, p, row));
    }
    VB_DEVICE void fetch_more(Ahead *ahead, int item, int token, int row) const {
        if constexpr (Update::active && !Update::late) {
            const Place place = place_of(item);
#pragma unroll
            for (int p = 0; p < 2; p++)
                ahead->bias[p] += update.of({}, matrix_of(item), token, row_of(place, p, row));
        }
        if (values || raw) return;
        const int position = ahead->position, first = place_of(item).first + row;
        const bool known = position >= 0 && position < a.table_rows;
#pragma unroll
        for (int p = 0; p < 2; p++) {
            const int64_t at =
                (int64_t)position * a.half + (a.mode == VB_ROPE_NEOX ? first : (first + p * packed_rows) / 2);
            ahead->cosine[p] = known ? a.cos[at] : __uint_as_float(0x7fffffffu); // NaN
            ahead->sine[p] = known ? a.sin[at] : __uint_as_float(0x7fffffffu);
        }
    }
    VB_DEVICE void store(const Ahead &ahead, int item, int token, int row, const float (&sums)[2]) const {
        float x[2] = {sums[0] + ahead.bias[0], sums[1] + ahead.bias[1]};
        if constexpr (Update::late)
            if (token < n)
#pragma unroll
                for (int p = 0; p < 2; p++)
                    x[p] += update.of(ahead.update[p], matrix_of(item), token, row_of(place_of(item), p, row));
        if (!values && !raw) {
            const bool interleaved = a.mode == VB_ROPE_INTERLEAVED;
            const float y[2] = {__shfl_xor_sync(all_lanes, x[0], 1), __shfl_xor_sync(all_lanes, x[1], 1)};
            const float other[2] = {interleaved ? y[0] : x[1], interleaved ? y[1] : x[0]};
#pragma unroll
            for (int p = 0; p < 2; p++) {
                const bool second = interleaved ? row & 1 : p; // of its pair
                x[p] = second ? other[p] * ahead.sine[p] + x[p] * ahead.cosine[p]
                              : x[p] * ahead.cosine[p] - other[p] * ahead.sine[p];
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
        const int slot = cache_slot(a.capacity, a.ring, ahead.position);
        if (slot < 0) return;
        const int64_t to = ((ahead.sequence * a.kv_heads + place.head) * a.capacity + slot) * dim + at;
        void *cache = values ? a.v : a.k;
#pragma unroll
        for (int p = 0; p < 2; p++) {
            if (a.kv_type == VB_F16) static_cast<half *>(cache)[to + p * place.step] = from_float<half>(x[p]);
            else static_cast<float *>(cache)[to + p * place.step] = x[p];
        }
    }
};

template <class Block, class Update = NoRowsUpdate>
QKVRowsOut<Update> qkv_out(const vb_norm_qkv_args &a, const linear_qkv_choice &c, const Update &update = {}) {
    using P = Packed<Block>;
    const int head_items = (int)(a.dim / (2 * packed_rows)), q_items = head_items * (int)a.heads;
    return {a, P::tiles_of(a.wq.cols) * P::tile_bytes, (int)(a.batch * a.seq), head_items, q_items,
            (65535 + head_items) / head_items, false, c.raw, update};
}

template <class A, class B>
struct SameType {
    static constexpr bool value = false;
};
template <class A>
struct SameType<A, A> {
    static constexpr bool value = true;
};

// Calls f(A(), B()) with the types of the blocks of q and k, and of v: a mixture of linear_qkv_mixture.
template <class F>
vb_status with_mixture(const vb_norm_qkv_args &a, F f) {
    const vb_dtype type = a.wq.type, values = a.wv.type;
    if (type == VB_Q4_K && values == VB_Q6_K) return f(vb_block_q4_k(), vb_block_q6_k());
    if (type == VB_Q5_K && values == VB_Q6_K) return f(vb_block_q5_k(), vb_block_q6_k());
    if (type == VB_Q5_0 && values == VB_Q8_0) return f(vb_block_q5_0(), vb_block_q8_0());
    switch (type) {
#define X(type, Block, ...) case type: return f(Block(), Block());
        VB_PACKED_TYPES(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
}

} // namespace vb
#endif
