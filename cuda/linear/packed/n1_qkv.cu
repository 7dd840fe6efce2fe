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
#include "linear/packed/mixture.cuh"
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

// What v has in the place of q and k.
template <class Update>
struct ValuesOf {
    int items, stages, chunk;
    int64_t row_bytes;
    Update update;
};

// Blocks 0 .. qk_blocks - 1 compute q and k, the others v; blocks 0 .. first_blocks - 1 from weights of type A, the
// others from weights of type B. ONE: item of a block, with an adapter's update.
// SQUARES: registers for three blocks, so that two begin beside a block of the kernel before (linear_norms_heads).
template <class A, class B, Told TOLD, bool ONE, class Update>
__global__ void __launch_bounds__(32 * n1_warps, TOLD == Told::SQUARES ? 3 : 2)
    n1_qkv_kernel(N1Input in, QKVOut<TOLD, Update> out, ValuesOf<Update> of_v, int first_blocks, int qk_blocks) {
#if __CUDA_ARCH__ < 900
    if constexpr (TOLD != Told::NOTHING) return __trap(); // linear_makes_blocks, linear_norms_heads
#endif
    if constexpr (TOLD != Told::NOTHING) {
        const int bytes = TOLD == Told::SQUARES ? out.head_items.by * (int)sizeof(float)
                                                : (int)sizeof letters().greatest[0];
        mailbox_init(letters().mailboxes + threadIdx.x / 32, bytes, threadIdx.x % 32 == 0);
        cluster_arrive(), cluster_wait();
    }
    out.values = (int)blockIdx.x >= qk_blocks;
    const int index = blockIdx.x - (out.values ? qk_blocks : 0),
              count = out.values ? gridDim.x - qk_blocks : qk_blocks;
    if (out.values) {
        in.items = of_v.items, in.stages = of_v.stages, in.chunk = of_v.chunk, out.row_bytes = of_v.row_bytes;
        if constexpr (Update::active) out.update = of_v.update;
    }
    with_type_of_block<A, B>(first_blocks, [&](auto block) {
        if constexpr (ONE) n1_one_item<decltype(block), 2, 1, false>(in, out, index);
        else n1_product<decltype(block), 2>(in, out, index, count);
    });
}

// Where `qk` or `v` is false, the other alone.
template <Told TOLD, bool ONE = false, class Mixture, class Update>
vb_status n1_qkv(const vb_norm_qkv_args &a, const linear_qkv_choice &c, const Mixture &mixture, bool qk, bool v,
                 const Update &of_qk, const Update &of_v, vb_stream *stream) {
    using A = typename Mixture::A;
    using B = typename Mixture::B;
    const int tiles = (int)Packed<A>::tiles_of(a.wq.cols), head_items = (int)(a.dim / (2 * packed_rows));
    const int q_items = head_items * (int)a.heads, v_items = v ? head_items * (int)a.kv_heads : 0;
    const int qk_items = qk ? q_items + head_items * (int)a.kv_heads : 0;
    const QKVOut<TOLD, Update> out = {a, mixture.row_bytes(a.wq.cols), Quotient(head_items), q_items, false,
                                      a.kv_type == VB_F16, c.rest != LINEAR_QKV_NOTHING, c.raw, of_qk};
    // Where there are more blocks than multiprocessors, some wait for room: faster than a second item for some of them.
    const linear_items none = {}, &one = qk ? c.qk : none, &two = v ? c.v : none;
    const N1Input in = {a.x, a.norm, a.eps, tiles, qk_items, one.stages, one.chunk, 0, false, (int)a.wq.cols};
    const ValuesOf<Update> values = {v_items, two.stages, two.chunk, mixture.v_row_bytes(a.wq.cols), of_v};
    const int matrices = Update::active ? 2 : 0;
    const auto shared = [&](bool second, const linear_items &items) {
        return linear_n1_adapted_shared(second ? Packed<B>::format : Packed<A>::format, a.wq.cols, &items, matrices,
                                        a.ranks);
    };
    const int cluster = TOLD == Told::SQUARES ? head_items : TOLD == Told::GREATEST ? 2 : 1;
    return launch_cluster(stream, cluster, one.blocks + two.blocks, 32 * larger(one.warps, two.warps),
                          larger(shared(mixture.qk_second, one), shared(mixture.v_second, two)),
                          n1_qkv_kernel<A, B, TOLD, ONE, Update>, in, out, values,
                          mixture.first_blocks(one.blocks, two.blocks), one.blocks);
}

template <class Mixture>
vb_status n1_qkv(const vb_norm_qkv_args &a, const linear_qkv_choice &c, const Mixture &mixture, bool qk, bool v,
                 const Adapter &adapter, vb_stream *stream) {
    const bool blocks = a.kv_type == VB_Q8_0 && c.rest == LINEAR_QKV_NOTHING;
    if (!adapter.sums)
        return c.normed ? n1_qkv<Told::SQUARES>(a, c, mixture, qk, v, NoUpdate(), NoUpdate(), stream)
               : blocks ? n1_qkv<Told::GREATEST>(a, c, mixture, qk, v, NoUpdate(), NoUpdate(), stream)
                        : n1_qkv<Told::NOTHING>(a, c, mixture, qk, v, NoUpdate(), NoUpdate(), stream);
    const int warps = larger(qk ? c.qk.warps : 0, v ? c.v.warps : 0);
    const N1Update<1> of_qk = n1_update<1>(adapter, 0, 2, warps), of_v = n1_update<1>(adapter, 2, 1, warps);
    const auto one_item = [&](bool second, int64_t rows, const linear_items &items) {
        return linear_n1_one_item(second ? Packed<typename Mixture::B>::format : Packed<typename Mixture::A>::format,
                                  rows, a.wq.cols, &items);
    };
    if ((!qk || one_item(mixture.qk_second, (a.heads + a.kv_heads) * a.dim, c.qk)) &&
        (!v || one_item(mixture.v_second, a.kv_heads * a.dim, c.v)))
        return blocks ? n1_qkv<Told::GREATEST, true>(a, c, mixture, qk, v, of_qk, of_v, stream)
                      : n1_qkv<Told::NOTHING, true>(a, c, mixture, qk, v, of_qk, of_v, stream);
    return blocks ? n1_qkv<Told::GREATEST>(a, c, mixture, qk, v, of_qk, of_v, stream)
                  : n1_qkv<Told::NOTHING>(a, c, mixture, qk, v, of_qk, of_v, stream);
}

vb_status n1_qkv(vb_dtype of_qk, vb_dtype of_v, const vb_norm_qkv_args &a, const linear_qkv_choice &c, bool qk, bool v,
                 const Adapter &adapter, vb_stream *stream) {
    return with_mixture(of_qk, of_v,
                        [&](const auto &mixture) { return n1_qkv(a, c, mixture, qk, v, adapter, stream); });
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
        VB_TRY(n1_qkv(values, values, a, c, false, true, adapter, stream));
        return n1_qkv(type, type, a, c, true, false, adapter, stream);
    }
    return n1_qkv(type, values, a, c, true, true, adapter, stream);
}

} // namespace vb
#endif
