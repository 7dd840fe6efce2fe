// matmul_mma.cu: C = A B for F16 and BF16 on tensor cores, accumulated in float32; any layout, operands of whole
// vectors.
//
//   grid     (ceil(m / BM) * ceil(n / BN) in bands (matmul.cuh), matrices, blocks that share k)
//   block    BM x BN = 128 x 128: 8 warps of 64 x 32 outputs; 64 x 64: 4 of 32 x 32
//   shared   two stages of A [BM][64] and B [64][BN] of the largest tiles, else three; as they are stored if
//            transposed, swizzled: 96 KiB, of small tiles 48. All but one are on their way while one is used
//   moves    about (1 / BM + 1 / BN) m n k * 2 bytes from L2, 2 m n k FLOPs; 8 bytes an output and block that shares k
//   bound    tensor cores, as far as mma.sync feeds Hopper's. A warp's fragments of A and B come from shared memory: of
//            64 x 64 outputs in two thirds of the time that their products take, of 64 x 32 in as long
//   measured docs/experiments/2026-11-22-gemm.md

#include "gemm/matmul.cuh"
#include "gemm/store_rows.cuh"

namespace vb {
namespace {

constexpr int depth = MATMUL_MMA_DEPTH;

// Copies a tile of `depth` along k and SIDE across, as it is stored: [SIDE][depth] where BY_K, else [depth][SIDE].
template <class T, bool BY_K, int SIDE, int THREADS>
struct TileCopy {
    static constexpr int rows = BY_K ? SIDE : depth, chunks = (BY_K ? depth : SIDE) / 8; // of 16 bytes in a row
    static constexpr int apart = THREADS / chunks; // rows that a thread's copies are
    static_assert(apart % 8 == 0 && rows % apart == 0, "a thread's rows are swizzled alike");
    unsigned to;
    const T *from;
    int64_t stride, advance;
    int row, column; // where this thread begins

    VB_DEVICE TileCopy(unsigned tile, const T *matrix, int64_t stride, int64_t first)
        : stride(stride), advance(BY_K ? depth : depth * stride), row(threadIdx.x / chunks),
          column(threadIdx.x % chunks * 8) {
        to = tile + swizzled(row, column / 8, chunks);
        from = matrix + (BY_K ? (first + row) * stride + column : row * stride + first + column);
    }
    // The rest of k, and of the other side, from the tile's corner on.
    VB_DEVICE void run(unsigned offset, int64_t step, int64_t left_k, int64_t left_side) const {
        const T *const at = from + step * advance;
        const int64_t left_rows = (BY_K ? left_side : left_k) - row, left = (BY_K ? left_k : left_side) - column;
        const int bytes = left <= 0 ? 0 : (int)smaller<int64_t>(8, left) * 2;
#pragma unroll
        for (int i = 0; i < rows / apart; i++) {
            const bool inside = bytes > 0 && i * apart < left_rows;
            copy_async_part(to + offset + i * apart * chunks * 16, inside ? at + i * apart * stride : from,
                            inside ? bytes : 0);
        }
    }
};

template <int TILE_M, int TILE_N, int WARPS_M, int WARPS_N>
struct MmaTile {
    static constexpr int m = TILE_M, n = TILE_N, warps_n = WARPS_N, threads = 32 * WARPS_M * WARPS_N;
    static constexpr int warp_m = m / WARPS_M, warp_n = n / WARPS_N; // outputs of a warp
    static constexpr int stages = MATMUL_MMA_STAGES, a_bytes = m * depth * 2, stage_bytes = a_bytes + n * depth * 2;
    static constexpr int blocks = 2; // a multiprocessor, by registers at least
};

template <class T, class Tile, bool A_T, bool B_T>
__global__ void __launch_bounds__(Tile::threads, Tile::blocks)
    matmul_mma_kernel(MatMulProblem<T> p, const KParts parts) {
#if __CUDA_ARCH__ >= 800
    constexpr int R = Tile::warp_m / 16, Q = Tile::warp_n / 8, stages = Tile::stages, stage_bytes = Tile::stage_bytes;
    extern __shared__ __align__(1024) uint4 shared[];
    p.select();
    select_part<A_T, B_T>(p, parts, depth);
    const TileOrder tile = tile_of_block(ceil_div<int64_t>(p.m, Tile::m), ceil_div<int64_t>(p.n, Tile::n));
    const int64_t m0 = tile.row * Tile::m, n0 = tile.col * Tile::n;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_m = warp / Tile::warps_n * Tile::warp_m, warp_n = warp % Tile::warps_n * Tile::warp_n;
    const unsigned base = shared_address(shared);
    using CopyA = TileCopy<T, !A_T, Tile::m, Tile::threads>;
    using CopyB = TileCopy<T, B_T, Tile::n, Tile::threads>;
    const CopyA a_copy(base, p.a, p.a_stride, m0);
    const CopyB b_copy(base + Tile::a_bytes, p.b, p.b_stride, n0);
    const auto copy_stage = [&](int64_t step) {
        const unsigned to = unsigned(step % stages) * stage_bytes;
        a_copy.run(to, step, p.k - step * depth, p.m - m0);
        b_copy.run(to, step, p.k - step * depth, p.n - n0);
    };

    const int64_t steps = ceil_div<int64_t>(p.k, depth);
    wait_for_previous_kernel();
    release_next_kernel();
    for (int i = 0; i < stages - 1; i++) {
        if (i < steps) copy_stage(i);
        copy_async_commit();
    }
    // The two lanes' bits that choose among four 8x8 matrices: the next 8 rows of a fragment, the next 8 of k.
    // A matrix that is stored the other way round is transposed on loading.
    // Chunk 2i + x of a row is chunk x with bits 5.. of the address flipped by i (see mma.cuh).
    const int eight = lane % 8, second = lane / 8 % 2, third = lane / 16;
    const unsigned a_at = base + (A_T ? swizzled(eight + third * 8, warp_m / 8 + second, CopyA::chunks)
                                      : swizzled(warp_m + eight + second * 8, third, CopyA::chunks));
    const unsigned b_at = base + Tile::a_bytes + (B_T ? swizzled(warp_n + eight + third * 8, second, CopyB::chunks)
                                                   : swizzled(eight + second * 8, warp_n / 8 + third, CopyB::chunks));
    float sum[R][Q][4] = {};
    for (int64_t step = 0; step < steps; step++) {
        copy_async_wait<stages - 2>();
        __syncthreads();
        if (step + stages - 1 < steps) copy_stage(step + stages - 1);
        copy_async_commit();
        const unsigned stage = unsigned(step % stages) * stage_bytes;
#pragma unroll
        for (int i = 0; i < depth / 16; i++) {
            unsigned x[R][4], y[Q / 2][4];
#pragma unroll
            for (int r = 0; r < R; r++) {
                if (A_T) load_matrices_transposed(x[r], ((a_at + stage) ^ 32 * r) + i * 16 * CopyA::chunks * 16);
                else load_matrices(x[r], ((a_at + stage) ^ 32 * i) + r * 16 * CopyA::chunks * 16);
            }
#pragma unroll
            for (int q = 0; q < Q / 2; q++) {
                if (B_T) load_matrices(y[q], ((b_at + stage) ^ 32 * i) + q * 16 * CopyB::chunks * 16);
                else load_matrices_transposed(y[q], ((b_at + stage) ^ 32 * q) + i * 16 * CopyB::chunks * 16);
            }
#pragma unroll
            for (int r = 0; r < R; r++)
#pragma unroll
                for (int q = 0; q < Q; q++) mma<T>(sum[r][q], x[r], y[q / 2][q % 2 * 2], y[q / 2][q % 2 * 2 + 1]);
        }
    }
    if (parts.count > 1) return store_part(parts, p, sum, m0 + warp_m + lane / 4, n0 + warp_n + lane % 4 * 2);
    const ProductOutput<T> out = {p.c + m0 * p.c_stride + n0, p.c_stride, (int)smaller<int64_t>(Tile::m, p.m - m0),
                                  (int)smaller<int64_t>(Tile::n, p.n - n0), p.c_vectors};
    if (p.c_vectors) {
#pragma unroll
        for (int r = 0; r < R; r++)
            store_rows<T, 8 * Q, false>(out, reinterpret_cast<const float(&)[4 * Q]>(sum[r]), warp_m + r * 16, warp_n);
        return;
    }
    // Rows that begin anywhere go through shared memory, so that a warp writes whole rows.
    constexpr int result_width = Tile::n + 8; // rows of a fragment in different banks
    static_assert(Tile::m * result_width * 2 <= stages * stage_bytes, "C takes the place of the stages");
    T(*const result)[result_width] = (T(*)[result_width])shared;
    copy_async_wait<0>();
    __syncthreads();
    place_sums(result, sum, warp_m + lane / 4, warp_n + lane % 4 * 2);
    __syncthreads();
    store_tile<T, Tile::n, Tile::threads>(out.c, out.stride, out.m, out.n,
                                          [&](int r, int q) { return to_float(result[r][q]); });
#endif
}

template <class T, class Tile>
vb_status launch_mma(const vb_matmul_args &x, int count, void *sums, vb_stream *stream) {
    KParts parts;
    VB_TRY(plan_k_parts(&parts, count, x, stream, sums));
    VB_TRY(with_layouts(x, [&](auto a_t, auto b_t) {
        return for_batches<T>(x, Tile::m, Tile::n, [&](const MatMulProblem<T> &p, dim3 grid) {
            grid.z = (unsigned)parts.count;
            return launch_overlapped(stream, grid, Tile::threads, Tile::stages * Tile::stage_bytes,
                                     matmul_mma_kernel<T, Tile, decltype(a_t)::value, decltype(b_t)::value>, p, parts);
        });
    }));
    return add_parts<T>(x, parts, PlainSum(), stream);
}

template <class T>
vb_status launch_mma(const vb_matmul_args &x, void *sums, vb_stream *stream) {
    const vb_gpu gpu = gpu_of(stream);
    const matmul_ksplit_plan plan = matmul_plan_of(MATMUL_MMA, &x, &gpu);
    if (plan.tile_n == 128) return launch_mma<T, MmaTile<128, 128, 2, 4>>(x, plan.parts, sums, stream);
    return launch_mma<T, MmaTile<64, 64, 2, 2>>(x, plan.parts, sums, stream);
}

} // namespace

vb_status matmul_mma(const vb_matmul_args &x, vb_stream *stream, void *sums) {
    return x.type == VB_F16 ? launch_mma<half>(x, sums, stream) : launch_mma<bf16>(x, sums, stream);
}

} // namespace vb
