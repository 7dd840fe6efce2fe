// expert_many.cu: products of many tokens with packed experts. Choices are sorted by expert (expert_sort.cu).
// Each expert is multiplied with the rows of x of its choices on 16-bit tensor cores, as in linear/packed/many.cu.
// expert_feed_forward has gate, up and the activation in one product; expert_sum.cu adds up the down projections.
//
//   unit     128 rows of W (64 of the gate and 64 of up, a warp's 16 of each in turn) x 64 sorted choices of one expert
//   grid     (units of an expert, tiles of choices): as many tiles as there may be; tiles without choices end at once
//   threads  8 warps of 16 rows of W each
//   shared   33 KiB of x in F16, then of sums
//   moves    the weights of the chosen experts once for each 64 of their choices; rows of x from L2
//   bound    the dequantization (about 550 instructions a tile and warp)
//
// Nothing waits for the host, so that a captured graph holds it.

#include "arch/sm90.cuh"
#include "moe/expert_many.cuh"
#ifdef VB_HAS_PACKED_LAYOUT

namespace vb {
namespace {

constexpr int tile_choices = MOE_TILE_CHOICES, stage_depth = 128;

// ---- x --------------------------------------------------------------------------------------------------------------

// x in F16, [n][stride], zeros from cols on, the columns of each 16 in the order of position_of.
// inverse[n] undoes each row's scale and the scale of the weights. With an order, row i is the row of choice order[i];
// choices may share a row.
// One block a row; stride is a multiple of 128, so that warps are whole.
__global__ void __launch_bounds__(128)
    halve_kernel(half *out, float *inverse, const float *x, const int *order, int share, int64_t cols, int64_t stride,
                 bool aligned) {
    __shared__ float scratch[32];
    wait_for_previous_kernel();
    release_next_kernel();
    x += (order ? order[blockIdx.x] / share : (int)blockIdx.x) * cols, out += blockIdx.x * stride;
    const auto read = [&](int64_t k) {
        float4 v = make_float4(0, 0, 0, 0);
        if (aligned && k < cols) v = *reinterpret_cast<const float4 *>(x + k); // cols is a multiple of 4
        else if (k < cols) v = make_float4(x[k], x[k + 1], x[k + 2], x[k + 3]);
        return v;
    };
    float most = 0;
    for (int64_t k = 4 * threadIdx.x; k < cols; k += 4 * 128) {
        const float4 v = read(k);
        most = Max::combine(most,
                            Max::combine(Max::combine(fabsf(v.x), fabsf(v.y)), Max::combine(fabsf(v.z), fabsf(v.w))));
    }
    most = block_reduce<Max>(most, scratch);
    const float scale = power_of_two_scale(most);
    if (threadIdx.x == 0) inverse[blockIdx.x] = 1.0f / (scale * half_unit);
    for (int64_t k = 4 * threadIdx.x; k < stride; k += 4 * 128) write_halves(out + k / 16 * 16, read(k), scale);
}

inline int64_t halves_stride(int64_t cols) { return ceil_div<int64_t>(cols, 256) * 256; } // whole tiles of any type
inline int64_t halves_bytes(int64_t n, int64_t cols) { return n * (halves_stride(cols) * (int64_t)sizeof(half) + 16); }

vb_status halve(Halves *to, void *memory, const float *x, const int *order, int share, int64_t n, int64_t cols,
                vb_stream *stream) {
    *to = {(half *)memory, (float *)((half *)memory + n * halves_stride(cols)), n, halves_stride(cols)};
    return launch_overlapped(stream, (unsigned)n, 128, 0, halve_kernel, to->x, to->inverse, x, order, share, cols,
                             to->stride, aligned16(x));
}

// ---- the product ----------------------------------------------------------------------------------------------------

template <class Block>
__global__ void __launch_bounds__(unit_threads) expert_many_kernel(VB_IN_PLACE ExpertProduct p) {
#if defined(VB_HAS_MMA) && !defined(VB_SM90A)
    using P = Packed<Block>;
    constexpr int stage_halves = tile_choices * stage_depth, chunks = stage_halves / 8 / unit_threads,
                  stages_a_tile = P::depth / stage_depth;
    constexpr int shared_bytes =
        larger(2 * stage_halves * (int)sizeof(half), tile_choices * choice_sums * (int)sizeof(float));
    __shared__ __align__(16) uint8_t shared[shared_bytes];
    __shared__ int place[tile_choices];     // the choices of the tile
    __shared__ float inverse[tile_choices]; // of their rows of x
    half *const stage = reinterpret_cast<half *>(shared); // [2][k / 8][choice][k % 8]
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    wait_for_previous_kernel();
    release_next_kernel();
    const ExpertTile tile = p.sorted.tiles[blockIdx.y];
    if (tile.count == 0) return;
    const bool gated = p.up != nullptr;
    const int unit = gated ? unit_rows / 2 : unit_rows, row0 = (int)blockIdx.x * unit; // results of a unit
    if (threadIdx.x < tile_choices) {
        const int choice = p.sorted.order[tile.first + smaller<int>(threadIdx.x, tile.count - 1)];
        place[threadIdx.x] = choice;
        inverse[threadIdx.x] = p.x.inverse[choice / p.share];
    }
    __syncthreads();
    if (tile.expert >= p.experts) {
        store_no_choices(p, tile, row0, unit, place);
        return;
    }
    const int tile_row = smaller(row0 / packed_rows + (gated ? warp / 2 : warp), p.tile_rows - 1);
    const uint8_t *w =
        (gated && warp % 2 ? p.up : p.w) + ((int64_t)tile.expert * p.tile_rows + tile_row) * p.k_tiles * P::tile_bytes;
    // the choice whose x this thread fetches
    const int count = p.k_tiles * stages_a_tile, own = threadIdx.x / 4 % tile_choices;
    const half *const x = p.x.x + (int64_t)(place[own] / p.share) * p.x.stride;
    const bool exists = own < tile.count;
    const auto fetch = [&](int i) {
        if (i < count)
#pragma unroll
            for (int j = 0; j < chunks; j++) {
                const int k8 = (threadIdx.x + j * unit_threads) / 256 * 4 + threadIdx.x % 4;
                copy_async(shared_address(stage + (i & 1) * stage_halves + (k8 * tile_choices + own) * 8),
                           x + i * stage_depth + 8 * k8, exists);
            }
        copy_async_commit();
    };
    float c[tile_choices / 2] = {};
    LaneTile<Block> next;
    next.template load<true>(w, lane);
    fetch(0);
    int i = 0;
    for (int k = 0; k < p.k_tiles; k++) {
        ManyTile<Block> work;
        work.unpack(next);
        w += P::tile_bytes;
        if (k + 1 < p.k_tiles) next.template load<true>(w, lane);
#pragma unroll
        for (int part = 0; part < stages_a_tile; part++, i++) {
            fetch(i + 1);
            copy_async_wait<1>();
            __syncthreads();
#pragma unroll
            for (int j = 0; j < 8; j++) {
                uint32_t a[4];
                work.fragment(a, part * 8 + j);
                const half *b = stage + (i & 1) * stage_halves + j * 16 * tile_choices + g * 8 + 2 * t;
#pragma unroll
                for (int q = 0; q < tile_choices / 8; q++)
                    mma_16x8x16(c + 4 * q, a, *reinterpret_cast<const uint32_t *>(b + q * 64),
                                *reinterpret_cast<const uint32_t *>(b + q * 64 + 8 * tile_choices), half());
            }
            __syncthreads();
        }
    }
    copy_async_wait<0>();
    float *const sums = reinterpret_cast<float *>(shared); // [choice][row of the unit]
#pragma unroll
    for (int q = 0; q < tile_choices / 2; q++) {
        const int choice = q / 4 * 8 + 2 * t + (q & 1);
        sums[choice * choice_sums + warp * packed_rows + g + (q & 2) * 4] = c[q];
    }
    __syncthreads();
    store_choices(p, tile, row0, sums, inverse, place);
#else
    __trap();
#endif
}

template <class Block>
vb_status expert_product(ExpertProduct p, int64_t cols, int64_t slots, vb_stream *stream) {
    p.k_tiles = (int)Packed<Block>::tiles_of(cols);
    const int unit = p.up ? unit_rows / 2 : unit_rows;
    return launch_overlapped(stream, dim3((unsigned)ceil_div(p.rows, unit), (unsigned)slots), unit_threads, 0,
                             expert_many_kernel<Block>, p);
}

vb_status expert_product(vb_dtype type, const ExpertProduct &p, int64_t cols, int64_t slots, vb_stream *stream) {
    switch (vb_packed_as(type)) {
#define X(type, Block, ...) case type: return expert_product<Block>(p, cols, slots, stream);
        VB_PACKED_TYPES(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
}

} // namespace

// The product over sorted choices, by the Hopper kernel where `hopper`.
static vb_status multiply(bool hopper, vb_dtype type, const ExpertProduct &p, int64_t choices, int64_t cols,
                          vb_stream *stream) {
    const int64_t slots = moe_tile_slots(choices, p.experts);
    return hopper ? expert_product_sm90(type, p, choices, cols, slots, stream)
                  : expert_product(type, p, cols, slots, stream);
}

vb_status expert_linear_many(const vb_expert_linear_args &a, bool hopper, vb_stream *stream) {
    const int64_t choices = a.n * a.k, rows_of_x = hopper || a.x_per_choice ? choices : a.n;
    const int64_t x_bytes = halves_bytes(rows_of_x, a.w.cols);
    void *memory;
    VB_TRY(workspace(&memory, x_bytes + sorted_choices_bytes(choices, a.experts), stream));
    ExpertProduct p = {};
    p.share = a.x_per_choice ? 1 : (int)a.k;
    VB_TRY(sort_choices(&p.sorted, (char *)memory + x_bytes, a.ids, choices, a.experts, stream));
    VB_TRY(halve(&p.x, memory, a.x, hopper ? p.sorted.order : nullptr, p.share, rows_of_x, a.w.cols, stream));
    p.w = (const uint8_t *)a.w.data, p.w_bias = a.bias, p.y = a.y;
    p.rows = (int)a.w.rows, p.tile_rows = (int)linear_tile_rows(a.w.rows), p.experts = (int)a.experts;
    return multiply(hopper, a.w.type, p, choices, a.w.cols, stream);
}

vb_status expert_feed_forward_many(const vb_expert_feed_forward_args &a, bool hopper, vb_stream *stream) {
    const int64_t choices = a.n * a.k, rows_of_x = hopper ? choices : a.n;
    const int64_t x_bytes = halves_bytes(rows_of_x, a.gate.cols), gated_bytes = halves_bytes(choices, a.down.cols);
    void *memory;
    VB_TRY(workspace(&memory, x_bytes + gated_bytes + sorted_choices_bytes(choices, a.experts), stream));
    ExpertProduct p = {};
    p.share = (int)a.k, p.experts = (int)a.experts, p.activation = {a.activation, a.alpha, a.limit};
    VB_TRY(sort_choices(&p.sorted, (char *)memory + x_bytes + gated_bytes, a.ids, choices, a.experts, stream));
    VB_TRY(halve(&p.x, memory, a.x, hopper ? p.sorted.order : nullptr, p.share, rows_of_x, a.gate.cols, stream));
    p.w = (const uint8_t *)a.gate.data, p.up = (const uint8_t *)a.up.data, p.w_bias = a.gate_bias,
    p.up_bias = a.up_bias, p.y = a.gated, p.in_order = hopper;
    p.rows = (int)a.gate.rows, p.tile_rows = (int)linear_tile_rows(a.gate.rows);
    VB_TRY(multiply(hopper, a.gate.type, p, choices, a.gate.cols, stream));
    VB_TRY(halve(&p.x, (char *)memory + x_bytes, a.gated, nullptr, 1, choices, a.down.cols, stream));
    p.share = 1, p.in_order = false;
    p.w = (const uint8_t *)a.down.data, p.up = nullptr, p.w_bias = a.down_bias, p.y = a.chosen;
    p.rows = (int)a.down.rows, p.tile_rows = (int)linear_tile_rows(a.down.rows);
    VB_TRY(multiply(hopper, a.down.type, p, choices, a.down.cols, stream));
    return vb_cuda_expert_sum(a.sum, a.add, a.chosen, a.weights, a.n, a.k, a.down.rows, stream);
}

} // namespace vb
#endif
