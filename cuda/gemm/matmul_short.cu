// matmul_short.cu: C = A B for F16 and BF16 where k is at most 64, on tensor cores: any layout, strides and alignment.
//
//   grid     (ceil(m / 64) * ceil(n / 64) in bands (matmul.cuh), matrices); of every `phases`-th row where rows of C
//            begin anywhere (matmul_phases)
//   block    4 warps of 32 x 32 outputs each
//   shared   all of k of A [64][K] and B [K][64] as they are stored, through registers, K = 32 or 64; C in 16 bits:
//            27 KiB at most
//   moves    about (1 / 64 + 1 / 64) m n k * 2 bytes from L2, C once; 2 m n k FLOPs
//   bound    the beginning and end of blocks, of which up to 8 share a multiprocessor; the writing of C
//   measured docs/experiments/2026-11-24-shapes.md

#include "arch/mma.cuh"
#include "gemm/matmul.cuh"
#include "gemm/tile_load.cuh"

namespace vb {
namespace {

constexpr int side = MATMUL_SHORT_SIDE, threads = 128;
constexpr int result_width = side + 8; // elements of a row of C in shared memory, which begins as its row in C does

// Copies elements [first, end) of eight, of which both addresses are aligned.
VB_DEVICE void copy_some(unsigned short *to, const unsigned short *from, int first, int end) {
    if (first == 0 && end == 8) {
        *(uint4 *)to = *(const uint4 *)from;
        return;
    }
    int e = first; // by pieces of 1, 2 and 4 elements, then of 4, 2 and 1
    const auto one = [&] { to[e] = from[e], e += 1; };
    const auto two = [&] { *(unsigned *)(to + e) = *(const unsigned *)(from + e), e += 2; };
    const auto four = [&] { *(uint2 *)(to + e) = *(const uint2 *)(from + e), e += 4; };
    if (e & 1) one();
    if (e & 2 && e + 2 <= end) two();
    if (e + 4 <= end) four();
    if (e + 4 <= end) four();
    if (e + 2 <= end) two();
    if (e < end) one();
}

template <class T, int K, bool A_T, bool B_T>
__global__ void __launch_bounds__(threads, K == 32 ? 8 : 6) matmul_short_kernel(MatMulProblem<T> p, int phases) {
#if __CUDA_ARCH__ >= 800
    constexpr int R = 2, Q = 4;
    using LoadA = TileLoad<T, !A_T, side, K, threads>;
    using LoadB = TileLoad<T, B_T, side, K, threads>;
    __shared__ __align__(128) char a_tile[LoadA::bytes], b_tile[LoadB::bytes];
    __shared__ __align__(16) unsigned short result[side][result_width];
    p.select();
    const TileOrder tile = tile_of_block(ceil_div<int64_t>(p.m, side * phases) * phases,
                                         ceil_div<int64_t>(p.n + (phases > 1 ? MATMUL_SECTOR / 2 - 1 : 0), side));
    const int64_t m0 = tile.row / phases * side * phases + tile.row % phases;
    // Elements from the start of a sector to that of a row; the first tile of a row has as many columns less.
    const int late = phases > 1 ? (int)((uintptr_t)(p.c + m0 * p.c_stride) % MATMUL_SECTOR / 2) : 0;
    const int64_t n0 = tile.col == 0 ? 0 : tile.col * side - late;
    const int rows = (int)smaller<int64_t>(side, ceil_div<int64_t>(p.m - m0, phases));
    const int columns = (int)smaller<int64_t>(tile.col == 0 ? side - late : side, p.n - n0), k = (int)p.k;
    wait_for_previous_kernel();
    release_next_kernel();
    if (rows <= 0 || columns <= 0) return;
    if (!A_T) p.a += m0 * p.a_stride, p.a_stride *= phases;
    {
        LoadA a(p.a, p.a_stride, A_T ? m0 : 0);
        LoadB b(p.b, p.b_stride, n0);
        a.load(k, rows), b.load(k, columns);
        a.store(a_tile), b.store(b_tile);
    }
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_m = warp / 2 * 32, warp_n = warp % 2 * 32;
    // The lane's bits that choose among four 8x8 matrices: the next 8 rows of a fragment, the next 8 of k.
    const int eight = lane % 8, second = lane / 8 % 2, third = lane / 16;
    const unsigned a_at = shared_address(a_tile) + (A_T ? (eight + third * 8) * LoadA::width + (warp_m + second * 8) * 2
                                                        : (warp_m + eight + second * 8) * LoadA::width + third * 16);
    const unsigned b_at =
        shared_address(b_tile) + (B_T ? (warp_n + eight + third * 8) * LoadB::width + second * 16
                                      : (eight + second * 8) * LoadB::width + (warp_n + third * 8) * 2);
    __syncthreads();
    float sum[R][Q][4] = {};
#pragma unroll
    for (int i = 0; i < K / 16; i++) {
        if (i * 16 >= k) break;
        multiply_tiles<T, A_T, B_T, LoadA::width, LoadB::width>(sum, a_at, b_at, i);
    }

    unsigned short *const c = (unsigned short *)(p.c + m0 * p.c_stride + n0);
    p.c_stride *= phases;
    // Elements from an aligned vector to the start of row r of the tile.
    const unsigned first_past = (unsigned)(uintptr_t)c / 2, stride = (unsigned)p.c_stride;
    const auto past = [&](int r) { return (int)((first_past + r * stride) % 8); };
    const bool pairs = ((first_past | stride) & 1) == 0;
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int row = warp_m + r * 16 + h * 8 + lane / 4;
            unsigned short *const to = &result[row][past(row) + warp_n + lane % 4 * 2];
#pragma unroll
            for (int q = 0; q < Q; q++) {
                const unsigned two = pack<T>(sum[r][q][2 * h], sum[r][q][2 * h + 1]);
                if (pairs) *(unsigned *)(to + q * 8) = two;
                else to[q * 8] = (unsigned short)two, to[q * 8 + 1] = (unsigned short)(two >> 16);
            }
        }
    __syncthreads();
    constexpr int vectors = result_width / 8;
#pragma unroll
    for (int i = threadIdx.x; i < side * vectors; i += threads) {
        const int row = i / vectors, vector = i % vectors * 8;
        if (row >= rows) break;
        const int before = past(row), first = larger(0, before - vector), end = smaller(8, before + columns - vector);
        if (first < end) copy_some(c + row * p.c_stride + vector - before, &result[row][vector], first, end);
    }
#endif
}

template <class T, int K>
vb_status launch_short(const vb_matmul_args &x, vb_stream *stream) {
    const int phases = matmul_short_phases(&x);
    return with_layouts(x, [&](auto a_t, auto b_t) {
        return for_batches<T>(x, side, side, [&](const MatMulProblem<T> &p, dim3 grid) {
            grid.x = (unsigned)(matmul_short_rows(&x, phases) * matmul_short_columns(&x, phases));
            return launch_overlapped(stream, grid, threads, 0,
                                     matmul_short_kernel<T, K, decltype(a_t)::value, decltype(b_t)::value>, p, phases);
        });
    });
}

template <class T>
vb_status launch_short(const vb_matmul_args &x, vb_stream *stream) {
    return x.k <= 32 ? launch_short<T, 32>(x, stream) : launch_short<T, 64>(x, stream);
}

} // namespace

vb_status matmul_short(const vb_matmul_args &x, vb_stream *stream) {
    return x.type == VB_F16 ? launch_short<half>(x, stream) : launch_short<bf16>(x, stream);
}

} // namespace vb
