// matmul_row.cu: c[n] = a[k] B[k][n], one row, accumulated in float32.
//
//   grid     (ceil(n / tile), splits of k): a tile is 32 lanes * 16 bytes of columns; 4 or 16 blocks an SM
//   block    8 warps; a warp takes 8 rows of B at a time, so 8 loads of 16 bytes a lane are under way
//   shared   8 * tile floats: the warps' sums
//   moves    k * n * sizeof(T) bytes, 2 k n FLOPs
//   bound    memory bandwidth
//   measured H200, F32, graph replays: 18.9 and 58.4 us for k = 4096, n = 4096 and 14336 (3.6 and 4.0 TB/s); cuBLAS 18.4, 56.6
//
// The splits of a tile meet in the workspace; the block that comes last adds them up in order, so that results do not
// change from run to run.

#include "common.cuh"

namespace vb {
namespace {

constexpr int warps = 8;
constexpr int threads = warps * 32;
constexpr int rows_at_once = 8;
constexpr int rows_per_step = warps * rows_at_once;

template <class T, int WIDTH>
__global__ void __launch_bounds__(threads, 4)
    matmul_row_kernel(T *c, const T *a, const T *b, int64_t k, int64_t n, int64_t k_per_split, float *partial,
                      unsigned *counters) {
    constexpr int tile = 32 * WIDTH;
    using V = Vec<T, WIDTH>;
    __shared__ float sums[warps][tile];
    __shared__ unsigned flag;
    wait_for_previous_kernel();
    release_next_kernel();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t n0 = (int64_t)blockIdx.x * tile, col = n0 + lane * WIDTH;
    const int64_t end = smaller(k, (blockIdx.y + 1) * k_per_split);
    float sum[WIDTH] = {};
    if (col < n) // n is a multiple of WIDTH
        for (int64_t row = blockIdx.y * k_per_split + warp * rows_at_once; row < end; row += rows_per_step) {
            V x[rows_at_once];
            float weight[rows_at_once];
#pragma unroll
            for (int r = 0; r < rows_at_once; r++)
                if (row + r < end) x[r] = *reinterpret_cast<const V *>(b + (row + r) * n + col);
#pragma unroll
            for (int r = 0; r < rows_at_once; r++) weight[r] = row + r < end ? to_float(a[row + r]) : 0.0f;
#pragma unroll
            for (int r = 0; r < rows_at_once; r++)
                if (row + r < end)
#pragma unroll
                    for (int e = 0; e < WIDTH; e++) sum[e] += weight[r] * to_float(x[r].at[e]);
        }
#pragma unroll
    for (int e = 0; e < WIDTH; e++) sums[warp][e * 32 + lane] = sum[e]; // in an order without bank conflicts
    __syncthreads();
    const unsigned splits = gridDim.y;
    for (int i = threadIdx.x; i < tile; i += threads) {
        float total = 0.0f;
#pragma unroll
        for (int w = 0; w < warps; w++) total += sums[w][i];
        const int64_t at = n0 + i % 32 * WIDTH + i / 32;
        if (at >= n) continue;
        if (splits > 1)
            partial[blockIdx.y * n + at] = total;
        else
            c[at] = from_float<T>(total);
    }
    if (splits == 1 || !last_arriver(counters + blockIdx.x, splits, &flag)) return;
    for (int i = threadIdx.x; i < tile && n0 + i < n; i += threads) {
        float total = 0.0f;
#pragma unroll 8
        for (unsigned s = 0; s < splits; s++) total += __ldcg(partial + s * n + n0 + i);
        c[n0 + i] = from_float<T>(total);
    }
}

template <class T, int WIDTH>
vb_status launch_row(void *c, const void *a, const void *b, int64_t k, int64_t n, vb_stream *stream) {
    const int64_t tiles = ceil_div<int64_t>(n, 32 * WIDTH);
    if (tiles > INT32_MAX) return VB_UNSUPPORTED;
    // Four blocks run on an SM. One round of them where that keeps 93 % busy, else four rounds, which even out.
    int64_t splits = 1, each = k;
    for (int rounds = 1; rounds <= 4 && tiles <= workspace_counters; rounds += 3) {
        const int64_t slots = 4 * multiprocessors(stream);
        each = larger<int64_t>(1, ceil_div<int64_t>(ceil_div(k, larger<int64_t>(1, rounds * slots / tiles)), rows_per_step)) *
               rows_per_step;
        splits = larger<int64_t>(1, ceil_div(k, each));
        if (tiles * splits <= slots && tiles * splits * 100 >= slots * 93) break;
    }
    void *partial = nullptr;
    if (splits > 1) VB_TRY(workspace(&partial, splits * n * (int64_t)sizeof(float), stream));
    return launch_overlapped(stream, dim3((unsigned)tiles, (unsigned)splits), threads, 0, matmul_row_kernel<T, WIDTH>, (T *)c,
                             (const T *)a, (const T *)b, k, n, each, (float *)partial, counters(stream));
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" vb_status vb_cuda_matmul_single_row(void *c, const void *a, const void *b, vb_dtype type, int64_t k, int64_t n,
                                               vb_stream *stream) {
    return with_float_type(type, [&](auto zero) {
        using T = decltype(zero);
        constexpr int wide = Wide<T>::size;
        if (n % wide == 0 && aligned16(b)) return launch_row<T, wide>(c, a, b, k, n, stream);
        return launch_row<T, 1>(c, a, b, k, n, stream);
    });
}
