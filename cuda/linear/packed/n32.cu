// n32.cu: linear, norm_linear and linear_add of 5 to 32 rows of x, on Hopper of 5 to 8, W in the packed layout
// (n32.cuh). The kernel that prepares x for all operations of n32.cuh is here too.

#include "linear/linear.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear/packed/n32.cuh"
#include "linear/packed/project_rows.cuh"
#include "linear/packed/rows_out.cuh"

namespace vb {
namespace {

// x as N32Tiles of `tokens` rows, those behind the n rows of x zeros: products with them are computed and dropped.
// A warp a tile and row.
constexpr int activation_warps = 4;
template <int DEPTH, int WARPS>
VB_DEVICE void write_x(uint8_t *out, const float *x, const float *norm, bool with_norm, int n, int cols, int tiles,
                       int tokens) {
    release_next_kernel(); // its product fills rings of weights meanwhile, and waits before it reads x
    const int lane = threadIdx.x % 32, unit = blockIdx.x * WARPS + threadIdx.x / 32, tile = unit / tokens,
              token = unit - tile * tokens;
    constexpr int quads = DEPTH / 128;
    float4 v[quads], w[quads];
    const bool exists = tile < tiles;
    const auto inside = [&](int i) { return token < n && tile * DEPTH + 128 * i + 4 * lane < cols; };
    if (exists)
#pragma unroll
        for (int i = 0; i < quads; i++)
            w[i] = norm && inside(i) ? reinterpret_cast<const float4 *>(norm + tile * DEPTH)[32 * i + lane]
                                  : make_float4(1, 1, 1, 1);
    wait_for_previous_kernel();
    if (!exists) return;
#pragma unroll
    for (int i = 0; i < quads; i++)
        v[i] = inside(i) ? reinterpret_cast<const float4 *>(x + (int64_t)token * cols + tile * DEPTH)[32 * i + lane]
                         : make_float4(0, 0, 0, 0);
    using X = N32Tile<DEPTH>;
    X::write(out + tile * (int64_t)(tokens * X::token_bytes), v, w, with_norm, lane, token, tokens);
}
template <int DEPTH>
__global__ void __launch_bounds__(32 * activation_warps)
    n32_x_kernel(uint8_t *out, const float *x, const float *norm, bool with_norm, int n, int cols, int tiles,
                 int tokens) {
    write_x<DEPTH, activation_warps>(out, x, norm, with_norm, n, cols, tiles, tokens);
}
// The same by the first blocks; the others compute an adapter's h.
template <int DEPTH>
__global__ void __launch_bounds__(32 * project_warps)
    n32_x_and_h_kernel(uint8_t *out, int tiles, int tokens, RowsProjection h) {
    const int blocks = (tiles * tokens + project_warps - 1) / project_warps, other = (int)blockIdx.x - blocks;
    if (other < 0) write_x<DEPTH, project_warps>(out, h.x, h.norm, h.with_norm, h.n, h.cols, tiles, tokens);
    else project_row<true>(h, other % h.n, other / h.n);
}

template <class Block, int TOKENS, int PARTS, class Update>
__global__ void __launch_bounds__(32 * N32Memory<TOKENS, PARTS>::most_warps, 1)
    n32_kernel(N32Input in, RowsOut<PARTS, Update> out) {
    n32_product<Block, TOKENS, PARTS>(in, out, blockIdx.x, gridDim.x);
}

template <class Block, int TOKENS, int PARTS>
vb_status n32(const LinearArgs &a, const LinearExtra &extra, const linear_items &items, vb_stream *stream) {
    using P = Packed<Block>;
    return with_late_update<TOKENS>(
        extra.adapter, 1, a.x, extra.with_norm, extra.norm, extra.eps, a.n, a.cols, stream,
        [&](const auto &update, const RowsProjection *h) {
            const auto out = rows_out<Block, PARTS>(a, extra, update);
            uint8_t *x;
            VB_TRY(n32_x(&x, a.x, extra.norm, extra.with_norm, a.n, a.cols, P::depth, TOKENS, h, stream));
            const N32Input in = {x, (int)a.n, (int)P::tiles_of(a.cols), ceil_div(out.tile_rows, PARTS), items.stages,
                                 extra.with_norm, extra.eps, (int)a.cols};
            return launch_cached(stream, items.blocks, 32 * items.warps, items.shared_bytes,
                                 n32_kernel<Block, TOKENS, PARTS, std::decay_t<decltype(update)>>, in, out);
        });
}

} // namespace

vb_status n32_x(uint8_t **out, const float *x, const float *norm, bool with_norm, int64_t n, int64_t cols, int depth,
                int tokens, const RowsProjection *h, vb_stream *stream) {
    const int tiles = (int)ceil_div<int64_t>(cols, depth);
    const bool deep = depth == 256;
    void *scratch;
    VB_TRY(workspace(&scratch, (int64_t)tiles * tokens * (deep ? N32Tile<256>::token_bytes : N32Tile<128>::token_bytes),
                     stream));
    *out = (uint8_t *)scratch;
    if (h)
        return launch_overlapped(stream,
                                 (unsigned)(ceil_div(tokens * tiles, project_warps) + h->n * h->matrices * h->groups),
                                 32 * project_warps, 0, deep ? n32_x_and_h_kernel<256> : n32_x_and_h_kernel<128>, *out,
                                 tiles, tokens, *h);
    return launch_cached(stream, (unsigned)ceil_div(tokens * tiles, activation_warps), 32 * activation_warps, 0,
                         deep ? n32_x_kernel<256> : n32_x_kernel<128>, *out, x, norm, with_norm, (int)n, (int)cols,
                         tiles, tokens);
}

vb_status packed_n32(const LinearArgs &a, const LinearExtra &extra, vb_dtype type, const linear_items &items,
                     vb_stream *stream) {
    return with_tokens(items, [&](auto tokens) {
        constexpr int most = decltype(tokens)::value;
        switch (type) {
#define X(type, Block, ...) \
    case type: \
        return items.parts == 2 ? n32<Block, most, 2>(a, extra, items, stream) \
                                : n32<Block, most, 1>(a, extra, items, stream);
            VB_PACKED_TYPES(X)
#undef X
        default: return VB_UNSUPPORTED;
        }
    });
}

} // namespace vb
#endif
