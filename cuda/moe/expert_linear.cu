// expert_linear.cu: y[i] = x[i] W[ids[i]]^T + bias[ids[i]] for the choices i, stored weights of any type. Two ways:
//
//   rows    A warp multiplies two rows of a choice's expert in float32: decode, which reads the chosen experts alone.
//     grid  (16 rows of W a block, choices)
//     bound bytes for F32, F16 and BF16, the unpacking of codes for quantized types
//   tiles   Choices are sorted by expert, and their rows of x gathered in 16 bits. Each expert is multiplied with its
//           rows on tensor cores, as in linear/stored/many.cu: prompts.
//     grid  (128 rows of W, 64 sorted choices): as many tiles as there may be; tiles without choices end at once
//     bound the unpacking of codes
//
// Nothing waits for the host, so that a captured graph may hold either.

#include "linear/stored/narrow.cuh"
#include "linear/stored/read8.cuh"
#include "linear/stored/tile.cuh"
#include "moe/moe.cuh"

namespace vb {
namespace {

template <class Block>
VB_DEVICE const Block *expert_row(const vb_expert_linear_args &a, int64_t expert, int64_t row) {
    return (const Block *)a.w.data + (expert * a.w.rows + row) * (a.w.cols / BlockSize<Block>::value);
}

// ---- rows -----------------------------------------------------------------------------------------------------------

constexpr int rows_warps = 8, rows_a_warp = 2;

template <class Block>
__global__ void __launch_bounds__(32 * rows_warps)
    expert_rows_kernel(vb_expert_linear_args a, int64_t first_choice, bool aligned) {
    wait_for_previous_kernel();
    release_next_kernel();
    const int lane = threadIdx.x % 32;
    const int64_t choice = first_choice + blockIdx.y, rows = a.w.rows, cols = a.w.cols;
    const int64_t first = ((int64_t)blockIdx.x * rows_warps + threadIdx.x / 32) * rows_a_warp;
    if (first >= rows) return;
    const int64_t expert = a.ids[choice];
    float *const y = a.y + choice * rows;
    if (expert < 0 || expert >= a.experts) {
        if (lane < rows_a_warp && first + lane < rows) y[first + lane] = not_a_number();
        return;
    }
    const float *const x = a.x + (a.x_per_choice ? choice : choice / a.k) * cols;
    const Block *row[rows_a_warp];
#pragma unroll
    for (int r = 0; r < rows_a_warp; r++) row[r] = expert_row<Block>(a, expert, smaller<int64_t>(first + r, rows - 1));
    float sum[rows_a_warp] = {};
#pragma unroll 2
    for (int64_t k = 8 * lane; k < cols; k += 8 * 32) {
        float u[8], v[rows_a_warp][8];
#pragma unroll
        for (int r = 0; r < rows_a_warp; r++) read8(v[r], row[r], k, cols, aligned);
        read8_plain(u, x, k, cols, aligned);
#pragma unroll
        for (int r = 0; r < rows_a_warp; r++)
#pragma unroll
            for (int i = 0; i < 8; i++) sum[r] = fmaf(v[r][i], u[i], sum[r]);
    }
#pragma unroll
    for (int r = 0; r < rows_a_warp; r++) {
        const float total = warp_reduce<Sum>(sum[r]);
        if (lane == 0 && first + r < rows) y[first + r] = total + (a.bias ? a.bias[expert * rows + first + r] : 0.0f);
    }
}

template <class Block>
vb_status expert_rows(const vb_expert_linear_args &a, vb_stream *stream) {
    const int64_t choices = a.n * a.k, most = 65535, blocks = ceil_div<int64_t>(a.w.rows, rows_warps * rows_a_warp);
    const bool aligned = a.w.cols % 8 == 0 && aligned16(a.x, (const char *)a.w.data);
    for (int64_t first = 0; first < choices; first += most)
        VB_TRY(launch_overlapped(stream, dim3((unsigned)blocks, (unsigned)smaller(most, choices - first)),
                                 32 * rows_warps, 0, expert_rows_kernel<Block>, a, first, aligned));
    return VB_OK;
}

static_assert(tile_rows == MOE_TILE_ROWS && tile_tokens == MOE_TILE_CHOICES &&
                  rows_warps * rows_a_warp == MOE_ROWS_BLOCK,
              "what the chooser plans with");

// ---- tiles: rows of x -----------------------------------------------------------------------------------------------

// out[i][0..stride) = the row of x of choice order[i], scaled, in T, zeros beyond cols; inverse[i] = 1 / scale. One
// block a row.
template <class T>
__global__ void __launch_bounds__(256)
    gather_kernel(T *out, float *inverse, const int *order, vb_expert_linear_args a, int64_t stride) {
    __shared__ float scratch[32];
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t choice = order[blockIdx.x], cols = a.w.cols;
    const float *const x = a.x + (a.x_per_choice ? choice : choice / a.k) * cols;
    out += blockIdx.x * stride;
    float most = 0.0f;
    for (int64_t k = threadIdx.x; k < cols; k += 256) most = Max::combine(most, fabsf(x[k]));
    most = block_reduce<Max>(most, scratch);
    const float scale = row_scale(most, T());
    if (threadIdx.x == 0) inverse[blockIdx.x] = 1.0f / scale;
    for (int64_t k = threadIdx.x; k < stride; k += 256) out[k] = from_float<T>(k < cols ? x[k] * scale : 0.0f);
}

// ---- tiles: the product ---------------------------------------------------------------------------------------------

template <class T, class Block>
__global__ void __launch_bounds__(256, 3)
    expert_tiles_kernel(vb_expert_linear_args a, const T *x, const float *inverse, const int *order,
                        const ExpertTile *tiles, int64_t stride, bool aligned) {
    __shared__ __align__(16) T ws[2][tile_rows][tile_stride], xs[2][tile_tokens][tile_stride];
    wait_for_previous_kernel();
    release_next_kernel();
    const ExpertTile tile = tiles[blockIdx.y];
    if (tile.count == 0) return;
    const int64_t row0 = (int64_t)blockIdx.x * tile_rows, rows = a.w.rows, cols = a.w.cols;
    if (tile.expert >= a.experts) {
        for (int i = threadIdx.x; i < tile.count * tile_rows; i += 256)
            if (row0 + i % tile_rows < rows)
                a.y[order[tile.first + i / tile_rows] * rows + row0 + i % tile_rows] = not_a_number();
        return;
    }
    float acc[2][4][4] = {};
    multiply_tile<T>(
        acc, ws, xs, row0, 0, cols,
        [&](float (&v)[8], int64_t row, int64_t k) {
            if (row < rows && k < cols) read8(v, expert_row<Block>(a, tile.expert, row), k, cols, aligned);
        },
        [&](Vec<T, 8> &v, int c, int64_t k) {
            if (c < tile.count && k < stride)
                v = *reinterpret_cast<const Vec<T, 8> *>(x + (tile.first + c) * stride + k);
        });
    each_sum(acc, row0, 0, [&](int64_t row, int c, float sum) {
        if (row < rows && c < tile.count)
            a.y[order[tile.first + c] * rows + row] =
                sum * inverse[tile.first + c] + (a.bias ? a.bias[tile.expert * rows + row] : 0.0f);
    });
}

template <class T, class Block>
vb_status expert_tiles(const vb_expert_linear_args &a, vb_stream *stream) {
    const int64_t choices = a.n * a.k, stride = ceil_div<int64_t>(a.w.cols, 8) * 8,
                  row_tiles = ceil_div<int64_t>(a.w.rows, tile_rows);
    const int64_t slots = moe_tile_slots(choices, a.experts);
    const int64_t x_bytes = ceil_div<int64_t>(choices * stride * (int64_t)sizeof(T), 16) * 16;
    void *memory;
    VB_TRY(workspace(&memory, x_bytes + choices * (int64_t)sizeof(float) + sorted_choices_bytes(choices, a.experts),
                     stream));
    T *const x = (T *)memory;
    float *const inverse = (float *)((char *)memory + x_bytes);
    SortedChoices sorted;
    VB_TRY(sort_choices(&sorted, inverse + choices, a.ids, choices, a.experts, stream));
    VB_TRY(launch_overlapped(stream, (unsigned)choices, 256, 0, gather_kernel<T>, x, inverse, sorted.order, a, stride));
    const bool aligned = a.w.cols % 8 == 0 && aligned16((const char *)a.w.data);
    return launch_overlapped(stream, dim3((unsigned)row_tiles, (unsigned)slots), 256, 0, expert_tiles_kernel<T, Block>,
                             a, x, inverse, sorted.order, sorted.tiles, stride, aligned);
}

// By the 16-bit numbers that tensor cores multiply.
vb_status expert_tiles(const vb_expert_linear_args &a, vb_stream *stream) {
    switch (a.w.type) {
    case VB_BF16: return expert_tiles<bf16, bf16>(a, stream);
#define X(type, Block) case type: return expert_tiles<half, Block>(a, stream);
        VB_HALF_WEIGHT_TYPES(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
}

vb_status expert_rows(const vb_expert_linear_args &a, vb_stream *stream) {
    switch (a.w.type) {
#define X(type, Block) case type: return expert_rows<Block>(a, stream);
        VB_WEIGHT_TYPES(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" vb_status vb_cuda_expert_linear(const vb_expert_linear_args *args, vb_stream *stream) {
    const vb_expert_linear_args &a = *args;
    const vb_gpu gpu = gpu_of(stream);
    const moe_kernel kernel = choose_expert_linear(&a, &gpu);
    chosen(stream, moe_kernel_info(kernel), "expert_linear", a.w.type, "n k experts rows cols", a.n, a.k, a.experts,
           a.w.rows, a.w.cols);
    switch (kernel) {
    case MOE_EXPERT_ROWS: return expert_rows(a, stream);
    case MOE_EXPERT_TILES: return expert_tiles(a, stream);
    case MOE_EXPERT_MANY: return expert_linear_many(a, false, stream);
    case MOE_EXPERT_MANY_SM90: return expert_linear_many(a, true, stream);
    default: return VB_UNSUPPORTED;
    }
}
