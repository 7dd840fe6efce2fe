// matmul_mma.cu: C = A B for F16 and BF16 on tensor cores, accumulated in float32; any layout, operands of whole
// vectors.
//
//   grid     (ceil(m / 128) * ceil(n / 128) in bands (matmul.cuh), matrices)
//   block    8 warps, 2 x 4; a warp has 64 x 32 outputs, as 4 x 4 products of m16n8k16
//   shared   three stages of A [128][64] and B [64][128], or as they are stored if transposed, swizzled: 96 KiB; two
//            stages are on their way while one is used
//   moves    about (1 / 128 + 1 / 128) m n k * 2 bytes from L2, 2 m n k FLOPs
//   bound    tensor cores, as far as mma.sync feeds Hopper's
//   measured docs/experiments/2026-11-22-gemm.md

#include "gemm/matmul.cuh"
#include "arch/mma.cuh"

namespace vb {
namespace {

constexpr int threads = 256;
constexpr int side = 128, depth = 64, stages = 3;
constexpr int tile_bytes = side * depth * 2, stage_bytes = 2 * tile_bytes;

// Copies a tile of `depth` along k and `side` across, as it is stored: [side][depth] where BY_K, else [depth][side].
template <class T, bool BY_K>
struct TileCopy {
    static constexpr int rows = BY_K ? side : depth, chunks = (BY_K ? depth : side) / 8; // of 16 bytes in a row
    static constexpr int apart = threads / chunks; // rows that a thread's copies are
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
    // What is left of k and of the other side, from the tile's corner on.
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

template <class T, bool A_T, bool B_T>
__global__ void __launch_bounds__(threads, 2) matmul_mma_kernel(MatMulProblem<T> p) {
#if __CUDA_ARCH__ >= 800
    extern __shared__ __align__(1024) uint4 shared[];
    p.select();
    wait_for_previous_kernel();
    release_next_kernel();
    const TileOrder tile = tile_of_block(ceil_div<int64_t>(p.m, side), ceil_div<int64_t>(p.n, side));
    const int64_t m0 = tile.row * side, n0 = tile.col * side;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_m = warp / 4 * 64, warp_n = warp % 4 * 32;
    const unsigned base = shared_address(shared);
    using CopyA = TileCopy<T, !A_T>;
    using CopyB = TileCopy<T, B_T>;
    const CopyA a_copy(base, p.a, p.a_stride, m0);
    const CopyB b_copy(base + tile_bytes, p.b, p.b_stride, n0);
    const auto copy_stage = [&](int64_t step) {
        const unsigned to = unsigned(step % stages) * stage_bytes;
        a_copy.run(to, step, p.k - step * depth, p.m - m0);
        b_copy.run(to, step, p.k - step * depth, p.n - n0);
    };

    const int64_t steps = ceil_div<int64_t>(p.k, depth);
    for (int i = 0; i < stages - 1; i++) {
        if (i < steps) copy_stage(i);
        copy_async_commit();
    }
    // The two lanes' bits that choose among four 8x8 matrices: the next 8 rows of a fragment, the next 8 of k. A matrix
    // that is stored the other way round is transposed on loading. Chunk 2i + x of a row is chunk x with bits 5.. of
    // the address flipped by i (see mma.cuh).
    const int eight = lane % 8, second = lane / 8 % 2, third = lane / 16;
    const unsigned a_at = base + (A_T ? swizzled(eight + third * 8, warp_m / 8 + second, CopyA::chunks)
                                      : swizzled(warp_m + eight + second * 8, third, CopyA::chunks));
    const unsigned b_at = base + tile_bytes + (B_T ? swizzled(warp_n + eight + third * 8, second, CopyB::chunks)
                                                   : swizzled(eight + second * 8, warp_n / 8 + third, CopyB::chunks));
    float sum[4][4][4] = {};
    for (int64_t step = 0; step < steps; step++) {
        copy_async_wait<stages - 2>();
        __syncthreads();
        if (step + stages - 1 < steps) copy_stage(step + stages - 1);
        copy_async_commit();
        const unsigned stage = unsigned(step % stages) * stage_bytes;
#pragma unroll
        for (int i = 0; i < depth / 16; i++) {
            unsigned x[4][4], y[2][4];
#pragma unroll
            for (int r = 0; r < 4; r++) {
                if (A_T) load_matrices_transposed(x[r], ((a_at + stage) ^ 32 * r) + i * 16 * CopyA::chunks * 16);
                else load_matrices(x[r], ((a_at + stage) ^ 32 * i) + r * 16 * CopyA::chunks * 16);
            }
#pragma unroll
            for (int q = 0; q < 2; q++) {
                if (B_T) load_matrices(y[q], ((b_at + stage) ^ 32 * i) + q * 16 * CopyB::chunks * 16);
                else load_matrices_transposed(y[q], ((b_at + stage) ^ 32 * q) + i * 16 * CopyB::chunks * 16);
            }
#pragma unroll
            for (int r = 0; r < 4; r++)
#pragma unroll
                for (int q = 0; q < 4; q++) mma<T>(sum[r][q], x[r], y[q / 2][q % 2 * 2], y[q / 2][q % 2 * 2 + 1]);
        }
    }
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int64_t row = m0 + warp_m + r * 16 + lane / 4 + 8 * h;
            if (row >= p.m) continue;
            T *const c = p.c + row * p.c_stride;
#pragma unroll
            for (int q = 0; q < 4; q++) {
                const int64_t col = n0 + warp_n + q * 8 + lane % 4 * 2;
                Vec<T, 2> two;
                two.at[0] = from_float<T>(sum[r][q][2 * h]), two.at[1] = from_float<T>(sum[r][q][2 * h + 1]);
                if (p.c_vectors && col + 2 <= p.n) {
                    *reinterpret_cast<Vec<T, 2> *>(c + col) = two;
                } else {
                    if (col < p.n) c[col] = two.at[0];
                    if (col + 1 < p.n) c[col + 1] = two.at[1];
                }
            }
        }
#endif
}

template <class T>
vb_status launch_mma(const vb_matmul_args &x, vb_stream *stream) {
    return with_layouts(x, [&](auto a_t, auto b_t) {
        return for_batches<T>(x, side, side, [&](const MatMulProblem<T> &p, dim3 grid) {
            return launch_overlapped(stream, grid, threads, stages * stage_bytes,
                                     matmul_mma_kernel<T, decltype(a_t)::value, decltype(b_t)::value>, p);
        });
    });
}

} // namespace

vb_status matmul_mma(const vb_matmul_args &x, vb_stream *stream) {
    return x.type == VB_F16 ? launch_mma<half>(x, stream) : launch_mma<bf16>(x, stream);
}

} // namespace vb
