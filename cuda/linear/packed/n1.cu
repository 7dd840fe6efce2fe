// n1.cu: y[rows] = W x + bias for one row of x, W in the packed layout, with the RMS norm before it or an addition
// after it: linear, norm_linear and linear_add of a token (n1.cuh).

#include "linear/linear.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear/choose_adapted.h"
#include "linear/choose_groups.h"
#include "linear/packed/n1_one_item.cuh"
#include "linear/packed/n1_rows.cuh"

namespace vb {
namespace {

// What a block or cluster has of an adapted product: items of any number, or one, of any ranks or of eight.
enum class N1Items { ANY, ONE, ONE_OF_EIGHT_RANKS };

template <bool NORM, int PARTS, N1Items ITEMS, class Update>
struct RowsOut {
    static constexpr bool norm = NORM, late = false, joined = false;
    const uint8_t *w;
    float *y;
    const float *bias, *add; // or null; add may be y
    int64_t row_bytes;       // of a row of tiles
    int rows, tile_rows;
    Update update;
    N1Leaves<3> leaves; // with an update
    struct Plain {};
    struct Ahead {
        float addend;
        typename std::conditional<Update::active, N1Leaves<3>::Ahead<16 * PARTS>, Plain>::type leaves;
    };

    // the last item may have one part: its other is not stored
    VB_DEVICE const uint8_t *tiles(int item, int part) const {
        return w + smaller(item * PARTS + part, tile_rows - 1) * row_bytes;
    }
    VB_DEVICE int row(int item, int lane) const { return item * PARTS * packed_rows + (PARTS == 1 ? lane % 16 : lane); }
    VB_DEVICE int matrix(int, int) const { return 0; }
    VB_DEVICE int rows_of(int) const { return rows; }
    VB_DEVICE void prepare(Ahead *ahead, int item, int lane) const {
        const int r = row(item, lane);
        ahead->addend = bias && r < rows ? bias[r] : 0.0f;
        if constexpr (Update::active) leaves.prepare<16 * PARTS>(&ahead->leaves, row(item, 0), lane);
    }
    VB_DEVICE void fetch(Ahead *ahead, int item, int lane) const {
        const int r = row(item, lane);
        if (add && r < rows) ahead->addend += add[r];
    }
    VB_DEVICE void fetch_more(Ahead *, int, int) const {}
    VB_DEVICE void store(const Ahead &ahead, int item, int lane, float sum) const {
        const int r = row(item, lane);
        sum += ahead.addend;
        if (lane < PARTS * 16 && r < rows) y[r] = sum;
        if constexpr (Update::active)
            leaves.leave<16 * PARTS, ITEMS == N1Items::ONE_OF_EIGHT_RANKS>(ahead.leaves, row(item, 0), sum, lane);
    }
};

N1Leaves<3> leaves_of(const LinearExtra &extra) {
    const Leaves &l = extra.leaves;
    return {{l.v[0], l.v[1], l.v[2]}, l.norm, l.sums, (int)l.rows, l.ranks / 8, l.matrices};
}

template <class Block, int PARTS, bool NORM, int KSPLIT, N1Items ITEMS, class Update>
__global__ void __launch_bounds__(32 * n1_warps, 2) n1_kernel(N1Input in, RowsOut<NORM, PARTS, ITEMS, Update> out) {
    if constexpr (ITEMS == N1Items::ANY)
        n1_product<Block, PARTS, KSPLIT>(in, out, blockIdx.x / KSPLIT, gridDim.x / KSPLIT);
    else
        n1_one_item<Block, PARTS, KSPLIT, ITEMS == N1Items::ONE_OF_EIGHT_RANKS>(in, out, blockIdx.x / KSPLIT);
}

// Rows of few tiles, 9.0: a block's y counts its groups of warps.
template <class Block>
__global__ void __launch_bounds__(32 * LINEAR_GROUPED_WARPS, 2)
    n1_groups_kernel(N1Input in, RowsOut<false, 2, N1Items::ANY, NoUpdate> out) {
#if __CUDA_ARCH__ >= 900
    n1_product<Block, 2, 1, true>(in, out, blockIdx.x * blockDim.y + threadIdx.y, gridDim.x * blockDim.y);
#endif
}

template <class Block, int PARTS, bool NORM, int KSPLIT = 1, N1Items ITEMS = N1Items::ANY, class Update = NoUpdate>
vb_status n1(const LinearArgs &a, const LinearExtra &extra, const linear_items &items, vb_stream *stream,
             const Update &update = {}) {
    using P = Packed<Block>;
    const int64_t tile_rows = ceil_div<int64_t>(a.rows, P::rows), row_bytes = P::tiles_of(a.cols) * P::tile_bytes;
    N1Input in = {a.x, extra.norm, extra.eps, (int)P::tiles_of(a.cols), (int)ceil_div<int64_t>(tile_rows, PARTS),
                  items.stages, items.chunk, 0, false, (int)a.cols};
    const RowsOut<NORM, PARTS, ITEMS, Update> out = {(const uint8_t *)a.w, a.y, a.bias, extra.add, row_bytes,
                                                     (int)a.rows, (int)tile_rows, update, leaves_of(extra)};
    const bool clusters = capability(stream) >= 90;
    if (KSPLIT > 1 && !clusters) {
        const int64_t sums = (int64_t)in.items * KSPLIT * PARTS * packed_rows;
        VB_TRY(workspace((void **)&in.partial, sums * (int64_t)sizeof(float), stream));
        in.arrived = counters(stream);
    }
    if constexpr (!NORM && !Update::active && P::bits <= LINEAR_OWN_ROWS_BITS) {
        const linear_own_rows own = linear_n1_own_rows(&gpu_of(stream), P::format, in.tiles, tile_rows, &items);
        if (own.blocks)
            return launch_overlapped(stream, own.blocks, 32 * own.warps, own.shared_bytes, n1_rows_kernel<Block>,
                                     N1Rows{out.w, a.x, a.y, a.bias, extra.add, out.rows, out.tile_rows, in.tiles,
                                            in.cols, own.stages, own.share, ceil_div(65536u, (unsigned)own.share),
                                            ceil_div(in.tiles, own.share)});
    }
    if constexpr (PARTS == 2 && !NORM && KSPLIT == 1 && !Update::active) {
        linear_items of = items; // a group
        const int groups = linear_groups(&gpu_of(stream), P::format, 1, in.tiles, in.items, &of);
        if (groups > 1) {
            in.stages = of.stages, in.chunk = of.chunk;
            in.group_bytes = (int)linear_group_bytes(P::format, 1, in.tiles, &of);
            return launch_overlapped(stream, of.blocks, dim3(32 * of.warps, groups), of.shared_bytes,
                                     n1_groups_kernel<Block>, in, out);
        }
    }
    const int64_t bytes =
        linear_n1_adapted_shared(P::format, a.cols, &items, Update::active ? 1 : 0, extra.adapter.ranks);
    return launch_cluster(stream, clusters ? KSPLIT : 1, items.blocks, 32 * items.warps, bytes,
                          n1_kernel<Block, PARTS, NORM, KSPLIT, ITEMS, Update>, in, out);
}

template <class Block>
vb_status n1(const LinearArgs &a, const LinearExtra &extra, const linear_items &items, vb_stream *stream) {
    if (extra.with_norm) return n1<Block, 2, true>(a, extra, items, stream);
    if (extra.adapter.of[0].v || extra.leaves.sums) {
        Adapter adapter = extra.adapter;
        if (adapter.of[0].v && items.ksplit == 2 && !adapter.sums)
            VB_TRY(packed_project_n1(&adapter, 1, a.x, nullptr, a.cols, left_by_feed_forward, stream));
        const N1Update<1> update = n1_update<1>(adapter, 0, 1, items.warps, items.ksplit);
        const bool one = linear_n1_one_item(Packed<Block>::format, a.rows, a.cols, &items),
                   eight = update.groups == 1 && extra.leaves.ranks <= 8;
        if (items.ksplit == 2)
            return one && eight ? n1<Block, 2, false, 2, N1Items::ONE_OF_EIGHT_RANKS>(a, extra, items, stream, update)
                   : one        ? n1<Block, 2, false, 2, N1Items::ONE>(a, extra, items, stream, update)
                                : n1<Block, 2, false, 2>(a, extra, items, stream, update);
        if (one && !adapter.sums)
            return eight ? n1<Block, 1, false, 1, N1Items::ONE_OF_EIGHT_RANKS>(a, extra, items, stream, update)
                         : n1<Block, 1, false, 1, N1Items::ONE>(a, extra, items, stream, update);
        return items.parts == 2 ? n1<Block, 2, false>(a, extra, items, stream, update)
                                : n1<Block, 1, false>(a, extra, items, stream, update);
    }
    if (items.ksplit == 2) return n1<Block, 2, false, 2>(a, extra, items, stream);
    return items.parts == 2 ? n1<Block, 2, false>(a, extra, items, stream)
                            : n1<Block, 1, false>(a, extra, items, stream);
}

} // namespace

vb_status packed_n1(const LinearArgs &a, const LinearExtra &extra, vb_dtype type, const linear_items &items,
                    vb_stream *stream) {
    switch (type) {
#define X(type, Block, ...) case type: return n1<Block>(a, extra, items, stream);
        VB_PACKED_TYPES(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
}

} // namespace vb
#endif
