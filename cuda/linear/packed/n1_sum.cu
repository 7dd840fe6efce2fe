// n1_sum.cu: y[rows] = the sum over ranks of W x + bias, + add, for one row of x, W in the packed layout: the last
// product of each half of a layer that several GPUs compute, with the all_reduce behind it (n1.cuh, exchange.cuh).
//
// A warp sends each result to the other ranks when it has it: 4 bytes beside a flag of 4, which arrive whole. When a
// block has multiplied all its rows, its warps poll for the other ranks' results. They add in the order of ranks: all
// get the same bits. So only the last rows wait for a crossing, and no kernel lies between the product and the next.
//
//   moves    the bytes of packed_n1; 8 bytes a row to each other rank
//   bound    memory bandwidth, and one crossing of NVLink
// Two letters take turns: in exchange e all ranks have sent words of e - 1, so their kernels e - 2 have ended.

#include "collective/exchange.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear/packed/n1.cuh"

namespace vb {
namespace {

VB_DEVICE unsigned *row_counters(const Mail &m) {
    return reinterpret_cast<unsigned *>(m.box[m.rank] + mail_row_at(m.ranks));
}
VB_DEVICE uint2 *row_letter(char *box, int ranks, unsigned letter, int from) {
    return reinterpret_cast<uint2 *>(box + mail_row_at(ranks) + mail_row_counters + (letter * ranks + from) * mail_row);
}
VB_DEVICE uint2 load_row(const uint2 *p) {
    uint2 word;
    asm volatile("ld.volatile.global.v2.u32 {%0, %1}, [%2];" : "=r"(word.x), "=r"(word.y) : "l"(p) : "memory");
    return word;
}
// What has arrived at p, where `word` was seen.
VB_DEVICE float poll_row(const uint2 *p, uint2 word, unsigned flag) {
    for (Wait wait; word.y != flag; word = load_row(p)) wait.round();
    return __uint_as_float(word.x);
}

// The number of the exchange, which a block's first warp leaves for all.
VB_DEVICE unsigned &exchange_number() {
    __shared__ unsigned number;
    return number;
}

template <int PARTS>
struct SumOut {
    static constexpr NoUpdate update = {};
    static constexpr int together = 4; // ranks
    static constexpr bool norm = false, late = false, joined = false;
    const uint8_t *w;
    float *y;
    const float *bias, *add; // bias: null for none; add may be y
    int64_t row_bytes;       // of a row of tiles
    int rows, tile_rows;
    Mail mail;
    struct Ahead {
        float bias;
        unsigned count; // of exchanges
    };

    VB_DEVICE const uint8_t *tiles(int item, int part) const {
        return w + smaller(item * PARTS + part, tile_rows - 1) * row_bytes;
    }
    // The row of a lane; `rows` where it has none.
    VB_DEVICE int row(int item, int lane) const {
        return lane < PARTS * 16 ? smaller(rows, item * PARTS * packed_rows + lane) : rows;
    }
    VB_DEVICE void prepare(Ahead *ahead, int item, int lane) const {
        const int r = row(item, lane);
        ahead->bias = bias && r < rows ? bias[r] : 0.0f;
    }
    VB_DEVICE void fetch(Ahead *ahead, int, int) const { ahead->count = *row_counters(mail); }
    VB_DEVICE void fetch_more(Ahead *, int, int) const {}
    // To each rank, this rank too: y may be the same memory as add.
    VB_DEVICE void store(const Ahead &ahead, int item, int lane, float sum) const {
        const int r = row(item, lane);
        if (threadIdx.x == 0) exchange_number() = ahead.count; // a block that has an item has one for this warp
        if (r == rows) return;
        for (int to = 0; to < mail.ranks; to++)
            asm volatile("st.volatile.global.v2.u32 [%0], {%1, %2};" ::"l"(
                             row_letter(mail.box[to], mail.ranks, ahead.count % 2, mail.rank) + r),
                         "r"(__float_as_uint(sum + ahead.bias)), "r"(ahead.count | 0x80000000u)
                         : "memory");
    }
    VB_DEVICE void receive(int item, int lane, unsigned count) const {
        const int r = row(item, lane);
        if (r == rows) return;
        const float more = add[r];
        float sum = 0;
        for (int first = 0; first < mail.ranks; first += together) {
            const uint2 *letter = row_letter(mail.box[mail.rank], mail.ranks, count % 2, first) + r;
            uint2 words[together]; // all loads are under way before the first is looked at
#pragma unroll
            for (int i = 0; i < together; i++)
                if (first + i < mail.ranks) words[i] = load_row(letter + i * (mail_row / sizeof(uint2)));
#pragma unroll
            for (int i = 0; i < together; i++)
                if (first + i < mail.ranks)
                    sum += poll_row(letter + i * (mail_row / sizeof(uint2)), words[i], count | 0x80000000u);
        }
        y[r] = sum + more;
    }
};

template <class Block, int PARTS, int KSPLIT>
__global__ void __launch_bounds__(32 * n1_warps, 2) n1_sum_kernel(N1Input in, VB_IN_PLACE SumOut<PARTS> out) {
    const int index = blockIdx.x / KSPLIT, count = gridDim.x / KSPLIT, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    n1_product<Block, PARTS, KSPLIT>(in, out, index, count);
    __syncthreads();
    const unsigned exchange = exchange_number();
    // Each warp receives items, whichever warp has stored them.
    const int warps = blockDim.x / 32, rank = blockIdx.x % KSPLIT, stride = warps * KSPLIT * count;
    for (int item = index + (warp * KSPLIT + rank) * count; item < in.items; item += stride)
        out.receive(item, lane, exchange);
    // All of this block have read the count. The last warp, which receives least, counts the block.
    unsigned *const counters = row_counters(out.mail);
    if (threadIdx.x != blockDim.x - 1 || atomicAdd(counters + 1, 1u) != gridDim.x - 1) return;
    counters[1] = 0; // the last block of all
    counters[0]++;
}

template <class Block, int PARTS, int KSPLIT>
vb_status n1_sum(float *y, const vb_sum_of_products &sum, int rank, const linear_items &items, const Mail &mail,
                 vb_stream *stream) {
    using P = Packed<Block>;
    const vb_weight &w = sum.w[rank];
    const int64_t tile_rows = ceil_div<int64_t>(w.rows, P::rows), row_bytes = P::tiles_of(w.cols) * P::tile_bytes;
    const N1Input in = {sum.x[rank], nullptr, 0, (int)P::tiles_of(w.cols), (int)ceil_div<int64_t>(tile_rows, PARTS),
                        items.stages, items.chunk, 0, false, (int)w.cols};
    const SumOut<PARTS> out = {(const uint8_t *)w.data, y, sum.bias[rank], sum.add[rank], row_bytes, (int)w.rows,
                               (int)tile_rows, mail};
    return launch_cluster(stream, KSPLIT, items.blocks, 32 * items.warps, items.shared_bytes,
                          n1_sum_kernel<Block, PARTS, KSPLIT>, in, out);
}

} // namespace

vb_status exchange_sum_of_products(float *out, const vb_sum_of_products &sum, int rank, const linear_items &items,
                                   const Mail &mail, vb_stream *stream) {
    const vb_weight &w = sum.w[rank];
    chosen(stream, collective_kernel_info(COLLECTIVE_PRODUCTS_N1), "linear_all_reduce", w.type, "rows cols ranks",
           w.rows, w.cols, mail.ranks);
    switch (known(w).type) {
#define X(type, Block, ...) \
    case type: \
        return items.ksplit == 2  ? n1_sum<Block, 2, 2>(out, sum, rank, items, mail, stream) \
               : items.parts == 2 ? n1_sum<Block, 2, 1>(out, sum, rank, items, mail, stream) \
                                  : n1_sum<Block, 1, 1>(out, sum, rank, items, mail, stream);
        VB_PACKED_TYPES(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
}

} // namespace vb
#endif
