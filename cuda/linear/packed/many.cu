// many.cu: y[n][rows] = x[n][cols] W^T + bias for many rows of x, W in the packed layout, on 16-bit tensor cores, with
// the RMS norm before it and an addition or SwiGLU after it: all operations of a prompt.
//
// Weights go from global memory into registers, and are dequantized there to operand A (many.cuh). x is operand B: F16,
// each row scaled by a power of two, converted once a call or left so by the kernel before (HalfRows).
// Rounding costs about 0.04 % of y.
//
//   unit     128 rows of W x TOKENS rows of x (64; on Hopper also 128, 176 and 256), or a share of its columns
//   grid     a unit a block; on Hopper a block a multiprocessor, which takes units in turn. Shares and clusters divide
//            the columns of few units; sums meet in shared memory, or the last block adds them
//   threads  many_mma.cuh; on Hopper 8 warps of 16 rows of W, one that fetches x, three that prepare scales
//   shared   many_mma.cuh; on Hopper a ring of 200 KiB of x and 18 KiB for results
//   bound    tensor cores; for few tokens the dequantization (about 550 instructions a tile and warp)
//   measured docs/experiments/2026-11-22-packed-many.md

#include "arch/cluster.cuh"
#include "collective/choose.h"
#include "linear/linear.cuh"
#include "runtime/early.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear/packed/half_rows.cuh"
#include "linear/packed/many.cuh"
#include "linear/packed/many_mma.cuh"
#include "linear/packed/many_sm90.cuh"
#include "linear/packed/n32_sm90.cuh"

namespace vb {
namespace {

// ---- x --------------------------------------------------------------------------------------------------------------

// x in F16, [n][stride], zeros from cols on, the columns of each 16 in the order of position_of. One block a row.
// NORM: rms_norm(x). The row is multiplied by norm[cols] here, and its 1 / rms goes into inverse.
// The flags become 0 (half_flags of them, or null). HELD fours of a row stay in registers.
// Where HELD is small, the fours of the norm stay too, and are read before the kernel before has ended.
template <bool NORM, int HELD>
__global__ void __launch_bounds__(256) convert_x_kernel(half *out, float *inverse, const float *x, const float *norm,
                                                        float eps, int64_t cols, int64_t stride, unsigned *flags) {
    __shared__ float2 parts[256 / 32];
    constexpr int step = 4 * 256;
    constexpr bool early = NORM && HELD <= 4;
    const int64_t first = 4 * threadIdx.x, rest = first + HELD * step; // stride is a multiple of 128: whole warps
    x += blockIdx.x * cols, out += blockIdx.x * stride;
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
        most = Max::combine(Max::combine(most, Max::combine(fabsf(of.x), fabsf(of.y))),
                            Max::combine(fabsf(of.z), fabsf(of.w)));
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
        inverse[blockIdx.x] = (NORM ? 1.0f / sqrtf(squares / (float)cols + eps) : 1.0f) / (scale * half_unit);
    const auto write = [&](const float4 &from, int64_t k) { write_halves(out + k / 16 * 16, from, scale); };
#pragma unroll
    for (int h = 0; h < HELD; h++)
        if (first + h * step < stride)
            write(first + h * step < cols ? v[h] : make_float4(0, 0, 0, 0), first + h * step);
    for (int64_t k = rest; k < stride; k += step) {
        float4 u = make_float4(0, 0, 0, 0);
        if (k < cols) u = read(k), weigh(u, k);
        write(u, k);
    }
}

// ---- launch ---------------------------------------------------------------------------------------------------------

// The x of a call in F16, in the stream's workspace or where another kernel left it, and room for the sums of shares.
struct ManyX {
    const half *x;
    float *inverse, *partial;
    int64_t n, cols;
    HalfRows rows; // these where inverse is null
    float eps;
    unsigned *arrived = nullptr; // counters of shared units; null for the stream's first
};

vb_status convert_x(ManyX *to, const float *x, const LinearExtra &extra, int64_t n, int64_t cols, int64_t partial,
                    vb_stream *stream, unsigned *flags = nullptr) {
    const int64_t stride = ceil_div<int64_t>(cols, unit_rows) * unit_rows;
    const int64_t x_bytes = n * stride * (int64_t)sizeof(half), scale_bytes = ceil_div<int64_t>(n, 64) * 256;
    void *scratch;
    VB_TRY(workspace(&scratch, x_bytes + scale_bytes + partial, stream));
    half *const converted = (half *)scratch;
    float *inverse = (float *)((char *)scratch + x_bytes);
    *to = {converted, inverse, inverse + scale_bytes / 4, n, stride, {}, 0};
    const auto kernel = cols <= 4096 ? (extra.with_norm ? convert_x_kernel<true, 4> : convert_x_kernel<false, 4>)
                                     : (extra.with_norm ? convert_x_kernel<true, 12> : convert_x_kernel<false, 12>);
    return launch_overlapped(stream, (unsigned)n, 256, 0, kernel, converted, inverse, x, extra.norm, extra.eps, cols,
                             stride, flags);
}

// The same for x that is in F16 already.
vb_status take_x(ManyX *to, const half *x, int64_t n, int64_t cols, int64_t partial, vb_stream *stream) {
    void *scratch;
    VB_TRY(workspace(&scratch, partial, stream));
    *to = {x, nullptr, (float *)scratch, n, cols, {}, 0};
    return VB_OK;
}

// The same for rows that another product wrote.
vb_status take_rows(ManyX *to, const HalfRows &rows, float eps, int64_t n, int64_t cols, int64_t partial,
                    vb_stream *stream) {
    VB_TRY(take_x(to, rows.x, n, cols, partial, stream));
    to->rows = rows, to->eps = eps;
    return VB_OK;
}

Matrix matrix_of(const vb_weight &w, float *y, const float *bias, void *cache = nullptr, bool rotated = false) {
    return {(const uint8_t *)w.data, y, bias, w.rows, (int)(linear_tile_rows(w.rows)), nullptr, 0, cache, rotated};
}

// Room behind the sums of shares for an adapter's (x V) * codes.
int64_t with_projected(int64_t partial, const Adapter &a, int64_t n) { return partial + projected_bytes(a, n); }

// Lets a product, of `count` matrices from `first` of the adapter's on, add the adapter's update. `partial` is the
// first argument of with_projected.
void take_update(Product *product, const Adapter &a, int first, int count, const ManyX &x, int64_t partial) {
    if (!projected_bytes(a, x.n)) return;
    product->h = x.partial + partial / 4, product->groups = a.ranks / 8;
    for (int m = 0; m < count; m++)
        product->matrices[m].u = a.of[first + m].u, product->matrices[m].first_group = (first + m) * product->groups;
}

// Multiplies x by the V of an adapter, all of them.
vb_status project(const Adapter &a, const ManyX &x, int64_t v_cols, int64_t partial, vb_stream *stream) {
    if (!projected_bytes(a, x.n)) return VB_OK;
    return packed_project(x.partial + partial / 4, a, x.x, x.n, x.cols, v_cols,
                          x.inverse ? nullptr : x.rows.uneven, x.rows.exponents, stream);
}

// Prepares the description of a product's units; returns their number.
template <class Block>
int set_units(Product *product, const ManyX &x, const linear_units &units, vb_stream *stream) {
    static_assert(unit_rows == LINEAR_UNIT_ROWS && half_group == LINEAR_HALF_GROUP &&
                      LINEAR_SHARED_UNITS * unit_groups == workspace_counters,
                  "what the chooser plans with");
    for (const Matrix &m : product->matrices) product->tile_rows += m.tile_rows;
    product->inverse = x.inverse, product->from = x.rows, product->eps = x.eps, product->partial = x.partial,
    product->arrived = x.arrived ? x.arrived : counters(stream), product->n = x.n;
    product->cols = (int)x.cols, product->k_tiles = (int)Packed<Block>::tiles_of(x.cols);
    product->token_blocks = Quotient(units.token_blocks), product->ksplit = Quotient(larger(units.ksplit, 1));
    product->whole = units.whole, product->spread = units.spread;
    product->cluster = units.cluster, product->pair = units.pair;
    product->shares = Quotient(larger(units.cluster, 1));
    return product->units = (int)linear_unit_count(&units);
}

// Counters that the shared units of a product take.
int shared_counters(const linear_units &units) {
    return (units.row_blocks * units.token_blocks - units.whole) * units.pair * unit_groups;
}

// The work of the kernel before a product: it makes x, an adapter's h = (x V) * codes, or nothing.
enum Before { makes_x, makes_h, makes_nothing };

#ifdef VB_WITH_SM90
// Has a product whose sum over ranks may follow begin with the columns of other ranks, and count them.
EarlyProduct begin_early(const Product &product, const linear_units &units, vb_stream *stream) {
    EarlyProduct begun = {product};
    const Matrix &m = product.matrices[0];
    const int64_t n = product.n;
    const bool rounds = units.row_blocks * units.token_blocks > units.multiprocessors / units.pair;
    if (!rounds || units.ksplit > 1 || units.cluster > 0 || product.beside || product.add || product.to.x ||
        product.heads.positions || product.matrices[1].w ||
        choose_sum_of_columns(n * m.rows, m.rows, true) == COLLECTIVE_NONE)
        return begun;
    EarlyResults *const early = early_results(stream);
    if (!early) return begun;
    const ColumnGroups own((int)(m.rows / unit_rows), early->rank, early->ranks);
    const int first = ceil_div(own.first, units.pair), end = (own.first + own.count) / units.pair;
    if (first >= end) return begun;
    begun.first_rows = end % units.row_blocks * units.pair, begun.all_rows = units.row_blocks * units.pair;
    begun.done = early->done, begun.early = (units.row_blocks - (end - first)) * units.token_blocks;
    early->expected += (unsigned)(begun.early * units.pair * unit_groups);
    early->y = m.y, early->n = n, early->cols = m.rows, early->product = early->enqueued + 1;
    return begun;
}

// Has the product that is a rank's part of a sum send it to all ranks, where the sum takes it from them.
void send_part(EarlyProduct *product, const linear_units &units, vb_stream *stream) {
    SentResults &sent = sent_results(stream);
    if (!product->part || !sent.mail) return;
    const Matrix &m = product->matrices[0];
    const int64_t n = product->n * m.rows;
    *sent.abandoned |= sent.y != nullptr;
    sent.y = nullptr;
    if (*sent.abandoned || product->beside || units.cluster == 0 || m.rows % unit_rows != 0 ||
        choose_sum_of_columns(n, m.rows, true) != COLLECTIVE_NONE ||
        choose_all_reduce(n, true) != COLLECTIVE_REDUCE_ROUNDED || n / 8 > mail_rounded_words(sent.mail->ranks))
        return;
    product->mail = *sent.mail, sent.y = m.y, sent.n = n;
}

template <class Block, bool SWIGLU>
vb_status wgmma_product(const ManyX &x, Product product, const linear_units &units, vb_stream *stream) {
    CUtensorMap map;
    const int cluster = units.pair * larger(units.cluster, 1), blocks = linear_unit_blocks(&units);
    product.same_tokens = units.ksplit == 1 && blocks / cluster % units.token_blocks == 0;
    VB_TRY(sm90::tensor_map(&map, x.x, VB_F16, x.cols, x.n, x.cols, units.tokens / units.pair, stream));
    const auto run = [&](int shared, auto kernel) {
        EarlyProduct begun = SWIGLU ? EarlyProduct{product} : begin_early(product, units, stream);
        if (!SWIGLU) send_part(&begun, units, stream);
        return launch_cluster(stream, cluster, (unsigned)blocks, wgmma_threads, shared, kernel, map, begun);
    };
    return units.tokens == 64    ? run(WgmmaShape<64>::shared, wgmma_kernel<Block, 64, SWIGLU>)
           : units.tokens == 128 ? run(WgmmaShape<128>::shared, wgmma_kernel<Block, 128, SWIGLU>)
           : units.tokens == 176 ? run(WgmmaShape<176>::shared, wgmma_kernel<Block, 176, SWIGLU>)
                                 : run(WgmmaShape<256>::shared, wgmma_kernel<Block, 256, SWIGLU>);
}
#endif

// The products of x with up to three matrices of one type. A product runs beside the kernel before, unless that kernel
// makes x, or may use the same memory for sums of shares. Beside a kernel that makes h it waits for h late.
template <class Block, bool SWIGLU>
vb_status multiply(const ManyX &x, Product product, const linear_units &units, vb_stream *stream, Before before) {
    set_units<Block>(&product, x, units, stream);
    const bool shares = units.ksplit > 1 || units.spread;
    product.beside = before != makes_x && (!shares || x.arrived);
    product.late = product.beside && before == makes_h, product.gated = SWIGLU;
#ifdef VB_WITH_SM90
    if (units.kernel == LINEAR_PACKED_N32_SM90)
        return n32_sm90_product<Block>(x.x, x.cols, product, units.tokens, stream);
    if (units.kernel == LINEAR_PACKED_MANY_SM90) return wgmma_product<Block, SWIGLU>(x, product, units, stream);
#endif
    const auto run = [&](auto shape, auto kernel) {
        using S = decltype(shape);
        return launch_overlapped(stream, product.units, S::threads, S::shared, kernel, x.x, product);
    };
    constexpr int tokens = LINEAR_MANY_TOKENS;
    return units.token_blocks > 1 ? run(MmaShape<Block, tokens, 2>(), mma_kernel<Block, tokens, 2, SWIGLU>)
                                  : run(MmaShape<Block, tokens, 1>(), mma_kernel<Block, tokens, 1, SWIGLU>);
}

// Two products of x in one launch before Hopper, whose units have as many rows of x.
template <class A, class B>
vb_status multiply_two(const ManyX &x, Product first, const linear_units &of_first, Product second,
                       const linear_units &of_second, vb_stream *stream) {
    const int units = set_units<A>(&first, x, of_first, stream) + set_units<B>(&second, x, of_second, stream);
    second.partial += linear_partial_bytes(&of_first) / (int64_t)sizeof(float);
    second.arrived += shared_counters(of_first);
    const auto run = [&](auto of_a, auto of_b, auto kernel) {
        using S = decltype(of_a);
        return launch_overlapped(stream, units, S::threads, larger(S::shared, decltype(of_b)::shared), kernel, x.x,
                                 first, second);
    };
    constexpr int tokens = LINEAR_MANY_TOKENS;
    return of_first.token_blocks > 1
               ? run(MmaShape<A, tokens, 2>(), MmaShape<B, tokens, 2>(), mma_two_kernel<A, B, tokens, 2>)
               : run(MmaShape<A, tokens, 1>(), MmaShape<B, tokens, 1>(), mma_two_kernel<A, B, tokens, 1>);
}

template <bool SWIGLU = false>
vb_status multiply(vb_dtype type, const ManyX &x, const Product &product, const linear_units &units, vb_stream *stream,
                   Before before = makes_x) {
    switch (type) {
#define X(type, Block, ...) case type: return multiply<Block, SWIGLU>(x, product, units, stream, before);
        VB_PACKED_TYPES(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
}

// Lets a product of n rows also leave the operand of the next product, where its blocks, or groups before Hopper, have
// all 128 rows of a unit.
// Returns whether it does.
void prepare(Product *product, const NextNorm &next, HalfFlag flag, int64_t n, const linear_units &units) {
    const bool whole_rows = units.kernel == LINEAR_PACKED_MANY ? n > LINEAR_FEW_UNITS : units.cluster > 0;
    if (!next.norm || !next.prepared || !whole_rows) return;
    product->to = normed_rows(next.normed, n, product->matrices[0].rows, flag), product->to_norm = next.norm;
    *next.prepared = product->to.x != nullptr;
}

// Gate and up as one product. Its y is the first matrix's, or `to` where it has memory; its x is x, or `from` where it
// has memory.
vb_status many_swiglu(const SwiGLUArgs &a, const HalfRows &to, const HalfRows &from, unsigned *flags,
                      const linear_units &units, vb_stream *stream) {
    const int64_t partial = linear_partial_bytes(&units), room = with_projected(partial, a.adapter, a.n);
    ManyX input;
    if (from.x) VB_TRY(take_rows(&input, from, a.eps, a.n, a.gate.cols, room, stream));
    else VB_TRY(convert_x(&input, a.x, {true, a.norm, a.eps, nullptr}, a.n, a.gate.cols, room, stream, flags));
    VB_TRY(project(a.adapter, input, a.gate.cols, partial, stream));
    Product product = {{matrix_of(a.gate, a.out, nullptr), matrix_of(a.up, a.out, nullptr)}};
    product.to = to;
    take_update(&product, a.adapter, 0, 2, input, partial);
    return multiply<true>(a.gate.type, input, product, units, stream, product.h ? makes_h : makes_x);
}

vb_status many_down(const vb_feed_forward_args &a, const HalfRows &h, const linear_units &units, vb_stream *stream) {
    const Adapter adapter = adapter_of_down(a);
    const int64_t partial = linear_partial_bytes(&units);
    ManyX x;
    VB_TRY(take_rows(&x, h, 0, a.n, a.down.cols, with_projected(partial, adapter, a.n), stream));
    VB_TRY(project(adapter, x, a.down.cols, partial, stream));
    Product product = {{matrix_of(a.down, a.sum, nullptr)}};
    product.add = a.x, product.part = !a.x && a.next_norm;
    take_update(&product, adapter, 0, 1, x, partial);
    if (a.x) prepare(&product, {a.next_norm, a.normed, a.next_prepared}, layer_flag, a.n, units);
    return multiply(a.down.type, x, product, units, stream, product.h ? makes_h : makes_x);
}

} // namespace

vb_status packed_many(const LinearArgs &a, const half *x, const LinearExtra &extra, const NextNorm &next, vb_dtype type,
                      vb_stream *stream) {
    const vb_gpu gpu = gpu_of(stream);
    const vb_weight w = {a.w, type, VB_PACKED, a.rows, a.cols};
    for (int64_t first = 0; first < a.n; first += LINEAR_MOST_TOKENS) {
        const int64_t n = smaller<int64_t>(LINEAR_MOST_TOKENS, a.n - first);
        const linear_units units = linear_units_of(&gpu, type, n, a.rows, a.cols);
        const int64_t partial = linear_partial_bytes(&units);
        Adapter adapter = extra.adapter;
        if (adapter.codes) adapter.codes += first * adapter.codes_stride;
        const int64_t room = with_projected(partial, adapter, n);
        ManyX input;
        VB_TRY(x ? take_x(&input, x + first * a.cols, n, a.cols, room, stream)
                 : convert_x(&input, a.x + first * a.cols, extra, n, a.cols, room, stream));
        VB_TRY(project(adapter, input, a.cols, partial, stream));
        Product product = {{matrix_of(w, a.y + first * a.rows, a.bias)}};
        product.add = extra.add ? extra.add + first * a.rows : nullptr;
        product.part = next.norm && !next.prepared && n == a.n;
        take_update(&product, adapter, 0, 1, input, partial);
        if (n == a.n) prepare(&product, next, attended_flag, n, units);
        VB_TRY(multiply(type, input, product, units, stream, product.h ? makes_h : makes_x));
    }
    return VB_OK;
}

vb_status packed_many_swiglu(const SwiGLUArgs &a, const linear_units &units, vb_stream *stream) {
    return many_swiglu(a, {}, {}, nullptr, units, stream);
}

vb_status packed_many_feed_forward(const vb_feed_forward_args &a, const linear_feed_forward_choice &c,
                                   vb_stream *stream) {
    unsigned *const flags = first_half_flag(a.normed, a.n, a.gate.cols);
    const HalfRows h = half_rows(a.gated, a.n, a.gate.rows, flags + gated_flag, false);
    const HalfRows x = a.prepared ? normed_rows(a.normed, a.n, a.gate.cols, attended_flag) : HalfRows();
    VB_TRY(many_swiglu({nullptr, a.x, a.norm, a.eps, a.gate, a.up, a.n, adapter_of_gated(a)}, h, x, flags,
                       c.gate_up, stream));
    return many_down(a, h, c.down, stream);
}

// Queries, keys and values. The products rotate them and write to the cache where c.placed, else leave them in a.q,
// a.k_new and a.v_new.
vb_status packed_many_qkv(const vb_norm_qkv_args &a, const linear_qkv_choice &c, vb_stream *stream) {
    const int64_t n = a.batch * a.seq, cols = a.wq.cols;
    const bool same = a.wv.type == a.wq.type;
    const auto matrix = [&](const vb_weight &w, float *y, const float *bias, void *cache, bool rotated) {
        return matrix_of(w, y, bias, c.placed ? cache : nullptr, c.placed && rotated);
    };
    Product product = {{matrix(a.wq, a.q, a.bq, nullptr, true), matrix(a.wk, a.k_new, a.bk, a.k, true)}};
    Product values = {{matrix(a.wv, a.v_new, a.bv, a.v, false)}};
    if (c.placed)
        product.heads = {a.cos, a.sin, a.positions, a.sequences, a.capacity, (int)a.seq, (int)a.kv_heads,
                         (int)a.table_rows, (int)a.half, a.mode == VB_ROPE_NEOX, a.kv_type == VB_F16,
                         a.ring != 0};
    values.heads = product.heads;
    if (same) product.matrices[2] = values.matrices[0];
    const Adapter adapter = adapter_of(a);
    const bool beside = !same && c.v_units.ksplit > 1 &&
                        linear_unit_blocks(&c.qk_units) + linear_unit_blocks(&c.v_units) <=
                            gpu_of(stream).multiprocessors;
    const int64_t of_qk = linear_partial_bytes(&c.qk_units), of_v = linear_partial_bytes(&c.v_units),
                  partial = c.together || beside ? of_qk + of_v : larger(of_qk, of_v),
                  room = with_projected(partial, adapter, n);
    ManyX x;
    if (a.prepared) VB_TRY(take_rows(&x, normed_rows(a.normed, n, cols, layer_flag), a.eps, n, cols, room, stream));
    else VB_TRY(convert_x(&x, a.x, {true, a.norm, a.eps, nullptr}, n, cols, room, stream));
    VB_TRY(project(adapter, x, cols, partial, stream));
    take_update(&product, adapter, 0, same ? 3 : 2, x, partial), take_update(&values, adapter, 2, 1, x, partial);
    if (c.together) {
        const auto two = [&](auto of_qk, auto of_v) {
            return multiply_two<decltype(of_qk), decltype(of_v)>(x, product, c.qk_units, values, c.v_units, stream);
        };
        return a.wq.type == VB_Q4_K   ? two(vb_block_q4_k(), vb_block_q6_k())
               : a.wq.type == VB_Q5_K ? two(vb_block_q5_k(), vb_block_q6_k())
                                      : two(vb_block_q5_0(), vb_block_q8_0());
    }
    // v begins beside q and k, which have then waited for the adapter's products with x
    VB_TRY(multiply(a.wq.type, x, product, c.qk_units, stream, same && product.h ? makes_h : makes_x));
    if (beside) x.partial += of_qk / (int64_t)sizeof(float), x.arrived = counters(stream) + shared_counters(c.qk_units);
    return same ? VB_OK : multiply(a.wv.type, x, values, c.v_units, stream, makes_nothing);
}

} // namespace vb

#endif
