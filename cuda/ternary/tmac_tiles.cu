// tmac_tiles.cu: products with ternary weights of rows of whole 16 bytes, by int8 tensor cores (vb_tmac_matmul, 8.0).
//
//   grid     planes: a block a column of h
//            product: a block has 16 rows and 4 columns; its warps share the elements of a row
//   shared   a float a warp, row and column
//   moves    m k / 4 bytes of weights once for each 4 columns
//   bound    the weights from some megabytes on
//
// A column h is rounded to 15 bits in two planes of int8, h = (high + low / 254) max |h| / 127.
// The error relative to the greatest element is 2e-5. An instruction's eight columns are the planes of four columns.

#include "arch/streaming.cuh"
#include "ternary/choose.h"
#include "ternary/tiles.cuh"

namespace vb {
namespace {

constexpr int planes_threads = 1024, unit = TERNARY_TMAC_UNIT; // elements of 64 bytes of weights

// A column as the product reads it: two planes of whole units, in the order of the codes.
// Beside the planes lie the sums of each unit's codes in both, and the value of 1 in the high plane.
struct Planes {
    signed char *codes; // [n][2][units][256]
    int2 *sums;         // [n][units]
    float *steps;       // [n]
    int64_t units;
};

__global__ void __launch_bounds__(planes_threads) tmac_planes_kernel(vb_tmac_matmul_args a, Planes out) {
    __shared__ float scratch[32];
    wait_for_previous_kernel();
    release_next_kernel(); // the kernel before has ended: the product may read weights meanwhile
    const int64_t column = blockIdx.x;
    const float *const x = a.activations + column;
    const auto element = [&](int64_t k) {
        if (k >= a.k) return 0.0f;
        const float v = x[k * a.n];
        return a.normed && a.norm ? v * a.norm[k] : v;
    };
    float squares = 0.0f, most = 0.0f;
    for (int64_t k = threadIdx.x; k < a.k; k += planes_threads) {
        const float v = x[k * a.n];
        squares = fmaf(v, v, squares);
        most = Max::combine(most, fabsf(a.normed && a.norm ? v * a.norm[k] : v));
    }
    most = block_reduce<Max>(most, scratch);
    float factor = 1.0f;
    if (a.normed) factor = 1.0f / sqrtf(block_reduce<Sum>(squares, scratch) / float(a.k) + a.eps);
    const float scale = most > 0.0f || most != most ? 127.0f / most : 0.0f;
    if (threadIdx.x == 0) out.steps[column] = most * (factor / 127.0f);
    // A lane has eight elements of a word of 16: two bytes' codes under each of the four masks.
    for (int64_t u = threadIdx.x / 32; u < out.units; u += planes_threads / 32) {
        const int lane = threadIdx.x % 32;
        int high[2] = {}, low[2] = {}, totals[2] = {};
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int mask = lane % 2 * 2 + i;
#pragma unroll
            for (int b = 0; b < 4; b++) {
                const float v = element(u * unit + lane / 2 * 16 + 4 * b + mask) * scale;
                const int h = __float2int_rn(v), l = __float2int_rn((v - float(h)) * 254.0f);
                totals[0] += h, totals[1] += l;
                high[i] |= (h & 255) << (8 * b), low[i] |= (l & 255) << (8 * b);
            }
        }
        signed char *const to = out.codes + (column * 2 * out.units + u) * unit + 8 * lane;
        *reinterpret_cast<int2 *>(to) = make_int2(high[0], high[1]);
        *reinterpret_cast<int2 *>(to + out.units * unit) = make_int2(low[0], low[1]);
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int offset = 16; offset > 0; offset /= 2) totals[i] += __shfl_xor_sync(all_lanes, totals[i], offset);
        if (lane == 0) out.sums[column * out.units + u] = make_int2(totals[0], totals[1]);
    }
}

__global__ void __launch_bounds__(512) tmac_tiles_kernel(vb_tmac_matmul_args a, Planes h, int64_t row_bytes) {
    constexpr int units_ahead = TERNARY_TILE_UNITS;
    __shared__ float parts[TERNARY_TILE_WARPS][16 * 4];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, group = lane / 4,
        pieces = int(row_bytes / 16), units = int(h.units);
    const int64_t first = (int64_t)blockIdx.x * 16, column0 = (int64_t)blockIdx.y * 4;
    const uint4 *from[2];
    float scale[2] = {1.0f, 1.0f};
    int64_t rows[2];
#pragma unroll
    for (int t = 0; t < 2; t++) {
        rows[t] = smaller(first + 8 * t + group, a.m - 1);
        from[t] = reinterpret_cast<const uint4 *>(static_cast<const char *>(a.weights) + rows[t] * row_bytes);
    }
    uint4 w[units_ahead][2];
    const auto load = [&](uint4(&to)[2], int u) {
        const int p = 4 * u + lane % 4;
#pragma unroll
        for (int t = 0; t < 2; t++) to[t] = p < pieces ? load_once(from[t] + p) : make_uint4(0, 0, 0, 0);
    };
#pragma unroll
    for (int u = 0; u < units_ahead; u++) load(w[u], warp + u * warps);
    wait_for_previous_kernel();
    release_next_kernel();
    // The plane that this lane multiplies, and the column whose sums it gets.
    const int64_t plane_column = column0 + group / 2, sum_column = column0 + lane % 4;
    const int4 *const plane = reinterpret_cast<const int4 *>(
        h.codes + (smaller(plane_column, a.n - 1) * 2 + group % 2) * h.units * unit);
    const int2 *const totals = h.sums + smaller(sum_column, a.n - 1) * h.units;
    const int units_a_group = a.groups > 1 ? int(a.k / a.groups / unit) : units;
    RowTile sums = {};
    float all[2] = {0.0f, 0.0f};
    int high = 0, low = 0;
    for (int base = warp; base < units; base += units_ahead * warps) {
#pragma unroll
        for (int i = 0; i < units_ahead; i++) {
            const int u = base + i * warps, next = u + warps;
            if (u >= units) break;
            int4 x[4];
#pragma unroll
            for (int j = 0; j < 4; j++) x[j] = plane[(4 * u + lane % 4) * 4 + j];
            const int2 total = totals[u];
            high += total.x, low += total.y;
            sums.add(w[i][0], w[i][1], x);
            if (u + units_ahead * warps < units) load(w[i], u + units_ahead * warps);
            if (next < units && (a.groups == 1 || next / units_a_group == u / units_a_group)) continue;
#pragma unroll
            for (int t = 0; t < 2; t++) { // the group ends for this warp
                if (a.scales) scale[t] = a.scales[rows[t] * a.groups + u / units_a_group];
                const float part = float(sums.sum(t, 0) - high) + float(sums.sum(t, 1) - low) * (1.0f / 254.0f);
                all[t] = fmaf(part, scale[t], all[t]);
            }
            sums = RowTile{};
            high = low = 0;
        }
    }
#pragma unroll
    for (int t = 0; t < 2; t++) parts[warp][(8 * t + group) * 4 + lane % 4] = all[t];
    __syncthreads();
    if (threadIdx.x < 64) {
        const int64_t row = first + threadIdx.x / 4, column = column0 + threadIdx.x % 4;
        float sum = 0.0f;
        for (int o = 0; o < warps; o++) sum += parts[o][threadIdx.x];
        if (row < a.m && column < a.n) a.out[row * a.n + column] = sum * h.steps[column];
    }
}

} // namespace

vb_status tmac_tiles(const vb_tmac_matmul_args &a, vb_stream *stream) {
    Planes h;
    const int64_t row_bytes = ceil_div<int64_t>(a.k, 4);
    h.units = ceil_div<int64_t>(row_bytes, 64);
    void *memory;
    VB_TRY(workspace(&memory, a.n * (h.units * (2 * unit + (int64_t)sizeof(int2)) + (int64_t)sizeof(float)), stream));
    h.codes = static_cast<signed char *>(memory);
    h.sums = reinterpret_cast<int2 *>(h.codes + a.n * 2 * h.units * unit);
    h.steps = reinterpret_cast<float *>(h.sums + a.n * h.units);
    VB_TRY(launch_overlapped(stream, (unsigned)a.n, planes_threads, 0, tmac_planes_kernel, a, h));
    const vb_gpu gpu = gpu_of(stream);
    const ternary_tiles tiles = ternary_tiles_of(a.m, h.units, 1, 0, 0, &gpu);
    const dim3 grid((unsigned)tiles.blocks, (unsigned)ceil_div<int64_t>(a.n, 4));
    return launch_overlapped(stream, grid, tiles.threads, 0, tmac_tiles_kernel, a, h, row_bytes);
}

} // namespace vb
