// n1_qkv.cu: norm_qkv of a token as one kernel (n1.cuh), packed weights: q = rope(Wq h + bq), and in the cache
// k = rope(Wk h + bk) and v = Wv h + bv, with h = rms_norm(x).
//
// An item is two rows of tiles of a head. They rotate with each other (NEOX, rows i and i + half), or are neighbours
// (interleaved pairs, and values, which are not rotated). The first blocks take q and k, the others v, whose weights
// are often of another type. In half of the layers of a Q4_K_M file v is Q6_K; where the hidden size is no multiple of
// 256, Q5_0 and Q8_0 stand for these types. Other mixtures of types take two kernels.
//
// A cache in Q8_0: a warp has all 32 elements of a block of neighbours, or halves of two blocks of rows that rotate
// with each other. In the latter case the same warp of the cluster's other block has the other halves, and both tell
// each other their greatest sizes. Norms of heads: the blocks of a cluster have a head's items, one each, and tell each
// other their sums of squares.

#include "linear/linear.cuh"
#include "linear/packed/heads.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear/choose_adapted.h"
#include "linear/packed/n1_one_item.cuh"
#include "runtime/quotient.cuh"

namespace vb {
namespace {

// What blocks of a cluster tell each other beside the products, a kernel for each: nothing; the greatest sizes in
// halves of blocks of Q8_0, which takes 8 more registers; or the sums of squares of a head's items.
enum class Told { NOTHING, GREATEST, SQUARES };

// The messages of a warp of the cluster's other block, or of each block of the cluster, once.
struct Letters {
    uint64_t mailboxes[n1_warps];
    union {
        float greatest[n1_warps][2];
        float squares[LINEAR_MOST_HEAD_ITEMS];
    };
};
VB_DEVICE Letters &letters() {
    __shared__ Letters all;
    return all;
}

template <Told TOLD, class Update>
struct QKVOut {
    static constexpr bool norm = true, late = false, joined = false, blocks = TOLD == Told::GREATEST;
    vb_norm_qkv_args a;
    int64_t row_bytes;        // of a row of tiles
    Quotient head_items;      // items of a head
    int q_items;              // of all heads of q, which come first
    bool values, half_cache;  // v instead of q and k; the cache is F16
    bool fresh;               // keys and values go to [kv_heads][dim] of F32 instead of a cache
    bool raw;                 // products only
    Update update;
    struct Ahead {
        float bias, cosine, sine, norm;
        int row, place, pair; // row of the matrix, its place in its head, which pair it belongs to
        char *cache;          // the row's element, of Q8_0 its block, of the first position of the first sequence
        int position, sequence;
    };

    VB_DEVICE int element_bytes() const { return half_cache ? 2 : 4; }
    VB_DEVICE int position_bytes() const { // of a head
        return blocks ? (int)a.dim / VB_QK * (int)sizeof(vb_block_q8_0) : (int)a.dim * element_bytes();
    }
    VB_DEVICE bool is_q(int item) const { return !values && item < q_items; }
    // The row of tiles of a part: of the matrix that the item belongs to.
    VB_DEVICE int tile_row(int item, int part) const {
        if (!values && !is_q(item)) item -= q_items;
        if (values || raw || a.mode == VB_ROPE_INTERLEAVED) return 2 * item + part;
        return item + (head_items.of(item) + part) * head_items.by;
    }
    VB_DEVICE const uint8_t *tiles(int item, int part) const {
        const void *w = values ? a.wv.data : is_q(item) ? a.wq.data : a.wk.data;
        return static_cast<const uint8_t *>(w) + tile_row(item, part) * row_bytes;
    }
    VB_DEVICE int matrix(int item, int) const { return values || is_q(item) ? 0 : 1; }
    VB_DEVICE int row(int item, int lane) const { return tile_row(item, lane / 16) * packed_rows + lane % 16; }
    VB_DEVICE int rows_of(int) const { return INT32_MAX; } // whole heads
    // The greatest size in the 16 lanes' part of a block of Q8_0, told to the other part; NaN where there is a NaN.
    VB_DEVICE uint32_t tell_greatest(float x, int lane) const {
        uint32_t most = __float_as_uint(fabsf(x));
#pragma unroll
        for (int o = 1; o < 16; o *= 2) most = larger(most, __shfl_xor_sync(all_lanes, most, o));
        if (values || a.mode == VB_ROPE_INTERLEAVED) return larger(most, __shfl_xor_sync(all_lanes, most, 16));
        const int warp = threadIdx.x / 32, other = blockIdx.x % 2 ^ 1;
        if (lane % 16 == 0)
            send(cluster_address(&letters().greatest[warp][lane / 16], other),
                 cluster_address(&letters().mailboxes[warp], other), __uint_as_float(most));
        return most;
    }
    // The greatest size in the whole block.
    VB_DEVICE float hear_greatest(uint32_t most, int lane) const {
        if (values || a.mode == VB_ROPE_INTERLEAVED) return __uint_as_float(most);
        const int warp = threadIdx.x / 32;
        mailbox_wait(&letters().mailboxes[warp]);
        return __uint_as_float(larger(most, __float_as_uint(letters().greatest[warp][lane / 16])));
    }
    // Tells each block of the head the sum of squares of this block's part.
    VB_DEVICE void tell_squares(float x, int lane) const {
        const float sum = warp_reduce<Sum>(x * x);
        if (lane < head_items.by)
            send(cluster_address(&letters().squares[blockIdx.x - head_items.of(blockIdx.x) * head_items.by], lane),
                 cluster_address(letters().mailboxes, lane), sum);
    }
    // 1 / sqrt(mean square + eps) of the head.
    VB_DEVICE float hear_squares() const {
        mailbox_wait(letters().mailboxes);
        float sum = 0;
        for (int i = 0; i < head_items.by; i++) sum += letters().squares[i];
        return 1.0f / sqrtf(sum / (float)a.dim + a.eps);
    }
    VB_DEVICE void prepare(Ahead *ahead, int item, int lane) const {
        const float *bias = values ? a.bv : is_q(item) ? a.bq : a.bk;
        const int row = this->row(item, lane), dim = (int)a.dim, half = (int)a.half,
                  head = head_items.of(row / (2 * packed_rows));
        ahead->row = row;
        ahead->place = row - head * dim;
        ahead->cache = static_cast<char *>(values ? a.v : a.k) + head * a.capacity * position_bytes() +
                       (blocks ? ahead->place / VB_QK * (int)sizeof(vb_block_q8_0) : ahead->place * element_bytes());
        ahead->pair = a.mode == VB_ROPE_INTERLEAVED ? ahead->place / 2
                      : ahead->place < half         ? ahead->place
                                                    : ahead->place - half;
        ahead->bias = bias ? bias[row] : 0.0f;
        if constexpr (TOLD == Told::SQUARES)
            ahead->norm = values ? 1.0f : (is_q(item) ? a.q_norm : a.k_norm)[ahead->place];
    }
    VB_DEVICE void fetch(Ahead *ahead, int, int) const {
        ahead->position = a.positions[0];
        ahead->sequence = a.sequences ? a.sequences[0] : 0;
    }
    VB_DEVICE void fetch_more(Ahead *ahead, int, int) const {
        if (values || raw) return;
        const bool known = ahead->position >= 0 && ahead->position < a.table_rows;
        const int64_t at = ahead->position * a.half + ahead->pair;
        ahead->cosine = known ? a.cos[at] : __uint_as_float(0x7fffffffu); // NaN
        ahead->sine = known ? a.sin[at] : __uint_as_float(0x7fffffffu);
    }
    VB_DEVICE void store(const Ahead &ahead, int item, int lane, float sum) const {
        float x = sum + ahead.bias;
        if constexpr (TOLD == Told::SQUARES)
            if (!values) tell_squares(x, lane), x *= ahead.norm;
        if (!values && !raw) {
            const bool interleaved = a.mode == VB_ROPE_INTERLEAVED;
            const float other = __shfl_xor_sync(all_lanes, x, interleaved ? 1 : 16);
            const bool second = interleaved ? lane & 1 : lane >= 16;
            x = second ? other * ahead.sine + x * ahead.cosine : x * ahead.cosine - other * ahead.sine;
        }
        if constexpr (TOLD == Told::SQUARES)
            if (!values) x *= hear_squares();
        if (is_q(item)) {
            a.q[ahead.row] = x;
            return;
        }
        if (fresh) {
            (values ? a.v_new : a.k_new)[ahead.row] = x;
            return;
        }
        const uint32_t most = blocks ? tell_greatest(x, lane) : 0;
        const int slot = cache_slot(a.capacity, a.ring, ahead.position);
        char *const to = ahead.cache + (ahead.sequence * a.kv_heads * a.capacity + slot) * position_bytes();
        if constexpr (blocks) { // as kv_write does
            vb_block_q8_0 *const block = reinterpret_cast<vb_block_q8_0 *>(to);
            const float greatest = hear_greatest(most, lane);
            if (slot < 0) return;
            // greatest / 127 and 1 / d, rounded as these are; a d that is no normal float is 0 in a half
            const float nearly = greatest * (1.0f / 127.0f);
            const float d = fmaf(fmaf(-127.0f, nearly, greatest), 1.0f / 127.0f, nearly);
            float inverse;
            asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(d));
            inverse = d != 0.0f ? fmaf(fmaf(-d, inverse, 1.0f), inverse, inverse) : 0.0f;
            if (ahead.place % VB_QK == 0) *reinterpret_cast<half *>(&block->d) = from_float<half>(d);
            block->qs[ahead.place % VB_QK] = (int8_t)roundf(x * inverse);
        } else if (slot >= 0) {
            if (half_cache) *reinterpret_cast<half *>(to) = from_float<half>(x);
            else *reinterpret_cast<float *>(to) = x;
        }
    }
};

// Blocks 0 .. first_blocks - 1 compute `first` from weights of type A, the others `second` from weights of type B.
// ONE: item of a block, with an adapter's update.
template <class A, class B, Told TOLD, bool ONE, class Update>
__global__ void __launch_bounds__(32 * n1_warps, 2)
    n1_qkv_kernel(N1Input in, QKVOut<TOLD, Update> first, QKVOut<TOLD, Update> second, int first_blocks,
                  int second_items, int second_stages, int second_chunk) {
#if __CUDA_ARCH__ < 900
    if constexpr (TOLD != Told::NOTHING) return __trap(); // linear_makes_blocks, linear_norms_heads
#endif
    if constexpr (TOLD != Told::NOTHING) {
        const int bytes = TOLD == Told::SQUARES ? first.head_items.by * (int)sizeof(float)
                                                : (int)sizeof letters().greatest[0];
        mailbox_init(letters().mailboxes + threadIdx.x / 32, bytes, threadIdx.x % 32 == 0);
        cluster_arrive(), cluster_wait();
    }
    const bool of_second = (int)blockIdx.x >= first_blocks;
    const int index = blockIdx.x - (of_second ? first_blocks : 0),
              count = of_second ? gridDim.x - first_blocks : first_blocks;
    if (of_second) in.items = second_items, in.stages = second_stages, in.chunk = second_chunk;
    const auto product = [&](auto block, const QKVOut<TOLD, Update> &out) {
        if constexpr (ONE) n1_one_item<decltype(block), 2, 1, false>(in, out, index);
        else n1_product<decltype(block), 2>(in, out, index, count);
    };
    if constexpr (std::is_same<A, B>::value) { // they differ in an adapter's update alone
        first.values = of_second;
        if constexpr (Update::active)
            if (of_second) first.update = second.update;
        product(A(), first);
    } else if (of_second) {
        product(B(), second);
    } else {
        product(A(), first);
    }
}

// q and k from weights of type A and v from weights of type B. Where `qk` or `v` is false, the other alone.
template <class A, class B, Told TOLD, bool ONE = false, class Update>
vb_status n1_qkv(const vb_norm_qkv_args &a, const linear_qkv_choice &c, bool qk, bool v, const Update &of_qk,
                 const Update &of_v, vb_stream *stream) {
    static_assert(Packed<A>::depth == Packed<B>::depth, "one tiling of x");
    const int tiles = (int)Packed<A>::tiles_of(a.wq.cols), head_items = (int)(a.dim / (2 * packed_rows));
    const int q_items = head_items * (int)a.heads, v_items = v ? head_items * (int)a.kv_heads : 0;
    const int qk_items = qk ? q_items + head_items * (int)a.kv_heads : 0;
    QKVOut<TOLD, Update> first = {a,       (int64_t)tiles * Packed<A>::tile_bytes, Quotient(head_items),
                            q_items, false,                                  a.kv_type == VB_F16,
                            c.rest != LINEAR_QKV_NOTHING, c.raw, of_qk};
    QKVOut<TOLD, Update> second = first;
    second.row_bytes = (int64_t)tiles * Packed<B>::tile_bytes, second.values = true, second.update = of_v;
    // Where there are more blocks than multiprocessors, some wait for room: faster than a second item for some of them.
    const linear_items none = {}, &one = qk ? c.qk : none, &two = v ? c.v : none;
    const N1Input in = {a.x, a.norm, a.eps, tiles, qk_items, one.stages, one.chunk, 0, false, (int)a.wq.cols};
    const int matrices = Update::active ? 2 : 0;
    const int64_t bytes = larger(linear_n1_adapted_shared(Packed<A>::format, a.wq.cols, &one, matrices, a.ranks),
                                 linear_n1_adapted_shared(Packed<B>::format, a.wq.cols, &two, matrices, a.ranks));
    const int cluster = TOLD == Told::SQUARES ? head_items : TOLD == Told::GREATEST ? 2 : 1;
    return launch_cluster(stream, cluster, one.blocks + two.blocks, 32 * larger(one.warps, two.warps), bytes,
                          n1_qkv_kernel<A, B, TOLD, ONE, Update>, in, first, second, one.blocks, v_items, two.stages,
                          two.chunk);
}

template <class A, class B>
vb_status n1_qkv(const vb_norm_qkv_args &a, const linear_qkv_choice &c, bool qk, bool v, const Adapter &adapter,
                 vb_stream *stream) {
    const bool blocks = a.kv_type == VB_Q8_0 && c.rest == LINEAR_QKV_NOTHING;
    if (!adapter.sums)
        return c.normed ? n1_qkv<A, B, Told::SQUARES>(a, c, qk, v, NoUpdate(), NoUpdate(), stream)
               : blocks ? n1_qkv<A, B, Told::GREATEST>(a, c, qk, v, NoUpdate(), NoUpdate(), stream)
                        : n1_qkv<A, B, Told::NOTHING>(a, c, qk, v, NoUpdate(), NoUpdate(), stream);
    const int warps = larger(qk ? c.qk.warps : 0, v ? c.v.warps : 0);
    const N1Update<1> of_qk = n1_update<1>(adapter, 0, 2, warps), of_v = n1_update<1>(adapter, 2, 1, warps);
    const vb_packed_format of_a = Packed<A>::format, of_b = Packed<B>::format;
    if ((!qk || linear_n1_one_item(of_a, (a.heads + a.kv_heads) * a.dim, a.wq.cols, &c.qk)) &&
        (!v || linear_n1_one_item(of_b, a.kv_heads * a.dim, a.wq.cols, &c.v)))
        return blocks ? n1_qkv<A, B, Told::GREATEST, true>(a, c, qk, v, of_qk, of_v, stream)
                      : n1_qkv<A, B, Told::NOTHING, true>(a, c, qk, v, of_qk, of_v, stream);
    return blocks ? n1_qkv<A, B, Told::GREATEST>(a, c, qk, v, of_qk, of_v, stream)
                  : n1_qkv<A, B, Told::NOTHING>(a, c, qk, v, of_qk, of_v, stream);
}

vb_status n1_qkv(vb_dtype type, const vb_norm_qkv_args &a, const linear_qkv_choice &c, bool qk, bool v,
                 const Adapter &adapter, vb_stream *stream) {
    switch (type) {
#define X(type, Block, ...) case type: return n1_qkv<Block, Block>(a, c, qk, v, adapter, stream);
        VB_PACKED_TYPES(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
}

} // namespace

vb_status packed_n1_qkv(const vb_norm_qkv_args &a, const linear_qkv_choice &c, vb_stream *stream) {
    Adapter adapter = adapter_of(a);
    if (adapter.of[0].v || adapter.of[1].v || adapter.of[2].v) {
        if (a.prepared) take_left(&adapter, 3, a.wq.cols, left_by_feed_forward, stream);
        else VB_TRY(packed_project_n1(&adapter, 3, a.x, a.norm, a.wq.cols, left_by_feed_forward, stream));
    }
    const vb_dtype type = a.wq.type, values = a.wv.type;
    if (c.apart) {
        VB_TRY(n1_qkv(values, a, c, false, true, adapter, stream));
        return n1_qkv(type, a, c, true, false, adapter, stream);
    }
    const auto both = [&](auto of_qk, auto of_v) {
        return n1_qkv<decltype(of_qk), decltype(of_v)>(a, c, true, true, adapter, stream);
    };
    if (type == VB_Q4_K && values == VB_Q6_K) return both(vb_block_q4_k(), vb_block_q6_k());
    if (type == VB_Q5_K && values == VB_Q6_K) return both(vb_block_q5_k(), vb_block_q6_k());
    if (type == VB_Q5_0 && values == VB_Q8_0) return both(vb_block_q5_0(), vb_block_q8_0());
    return n1_qkv(type, a, c, true, true, adapter, stream);
}

} // namespace vb
#endif
