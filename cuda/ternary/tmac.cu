// tmac.cu: products with ternary weights by looking up sums of four products (vb_tmac_lut, vb_tmac_matmul).
//
//   grid     (1024 rows, slices of 32 bytes of a row within a group, columns); 256 threads, four rows each
//   shared   32 KiB: the table of 256 sums for each byte of the slice, built from 128 activations or copied
//   moves    m k / 4 bytes of weights once, a float a row and slice through the stream's scratch memory
//   bound    look-ups: a word of shared memory for four products, whose banks collide at random
//
// A second kernel adds up the slices of a row with their groups' scales, always in one order.

#include "arch/streaming.cuh"
#include "ternary/rounding.cuh" // tmac_sm90

namespace vb {

vb_status tmac_bits(const vb_tmac_matmul_args &a, const ternary_bits &cut, vb_stream *stream); // mma_b1.cu
vb_status tmac_columns(const vb_tmac_matmul_args &a, const ternary_columns &cut, vb_stream *stream); // tmac_columns.cu
vb_status tmac_tiles(const vb_tmac_matmul_args &a, vb_stream *stream);                            // tmac_tiles.cu

namespace {

constexpr int threads = 256, slice = TERNARY_SLICE, slice_rows = TERNARY_SLICE_ROWS;

// The factors of four elements in a thread's entry of a table.
VB_DEVICE float4 weights_of(int byte) {
    return make_float4(float(byte & 3) - 1.0f, float(byte >> 2 & 3) - 1.0f, float(byte >> 4 & 3) - 1.0f,
                       float(byte >> 6) - 1.0f);
}
VB_DEVICE float entry(const float4 &w, const float *x) {
    return fmaf(w.x, x[0], fmaf(w.y, x[1], fmaf(w.z, x[2], w.w * x[3])));
}

__global__ void __launch_bounds__(threads) tmac_lut_kernel(float *lut, const float *x, int64_t k, int64_t n,
                                                           int64_t tables) {
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t column = blockIdx.y, table = blockIdx.x;
    float v[4];
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = 4 * table + i < k ? x[(4 * table + i) * n + column] : 0.0f;
    lut[(column * tables + table) * 256 + threadIdx.x] = entry(weights_of(threadIdx.x), v);
}

// factors[column] = 1 / sqrt(mean of squares + eps). A block a column.
__global__ void __launch_bounds__(threads) column_factor_kernel(float *factors, const float *x, int64_t k,
                                                                int64_t n, float eps) {
    __shared__ float scratch[32];
    wait_for_previous_kernel();
    release_next_kernel();
    float squares = 0.0f;
    for (int64_t i = threadIdx.x; i < k; i += threads) {
        const float v = x[i * n + blockIdx.x];
        squares = fmaf(v, v, squares);
    }
    squares = block_reduce<Sum>(squares, scratch);
    if (threadIdx.x == 0) factors[blockIdx.x] = 1.0f / sqrtf(squares / float(k) + eps);
}

// The bytes of a row that a slice has.
struct Slice {
    int64_t first, group;
    int bytes;
};
VB_DEVICE Slice slice_at(int64_t index, int64_t group_bytes, int64_t row_bytes) {
    const int64_t a_group = ceil_div<int64_t>(group_bytes, slice), group = index / a_group,
        first = group * group_bytes + index % a_group * slice;
    const int64_t end = smaller((group + 1) * group_bytes, row_bytes);
    return {first, group, int(smaller<int64_t>(slice, end - first))};
}

// parts[column][slice][row]
template <bool GIVEN>
__global__ void __launch_bounds__(threads)
    tmac_kernel(vb_tmac_matmul_args a, float *parts, const float *factors, int64_t group_bytes, int64_t row_bytes) {
    __shared__ float table[slice * 256];
    __shared__ float x[slice * 4];
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t column = blockIdx.z;
    const Slice s = slice_at(blockIdx.y, group_bytes, row_bytes);
    if (GIVEN) {
        const float *const from = a.lut + (column * row_bytes + s.first) * 256;
        for (int i = threadIdx.x; i < s.bytes * 256; i += threads) table[i] = from[i];
    } else {
        for (int i = threadIdx.x; i < slice * 4; i += threads) {
            const int64_t k = 4 * s.first + i;
            float v = i < 4 * s.bytes && k < a.k ? a.activations[k * a.n + column] : 0.0f;
            if (a.normed) {
                v *= factors[column];
                if (a.norm && k < a.k) v *= a.norm[k];
            }
            x[i] = v;
        }
        __syncthreads();
        const float4 w = weights_of(threadIdx.x);
        for (int b = 0; b < s.bytes; b++) table[b * 256 + threadIdx.x] = entry(w, x + 4 * b);
    }
    __syncthreads();
    const int64_t begin = (int64_t)blockIdx.x * slice_rows, end = smaller(begin + slice_rows, a.m);
    const bool vectors = s.bytes == slice && row_bytes % 16 == 0 && s.first % 16 == 0 &&
        reinterpret_cast<uintptr_t>(a.weights) % 16 == 0;
    for (int64_t row = begin + threadIdx.x; row < end; row += threads) {
        const unsigned char *const w = static_cast<const unsigned char *>(a.weights) + row * row_bytes + s.first;
        float sum = 0.0f;
        if (vectors) {
            const uint4 v[2] = {load_once(reinterpret_cast<const uint4 *>(w)),
                load_once(reinterpret_cast<const uint4 *>(w) + 1)};
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const unsigned words[4] = {v[h].x, v[h].y, v[h].z, v[h].w};
#pragma unroll
                for (int i = 0; i < 16; i++) sum += table[(16 * h + i) * 256 + (words[i / 4] >> (8 * (i % 4)) & 255)];
            }
        } else {
            for (int b = 0; b < s.bytes; b++) sum += table[b * 256 + w[b]];
        }
        parts[(column * gridDim.y + blockIdx.y) * a.m + row] = sum;
    }
}

__global__ void __launch_bounds__(threads)
    tmac_sum_kernel(vb_tmac_matmul_args a, const float *parts, int64_t slices, int64_t slices_a_group) {
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t row = (int64_t)blockIdx.x * threads + threadIdx.x, column = blockIdx.y;
    if (row >= a.m) return;
    float total = 0.0f;
    for (int64_t s = 0; s < slices; s++) {
        const float part = parts[(column * slices + s) * a.m + row];
        total = a.scales ? fmaf(part, a.scales[row * a.groups + s / slices_a_group], total) : total + part;
    }
    a.out[row * a.n + column] = total;
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" {

vb_status vb_cuda_tmac_lut(float *lut, const float *activations, int64_t k, int64_t n, vb_stream *stream) {
    const int64_t tables = ceil_div<int64_t>(k, 4);
    const ternary_kernel kernel = choose_tmac_lut(k, n);
    chosen(stream, ternary_kernel_info(kernel), "tmac_lut", VB_F32, "k n", k, n);
    if (kernel == TERNARY_NONE) return VB_UNSUPPORTED;
    return launch_overlapped(stream, dim3((unsigned)tables, (unsigned)n), threads, 0, tmac_lut_kernel, lut,
                             activations, k, n, tables);
}

vb_status vb_cuda_tmac_matmul(const vb_tmac_matmul_args *args, vb_stream *stream) {
    const vb_tmac_matmul_args &a = *args;
    const vb_gpu gpu = gpu_of(stream);
    const ternary_tmac choice = choose_tmac_matmul(&a, &gpu);
    const ternary_kernel kernel = choice.kernel;
    chosen(stream, ternary_kernel_info(kernel), "tmac_matmul", VB_F32, "m n k groups", a.m, a.n, a.k, a.groups);
    if (kernel == TERNARY_NONE) return VB_UNSUPPORTED;
    if (kernel == TERNARY_TMAC_BITS) return tmac_bits(a, choice.bits, stream);
    if (kernel == TERNARY_TMAC_COLUMNS) return tmac_columns(a, choice.columns, stream);
    if (kernel == TERNARY_TMAC_WGMMA) return tmac_sm90(a, choice.many, stream);
    if (kernel == TERNARY_TMAC_TILES) return tmac_tiles(a, stream);
    const int64_t slices = tmac_slices(&a), group_bytes = tmac_group_bytes(&a), row_bytes = ceil_div<int64_t>(a.k, 4);
    void *memory;
    VB_TRY(workspace(&memory, (a.n * slices * a.m + a.n) * 4, stream));
    float *const factors = static_cast<float *>(memory), *const parts = factors + a.n;
    if (a.normed && slices > 0)
        VB_TRY(launch_overlapped(stream, (unsigned)a.n, threads, 0, column_factor_kernel, factors, a.activations,
                                 a.k, a.n, a.eps));
    if (slices > 0) {
        const dim3 grid((unsigned)ceil_div<int64_t>(a.m, slice_rows), (unsigned)slices, (unsigned)a.n);
        VB_TRY(launch_overlapped(stream, grid, threads, 0,
                                 kernel == TERNARY_TMAC_TABLE ? tmac_kernel<true> : tmac_kernel<false>, a, parts,
                                 factors, group_bytes, row_bytes));
    }
    return launch_overlapped(stream, dim3((unsigned)ceil_div<int64_t>(a.m, threads), (unsigned)a.n), threads, 0,
                             tmac_sum_kernel, a, parts,
                             slices, slices > 0 ? slices / a.groups : 1);
}

} // extern "C"
