// matmul_3xtf32_any.cu: C = A B in F32 with float32 accuracy on tensor cores (tf32_parts.cuh): any layout, strides,
// sizes and batches. Where tiles are few, blocks share the k of a tile.
//
//   grid     (ceil(m / BM) * ceil(n / BN) in bands (matmul.cuh), matrices, blocks that share k)
//   block    4 warps for BM x BN = 64 x 64, 64 x 32, 32 x 64, 32 x 32, 64 x 16 or 16 x 64 outputs; for 16 x 16, whose k
//            they share
//   shared   three stages of A and B, 32 along k (128 for 16 x 16), as they are stored: [BM][36] where rows run along
//            k, else [32][BM + 8]: 72 KiB at most; then C
//   moves    about (1 / BM + 1 / BN) m n k * 4 bytes from L2, 3 * 2 m n k FLOPs; 8 bytes an output and block that
//            shares k, which add_parts adds up
//   bound    tensor cores, as far as mma.sync feeds Hopper's; few tiles: latency
//   measured docs/experiments/2026-11-22-shapes.md

#include "gemm/matmul.cuh"
#include "gemm/tf32_parts.cuh"

namespace vb {
namespace {

constexpr int stages = 3, threads = 128;

// A tile as it is stored: [SIDE][DEPTH] where BY_K, else [DEPTH][SIDE]. A row begins anywhere, and is copied by aligned
// vectors.
// So its first element lies up to three floats into its row of the tile, equally far in rows four apart.
template <bool BY_K, int SIDE, int DEPTH>
struct Tile {
    static constexpr int rows = BY_K ? SIDE : DEPTH, columns = BY_K ? DEPTH : SIDE, width = columns + (BY_K ? 4 : 8);
    static constexpr int floats = rows * width, chunks = columns / 4, apart = threads / chunks;
    static_assert(apart % 4 == 0 && rows % apart == 0 && rows <= threads, "a thread's rows begin alike");

    const float *from, *extra;   // this thread's first vector of the tile, and its vector past the end of a row
    int64_t step;                // floats between the thread's rows
    int row, column, late, extra_late; // of the first vector; floats from vectors to the starts of rows

    VB_DEVICE Tile(const float *matrix, int64_t stride, int64_t first)
        : step(apart * stride), row(threadIdx.x / chunks), column(threadIdx.x % chunks * 4),
          late(before(matrix, stride, first, row)),
          extra_late((int)threadIdx.x < rows ? before(matrix, stride, first, threadIdx.x) : 0) {
        const float *const tile = matrix + (BY_K ? first * stride : first);
        from = tile + row * stride - late + column;
        extra = tile + threadIdx.x * stride - extra_late + columns;
    }

    // Floats from an aligned vector to the start of row `row` of the tile at `first`.
    static VB_DEVICE int before(const float *matrix, int64_t stride, int64_t first, int row) {
        return (int)((uintptr_t)(matrix + (BY_K ? first * stride : first) + row * stride) / 4 % 4);
    }
    // Where element (across, k) of a row that begins so many floats late lies.
    static VB_DEVICE int place(int across, int k) { return BY_K ? across * width + k : k * width + across; }

    // The next tile, of which so many elements along k and across lie in the matrix; zeros outside. `nothing` is an
    // address of which nothing is read.
    VB_DEVICE void copy(unsigned to, int left_k, int left_side, const float *nothing) {
        const int left_rows = BY_K ? left_side : left_k, left = BY_K ? left_k : left_side;
        const unsigned at = to + (row * width + column) * 4;
        const float *vector = from;
        if (row + rows - apart < left_rows && column + 4 <= late + left) {
#pragma unroll
            for (int i = 0; i < rows; i += apart, vector += step) copy_async(at + i * width * 4, vector);
        } else {
            const int bytes = larger(0, smaller(4, late + left - column)) * 4;
#pragma unroll
            for (int i = 0; i < rows; i += apart, vector += step) {
                const bool inside = bytes > 0 && row + i < left_rows;
                copy_async_part(at + i * width * 4, inside ? vector : nothing, inside ? bytes : 0);
            }
        }
        if (extra_late > 0) {
            const int bytes = (int)threadIdx.x < left_rows ? larger(0, smaller(4, extra_late + left - columns)) * 4 : 0;
            copy_async_part(to + (threadIdx.x * width + columns) * 4, bytes ? extra : nothing, bytes);
        }
        const int64_t advance = BY_K ? DEPTH : DEPTH / apart * step;
        from += advance, extra += advance;
    }
};

// sum += a b, or sum = a b.
VB_DEVICE void add_mma(bool first, float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    if (first) mma_tf32_first(sum, a, b[0], b[1]);
    else mma_tf32(sum, a, b[0], b[1]);
}

// Float32 results of sums of raised parts.
struct Settle {
    MatMulProblem<float> p;
    bool a_transposed, b_transposed;

    VB_DEVICE float operator()(float sum, int64_t matrix, int64_t row, int64_t column) const {
        return finite_sum(sum) ? sum * lowered : plain(matrix, row, column);
    }
    VB_DEVICE float plain(int64_t matrix, int64_t row, int64_t column) const {
        const float *const a = p.a + matrix * p.a_batch_stride + row * (a_transposed ? 1 : p.a_stride);
        const float *const b = p.b + matrix * p.b_batch_stride + column * (b_transposed ? p.b_stride : 1);
        const int64_t a_step = a_transposed ? p.a_stride : 1, b_step = b_transposed ? 1 : p.b_stride;
        float sum = 0.0f;
        for (int64_t i = 0; i < p.k; i++) sum = fmaf(a[i * a_step], b[i * b_step], sum);
        return sum;
    }
};

// Warps that share the k of a stage have 32 of it each.
template <int BM, int BN, int WARPS_M, int WARPS_K, bool A_T, bool B_T>
__global__ void __launch_bounds__(threads, BM *BN == 4096 ? 3 : 5)
    matmul_3xtf32_any_kernel(const MatMulProblem<float> all, KParts parts) {
#if __CUDA_ARCH__ >= 800
    constexpr int of_warp = MATMUL_TF32_DEPTH, depth = of_warp * WARPS_K;
    using A = Tile<!A_T, BM, depth>;
    using B = Tile<B_T, BN, depth>;
    constexpr int WARPS_N = 4 / WARPS_M / WARPS_K, R = BM / WARPS_M / 16, Q = BN / WARPS_N / 8;
    // A product waits for the product before it with the same sum. Where a warp has few sums, each of the three
    // products has its own.
    constexpr int sums = R * Q <= 2 ? 3 : 1;
    constexpr int stage_floats = A::floats + B::floats, result_width = BN + 4;
    static_assert(WARPS_K * BM * result_width <= stage_floats || WARPS_K == 1, "sums take the place of a stage");
    static_assert(BM * result_width <= stages * stage_floats, "C takes the place of the stages");
    extern __shared__ __align__(16) float tiles[];
    MatMulProblem<float> p = all;
    p.select();
    select_part<A_T, B_T>(p, parts, depth);
    const TileOrder tile = tile_of_block(ceil_div<int64_t>(p.m, BM), ceil_div<int64_t>(p.n, BN));
    const int64_t m0 = tile.row * BM, n0 = tile.col * BN;
    const int rows = (int)smaller<int64_t>(BM, p.m - m0), columns = (int)smaller<int64_t>(BN, p.n - n0);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int warp_m = warp / WARPS_N % WARPS_M * (BM / WARPS_M), warp_n = warp % WARPS_N * (BN / WARPS_N);
    const int warp_k = warp / (WARPS_N * WARPS_M);
    A a_tile(p.a, p.a_stride, m0);
    B b_tile(p.b, p.b_stride, n0);
    // Of this lane's fragments: rows of the tile that differ by multiples of four begin alike.
    const int a_late = A::before(p.a, p.a_stride, m0, A_T ? t : g);
    const int b_late = B::before(p.b, p.b_stride, n0, B_T ? g : t);
    const float *const nothing = all.a - (uintptr_t)all.a / 4 % 4;
    const auto copy_stage = [&](int stage, int64_t k) {
        const unsigned to = shared_address(tiles) + unsigned(stage) * (stage_floats * 4);
        const int left = (int)smaller<int64_t>(depth, p.k - k);
        a_tile.copy(to, left, rows, nothing);
        b_tile.copy(to + A::floats * 4, left, columns, nothing);
    };
    wait_for_previous_kernel();
    release_next_kernel();
    for (int i = 0; i < stages - 1; i++) {
        if (i * depth < p.k) copy_stage(i, i * depth);
        copy_async_commit();
    }
    float sum[R][Q][4] = {};
    int stage = 0;
    for (int64_t k = 0; k < p.k; k += depth) {
        copy_async_wait<stages - 2>();
        __syncthreads();
        // The stage that all have left is the one before this.
        if (k + (stages - 1) * depth < p.k) copy_stage(stage == 0 ? stages - 1 : stage - 1, k + (stages - 1) * depth);
        copy_async_commit();
        const float *const in_use = tiles + stage * stage_floats;
        const float *const a = in_use + a_late, *const b = in_use + A::floats + b_late;
        stage = stage == stages - 1 ? 0 : stage + 1;
#pragma unroll
        for (int i = 0; i < of_warp; i += 16) {
            const int d = WARPS_K > 1 ? warp_k * of_warp + i : i;
            if (d > 0 && k + d >= p.k) break; // zeros
            float part[sums][R][Q][4];
#pragma unroll
            for (int eight = 0; eight < 16; eight += 8) {
                const bool first = eight == 0;
                const int e8 = d + eight;
                unsigned high_a[R][4], low_a[R][4], high_b[Q][2], low_b[Q][2];
#pragma unroll
                for (int r = 0; r < R; r++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        split_tf32(a[A::place(warp_m + r * 16 + g + e % 2 * 8, e8 + t + e / 2 * 4)], high_a[r][e],
                                   low_a[r][e]);
#pragma unroll
                for (int q = 0; q < Q; q++)
#pragma unroll
                    for (int e = 0; e < 2; e++)
                        split_tf32(b[B::place(warp_n + q * 8 + g, e8 + t + e * 4)], high_b[q][e], low_b[q][e]);
#pragma unroll
                for (int r = 0; r < R; r++)
#pragma unroll
                    for (int q = 0; q < Q; q++) add_mma(first, part[0][r][q], low_a[r], high_b[q]);
#pragma unroll
                for (int r = 0; r < R; r++)
#pragma unroll
                    for (int q = 0; q < Q; q++) add_mma(first && sums > 1, part[sums / 2][r][q], high_a[r], low_b[q]);
#pragma unroll
                for (int r = 0; r < R; r++)
#pragma unroll
                    for (int q = 0; q < Q; q++)
                        add_mma(first && sums > 1, part[sums - 1][r][q], high_a[r], high_b[q]);
            }
#pragma unroll
            for (int r = 0; r < R; r++)
#pragma unroll
                for (int q = 0; q < Q; q++)
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        float all = part[0][r][q][e];
#pragma unroll
                        for (int s = 1; s < sums; s++) all += part[s][r][q][e];
                        sum[r][q][e] += all;
                    }
        }
    }
    copy_async_wait<0>();
    const int row = warp_m + g, column = warp_n + t * 2; // of the thread's first two sums
    if (parts.count > 1) return store_part(parts, p, sum, m0 + row, n0 + column);

    bool finite = true, again;
    float(*const result)[result_width] = (float(*)[result_width])tiles;
    if (WARPS_K > 1) { // the sums of all warps, in the order of k
        __syncthreads(); // all have left the last stage
        place_sums(result + warp_k * BM, sum, row, column);
        __syncthreads();
#pragma unroll
        for (int i = threadIdx.x; i < BM * BN; i += threads) {
            float *const at = &result[i / BN][i % BN];
            float all = *at;
#pragma unroll
            for (int w = 1; w < WARPS_K; w++) all += at[w * BM * result_width];
            finite &= finite_sum(all), *at = all * lowered;
        }
        again = __syncthreads_or(!finite);
    } else {
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int q = 0; q < Q; q++)
#pragma unroll
                for (int e = 0; e < 4; e++) finite &= finite_sum(sum[r][q][e]), sum[r][q][e] *= lowered;
        again = __syncthreads_or(!finite); // all have left the last stage
        place_sums(result, sum, row, column);
        __syncthreads();
    }
    if (again) {
        const Settle settle = {all, A_T, B_T};
        for (int i = threadIdx.x; i < rows * BN; i += threads) {
            const int r = i / BN, q = i % BN;
            if (q < columns && !finite_sum(result[r][q])) result[r][q] = settle.plain(blockIdx.y, m0 + r, n0 + q);
        }
        __syncthreads();
    }
    // A thread has every few rows of the same columns.
    constexpr int across = BN / 4;
    if (p.c_vectors) { // whole vectors, and the rest of a row
        const int q = threadIdx.x % across * 4;
        float *c = p.c + (m0 + threadIdx.x / across) * p.c_stride + n0 + q;
#pragma unroll 4
        for (int r = threadIdx.x / across; r < rows; r += threads / across, c += threads / across * p.c_stride) {
            if (q + 4 <= columns) {
                *(float4 *)c = *(const float4 *)&result[r][q];
            } else {
#pragma unroll
                for (int e = 0; e < 3; e++)
                    if (q + e < columns) c[e] = result[r][q + e];
            }
        }
    } else { // the first threads of a row have its last columns, so that warps begin at sectors
        float *c = p.c + (m0 + threadIdx.x / BN) * p.c_stride + n0;
#pragma unroll 8
        for (int r = threadIdx.x / BN; r < rows; r += threads / BN, c += threads / BN * p.c_stride) {
            const int q = (threadIdx.x - (unsigned)((uintptr_t)c % MATMUL_SECTOR / sizeof(float))) % BN;
            if (q < columns) c[q] = result[r][q];
        }
    }
#endif
}

template <int BM, int BN, int WARPS_M, int WARPS_K = 1>
vb_status launch_any(const vb_matmul_args &x, vb_stream *stream) {
    const vb_gpu gpu = gpu_of(stream);
    KParts parts;
    VB_TRY(plan_k_parts(&parts, matmul_plan_of(MATMUL_3XTF32_ANY, &x, &gpu).parts, x, stream));
    VB_TRY(with_layouts(x, [&](auto a_t, auto b_t) {
        constexpr bool A_T = decltype(a_t)::value, B_T = decltype(b_t)::value;
        return for_batches<float>(x, BM, BN, [&](const MatMulProblem<float> &p, dim3 grid) {
            grid.z = (unsigned)parts.count;
            constexpr int depth = MATMUL_TF32_DEPTH * WARPS_K;
            constexpr int bytes = (Tile<!A_T, BM, depth>::floats + Tile<B_T, BN, depth>::floats) * 4;
            const int in_use = WARPS_K > 1 ? (int)smaller<int64_t>(stages, ceil_div<int64_t>(x.k, depth)) : stages;
            return launch_overlapped(stream, grid, threads, in_use * bytes,
                                     matmul_3xtf32_any_kernel<BM, BN, WARPS_M, WARPS_K, A_T, B_T>, p, parts);
        });
    }));
    const Settle settle = {MatMulProblem<float>(x), x.a_transposed != 0, x.b_transposed != 0};
    return add_parts<float>(x, parts, settle, stream);
}

} // namespace

vb_status matmul_3xtf32_any(const vb_matmul_args &x, vb_stream *stream) {
    const vb_gpu gpu = gpu_of(stream);
    const matmul_ksplit_plan plan = matmul_plan_of(MATMUL_3XTF32_ANY, &x, &gpu);
    if (plan.tile_m == 16 && plan.tile_n == 16) return launch_any<16, 16, 1, 4>(x, stream);
    if (plan.tile_m == 32 && plan.tile_n == 64) return launch_any<32, 64, 2>(x, stream);
    if (plan.tile_m == 32) return launch_any<32, 32, 2>(x, stream);
    if (plan.tile_n == 32) return launch_any<64, 32, 2>(x, stream);
    if (plan.tile_m == 16) return launch_any<16, 64, 1>(x, stream);
    if (plan.tile_n == 16) return launch_any<64, 16, 4>(x, stream);
    return launch_any<64, 64, 2>(x, stream);
}

} // namespace vb
