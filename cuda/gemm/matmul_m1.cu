// matmul_m1.cu: c[n] = a[k] B[k][n], one row, accumulated in float32.
//
//   grid     (ceil(n / tile), ksplit): a tile is up to 32 lanes * 16 bytes of columns
//   block    8 warps; a warp takes 8 rows of B at a time, so 8 loads of 16 bytes a lane are under way
//   shared   8 * tile floats: the warps' sums
//   moves    k * n * sizeof(T) bytes, 2 k n FLOPs
//   bound    memory bandwidth
//   measured docs/experiments/2026-11-28-one-row.md
//
// The blocks of a tile meet in the workspace. The last block adds the sums up in order, so that results do not change
// from run to run. On Hopper, where one or two blocks an SM do, the blocks are a cluster instead, whose first block
// gets the others' sums. The blocks of the next kernel then find room beside them.

#include "arch/cluster.cuh"
#include "arch/sm90.cuh"
#include "arch/streaming.cuh"
#include "gemm/matmul.cuh"

namespace vb {
namespace {

constexpr int warps = 8;
constexpr int threads = warps * 32;
constexpr int rows_at_once = MATMUL_M1_ROWS;
constexpr int rows_per_step = warps * rows_at_once;

// Adds the products of elements row .. row + rows_at_once - 1 of a, but before end, with WIDTH columns of b[..][n] from
// col on.
template <class T, int WIDTH, class Index>
VB_DEVICE void add_rows(float (&sum)[WIDTH], const T *a, const T *b, Index row, Index end, int64_t n, int64_t col) {
    using V = Vec<T, WIDTH>;
    V x[rows_at_once];
    float weight[rows_at_once];
#pragma unroll
    for (int r = 0; r < rows_at_once; r++)
        if (row + r < end) x[r] = load_once(reinterpret_cast<const V *>(b + (int64_t)(row + r) * n + col));
#pragma unroll
    for (int r = 0; r < rows_at_once; r++) weight[r] = row + r < end ? to_float(a[row + r]) : 0.0f;
#pragma unroll
    for (int r = 0; r < rows_at_once; r++)
        if (row + r < end)
#pragma unroll
            for (int e = 0; e < WIDTH; e++) sum[e] += weight[r] * to_float(x[r].at[e]);
}

// Code for Hopper, whose chooser takes other kernels, leaves out single elements.
template <class T, int WIDTH>
__global__ void __launch_bounds__(threads, 4)
    matmul_m1_kernel(T *c, const T *a, const T *b, int64_t k, int64_t n, int tile, int64_t k_each, float *partial,
                      unsigned *counters) {
#ifdef VB_SM90A
    if (WIDTH == 1) return __trap();
#endif
    __shared__ float sums[warps][32 * WIDTH];
    __shared__ unsigned flag;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t n0 = (int64_t)blockIdx.x * tile, n1 = smaller(n, n0 + tile), col = n0 + lane * WIDTH;
    const int64_t end = smaller(k, (blockIdx.y + 1) * k_each);
    wait_for_previous_kernel();
    release_next_kernel();
    float sum[WIDTH] = {};
    if (col < n1) // n and tile are multiples of WIDTH
        for (int64_t row = blockIdx.y * k_each + warp * rows_at_once; row < end; row += rows_per_step)
            add_rows(sum, a, b, row, end, n, col);
#pragma unroll
    for (int e = 0; e < WIDTH; e++) sums[warp][e * 32 + lane] = sum[e]; // in an order without bank conflicts
    __syncthreads();
    const unsigned ksplit = gridDim.y;
    for (int i = threadIdx.x; i < 32 * WIDTH; i += threads) {
        float total = 0.0f;
#pragma unroll
        for (int w = 0; w < warps; w++) total += sums[w][i];
        const int64_t at = n0 + i % 32 * WIDTH + i / 32;
        if (at >= n1) continue;
        if (ksplit > 1)
            partial[blockIdx.y * n + at] = total;
        else
            c[at] = from_float<T>(total);
    }
    if (ksplit == 1 || !last_arriver(counters + blockIdx.x, ksplit, &flag)) return;
    for (int i = threadIdx.x; n0 + i < n1; i += threads) {
        float total = 0.0f;
#pragma unroll 8
        for (unsigned s = 0; s < ksplit; s++) total += __ldcg(partial + s * n + n0 + i);
        c[n0 + i] = from_float<T>(total);
    }
}

// ---- clusters ------------------------------------------------------------------------------------------------------
//
//   grid     tiles of 8, 16 or 32 lanes * 16 bytes of columns, in clusters of ksplit blocks
//   block    16 warps; lanes beside those of a tile have rows of their own
//   shared   the sums of rows that lanes have at a time, and the sums of the cluster's other blocks

constexpr int cluster_warps = MATMUL_M1_WARPS, most_cluster = MATMUL_M1_MOST_KSPLIT;

template <class T, int WIDTH, int LANES>
__global__ void __launch_bounds__(32 * cluster_warps, 2)
    matmul_m1_cluster_kernel(T *c, const T *a, const T *b, int k, int64_t n, int ksplit) {
#if __CUDA_ARCH__ >= 900
    constexpr int columns = LANES * WIDTH, groups = 32 * cluster_warps / LANES;
    __shared__ float sums[groups][columns], inbox[most_cluster][columns];
    __shared__ __align__(8) uint64_t mailbox;
    const int group = threadIdx.x / LANES, lane = threadIdx.x % LANES, rank = ksplit > 1 ? cluster_rank() : 0;
    const int64_t n0 = (int64_t)(blockIdx.x / ksplit) * columns, col = n0 + lane * WIDTH;
    const int end = (int)((int64_t)k * (rank + 1) / ksplit);
    if (ksplit > 1) {
        mailbox_init(&mailbox, (ksplit - 1) * columns * (int)sizeof(float), threadIdx.x == 0);
        cluster_arrive();
        cluster_wait();
    }
    wait_for_previous_kernel();
    release_next_kernel();
    float sum[WIDTH] = {};
    if (col < n) // a multiple of WIDTH
        for (int row = (int)((int64_t)k * rank / ksplit) + group * rows_at_once; row < end;
             row += groups * rows_at_once)
            add_rows(sum, a, b, row, end, n, col);
#pragma unroll
    for (int e = 0; e < WIDTH; e++) sums[group][e * LANES + lane] = sum[e]; // in an order without bank conflicts
    __syncthreads();
    if (threadIdx.x >= columns) return;
    float total = 0.0f;
#pragma unroll
    for (int g = 0; g < groups; g++) total += sums[g][threadIdx.x];
    if (rank > 0) {
        send(cluster_address(&inbox[rank][threadIdx.x], 0), cluster_address(&mailbox, 0), total);
        return;
    }
    if (ksplit > 1) mailbox_wait(&mailbox);
    for (int r = 1; r < ksplit; r++) total += inbox[r][threadIdx.x];
    const int64_t at = n0 + threadIdx.x % LANES * WIDTH + threadIdx.x / LANES;
    if (at < n) c[at] = from_float<T>(total);
#endif
}

// Columns of a tile and rows of one of its blocks. Blocks at work together read neighbouring tiles, so that pages of
// memory are read whole.
// All blocks should fit at once (four an SM) and have equal shares. So tiles may be narrower than 32 lanes, which costs
// about 5 %.
struct RowPlan {
    int64_t tiles, ksplit, rows;
    int tile;
};
inline RowPlan plan_row(int64_t k, int64_t n, int width, int64_t slots) {
    RowPlan best = {ceil_div<int64_t>(n, 32 * width), 1, k, 32 * width};
    if (best.tiles > workspace_counters / 2) return best;
    const int64_t steps = ceil_div<int64_t>(k, rows_per_step);
    int64_t least = 0;
    for (int lanes = 32; lanes >= (width > 1 ? 24 : 32); lanes -= 4) { // whole pieces of 64 bytes
        const int64_t tiles = ceil_div<int64_t>(n, lanes * width);
        for (int64_t ksplit = 1; ksplit <= smaller<int64_t>(steps, 32); ksplit++) {
            const int64_t each = ceil_div(steps, ksplit);
            const int64_t time =
                ceil_div(tiles * ksplit, slots) * (each + 4) * lanes * (lanes < 32 ? 21 : 20); // 4: begin and end
            if (least == 0 || time < least)
                least = time, best = {tiles, ceil_div(steps, each), each * rows_per_step, lanes * width};
        }
    }
    return best;
}

template <class T, int WIDTH>
vb_status launch_m1_cluster(void *c, const void *a, const void *b, int64_t k, int64_t n, vb_stream *stream) {
    const matmul_m1_plan plan = matmul_m1_cluster(k, n, WIDTH, &gpu_of(stream));
    const int64_t tiles = ceil_div<int64_t>(n, plan.lanes * WIDTH);
    return launch_cluster(stream, plan.ksplit, (unsigned)(tiles * plan.ksplit), 32 * cluster_warps, 0,
                          plan.lanes == 32   ? matmul_m1_cluster_kernel<T, WIDTH, 32>
                          : plan.lanes == 16 ? matmul_m1_cluster_kernel<T, WIDTH, 16>
                                             : matmul_m1_cluster_kernel<T, WIDTH, 8>,
                          (T *)c, (const T *)a, (const T *)b, (int)k, n, plan.ksplit);
}

template <class T, int WIDTH>
vb_status launch_m1(void *c, const void *a, const void *b, int64_t k, int64_t n, vb_stream *stream) {
    const RowPlan plan = plan_row(k, n, WIDTH, 4 * multiprocessors(stream));
    void *partial = nullptr;
    if (plan.ksplit > 1) VB_TRY(workspace(&partial, plan.ksplit * n * (int64_t)sizeof(float), stream));
    return launch_overlapped(stream, dim3((unsigned)plan.tiles, (unsigned)plan.ksplit), threads, 0,
                             matmul_m1_kernel<T, WIDTH>, (T *)c, (const T *)a, (const T *)b, k, n, plan.tile, plan.rows,
                             (float *)partial, counters(stream));
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" vb_status vb_cuda_matmul_single_row(void *c, const void *a, const void *b, vb_dtype type, int64_t k,
                                               int64_t n, vb_stream *stream) {
    const vb_gpu &gpu = gpu_of(stream);
    matmul_kernel kernel = choose_matmul_m1(b, type, k, n, &gpu);
    if (kernel == MATMUL_NONE) {
        vb_matmul_args x = {};
        x.c = c, x.a = a, x.b = b, x.m = 1, x.k = k, x.n = n, x.batch = 1, x.a_stride = k, x.b_stride = x.c_stride = n;
        x.type = type;
        const vb_status status = matmul(&kernel, x, stream);
        chosen(stream, matmul_kernel_info(kernel), "matmul", type, "m k n", 1, k, n);
        return status;
    }
    chosen(stream, matmul_kernel_info(kernel), "matmul", type, "m k n", 1, k, n);
    return with_float_type(type, [&](auto zero) {
        using T = decltype(zero);
        constexpr int wide = Wide<T>::size;
        switch (kernel) {
        case MATMUL_M1_CLUSTER: return launch_m1_cluster<T, wide>(c, a, b, k, n, stream);
        case MATMUL_M1:
            return matmul_m1_width(b, type, n) == wide ? launch_m1<T, wide>(c, a, b, k, n, stream)
                                                       : launch_m1<T, 1>(c, a, b, k, n, stream);
        default: return VB_UNSUPPORTED;
        }
    });
}
