// linear_prefill.cu: y[n][rows] = x[n][cols] W^T + bias for many rows of x, W in the packed layout, on 16-bit tensor cores, with
// the RMS norm before it and an addition or SwiGLU after it: linear, norm_linear, linear_add, norm_swiglu and the products of
// norm_qkv of a prompt.
//
// Weights go from global memory into registers, are dequantized there and are operand A at once (linear_prefill.cuh). x is
// operand B: converted once a call, into the stream's workspace, to F16, each row scaled by a power of two so that nothing
// overflows. Rounding x and W to 11 bits costs about 0.04 % of y. Between the products of a layer rows are F16 at once where that is possible
// (HalfRows).
//
//   unit     128 rows of W x TOKENS rows of x (64; on Hopper also 128, 176 and 256), or one of the splits of its columns
//   grid     a unit a block; on Hopper a block a multiprocessor, which takes a unit after the other: x of the next one is
//            fetched while results are stored. Where whole units would leave multiprocessors idle at the end, the last ones
//            are split, and the last block to come adds the sums of all, in the order of the columns. Where there are few
//            units in all, the blocks of a cluster share each, and add their sums by way of shared memory
//   threads  8 warps of 16 rows of W each; on Hopper four more, one of which fetches x and three prepare what scales the sums
//   shared   on Hopper a ring of 200 KiB of x and 18 KiB for results; before it 32 KiB of x, and then of sums to exchange
//   bound    tensor cores; for few tokens the dequantization (about 550 instructions a tile and warp)
//   measured on an H200 with the conversion of x, operands from memory: of 512 rows norm_swiglu of 2 x 11008 x 2048 Q4_K 79 us,
//            linear_add of 2048 x 11008 Q6_K 53, of 2048 x 2048 Q4_K 17; feed_forward of these sizes 122 and 425 us (651 TFLOP/s)
//            for 512 and 2048 rows

#include "arch/cluster.cuh"
#include "linear/linear.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear/packed/linear_prefill.cuh"
#include "linear/packed/linear_prefill_sm90.cuh"
#include "linear/packed/linear_step.cuh"

namespace vb {
namespace {

constexpr int stage_depth = 128;

// ---- x --------------------------------------------------------------------------------------------------------------------

// x in F16, [n][cols], the columns of each 16 in the order of position_of. One block a row. With NORM, of rms_norm(x): the row is
// multiplied by norm[cols] here, and its 1 / rms goes into inverse. The flags become 0 (half_flags of them, or null).
// HELD fours of a row stay in registers, where HELD is small those of the norm as well, read before the kernel before has ended.
template <bool NORM, int HELD>
__global__ void __launch_bounds__(256)
    convert_x_kernel(half *out, float *inverse, const float *x, const float *norm, float eps, int64_t cols, unsigned *flags) {
    __shared__ float2 parts[256 / 32];
    constexpr int step = 4 * 256;
    constexpr bool early = NORM && HELD <= 4;
    const int64_t first = 4 * threadIdx.x, rest = first + HELD * step; // whole warps: cols is a multiple of 128
    x += blockIdx.x * cols, out += blockIdx.x * cols;
    float4 v[HELD], weight[early ? HELD : 1];
    const auto weight_at = [&](int64_t k) { return *reinterpret_cast<const float4 *>(norm + k); };
    if (early)
#pragma unroll
        for (int h = 0; h < (early ? HELD : 0); h++)
            weight[h] = norm && first + h * step < cols ? weight_at(first + h * step) : make_float4(1, 1, 1, 1);
    wait_for_previous_kernel();
    release_next_kernel();
    if (flags && blockIdx.x == 0 && threadIdx.x < half_flags) flags[threadIdx.x] = 0;
    float squares = 0, most = 0;
    const auto read = [&](int64_t k) { return *reinterpret_cast<const float4 *>(x + k); };
    const auto multiply = [](float4 &of, const float4 &by) { of.x *= by.x, of.y *= by.y, of.z *= by.z, of.w *= by.w; };
    const auto weigh = [&](float4 &of, int64_t k) {
        if (NORM && norm) multiply(of, weight_at(k));
    };
    const auto square = [&](const float4 &of) {
        if (NORM) squares += of.x * of.x + of.y * of.y + of.z * of.z + of.w * of.w;
    };
    const auto compare = [&](const float4 &of) {
        most = Max::combine(Max::combine(most, Max::combine(fabsf(of.x), fabsf(of.y))), Max::combine(fabsf(of.z), fabsf(of.w)));
    };
#pragma unroll
    for (int h = 0; h < HELD; h++)
        if (first + h * step < cols) v[h] = read(first + h * step);
#pragma unroll
    for (int h = 0; h < HELD; h++)
        if (first + h * step < cols) {
            square(v[h]);
            if (early) multiply(v[h], weight[early ? h : 0]);
            else weigh(v[h], first + h * step);
            compare(v[h]);
        }
    for (int64_t k = rest; k < cols; k += step) {
        float4 u = read(k);
        square(u), weigh(u, k), compare(u);
    }
    most = warp_reduce<Max>(most), squares = warp_reduce<Sum>(squares);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = make_float2(most, squares);
    __syncthreads();
    most = squares = 0;
#pragma unroll
    for (const float2 &part : parts) most = Max::combine(most, part.x), squares += part.y;
    const float scale = power_of_two_scale(most);
    if (threadIdx.x == 0)
        inverse[blockIdx.x] = (NORM ? 1.0f / sqrtf(squares / (float)cols + eps) : 1.0f) / (scale * prefill_unit);
    const auto write = [&](const float4 &from, int64_t k) { write_halves(out + k / 16 * 16, from, scale); };
#pragma unroll
    for (int h = 0; h < HELD; h++)
        if (first + h * step < cols) write(v[h], first + h * step);
    for (int64_t k = rest; k < cols; k += step) {
        float4 u = read(k);
        weigh(u, k), write(u, k);
    }
}

// ---- before and after Hopper --------------------------------------------------------------------------------------------------

constexpr int mma_tokens = 64;

template <class Block, bool SWIGLU>
__global__ void __launch_bounds__(32 * prefill_warps)
    mma_kernel(const half *x, const __grid_constant__ Product product) {
#ifdef VB_HAS_MMA
    using P = Packed<Block>;
    constexpr int stage_halves = mma_tokens * stage_depth, chunks = stage_halves / 8 / (32 * prefill_warps);
    __shared__ __align__(16) half stage[2][stage_halves]; // [k / 8][token][k % 8]
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    constexpr int stages_a_tile = P::depth / stage_depth;
    const Unit unit = Unit::of(product, blockIdx.x, 0);
    const int k0 = unit.k0, k1 = unit.k1, k_tiles = product.k_tiles, tile_row = unit.rows * prefill_warps + warp;
    const uint8_t *tile = first_tile<Block, SWIGLU>(product, unit, warp);
    LaneTile<Block> next;
    if (k0 < k1) next.template load<true>(tile, lane);
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t token0 = (int64_t)unit.tokens * mma_tokens, cols = (int64_t)k_tiles * P::depth;
    const int count = (k1 - k0) * stages_a_tile;
    auto fetch = [&](int i) {
        if (i < count)
#pragma unroll
            for (int j = 0; j < chunks; j++) { // four neighbours of 8 rows a warp
                const int at = threadIdx.x + j * prefill_threads, k8 = at / 256 * 4 + at % 4, token = at / 4 % mma_tokens;
                const bool valid = token0 + token < product.n;
                copy_async(shared_address(&stage[i & 1][(k8 * mma_tokens + token) * 8]),
                           x + (valid ? token0 + token : 0) * cols + (k0 * stages_a_tile + i) * stage_depth + 8 * k8, valid);
            }
        copy_async_commit();
    };
    __shared__ __align__(8) float inverses[unit_groups][mma_tokens];
    float *const inverse = inverses[group_of_thread()];
    load_inverse<mma_tokens>(inverse, product, token0, 0, false, threadIdx.x % group_threads, group_threads);
    float c[mma_tokens / 2] = {};
    int i = 0;
    fetch(0);
    for (int k = k0; k < k1; k++) {
        PrefillTile<Block> work;
        work.unpack(next);
        tile += P::tile_bytes;
        if (k + 1 < k1) next.template load<true>(tile, lane);
#pragma unroll
        for (int part = 0; part < stages_a_tile; part++, i++) {
            fetch(i + 1);
            copy_async_wait<1>();
            __syncthreads();
#pragma unroll
            for (int j = 0; j < 8; j++) {
                uint32_t a[4];
                work.fragment(a, part * 8 + j);
                const half *b = &stage[i & 1][j * 16 * mma_tokens + g * 8 + 2 * t];
#pragma unroll
                for (int q = 0; q < mma_tokens / 8; q++)
                    mma_16x8x16(c + 4 * q, a, *reinterpret_cast<const uint32_t *>(b + q * 64),
                                *reinterpret_cast<const uint32_t *>(b + q * 64 + 8 * mma_tokens), half());
            }
            __syncthreads();
        }
    }
    group_sync();
    if (!add_splits<mma_tokens>(product, unit, c)) return;
    if constexpr (SWIGLU) store_swiglu<mma_tokens>(product, c, inverse, reinterpret_cast<float *>(stage), tile_row, token0);
    else store_sums<mma_tokens>(product, c, inverse, tile_row, g, token0);
#endif
}

// ---- launch -------------------------------------------------------------------------------------------------------------------

constexpr int64_t most_tokens = 4096; // in one go: bounds the workspace (two bytes an element of x)

// How a product is cut up: rows of x a unit; blocks at neighbouring rows of W; blocks that share the columns of a unit; whole units,
// and splits of each of the others.
struct PrefillPlan {
    int tokens, pair, cluster, row_blocks, token_blocks, whole, splits, multiprocessors;
    double time; // in units of 0.9 us

    // Multiprocessors that have work; all blocks of a cluster plan are there at once.
    int blocks() const {
        const int together = pair * larger(cluster, 1);
        return smaller(units(), multiprocessors / together) * together;
    }
    int units() const { return whole + (row_blocks * token_blocks - whole) * splits; }
    int64_t partial_bytes() const {
        return splits > 1 ? (int64_t)(row_blocks * token_blocks - whole) * pair * splits * prefill_rows * tokens * 4 : 0;
    }
};

// A unit of time is what 128 columns of 128 tokens take on an H200. Measured there as well: four and eight blocks at the columns
// of a unit, where they do not all run at once, cost a second wave.
PrefillPlan plan_prefill(int64_t n, int64_t rows, int64_t cols, int64_t k_tiles, bool swiglu, bool wide, int multiprocessors, int most_cluster = 4) {
    if (wide && n <= step_tokens) { // linear_step.cu
        const int blocks = (int)ceil_div<int64_t>(rows, prefill_rows);
        return {step_tokens, 1, step_cluster(rows, k_tiles, multiprocessors), blocks, 1, blocks, 1, multiprocessors, 1};
    }
    PrefillPlan best = {};
    const auto consider = [&](const PrefillPlan &plan) {
        if (best.time == 0 || plan.time < best.time) best = plan;
    };
    const struct {
        int tokens, pair;
        double columns, end; // what 128 columns cost, and the end of a unit
    } shapes[] = {{64, 1, 0.7, 3}, {128, 1, 1, 3}, {128, 2, 0.91, 3}, {176, 1, 1.25, 3}, {176, 2, 1.2, 3}, {256, 2, 1.67, 3.5}};
    for (const auto &shape : shapes) {
        const int tokens = shape.tokens, pair = shape.pair, places = multiprocessors / pair;
        if (!wide && tokens > 64) break;
        if (pair > most_cluster) continue;
        const int row_blocks = (int)ceil_div<int64_t>(rows, prefill_rows * pair), token_blocks = (int)ceil_div<int64_t>(n, tokens);
        const int blocks = row_blocks * token_blocks, rest = blocks % places;
        const double all = (double)cols / 128 * shape.columns, end = shape.end - swiglu;
        const auto share = [&](int splits) { return all * (double)ceil_div<int64_t>(k_tiles, splits) / k_tiles + end; };
        const int most_splits = wide && swiglu ? 1 : (int)smaller<int64_t>(8, k_tiles); // there both groups finish a unit together
        for (int splits = 1; splits <= most_splits; splits++) {
            if (splits > 1 && rest * pair * unit_groups > workspace_counters) break;
            const double add = splits == 1 ? 0 : tokens == 64 ? 2 + 0.25 * splits : splits == 2 ? 5 : (8 + 0.5 * splits) * tokens / 128;
            consider({tokens, pair, 0, row_blocks, token_blocks, splits > 1 ? blocks - rest : blocks, splits, multiprocessors,
                      blocks / places * (all + end) + ceil_div(rest * splits, places) * (share(splits) + add)});
        }
        for (int cluster = 1; wide && pair == 1 && !swiglu && cluster <= smaller<int64_t>(most_cluster, k_tiles); cluster *= 2)
            if (blocks <= smaller(clusters_at_once(cluster, multiprocessors), places / cluster))
                consider({tokens, 1, cluster, row_blocks, token_blocks, blocks, 1, multiprocessors, share(cluster) + cluster / 2 - 1});
    }
    return best;
}

// x of a call: where it lies, in F16, in the stream's workspace or where another kernel left it, and room for the sums of splits.
struct PrefillX {
    const half *x;
    float *inverse, *partial;
    int64_t n, cols;
    HalfRows rows; // these where inverse is null
    float eps;
};

// Columns of a tile, 0 for a type that is not packed.
int depth_of(vb_dtype type) {
    switch (type) {
#define X(type, Block) case type: return Packed<Block>::depth;
        VB_PACKED_TYPES(X)
#undef X
    default: return 0;
    }
}

// Rows of W with those that fill its last tiles up.
int64_t rows_of_tiles(int64_t rows) { return ceil_div<int64_t>(rows, packed_rows) * packed_rows; }

PrefillPlan plan_of(vb_dtype type, int64_t n, int64_t rows, int64_t cols, vb_stream *stream) {
    return plan_prefill(n, rows_of_tiles(rows), cols, cols / depth_of(type), false, has_wgmma(stream), multiprocessors(stream));
}

vb_status convert_x(PrefillX *to, const float *x, const LinearExtra &extra, int64_t n, int64_t cols, int64_t partial, vb_stream *stream,
                    unsigned *flags = nullptr) {
    const int64_t x_bytes = n * cols * (int64_t)sizeof(half), scale_bytes = ceil_div<int64_t>(n, 64) * 256;
    void *scratch;
    VB_TRY(workspace(&scratch, x_bytes + scale_bytes + partial, stream));
    half *const converted = (half *)scratch;
    float *inverse = (float *)((char *)scratch + x_bytes);
    *to = {converted, inverse, inverse + scale_bytes / 4, n, cols, {}, 0};
    const auto kernel = cols <= 4096 ? (extra.with_norm ? convert_x_kernel<true, 4> : convert_x_kernel<false, 4>)
                                     : (extra.with_norm ? convert_x_kernel<true, 12> : convert_x_kernel<false, 12>);
    return launch_overlapped(stream, (unsigned)n, 256, 0, kernel, converted, inverse, x, extra.norm, extra.eps, cols, flags);
}

// The same for x that is in F16 already.
vb_status take_x(PrefillX *to, const half *x, int64_t n, int64_t cols, int64_t partial, vb_stream *stream) {
    void *scratch;
    VB_TRY(workspace(&scratch, partial, stream));
    *to = {x, nullptr, (float *)scratch, n, cols, {}, 0};
    return VB_OK;
}

// The same for rows that another product wrote.
vb_status take_rows(PrefillX *to, const HalfRows &rows, float eps, int64_t n, int64_t cols, int64_t partial, vb_stream *stream) {
    VB_TRY(take_x(to, rows.x, n, cols, partial, stream));
    to->rows = rows, to->eps = eps;
    return VB_OK;
}

// Rows that products pass on, in memory for as many floats: n > packed_batch_hopper.
HalfRows half_rows(float *memory, int64_t n, int64_t cols, unsigned *uneven, bool squares) {
    half *const x = (half *)memory;
    float *const sums = (float *)(x + n * cols);
    return {x, (uint8_t *)(sums + (squares ? cols / prefill_rows * half_stride(n) : 0)), uneven, squares ? sums : nullptr};
}
HalfRows normed_rows(float *memory, int64_t n, int64_t cols, HalfFlag flag) {
    return cols % prefill_rows == 0 ? half_rows(memory, n, cols, first_half_flag(memory, n, cols) + flag, true) : HalfRows();
}

Matrix matrix_of(const vb_weight &w, float *y, const float *bias, void *cache = nullptr, bool rotated = false) {
    return {(const uint8_t *)w.data, y, bias, w.rows, (int)(rows_of_tiles(w.rows) / packed_rows), cache, rotated};
}

// The products of x with up to three matrices of one type; `beside` the kernel before it where that waited for x, and this one needs
// no sums of splits.
template <class Block, bool SWIGLU>
vb_status multiply(const PrefillX &x, Product product, const PrefillPlan &plan, vb_stream *stream, bool beside) {
    using P = Packed<Block>;
    for (const Matrix &m : product.matrices) product.tile_rows += m.tile_rows;
    product.inverse = x.inverse, product.from = x.rows, product.eps = x.eps, product.partial = x.partial, product.arrived = counters(stream), product.n = x.n;
    product.k_tiles = (int)(x.cols / P::depth), product.token_blocks = plan.token_blocks, product.whole = plan.whole;
    product.splits = plan.splits, product.units = plan.units(), product.cluster = plan.cluster, product.pair = plan.pair;
    product.beside = beside && plan.splits == 1;
    if (!has_wgmma(stream)) return launch_overlapped(stream, product.units, prefill_threads, 0, mma_kernel<Block, SWIGLU>, x.x, product);
#ifdef VB_WITH_SM90
    if (x.n <= step_tokens) return step_product<Block, SWIGLU>(x.x, x.cols, product, stream);
    CUtensorMap map;
    const int cluster = plan.pair * larger(plan.cluster, 1);
    product.same_tokens = plan.splits == 1 && plan.blocks() / cluster % plan.token_blocks == 0;
    VB_TRY(sm90::tensor_map(&map, x.x, VB_F16, x.cols, x.n, x.cols, plan.tokens / plan.pair, stream));
    const auto run = [&](int shared, auto kernel) { return launch_cluster(stream, cluster, (unsigned)plan.blocks(), wgmma_threads, shared, kernel, map, product); };
    return plan.tokens == 64    ? run(WgmmaShape<64>::shared, wgmma_kernel<Block, 64, SWIGLU>)
           : plan.tokens == 128 ? run(WgmmaShape<128>::shared, wgmma_kernel<Block, 128, SWIGLU>)
           : plan.tokens == 176 ? run(WgmmaShape<176>::shared, wgmma_kernel<Block, 176, SWIGLU>)
                                : run(WgmmaShape<256>::shared, wgmma_kernel<Block, 256, SWIGLU>);
#else
    return VB_UNSUPPORTED;
#endif
}

template <bool SWIGLU = false>
vb_status multiply(vb_dtype type, const PrefillX &x, const Product &product, const PrefillPlan &plan, vb_stream *stream, bool beside = false) {
    switch (type) {
#define X(type, Block) case type: return multiply<Block, SWIGLU>(x, product, plan, stream, beside);
        VB_PACKED_TYPES(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
}

// Has a product of n rows also leave what the next one multiplies, where its blocks have whole rows of results, and says whether.
void prepare(Product *product, const NextNorm &next, HalfFlag flag, int64_t n, const PrefillPlan &plan) {
    if (!next.norm || !next.prepared || plan.cluster == 0) return;
    product->to = normed_rows(next.normed, n, product->matrices[0].rows, flag), product->to_norm = next.norm;
    *next.prepared = product->to.x != nullptr;
}

// Gate and up as one product, to y of the first, or to `to` where it has memory; of x, or of `from` where it has memory.
vb_status prefill_swiglu(float *y, const HalfRows &to, const float *x, const HalfRows &from, const LinearExtra &norm, unsigned *flags,
                         const vb_weight &gate, const vb_weight &up, int64_t n, vb_stream *stream) {
    const int depth = depth_of(gate.type);
    if (n > most_tokens || depth == 0) return VB_UNSUPPORTED;
    const PrefillPlan plan =
        plan_prefill(n, 2 * rows_of_tiles(gate.rows), gate.cols, gate.cols / depth, true, has_wgmma(stream), multiprocessors(stream));
    PrefillX input;
    if (from.x) VB_TRY(take_rows(&input, from, norm.eps, n, gate.cols, plan.partial_bytes(), stream));
    else VB_TRY(convert_x(&input, x, norm, n, gate.cols, plan.partial_bytes(), stream, flags));
    Product product = {{matrix_of(gate, y, nullptr), matrix_of(up, y, nullptr)}};
    product.to = to;
    return multiply<true>(gate.type, input, product, plan, stream);
}

vb_status prefill_down(const vb_feed_forward_args &a, const HalfRows &h, vb_stream *stream) {
    const vb_weight &w = a.down;
    if (depth_of(w.type) == 0) return VB_UNSUPPORTED;
    const PrefillPlan plan = plan_of(w.type, a.n, w.rows, w.cols, stream);
    PrefillX x;
    VB_TRY(take_rows(&x, h, 0, a.n, w.cols, plan.partial_bytes(), stream));
    Product product = {{matrix_of(w, a.sum, nullptr)}};
    product.add = a.x;
    prepare(&product, {a.next_norm, a.normed, a.next_prepared}, layer_flag, a.n, plan);
    return multiply(w.type, x, product, plan, stream);
}

// Whether a product may rotate the heads and write the cache (linear_prefill_heads.cuh).
bool places_heads(const vb_norm_qkv_args &a) {
    return !a.q_norm && 2 * a.half == a.dim && (a.dim == 64 || a.dim == 128) && (a.kv_type == VB_F16 || a.kv_type == VB_F32) && a.table_rows > 0 &&
           a.table_rows <= INT32_MAX && aligned16(a.q, a.cos, a.sin) && aligned16((const char *)a.k, (const char *)a.v);
}

// How the rows of q and k, and of v where it is of another type, are cut up: one after the other, each on all multiprocessors, or, where
// that is faster, at the same time, each on its part of them. Clusters of the second find room where those of the first are no
// smaller: blocks without clusters leave every other multiprocessor of many pairs.
struct QKVPlan {
    PrefillPlan qk, v;
};

QKVPlan plan_qkv(const vb_norm_qkv_args &a, int64_t qk_rows, int64_t v_rows, vb_stream *stream) {
    const int64_t n = a.batch * a.seq;
    const int all = multiprocessors(stream);
    const bool wide = has_wgmma(stream);
    const auto plan = [&](const vb_weight &w, int64_t rows, int on, int most_cluster) {
        return plan_prefill(n, rows, w.cols, w.cols / depth_of(w.type), false, wide, on, most_cluster);
    };
    QKVPlan best = {plan(a.wq, qk_rows, all, 4), {}};
    if (v_rows == 0) return best;
    best.v = plan(a.wv, v_rows, all, 4);
    constexpr double later = 2; // v begins
    double least = best.qk.time + best.v.time;
    for (int on = all - 8; wide && on >= all / 2; on -= 8) {
        const PrefillPlan qk = plan(a.wq, qk_rows, on, 4);
        const QKVPlan both = {qk, plan(a.wv, v_rows, all - qk.blocks(), qk.pair * larger(qk.cluster, 1))};
        const double time = larger(both.qk.time, both.v.time + later);
        if (both.v.splits == 1 && time < least) best = both, least = time;
    }
    return best;
}

// Queries, keys and values, which the products rotate and write to the cache, or leave in a.q, a.k_new and a.v_new: *placed says which.
vb_status prefill_qkv(const vb_norm_qkv_args &a, bool *placed, vb_stream *stream) {
    const int64_t n = a.batch * a.seq, cols = a.wq.cols;
    const auto rows_of = [](const vb_weight &w) { return rows_of_tiles(w.rows); };
    const bool same = a.wv.type == a.wq.type;
    const QKVPlan plan = plan_qkv(a, rows_of(a.wq) + rows_of(a.wk) + (same ? rows_of(a.wv) : 0), same ? 0 : rows_of(a.wv), stream);
    const bool place = n > step_tokens && plan.qk.cluster > 0 && (same || plan.v.cluster > 0) && places_heads(a);
    *placed = place;
    const auto matrix = [&](const vb_weight &w, float *y, const float *bias, void *cache, bool rotated) {
        return matrix_of(w, y, bias, place ? cache : nullptr, place && rotated);
    };
    Product product = {{matrix(a.wq, a.q, a.bq, nullptr, true), matrix(a.wk, a.k_new, a.bk, a.k, true)}};
    Product values = {{matrix(a.wv, a.v_new, a.bv, a.v, false)}};
    if (place)
        product.heads = {a.cos, a.sin, a.positions, a.sequences, a.capacity, (int)a.seq, (int)a.kv_heads, (int)a.table_rows, (int)a.half,
                         a.mode == VB_ROPE_NEOX, a.kv_type == VB_F16};
    values.heads = product.heads;
    if (same) product.matrices[2] = values.matrices[0];
    const int64_t partial = larger(plan.qk.partial_bytes(), plan.v.partial_bytes());
    PrefillX x;
    if (a.prepared) VB_TRY(take_rows(&x, normed_rows(a.normed, n, cols, layer_flag), a.eps, n, cols, partial, stream));
    else VB_TRY(convert_x(&x, a.x, {true, a.norm, a.eps, nullptr}, n, cols, partial, stream));
    VB_TRY(multiply(a.wq.type, x, product, plan.qk, stream));
    return same ? VB_OK : multiply(a.wv.type, x, values, plan.v, stream, true);
}

} // namespace

bool has_wgmma(vb_stream *stream) {
#ifdef VB_WITH_SM90
    return device_of(stream->device)->binary == 90 && capability(stream) == 90;
#else
    (void)stream;
    return false;
#endif
}

vb_status linear_prefill(const LinearArgs &a, const LinearExtra &extra, vb_dtype type, vb_stream *stream) {
    return linear_prefill_operand(a, nullptr, extra, {}, type, stream);
}

vb_status linear_prefill_operand(const LinearArgs &a, const half *x, const LinearExtra &extra, const NextNorm &next, vb_dtype type,
                                 vb_stream *stream) {
    if (depth_of(type) == 0) return VB_UNSUPPORTED;
    const vb_weight w = {a.w, type, VB_PACKED, a.rows, a.cols};
    for (int64_t first = 0; first < a.n; first += most_tokens) {
        const int64_t n = smaller(most_tokens, a.n - first);
        const PrefillPlan plan = plan_of(type, n, a.rows, a.cols, stream);
        PrefillX input;
        VB_TRY(x ? take_x(&input, x + first * a.cols, n, a.cols, plan.partial_bytes(), stream)
                 : convert_x(&input, a.x + first * a.cols, extra, n, a.cols, plan.partial_bytes(), stream));
        Product product = {{matrix_of(w, a.y + first * a.rows, a.bias)}};
        product.add = extra.add ? extra.add + first * a.rows : nullptr;
        if (n == a.n) prepare(&product, next, attended_flag, n, plan);
        VB_TRY(multiply(type, input, product, plan, stream));
    }
    return VB_OK;
}

vb_status prefill_norm_qkv(const vb_norm_qkv_args &a, bool *placed, vb_stream *stream) {
    if (a.batch * a.seq > most_tokens || a.wk.type != a.wq.type || depth_of(a.wq.type) == 0 || depth_of(a.wv.type) == 0) return VB_UNSUPPORTED;
    return prefill_qkv(a, placed, stream);
}

vb_status prefill_norm_swiglu(float *out, const float *x, const LinearExtra &norm, const vb_weight &gate, const vb_weight &up, int64_t n,
                              vb_stream *stream) {
    return prefill_swiglu(out, {}, x, {}, norm, nullptr, gate, up, n, stream);
}

vb_status prefill_feed_forward(const vb_feed_forward_args &a, vb_stream *stream) {
    if (!has_wgmma(stream) || a.gate.rows % half_group != 0) return VB_UNSUPPORTED;
    unsigned *const flags = first_half_flag(a.normed, a.n, a.gate.cols);
    const HalfRows h = half_rows(a.gated, a.n, a.gate.rows, flags + gated_flag, false);
    const HalfRows x = a.prepared ? normed_rows(a.normed, a.n, a.gate.cols, attended_flag) : HalfRows();
    VB_TRY(prefill_swiglu(nullptr, h, a.x, x, {true, a.norm, a.eps, nullptr}, flags, a.gate, a.up, a.n, stream));
    return prefill_down(a, h, stream);
}

} // namespace vb

#else

namespace vb {
bool has_wgmma(vb_stream *) { return false; }
vb_status linear_prefill(const LinearArgs &, const LinearExtra &, vb_dtype, vb_stream *) { return VB_UNSUPPORTED; }
vb_status linear_prefill_operand(const LinearArgs &, const half *, const LinearExtra &, const NextNorm &, vb_dtype, vb_stream *) { return VB_UNSUPPORTED; }
} // namespace vb

#endif
