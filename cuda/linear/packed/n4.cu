// n4.cu: linear, norm_linear and linear_add of 2 to 4 rows of x, W in the packed layout (n4.cuh).

#include "linear/linear.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear/choose_groups.h"
#include "linear/packed/n4.cuh"
#include "linear/packed/rows_out.cuh"

namespace vb {
namespace {

template <class Block, int PARTS, int KSPLIT, bool TWO, class Update>
__global__ void __launch_bounds__(32 * n4_warps, 2) n4_kernel(N4Input in, RowsOut<PARTS, Update> out) {
    n4_product<Block, PARTS, KSPLIT, TWO>(in, out, blockIdx.x / KSPLIT, gridDim.x / KSPLIT);
}

// Rows of few tiles: a block's y counts its groups of warps. Such a block leaves no registers to the next kernel's:
// to spill them costs more.
template <class Block>
constexpr int grouped_warps = Packed<Block>::depth == 128 ? LINEAR_GROUPED_SMALL_TILES_WARPS : LINEAR_GROUPED_WARPS;

template <class Block, bool TWO>
__global__ void __launch_bounds__(32 * grouped_warps<Block>, 1)
    n4_groups_kernel(N4Input in, RowsOut<2, NoRowsUpdate> out) {
    n4_product<Block, 2, 1, TWO, true>(in, out, blockIdx.x * blockDim.y + threadIdx.y, gridDim.x * blockDim.y);
}

template <class Block, int PARTS, int KSPLIT, class Update>
vb_status n4(const LinearArgs &a, const LinearExtra &extra, const Update &update, const linear_items &items,
             vb_stream *stream) {
    const RowsOut<PARTS, Update> out = rows_out<Block, PARTS>(a, extra, update);
    constexpr bool TWO = N4Tile<Block>::takes_two;
    N4Input in = {a.x, extra.norm, extra.with_norm, extra.eps, (int)a.n, (int)Packed<Block>::tiles_of(a.cols),
                  ceil_div(out.tile_rows, PARTS), items.stages, items.chunk, items.rounds, (int)a.cols};
    constexpr bool always_two = TWO && Update::active; // 3 and 4 rows with an adapter are packed_n32's
    const bool two = TWO && a.n == 2;
    if constexpr (PARTS == 2 && KSPLIT == 1 && std::is_same<Update, NoRowsUpdate>::value) {
        constexpr vb_packed_format format = Packed<Block>::format;
        linear_items of = items; // a group
        const int groups = linear_groups(&gpu_of(stream), format, a.n, in.tiles, in.items, &of);
        if (groups > 1) {
            in.stages = of.stages, in.chunk = of.chunk;
            in.group_bytes = (int)linear_group_bytes(format, a.n, in.tiles, &of);
            return launch_overlapped(stream, of.blocks, dim3(32 * of.warps, groups), of.shared_bytes,
                                     two ? n4_groups_kernel<Block, TWO> : n4_groups_kernel<Block, false>, in, out);
        }
    }
    return launch_cluster(stream, KSPLIT, items.blocks, 32 * items.warps, items.shared_bytes,
                          two ? n4_kernel<Block, PARTS, KSPLIT, TWO, Update>
                              : n4_kernel<Block, PARTS, KSPLIT, always_two, Update>,
                          in, out);
}

template <class Block, class Update>
vb_status n4(const LinearArgs &a, const LinearExtra &extra, const Update &update, const linear_items &items,
             vb_stream *stream) {
    if (items.ksplit == 2) return n4<Block, 2, 2>(a, extra, update, items, stream);
    return items.parts == 2 ? n4<Block, 2, 1>(a, extra, update, items, stream)
                            : n4<Block, 1, 1>(a, extra, update, items, stream);
}

template <class Update>
vb_status n4(const LinearArgs &a, const LinearExtra &extra, const Update &update, vb_dtype type,
             const linear_items &items, vb_stream *stream) {
    switch (type) {
#define X(type, Block, ...) case type: return n4<Block>(a, extra, update, items, stream);
        VB_PACKED_TYPES(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
}

} // namespace

vb_status packed_n4(const LinearArgs &a, const LinearExtra &extra, vb_dtype type, const linear_items &items,
                    vb_stream *stream) {
    if (!changes_rows(extra.adapter)) return n4(a, extra, NoRowsUpdate(), type, items, stream);
    RowsUpdate<false> update;
    VB_TRY(project_rows(&update, extra.adapter, 1, a.x, extra.with_norm, extra.norm, extra.eps, a.n, a.cols, stream));
    return n4(a, extra, update, type, items, stream);
}

} // namespace vb
#endif
