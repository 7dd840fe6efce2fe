// linear_packed.cu: packing of weights at load, and the product of packed weights with 2 to 4 rows of x (few_product.cuh) and up to 32,
// on Hopper 16 (packed_product.cuh), with the RMS norm before it or an addition after it.

#include "linear/linear.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear/packed/few_product.cuh"

namespace vb {
namespace {

// ---- packing ------------------------------------------------------------------------------------------------------------
//
//   grid     one block a tile, a thread gathers the bits of a stored word that Packed::unpack will spread
//   moves    the weights once in, once out; bound by the byte loads of the codes (about 10 ms a GB, once at load)

template <class Block>
__global__ void __launch_bounds__(256) pack_kernel(uint8_t *out, const Block *in, int64_t rows, int64_t cols) {
    wait_for_previous_kernel(); // and no release: products of packed weights read them before they wait
    using P = Packed<Block>;
    constexpr int size = BlockSize<Block>::value;
    const int64_t tiles_a_row = cols / P::depth;
    const int64_t row0 = blockIdx.x / tiles_a_row * P::rows, col0 = blockIdx.x % tiles_a_row * P::depth;
    uint8_t *tile = out + blockIdx.x * (int64_t)P::tile_bytes, *scales = tile + P::code_bytes;
    auto block = [&](int row, int k) -> const Block & { return in[(row0 + row) * (cols / size) + (col0 + k) / size]; };

    for (int i = threadIdx.x; i < P::code_bytes / 4; i += blockDim.x) {
        const int lane = i % 32, word = i / 32, lower = word >= P::words;
        const int row = lane / 4 + 8 * lower, t = lane % 4;
        uint32_t packed = 0;
        if (row0 + row < rows)
            for (int b = 0; b < 4; b++) {
                auto value = [&](int v) {
                    const int k = 16 * v + 4 * t + b;
                    return code(block(row, k), k % size);
                };
                packed |= P::pack_byte(word - lower * P::words, value) << (8 * b);
            }
        *reinterpret_cast<uint32_t *>(tile + P::word_offset(lane, word)) = packed;
    }
    for (int row = threadIdx.x; row < P::rows; row += blockDim.x) {
        const bool inside = row0 + row < rows;
        if constexpr (P::small) {
            constexpr int count = P::depth / VB_QK;
            for (int j = 0; j < count; j++)
                reinterpret_cast<vb_half *>(scales)[count * row + j] = inside ? block(row, VB_QK * j).d : 0;
        } else {
            const uint8_t *first = nullptr; // of the 16 bytes to keep: d, dmin and scales of K4, the scales of Q6_K
            if (inside) {
                if constexpr (P::k4) first = reinterpret_cast<const uint8_t *>(&block(row, 0));
                else first = reinterpret_cast<const uint8_t *>(block(row, 0).scales);
            }
            for (int j = 0; j < 16; j++)
                scales[16 * row + (P::k6 ? P::q6_scale_byte(j) : j)] = inside ? first[j] : 0;
            if constexpr (P::k6) reinterpret_cast<vb_half *>(scales + P::scale_bytes)[row] = inside ? block(row, 0).d : 0;
        }
    }
}

template <class Block>
vb_status pack(void *out, const vb_weight *w, vb_stream *stream) {
    using P = Packed<Block>;
    const int64_t tiles = ceil_div<int64_t>(w->rows, P::rows) * (w->cols / P::depth);
    if (w->cols % P::depth != 0 || tiles > INT32_MAX) return VB_UNSUPPORTED;
    return launch_overlapped(stream, (unsigned)tiles, 256, 0, pack_kernel<Block>, (uint8_t *)out, (const Block *)w->data,
                             w->rows, w->cols);
}

// ---- x --------------------------------------------------------------------------------------------------------------------

// x as ActivationTiles of `tokens` rows, of which n are written. A warp a tile and row.
constexpr int activation_warps = 4;
template <int DEPTH>
__global__ void __launch_bounds__(32 * activation_warps)
    activations_kernel(uint8_t *out, const float *x, const float *norm, bool with_norm, int n, int tiles, int tokens) {
    release_next_kernel(); // its product fills rings of weights meanwhile; what it reads of others it waits for
    const int lane = threadIdx.x % 32, unit = blockIdx.x * activation_warps + threadIdx.x / 32, tile = unit / n, token = unit - tile * n;
    constexpr int quads = DEPTH / 128;
    float4 v[quads], w[quads];
    const bool exists = tile < tiles;
    if (exists)
#pragma unroll
        for (int i = 0; i < quads; i++)
            w[i] = norm ? reinterpret_cast<const float4 *>(norm + tile * DEPTH)[32 * i + lane] : make_float4(1, 1, 1, 1);
    wait_for_previous_kernel();
    if (!exists) return;
#pragma unroll
    for (int i = 0; i < quads; i++) v[i] = reinterpret_cast<const float4 *>(x + ((int64_t)token * tiles + tile) * DEPTH)[32 * i + lane];
    using X = ActivationTile<DEPTH>;
    X::write(out + tile * (int64_t)(tokens * X::token_bytes), v, w, with_norm, lane, token, tokens);
}

// ---- product --------------------------------------------------------------------------------------------------------------

template <int PARTS>
struct PackedRowsOut {
    const uint8_t *w;
    float *y;
    const float *bias, *add; // or null; add may be y
    int64_t row_bytes;       // of a row of tiles
    int n, rows, tile_rows;
    struct Ahead {
        float value[PARTS];
    };
    VB_DEVICE int row_of(int item, int part, int row) const { return (item * PARTS + part) * packed_rows + row; }
    VB_DEVICE const uint8_t *tiles(int item, int part) const { // the last item may have one part: its other is not stored
        return w + smaller(item * PARTS + part, tile_rows - 1) * row_bytes;
    }
    VB_DEVICE void fetch(Ahead *ahead, int item, int token, int row) const {
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
            const int r = row_of(item, p, row);
            ahead->value[p] = r < rows ? (bias ? bias[r] : 0.0f) + (add ? add[(int64_t)token * rows + r] : 0.0f) : 0.0f;
        }
    }
    VB_DEVICE void fetch_more(Ahead *, int, int, int) const {}
    VB_DEVICE void store(const Ahead &ahead, int item, int token, int row, const float (&sums)[PARTS]) const {
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
            const int r = row_of(item, p, row);
            if (token < n && r < rows) y[(int64_t)token * rows + r] = sums[p] + ahead.value[p];
        }
    }
};

template <class Block, int TOKENS, int PARTS>
__global__ void __launch_bounds__(32 * PackedMemory<Block, TOKENS, PARTS>::most_warps, 1)
    linear_packed_kernel(PackedInput in, PackedRowsOut<PARTS> out) {
    packed_product<Block, TOKENS, PARTS>(in, out, blockIdx.x, gridDim.x);
}

template <class Block, int TOKENS, int PARTS>
vb_status product(const LinearArgs &a, const LinearExtra &extra, vb_stream *stream) {
    using P = Packed<Block>;
    const int64_t tile_rows = ceil_div<int64_t>(a.rows, P::rows);
    const PackedRowsOut<PARTS> out = {(const uint8_t *)a.w, a.y, a.bias, extra.add, a.cols / P::depth * P::tile_bytes, (int)a.n, (int)a.rows,
                                      (int)tile_rows};
    PackedInput in = {nullptr, (int)a.n, (int)(a.cols / P::depth), (int)ceil_div<int64_t>(tile_rows, PARTS), 0, extra.with_norm, extra.eps};
    PackedPlan plan;
    VB_TRY((plan_packed_product<Block, TOKENS, PARTS>(&plan, in.tiles, in.items, stream)));
    in.stages = plan.stages;
    uint8_t *x;
    VB_TRY(packed_activations(&x, a.x, extra.norm, extra.with_norm, a.n, a.cols, P::depth, TOKENS, stream));
    in.x = x;
    return launch_overlapped(stream, plan.blocks, 32 * plan.warps, plan.shared_bytes, linear_packed_kernel<Block, TOKENS, PARTS>, in, out);
}

template <class Block, int PARTS, int SPLIT>
__global__ void __launch_bounds__(32 * few_warps, 2) linear_few_kernel(FewInput in, PackedRowsOut<PARTS> out) {
    few_product<Block, PARTS, SPLIT>(in, out, blockIdx.x / SPLIT, gridDim.x / SPLIT);
}

// SPLIT blocks share the columns.
template <class Block, int PARTS, int SPLIT = 1>
vb_status few_rows(const LinearArgs &a, const LinearExtra &extra, vb_stream *stream) {
    using P = Packed<Block>;
    const int64_t tile_rows = ceil_div<int64_t>(a.rows, P::rows);
    const PackedRowsOut<PARTS> out = {(const uint8_t *)a.w, a.y, a.bias, extra.add, a.cols / P::depth * P::tile_bytes, (int)a.n, (int)a.rows,
                                      (int)tile_rows};
    FewInput in = {a.x, extra.norm, extra.with_norm, extra.eps, (int)a.n, (int)(a.cols / P::depth), (int)ceil_div<int64_t>(tile_rows, PARTS), 0, 0, 0};
    FewPlan plan;
    VB_TRY((plan_few_product<Block, PARTS, SPLIT>(&plan, &in, stream)));
    return launch_cluster(stream, SPLIT, plan.blocks, 32 * plan.warps, plan.shared_bytes, linear_few_kernel<Block, PARTS, SPLIT>, in, out);
}

template <class Block>
vb_status linear_few(const LinearArgs &a, const LinearExtra &extra, vb_stream *stream) {
    // Two rows of tiles share x where there are enough of them for all multiprocessors.
    if (a.rows >= 4 * packed_rows * (int64_t)multiprocessors(stream)) return few_rows<Block, 2>(a, extra, stream);
    // Of long rows each block of a cluster takes a half, and so loads and quantizes half of x.
    if (!extra.with_norm && capability(stream) >= 90 && a.cols / Packed<Block>::depth >= 32) {
        const vb_status status = few_rows<Block, 2, 2>(a, extra, stream);
        if (status != VB_UNSUPPORTED) return status;
    }
    return few_rows<Block, 1>(a, extra, stream);
}

template <class Block>
vb_status linear_packed_type(const LinearArgs &a, const LinearExtra &extra, vb_stream *stream) {
    const vb_status status = linear_few<Block>(a, extra, stream);
    if (status != VB_UNSUPPORTED) return status;
    return with_tokens(a.n, a.rows, stream, [&](auto tokens) {
        constexpr int most = decltype(tokens)::value;
        // Two rows of tiles share x where there are enough of them for all multiprocessors.
        if (a.rows >= 4 * packed_rows * (int64_t)multiprocessors(stream)) return product<Block, most, 2>(a, extra, stream);
        return product<Block, most, 1>(a, extra, stream);
    });
}

} // namespace

vb_status packed_activations(uint8_t **out, const float *x, const float *norm, bool with_norm, int64_t n, int64_t cols, int depth,
                             int tokens, vb_stream *stream) {
    const int tiles = (int)(cols / depth);
    const bool deep = depth == 256;
    void *scratch;
    VB_TRY(workspace(&scratch, (int64_t)tiles * tokens * (deep ? ActivationTile<256>::token_bytes : ActivationTile<128>::token_bytes), stream));
    *out = (uint8_t *)scratch;
    return launch_overlapped(stream, (unsigned)ceil_div<int64_t>(n * tiles, activation_warps), 32 * activation_warps, 0,
                             deep ? activations_kernel<256> : activations_kernel<128>, *out, x, norm, with_norm, (int)n, tiles, tokens);
}

vb_status linear_packed(const LinearArgs &a, const LinearExtra &extra, vb_dtype type, vb_stream *stream) {
    if (a.rows > INT32_MAX - 2 * packed_rows || a.cols > INT32_MAX) return VB_UNSUPPORTED;
    switch (type) {
#define X(type, Block) case type: return linear_packed_type<Block>(a, extra, stream);
        VB_PACKED_TYPES(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
}

} // namespace vb

extern "C" vb_status vb_cuda_weight_pack(void *out, const vb_weight *w, vb_stream *stream) {
    switch (w->type) {
#define X(type, Block) case type: return vb::pack<Block>(out, w, stream);
        VB_PACKED_TYPES(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
}

#else

namespace vb {
vb_status linear_packed(const LinearArgs &, const LinearExtra &, vb_dtype, vb_stream *) { return VB_UNSUPPORTED; }
} // namespace vb
extern "C" vb_status vb_cuda_weight_pack(void *, const vb_weight *, vb_stream *) { return VB_UNSUPPORTED; }

#endif
