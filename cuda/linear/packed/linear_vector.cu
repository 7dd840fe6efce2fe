// linear_vector.cu: y[rows] = W x + bias for one row of x, W in the packed layout, with the RMS norm before it or an addition
// after it: linear, norm_linear and linear_add of a token (vector_product.cuh).

#include "linear/linear.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear/packed/vector_product.cuh"

namespace vb {
namespace {

template <bool NORM, int PARTS>
struct RowsOut {
    static constexpr bool norm = NORM, late = false;
    const uint8_t *w;
    float *y;
    const float *bias, *add; // or null; add may be y
    int64_t row_bytes;       // of a row of tiles
    int rows, tile_rows;
    using Ahead = float;

    VB_DEVICE const uint8_t *tiles(int item, int part) const { // the last item may have one part: its other is not stored
        return w + smaller(item * PARTS + part, tile_rows - 1) * row_bytes;
    }
    VB_DEVICE int row(int item, int lane) const { return item * PARTS * packed_rows + (PARTS == 1 ? lane % 16 : lane); }
    VB_DEVICE void prepare(Ahead *ahead, int item, int lane) const {
        const int r = row(item, lane);
        *ahead = bias && r < rows ? bias[r] : 0.0f;
    }
    VB_DEVICE void fetch(Ahead *ahead, int item, int lane) const {
        const int r = row(item, lane);
        if (add && r < rows) *ahead += add[r];
    }
    VB_DEVICE void fetch_more(Ahead *, int, int) const {}
    VB_DEVICE void store(const Ahead &ahead, int item, int lane, float sum) const {
        const int r = row(item, lane);
        if (lane < PARTS * 16 && r < rows) y[r] = sum + ahead;
    }
};

template <class Block, int PARTS, bool NORM, int SPLIT>
__global__ void __launch_bounds__(32 * vector_warps, 2) linear_vector_kernel(VectorInput in, RowsOut<NORM, PARTS> out) {
    vector_product<Block, PARTS, SPLIT>(in, out, blockIdx.x / SPLIT, gridDim.x / SPLIT);
}

template <class Block, int PARTS, bool NORM, int SPLIT = 1>
vb_status vector_rows(const LinearArgs &a, const LinearExtra &extra, vb_stream *stream) {
    using P = Packed<Block>;
    const int64_t tile_rows = ceil_div<int64_t>(a.rows, P::rows), row_bytes = a.cols / P::depth * P::tile_bytes;
    if (tile_rows * P::rows > INT32_MAX || a.cols > INT32_MAX) return VB_UNSUPPORTED;
    VectorInput in = {a.x, extra.norm, extra.eps, (int)(a.cols / P::depth), (int)ceil_div<int64_t>(tile_rows, PARTS), 0, 0, 0, false};
    VectorPlan plan;
    VB_TRY((plan_vector_product<Block, PARTS, SPLIT>(&plan, in.tiles, in.items, stream)));
    in.stages = plan.stages, in.chunk = plan.chunk;
    const RowsOut<NORM, PARTS> out = {(const uint8_t *)a.w, a.y, a.bias, extra.add, row_bytes, (int)a.rows, (int)tile_rows};
    return launch_cluster(stream, SPLIT, plan.blocks, 32 * plan.warps, plan.shared_bytes,
                          linear_vector_kernel<Block, PARTS, NORM, SPLIT>, in, out);
}

template <class Block>
vb_status vector_rows(const LinearArgs &a, const LinearExtra &extra, vb_stream *stream) {
    if (extra.with_norm) return vector_rows<Block, 2, true>(a, extra, stream);
    // Two rows of tiles share x where there are enough of them for all multiprocessors.
    if (a.rows >= 2 * 2 * packed_rows * (int64_t)multiprocessors(stream)) return vector_rows<Block, 2, false>(a, extra, stream);
    // Of long rows each block of a cluster takes a half, and so loads and quantizes half of x.
    if (capability(stream) >= 90 && a.cols / Packed<Block>::depth >= 32) {
        const vb_status status = vector_rows<Block, 2, false, 2>(a, extra, stream);
        if (status != VB_UNSUPPORTED) return status;
    }
    return vector_rows<Block, 1, false>(a, extra, stream);
}

} // namespace

vb_status linear_vector(const LinearArgs &a, const LinearExtra &extra, vb_dtype type, vb_stream *stream) {
    switch (type) {
#define X(type, Block) case type: return vector_rows<Block>(a, extra, stream);
        VB_PACKED_TYPES(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
}

} // namespace vb

#else

namespace vb {
vb_status linear_vector(const LinearArgs &, const LinearExtra &, vb_dtype, vb_stream *) { return VB_UNSUPPORTED; }
} // namespace vb

#endif

using namespace vb;

extern "C" {

vb_status vb_cuda_norm_linear(float *y, const float *x, const float *norm, float eps, const vb_weight *w, const float *bias,
                              float *, int64_t n, vb_stream *stream) {
    if (w->layout != VB_PACKED || !aligned16(x, norm)) return VB_UNSUPPORTED;
    return vb::linear_of_packed({y, x, w->data, bias, n, w->rows, w->cols}, {true, norm, eps, nullptr}, w->type, stream);
}

vb_status vb_cuda_linear_add(float *sum, const float *a, const float *x, const vb_weight *w, const float *bias, float *,
                             int64_t n, vb_stream *stream) {
    if (w->layout != VB_PACKED || !aligned16(x)) return VB_UNSUPPORTED;
    return vb::linear_of_packed({sum, x, w->data, bias, n, w->rows, w->cols}, {false, nullptr, 0, a}, w->type, stream);
}

} // extern "C"
