// matmul_ksplit.cu: C = A B for F16 and BF16 on tensor cores, accumulated in float32: any layout, strides and
// alignment. Where tiles are few, blocks share the k of a tile.
//
//   grid     (ceil(m / BM) * ceil(n / BN) in bands (matmul.cuh), matrices, blocks that share k)
//   block    BM x BN = 64 x 64, 64 x 16, 16 x 64: 4 warps; 32 x 32: 2; 16 x 16: 4 that share k
//   shared   two stages of A [BM][64] and B [64][BN] as they are stored (for 16 x 16, 128 of k), through registers:
//            36 KiB at most; then C in float32, whose rows are written whole
//   moves    about (1 / BM + 1 / BN) m n k * 2 bytes from L2, twice as many where rows are not aligned; 8 bytes an
//            output and block that shares k, which add_parts adds up;
//            2 m n k FLOPs
//   bound    latency of loads, L1
//   measured docs/experiments/2026-11-22-shapes.md

#include "gemm/matmul.cuh"
#include "gemm/store_rows.cuh"
#include "gemm/tile_load.cuh"

namespace vb {
namespace {

// CROWDED: with fewer registers, so that a third more blocks of a square tile share a multiprocessor.
// Warps that share k have every so-manieth 16 of it.
template <class T, int BM, int BN, int WARPS_M, int WARPS_N, int WARPS_K, bool A_T, bool B_T, bool CROWDED>
__global__ void __launch_bounds__(32 * WARPS_M *WARPS_N *WARPS_K,
                                  (BM * BN == 4096 ? 3 : 6) * (CROWDED ? 4 : 3) / 3)
    matmul_ksplit_kernel(MatMulProblem<T> p, KParts parts) {
#if __CUDA_ARCH__ >= 800
    constexpr int depth = MATMUL_KSPLIT_DEPTH * (WARPS_K > 1 ? 2 : 1);
    constexpr int threads = 32 * WARPS_M * WARPS_N * WARPS_K, R = BM / WARPS_M / 16, Q = BN / WARPS_N / 8;
    using LoadA = TileLoad<T, !A_T, BM, depth, threads>;
    using LoadB = TileLoad<T, B_T, BN, depth, threads>;
    constexpr int stage_bytes = LoadA::bytes + LoadB::bytes, result_width = BN + 4;
    static_assert(WARPS_K * BM * result_width * 4 <= 2 * stage_bytes, "C takes the place of the stages");
    __shared__ __align__(128) char shared[2 * stage_bytes];
    p.select();
    select_part<A_T, B_T>(p, parts, depth);
    const TileOrder tile = tile_of_block(ceil_div<int64_t>(p.m, BM), ceil_div<int64_t>(p.n, BN));
    const int64_t m0 = tile.row * BM, n0 = tile.col * BN;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_m = warp / WARPS_N % WARPS_M * (BM / WARPS_M), warp_n = warp % WARPS_N * (BN / WARPS_N);
    const int warp_k = warp / (WARPS_N * WARPS_M);
    LoadA a(p.a, p.a_stride, m0);
    LoadB b(p.b, p.b_stride, n0);
    const int rows = (int)smaller<int64_t>(BM, p.m - m0), columns = (int)smaller<int64_t>(BN, p.n - n0);
    const auto load = [&](int64_t k) {
        const int left = (int)smaller<int64_t>(depth, p.k - k);
        a.load(left, rows), b.load(left, columns);
    };
    const auto store = [&](int stage) {
        a.store(shared + stage * stage_bytes), b.store(shared + stage * stage_bytes + LoadA::bytes);
    };
    // The lane's bits that choose among four 8x8 matrices: the next 8 rows of a fragment, the next 8 of k.
    const int eight = lane % 8, second = lane / 8 % 2, third = lane / 16;
    const unsigned base = shared_address(shared);
    const unsigned a_at = base + (A_T ? (eight + third * 8) * LoadA::width + (warp_m + second * 8) * 2
                                      : (warp_m + eight + second * 8) * LoadA::width + third * 16);
    const unsigned b_at = base + LoadA::bytes + (B_T ? (warp_n + eight + third * 8) * LoadB::width + second * 16
                                                     : (eight + second * 8) * LoadB::width + (warp_n + third * 8) * 2);
    wait_for_previous_kernel();
    release_next_kernel();
    float sum[R][Q][4] = {};
    if (p.k > 0) {
        load(0);
        store(0);
    }
    __syncthreads();
    int stage = 0;
    for (int64_t k = 0; k < p.k; k += depth) {
        const bool more = k + depth < p.k;
        if (more) load(k + depth);
        const unsigned a_stage = a_at + stage * stage_bytes, b_stage = b_at + stage * stage_bytes;
#pragma unroll
        for (int i = 0; i < depth / 16; i += WARPS_K) {
            const int at = WARPS_K > 1 ? i + warp_k : i;
            if (at > 0 && k + at * 16 >= p.k) break; // zeros
            multiply_tiles<T, A_T, B_T, LoadA::width, LoadB::width>(sum, a_stage, b_stage, at);
        }
        stage ^= 1;
        if (more) store(stage);
        __syncthreads();
    }
    const int row = warp_m + lane / 4, column = warp_n + lane % 4 * 2; // of the thread's first two sums
    if (parts.count > 1) return store_part(parts, p, sum, m0 + row, n0 + column);

    float(*const result)[result_width] = (float(*)[result_width])shared;
    place_sums(result + warp_k * BM, sum, row, column);
    __syncthreads();
    if (WARPS_K > 1) { // the sums of all warps
#pragma unroll
        for (int i = threadIdx.x; i < BM * BN; i += threads) {
            float *const at = &result[i / BN][i % BN];
#pragma unroll
            for (int w = 1; w < WARPS_K; w++) *at += at[w * BM * result_width];
        }
        __syncthreads();
    }
    store_tile<T, BN, threads>(p.c + m0 * p.c_stride + n0, p.c_stride, rows, columns,
                               [&](int r, int q) { return result[r][q]; });
#endif
}

template <class T, int BM, int BN, int WARPS_M, int WARPS_N, int WARPS_K = 1>
vb_status launch_ksplit(const vb_matmul_args &x, vb_stream *stream) {
    const vb_gpu gpu = gpu_of(stream);
    const matmul_ksplit_plan plan = matmul_plan_of(MATMUL_KSPLIT, &x, &gpu);
    KParts parts;
    VB_TRY(plan_k_parts(&parts, plan.parts, x, stream));
    VB_TRY(with_layouts(x, [&](auto a_t, auto b_t) {
        return for_batches<T>(x, BM, BN, [&](const MatMulProblem<T> &p, dim3 grid) {
            constexpr bool A_T = decltype(a_t)::value, B_T = decltype(b_t)::value;
            grid.z = (unsigned)parts.count;
            constexpr bool crowds = BM == BN && WARPS_K == 1;
            return launch_overlapped(stream, grid, 32 * WARPS_M * WARPS_N * WARPS_K, 0,
                                     plan.tiles * plan.parts > plan.places
                                         ? matmul_ksplit_kernel<T, BM, BN, WARPS_M, WARPS_N, WARPS_K, A_T, B_T, crowds>
                                         : matmul_ksplit_kernel<T, BM, BN, WARPS_M, WARPS_N, WARPS_K, A_T, B_T, false>,
                                     p, parts);
        });
    }));
    return add_parts<T>(x, parts, PlainSum(), stream);
}

template <class T>
vb_status launch_ksplit(const vb_matmul_args &x, vb_stream *stream) {
    const vb_gpu gpu = gpu_of(stream);
    const matmul_ksplit_plan plan = matmul_plan_of(MATMUL_KSPLIT, &x, &gpu);
    if (plan.tile_m == 16 && plan.tile_n == 16) return launch_ksplit<T, 16, 16, 1, 1, 4>(x, stream);
    if (plan.tile_m == 32) return launch_ksplit<T, 32, 32, 2, 1>(x, stream);
    if (plan.tile_m == 16) return launch_ksplit<T, 16, 64, 1, 4>(x, stream);
    if (plan.tile_n == 16) return launch_ksplit<T, 64, 16, 4, 1>(x, stream);
    return launch_ksplit<T, 64, 64, 2, 2>(x, stream);
}

} // namespace

vb_status matmul_ksplit(const vb_matmul_args &x, vb_stream *stream) {
    return x.type == VB_F16 ? launch_ksplit<half>(x, stream) : launch_ksplit<bf16>(x, stream);
}

} // namespace vb
